//! Answers that were under way when something was promised, and are of before it.

use crate::world::World;
use holdfast_cache::*;

const BOTH: Access = Access { read: true, write: true };

/// Two mounts, each of which asks its server about what is in the root: nobody has that alone.
fn shared() -> World {
    let mut world = World::new(2, true, 1);
    world.server.generous = false;
    world
}

/// Begins an operation of the first mount, and has the server do what that asks for; the answer is under way.
fn under_way<T: std::fmt::Debug>(
    world: &mut World,
    mut op: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
) -> (Turn, Ask, Result<Answer, Errno>) {
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let step = op(&mut world.clients[0].machine, &mut turn, now);
    let Step::Ask(ask) = step else { panic!("{step:?}") };
    let answer = world.perform(0, &ask);
    (turn, *ask, answer)
}

fn arrive(world: &mut World, (mut turn, ask, answer): (Turn, Ask, Result<Answer, Errno>)) -> Turn {
    let now = world.now();
    world.clients[0].machine.absorb(&mut turn, ask, answer, now);
    world.check(0);
    turn
}

fn found(world: &mut World, name: &[u8]) -> Option<NodeId> {
    match world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap() {
        Lookup::Found(entry) => Some(entry.node),
        Lookup::Absent { .. } => None,
    }
}

/// A file is made, another mount moves it, then the names are promised; that it was made is heard of last.
#[test]
fn a_name_that_was_made_before_its_directory_was_promised_is_not_promised() {
    let mut world = shared();
    let flags = OpenFlags { access: BOTH, ..OpenFlags::default() };
    let create = |m: &mut Machine, t: &mut Turn, now: Now| m.create(t, NodeId::ROOT, b"c", 0o644, flags, now);
    let made = under_way(&mut world, create);
    let moved = |m: &mut Machine, t: &mut Turn, now: Now| {
        m.rename(t, (NodeId::ROOT, b"c"), (NodeId::ROOT, b"a"), RenameMode::Replace, now)
    };
    world.run(1, moved).unwrap();
    assert_eq!(found(&mut world, b"c"), None, "and that is promised");
    let turn = arrive(&mut world, made);
    let (entry, opened) = world.go_on(0, turn, create).unwrap();
    assert_eq!(found(&mut world, b"c"), None);
    assert_eq!(found(&mut world, b"a"), Some(entry.node));
    let now = world.now();
    world.clients[0].machine.release(opened.fh, now);
}

/// The same of what is looked up.
#[test]
fn a_name_that_was_seen_before_its_directory_was_promised_is_not_promised() {
    let mut world = shared();
    world.run(1, |m, t, now| m.mkdir(t, NodeId::ROOT, b"c", 0o755, now)).unwrap();
    world.server.has_caps = false;
    let look = |m: &mut Machine, t: &mut Turn, now: Now| m.lookup(t, NodeId::ROOT, b"c", now);
    let seen = under_way(&mut world, look);
    world.server.has_caps = true;
    world.run(1, |m, t, now| m.rmdir(t, NodeId::ROOT, b"c", now)).unwrap();
    assert_eq!(found(&mut world, b"x"), None, "all names are promised");
    arrive(&mut world, seen);
    assert_eq!(found(&mut world, b"c"), None);
}

/// And of attributes: those of a directory, of which a lookup in it brings a promise, and no attributes.
#[test]
fn attributes_of_before_a_promise_are_not_promised() {
    let mut world = shared();
    let links =
        |world: &mut World| world.run(0, |m, t, now| m.getattr(t, NodeId::ROOT, now)).unwrap().attrs.nlink;
    let before = links(&mut world);
    world.run(1, |m, t, now| m.mkdir(t, NodeId::ROOT, b"x", 0o755, now)).unwrap();
    world.server.has_caps = false;
    let look = |m: &mut Machine, t: &mut Turn, now: Now| m.getattr(t, NodeId::ROOT, now);
    let seen = under_way(&mut world, look);
    world.server.has_caps = true;
    world.run(1, |m, t, now| m.mkdir(t, NodeId::ROOT, b"y", 0o755, now)).unwrap();
    assert_eq!(found(&mut world, b"z"), None, "the directory is promised");
    arrive(&mut world, seen);
    assert_eq!(links(&mut world), before + 2);
}

/// And of extended attributes.
#[test]
fn extended_attributes_of_before_a_promise_are_not_promised() {
    let mut world = shared();
    let dir = world.run(1, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    world.server.has_caps = false;
    let ours = found(&mut world, b"d").unwrap();
    let set = |world: &mut World, value: &'static [u8]| {
        let value = bytes::Bytes::from_static(value);
        world.run(1, |m, t, now| m.setxattr(t, dir, b"user.x", (&value, XattrMode::Either), now)).unwrap();
    };
    set(&mut world, b"old");
    let look = |m: &mut Machine, t: &mut Turn, now: Now| m.getxattr(t, ours, b"user.x", now);
    let seen = under_way(&mut world, look);
    set(&mut world, b"new");
    world.server.has_caps = true;
    assert_eq!(found(&mut world, b"d"), Some(ours), "and that is promised");
    arrive(&mut world, seen);
    assert_eq!(world.run(0, look).unwrap(), "new");
}

/// What is held beside writers the server may take without waiting for it (its holder waits with a change of its own), and give anew
/// before its recall has come: what was known under the first promise others may have changed before the second.
#[test]
fn what_was_given_anew_before_its_recall_came_is_not_what_it_was() {
    let mut world = shared();
    world.run(1, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap();
    let dir = found(&mut world, b"d").unwrap();
    let has_to_ask = |world: &mut World| {
        let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
        matches!(world.clients[0].machine.getattr(&mut turn, dir, now), Step::Ask(_))
    };
    world.run(0, |m, t, now| m.getattr(t, dir, now)).unwrap();
    assert!(!has_to_ask(&mut world), "it is promised");
    let handle = world.clients[0].machine.handle_of(dir).unwrap();
    let late = CapSet::ALL_S.without(CapSet::FILE_S);
    let now = world.now();
    world.clients[0].machine.recalled(&handle, late, 0, now);
    assert!(has_to_ask(&mut world));
    world.run(0, |m, t, now| m.getattr(t, dir, now)).unwrap();
    assert!(!has_to_ask(&mut world), "it is promised still");
}
