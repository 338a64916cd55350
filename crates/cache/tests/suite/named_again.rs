//! A kernel that cannot be made to forget a name without being waited for is told none to believe in. What the machine knows
//! answers it all the same, without a question, and nothing that is asked back waits for it.

use crate::world::World;
use crate::world::fs::ROOT;
use holdfast_cache::*;

/// Two mounts of one directory, whose kernels cannot be.
fn two() -> World {
    let mut world = World::new(2, true, 1);
    world.server.fs.make(ROOT, b"there", Kind::File, 0o644, 7).unwrap();
    world.server.page = 300;
    for client in &mut world.clients {
        *client.machine.settings_mut() = Settings { names: false, ..Settings::full() };
    }
    world
}

fn lookup(world: &mut World, c: usize, name: &[u8]) -> Lookup {
    world.run(c, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap()
}

/// Whether it is there. Nothing of what is told may be believed.
fn is_there(world: &mut World, c: usize, name: &[u8]) -> bool {
    match lookup(world, c, name) {
        Lookup::Found(entry) => {
            assert!(!entry.entry_valid, "{entry:?}");
            true
        }
        Lookup::Absent { valid } => {
            assert!(!valid);
            false
        }
    }
}

/// Asks until the directory is known as a whole.
fn learn(world: &mut World, c: usize) {
    for _ in 0..10 {
        assert!(is_there(world, c, b"there"));
        assert!(!is_there(world, c, b"absent"));
    }
}

#[test]
fn names_are_asked_for_again_and_known_all_the_same() {
    let mut world = two();
    learn(&mut world, 0);
    let asks = world.clients[0].asks;
    assert!(is_there(&mut world, 0, b"there"));
    assert!(!is_there(&mut world, 0, b"absent"));
    let opened = world.run(0, |m, t, now| m.opendir(t, NodeId::ROOT, now)).unwrap();
    assert!(!opened.keeps && !opened.keep_cache, "its listing cannot be taken back either");
    assert_eq!(world.clients[0].asks, asks, "without a question");
    let made = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"made", 0o755, now)).unwrap();
    assert!(!made.entry_valid);
}

#[test]
fn no_name_is_forgotten_for_others_and_they_see_what_was_done() {
    let mut world = two();
    learn(&mut world, 0);
    learn(&mut world, 1);
    let hold = |world: &mut World, c: usize| {
        let invalidations = world.clients[c].machine.take_invalidations();
        let is_name = |i: &Invalidation| matches!(i.what, Forget::Entry(..) | Forget::Listing(_));
        assert!(!invalidations.iter().any(is_name), "{invalidations:?}");
        if let Some(last) = invalidations.last() {
            world.clients[c].machine.invalidated(last.number);
        }
    };
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"absent", 0o755, now)).unwrap();
    world.run(0, |m, t, now| m.unlink(t, NodeId::ROOT, b"there", now)).unwrap();
    world.deliver();
    hold(&mut world, 1);
    assert!(is_there(&mut world, 1, b"absent"));
    assert!(!is_there(&mut world, 1, b"there"));
    hold(&mut world, 0);
    hold(&mut world, 1);
}
