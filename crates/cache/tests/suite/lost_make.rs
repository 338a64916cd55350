//! A file too big for a batch: the server makes it, takes its data by WRITE, and loses its power before any of that is on its disk.
//! It is made again, under another handle; what is asked of it meanwhile by the old one finds nothing.

use crate::trouble::{power_cut, resume, settled};
use crate::world::World;
use holdfast_cache::*;

const SIZE: usize = 200 << 10;

fn content() -> bytes::Bytes {
    (0..SIZE).map(|n| (n % 251) as u8).collect::<Vec<_>>().into()
}

/// A file that the server has made and been given the data of, all of it in its memory alone; open.
fn written() -> (World, NodeId, Fh) {
    let (mut world, dir) = settled();
    world.drain();
    world.disk = Some(world.server.clone());
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    let (file, fh) = (made.0.node, made.1.fh);
    world.run(0, |m, t, now| m.write(t, fh, 0, &content(), now)).unwrap();
    wait(&mut world, (file, fh));
    send(&mut world);
    (world, file, fh)
}

/// Somebody begins to wait for it to be on disk.
fn wait(world: &mut World, (file, fh): (NodeId, Fh)) {
    let now = world.now();
    let begun = world.clients[0].machine.fsync(&mut Turn::new(Caller::new(7, 0)), file, Some(fh), now);
    assert!(matches!(begun, Step::Wait(_)));
}

/// What is to be sent, and nothing that would be put on disk by it.
fn send(world: &mut World) {
    let now = world.now();
    loop {
        let (server, machine) = (&mut world.server, &mut world.clients[0].machine);
        if let Some(batch) = machine.take_batch(now) {
            let results = server.batch(0, &batch);
            machine.batch_done(batch.txn, results, 0, now);
        } else if let Some(write) = machine.take_write(now) {
            let said = server.write(0, &write).expect("nobody is in its way");
            machine.write_done(write.id, said, now);
        } else {
            break;
        }
        world.check(0);
    }
}

fn is_whole(world: &mut World, (file, fh): (NodeId, Fh)) {
    let done = world.run(0, |m, t, now| m.fsync(t, file, Some(fh), now));
    assert_eq!(done, Ok(()), "{:?}", world.clients[0].machine.take_reports());
    world.disk = None;
    let dir = world.server.fs.look(1, b"d").unwrap().unwrap();
    let there = world.server.fs.look(dir, b"f").unwrap().expect("it is there");
    assert!(world.server.fs.inodes[&there].data == content(), "fsync has said that it is");
    assert!(world.clients[0].machine.take_reports().is_empty());
}

/// Something is answered by a server that has lost its power, before it says what it has lost or behind that.
fn over_a_power_cut(
    (mut world, file, fh): (World, NodeId, Fh),
    comes_before: bool,
    answer: impl FnOnce(&mut World),
) {
    power_cut(&mut world);
    if !comes_before {
        resume(&mut world);
    }
    answer(&mut world);
    world.check(0);
    if comes_before {
        resume(&mut world);
    }
    is_whole(&mut world, (file, fh));
}

#[test]
fn a_commit_that_finds_nothing_is_no_word_for_the_data() {
    for comes_before in [true, false] {
        let (mut world, file, fh) = written();
        wait(&mut world, (file, fh));
        let now = world.now();
        let commit = world.clients[0].machine.take_commit(now).expect("somebody waits");
        over_a_power_cut((world, file, fh), comes_before, |world| {
            let said = world.server.commit(&commit);
            assert_eq!(said, Err(Errno::ESTALE));
            world.clients[0].machine.commit_done(commit.id, said, now);
        });
    }
}

#[test]
fn a_write_that_finds_nothing_comes_again() {
    for comes_before in [true, false] {
        let (mut world, file, fh) = written();
        world.run(0, |m, t, now| m.write(t, fh, 0, &content(), now)).unwrap();
        wait(&mut world, (file, fh));
        let now = world.now();
        let write = world.clients[0].machine.take_write(now).expect("somebody waits");
        over_a_power_cut((world, file, fh), comes_before, |world| {
            let said = world.server.write(0, &write).expect("nobody is in its way");
            assert_eq!(said, Err(Errno::ESTALE));
            world.clients[0].machine.write_done(write.id, said, now);
        });
    }
}

/// Somebody else has removed it: what was written to it is nobody's loss, and no reason to write for ever.
#[test]
fn what_is_removed_once_it_is_on_disk_is_not_written_again() {
    let (mut world, file, fh) = written();
    world.run(0, |m, t, now| m.fsync(t, file, Some(fh), now)).unwrap();
    world.run(0, |m, t, now| m.write(t, fh, 0, &content(), now)).unwrap();
    wait(&mut world, (file, fh));
    send(&mut world);
    wait(&mut world, (file, fh));
    let now = world.now();
    let commit = world.clients[0].machine.take_commit(now).expect("somebody waits");
    world.clients[0].machine.commit_done(commit.id, Err(Errno::ESTALE), now);
    assert_eq!(world.clients[0].machine.take_write(now).map(|out| out.id), None);
    assert_eq!(world.run(0, |m, t, now| m.fsync(t, file, Some(fh), now)), Ok(()));
}
