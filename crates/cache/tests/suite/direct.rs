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

/// What was written of `fh` up to its WRITE.
fn written_out(world: &mut World, fh: Fh, data: &Bytes) -> WriteOut {
    let mut turn = Turn::new(Caller::new(7, 0));
    turn.go_to_disk();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let done = machine.write(&mut turn, fh, 0, data, now);
    assert!(matches!(done, Step::Done(_)), "{done:?}");
    let mut turn = Turn::new(Caller::new(7, 0));
    turn.go_to_disk();
    let done = machine.written_by(&mut turn, fh, now);
    assert!(matches!(done, Step::Wait(_)), "it is here alone: {done:?}");
    machine.take_write(now).expect("it goes by WRITE, small as it is")
}

#[test]
fn what_ends_at_the_disk_goes_by_a_stable_write_and_not_before_the_file_is_there() {
    let mut world = World::new(1, true, 1);
    let fh = made(&mut world);
    let data = Bytes::from_static(b"small");
    let mut turn = Turn::new(Caller::new(7, 0));
    turn.go_to_disk();
    let now = world.now();
    let first = world.clients[0].machine.write(&mut turn, fh, 0, &data, now);
    assert!(matches!(first, Step::Wait(_)), "what makes the file is not on disk: {first:?}");
    world
        .run(0, |m, t, now| {
            t.go_to_disk();
            m.write(t, fh, 0, &data, now)
        })
        .unwrap();
    world
        .run(0, |m, t, now| {
            t.go_to_disk();
            m.written_by(t, fh, now)
        })
        .unwrap();
    assert_eq!(there(&world), data);
    assert_eq!(world.clients[0].machine.pending().bytes, 0, "nothing is kept of what is on disk");
    let out = written_out(&mut world, fh, &Bytes::from_static(b"again"));
    assert!(out.to_disk);
}

#[test]
fn what_is_written_where_nothing_is_promised_ends_at_the_disk_as_well() {
    let mut world = World::new(1, true, 1);
    let fh = made(&mut world);
    world.run(0, |m, t, now| m.write(t, fh, 0, &Bytes::from_static(b"x"), now)).unwrap();
    world.clients[0].machine.settings_mut().write_back = false;
    let stable = |world: &mut World, to_disk: bool| {
        let mut found = None;
        world
            .run(0, |m, t, now| {
                if to_disk {
                    t.go_to_disk();
                }
                let step = m.write(t, fh, 0, &Bytes::from_static(b"y"), now);
                if let Step::Ask(ask) = &step
                    && let Question::Write { stable, .. } = ask.question
                {
                    found = Some(stable);
                }
                step
            })
            .unwrap();
        found
    };
    assert_eq!(stable(&mut world, true), Some(true));
    assert_eq!(stable(&mut world, false), Some(false));
    let mut asked = None;
    let read = world.run(0, |m, t, now| {
        t.pass_cache();
        t.go_to_disk();
        let step = m.read(t, fh, 0, 10, now);
        if let Step::Ask(ask) = &step
            && let Question::Read { from_disk, .. } = ask.question
        {
            asked = Some(from_disk);
        }
        step
    });
    assert_eq!((read.unwrap().concat(), asked), (b"y".to_vec(), Some(true)));
}
