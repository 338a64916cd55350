//! Names that are promised by themselves: how many questions that saves, and that nothing is relied on that is asked back.

use crate::world;
use crate::world::World;
use crate::world::fs::ROOT;
use holdfast_cache::*;

const STABLE: u8 = 10;

fn name_of(n: u8) -> Vec<u8> {
    format!("stable-{n}").into_bytes()
}

/// Two mounts of a directory with names that stay; nobody is given the directory to himself.
fn two() -> World {
    let mut world = World::new(2, true, 1);
    for n in 0..STABLE {
        world.server.fs.make(ROOT, &name_of(n), Kind::File, 0o644, 7).unwrap();
    }
    world.server.page = 300;
    world.server.generous = false;
    world
}

fn lookup(world: &mut World, c: usize, name: &[u8]) -> Lookup {
    let found = world.run(c, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    if let Lookup::Found(entry) = &found {
        // The kernel has it at hand no more than this test does.
        world.clients[c].machine.forget(entry.node, 1);
    }
    found
}

fn create(world: &mut World, c: usize, name: &[u8]) {
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(c, |m, t, now| m.create(t, NodeId::ROOT, name, 0o644, flags, now)).unwrap();
    let now = world.now();
    world.clients[c].machine.release(made.1.fh, now);
}

fn unlink(world: &mut World, c: usize, name: &[u8]) {
    world.run(c, |m, t, now| m.unlink(t, NodeId::ROOT, name, now)).unwrap();
}

fn is_found(found: &Lookup) -> bool {
    matches!(found, Lookup::Found(_))
}

fn is_valid(found: &Lookup) -> bool {
    match found {
        Lookup::Found(entry) => entry.entry_valid,
        Lookup::Absent { valid } => *valid,
    }
}

/// Questions for 2,000 lookups of ten names that are there and one that is not, beside 400 changes of others; and recalls.
fn questions(is_contested: bool) -> (u64, u64) {
    let mut world = two();
    world.server.is_contested = is_contested;
    let mut asks = 0;
    for round in 0..200_u32 {
        let other = format!("other-{round}").into_bytes();
        create(&mut world, 0, &other);
        let before = world.clients[1].asks;
        for n in 0..STABLE {
            assert!(is_found(&lookup(&mut world, 1, &name_of(n))));
        }
        assert!(!is_found(&lookup(&mut world, 1, b"never")));
        asks += world.clients[1].asks - before;
        unlink(&mut world, 0, &other);
    }
    (asks, world.server.recalled)
}

/// What a mount asks about a directory of 200 names, 20 of which it looks up beside 100 changes of another mount: questions,
/// and how many times it is read as a whole. The kernel looks at the directory before, by whose mode it judges.
fn beside_changes(is_contested: bool, promises: bool) -> (u64, usize) {
    let mut world = two();
    for n in STABLE..200 {
        world.server.fs.make(ROOT, &name_of(n), Kind::File, 0o644, 7).unwrap();
    }
    world.server.asked = Some(Vec::new());
    let asks = world.clients[1].asks;
    for round in 0..50_u32 {
        let other = format!("other-{round}").into_bytes();
        for is_made in [true, false] {
            if is_made {
                create(&mut world, 0, &other);
            } else {
                unlink(&mut world, 0, &other);
            }
            // The server finds it out as the mount does, by what it takes.
            world.server.is_contested = is_contested && promises && world.server.recalled > 1;
            world.run(1, |m, t, now| m.getattr(t, NodeId::ROOT, now)).unwrap();
            for n in 0..20 {
                assert!(is_found(&lookup(&mut world, 1, &name_of(n))));
            }
            if !is_contested {
                world.ms += 2_000;
            }
        }
    }
    let asked = world.server.asked.take().unwrap();
    let listed = asked.iter().filter(|asked| matches!(asked, Question::List { .. })).count();
    (world.clients[1].asks - asks, listed)
}

#[test]
fn a_small_directory_that_others_change_all_the_time_is_not_read_as_a_whole_each_time() {
    let (asks, listed) = beside_changes(true, true);
    println!("{asks} questions, {listed} listings");
    assert!(listed <= 4, "{listed} listings");
    // One look at the directory for each change, and each name once.
    assert!(asks <= 100 + 20 + 20, "{asks} questions");
    // Where others change it now and then, and where names are not promised, it still is: once is less than twenty times.
    for (is_contested, promises) in [(false, true), (true, false)] {
        let (asks, listed) = beside_changes(is_contested, promises);
        assert!(listed >= 90 && asks <= 330, "{asks} questions, {listed} listings");
    }
}

#[test]
fn names_that_stay_are_asked_for_once_however_much_others_change_beside_them() {
    let (before, recalls_before) = questions(false);
    let (after, recalls) = questions(true);
    println!(
        "of 2,200 lookups {before} were questions, {recalls_before} recalls; with names promised {after} and {recalls}"
    );
    assert_eq!(after, u64::from(STABLE) + 1);
    assert!(before >= 400, "{before} without");
    assert!(recalls < 50 && recalls_before > 200, "{recalls} {recalls_before}");
}

/// The kernel moves its entry with what it believes of it, whichever of the two it was told by.
#[test]
fn a_name_promised_twice_is_forgotten_by_the_kernel_where_it_is_renamed_to() {
    let mut world = two();
    world.server.is_contested = true;
    assert!(is_valid(&lookup(&mut world, 0, &name_of(1))));
    world.server.is_contested = false;
    world.list(0, NodeId::ROOT, false).unwrap();
    let (from, to) = (name_of(1), b"moved".as_slice());
    let places = ((NodeId::ROOT, &from[..]), (NodeId::ROOT, to));
    world.run(0, |m, t, now| m.rename(t, places.0, places.1, RenameMode::Replace, now)).unwrap();
    let told = world.clients[0].machine.take_invalidations();
    let is_forgotten = told.iter().any(|told| told.what == Forget::Entry(NodeId::ROOT, Name::new(to)));
    assert!(is_forgotten, "{told:?}");
}

#[test]
fn a_name_is_given_back_once_the_kernel_has_forgotten_it() {
    let mut world = two();
    world.server.is_contested = true;
    assert!(is_valid(&lookup(&mut world, 1, b"new")), "absent, and known to stay so");
    assert!(is_valid(&lookup(&mut world, 1, &name_of(1))));
    let recall = |world: &mut World, c: usize, name: &[u8]| {
        let question = Question::Remove {
            dir: world::server::handle(ROOT),
            name: Name::new(name),
            is_dir: false,
            victim: None,
            want_dir: CapSet::NONE,
        };
        let ask = Ask { at: Generation::default(), caller: Caller::new(7, 0), question };
        assert!(world.server.answer(c, &ask).is_err(), "it is promised");
        world.deliver();
    };
    recall(&mut world, 0, b"new");
    let now = world.now();
    let machine = &mut world.clients[1].machine;
    assert!(machine.take_releases(now).is_empty(), "the kernel may still answer by it");
    let told = machine.take_invalidations();
    assert!(matches!(&told[..], [Invalidation { what: Forget::Entry(NodeId::ROOT, name), .. }]
        if name.as_bytes() == b"new"));
    machine.invalidated(told[0].number);
    let released = machine.take_releases(now);
    assert!(matches!(&released[..], [Release { keep: CapSet::NONE, .. }]));
    // The other one is untouched.
    let asks = world.clients[1].asks;
    assert!(is_valid(&lookup(&mut world, 1, &name_of(1))));
    assert_eq!(world.clients[1].asks, asks);
    // Until the release has arrived nothing is promised anew.
    assert!(!is_valid(&lookup(&mut world, 1, b"new")));
    assert!(world.server.release(1, &released[0]));
    assert!(is_valid(&lookup(&mut world, 1, b"new")));
}

/// Performs a question of a lookup, and leaves the answer to be absorbed later.
fn asked(world: &mut World, c: usize, name: &[u8]) -> (Turn, Ask, Answer) {
    let mut turn = Turn::new(Caller::new(7, 0));
    let now = world.now();
    let Step::Ask(ask) = world.clients[c].machine.lookup(&mut turn, NodeId::ROOT, name, now) else {
        panic!("it is not known")
    };
    let answer = world.perform(c, &ask).unwrap();
    (turn, *ask, answer)
}

#[test]
fn a_promise_that_its_recall_has_overtaken_is_not_believed() {
    let mut world = two();
    world.server.is_contested = true;
    let (mut turn, ask, answer) = asked(&mut world, 1, b"new");
    assert!(matches!(answer, Answer::Looked { promise: Some(_), found: None, .. }));
    create(&mut world, 0, b"new");
    let now = world.now();
    world.clients[1].machine.absorb(&mut turn, ask, Ok(answer), now);
    world.check(1);
    let Step::Done(found) = world.clients[1].machine.lookup(&mut turn, NodeId::ROOT, b"new", now) else {
        panic!("the answer serves its own lookup")
    };
    assert!(!is_found(&found) && !is_valid(&found));
    assert!(is_found(&lookup(&mut world, 1, b"new")));
}

/// Whether what covers it is the directory's promise, or the name's.
#[test]
fn an_answer_that_a_change_of_our_own_has_overtaken_is_not_believed() {
    for is_contested in [false, true] {
        let mut world = two();
        world.server.is_contested = is_contested;
        let (mut turn, ask, answer) = asked(&mut world, 1, b"new");
        create(&mut world, 1, b"new");
        let now = world.now();
        world.clients[1].machine.absorb(&mut turn, ask, Ok(answer), now);
        world.check(1);
        assert!(is_found(&lookup(&mut world, 1, b"new")), "contested: {is_contested}");
    }
}

#[test]
fn of_a_name_that_is_promised_our_own_changes_are_known() {
    let mut world = two();
    world.server.is_contested = true;
    for name in [&b"one"[..], b"two"] {
        assert!(!is_found(&lookup(&mut world, 1, name)));
    }
    create(&mut world, 1, b"one");
    let asks = world.clients[1].asks;
    assert!(is_found(&lookup(&mut world, 1, b"one")));
    world
        .run(1, |m, t, now| {
            m.rename(t, (NodeId::ROOT, b"one"), (NodeId::ROOT, b"two"), RenameMode::Replace, now)
        })
        .unwrap();
    assert_eq!(world.clients[1].asks, asks + 1, "the rename alone");
    assert!(!is_found(&lookup(&mut world, 1, b"one")) && is_found(&lookup(&mut world, 1, b"two")));
    unlink(&mut world, 1, b"two");
    assert!(!is_found(&lookup(&mut world, 1, b"two")));
    // And others' are still asked about first.
    create(&mut world, 0, b"two");
    assert!(is_found(&lookup(&mut world, 1, b"two")));
}

#[test]
fn nothing_is_promised_once_the_server_may_have_given_up() {
    let mut world = two();
    world.server.is_contested = true;
    assert!(is_valid(&lookup(&mut world, 1, b"new")));
    let now = world.now();
    world.clients[1].machine.lapsed(now);
    world.check(1);
    assert!(!is_valid(&lookup(&mut world, 1, b"new")), "nor anew before it is heard of");
    let told = world.clients[1].machine.take_invalidations();
    assert!(
        told.iter().any(|told| matches!(&told.what, Forget::Entry(_, name) if name.as_bytes() == b"new"))
    );
    world.clients[1].machine.regained();
    assert!(is_valid(&lookup(&mut world, 1, b"new")));
}

#[test]
fn who_has_the_directory_to_himself_has_others_names_given_back_first() {
    let mut world = two();
    world.server.is_contested = true;
    assert!(is_valid(&lookup(&mut world, 1, b"new")));
    world.server.is_contested = false;
    world.server.generous = true;
    let put_off = |world: &World| world.clients[0].machine.stats().mutations_queued;
    // The first asks for the directory, some behind it are changes that nobody hears of.
    for n in 0..40u8 {
        lookup(&mut world, 0, &[b'a', n]);
        create(&mut world, 0, &[b'a', n]);
    }
    let before = put_off(&world);
    lookup(&mut world, 0, b"new");
    create(&mut world, 0, b"new");
    assert!(put_off(&world) > before && before > 0);
    assert!(is_found(&lookup(&mut world, 1, b"new")));
}

#[test]
fn two_names_that_come_with_one_token_are_not_both_believed() {
    let mut world = two();
    world.server.is_contested = true;
    let (mut turn, ask, answer) = asked(&mut world, 1, b"new");
    let Answer::Looked { promise: Some(promise), .. } = &answer else { panic!() };
    let promise = promise.clone();
    let now = world.now();
    world.clients[1].machine.absorb(&mut turn, ask, Ok(answer), now);
    assert!(is_valid(&lookup(&mut world, 1, b"new")));
    let (mut turn, ask, answer) = asked(&mut world, 1, b"other");
    let Answer::Looked { found, dir, .. } = answer else { panic!() };
    let answer = Answer::Looked { found, dir, promise: Some(promise) };
    world.clients[1].machine.absorb(&mut turn, ask, Ok(answer), now);
    world.check(1);
    let asks = world.clients[1].asks;
    assert!(!is_found(&lookup(&mut world, 1, b"other")));
    assert_eq!(world.clients[1].asks, asks);
    let told = world.clients[1].machine.take_invalidations();
    assert!(
        matches!(&told[..], [Invalidation { what: Forget::Entry(_, name), .. }] if name.as_bytes() == b"new")
    );
}

/// A mount renames `stable-0` to `other`, and other things happen on the way of the question to the server.
fn rename_overtaken(world: &mut World, meanwhile: impl FnOnce(&mut World)) {
    let (mut turn, from) = (Turn::new(Caller::new(7, 0)), name_of(0));
    let rename = |m: &mut Machine, t: &mut Turn, now: Now| {
        m.rename(t, (NodeId::ROOT, &from), (NodeId::ROOT, b"other"), RenameMode::Replace, now)
    };
    let ask = loop {
        let now = world.now();
        let step = rename(&mut world.clients[0].machine, &mut turn, now);
        let Step::Ask(ask) = step else { panic!("{step:?}") };
        if ask.question.is_mutation() {
            break ask;
        }
        let answer = world.perform(0, &ask);
        world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
    };
    meanwhile(world);
    let answer = world.perform(0, &ask);
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.absorb(&mut turn, *ask, answer, now);
    assert!(matches!(rename(machine, &mut turn, now), Step::Done(())));
}

/// Two names of one file stay both (rename(2)).
fn both_are_there(world: &mut World) {
    for name in [&name_of(0)[..], b"other"] {
        assert!(is_found(&lookup(world, 0, name)), "{}", name.escape_ascii());
    }
    world.check(0);
}

#[test]
fn a_name_whose_file_has_got_the_other_one_meanwhile_is_not_taken_for_gone() {
    let mut world = two();
    world.server.is_contested = true;
    let Lookup::Found(entry) = lookup(&mut world, 1, &name_of(0)) else { panic!("it is there") };
    assert!(is_found(&lookup(&mut world, 0, &name_of(0))));
    rename_overtaken(&mut world, |world| {
        world.run(1, |m, t, now| m.link(t, entry.node, NodeId::ROOT, b"other", now)).unwrap();
    });
    both_are_there(&mut world);
}

#[test]
fn nor_is_it_when_how_many_names_it_has_is_promised_only_on_the_way() {
    let mut world = two();
    world.server.is_contested = true;
    world.server.fs.make(ROOT, b"sub", Kind::Dir, 0o755, 7).unwrap();
    let found = |world: &mut World, c: usize, name: &[u8]| match lookup(world, c, name) {
        Lookup::Found(entry) => entry.node,
        Lookup::Absent { .. } => panic!("it is there"),
    };
    let (theirs, sub) = (found(&mut world, 1, &name_of(0)), found(&mut world, 1, b"sub"));
    let own = found(&mut world, 0, &name_of(0));
    // Nobody promises the mount any more that the file has one name, though it has.
    world.run(1, |m, t, now| m.link(t, theirs, sub, b"passing", now)).unwrap();
    world.run(1, |m, t, now| m.unlink(t, sub, b"passing", now)).unwrap();
    rename_overtaken(&mut world, |world| {
        world.run(1, |m, t, now| m.link(t, theirs, NodeId::ROOT, b"other", now)).unwrap();
        let told = world.run(0, |m, t, now| m.getattr(t, own, now)).unwrap();
        assert_eq!(told.attrs.nlink, 2);
    });
    both_are_there(&mut world);
}
