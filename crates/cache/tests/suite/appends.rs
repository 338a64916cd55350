//! `O_APPEND`: under an exclusive capability here, else where the server finds the end.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

const APPENDS: OpenFlags = OpenFlags {
    access: Access { read: true, write: true },
    append: true,
    truncate: false,
    exclusive: false,
    execute: false,
};

fn made(world: &mut World, c: usize) -> (NodeId, Fh) {
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(c, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    let made = world.run(c, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, APPENDS, now)).unwrap();
    (made.0.node, made.1.fh)
}

fn found(world: &mut World, c: usize) -> (NodeId, Fh) {
    let found = world.run(c, |m, t, now| m.lookup(t, NodeId::ROOT, b"f", now)).unwrap();
    let Lookup::Found(entry) = found else { panic!("{found:?}") };
    (entry.node, world.run(c, |m, t, now| m.open(t, entry.node, APPENDS, now)).unwrap().fh)
}

fn append(world: &mut World, c: usize, fh: Fh, believed: u64, data: &'static str) {
    let data = Bytes::from_static(data.as_bytes());
    let wrote = world.run(c, |m, t, now| m.write(t, fh, believed, &data, now)).unwrap();
    assert_eq!(wrote as usize, data.len());
}

fn read(world: &mut World, c: usize, fh: Fh) -> String {
    let read = world.run(c, |m, t, now| m.read(t, fh, 0, 1000, now)).unwrap();
    String::from_utf8(read.concat()).unwrap()
}

#[test]
fn under_an_exclusive_capability_nothing_is_asked() {
    let mut world = World::new(1, true, 1);
    let (_, fh) = made(&mut world, 0);
    let asks = world.clients[0].asks;
    // Where the kernel believes the end to be does not count.
    for (believed, line) in [(0, "one\n"), (0, "two\n"), (900, "three\n")] {
        append(&mut world, 0, fh, believed, line);
    }
    assert_eq!(read(&mut world, 0, fh), "one\ntwo\nthree\n");
    assert_eq!(world.clients[0].asks, asks);
}

#[test]
fn what_is_appended_past_the_kernels_pages_is_read_without_a_question() {
    let mut world = World::new(1, true, 1);
    world.clients[0].machine.settings_mut().direct = true;
    let (node, fh) = made(&mut world, 0);
    let mut want = String::new();
    for round in 0..3 {
        append(&mut world, 0, fh, 0, "one\n");
        append(&mut world, 0, fh, 0, "two\n");
        want += "one\ntwo\n";
        if round == 1 {
            // Sent, and what is written on the way: only parts of it are to be sent.
            world.drain();
        } else {
            let (now, asks) = (world.now(), world.clients[0].asks);
            let flushed = world.clients[0].machine.flush(&mut Turn::new(Caller::new(7, 0)), fh, now);
            assert!(matches!(flushed, Step::Done(())));
            world.pump(0);
            assert_eq!(world.clients[0].asks, asks);
        }
        let asks = world.clients[0].asks;
        assert_eq!(read(&mut world, 0, fh), want);
        assert_eq!(world.clients[0].asks, asks, "in round {round}");
    }
    // What cuts it off is not passed over.
    let size = Changes { size: Some(3), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, node, &size, now)).unwrap();
    assert_eq!(read(&mut world, 0, fh), "one");
    append(&mut world, 0, fh, 0, "more");
    assert_eq!(read(&mut world, 0, fh), "onemore");
    world.drain();
    assert_eq!(read(&mut world, 0, fh), "onemore");
}

#[test]
fn what_several_append_is_there_once_whoever_believes_what() {
    let mut world = World::new(2, true, 3);
    world.clients.iter_mut().for_each(|c| c.machine.settings_mut().io_bytes = 64);
    let (_, one) = made(&mut world, 0);
    let (_, other) = found(&mut world, 1);
    let mut want = String::new();
    for (n, line) in ["a\n", "bb\n", "ccc\n", "dddd\n", "eeeee\n", "ffffff\n"].into_iter().enumerate() {
        // Neither kernel has heard of what the other has appended.
        append(&mut world, n % 2, [one, other][n % 2], 0, line);
        want += line;
        if n >= 4 {
            // By now nobody has to give anything back first.
            let told = world.clients[n % 2].machine.take_invalidations();
            let is_told = told.iter().any(|i| matches!(i.what, Forget::Data(_)));
            assert!(is_told, "it was elsewhere than the kernel believes");
        }
    }
    for (c, fh) in [(0, one), (1, other)] {
        assert_eq!(read(&mut world, c, fh), want);
    }
    // It is put on the disk like any other data.
    let node = found(&mut world, 1).0;
    world.run(1, |m, t, now| m.fsync(t, node, Some(other), now)).unwrap();
    assert_eq!(world.clients[1].machine.stats().unstable_bytes, 0);
}

#[test]
fn an_append_without_the_capability_is_one_question() {
    let mut world = World::new(2, true, 3);
    let (_, one) = made(&mut world, 0);
    let (_, other) = found(&mut world, 1);
    append(&mut world, 0, one, 0, "first\n");
    append(&mut world, 1, other, 0, "second\n");
    let asks = world.clients[1].asks;
    append(&mut world, 1, other, 0, "third\n");
    assert_eq!(world.clients[1].asks, asks + 1);
}

#[test]
fn who_says_where_is_taken_at_his_word() {
    let mut world = World::new(1, true, 1);
    let (_, fh) = made(&mut world, 0);
    append(&mut world, 0, fh, 0, "0123456789");
    let data = Bytes::from_static(b"xx");
    // What comes back of a mapping, or after `fcntl` has taken the flag away.
    let at_place = |m: &mut Machine, t: &mut Turn, now| {
        t.writes_to(WriteTo::Place);
        m.write(t, fh, 4, &data, now)
    };
    world.run(0, at_place).unwrap();
    assert_eq!(read(&mut world, 0, fh), "0123xx6789");
}

#[test]
fn an_open_to_append_goes_past_the_kernels_pages_where_that_can_be() {
    let mut world = World::new(1, true, 1);
    let (node, _) = made(&mut world, 0);
    for direct in [true, false] {
        world.clients[0].machine.settings_mut().direct = direct;
        let opened = world.run(0, |m, t, now| m.open(t, node, APPENDS, now)).unwrap();
        assert_eq!(opened.is_direct, direct);
        let reads = OpenFlags { access: Access { read: true, write: false }, ..APPENDS };
        let opened = world.run(0, |m, t, now| m.open(t, node, reads, now)).unwrap();
        assert!(!opened.is_direct, "it appends nothing");
    }
}
