//! Clients whose lease ran out: they keep what nobody wants, within bounds, and go in two steps.

use crate::world::*;
use holdfast_base::limits::COURTESY_MS;
use holdfast_base::{ClientId, FileKey, SlotId};
use holdfast_state::*;

fn forgotten(effects: &[Effect]) -> Vec<ClientId> {
    let client = |effect: &Effect| match effect {
        Effect::ForgetClient(client) => Some(*client),
        _ => None,
    };
    effects.iter().filter_map(client).collect()
}

/// A client with an open, away for longer than its lease.
fn with_one_away() -> (World, ClientId, holdfast_base::SessionId, StateId) {
    let mut world = World::new();
    let (client, session) = world.client("a", 1);
    let open = world.open(client, "o", 1, share(RW, W)).unwrap();
    world.settle();
    world.pass(LEASE_MS + 1);
    world.engine.tick(world.now);
    (world, client, session, open)
}

#[test]
fn a_client_that_comes_back_before_anybody_wants_its_state_simply_goes_on() {
    let (mut world, client, session, open) = with_one_away();
    assert_eq!(world.settle(), []);
    assert_eq!(world.engine.census().courteous, 1);
    world.pass(10 * LEASE_MS);
    world.engine.tick(world.now);
    assert!(world.engine.report_clients(world.now)[0].courteous_since.is_some());
    world.sequence(session, 0, 1).unwrap();
    world.io(Caller::V41(client), open, 1, W).unwrap();
    let now = world.now;
    world.engine.sessions_mut().complete(session, SlotId(0), KeptReply::Nothing, now);
    let report = world.engine.report_clients(world.now);
    assert_eq!((report[0].courteous_since, report[0].lease_left_ms), (None, Some(LEASE_MS)));
    world.engine.tick(world.now);
    assert_eq!(world.engine.census().courteous, 0);
    assert_eq!(world.settle(), []);
}

#[test]
fn a_conflict_ends_courtesy_on_the_spot_and_the_record_goes_before_the_reply() {
    for conflict in 0..4 {
        let (mut world, client, session, _) = with_one_away();
        let (other, _) = world.client("b", 1);
        world.settle();
        match conflict {
            0 => assert!(world.open(other, "o", 1, share(W, NONE)).is_ok()),
            1 => assert!(world.engine.check_io(FileKey(1), W, IoBy::Nfs3, world.now).is_ok()),
            2 => {
                let nlm = ForeignOwner { door: Door::Nlm, id: 1 };
                let claim = ForeignClaim::New;
                world.engine.foreign_share(nlm, FileKey(1), share(W, NONE), claim, world.now).unwrap();
            }
            _ => {
                assert!(world.open(other, "o", 1, share(R, NONE)).is_ok(), "no conflict");
                assert_eq!(forgotten(&world.settle()), []);
                continue;
            }
        }
        assert_eq!(forgotten(&world.settle()), [client]);
        assert_eq!(world.sequence(session, 0, 1), Err(StateError::BadSession));
    }
}

#[test]
fn what_is_delegated_to_one_who_is_away_is_lost_with_the_first_conflict() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let of = world.delegate(client, 1, DelegationKind::Write);
    world.settle();
    world.pass(LEASE_MS + 1);
    world.engine.tick(world.now);
    assert_eq!(world.settle(), []);
    assert!(!world.contend(1, Deed::OpenRead, None), "nobody waits for the dead");
    let effects = world.settle();
    assert_eq!((ended(&effects), forgotten(&effects)), (vec![of.token], vec![client]));
}

/// Who waits in line asks no more, and its wait began while the holder's lease ran.
#[test]
fn who_waits_for_a_lock_has_it_when_the_holders_lease_has_run_out() {
    let mut world = World::new();
    let (away, _) = world.client("a", 1);
    let (waiting, session) = world.client("b", 1);
    let opens = [away, waiting].map(|client| world.open(client, "o", 1, share(RW, NONE)).unwrap());
    world.lock(&lock_by(away, 1, opens[0], "l", bytes(0, 9), LockKind::Write)).unwrap();
    let other = lock_by(waiting, 1, opens[1], "m", bytes(0, 4), LockKind::Write);
    let other = LockRequest { wait: Wait::Notify, ..other };
    let nlm = ForeignOwner { door: Door::Nlm, id: 1 };
    let foreign = ForeignRequest {
        owner: nlm,
        file: FileKey(1),
        range: bytes(5, 9),
        kind: LockKind::Read,
        claim: ForeignClaim::New,
        wait: ForeignWait::InLine,
    };
    assert!(world.engine.foreign_prepare(&foreign, world.now).is_err());
    world.settle();
    for seqid in 1..=2 {
        world.pass(LEASE_MS / 2);
        world.sequence(session, 0, seqid).unwrap();
        let now = world.now;
        world.engine.sessions_mut().complete(session, SlotId(0), KeptReply::Nothing, now);
        assert!(world.lock(&other).is_err());
        world.engine.tick(world.now);
        assert_eq!(world.settle(), [], "the lease runs still");
    }
    world.pass(1);
    world.engine.tick(world.now);
    let effects = world.settle();
    assert_eq!(forgotten(&effects), [away]);
    let told = |effect: &Effect| matches!(effect, Effect::NotifyLock { client, .. } if *client == waiting);
    assert!(effects.iter().any(told), "{effects:?}");
    let given = |effect: &Effect| matches!(effect, Effect::ForeignGranted { owner, .. } if *owner == nlm);
    assert!(effects.iter().any(given), "{effects:?}");
    assert!(world.lock(&other).is_ok());
}

#[test]
fn courtesy_is_bounded_in_time_and_number_and_those_longest_away_go_first() {
    let mut world = World::new();
    let mut clients = Vec::new();
    for name in ["a", "b", "c"] {
        let (client, _) = world.client(name, 1);
        world.open(client, "o", clients.len() as u128, share(R, NONE)).unwrap();
        clients.push(client);
        world.pass(1000);
    }
    world.settle();
    // In seconds, as they come.
    for _ in 0..LEASE_MS / 1000 + 3 {
        world.pass(1000);
        world.engine.tick(world.now);
    }
    assert_eq!(world.engine.census().courteous, 3);
    world.engine.set_policy(Policy { courtesy_clients_max: 2, ..Policy::default() });
    world.engine.tick(world.now);
    assert_eq!(forgotten(&world.settle()), [clients[0]]);
    world.engine.tick(world.now);
    assert_eq!(world.engine.census().opens, 2);
    world.pass(COURTESY_MS);
    world.engine.tick(world.now);
    assert_eq!(forgotten(&world.settle()), clients[1..]);
    world.engine.tick(world.now);
    world.settle();
    assert_eq!(world.engine.census(), Census::default());
}

#[test]
fn who_holds_nothing_gets_no_courtesy() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    world.settle();
    world.pass(LEASE_MS + 1);
    world.engine.tick(world.now);
    assert_eq!(forgotten(&world.settle()), [client]);
}

#[test]
fn a_client_that_is_going_can_do_nothing_and_its_state_is_nobodys_before_the_record_is_gone() {
    let (mut world, client, session, _) = with_one_away();
    no_courtesy(&mut world);
    let (other, _) = world.client("b", 1);
    world.settle();
    world.engine.tick(world.now);
    assert_eq!(forgotten(&world.settle()), [client]);
    assert_eq!(world.engine.census().opens, 1);
    assert_eq!(world.sequence(session, 0, 1), Err(StateError::BadSession));
    let seqid = holdfast_base::Seqid(3);
    assert_eq!(world.create(client, seqid), Err(StateError::StaleClientid));
    assert_eq!(world.engine.destroy_clientid(client, world.now), Err(StateError::StaleClientid));
    assert_eq!(world.open(client, "o", 2, share(R, NONE)), Err(StateError::StaleClientid));
    // Who wants it before the next tick makes sure of the record in its own step.
    world.open(other, "o", 1, share(W, NONE)).unwrap();
    assert_eq!(forgotten(&world.settle()), [client]);
}

#[test]
fn a_client_that_comes_anew_while_it_is_going_begins_anew() {
    let (mut world, client, ..) = with_one_away();
    no_courtesy(&mut world);
    world.engine.tick(world.now);
    let again = world.exchange("a", 1).unwrap();
    assert!(again.client != client && !again.is_confirmed);
    world.create(again.client, again.next_seqid).unwrap();
    world.settle();
    world.engine.tick(world.now);
    assert_eq!(world.engine.census().clients, 1);
    let mut world = World::new();
    no_courtesy(&mut world);
    let old = world.client40("a", 1);
    world.pass(LEASE_MS + 1);
    world.engine.tick(world.now);
    assert_eq!(world.engine.renew(old, world.now), Err(StateError::Expired));
    let new = world.client40("a", 1);
    assert!(new != old);
    world.settle();
}

/// Whoever is refused or put off takes nothing from anybody: who is away loses what it has to a grant, and to nothing less.
#[test]
fn an_open_that_is_refused_or_put_off_ends_nobodys_courtesy() {
    for is_put_off in [false, true] {
        let mut world = World::new();
        let (away, session) = world.client("a", 1);
        let (lives, its) = world.client("b", 1);
        let (other, others) = world.client("c", 1);
        // Two readers, of which one will be away.
        let of = if is_put_off {
            world.delegate(away, 1, DelegationKind::Read);
            Some(world.delegate(lives, 1, DelegationKind::Read))
        } else {
            world.open(away, "o", 1, share(R, W)).unwrap();
            world.open(lives, "o", 1, share(R, W)).unwrap();
            None
        };
        world.settle();
        world.pass(LEASE_MS - 1000);
        for (seqid, session) in [its, others].into_iter().map(|session| (1, session)) {
            world.sequence(session, 0, seqid).unwrap();
            let now = world.now;
            world.engine.sessions_mut().complete(session, SlotId(0), KeptReply::Nothing, now);
        }
        world.pass(2000);
        world.engine.tick(world.now);
        assert_eq!(world.engine.census().courteous, 1);
        let refusal = if is_put_off { StateError::Delay } else { StateError::ShareDenied };
        for _ in 0..2 {
            assert_eq!(world.open(other, "o", 1, share(W, NONE)), Err(refusal));
            let effects = world.settle();
            assert_eq!((forgotten(&effects), ended(&effects)), (vec![], vec![]), "{refusal:?}");
            assert_eq!(world.engine.census().courteous, 1);
        }
        match of {
            Some(of) => {
                let caller = Caller::V41(lives);
                world.engine.delegation_return(caller, of.stateid, FileKey(1), world.now).unwrap();
            }
            None => {
                let open = world.open(lives, "o", 1, share(R, W)).unwrap();
                world.engine.close(Caller::V41(lives), open, FileKey(1), world.now).unwrap();
            }
        }
        world.settle();
        world.open(other, "o", 1, share(W, NONE)).unwrap();
        assert_eq!(forgotten(&world.settle()), [away], "the grant ends it");
        assert_eq!(world.sequence(session, 0, 1), Err(StateError::BadSession));
    }
}
