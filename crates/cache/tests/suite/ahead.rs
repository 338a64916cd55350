//! Small files read before anybody asks for them.

use crate::world;
use crate::world::World;
use crate::world::fs::ROOT;
use holdfast_base::limits::{
    AHEAD_BYTES_MAX, AHEAD_FILES_MIN, AHEAD_KEPT_MS, AHEAD_PAUSE_MS, AHEAD_REFUSED_MS, AHEAD_WAIT_MS_MAX,
    AHEAD_WAIT_MS_MIN, CLEAN_BYTES_MAX,
};
use holdfast_cache::*;

const FILES: u8 = 100;

/// A mount that has looked at nothing yet, and an export with so many files.
fn fresh(clients: usize, files: u8) -> World {
    let mut world = World::new(clients, true, 1);
    (world.server.page, world.reads_ahead) = (1000, false);
    for c in 0..clients {
        *world.clients[c].machine.settings_mut() = Settings::full();
    }
    for n in 0..files {
        let ino = world.server.fs.make(ROOT, &name_of(n), Kind::File, 0o644, 7).unwrap();
        world.server.fs.write(ino, 0, &contents(n)).unwrap();
    }
    world
}

fn name_of(n: u8) -> Vec<u8> {
    format!("file{n}").into_bytes()
}

fn contents(n: u8) -> Vec<u8> {
    vec![n; 10 + usize::from(n)]
}

fn list(world: &mut World, c: usize) -> Vec<u8> {
    let fh = world.run(c, |m, t, now| m.opendir(t, NodeId::ROOT, now)).unwrap().fh;
    let mut order = Vec::new();
    world
        .run(c, |m, t, now| {
            order.clear();
            let mut take = |entry: &DirEntry| {
                let name = std::str::from_utf8(entry.name.as_bytes()).unwrap();
                order.extend(name.strip_prefix("file").map(|n| n.parse::<u8>().unwrap()));
                true
            };
            m.readdir(t, fh, 0, true, &mut take, now)
        })
        .unwrap();
    world.clients[c].machine.releasedir(fh);
    order
}

fn node(world: &mut World, c: usize, name: &[u8]) -> NodeId {
    node_in(world, c, (NodeId::ROOT, name))
}

fn node_in(world: &mut World, c: usize, (dir, name): (NodeId, &[u8])) -> NodeId {
    let found = world.run(c, |m, t, now| m.lookup(t, dir, name, now)).unwrap();
    let Lookup::Found(entry) = found else { panic!("it is there") };
    entry.node
}

const READS: OpenFlags = OpenFlags {
    access: Access { read: true, write: false },
    append: false,
    truncate: false,
    exclusive: false,
    execute: false,
};

/// What `cat` sees; and what is to be read ahead is, at once.
fn cat(world: &mut World, c: usize, name: &[u8]) -> Vec<u8> {
    let id = node(world, c, name);
    read_node(world, c, id)
}

fn read_node(world: &mut World, c: usize, id: NodeId) -> Vec<u8> {
    let fh = world.run(c, |m, t, now| m.open(t, id, READS, now)).unwrap().fh;
    let parts = world.run(c, |m, t, now| m.read(t, fh, 0, 4096, now)).unwrap();
    let now = world.now();
    world.clients[c].machine.release(fh, now);
    read_ahead(world, c);
    parts.concat()
}

fn read_ahead(world: &mut World, c: usize) {
    let now = world.now();
    while let Some(out) = world.clients[c].machine.take_ahead(now) {
        let told = told(world, c, &out);
        world.clients[c].machine.ahead_done(&out, Some(told), now);
        world.check(c);
    }
}

/// What the server gives, when it gives something.
fn told(world: &mut World, c: usize, out: &AheadOut) -> world::client::Told {
    loop {
        if let Some(told) = world.read_ahead(c, out) {
            return told;
        }
    }
}

/// Two files were read, and the next ones are being read ahead: the order of all, and what is on its way.
fn under_way(world: &mut World) -> (Vec<u8>, AheadOut) {
    let order = list(world, 0);
    for n in &order[..2] {
        let id = node(world, 0, &name_of(*n));
        let fh = world.run(0, |m, t, now| m.open(t, id, READS, now)).unwrap().fh;
        world.run(0, |m, t, now| m.read(t, fh, 0, 4096, now)).unwrap();
    }
    let now = world.now();
    (order, world.clients[0].machine.take_ahead(now).unwrap())
}

fn stats(world: &World, c: usize) -> Stats {
    world.clients[c].machine.stats()
}

#[test]
fn of_files_that_are_read_one_after_the_other_only_the_first_are_asked_for() {
    let mut world = fresh(1, FILES);
    let order = list(&mut world, 0);
    assert_eq!((order.len(), world.clients[0].asks), (usize::from(FILES), 1));
    for n in order {
        assert_eq!(cat(&mut world, 0, &name_of(n)), contents(n));
    }
    // The listing brings what covers opening and reading: nothing is asked but the data of two files.
    assert_eq!(world.clients[0].asks, 3, "{:?}", stats(&world, 0));
    assert!(world.server.aheads <= 16, "{} calls", world.server.aheads);
    let stats = stats(&world, 0);
    assert_eq!((stats.ahead_files, stats.ahead_used), (98, 98));
}

#[test]
fn the_kernel_is_given_what_was_read_ahead_with_the_open_and_asks_for_nothing() {
    let mut world = fresh(1, FILES);
    let order = list(&mut world, 0);
    order[..2].iter().for_each(|n| assert_eq!(cat(&mut world, 0, &name_of(*n)), contents(*n)));
    for n in &order[2..] {
        let (id, mut given) = (node(&mut world, 0, &name_of(*n)), None);
        let opened = world.run(0, |m, t, now| {
            let step = m.open(t, id, READS, now);
            if let Step::Done(opened) = &step {
                given = m.store_at_open(opened, now);
            }
            step
        });
        assert_eq!(given.expect("it is the file's first open").1.data, contents(*n));
        let now = world.now();
        world.clients[0].machine.stored(id, true);
        world.clients[0].machine.release(opened.unwrap().fh, now);
        read_ahead(&mut world, 0);
    }
    assert_eq!(world.clients[0].asks, 3, "{:?}", stats(&world, 0));
    let stats = stats(&world, 0);
    assert_eq!((stats.ahead_files, stats.ahead_used), (98, 98), "they go on being read ahead");
}

#[test]
fn in_whatever_order_they_are_read_no_more_is_read_ahead_than_there_is() {
    let mut world = fresh(1, FILES);
    list(&mut world, 0);
    for n in 0..u32::from(FILES) {
        let n = u8::try_from(n * 37 % u32::from(FILES)).unwrap();
        assert_eq!(cat(&mut world, 0, &name_of(n)), contents(n));
    }
    let stats = stats(&world, 0);
    assert!(world.clients[0].asks < 40, "{} questions", world.clients[0].asks);
    assert!(stats.ahead_files <= u64::from(FILES) && stats.ahead_used == stats.ahead_files, "{stats:?}");
}

#[test]
fn what_neither_the_kernel_nor_the_mount_has_any_more_is_read_ahead_again() {
    const LARGE: usize = 64 << 10;
    let mut world = fresh(1, FILES);
    let dir = world.server.fs.make(ROOT, b"large", Kind::Dir, 0o755, 7).unwrap();
    for n in 0..=CLEAN_BYTES_MAX / LARGE {
        let ino = world.server.fs.make(dir, format!("{n}").as_bytes(), Kind::File, 0o644, 7).unwrap();
        world.server.fs.write(ino, 0, &vec![1; LARGE]).unwrap();
    }
    let order = list(&mut world, 0);
    order.iter().for_each(|n| assert_eq!(cat(&mut world, 0, &name_of(*n)), contents(*n)));
    let asks = world.clients[0].asks;
    order.iter().for_each(|n| assert_eq!(cat(&mut world, 0, &name_of(*n)), contents(*n)));
    assert_eq!(world.clients[0].asks, asks, "all of them are kept");
    // These take their room.
    let dir = node(&mut world, 0, b"large");
    for n in 0..=CLEAN_BYTES_MAX / LARGE {
        let id = node_in(&mut world, 0, (dir, format!("{n}").as_bytes()));
        read_node(&mut world, 0, id);
    }
    world.ms += AHEAD_PAUSE_MS;
    let (asks, used) = (world.clients[0].asks, stats(&world, 0).ahead_used);
    order.iter().for_each(|n| assert_eq!(cat(&mut world, 0, &name_of(*n)), contents(*n)));
    assert_eq!(world.clients[0].asks, asks + 2, "{:?}", stats(&world, 0));
    assert_eq!(stats(&world, 0).ahead_used, used + u64::from(FILES) - 2);
}

#[test]
fn who_reads_one_file_has_no_other_read() {
    let mut world = fresh(1, FILES);
    let order = list(&mut world, 0);
    cat(&mut world, 0, &name_of(order[0]));
    assert_eq!(world.server.aheads, 0);
    // And who leaves it alone has little, which is dropped again.
    cat(&mut world, 0, &name_of(order[1]));
    let stats_then = stats(&world, 0);
    assert_eq!(stats_then.ahead_files, AHEAD_FILES_MIN as u64);
    world.ms += AHEAD_KEPT_MS;
    assert!(world.clients[0].machine.next_wake(world.now()).is_some());
    read_ahead(&mut world, 0);
    assert_eq!(stats(&world, 0).ahead_unused, AHEAD_FILES_MIN as u64);
    let asks = world.clients[0].asks;
    assert_eq!(cat(&mut world, 0, &name_of(order[2])), contents(order[2]));
    assert_eq!(world.clients[0].asks, asks + 1, "it is not kept any more");
}

#[test]
fn what_others_change_is_not_shown_as_it_was_read_ahead() {
    for is_under_way in [false, true] {
        let mut world = fresh(2, FILES);
        let order = list(&mut world, 0);
        cat(&mut world, 0, &name_of(order[0]));
        let id = node(&mut world, 0, &name_of(order[1]));
        let fh = world.run(0, |m, t, now| m.open(t, id, READS, now)).unwrap().fh;
        world.run(0, |m, t, now| m.read(t, fh, 0, 4096, now)).unwrap();
        let now = world.now();
        let out = world.clients[0].machine.take_ahead(now).unwrap();
        let told = told(&mut world, 0, &out);
        let third = name_of(order[2]);
        if !is_under_way {
            world.clients[0].machine.ahead_done(&out, Some(told.clone()), now);
        }
        let theirs = node(&mut world, 1, &third);
        let flags = OpenFlags { access: Access { read: false, write: true }, ..OpenFlags::default() };
        let fh = world.run(1, |m, t, now| m.open(t, theirs, flags, now)).unwrap().fh;
        let data = bytes::Bytes::from(vec![b'!'; contents(order[2]).len()]);
        world.run(1, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
        if is_under_way {
            world.clients[0].machine.ahead_done(&out, Some(told), now);
        }
        assert_eq!(cat(&mut world, 0, &third), &data[..], "under way: {is_under_way}");
    }
}

#[test]
fn who_comes_for_what_is_on_its_way_waits_for_it_and_asks_himself_if_it_does_not_come() {
    for comes in [true, false] {
        let mut world = fresh(1, FILES);
        let (order, out) = under_way(&mut world);
        let now = world.now();
        let id = node(&mut world, 0, &name_of(order[2]));
        let fh = world.run(0, |m, t, now| m.open(t, id, READS, now)).unwrap().fh;
        let mut turn = Turn::new(Caller::new(7, 0));
        let machine = &mut world.clients[0].machine;
        assert!(matches!(machine.read(&mut turn, fh, 0, 4096, now), Step::Wait(Wait::Ahead)));
        let progress = machine.progress();
        let told = if comes { told(&mut world, 0, &out) } else { Vec::new() };
        let machine = &mut world.clients[0].machine;
        machine.ahead_done(&out, Some(told), now);
        assert_ne!(machine.progress(), progress);
        match machine.read(&mut turn, fh, 0, 4096, now) {
            Step::Done(parts) => assert!(comes && parts.concat() == contents(order[2])),
            Step::Ask(ask) => assert!(!comes && matches!(ask.question, Question::Read { .. })),
            other => panic!("{other:?}"),
        }
        // A server that gives nothing is left alone for a while.
        assert!(comes || world.clients[0].machine.take_ahead(now).is_none());
        world.ms += AHEAD_REFUSED_MS;
        order[50..52].iter().for_each(|n| drop(cat(&mut world, 0, &name_of(*n))));
        assert!(world.server.aheads > 0);
    }
}

#[test]
fn who_comes_for_one_of_those_that_a_slow_one_holds_up_does_not_wait_for_that() {
    for is_measured in [false, true] {
        let mut world = fresh(1, FILES);
        let (order, mut out) = under_way(&mut world);
        if is_measured {
            // It takes three milliseconds, as a rule.
            world.ms += 3;
            let told = told(&mut world, 0, &out);
            let now = world.now();
            world.clients[0].machine.ahead_done(&out, Some(told), now);
            order[2..8].iter().for_each(|n| {
                let id = node(&mut world, 0, &name_of(*n));
                let fh = world.run(0, |m, t, now| m.open(t, id, READS, now)).unwrap().fh;
                world.run(0, |m, t, now| m.read(t, fh, 0, 4096, now)).unwrap();
            });
            let now = world.now();
            out = world.clients[0].machine.take_ahead(now).unwrap();
        }
        let most = if is_measured { AHEAD_WAIT_MS_MIN } else { AHEAD_WAIT_MS_MAX };
        let handles: Vec<_> = out.files.iter().map(|(handle, _)| handle.clone()).collect();
        let is_coming = |world: &mut World, n: u8| {
            let id = node(world, 0, &name_of(n));
            handles.contains(&world.clients[0].machine.handle_of(id).unwrap())
        };
        let n = order.into_iter().find(|n| is_coming(&mut world, *n)).unwrap();
        let id = node(&mut world, 0, &name_of(n));
        let fh = world.run(0, |m, t, now| m.open(t, id, READS, now)).unwrap().fh;
        let mut turn = Turn::new(Caller::new(7, 0));
        let now = world.now();
        let machine = &mut world.clients[0].machine;
        assert!(matches!(machine.read(&mut turn, fh, 0, 4096, now), Step::Wait(Wait::Ahead)));
        let due = machine.next_wake(now).unwrap();
        assert_eq!(due.ms_since(now.mono), most, "{is_measured}");
        // Late, whoever waits is told to look again, and asks himself.
        world.ms += most;
        let now = world.now();
        let machine = &mut world.clients[0].machine;
        let progress = machine.progress();
        while machine.take_ahead(now).is_some() {}
        assert_ne!(machine.progress(), progress);
        let Step::Ask(ask) = machine.read(&mut turn, fh, 0, 4096, now) else { panic!("he waits still") };
        let answer = world.perform(0, &ask);
        world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
        let read = world.clients[0].machine.read(&mut turn, fh, 0, 4096, now);
        assert!(matches!(read, Step::Done(parts) if parts.concat() == contents(n)));
        // What comes in the end is kept, but for that one.
        let before = stats(&world, 0).ahead_files;
        let told = told(&mut world, 0, &out);
        world.clients[0].machine.ahead_done(&out, Some(told), now);
        world.check(0);
        assert_eq!(stats(&world, 0).ahead_files - before, out.files.len() as u64 - 1);
        let asks = world.clients[0].asks;
        assert_eq!(cat(&mut world, 0, &name_of(n)), contents(n));
        assert_eq!(world.clients[0].asks, asks, "it is kept as it was asked for");
    }
}

#[test]
fn a_file_that_is_refused_does_not_keep_those_behind_it() {
    let mut world = fresh(1, FILES);
    let (order, out) = under_way(&mut world);
    let mut all = told(&mut world, 0, &out);
    all[1] = None;
    let now = world.now();
    world.clients[0].machine.ahead_done(&out, Some(all), now);
    assert_eq!(stats(&world, 0).ahead_files, out.files.len() as u64 - 1);
    let asks = world.clients[0].asks;
    for n in &order[2..2 + out.files.len()] {
        assert_eq!(cat(&mut world, 0, &name_of(*n)), contents(*n));
    }
    assert_eq!(world.clients[0].asks, asks + 1, "the one that was refused is asked for");
}

#[test]
fn what_was_written_here_is_read_though_the_file_is_on_its_way() {
    let mut world = fresh(1, FILES);
    let (order, out) = under_way(&mut world);
    let now = world.now();
    let id = node(&mut world, 0, &name_of(order[2]));
    let flags = OpenFlags { access: Access { read: true, write: true }, truncate: true, ..READS };
    let fh = world.run(0, |m, t, now| m.open(t, id, flags, now)).unwrap().fh;
    world.run(0, |m, t, now| m.write(t, fh, 0, &bytes::Bytes::from_static(b"new"), now)).unwrap();
    let mut turn = Turn::new(Caller::new(7, 0));
    let read = world.clients[0].machine.read(&mut turn, fh, 0, 4096, now);
    let Step::Done(parts) = read else { panic!("{read:?}") };
    assert_eq!(parts.concat(), b"new");
    let old = told(&mut world, 0, &out);
    world.clients[0].machine.ahead_done(&out, Some(old), now);
    world.check(0);
    let parts = world.run(0, |m, t, now| m.read(t, fh, 0, 4096, now)).unwrap();
    assert_eq!(parts.concat(), b"new", "and stays");
}

#[test]
fn files_that_are_large_or_open_or_known_are_not_read_ahead_nor_is_there_ever_too_much() {
    let mut world = fresh(1, 200);
    for n in 0..200 {
        let ino = world.server.fs.look(ROOT, &name_of(n)).unwrap().unwrap();
        // Every third is too large.
        let size = if n % 3 == 0 { 65 << 10 } else { 64 << 10 };
        world.server.fs.write(ino, 0, &vec![n; size]).unwrap();
    }
    let order = list(&mut world, 0);
    for n in order.iter().filter(|n| **n % 3 != 0).take(100) {
        let id = node(&mut world, 0, &name_of(*n));
        let fh = world.run(0, |m, t, now| m.open(t, id, READS, now)).unwrap().fh;
        world.run(0, |m, t, now| m.read(t, fh, 0, 4096, now)).unwrap();
        let now = world.now();
        while let Some(out) = world.clients[0].machine.take_ahead(now) {
            assert!(out.files.iter().all(|(_, length)| *length <= 64 << 10));
            assert!(!out.files.contains(&(world.clients[0].machine.handle_of(id).unwrap(), 64 << 10)));
            let told = told(&mut world, 0, &out);
            world.clients[0].machine.ahead_done(&out, Some(told), now);
        }
        let stats = stats(&world, 0);
        let unused = (stats.ahead_files - stats.ahead_used) * (64 << 10);
        assert!(unused <= AHEAD_BYTES_MAX as u64, "{stats:?}");
    }
    assert!(stats(&world, 0).ahead_used > 50);
}
