//! What was made here without a promise, and found its name another's: both are kept, and what was done to ours by that name since
//! is done to it all the same.

use crate::world::World;
use crate::world::fs::ROOT;
use bytes::Bytes;
use holdfast_cache::*;

const BOTH: Access = Access { read: true, write: true };

/// A mount that has just made `tmp` in a directory of its own, with something in it.
fn made() -> (World, NodeId, Fh) {
    let (mut world, dir) = crate::trouble::settled();
    world.drain();
    let flags = OpenFlags { access: BOTH, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, b"tmp", 0o644, flags, now)).unwrap();
    let data = Bytes::from_static(b"ours");
    world.run(0, |m, t, now| m.write(t, made.1.fh, 0, &data, now)).unwrap();
    (world, dir, made.1.fh)
}

/// The server has given up on the mount, and somebody else has been there.
fn lost(world: &mut World) {
    let dir = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    let theirs = world.server.fs.make(dir, b"tmp", Kind::File, 0o644, 9).unwrap();
    world.server.fs.write(theirs, 0, b"theirs").unwrap();
    world.server.unwatched = true;
    world.server.restart();
    let now = world.now();
    world.clients[0].machine.caps_lost(now);
}

fn close(world: &mut World, fh: Fh) {
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let _ = machine.flush(&mut Turn::new(Caller::new(7, 0)), fh, now);
    machine.release(fh, now);
}

/// The batch that makes it, on its way.
fn making(world: &mut World) -> Batch {
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let synced = machine.sync(&mut Turn::new(Caller::new(7, 0)), now);
    assert!(matches!(synced, Step::Wait(_)));
    machine.take_batch(now).expect("the making")
}

fn answer(world: &mut World, batch: &Batch) {
    let (results, now) = (world.server.batch(0, batch), world.now());
    world.clients[0].machine.batch_done(batch.txn, results, 0, now);
    world.check(0);
}

/// Names in the directory at the server, with what they lead to.
fn there(world: &World) -> Vec<(String, String)> {
    let fs = &world.server.fs;
    let dir = fs.look(ROOT, b"d").unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fs.inodes[&dir].entries.iter().map(|(name, file)| (text(name), text(&fs.inodes[file].data))).collect()
}

fn settle(world: &mut World) {
    for _ in 0..4 {
        // That both were kept is told, once.
        let _ = world.run(0, |m, t, now| m.sync(t, now));
    }
}

#[test]
fn a_save_that_is_renamed_into_its_place_gets_there() {
    for is_heard_first in [false, true] {
        let (mut world, dir, fh) = made();
        let rename = |world: &mut World| {
            let (from, to) = ((dir, b"tmp".as_slice()), (dir, b"f".as_slice()));
            world.run(0, |m, t, now| m.rename(t, from, to, RenameMode::Replace, now)).unwrap();
            close(world, fh);
        };
        if is_heard_first {
            // What becomes of the making is heard when the rename was not sent yet.
            let making = making(&mut world);
            rename(&mut world);
            lost(&mut world);
            answer(&mut world, &making);
        } else {
            rename(&mut world);
            lost(&mut world);
        }
        settle(&mut world);
        let both = [("f", "ours"), ("tmp", "theirs")].map(|(name, data)| (name.to_owned(), data.to_owned()));
        assert_eq!(there(&world), both, "heard first: {is_heard_first}");
    }
}

#[test]
fn what_is_removed_again_does_not_stay_beside() {
    let (mut world, dir, fh) = made();
    close(&mut world, fh);
    let making = making(&mut world);
    world.run(0, |m, t, now| m.unlink(t, dir, b"tmp", now)).unwrap();
    lost(&mut world);
    answer(&mut world, &making);
    settle(&mut world);
    assert_eq!(there(&world), [("tmp".to_owned(), "theirs".to_owned())]);
}

/// As long as the directory is promised nobody can have taken the name: one batch has all.
#[test]
fn what_is_promised_goes_in_one_batch() {
    let (mut world, dir, fh) = made();
    let (from, to) = ((dir, b"tmp".as_slice()), (dir, b"f".as_slice()));
    world.run(0, |m, t, now| m.rename(t, from, to, RenameMode::Replace, now)).unwrap();
    close(&mut world, fh);
    let batch = world.one_batch();
    assert!(matches!(batch.ops[..], [Mutation::Make { .. }, Mutation::Rename { .. }]), "{batch:?}");
}
