#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use holdfast_base::{ClientId, ManualClock, Seqid};
use holdfast_nfs4::ClientRecords;
use holdfast_state::{ClientImage, Dialect, OwnerName, Principal, Recorded, Verifier};
use holdfast_store::MemoryStore;

use super::*;

mod counting;
mod hanging;
mod holding;

const LEASE_MS: u64 = 60_000;

/// A server's store and directory, through its lives.
struct Lives {
    store: Arc<MemoryStore>,
    dir: tempfile::TempDir,
}

impl Lives {
    fn new() -> Self {
        Self { store: Arc::new(MemoryStore::new()), dir: tempfile::tempdir().unwrap() }
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The next life, after a crash.
    fn next(&self) -> Arc<Durable> {
        self.next_with_former().0
    }

    /// The same, with what it finds.
    fn next_with_former(&self) -> (Arc<Durable>, Former) {
        let store: Arc<dyn Store> = self.store.clone();
        let boot = Boot::begin(store.as_ref(), LEASE_MS).unwrap();
        let size = holdfast_journal::Config { bytes: 1 << 20, entries_max: 1024 };
        let opened = Ledger::open(&self.dir().join("journal"), &size, &[]).unwrap();
        Durable::with(store, opened, (&boot, LEASE_MS), &ManualClock::default()).unwrap()
    }

    /// The process that goes on after a planned restart with what another wrote down.
    fn go_on(&self, former: Arc<Durable>) -> Arc<Durable> {
        let image = rmp_serde::to_vec_named(&former.freeze()).unwrap();
        drop(former);
        let mut image: Image = rmp_serde::from_slice(&image).unwrap();
        let store: Arc<dyn Store> = self.store.clone();
        let boot = Boot::begin(store.as_ref(), LEASE_MS).unwrap();
        let size = holdfast_journal::Config { bytes: 1 << 20, entries_max: 1024 };
        let opened = Ledger::go_on(&self.dir().join("journal"), &size, image.take_cut_short()).unwrap();
        let clock = (&ManualClock::default() as &dyn Clock, image.take_unstored());
        let durable = Durable::go_on_with(store, opened, (&boot, LEASE_MS), clock).unwrap().0;
        durable.thaw(image);
        durable
    }
}

fn client(dialect: Dialect, id: u64) -> ClientImage {
    ClientImage {
        id: ClientId(id),
        dialect,
        name: OwnerName::new(b"client"),
        verifier: Verifier([1; 8]),
        principal: Principal::new(b"root"),
        create_seqid: Seqid(0),
        created: None,
    }
}

/// A client that holds something.
fn holder(durable: &Durable, dialect: Dialect, id: u64) -> ClientImage {
    let client = client(dialect, id);
    durable.persist(&client).unwrap();
    durable.reclaim_done(client.id);
    durable.will_hold(&client).unwrap();
    client
}

/// What a client that comes back hears of its claims.
fn claims(durable: &Durable, dialect: Dialect, id: u64) -> Recorded {
    let client = client(dialect, id);
    durable.persist(&client).unwrap();
    durable.recorded(&client)
}

#[test]
fn of_clients_that_are_forgotten_together_none_reclaims() {
    let lives = Lives::new();
    let first = lives.next();
    for id in 1..=3 {
        let named = ClientImage { name: OwnerName::new(&[id]), ..client(Dialect::V41, u64::from(id)) };
        first.persist(&named).unwrap();
        first.will_hold(&named).unwrap();
    }
    first.forget(&[ClientId(1), ClientId(3), ClientId(9)]);
    assert!(!first.may_hold(ClientId(1)) && first.may_hold(ClientId(2)));
    drop(first);
    let second = lives.next();
    let recorded = |id: u8| {
        second.recorded(&ClientImage { name: OwnerName::new(&[id]), ..client(Dialect::V41, u64::from(id)) })
    };
    assert_eq!([1, 2, 3].map(recorded), [Recorded::No, Recorded::Yes, Recorded::No]);
}

#[test]
fn who_was_here_and_has_not_said_that_it_goes_may_be_met_again_in_any_life() {
    let lives = Lives::new();
    let met = |durable: &Durable, verifier| durable.may_have_met(b"client", Verifier([verifier; 8]));
    let durable = lives.next();
    assert!(!met(&durable, 1));
    durable.persist(&client(Dialect::V41, 1)).unwrap();
    assert!(met(&durable, 1) && !met(&durable, 2));
    // Gone, as it said.
    durable.left(ClientId(1));
    assert!(durable.forget(&[ClientId(1)]) && !met(&durable, 1));
    // Gone without a word, in this life and in the next.
    durable.persist(&client(Dialect::V41, 2)).unwrap();
    assert!(durable.forget(&[ClientId(2)]) && met(&durable, 1) && !met(&durable, 2));
    drop(durable);
    let durable = lives.next();
    assert!(met(&durable, 1) && !met(&durable, 2));
    // The host has started anew.
    let anew = ClientImage { verifier: Verifier([2; 8]), ..client(Dialect::V41, 3) };
    durable.persist(&anew).unwrap();
    assert!(met(&durable, 2) && !met(&durable, 3));
    drop(durable);
    // Present when the server died, and not heard of in grace.
    let durable = lives.next();
    durable.will_hold(&anew).unwrap();
    drop(durable);
    let durable = lives.next();
    durable.tick(Instant(LEASE_MS + 1));
    assert!(durable.is_grace_over() && met(&durable, 2));
    drop(durable);
    let durable = lives.next();
    assert!(met(&durable, 2) && !met(&durable, 3));
}

/// So does Linux when it has its state purged, and so do hosts that are copies of one image.
#[test]
fn who_was_replaced_by_another_incarnation_may_be_met_again() {
    let lives = Lives::new();
    let comes = |durable: &Durable, id, verifier| {
        let is_met = durable.may_have_met(b"client", Verifier([verifier; 8]));
        durable
            .persist(&ClientImage { verifier: Verifier([verifier; 8]), ..client(Dialect::V41, id) })
            .unwrap();
        is_met
    };
    let durable = lives.next();
    let met = [(1, 1), (2, 0xff), (3, 1), (4, 2), (5, 3), (6, 1)]
        .map(|(id, verifier)| comes(&durable, id, verifier));
    assert_eq!(met, [false, false, true, false, false, true]);
    // The same owner of 4.0 is somebody else.
    durable.persist(&client(Dialect::V40, 7)).unwrap();
    durable.left(ClientId(6));
    assert!(durable.forget(&[ClientId(6)]));
    drop(durable);
    let durable = lives.next();
    assert_eq!(
        [1, 2, 3, 4].map(|verifier| durable.may_have_met(b"client", Verifier([verifier; 8]))),
        [false, true, true, false]
    );
}

#[test]
fn who_is_back_is_remembered_as_lost_until_its_record_is_stored() {
    let mut lost = Lost::default();
    let name = holdfast_recovery::ClientName { is_sessions: true, owner: b"client".to_vec() };
    lost.add(&name, [1; 8]);
    assert_eq!(lost.back(&name, [1; 8]), Some(RecordChange::ForgetLost(name.clone())));
    assert!(lost.may_be(&name, [1; 8]), "that may not have been stored");
    lost.note_back(&name, [1; 8]);
    assert!(!lost.may_be(&name, [1; 8]) && lost.back(&name, [1; 8]).is_none());
}

#[test]
fn those_lost_longest_ago_are_taken_for_new_when_more_are_lost_than_are_remembered() {
    use holdfast_base::limits::{LOST_CLIENTS_MAX, LOST_INCARNATIONS_MAX};
    let mut lost = Lost::default();
    let name =
        |n: usize| holdfast_recovery::ClientName { is_sessions: true, owner: n.to_be_bytes().to_vec() };
    // All at once, as at the end of grace.
    let all: Vec<_> = (0..=LOST_CLIENTS_MAX).map(|n| RecordChange::LoseClient(name(n), [1; 8])).collect();
    let changes = lost.of(&all);
    assert_eq!(changes.last(), Some(&RecordChange::ForgetLost(name(0))));
    assert!(!lost.may_be(&name(0), [1; 8]) && lost.may_be(&name(1), [1; 8]));
    // One that is lost again is among the youngest.
    lost.add(&name(1), [1; 8]);
    lost.add(&name(LOST_CLIENTS_MAX + 1), [1; 8]);
    assert!(lost.may_be(&name(1), [1; 8]) && !lost.may_be(&name(2), [1; 8]));
    (0..=LOST_INCARNATIONS_MAX as u8).for_each(|verifier| drop(lost.add(&name(1), [100 + verifier; 8])));
    assert!(!lost.may_be(&name(1), [100; 8]) && lost.may_be(&name(1), [101; 8]));
}

#[test]
fn who_lost_state_while_it_lived_reclaims_nothing_until_it_agrees_with_the_server_again() {
    for dialect in [Dialect::V41, Dialect::V40] {
        let lives = Lives::new();
        let first = lives.next();
        let it = holder(&first, dialect, 1);
        drop(first);
        let second = lives.next();
        assert_eq!(claims(&second, dialect, 2), Recorded::Yes);
        second.note_losses(ClientId(2), true);
        // Said in the same life, it is no word about what was lost.
        second.reclaim_done(ClientId(2));
        assert!(second.may_hold(ClientId(2)), "it loses no more than that");
        drop(second);
        let third = lives.next();
        assert_eq!(claims(&third, dialect, 3), Recorded::No);
        // 4.1 says so itself; of 4.0 its first new state shows it.
        third.reclaim_done(ClientId(3));
        third.will_hold(&ClientImage { id: ClientId(3), ..it }).unwrap();
        drop(third);
        assert_eq!(claims(&lives.next(), dialect, 4), Recorded::Yes);
    }
}

#[test]
fn who_has_acknowledged_what_it_lost_may_reclaim_the_rest() {
    let lives = Lives::new();
    let first = lives.next();
    holder(&first, Dialect::V41, 1);
    first.note_losses(ClientId(1), true);
    first.note_losses(ClientId(1), false);
    first.note_losses(ClientId(1), false);
    first.note_losses(ClientId(7), true);
    drop(first);
    assert_eq!(claims(&lives.next(), Dialect::V41, 2), Recorded::Yes);
}

/// As many clients as a large site has, each with a persistent session and what is remembered of one of its slots.
const MANY: u32 = 10_000;

/// What a restart may be held up by records, in a build that is not optimized: a cost that grew with the square of their
/// number would be a multiple.
const RESTART_MS_MAX: u128 = 1000;

/// The processor time that something takes here, in milliseconds: the machine may be busy with other tests.
fn cpu_ms<R>(act: impl FnOnce() -> R) -> (R, u128) {
    let now = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        now.tv_sec as u128 * 1000 + now.tv_nsec as u128 / 1_000_000
    };
    let begun = now();
    let done = act();
    (done, now() - begun)
}

#[test]
fn ten_thousand_clients_with_sessions_are_taken_in_again_within_a_second() {
    let lives = Lives::new();
    let first = lives.next();
    let named = |n: u32| ClientImage {
        name: OwnerName::new(format!("client {n}").as_bytes()),
        ..client(Dialect::V41, u64::from(n) + 1)
    };
    let changes: Vec<_> = (0..MANY).flat_map(|n| records_of(&named(n), n)).collect();
    first.records.store(&changes).unwrap();
    drop(first);

    let (second, open_ms) = cpu_ms(|| lives.next());
    let ((), back_ms) = cpu_ms(|| {
        for n in 0..MANY {
            let back = ClientImage { id: ClientId(u64::from(n) + 1_000_000), ..named(n) };
            second.persist(&back).unwrap();
            assert_eq!(second.recorded(&back), Recorded::Yes);
        }
    });
    let (has_ended, end_ms) = cpu_ms(|| second.end_grace());
    assert!(has_ended);
    println!(
        "{MANY} clients: {open_ms} ms to open, {back_ms} ms for all to come back, {end_ms} ms to end grace"
    );
    assert!(open_ms < RESTART_MS_MAX, "{open_ms} ms");
    // These come one after the other, in as many requests.
    assert!(back_ms < 2 * RESTART_MS_MAX, "{back_ms} ms");
    assert!(end_ms < RESTART_MS_MAX, "{end_ms} ms");
}

/// A client that holds something, and its session.
fn records_of(client: &ClientImage, n: u32) -> [RecordChange; 2] {
    let record = ClientRecord {
        name: holdfast_recovery::ClientName { is_sessions: true, owner: client.name.as_bytes().to_vec() },
        verifier: client.verifier.0,
        principal: client.principal.as_bytes().to_vec(),
        client_id: client.id,
        holds_state: true,
        holds_caps: false,
        lost_state: false,
        missed_grace: false,
        created: None,
    };
    let mut id = [0; 16];
    id[..4].copy_from_slice(&n.to_be_bytes());
    let session = SessionRecord {
        id: SessionId(id),
        client_id: client.id,
        fore: holdfast_recovery::ChannelRecord { slots: 4, ..Default::default() },
        back: Default::default(),
        callback_program: 0,
        flags: 1,
    };
    [RecordChange::Client(record), RecordChange::Session(session)]
}

#[test]
fn who_comes_back_after_grace_ended_without_it_may_reclaim_in_no_later_life() {
    for dialect in [Dialect::V40, Dialect::V41] {
        let lives = Lives::new();
        let first = lives.next();
        holder(&first, dialect, 1);
        drop(first);
        let durable = lives.next();
        durable.tick(Instant(3 * LEASE_MS));
        assert!(durable.inner.lock().grace.is_over());
        // It has an id again, and was granted nothing when the server dies once more.
        durable.persist(&client(dialect, 2)).unwrap();
        assert!(!durable.may_hold(ClientId(2)));
        drop(durable);
        let durable = lives.next();
        let it = client(dialect, 3);
        durable.persist(&it).unwrap();
        assert_eq!(durable.recorded(&it), Recorded::No, "{dialect:?}");
    }
}

#[test]
fn what_cannot_be_removed_or_marked_is_tried_again_and_said_to_stand() {
    let lives = Lives::new();
    let store = Arc::new(holdfast_store::suite::Faulty::new(MemoryStore::new()));
    let boot = Boot::begin(store.as_ref(), LEASE_MS).unwrap();
    let size = holdfast_journal::Config { bytes: 1 << 20, entries_max: 1024 };
    let opened = Ledger::open(&lives.dir().join("journal"), &size, &[]).unwrap();
    let shared: Arc<dyn Store> = store.clone();
    let durable = Durable::with(shared, opened, (&boot, LEASE_MS), &ManualClock::default()).unwrap().0;
    let it = holder(&durable, Dialect::V41, 1);
    store.fail_nth(1, holdfast_store::suite::Fault::Fail);
    assert!(!durable.note_losses(it.id, true), "nothing is taken from it");
    assert!(!durable.may_hold(it.id), "which mark it has is not known, till it is stored anew");
    assert!(durable.note_losses(it.id, true));
    store.fail_nth(1, holdfast_store::suite::Fault::ApplyThenFail);
    assert!(!durable.note_losses(it.id, false));
    durable.tick(Instant(1));
    assert!(!durable.records.clients().unwrap()[0].lost_state, "it has acknowledged that");
    store.fail_nth(1, holdfast_store::suite::Fault::Fail);
    assert!(!durable.forget(&[it.id]));
    assert_eq!(durable.records.clients().unwrap().len(), 1);
    durable.tick(Instant(1));
    assert_eq!(durable.records.clients().unwrap(), []);
    assert!(durable.forget(&[it.id]), "it is gone");
    // One that comes anew is not taken for the one that was to go.
    let it = holder(&durable, Dialect::V41, 2);
    store.fail_nth(1, holdfast_store::suite::Fault::Fail);
    assert!(!durable.forget(&[it.id]));
    holder(&durable, Dialect::V41, 3);
    durable.tick(Instant(1));
    assert_eq!(durable.records.clients().unwrap().len(), 1);
}

#[test]
fn what_is_owed_goes_along_in_a_planned_restart() {
    use holdfast_store::suite::{Fault, Faulty};
    let lives = Lives::new();
    let store = Arc::new(Faulty::new(MemoryStore::new()));
    let boot = Boot::begin(store.as_ref(), LEASE_MS).unwrap();
    let size = holdfast_journal::Config { bytes: 1 << 20, entries_max: 1024 };
    let journal = lives.dir().join("journal");
    let (shared, clock) = (|| -> Arc<dyn Store> { store.clone() }, ManualClock::default());
    let opened = Ledger::open(&journal, &size, &[]).unwrap();
    let durable = Durable::with(shared(), opened, (&boot, LEASE_MS), &clock).unwrap().0;
    let held = |id: u8| {
        let client = ClientImage { name: OwnerName::new(&[id]), ..client(Dialect::V41, u64::from(id)) };
        durable.persist(&client).unwrap();
        durable.reclaim_done(client.id);
        durable.will_hold(&client).unwrap();
        client.id
    };
    let [unmarked, doubted, gone, left] = [1, 2, 3, 4].map(held);
    assert!(durable.note_losses(unmarked, true));
    store.fail_nth(1, Fault::Fail);
    assert!(!durable.note_losses(unmarked, false), "it has acknowledged what it lost");
    store.fail_nth(1, Fault::ApplyThenFail);
    assert!(!durable.note_losses(doubted, true), "it may be marked");
    store.fail_nth(1, Fault::Fail);
    assert!(!durable.forget(&[gone]));
    durable.left(left);
    store.fail_nth(1, Fault::Fail);
    assert!(!durable.forget(&[left]));

    let image = rmp_serde::to_vec_named(&durable.freeze()).unwrap();
    let mut image: Image = rmp_serde::from_slice(&image).unwrap();
    drop(durable);
    let opened = Ledger::go_on(&journal, &size, Vec::new()).unwrap();
    let clock = (&clock as &dyn Clock, image.take_unstored());
    let durable = Durable::go_on_with(shared(), opened, (&boot, LEASE_MS), clock).unwrap().0;
    let marks = || -> Vec<_> {
        let mut all = durable.records.clients().unwrap();
        all.sort_by_key(|record| record.client_id);
        all.iter().map(|record| (record.client_id, record.lost_state)).collect()
    };
    assert_eq!(marks(), [(unmarked, true), (doubted, true), (gone, false), (left, false)]);
    durable.thaw(image);
    let mut asked = Vec::new();
    for _ in 0..=holdfast_base::limits::RECORD_DOUBT_TICKS {
        durable.tick(Instant(1));
        durable.settle_doubts(|client| {
            durable.note_losses(client, false);
        });
        asked.push(marks());
    }
    assert_eq!(asked[0], [(unmarked, false), (doubted, true)], "tried again at once");
    assert_eq!(asked.last().unwrap(), &[(unmarked, false), (doubted, false)]);
    let met = |id: u8| durable.may_have_met(&[id], Verifier([1; 8]));
    assert!(met(3) && !met(4), "who said that it goes is not missed");
}

#[test]
fn the_mark_of_a_client_of_40_that_turns_out_to_be_done_goes_from_the_store() {
    use holdfast_store::suite::{Fault, Faulty};
    let lives = Lives::new();
    let store = Arc::new(Faulty::new(MemoryStore::new()));
    let next = || {
        let boot = Boot::begin(store.as_ref(), LEASE_MS).unwrap();
        let size = holdfast_journal::Config { bytes: 1 << 20, entries_max: 1024 };
        let opened = Ledger::open(&lives.dir().join("journal"), &size, &[]).unwrap();
        Durable::with(store.clone(), opened, (&boot, LEASE_MS), &ManualClock::default()).unwrap().0
    };
    let it = holder(&next(), Dialect::V40, 1);
    let durable = next();
    assert_eq!(claims(&durable, Dialect::V40, 1), Recorded::Yes);
    durable.tick(Instant(LEASE_MS / 2));
    durable.tick(Instant(LEASE_MS + 1));
    assert!(durable.is_grace_over());
    let mark = || {
        let record = Records::new(store.clone()).clients().unwrap().remove(0);
        (record.client_id, record.holds_state, record.missed_grace)
    };
    assert_eq!(mark(), (it.id, true, true), "it may be in the middle of reclaiming");
    assert!(!durable.may_hold(it.id));
    assert_eq!(durable.recorded(&it), Recorded::No);
    durable.will_hold(&it).unwrap();
    assert_eq!(mark(), (it.id, true, true), "that was a reclaim");
    store.fail_nth(1, Fault::Fail);
    // It is heard of all the time from now on; in the first round what is to be stored cannot be.
    for (round, is_marked) in [(1, true), (2, false)] {
        for second in 0..LEASE_MS / 2000 {
            let now = Instant(round * 10 * LEASE_MS + second * 1000);
            durable.unmark_done(now, |_| Some(now));
        }
        assert_eq!(mark(), (it.id, true, is_marked), "round {round}");
    }
    assert!(durable.may_hold(it.id));
    drop(durable);
    assert_eq!(claims(&next(), Dialect::V40, 1), Recorded::Yes);
}
