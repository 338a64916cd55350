//! Restarts of the server.

use holdfast_nlm::NoAnswer;
use holdfast_wire::nlm4::NlmStat4;
use holdfast_wire::nsm::{NSM_PROGRAM, SM_NOTIFY, StatChange};
use holdfast_xdr::from_bytes;

use crate::world::{Process, World};

const P: Process = Process(7);
const ALL: (u64, u64, bool) = (0, 0, true);

#[test]
fn hosts_with_locks_are_told_of_a_restart_until_they_have_heard() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    b.is_monitored = false;
    assert_eq!(b.lock(&world.fh(&world.file("g")), P, ALL), NlmStat4::Granted);
    drop((a, b));
    let world = world.restart(2, true);
    world.work();
    let (call, answered) = world.next_call().expect("A is told");
    assert!(world.next_call().is_none(), "B asked not to be");
    assert_eq!((call.peer, call.program, call.procedure), ([192, 0, 2, 1].into(), NSM_PROGRAM, SM_NOTIFY));
    let change: StatChange<'_> = from_bytes(&call.args).unwrap();
    assert_eq!((change.mon_name, change.state), (&b"server"[..], 5));
    answered(Err(NoAnswer { why: holdfast_rpc::CallError::Closed, may_have_run: true }));
    world.work();
    assert!(world.next_call().is_none(), "not at once");
    world.wait_ms(2000);
    let (_, answered) = world.next_call().expect("again");
    answered(Ok(Vec::new()));
    world.wait_ms(100_000);
    assert!(world.next_call().is_none());
    assert_eq!(world.lockd.untold(), 0);
}

#[test]
fn in_grace_recorded_hosts_reclaim_and_nobody_gets_anything_new() {
    let world = World::new();
    let file = world.file("f");
    let fh = world.fh(&file);
    let mut a = world.client(1);
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    drop(a);
    let world = world.restart(2, true);
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(b.lock(&fh, P, ALL), NlmStat4::DeniedGracePeriod);
    assert_eq!(b.wait(&fh, P, ALL), NlmStat4::DeniedGracePeriod);
    assert_eq!(b.reclaim(&fh, P, ALL), NlmStat4::Denied, "it is not on record");
    assert_eq!(a.reclaim(&fh, P, ALL), NlmStat4::Granted);
    world.end_grace();
    assert_eq!(b.lock(&fh, P, ALL), NlmStat4::Denied, "A has it again");
    assert_eq!(a.reclaim(&fh, Process(9), ALL), NlmStat4::DeniedGracePeriod, "too late");
}

#[test]
fn who_missed_a_grace_cannot_reclaim_in_the_next() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let mut a = world.client(1);
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    drop(a);
    let world = world.restart(2, true);
    world.end_grace();
    let mut b = world.client(2);
    assert_eq!(b.lock(&fh, P, ALL), NlmStat4::Granted, "A was not heard of");
    b.unlock(&fh, P, ALL);
    drop(b);
    let world = world.restart(3, true);
    let mut a = world.client(1);
    assert_eq!(a.reclaim(&fh, P, ALL), NlmStat4::Denied);
}

#[test]
fn who_lost_a_lock_to_the_administrator_hears_of_a_restart_and_reclaims_nothing() {
    let world = World::new();
    let (fh, other) = (world.fh(&world.file("f")), world.fh(&world.file("g")));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    let held = &world.lockd.report()[0];
    assert!(world.lockd.take_away(held.owner, held.file));
    assert_eq!(b.lock(&fh, P, ALL), NlmStat4::Granted, "it is free");
    // What it is granted since does not give it the right to reclaim.
    assert_eq!(a.lock(&other, P, ALL), NlmStat4::Granted);
    b.unlock(&fh, P, ALL);
    drop((a, b));
    world.wait_ms(1_000_000);
    assert_eq!(holdfast_nlm::has_holders(world.machine.store.as_ref()), Ok(true), "grace waits for A alone");
    let world = world.restart(2, true);
    world.work();
    let (call, _) = world.next_call().expect("A is told, and learns that it has nothing any more");
    assert_eq!((call.peer, call.procedure), ([192, 0, 2, 1].into(), SM_NOTIFY));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(b.lock(&other, P, ALL), NlmStat4::DeniedGracePeriod, "while A may believe in it");
    assert_eq!(a.reclaim(&fh, P, ALL), NlmStat4::Denied, "it does not know that it has lost it");
    assert_eq!(a.reclaim(&other, P, ALL), NlmStat4::Denied);
    drop((a, b));
    let world = world.restart(3, true);
    let mut a = world.client(1);
    assert_eq!(a.reclaim(&other, P, ALL), NlmStat4::Denied, "a grace that did not end changes nothing");
    world.end_grace();
    assert_eq!(holdfast_nlm::has_holders(world.machine.store.as_ref()), Ok(false));
    assert_eq!(world.client(2).lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(a.lock(&other, P, ALL), NlmStat4::Granted);
    drop(a);
    let world = world.restart(4, true);
    let reclaimed = (world.client(1).reclaim(&other, P, ALL), world.client(2).reclaim(&fh, P, ALL));
    assert_eq!(reclaimed, (NlmStat4::Granted, NlmStat4::Granted), "it has begun anew");
}

#[test]
fn who_loses_a_lock_in_grace_may_not_reclaim_the_rest_after_it() {
    let world = World::new();
    let (fh, other) = (world.fh(&world.file("f")), world.fh(&world.file("g")));
    let mut a = world.client(1);
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(a.lock(&other, P, ALL), NlmStat4::Granted);
    drop(a);
    let world = world.restart(2, true);
    let mut a = world.client(1);
    assert_eq!(a.reclaim(&fh, P, ALL), NlmStat4::Granted);
    let held = &world.lockd.report()[0];
    assert!(world.lockd.take_away(held.owner, held.file));
    assert_eq!(a.reclaim(&other, P, ALL), NlmStat4::Denied);
    world.end_grace();
    assert_eq!(world.client(2).lock(&fh, P, ALL), NlmStat4::Granted);
    drop(a);
    let world = world.restart(3, true);
    assert_eq!(world.lockd.untold(), 2);
    assert_eq!(world.client(1).reclaim(&fh, P, ALL), NlmStat4::Denied);
}

/// The one lock that is held, which the administrator could not take, as the disk fails.
fn taken_in_vain(world: &World) -> holdfast_nlm::OwnerFileReport {
    let held = world.lockd.report().swap_remove(0);
    let is_broken = &world.machine.store.is_broken;
    is_broken.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(!world.lockd.take_away(held.owner, held.file));
    is_broken.store(false, std::sync::atomic::Ordering::SeqCst);
    held
}

#[test]
fn nothing_is_taken_from_a_host_whose_record_cannot_be_changed() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let mut a = world.client(1);
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    taken_in_vain(&world);
    assert_eq!(world.client(2).lock(&fh, P, ALL), NlmStat4::Denied);
    // What the record says now is not known, so the next lock has it written.
    assert_eq!(a.lock(&world.fh(&world.file("g")), P, ALL), NlmStat4::Granted);
    drop(a);
    let world = world.restart(2, true);
    assert_eq!(world.client(1).reclaim(&fh, P, ALL), NlmStat4::Granted);
}

#[test]
fn what_is_taken_at_the_second_try_is_not_reclaimed_either() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let mut a = world.client(1);
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    let held = taken_in_vain(&world);
    assert!(world.lockd.take_away(held.owner, held.file));
    assert_eq!(world.client(2).lock(&fh, P, ALL), NlmStat4::Granted);
    drop(a);
    let world = world.restart(2, true);
    assert_eq!(world.client(1).reclaim(&fh, P, ALL), NlmStat4::Denied);
    assert_eq!(world.client(2).reclaim(&fh, P, ALL), NlmStat4::Granted);
}

#[test]
fn who_lost_a_lock_and_restarted_is_on_record_again() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let mut a = world.client(1);
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    let held = &world.lockd.report()[0];
    assert!(world.lockd.take_away(held.owner, held.file));
    a.notify(b"client1", 3);
    world.work();
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    drop(a);
    let world = world.restart(2, true);
    assert_eq!(world.client(1).reclaim(&fh, P, ALL), NlmStat4::Granted);
}

#[test]
fn a_restart_in_the_middle_of_grace_takes_nobodys_right_away() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let mut a = world.client(1);
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    drop(a);
    let world = world.restart(2, true).restart(3, true);
    let mut a = world.client(1);
    assert_eq!(a.reclaim(&fh, P, ALL), NlmStat4::Granted);
}

#[test]
fn a_host_that_has_nothing_for_long_is_not_told_of_a_restart() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let mut a = world.client(1);
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    world.wait_ms(1_000_000);
    a.unlock(&fh, P, ALL);
    assert_eq!(holdfast_nlm::has_holders(world.machine.store.as_ref()), Ok(true));
    world.wait_ms(1_000_000);
    assert_eq!(holdfast_nlm::has_holders(world.machine.store.as_ref()), Ok(false));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(holdfast_nlm::has_holders(world.machine.store.as_ref()), Ok(true), "on record again");
}

#[test]
fn a_call_that_was_denied_puts_nobody_on_record() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(b.lock(&fh, P, ALL), NlmStat4::Denied);
    assert_eq!(c.wait(&fh, P, ALL), NlmStat4::Blocked);
    drop((a, b, c));
    let world = world.restart(2, true);
    assert_eq!(world.lockd.untold(), 2, "A, and C, who may be granted at any moment");
}

#[test]
fn grace_that_cannot_be_ended_on_disk_leaves_everybody_the_right_to_reclaim_and_ends_later() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let mut a = world.client(1);
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    drop(a);
    let world = world.restart(2, true);
    world.machine.store.is_broken.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(world.lockd.end_grace().is_err());
    world.machine.store.is_broken.store(false, std::sync::atomic::Ordering::SeqCst);
    world.end_grace();
    assert_eq!(holdfast_nlm::has_holders(world.machine.store.as_ref()), Ok(false), "A missed it");
}
