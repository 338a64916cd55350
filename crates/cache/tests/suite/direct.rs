//! `O_DIRECT`: what is written is with the server when the write returns, and what is read is the server's.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

fn made(world: &mut World) -> Fh {
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags, now)).unwrap().1.fh
}

fn there(world: &World) -> Vec<u8> {
    let inode = world.server.fs.look(1, b"f").unwrap().unwrap();
    world.server.fs.inodes[&inode].data.clone()
}

#[test]
fn what_was_written_is_with_the_server_and_what_is_read_comes_from_there() {
    let mut world = World::new(1, true, 1);
    let fh = made(&mut world);
    for (round, size) in [(1, 100), (2, 100_000)] {
        let data = Bytes::from(vec![round; size]);
        world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
        world.run(0, |m, t, now| m.written_by(t, fh, now)).unwrap();
        assert_eq!(there(&world), data);
        let asks = world.clients[0].asks;
        let read = |world: &mut World, passes: bool| {
            let read = world.run(0, |m, t, now| {
                if passes {
                    t.pass_cache();
                }
                m.read(t, fh, 0, 1 << 20, now)
            });
            read.unwrap().concat()
        };
        assert_eq!(read(&mut world, true), data);
        assert!(world.clients[0].asks > asks, "the server was asked");
        // And what was written since, though nobody had sent it yet.
        let more = Bytes::from(vec![9; 10]);
        world.run(0, |m, t, now| m.write(t, fh, 0, &more, now)).unwrap();
        assert_eq!(read(&mut world, true)[..11], [9, 9, 9, 9, 9, 9, 9, 9, 9, 9, round]);
    }
}
