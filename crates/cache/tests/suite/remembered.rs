//! A server remembers so many operations of a mount, and takes so many in a batch: more is never asked of it.

use crate::world::World;
use holdfast_cache::*;

const FILES: usize = 3_000;

/// A mount that may do everything in a directory without asking.
fn settled() -> (World, NodeId) {
    let mut world = World::new(1, true, 1);
    *world.clients[0].machine.settings_mut() = Settings::full();
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"warm", 0o755, now)).unwrap();
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    (world, dir)
}

fn create(world: &mut World, dir: NodeId, name: &str) -> Fh {
    let access = Access { read: true, write: true };
    let flags = OpenFlags { access, ..OpenFlags::default() };
    world.run(0, |m, t, now| m.create(t, dir, name.as_bytes(), 0o644, flags, now)).unwrap().1.fh
}

fn close(world: &mut World, fh: Fh) {
    world.run(0, |m, t, now| m.flush(t, fh, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(fh, now);
}

#[test]
fn what_is_not_on_disk_yet_is_never_more_than_the_server_remembers() {
    let (mut world, dir) = settled();
    world.drain();
    let now = world.now();
    // Not by the world, which looks at the whole machine after each step.
    let machine = &mut world.clients[0].machine;
    let turn = || Turn::new(Caller::new(7, 0));
    let file = (Kind::File, Device::default());
    for i in 0..FILES {
        let made = machine.mknod(&mut turn(), dir, format!("f{i}").as_bytes(), file, 0o644, now);
        assert!(matches!(made, Step::Done(_)));
    }
    // Each names what was made in the beginning, as long as that is not on disk.
    for round in 0..3 {
        for i in 0..FILES {
            let (from, to) = (format!("f{i}{}", "-".repeat(round)), format!("f{i}{}", "-".repeat(round + 1)));
            let (from, to) = ((dir, from.as_bytes()), (dir, to.as_bytes()));
            let renamed = machine.rename(&mut turn(), from, to, RenameMode::Replace, now);
            assert!(matches!(renamed, Step::Done(())));
        }
    }
    // Old enough to go, and nothing that went is.
    world.ms += 10_000;
    let (now, mut asked) = (world.now(), 0);
    loop {
        while let Some(batch) = world.clients[0].machine.take_batch(now) {
            // Fails where it is too much.
            let results = world.server.batch(0, &batch);
            world.clients[0].machine.batch_done(batch.txn, results, 0, now);
        }
        let machine = &mut world.clients[0].machine;
        let Some(through) = machine.take_stable(now) else { break };
        machine.stable_done(through, &[], now);
        asked += 1;
    }
    assert!(asked >= 1, "the server was asked to put it on its disk");
    world.drain();
    let renamed = world.run(0, |m, t, now| m.lookup(t, dir, b"f0---", now)).unwrap();
    assert!(matches!(renamed, Lookup::Found(_)));
}

#[test]
fn a_file_in_many_pieces_does_not_make_a_batch_too_long() {
    let (mut world, dir) = settled();
    world.drain();
    let mut files = Vec::new();
    for i in 0..40 {
        let fh = create(&mut world, dir, &format!("f{i}"));
        files.push(fh);
        // The first ones go with the stream, the last ones by themselves.
        for piece in 0..10 + 5 * i {
            let data = bytes::Bytes::from_static(b"x");
            world.run(0, |m, t, now| m.write(t, fh, 2 * piece, &data, now)).unwrap();
        }
    }
    for fh in files {
        close(&mut world, fh);
    }
    // Fails where a batch is too long.
    world.drain();
    let last = world.run(0, |m, t, now| m.lookup(t, dir, b"f39", now)).unwrap();
    let Lookup::Found(entry) = last else { panic!("not there") };
    assert_eq!(entry.attrs.size, 2 * (10 + 5 * 39) - 1);
}
