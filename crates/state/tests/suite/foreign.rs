//! Locks and shares of other doors: in line with NFSv4's, and deadlocks among them all.

use crate::world::*;
use holdfast_base::{ByteRange, ClientId, FileKey, Instant};
use holdfast_state::*;

const READ: LockKind = LockKind::Read;
const WRITE: LockKind = LockKind::Write;

fn nlm(id: u64) -> ForeignOwner {
    ForeignOwner { door: Door::Nlm, id }
}

fn ask(id: u64, file: u128, range: ByteRange, kind: LockKind, wait: ForeignWait) -> ForeignRequest {
    ForeignRequest { owner: nlm(id), file: FileKey(file), range, kind, claim: ForeignClaim::New, wait }
}

/// A lock that is to be had, or waited for.
fn lock(
    world: &mut World,
    id: u64,
    file: u128,
    range: ByteRange,
    kind: LockKind,
) -> Result<(), ForeignRefusal> {
    let request = ask(id, file, range, kind, ForeignWait::InLine);
    let ticket = world.engine.foreign_prepare(&request, world.now)?;
    assert!(world.engine.foreign_commit(ticket, world.now));
    Ok(())
}

fn granted(id: u64, file: u128, range: ByteRange, kind: LockKind) -> Effect {
    Effect::ForeignGranted { owner: nlm(id), file: FileKey(file), range, kind }
}

/// A client with a file open, and how it asks for a lock.
fn nfs4_lock<'a>(
    client: ClientId,
    file: u128,
    open: StateId,
    owner: &'a str,
    range: ByteRange,
) -> LockRequest<'a> {
    LockRequest { wait: Wait::Notify, ..lock_by(client, file, open, owner, range, WRITE) }
}

#[test]
fn who_waits_is_given_the_lock_in_turn_when_it_is_free() {
    let mut world = World::new();
    lock(&mut world, 1, 1, bytes(0, 9), WRITE).unwrap();
    assert_eq!(lock(&mut world, 2, 1, bytes(5, 9), WRITE), Err(ForeignRefusal::Waiting));
    assert_eq!(lock(&mut world, 3, 1, bytes(0, 7), READ), Err(ForeignRefusal::Waiting));
    assert_eq!(lock(&mut world, 2, 1, bytes(5, 9), WRITE), Err(ForeignRefusal::Waiting), "asked again");
    assert_eq!(world.engine.census().waiters, 2);
    world.engine.foreign_unlock(nlm(1), FileKey(1), bytes(5, 9), world.now);
    assert_eq!(world.settle(), [granted(2, 1, bytes(5, 9), WRITE)]);
    world.engine.foreign_unlock(nlm(1), FileKey(1), ByteRange::ALL, world.now);
    assert_eq!(world.settle(), []);
    world.engine.foreign_leave(nlm(2), FileKey(1), world.now);
    assert_eq!(world.settle(), [granted(3, 1, bytes(0, 7), READ)]);
    lock(&mut world, 3, 1, bytes(0, 7), READ).unwrap();
    world.engine.foreign_leave(nlm(3), FileKey(1), world.now);
    world.settle();
    assert_eq!(world.engine.census(), Census::default());
}

#[test]
fn they_stand_in_one_line_with_clients_of_nfs4() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let open = world.open(client, "o", 1, share(RW, NONE)).unwrap();
    lock(&mut world, 1, 1, bytes(0, 9), WRITE).unwrap();
    assert!(world.lock(&nfs4_lock(client, 1, open, "l", bytes(0, 9))).is_err());
    assert_eq!(lock(&mut world, 2, 1, bytes(0, 9), WRITE), Err(ForeignRefusal::Waiting));
    world.settle();
    world.engine.foreign_leave(nlm(1), FileKey(1), world.now);
    let owner = OwnerName::new(b"l");
    assert_eq!(world.settle(), [Effect::NotifyLock { client, file: FileKey(1), owner }]);
    let refused = world.engine.foreign_prepare(&ask(3, 1, bytes(0, 0), READ, ForeignWait::No), world.now);
    assert!(matches!(refused, Err(ForeignRefusal::Denied(_))), "kept for who was notified");
    let held = world.lock(&nfs4_lock(client, 1, open, "l", bytes(0, 9))).unwrap();
    assert_eq!(world.settle(), []);
    world.unlock(Caller::V41(client), held, 1, bytes(0, 9)).unwrap();
    assert_eq!(world.settle(), [granted(2, 1, bytes(0, 9), WRITE)]);
}

#[test]
fn who_gives_up_lets_those_behind_in() {
    let mut world = World::new();
    lock(&mut world, 1, 1, bytes(0, 9), READ).unwrap();
    assert_eq!(lock(&mut world, 2, 1, bytes(0, 9), WRITE), Err(ForeignRefusal::Waiting));
    lock(&mut world, 3, 1, bytes(0, 9), READ).unwrap();
    assert_eq!(lock(&mut world, 4, 1, bytes(0, 3), WRITE), Err(ForeignRefusal::Waiting));
    let mut cancel =
        |id, range, kind| world.engine.foreign_cancel(nlm(id), FileKey(1), range, kind, world.now);
    assert!(!cancel(2, bytes(0, 8), WRITE), "another lock");
    assert!(cancel(2, bytes(0, 9), WRITE));
    assert!(!cancel(2, bytes(0, 9), WRITE));
    for id in [1, 3] {
        assert_eq!(world.settle(), []);
        world.engine.foreign_leave(nlm(id), FileKey(1), world.now);
    }
    assert_eq!(world.settle(), [granted(4, 1, bytes(0, 3), WRITE)]);
}

#[test]
fn a_lock_that_the_backend_refuses_leaves_what_was_held() {
    let mut world = World::new();
    lock(&mut world, 1, 1, bytes(0, 9), READ).unwrap();
    let request = ask(1, 1, bytes(5, 14), WRITE, ForeignWait::No);
    let ticket = world.engine.foreign_prepare(&request, world.now).unwrap();
    let again = world.engine.foreign_prepare(&request, world.now);
    assert_eq!(again, Err(StateError::Delay.into()), "one at a time");
    assert!(world.engine.foreign_abort(ticket, world.now));
    let ticket = world.engine.foreign_prepare(&request, world.now).unwrap();
    world.engine.foreign_leave(nlm(1), FileKey(1), world.now);
    lock(&mut world, 1, 1, bytes(0, 9), READ).unwrap();
    assert!(!world.engine.foreign_commit(ticket, world.now), "its owner left in between");
    lock(&mut world, 2, 1, bytes(0, 9), READ).unwrap();
    lock(&mut world, 2, 1, bytes(10, 14), WRITE).unwrap();
    let held = world.engine.report_file(FileKey(1));
    assert_eq!(held[0].held, Held::Locks(vec![(bytes(0, 9), READ)]));
    world.settle();
}

#[test]
fn locks_of_other_doors_recall_delegations_and_wait_for_their_return() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let of = world.delegate(client, 1, DelegationKind::Read);
    lock(&mut world, 1, 1, bytes(0, 0), READ).unwrap();
    let request = ask(2, 1, bytes(1, 1), WRITE, ForeignWait::No);
    assert_eq!(world.engine.foreign_prepare(&request, world.now), Err(StateError::Delay.into()));
    assert_eq!(recalled(&world.settle()), [of.token]);
    assert_eq!(lock(&mut world, 2, 1, bytes(1, 1), WRITE), Err(ForeignRefusal::Waiting));
    let caller = Caller::V41(client);
    world.engine.delegation_return(caller, of.stateid, FileKey(1), world.now).unwrap();
    assert_eq!(world.settle()[1..], [granted(2, 1, bytes(1, 1), WRITE)]);
    let of = world.delegate(client, 2, DelegationKind::Write);
    let test = world.engine.foreign_test(nlm(1), FileKey(2), bytes(0, 0), READ, world.now);
    assert_eq!(test, Err(StateError::Delay.into()), "its holder may keep locks to itself");
    assert_eq!(recalled(&world.settle()), [of.token]);
}

#[test]
fn shares_of_other_doors_count_among_all() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let file = FileKey(1);
    let share_of = |world: &mut World, id, wanted| {
        world.engine.foreign_share(nlm(id), file, wanted, ForeignClaim::New, world.now)
    };
    assert_eq!(world.engine.denials(), 0);
    share_of(&mut world, 1, share(R, W)).unwrap();
    assert_eq!(world.engine.denials(), 0, "of opens");
    assert_eq!(world.open(client, "o", 1, share(W, NONE)), Err(StateError::ShareDenied));
    assert_eq!(world.engine.check_io(file, W, IoBy::Anonymous, world.now), Err(StateError::Locked));
    assert_eq!(world.engine.check_io(file, W, IoBy::Nfs3, world.now), Ok(IoGrant::NoOpen), "perhaps its own");
    assert_eq!(share_of(&mut world, 2, share(W, NONE)), Err(StateError::ShareDenied));
    share_of(&mut world, 1, share(RW, NONE)).unwrap();
    world.open(client, "o", 1, share(W, W)).unwrap_err();
    world.open(client, "o", 1, share(W, NONE)).unwrap();
    assert!(world.engine.foreign_unshare(nlm(1), file));
    assert!(!world.engine.foreign_unshare(nlm(1), file));
    world.open(client, "p", 2, share(R, R)).unwrap();
    assert_eq!(world.engine.denials(), 1);
    world.settle();
}

#[test]
fn in_grace_only_reclaims_of_other_doors_are_served() {
    let mut world = World::with(config(2, Grace::Until(Instant(5000))));
    let mut request = ask(1, 1, bytes(0, 0), READ, ForeignWait::InLine);
    assert_eq!(world.engine.foreign_prepare(&request, world.now), Err(StateError::Grace.into()));
    request.claim = ForeignClaim::Reclaim;
    let ticket = world.engine.foreign_prepare(&request, world.now).unwrap();
    world.engine.foreign_commit(ticket, world.now);
    world.pass(5000);
    assert_eq!(world.engine.foreign_prepare(&request, world.now), Err(StateError::NoGrace.into()));
}

#[test]
fn a_circle_of_those_who_wait_is_a_deadlock_whatever_door_they_came_through() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let opens = [1, 2].map(|file| world.open(client, "o", file, share(RW, NONE)).unwrap());
    // The client holds file 1, NLM's owner file 2; a third stands between them.
    world.lock(&nfs4_lock(client, 1, opens[0], "l", bytes(0, 9))).unwrap();
    lock(&mut world, 1, 2, bytes(0, 9), WRITE).unwrap();
    lock(&mut world, 2, 3, bytes(0, 9), WRITE).unwrap();
    assert_eq!(lock(&mut world, 1, 3, bytes(0, 0), READ), Err(ForeignRefusal::Waiting));
    assert_eq!(lock(&mut world, 2, 1, bytes(0, 0), READ), Err(ForeignRefusal::Waiting));
    let closes = world.lock(&nfs4_lock(client, 2, opens[1], "l", bytes(3, 3)));
    assert_eq!(closes, Err(StateError::Deadlock.into()));
    let other_owner = world.lock(&nfs4_lock(client, 2, opens[1], "m", bytes(3, 3)));
    assert!(matches!(other_owner, Err(LockRefusal::Denied(_))), "another process is no part of it");
    let polls = LockRequest { wait: Wait::No, ..nfs4_lock(client, 2, opens[1], "l", bytes(3, 3)) };
    assert!(matches!(world.lock(&polls), Err(LockRefusal::Denied(_))), "who does not wait cannot deadlock");
    world.settle();
}

#[test]
fn waiting_in_polls_is_part_of_a_circle_while_it_is_fresh() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let opens = [1, 2].map(|file| world.open(client, "o", file, share(RW, NONE)).unwrap());
    world.lock(&nfs4_lock(client, 1, opens[0], "l", bytes(0, 9))).unwrap();
    lock(&mut world, 1, 2, bytes(0, 9), WRITE).unwrap();
    let polls = LockRequest { wait: Wait::Poll, ..nfs4_lock(client, 2, opens[1], "l", bytes(0, 0)) };
    assert!(matches!(world.lock(&polls), Err(LockRefusal::Denied(_))));
    assert_eq!(lock(&mut world, 1, 1, bytes(0, 0), READ), Err(StateError::Deadlock.into()));
    world.pass(holdfast_base::limits::LOCK_WAIT_FRESH_MS + 1);
    assert_eq!(lock(&mut world, 1, 1, bytes(0, 0), READ), Err(ForeignRefusal::Waiting));
    assert_eq!(world.lock(&polls), Err(StateError::Deadlock.into()));
    world.settle();
    world.engine.foreign_unlock(nlm(1), FileKey(2), ByteRange::ALL, world.now);
    assert_eq!(world.settle(), [], "who polls is not notified");
}

#[test]
fn what_an_administrator_takes_is_free_for_who_waits() {
    let mut world = World::new();
    let (client, session) = world.client("a", 1);
    let open = world.open(client, "o", 1, share(RW, NONE)).unwrap();
    let held = world.lock(&nfs4_lock(client, 1, open, "l", bytes(0, 9))).unwrap();
    lock(&mut world, 1, 1, bytes(10, 19), WRITE).unwrap();
    assert_eq!(lock(&mut world, 2, 1, bytes(0, 19), READ), Err(ForeignRefusal::Waiting));
    assert_eq!(world.engine.report_holdings(client).len(), 2);
    world.settle();
    world.engine.revoke_state(held, world.now).unwrap();
    let effects = world.settle();
    assert_eq!(effects[0], Effect::StateRevoked { client, file: FileKey(1) });
    assert!(matches!(effects[1..], [Effect::ReleaseLocks(_)]));
    world.engine.foreign_leave(nlm(1), FileKey(1), world.now);
    assert_eq!(world.settle(), [granted(2, 1, bytes(0, 19), READ)]);
    assert!(world.engine.sessions().get(session).unwrap().status().is_state_revoked);
    assert_eq!(world.engine.test_stateid(client, held), Err(StateError::AdminRevoked));
    world.engine.free_stateid(client, held, world.now).unwrap();
    world.settle();
}

#[test]
fn reports_say_who_holds_what_and_since_when() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let open = world.open(client, "o", 1, share(RW, W)).unwrap();
    world.pass(10);
    world.lock(&nfs4_lock(client, 1, open, "l", bytes(0, 9))).unwrap();
    let of = world.delegate(client, 2, DelegationKind::Write);
    assert!(world.contend(2, Deed::OpenRead, None));
    let reports = world.engine.report_clients(world.now);
    let [report] = &reports[..] else { panic!("{reports:?}") };
    assert_eq!((report.opens, report.locks, report.delegations, report.recalled), (1, 1, 1, 1));
    assert_eq!((report.name.as_bytes(), report.sessions, report.connections), (&b"a"[..], 1, 1));
    let holdings = world.engine.report_holdings(client);
    assert_eq!(holdings.len(), 3);
    assert_eq!(holdings[0].held, Held::Open(share(RW, W)));
    assert_eq!(holdings[0].since, Some(Instant(1000)));
    assert_eq!(holdings[1].held, Held::Locks(vec![(bytes(0, 9), WRITE)]));
    let recalled = Some((world.now, world.now.after_ms(LEASE_MS)));
    let delegation = Holding {
        holder: HolderReport::Nfs4 { client, owner: None, stateid: Some(of.stateid) },
        file: FileKey(2),
        held: Held::Delegation { kind: DelegationKind::Write, recalled },
        since: Some(world.now),
    };
    assert_eq!(holdings[2], delegation);
    assert_eq!(world.engine.report_file(FileKey(2)), [delegation]);
    assert_eq!(world.engine.report_files(), [FileKey(1), FileKey(2)]);
}

/// Two locks in the way of a client that waits for all of them; behind it somebody who waits for the first only.
fn with_one_behind() -> (World, ClientId, StateId) {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let open = world.open(client, "o", 1, share(RW, NONE)).unwrap();
    lock(&mut world, 1, 1, bytes(0, 3), WRITE).unwrap();
    lock(&mut world, 2, 1, bytes(8, 9), WRITE).unwrap();
    assert!(world.lock(&nfs4_lock(client, 1, open, "l", bytes(0, 9))).is_err());
    assert_eq!(lock(&mut world, 3, 1, bytes(0, 3), READ), Err(ForeignRefusal::Waiting));
    world.engine.foreign_leave(nlm(1), FileKey(1), world.now);
    assert_eq!(granted_in(&world.settle()), [], "not before those in front");
    (world, client, open)
}

fn granted_in(effects: &[Effect]) -> Vec<Effect> {
    effects.iter().filter(|effect| matches!(effect, Effect::ForeignGranted { .. })).cloned().collect()
}

/// Who is away loses nothing while another has to give back as well, and afterwards nobody asks.
#[test]
fn who_waits_behind_the_promises_of_one_there_and_of_one_away_is_given_the_lock() {
    let mut world = World::new();
    let (away, _) = world.client("a", 1);
    world.delegate(away, 1, DelegationKind::Read);
    world.pass(LEASE_MS + 1);
    world.engine.tick(world.now);
    let (there, _) = world.client("b", 1);
    let of = world.delegate(there, 1, DelegationKind::Read);
    world.settle();
    assert_eq!(lock(&mut world, 1, 1, bytes(0, 9), WRITE), Err(ForeignRefusal::Waiting));
    world.settle();
    world.engine.delegation_return(Caller::V41(there), of.stateid, FileKey(1), world.now).unwrap();
    assert_eq!(granted_in(&world.settle()), []);
    world.engine.tick(world.now);
    assert_eq!(granted_in(&world.settle()), [granted(1, 1, bytes(0, 9), WRITE)]);
}

/// For one of them courtesy has no room; it is on its way out, and is gone before that for what it had promised of another file.
#[test]
fn who_waits_behind_one_who_has_gone_for_another_is_contended_for_in_the_same_tick() {
    let mut world = World::new();
    let (holder, _) = world.client("a", 1);
    let open = world.open(holder, "o", 1, share(R, NONE)).unwrap();
    world.lock(&lock_by(holder, 1, open, "l", bytes(0, 9), READ)).unwrap();
    world.delegate(holder, 2, DelegationKind::Read);
    let (other, _) = world.client("b", 1);
    world.delegate(other, 1, DelegationKind::Read);
    assert_eq!(lock(&mut world, 1, 1, bytes(0, 9), WRITE), Err(ForeignRefusal::Waiting));
    assert_eq!(lock(&mut world, 2, 2, bytes(0, 9), WRITE), Err(ForeignRefusal::Waiting));
    world.settle();
    world.engine.set_policy(Policy { courtesy_clients_max: 1, ..Policy::default() });
    world.pass(LEASE_MS + 1);
    world.engine.tick(world.now);
    let effects = world.settle();
    let is_known = |client| world.engine.report_clients(world.now).iter().any(|known| known.id == client);
    assert_eq!([holder, other].map(is_known), [false; 2], "who is in somebody's way has no courtesy");
    let mut given = granted_in(&effects);
    given.sort_by_key(|effect| matches!(effect, Effect::ForeignGranted { owner, .. } if *owner == nlm(2)));
    assert_eq!(given, [granted(1, 1, bytes(0, 9), WRITE), granted(2, 2, bytes(0, 9), WRITE)]);
}

#[test]
fn who_waits_for_something_else_now_is_in_nobodys_way_any_more() {
    let (mut world, client, open) = with_one_behind();
    assert!(world.lock(&nfs4_lock(client, 1, open, "l", bytes(8, 8))).is_err());
    assert_eq!(granted_in(&world.settle()), [granted(3, 1, bytes(0, 3), READ)]);
}

#[test]
fn a_lesser_lock_than_was_waited_for_lets_those_behind_in() {
    let (mut world, client, open) = with_one_behind();
    world.engine.foreign_leave(nlm(2), FileKey(1), world.now);
    let owner = OwnerName::new(b"l");
    assert_eq!(world.settle(), [Effect::NotifyLock { client, file: FileKey(1), owner }]);
    let lesser = LockRequest { kind: READ, ..nfs4_lock(client, 1, open, "l", bytes(0, 9)) };
    world.lock(&lesser).unwrap();
    assert_eq!(granted_in(&world.settle()), [granted(3, 1, bytes(0, 3), READ)]);
}

#[test]
fn a_lock_on_other_bytes_leaves_the_wait_of_another_thread() {
    let (mut world, client, open) = with_one_behind();
    world.lock(&nfs4_lock(client, 1, open, "l", bytes(20, 29))).unwrap();
    assert_eq!(world.engine.census().waiters, 2);
    world.engine.foreign_leave(nlm(2), FileKey(1), world.now);
    assert!(matches!(world.settle()[..], [Effect::NotifyLock { .. }]));
}
