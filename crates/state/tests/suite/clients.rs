//! How clients come and go.

use crate::world::*;
use holdfast_base::limits::FORMER_AT_WORK_MS;
use holdfast_base::limits::{
    CLIENTS_PER_SITE_MAX, CLIENTS_UNCONFIRMED_MAX, CLIENTS_UNCONFIRMED_PER_SITE_MAX, SESSION_CONNECTIONS_MAX,
};
use holdfast_base::{FileKey, Seqid, SlotId};
use holdfast_state::*;

pub(crate) fn stranger() -> Principal {
    Principal::new(b"stranger")
}

#[test]
fn exchange_id_case_1_a_new_owner_gets_an_unconfirmed_record() {
    let mut world = World::new();
    let a = world.exchange("a", 1).unwrap();
    assert!(!a.is_confirmed);
    assert_ne!(a.client, world.exchange("b", 1).unwrap().client);
    assert_eq!(world.settle(), []);
    assert_eq!(world.engine.census().clients_unconfirmed, 2);
}

#[test]
fn exchange_id_case_2_a_confirmed_client_finds_its_record() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let again = world.exchange("a", 1).unwrap();
    assert_eq!((again.client, again.is_confirmed), (client, true));
    world.settle();
}

#[test]
fn exchange_id_case_3_a_stranger_gets_a_name_only_without_state_behind_it() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    world.open(client, "o", 1, share(R, NONE)).unwrap();
    let taken = world.exchange_as("a", 1, &stranger(), ExchangeIntent::Establish);
    assert_eq!(taken, Err(StateError::ClidInuse));
    world.pass(LEASE_MS + 1);
    let got = world.exchange_as("a", 1, &stranger(), ExchangeIntent::Establish).unwrap();
    assert_ne!(got.client, client);
    assert!(world.settle().contains(&Effect::ForgetClient(client)));
    assert_eq!(world.engine.census().opens, 0);
}

#[test]
fn exchange_id_case_4_an_unconfirmed_record_is_replaced() {
    let mut world = World::new();
    let first = world.exchange("a", 1).unwrap();
    let second = world.exchange_as("a", 1, &stranger(), ExchangeIntent::Establish).unwrap();
    assert_ne!(first.client, second.client);
    assert_eq!(world.create(first.client, first.next_seqid), Err(StateError::StaleClientid));
    assert_eq!(world.engine.census().clients, 1);
    world.settle();
}

#[test]
fn exchange_id_case_5_a_restarted_client_replaces_itself_once_confirmed() {
    let mut world = World::new();
    let (old, session) = world.client("a", 1);
    world.open(old, "o", 1, share(R, W)).unwrap();
    world.settle();
    let new = world.exchange("a", 2).unwrap();
    assert_eq!(world.engine.census().clients, 2);
    assert!(world.engine.sessions().get(session).is_some(), "until then nothing is released");
    world.create(new.client, new.next_seqid).unwrap();
    let effects = world.settle();
    assert!(matches!(&effects[0], Effect::PersistClient(image) if image.id == new.client), "{effects:?}");
    let rest = [Effect::SessionGone(session), Effect::CloseFile(OpenId(1)), Effect::ForgetClient(old)];
    assert_eq!(effects[1..], rest);
    assert_eq!(world.exchange("a", 2).unwrap().client, new.client);
}

/// As its lease does not run out meanwhile.
#[test]
fn a_restarted_client_does_not_replace_itself_while_something_of_it_is_being_executed() {
    let mut world = World::new();
    let (old, session) = world.client("a", 1);
    world.engine.caps_hello(old).unwrap();
    let new = world.exchange("a", 2).unwrap();
    world.sequence(session, 0, 1).unwrap();
    assert_eq!(world.create(new.client, new.next_seqid), Err(StateError::Delay));
    world.engine.caps_executes(old, 0, world.now).unwrap();
    world.engine.sessions_mut().complete(session, SlotId(0), KeptReply::Nothing, world.now);
    assert_eq!(world.create(new.client, new.next_seqid), Err(StateError::Delay), "a batch is");
    world.engine.caps_executed(old, 0, world.now);
    assert!(world.engine.sessions().get(session).is_some(), "nothing is released by being asked");
    let made = world.create(new.client, new.next_seqid).unwrap();
    assert!(world.settle().contains(&Effect::ForgetClient(old)));
    let refused = world.engine.caps_executes(old, 0, world.now);
    assert_eq!(refused, Err(StateError::StaleClientid), "nothing is done for who has gone");
    // Who has replaced it makes another session, whatever of him is being executed.
    world.sequence(made.id, 0, 1).unwrap();
    world.create(new.client, made.seqid.next()).unwrap();
}

#[test]
fn a_client_is_not_destroyed_while_a_batch_of_it_is_being_executed() {
    let mut world = World::new();
    let (client, session) = world.client("a", 1);
    world.engine.caps_hello(client).unwrap();
    world.engine.destroy_session(session, 0).unwrap();
    world.engine.caps_executes(client, 0, world.now).unwrap();
    assert_eq!(world.engine.destroy_clientid(client, world.now), Err(StateError::Delay));
    world.engine.caps_executed(client, 0, world.now);
    world.engine.destroy_clientid(client, world.now).unwrap();
}

#[test]
fn what_hangs_of_a_former_life_keeps_a_restarted_client_out_for_a_moment_only() {
    let mut world = World::new();
    let (_, session) = world.client("a", 1);
    world.sequence(session, 0, 1).unwrap();
    let new = world.exchange("a", 2).unwrap();
    world.pass(FORMER_AT_WORK_MS - 1);
    assert_eq!(world.create(new.client, new.next_seqid), Err(StateError::Delay));
    world.pass(1);
    world.create(new.client, new.next_seqid).unwrap();
    world.settle();
    assert!(world.engine.sessions().get(session).is_none());
}

#[test]
fn exchange_id_cases_6_to_9_update_only_ones_own_confirmed_record() {
    let mut world = World::new();
    let update = ExchangeIntent::Update;
    assert_eq!(world.exchange_as("a", 1, &root(), update), Err(StateError::NoEnt));
    world.exchange("a", 1).unwrap();
    assert_eq!(world.exchange_as("a", 1, &root(), update), Err(StateError::NoEnt));
    let (client, _) = world.client("a", 1);
    assert_eq!(world.exchange_as("a", 1, &root(), update).unwrap().client, client);
    assert_eq!(world.exchange_as("a", 2, &root(), update), Err(StateError::NotSame));
    assert_eq!(world.exchange_as("a", 2, &stranger(), update), Err(StateError::NotSame));
    assert_eq!(world.exchange_as("a", 1, &stranger(), update), Err(StateError::Perm));
    world.settle();
}

#[test]
fn create_session_answers_a_retry_with_the_original_result() {
    let mut world = World::new();
    let a = world.exchange("a", 1).unwrap();
    let before = Seqid(a.next_seqid.0.wrapping_sub(1));
    assert_eq!(world.create(a.client, before), Err(StateError::SeqMisordered), "the contrived result");
    assert_eq!(world.create(a.client, a.next_seqid.next()), Err(StateError::SeqMisordered));
    let first = world.create(a.client, a.next_seqid).unwrap();
    let again = CreatedSession { is_again: true, ..first };
    assert_eq!(world.create(a.client, a.next_seqid), Ok(again));
    assert_eq!(world.engine.census().sessions, 1);
    let second = world.create(a.client, a.next_seqid.next()).unwrap();
    assert_ne!(first.id, second.id, "trunking: a client may have several");
    world.settle();
}

#[test]
fn create_session_by_another_principal_changes_nothing() {
    let mut world = World::new();
    let a = world.exchange("a", 1).unwrap();
    let refused = world.create_as(a.client, a.next_seqid, &stranger(), attrs());
    assert_eq!(refused, Err(StateError::ClidInuse));
    assert!(world.create(a.client, a.next_seqid).is_ok());
}

#[test]
fn create_session_agrees_to_the_lesser_and_refuses_the_useless() {
    let mut world = World::new();
    let a = world.exchange("a", 1).unwrap();
    let tiny = ChannelAttrs { reply_bytes_max: 20, ..attrs() };
    let refused = world.create_as(a.client, a.next_seqid, &root(), tiny);
    assert_eq!(refused, Err(StateError::TooSmall));
    let retried = world.create_as(a.client, a.next_seqid, &root(), tiny);
    assert_eq!(retried, Err(StateError::TooSmall), "a retry is told the same");
    assert!(!world.exchange("b", 1).unwrap().is_confirmed);
    let huge = ChannelAttrs { slots_max: 100_000, request_bytes_max: u32::MAX, ..attrs() };
    let agreed = world.create_as(a.client, a.next_seqid, &root(), huge).unwrap();
    assert_eq!(agreed.fore.slots_max, holdfast_base::limits::SESSION_SLOTS_MAX);
    assert_eq!(agreed.fore.request_bytes_max as usize, holdfast_base::limits::RECORD_BYTES_MAX);
    world.settle();
}

#[test]
fn a_client_with_sessions_or_state_is_busy() {
    let mut world = World::new();
    let (client, session) = world.client("a", 1);
    let open = world.open(client, "o", 1, share(R, NONE)).unwrap();
    assert_eq!(world.engine.destroy_clientid(client, world.now), Err(StateError::ClientidBusy));
    world.engine.destroy_session(session, 0).unwrap();
    assert_eq!(world.engine.destroy_session(session, 0), Err(StateError::BadSession));
    assert_eq!(world.engine.destroy_clientid(client, world.now), Err(StateError::ClientidBusy));
    world.engine.close(Caller::V41(client), open, FileKey(1), world.now).unwrap();
    // RFC 8881 section 18.50.3 names wants beside them.
    world.engine.delegation_want(client, FileKey(1), DelegationKind::Read, WantHow::Push).unwrap();
    assert_eq!(world.engine.destroy_clientid(client, world.now), Err(StateError::ClientidBusy));
    world.engine.delegation_want_cancel(client, None);
    assert_eq!(world.engine.destroy_clientid(client, world.now), Ok(()));
    assert_eq!(world.engine.destroy_clientid(client, world.now), Err(StateError::StaleClientid));
    assert_eq!(world.engine.census(), Census::default());
    world.settle();
}

#[test]
fn a_session_with_other_requests_running_is_not_destroyed() {
    let mut world = World::new();
    let (_, session) = world.client("a", 1);
    world.sequence(session, 0, 1).unwrap();
    world.sequence(session, 1, 1).unwrap();
    assert_eq!(world.engine.destroy_session(session, 1), Err(StateError::Delay));
    let now = world.now;
    world.engine.sessions_mut().complete(session, SlotId(1), KeptReply::Nothing, now);
    assert_eq!(world.engine.destroy_session(session, 1), Ok(()));
    let late = world.engine.sessions_mut().complete(session, SlotId(0), KeptReply::Nothing, now);
    assert_eq!(late, Completed::SessionGone);
}

#[test]
fn reclaim_complete_is_said_once() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    assert_eq!(world.engine.reclaim_complete(client), Err(StateError::CompleteAlready));
    assert!(world.settle().contains(&Effect::ReclaimDone(client)));
}

#[test]
fn back_channel_connections_are_known_and_their_loss_is_told() {
    let mut world = World::new();
    let (_, session) = world.client("a", 1);
    assert!(!world.sequence(session, 0, 1).unwrap().status.is_back_channel_down);
    world.engine.sessions_mut().forget_connection(ConnId(1));
    let sequenced = world.sequence(session, 1, 1).unwrap();
    assert!(sequenced.status.is_back_channel_down, "use binds a connection to requests only");
    let bound = world.engine.sessions_mut().bind_connection(session, ConnId(1), Direction::Back);
    assert_eq!(bound, Ok(Direction::Back));
    let session = world.engine.sessions().get(session).unwrap();
    assert_eq!(session.back_connections().collect::<Vec<_>>(), [ConnId(1)]);
    assert!(!session.status().is_back_channel_down);
}

#[test]
fn a_client_is_called_over_the_connection_that_it_bound_last() {
    let mut world = World::new();
    let (_, session) = world.client("a", 1);
    let ways = |world: &World| -> Vec<u64> {
        world.engine.sessions().get(session).unwrap().back_connections().map(|conn| conn.0).collect()
    };
    assert_eq!(ways(&world), [1]);
    for (conn, wanted, expected) in [
        (2, Direction::Both, &[2, 1][..]),
        (3, Direction::Fore, &[2, 1]),
        (1, Direction::Fore, &[2, 1]),
        (1, Direction::Back, &[1, 2]),
        (3, Direction::Both, &[3, 1, 2]),
    ] {
        world.engine.sessions_mut().bind_connection(session, ConnId(conn), wanted).unwrap();
        assert_eq!(ways(&world), expected, "after {conn} {wanted:?}");
    }
    // Also when it comes in the place of one for requests alone, as there are too many.
    for conn in 4..=SESSION_CONNECTIONS_MAX as u64 {
        world.engine.sessions_mut().bind_connection(session, ConnId(conn), Direction::Fore).unwrap();
    }
    world.engine.sessions_mut().bind_connection(session, ConnId(1000), Direction::Both).unwrap();
    assert_eq!(ways(&world), [1000, 3, 1, 2]);
}

#[test]
fn a_lease_ends_unless_renewed_and_not_while_a_request_runs() {
    let mut world = World::new();
    let (client, session) = world.client("a", 1);
    world.open(client, "o", 1, share(RW, NONE)).unwrap();
    world.pass(LEASE_MS);
    world.engine.tick(world.now);
    world.sequence(session, 0, 1).unwrap();
    world.pass(10 * LEASE_MS);
    world.engine.tick(world.now);
    assert_eq!(world.engine.census().opens, 1, "the request runs");
    let now = world.now;
    world.engine.sessions_mut().complete(session, SlotId(0), KeptReply::Nothing, now);
    world.pass(LEASE_MS + 1);
    world.settle();
    no_courtesy(&mut world);
    world.engine.tick(world.now);
    assert_eq!(world.settle(), [Effect::SessionGone(session), Effect::ForgetClient(client)]);
    assert_eq!(world.sequence(session, 0, 2), Err(StateError::BadSession));
    assert_eq!(world.engine.census().opens, 1, "kept from others until the record is gone");
    world.engine.tick(world.now);
    assert_eq!(world.settle(), [Effect::CloseFile(OpenId(1))]);
    assert_eq!(world.engine.census(), Census::default());
}

#[test]
fn setclientid_of_the_same_incarnation_updates_the_callback_and_keeps_state() {
    let mut world = World::new();
    let client = world.client40("a", 1);
    world.settle();
    let (same, confirm) = world.setclientid("a", 1, &root()).unwrap();
    assert_eq!(same, client);
    assert_eq!(
        world.engine.setclientid_confirm(client, confirm, &stranger(), world.now),
        Err(StateError::ClidInuse)
    );
    assert_eq!(world.engine.setclientid_confirm(client, confirm, &root(), world.now), Ok(()));
    assert_eq!(world.engine.setclientid_confirm(client, confirm, &root(), world.now), Ok(()), "a retry");
    // Who keeps the records hears that it is back, each time: he may not have had an ear for it.
    let effects = world.settle();
    let is_back = |effect: &Effect| matches!(effect, Effect::ClientReturned(image) if image.id == client);
    assert!(effects.len() == 2 && effects.iter().all(is_back), "{effects:?}");
}

#[test]
fn setclientid_of_a_new_incarnation_releases_the_former_when_confirmed() {
    let mut world = World::new();
    let old = world.client40("a", 1);
    let (first, first_confirm) = world.setclientid("a", 2, &root()).unwrap();
    let (second, confirm) = world.setclientid("a", 2, &root()).unwrap();
    assert!(first != old && second != first);
    let late = world.engine.setclientid_confirm(first, first_confirm, &root(), world.now);
    assert_eq!(late, Err(StateError::StaleClientid), "replaced before it was confirmed");
    assert_eq!(world.engine.renew(old, world.now), Ok(()), "not released yet");
    world.settle();
    world.engine.setclientid_confirm(second, confirm, &root(), world.now).unwrap();
    assert_eq!(world.settle()[1..], [Effect::ForgetClient(old)]);
    assert_eq!(world.engine.renew(old, world.now), Err(StateError::Expired));
    assert_eq!(world.engine.callback(second).unwrap().ident, 2);
}

#[test]
fn ids_of_another_run_are_stale_and_of_this_run_expired() {
    let mut world = World::new();
    let client = world.client40("a", 1);
    let mut next = World::with(config(2, Grace::Over));
    assert_eq!(next.engine.renew(client, next.now), Err(StateError::StaleClientid));
    world.pass(LEASE_MS + 1);
    world.engine.tick(world.now);
    assert_eq!(world.engine.renew(client, world.now), Err(StateError::Expired));
    let never = holdfast_base::ClientId(client.0 + 1000);
    assert_eq!(world.engine.renew(never, world.now), Err(StateError::StaleClientid));
}

#[test]
fn unconfirmed_records_are_bounded_and_end_with_their_lease() {
    let mut world = World::new();
    let (max, share) = (CLIENTS_UNCONFIRMED_MAX, CLIENTS_UNCONFIRMED_PER_SITE_MAX);
    let ask = |world: &mut World, site: u8, names: std::ops::Range<usize>| {
        world.site = [192, 0, 2, site].into();
        for n in names {
            world.exchange(&format!("client {n} of {site}"), 1).unwrap();
        }
        world.engine.census().clients_unconfirmed
    };
    // One host without end: its own oldest go.
    assert_eq!(ask(&mut world, 1, 0..3 * share), share);
    world.settle();
    // All hosts together: the oldest of who has most goes, and who has little keeps it.
    assert_eq!(ask(&mut world, 2, 0..1), share + 1);
    let few = world.exchange("client 0 of 2", 1).unwrap();
    for site in 3..20 {
        let expected = (share + 1 + usize::from(site - 2) * share).min(max);
        assert_eq!(ask(&mut world, site, 0..share), expected);
    }
    world.settle();
    assert!(world.create(few.client, few.next_seqid).is_ok(), "it may still confirm");
    world.pass(LEASE_MS + 1);
    world.engine.tick(world.now);
    assert_eq!(world.engine.census().clients_unconfirmed, 0);
    world.settle();
}

#[test]
fn one_host_has_its_part_of_all_records_and_takes_no_other_hosts() {
    let mut world = World::new();
    let own = |n: usize| format!("client {n}");
    // Of those that only courtesy keeps, one is of another host, and away longest.
    world.site = [192, 0, 2, 2].into();
    let elsewhere = world.client40("elsewhere", 1);
    world.open(elsewhere, "o", 1, share(RW, NONE)).unwrap();
    world.pass(1);
    world.site = [192, 0, 2, 1].into();
    let away = world.client40("away", 1);
    world.open(away, "o", 2, share(RW, NONE)).unwrap();
    world.pass(LEASE_MS + 1);
    world.engine.tick(world.now);
    assert_eq!(world.engine.census().courteous, 2);
    for n in 1..CLIENTS_PER_SITE_MAX {
        world.client40(&own(n), 1);
    }
    world.settle();
    // One more: the host's own goes that is not there.
    world.client40(&own(0), 1);
    assert!(world.settle().contains(&Effect::ForgetClient(away)));
    assert_eq!(world.setclientid("one too many", 1, &root()), Err(StateError::Resource));
    assert_eq!(world.exchange("one too many", 1), Err(StateError::Resource));
    // What it has already may start anew.
    world.client40(&own(1), 2);
    world.settle();
    assert_eq!(world.engine.census().clients, CLIENTS_PER_SITE_MAX + 1);
    world.site = [192, 0, 2, 2].into();
    world.client("another", 1);
    assert_eq!(world.engine.census().courteous, 1, "nobody else had to go");
    world.site = [192, 0, 2, 1].into();
    let (gone, confirm) = world.setclientid(&own(2), 3, &root()).unwrap();
    world.engine.setclientid_confirm(gone, confirm, &root(), world.now).unwrap();
    assert!(world.engine.revoke_client(gone, world.now));
    world.restart_as_planned();
    world.client40("another of the host", 1);
    assert_eq!(world.setclientid("one too many", 1, &root()), Err(StateError::Resource), "counted anew");
    world.settle();
}

#[test]
fn sessions_outlive_a_restart_with_their_replies() {
    let mut world = World::new();
    let (client, session) = world.client("a", 1);
    world.sequence(session, 3, 1).unwrap();
    let now = world.now;
    world.engine.sessions_mut().complete(session, SlotId(3), KeptReply::Bytes(b"done"), now);
    let snapshot = world.engine.snapshot();
    let mut next = World::with(config(2, Grace::Until(holdfast_base::Instant(50_000))));
    assert_eq!(next.engine.restore(&snapshot, next.now), 0);
    assert_eq!(next.engine.restore(&snapshot, next.now), 2, "what is there already is left out");
    assert_eq!(next.engine.snapshot(), snapshot);
    let replay = next.sequence(session, 3, 1).unwrap();
    assert_eq!(replay.admission, Admission::Replay(b"done".to_vec()));
    assert!(replay.status.is_reclaim_needed);
    assert_eq!(next.sequence(session, 3, 2).unwrap().admission, Admission::New);
    let known = next.exchange("a", 1).unwrap();
    assert_eq!(known.client, client);
    let another = next.create(client, known.next_seqid).unwrap().id;
    let is_told = |world: &World| world.engine.sessions().get(another).unwrap().status().is_reclaim_needed;
    assert!(is_told(&next), "one made since says so too");
    next.engine.reclaim_complete(client).unwrap();
    assert!(!is_told(&next));
    assert!(!next.engine.sessions().get(session).unwrap().status().is_reclaim_needed);
    next.settle();
}

#[test]
fn create_session_counts_on_over_a_restart_and_its_retry_is_answered_as_before() {
    let mut world = World::new();
    let (client, first) = world.client("a", 1);
    let next = world.exchange("a", 1).unwrap().next_seqid;
    let made = world.create(client, next).unwrap();
    world.restart_as_planned();
    assert_eq!(world.create(client, next), Ok(CreatedSession { is_again: true, ..made }));
    assert_eq!(world.exchange("a", 1).unwrap().next_seqid, next.next());
    let snapshot = world.engine.snapshot();
    let mut after = World::with(config(2, Grace::Until(holdfast_base::Instant(50_000))));
    assert_eq!(after.engine.restore(&snapshot, after.now), 0);
    assert_eq!(after.create(client, next), Ok(CreatedSession { is_again: true, ..made }));
    assert_eq!(after.engine.census().sessions, 2);
    assert_eq!(after.create(client, next.next().next()), Err(StateError::SeqMisordered));
    // Who counts on without having heard of the restart hears of it in the new session, and is not taken at its word
    // when it says first that it has reclaimed all.
    let new = after.create(client, next.next()).unwrap().id;
    assert!(after.sequence(new, 0, 1).unwrap().status.is_reclaim_needed);
    assert!(after.engine.doubts_reclaims(new));
    after.engine.restart_heard(first);
    let newer = after.create(client, next.next().next()).unwrap().id;
    assert!(after.sequence(newer, 0, 1).unwrap().status.is_reclaim_needed);
    assert!(!after.engine.doubts_reclaims(newer), "in another session it has heard");
    after.engine.reclaim_complete(client).unwrap();
    assert_eq!(after.exchange("a", 1).unwrap().next_seqid, Seqid(next.0 + 3));
    let newest = after.create(client, Seqid(next.0 + 3)).unwrap().id;
    for session in [new, newest] {
        assert!(!after.sequence(session, 1, 1).unwrap().status.is_reclaim_needed);
    }
    after.settle();
}

/// As Linux does when it finds a session's channels out of step.
#[test]
fn a_session_made_after_a_restart_tells_of_it_though_the_one_from_before_is_destroyed() {
    let mut world = World::new();
    let (client, first) = world.client("a", 1);
    let next = world.exchange("a", 1).unwrap().next_seqid;
    let mut after = World::with(config(2, Grace::Until(holdfast_base::Instant(50_000))));
    assert_eq!(after.engine.restore(&world.engine.snapshot(), after.now), 0);
    after.engine.destroy_session(first, 0).unwrap();
    let new = after.create(client, next).unwrap().id;
    assert!(after.sequence(new, 0, 1).unwrap().status.is_reclaim_needed);
    assert!(after.engine.doubts_reclaims(new), "it may not have heard");
    assert!(!after.engine.doubts_reclaims(new), "who says it again means it");
    // Who asks for its id begins anew with what it reclaims.
    assert_eq!(after.exchange("a", 1).unwrap().client, client);
    after.engine.destroy_session(new, 1).unwrap();
    let new = after.create(client, next.next()).unwrap().id;
    assert!(after.sequence(new, 0, 1).unwrap().status.is_reclaim_needed);
    assert!(!after.engine.doubts_reclaims(new));
    after.engine.reclaim_complete(client).unwrap();
    assert!(!after.sequence(new, 1, 1).unwrap().status.is_reclaim_needed);
    // One that came in this life has nothing to reclaim.
    let (_, fresh) = after.client("b", 1);
    assert!(!after.sequence(fresh, 0, 1).unwrap().status.is_reclaim_needed);
    world.settle();
    after.settle();
}

#[test]
fn a_lease_goes_on_without_the_session_that_it_was_renewed_in() {
    let mut world = World::new();
    let (client, first) = world.client("a", 1);
    let next = world.exchange("a", 1).unwrap().next_seqid;
    world.pass(LEASE_MS - 1);
    world.sequence(first, 0, 1).unwrap();
    let now = world.now;
    world.engine.sessions_mut().complete(first, SlotId(0), KeptReply::Nothing, now);
    world.engine.destroy_session(first, 0).unwrap();
    world.pass(LEASE_MS - 1);
    world.engine.tick(world.now);
    assert!(world.create(client, next).is_ok());
    let (client, first) = world.client("b", 1);
    let next = world.exchange("b", 1).unwrap().next_seqid;
    world.engine.destroy_session(first, 0).unwrap();
    world.pass(LEASE_MS + 1);
    world.engine.tick(world.now);
    assert_eq!(world.create(client, next), Err(StateError::StaleClientid), "and no longer");
    world.settle();
}

#[test]
fn a_retry_of_create_session_is_answered_though_the_session_is_gone() {
    let mut world = World::new();
    let a = world.exchange("a", 1).unwrap();
    let made = world.create(a.client, a.next_seqid).unwrap();
    world.engine.destroy_session(made.id, 0).unwrap();
    let again = CreatedSession { is_again: true, ..made };
    assert_eq!(world.create(a.client, a.next_seqid), Ok(again));
    assert_eq!(world.engine.census().sessions, 0);
    let mut after = World::with(config(2, Grace::Over));
    assert_eq!(after.engine.restore(&world.engine.snapshot(), after.now), 0);
    assert_eq!(after.create(a.client, a.next_seqid), Ok(again));
    assert!(after.create(a.client, a.next_seqid.next()).is_ok());
    world.settle();
    after.settle();
}

/// As Linux does, which destroys none of those that a restart left behind.
#[test]
fn a_client_may_make_a_session_in_each_of_any_number_of_lives_of_the_server() {
    let mut world = World::new();
    let (client, mut session) = world.client("a", 1);
    for boot in 2..40 {
        let snapshot = world.engine.snapshot();
        world = World::with(config(boot, Grace::Over));
        assert_eq!(world.engine.restore(&snapshot, world.now), 0);
        world.pass(1000);
        assert_eq!(world.sequence(session, 0, 1).unwrap().admission, Admission::New, "the last one is there");
        let now = world.now;
        world.engine.sessions_mut().complete(session, SlotId(0), KeptReply::Nothing, now);
        let exchanged = world.exchange("a", 1).unwrap();
        assert_eq!(exchanged.client, client);
        session = world.create(client, exchanged.next_seqid).unwrap().id;
        assert!(world.engine.sessions().len() <= holdfast_base::limits::SESSIONS_PER_CLIENT_MAX);
        world.engine.reclaim_complete(client).unwrap();
        world.settle();
    }
}

/// Linux takes those of a former life for gone once it has made another, and asks ten times, a second each, while it hears
/// that they are there.
#[test]
fn a_client_that_goes_is_not_kept_by_a_session_that_it_left_behind_in_a_restart() {
    let mut world = World::new();
    let (client, former) = world.client("a", 1);
    let snapshot = world.engine.snapshot();
    world = World::with(config(2, Grace::Over));
    assert_eq!(world.engine.restore(&snapshot, world.now), 0);
    let leave = |world: &mut World| world.engine.destroy_clientid(client, world.now);
    let busy = Err(StateError::ClientidBusy);
    assert_eq!(leave(&mut world), busy, "it may be using it");
    let exchanged = world.exchange("a", 1).unwrap();
    assert_eq!(leave(&mut world), busy, "it has yet to reclaim, and this may be somebody else");
    let session = world.create(client, exchanged.next_seqid).unwrap().id;
    world.engine.reclaim_complete(client).unwrap();
    assert_eq!(leave(&mut world), busy);
    world.engine.destroy_session(session, 0).unwrap();
    world.sequence(former, 0, 1).unwrap();
    assert_eq!(leave(&mut world), busy, "a request runs in it");
    world.engine.sessions_mut().complete(former, SlotId(0), KeptReply::Nothing, world.now);
    assert_eq!(leave(&mut world), Ok(()));
    assert_eq!(world.engine.sessions().len(), 0);
    world.settle();
}

#[test]
fn sessions_in_use_are_bounded() {
    let mut world = World::new();
    let a = world.exchange("a", 1).unwrap();
    let mut seqid = a.next_seqid;
    for _ in 0..holdfast_base::limits::SESSIONS_PER_CLIENT_MAX {
        world.create(a.client, seqid).unwrap();
        seqid = seqid.next();
    }
    assert_eq!(world.create(a.client, seqid), Err(StateError::Resource), "each has its connection");
    world.settle();
}

#[test]
fn a_client_with_large_pages_gets_the_back_channel_replies_it_offers() {
    for page in [4096, 65_536] {
        let mut world = World::new();
        let a = world.exchange("a", 1).unwrap();
        let back = ChannelAttrs { request_bytes_max: page, reply_bytes_max: page, ..attrs() };
        let request = CreateSession {
            client: a.client,
            seqid: a.next_seqid,
            principal: &root(),
            conn: ConnId(1),
            fore: attrs(),
            back: Some(back),
            conn_direction: Direction::Both,
            callback_program: 0x4000_0000,
            is_persistent: false,
        };
        let agreed = world.engine.create_session(&request, world.now).unwrap().back.unwrap();
        assert_eq!(agreed.reply_bytes_max, page);
        assert!(agreed.request_bytes_max <= 4096);
    }
}

#[test]
fn slots_of_all_sessions_are_bounded_and_nobody_gets_none_for_long() {
    let mut world = World::new();
    let fore = ChannelAttrs { slots_max: 64, ..attrs() };
    let (mut total, mut least) = (0, u32::MAX);
    for n in 0..6000 {
        let a = world.exchange(&format!("client {n}"), 1).unwrap();
        let granted = world.create_as(a.client, a.next_seqid, &root(), fore).unwrap().fore.slots_max;
        assert!(n >= 2000 || granted == 64, "plenty for a large house");
        total += granted as usize;
        least = least.min(granted);
    }
    assert!(total <= holdfast_base::limits::SESSIONS_SLOTS_MAX);
    assert!((1..16).contains(&least), "the later come get fewer, {least}");
    world.settle();
}
