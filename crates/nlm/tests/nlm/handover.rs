//! A planned restart: another process goes on.

use std::sync::atomic::Ordering;

use holdfast_nlm::handover::Image;
use holdfast_vfs::LockKind;
use holdfast_vfs::handover::Incoming;
use holdfast_wire::nlm4::NlmStat4;

use crate::world::{Process, World, range};

const P: Process = Process(7);
const ALL: (u64, u64, bool) = (0, 0, true);

/// The world after a handover, by way of the image's own form. The backend's locks need no descriptors here: nobody
/// local looks at the export.
fn handed_over(world: World) -> World {
    handed_over_but(world, |_| (), 0)
}

/// The same where something happens to the image on its way, and so many files are said to be lost.
fn handed_over_but(world: World, change: impl FnOnce(&mut serde_json::Value), lost: usize) -> World {
    assert!(world.lockd.hold());
    let image = world.lockd.freeze(&mut holdfast_vfs::handover::Outgoing::default()).unwrap();
    let mut image = serde_json::to_value(&image).unwrap();
    change(&mut image);
    let bytes = serde_json::to_vec(&image).unwrap();
    let engine = serde_json::to_vec(&world.manager.look(holdfast_state::Engine::freeze)).unwrap();
    let world = world.hand_over(&engine);
    let image: Image = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(world.lockd.thaw(image, &Incoming::default()), lost);
    world
}

#[test]
fn locks_and_those_who_wait_are_the_same_in_the_next_process() {
    let world = World::without_outsiders();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(b.wait(&fh, P, ALL), NlmStat4::Blocked);
    drop((a, b));
    let world = handed_over(world);
    assert_eq!(world.lockd.untold(), 0, "nobody is told of a restart");
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(c.test(&fh, P, ALL), Err((7, 0, 0, true)));
    assert_eq!(a.unlock(&fh, P, ALL), NlmStat4::Granted);
    let told = world.next_granted().expect("B");
    assert_eq!(told.call.peer, b.ip);
    told.answer(NlmStat4::Granted);
    world.work();
    assert_eq!(c.lock(&fh, Process(8), ALL), NlmStat4::Denied);
    b.notify(b"client2", 9);
    assert_eq!((c.test(&fh, P, ALL), world.lockd.counts()), (Ok(()), (0, 0)));
}

/// A store of descriptors may not have kept all of them.
#[test]
fn a_lock_whose_descriptor_does_not_arrive_is_a_lock_all_the_same() {
    let world = World::without_outsiders();
    let file = world.file("f");
    let fh = world.fh(&file);
    let mut a = world.client(1);
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    drop(a);
    world.machine.fs.lie_on_other_hosts();
    let world =
        handed_over_but(world, |image| image["files"][0]["carrier"] = serde_json::json!([0, false]), 1);
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(b.lock(&fh, P, ALL), NlmStat4::Denied);
    let outside = || world.machine.fs.lock_outside(&file, range(0, 9), LockKind::Read);
    assert!(outside().is_err(), "it is had again below");
    assert_eq!(a.unlock(&fh, P, ALL), NlmStat4::Granted);
    assert!(outside().is_ok());
}

#[test]
fn who_lost_a_lock_to_the_administrator_has_lost_it_in_the_next_process_too() {
    let world = World::without_outsiders();
    let (fh, other) = (world.fh(&world.file("f")), world.fh(&world.file("g")));
    let (mut a, mut b) = (world.client(1), world.client(2));
    for client in [&mut a, &mut b] {
        client.state = 3;
    }
    assert_eq!((a.lock(&fh, P, ALL), b.lock(&other, P, ALL)), (NlmStat4::Granted, NlmStat4::Granted));
    for held in world.lockd.report() {
        assert!(world.lockd.take_away(held.owner, held.file));
    }
    // B restarts, and what it has from then on is its own.
    b.notify(b"client2", 5);
    drop((a, b));
    let world = handed_over(world);
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!((a.lock(&other, P, ALL), b.lock(&fh, P, ALL)), (NlmStat4::Granted, NlmStat4::Granted));
    drop((a, b));
    let world = world.restart(2, true);
    assert_eq!(world.lockd.untold(), 2);
    assert_eq!(world.client(1).reclaim(&other, P, ALL), NlmStat4::Denied);
    assert_eq!(world.client(2).reclaim(&fh, P, ALL), NlmStat4::Granted);
}

#[test]
fn a_client_that_was_being_told_is_told_again() {
    let world = World::without_outsiders();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!((a.lock(&fh, P, ALL), b.wait(&fh, P, ALL)), (NlmStat4::Granted, NlmStat4::Blocked));
    a.unlock(&fh, P, ALL);
    drop(world.next_granted().expect("B"));
    drop((a, b));
    let world = handed_over(world);
    let told = world.next_granted().expect("B again");
    told.answer(NlmStat4::Granted);
    world.work();
    assert_eq!(world.lockd.counts(), (1, 0));
}

/// A has the lock, B and C wait; A lets go.
fn three(world: &World) -> Vec<u8> {
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!((b.wait(&fh, P, ALL), c.wait(&fh, P, ALL)), (NlmStat4::Blocked, NlmStat4::Blocked));
    a.unlock(&fh, P, ALL);
    fh
}

#[test]
fn a_client_whose_answer_the_restart_swallowed_keeps_what_it_then_refuses() {
    let world = World::without_outsiders();
    let fh = three(&world);
    let told = world.next_granted().expect("B");
    let world = handed_over(world);
    // To a process that is no more.
    told.answer(NlmStat4::Granted);
    world.next_granted().expect("B again").answer(NlmStat4::Denied);
    assert!(world.next_granted().is_none(), "C must not have it as well");
    let mut b = world.client(2);
    assert_eq!(b.unlock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(world.next_granted().expect("C").call.peer, world.client(3).ip);
}

#[test]
fn what_a_client_had_answered_before_the_restart_is_heard_after_it() {
    for (stat, next) in [(NlmStat4::Granted, None), (NlmStat4::Denied, Some([192, 0, 2, 3].into()))] {
        let world = World::without_outsiders();
        three(&world);
        world.next_granted().expect("B").answer(stat);
        let world = handed_over(world);
        assert_eq!(world.next_granted().map(|told| told.call.peer), next, "{stat}");
    }
}

#[test]
fn a_grant_that_nobody_had_told_of_before_the_restart_is_told_after_it() {
    let world = World::without_outsiders();
    three(&world);
    let world = handed_over(world);
    assert_eq!(world.next_granted().expect("B").call.peer, world.client(2).ip);
    assert!(world.next_granted().is_none(), "C waits");
}

#[test]
fn a_client_that_is_being_told_has_a_moment_to_answer() {
    let world = World::without_outsiders();
    three(&world);
    let told = world.next_granted().expect("B");
    let slow = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        told.answer(NlmStat4::Denied);
    });
    let world = handed_over(world);
    slow.join().unwrap();
    assert_eq!(world.next_granted().expect("C").call.peer, world.client(3).ip);
}

#[test]
fn a_worker_that_does_not_come_to_an_end_does_not_hold_up_everything_else() {
    let world = World::without_outsiders();
    three(&world);
    let jam = world.wire.jam();
    std::thread::scope(|scope| {
        scope.spawn(|| world.work());
        while !world.wire.is_waited_for() {
            std::thread::yield_now();
        }
        assert!(!world.lockd.hold());
        drop(jam);
    });
    assert!(world.next_granted().is_some(), "it goes on");
}

#[test]
fn hosts_that_have_not_heard_of_the_last_restart_are_told_by_the_next_process() {
    let world = World::without_outsiders();
    let fh = world.fh(&world.file("f"));
    assert_eq!(world.client(1).lock(&fh, P, ALL), NlmStat4::Granted);
    let world = world.restart(1, true);
    world.end_grace();
    assert_eq!(world.lockd.untold(), 1);
    let world = handed_over(world);
    world.work();
    assert_eq!(world.next_call().expect("SM_NOTIFY").0.peer, world.client(1).ip);
}

#[test]
fn whose_grace_is_over_but_for_the_records_reclaims_nothing_after_the_next_process_has_ended_it() {
    let world = World::without_outsiders();
    let fh = world.fh(&world.file("f"));
    assert_eq!(world.client(1).lock(&fh, P, ALL), NlmStat4::Granted);
    let world = world.restart(1, true);
    world.machine.store.is_broken.store(true, Ordering::SeqCst);
    assert!(world.lockd.end_grace().is_err());
    let world = handed_over(world);
    assert_eq!(
        world.client(2).lock(&fh, P, ALL),
        NlmStat4::DeniedGracePeriod,
        "the first may reclaim it yet"
    );
    world.machine.store.is_broken.store(false, Ordering::SeqCst);
    world.end_grace();
    assert_eq!(world.client(2).lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(world.client(2).unlock(&fh, P, ALL), NlmStat4::Granted);
    let world = world.restart(2, true);
    assert_eq!(world.client(1).reclaim(&fh, P, ALL), NlmStat4::Denied, "another has had it since");
}
