//! Opens, stateids, I/O, grace, and 4.0's owner sequences.

use crate::world::*;
use holdfast_base::limits::OWNER_SKIPPED_MAX;
use holdfast_base::{ClientId, FileKey, Instant, Seqid};
use holdfast_state::*;

#[test]
fn open_with_deny_write_conflicts_with_an_existing_writer() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    let (b, _) = world.client("b", 1);
    world.open(a, "o", 1, share(W, NONE)).unwrap();
    assert_eq!(world.open(b, "o", 1, share(R, W)), Err(StateError::ShareDenied));
    assert_eq!(world.open(a, "other", 1, share(R, W)), Err(StateError::ShareDenied), "owners, not clients");
    assert!(world.open(b, "o", 1, share(R, NONE)).is_ok());
    assert_eq!(world.open(b, "o", 1, share(NONE, NONE)), Err(StateError::Inval));
    world.settle();
}

#[test]
fn a_second_open_of_an_owner_is_the_same_state_with_the_union() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    let first = world.open(a, "o", 1, share(R, NONE)).unwrap();
    let second = world.open(a, "o", 1, share(W, NONE)).unwrap();
    assert_eq!((first.other, second.seqid), (second.other, Seqid(2)));
    let me = Caller::V41(a);
    assert_eq!(world.io(me, second, 1, R), Ok(IoGrant::Open(OpenId(1))), "each by the descriptor it brought");
    assert_eq!(world.io(me, second, 1, W), Ok(IoGrant::Open(OpenId(2))));
    assert_eq!(world.io(me, first, 1, R), Err(StateError::OldStateid));
    assert_eq!(world.io(me, StateId { seqid: Seqid(0), ..first }, 1, R), Ok(IoGrant::Open(OpenId(1))));
    assert_eq!(world.io(me, StateId { seqid: Seqid(3), ..first }, 1, R), Err(StateError::BadStateid));
    assert_eq!(world.io(me, second, 2, R), Err(StateError::BadStateid), "another file");
    let down = world.engine.open_downgrade(me, second, FileKey(1), share(R, NONE), world.now).unwrap();
    assert_eq!(down.seqid, Seqid(3));
    assert_eq!(world.io(me, down, 1, W), Err(StateError::OpenMode));
    let up = world.engine.open_downgrade(me, down, FileKey(1), share(RW, NONE), world.now);
    assert_eq!(up, Err(StateError::Inval));
    assert_eq!(world.engine.close(me, down, FileKey(1), world.now), Ok(StateId::INVALID));
    assert_eq!(world.io(me, down, 1, R), Err(StateError::BadStateid));
    assert!(world.settle().ends_with(&[Effect::CloseFile(OpenId(1)), Effect::CloseFile(OpenId(2))]));
    assert_eq!(world.engine.census().files, 0);
}

#[test]
fn a_descriptor_for_both_replaces_the_others() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    for access in [R, W, RW] {
        world.open(a, "o", 1, share(access, NONE)).unwrap();
    }
    assert!(world.settle().ends_with(&[Effect::CloseFile(OpenId(1)), Effect::CloseFile(OpenId(2))]));
    let open = world.open(a, "o", 1, share(W, NONE)).unwrap();
    assert_eq!(world.io(Caller::V41(a), open, 1, R), Ok(IoGrant::Open(OpenId(3))));
}

/// Two threads of one user open one file at the same moment, on two slots.
fn begun(world: &mut World, client: ClientId, share: Share) -> Opened {
    let request = OpenRequest { client, owner: b"o", file: FileKey(1), share, claim: Claim::New };
    world.engine.open(&request, world.now).unwrap()
}

#[test]
fn opens_under_way_at_once_take_no_descriptor_from_each_other() {
    for reader_ends_first in [true, false] {
        let mut world = World::new();
        let (a, _) = world.client("a", 1);
        let reader = begun(&mut world, a, share(R, NONE));
        let writer = begun(&mut world, a, share(RW, NONE));
        assert_eq!((reader.backing, writer.backing), (Backing::Needed(R), Backing::Needed(RW)));
        let mut ends = [(reader.ticket, OpenId(1), R), (writer.ticket, OpenId(2), RW)];
        if !reader_ends_first {
            ends.reverse();
        }
        for (ticket, id, access) in ends {
            world.engine.attach(&ticket, id, access).unwrap();
            world.engine.open_commit(ticket).unwrap();
        }
        let closed: Vec<_> = world.settle();
        assert!(closed.contains(&Effect::CloseFile(OpenId(1))), "the one for both serves");
        let open = world.open(a, "o", 1, share(W, NONE)).unwrap();
        assert_eq!(open.seqid, Seqid(3));
        assert_eq!(world.io(Caller::V41(a), open, 1, W), Ok(IoGrant::Open(OpenId(2))));
        assert_eq!(world.io(Caller::V41(a), open, 1, R), Ok(IoGrant::Open(OpenId(2))));
    }
}

#[test]
fn a_refused_open_leaves_nothing_behind_however_others_came_between() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    let (b, _) = world.client("b", 1);
    let refused = begun(&mut world, a, share(W, NONE));
    let granted = begun(&mut world, a, share(R, NONE));
    world.engine.attach(&granted.ticket, OpenId(1), R).unwrap();
    let stateid = world.engine.open_commit(granted.ticket).unwrap();
    assert_eq!(world.io(Caller::V41(a), stateid, 1, W), Err(StateError::OpenMode), "not granted yet");
    world.engine.open_undo(refused.ticket, world.now);
    world.settle();
    assert_eq!(stateid.seqid, Seqid(1), "the client never saw another number");
    assert_eq!(world.io(Caller::V41(a), stateid, 1, R), Ok(IoGrant::Open(OpenId(1))));
    assert!(world.open(b, "o", 1, share(R, W)).is_ok(), "nobody writes");
    world.engine.close(Caller::V41(a), stateid, FileKey(1), world.now).unwrap();
    world.settle();
    assert_eq!(world.engine.census().opens, 1);
}

#[test]
fn a_close_waits_for_an_open_under_way_whose_state_it_would_take() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    let open = world.open(a, "o", 1, share(R, NONE)).unwrap();
    let upgrade = begun(&mut world, a, share(W, NONE));
    let me = Caller::V41(a);
    assert_eq!(world.engine.close(me, open, FileKey(1), world.now), Err(StateError::Delay));
    let down = world.engine.open_downgrade(me, open, FileKey(1), share(R, NONE), world.now);
    assert_eq!(down, Err(StateError::Delay));
    world.engine.open_undo(upgrade.ticket, world.now);
    assert_eq!(world.engine.close(me, open, FileKey(1), world.now), Ok(StateId::INVALID));
    world.settle();
}

#[test]
fn an_open_without_a_descriptor_can_be_taken_back() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    let first = world.open(a, "o", 1, share(R, NONE)).unwrap();
    let upgrade = begun(&mut world, a, share(RW, NONE));
    assert_eq!(upgrade.backing, Backing::Needed(RW));
    world.engine.open_undo(upgrade.ticket, world.now);
    assert_eq!(world.io(Caller::V41(a), first, 1, R), Ok(IoGrant::Open(OpenId(1))));
    assert_eq!(world.io(Caller::V41(a), first, 1, W), Err(StateError::OpenMode));
    let other =
        OpenRequest { client: a, owner: b"p", file: FileKey(1), share: share(W, NONE), claim: Claim::New };
    let new = world.engine.open(&other, world.now).unwrap();
    let client_gone = world.engine.revoke_client(a, world.now);
    assert!(client_gone);
    let late = world.engine.attach(&new.ticket, OpenId(99), RW);
    assert_eq!(late, Err(StateError::BadStateid));
    assert_eq!(world.engine.open_commit(new.ticket), Err(StateError::BadStateid));
    world.settle();
    assert_eq!(world.engine.census().opens, 0);
}

#[test]
fn a_conflict_with_a_lapsed_client_expires_it() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    world.open(a, "o", 1, share(RW, RW)).unwrap();
    world.pass(LEASE_MS + 1);
    let (b, _) = world.client("b", 1);
    assert!(world.open(b, "o", 1, share(R, NONE)).is_ok());
    assert!(world.settle().contains(&Effect::CloseFile(OpenId(1))));
}

#[test]
fn anonymous_io_respects_share_reservations_and_bypass_reads_do_not() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    world.open(a, "o", 1, share(R, RW)).unwrap();
    let me = Caller::V41(a);
    assert_eq!(world.io(me, StateId::ANONYMOUS, 1, R), Err(StateError::Locked));
    assert_eq!(world.io(me, StateId::READ_BYPASS, 1, R), Ok(IoGrant::NoOpen));
    assert_eq!(world.io(me, StateId::READ_BYPASS, 1, W), Err(StateError::Locked));
    assert_eq!(world.engine.check_io(FileKey(1), W, IoBy::Nfs3, world.now), Err(StateError::Locked));
    assert_eq!(world.io(me, StateId::ANONYMOUS, 2, RW), Ok(IoGrant::NoOpen));
    assert_eq!(world.io(me, StateId::INVALID, 2, RW), Err(StateError::BadStateid));
}

#[test]
fn one_clients_stateid_is_nothing_to_another() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    let (b, _) = world.client("b", 1);
    let open = world.open(a, "o", 1, share(R, NONE)).unwrap();
    assert_eq!(world.io(Caller::V41(b), open, 1, R), Err(StateError::BadStateid));
    assert_eq!(world.io(Caller::V40, open, 1, R), Err(StateError::BadStateid));
    let mut next = World::with(config(2, Grace::Over));
    assert_eq!(next.io(Caller::V40, open, 1, R), Err(StateError::StaleStateid));
    assert_eq!(next.io(Caller::V41(a), open, 1, R), Err(StateError::BadStateid));
}

#[test]
fn revoked_state_is_told_until_it_is_freed() {
    let mut world = World::new();
    let (a, session) = world.client("a", 1);
    let open = world.open(a, "o", 1, share(R, RW)).unwrap();
    assert_eq!(world.engine.free_stateid(a, open, world.now), Err(StateError::LocksHeld));
    world.engine.revoke_state(open, world.now).unwrap();
    assert!(world.settle().contains(&Effect::CloseFile(OpenId(1))));
    assert_eq!(world.io(Caller::V41(a), open, 1, R), Err(StateError::AdminRevoked));
    assert_eq!(world.engine.test_stateid(a, open), Err(StateError::AdminRevoked));
    assert!(world.sequence(session, 0, 1).unwrap().status.is_state_revoked);
    let (b, _) = world.client("b", 1);
    assert!(world.open(b, "o", 1, share(W, NONE)).is_ok());
    world.settle();
    assert_eq!(world.engine.free_stateid(a, open, world.now), Ok(()));
    assert_eq!(world.engine.test_stateid(a, open), Err(StateError::BadStateid));
    assert!(!world.sequence(session, 1, 1).unwrap().status.is_state_revoked);
    world.settle();
}

/// RFC 8881 section 8.4.3: nothing is reclaimed that somebody may have been in conflict with since.
#[test]
fn what_was_revoked_in_grace_is_not_reclaimed_once_more_before_its_client_has_taken_note() {
    let mut world = World::with(config(1, Grace::Until(Instant(60_000))));
    let reclaim = Claim::Reclaim(Recorded::Yes);
    let (a, _) = world.reclaiming("a", 1);
    let [taken, other] =
        ["o", "p"].map(|owner| world.open_claiming(a, owner, 1, share(RW, NONE), reclaim).unwrap());
    let lock = LockRequest { claim: reclaim, ..lock_by(a, 1, other, "l", bytes(0, 9), LockKind::Write) };
    let locked = world.lock(&lock).unwrap();
    world.engine.revoke_state(taken, world.now).unwrap();
    world.engine.revoke_state(locked, world.now).unwrap();
    let again = world.open_claiming(a, "o", 1, share(RW, NONE), reclaim);
    assert_eq!(again, Err(StateError::ReclaimConflict));
    assert_eq!(world.lock(&lock), Err(StateError::ReclaimConflict.into()));
    assert!(world.open_claiming(a, "p", 1, share(RW, NONE), reclaim).is_ok(), "another owner's is there");
    assert!(world.open_claiming(a, "o", 2, share(RW, NONE), reclaim).is_ok(), "it had more");
    world.engine.free_stateid(a, taken, world.now).unwrap();
    assert!(world.open_claiming(a, "o", 1, share(RW, NONE), reclaim).is_ok(), "it has taken note");
    world.settle();
}

#[test]
fn grace_serves_reclaims_only_and_afterwards_none() {
    let mut world = World::with(config(1, Grace::Until(Instant(60_000))));
    let reclaim = Claim::Reclaim(Recorded::Yes);
    let (a, _) = world.reclaiming("a", 1);
    assert_eq!(world.open(a, "o", 1, share(R, NONE)), Err(StateError::Grace));
    let unrecorded = world.open_claiming(a, "o", 1, share(R, NONE), Claim::Reclaim(Recorded::No));
    assert_eq!(unrecorded, Err(StateError::ReclaimBad));
    let open = world.open_claiming(a, "o", 1, share(RW, W), reclaim).unwrap();
    let mut lock = lock_by(a, 1, open, "l", bytes(0, 9), LockKind::Write);
    assert_eq!(world.lock(&lock), Err(LockRefusal::Error(StateError::Grace)));
    lock.claim = reclaim;
    world.lock(&lock).unwrap();
    assert_eq!(world.io(Caller::V41(a), StateId::ANONYMOUS, 2, R), Err(StateError::Grace));
    assert!(world.engine.check_io(FileKey(2), R, IoBy::Nfs3, world.now).is_ok());
    let (b, _) = world.reclaiming("b", 1);
    let conflict = world.open_claiming(b, "o", 1, share(W, NONE), reclaim);
    assert_eq!(conflict, Err(StateError::ReclaimConflict));
    world.engine.reclaim_complete(a).unwrap();
    let late = world.open_claiming(a, "o", 2, share(R, NONE), reclaim);
    assert_eq!(late, Err(StateError::NoGrace), "it said it was done");
    let late = world.open_claiming(a, "o", 1, share(RW, W), reclaim);
    assert_eq!(late, Err(StateError::NoGrace), "of what it has, too");
    world.engine.set_grace(Grace::Over);
    assert!(world.open(a, "o", 3, share(R, NONE)).is_ok());
    assert_eq!(world.open(b, "o", 3, share(R, NONE)), Err(StateError::Grace), "it has not said so");
    let outside = world.open_claiming(b, "o", 3, share(R, NONE), reclaim);
    assert_eq!(outside, Err(StateError::NoGrace));
    world.settle();
}

/// RFC 8881 section 8.4.2.1: in grace no READ is served that what is not reclaimed yet may forbid.
#[test]
fn an_open_to_write_reads_no_file_in_grace_that_others_may_yet_reclaim_against_readers() {
    let mut world = World::with(config(2, Grace::Until(Instant(60_000))));
    let clients = ["a", "b"].map(|name| world.reclaiming(name, 1).0);
    let [a, b] = clients;
    let reclaim = Claim::Reclaim(Recorded::Yes);
    let writes = world.open_claiming(a, "o", 1, share(W, NONE), reclaim).unwrap();
    let caller = Caller::V41(a);
    assert_eq!(world.io(caller, writes, 1, R), Err(StateError::Grace));
    assert!(world.io(caller, writes, 1, W).is_ok(), "nobody can have denied what is open");
    world.open_claiming(b, "o", 1, share(W, R), reclaim).unwrap();
    clients.into_iter().for_each(|client| world.engine.reclaim_complete(client).unwrap());
    world.engine.set_grace(Grace::Over);
    assert_eq!(world.io(caller, writes, 1, R), Err(StateError::Locked));
    world.settle();
}

fn begin(world: &mut World, of: OwnerOf<'_>, seqid: u32, op: OwnerOp) -> Result<OwnerTurn, StateError> {
    world.engine.begin_owner(of, Seqid(seqid), op, world.now)
}

/// Runs one operation of an owner and keeps `reply`.
fn run(world: &mut World, of: OwnerOf<'_>, seqid: u32, op: OwnerOp, reply: &[u8]) {
    let Ok(OwnerTurn::Run(ticket)) = begin(world, of, seqid, op) else { panic!("{op:?} {seqid} is not run") };
    world.engine.end_owner(&ticket, Some(reply));
}

fn by_name(client: ClientId) -> OwnerOf<'static> {
    OwnerOf::Open { client, name: b"o" }
}

#[test]
fn a_40_owner_is_confirmed_and_its_retries_get_the_first_reply() {
    let mut world = World::new();
    let client = world.client40("a", 1);
    let Ok(OwnerTurn::Run(ticket)) = begin(&mut world, by_name(client), 5, OwnerOp::Open) else { panic!() };
    let open = world.open(client, "o", 1, share(RW, NONE)).unwrap();
    assert_eq!(begin(&mut world, by_name(client), 5, OwnerOp::Open), Ok(OwnerTurn::Busy));
    world.engine.end_owner(&ticket, Some(b"opened"));
    assert_eq!(world.io(Caller::V40, open, 1, R), Err(StateError::BadStateid), "not confirmed yet");
    let again = begin(&mut world, by_name(client), 5, OwnerOp::Open);
    assert_eq!(again, Ok(OwnerTurn::Replay(b"opened".to_vec())));
    assert_eq!(begin(&mut world, OwnerOf::Stateid(open), 7, OwnerOp::OpenConfirm), Err(StateError::BadSeqid));
    run(&mut world, OwnerOf::Stateid(open), 6, OwnerOp::OpenConfirm, b"confirmed");
    let open = world.engine.open_confirm(open, FileKey(1), world.now).unwrap();
    assert_eq!(world.io(Caller::V40, open, 1, W), Ok(IoGrant::Open(OpenId(1))));
    assert_eq!(
        begin(&mut world, by_name(client), 6, OwnerOp::Open),
        Err(StateError::BadSeqid),
        "another operation"
    );
    world.settle();
}

#[test]
fn a_40_close_can_be_retried_until_the_owner_goes_on() {
    let mut world = World::new();
    let client = world.client40("a", 1);
    run(&mut world, by_name(client), 1, OwnerOp::Open, b"opened");
    let open = world.open(client, "o", 1, share(R, NONE)).unwrap();
    let open = world.engine.open_confirm(open, FileKey(1), world.now).unwrap();
    run(&mut world, OwnerOf::Stateid(open), 2, OwnerOp::Close, b"closed");
    let closed = world.engine.close(Caller::V40, open, FileKey(1), world.now).unwrap();
    assert_eq!(closed.seqid, open.seqid.next());
    assert_eq!(world.settle().last(), Some(&Effect::CloseFile(OpenId(1))));
    let retry = begin(&mut world, OwnerOf::Stateid(open), 2, OwnerOp::Close);
    assert_eq!(retry, Ok(OwnerTurn::Replay(b"closed".to_vec())));
    assert_eq!(world.io(Caller::V40, closed, 1, R), Err(StateError::BadStateid));
    run(&mut world, by_name(client), 3, OwnerOp::Open, b"opened again");
    let gone = begin(&mut world, OwnerOf::Stateid(open), 2, OwnerOp::Close);
    assert_eq!(gone, Err(StateError::BadStateid));
    world.settle();
    for _ in 0..4 {
        world.pass(LEASE_MS / 2);
        world.engine.renew(client, world.now).unwrap();
        world.engine.tick(world.now);
        world.settle();
    }
    assert_eq!(world.engine.census().owners, 0, "an idle owner is forgotten after a lease");
}

/// Linux counts LOCKs that it did not number, while it recovers.
#[test]
fn a_40_owner_that_has_reclaimed_may_leave_numbers_out_and_never_go_back() {
    let in_grace = Grace::Until(Instant(LEASE_MS));
    let mut world = World::with(config(2, in_grace));
    let client = world.client40("a", 1);
    run(&mut world, by_name(client), 7, OwnerOp::Open, b"reclaimed");
    let claim = Claim::Reclaim(Recorded::Yes);
    let open = world.open_claiming(client, "o", 1, share(RW, NONE), claim).unwrap();
    let lock = |world: &mut World, seqid| begin(world, OwnerOf::Stateid(open), seqid, OwnerOp::Lock);
    let ahead = 7 + 1 + OWNER_SKIPPED_MAX;
    assert_eq!(lock(&mut world, ahead + 1), Err(StateError::BadSeqid), "too far");
    run(&mut world, OwnerOf::Stateid(open), 9, OwnerOp::Lock, b"locked");
    assert_eq!(lock(&mut world, 9), Ok(OwnerTurn::Replay(b"locked".to_vec())));
    assert_eq!(lock(&mut world, 8), Err(StateError::BadSeqid), "left out for good");
    run(&mut world, by_name(client), ahead, OwnerOp::Open, b"opened");
    assert_eq!(lock(&mut world, 9), Err(StateError::BadSeqid));

    run(&mut world, OwnerOf::Open { client, name: b"another" }, 7, OwnerOp::Open, b"refused");
    let another = OwnerOf::Open { client, name: b"another" };
    world.engine.set_grace(Grace::Over);
    world.open(client, "another", 2, share(RW, NONE)).unwrap();
    let skipping = begin(&mut world, another, 9, OwnerOp::OpenConfirm);
    assert_eq!(skipping, Err(StateError::BadSeqid), "it has reclaimed nothing");
    world.settle();
}

#[test]
fn an_unconfirmed_40_owner_that_opens_anew_loses_its_first_open() {
    let mut world = World::new();
    let client = world.client40("a", 1);
    run(&mut world, by_name(client), 1, OwnerOp::Open, b"opened");
    world.open(client, "o", 1, share(RW, RW)).unwrap();
    run(&mut world, by_name(client), 9, OwnerOp::Open, b"opened");
    assert_eq!(world.engine.census().opens, 0);
    assert_eq!(world.settle().last(), Some(&Effect::CloseFile(OpenId(1))));
}

#[test]
fn use_of_a_stateid_renews_a_40_lease_and_after_expiry_says_so() {
    let mut world = World::new();
    let client = world.client40("a", 1);
    let open = world.open(client, "o", 1, share(R, NONE)).unwrap();
    let open = world.engine.open_confirm(open, FileKey(1), world.now).unwrap();
    for _ in 0..3 {
        world.pass(LEASE_MS - 1);
        world.io(Caller::V40, open, 1, R).unwrap();
        world.engine.tick(world.now);
    }
    no_courtesy(&mut world);
    world.pass(LEASE_MS + 1);
    world.engine.tick(world.now);
    assert_eq!(world.io(Caller::V40, open, 1, R), Err(StateError::Expired), "going");
    world.settle();
    world.engine.tick(world.now);
    assert_eq!(world.io(Caller::V40, open, 1, R), Err(StateError::Expired), "gone");
    world.settle();
}

#[test]
fn a_40_owner_that_reclaims_needs_no_confirmation() {
    let mut world = World::with(config(1, Grace::Until(Instant(60_000))));
    let client = world.client40("a", 1);
    run(&mut world, by_name(client), 1, OwnerOp::Open, b"reclaimed");
    let reclaim = Claim::Reclaim(Recorded::Yes);
    let open = world.open_claiming(client, "o", 1, share(RW, NONE), reclaim).unwrap();
    assert_eq!(world.io(Caller::V40, open, 1, W), Ok(IoGrant::Open(OpenId(1))));
    world.settle();
}
