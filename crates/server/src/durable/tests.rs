#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use holdfast_base::{ManualClock, Seqid};
use holdfast_nfs4::ClientRecords;
use holdfast_state::{ClientImage, Dialect, OwnerName, Principal, Recorded, Verifier};
use holdfast_store::MemoryStore;

use super::*;

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
        let store: Arc<dyn Store> = self.store.clone();
        let boot = Boot::begin(store.as_ref(), LEASE_MS).unwrap();
        let size = holdfast_journal::Config { bytes: 1 << 20, entries_max: 1024 };
        let opened = Ledger::open(&self.dir().join("journal"), &size, &[]).unwrap();
        Durable::with(store, opened, (&boot, LEASE_MS), &ManualClock::default()).unwrap().0
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
fn who_lost_state_while_it_lived_reclaims_nothing_until_it_agrees_with_the_server_again() {
    for dialect in [Dialect::V41, Dialect::V40] {
        let lives = Lives::new();
        let first = lives.next();
        let it = holder(&first, dialect, 1);
        drop(first);
        let second = lives.next();
        assert_eq!(claims(&second, dialect, 2), Recorded::Yes);
        second.note_losses(ClientId(2), &|| true);
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
    first.note_losses(ClientId(1), &|| true);
    // Told in the wrong order, what is so counts.
    first.note_losses(ClientId(1), &|| false);
    first.note_losses(ClientId(1), &|| false);
    first.note_losses(ClientId(7), &|| true);
    drop(first);
    assert_eq!(claims(&lives.next(), Dialect::V41, 2), Recorded::Yes);
}
