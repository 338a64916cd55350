//! The disk of records hangs: who holds the engine waits for a moment, the first who needs a record to the end, nobody else.

use std::cell::RefCell;
use std::thread;
use std::time::{Duration, Instant as Moment};

use holdfast_base::limits::{RECORD_DOUBT_TICKS, RECORD_WAIT_HELD_MS, RECORD_WAIT_MS};
use holdfast_nfs4::SessionRecords;
use holdfast_store::suite::Hanging;

use super::*;

/// More than a moment, on a busy machine, and less than who waits for a record does.
const MOMENT: Duration = Duration::from_millis(RECORD_WAIT_MS - RECORD_WAIT_HELD_MS);

struct Case {
    store: Arc<Hanging<MemoryStore>>,
    durable: Arc<Durable>,
    _dir: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(Hanging::new(MemoryStore::new()));
        let boot = Boot::begin(store.as_ref(), LEASE_MS).unwrap();
        let size = holdfast_journal::Config { bytes: 1 << 20, entries_max: 1024 };
        let opened = Ledger::open(&dir.path().join("journal"), &size, &[]).unwrap();
        let shared: Arc<dyn Store> = store.clone();
        let durable = Durable::with(shared, opened, (&boot, LEASE_MS), &ManualClock::default()).unwrap().0;
        durable.write_apart().unwrap();
        Self { store, durable, _dir: dir }
    }

    fn holder(&self, id: u64) -> ClientImage {
        let client = named(id);
        self.durable.persist(&client).unwrap();
        self.durable.reclaim_done(client.id);
        self.durable.will_hold(&client).unwrap();
        client
    }

    /// Has the store go on, and waits for all that was to be written.
    fn goes_on(&self) {
        self.store.go_on();
        while !self.durable.is_all_written() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn record(&self, of: &ClientImage) -> Option<ClientRecord> {
        self.durable.records.clients().unwrap().into_iter().find(|record| record.client_id == of.id)
    }
}

/// Clients of different names.
fn named(id: u64) -> ClientImage {
    ClientImage { name: OwnerName::new(&id.to_be_bytes()), ..client(Dialect::V41, id) }
}

/// What it says, within a moment.
fn soon<R>(act: impl FnOnce() -> R) -> R {
    let began = Moment::now();
    let result = act();
    assert!(began.elapsed() < MOMENT, "{:?}", began.elapsed());
    result
}

#[test]
fn who_holds_the_engine_waits_a_moment_and_is_told_when_it_is_done() {
    let case = Case::new();
    let (gone, loser, here) = (case.holder(1), case.holder(2), case.holder(3));
    let durable = &case.durable;
    case.store.hang();
    for _ in 0..20 {
        assert!(!soon(|| durable.forget(&[gone.id])));
        assert!(!soon(|| durable.note_losses(loser.id, true)));
    }
    assert!(soon(|| durable.may_hold(here.id)), "who is on record goes on");
    assert!(soon(|| durable.will_hold(&named(4))).is_err(), "who is not, does not");
    assert!(soon(|| durable.persist(&named(5))).is_err());
    soon(|| durable.reclaim_done(here.id));
    soon(|| durable.sessions_gone(&[SessionId([1; 16])]));
    assert!(!durable.is_all_written());
    case.goes_on();
    assert!(durable.forget(&[gone.id]) && durable.note_losses(loser.id, true));
    assert_eq!(case.record(&gone), None);
    assert!(case.record(&loser).unwrap().lost_state);
    assert!(durable.persist(&named(5)).is_ok());
}

#[test]
fn who_is_turned_away_has_left_nothing_to_be_done() {
    let case = Case::new();
    let it = case.holder(1);
    case.store.hang();
    assert!(!case.durable.forget(&[it.id]));
    // Behind what hangs, and given up before it was begun.
    assert!(case.durable.persist(&named(2)).is_err());
    case.goes_on();
    assert_eq!(case.record(&named(2)), None);
}

#[test]
fn the_first_who_needs_a_record_waits_to_the_end_and_nobody_behind_it_for_long() {
    let case = Case::new();
    case.store.hang();
    thread::scope(|scope| {
        let first = scope.spawn(|| case.durable.persist(&named(1)));
        case.store.await_waiting(1);
        let second = scope.spawn(|| case.durable.persist(&named(2)));
        thread::sleep(Duration::from_millis(RECORD_WAIT_MS));
        assert!(second.join().unwrap().is_err());
        assert!(soon(|| case.durable.persist(&named(3))).is_err());
        assert!(!first.is_finished());
        case.goes_on();
        assert!(first.join().unwrap().is_ok());
    });
    let stored = case.durable.records.clients().unwrap();
    assert_eq!(stored.iter().map(|record| record.client_id).collect::<Vec<_>>(), [ClientId(1)]);
}

#[test]
fn a_reclaim_that_is_done_is_noted_however_late() {
    let case = Case::new();
    let (it, other) = (case.holder(1), case.holder(2));
    assert!(case.durable.note_losses(it.id, true));
    case.durable.inner.lock().clients.get_mut(it.id).unwrap().is_stored = false;
    case.store.hang();
    assert!(!case.durable.forget(&[other.id]));
    soon(|| case.durable.reclaim_done(it.id));
    case.goes_on();
    assert!(case.durable.may_hold(it.id), "it was stored");
}

#[test]
fn a_mark_that_came_too_late_and_is_not_asked_for_again_is_put_right() {
    let case = Case::new();
    let (it, other) = (case.holder(1), case.holder(2));
    let durable = &case.durable;
    case.store.hang();
    assert!(!durable.note_losses(it.id, true));
    assert!(!durable.note_losses(other.id, true));
    case.goes_on();
    assert!(case.record(&it).unwrap().lost_state, "so it was asked for");
    // Of the other it is asked for again, and it loses what it was to lose.
    assert!(durable.note_losses(other.id, true));
    let asked = RefCell::new(Vec::new());
    for _ in 0..=2 * RECORD_DOUBT_TICKS {
        durable.settle_doubts(|client| {
            asked.borrow_mut().push(client);
            assert!(durable.note_losses(client, false));
        });
    }
    assert_eq!(asked.into_inner(), [it.id]);
    assert!(!case.record(&it).unwrap().lost_state && case.record(&other).unwrap().lost_state);
}
