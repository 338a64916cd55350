//! Files without names that are still open.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod world;

use bytes::Bytes;
use holdfast_cache::*;
use world::World;

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
                world.run(0, |m, t, now| m.fsync(t, node, now)).expect("and is written");
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
