//! Byte-range locks.

use crate::world::*;
use holdfast_base::{ByteRange, ClientId, FileKey, Seqid};
use holdfast_state::*;

fn two(world: &mut World) -> [(ClientId, StateId); 2] {
    ["a", "b"].map(|name| {
        let (client, _) = world.client(name, 1);
        (client, world.open(client, "o", 1, share(RW, NONE)).unwrap())
    })
}

fn denied(result: Result<StateId, LockRefusal>) -> Conflict {
    match result {
        Err(LockRefusal::Denied(conflict)) => conflict,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_denial_names_owner_range_and_kind() {
    let mut world = World::new();
    let [(a, oa), (b, ob)] = two(&mut world);
    world.lock(&lock_by(a, 1, oa, "la", bytes(10, 19), LockKind::Write)).unwrap();
    let conflict = denied(world.lock(&lock_by(b, 1, ob, "lb", bytes(0, 10), LockKind::Read)));
    assert_eq!(conflict.holder, ConflictHolder::Nfs4 { client: a, owner: OwnerName::new(b"la") });
    assert_eq!((conflict.range, conflict.kind), (bytes(10, 19), LockKind::Write));
    assert!(world.lock(&lock_by(b, 1, ob, "lb", bytes(0, 9), LockKind::Write)).is_ok());
    let test = |client, owner: &'static [u8]| LockTest {
        client,
        owner,
        file: FileKey(1),
        range: bytes(15, 15),
        kind: LockKind::Read,
    };
    assert_eq!(world.engine.lock_test(&test(a, b"la"), world.now), Ok(()), "one's own is not in the way");
    assert_eq!(world.engine.lock_test(&test(a, b"lx"), world.now), Err(LockRefusal::Denied(conflict)));
    world.settle();
}

#[test]
fn a_lock_state_counts_every_change_and_stays_without_locks() {
    let mut world = World::new();
    let [(a, open), _] = two(&mut world);
    let me = Caller::V41(a);
    let lock = world.lock(&lock_by(a, 1, open, "l", bytes(0, 99), LockKind::Write)).unwrap();
    assert_eq!(lock.seqid, Seqid(1));
    let more =
        LockRequest { by: LockBy::Lock(lock), ..lock_by(a, 1, open, "l", bytes(50, 59), LockKind::Read) };
    let lock = world.lock(&more).unwrap();
    assert_eq!((lock.seqid, world.engine.census().ranges), (Seqid(2), 3));
    assert_eq!(world.engine.free_stateid(a, lock, world.now), Err(StateError::LocksHeld));
    let lock = world.unlock(me, lock, 1, bytes(0, u64::MAX)).unwrap();
    assert_eq!((lock.seqid, world.engine.census().ranges), (Seqid(3), 0));
    assert_eq!(world.io(me, lock, 1, RW), Ok(IoGrant::Open(OpenId(1))), "I/O by the open behind it");
    world.settle();
    assert_eq!(world.engine.free_stateid(a, lock, world.now), Ok(()));
    assert_eq!(world.settle().len(), 1);
    assert_eq!(world.io(me, lock, 1, R), Err(StateError::BadStateid));
}

#[test]
fn a_lock_needs_an_open_that_allows_it() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    let open = world.open(a, "o", 1, share(R, NONE)).unwrap();
    let write = lock_by(a, 1, open, "l", bytes(0, 0), LockKind::Write);
    assert_eq!(world.lock(&write), Err(LockRefusal::Error(StateError::OpenMode)));
    let read = world.lock(&LockRequest { kind: LockKind::Read, ..write }).unwrap();
    let through_lock = LockRequest {
        by: LockBy::Open { open: read, owner: b"l", first_seqid: None, client: None },
        ..write
    };
    assert_eq!(world.lock(&through_lock), Err(LockRefusal::Error(StateError::BadStateid)));
    world.settle();
}

#[test]
fn closing_an_open_releases_the_locks_made_through_it() {
    let mut world = World::new();
    let [(a, oa), (b, ob)] = two(&mut world);
    let request = lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Write);
    let ticket = world.engine.lock_prepare(&request, world.now).unwrap();
    assert_eq!(ticket.access(), RW);
    let token = ticket.token();
    world.engine.lock_commit(ticket, world.now).unwrap();
    world.settle();
    world.engine.close(Caller::V41(a), oa, FileKey(1), world.now).unwrap();
    assert_eq!(world.settle(), [Effect::ReleaseLocks(token), Effect::CloseFile(OpenId(1))]);
    assert!(world.lock(&lock_by(b, 1, ob, "lb", bytes(0, 9), LockKind::Write)).is_ok());
}

/// The next process of the server has not met who is outside, and takes nobody to be in the way.
#[test]
fn who_waits_for_somebody_outside_is_told_to_ask_again_after_a_planned_restart() {
    let mut world = World::new();
    let [(a, oa), _] = two(&mut world);
    let request = LockRequest { wait: Wait::Notify, ..lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Write) };
    let ticket = world.engine.lock_prepare(&request, world.now).unwrap();
    assert!(world.engine.lock_abort_in_line(ticket, (bytes(5, 9), LockKind::Write), world.now));
    world.settle();
    assert_eq!(world.engine.census().waiters, 1);
    world.restart_as_planned();
    assert_eq!(world.engine.census().waiters, 1);
    world.engine.meet_outsiders_anew(world.now);
    let effects = world.settle();
    let is_told = |effect: &Effect| matches!(effect, Effect::NotifyLock { client, file: FileKey(1), .. } if *client == a);
    assert!(effects.len() == 1 && is_told(&effects[0]), "{effects:?}");
    assert!(world.lock(&request).is_ok());
}

#[test]
fn what_the_backend_refuses_is_taken_back_exactly() {
    let mut world = World::new();
    let [(a, oa), (b, ob)] = two(&mut world);
    let lock = world.lock(&lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Read)).unwrap();
    world.lock(&lock_by(b, 1, ob, "lb", bytes(5, 9), LockKind::Read)).unwrap();
    let upgrade = lock_by(a, 1, oa, "la", bytes(0, 4), LockKind::Write);
    let ticket = world.engine.lock_prepare(&upgrade, world.now).unwrap();
    let busy = world.lock(&LockRequest { by: LockBy::Lock(lock), ..upgrade });
    assert_eq!(busy, Err(LockRefusal::Error(StateError::Delay)), "one change of an owner at a time");
    world.settle();
    world.engine.lock_abort(ticket, world.now);
    world.settle();
    assert_eq!(world.engine.census().ranges, 2);
    assert!(world.lock(&lock_by(b, 1, ob, "lb", bytes(0, 4), LockKind::Read)).is_ok(), "still only a reader");
    let first =
        world.engine.lock_prepare(&lock_by(a, 1, oa, "new", bytes(50, 59), LockKind::Write), world.now);
    world.engine.lock_abort(first.unwrap(), world.now);
    world.settle();
    assert_eq!(world.engine.census().locks, 2, "a lock state that never was is forgotten");
}

#[test]
fn a_downgrade_gives_nothing_up_before_it_is_committed() {
    let mut world = World::new();
    let [(a, oa), (b, ob)] = two(&mut world);
    world.lock(&lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Write)).unwrap();
    let down =
        world.engine.lock_prepare(&lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Read), world.now).unwrap();
    let read = lock_by(b, 1, ob, "lb", bytes(0, 9), LockKind::Read);
    denied(world.lock(&read));
    world.engine.lock_commit(down, world.now).unwrap();
    assert!(world.lock(&read).is_ok());
    world.settle();
}

#[test]
fn a_change_under_way_when_its_state_ends_is_not_committed() {
    let mut world = World::new();
    let [(a, oa), _] = two(&mut world);
    let request = lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Write);
    let ticket = world.engine.lock_prepare(&request, world.now).unwrap();
    world.engine.close(Caller::V41(a), oa, FileKey(1), world.now).unwrap();
    assert_eq!(world.engine.lock_commit(ticket, world.now), Err(StateError::BadStateid));
    world.settle();
    assert_eq!(world.engine.census().ranges, 0);
}

#[test]
fn waiters_are_notified_in_order_and_the_range_is_kept_for_the_first() {
    let mut world = World::new();
    let [(a, oa), (b, ob)] = two(&mut world);
    let (c, _) = world.client("c", 1);
    let oc = world.open(c, "o", 1, share(RW, NONE)).unwrap();
    let held = world.lock(&lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Write)).unwrap();
    let wait = |client, open, owner| LockRequest {
        wait: Wait::Notify,
        ..lock_by(client, 1, open, owner, bytes(0, 9), LockKind::Write)
    };
    denied(world.lock(&wait(b, ob, "lb")));
    denied(world.lock(&wait(c, oc, "lc")));
    world.settle();
    world.unlock(Caller::V41(a), held, 1, bytes(0, 9)).unwrap();
    let notify =
        |client, owner: &[u8]| Effect::NotifyLock { client, file: FileKey(1), owner: OwnerName::new(owner) };
    assert_eq!(world.settle(), [notify(b, b"lb")]);
    let kept = denied(world.lock(&lock_by(a, 1, oa, "la", bytes(3, 3), LockKind::Read)));
    assert_eq!(kept.holder, ConflictHolder::Nfs4 { client: b, owner: OwnerName::new(b"lb") });
    let got = world.lock(&wait(b, ob, "lb")).unwrap();
    world.unlock(Caller::V41(b), got, 1, bytes(0, 9)).unwrap();
    assert_eq!(world.settle(), [notify(c, b"lc")]);
    denied(world.lock(&wait(b, ob, "lb")));
    world.pass(holdfast_base::limits::LOCK_HANDOFF_MS);
    world.engine.tick(world.now);
    assert_eq!(world.settle(), [notify(b, b"lb")], "c did not come: it is passed by");
    assert!(world.lock(&wait(b, ob, "lb")).is_ok());
    assert_eq!(world.engine.census().waiters, 0);
}

#[test]
fn who_polls_where_it_was_to_be_told_lets_those_behind_it_in() {
    let mut world = World::new();
    let [(a, oa), (b, ob)] = two(&mut world);
    let (c, _) = world.client("c", 1);
    let oc = world.open(c, "o", 1, share(RW, NONE)).unwrap();
    world.lock(&lock_by(a, 1, oa, "la", bytes(0, 4), LockKind::Write)).unwrap();
    let wait = |wait, client, open, owner, range| LockRequest {
        wait,
        ..lock_by(client, 1, open, owner, range, LockKind::Write)
    };
    let first = bytes(0, 9);
    denied(world.lock(&wait(Wait::Notify, b, ob, "lb", first)));
    let held = world.lock(&lock_by(a, 1, oa, "ma", bytes(5, 9), LockKind::Read)).unwrap();
    denied(world.lock(&wait(Wait::Notify, c, oc, "lc", bytes(5, 9))));
    world.settle();
    world.unlock(Caller::V41(a), held, 1, bytes(5, 9)).unwrap();
    assert_eq!(world.settle(), [], "b is before it");
    // The session that it could be told in is gone.
    denied(world.lock(&wait(Wait::Poll, b, ob, "lb", first)));
    let owner = OwnerName::new(b"lc");
    assert_eq!(world.settle(), [Effect::NotifyLock { client: c, file: FileKey(1), owner }]);
}

/// Linux asks for a lock that it waits for every half minute.
const SHORT_LEASE_MS: u64 = 10_000;

#[test]
fn who_waits_for_a_lock_stays_in_line_until_it_asks_again_though_its_lease_is_shorter() {
    let mut world = World::with_lease(SHORT_LEASE_MS);
    let [(a, oa), (b, ob)] = two(&mut world);
    let held = world.lock(&lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Write)).unwrap();
    let write = lock_by(b, 1, ob, "lb", bytes(0, 9), LockKind::Write);
    denied(world.lock(&LockRequest { wait: Wait::Notify, ..write }));
    for _ in 0..6 {
        world.pass(SHORT_LEASE_MS / 2);
        world.renew(a);
        world.renew(b);
        world.engine.tick(world.now);
    }
    world.settle();
    world.unlock(Caller::V41(a), held, 1, bytes(0, 9)).unwrap();
    let owner = OwnerName::new(b"lb");
    assert_eq!(world.settle(), [Effect::NotifyLock { client: b, file: FileKey(1), owner }]);
    assert!(world.lock(&write).is_ok());
}

#[test]
fn who_has_not_asked_for_longer_than_half_a_minute_waits_no_more() {
    let mut world = World::with_lease(SHORT_LEASE_MS);
    let [(a, oa), (b, ob)] = two(&mut world);
    world.lock(&lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Write)).unwrap();
    let write = lock_by(b, 1, ob, "lb", bytes(0, 9), LockKind::Write);
    denied(world.lock(&LockRequest { wait: Wait::Notify, ..write }));
    for _ in 0..8 {
        world.pass(SHORT_LEASE_MS / 2);
        world.renew(a);
        world.renew(b);
        world.engine.tick(world.now);
    }
    world.settle();
    assert_eq!(world.engine.census().waiters, 0);
}

#[test]
fn a_circle_that_is_closed_when_the_first_wait_is_older_than_a_lease_is_seen() {
    let mut world = World::with_lease(SHORT_LEASE_MS);
    let [(a, oa), (b, ob)] = two(&mut world);
    world.lock(&lock_by(a, 1, oa, "la", bytes(0, 0), LockKind::Write)).unwrap();
    world.lock(&lock_by(b, 1, ob, "lb", bytes(1, 1), LockKind::Write)).unwrap();
    let first = lock_by(a, 1, oa, "la", bytes(1, 1), LockKind::Write);
    denied(world.lock(&LockRequest { wait: Wait::Poll, ..first }));
    for _ in 0..3 {
        world.pass(SHORT_LEASE_MS / 2);
        world.renew(a);
        world.renew(b);
        world.engine.tick(world.now);
    }
    let closes = LockRequest { wait: Wait::Poll, ..lock_by(b, 1, ob, "lb", bytes(0, 0), LockKind::Write) };
    assert_eq!(world.lock(&closes), Err(LockRefusal::Error(StateError::Deadlock)));
    world.settle();
}

#[test]
fn those_who_wait_leave_the_line_with_their_clients_lease() {
    let mut world = World::with_lease(SHORT_LEASE_MS);
    let [(a, oa), (b, ob)] = two(&mut world);
    let (c, _) = world.client("c", 1);
    let oc = world.open(c, "o", 1, share(RW, NONE)).unwrap();
    let held = world.lock(&lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Write)).unwrap();
    for (client, open, owner) in [(b, ob, "lb"), (c, oc, "lc")] {
        let write = lock_by(client, 1, open, owner, bytes(0, 9), LockKind::Write);
        denied(world.lock(&LockRequest { wait: Wait::Notify, ..write }));
    }
    for _ in 0..2 {
        world.pass(SHORT_LEASE_MS / 2 + 1);
        world.renew(a);
        world.renew(c);
    }
    // The tick has not come yet: what is freed goes to who is there.
    world.settle();
    world.unlock(Caller::V41(a), held, 1, bytes(0, 9)).unwrap();
    let owner = OwnerName::new(b"lc");
    assert_eq!(world.settle(), [Effect::NotifyLock { client: c, file: FileKey(1), owner }]);
    world.engine.tick(world.now);
    world.settle();
    let census = world.engine.census();
    assert_eq!((census.waiters, census.courteous), (1, 1), "b has its open by courtesy, and waits no more");
}

#[test]
fn a_lapsed_holder_is_expired_by_the_conflict() {
    let mut world = World::new();
    let [(a, oa), _] = two(&mut world);
    world.lock(&lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Write)).unwrap();
    world.pass(LEASE_MS + 1);
    let (c, _) = world.client("c", 1);
    let oc = world.open(c, "o", 1, share(RW, NONE)).unwrap();
    assert!(world.lock(&lock_by(c, 1, oc, "l", bytes(0, 9), LockKind::Write)).is_ok());
    assert!(world.settle().contains(&Effect::ForgetClient(a)));
}

#[test]
fn foreign_owners_and_nfs4_owners_are_in_each_others_way() {
    let mut world = World::new();
    let [(a, oa), _] = two(&mut world);
    let nlm = ForeignOwner { door: Door::Nlm, id: 1 };
    let file = FileKey(1);
    world.engine.foreign_lock(nlm, file, bytes(0, 9), LockKind::Write, world.now).unwrap();
    let mut request = lock_by(a, 1, oa, "la", bytes(9, 20), LockKind::Read);
    request.wait = Wait::Notify;
    assert_eq!(denied(world.lock(&request)).holder, ConflictHolder::Foreign(nlm));
    world.settle();
    world.engine.foreign_unlock(nlm, file, bytes(5, 9), world.now);
    assert!(matches!(world.settle()[..], [Effect::NotifyLock { .. }]));
    world.lock(&request).unwrap();
    let refused = world.engine.foreign_lock(nlm, file, bytes(20, 20), LockKind::Write, world.now);
    assert!(matches!(refused, Err(LockRefusal::Denied(_))));
    world.engine.foreign_leave(nlm, file, world.now);
    world.settle();
    assert_eq!(world.engine.census().ranges, 1);
}

/// A client of 4.0, and its open of file 1.
fn confirmed_40(world: &mut World) -> (ClientId, StateId) {
    let client = world.client40("a", 1);
    let open = world.open(client, "o", 1, share(RW, NONE)).unwrap();
    (client, world.engine.open_confirm(open, FileKey(1), world.now).unwrap())
}

/// A lock by which its owner begins to count.
fn first_of_40((client, open): (ClientId, StateId), seqid: u32, range: ByteRange) -> LockRequest<'static> {
    LockRequest {
        caller: Caller::V40,
        by: LockBy::Open { open, owner: b"l", first_seqid: Some(Seqid(seqid)), client: None },
        ..lock_by(client, 1, open, "l", range, LockKind::Write)
    }
}

#[test]
fn a_40_lock_owner_counts_from_its_first_lock_and_is_released_when_it_holds_nothing() {
    let mut world = World::new();
    let (client, open) = confirmed_40(&mut world);
    let first = |seqid| first_of_40((client, open), seqid, bytes(0, 9));
    let lock = world.lock(&first(40)).unwrap();
    assert_eq!(world.lock(&first(43)), Err(LockRefusal::Error(StateError::BadSeqid)));
    let lock = {
        let again = world.lock(&first(41)).unwrap();
        assert_eq!(again.other, lock.other);
        again
    };
    let of = OwnerOf::Stateid(lock);
    let early = world.engine.begin_owner(of, Seqid(40), OwnerOp::Unlock, world.now);
    assert_eq!(early, Err(StateError::BadSeqid));
    let Ok(OwnerTurn::Run(ticket)) = world.engine.begin_owner(of, Seqid(42), OwnerOp::Unlock, world.now)
    else {
        panic!()
    };
    let held = world.engine.release_lock_owner(client, b"l", world.now);
    assert_eq!(held, Err(StateError::LocksHeld));
    world.unlock(Caller::V40, lock, 1, bytes(0, 9)).unwrap();
    world.engine.end_owner(&ticket, Some(b"unlocked"));
    let retry = world.engine.begin_owner(of, Seqid(42), OwnerOp::Unlock, world.now);
    assert_eq!(retry, Ok(OwnerTurn::Replay(b"unlocked".to_vec())));
    assert_eq!(world.engine.release_lock_owner(client, b"l", world.now), Ok(()));
    assert_eq!(world.io(Caller::V40, lock, 1, R), Err(StateError::BadStateid));
    world.settle();
}

#[test]
fn a_revoked_lock_frees_its_range_and_is_forgotten_with_its_open() {
    let mut world = World::new();
    let [(a, oa), (b, ob)] = two(&mut world);
    let lock = world.lock(&lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Write)).unwrap();
    world.engine.revoke_state(lock, world.now).unwrap();
    assert!(world.settle().iter().any(|effect| matches!(effect, Effect::ReleaseLocks(_))));
    assert!(world.lock(&lock_by(b, 1, ob, "lb", bytes(0, 9), LockKind::Write)).is_ok());
    let again =
        LockRequest { by: LockBy::Lock(lock), ..lock_by(a, 1, oa, "la", bytes(50, 59), LockKind::Write) };
    assert_eq!(world.lock(&again), Err(LockRefusal::Error(StateError::AdminRevoked)));
    world.lock(&lock_by(a, 1, oa, "la", bytes(50, 59), LockKind::Write)).unwrap();
    world.settle();
    world.engine.close(Caller::V41(a), oa, FileKey(1), world.now).unwrap();
    world.settle();
    assert_eq!(world.engine.census().locks, 1);
    assert_eq!(world.engine.test_stateid(a, lock), Err(StateError::BadStateid));
}

#[test]
fn the_line_of_waiters_is_bounded() {
    let mut world = World::new();
    let [(a, oa), (b, ob)] = two(&mut world);
    world.lock(&lock_by(a, 1, oa, "la", bytes(0, 9), LockKind::Write)).unwrap();
    let max = holdfast_base::limits::LOCK_WAITERS_PER_FILE_MAX;
    for n in 0..=max {
        let owner = format!("waiter {n}");
        let mut request = lock_by(b, 1, ob, &owner, bytes(0, 9), LockKind::Write);
        request.wait = Wait::Notify;
        denied(world.lock(&request));
    }
    assert_eq!(world.engine.census().waiters, max);
    world.engine.revoke_client(b, world.now);
    world.settle();
    assert_eq!(world.engine.census().waiters, 0);
}

#[test]
fn a_lock_refused_outside_after_its_open_is_gone_says_so() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    let open = world.open(a, "o", 1, share(RW, NONE)).unwrap();
    let request = lock_by(a, 1, open, "l", bytes(0, 9), LockKind::Write);
    let ticket = world.engine.lock_prepare(&request, world.now).unwrap();
    world.engine.close(Caller::V41(a), open, FileKey(1), world.now).unwrap();
    assert!(!world.engine.lock_abort(ticket, world.now), "the edge gives up what it keeps for the token");
    let open = world.open(a, "o", 1, share(RW, NONE)).unwrap();
    let request = lock_by(a, 1, open, "l", bytes(0, 9), LockKind::Write);
    let ticket = world.engine.lock_prepare(&request, world.now).unwrap();
    assert!(world.engine.lock_abort(ticket, world.now));
    world.settle();
}

#[test]
fn a_40_lock_refused_outside_counts_for_a_lock_owner_that_is_known() {
    let mut world = World::new();
    let (client, open) = confirmed_40(&mut world);
    let first = |seqid, range| first_of_40((client, open), seqid, range);
    world.lock(&first(40, bytes(0, 9))).unwrap();
    let ticket = world.engine.lock_prepare(&first(41, bytes(20, 29)), world.now).unwrap();
    assert!(world.engine.lock_abort(ticket, world.now));
    // One that is to be run again has not counted.
    let ticket = world.engine.lock_prepare(&first(42, bytes(20, 29)), world.now).unwrap();
    assert!(world.engine.lock_abort(ticket.uncounted(), world.now));
    world.lock(&first(42, bytes(20, 29))).unwrap();
    let repeated = world.engine.lock_prepare(&first(42, bytes(30, 39)), world.now);
    assert_eq!(repeated.unwrap_err(), LockRefusal::Error(StateError::BadSeqid));
    world.settle();
}

#[test]
fn a_40_lock_owner_that_was_only_ever_refused_begins_anew() {
    let mut world = World::new();
    let (client, open) = confirmed_40(&mut world);
    let first = |seqid| first_of_40((client, open), seqid, bytes(0, 9));
    for seqid in [0, 0, 7] {
        let ticket = world.engine.lock_prepare(&first(seqid), world.now).unwrap();
        assert!(world.engine.lock_abort(ticket, world.now));
    }
    // Also by another client's lock.
    let (b, _) = world.client("b", 1);
    let other = world.open(b, "o", 1, share(RW, NONE)).unwrap();
    let held = world.lock(&lock_by(b, 1, other, "l", bytes(0, 9), LockKind::Write)).unwrap();
    denied(world.lock(&first(0)));
    denied(world.lock(&first(0)));
    world.unlock(Caller::V41(b), held, 1, bytes(0, 9)).unwrap();
    world.lock(&first(0)).unwrap();
    assert_eq!(world.lock(&first(0)), Err(LockRefusal::Error(StateError::BadSeqid)), "it counts now");
    world.settle();
}
