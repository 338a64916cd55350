//! Who is told that data was lost: each open, once, and a new one of what nobody has heard of.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

/// More than goes with the stream.
const LARGE: usize = 100_000;

fn opened(world: &mut World, node: NodeId, write: bool) -> Fh {
    let flags = OpenFlags { access: Access { read: true, write }, ..OpenFlags::default() };
    world.run(0, |m, t, now| m.open(t, node, flags, now)).unwrap().fh
}

fn close(world: &mut World, fh: Fh) -> Result<(), Errno> {
    let closed = world.run(0, |m, t, now| m.flush(t, fh, now));
    let now = world.now();
    world.clients[0].machine.release(fh, now);
    closed
}

fn fsync(world: &mut World, node: NodeId, fh: Fh) -> Result<(), Errno> {
    world.run(0, |m, t, now| m.fsync(t, node, Some(fh), now))
}

/// A file that is open for writing, whose data the server has refused after the write had returned.
fn refused() -> (World, NodeId, Fh) {
    let mut world = World::new(1, true, 1);
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    let (node, fh) = (made.0.node, made.1.fh);
    fsync(&mut world, node, fh).unwrap();
    world.drain();
    lose(&mut world, fh);
    (world, node, fh)
}

/// Writes, and has the server refuse it while nobody waits.
fn lose(world: &mut World, fh: Fh) {
    let data = Bytes::from(vec![7; LARGE]);
    world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    // What a process does that has inherited it, and never looks at what its close says.
    let closed = machine.flush(&mut Turn::new(Caller::new(7, 0)), fh, now);
    assert!(matches!(closed, Step::Done(())), "{closed:?}");
    let mut sent = 0;
    while let Some(write) = machine.take_write(now) {
        machine.write_done(write.id, Err(Errno::ENOSPC), now);
        sent += 1;
    }
    assert!(sent > 0);
    // Who puts everything on the disk is told, and takes nothing from the file's opens.
    assert_eq!(world.run(0, |m, t, now| m.sync(t, now)), Err(Errno::ENOSPC));
}

#[test]
fn a_reader_that_closes_takes_nothing_from_who_has_written() {
    let (mut world, node, writer) = refused();
    let reader = opened(&mut world, node, false);
    assert_eq!(close(&mut world, reader), Ok(()), "it has lost nothing");
    assert_eq!(fsync(&mut world, node, writer), Err(Errno::ENOSPC));
    assert_eq!(fsync(&mut world, node, writer), Ok(()), "once");
    assert_eq!(close(&mut world, writer), Ok(()));
}

/// As `sed -i` and `rsync` do it, who look at what `close` says, and find the old file or the new one, whole.
#[test]
fn what_has_not_got_its_data_replaces_nothing() {
    for (size, is_made, is_refused) in
        [(LARGE, true, false), (LARGE, false, false), (10, true, false), (LARGE, false, true)]
    {
        let (mut world, dir) = crate::trouble::settled();
        let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
        let create = |world: &mut World, name: &[u8]| {
            world.run(0, |m, t, now| m.create(t, dir, name, 0o644, flags, now)).unwrap().1.fh
        };
        let write = |world: &mut World, fh: Fh, size: usize| {
            let data = Bytes::from(vec![7; size]);
            assert_eq!(world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)), Ok(size as u32));
        };
        let old = create(&mut world, b"cfg");
        write(&mut world, old, 3);
        close(&mut world, old).unwrap();
        world.drain();
        world.server.fs.has_no_inodes = is_refused;
        let new = create(&mut world, b"tmp");
        if is_made {
            world.run(0, |m, t, now| m.fsync(t, dir, None, now)).unwrap();
        }
        world.server.fs.is_full = true;
        write(&mut world, new, size);
        world
            .run(0, |m, t, now| m.rename(t, (dir, b"tmp"), (dir, b"cfg"), RenameMode::Replace, now))
            .unwrap();
        close(&mut world, new).unwrap();
        assert_eq!(world.run(0, |m, t, now| m.sync(t, now)), Err(Errno::ENOSPC), "{size}");
        (world.server.fs.is_full, world.server.fs.has_no_inodes) = (false, false);
        let size_of =
            |world: &mut World, name: &[u8]| match world.run(0, |m, t, now| m.lookup(t, dir, name, now)) {
                Ok(Lookup::Found(found)) => Some(found.attrs.size),
                _ => None,
            };
        assert_eq!(size_of(&mut world, b"cfg"), Some(3), "{size}: the old file");
        assert_eq!(size_of(&mut world, b"tmp"), (!is_refused).then_some(0), "{size}: what has got nothing");
        let told = world.run(0, |m, t, now| m.fsync(t, dir, None, now));
        assert_eq!(told, Err(Errno::ENOSPC), "{size}: the directory's fsync tells");
        // It has its name, and what is written to it is kept.
        let cfg = world.run(0, |m, t, now| m.lookup(t, dir, b"cfg", now));
        let Ok(Lookup::Found(cfg)) = cfg else { panic!("{cfg:?}") };
        assert_eq!(cfg.attrs.nlink, 1, "{size}");
        let again = opened(&mut world, cfg.node, true);
        write(&mut world, again, 5);
        let _ = close(&mut world, again);
        let _ = world.run(0, |m, t, now| m.sync(t, now));
        let there = world.server.fs.look(world.server.fs.look(1, b"d").unwrap().unwrap(), b"cfg").unwrap();
        assert_eq!(world.server.fs.get(there.unwrap()).unwrap().data.len(), 5, "{size}");
    }
}

#[test]
fn each_open_is_told_by_its_own_fsync() {
    let (mut world, node, writer) = refused();
    let other = opened(&mut world, node, true);
    assert_eq!(fsync(&mut world, node, other), Err(Errno::ENOSPC), "nobody had heard of it");
    assert_eq!(fsync(&mut world, node, writer), Err(Errno::ENOSPC), "that another has does not count");
    let late = opened(&mut world, node, true);
    assert_eq!(fsync(&mut world, node, late), Ok(()), "it is old");
    lose(&mut world, late);
    for fh in [writer, other, late] {
        assert_eq!(fsync(&mut world, node, fh), Err(Errno::ENOSPC));
        assert_eq!(close(&mut world, fh), Ok(()));
    }
}

/// A process that was forked closes what it has inherited, and looks at nothing.
#[test]
fn a_close_tells_who_may_write_of_its_own_time_and_leaves_it_to_fsync() {
    let (mut world, node, writer) = refused();
    let later = opened(&mut world, node, true);
    assert_eq!(close(&mut world, later), Ok(()), "it was lost before");
    for _ in 0..2 {
        assert_eq!(world.run(0, |m, t, now| m.flush(t, writer, now)), Err(Errno::ENOSPC));
    }
    assert_eq!(fsync(&mut world, node, writer), Err(Errno::ENOSPC));
}

/// Data that was dropped, as the file's name was to be another's, is missed by a file that keeps its name.
#[test]
fn what_was_not_replaced_after_all_tells_that_its_data_was_dropped() {
    let (mut world, dir) = crate::trouble::settled();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let [old, _new] = [b"cfg".as_slice(), b"tmp"].map(|name| {
        let made = world.run(0, |m, t, now| m.create(t, dir, name, 0o644, flags, now)).unwrap();
        close(&mut world, made.1.fh).unwrap();
        made.0.node
    });
    world.drain();
    let writer = opened(&mut world, old, true);
    let data = Bytes::from_static(b"data");
    world.run(0, |m, t, now| m.write(t, writer, 0, &data, now)).unwrap();
    close(&mut world, writer).unwrap();
    world.run(0, |m, t, now| m.rename(t, (dir, b"tmp"), (dir, b"cfg"), RenameMode::Replace, now)).unwrap();
    let batch = world.one_batch();
    let now = world.now();
    let refused = batch.ops.iter().map(|op| match op {
        Mutation::Write { data, .. } if data.is_empty() => {
            MutationResult::Done { made: None, other_name: None, attrs: None }
        }
        Mutation::Rename { .. } => MutationResult::Failed(Errno::EIO),
        other => panic!("{other:?}"),
    });
    let refused = refused.collect();
    world.clients[0].machine.batch_done(batch.txn, refused, 0, now);
    assert_eq!(world.run(0, |m, t, now| m.fsync(t, old, None, now)), Err(Errno::EIO));
    let reader = opened(&mut world, old, false);
    close(&mut world, reader).unwrap();
}
