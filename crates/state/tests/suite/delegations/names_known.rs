//! Directories are delegated to those alone who can know no other names of them than those of now.

use std::sync::Arc;

use super::*;

/// A client of that incarnation, which comes now, and why it gets no delegation of a directory that has not changed for so long
/// after `known_ms` more.
fn why_none(world: &mut World, verifier: u8, known_ms: u64, unchanged_ms: u64) -> Option<WhyNone> {
    let (client, session) = world.client("late", verifier);
    world.pass(known_ms);
    world.unchanged_ms = unchanged_ms;
    let why = world.why_none(client, 1, DIRECTORY);
    world.engine.destroy_session(session, 0).unwrap();
    world.engine.destroy_clientid(client, world.now).unwrap();
    assert!(world.settle().contains(&Effect::ClientLeft(client)));
    why
}

#[test]
fn a_directory_that_changed_since_its_client_came_is_not_delegated() {
    let mut world = World::new();
    let stale = Some(WhyNone::OpenBefore);
    assert_eq!(why_none(&mut world, 1, 10_000, 9_000), stale);
    assert_eq!(why_none(&mut world, 1, 10_000, 10_500), stale, "that may be the clock");
    assert_eq!(why_none(&mut world, 1, 10_000, 20_000), None);
    assert_eq!(why_none(&mut world, 1, 80_000, 81_050), stale, "a clock may run slow");
    assert_eq!(why_none(&mut world, 1, 80_000, 81_200), None);
    assert_eq!(why_none(&mut world, 1, 0, 0), stale, "nothing is known of its age");
}

#[test]
fn a_time_of_day_that_is_set_says_nothing_of_who_came_before() {
    let mut world = World::new();
    world.engine.note_calendar(1 << 40, world.now);
    let (client, _) = world.client("early", 1);
    let passes = |world: &mut World, ms: u64, by: u64| {
        world.pass(ms);
        world.engine.note_calendar((1 << 40) + world.now.0 - 1000 + by, world.now);
        world.unchanged_ms = ms + 60_000 + by;
        world.why_none(client, 1, DIRECTORY)
    };
    assert_eq!(passes(&mut world, 1000, 0), None);
    assert_eq!(passes(&mut world, 1000, 400), None, "looking at two clocks takes time");
    assert_eq!(passes(&mut world, 40_000, 440), None, "slewed");
    assert_eq!(passes(&mut world, 1000, 3_600_440), Some(WhyNone::OpenBefore), "set forward");
    assert_eq!(passes(&mut world, 1000, 440), Some(WhyNone::OpenBefore), "and back");
    world.pass(1);
    assert_eq!(why_none(&mut world, 1, 10, 60_000), None, "who came since");
}

#[test]
fn other_kinds_do_not_ask_how_old_a_file_is() {
    let mut pair = Pair::new();
    pair.world.unchanged_ms = 0;
    for kind in [READ, WRITE] {
        assert_eq!(pair.world.why_none(pair.a, 1, kind), None);
    }
}

#[test]
fn who_administers_may_have_all_or_none_delegated() {
    let mut pair = Pair::new();
    pair.world.unchanged_ms = 0;
    for (directories, why) in [
        (Directories::Always, None),
        (Directories::Never, Some(WhyNone::Off)),
        (Directories::Unchanged, Some(WhyNone::OpenBefore)),
    ] {
        pair.world.engine.set_policy(Policy { directories, ..Policy::default() });
        assert_eq!(pair.world.why_none(pair.a, 1, DIRECTORY), why, "{directories:?}");
    }
}

#[test]
fn it_is_delegated_as_long_as_it_stays_as_it_was_seen() {
    let mut pair = Pair::new();
    let Offer::Offered(ticket) = pair.world.offer(pair.a, 1, DIRECTORY, Grounds::Want).unwrap() else {
        panic!()
    };
    assert_eq!(ticket.if_change_is(), Some(ChangeId(pair.world.change)));
    pair.world.engine.delegation_abort(ticket, pair.world.now);
}

/// Knows of one incarnation that it was here.
struct Met(u8);

impl Witness for Met {
    fn forget(&self, _: &[ClientId]) -> bool {
        true
    }

    fn note_losses(&self, _: ClientId, _: bool) -> bool {
        true
    }

    fn may_have_met(&self, name: &[u8], verifier: Verifier) -> bool {
        name == b"late" && verifier == Verifier([self.0; 8])
    }
}

#[test]
fn who_may_have_been_here_before_is_delegated_none() {
    let mut world = World::new();
    world.engine.set_witness(Arc::new(Met(3)));
    assert_eq!(why_none(&mut world, 3, 0, 1 << 40), Some(WhyNone::OpenBefore));
    assert_eq!(why_none(&mut world, 4, 0, 1 << 40), None, "it has started anew since");
    // Linux, which keeps its cache meanwhile.
    assert_eq!(why_none(&mut world, 0xff, 0, 1 << 40), Some(WhyNone::OpenBefore));
}
