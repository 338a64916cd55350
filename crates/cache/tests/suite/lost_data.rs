//! Data that went with batches, of a server that has lost them: it is read here until they were executed again, but for what was
//! written over since, or cut off.

use crate::trouble::{power_cut, resume, settled};
use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

/// What is done to a file of eight bytes that went with the batch that makes it.
enum Change {
    Write(u64, &'static [u8]),
    Cut(u64),
}

/// The server loses its power when it has executed the first so many of these changes: what is read then, and what it has in the
/// end.
fn read_after(changes: &[Change], sent: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut world, dir) = settled();
    world.drain();
    world.disk = Some(world.server.clone());
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    let (file, fh) = (made.0.node, made.1.fh);
    let (before, after) = changes.split_at(sent);
    change(&mut world, (file, fh), &Change::Write(0, b"oldolded"));
    send(&mut world, file);
    for one in before {
        change(&mut world, (file, fh), one);
        send(&mut world, file);
    }
    after.iter().for_each(|one| change(&mut world, (file, fh), one));
    power_cut(&mut world);
    resume(&mut world);
    let read = |world: &mut World| world.run(0, |m, t, now| m.read(t, fh, 0, 64, now)).unwrap().concat();
    let shown = read(&mut world);
    world.disk = None;
    world.drain();
    assert_eq!(read(&mut world), shown);
    let dir = world.server.fs.look(1, b"d").unwrap().unwrap();
    let there = world.server.fs.look(dir, b"f").unwrap().expect("it is there");
    (shown, world.server.fs.inodes[&there].data.clone())
}

fn change(world: &mut World, (file, fh): (NodeId, Fh), change: &Change) {
    match *change {
        Change::Write(at, data) => {
            let data = Bytes::from_static(data);
            world.run(0, |m, t, now| m.write(t, fh, at, &data, now)).unwrap();
        }
        Change::Cut(size) => {
            let changes = Changes { size: Some(size), ..Changes::default() };
            world.run(0, |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
        }
    }
}

/// Batches that are executed and heard of, and on no disk.
fn send(world: &mut World, file: NodeId) {
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    assert!(matches!(machine.fsync(&mut Turn::new(Caller::new(7, 0)), file, None, now), Step::Wait(_)));
    while let Some(batch) = world.clients[0].machine.take_batch(now) {
        let results = world.server.batch(0, &batch);
        world.clients[0].machine.batch_done(batch.txn, results, 0, now);
        world.check(0);
    }
}

#[test]
fn what_was_written_over_is_not_seen_again() {
    let changes = [Change::Write(2, b"NEW"), Change::Write(4, b"er")];
    for sent in 0..=2 {
        let expected = b"olNEered".as_slice();
        let (shown, there) = read_after(&changes, sent);
        assert_eq!((&shown[..], &there[..]), (expected, expected), "{sent} of them were sent");
    }
}

#[test]
fn what_was_cut_off_is_not_seen_again() {
    let changes = [Change::Cut(3), Change::Write(5, b"E"), Change::Cut(1), Change::Write(6, b"F")];
    for (count, expected) in [(1, &b"old"[..]), (2, b"old\0\0E"), (3, b"o"), (4, b"o\0\0\0\0\0F")] {
        for sent in 0..=count {
            let (shown, there) = read_after(&changes[..count], sent);
            assert_eq!((&shown[..], &there[..]), (expected, expected), "{sent} of {count} were sent");
        }
    }
}

/// It may be on the server's disk as COMMIT left it without the record of the batch, which would come again over it.
#[test]
fn what_may_come_again_is_put_on_disk_before_what_was_written_over_it_is_committed() {
    let (mut world, dir) = settled();
    world.drain();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    let (file, fh) = (made.0.node, made.1.fh);
    change(&mut world, (file, fh), &Change::Write(0, b"old"));
    send(&mut world, file);
    let large = Bytes::from(vec![1; 200 << 10]);
    world.run(0, |m, t, now| m.write(t, fh, 0, &large, now)).unwrap();
    send(&mut world, file);
    let now = world.now();
    while let Some(out) = world.clients[0].machine.take_write(now) {
        let said = world.server.write(0, &out).expect("nobody is in its way");
        world.clients[0].machine.write_done(out.id, said, now);
    }
    let machine = &mut world.clients[0].machine;
    assert!(matches!(machine.fsync(&mut Turn::new(Caller::new(7, 0)), file, None, now), Step::Wait(_)));
    assert!(machine.take_commit(now).is_none(), "the batch is on no disk");
    let through = machine.take_stable(now).expect("that is asked for first");
    machine.stable_done(through, &[], now);
    assert!(machine.take_commit(now).is_some());
}
