//! What a `sync` of all has to be done; and how often is waited for the server until one file is on its disk.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

/// More than goes with the stream.
const LARGE: usize = 100_000;

/// Else it takes as many forces of the server's disk, one after the other, as there are files.
#[test]
fn all_files_are_committed_together() {
    let mut world = World::new(1, true, 1);
    world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"x", now)).unwrap();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let data = Bytes::from(vec![7; LARGE]);
    let mut opens = Vec::new();
    for name in [b"x", b"y", b"z"] {
        let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, name, 0o644, flags, now)).unwrap();
        opens.push(made.1.fh);
    }
    world.drain();
    for fh in opens {
        world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
    }
    let mut turn = Turn::new(Caller::new(7, 0));
    let now = world.now();
    assert!(matches!(world.clients[0].machine.sync(&mut turn, now), Step::Wait(_)));
    let mut written = 0;
    while let Some(out) = world.clients[0].machine.take_write(now) {
        let Ok(done) = world.server.write(0, &out) else { panic!("nobody else holds anything") };
        world.clients[0].machine.write_done(out.id, done, now);
        written += 1;
    }
    assert!(written >= 3);
    let verifier = world.server.verifier;
    let machine = &mut world.clients[0].machine;
    for _ in 0..2 {
        // Woken in between or not.
        assert!(matches!(machine.sync(&mut turn, now), Step::Wait(_)));
    }
    let commits: Vec<_> = std::iter::from_fn(|| machine.take_commit(now)).collect();
    assert_eq!(commits.len(), 3);
    assert!(matches!(machine.sync(&mut turn, now), Step::Wait(_)));
    assert!(machine.take_commit(now).is_none(), "they are under way");
    for commit in commits {
        assert!(matches!(machine.sync(&mut turn, now), Step::Wait(_)));
        machine.commit_done(commit.id, Ok(verifier), now);
    }
    world.run(0, |m, t, now| m.sync(t, now)).unwrap();
    world.check(0);
}

/// A large file that is on the server's disk, and open.
fn large() -> (World, NodeId, Fh) {
    let mut world = World::new(1, true, 1);
    world.clients[0].machine.settings_mut().io_bytes = 1 << 20;
    world.have_root_alone();
    let (file, fh) = world.made_and_open(b"f");
    world.run(0, |m, t, now| m.write(t, fh, 0, &Bytes::from(vec![7; LARGE]), now)).unwrap();
    world.drain();
    (world, file, fh)
}

fn scribble(world: &mut World, fh: Fh, at: u64) {
    world.run(0, |m, t, now| m.write(t, fh, at, &Bytes::from(vec![8; 4096]), now)).unwrap();
}

#[test]
fn what_lies_in_one_run_and_is_forced_takes_one_call() {
    let (mut world, file, fh) = large();
    for round in 0..50 {
        scribble(&mut world, fh, round * 100);
        let (now, mut turn) = (world.now(), Turn::new(Caller::new(7, 0)));
        let machine = &mut world.clients[0].machine;
        assert!(matches!(machine.fdatasync(&mut turn, file, Some(fh), now), Step::Wait(_)));
        let write = machine.take_write(now).expect("it goes at once");
        assert!(write.to_disk && machine.take_write(now).is_none());
        let done = Written { count: 4096, stable: true, verifier: 1 };
        machine.write_done(write.id, Ok(done), now);
        assert!(matches!(machine.fdatasync(&mut turn, file, Some(fh), now), Step::Done(())));
        assert!(machine.take_commit(now).is_none());
    }
    let queued = world.clients[0].machine.stats().queued;
    assert_eq!(queued, 1, "the time is told once, and late");
}

#[test]
fn what_lies_apart_is_written_and_committed() {
    let (mut world, file, fh) = large();
    [0, 50_000].into_iter().for_each(|at| scribble(&mut world, fh, at));
    let (now, mut turn) = (world.now(), Turn::new(Caller::new(7, 0)));
    let verifier = world.server.verifier;
    let machine = &mut world.clients[0].machine;
    assert!(matches!(machine.fdatasync(&mut turn, file, Some(fh), now), Step::Wait(_)));
    let writes: Vec<_> = std::iter::from_fn(|| machine.take_write(now)).collect();
    assert_eq!(writes.iter().map(|write| write.to_disk).collect::<Vec<_>>(), [false; 2]);
    for write in writes {
        let done = world.server.write(0, &write).unwrap_or_else(|_| panic!("nobody else holds anything"));
        world.clients[0].machine.write_done(write.id, done, now);
    }
    let machine = &mut world.clients[0].machine;
    assert!(matches!(machine.fdatasync(&mut turn, file, Some(fh), now), Step::Wait(_)));
    let commit = machine.take_commit(now).expect("two runs are committed together");
    machine.commit_done(commit.id, Ok(verifier), now);
    assert!(matches!(machine.fdatasync(&mut turn, file, Some(fh), now), Step::Done(())));
}

#[test]
fn data_and_its_time_go_to_the_disk_beside_each_other() {
    let (mut world, file, fh) = large();
    [0, 50_000].into_iter().for_each(|at| scribble(&mut world, fh, at));
    let (now, mut turn) = (world.now(), Turn::new(Caller::new(7, 0)));
    assert!(matches!(world.clients[0].machine.fsync(&mut turn, file, Some(fh), now), Step::Wait(_)));
    while let Some(write) = world.clients[0].machine.take_write(now) {
        let done = world.server.write(0, &write).unwrap_or_else(|_| panic!("nobody else holds anything"));
        world.clients[0].machine.write_done(write.id, done, now);
    }
    let machine = &mut world.clients[0].machine;
    assert!(matches!(machine.fsync(&mut turn, file, Some(fh), now), Step::Wait(_)));
    assert!(machine.take_commit(now).is_some());
    assert!(machine.take_batch(now).is_some(), "it does not wait for the commit");
}
