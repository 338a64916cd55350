//! NSM: clients restart; programs of this machine have hosts watched.

use std::net::SocketAddr;

use holdfast_wire::nlm4::NlmStat4;
use holdfast_wire::nsm::*;
use holdfast_xdr::from_bytes;

use crate::world::{Client, Process, World};

const P: Process = Process(7);
const ALL: (u64, u64, bool) = (0, 0, true);

#[test]
fn a_clients_restart_frees_its_locks_and_those_who_waited_get_them() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!((a.lock(&fh, P, ALL), b.wait(&fh, P, ALL)), (NlmStat4::Granted, NlmStat4::Blocked));
    a.notify(b"client1.example.com", 5);
    assert_eq!(world.next_granted().expect("B").call.peer, b.ip);
}

#[test]
fn nobody_restarts_another() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    let name = a.name.clone();
    b.notify(&name, 5);
    c.notify(b"192.0.2.1", 5);
    assert_eq!(c.test(&fh, P, ALL), Err((7, 0, 0, true)));
}

#[test]
fn hosts_behind_one_address_restart_one_by_one() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(1));
    b.name = b"another".to_vec();
    b.xid = 1000;
    assert_eq!(
        (a.lock(&fh, P, (0, 1, true)), b.lock(&fh, P, (1, 1, true))),
        (NlmStat4::Granted, NlmStat4::Granted)
    );
    a.notify(b"client1", 5);
    let mut c = world.client(2);
    assert_eq!(c.test(&fh, P, (0, 1, true)), Ok(()));
    assert_eq!(c.test(&fh, P, (1, 1, true)), Err((7, 1, 1, true)));
}

#[test]
fn a_notice_that_comes_twice_or_late_takes_nothing_that_is_new() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut c) = (world.client(1), world.client(2));
    assert_eq!(a.lock(&fh, P, (0, 1, true)), NlmStat4::Granted);
    // It is up again, and locks before its monitor has told.
    a.state = 5;
    assert_eq!(a.lock(&fh, Process(9), (1, 1, true)), NlmStat4::Granted);
    a.notify(b"client1", 5);
    assert_eq!(c.test(&fh, P, (0, 1, true)), Ok(()));
    assert_eq!(c.test(&fh, P, (1, 1, true)), Err((9, 1, 1, true)));
    a.state = 0;
    assert_eq!(a.lock(&fh, P, (0, 1, true)), NlmStat4::Granted);
    a.notify(b"client1", 5);
    assert_eq!(c.test(&fh, P, (0, 1, true)), Err((7, 0, 1, true)), "said before");
    a.notify(b"client1", 7);
    assert_eq!(c.test(&fh, P, ALL), Ok(()));
}

fn local(world: &World) -> Client {
    let mut local = world.client(9);
    local.connection = local.connection.another(SocketAddr::new([127, 0, 0, 1].into(), 700));
    local
}

const MINE: MyId<'static> = MyId { my_name: b"me", my_prog: 100_021, my_vers: 4, my_proc: 16 };

#[test]
fn programs_of_this_machine_are_told_of_the_hosts_they_have_watched() {
    let world = World::new();
    let (mut local, mut a) = (local(&world), world.client(1));
    let watch = |name| Mon { mon_id: MonId { mon_name: name, my_id: MINE }, private: [6; 16] };
    let results = local.call(NSM_PROGRAM, SM_MON, &watch(b"192.0.2.1"));
    assert_eq!(from_bytes(&results), Ok(SmStatRes { failed: false, state: 3 }));
    a.notify(b"whatever", 9);
    let (call, _) = world.next_call().expect("it is told");
    assert_eq!((call.peer, call.program, call.procedure), ([127, 0, 0, 1].into(), 100_021, 16));
    let told: Status<'_> = from_bytes(&call.args).unwrap();
    assert_eq!((told.mon_name, told.state, told.private), (&b"192.0.2.1"[..], 9, [6; 16]));
    local.call(NSM_PROGRAM, SM_UNMON, &MonId { mon_name: b"192.0.2.1", my_id: MINE });
    a.notify(b"whatever", 11);
    assert!(world.next_call().is_none());
}

#[test]
fn others_have_nobody_watched() {
    let world = World::new();
    let (mut a, mut local) = (world.client(1), local(&world));
    let mon = Mon { mon_id: MonId { mon_name: b"192.0.2.2", my_id: MINE }, private: [6; 16] };
    let results = a.call(NSM_PROGRAM, SM_MON, &mon);
    assert_eq!(from_bytes::<SmStatRes>(&results).map(|res| res.failed), Ok(true));
    local.call(NSM_PROGRAM, SM_MON, &mon);
    a.call(NSM_PROGRAM, SM_UNMON_ALL, &MINE);
    let watched = local.call(NSM_PROGRAM, SM_STAT, &SmName { name: b"192.0.2.2" });
    assert_eq!(from_bytes::<SmStatRes>(&watched).map(|res| res.failed), Ok(false), "still watched");
    local.call(NSM_PROGRAM, SM_UNMON_ALL, &MINE);
    let watched = local.call(NSM_PROGRAM, SM_STAT, &SmName { name: b"192.0.2.2" });
    assert_eq!(from_bytes::<SmStatRes>(&watched).map(|res| res.failed), Ok(true));
}

#[test]
fn a_user_of_this_machine_has_nobody_watched_and_nothing_but_lock_managers_called() {
    let world = World::new();
    let (mut user, mut local) = (local(&world), local(&world));
    user.connection = user.connection.another(SocketAddr::new([127, 0, 0, 1].into(), 40_000));
    let of = |my_id| Mon { mon_id: MonId { mon_name: b"192.0.2.2", my_id }, private: [6; 16] };
    let failed = |results: &[u8]| from_bytes::<SmStatRes>(results).unwrap().failed;
    assert!(failed(&user.call(NSM_PROGRAM, SM_MON, &of(MINE))));
    let other = MyId { my_prog: 100_003, ..MINE };
    local.xid = 100;
    assert!(failed(&local.call(NSM_PROGRAM, SM_MON, &of(other))));
    assert!(!failed(&local.call(NSM_PROGRAM, SM_MON, &of(MINE))));
    user.call(NSM_PROGRAM, SM_UNMON_ALL, &MINE);
    assert!(!failed(&local.call(NSM_PROGRAM, SM_STAT, &SmName { name: b"192.0.2.2" })), "still watched");
}
