//! Who was let in when he opened a file goes on when its mode, owner or access list is changed, here or by another mount, as on a
//! local file system.

use crate::trouble;
use crate::world::World;
use crate::world::fs::ROOT;
use bytes::Bytes;
use holdfast_cache::*;

/// More than goes with the stream.
const LARGE: usize = 100_000;

fn member() -> Caller {
    Caller::new(8, 0)
}

/// A file that its group may write, which a member has open here, and the server knows of no open.
fn opened_by_a_member(access: Access) -> (World, NodeId, Fh) {
    opened_by_a_member_of(1, access)
}

/// The same at the first of so many mounts.
fn opened_by_a_member_of(mounts: usize, access: Access) -> (World, NodeId, Fh) {
    let mut world = World::new(mounts, true, 1);
    world.clients[0].machine.settings_mut().io_bytes = 1 << 20;
    world.have_root_alone();
    let owners = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o664, owners, now)).unwrap();
    let (file, fh) = (made.0.node, made.1.fh);
    let now = world.now();
    world.clients[0].machine.release(fh, now);
    world.drain();
    let flags = OpenFlags { access, ..OpenFlags::default() };
    let fh = world.run_as(0, &member(), |m, t, now| m.open(t, file, flags, now)).unwrap().fh;
    assert!(world.server.opens.is_empty(), "it is opened here");
    (world, file, fh)
}

fn write(world: &mut World, fh: Fh, len: usize) {
    let data = Bytes::from(vec![7; len]);
    world.run_as(0, &member(), |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
}

/// What root does then: it is root's alone, by mode and owner.
fn take(world: &mut World, file: NodeId) {
    let changes = Changes { mode: Some(0o600), uid: Some(0), ..Changes::default() };
    world.run_as(0, &Caller::new(0, 0), |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
}

/// He has the file shut by a list.
fn list(world: &mut World, file: NodeId) {
    let value = Bytes::from_static(b"a list");
    let set =
        |m: &mut Machine, t: &mut Turn, now| m.setxattr(t, file, LIST, (&value, XattrMode::Either), now);
    world.run_as(0, &Caller::new(0, 0), set).unwrap();
}

/// Another mount does what [`take`] does.
fn take_elsewhere(world: &mut World) {
    let found = world.run_as(1, &Caller::new(0, 0), |m, t, now| m.lookup(t, NodeId::ROOT, b"f", now));
    let Ok(Lookup::Found(entry)) = found else { panic!("it is there: {found:?}") };
    let changes = Changes { mode: Some(0o600), uid: Some(0), ..Changes::default() };
    world.run_as(1, &Caller::new(0, 0), |m, t, now| m.setattr(t, entry.node, &changes, now)).unwrap();
    world.run_as(1, &Caller::new(0, 0), |m, t, now| m.fsync(t, entry.node, None, now)).unwrap();
}

/// What is sent of a file that is flushed.
fn writes_of(world: &mut World, fh: Fh) -> Vec<WriteOut> {
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    // Waits where there is something to send.
    let _ = machine.flush(&mut Turn::new(member()), fh, now);
    std::iter::from_fn(|| machine.take_write(now)).collect()
}

const LIST: &[u8] = b"system.posix_acl_access";
const WRITE: Access = Access { read: false, write: true };
const READ: Access = Access { read: true, write: false };

#[test]
fn what_he_has_written_is_there_before_he_would_be_kept_out() {
    for (len, is_asked) in [(LARGE, false), (10, false), (LARGE, true)] {
        let (mut world, file, fh) = opened_by_a_member(WRITE);
        world.clients[0].machine.settings_mut().batches = !is_asked;
        write(&mut world, fh, len);
        take(&mut world, file);
        let stats = world.clients[0].machine.stats();
        assert_eq!(stats.dirty_bytes, 0, "{len} bytes, asked for: {is_asked}");
        let there = world.server.fs.look(ROOT, b"f").unwrap().unwrap();
        let mode = world.server.attrs(there).unwrap().mode;
        assert_eq!(
            mode,
            if is_asked { 0o600 } else { 0o664 },
            "the change itself is put off, where it may be"
        );
    }
}

#[test]
fn what_he_writes_afterwards_names_his_open() {
    for (len, is_asked) in [(LARGE, false), (10, false), (10, true)] {
        let (mut world, file, fh) = opened_by_a_member(WRITE);
        world.clients[0].machine.settings_mut().batches = !is_asked;
        take(&mut world, file);
        world.clients[0].machine.settings_mut().batches = true;
        assert_eq!(world.server.opens.len(), 1, "the server knows of it");
        world.drain();
        write(&mut world, fh, len);
        let now = world.now();
        let machine = &mut world.clients[0].machine;
        assert!(matches!(machine.flush(&mut Turn::new(member()), fh, now), Step::Done(())));
        let sent: Vec<_> = std::iter::from_fn(|| machine.take_write(now)).collect();
        assert!(!sent.is_empty(), "{len} bytes go by WRITE");
        assert!(sent.iter().all(|write| write.open.is_some() && write.caller == member()), "{sent:?}");
    }
}

/// A file that the server has made, on no disk yet, and that a member has open here.
fn opened_on_no_disk() -> (World, NodeId, Fh) {
    let mut world = World::new(1, true, 1);
    world.have_root_alone();
    world.disk = Some(world.server.clone());
    let owners = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o664, owners, now)).unwrap();
    let (file, fh, now) = (made.0.node, made.1.fh, world.now());
    world.clients[0].machine.release(fh, now);
    let batch = world.one_batch();
    let results = world.server.batch(0, &batch);
    world.clients[0].machine.batch_done(batch.txn, results, 0, now);
    let flags = OpenFlags { access: READ, ..OpenFlags::default() };
    let fh = world.run_as(0, &member(), |m, t, now| m.open(t, file, flags, now)).unwrap().fh;
    (world, file, fh)
}

/// It loses that; what it says of it afterwards is of the one that is gone.
fn lose(world: &mut World) {
    trouble::power_cut(world);
    world.server.opens.insert(OF_THE_LOST.0, (0, 0));
    trouble::resume(world);
}

const OF_THE_LOST: OpenToken = OpenToken(99);

/// The server is told that it has ended.
fn is_left_to_nobody(world: &mut World) {
    world.drain();
    assert_eq!(world.server.opens.len(), 1, "it knows of the open of the file that it has");
    assert!(!world.server.opens.contains_key(&OF_THE_LOST.0));
}

#[test]
fn what_is_told_of_a_file_that_was_lost_does_not_stand_for_the_one_that_is_made_again() {
    let (mut world, file, fh) = opened_on_no_disk();
    let changes = Changes { mode: Some(0o600), uid: Some(0), ..Changes::default() };
    let (root, now) = (Caller::new(0, 0), world.now());
    let begun = world.clients[0].machine.setattr(&mut Turn::new(root), file, &changes, now);
    assert!(matches!(begun, Step::Wait(_)), "the server is to know of the open first: {begun:?}");
    let told = world.clients[0].machine.take_opens();
    let [(of, object, ..)] = &told[..] else { panic!("{told:?}") };
    assert_eq!(*of, fh);
    lose(&mut world);
    world.clients[0].machine.opened(fh, object, Some(OF_THE_LOST));
    take(&mut world, file);
    is_left_to_nobody(&mut world);
}

/// By it whoever locks would lock what is gone.
#[test]
fn an_open_of_a_file_that_was_lost_is_asked_for_again() {
    let (mut world, file, fh) = opened_on_no_disk();
    let (mut turn, now) = (Turn::new(member()), world.now());
    let Step::Ask(ask) = world.clients[0].machine.server_open(&mut turn, fh, now) else { panic!("it asks") };
    let attrs = world.server.attrs(world.server.fs.look(ROOT, b"f").unwrap().unwrap()).unwrap();
    lose(&mut world);
    let answer = Answer::Opened { open: Some(OF_THE_LOST), attrs, grant: None };
    world.clients[0].machine.absorb(&mut turn, *ask, Ok(answer), now);
    let (object, token) = world.go_on(0, turn, |m, t, now| m.server_open(t, fh, now)).unwrap();
    assert_eq!(world.clients[0].machine.handle_of(file), Some(object));
    assert!(token.is_some() && token != Some(OF_THE_LOST));
    is_left_to_nobody(&mut world);
}

#[test]
fn who_reads_is_known_to_the_server_as_well() {
    let (mut world, file, fh) = opened_by_a_member(READ);
    take(&mut world, file);
    assert_eq!(world.server.opens.len(), 1);
    let now = world.now();
    world.clients[0].machine.release(fh, now);
    world.drain();
    assert!(world.server.opens.is_empty(), "and of its end");
}

#[test]
fn who_may_go_on_anyway_costs_nothing() {
    let mode = |mode| Changes { mode: Some(mode), ..Changes::default() };
    let (owner, root) = (Caller::new(7, 0), Caller::new(0, 0));
    for (writer, changer, changes) in [
        // The owner writes his file whatever its mode; whoever may by its new mode, too; and root.
        (&owner, &owner, mode(0o400)),
        (&owner, &root, mode(0o400)),
        (&member(), &owner, mode(0o620)),
        (&root, &owner, mode(0o600)),
        (&member(), &root, Changes { uid: Some(8), ..mode(0o600) }),
    ] {
        let (mut world, file, fh) = opened_by_a_member(READ);
        let now = world.now();
        world.clients[0].machine.release(fh, now);
        let flags = OpenFlags { access: WRITE, ..OpenFlags::default() };
        let fh = world.run_as(0, writer, |m, t, now| m.open(t, file, flags, now)).unwrap().fh;
        let data = Bytes::from(vec![7; LARGE]);
        world.run_as(0, writer, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
        let now = world.now();
        let set = world.clients[0].machine.setattr(&mut Turn::new(changer.clone()), file, &changes, now);
        let whoami = matches!(&set, Step::Ask(ask) if ask.question == Question::WhoAmI);
        assert!(whoami || matches!(set, Step::Done(_)), "{writer:?} {changes:?}: {set:?}");
        world.run_as(0, changer, |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
        assert!(world.server.opens.is_empty());
        assert_eq!(world.clients[0].machine.stats().dirty_bytes, LARGE as u64);
    }
}

#[test]
fn a_list_is_waited_with_as_a_mode_is() {
    for len in [LARGE, 10] {
        let (mut world, file, fh) = opened_by_a_member(WRITE);
        write(&mut world, fh, len);
        list(&mut world, file);
        assert_eq!(world.clients[0].machine.stats().dirty_bytes, 0, "{len} bytes");
        assert_eq!(world.server.opens.len(), 1, "the server knows of it");
        write(&mut world, fh, len);
        let sent = writes_of(&mut world, fh);
        let is_by_open = |write: &WriteOut| write.open.is_some() && write.caller == member();
        assert!(!sent.is_empty() && sent.iter().all(is_by_open), "{len} bytes: {sent:?}");
    }
    let (mut world, file, _) = opened_by_a_member(READ);
    list(&mut world, file);
    assert_eq!(world.server.opens.len(), 1);
}

#[test]
fn who_owns_a_file_goes_on_whatever_lists_it_gets() {
    let (mut world, file, fh) = opened_by_a_member(READ);
    let now = world.now();
    world.clients[0].machine.release(fh, now);
    let flags = OpenFlags { access: WRITE, ..OpenFlags::default() };
    world.run(0, |m, t, now| m.open(t, file, flags, now)).unwrap();
    list(&mut world, file);
    assert!(world.server.opens.is_empty());
}

#[test]
fn the_server_knows_who_has_it_open_before_another_mount_changes_who_may() {
    for (access, len) in [(READ, 0), (WRITE, 10), (WRITE, LARGE)] {
        let (mut world, _, fh) = opened_by_a_member_of(2, access);
        if len > 0 {
            write(&mut world, fh, len);
        }
        take_elsewhere(&mut world);
        let there = world.server.fs.look(ROOT, b"f").unwrap().unwrap();
        assert_eq!(world.server.attrs(there).unwrap().mode, 0o600);
        assert_eq!(world.server.opens.len(), 1, "{access:?}");
        assert_eq!(world.clients[0].machine.stats().dirty_bytes, 0, "{len} bytes");
    }
}

#[test]
fn what_is_written_after_another_mount_changed_who_may_names_the_open() {
    for len in [10, LARGE] {
        let (mut world, file, fh) = opened_by_a_member_of(2, WRITE);
        take_elsewhere(&mut world);
        // It is had alone again, so that what is written is kept here.
        world.ms += 10_000;
        write(&mut world, fh, 10);
        world.drain();
        write(&mut world, fh, len);
        assert!(world.clients[0].machine.stats().dirty_bytes > 0, "{len} bytes are kept here");
        let sent = writes_of(&mut world, fh);
        assert!(!sent.is_empty() && sent.iter().all(|write| write.open.is_some()), "{len} bytes: {sent:?}");
        let now = world.now();
        let changes = Changes { size: Some(3), ..Changes::default() };
        for write in &sent {
            let done = world.server.write(0, write);
            world.clients[0].machine.write_done(write.id, done.unwrap(), now);
        }
        // What is cut off by such an open is asked for, as that names it.
        let cut = world.clients[0].machine.setattr(&mut Turn::new(member()), file, &changes, now);
        let is_named = |ask: &Ask| matches!(&ask.question, Question::SetAttr { open: Some(_), changes: its, .. } if *its == changes);
        assert!(matches!(&cut, Step::Ask(ask) if is_named(ask)) || matches!(cut, Step::Wait(_)), "{cut:?}");
    }
}

/// Each small file would cost a WRITE and a COMMIT, and each truncation a question, as long as somebody has it open.
#[test]
fn who_may_write_anyway_names_no_open_once_that_is_known() {
    for (mode, is_greeted, is_known) in [(0o666, false, true), (0o600, false, false), (0o666, true, false)] {
        let (mut world, _, fh) = opened_by_a_member_of(2, WRITE);
        let root = Caller::new(0, 0);
        let found = world.run_as(1, &root, |m, t, now| m.lookup(t, NodeId::ROOT, b"f", now));
        let Ok(Lookup::Found(entry)) = found else { panic!("it is there: {found:?}") };
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        world.run_as(1, &root, |m, t, now| m.setattr(t, entry.node, &changes, now)).unwrap();
        world.run_as(1, &root, |m, t, now| m.fsync(t, entry.node, None, now)).unwrap();
        if is_greeted {
            // As whom he acts there now is to be asked.
            world.clients[0].machine.greeted();
        }
        // It is had alone again, so that what is written is kept here.
        world.ms += 10_000;
        write(&mut world, fh, 10);
        world.drain();
        let calls = world.server.rpcs;
        for _ in 0..20 {
            write(&mut world, fh, 10);
            assert!(world.clients[0].machine.stats().dirty_bytes > 0, "it is kept here");
            world.drain();
        }
        println!("{mode:o}: {} calls for 20 small files", world.server.rpcs - calls);
        write(&mut world, fh, 10);
        let sent = writes_of(&mut world, fh);
        assert_eq!(sent.is_empty(), is_known, "{mode:o}, greeted: {is_greeted}: {sent:?}");
    }
}

/// What a member has written is sent, and taken.
fn send_written(world: &mut World, fh: Fh) {
    let now = world.now();
    for write in &writes_of(world, fh) {
        let done = world.server.write(0, write);
        world.clients[0].machine.write_done(write.id, done.unwrap(), now);
    }
}

/// The next batch sets a time, and is refused.
fn refuse_time(world: &mut World) {
    let batch = world.one_batch();
    assert!(matches!(batch.ops[..], [Mutation::SetAttr { .. }]), "a time: {batch:?}");
    world.server.lanes.entry(0).or_default().executed = batch.txn;
    let (refused, now) = (vec![MutationResult::Failed(Errno::EPERM)], world.now());
    world.clients[0].machine.batch_done(batch.txn, refused, batch.txn, now);
}

#[test]
fn the_time_of_what_was_written_by_an_open_alone_is_nobodys_loss() {
    let (mut world, file, fh) = opened_by_a_member(WRITE);
    take(&mut world, file);
    world.drain();
    write(&mut world, fh, 10);
    send_written(&mut world, fh);
    refuse_time(&mut world);
    assert_eq!(world.run_as(0, &member(), |m, t, now| m.fsync(t, file, Some(fh), now)), Ok(()));
    assert!(world.clients[0].machine.take_reports().is_empty());
}

#[test]
fn a_time_that_somebody_has_set_himself_is_his_loss_though_the_file_is_written_by_an_open_alone() {
    let (mut world, file, fh) = opened_by_a_member(WRITE);
    take(&mut world, file);
    world.drain();
    let at = SetTime::At(holdfast_base::Timestamp { seconds: 5, nanos: 0 });
    let changes = Changes { mtime: Some(at), ..Changes::default() };
    world.run_as(0, &Caller::new(0, 0), |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
    refuse_time(&mut world);
    assert_eq!(world.run_as(0, &member(), |m, t, now| m.fsync(t, file, Some(fh), now)), Err(Errno::EPERM));
    assert_eq!(world.clients[0].machine.take_reports().len(), 1);
}

/// Who has it open at the server already, before a member opens it here: another user, by what the first open of his is known as.
fn opened_beside_another() -> (World, NodeId, (Fh, OpenToken), Fh) {
    let (mut world, file, first) = opened_by_a_member(READ);
    let flags = OpenFlags { access: WRITE, ..OpenFlags::default() };
    let others = world.run(0, |m, t, now| m.open(t, file, flags, now)).unwrap().fh;
    let (_, token) = world.run(0, |m, t, now| m.server_open(t, others, now)).unwrap();
    let his = world.run_as(0, &member(), |m, t, now| m.open(t, file, flags, now)).unwrap().fh;
    let now = world.now();
    world.clients[0].machine.release(first, now);
    (world, file, (others, token.unwrap()), his)
}

#[test]
fn what_he_writes_names_his_own_open_and_not_anothers() {
    let (mut world, file, (_, others), his) = opened_beside_another();
    take(&mut world, file);
    world.drain();
    write(&mut world, his, LARGE);
    let sent = writes_of(&mut world, his);
    let is_his = |write: &WriteOut| write.open.is_some_and(|open| open != others);
    assert!(!sent.is_empty() && sent.iter().all(is_his), "{others:?}: {sent:?}");
}

#[test]
fn an_open_that_ends_is_left_to_nobody_elses() {
    let (mut world, file, (fh, others), _) = opened_beside_another();
    let now = world.now();
    world.clients[0].machine.release(fh, now);
    world.drain();
    assert!(world.server.opens.is_empty(), "the server has heard of its end");
    take(&mut world, file);
    assert!(world.server.opens.len() == 1 && !world.server.opens.contains_key(&others.0), "and of his");
}

#[test]
fn what_is_written_after_two_truncations_goes_behind_both_of_them() {
    let (mut world, file, fh) = opened_by_a_member(WRITE);
    world.clients[0].machine.settings_mut().batch_ops_max = 1;
    let changes = Changes { size: Some(24), ..Changes::default() };
    for _ in 0..2 {
        world.run_as(0, &member(), |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
    }
    write(&mut world, fh, LARGE);
    assert_eq!(writes_of(&mut world, fh).len(), 0);
    let mut truncations = 2;
    while truncations > 0 {
        let now = world.now();
        let machine = &mut world.clients[0].machine;
        assert!(machine.take_write(now).is_none(), "{truncations} are still to come");
        let batch = machine.take_batch(now).expect("somebody waits");
        assert_eq!(batch.ops.len(), 1);
        let is_truncation =
            |op: &Mutation| matches!(op, Mutation::SetAttr { changes, .. } if changes.size.is_some());
        truncations -= usize::from(is_truncation(&batch.ops[0]));
        let done = MutationResult::Done { made: None, other_name: None, attrs: None };
        machine.batch_done(batch.txn, vec![done], 0, now);
    }
    let now = world.now();
    assert!(world.clients[0].machine.take_write(now).is_some());
}
