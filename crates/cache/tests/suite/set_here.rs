//! Attributes of what others may know as well: it is asked for, and changed here; unless others want it at the same time.

use holdfast_base::Timestamp;
use holdfast_cache::*;

use crate::world::World;
use crate::world::fs::ROOT;

/// A file that one mount has made, and another has found.
fn found() -> (World, NodeId) {
    let mut world = World::new(2, true, 1);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(1, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o666, flags, now)).unwrap();
    let now = world.now();
    world.clients[1].machine.release(made.1.fh, now);
    world.drain();
    let node = look_up(&mut world, 0);
    (world, node)
}

fn look_up(world: &mut World, c: usize) -> NodeId {
    let found = world.run(c, |m, t, now| m.lookup(t, NodeId::ROOT, b"f", now)).unwrap();
    let Lookup::Found(entry) = found else { panic!("it is there") };
    entry.node
}

fn chmod(world: &mut World, file: NodeId, mode: u32) {
    let changes = Changes { mode: Some(mode), ..Changes::default() };
    let set = world.run(0, |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
    assert_eq!(set.attrs.mode, mode);
}

/// What the server was asked while this was done.
fn asked(world: &mut World, done: impl FnOnce(&mut World)) -> Vec<Question> {
    world.server.asked = Some(Vec::new());
    done(world);
    world.server.asked.take().unwrap()
}

#[test]
fn what_is_changed_again_and_again_is_asked_for_once() {
    let (mut world, file) = found();
    let first = asked(&mut world, |world| chmod(world, file, 0o600));
    let is_for_it = |asked: &Question| matches!(asked, Question::Acquire { .. } | Question::WhoAmI);
    assert!(first.iter().all(is_for_it), "{first:?}");
    let later = asked(&mut world, |world| (0..8).for_each(|mode| chmod(world, file, mode)));
    assert!(later.is_empty(), "{later:?}");
    world.drain();
    let seen = look_up(&mut world, 1);
    let attrs = world.run(1, |m, t, now| m.getattr(t, seen, now)).unwrap();
    assert_eq!(attrs.attrs.mode, 7);
}

fn touch(world: &mut World, file: NodeId, seconds: i64) {
    let mtime = Timestamp { seconds, nanos: 0 };
    let changes = Changes { mtime: Some(SetTime::At(mtime)), ..Changes::default() };
    let set = world.run(0, |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
    assert_eq!(set.attrs.mtime, mtime);
}

#[test]
fn a_file_whose_time_is_set_is_asked_for_with_its_data() {
    let (mut world, file) = found();
    let first = asked(&mut world, |world| touch(world, file, 1));
    let is_for_it = |asked: &Question| matches!(asked, Question::Acquire { .. } | Question::WhoAmI);
    assert!(!first.is_empty() && first.iter().all(is_for_it), "{first:?}");
    let later = asked(&mut world, |world| (2..8).for_each(|seconds| touch(world, file, seconds)));
    assert!(later.is_empty(), "{later:?}");
    world.drain();
    let seen = look_up(&mut world, 1);
    let attrs = world.run(1, |m, t, now| m.getattr(t, seen, now)).unwrap();
    assert_eq!(attrs.attrs.mtime.seconds, 7);
}

#[test]
fn what_others_want_as_well_the_server_changes() {
    let (mut world, file) = found();
    chmod(&mut world, file, 0o600);
    let seen = look_up(&mut world, 1);
    world.run(1, |m, t, now| m.getattr(t, seen, now)).unwrap();
    let again = asked(&mut world, |world| chmod(world, file, 0o644));
    assert!(matches!(again.last(), Some(Question::SetAttr { .. })), "{again:?}");
    assert!(!again.iter().any(|asked| matches!(asked, Question::Acquire { .. })), "{again:?}");
}

#[test]
fn of_what_others_write_the_server_sets_the_time_and_it_is_asked_for_once() {
    let mut world = World::new(2, true, 1);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(1, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o666, flags, now)).unwrap();
    world.drain();
    let file = look_up(&mut world, 0);
    // The server has it open for that one as well, so it cannot be had alone.
    world.run(1, |m, t, now| m.fsync(t, made.0.node, Some(made.1.fh), now)).unwrap();
    let acquired =
        |asked: &[Question]| asked.iter().filter(|asked| matches!(asked, Question::Acquire { .. })).count();
    let first = asked(&mut world, |world| touch(world, file, 1));
    assert!(matches!(first.last(), Some(Question::SetAttr { .. })), "{first:?}");
    let later = asked(&mut world, |world| (2..8).for_each(|seconds| touch(world, file, seconds)));
    assert_eq!(acquired(&later), 0, "{later:?}");
}

#[test]
fn who_links_what_others_write_is_told_what_they_have_written() {
    let mut world = World::new(1, true, 1);
    world.have_root_alone();
    let (node, fh) = world.made_and_open(b"f");
    let now = world.now();
    world.clients[0].machine.release(fh, now);
    world.drain();
    let handle = world.clients[0].machine.handle_of(node).unwrap();
    let ino = world.server.fs.look(ROOT, b"f").unwrap().unwrap();
    let rest = CapSet::ALL_X.without(CapSet::FILE_S | CapSet::FILE_X);
    world.clients[0].machine.recalled(&handle, rest, 1 << 40, now);
    world.drain();
    world.server.fs.write(ino, 0, b"theirs").unwrap();
    let link = |m: &mut Machine, t: &mut Turn, now| m.link(t, node, NodeId::ROOT, b"x", now);
    let mut linked = None;
    let questions = asked(&mut world, |world| linked = Some(world.run(0, link).unwrap().attrs));
    assert!(!questions.iter().any(|asked| matches!(asked, Question::Link { .. })), "it is named here");
    let linked = linked.unwrap();
    assert_eq!((linked.size, linked.nlink), (6, 2));
}

#[test]
fn what_was_set_here_is_on_the_disk_before_the_server_sets_it() {
    let (mut world, file) = found();
    chmod(&mut world, file, 0o600);
    let batch = world.one_batch();
    let results = world.server.batch(0, &batch);
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.batch_done(batch.txn, results, 0, now);
    // Others look, which waits for no disk.
    let handle = machine.handle_of(file).unwrap();
    machine.recalled(&handle, CapSet::ALL_S, 1 << 40, now);
    let both = Changes { mode: Some(0o644), size: Some(0), ..Changes::default() };
    let mut turn = Turn::new(Caller::new(7, 0));
    let step = machine.setattr(&mut turn, file, &both, now);
    assert!(matches!(step, Step::Wait(Wait::Stable)), "{step:?}");
    machine.stable_done(batch.txn, &[], now);
    let step = machine.setattr(&mut turn, file, &both, now);
    assert!(matches!(&step, Step::Ask(ask) if matches!(ask.question, Question::SetAttr { .. })), "{step:?}");
}
