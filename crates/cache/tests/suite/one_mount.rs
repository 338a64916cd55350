//! One mount always shows what the model shows, whatever is delayed, lost and sent again.

use crate::world::choice::{config, op, op_or_nameless};
use crate::world::{Model, Op, World};
use bytes::Bytes;
use holdfast_base::Timestamp;
use holdfast_cache::{Access, Changes, Errno, NodeId, OpenFlags, SetTime};
use proptest::prelude::*;

fn runs_as_the_model(ops: &[Op], caps: bool, seed: u64, loses: bool) {
    let mut world = World::new(1, caps, seed);
    world.loses = loses;
    world.have_little_room(seed);
    let mut model = Model::default();
    for op in ops {
        let (shown, expected) = (world.apply(0, op), model.apply(0, op));
        assert_eq!(shown, expected, "{op:?}\n{}", model.canonical());
    }
    world.drain();
    assert_eq!(world.server.fs.canonical(), model.fs.canonical(), "at the server");
}

#[test]
fn a_file_that_is_written_takes_what_was_written_and_not_its_holes() {
    let mut world = World::new(1, true, 1);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let (file, opened) =
        world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now)).unwrap();
    let mut write = |offset: u64, len: usize| {
        let data = Bytes::from(vec![7; len]);
        world.run(0, |m, t, now| m.write(t, opened.fh, offset, &data, now)).unwrap();
        world.run(0, |m, t, now| m.getattr(t, file.node, now)).unwrap().attrs.allocated
    };
    assert_eq!(write(1 << 20, 10), 4096, "far behind the beginning");
    assert_eq!(write(1 << 20, 4096), 4096, "the same again, and what follows in its block");
    assert_eq!(write((1 << 20) + 4096, 10_000), 4 * 4096, "at the end");
    assert_eq!(write(8000, 400), 6 * 4096, "two blocks within the hole");
    assert_eq!(write(8100, 100), 6 * 4096, "in blocks that are there");
}

#[test]
fn a_program_that_runs_is_not_emptied() {
    let read = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
    let (emptying, running) = (OpenFlags { truncate: true, ..read }, OpenFlags { execute: true, ..read });
    for caps in [true, false] {
        let mut world = World::new(1, caps, 1);
        let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
        let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o755, flags, now));
        let (node, fh) = made.map(|(entry, opened)| (entry.node, opened.fh)).unwrap();
        world.run(0, |m, t, now| m.write(t, fh, 0, &Bytes::from_static(b"code"), now)).unwrap();
        let now = world.now();
        world.clients[0].machine.release(fh, now);
        let program = world.run(0, |m, t, now| m.open(t, node, running, now)).unwrap().fh;
        let emptied = world.run(0, |m, t, now| m.open(t, node, emptying, now));
        assert_eq!(emptied, Err(Errno::ETXTBSY), "caps: {caps}");
        let attributes = world.run(0, |m, t, now| m.getattr(t, node, now)).unwrap();
        assert_eq!(attributes.attrs.size, 4, "caps: {caps}");
        let now = world.now();
        world.clients[0].machine.release(program, now);
        assert!(world.run(0, |m, t, now| m.open(t, node, emptying, now)).is_ok(), "caps: {caps}");
    }
}

#[test]
fn who_owns_a_file_anew_gets_it_without_set_id_bits() {
    let mut world = World::new(1, true, 1);
    for (mode, left) in [(0o6755, 0o755), (0o6744, 0o2744), (0o644, 0o644)] {
        let name = format!("{mode:o}");
        let flags = OpenFlags::default();
        let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, name.as_bytes(), mode, flags, now));
        let node = made.unwrap().0.node;
        let changes = Changes { uid: Some(7), ..Changes::default() };
        let set = world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
        assert_eq!(set.attrs.mode, left, "{mode:o}");
        world.drain();
        let at_server = world.server.fs.look(1, name.as_bytes()).unwrap().unwrap();
        assert_eq!(world.server.attrs(at_server).unwrap().mode, left, "{mode:o} at the server");
    }
}

#[test]
fn a_time_that_is_set_after_a_file_was_cut_off_stays() {
    let mut world = World::new(1, true, 1);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let (file, opened) =
        world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now)).unwrap();
    world.run(0, |m, t, now| m.write(t, opened.fh, 0, &Bytes::from_static(b"content"), now)).unwrap();
    world.drain();
    let long_ago = Timestamp { seconds: 1_000_000_000, nanos: 0 };
    for changes in [
        Changes { mode: Some(0o600), ..Changes::default() },
        Changes { size: Some(3), ..Changes::default() },
        Changes { mtime: Some(SetTime::At(long_ago)), ..Changes::default() },
    ] {
        world.run(0, |m, t, now| m.setattr(t, file.node, &changes, now)).unwrap();
    }
    world.drain();
    let at_server = world.server.fs.look(1, b"f").unwrap().unwrap();
    let attrs = world.server.attrs(at_server).unwrap();
    assert_eq!((attrs.mode, attrs.size, attrs.mtime), (0o600, 3, long_ago));
}

#[test]
fn set_id_bits_that_a_new_owner_is_given_outlive_the_change_of_owner() {
    let mut world = World::new(1, true, 1);
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o600, OpenFlags::default(), now));
    let node = made.unwrap().0.node;
    for changes in
        [Changes { uid: Some(7), ..Changes::default() }, Changes { mode: Some(0o4755), ..Changes::default() }]
    {
        world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
    }
    world.drain();
    let at_server = world.server.fs.look(1, b"f").unwrap().unwrap();
    assert_eq!(world.server.attrs(at_server).unwrap().mode, 0o4755);
}

/// Told of it, it would ask for what it knows, and each file made would wake the thread that tells it.
#[test]
fn the_kernel_is_told_nothing_of_what_the_server_has_made_as_it_was_shown() {
    let mut world = World::new(1, true, 1);
    // The first is asked for; after a few questions all names are known, and what is made is told later.
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"first", 0o755, now)).unwrap();
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    world.drain();
    let told = |world: &World| world.clients[0].machine.stats().invalidations;
    let (before, queued) = (told(&world), world.clients[0].machine.stats().mutations_queued);
    let flags = OpenFlags { access: Access { read: false, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(made.1.fh, now);
    world.drain();
    assert!(made.0.attr_valid, "the kernel goes by what it was told");
    assert_eq!(world.clients[0].machine.stats().mutations_queued, queued + 1, "it was told later");
    assert_eq!(told(&world), before);
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn without_capabilities_every_operation_is_as_the_model(
        ops in prop::collection::vec(op(), 1..60), seed in any::<u64>()
    ) {
        runs_as_the_model(&ops, false, seed, false);
    }

    #[test]
    fn with_capabilities_every_operation_is_as_the_model(
        ops in prop::collection::vec(op_or_nameless(), 1..80), seed in any::<u64>()
    ) {
        runs_as_the_model(&ops, true, seed, false);
    }

    #[test]
    fn lost_replies_change_nothing(
        ops in prop::collection::vec(op_or_nameless(), 1..80), seed in any::<u64>()
    ) {
        runs_as_the_model(&ops, true, seed, true);
    }
}
