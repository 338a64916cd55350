//! Capabilities are bounded in all, and by the memory there is: what of them is asked back, of whom, and how fast.

use holdfast_base::limits::{CAPS_PRESSED_LOOKED, CAPS_PRESSED_MAX, CAPS_PRESSED_PARTS, CAPS_SPARE_PART};

use super::*;

/// A second passes, in which everybody shows a sign of life; what is recalled, and of whom.
fn second(world: &mut World, alive: &[ClientId]) -> Vec<(ClientId, FileKey, CapSet, u64)> {
    world.pass(1000);
    for client in alive {
        world.engine.caps_alive(*client, world.now);
    }
    world.engine.tick(world.now);
    let effects = world.settle().into_iter();
    effects
        .filter_map(|effect| match effect {
            Effect::CapRecall { client, file, keep, seq } => Some((client, file, keep, seq)),
            _ => None,
        })
        .collect()
}

fn give_back(world: &mut World, recalled: &[(ClientId, FileKey, CapSet, u64)]) {
    for (client, file, keep, seq) in recalled {
        assert_eq!(world.release(*client, *file, *keep, *seq), CapRelease::Released(CapGrant::default()));
    }
    world.settle();
}

fn bound(world: &mut World, capabilities_max: usize) {
    let policy = *world.engine.policy();
    world.engine.set_policy(Policy { capabilities_max, ..policy });
}

fn shared(world: &mut World, client: ClientId, files: std::ops::Range<u128>) {
    for file in files {
        assert_eq!(world.acquire(client, FileKey(file), CapSet::ALL_S).held, CapSet::ALL_S);
    }
}

fn held(world: &World) -> usize {
    world.engine.in_use().capabilities
}

/// Objects that may stay without any being asked for.
fn room(bound: usize) -> usize {
    bound - bound / CAPS_SPARE_PART
}

#[test]
fn nothing_is_asked_back_while_there_is_room() {
    let (mut world, a, b) = world_of_two();
    bound(&mut world, 100);
    shared(&mut world, a, 0..room(100) as u128);
    assert!(second(&mut world, &[a, b]).is_empty());
    shared(&mut world, a, 1000..1001);
    assert_eq!(
        second(&mut world, &[a, b]).len(),
        1,
        "before the bound is reached, or all would have to do without"
    );
}

#[test]
fn a_tenth_of_what_is_too_much_is_asked_back_each_second_until_there_is_room() {
    let (mut world, a, b) = world_of_two();
    shared(&mut world, a, 0..400);
    bound(&mut world, 100);
    let mut seconds = 0;
    while held(&world) > room(100) {
        let excess = held(&world) - room(100);
        let recalled = second(&mut world, &[a, b]);
        assert_eq!(recalled.len(), excess.div_ceil(CAPS_PRESSED_PARTS));
        assert!(recalled.iter().all(|(client, _, keep, _)| *client == a && keep.is_empty()));
        give_back(&mut world, &recalled);
        seconds += 1;
    }
    assert!((10..100).contains(&seconds), "{seconds}");
    assert!(second(&mut world, &[a, b]).is_empty());
    assert_eq!(held(&world), room(100), "and no more than that");
}

#[test]
fn what_is_on_its_way_back_is_not_asked_for_twice() {
    let (mut world, a, b) = world_of_two();
    shared(&mut world, a, 0..100);
    bound(&mut world, 50);
    let mut asked = std::collections::BTreeSet::new();
    for _ in 0..80 {
        for (_, file, ..) in second(&mut world, &[a, b]) {
            assert!(asked.insert(file), "{file:?}");
        }
    }
    // Nothing came back; what is asked for would make room.
    assert_eq!(asked.len(), 100 - room(50));
    assert_eq!(held(&world), 100);
}

#[test]
fn so_much_at_most_is_asked_back_in_a_second_whatever_there_is() {
    let (mut world, a, b) = world_of_two();
    shared(&mut world, a, 0..12_000);
    shared(&mut world, b, 0..50_000);
    bound(&mut world, 0);
    let recalled = second(&mut world, &[a, b]);
    assert_eq!(recalled.len(), CAPS_PRESSED_MAX);
    assert!(recalled.iter().all(|(client, ..)| *client == b), "of whoever holds most");
}

#[test]
fn whoever_holds_most_is_asked_first_and_for_half_at_most() {
    let (mut world, a, b) = world_of_two();
    shared(&mut world, a, 0..3);
    shared(&mut world, b, 100..104);
    // More of it in one second than the part of it that is due would be.
    for file in 0..200 {
        let (client, _) = world.client(&format!("c{file}"), 1);
        world.engine.caps_hello(client).unwrap();
        world.engine.caps_path(client, true);
        shared(&mut world, client, 1000 + file..1001 + file);
    }
    bound(&mut world, 0);
    let recalled = second(&mut world, &[a, b]);
    let of = |client| recalled.iter().filter(|(of, ..)| *of == client).count();
    assert_eq!((of(b), of(a)), (2, 2));
    assert_eq!(recalled.len(), 207_usize.div_ceil(CAPS_PRESSED_PARTS), "the rest one of each");
}

#[test]
fn what_was_granted_longest_ago_goes_first_and_what_must_be_flushed_last() {
    let (mut world, a, b) = world_of_two();
    // Twenty, of which every tenth part is due: two in a second, found among eight, in the order of their keys.
    for file in (0..20_u128).rev() {
        let want = if file == 7 || file == 15 { CapSet::ALL_X } else { CapSet::ALL_S };
        assert_eq!(world.acquire(a, FileKey(file), want).held, want);
    }
    bound(&mut world, 0);
    let files = |world: &mut World| {
        let recalled = second(world, &[a, b]);
        let mut files: Vec<_> = recalled.iter().map(|(_, file, ..)| file.0).collect();
        give_back(world, &recalled);
        files.sort_unstable();
        files
    };
    assert_eq!(CAPS_PRESSED_LOOKED, 4);
    // 0 to 7 are looked at; 7 is the oldest, but its holder may have changed it.
    assert_eq!(files(&mut world), [5, 6]);
    assert_eq!(files(&mut world), [13, 14], "of 8 to 15, likewise");
    // 16 to 19, and from the beginning 0 to 3.
    assert_eq!(files(&mut world), [18, 19]);
    // What is asked for again is the youngest from then on.
    bound(&mut world, 1000);
    world.pass(CAPS_RECALLED_MS);
    shared(&mut world, a, 5..7);
    bound(&mut world, 0);
    assert_eq!(files(&mut world), [10, 11], "of 4 to 11, in which 5 and 6 are young now");
    let everything_else: usize = (0..200).map(|_| files(&mut world).len()).sum();
    assert_eq!((everything_else, held(&world)), (14, 0), "the exclusive ones as well, in the end");
}

#[test]
fn who_cannot_be_called_is_left_alone_while_its_lease_lasts() {
    let (mut world, a, b) = world_of_two();
    shared(&mut world, a, 0..50);
    shared(&mut world, b, 100..110);
    world.engine.caps_path(a, false);
    bound(&mut world, 0);
    let recalled = second(&mut world, &[a, b]);
    assert!(!recalled.is_empty() && recalled.iter().all(|(client, ..)| *client == b), "{recalled:?}");
    give_back(&mut world, &recalled);
    // It does not come back: what it holds by courtesy is asked for like anybody's, and taken when its time is over.
    world.pass(LEASE_MS);
    let recalled = second(&mut world, &[b]);
    assert!(recalled.iter().any(|(client, ..)| *client == a), "{recalled:?}");
    let of_b: Vec<_> = recalled.into_iter().filter(|(client, ..)| *client == b).collect();
    give_back(&mut world, &of_b);
    world.pass(LEASE_MS);
    world.engine.caps_alive(b, world.now);
    world.engine.tick(world.now);
    world.settle();
    assert_eq!(world.engine.caps_count(a), 0);
}

#[test]
fn nothing_is_recalled_of_others_for_who_is_at_the_bound() {
    let (mut world, a, b) = world_of_two();
    world.acquire(a, FILE, CapSet::ALL_X);
    bound(&mut world, 1);
    let now = world.now;
    assert_eq!(world.engine.caps_contend(FILE, CapSet::FILE_S, b, now), Contention::Clear);
    assert!(world.settle().is_empty());
    assert_eq!(world.acquire(b, FILE, CapSet::FILE_S).held, CapSet::NONE);
    bound(&mut world, 2);
    assert!(matches!(world.engine.caps_contend(FILE, CapSet::FILE_S, b, now), Contention::Recalling { .. }));
    world.settle();
}

#[test]
fn when_memory_runs_short_capabilities_are_asked_back_the_less_is_left_the_more() {
    let asked_with = |available| {
        let (mut world, a, b) = world_of_two();
        shared(&mut world, a, 0..400);
        world.engine.heed(Memory { total: 8 << 30, available });
        second(&mut world, &[a, b]).len()
    };
    assert_eq!(asked_with(1 << 30), 0, "it is not short");
    assert_eq!(asked_with(512 << 20), (400 - room(200)).div_ceil(CAPS_PRESSED_PARTS));
    assert_eq!(asked_with(0), 40);
}

#[test]
fn what_stands_on_something_scarce_is_asked_back_by_age_and_nothing_beside_it() {
    let (mut world, a, b) = world_of_two();
    for file in 0..6 {
        let owner = if file % 2 == 0 { a } else { b };
        assert_eq!(world.acquire(owner, FileKey(file), CapSet::ALL_X).held, CapSet::ALL_X);
    }
    shared(&mut world, a, 100..103);
    world.settle();
    let among: Vec<_> = (0..6).map(|file| (if file % 2 == 0 { a } else { b }, FileKey(file))).collect();
    let asked = |world: &mut World, most: usize| -> Vec<(ClientId, u128, CapSet)> {
        // In whatever order they are counted up, and with some that hold nothing of the kind.
        let mut among = among.clone();
        among.reverse();
        among.extend([(a, FileKey(100)), (b, FileKey(4)), (ClientId(99), FileKey(1))]);
        let now = world.now;
        world.engine.caps_ask_oldest_back(among, most, CapSet::FILE_X_ALONE, now);
        let recalls = world.settle().into_iter().filter_map(|effect| match effect {
            Effect::CapRecall { client, file, keep, .. } => Some((client, file.0, keep)),
            _ => None,
        });
        recalls.collect()
    };
    let rest = CapSet::ALL_X.without(CapSet::FILE_X_ALONE);
    let mut first = asked(&mut world, 2);
    first.sort_unstable_by_key(|(_, file, _)| *file);
    assert_eq!(first, [(a, 0, rest), (b, 1, rest)]);
    assert!(asked(&mut world, 2).is_empty(), "these are on their way back");
    assert_eq!(asked(&mut world, 3), [(a, 2, rest)]);
    world.engine.caps_path(b, false);
    assert_eq!(asked(&mut world, 6), [(a, 4, rest)], "who cannot answer would lose all");
}
