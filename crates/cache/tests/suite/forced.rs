//! Who syncs asks the server once: the last batch of what is synced is answered when it is on the disk. Nobody else waits for that.

use crate::world::World;
use bytes::Bytes;
use holdfast_base::limits::{FORCED_BYTES_MAX, FORCED_PATIENCE_MS};
use holdfast_cache::*;

/// A mount that has its root alone, and a new file with a little in it.
fn begun() -> (World, NodeId, Fh) {
    let mut world = World::new(1, true, 1);
    world.have_root_alone();
    let (file, fh) = world.made_and_open(b"x");
    write(&mut world, fh, 100);
    (world, file, fh)
}

fn write(world: &mut World, fh: Fh, bytes: usize) {
    world.run(0, |m, t, now| m.write(t, fh, 0, &Bytes::from(vec![7; bytes]), now)).unwrap();
}

fn turn() -> Turn {
    Turn::new(Caller::new(7, 0))
}

/// Whether that is on the disk; what it is told.
fn sync(world: &mut World, (file, fh): (NodeId, Fh), turn: &mut Turn) -> Option<Result<(), Errno>> {
    let now = world.now();
    match world.clients[0].machine.fsync(turn, file, Some(fh), now) {
        Step::Done(()) => Some(Ok(())),
        Step::Failed(errno) => Some(Err(errno)),
        Step::Wait(_) => None,
        Step::Ask(ask) => panic!("{ask:?}"),
    }
}

fn take(world: &mut World) -> Option<Batch> {
    let now = world.now();
    world.clients[0].machine.take_batch(now)
}

/// The batch that is to go out now, which is to be on disk when it is answered.
fn forced(world: &mut World) -> (Batch, Vec<MutationResult>) {
    let batch = take(world).expect("a batch");
    assert_eq!(batch.until, Until::Stable);
    let results = world.server.batch(0, &batch);
    (batch, results)
}

fn answer(
    world: &mut World,
    (batch, results): (Batch, Vec<MutationResult>),
    told: (u64, &[(u64, u32, Errno)]),
) {
    let now = world.now();
    world.clients[0].machine.batch_answered(&batch, results, told, now);
}

fn stable(world: &mut World) -> Option<u64> {
    let now = world.now();
    world.clients[0].machine.take_stable(now)
}

#[test]
fn a_file_is_on_the_disk_by_one_call() {
    let (mut world, file, fh) = begun();
    let mut turn = turn();
    assert_eq!(sync(&mut world, (file, fh), &mut turn), None);
    let sent = forced(&mut world);
    let txn = sent.0.txn;
    assert_eq!((take(&mut world), stable(&mut world)), (None, None));
    assert_eq!(sync(&mut world, (file, fh), &mut turn), None, "there is no answer");
    answer(&mut world, sent, (txn, &[]));
    assert_eq!(sync(&mut world, (file, fh), &mut turn), Some(Ok(())));
    assert_eq!((take(&mut world), stable(&mut world)), (None, None));
    world.check(0);
}

#[test]
fn one_that_carries_much_is_answered_when_it_is_executed() {
    for (bytes, until) in [(FORCED_BYTES_MAX / 2, Until::Stable), (FORCED_BYTES_MAX + 1, Until::Executed)] {
        let (mut world, file, fh) = begun();
        write(&mut world, fh, bytes);
        assert_eq!(sync(&mut world, (file, fh), &mut turn()), None);
        assert_eq!(take(&mut world).expect("a batch").until, until, "{bytes}");
    }
}

#[test]
fn several_who_sync_are_served_by_one() {
    let (mut world, file, fh) = begun();
    let (other, other_fh) = world.made_and_open(b"y");
    write(&mut world, other_fh, 100);
    let mut turns = [turn(), turn()];
    assert_eq!(sync(&mut world, (file, fh), &mut turns[0]), None);
    assert_eq!(sync(&mut world, (other, other_fh), &mut turns[1]), None);
    let sent = forced(&mut world);
    let txn = sent.0.txn;
    answer(&mut world, sent, (txn, &[]));
    assert_eq!(sync(&mut world, (file, fh), &mut turns[0]), Some(Ok(())));
    assert_eq!(sync(&mut world, (other, other_fh), &mut turns[1]), Some(Ok(())));
    assert_eq!(stable(&mut world), None);
}

#[test]
fn the_rest_is_asked_for_where_an_answer_did_not_wait() {
    let (mut world, file, fh) = begun();
    let mut turn = turn();
    assert_eq!(sync(&mut world, (file, fh), &mut turn), None);
    let sent = forced(&mut world);
    let txn = sent.0.txn;
    answer(&mut world, sent, (0, &[]));
    assert_eq!(sync(&mut world, (file, fh), &mut turn), None);
    assert_eq!(stable(&mut world), Some(txn));
    let now = world.now();
    world.clients[0].machine.stable_done(txn, &[], now);
    assert_eq!(sync(&mut world, (file, fh), &mut turn), Some(Ok(())));
}

#[test]
fn a_server_that_cannot_is_asked_twice() {
    let (mut world, file, fh) = begun();
    world.clients[0].machine.settings_mut().forces = false;
    assert_eq!(sync(&mut world, (file, fh), &mut turn()), None);
    let batch = take(&mut world).unwrap();
    assert_eq!(batch.until, Until::Executed);
    let results = world.server.batch(0, &batch);
    let txn = batch.txn;
    answer(&mut world, (batch, results), (0, &[]));
    assert_eq!(sync(&mut world, (file, fh), &mut turn()), None);
    assert_eq!(stable(&mut world), Some(txn));
}

#[test]
fn what_is_not_on_the_disk_is_told_once() {
    let (mut world, file, fh) = begun();
    let mut syncing = turn();
    assert_eq!(sync(&mut world, (file, fh), &mut syncing), None);
    let sent = forced(&mut world);
    let failed = [(sent.0.txn, 0, Errno::EIO)];
    let txn = sent.0.txn;
    answer(&mut world, sent, (txn, &failed));
    assert_eq!(sync(&mut world, (file, fh), &mut syncing), Some(Err(Errno::EIO)));
    // The server tells it anew with the next one.
    write(&mut world, fh, 200);
    let mut again = turn();
    assert_eq!(sync(&mut world, (file, fh), &mut again), None);
    let sent = forced(&mut world);
    let txn = sent.0.txn;
    answer(&mut world, sent, (txn, &failed));
    assert_eq!(sync(&mut world, (file, fh), &mut again), Some(Ok(())));
}

#[test]
fn one_whose_answer_is_lost_is_sent_again_as_it_was_and_tells_what_failed() {
    let (mut world, file, fh) = begun();
    let mut turn = turn();
    assert_eq!(sync(&mut world, (file, fh), &mut turn), None);
    let (lost, _) = forced(&mut world);
    world.clients[0].machine.batch_lost(lost.txn);
    let sent = forced(&mut world);
    assert_eq!((sent.0.txn, &sent.0.ops), (lost.txn, &lost.ops));
    let txn = lost.txn;
    answer(&mut world, sent, (txn, &[(txn, 0, Errno::ENOSPC)]));
    assert_eq!(sync(&mut world, (file, fh), &mut turn), Some(Err(Errno::ENOSPC)));
}

#[test]
fn who_waits_for_results_alone_waits_for_no_disk() {
    let (mut world, file, fh) = begun();
    let mut turn = turn();
    assert_eq!(sync(&mut world, (file, fh), &mut turn), None);
    let sent = forced(&mut world);
    // Data beside the stream needs the handle of what the batch makes.
    write(&mut world, fh, 300_000);
    let now = world.now();
    let jobs = world.clients[0].machine.take_jobs(now).into_iter();
    let again = jobs.filter_map(|job| if let Job::Batch(batch) = job { Some(batch) } else { None }).next();
    let again = again.expect("it is sent again, and at once");
    assert_eq!((again.txn, again.until, &again.ops), (sent.0.txn, Until::Executed, &sent.0.ops));
    assert_eq!(take(&mut world), None, "once");
    let machine = &world.clients[0].machine;
    assert!(machine.is_superseded(&sent.0) && !machine.is_superseded(&again), "the first is not made anew");
    let results = world.server.batch(0, &again);
    let txn = again.txn;
    answer(&mut world, (again, results), (0, &[]));
    assert!(world.clients[0].machine.take_write(now).is_some());
    // The first answer tells of the disk, and of what failed, all the same.
    answer(&mut world, sent, (txn, &[(txn, 0, Errno::EIO)]));
    assert_eq!(world.clients[0].machine.losses(file, fh), Err(Errno::EIO));
    assert_eq!(world.clients[0].machine.done_through(), txn);
}

#[test]
fn others_have_room_beside_it_and_the_line_is_taken_for_no_slower() {
    let (mut world, file, fh) = begun();
    world.clients[0].machine.settings_mut().batches_in_flight_max = 1;
    let mut turn = turn();
    assert_eq!(sync(&mut world, (file, fh), &mut turn), None);
    let sent = forced(&mut world);
    // Old enough to go, and nobody waits for its being on the disk.
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"y", 0o755, now)).unwrap();
    world.ms += 10_000;
    let beside = take(&mut world).expect("there is room");
    assert_eq!(beside.until, Until::Executed);
    let txn = sent.0.txn;
    answer(&mut world, sent, (txn, &[]));
    let results = world.server.batch(0, &beside);
    answer(&mut world, (beside, results), (0, &[]));
    assert_eq!(sync(&mut world, (file, fh), &mut turn), Some(Ok(())));
    world.clients[0].machine.settings_mut().batches_in_flight_max = 8;
    for name in [b"z", b"v"] {
        world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, name, 0o755, now)).unwrap();
        world.ms += 10_000;
        assert!(take(&mut world).is_some(), "two may be under way, as in the beginning");
    }
}

#[test]
fn what_is_executed_already_does_not_wait_for_ever_for_one_that_is_not() {
    let (mut world, _, _) = begun();
    world.ms += 10_000;
    let batch = take(&mut world).unwrap();
    let results = world.server.batch(0, &batch);
    let executed = batch.txn;
    answer(&mut world, (batch, results), (0, &[]));
    let (other, other_fh) = world.made_and_open(b"y");
    let mut turn = turn();
    assert_eq!(sync(&mut world, (other, other_fh), &mut turn), None);
    let _under_way = forced(&mut world);
    assert_eq!(stable(&mut world), None);
    let now = world.now();
    let wakes = world.clients[0].machine.next_wake(now).expect("it is looked for again");
    assert!(wakes <= now.mono.after_ms(FORCED_PATIENCE_MS));
    world.ms += FORCED_PATIENCE_MS;
    assert_eq!(stable(&mut world), Some(executed));
}
