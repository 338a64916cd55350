//! Data of files that are removed while it is on its way: nobody misses it, and nothing fails.

use crate::world::World;
use crate::world::fs;
use bytes::Bytes;
use holdfast_base::CapSet;
use holdfast_cache::*;

/// More than goes with the stream.
const LARGE: usize = 100_000;

fn caller() -> Turn {
    Turn::new(Caller::new(7, 0))
}

/// A file that the server has made, closed, with the first WRITE of its data on its way.
fn being_written(world: &mut World, dir: NodeId) -> WriteOut {
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    world.run(0, |m, t, now| m.fsync(t, dir, None, now)).unwrap();
    let data = Bytes::from(vec![7; LARGE]);
    // With a server that promises nothing each write is asked for, and none is under way.
    world.run(0, |m, t, now| m.write(t, made.1.fh, 0, &data, now)).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let flushed = machine.flush(&mut caller(), made.1.fh, now);
    assert!(matches!(flushed, Step::Done(())), "{flushed:?}");
    machine.release(made.1.fh, now);
    machine.take_write(now).expect("a WRITE")
}

/// A mount that may do everything in this directory without asking.
fn settled() -> (World, NodeId) {
    let mut world = World::new(1, true, 1);
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    world.drain();
    (world, dir)
}

fn nothing_failed(world: &mut World) {
    let now = world.now();
    assert!(world.clients[0].machine.take_write(now).is_none(), "it comes out again");
    world.drain();
    assert_eq!(world.clients[0].machine.take_reports(), []);
    world.check(0);
}

#[test]
fn a_write_that_was_lost_does_not_come_out_again_after_its_file_has_gone() {
    let (mut world, dir) = settled();
    let write = being_written(&mut world, dir);
    world.run(0, |m, t, now| m.unlink(t, dir, b"f", now)).unwrap();
    let now = world.now();
    world.clients[0].machine.write_lost(write.id, now);
    nothing_failed(&mut world);
}

#[test]
fn a_write_that_is_overtaken_by_its_files_removal_is_no_failure() {
    let (mut world, dir) = settled();
    let write = being_written(&mut world, dir);
    world.run(0, |m, t, now| m.unlink(t, dir, b"f", now)).unwrap();
    let now = world.now();
    world.clients[0].machine.write_done(write.id, Err(Errno::ESTALE), now);
    nothing_failed(&mut world);
}

#[test]
fn nor_is_one_that_is_overtaken_by_a_removal_that_was_asked_for() {
    let (mut world, dir) = settled();
    let write = being_written(&mut world, dir);
    // From now on names are removed by asking.
    world.clients[0].machine.settings_mut().batches = false;
    let (mut turn, now) = (caller(), world.now());
    let machine = &mut world.clients[0].machine;
    let step = machine.unlink(&mut turn, dir, b"f", now);
    let Step::Ask(ask) = step else { panic!("{step:?}") };
    assert!(matches!(ask.question, Question::Remove { .. }), "{ask:?}");
    let answer = world.perform(0, &ask);
    let machine = &mut world.clients[0].machine;
    machine.write_done(write.id, Err(Errno::ESTALE), now);
    machine.absorb(&mut turn, *ask, answer, now);
    let step = machine.unlink(&mut turn, dir, b"f", now);
    assert!(matches!(step, Step::Done(())), "{step:?}");
    nothing_failed(&mut world);
}

#[test]
fn of_a_file_that_is_there_it_is_one() {
    let (mut world, dir) = settled();
    let write = being_written(&mut world, dir);
    let now = world.now();
    world.clients[0].machine.write_done(write.id, Err(Errno::ESTALE), now);
    assert_eq!(world.run(0, |m, t, now| m.sync(t, now)), Err(Errno::ESTALE));
    assert_eq!(world.clients[0].machine.take_reports().len(), 1);
}

/// What a server had not put on its disk when it died goes again, when whoever wrote it has long gone on.
#[test]
fn data_that_a_server_has_lost_is_not_missed_of_a_file_whose_name_was_given_to_another() {
    let (mut world, dir) = settled();
    // Each change is asked for, and data is written at once.
    let settings = world.clients[0].machine.settings_mut();
    (settings.batches, settings.write_back) = (false, false);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    for name in [b"old", b"new"] {
        let made = world.run(0, |m, t, now| m.create(t, dir, name, 0o644, flags, now)).unwrap();
        let data = Bytes::from_static(b"text");
        world.run(0, |m, t, now| m.write(t, made.1.fh, 0, &data, now)).unwrap();
        world.run(0, |m, t, now| m.flush(t, made.1.fh, now)).unwrap();
        let now = world.now();
        world.clients[0].machine.release(made.1.fh, now);
    }
    let (from, to) = ((dir, b"new".as_slice()), (dir, b"old".as_slice()));
    world.run(0, |m, t, now| m.rename(t, from, to, RenameMode::Replace, now)).unwrap();
    world.ms += 10_000;
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let commits: Vec<_> = std::iter::from_fn(|| machine.take_commit(now)).collect();
    assert!(!commits.is_empty(), "nothing was to be put on disk");
    commits.iter().for_each(|commit| machine.commit_done(commit.id, Ok(8), now));
    let kept = world.server.fs.inodes.len();
    while let Some(write) = world.clients[0].machine.take_write(now) {
        let done = match world.server.write(0, &write) {
            Ok(done) => done,
            Err(_) => panic!("nobody is in the way"),
        };
        world.clients[0].machine.write_done(write.id, done.map(|w| Written { verifier: 8, ..w }), now);
    }
    assert_eq!(world.server.fs.inodes.len(), kept);
    assert_eq!(world.clients[0].machine.take_reports(), []);
}

/// A small file that the server has, closed, and written to since. The server asks these back; then it is removed, and this goes out.
fn sent_when_removed(asked_back: CapSet) -> Vec<Mutation> {
    let mut world = World::new(1, true, 1);
    world.have_root_alone();
    let dir = NodeId::ROOT;
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    world.drain();
    let data = Bytes::from_static(b"data");
    world.run(0, |m, t, now| m.write(t, made.1.fh, 0, &data, now)).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    assert!(matches!(machine.flush(&mut caller(), made.1.fh, now), Step::Done(())));
    machine.release(made.1.fh, now);
    if !asked_back.is_empty() {
        let handle = machine.handle_of(made.0.node).unwrap();
        machine.recalled(&handle, CapSet::ALL_X.without(asked_back), world.server.last_seq + 1, now);
    }
    world.server.asked = Some(Vec::new());
    world.run(0, |m, t, now| m.unlink(t, dir, b"f", now)).unwrap();
    let asked = world.server.asked.take().unwrap();
    assert!(!asked.iter().any(Question::is_mutation), "it was to be put off: {asked:?}");
    world.one_batch().ops
}

fn has_data(sent: &[Mutation]) -> bool {
    sent.iter().any(|op| matches!(op, Mutation::Write { data, .. } if !data.is_empty()))
}

/// Who is about to open it has asked for it when its name goes, and waits for what was written.
#[test]
fn what_was_written_before_somebody_opens_it_is_sent_though_its_name_goes() {
    let sent = sent_when_removed(CapSet::FILE_X_ALONE);
    assert!(has_data(&sent) && matches!(sent.last(), Some(Mutation::Unlink { .. })), "{sent:?}");
}

#[test]
fn what_nobody_will_see_is_not_sent() {
    let sent = sent_when_removed(CapSet::NONE);
    assert!(!has_data(&sent) && matches!(sent.last(), Some(Mutation::Unlink { .. })), "{sent:?}");
}

const BOTH: OpenFlags = OpenFlags {
    access: Access { read: true, write: true },
    append: false,
    truncate: false,
    exclusive: false,
    execute: false,
};

fn write(world: &mut World, fh: Fh, at: u64, data: &'static [u8]) {
    let data = Bytes::from_static(data);
    world.run(0, |m, t, now| m.write(t, fh, at, &data, now)).unwrap();
}

/// What the server has under this name of the directory that was made.
fn there(world: &World, name: &[u8]) -> Option<Vec<u8>> {
    let fs = &world.server.fs;
    let dir = fs.look(fs::ROOT, b"d").unwrap().unwrap();
    fs.look(dir, name).unwrap().map(|file| fs.inodes[&file].data.clone())
}

/// That it has one more name the server has said while data of it was waiting, and nothing of the answer was kept.
#[test]
fn what_may_have_another_name_is_sent_when_its_last_known_one_goes() {
    for is_replaced in [false, true] {
        let (mut world, dir) = settled();
        let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, BOTH, now)).unwrap();
        let (file, fh) = (made.0.node, made.1.fh);
        let new = world.run(0, |m, t, now| m.create(t, dir, b"new", 0o644, BOTH, now)).unwrap();
        world.drain();
        write(&mut world, fh, 0, b"x");
        // The directory is not held alone any more.
        world.clients[0].machine.settings_mut().batches = false;
        world.run(0, |m, t, now| m.link(t, file, dir, b"g", now)).unwrap();
        if is_replaced {
            let (from, to) = ((dir, b"new".as_slice()), (dir, b"f".as_slice()));
            world.run(0, |m, t, now| m.rename(t, from, to, RenameMode::Replace, now)).unwrap();
        } else {
            world.run(0, |m, t, now| m.unlink(t, dir, b"f", now)).unwrap();
        }
        write(&mut world, fh, 1, b"y");
        world.run(0, |m, t, now| m.flush(t, fh, now)).unwrap();
        let now = world.now();
        world.clients[0].machine.release(fh, now);
        world.clients[0].machine.release(new.1.fh, now);
        world.drain();
        assert_eq!(there(&world, b"g").as_deref(), Some(b"xy".as_slice()), "replaced: {is_replaced}");
        nothing_failed(&mut world);
    }
}

/// A name that is asked for while the only other one is being removed: both answers are about the same moment.
#[test]
fn what_got_a_name_while_another_was_removed_keeps_its_data() {
    let (mut world, dir) = settled();
    let made = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, BOTH, now)).unwrap();
    let (file, fh) = (made.0.node, made.1.fh);
    world.drain();
    write(&mut world, fh, 0, b"x");
    world.clients[0].machine.settings_mut().batches = false;
    let now = world.now();
    world.clients[0].machine.release(fh, now);
    let (mut removing, mut linking) = (caller(), caller());
    let machine = &mut world.clients[0].machine;
    let Step::Ask(remove) = machine.unlink(&mut removing, dir, b"f", now) else { panic!("it is asked for") };
    let Step::Ask(link) = machine.link(&mut linking, file, dir, b"g", now) else { panic!("it is asked for") };
    let linked = world.perform(0, &link);
    let removed = world.perform(0, &remove);
    let machine = &mut world.clients[0].machine;
    machine.absorb(&mut linking, *link, linked, now);
    assert!(matches!(machine.link(&mut linking, file, dir, b"g", now), Step::Done(_)));
    machine.absorb(&mut removing, *remove, removed, now);
    assert!(matches!(machine.unlink(&mut removing, dir, b"f", now), Step::Done(())));
    world.drain();
    assert_eq!(there(&world, b"g").as_deref(), Some(b"x".as_slice()));
    nothing_failed(&mut world);
}

/// NFS has one word for the removal of files and of directories: what it finds under the name it removes, or says why it cannot.
#[test]
fn a_directory_with_something_in_it_that_has_taken_a_files_name_is_a_directory() {
    let (mut world, dir) = settled();
    being_written(&mut world, dir);
    world.clients[0].machine.settings_mut().batches = false;
    let (mut turn, now) = (caller(), world.now());
    let machine = &mut world.clients[0].machine;
    let step = machine.unlink(&mut turn, dir, b"f", now);
    let Step::Ask(ask) = step else { panic!("{step:?}") };
    assert!(matches!(ask.question, Question::Remove { .. }), "{ask:?}");
    machine.absorb(&mut turn, *ask, Err(Errno::ENOTEMPTY), now);
    let step = machine.unlink(&mut turn, dir, b"f", now);
    assert!(matches!(step, Step::Failed(Errno::EISDIR)), "{step:?}");
}

/// What has the name by then goes: the server does not ask back from us what was promised to us of it.
#[test]
fn what_has_taken_a_name_that_is_being_removed_is_not_known_by_what_was_seen_before() {
    for replaces in [false, true] {
        let mut world = World::new(2, true, 1);
        for c in 0..2 {
            world.clients[c].machine.settings_mut().batches = false;
        }
        for name in [b"a", b"e", b"g"] {
            let made = world.run(1, |m, t, now| m.create(t, NodeId::ROOT, name, 0o644, BOTH, now)).unwrap();
            let now = world.now();
            world.clients[1].machine.release(made.1.fh, now);
        }
        let looked = |world: &mut World, c: usize, name: &[u8]| {
            let found = world.run(c, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
            let Lookup::Found(entry) = found else { panic!("it is there") };
            entry.node
        };
        let file = looked(&mut world, 1, b"a");
        world.run(1, |m, t, now| m.link(t, file, NodeId::ROOT, b"b", now)).unwrap();
        let file = looked(&mut world, 0, b"b");
        let mut turn = caller();
        let remove = |m: &mut Machine, t: &mut Turn, now: Now| match replaces {
            false => m.unlink(t, NodeId::ROOT, b"e", now),
            true => m.rename(t, (NodeId::ROOT, b"g"), (NodeId::ROOT, b"e"), RenameMode::Replace, now),
        };
        let ask = loop {
            let now = world.now();
            let step = remove(&mut world.clients[0].machine, &mut turn, now);
            let Step::Ask(ask) = step else { panic!("{step:?}") };
            if ask.question.is_mutation() {
                break ask;
            }
            let answer = world.perform(0, &ask);
            world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
        };
        let names = ((NodeId::ROOT, &b"a"[..]), (NodeId::ROOT, &b"e"[..]));
        world.run(1, |m, t, now| m.rename(t, names.0, names.1, RenameMode::Replace, now)).unwrap();
        let links =
            |world: &mut World| world.run(0, |m, t, now| m.getattr(t, file, now)).unwrap().attrs.nlink;
        assert_eq!(links(&mut world), 2);
        let answer = world.perform(0, &ask);
        let now = world.now();
        world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
        let step = remove(&mut world.clients[0].machine, &mut turn, now);
        assert!(matches!(step, Step::Done(())), "{step:?}");
        assert_eq!(links(&mut world), 1, "replaces: {replaces}");
        world.check(0);
    }
}

/// Who had found it before may open it after that: he finds out that it has gone, and not an older file.
#[test]
fn a_file_whose_last_data_has_gone_with_its_name_is_not_opened_any_more() {
    let (mut world, dir) = settled();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let (entry, opened) = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    world.run(0, |m, t, now| m.fsync(t, dir, None, now)).unwrap();
    world.run(0, |m, t, now| m.unlink(t, dir, b"f", now)).unwrap();
    world.run(0, |m, t, now| m.write(t, opened.fh, 0, &Bytes::from_static(b"last"), now)).unwrap();
    let mut turn = caller();
    let now = world.now();
    let step = world.clients[0].machine.open(&mut turn, entry.node, flags, now);
    let Step::Ask(ask) = step else { panic!("{step:?}") };
    let answer = world.perform(0, &ask);
    world.clients[0].machine.release(opened.fh, now);
    let again = world.run(0, |m, t, now| m.open(t, entry.node, flags, now)).map(|opened| opened.fh);
    assert_eq!(again, Err(Errno::ESTALE));
    world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
    let begun = world.clients[0].machine.open(&mut turn, entry.node, flags, now);
    assert!(matches!(begun, Step::Failed(Errno::ESTALE)), "{begun:?}");
    nothing_failed(&mut world);
}

/// A file that is open at a server which forgets what has no name: it is hidden, and what was written goes with the last open.
#[test]
fn what_was_dropped_with_a_hidden_name_is_not_opened_as_it_was_before_that_was_written() {
    let (mut world, dir) = settled();
    world.clients[0].machine.settings_mut().preserves_unlinked = false;
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let (entry, opened) = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags, now)).unwrap();
    let write = |world: &mut World, text: &'static [u8]| {
        let data = Bytes::from_static(text);
        world.run(0, |m, t, now| m.write(t, opened.fh, 0, &data, now)).unwrap();
    };
    write(&mut world, b"old");
    world.run(0, |m, t, now| m.fsync(t, entry.node, None, now)).unwrap();
    world.drain();
    write(&mut world, b"new");
    world.run(0, |m, t, now| m.unlink(t, dir, b"f", now)).unwrap();
    let server = |world: &World| world.server.fs.names();
    assert!(server(&world).contains(".holdfast-"), "{}", server(&world));
    let now = world.now();
    world.clients[0].machine.release(opened.fh, now);
    // Who found it by its name before that went opens it only now. The hidden name is there as long as nobody has asked for its removal.
    let mut late = caller();
    let step = world.clients[0].machine.open(&mut late, entry.node, flags, now);
    assert!(matches!(step, Step::Failed(Errno::ESTALE)), "{step:?}");
    world.drain();
    assert!(!server(&world).contains(".holdfast-"), "{}", server(&world));
    world.check(0);
}
