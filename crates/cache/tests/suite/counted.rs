//! What is counted of operations is true: each once, and as known only what was not asked for.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::{Access, Hits, NodeId, OpenFlags, Stats};

/// A file of another mount's, of which this one knows nothing.
fn unknown() -> World {
    let mut world = World::new(2, true, 1);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(1, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o666, flags, now)).unwrap();
    let fh = made.1.fh;
    world.run(1, |m, t, now| m.write(t, fh, 0, &Bytes::from_static(b"data"), now)).unwrap();
    world.run(1, |m, t, now| m.flush(t, fh, now)).unwrap();
    let now = world.now();
    world.clients[1].machine.release(fh, now);
    world.drain();
    world
}

fn stats(world: &World) -> Stats {
    world.clients[0].machine.stats()
}

#[test]
fn what_was_written_is_counted_whether_it_is_sent_or_not() {
    let mut world = World::new(1, true, 1);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    for (name, length) in [(b"a", 10), (b"b", 100_000)] {
        let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, name, 0o666, flags, now)).unwrap();
        let data = Bytes::from(vec![7; length]);
        world.run(0, |m, t, now| m.write(t, made.1.fh, 0, &data, now)).unwrap();
    }
    assert_eq!(stats(&world).bytes_written, 100_010);
    world.drain();
    assert_eq!(stats(&world).bytes_written, 100_010);
}

/// Finds, looks at, opens, reads and closes it.
fn read(world: &mut World) {
    let found = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"f", now)).unwrap();
    let holdfast_cache::Lookup::Found(entry) = found else { panic!("{found:?}") };
    world.run(0, |m, t, now| m.getattr(t, entry.node, now)).unwrap();
    let flags = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
    let fh = world.run(0, |m, t, now| m.open(t, entry.node, flags, now)).unwrap().fh;
    let data = world.run(0, |m, t, now| m.read(t, fh, 0, 4096, now)).unwrap();
    assert_eq!(data.concat(), b"data");
    world.run(0, |m, t, now| m.flush(t, fh, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(fh, now);
}

#[test]
fn an_operation_is_counted_once_and_what_was_asked_for_was_not_known() {
    let mut world = unknown();
    let before = stats(&world);
    read(&mut world);
    let first = stats(&world);
    assert_eq!((first.operations - before.operations, first.due), (5, 4), "a close costs no call");
    assert_eq!(first.lookups, Hits { hits: 0, misses: 1 });
    assert_eq!(first.reads, Hits { hits: 0, misses: 1 });
    assert_eq!(first.opens.hits + first.opens.misses, 1);
    let asked_now = [first.lookups, first.attributes, first.opens, first.reads].map(|of| of.misses);
    assert_eq!(first.asks, asked_now.iter().sum::<u64>());
    read(&mut world);
    read(&mut world);
    let then = stats(&world);
    assert_eq!((then.operations - first.operations, then.due), (10, 12));
    assert_eq!(then.asks, first.asks, "all is known");
    for (of, before) in [(then.lookups, first.lookups), (then.reads, first.reads), (then.opens, first.opens)]
    {
        assert_eq!((of.hits, of.misses), (before.hits + 2, before.misses));
    }
}

#[test]
fn what_is_made_is_no_name_that_was_known() {
    let mut world = unknown();
    let before = stats(&world);
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap();
    let after = stats(&world);
    assert_eq!(after.operations, before.operations + 1);
    assert_eq!(after.lookups, before.lookups);
}

#[test]
fn a_listing_is_counted_by_its_beginning() {
    let mut world = unknown();
    let before = stats(&world).operations;
    for round in 0..3 {
        let fh = world.run(0, |m, t, now| m.opendir(t, NodeId::ROOT, now)).unwrap().fh;
        for offset in [0, u64::MAX >> 1] {
            world.run(0, |m, t, now| m.readdir(t, fh, offset, true, &mut |_| true, now)).unwrap();
        }
        world.clients[0].machine.releasedir(fh);
        assert_eq!(stats(&world).listings, Hits { hits: round, misses: 1 });
    }
    let stats = stats(&world);
    assert_eq!((stats.operations - before, stats.due), (9, 3));
}
