//! Files without names that are still open, and such that never had one.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

const READ: Access = Access { read: true, write: false };
const WRITE: Access = Access { read: false, write: true };
const BOTH: Access = Access { read: true, write: true };

fn flags(access: Access) -> OpenFlags {
    OpenFlags { access, ..OpenFlags::default() }
}

/// A file `f` that the server has, and nobody has open.
fn made(world: &mut World) -> NodeId {
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags(BOTH), now)).unwrap();
    let data = Bytes::from_static(b"data");
    world.run(0, |m, t, now| m.write(t, made.1.fh, 0, &data, now)).unwrap();
    close(world, made.1.fh);
    world.drain();
    made.0.node
}

fn close(world: &mut World, fh: Fh) {
    world.run(0, |m, t, now| m.flush(t, fh, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(fh, now);
}

/// Opens are closed in this order, in each of which the rest go on.
fn outlives(accesses: &[Access], order: &[usize]) {
    let mut world = World::new(1, true, 1);
    let node = made(&mut world);
    let mut fhs = Vec::new();
    for access in accesses {
        fhs.push(world.run(0, |m, t, now| m.open(t, node, flags(*access), now)).unwrap().fh);
    }
    world.run(0, |m, t, now| m.unlink(t, NodeId::ROOT, b"f", now)).unwrap();
    world.drain();
    for (nth, closed) in order.iter().enumerate() {
        close(&mut world, fhs[*closed]);
        world.pump(0);
        for left in &order[nth + 1..] {
            let fh = fhs[*left];
            if accesses[*left].write {
                let more = Bytes::from_static(b"more");
                world.run(0, |m, t, now| m.write(t, fh, 4, &more, now)).expect("it is open still");
                world.run(0, |m, t, now| m.fsync(t, node, Some(fh), now)).expect("and is written");
            }
            if accesses[*left].read {
                let read = world.run(0, |m, t, now| m.read(t, fh, 0, 4, now)).expect("it is open still");
                assert_eq!(read.concat(), b"data");
            }
        }
    }
    world.drain();
    assert!(world.server.opens.is_empty(), "{:?}", world.server.opens);
}

#[test]
fn whoever_closes_first_leaves_the_servers_open_to_those_who_go_on() {
    for order in [[0, 1], [1, 0]] {
        for accesses in [[READ, BOTH], [READ, WRITE], [WRITE, READ], [BOTH, BOTH]] {
            outlives(&accesses, &order);
        }
    }
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        outlives(&[READ, WRITE, BOTH], &order);
    }
}

/// A file that never had a name, with `data` in it.
fn never_named(world: &mut World) -> (NodeId, Fh) {
    let (entry, opened) =
        world.run(0, |m, t, now| m.make_nameless(t, NodeId::ROOT, 0o640, flags(BOTH), now)).unwrap();
    assert_eq!((entry.attrs.nlink, entry.entry_valid), (0, false));
    let data = Bytes::from_static(b"data");
    world.run(0, |m, t, now| m.write(t, opened.fh, 0, &data, now)).unwrap();
    (entry.node, opened.fh)
}

#[test]
fn what_never_had_a_name_ends_with_its_last_open_and_nothing_of_it_is_sent() {
    let mut world = World::new(1, true, 1);
    let (node, fh) = never_named(&mut world);
    let attributes = world.run(0, |m, t, now| m.getattr(t, node, now)).unwrap();
    assert_eq!((attributes.attrs.nlink, attributes.attrs.size, attributes.attrs.mode), (0, 4, 0o640));
    close(&mut world, fh);
    assert_eq!(world.clients[0].machine.stats().dirty_bytes, 0);
    world.drain();
    assert_eq!((world.server.opens.len(), world.server.fs.inodes.len()), (0, 1));
    assert!(world.clients[0].machine.take_reports().is_empty());
}

/// As programs make files that nobody sees before they are whole: a crash after the last step finds name and data.
#[test]
fn what_was_put_on_the_disk_without_a_name_is_there_when_it_has_got_one() {
    let mut world = World::new(1, true, 1);
    let (node, fh) = never_named(&mut world);
    world.run(0, |m, t, now| m.fsync(t, node, Some(fh), now)).unwrap();
    let link = |world: &mut World, name: &'static [u8]| {
        world.run(0, |m, t, now| m.link(t, node, NodeId::ROOT, name, now))
    };
    let named = link(&mut world, b"f").unwrap();
    assert_eq!((named.node, named.attrs.nlink), (node, 1));
    // Nothing more is sent: the client is gone.
    let at_server = world.server.fs.look(1, b"f").unwrap().expect("the name is there");
    assert_eq!(world.server.fs.get(at_server).unwrap().data, b"data");
    // And goes on as any other file.
    let more = Bytes::from_static(b" and more");
    world.run(0, |m, t, now| m.write(t, fh, 4, &more, now)).unwrap();
    assert_eq!(link(&mut world, b"f").map(drop), Err(Errno::EEXIST));
    assert_eq!(link(&mut world, b"g").unwrap().attrs.nlink, 2);
    close(&mut world, fh);
    world.drain();
    assert_eq!(world.server.fs.get(at_server).unwrap().data, b"data and more");
    assert!(world.server.opens.is_empty());
}

#[test]
fn data_written_before_a_name_was_asked_for_is_kept_though_the_answer_tells_nothing() {
    let mut world = World::new(1, true, 1);
    world.server.generous = false;
    let (node, fh) = never_named(&mut world);
    world.run(0, |m, t, now| m.link(t, node, NodeId::ROOT, b"f", now)).unwrap();
    close(&mut world, fh);
    world.drain();
    let at_server = world.server.fs.look(1, b"f").unwrap().unwrap();
    assert_eq!(world.server.fs.get(at_server).unwrap().data, b"data");
}

#[test]
fn a_server_without_words_for_it_is_not_asked() {
    let mut world = World::new(1, false, 1);
    let made = world.run(0, |m, t, now| m.make_nameless(t, NodeId::ROOT, 0o640, flags(BOTH), now));
    assert_eq!((made.map(drop), world.server.rpcs), (Err(Errno::EOPNOTSUPP), 0));
}
