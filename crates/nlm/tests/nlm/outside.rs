//! Locks and processes outside the server.

use holdfast_vfs::LockKind;
use holdfast_wire::nlm4::NlmStat4;

use crate::world::{Process, World, range};

const P: Process = Process(7);

#[test]
fn a_lock_outside_is_in_the_way_and_ours_are_seen_outside() {
    let world = World::new();
    let file = world.file("f");
    let fh = world.fh(&file);
    let mut a = world.client(1);
    world.machine.fs.lock_outside(&file, range(0, 9), LockKind::Read).unwrap();
    assert_eq!(a.lock(&fh, P, (5, 10, true)), NlmStat4::Denied);
    assert_eq!(a.test(&fh, P, (5, 10, true)), Err((0, 0, 10, false)));
    assert_eq!(a.lock(&fh, P, (5, 10, false)), NlmStat4::Granted);
    assert!(world.machine.fs.lock_outside(&file, range(12, 12), LockKind::Write).is_err());
    assert_eq!(a.unlock(&fh, P, (0, 0, true)), NlmStat4::Granted);
    assert!(world.machine.fs.lock_outside(&file, range(12, 12), LockKind::Write).is_ok());
}

/// `local = "none"` speaks of the processes of this host alone.
#[test]
fn where_other_hosts_may_lock_a_file_locks_are_taken_below_whatever_local_says() {
    for is_on_other_hosts in [false, true] {
        let world = World::without_outsiders();
        if is_on_other_hosts {
            world.machine.fs.lie_on_other_hosts();
        }
        let file = world.file("f");
        let fh = world.fh(&file);
        let mut a = world.client(1);
        assert_eq!(a.lock(&fh, P, (0, 5, true)), NlmStat4::Granted);
        assert_eq!(
            world.machine.fs.lock_outside(&file, range(0, 9), LockKind::Read).is_err(),
            is_on_other_hosts
        );
        world.machine.fs.lock_outside(&file, range(5, 9), LockKind::Read).unwrap();
        assert_eq!(a.test(&fh, Process(8), (5, 5, true)).is_err(), is_on_other_hosts);
    }
}

#[test]
fn a_refusal_outside_leaves_everything_as_it_was() {
    let world = World::new();
    let file = world.file("f");
    let fh = world.fh(&file);
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(a.lock(&fh, P, (0, 10, false)), NlmStat4::Granted);
    world.machine.fs.lock_outside(&file, range(5, 20), LockKind::Read).unwrap();
    assert_eq!(a.lock(&fh, P, (0, 20, true)), NlmStat4::Denied);
    assert_eq!(b.lock(&fh, P, (0, 20, false)), NlmStat4::Granted);
    assert_eq!(b.test(&fh, P, (0, 5, true)), Err((7, 0, 10, false)));
}

#[test]
fn who_waits_for_a_process_outside_gets_the_lock_soon_after_it_is_free() {
    let world = World::new();
    let file = world.file("f");
    let fh = world.fh(&file);
    let mut a = world.client(1);
    world.machine.fs.lock_outside(&file, range(0, 9), LockKind::Write).unwrap();
    assert_eq!(a.wait(&fh, P, (0, 0, true)), NlmStat4::Blocked);
    world.wait_ms(1000);
    assert!(world.next_granted().is_none());
    world.machine.fs.unlock_outside(&file);
    world.wait_ms(1000);
    world.next_granted().expect("A").answer(NlmStat4::Granted);
    world.work();
    assert!(world.machine.fs.lock_outside(&file, range(0, 9), LockKind::Read).is_err());
    assert_eq!(world.lockd.counts(), (1, 0));
}

#[test]
fn a_waiter_whose_turn_comes_while_a_process_outside_has_the_lock_waits_on() {
    let world = World::new();
    let file = world.file("f");
    let fh = world.fh(&file);
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(a.lock(&fh, P, (0, 10, false)), NlmStat4::Granted);
    assert_eq!(b.wait(&fh, P, (0, 10, true)), NlmStat4::Blocked);
    world.machine.fs.lock_outside(&file, range(0, 9), LockKind::Read).unwrap();
    a.unlock(&fh, P, (0, 0, true));
    assert!(world.next_granted().is_none());
    assert_eq!(a.lock(&fh, P, (0, 10, false)), NlmStat4::Granted, "nothing stands in a reader's way");
    a.unlock(&fh, P, (0, 0, true));
    world.machine.fs.unlock_outside(&file);
    world.wait_ms(1000);
    assert_eq!(world.next_granted().expect("B").call.peer, b.ip);
}
