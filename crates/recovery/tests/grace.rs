//! The grace machine: its cases one by one, then random worlds of clients, partitions and restarts, in which no
//! client may ever reclaim what another has held since.

use std::collections::BTreeMap;

use holdfast_base::limits::GRACE_STRETCH_MS;
use holdfast_base::{ClientId, Entropy, Instant, SeededEntropy};
use holdfast_recovery::{ClientName, ClientRecord, Grace, GraceEffect, Reclaim, RecordChange};
use proptest::prelude::*;

const LEASE: u64 = 60_000;
/// Between two reclaims.
const PAUSE: u64 = 2000;
const START: Instant = Instant(1_000_000);

fn name(n: u8, is_sessions: bool) -> ClientName {
    ClientName { is_sessions, owner: vec![n] }
}

fn record(n: u8, is_sessions: bool) -> ClientRecord {
    ClientRecord {
        name: name(n, is_sessions),
        verifier: [n; 8],
        principal: b"p".to_vec(),
        client_id: ClientId(u64::from(n)),
        holds_state: true,
        holds_caps: false,
        lost_state: false,
        missed_grace: false,
        created: None,
    }
}

fn start(records: &[ClientRecord]) -> Grace {
    Grace::start(START, LEASE, records, false)
}

#[test]
fn with_nothing_to_reclaim_grace_is_over_at_once() {
    assert!(start(&[]).is_over());
    let idle = ClientRecord { holds_state: false, ..record(1, true) };
    let grace = start(&[idle]);
    assert!(grace.is_over());
    assert_eq!(grace.deadline(), None);
    assert!(!start(&[record(1, true)]).is_over());
}

#[test]
fn capabilities_are_awaited_until_the_last_that_may_have_had_some_is_done() {
    let with_caps = |n| ClientRecord { holds_caps: true, ..record(n, true) };
    assert!(!start(&[record(1, false), record(2, true)]).awaits_caps());
    // Who may not reclaim them believes in them all the same.
    let missed = ClientRecord { missed_grace: true, ..with_caps(4) };
    let mut grace = start(&[record(1, false), record(2, true), with_caps(3), missed]);
    assert!(grace.awaits_caps());
    let _ = grace.reclaim_complete(&name(3, true));
    assert!(grace.awaits_caps());
    let _ = grace.gone(&name(4, true));
    assert!(!grace.awaits_caps());
    assert_eq!(grace.awaited().count(), 2, "the others are");
    let mut grace = start(&[with_caps(3)]);
    let _ = grace.tick(START.after_ms(LEASE));
    assert!(!grace.awaits_caps(), "it has not come in time");
}

/// One that was not heard of, and may come back all the same.
fn unheard_of(n: u8, is_sessions: bool) -> RecordChange {
    RecordChange::LoseClient(name(n, is_sessions), [n; 8])
}

#[test]
fn who_may_not_reclaim_is_waited_for_as_long_as_he_may_believe_to_hold_something() {
    let lost = ClientRecord { lost_state: true, ..record(1, true) };
    let missed = ClientRecord { missed_grace: true, ..record(2, true) };
    let mut grace = start(&[lost, missed]);
    assert_eq!(grace.reclaim(&name(1, true), b"p"), Reclaim::NotEntitled);
    assert_eq!(grace.reclaim_complete(&name(1, true)), []);
    assert_eq!(grace.awaited().collect::<Vec<_>>(), [&name(2, true)]);
    let forgotten = unheard_of(2, true);
    assert_eq!(grace.tick(START.after_ms(LEASE)), [GraceEffect::Store(vec![forgotten])]);
}

/// RFC 8881 section 8.4.3, the second edge condition, where the restart after comes before its lease is over.
#[test]
fn who_was_not_heard_of_when_an_administrator_ends_grace_stays_on_record_and_may_not_reclaim() {
    for is_sessions in [false, true] {
        let (silent, back) = (record(1, is_sessions), record(2, is_sessions));
        let mut grace = start(&[silent.clone(), back.clone()]);
        assert_eq!(grace.returned(&back.name, back.verifier), []);
        let marked = [silent, back].map(|record| ClientRecord { missed_grace: true, ..record });
        let store = GraceEffect::Store(marked.iter().cloned().map(RecordChange::Client).collect());
        assert_eq!(grace.end_now(), [store]);
        assert_eq!(grace.reclaim(&name(1, is_sessions), b"p"), Reclaim::Over, "while that is being stored");
        assert_eq!(grace.stored(), [GraceEffect::Ended]);
        let mut grace = start(&marked);
        assert!(!grace.is_over(), "it may still believe in what it had");
        for n in [1, 2] {
            assert_eq!(grace.reclaim(&name(n, is_sessions), b"p"), Reclaim::NotEntitled);
        }
        let forgotten = [1, 2].map(|n| unheard_of(n, is_sessions)).to_vec();
        assert_eq!(grace.tick(START.after_ms(LEASE)), [GraceEffect::Store(forgotten)], "it is over by now");
    }
}

#[test]
fn grace_ends_when_every_session_client_is_done() {
    let mut grace = start(&[record(1, true), record(2, true)]);
    assert_eq!(grace.reclaim(&name(1, true), b"p"), Reclaim::Granted);
    assert_eq!(grace.reclaim_complete(&name(1, true)), []);
    assert_eq!(grace.reclaim(&name(1, true), b"p"), Reclaim::AlreadyComplete);
    assert_eq!(grace.awaited().collect::<Vec<_>>(), [&name(2, true)]);
    assert_eq!(grace.reclaim_complete(&name(9, true)), [], "a client without a record has no say");
    assert!(!grace.is_over());
    assert_eq!(grace.reclaim_complete(&name(2, true)), [GraceEffect::Ended]);
    assert!(grace.is_over());
    assert_eq!(grace.reclaim(&name(2, true), b"p"), Reclaim::Over);
}

#[test]
fn clients_of_4_0_and_nlm_keep_grace_open_for_its_time() {
    let mut grace = start(&[record(1, true), record(2, false)]);
    assert_eq!(grace.reclaim(&name(2, false), b"p"), Reclaim::Granted);
    assert_eq!(grace.reclaim_complete(&name(1, true)), []);
    assert_eq!(grace.tick(START.after_ms(LEASE / 2)), []);
    assert_eq!(grace.tick(START.after_ms(LEASE - 1)), []);
    assert_eq!(grace.deadline(), Some(START.after_ms(LEASE)));
    settle(&mut grace, &name(2, false), START.after_ms(LEASE / 2));
    assert_eq!(grace.unfinished().count(), 0);
    assert_eq!(grace.tick(START.after_ms(LEASE)), [GraceEffect::Ended], "who came back keeps his record");

    let mut nlm = Grace::start(START, LEASE, &[], true);
    assert!(!nlm.is_over());
    assert_eq!(nlm.tick(START.after_ms(LEASE)), [GraceEffect::Ended]);
}

/// Reclaims every `every_ms` from five seconds before the end of grace, with a tick a second, and tells how long after its
/// start grace ended.
fn reclaims_late(who: &ClientName, every_ms: u64, for_ms: u64) -> u64 {
    let mut grace = start(&[record(who.owner[0], who.is_sessions)]);
    for at in (LEASE - 5000..).step_by(every_ms as usize) {
        let now = START.after_ms(at);
        if at < LEASE - 5000 + for_ms {
            let said = grace.reclaim(who, b"p");
            if said == Reclaim::Over {
                return at;
            }
            assert_eq!(said, Reclaim::Granted);
        }
        if at % 1000 == 0 && !grace.tick(now).is_empty() {
            return at;
        }
    }
    unreachable!()
}

#[test]
fn grace_does_not_end_in_the_middle_of_a_clients_reclaims() {
    for is_sessions in [true, false] {
        let ended = reclaims_late(&name(1, is_sessions), 250, 15_000);
        // The last one is counted by the tick after it.
        assert_eq!(ended, LEASE - 5000 + 15_000 + GRACE_STRETCH_MS);
    }
}

#[test]
fn a_client_that_reclaims_for_ever_does_not_keep_grace_open_for_ever() {
    assert_eq!(reclaims_late(&name(1, true), 250, u64::MAX / 2), 2 * LEASE);
}

#[test]
fn what_was_reclaimed_long_ago_and_what_is_refused_keep_nothing_open() {
    let mut grace = start(&[record(1, true), record(2, true)]);
    assert_eq!(grace.reclaim(&name(1, true), b"p"), Reclaim::Granted);
    assert_eq!(grace.tick(START.after_ms(LEASE / 2)), []);
    assert_eq!(grace.reclaim(&name(9, true), b"p"), Reclaim::NotEntitled);
    assert_eq!(grace.reclaim_complete(&name(1, true)), []);
    assert_eq!(grace.reclaim(&name(1, true), b"p"), Reclaim::AlreadyComplete);
    assert_eq!(grace.deadline(), Some(START.after_ms(LEASE)));
    assert_eq!(grace.tick(START.after_ms(LEASE - 1)), []);
    let forgotten = unheard_of(2, true);
    assert_eq!(grace.tick(START.after_ms(LEASE)), [GraceEffect::Store(vec![forgotten])]);
}

#[test]
fn a_client_of_4_0_that_came_back_and_reclaimed_nothing_loses_its_right() {
    let mut grace = start(&[record(1, false)]);
    assert_eq!(grace.returned(&name(1, false), [1; 8]), []);
    let marked = ClientRecord { missed_grace: true, ..record(1, false) };
    assert_eq!(grace.tick(START.after_ms(LEASE)), [GraceEffect::Store(vec![RecordChange::Client(marked)])]);
    assert_eq!(grace.stored(), [GraceEffect::Ended]);
    assert!(!grace.is_reclaiming(&name(1, false)), "what it takes from now on is new");
}

/// Ticks from here on, with a client that is heard of all the time and reclaims nothing; who turned out to be done.
fn settle(grace: &mut Grace, who: &ClientName, from: Instant) -> Vec<ClientName> {
    let tick = |n: u64| {
        let now = from.after_ms(n * 1000);
        grace.done_reclaiming((now, PAUSE), |name| (name == who).then_some(now))
    };
    (1..=8).flat_map(tick).collect()
}

#[test]
fn a_client_of_4_0_that_may_be_in_the_middle_of_reclaiming_when_grace_ends_loses_its_right_until_it_is_done()
{
    let who = record(1, false);
    let marked = ClientRecord { missed_grace: true, ..who.clone() };
    let end = START.after_ms(LEASE);
    let mut grace = start(std::slice::from_ref(&who));
    assert_eq!(grace.reclaim(&who.name, b"p"), Reclaim::Granted);
    assert!(grace.is_reclaiming(&who.name));
    // Heard of when it reclaimed, and not since.
    for n in 1..=10 {
        assert_eq!(grace.done_reclaiming((START.after_ms(n * 1000), PAUSE), |_| Some(START)), []);
    }
    assert!(!grace.is_reclaiming(&who.name), "not since the last tick");
    assert_eq!(grace.tick(START.after_ms(LEASE / 2)), []);
    assert_eq!(grace.tick(end), [GraceEffect::Store(vec![RecordChange::Client(marked.clone())])]);
    assert_eq!(settle(&mut grace, &who.name, end), [], "not before it is stored");
    assert_eq!(grace.stored(), [GraceEffect::Ended]);
    assert_eq!(start(std::slice::from_ref(&marked)).reclaim(&who.name, b"p"), Reclaim::NotEntitled);
    let done = std::slice::from_ref(&who.name);
    assert_eq!(settle(&mut grace, &who.name, end), done);
    assert_eq!(grace.unfinished().count(), 0);
    grace.still_marked(&who.name);
    let mut next_process = Grace::over(&[marked, record(2, false)]);
    for grace in [&mut grace, &mut next_process] {
        assert_eq!(settle(grace, &who.name, end), done, "what could not be stored comes again");
    }
}

#[test]
fn a_client_of_4_0_that_comes_back_late_is_given_time_to_go_on_reclaiming() {
    const LONGER: u64 = 9000;
    let marked = ClientRecord { missed_grace: true, ..record(1, false) };
    let who = &marked.name;
    for comes_by_its_id in [true, false] {
        let mut grace = Grace::over(std::slice::from_ref(&marked));
        let mut ms = 0;
        let mut second = |grace: &mut Grace, heard_ms: u64| {
            ms += 1000;
            let heard = START.after_ms(heard_ms);
            grace.done_reclaiming((START.after_ms(ms), LONGER), |_| Some(heard)).len()
        };
        // Long silent; then a sign of life, and a reclaim behind it, or what it says before that.
        assert_eq!((0..20).map(|_| second(&mut grace, 0)).sum::<usize>(), 0);
        assert_eq!(second(&mut grace, 20_500), 0);
        if comes_by_its_id {
            assert_eq!(grace.reclaim(who, b"p"), Reclaim::Over);
            assert!(grace.is_reclaiming(who), "it has tried");
            assert_eq!(grace.returned(who, marked.verifier), []);
            assert!(!grace.is_reclaiming(who), "what it takes in this moment is new");
        } else {
            assert_eq!(grace.reclaim(who, b"p"), Reclaim::Over);
        }
        assert_eq!((0..20).map(|_| second(&mut grace, 21_500)).sum::<usize>(), 0, "nothing since");
        assert_eq!(
            (0..3).map(|n| second(&mut grace, 42_000 + n)).sum::<usize>(),
            0,
            "it may go on in a moment"
        );
        assert_eq!((0..8).map(|n| second(&mut grace, 45_000 + n)).sum::<usize>(), 1);
    }
}

#[test]
fn only_a_recorded_client_as_the_same_principal_may_reclaim() {
    let mut grace = start(&[record(1, true), ClientRecord { lost_state: true, ..record(2, true) }]);
    assert_eq!(grace.reclaim(&name(1, true), b"other"), Reclaim::NotEntitled);
    assert_eq!(grace.reclaim(&name(1, false), b"p"), Reclaim::NotEntitled);
    assert_eq!(grace.reclaim(&name(2, true), b"p"), Reclaim::NotEntitled);
    assert_eq!(grace.reclaim(&name(3, true), b"p"), Reclaim::NotEntitled);
    assert_eq!(grace.reclaim(&name(1, true), b"p"), Reclaim::Granted);
}

#[test]
fn a_client_that_restarted_itself_has_nothing_to_reclaim() {
    let mut grace = start(&[record(1, true), record(2, true)]);
    assert_eq!(grace.returned(&name(1, true), [1; 8]), []);
    assert_eq!(grace.returned(&name(2, true), [99; 8]), []);
    assert_eq!(grace.reclaim(&name(2, true), b"p"), Reclaim::NotEntitled);
    assert_eq!(grace.returned(&name(3, true), [3; 8]), []);
    assert_eq!(grace.reclaim_complete(&name(1, true)), [GraceEffect::Ended]);
    let mut alone = start(&[record(1, true)]);
    assert_eq!(alone.gone(&name(1, true)), [GraceEffect::Ended]);
}

#[test]
fn nothing_new_is_granted_before_the_marks_are_stored() {
    let mut grace = start(&[record(1, true), record(2, true), record(3, true), record(4, false)]);
    assert_eq!(grace.reclaim(&name(1, true), b"p"), Reclaim::Granted);
    assert_eq!(grace.reclaim_complete(&name(2, true)), []);
    assert_eq!(grace.tick(START.after_ms(LEASE / 2)), []);
    let effects = grace.tick(START.after_ms(LEASE));
    let marked = ClientRecord { missed_grace: true, ..record(1, true) };
    let changes = [unheard_of(4, false), RecordChange::Client(marked), unheard_of(3, true)];
    assert_eq!(effects, [GraceEffect::Store(changes.to_vec())]);
    assert!(!grace.is_over());
    assert_eq!(grace.reclaim(&name(1, true), b"p"), Reclaim::Over);
    assert_eq!(grace.tick(START.after_ms(2 * LEASE)), []);
    assert_eq!(grace.stored(), [GraceEffect::Ended]);
    assert_eq!(grace.stored(), [], "it ends once");
}

/// Two locks, three clients, one server that restarts; what each client believes, and what is true.
struct World {
    random: SeededEntropy,
    now: Instant,
    records: BTreeMap<ClientName, ClientRecord>,
    grace: Grace,
    /// Who holds a lock for the server.
    holders: [Option<ClientName>; 2],
    /// Who believes to hold which lock, and whether anybody else has held it since that was true.
    believers: [BTreeMap<ClientName, bool>; 2],
    /// When who was last heard of.
    heard: BTreeMap<ClientName, Instant>,
    reclaims: u32,
    /// Marks that were taken away again.
    unmarked: u32,
}

impl World {
    fn new(seed: u64) -> Self {
        let grace = Grace::start(START, LEASE, &[], false);
        let random = SeededEntropy(seed);
        Self {
            random,
            now: START,
            records: BTreeMap::new(),
            grace,
            holders: [None, None],
            believers: [BTreeMap::new(), BTreeMap::new()],
            heard: BTreeMap::new(),
            reclaims: 0,
            unmarked: 0,
        }
    }

    fn clients() -> [ClientName; 3] {
        [name(1, true), name(2, false), name(3, false)]
    }

    /// The edges do what effects say, at once or (a crash) not at all.
    fn run(&mut self, effects: Vec<GraceEffect>) {
        for effect in effects {
            if let GraceEffect::Store(changes) = effect {
                if self.random.u64().is_multiple_of(4) {
                    return self.restart();
                }
                changes.into_iter().for_each(|c| self.apply(c));
                let more = self.grace.stored();
                self.run(more);
            }
        }
    }

    fn apply(&mut self, change: RecordChange) {
        match change {
            RecordChange::Client(c) => drop(self.records.insert(c.name.clone(), c)),
            RecordChange::ForgetClient(name) | RecordChange::LoseClient(name, _) => {
                drop(self.records.remove(&name));
            }
            RecordChange::Session(_)
            | RecordChange::ForgetSession(_)
            | RecordChange::Lost(_)
            | RecordChange::ForgetLost(_) => {}
        }
    }

    fn restart(&mut self) {
        self.holders = [None, None];
        let records: Vec<_> = self.records.values().cloned().collect();
        self.grace = Grace::start(self.now, LEASE, &records, false);
    }

    /// The next process of the same server.
    fn replace(&mut self) {
        if self.grace.is_over() {
            self.grace = Grace::over(self.records.values());
        }
    }

    fn take(&mut self, lock: usize, who: &ClientName) {
        for (other, is_tainted) in &mut self.believers[lock] {
            *is_tainted |= other != who;
        }
        self.believers[lock].insert(who.clone(), false);
        self.holders[lock] = Some(who.clone());
    }

    /// What it has to reclaim yet: while there is something it asks for nothing new.
    fn left(&self, who: &ClientName) -> Vec<usize> {
        let believes = |lock: usize| self.believers[lock].contains_key(who);
        (0..2).filter(|lock| believes(*lock) && self.holders[*lock].as_ref() != Some(who)).collect()
    }

    fn acquire(&mut self, lock: usize, who: &ClientName) {
        let is_free = self.holders[lock].is_none() && !self.believers[lock].contains_key(who);
        if !self.grace.is_over() || !is_free || !self.left(who).is_empty() {
            return;
        }
        let fresh = ClientRecord { ..record(who.owner[0], who.is_sessions) };
        self.records.insert(who.clone(), fresh);
        self.take(lock, who);
    }

    fn reclaim(&mut self, lock: usize, who: &ClientName) -> Result<(), TestCaseError> {
        let Some(is_tainted) = self.believers[lock].get(who).copied() else { return Ok(()) };
        if self.holders[lock].as_ref() == Some(who) {
            return Ok(());
        }
        if self.grace.reclaim(who, b"p") == Reclaim::Granted {
            prop_assert!(!is_tainted, "{who:?} reclaims what another has held");
            prop_assert_eq!(&self.holders[lock], &None);
            self.holders[lock] = Some(who.clone());
            self.reclaims += 1;
        } else if self.random.u64().is_multiple_of(2) {
            // Else the answer is lost: it believes in it still.
            self.believers[lock].remove(who);
        }
        Ok(())
    }

    fn complete(&mut self, who: &ClientName) {
        if !who.is_sessions {
            return;
        }
        // It has reclaimed what it could, and gives up the rest.
        let mut holds = false;
        for lock in 0..2 {
            if self.holders[lock].as_ref() == Some(who) {
                holds = true;
            } else {
                self.believers[lock].remove(who);
            }
        }
        if let Some(record) = self.records.remove(who) {
            self.records.insert(who.clone(), record.agreed(holds));
        }
        let effects = self.grace.reclaim_complete(who);
        self.run(effects);
    }

    /// Somebody is heard of. Who has something to reclaim goes on with that, unless it is cut off again: then for good.
    fn hear(&mut self, who: &ClientName) -> Result<(), TestCaseError> {
        self.heard.insert(who.clone(), self.now);
        match self.left(who).first() {
            Some(lock) => self.reclaim(*lock, who),
            None => Ok(()),
        }
    }

    /// Ticks, one a second.
    fn pass(&mut self) {
        for _ in 0..self.random.u64() % 6 {
            self.now = self.now.after_ms(1000);
            let heard = |who: &ClientName| self.heard.get(who).copied();
            for who in self.grace.done_reclaiming((self.now, PAUSE), heard) {
                if let Some(record) = self.records.get_mut(&who) {
                    self.unmarked += u32::from(record.missed_grace);
                    record.missed_grace = false;
                }
            }
        }
    }

    /// The lease is over: the record loses its right before the lock goes to another.
    fn expire(&mut self, lock: usize) {
        if let Some(who) = self.holders[lock].take()
            && let Some(record) = self.records.get_mut(&who)
        {
            record.lost_state = true;
        }
    }

    fn release(&mut self, lock: usize, who: &ClientName) {
        if self.holders[lock].as_ref() == Some(who) {
            self.holders[lock] = None;
            self.believers[lock].remove(who);
        }
    }

    fn step(&mut self) -> Result<(), TestCaseError> {
        let who = Self::clients()[(self.random.u64() % 3) as usize].clone();
        let lock = (self.random.u64() % 2) as usize;
        match self.random.u64() % 32 {
            0..5 => self.acquire(lock, &who),
            5..9 => self.reclaim(lock, &who)?,
            9..12 => self.complete(&who),
            12 => self.expire(lock),
            13..15 => self.release(lock, &who),
            15 => self.restart(),
            16 => {
                let effects = self.grace.returned(&who, [who.owner[0]; 8]);
                self.run(effects);
            }
            17..21 => self.pass(),
            21..26 => self.hear(&who)?,
            26 => self.replace(),
            27 => {
                let effects = self.grace.end_now();
                self.run(effects);
            }
            _ => {
                self.now = self.now.after_ms(self.random.u64() % LEASE);
                let effects = self.grace.tick(self.now);
                self.run(effects);
            }
        }
        Ok(())
    }
}

#[test]
fn marks_go_and_come_in_these_worlds() {
    let unmarked = |seed| {
        let mut world = World::new(seed);
        (0..2000).for_each(|_| world.step().unwrap());
        world.unmarked
    };
    assert!((0..20).map(unmarked).sum::<u32>() > 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nobody_reclaims_what_another_has_held_since(seed: u64) {
        let mut world = World::new(seed);
        for _ in 0..2000 {
            world.step()?;
        }
        prop_assert!(world.reclaims > 0, "the world never came to a reclaim");
    }
}
