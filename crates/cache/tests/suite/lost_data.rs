//! Data that went with batches, of a server that has lost them: it is read here until they were executed again, but for what was
//! written over since, or cut off.

use crate::both_sides::knowing;
use crate::trouble::{power_cut, resume, settled};
use crate::world::World;
use crate::world::fs::ROOT;
use bytes::Bytes;
use holdfast_cache::*;

/// What is done to a file of eight bytes that went with the batch that makes it.
enum Change {
    Write(u64, &'static [u8]),
    Cut(u64),
}

const CUTS: [Change; 4] = [Change::Cut(3), Change::Write(5, b"E"), Change::Cut(1), Change::Write(6, b"F")];
/// What the first so many of these leave.
const LEFT_OF_CUTS: [(usize, &[u8]); 4] = [(1, b"old"), (2, b"old\0\0E"), (3, b"o"), (4, b"o\0\0\0\0\0F")];

/// The server loses its power when it has executed the first so many of these changes: what is read then, and what it has in the
/// end.
fn read_after(changes: &[Change], sent: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut world, dir) = settled();
    world.drain();
    world.disk = Some(world.server.clone());
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    let (file, fh) = (made.0.node, made.1.fh);
    let (before, after) = changes.split_at(sent);
    change(&mut world, (file, fh), &Change::Write(0, b"oldolded"));
    send(&mut world, file);
    for one in before {
        change(&mut world, (file, fh), one);
        send(&mut world, file);
    }
    after.iter().for_each(|one| change(&mut world, (file, fh), one));
    power_cut(&mut world);
    resume(&mut world);
    let read = |world: &mut World| world.run(0, |m, t, now| m.read(t, fh, 0, 64, now)).unwrap().concat();
    let shown = read(&mut world);
    world.disk = None;
    world.drain();
    assert_eq!(read(&mut world), shown);
    let dir = world.server.fs.look(1, b"d").unwrap().unwrap();
    let there = world.server.fs.look(dir, b"f").unwrap().expect("it is there");
    (shown, world.server.fs.inodes[&there].data.clone())
}

fn change(world: &mut World, (file, fh): (NodeId, Fh), change: &Change) {
    match *change {
        Change::Write(at, data) => {
            let data = Bytes::from_static(data);
            world.run(0, |m, t, now| m.write(t, fh, at, &data, now)).unwrap();
        }
        Change::Cut(size) => {
            let changes = Changes { size: Some(size), ..Changes::default() };
            world.run(0, |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
        }
    }
}

/// Batches that are executed and heard of, and on no disk.
fn send(world: &mut World, file: NodeId) {
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    assert!(matches!(machine.fsync(&mut Turn::new(Caller::new(7, 0)), file, None, now), Step::Wait(_)));
    while let Some(batch) = world.clients[0].machine.take_batch(now) {
        let results = world.server.batch(0, &batch);
        world.clients[0].machine.batch_done(batch.txn, results, 0, now);
        world.check(0);
    }
}

#[test]
fn what_was_written_over_is_not_seen_again() {
    let changes = [Change::Write(2, b"NEW"), Change::Write(4, b"er")];
    for sent in 0..=2 {
        let expected = b"olNEered".as_slice();
        let (shown, there) = read_after(&changes, sent);
        assert_eq!((&shown[..], &there[..]), (expected, expected), "{sent} of them were sent");
    }
}

#[test]
fn what_was_cut_off_is_not_seen_again() {
    for (count, expected) in LEFT_OF_CUTS {
        for sent in 0..=count {
            let (shown, there) = read_after(&CUTS[..count], sent);
            assert_eq!((&shown[..], &there[..]), (expected, expected), "{sent} of {count} were sent");
        }
    }
}

/// The same of a server that does not know what it has executed: what can be told by names is, the rest is done again. Of the
/// file itself everything is lost, or what was done to it last.
#[test]
fn what_was_cut_off_is_not_there_again_where_the_server_has_forgotten_what_it_did() {
    for (count, expected) in LEFT_OF_CUTS {
        for (sent, is_made_again) in (0..=count).flat_map(|sent| [(sent, true), (sent, false)]) {
            let mut world = knowing(1);
            (world.alone, world.server.unwatched) = (true, true);
            let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
            let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"n", 0o644, flags, now)).unwrap();
            let (file, fh) = (made.0.node, made.1.fh);
            world.disk = is_made_again.then(|| world.server.clone());
            change(&mut world, (file, fh), &Change::Write(0, b"oldolded"));
            send(&mut world, file);
            world.disk = world.disk.take().or_else(|| Some(world.server.clone()));
            for one in &CUTS[..sent] {
                change(&mut world, (file, fh), one);
                send(&mut world, file);
            }
            power_cut(&mut world);
            let machine = &mut world.clients[0].machine;
            machine.hold(true);
            machine.assume();
            CUTS[sent..count].iter().for_each(|one| change(&mut world, (file, fh), one));
            world.disk = None;
            world.come_back(false, true);
            let shown = world.run(0, |m, t, now| m.read(t, fh, 0, 64, now)).unwrap().concat();
            let there = world.server.fs.look(ROOT, b"n").unwrap().expect("it is there");
            let there = &world.server.fs.inodes[&there].data;
            let of = format!("{sent} of {count} were sent; it is made again: {is_made_again}");
            assert_eq!((&shown[..], &there[..]), (expected, expected), "{of}");
        }
    }
}

/// The server does these by itself: what they leave is durable once it is answered, and kept nowhere here.
#[test]
fn what_may_come_again_is_put_on_disk_before_the_server_changes_the_file_by_itself() {
    type Asked = fn(&mut Machine, &mut Turn, (NodeId, Fh), (Fh, Now)) -> String;
    let asked: [Asked; 4] = [
        |m, t, (_, fh), (_, now)| told(m.allocate(t, fh, AllocateMode::PunchHole, (0, 2), now)),
        |m, t, (_, fh), (_, now)| told(m.allocate(t, fh, AllocateMode::Extend, (0, 9), now)),
        |m, t, (_, fh), (from, now)| told(m.copy(t, (from, 0), (fh, 0), 3, now)),
        |m, t, (file, _), (_, now)| {
            let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
            told(m.open(t, file, OpenFlags { truncate: true, ..flags }, now))
        },
    ];
    for (which, ask) in asked.into_iter().enumerate() {
        let (mut world, dir) = settled();
        let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
        let [from, to] = [b"a", b"b"].map(|name| {
            let made = world.run(0, |m, t, now| m.create(t, dir, name, 0o644, flags, now)).unwrap();
            (made.0.node, made.1.fh)
        });
        world.drain();
        change(&mut world, to, &Change::Write(0, b"old"));
        send(&mut world, to.0);
        // Put off it would be behind what may come again.
        world.clients[0].machine.settings_mut().batches = false;
        world.clients[0].machine.settings_mut().write_back = false;
        let (now, mut turn) = (world.now(), Turn::new(Caller::new(7, 0)));
        let machine = &mut world.clients[0].machine;
        assert_eq!(ask(machine, &mut turn, to, (from.1, now)), "waits", "{which}");
        let through = machine.take_stable(now).expect("it is put on disk");
        machine.stable_done(through, &[], now);
        assert_eq!(ask(machine, &mut turn, to, (from.1, now)), "asks", "{which}");
    }
}

fn told<T: std::fmt::Debug>(step: Step<T>) -> String {
    match step {
        Step::Wait(_) => "waits".into(),
        Step::Ask(_) => "asks".into(),
        other => format!("{other:?}"),
    }
}

/// It may be on the server's disk as COMMIT left it without the record of the batch, which would come again over it.
#[test]
fn what_may_come_again_is_put_on_disk_before_what_was_written_over_it_is_committed() {
    let (mut world, dir) = settled();
    world.drain();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    let (file, fh) = (made.0.node, made.1.fh);
    change(&mut world, (file, fh), &Change::Write(0, b"old"));
    send(&mut world, file);
    let large = Bytes::from(vec![1; 200 << 10]);
    world.run(0, |m, t, now| m.write(t, fh, 0, &large, now)).unwrap();
    send(&mut world, file);
    let now = world.now();
    while let Some(out) = world.clients[0].machine.take_write(now) {
        let said = world.server.write(0, &out).expect("nobody is in its way");
        world.clients[0].machine.write_done(out.id, said, now);
    }
    let machine = &mut world.clients[0].machine;
    assert!(matches!(machine.fsync(&mut Turn::new(Caller::new(7, 0)), file, None, now), Step::Wait(_)));
    assert!(machine.take_commit(now).is_none(), "the batch is on no disk");
    let through = machine.take_stable(now).expect("that is asked for first");
    machine.stable_done(through, &[], now);
    assert!(machine.take_commit(now).is_some());
}

/// A file that is found where one is to be made is known by another name here: what its batch brought is on no disk, and would come
/// again over the emptying.
#[test]
fn what_may_come_again_is_put_on_disk_before_what_was_found_is_emptied() {
    let (mut world, dir) = settled();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    change(&mut world, (made.0.node, made.1.fh), &Change::Write(0, b"old"));
    send(&mut world, made.0.node);
    // Nobody knows here what somebody else has called it.
    let now = world.now();
    world.clients[0].machine.caps_lost(now);
    world.server.restart();
    let there = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    world.server.fs.rename((there, b"f"), (there, b"n"), RenameMode::Replace).unwrap();
    world.clients[0].machine.settings_mut().caps = false;
    world.clients[0].machine.settings_mut().batches = false;
    let flags = OpenFlags { truncate: true, ..flags };
    let (mut turn, mut is_stable, mut asked) = (Turn::new(Caller::new(7, 0)), false, Vec::new());
    let opened = loop {
        let now = world.now();
        match world.clients[0].machine.create(&mut turn, dir, b"n", 0o644, flags, now) {
            Step::Done(done) => break done,
            Step::Failed(errno) => panic!("{errno:?}"),
            Step::Wait(_) => {
                let machine = &mut world.clients[0].machine;
                if let Some(through) = machine.take_stable(now) {
                    machine.stable_done(through, &[], now);
                    is_stable = true;
                }
            }
            Step::Ask(ask) => {
                let sets = |changes: &Changes| (changes.size == Some(0)).then_some(changes.mtime);
                let empties = match &ask.question {
                    Question::SetAttr { changes, open, .. } => {
                        assert!(open.is_some(), "by its own open");
                        sets(changes)
                    }
                    _ => None,
                };
                asked.extend(empties);
                assert!(empties.is_none() || is_stable, "{ask:?}");
                let answer = world.perform(0, &ask);
                world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
            }
        }
        world.check(0);
    };
    assert_eq!((opened.0.node, opened.0.attrs.size), (made.0.node, 0));
    assert_eq!(asked, [None], "emptied once, and the time moves by that");
    assert!(world.server.fs.inodes[&world.server.fs.look(there, b"n").unwrap().unwrap()].data.is_empty());
}

/// Of what was empty already the size says nothing; and who gives up leaves nothing open.
#[test]
fn what_was_found_empty_has_its_time_set_and_is_closed_by_who_gives_up() {
    let (mut world, dir) = settled();
    world.drain();
    let there = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    let now = world.now();
    world.clients[0].machine.caps_lost(now);
    world.server.restart();
    world.server.fs.make(there, b"n", Kind::File, 0o644, 7).unwrap();
    world.clients[0].machine.settings_mut().caps = false;
    world.clients[0].machine.settings_mut().batches = false;
    let access = Access { read: true, write: true };
    let flags = OpenFlags { access, truncate: true, ..OpenFlags::default() };
    let refused = |world: &mut World, is_given_up: bool| {
        let mut turn = Turn::new(Caller::new(7, 0));
        loop {
            let now = world.now();
            let step = world.clients[0].machine.create(&mut turn, dir, b"n", 0o644, flags, now);
            let Step::Ask(ask) = step else { panic!("{step:?}") };
            if let Question::SetAttr { changes, .. } = &ask.question {
                assert_eq!((changes.size, changes.mtime), (Some(0), Some(SetTime::Now)));
                assert!(turn.has_opened());
                if is_given_up {
                    let mut nobodys = Turn::new(Caller::new(7, 0));
                    let machine = &mut world.clients[0].machine;
                    machine.given_up(&ask);
                    machine.absorb(&mut nobodys, *ask, Err(Errno::EIO), now);
                    machine.abandoned(&mut turn, now);
                } else {
                    world.clients[0].machine.absorb(&mut turn, *ask, Err(Errno::EACCES), now);
                    let step = world.clients[0].machine.create(&mut turn, dir, b"n", 0o644, flags, now);
                    assert!(matches!(step, Step::Failed(Errno::EACCES)), "{step:?}");
                }
                assert!(!turn.has_opened());
                break;
            }
            let answer = world.perform(0, &ask);
            world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
        }
        world.drain();
        assert!(world.server.opens.is_empty(), "given up: {is_given_up}");
    };
    refused(&mut world, true);
    refused(&mut world, false);
}
