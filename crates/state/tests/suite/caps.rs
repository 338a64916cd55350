//! Capabilities: whom they are granted, whose deeds recall them, how recalls, grants and releases cross, and what becomes
//! of those that are not released. Then random histories against a slow model.

mod batches;
mod model;
mod names;
mod pressure;

use crate::world::*;
use holdfast_base::limits::{
    CAPS_RECALLED_MS, RECALL_FLUSH_BYTES_PER_S, RECALL_RETRY_MS, RECALL_STRETCH_MAX,
};
use holdfast_base::{CapSet, ClientId, FileKey, Instant, in_doubt_ms, relied_on_ms};
use holdfast_state::*;

const FILE: FileKey = FileKey(1);
const OTHER: FileKey = FileKey(2);

/// Which entries, and how, is nothing to capabilities.
const CHANGE: Deed = Deed::ChangeEntries(EntryKinds::UNKNOWN);

fn world_of_two() -> (World, ClientId, ClientId) {
    let mut world = World::new();
    let [a, b] = ["a", "b"].map(|name| {
        let (client, _) = world.client(name, 1);
        world.engine.caps_hello(client).unwrap();
        world.engine.caps_path(client, true);
        client
    });
    world.settle();
    (world, a, b)
}

impl World {
    fn acquire(&mut self, client: ClientId, file: FileKey, want: CapSet) -> CapGrant {
        let request = CapRequest { client, file, want, is_beside_writers: false, reclaim: None };
        match self.engine.caps_prepare(&request, self.now).unwrap() {
            CapOffer::Offered(ticket) => self.engine.caps_commit(ticket).unwrap(),
            CapOffer::Held(grant) => grant,
        }
    }

    /// What a deed recalls: from whom, and what may stay.
    fn recalled_by(
        &mut self,
        file: FileKey,
        deed: Deed,
        by: Option<ClientId>,
    ) -> Vec<(ClientId, CapSet, u64)> {
        self.engine.contend(file, deed, by, self.now);
        let effects = self.settle().into_iter();
        effects
            .filter_map(|effect| match effect {
                Effect::CapRecall { client, keep, seq, .. } => Some((client, keep, seq)),
                _ => None,
            })
            .collect()
    }

    fn is_clear(&mut self, file: FileKey, deed: Deed, by: Option<ClientId>) -> bool {
        let now = self.now;
        let contention = self.engine.contend(file, deed, by, now);
        self.settle();
        contention == Contention::Clear
    }

    fn release(&mut self, client: ClientId, file: FileKey, keep: CapSet, seq: u64) -> CapRelease {
        self.engine.caps_release(client, file, (keep, seq), self.now)
    }
}

#[test]
fn shared_ones_stand_beside_each_other_and_an_exclusive_one_beside_none_of_its_kind() {
    let (mut world, a, b) = world_of_two();
    assert_eq!(world.acquire(a, FILE, CapSet::ALL_S).held, CapSet::ALL_S);
    assert_eq!(world.acquire(b, FILE, CapSet::ALL_X).held, CapSet::ALL_S, "no more than stands beside a's");
    assert_eq!(world.acquire(a, OTHER, CapSet::FILE_X).held, CapSet::FILE_X);
    assert_eq!(world.acquire(b, OTHER, CapSet::ALL_X).held.0, 0x3f, "all but a's kind");
    assert!(world.settle().is_empty());
}

#[test]
fn a_stranger_does_not_get_the_name_of_who_holds_some() {
    let (mut world, a, _) = world_of_two();
    world.acquire(a, FILE, CapSet::FILE_X);
    let taken = world.exchange_as("a", 1, &crate::clients::stranger(), ExchangeIntent::Establish);
    assert_eq!(taken, Err(StateError::ClidInuse));
    assert!(world.settle().is_empty());
}

#[test]
fn a_planned_restart_keeps_what_is_held_and_sends_again_what_is_being_recalled() {
    let (mut world, a, b) = world_of_two();
    let held = world.acquire(a, FILE, CapSet::ALL_X);
    world.acquire(b, OTHER, CapSet::ALL_S);
    let recalled = world.recalled_by(FILE, Deed::OpenRead, Some(b));
    let (now, seq) = (world.now, recalled[0].2);
    world.engine.caps_recall_answered(a, (FILE, seq), RecallAnswer::Accepted, now);
    world.restart_as_planned();
    assert_eq!(world.engine.caps_of(b, OTHER).held, CapSet::ALL_S);
    assert_eq!(world.engine.caps_epoch(a), Some(0));
    assert_eq!(world.engine.caps_held().len(), 2);
    assert!(!world.is_clear(FILE, Deed::OpenRead, Some(b)), "it is being recalled as before");
    // Nobody can be called, or given anything, before his connection is there.
    assert_eq!(world.acquire(b, FileKey(3), CapSet::ALL_S).held, CapSet::NONE);
    let now = world.now;
    world.engine.caps_recall_again(now);
    world.engine.caps_path(a, true);
    let again = world.settle();
    assert!(again.iter().any(|effect| matches!(effect, Effect::CapRecall { client, seq: again, .. }
        if *client == a && *again > seq)));
    let released = world.release(a, FILE, CapSet::NONE, u64::MAX);
    assert!(matches!(released, CapRelease::Released(grant) if grant.held.is_empty()));
    assert!(world.is_clear(FILE, Deed::OpenRead, Some(b)));
    // Numbers go on: a grant is never taken for an older one.
    world.engine.caps_path(b, true);
    assert!(world.acquire(b, FileKey(3), CapSet::ALL_S).seq > held.seq);
    world.engine.caps_end(now);
    assert!(world.engine.caps_held().is_empty());
    world.settle();
}

#[test]
fn what_its_holder_removed_is_held_no_more_unless_somebody_has_it_open() {
    let (mut world, a, b) = world_of_two();
    world.acquire(a, FILE, CapSet::ALL_X);
    let now = world.now;
    world.engine.caps_removed(b, FILE, now);
    assert_eq!(world.engine.caps_of(a, FILE).held, CapSet::ALL_X, "another's word ends nothing");
    world.engine.caps_removed(a, FILE, now);
    assert_eq!(world.engine.caps_of(a, FILE).held, CapSet::NONE);
    let effects = world.settle();
    assert!(
        matches!(effects[..], [Effect::CapsLeft { client, file: FILE, held }] if client == a && held.is_empty())
    );
}

#[test]
fn a_look_leaves_what_is_shared_and_a_change_nothing_of_its_kind() {
    let (mut world, a, b) = world_of_two();
    let grant = world.acquire(a, FILE, CapSet::ALL_X);
    let recalled = world.recalled_by(FILE, Deed::LookAttrs, Some(b));
    let [(who, keep, seq)] = recalled[..] else { panic!("{recalled:?}") };
    assert_eq!((who, keep), (a, CapSet::ALL_S));
    assert!(seq > grant.seq);
    assert!(!world.is_clear(FILE, Deed::LookAttrs, Some(b)), "until it is released");
    assert!(world.is_clear(FILE, Deed::LookAttrs, Some(a)), "never in one's own way");
    assert_eq!(world.release(a, FILE, keep, seq), CapRelease::Released(CapGrant { held: keep, seq }));
    assert!(world.is_clear(FILE, Deed::LookAttrs, Some(b)));
    let [(_, keep, _)] = world.recalled_by(FILE, Deed::WriteData, None)[..] else { panic!() };
    assert_eq!(keep, Deed::WriteData.forbids().leaves(CapSet::ALL_S));
}

#[test]
fn a_recall_that_asks_for_more_goes_out_again_under_a_higher_number() {
    let (mut world, a, b) = world_of_two();
    world.acquire(a, FILE, CapSet::ALL_X);
    let [(_, _, first)] = world.recalled_by(FILE, Deed::LookEntries, Some(b))[..] else { panic!() };
    assert!(world.recalled_by(FILE, Deed::ReadData, Some(b)).is_empty(), "that is being waited for already");
    let [(_, keep, second)] = world.recalled_by(FILE, CHANGE, Some(b))[..] else { panic!() };
    assert!(second > first && !keep.contains(CapSet::FILE_S));
    // An answer to the first releases too little.
    let keep_of_first = Deed::LookEntries.forbids().leaves(CapSet::ALL_X);
    assert!(matches!(world.release(a, FILE, keep_of_first, first), CapRelease::Released(_)));
    assert!(!world.is_clear(FILE, CHANGE, Some(b)));
    assert!(world.is_clear(FILE, Deed::LookEntries, Some(b)));
    world.release(a, FILE, keep, second);
    assert!(world.is_clear(FILE, CHANGE, Some(b)));
}

#[test]
fn a_release_takes_nothing_of_what_answers_have_told_since_under_a_number_it_has_not_seen() {
    let (mut world, a, b) = world_of_two();
    world.acquire(a, FILE, CapSet::ALL_S);
    let [(_, keep, heard)] = world.recalled_by(FILE, Deed::ChangeName, Some(b))[..] else { panic!() };
    world.restart_as_planned();
    let now = world.now;
    world.engine.caps_recall_again(now);
    world.engine.caps_path(a, true);
    world.settle();
    // It is sent again under a higher number, and answers tell under that what stays.
    let told = world.engine.caps_of(a, FILE);
    assert!(told.seq > heard && told.held == keep && !keep.is_empty());
    assert_eq!(world.release(a, FILE, CapSet::NONE, heard), CapRelease::Released(told));
    assert!(world.is_clear(FILE, Deed::ChangeName, Some(b)), "what was asked for is given back");
    assert!(world.acquire(b, FILE, CapSet::ALL_X).held.fits(told.held));
    assert_eq!(world.release(a, FILE, CapSet::NONE, told.seq), CapRelease::Released(CapGrant::default()));
}

#[test]
fn a_release_takes_nothing_of_what_was_told_before_a_recall_asked_for_more() {
    let (mut world, a, b) = world_of_two();
    let grant = world.acquire(a, FILE, CapSet::ALL_X);
    let [(_, first, _)] = world.recalled_by(FILE, Deed::LookEntries, Some(b))[..] else { panic!() };
    let [(_, second, seq)] = world.recalled_by(FILE, CHANGE, Some(b))[..] else { panic!() };
    world.release(a, FILE, second, grant.seq);
    assert_eq!(world.engine.caps_in_force(a, FILE), first, "an answer of between may not have come yet");
    assert!(!world.is_clear(FILE, CHANGE, Some(b)));
    world.release(a, FILE, second, seq);
    assert_eq!(world.engine.caps_in_force(a, FILE), second);
    assert!(world.is_clear(FILE, CHANGE, Some(b)));
}

#[test]
fn a_release_that_has_not_seen_the_last_grant_releases_nothing() {
    let (mut world, a, _) = world_of_two();
    let first = world.acquire(a, FILE, CapSet::FILE_S);
    let second = world.acquire(a, FILE, CapSet::FILE_X);
    assert!(second.seq > first.seq);
    assert_eq!(world.release(a, FILE, CapSet::NONE, first.seq), CapRelease::Crossed(second));
    assert_eq!(world.engine.caps_of(a, FILE), second);
    assert_eq!(world.release(a, FILE, CapSet::NONE, second.seq), CapRelease::Released(CapGrant::default()));
    assert_eq!(world.release(a, FILE, CapSet::NONE, 0), CapRelease::Released(CapGrant::default()), "again");
}

#[test]
fn a_grant_made_during_a_recall_does_not_give_back_what_is_asked_for() {
    let (mut world, a, b) = world_of_two();
    world.acquire(a, FILE, CapSet::FILE_X);
    world.recalled_by(FILE, Deed::ReadData, Some(b));
    let grant = world.acquire(a, FILE, CapSet::ALL_X);
    assert!(!grant.held.is_exclusive(), "{grant:?}");
}

#[test]
fn what_is_only_offered_gives_way_to_a_deed() {
    let (mut world, a, b) = world_of_two();
    let request =
        CapRequest { client: a, file: FILE, want: CapSet::FILE_X, is_beside_writers: false, reclaim: None };
    let CapOffer::Offered(ticket) = world.engine.caps_prepare(&request, world.now).unwrap() else { panic!() };
    assert!(world.is_clear(FILE, CHANGE, Some(b)));
    assert_eq!(world.engine.caps_commit(ticket), Err(StateError::Delay));
    assert_eq!(world.engine.caps_of(a, FILE), CapGrant::default());
    world.settle();
}

#[test]
fn nothing_exclusive_is_granted_of_what_was_recalled_a_moment_ago() {
    let (mut world, a, b) = world_of_two();
    let grant = world.acquire(a, FILE, CapSet::FILE_X);
    let [(_, keep, seq)] = world.recalled_by(FILE, Deed::LookEntries, Some(b))[..] else { panic!() };
    assert!(seq > grant.seq);
    world.release(a, FILE, keep, seq);
    assert_eq!(world.acquire(a, FILE, CapSet::FILE_X).held, CapSet::FILE_S);
    let now = world.now;
    assert_eq!(world.engine.caps_contend(FILE, CapSet::FILE_X, b, now), Contention::Clear, "nor fought for");
    world.pass(CAPS_RECALLED_MS);
    assert_eq!(world.acquire(a, FILE, CapSet::FILE_X).held, CapSet::FILE_X);
}

#[test]
fn who_does_not_release_in_time_loses_everything_and_is_told_by_its_epoch() {
    let (mut world, a, b) = world_of_two();
    world.acquire(a, FILE, CapSet::FILE_X);
    world.acquire(a, OTHER, CapSet::ALL_S);
    let epoch = world.engine.caps_epoch(a).unwrap();
    world.recalled_by(FILE, Deed::ReadData, Some(b));
    world.pass(LEASE_MS - 1);
    world.engine.tick(world.now);
    assert_eq!(world.engine.caps_epoch(a), Some(epoch));
    world.pass(1);
    // The lease of neither has been kept up, but b's deed is what ends a's.
    world.engine.caps_revoke(a, world.now);
    let effects = world.settle();
    let revoked =
        effects.iter().position(|e| matches!(e, Effect::StateRevoked { client, .. } if *client == a));
    let left = effects.iter().position(|e| matches!(e, Effect::CapsLeft { .. }));
    assert!(revoked.unwrap() < left.unwrap(), "on record before anybody else has it");
    assert!(effects.contains(&Effect::CapsLost { client: a }));
    assert_eq!(world.engine.caps_epoch(a), Some(epoch + 1));
    assert_eq!(world.acquire(a, FILE, CapSet::ALL_S).held, CapSet::NONE, "not before HELLO");
    assert_eq!(world.engine.caps_hello(a), Ok(epoch + 1));
    assert_eq!(world.settle(), [Effect::RevocationsAcknowledged { client: a }]);
    world.pass(CAPS_RECALLED_MS);
    assert_eq!(world.acquire(a, FILE, CapSet::ALL_S).held, CapSet::ALL_S);
}

/// A world of two whose leases outlast every recall, so that time alone ends nobody.
fn world_of_short_recalls() -> (World, ClientId, ClientId) {
    let (mut world, a, b) = world_of_two();
    let policy = *world.engine.policy();
    world.engine.set_policy(Policy { recall_ms: Some(RECALL_MS), ..policy });
    (world, a, b)
}

/// Less than a lease, stretched as far as it goes.
const RECALL_MS: u64 = LEASE_MS / (RECALL_STRETCH_MAX + 1);

#[test]
fn who_does_not_follow_a_recall_is_in_doubt_for_longer_than_it_relies_on_what_it_has() {
    let (mut world, a, b) = world_of_two();
    world.acquire(a, FILE, CapSet::FILE_X);
    world.acquire(a, OTHER, CapSet::ALL_S);
    assert_eq!(world.engine.caps_recall_ms(), LEASE_MS);
    let is_in_doubt = |world: &World, client| world.engine.are_caps_in_doubt(client, world.now);
    assert!(!is_in_doubt(&world, a));
    let [(_, keep, seq)] = world.recalled_by(FILE, Deed::ReadData, Some(b))[..] else { panic!() };
    assert!(!is_in_doubt(&world, a), "most recalls are followed at once");
    let certain = LEASE_MS - in_doubt_ms(LEASE_MS);
    world.pass(certain);
    assert!(is_in_doubt(&world, a) && !is_in_doubt(&world, b));
    // It was told otherwise a moment before, at the latest.
    let epoch = world.engine.caps_epoch(a);
    world.pass(relied_on_ms(LEASE_MS));
    world.engine.tick(world.now);
    assert_eq!(world.engine.caps_epoch(a), epoch, "nothing is taken from who may still rely on it");
    // While it flushes it is in no doubt.
    world.engine.caps_flushed(a, 0, world.now);
    assert!(!is_in_doubt(&world, a));
    world.pass(certain);
    assert!(is_in_doubt(&world, a));
    world.release(a, FILE, keep, seq);
    assert!(!is_in_doubt(&world, a));
}

#[test]
fn a_recall_that_is_not_followed_is_told_of_with_what_is_known_of_it() {
    let (mut world, a, b) = world_of_two();
    world.acquire(a, FILE, CapSet::FILE_X);
    let [(_, keep, seq)] = world.recalled_by(FILE, Deed::ReadData, Some(b))[..] else { panic!() };
    world.engine.caps_recall_answered(a, (FILE, seq), RecallAnswer::Accepted, world.now);
    world.pass(LEASE_MS);
    // It lives.
    world.engine.caps_alive(a, world.now);
    world.engine.tick(world.now);
    let what = CapSet::FILE_X.without(keep);
    let (client, file, waited_ms, is_heard) = (a, FILE, LEASE_MS, true);
    let told = Effect::CapRecallOver { client, file, what, waited_ms, is_heard };
    assert!(world.settle().contains(&told));
}

#[test]
fn a_holder_that_flushes_has_more_time_within_bounds() {
    let (mut world, a, b) = world_of_short_recalls();
    world.acquire(a, FILE, CapSet::FILE_X);
    let epoch = world.engine.caps_epoch(a).unwrap();
    world.recalled_by(FILE, Deed::ReadData, Some(b));
    for round in 1..RECALL_STRETCH_MAX * 2 {
        world.pass(RECALL_MS / 2);
        // By data of another file: what it has still to send before it gets to this one goes the same way.
        world.engine.holder_flushed(OTHER, a, 0, world.now);
        world.engine.tick(world.now);
        assert_eq!(world.engine.caps_epoch(a), Some(epoch), "after {round} halves");
        assert!(!world.is_clear(FILE, Deed::ReadData, Some(b)), "after {round} halves");
    }
    world.pass(RECALL_MS / 2);
    world.engine.holder_flushed(OTHER, a, 0, world.now);
    world.engine.tick(world.now);
    assert!(world.is_clear(FILE, Deed::ReadData, Some(b)), "it has had its time");
    assert_eq!(world.engine.caps_epoch(a), Some(epoch + 1));
}

#[test]
fn a_holder_that_flushes_over_a_slow_line_has_the_time_that_it_takes() {
    let (mut world, a, b) = world_of_short_recalls();
    world.acquire(a, FILE, CapSet::FILE_X);
    world.acquire(a, OTHER, CapSet::FILE_X);
    let epoch = world.engine.caps_epoch(a).unwrap();
    let recalled = world.recalled_by(FILE, Deed::ReadData, Some(b));
    world.engine.caps_recall_answered(a, (FILE, recalled[0].2), RecallAnswer::Accepted, world.now);
    let much = RECALL_MS / 2 * RECALL_FLUSH_BYTES_PER_S / 1000;
    for round in 1..RECALL_STRETCH_MAX * 8 {
        world.pass(RECALL_MS / 2);
        world.engine.caps_alive(a, world.now);
        world.engine.holder_flushed(FILE, a, much, world.now);
        world.engine.tick(world.now);
        assert_eq!(world.engine.caps_epoch(a), Some(epoch), "after {round} halves");
    }
    // A local process comes to wait for another file of it: the kernel lets that go, whatever is sent.
    let recalled = world.recalled_by(OTHER, Deed::OpenRead, None);
    world.engine.caps_recall_answered(a, (OTHER, recalled[0].2), RecallAnswer::Accepted, world.now);
    world.engine.waits_outside(OTHER, world.now);
    for _ in 0..RECALL_STRETCH_MAX * 2 {
        assert_eq!(world.engine.caps_epoch(a), Some(epoch));
        world.pass(RECALL_MS / 2);
        world.engine.caps_alive(a, world.now);
        world.engine.holder_flushed(FILE, a, much, world.now);
        world.engine.tick(world.now);
    }
    assert_eq!(world.engine.caps_epoch(a), Some(epoch + 1), "not for longer than that waits");
}

#[test]
fn what_comes_from_a_holder_that_has_not_heard_is_no_flush() {
    let (mut world, a, b) = world_of_short_recalls();
    world.acquire(a, FILE, CapSet::FILE_X);
    let epoch = world.engine.caps_epoch(a).unwrap();
    world.recalled_by(FILE, Deed::ReadData, Some(b));
    let much = RECALL_MS * RECALL_FLUSH_BYTES_PER_S / 1000;
    for _ in 0..RECALL_STRETCH_MAX * 2 {
        assert_eq!(world.engine.caps_epoch(a), Some(epoch));
        world.pass(RECALL_MS / 2);
        world.engine.caps_alive(a, world.now);
        world.engine.holder_flushed(OTHER, a, much, world.now);
        world.engine.tick(world.now);
    }
    assert_eq!(world.engine.caps_epoch(a), Some(epoch + 1));
}

#[test]
fn a_holder_that_flushes_nothing_has_no_more_time_whatever_others_flush() {
    let (mut world, a, b) = world_of_short_recalls();
    world.acquire(a, FILE, CapSet::FILE_X);
    world.recalled_by(FILE, Deed::ReadData, Some(b));
    for _ in 0..2 {
        assert!(!world.is_clear(FILE, Deed::ReadData, Some(b)));
        world.pass(RECALL_MS / 2);
        world.engine.caps_flushed(b, 0, world.now);
        world.engine.holder_flushed(FILE, b, 0, world.now);
        world.engine.tick(world.now);
    }
    assert!(world.is_clear(FILE, Deed::ReadData, Some(b)));
}

#[test]
fn what_did_not_reach_the_holder_is_sent_again_and_at_once_when_it_can_be_called() {
    let (mut world, a, b) = world_of_two();
    world.acquire(a, FILE, CapSet::FILE_X);
    let [(_, _, seq)] = world.recalled_by(FILE, Deed::ReadData, Some(b))[..] else { panic!() };
    let now = world.now;
    world.engine.caps_recall_answered(a, (FILE, seq), RecallAnswer::Unreachable, now);
    world.engine.caps_path(a, false);
    world.engine.tick(world.now);
    assert!(world.settle().is_empty());
    world.engine.caps_path(a, true);
    let [Effect::CapRecall { seq: again, .. }] = world.settle()[..] else { panic!() };
    assert!(again > seq);
    let now = world.now;
    world.engine.caps_recall_answered(a, (FILE, again), RecallAnswer::NotSent, now);
    world.pass(RECALL_RETRY_MS);
    world.engine.tick(world.now);
    let [Effect::CapRecall { seq: last, .. }] = world.settle()[..] else { panic!() };
    let now = world.now;
    world.engine.caps_recall_answered(a, (FILE, last), RecallAnswer::Accepted, now);
    world.pass(RECALL_RETRY_MS);
    world.engine.tick(world.now);
    assert!(world.settle().is_empty(), "heard");
}

#[test]
fn delegations_and_capabilities_exclude_each_other_as_what_they_stand_for() {
    let (mut world, a, b) = world_of_two();
    world.delegate(b, 1, DelegationKind::Write);
    let held = world.acquire(a, FILE, CapSet::ALL_X).held;
    assert!(!held.contains(CapSet::FILE_S) && !held.contains(CapSet::AUTH_X), "{held:?}");
    let now = world.now;
    assert!(matches!(world.engine.caps_contend(FILE, CapSet::FILE_S, a, now), Contention::Recalling { .. }));
    world.settle();
    world.acquire(a, OTHER, CapSet::FILE_X);
    assert_eq!(world.why_none(b, 2, DelegationKind::Read), Some(WhyNone::Contention));
    // One's own stand beside each other.
    world.acquire(a, FileKey(3), CapSet::ALL_X);
    world.delegate(a, 3, DelegationKind::Write);
    world.settle();
}

#[test]
fn others_opens_bound_what_is_granted_and_recall_what_is_held() {
    let (mut world, a, b) = world_of_two();
    world.open(b, "o", 1, share(R, NONE)).unwrap();
    assert_eq!(world.acquire(a, FILE, CapSet::FILE_X).held, CapSet::FILE_S);
    world.open(b, "p", 2, share(W, NONE)).unwrap();
    assert_eq!(world.acquire(a, OTHER, CapSet::FILE_X).held, CapSet::NONE);
    world.open(a, "q", 3, share(RW, NONE)).unwrap();
    world.acquire(a, FileKey(3), CapSet::FILE_X);
    assert_eq!(world.open(b, "r", 3, share(R, NONE)), Err(StateError::Delay));
    let effects = world.settle();
    assert!(matches!(effects[..], [Effect::CapRecall { client, .. }] if client == a), "{effects:?}");
    // An OPEN of the holder's own, by an owner that the server has not met, is not in its way.
    world.acquire(a, FileKey(4), CapSet::FILE_X);
    world.open(a, "fresh", 4, share(RW, NONE)).unwrap();
    assert!(!world.settle().iter().any(|effect| matches!(effect, Effect::CapRecall { .. })));
}

#[test]
fn a_client_that_cannot_be_called_or_has_not_said_hello_gets_nothing() {
    let mut world = World::new();
    let (a, _) = world.client("a", 1);
    assert_eq!(world.acquire(a, FILE, CapSet::ALL_S).held, CapSet::NONE);
    world.engine.caps_hello(a).unwrap();
    assert_eq!(world.acquire(a, FILE, CapSet::ALL_S).held, CapSet::NONE);
    world.engine.caps_path(a, true);
    assert_eq!(world.acquire(a, FILE, CapSet::ALL_S).held, CapSet::ALL_S);
    world.settle();
}

#[test]
fn in_grace_what_was_held_is_reclaimed_and_nothing_else_granted() {
    let grace = Grace::Until(Instant(60_000));
    let mut world = World::with(config(2, grace));
    let exchanged = world.exchange("a", 1).unwrap();
    world.create(exchanged.client, exchanged.next_seqid).unwrap();
    let client = exchanged.client;
    world.engine.caps_hello(client).unwrap();
    world.engine.caps_path(client, true);
    let want = CapSet::ALL_X;
    let ask = |world: &mut World, reclaim| {
        let request = CapRequest { client, file: FILE, want, is_beside_writers: false, reclaim };
        world.engine.caps_prepare(&request, world.now)
    };
    assert_eq!(ask(&mut world, None), Err(StateError::Grace));
    assert_eq!(ask(&mut world, Some(Recorded::No)), Err(StateError::ReclaimBad));
    let Ok(CapOffer::Offered(ticket)) = ask(&mut world, Some(Recorded::Yes)) else { panic!() };
    assert_eq!(world.engine.caps_commit(ticket).unwrap().held, want);
    world.engine.reclaim_complete(client).unwrap();
    assert_eq!(ask(&mut world, Some(Recorded::Yes)), Err(StateError::NoGrace));
    world.settle();
}

#[test]
fn a_client_whose_lease_ran_out_loses_its_capabilities_to_whoever_wants_them() {
    let (mut world, a, b) = world_of_two();
    world.acquire(a, FILE, CapSet::ALL_X);
    world.pass(LEASE_MS + 1);
    assert!(world.is_clear(FILE, CHANGE, Some(b)));
    assert_eq!(world.engine.caps_epoch(a), None);
}

#[test]
fn a_client_that_says_goodbye_holds_nothing() {
    let (mut world, a, _) = world_of_two();
    world.acquire(a, FILE, CapSet::ALL_X);
    world.acquire(a, OTHER, CapSet::ALL_S);
    assert_eq!(world.engine.caps_count(a), 2);
    world.engine.caps_bye(a, world.now);
    assert_eq!(world.engine.caps_count(a), 0);
    assert_eq!(world.settle().len(), 2);
}

impl World {
    fn acquire_beside_writers(&mut self, client: ClientId, file: FileKey) -> CapGrant {
        let request =
            CapRequest { client, file, want: CapSet::ALL_S, is_beside_writers: true, reclaim: None };
        match self.engine.caps_prepare(&request, self.now).unwrap() {
            CapOffer::Offered(ticket) => self.engine.caps_commit(ticket).unwrap(),
            CapOffer::Held(grant) => grant,
        }
    }
}

/// Else who waits in line would find it promised again whenever its turn came.
#[test]
fn what_somebody_waits_for_by_another_door_is_not_promised_meanwhile() {
    let (mut world, a, _) = world_of_two();
    let ask = |id, kind| ForeignRequest {
        owner: ForeignOwner { door: Door::Nlm, id },
        file: FILE,
        range: bytes(0, 9),
        kind,
        claim: ForeignClaim::New,
        wait: ForeignWait::InLine,
    };
    let (now, read, write) = (world.now, ask(1, LockKind::Read), ask(2, LockKind::Write));
    let ticket = world.engine.foreign_prepare(&read, now).unwrap();
    assert!(world.engine.foreign_commit(ticket, now));
    assert_eq!(world.acquire(a, FILE, CapSet::FILE_S).held, CapSet::FILE_S, "beside who reads");
    world.engine.caps_release(a, FILE, (CapSet::NONE, u64::MAX), now);
    assert!(world.engine.foreign_prepare(&write, now).is_err());
    assert!(world.acquire(a, FILE, CapSet::FILE_S).held.is_empty());
    world.settle();
    world.engine.foreign_unlock(read.owner, FILE, bytes(0, 9), now);
    let given =
        |effect: &Effect| matches!(effect, Effect::ForeignGranted { owner, .. } if *owner == write.owner);
    assert!(world.settle().iter().any(given));
}

#[test]
fn who_asks_for_it_has_data_beside_writers_until_they_write() {
    let (mut world, a, b) = world_of_two();
    world.open(b, "o", 1, share(RW, NONE)).unwrap();
    assert!(!world.acquire(a, FILE, CapSet::ALL_S).held.contains(CapSet::FILE_S));
    assert_eq!(world.acquire_beside_writers(a, FILE).held, CapSet::ALL_S);
    let [(who, keep, seq)] = world.recalled_by(FILE, Deed::WriteData, Some(b))[..] else { panic!() };
    assert!(who == a && !keep.contains(CapSet::FILE_S));
    assert!(!world.is_clear(FILE, Deed::WriteData, Some(b)));
    world.release(a, FILE, keep, seq);
    assert!(world.is_clear(FILE, Deed::WriteData, Some(b)));
    assert_eq!(world.acquire_beside_writers(a, FILE).held, CapSet::ALL_S, "and again");
    // Who denies anything is obeyed.
    world.open(b, "p", 2, share(R, W)).unwrap();
    assert!(!world.acquire_beside_writers(a, OTHER).held.contains(CapSet::FILE_S));
}

#[test]
fn who_waits_for_a_change_of_its_own_is_not_waited_for_with_what_it_has_beside_writers() {
    let (mut world, a, b) = world_of_two();
    world.open(a, "o", 1, share(RW, NONE)).unwrap();
    world.open(b, "p", 1, share(RW, NONE)).unwrap();
    world.acquire_beside_writers(a, FILE);
    world.acquire_beside_writers(b, FILE);
    let now = world.now;
    assert!(!world.engine.caps_yield(FILE, Deed::WriteData, (b, &[a]), now), "it was not asked for yet");
    world.recalled_by(FILE, Deed::WriteData, Some(b));
    world.recalled_by(FILE, Deed::WriteData, Some(a));
    assert!(!world.engine.caps_yield(FILE, Deed::WriteData, (b, &[]), now), "it does not wait");
    assert!(world.engine.caps_yield(FILE, Deed::WriteData, (b, &[a]), now));
    world.settle();
    assert!(world.is_clear(FILE, Deed::WriteData, Some(b)), "the one goes on");
    assert!(
        !world.is_clear(FILE, Deed::WriteData, Some(a)),
        "and the other waits for what it has to give back"
    );
    // It may have that anew before it has heard of its recall, under a later number: by that it knows that others were there between.
    let recalled = world.engine.caps_of(b, FILE).seq;
    assert_eq!(world.acquire_beside_writers(a, FILE).held, CapSet::ALL_S);
    assert!(world.engine.caps_of(a, FILE).seq > recalled);
    // What is held alone has to be flushed.
    world.acquire(a, OTHER, CapSet::ALL_X);
    world.recalled_by(OTHER, Deed::WriteData, Some(b));
    assert!(!world.engine.caps_yield(OTHER, Deed::WriteData, (b, &[a]), now));
}
