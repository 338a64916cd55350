//! Files that the server makes for creates to come: what is shown of a new file is the number that it has for everybody.

use crate::world;
use crate::world::choice::{config, op_or_nameless};
use crate::world::{Model, Op, World};
use holdfast_base::limits::{POOL_DIRECTORIES_MAX, POOL_FRESH_MS, POOL_IDLE_MS, POOL_REFUSED_MS};
use holdfast_cache::*;
use proptest::prelude::*;

/// Below are numbers of the server's, above those of a mount's own making.
const OWN: u64 = 1 << 60;

const ROOT: NodeId = NodeId::ROOT;

/// One mount whose calls for such files are all answered.
fn mount() -> World {
    let mut world = World::new(1, true, 1);
    world.pools = true;
    let settings = Settings { pooled_max: 64, pooled_after: 2, ..Settings::full() };
    *world.clients[0].machine.settings_mut() = settings;
    // The first directory in another is asked for, and brings what lets what follows be put off.
    world.run(0, |m, t, now| m.mkdir(t, ROOT, b"first", 0o755, now)).unwrap();
    world
}

fn make(world: &mut World, name: &str) -> Entry {
    make_in(world, ROOT, name)
}

fn make_in(world: &mut World, dir: NodeId, name: &str) -> Entry {
    // As the kernel does.
    world.run(0, |m, t, now| m.lookup(t, dir, name.as_bytes(), now)).unwrap();
    let flags = OpenFlags::default();
    let (entry, opened) =
        world.run(0, |m, t, now| m.create(t, dir, name.as_bytes(), 0o644, flags, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(opened.fh, now);
    entry
}

/// The flusher's part, without chance.
fn fill(world: &mut World) -> usize {
    let now = world.now();
    let mut made = 0;
    while let Some(out) = world.clients[0].machine.take_pool(now) {
        let told = world.server.pool(0, &out).unwrap();
        made += told.len();
        world.clients[0].machine.pool_done(&out, Some(Ok(told)), now);
        world.check(0);
    }
    made
}

fn shown(world: &mut World, node: NodeId) -> u64 {
    world.run(0, |m, t, now| m.getattr(t, node, now)).unwrap().attrs.fileid
}

fn at_server(world: &World, name: &str) -> u64 {
    world.server.fs.look(world::fs::ROOT, name.as_bytes()).unwrap().expect("it is there")
}

/// Makes files until some are kept for more.
fn warmed_up() -> World {
    let mut world = mount();
    for n in 0..3 {
        make(&mut world, &format!("warm{n}"));
        fill(&mut world);
    }
    assert_eq!(world.server.pooled.len(), 16);
    world
}

#[test]
fn what_is_shown_right_after_a_create_is_the_number_at_the_server() {
    let mut world = mount();
    let mut made = Vec::new();
    for n in 0..100 {
        let name = format!("f{n}");
        let entry = make(&mut world, &name);
        made.push((name, entry));
        fill(&mut world);
    }
    assert_eq!(world.clients[0].machine.stats().queued, 100, "nothing was sent");
    world.drain();
    let of_server = made.iter().filter(|(_, entry)| entry.attrs.fileid < OWN).count();
    assert_eq!(of_server, 97, "all after the first three");
    for (name, entry) in &made {
        let there = at_server(&world, name);
        assert_eq!(shown(&mut world, entry.node), entry.attrs.fileid, "it never changes");
        assert!(entry.attrs.fileid >= OWN || entry.attrs.fileid == there, "{name}");
        assert_eq!(world.server.attrs(there).unwrap().mode, 0o644);
    }
    assert_eq!(world.clients[0].machine.stats().pooled, 97);
}

#[test]
fn where_the_server_has_lost_them_another_is_made_and_the_number_stays_this_ones() {
    let mut world = warmed_up();
    world.drain();
    let made = make(&mut world, "f");
    let number = made.attrs.fileid;
    assert!(number < OWN && world.server.pooled.contains_key(&number));
    world.server.restart();
    // The machine hears of it late, and somebody else gets the number.
    let theirs = world.server.fs.make(world::fs::ROOT, b"theirs", Kind::File, 0o600, 0).unwrap();
    world.server.numbers.insert(theirs, number);
    let now = world.now();
    world.clients[0].machine.caps_lost(now);
    let executed = world.server.lanes[&0].executed;
    world.clients[0].machine.resume(Some(executed), 0, now);
    world.drain();
    assert_ne!(at_server(&world, "f"), number);
    assert_eq!(shown(&mut world, made.node), number);
    let seen = world.run(0, |m, t, now| m.lookup(t, ROOT, b"theirs", now)).unwrap();
    let Lookup::Found(theirs) = seen else { panic!("{seen:?}") };
    assert!(theirs.attrs.fileid >= OWN, "two files of one number would be taken for one");
}

#[test]
fn what_is_not_needed_goes_back() {
    // Nobody makes files any more.
    let mut world = warmed_up();
    world.drain();
    world.ms += POOL_IDLE_MS;
    assert!(world.clients[0].machine.next_wake(world.now()).is_some());
    fill(&mut world);
    assert_eq!(world.server.pooled.len(), 0);
    // Somebody else looks at the directory.
    let mut world = warmed_up();
    world.server.wants(1, world::fs::ROOT);
    world.deliver();
    fill(&mut world);
    assert_eq!(world.server.pooled.len(), 0);
    // What was made is gone before it was sent: its number is the next one's, if nobody has it open any more.
    let mut world = warmed_up();
    let number = make(&mut world, "f").attrs.fileid;
    world.run(0, |m, t, now| m.unlink(t, ROOT, b"f", now)).unwrap();
    assert_eq!((make(&mut world, "g").attrs.fileid, fill(&mut world)), (number, 0));
    let flags = OpenFlags::default();
    let open = world.run(0, |m, t, now| m.create(t, ROOT, b"h", 0o644, flags, now)).unwrap().0;
    world.run(0, |m, t, now| m.unlink(t, ROOT, b"h", now)).unwrap();
    world.drain();
    assert_ne!(make(&mut world, "i").attrs.fileid, open.attrs.fileid);
    fill(&mut world);
    assert!(open.attrs.fileid < OWN && !world.server.pooled.contains_key(&open.attrs.fileid));
    // They are old.
    let mut world = warmed_up();
    let first: Vec<u64> = world.server.pooled.keys().copied().collect();
    let mut used = Vec::new();
    for n in 0..=POOL_FRESH_MS / 5000 {
        world.ms += 5000;
        used.push(make(&mut world, &format!("f{n}")).attrs.fileid);
    }
    fill(&mut world);
    assert!(used.iter().filter(|number| first.contains(number)).count() == used.len() - 2, "{used:?}");
    let is_left = |number: &&u64| !used.contains(number) && world.server.pooled.contains_key(number);
    assert_eq!(first.iter().filter(is_left).count(), 0);
    // The directory gets another mode.
    let mut world = warmed_up();
    let changes = Changes { mode: Some(0o2755), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, ROOT, &changes, now)).unwrap();
    fill(&mut world);
    assert_eq!(world.server.pooled.len(), 0);
}

#[test]
fn no_more_are_kept_than_may_be_and_who_uses_them_up_gets_more_at_a_time() {
    let mut world = mount();
    world.clients[0].machine.settings_mut().pooled_max = 40;
    let mut kept = Vec::new();
    for n in 0..200 {
        make(&mut world, &format!("f{n}"));
        if n == 2 || n % 50 == 10 {
            world.drain();
            fill(&mut world);
            kept.push(world.server.pooled.len());
        }
    }
    assert_eq!(kept, [16, 16, 32, 40, 40]);
}

#[test]
fn another_directory_takes_the_place_of_the_one_that_was_not_used_for_the_longest() {
    let mut world = mount();
    world.clients[0].machine.settings_mut().pooled_max = 4096;
    let mut of_dirs = Vec::new();
    for n in 0..=POOL_DIRECTORIES_MAX {
        world.ms += 1;
        let name = format!("d{n}");
        let dir = world.run(0, |m, t, now| m.mkdir(t, ROOT, name.as_bytes(), 0o755, now)).unwrap().node;
        world.drain();
        for n in 0..5 {
            make_in(&mut world, dir, &format!("f{n}"));
        }
        fill(&mut world);
        of_dirs.push(at_server(&world, &name));
    }
    let kept = |dir: &u64| world.server.pooled.values().filter(|(_, of, _)| of == dir).count();
    let all: Vec<_> = of_dirs.iter().map(kept).collect();
    assert_eq!(all[0], 0, "{all:?}");
    assert!(all[1..].iter().all(|kept| *kept >= 16), "{all:?}");
}

#[test]
fn what_a_journal_keeps_outlives_them_and_uses_none() {
    let mut world = mount();
    world.clients[0].machine.follow();
    for n in 0..20 {
        assert!(make(&mut world, &format!("f{n}")).attrs.fileid >= OWN);
        assert_eq!(fill(&mut world), 0);
    }
}

#[test]
fn where_there_are_none_it_is_not_asked_again_and_again() {
    let mut world = mount();
    let mut asked = 0;
    for n in 0..50 {
        make(&mut world, &format!("f{n}"));
        let now = world.now();
        while let Some(out) = world.clients[0].machine.take_pool(now) {
            asked += 1;
            world.clients[0].machine.pool_done(&out, Some(Err(Errno::EOPNOTSUPP)), now);
        }
    }
    assert_eq!(asked, 1);
    world.ms += POOL_REFUSED_MS;
    make(&mut world, "later");
    assert!(fill(&mut world) > 0);
}

fn numbers_are_right(ops: &[Op], seed: u64, loses: bool) {
    let mut world = World::new(1, true, seed);
    world.loses = loses;
    let mut model = Model::default();
    for op in ops {
        let (shown, expected) = (world.apply(0, op), model.apply(0, op));
        assert_eq!(shown, expected, "{op:?}\n{}", model.canonical());
    }
    world.drain();
    for (name, there) in world.server.fs.get(world::fs::ROOT).unwrap().entries.clone() {
        let found = world.run(0, |m, t, now| m.lookup(t, ROOT, &name, now)).unwrap();
        let Lookup::Found(entry) = found else { panic!("{found:?}") };
        assert!(entry.attrs.fileid >= OWN || entry.attrs.fileid == there, "{name:?}: {entry:?}, {there}");
    }
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn a_number_of_the_servers_is_always_the_right_one(
        ops in prop::collection::vec(op_or_nameless(), 1..120), seed in any::<u64>(), loses in any::<bool>()
    ) {
        numbers_are_right(&ops, seed, loses);
    }
}
