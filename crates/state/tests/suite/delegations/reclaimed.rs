//! Delegations that were held before a restart.

use holdfast_base::Instant;

use super::*;

#[test]
fn in_grace_only_what_was_held_is_delegated_and_afterwards_only_what_was_not() {
    let mut world = World::with(config(2, Grace::Until(Instant(100_000))));
    let (a, _) = world.reclaiming("a", 1);
    let (b, _) = world.reclaiming("b", 1);
    assert_eq!(world.why_none(a, 1, READ), Some(WhyNone::Grace));
    let reclaim = Grounds::Reclaim(Recorded::Yes);
    assert_eq!(world.offer(a, 1, WRITE, Grounds::Reclaim(Recorded::No)), Err(StateError::ReclaimBad));
    let Offer::Offered(ticket) = world.offer(a, 1, WRITE, reclaim).unwrap() else { panic!() };
    let of = world.engine.delegation_commit(ticket, world.now).unwrap();
    assert!(!of.is_recalled);
    assert_eq!(world.offer(b, 1, READ, reclaim), Ok(Offer::Declined(WhyNone::Contention)));
    // What the holder has open under it, it may open in grace.
    world.open_claiming(a, "o", 1, share(RW, NONE), Claim::Delegated(of.stateid)).unwrap();
    assert_eq!(world.open(a, "o", 1, share(RW, NONE)), Err(StateError::Grace));
    world.engine.set_policy(Policy { is_delegating: false, ..Policy::default() });
    let Offer::Offered(ticket) = world.offer(b, 2, READ, reclaim).unwrap() else { panic!() };
    assert!(
        world.engine.delegation_commit(ticket, world.now).unwrap().is_recalled,
        "to be given back at once"
    );
    world.engine.set_grace(Grace::Over);
    assert_eq!(world.offer(b, 3, READ, reclaim), Err(StateError::NoGrace));
    // Who is not done yet may begin again with what it has.
    assert_eq!(world.offer(a, 1, WRITE, reclaim), Ok(Offer::Declined(WhyNone::Held)));
    world.settle();
}

/// RFC 8881 section 10.2.1: opens made under it by CLAIM_DELEGATE_CUR, of whichever owner, may be reclaimed before it is.
#[test]
fn a_delegation_is_given_back_beside_all_that_its_client_had_open_and_nobody_else_has() {
    let mut world = World::with(config(2, Grace::Until(Instant(100_000))));
    let (a, _) = world.reclaiming("a", 1);
    let (b, _) = world.reclaiming("b", 1);
    let (reclaim, open) = (Grounds::Reclaim(Recorded::Yes), Claim::Reclaim(Recorded::Yes));
    for owner in ["one", "other"] {
        world.open_claiming(a, owner, 1, share(Access::READ, NONE), open).unwrap();
    }
    let Offer::Offered(ticket) = world.offer(a, 1, WRITE, reclaim).unwrap() else { panic!() };
    assert!(!world.engine.delegation_commit(ticket, world.now).unwrap().is_recalled);
    world.open_claiming(b, "theirs", 2, share(Access::READ, NONE), open).unwrap();
    assert_eq!(world.offer(a, 2, WRITE, reclaim), Ok(Offer::Declined(WhyNone::Contention)));
    world.settle();
}

/// RFC 8881 section 10.2.1. Its holder goes on with it all the time, and not all clients see that they are told nothing of it.
#[test]
fn what_others_do_while_a_delegation_is_given_back_waits_and_has_it_recalled() {
    let mut world = World::with(config(2, Grace::Until(Instant(100_000))));
    let (a, _) = world.reclaiming("a", 1);
    let (b, _) = world.reclaiming("b", 1);
    let reclaim = Grounds::Reclaim(Recorded::Yes);
    let Offer::Offered(ticket) = world.offer(a, 1, WRITE, reclaim).unwrap() else { panic!() };
    assert_eq!(world.offer(a, 1, WRITE, reclaim), Err(StateError::Delay), "sent twice");
    assert!(world.contend(1, Deed::LookAttrs, Some(b)));
    assert!(world.contend(1, Deed::LookAttrs, Some(b)), "for as long as it takes");
    let of = world.engine.delegation_commit(ticket, world.now).unwrap();
    assert!(of.is_recalled);
    assert!(world.contend(1, Deed::LookAttrs, Some(b)));
    let (caller, file) = (Caller::V41(a), FILE);
    world.engine.delegation_return(caller, of.stateid, file, world.now).unwrap();
    assert!(!world.contend(1, Deed::LookAttrs, Some(b)));
    // What there is no room for is granted no less, nor what the edge cannot hold against everybody.
    world.engine.set_policy(Policy { delegations_max: 0, ..Policy::default() });
    let Offer::Offered(ticket) = world.offer(a, 3, READ, reclaim).unwrap() else { panic!() };
    assert!(world.engine.delegation_commit(ticket, world.now).unwrap().is_recalled);
    world.engine.set_policy(Policy::default());
    let Offer::Offered(ticket) = world.offer(a, 2, READ, reclaim).unwrap() else { panic!() };
    world.engine.delegation_unwelcome(&ticket);
    assert!(world.engine.delegation_commit(ticket, world.now).unwrap().is_recalled);
    world.settle();
}

/// A client that comes back reclaims at once; whether the new server gets through to it is known a moment later.
#[test]
fn what_a_client_of_40_reclaims_before_its_callback_was_tried_it_may_keep() {
    let mut world = World::with(config(2, Grace::Until(Instant(100_000))));
    let client = world.client40("a", 1);
    let reclaim = |world: &mut World, file| {
        let offer = world.offer(client, file, READ, Grounds::Reclaim(Recorded::Yes)).unwrap();
        let Offer::Offered(ticket) = offer else { panic!("{offer:?}") };
        world.engine.delegation_commit(ticket, world.now).unwrap().is_recalled
    };
    assert!(!reclaim(&mut world, 1));
    world.engine.callback_path(client, false);
    assert!(reclaim(&mut world, 2), "nobody answers there");
    world.engine.callback_path(client, true);
    assert!(!reclaim(&mut world, 3));
    world.settle();
}

/// RFC 8881 section 8.4.3: nothing is reclaimed that somebody may have been in conflict with since.
#[test]
fn a_delegation_that_was_revoked_in_grace_is_not_reclaimed_once_more_for_all_that_its_client_may_reclaim() {
    let mut world = World::with(config(2, Grace::Until(Instant(10 * LEASE_MS))));
    let (a, session) = world.reclaiming("a", 1);
    let reclaim = Grounds::Reclaim(Recorded::Yes);
    let claim = |world: &mut World, file| match world.offer(a, file, READ, reclaim) {
        Ok(Offer::Offered(ticket)) => world.engine.delegation_commit(ticket, world.now),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error),
    };
    let of = claim(&mut world, 1).unwrap();
    assert!(world.contend(1, Deed::ChangeAttrs, None));
    world.pass(LEASE_MS);
    world.sequence(session, 0, 1).unwrap();
    world.engine.tick(world.now);
    assert_eq!(ended(&world.settle()), [of.token]);
    assert!(!world.contend(1, Deed::ChangeAttrs, None), "it is done");
    assert_eq!(claim(&mut world, 1), Err(StateError::ReclaimConflict));
    assert!(claim(&mut world, 2).is_ok(), "the rest it may have");
    world.settle();
}

/// Its processes' locks are sent before it is returned. Kept waiting until grace ends, two holders who have opened each other's
/// file would wait for each other.
#[test]
fn who_has_a_delegation_again_may_lock_in_grace_what_nobody_can_have_locked_beside_it() {
    let mut world = World::with(config(2, Grace::Until(Instant(100_000))));
    let (a, _) = world.reclaiming("a", 1);
    let claim = Claim::Reclaim(Recorded::Yes);
    let open = |world: &mut World, file| world.open_claiming(a, "o", file, share(RW, NONE), claim).unwrap();
    let opens = [1, 2, 3].map(|file| open(&mut world, file));
    for (file, kind) in [(1, WRITE), (2, READ)] {
        let offer = world.offer(a, file, kind, Grounds::Reclaim(Recorded::Yes)).unwrap();
        let Offer::Offered(ticket) = offer else { panic!("{offer:?}") };
        world.engine.delegation_commit(ticket, world.now).unwrap();
    }
    let lock = |world: &mut World, file: u128, kind| {
        world.lock(&lock_by(a, file, opens[file as usize - 1], "l", bytes(0, 9), kind)).map(drop)
    };
    let grace: Result<(), LockRefusal> = Err(StateError::Grace.into());
    let early = [LockKind::Read, LockKind::Write].map(|kind| lock(&mut world, 1, kind));
    assert_eq!(
        early,
        [grace.clone(), grace.clone()],
        "it could take from itself what it is still to reclaim"
    );
    world.engine.reclaim_complete(a).unwrap();
    let exclusively = [1, 2, 3].map(|file| lock(&mut world, file, LockKind::Write));
    assert_eq!(exclusively, [Ok(()), grace.clone(), grace.clone()], "others may read under theirs");
    let shared = [1, 2, 3].map(|file| lock(&mut world, file, LockKind::Read));
    assert_eq!(shared, [Ok(()), Ok(()), grace]);
    world.settle();
}

/// SQLite lets others read once it has written. Refused, it would keep its lock until all others have come back.
#[test]
fn who_has_locked_something_may_lock_less_of_it_in_grace() {
    let mut world = World::with(config(2, Grace::Until(Instant(100_000))));
    let (a, _) = world.reclaiming("a", 1);
    let claim = Claim::Reclaim(Recorded::Yes);
    let open = world.open_claiming(a, "o", 1, share(RW, NONE), claim).unwrap();
    let by = |range, kind| lock_by(a, 1, open, "l", range, kind);
    let reclaimed = LockRequest { claim, ..by(bytes(0, 9), LockKind::Write) };
    world.lock(&reclaimed).map(drop).unwrap();
    let grace: Result<(), LockRefusal> = Err(StateError::Grace.into());
    let less = by(bytes(2, 5), LockKind::Read);
    assert_eq!(world.lock(&less).map(drop), grace, "it is not through yet");
    world.engine.reclaim_complete(a).unwrap();
    assert_eq!(world.lock(&less).map(drop), Ok(()));
    assert_eq!(world.lock(&by(bytes(2, 5), LockKind::Write)).map(drop), grace, "somebody may have read");
    assert_eq!(world.lock(&by(bytes(8, 10), LockKind::Read)).map(drop), grace);
    world.settle();
}
