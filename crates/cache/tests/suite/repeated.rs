//! What a server has lost with its power is done again, but not over what others have done since.

use crate::both_sides::knowing;
use crate::trouble;
use crate::world::World;
use crate::world::fs::ROOT;
use bytes::Bytes;
use holdfast_base::Timestamp;
use holdfast_cache::*;

mod made_there;
mod unheard;

const THEIRS: i64 = 99;

fn flags() -> OpenFlags {
    OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() }
}

fn write(world: &mut World, fh: Fh, data: &'static [u8]) {
    let data = Bytes::from_static(data);
    world.ms += 7;
    world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
}

fn close(world: &mut World, fh: Fh) {
    world.run(0, |m, t, now| m.flush(t, fh, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(fh, now);
}

/// What is sent, and was executed: heard of, and on no disk.
fn send(world: &mut World) -> Vec<(Batch, Vec<MutationResult>)> {
    send_and(world, |_, _, _| {})
}

/// The same, after which the server does something else with a batch, or says more of it.
fn send_and(
    world: &mut World,
    differs: impl Fn(&mut World, &Batch, &mut [MutationResult]),
) -> Vec<(Batch, Vec<MutationResult>)> {
    let now = world.now();
    let _ = world.clients[0].machine.sync(&mut Turn::new(Caller::new(7, 0)), now);
    let mut sent = Vec::new();
    while let Some(batch) = world.clients[0].machine.take_batch(now) {
        let mut results = world.server.batch(0, &batch);
        differs(world, &batch, &mut results);
        world.clients[0].machine.batch_done(batch.txn, results.clone(), 0, now);
        world.check(0);
        sent.push((batch, results));
    }
    sent
}

/// A mount that has made a file `f` in a directory: the server may lose it. What was sent, and the file's number there.
fn made() -> (World, NodeId, Vec<(Batch, Vec<MutationResult>)>, u64) {
    made_and(|_, _, _| {})
}

fn made_and(
    differs: impl Fn(&mut World, &Batch, &mut [MutationResult]),
) -> (World, NodeId, Vec<(Batch, Vec<MutationResult>)>, u64) {
    let (mut world, dir) = trouble::settled();
    let (entry, opened) = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags(), now)).unwrap();
    write(&mut world, opened.fh, b"ours");
    close(&mut world, opened.fh);
    let sent = send_and(&mut world, differs);
    let f = number_of(&world);
    (world, entry.node, sent, f)
}

fn number_of(world: &World) -> u64 {
    let d = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    world.server.fs.look(d, b"f").unwrap().unwrap()
}

/// The server says how the file is now.
fn tell(world: &World, results: &mut [MutationResult], tells: impl Fn(&mut Attrs)) {
    let mut told = world.server.attrs(number_of(world)).unwrap();
    tells(&mut told);
    let Some(MutationResult::Done { attrs, .. }) = results.last_mut() else { panic!("{results:?}") };
    *attrs = Some(told);
}

/// Its file system has even seconds alone, and it says so.
fn clip(world: &mut World, _: &Batch, results: &mut [MutationResult]) {
    let f = number_of(world);
    let f = world.server.fs.get_mut(f).unwrap();
    assert_eq!(f.mtime % 2, 1, "another than was given");
    f.mtime -= 1;
    tell(world, results, |_| {});
}

/// It believes no such time of who does not own the file, and says so.
fn disbelieve(world: &mut World, _: &Batch, results: &mut [MutationResult]) {
    let f = number_of(world);
    world.server.fs.get_mut(f).unwrap().mtime = 3;
    tell(world, results, |_| {});
}

/// What comes out again of what was sent is as it was, with what it has made.
fn comes_again_as_it_was(
    world: &mut World,
    sent: Vec<(Batch, Vec<MutationResult>)>,
    found: impl Fn(&mut Attrs),
) {
    let told = begin_anew_as(world, sent[0].0.txn - 1, found);
    let known = made_there::known(&sent, &told);
    let batches = again(world, sent);
    assert_eq!(batches.into_iter().map(|batch| batch.ops).collect::<Vec<_>>(), known);
    assert_eq!(world.clients[0].machine.conflicts(), []);
}

fn written_by_others(world: &mut World, ino: u64) {
    world.server.fs.write(ino, 0, b"theirs").unwrap();
    world.server.fs.get_mut(ino).unwrap().mtime = THEIRS;
}

/// The server begins anew, and says that it has executed nothing of what was sent.
fn begin_anew(world: &mut World, executed: u64) -> Vec<Reclaimed> {
    begin_anew_as(world, executed, |_| {})
}

/// The same; it has objects as this makes them.
fn begin_anew_as(world: &mut World, executed: u64, found: impl Fn(&mut Attrs)) -> Vec<Reclaimed> {
    begin_anew_with(world, executed, |attrs, _| found(attrs))
}

/// The same; it promises of them what this leaves.
fn begin_anew_with(
    world: &mut World,
    executed: u64,
    found: impl Fn(&mut Attrs, &mut Grant),
) -> Vec<Reclaimed> {
    let machine = &world.clients[0].machine;
    let all: Vec<_> = machine.in_question().into_iter().chain(machine.reclaim_list()).collect();
    world.server.restart();
    let mut told: Vec<_> = all.iter().map(|claim| world.server.reclaim(0, claim)).collect();
    told.iter_mut()
        .filter_map(|told| told.result.as_mut().ok())
        .for_each(|(attrs, grant)| found(attrs, grant));
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.reclaimed(told.clone(), now);
    machine.resume(Some(executed), 0, now);
    world.check(0);
    told
}

/// What comes out again, in the form that it had; it is answered as it was.
fn again(world: &mut World, sent: Vec<(Batch, Vec<MutationResult>)>) -> Vec<Batch> {
    let now = world.now();
    let mut all = Vec::new();
    for (before, results) in sent {
        let batch = world.clients[0].machine.take_batch(now).expect("it comes out again");
        assert_eq!(batch.txn, before.txn);
        let form = |batch: &Batch| batch.ops.iter().map(Mutation::operations).collect::<Vec<_>>();
        assert_eq!(form(&batch), form(&before), "by which it is named");
        world.clients[0].machine.batch_done(batch.txn, results, 0, now);
        world.check(0);
        all.push(batch);
    }
    all
}

fn carries(batches: &[Batch], what: &[u8]) -> bool {
    let pieces = |op: &Mutation| match op {
        Mutation::Make { object: NewObject::File { data, .. }, .. } | Mutation::Write { data, .. } => {
            data.clone()
        }
        _ => Vec::new(),
    };
    batches.iter().flat_map(|b| &b.ops).any(|op| pieces(op).iter().any(|(_, data)| data == what))
}

/// Theirs has the name, ours is beside it.
fn both(world: &World, (dir, name): (u64, &[u8]), what: &str) {
    let data = |ino: &u64| world.server.fs.inodes[ino].data.clone();
    let entries = &world.server.fs.inodes[&dir].entries;
    assert_eq!(data(&entries[name]), b"theirs", "{what}");
    let beside = [name, b"-"].concat();
    let beside: Vec<_> = entries.iter().filter(|(of, _)| of.starts_with(&beside)).collect();
    assert_eq!(beside.len(), 1, "{what}: {entries:?}");
    assert!(data(beside[0].1).starts_with(b"ours"), "{what}");
}

#[test]
fn what_others_have_written_since_is_not_written_over_and_ours_is_beside_it() {
    let (mut world, _, sent, f) = made();
    written_by_others(&mut world, f);
    begin_anew(&mut world, sent[0].0.txn - 1);
    let batches = again(&mut world, sent);
    assert!(!carries(&batches, b"ours"));
    send(&mut world);
    let d = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    both(&world, (d, b"f"), "made");
    assert!(!world.clients[0].machine.conflicts().is_empty());
}

/// What was sent behind what is lost was not executed, either, as far as the server knows: it rests on that.
#[test]
fn what_was_sent_behind_it_and_not_answered_spares_what_others_have_done_as_well() {
    let (mut world, node, mut sent, f) = made();
    let opened = world.run(0, |m, t, now| m.open(t, node, flags(), now)).unwrap();
    write(&mut world, opened.fh, b"ours, and more");
    close(&mut world, opened.fh);
    let changes = Changes { mode: Some(0o666), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
    let unanswered = world.one_batch();
    let results = world.server.batch(0, &unanswered);
    assert!(carries(std::slice::from_ref(&unanswered), b"ours, and more"));
    sent.push((unanswered, results));
    written_by_others(&mut world, f);
    world.server.fs.get_mut(f).unwrap().mode = 0o600;
    begin_anew(&mut world, sent[0].0.txn - 1);
    let batches = again(&mut world, sent);
    assert!(!carries(&batches, b"ours") && !carries(&batches, b"ours, and more"), "{batches:?}");
    let sets = |op: &Mutation| matches!(op, Mutation::SetAttr { changes: Changes { mode: Some(_), .. }, .. });
    assert!(!batches.iter().flat_map(|b| &b.ops).any(sets), "{batches:?}");
    send(&mut world);
    let d = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    world.server.fs.get_mut(f).unwrap().data.truncate(6);
    both(&world, (d, b"f"), "sent behind it");
}

/// It is known by its number, and answered as it was: another in its place would be refused.
#[test]
fn what_was_sent_and_is_executed_comes_out_as_it_was() {
    let (mut world, node, sent, f) = made();
    let opened = world.run(0, |m, t, now| m.open(t, node, flags(), now)).unwrap();
    write(&mut world, opened.fh, b"ours, and more");
    close(&mut world, opened.fh);
    let unanswered = world.one_batch();
    let results = world.server.batch(0, &unanswered);
    written_by_others(&mut world, f);
    begin_anew(&mut world, unanswered.txn);
    let batches = again(&mut world, vec![(unanswered.clone(), results)]);
    assert_eq!(batches[0].ops, unanswered.ops);
    assert!(sent.iter().all(|(batch, _)| batch.txn < unanswered.txn));
}

/// The disk may have what came of any of our changes.
#[test]
fn what_nobody_else_has_changed_comes_out_again_as_it_was() {
    for mtime in [None, Some(0)] {
        let (mut world, node, mut sent, f) = made();
        let first = world.server.fs.get(f).unwrap().mtime;
        let opened = world.run(0, |m, t, now| m.open(t, node, flags(), now)).unwrap();
        world.ms += 5000;
        write(&mut world, opened.fh, b"more");
        close(&mut world, opened.fh);
        sent.extend(send(&mut world));
        if mtime.is_some() {
            world.server.fs.get_mut(f).unwrap().mtime = first;
        }
        let told = begin_anew(&mut world, sent[0].0.txn - 1);
        let known = made_there::known(&sent, &told);
        let batches = again(&mut world, sent);
        assert_eq!(batches.into_iter().map(|batch| batch.ops).collect::<Vec<_>>(), known);
    }
}

#[test]
fn a_time_that_the_server_has_made_another_is_nobody_elses_change() {
    let (mut world, _, sent, _) = made_and(clip);
    comes_again_as_it_was(&mut world, sent, |_| {});

    let (mut world, node, mut sent, _) = made();
    let opened = world.run(0, |m, t, now| m.open(t, node, flags(), now)).unwrap();
    let mtime = Some(SetTime::At(Timestamp { seconds: 4000, nanos: 0 }));
    let changes = Changes { mtime, ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
    close(&mut world, opened.fh);
    sent.extend(send_and(&mut world, disbelieve));
    assert!(sent.len() > 1, "it was put off");
    comes_again_as_it_was(&mut world, sent, |_| {});
}

/// A file is made, or written, before it is given its time: the disk may have it as it was in between.
#[test]
fn a_time_of_the_servers_clock_is_nobody_elses_change_when_the_power_went_before_another_was_set() {
    let at = |seconds| Timestamp { seconds, nanos: 0 };
    for (btime, mtime, ctime, is_theirs) in [
        (1000, 1000, 1000, false),
        (1000, 1001, 1001, true),
        (1000, 1000, 1001, true),
        (900, 1000, 1000, true),
    ] {
        let (mut world, _, sent, _) = made();
        begin_anew_as(&mut world, sent[0].0.txn - 1, |attrs| {
            (attrs.btime, attrs.mtime, attrs.ctime) = (Some(at(btime)), at(mtime), at(ctime));
        });
        assert_eq!(carries(&again(&mut world, sent), b"ours"), !is_theirs, "{btime} {mtime} {ctime}");
    }
    // By its clock it was written at 1000 seconds, and nobody else can have been there.
    for (mtime, ctime, is_theirs) in
        [(1000, 1000, false), (1001, 1001, true), (1000, 1001, true), (900, 900, true), (900, 1000, true)]
    {
        let (mut world, node, mut sent, _) = made();
        let opened = world.run(0, |m, t, now| m.open(t, node, flags(), now)).unwrap();
        write(&mut world, opened.fh, b"more");
        close(&mut world, opened.fh);
        sent.extend(send_and(&mut world, |world, _, results| {
            tell(world, results, |told| told.ctime = at(1000));
        }));
        assert!(sent.len() > 1, "it was put off");
        begin_anew_as(&mut world, sent[0].0.txn - 1, |attrs| {
            (attrs.mtime, attrs.ctime) = (at(mtime), at(ctime));
        });
        assert_eq!(carries(&again(&mut world, sent), b"more"), !is_theirs, "{mtime} {ctime}");
    }
}

/// It was killed when it had written what was under way, and not set the time that comes behind that.
#[test]
fn what_the_server_was_in_the_middle_of_is_nobody_elses_change_where_nobody_else_could_be_there() {
    let at = |seconds| Timestamp { seconds, nanos: 0 };
    let all = [
        (1000, true, 4, false, false),
        (1001, true, 4, false, true),
        (1000, false, 4, false, true),
        (1000, true, 7, false, true),
        // A local process was there when the server was dead.
        (1000, true, 4, true, true),
    ];
    for (ctime, is_promised, size, changed_since, is_theirs) in all {
        let (mut world, node, mut sent, _) = made();
        let opened = world.run(0, |m, t, now| m.open(t, node, flags(), now)).unwrap();
        write(&mut world, opened.fh, b"more");
        close(&mut world, opened.fh);
        let unanswered = world.one_batch();
        let results = world.server.batch(0, &unanswered);
        sent.push((unanswered, results));
        begin_anew_with(&mut world, sent[0].0.txn - 1, |attrs, grant| {
            if attrs.kind == Kind::File {
                (attrs.mtime, attrs.ctime, attrs.size) = (at(1000), at(ctime), size);
                grant.changed_since = changed_since;
                grant.caps = if is_promised { grant.caps } else { grant.caps.without(CapSet::FILE_X) };
            }
        });
        let batches = again(&mut world, sent);
        let case = format!("{ctime} {is_promised} {size} {changed_since}");
        assert_eq!(carries(&batches, b"more"), !is_theirs, "{case}");
        assert_eq!(world.clients[0].machine.conflicts().is_empty(), !is_theirs, "{case}");
    }
}

#[test]
fn what_others_have_written_since_is_told_from_a_time_that_the_server_has_made_another() {
    let (mut world, _, sent, f) = made_and(clip);
    written_by_others(&mut world, f);
    begin_anew(&mut world, sent[0].0.txn - 1);
    let batches = again(&mut world, sent);
    assert!(!carries(&batches, b"ours"));
    send(&mut world);
    let d = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    both(&world, (d, b"f"), "made");
}

#[test]
fn a_mode_that_others_have_set_since_stays() {
    let (mut world, node, mut sent, f) = made();
    let changes = Changes { mode: Some(0o666), ..Changes::default() };
    world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
    sent.extend(send(&mut world));
    world.server.fs.get_mut(f).unwrap().mode = 0o600;
    begin_anew(&mut world, sent[0].0.txn - 1);
    let batches = again(&mut world, sent);
    let sets = |op: &Mutation| matches!(op, Mutation::SetAttr { changes: Changes { mode: Some(_), .. }, .. });
    assert!(!batches.iter().flat_map(|b| &b.ops).any(sets), "{batches:?}");
    assert!(carries(&batches, b"ours"), "its contents are ours");
}

#[test]
fn so_it_is_where_the_mount_works_without_the_server_of_what_was_there_before_too() {
    for (is_new, dies) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut world = knowing(1);
        (world.alone, world.server.unwatched) = (true, true);
        world.clients[0].machine.hold(true);
        world.clients[0].machine.assume();
        let name: &[u8] = if is_new { b"n" } else { b"f" };
        let opened = if is_new {
            world.run(0, |m, t, now| m.create(t, NodeId::ROOT, name, 0o644, flags(), now)).unwrap().1
        } else {
            let found = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
            let Lookup::Found(entry) = found else { panic!("it is there") };
            world.run(0, |m, t, now| m.open(t, entry.node, flags(), now)).unwrap()
        };
        write(&mut world, opened.fh, b"ours");
        let now = world.now();
        world.clients[0].machine.release(opened.fh, now);
        world.clients[0].machine.hold(false);
        let sent = send(&mut world);
        world.clients[0].machine.hold(true);
        world.clients[0].machine.assume();
        let f = world.server.fs.look(ROOT, name).unwrap().unwrap();
        written_by_others(&mut world, f);
        world.server.fs.get_mut(f).unwrap().data.truncate(6);
        if dies {
            world.keep(0);
            let (settings, now) = (*world.clients[0].machine.settings_mut(), world.now());
            let kept = world.kept.clone().unwrap();
            world.clients[0].machine = Machine::restore(&kept, settings, now).unwrap();
            world.clients[0].machine.follow();
        }
        world.alone = false;
        world.server.restart();
        let now = world.now();
        world.clients[0].machine.resume(Some(sent[0].0.txn - 1), 0, now);
        let claims = world.clients[0].machine.claims();
        let told: Vec<_> = claims.iter().map(|claim| world.server.reclaim(0, claim)).collect();
        let machine = &mut world.clients[0].machine;
        machine.merge(&told, Vec::new(), now);
        machine.reclaimed(told, now);
        machine.hold(false);
        world.check(0);
        let batches = again(&mut world, sent);
        assert!(!carries(&batches, b"ours"), "new: {is_new}, dies: {dies}");
        send(&mut world);
        both(&world, (ROOT, name), &format!("new: {is_new}, dies: {dies}"));
    }
}
