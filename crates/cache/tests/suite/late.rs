//! What the server had executed and then could not put on its disk.

use crate::world::World;
use holdfast_cache::*;

/// A mount that may do everything in `d` without asking, and has nothing left to send.
fn settled() -> (World, NodeId) {
    let mut world = World::new(1, true, 1);
    world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"x", now)).unwrap();
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, dir, name, now)).unwrap();
    }
    world.drain();
    (world, dir)
}

fn create(world: &mut World, dir: NodeId, name: &[u8]) -> NodeId {
    let access = Access { read: true, write: true };
    let flags = OpenFlags { access, ..OpenFlags::default() };
    let (made, open) = world.run(0, |m, t, now| m.create(t, dir, name, 0o644, flags, now)).unwrap();
    world.run(0, |m, t, now| m.flush(t, open.fh, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(open.fh, now);
    made.node
}

/// Sends all that is queued as one batch, which the server executes.
fn execute(world: &mut World) -> u64 {
    let batch = world.one_batch();
    let results = world.server.batch(0, &batch);
    let now = world.now();
    world.clients[0].machine.batch_done(batch.txn, results, 0, now);
    batch.txn
}

fn stable(world: &mut World, through: u64, failed: &[(u64, u32, Errno)]) {
    let now = world.now();
    world.clients[0].machine.stable_done(through, failed, now);
    world.check(0);
}

fn fsync(world: &mut World, node: NodeId) -> Result<(), Errno> {
    world.run(0, |m, t, now| m.fsync(t, node, None, now))
}

#[test]
fn a_rename_that_was_not_put_on_the_disk_is_told_to_who_syncs_a_directory_of_it() {
    let (mut world, dir) = settled();
    let file = create(&mut world, dir, b"tmp");
    world.drain();
    world.run(0, |m, t, now| m.rename(t, (dir, b"tmp"), (dir, b"cfg"), RenameMode::Replace, now)).unwrap();
    let txn = execute(&mut world);
    stable(&mut world, txn, &[(txn, 0, Errno::EIO)]);
    for node in [dir, file] {
        assert_eq!(fsync(&mut world, node), Err(Errno::EIO));
        assert_eq!(fsync(&mut world, node), Ok(()), "told once");
    }
    assert_eq!(world.clients[0].machine.take_reports().len(), 1);
}

#[test]
fn what_was_made_or_removed_and_is_not_on_the_disk_is_told_to_who_syncs_its_directory() {
    let (mut world, dir) = settled();
    create(&mut world, dir, b"old");
    world.drain();
    create(&mut world, dir, b"new");
    let txn = execute(&mut world);
    stable(&mut world, txn, &[(txn, 0, Errno::ENOSPC)]);
    assert_eq!(fsync(&mut world, dir), Err(Errno::ENOSPC));
    world.run(0, |m, t, now| m.unlink(t, dir, b"old", now)).unwrap();
    let txn = execute(&mut world);
    stable(&mut world, txn, &[(txn, 0, Errno::EIO)]);
    assert_eq!(fsync(&mut world, dir), Err(Errno::EIO));
}

/// The server tells of it until it hears that nothing of the transaction will be named; that may take a while.
#[test]
fn what_is_told_again_is_no_second_loss() {
    let (mut world, dir) = settled();
    let sub = world.run(0, |m, t, now| m.mkdir(t, dir, b"sub", 0o755, now)).unwrap().node;
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    assert!(matches!(machine.sync(&mut Turn::new(Caller::new(7, 0)), now), Step::Wait(_)));
    let first = machine.take_batch(now).expect("a batch");
    let file = create(&mut world, sub, b"f");
    let machine = &mut world.clients[0].machine;
    assert!(matches!(machine.sync(&mut Turn::new(Caller::new(7, 0)), now), Step::Wait(_)));
    let results = world.server.batch(0, &first);
    let machine = &mut world.clients[0].machine;
    machine.batch_done(first.txn, results, 0, now);
    let second = machine.take_batch(now).expect("a batch");
    let of_first = (first.txn, 0, Errno::EIO);
    stable(&mut world, first.txn, &[of_first]);
    assert!(world.clients[0].machine.done_through() < first.txn, "it is named by the one under way");
    assert_eq!(world.clients[0].machine.take_reports().len(), 1);
    let results = world.server.batch(0, &second);
    world.clients[0].machine.batch_done(second.txn, results, 0, now);
    stable(&mut world, second.txn, &[of_first, (second.txn, 0, Errno::ENOSPC)]);
    assert_eq!(world.clients[0].machine.take_reports().len(), 1, "one more");
    assert_eq!(fsync(&mut world, file), Err(Errno::ENOSPC));
    assert_eq!(fsync(&mut world, dir), Err(Errno::EIO));
    assert_eq!(world.clients[0].machine.done_through(), second.txn);
}
