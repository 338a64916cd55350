//! What happens when things break: a client dies, the server loses what it had not on disk, capabilities are lost,
//! mutations fail after they had returned.

use crate::world;
use crate::world::choice::{config, op};
use crate::world::{Model, Op, World};
use holdfast_cache::*;
use proptest::prelude::*;

const AB: Access = Access { read: true, write: true };

fn flags() -> OpenFlags {
    OpenFlags { access: AB, ..OpenFlags::default() }
}

/// A mount that may do everything in `d` without asking.
pub(crate) fn settled() -> (World, NodeId) {
    let mut world = World::new(1, true, 1);
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"warm", 0o755, now)).unwrap();
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    (world, dir)
}

fn create(world: &mut World, dir: NodeId, name: &str, data: &[u8]) -> (NodeId, Fh) {
    let made = world.run(0, |m, t, now| m.create(t, dir, name.as_bytes(), 0o644, flags(), now)).unwrap();
    let bytes = bytes::Bytes::copy_from_slice(data);
    world.run(0, |m, t, now| m.write(t, made.1.fh, 0, &bytes, now)).unwrap();
    (made.0.node, made.1.fh)
}

fn close(world: &mut World, fh: Fh) -> Result<(), Errno> {
    let closed = world.run(0, |m, t, now| m.flush(t, fh, now));
    let now = world.now();
    world.clients[0].machine.release(fh, now);
    closed
}

fn batch(world: &mut World) -> Batch {
    let now = world.now();
    world.clients[0].machine.take_batch(now).expect("a batch")
}

/// Makes everything urgent, without waiting for it.
fn hurry(world: &mut World) {
    let now = world.now();
    let step = world.clients[0].machine.sync(&mut Turn::new(Caller::new(7, 0)), now);
    assert!(matches!(step, Step::Wait(_)));
}

#[test]
fn creating_and_removing_a_file_asks_nothing_and_sends_nothing() {
    let (mut world, dir) = settled();
    world.drain();
    let (asks, rpcs) = (world.clients[0].asks, world.server.rpcs);
    for i in 0..100 {
        let name = format!("temporary-{i}");
        let (_, fh) = create(&mut world, dir, &name, b"data");
        close(&mut world, fh).unwrap();
        world.run(0, |m, t, now| m.unlink(t, dir, name.as_bytes(), now)).unwrap();
    }
    world.drain();
    assert_eq!((world.clients[0].asks, world.server.rpcs), (asks, rpcs));
    assert!(world.clients[0].machine.stats().mutations_elided >= 100);
}

#[test]
fn small_files_travel_whole_in_few_batches() {
    let (mut world, dir) = settled();
    *world.clients[0].machine.settings_mut() = Settings::full();
    world.drain();
    let rpcs = world.server.rpcs;
    for i in 0..200 {
        let (_, fh) = create(&mut world, dir, &format!("f{i}"), b"0123456789");
        close(&mut world, fh).unwrap();
    }
    world.drain();
    assert!(world.server.rpcs - rpcs <= 3, "{} calls", world.server.rpcs - rpcs);
    assert_eq!(world.server.fs.inodes.values().filter(|i| i.data == b"0123456789").count(), 200);
}

#[test]
fn a_create_that_fails_late_takes_its_name_and_what_is_in_it_along() {
    let (mut world, dir) = settled();
    world.drain();
    let sub = world.run(0, |m, t, now| m.mkdir(t, dir, b"sub", 0o755, now)).unwrap().node;
    let (file, fh) = create(&mut world, sub, "f", b"data");
    close(&mut world, fh).unwrap();
    hurry(&mut world);
    let sent = batch(&mut world);
    assert_eq!(sent.ops.len(), 2);
    let results = vec![MutationResult::Failed(Errno::EDQUOT), MutationResult::Depends];
    // The server has not made them, and says so.
    world.server.lanes.entry(0).or_default().executed = sent.txn;
    let now = world.now();
    world.clients[0].machine.batch_done(sent.txn, results, sent.txn, now);
    world.check(0);
    assert_eq!(world.run(0, |m, t, now| m.fsync(t, dir, None, now)), Err(Errno::EDQUOT));
    assert_eq!(world.run(0, |m, t, now| m.fsync(t, dir, None, now)), Ok(()), "told once");
    assert!(world.run(0, |m, t, now| m.fsync(t, file, None, now)).is_err());
    let found = world.run(0, |m, t, now| m.lookup(t, dir, b"sub", now)).unwrap();
    assert!(matches!(found, Lookup::Absent { .. }));
    let told = world.clients[0].machine.take_invalidations();
    assert!(told.iter().any(|i| i.what == Forget::Entry(dir, Name::new(b"sub"))), "{told:?}");
    assert_eq!(world.clients[0].machine.take_reports().len(), 2);
}

#[test]
fn what_was_never_made_is_told_of_once_whatever_was_to_be_done_to_it() {
    let (mut world, dir) = settled();
    world.drain();
    let (file, fh) = create(&mut world, dir, "f", b"data");
    close(&mut world, fh).unwrap();
    hurry(&mut world);
    let making = batch(&mut world);
    world.run(0, |m, t, now| m.link(t, file, dir, b"g", now)).unwrap();
    let names = ((dir, &b"f"[..]), (dir, &b"h"[..]));
    world.run(0, |m, t, now| m.rename(t, names.0, names.1, RenameMode::Replace, now)).unwrap();
    hurry(&mut world);
    let rest = batch(&mut world);
    assert_eq!((making.ops.len(), rest.ops.len()), (1, 2));
    world.server.lanes.entry(0).or_default().executed = rest.txn;
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.batch_done(making.txn, vec![MutationResult::Failed(Errno::EDQUOT)], 0, now);
    machine.batch_done(rest.txn, vec![MutationResult::Depends; 2], rest.txn, now);
    world.check(0);
    let told = world.clients[0].machine.take_reports();
    assert_eq!(told.iter().map(|report| report.errno).collect::<Vec<_>>(), [Errno::EDQUOT], "{told:?}");
    for name in [&b"f"[..], b"g", b"h"] {
        let found = world.run(0, |m, t, now| m.lookup(t, dir, name, now)).unwrap();
        assert!(matches!(found, Lookup::Absent { .. }), "{}", name.escape_ascii());
    }
}

#[test]
fn a_name_that_was_taken_keeps_both() {
    let (mut world, dir) = settled();
    world.drain();
    let (file, fh) = create(&mut world, dir, "f", b"ours");
    close(&mut world, fh).unwrap();
    hurry(&mut world);
    let sent = batch(&mut world);
    let there = world.server.fs.look(1, b"d").unwrap().unwrap();
    world.server.fs.make(there, b"f", Kind::File, 0o600, 0).unwrap();
    let ours = world.server.fs.make(there, b"f-20260102T030405Z", Kind::File, 0o644, 7).unwrap();
    let object = world.server.born(0, ours, CapSet::ALL_X);
    world.server.lanes.entry(0).or_default().executed = sent.txn;
    let result = MutationResult::Done {
        made: Some(object),
        other_name: Some(Name::new(b"f-20260102T030405Z")),
        attrs: None,
    };
    let now = world.now();
    world.clients[0].machine.batch_done(sent.txn, vec![result], sent.txn, now);
    assert_eq!(world.run(0, |m, t, now| m.fsync(t, file, None, now)), Err(Errno::EEXIST));
    let Lookup::Found(theirs) = world.run(0, |m, t, now| m.lookup(t, dir, b"f", now)).unwrap() else {
        panic!()
    };
    assert_ne!(theirs.node, file);
    assert_eq!(theirs.attrs.mode, 0o600);
    let reports = world.clients[0].machine.take_reports();
    assert_eq!(reports[0].kept_as, Some(Name::new(b"f-20260102T030405Z")));
}

/// Else the server hears of one call that it may forget what it is to find out in the next one, or in this very one.
#[test]
fn nothing_is_done_with_that_a_batch_under_way_names() {
    let (mut world, dir) = settled();
    world.drain();
    let sub = world.run(0, |m, t, now| m.mkdir(t, dir, b"sub", 0o755, now)).unwrap().node;
    hurry(&mut world);
    let first = batch(&mut world);
    let results = world.server.batch(0, &first);
    let now = world.now();
    world.clients[0].machine.batch_done(first.txn, results, 0, now);
    let (_, fh) = create(&mut world, sub, "f", b"x");
    close(&mut world, fh).unwrap();
    hurry(&mut world);
    let second = batch(&mut world);
    assert!(second.done_through < first.txn);
    let machine = &mut world.clients[0].machine;
    machine.stable_done(first.txn, &[], now);
    assert!(machine.done_through() < first.txn, "it is on disk, and named");
    machine.batch_lost(second.txn);
    assert_eq!(machine.take_batch(now), Some(second.clone()), "as it was");
    let results = world.server.batch(0, &second);
    let machine = &mut world.clients[0].machine;
    machine.batch_done(second.txn, results, 0, now);
    assert!(machine.done_through() < first.txn, "what names it may be lost with the server, and come again");
    machine.stable_done(second.txn, &[], now);
    assert_eq!(machine.done_through(), second.txn);
    assert_eq!(machine.pending().mutations, 0);
}

/// Else what is under way is refused when the other one is closed.
#[test]
fn what_is_done_through_an_open_names_that_open_and_no_other() {
    let mut world = World::new(1, false, 1);
    let (file, first) = create(&mut world, NodeId::ROOT, "f", b"x");
    let second = world.run(0, |m, t, now| m.open(t, file, flags(), now)).unwrap().fh;
    let mut named = |fh| {
        let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
        let machine = &mut world.clients[0].machine;
        let step = machine.write(&mut turn, fh, 0, &bytes::Bytes::from_static(b"y"), now);
        let Step::Ask(ask) = step else { panic!("{step:?}") };
        let Question::Write { open: Some(open), .. } = ask.question else { panic!("{ask:?}") };
        machine.absorb(&mut turn, *ask, Err(Errno::EIO), now);
        open
    };
    let (one, two) = (named(first), named(second));
    assert_ne!(one, two);
    let now = world.now();
    world.clients[0].machine.release(first, now);
    assert_eq!(world.clients[0].machine.take_closes().into_iter().map(|(t, _)| t).collect::<Vec<_>>(), [one]);
}

/// Who opens a file to empty it has no open of his own yet, and names another's.
#[test]
fn an_open_that_a_change_under_way_names_is_closed_behind_that() {
    let mut world = World::new(1, false, 1);
    let (file, fh) = create(&mut world, NodeId::ROOT, "f", b"x");
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let machine = &mut world.clients[0].machine;
    let changes = Changes { size: Some(0), ..Changes::default() };
    let step = machine.setattr(&mut turn, file, &changes, now);
    let Step::Ask(ask) = step else { panic!("{step:?}") };
    let Question::SetAttr { open: Some(named), .. } = ask.question else { panic!("{ask:?}") };
    machine.release(fh, now);
    assert!(machine.take_closes().is_empty(), "what names it would be refused");
    machine.absorb(&mut turn, *ask, Err(Errno::EIO), now);
    assert_eq!(machine.take_closes().into_iter().map(|(t, _)| t).collect::<Vec<_>>(), [named]);
    world.check(0);
}

#[test]
fn what_was_made_and_not_named_is_found_by_its_name() {
    let (mut world, dir) = settled();
    world.drain();
    let (file, fh) = create(&mut world, dir, "f", b"x");
    close(&mut world, fh).unwrap();
    hurry(&mut world);
    let sent = batch(&mut world);
    world.server.batch(0, &sent);
    let results = vec![MutationResult::Done { made: None, other_name: None, attrs: None }];
    let now = world.now();
    world.clients[0].machine.batch_done(sent.txn, results, sent.txn, now);
    world.check(0);
    assert_eq!(world.run(0, |m, t, now| m.getattr(t, file, now)), Err(Errno::ESTALE), "nobody waits for it");
    let found = world.run(0, |m, t, now| m.lookup(t, dir, b"f", now)).unwrap();
    assert!(matches!(found, Lookup::Found(entry) if entry.node != file && entry.attrs.size == 1));
}

#[test]
fn a_small_file_is_read_without_a_question_until_somebody_else_may_have_changed_it() {
    let (mut world, dir) = settled();
    *world.clients[0].machine.settings_mut() = Settings::full();
    let (file, fh) = create(&mut world, dir, "f", b"0123456789");
    close(&mut world, fh).unwrap();
    world.drain();
    let read = |world: &mut World, expected: &[u8]| {
        let flags = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
        let fh = world.run(0, |m, t, now| m.open(t, file, flags, now)).unwrap().fh;
        let before = world.clients[0].asks;
        let data = world.run(0, |m, t, now| m.read(t, fh, 0, 4096, now)).unwrap().concat();
        assert_eq!(data, expected);
        let asks = world.clients[0].asks - before;
        close(world, fh).unwrap();
        asks
    };
    assert_eq!(read(&mut world, b"0123456789"), 0, "written here");
    let ino = world.server.fs.inodes.iter().find(|(_, i)| i.data == b"0123456789").map(|(i, _)| *i).unwrap();
    let now = world.now();
    world.clients[0].machine.caps_lost(now);
    world.server.restart();
    world.server.fs.write(ino, 0, b"somebody else").unwrap();
    assert!(read(&mut world, b"somebody else") > 0, "nothing covered it");
    read(&mut world, b"somebody else");
    assert_eq!(read(&mut world, b"somebody else"), 0, "read under a promise");
    let changes = Changes { size: Some(4), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
    read(&mut world, b"some");
}

#[test]
fn a_link_that_not_every_file_system_takes_is_made_at_the_server() {
    let (mut world, dir) = settled();
    let mut asks_for = |name: &[u8], len: usize| {
        let (text, before) = (bytes::Bytes::from(vec![b'x'; len]), world.clients[0].asks);
        world.run(0, |m, t, now| m.symlink(t, dir, name, &text, now)).unwrap();
        world.clients[0].asks - before
    };
    assert_eq!(asks_for(b"short", 1023), 0, "it is told later");
    assert!(asks_for(b"long", 1024) > 0, "XFS has no such link");
}

#[test]
fn where_data_is_in_a_file_that_is_known_here_needs_no_question() {
    let (mut world, dir) = settled();
    *world.clients[0].machine.settings_mut() = Settings::full();
    world.drain();
    let (_, fh) = create(&mut world, dir, "f", b"0123456789");
    let more = bytes::Bytes::from_static(b"behind a hole");
    world.run(0, |m, t, now| m.write(t, fh, 10_000, &more, now)).unwrap();
    let seek = |world: &mut World, offset, kind| world.run(0, |m, t, now| m.seek(t, fh, offset, kind, now));
    let asks = world.clients[0].asks;
    assert_eq!(seek(&mut world, 4, SeekKind::Data), Ok(4));
    assert_eq!(seek(&mut world, 4, SeekKind::Hole), Ok(4096), "in whole blocks");
    assert_eq!(seek(&mut world, 50, SeekKind::Data), Ok(50), "the same block");
    assert_eq!(seek(&mut world, 5000, SeekKind::Data), Ok(8192));
    assert_eq!(seek(&mut world, 5000, SeekKind::Hole), Ok(5000));
    assert_eq!(seek(&mut world, 10_000, SeekKind::Hole), Ok(10_013), "the file's end");
    assert_eq!(seek(&mut world, 10_013, SeekKind::Data), Err(Errno::ENXIO));
    world.drain();
    assert_eq!(seek(&mut world, 10_013, SeekKind::Data), Err(Errno::ENXIO));
    let (_, whole) = create(&mut world, dir, "g", b"0123456789");
    world.drain();
    assert_eq!(world.run(0, |m, t, now| m.seek(t, whole, 3, SeekKind::Hole, now)), Ok(10));
    assert_eq!(world.clients[0].asks, asks);
}

#[test]
fn what_is_held_of_what_was_removed_needs_not_be_given_back() {
    let (mut world, dir) = settled();
    *world.clients[0].machine.settings_mut() = Settings::full();
    let mut files = Vec::new();
    for i in 0..50 {
        let (file, fh) = create(&mut world, dir, &format!("f{i}"), b"x");
        close(&mut world, fh).unwrap();
        files.push(file);
    }
    world.drain();
    let before = world.clients[0].machine.stats();
    for i in 0..50 {
        let name = format!("f{i}");
        world.run(0, |m, t, now| m.unlink(t, dir, name.as_bytes(), now)).unwrap();
    }
    world.drain();
    for file in files {
        world.clients[0].machine.forget(file, 1000);
    }
    world.drain();
    let after = world.clients[0].machine.stats();
    assert_eq!(after.releases, before.releases);
    assert!(after.nodes <= before.nodes - 50, "and they are forgotten: {after:?}");
}

#[test]
fn the_number_shown_never_changes() {
    let (mut world, dir) = settled();
    let (file, fh) = create(&mut world, dir, "f", b"x");
    let before = world.run(0, |m, t, now| m.getattr(t, file, now)).unwrap().attrs.fileid;
    close(&mut world, fh).unwrap();
    world.drain();
    let now = world.now();
    world.clients[0].machine.caps_lost(now);
    world.check(0);
    assert_eq!(world.run(0, |m, t, now| m.getattr(t, file, now)).unwrap().attrs.fileid, before);
    let Lookup::Found(entry) = world.run(0, |m, t, now| m.lookup(t, dir, b"f", now)).unwrap() else {
        panic!()
    };
    assert_eq!(entry.attrs.fileid, before);
}

/// Who is to change what was changed here has it from us once that is on disk (`is_to_be_changed`), who only looks at it before.
#[test]
fn a_recall_waits_for_the_kernel_and_for_the_flush() {
    for (keep, is_to_be_changed) in [(CapSet::NONE, true), (CapSet::ALL_S, false)] {
        recalled_while_changed(keep, is_to_be_changed);
    }
}

fn recalled_while_changed(keep: CapSet, is_to_be_changed: bool) {
    let (mut world, dir) = settled();
    world.drain();
    let (_, fh) = create(&mut world, dir, "f", b"x");
    close(&mut world, fh).unwrap();
    world.run(0, |m, t, now| m.lookup(t, dir, b"f", now)).unwrap();
    let handle = world.clients[0].machine.handle_of(dir).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.recalled(&handle, keep, u64::MAX / 2, now);
    assert_eq!(machine.take_releases(now), vec![], "neither executed nor forgotten");
    let told = machine.take_invalidations();
    let is_name_told = told.iter().any(|i| i.what == Forget::Entry(dir, Name::new(b"f")));
    assert_eq!(is_name_told, is_to_be_changed);
    for invalidation in told {
        machine.invalidated(invalidation.number);
    }
    assert_eq!(machine.take_releases(now), vec![], "not executed");
    let sent = machine.take_batch(now).expect("the recall made it urgent");
    let results = world.server.batch(0, &sent);
    let machine = &mut world.clients[0].machine;
    machine.batch_done(sent.txn, results, 0, now);
    if is_to_be_changed {
        assert_eq!(machine.take_releases(now), vec![], "not on disk");
        let through = machine.take_stable(now).expect("the recall wants it");
        machine.stable_done(through, &[], now);
    }
    let released = machine.take_releases(now);
    let (last, before) = released.split_last().expect("released");
    assert_eq!(*last, Release { handle, keep, seq: u64::MAX / 2, life: 0 });
    assert!(
        before.iter().all(|r| r.keep == CapSet::ALL_S),
        "what is in it is given back with it: {before:?}"
    );
}

/// What a server has lost with its power its client writes again: not over what others have written since.
#[test]
fn what_was_written_is_committed_before_others_may_write() {
    for (keep, is_to_be_changed) in [(CapSet::NONE, true), (CapSet::ALL_S, false)] {
        let (mut world, dir) = settled();
        let (file, fh) = create(&mut world, dir, "f", &[1; 100_000]);
        world.drain();
        let data = bytes::Bytes::from(vec![2; 100_000]);
        world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
        assert!(world.clients[0].machine.stats().dirty_bytes > 0);
        let (handle, now) = (world.clients[0].machine.handle_of(file).unwrap(), world.now());
        world.clients[0].machine.recalled(&handle, keep, 1 << 40, now);
        let releases = until_released(&mut world);
        assert_eq!(releases.is_empty(), is_to_be_changed, "{releases:?}");
        if is_to_be_changed {
            let machine = &mut world.clients[0].machine;
            let commit = machine.take_commit(now).expect("the recall wants it");
            let committed = world.server.commit(&commit);
            world.clients[0].machine.commit_done(commit.id, committed, now);
            assert_eq!(until_released(&mut world).len(), 1);
        }
    }
}

/// Does everything but to commit.
fn until_released(world: &mut World) -> Vec<Release> {
    let now = world.now();
    for _ in 0..4 {
        while let Some(out) = world.clients[0].machine.take_write(now) {
            let Ok(written) = world.server.write(0, &out) else { panic!("held up") };
            world.clients[0].machine.write_done(out.id, written, now);
        }
        while let Some(batch) = world.clients[0].machine.take_batch(now) {
            let results = world.server.batch(0, &batch);
            world.clients[0].machine.batch_done(batch.txn, results, 0, now);
        }
        if let Some(through) = world.clients[0].machine.take_stable(now) {
            world.clients[0].machine.stable_done(through, &[], now);
        }
        let machine = &mut world.clients[0].machine;
        machine.take_opens().into_iter().for_each(|(fh, object, ..)| machine.opened(fh, &object, None));
        machine.take_invalidations().iter().for_each(|i| machine.invalidated(i.number));
        let releases = world.clients[0].machine.take_releases(now);
        if !releases.is_empty() {
            return releases;
        }
    }
    Vec::new()
}

#[test]
fn a_recall_that_a_reply_has_told_of_before_is_flushed_for_all_the_same() {
    let (mut world, dir) = settled();
    let (file, fh) = create(&mut world, dir, "f", b"x");
    close(&mut world, fh).unwrap();
    world.drain();
    let now = world.now();
    world.clients[0].machine.caps_lost(now);
    world.server.restart();
    let mut turn = Turn::new(Caller::new(7, 0));
    let Step::Ask(ask) = world.clients[0].machine.lookup(&mut turn, dir, b"f", now) else { panic!("known") };
    let fh = world.run(0, |m, t, now| m.open(t, file, flags(), now)).unwrap().fh;
    let data = bytes::Bytes::from_static(b"changed");
    world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
    assert!(world.clients[0].machine.stats().dirty_bytes > 0);
    let handle = world.clients[0].machine.handle_of(file).unwrap();
    let Ok(Ok(Answer::Looked { found: Some(mut found), .. })) = world.server.answer(0, &ask) else {
        panic!()
    };
    let seq = 1 << 40;
    found.grant = Some(Grant {
        caps: CapSet::ALL_S,
        seq,
        plain: false,
        group_of_directory: false,
        listed: false,
        hands_on_none: false,
        changed_since: false,
    });
    let answer = Answer::Looked { found: Some(found), dir: None, promise: None };
    let machine = &mut world.clients[0].machine;
    machine.absorb(&mut turn, *ask, Ok(answer), now);
    machine.recalled(&handle, CapSet::ALL_S, seq, now);
    assert_eq!(machine.take_releases(now), [], "not flushed");
    world.drain();
    assert!(world.server.fs.inodes.values().any(|i| i.data == b"changed"));
    assert_eq!(world.clients[0].machine.stats().dirty_bytes, 0);
}

#[test]
fn what_was_reclaimed_and_is_recalled_before_its_client_knows_is_released() {
    let (mut world, dir) = settled();
    world.drain();
    let claims = world.clients[0].machine.reclaim_list();
    let handle = world.clients[0].machine.handle_of(dir).unwrap();
    world.server.restart();
    let told: Vec<_> = claims.iter().map(|claim| world.server.reclaim(0, claim)).collect();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.recalled(&handle, CapSet::NONE, 1 << 40, now);
    machine.reclaimed(told, now);
    world.check(0);
    world.invalidate(0);
    let released = world.clients[0].machine.take_releases(now);
    assert!(
        released.contains(&Release { handle, keep: CapSet::NONE, seq: 1 << 40, life: 1 }),
        "{released:?}"
    );
}

#[test]
fn what_is_reclaimed_is_known_only_if_nobody_was_there_meanwhile() {
    let (mut world, dir) = settled();
    let (file, fh) = create(&mut world, dir, "f", b"x");
    close(&mut world, fh).unwrap();
    let (other, fh) = create(&mut world, dir, "g", b"x");
    close(&mut world, fh).unwrap();
    world.drain();
    // Everything is looked at anew, so that the server's change attributes are known.
    let now = world.now();
    world.clients[0].machine.caps_lost(now);
    world.server.restart();
    for file in [file, other] {
        world.run(0, |m, t, now| m.getattr(t, file, now)).unwrap();
    }
    let ino = world.server.fs.inodes.iter().find(|(_, i)| i.data == b"x").map(|(i, _)| *i).unwrap();
    let claims = world.clients[0].machine.reclaim_list();
    world.server.restart();
    world.server.fs.write(ino, 0, b"longer").unwrap();
    let told: Vec<_> = claims.iter().map(|claim| world.server.reclaim(0, claim)).collect();
    world.clients[0].machine.reclaimed(told, now);
    let asks = world.clients[0].asks;
    assert_eq!(world.run(0, |m, t, now| m.getattr(t, other, now)).unwrap().attrs.size, 1);
    assert_eq!(world.clients[0].asks, asks, "nobody was there");
    assert_eq!(world.run(0, |m, t, now| m.getattr(t, file, now)).unwrap().attrs.size, 6);
}

#[test]
fn who_looks_into_a_directory_that_was_filled_next_door_has_its_files_not_recalled_one_by_one() {
    let mut world = World::new(2, true, 5);
    for client in &mut world.clients {
        *client.machine.settings_mut() = Settings::full();
    }
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"warm", 0o755, now)).unwrap();
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    let files: Vec<_> = (0..100).map(|i| create(&mut world, dir, &format!("f{i}"), b"0123456789")).collect();
    for (file, fh) in &files {
        close(&mut world, *fh).unwrap();
        if file.0 % 4 == 0 {
            // Held exclusively once more, and at rest.
            let flags = OpenFlags { access: AB, ..OpenFlags::default() };
            let fh = world.run(0, |m, t, now| m.open(t, *file, flags, now)).unwrap().fh;
            close(&mut world, fh).unwrap();
        }
    }
    world.drain();
    let before = world.server.recalled;
    let Lookup::Found(d) = world.run(1, |m, t, now| m.lookup(t, NodeId::ROOT, b"d", now)).unwrap() else {
        panic!()
    };
    let listed = world.list(1, d.node, true).unwrap();
    assert_eq!(listed.len(), 100);
    for name in &listed {
        let found = world.run(1, |m, t, now| m.lookup(t, d.node, name, now)).unwrap();
        assert!(matches!(found, Lookup::Found(e) if e.attrs.size == 10), "{found:?}");
    }
    let recalls = world.server.recalled - before;
    assert!(recalls <= 4, "{recalls} recalls for 100 files");
}

#[test]
fn a_grant_that_a_recall_has_overtaken_is_not_believed() {
    let mut world = World::new(1, true, 3);
    let mut turn = Turn::new(Caller::new(7, 0));
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let Step::Ask(ask) = machine.getattr(&mut turn, NodeId::ROOT, now) else { panic!() };
    let Ok(answer) = world.server.answer(0, &ask) else { panic!() };
    let root = world.server.root().handle;
    let machine = &mut world.clients[0].machine;
    machine.recalled(&root, CapSet::NONE, 100, now);
    machine.absorb(&mut turn, *ask, answer, now);
    let Step::Done(shown) = machine.getattr(&mut turn, NodeId::ROOT, now) else {
        panic!("the answer serves once")
    };
    assert!(!shown.valid);
    assert!(matches!(machine.getattr(&mut Turn::new(Caller::new(7, 0)), NodeId::ROOT, now), Step::Ask(_)));
}

#[test]
fn data_that_the_server_lost_is_sent_again() {
    let (mut world, dir) = settled();
    create(&mut world, dir, "f", &[1; 100_000]);
    hurry(&mut world);
    for _ in 0..20 {
        world.pump(0);
    }
    assert!(world.clients[0].machine.stats().unstable_bytes > 0);
    let ino = world.server.fs.inodes.iter().find(|(_, i)| i.data.len() == 100_000).map(|(i, _)| *i).unwrap();
    world.server.verifier += 1;
    world.server.fs.inodes.get_mut(&ino).unwrap().data.clear();
    world.drain();
    assert_eq!(world.server.fs.inodes[&ino].data, vec![1; 100_000]);
}

/// Whether the server shows a state on the way, but for what has gone since: what was made and removed again before any of
/// it was sent the server never hears of, while it has, or has not yet, what was done in between.
fn is_without_what_has_gone(at_server: &str, states: &[String]) -> bool {
    let lines = |state: &str| state.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let (shown, now) = (lines(at_server), lines(states.last().unwrap()));
    states.iter().map(|state| lines(state)).any(|state| {
        shown.is_subset(&state) && state.difference(&shown).all(|missing| !now.contains(missing))
    })
}

/// Runs operations of one mount, remembering every state on the way; then the mount dies.
fn dies(ops: &[Op], seed: u64) {
    let mut world = World::new(1, true, seed);
    let mut model = Model::default();
    let names = |fs: &world::fs::Fs| fs.names();
    let mut states = vec![names(&model.fs)];
    for op in ops {
        world.apply(0, op);
        model.apply(0, op);
        states.push(names(&model.fs));
        let at_server = names(&world.server.fs);
        let has_elided = world.clients[0].machine.stats().mutations_elided > 0;
        assert!(
            states.contains(&at_server) || (has_elided && is_without_what_has_gone(&at_server, &states)),
            "after {op:?} the server shows what never was:\n{at_server}"
        );
    }
}

/// Another server takes the place of one that lost what was not on its disk, and knows nothing of its mounts. What is on the disk
/// the mount has heard: what it does not know of that is found out by what is there, which this server does not do.
fn another_takes_over(world: &mut World) {
    let (executed, now) = (world.server.lanes.get(&0).map_or(0, |lane| lane.executed), world.now());
    world.clients[0].machine.stable_done(executed, &[], now);
    let told = world.clients[0].machine.done_through();
    world.server.lanes.clear();
    world.server.restart();
    let machine = &mut world.clients[0].machine;
    machine.forgotten();
    machine.resume(Some(told), 0, now);
    machine.caps_lost(now);
    world.check(0);
    world.invalidate(0);
}

/// Files that get names and lose them, while some of it is on the disk.
fn about_names() -> impl Strategy<Value = Op> {
    let p = || 0..7_u8;
    prop_oneof![
        6 => p().prop_map(|path| Op::Create { path, exclusive: false, truncate: false, append: false, slot: 0 }),
        8 => Just(Op::Close { slot: 0 }),
        5 => (p(), p()).prop_map(|(from, to)| Op::Link { from, to }),
        4 => (p(), p()).prop_map(|(from, to)| Op::Rename { from, to, mode: RenameMode::Replace }),
        3 => p().prop_map(|path| Op::Unlink { path }),
        2 => p().prop_map(|path| Op::Mkdir { path }),
        5 => p().prop_map(|path| Op::Stat { path }),
        2 => (p(), any::<bool>()).prop_map(|(path, plus)| Op::Readdir { path, plus }),
        2 => Just(Op::Pause { ms: 5001 }),
        1 => Just(Op::Sync),
        1 => op(),
    ]
}

/// The power of the server: what was on its disk is left.
pub(crate) fn power_cut(world: &mut World) {
    let disk = world.disk.clone().expect("kept in this test");
    let live = std::mem::replace(&mut world.server, disk);
    let server = &mut world.server;
    // What it held for its clients it gives back in grace.
    (server.held, server.opens) = (live.held, live.opens);
    (server.last_seq, server.last_open) = (live.last_seq, live.last_open);
    (server.verifier, server.fs.next) = (live.verifier + 1, live.fs.next);
}

/// It says what it has executed.
pub(crate) fn resume(world: &mut World) {
    let executed = world.server.lanes.get(&0).map_or(0, |l| l.executed);
    let now = world.now();
    world.clients[0].machine.resume(Some(executed), 0, now);
    world.check(0);
}

/// The server loses what is not on its disk, again and again, and its client sends it again: to another one now and then, where
/// others take over.
fn server_loses(ops: &[Op], seed: u64, others_take_over: bool) {
    let mut world = World::new(1, true, seed);
    let mut model = Model::default();
    world.disk = Some(world.server.clone());
    // Whether something on the disk may have been sent again, and not been heard of yet.
    let mut is_behind = false;
    for op in ops {
        let (shown, expected) = (world.apply(0, op), model.apply(0, op));
        assert_eq!(shown, expected, "{op:?}");
        is_behind &= world.clients[0].machine.pending().mutations > 0;
        if std::mem::take(&mut world.server.synchronous) {
            // What a question changed is on disk before the answer, with all that was executed before.
            world.put_on_disk();
        } else if world.dice.roll(4) == 0
            && model.fds.values().all(|(ino, ..)| model.fs.inodes[ino].nlink > 0)
        {
            // (Files without names end with the power, on any file system.)
            power_cut(&mut world);
            let has_heard_all = std::mem::take(&mut world.clients[0].replies).is_empty();
            // (Who has files open opens them anew there, which is not done here.)
            let may_take_over = others_take_over && has_heard_all && !is_behind && model.fds.is_empty();
            if may_take_over && world.dice.roll(2) == 0 {
                another_takes_over(&mut world);
                continue;
            }
            is_behind = true;
            if world.dice.roll(2) == 0 {
                // What it was asked for meanwhile it answers before it says what it has lost.
                let now = world.now();
                world.pump_data(0, now);
            }
            resume(&mut world);
        }
    }
    world.drain();
    assert_eq!(world.server.fs.canonical(), model.fs.canonical(), "at the server");
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn when_the_client_dies_the_server_has_a_prefix(
        ops in prop::collection::vec(op(), 1..60), seed in any::<u64>()
    ) {
        dies(&ops, seed);
    }

    #[test]
    fn what_the_server_lost_comes_again(ops in prop::collection::vec(op(), 1..60), seed in any::<u64>()) {
        server_loses(&ops, seed, false);
    }
}

proptest! {
    #![proptest_config(config(1000))]

    #[test]
    fn what_one_server_lost_comes_to_another(
        ops in prop::collection::vec(about_names(), 1..60), seed in any::<u64>()
    ) {
        server_loses(&ops, seed, true);
    }
}

/// A reply that tells of a file's attributes, and grants everything shared.
fn granted(world: &mut World, file: NodeId, seq: u64) {
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let Step::Ask(ask) = world.clients[0].machine.getattr(&mut turn, file, now) else { panic!("known") };
    let Ok(Ok(Answer::Attrs { attrs, .. })) = world.server.answer(0, &ask) else { panic!() };
    let grant = Some(Grant {
        caps: CapSet::ALL_S,
        seq,
        plain: false,
        group_of_directory: false,
        listed: false,
        hands_on_none: false,
        changed_since: false,
    });
    world.clients[0].machine.absorb(&mut turn, *ask, Ok(Answer::Attrs { attrs, grant }), now);
}

#[test]
fn a_lock_is_taken_when_the_kernel_has_dropped_what_nothing_covered() {
    let (mut world, dir) = settled();
    let (file, _) = create(&mut world, dir, "f", b"x");
    world.drain();
    let mut turn = Turn::new(Caller::new(7, 0));
    let step = world.clients[0].machine.lock_taken(&mut turn, file);
    assert!(matches!(step, Step::Done(())), "covered since it was made");
    // What the kernel reads between a recall and the next grant may be old by then.
    let now = world.now();
    let handle = world.clients[0].machine.handle_of(file).unwrap();
    world.clients[0].machine.recalled(&handle, CapSet::NONE, 1 << 40, now);
    world.invalidate(0);
    world.clients[0].machine.take_releases(now);
    granted(&mut world, file, (1 << 40) + 1);
    let step = world.clients[0].machine.lock_taken(&mut turn, file);
    assert!(matches!(step, Step::Wait(Wait::Forgotten)), "{step:?}");
    let told = world.clients[0].machine.take_invalidations();
    assert!(told.iter().any(|i| i.what == Forget::Data(file)));
    let step = world.clients[0].machine.lock_taken(&mut turn, file);
    assert!(matches!(step, Step::Wait(_)), "it was told, and has not done it");
    told.iter().for_each(|i| world.clients[0].machine.invalidated(i.number));
    let step = world.clients[0].machine.lock_taken(&mut turn, file);
    assert!(matches!(step, Step::Done(())));
}

#[test]
fn however_many_read_while_a_recall_is_held_up_the_kernel_is_not_told_of_each() {
    let (mut world, dir) = settled();
    let (file, fh) = create(&mut world, dir, "f", &[1; 100_000]);
    world.drain();
    let (handle, now) = (world.clients[0].machine.handle_of(file).unwrap(), world.now());
    let machine = &mut world.clients[0].machine;
    machine.recalled(&handle, CapSet::ALL_S.without(CapSet::FILE_S), 1 << 40, now);
    let told = machine.take_invalidations();
    let whole = told.iter().find(|i| i.what == Forget::Data(file)).unwrap().number;
    // Begun, and not done: the kernel waits for somebody's page.
    machine.forgetting(whole);
    for n in 0..1000 {
        let mut turn = Turn::new(Caller::new(7, 0));
        let step = machine.read(&mut turn, fh, n * 4096 % 98_304, 4096, now);
        assert!(matches!(step, Step::Ask(_)), "answered: somebody may wait for it, {step:?}");
    }
    let told = machine.take_invalidations();
    assert!(told.len() <= holdfast_base::limits::DROPPED_PARTS_MAX + 1, "{}", told.len());
    assert!(
        told.iter().any(|i| matches!(i.what, Forget::Pages(..)))
            && told.last().unwrap().what == Forget::Data(file)
    );
    assert_eq!(machine.take_releases(now), [], "before all that is dropped");
    told.iter().for_each(|i| machine.invalidated(i.number));
    assert_eq!(machine.take_releases(now).len(), 1);
}

#[test]
fn what_was_written_before_a_promise_came_is_not_read_from_here_however_late_its_reply() {
    let mut world = World::new(1, false, 1);
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags(), now)).unwrap();
    let (file, fh) = (made.0.node, made.1.fh);
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let ours = bytes::Bytes::from_static(b"ours");
    let Step::Ask(ask) = world.clients[0].machine.write(&mut turn, fh, 0, &ours, now) else { panic!() };
    let Ok(answer) = world.server.answer(0, &ask) else { panic!() };
    // Others overwrite it, and only then the file is promised.
    for inode in world.server.fs.inodes.values_mut().filter(|i| i.data == b"ours") {
        inode.data = b"them".to_vec();
    }
    granted(&mut world, file, 1);
    world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
    let step = world.clients[0].machine.write(&mut turn, fh, 0, &ours, now);
    assert!(matches!(step, Step::Done(4)), "{step:?}");
    granted(&mut world, file, 2);
    let read = world.run(0, |m, t, now| m.read(t, fh, 0, 4, now)).unwrap();
    assert_eq!(read.concat(), b"them");
}

#[test]
fn who_has_had_no_word_for_a_lease_asks_again_and_still_gives_back_what_was_asked_for() {
    let (mut world, dir) = settled();
    let (file, fh) = create(&mut world, dir, "f", b"x");
    close(&mut world, fh).unwrap();
    world.drain();
    let now = world.now();
    let handle = world.clients[0].machine.handle_of(file).unwrap();
    world.clients[0].machine.recalled(&handle, CapSet::ALL_S, 1 << 40, now);
    world.invalidate(0);
    let machine = &mut world.clients[0].machine;
    machine.lapsed(now);
    world.invalidate(0);
    let machine = &mut world.clients[0].machine;
    let released = machine.take_releases(now);
    assert!(released.iter().any(|r| r.handle == handle && r.seq == 1 << 40), "{released:?}");
    let step = machine.getattr(&mut Turn::new(Caller::new(7, 0)), file, now);
    assert!(matches!(step, Step::Ask(_)), "{step:?}");
    let step = machine.lookup(&mut Turn::new(Caller::new(7, 0)), dir, b"absent", now);
    assert!(matches!(step, Step::Ask(_)), "{step:?}");
}

#[test]
fn what_is_promised_while_it_may_be_taken_back_at_any_moment_is_not_relied_on() {
    let (mut world, dir) = settled();
    world.drain();
    let now = world.now();
    let own = || Turn::new(Caller::new(7, 0));
    let lookup = |world: &mut World, name: &[u8]| world.run(0, |m, t, now| m.lookup(t, dir, name, now));
    let is_known = |world: &mut World, name: &[u8]| {
        let step = world.clients[0].machine.lookup(&mut own(), dir, name, now);
        !matches!(step, Step::Ask(_))
    };
    let _ = lookup(&mut world, b"absent");
    assert!(is_known(&mut world, b"absent"));
    world.clients[0].machine.lapsed(now);
    let _ = lookup(&mut world, b"absent");
    assert!(!is_known(&mut world, b"absent"), "the answer came with a grant that may be void by now");
    // Asked before the server was heard of again, and answered after.
    let mut turn = own();
    let Step::Ask(ask) = world.clients[0].machine.lookup(&mut turn, dir, b"absent", now) else { panic!() };
    let Ok(answer) = world.server.answer(0, &ask) else { panic!() };
    world.clients[0].machine.regained();
    world.clients[0].machine.absorb(&mut turn, *ask, answer, now);
    let _ = world.clients[0].machine.lookup(&mut turn, dir, b"absent", now);
    assert!(!is_known(&mut world, b"absent"));
    let _ = lookup(&mut world, b"absent");
    assert!(is_known(&mut world, b"absent"), "as before");
}

#[test]
fn a_recall_of_what_is_not_known_waits_for_no_batch_that_was_sent_after_it() {
    let (mut world, dir) = settled();
    world.drain();
    let now = world.now();
    let strange = Handle::new(b"given out and forgotten");
    let (_, first) = create(&mut world, dir, "first", b"1");
    close(&mut world, first).unwrap();
    hurry(&mut world);
    let one = batch(&mut world);
    world.clients[0].machine.recalled(&strange, CapSet::NONE, 1 << 40, now);
    assert_eq!(world.clients[0].machine.take_releases(now), [], "it may be what is being made");
    let (_, second) = create(&mut world, dir, "second", b"2");
    close(&mut world, second).unwrap();
    hurry(&mut world);
    let other = batch(&mut world);
    let results = world.server.batch(0, &one);
    let machine = &mut world.clients[0].machine;
    machine.batch_done(one.txn, results, 0, now);
    let released = machine.take_releases(now);
    assert!(released.iter().any(|r| r.handle == strange && r.keep == CapSet::NONE), "{released:?}");
    let results = world.server.batch(0, &other);
    world.clients[0].machine.batch_done(other.txn, results, 0, now);
}

/// Takes all there is to send, as a flusher does that gets no answer to anything, for a minute. Says how often it has looked.
fn looks_in_a_minute(world: &mut World) -> u32 {
    let (mut looks, until) = (0, world.ms + 60_000);
    while world.ms < until {
        let now = world.now();
        let machine = &mut world.clients[0].machine;
        drop(machine.take_releases(now));
        while machine.take_batch(now).is_some() {}
        while machine.take_write(now).is_some() {}
        while machine.take_commit(now).is_some() {}
        let _ = machine.take_stable(now);
        let wake = machine.next_wake(now).map_or(until, |at| at.0);
        assert!(wake > world.ms, "it is to look again at once, after {looks} looks");
        (world.ms, looks) = (wake, looks + 1);
    }
    looks
}

#[test]
fn who_gets_no_answer_to_putting_batches_on_disk_does_not_look_again_and_again() {
    let (mut world, dir) = settled();
    world.drain();
    let (_, fh) = create(&mut world, dir, "f", b"data");
    close(&mut world, fh).unwrap();
    hurry(&mut world);
    let sent = batch(&mut world);
    let results = world.server.batch(0, &sent);
    let now = world.now();
    world.clients[0].machine.batch_done(sent.txn, results, 0, now);
    assert!(looks_in_a_minute(&mut world) < 400);
}

#[test]
fn who_gets_no_answer_to_a_commit_that_several_wait_for_does_not_look_again_and_again() {
    let (mut world, dir) = settled();
    let (node, fh) = create(&mut world, dir, "f", &[7; 100]);
    world.drain();
    world.run(0, |m, t, now| m.write(t, fh, 0, &vec![8; 100_000].into(), now)).unwrap();
    world.run(0, |m, t, now| m.written(t, node, now)).unwrap();
    for _ in 0..2 {
        let now = world.now();
        let machine = &mut world.clients[0].machine;
        let synced = machine.fsync(&mut Turn::new(Caller::new(7, 0)), node, Some(fh), now);
        assert!(matches!(synced, Step::Wait(Wait::Stable)), "{synced:?}");
        drop(machine.take_commit(now));
    }
    assert!(looks_in_a_minute(&mut world) < 400);
}

#[test]
fn who_has_data_for_a_server_that_is_away_does_not_look_again_and_again() {
    let (mut world, dir) = settled();
    world.drain();
    create(&mut world, dir, "f", b"data");
    world.clients[0].machine.hold(true);
    assert!(looks_in_a_minute(&mut world) < 400);
}

#[test]
fn fsync_does_not_wait_for_the_age_of_a_truncation_that_goes_before_its_data() {
    let (mut world, dir) = settled();
    *world.clients[0].machine.settings_mut() = Settings::full();
    let (node, fh) = create(&mut world, dir, "f", &vec![7; 300_000]);
    world.drain();
    let size = Changes { size: Some(1000), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, node, &size, now)).unwrap();
    world.run(0, |m, t, now| m.write(t, fh, 0, &vec![8; 200_000].into(), now)).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let step = machine.fsync(&mut Turn::new(Caller::new(7, 0)), node, Some(fh), now);
    assert!(matches!(step, Step::Wait(Wait::Written)), "{step:?}");
    let batch = machine.take_batch(now).expect("the truncation goes at once");
    let results = world.server.batch(0, &batch);
    let machine = &mut world.clients[0].machine;
    machine.batch_done(batch.txn, results, 0, now);
    assert!(machine.take_write(now).is_some(), "and the data behind it");
}

#[test]
fn what_was_being_given_back_as_the_server_began_anew_is_not_given_back_to_the_next() {
    let (mut world, dir) = settled();
    world.drain();
    let (file, fh) = create(&mut world, dir, "f", b"x");
    close(&mut world, fh).unwrap();
    world.drain();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    let handle = machine.handle_of(file).unwrap();
    let recalled = |machine: &mut Machine, seq| {
        machine.recalled(&handle, CapSet::NONE, seq, now);
        let told = machine.take_invalidations();
        told.iter().for_each(|invalidation| machine.invalidated(invalidation.number));
        machine.take_releases(now)
    };
    let under_way = recalled(machine, u64::MAX / 4);
    assert!(!under_way.is_empty());
    // It is not known whether the server goes on: it may still wait.
    machine.lapsed(now);
    assert!(under_way.iter().all(|release| machine.is_of_this_life(release)));
    machine.releases_lost(under_way);
    let under_way = machine.take_releases(now);
    assert!(!under_way.is_empty());
    machine.caps_lost(now);
    assert!(!under_way.iter().any(|release| machine.is_of_this_life(release)));
    machine.releases_lost(under_way);
    assert_eq!(machine.take_releases(now), []);
    let of_this = recalled(machine, 7);
    assert!(of_this.iter().any(|release| (&release.handle, release.seq) == (&handle, 7)), "{of_this:?}");
    assert!(of_this.iter().all(|release| machine.is_of_this_life(release)));
}
