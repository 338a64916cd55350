//! What outlives the server, wired to those who need it: client and session records in the store, the grace period
//! that follows from them, and the ledger of requests.
//!
//! Nothing here decides: `recovery` does, and `docs/design/exactly-once.md` says how the parts meet.

mod clients;
mod grace;
mod handover;
mod known;
mod lost;
mod scribe;
mod sessions;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};

use anyhow::{Context, Result};
use bytes::Bytes;
pub use handover::Image;
use holdfast_base::limits::{RECLAIM_PAUSE_MS, RECLAIM_PAUSE_OF_LEASE};
use holdfast_base::{ClientId, Clock, Instant, SessionId};
use holdfast_export::Export;
use holdfast_ledger::{Ledger, Remembered};
use holdfast_nfs4::Nfs4;
use holdfast_nlm::Lockd;
use holdfast_recovery::{Boot, ClientRecord, Grace, GraceEffect, RecordChange, Records, SessionRecord};
use holdfast_rpc::reply_cache::Key;
use holdfast_state::Snapshot;
use holdfast_store::Store;
use holdfast_xdr::{Decode, Reader};
use known::{Clients, Known};
use lost::Lost;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use scribe::Scribe;

/// What changes while serving.
struct Inner {
    grace: Grace,
    clients: Clients,
    /// Those that said that they go, until they are off the record.
    left: FxHashSet<ClientId>,
    lost: Lost,
    /// Persistent sessions, and how many slots each has.
    /// A client's lie next to each other.
    sessions: BTreeMap<SessionId, SessionRecord>,
    /// Those that are being stored.
    coming: FxHashSet<SessionId>,
    /// What could not be stored at grace's end, and is tried again.
    unstored: Vec<RecordChange>,
    /// The same of clients that go, or lost something.
    owed: clients::Owed,
    /// What follows for grace from clients that are gone, and was not run yet.
    due: Vec<GraceEffect>,
}

/// Records, grace and ledger of one server.
pub struct Durable {
    records: Records,
    ledger: Arc<Ledger>,
    /// Never held while the state engine is asked something: that may be held by who waits for this.
    inner: Mutex<Inner>,
    /// Held from reading a record to having stored its successor: changes of one record keep their order. Towards the state
    /// engine as `inner`.
    turn: Mutex<()>,
    /// Who writes for those who must not wait for a disk that hangs. Without it, as in simulation, everybody waits.
    scribe: OnceLock<Scribe>,
    /// Whom the end of grace is told.
    nfs4: OnceLock<Weak<Nfs4>>,
    lockd: OnceLock<Weak<Lockd>>,
    started_at: Instant,
    /// How long a client of 4.0 may pause between two reclaims.
    reclaim_pause_ms: u64,
}

/// What a former life left, to be taken in before the first request.
pub struct Former {
    /// Clients and their sessions.
    pub snapshot: Snapshot,
    /// Calls that were answered, for the cache of replies.
    pub replies: Vec<(Key, Bytes)>,
    /// Operations of caps clients' batches.
    pub batches: Vec<Remembered>,
}

impl Durable {
    /// Opens the ledger, settles what a crash cut short, and starts the grace period. Waits for disks.
    ///
    /// # Errors
    /// What cannot be opened or read, and the way out.
    pub(crate) fn open(
        store: Arc<dyn Store>,
        state_dir: &Path,
        exports: &[Arc<Export>],
        (boot, lease_ms): (&Boot, u64),
        clock: &dyn Clock,
    ) -> Result<(Arc<Self>, Former)> {
        let path = state_dir.join("replies.journal");
        let opened = Ledger::open(&path, &holdfast_journal::Config::default(), exports)?;
        let opened = Self::with(store, opened, (boot, lease_ms), clock)?;
        opened.0.write_apart()?;
        Ok(opened)
    }

    /// Opens the ledger of a process that handed everything over: nothing is settled, and there is no grace.
    ///
    /// # Errors
    /// What cannot be opened or read, and the way out.
    pub fn go_on(
        store: Arc<dyn Store>,
        state_dir: &Path,
        (boot, lease_ms): (&Boot, u64),
        (clock, image): (&dyn Clock, &mut Image),
    ) -> Result<(Arc<Self>, Former)> {
        let path = state_dir.join("replies.journal");
        let (cut_short, unstored) = (image.take_cut_short(), image.take_unstored());
        let opened = Ledger::go_on(&path, &holdfast_journal::Config::default(), cut_short)?;
        let opened = Self::go_on_with(store, opened, (boot, lease_ms), (clock, unstored))?;
        opened.0.write_apart()?;
        Ok(opened)
    }

    /// As [`Durable::go_on`], over a ledger that is open: for simulation.
    ///
    /// # Errors
    /// Records that cannot be read.
    pub fn go_on_with(
        store: Arc<dyn Store>,
        opened: (Arc<Ledger>, Vec<Remembered>),
        (boot, lease_ms): (&Boot, u64),
        (clock, unstored): (&dyn Clock, Vec<ClientRecord>),
    ) -> Result<(Arc<Self>, Former)> {
        let known = |stored: Vec<ClientRecord>| {
            let stored = stored.into_iter().map(|record| Known { record, is_stored: true });
            // After the stored ones, in whose place they are known.
            stored.chain(unstored.into_iter().map(|record| Known { record, is_stored: false })).collect()
        };
        let (durable, former) = Self::made_of(store, opened, (boot, lease_ms), (clock, known))?;
        durable.inner.lock().no_grace();
        Ok((durable, former))
    }

    /// As [`Durable::open`], over a ledger that is open: for simulation.
    ///
    /// # Errors
    /// Records that cannot be read.
    pub fn with(
        store: Arc<dyn Store>,
        opened: (Arc<Ledger>, Vec<Remembered>),
        base: (&Boot, u64),
        clock: &dyn Clock,
    ) -> Result<(Arc<Self>, Former)> {
        let known = |stored: Vec<ClientRecord>| stored.into_iter().map(of_former_life).collect();
        Self::made_of(store, opened, base, (clock, known))
    }

    fn made_of(
        store: Arc<dyn Store>,
        (ledger, remembered): (Arc<Ledger>, Vec<Remembered>),
        (boot, lease_ms): (&Boot, u64),
        (clock, known): (&dyn Clock, impl FnOnce(Vec<ClientRecord>) -> Clients),
    ) -> Result<(Arc<Self>, Former)> {
        let has_nlm_holders =
            holdfast_nlm::has_holders(store.as_ref()).context("records of hosts with locks")?;
        let records = Records::new(store);
        let clients = records.clients().context("client records")?;
        let now = clock.now();
        let grace = Grace::start(now, lease_ms.max(boot.previous_lease_ms), &clients, has_nlm_holders);
        let clients = known(clients);
        let sessions = sessions::with_their_clients(&records, &ledger, (&clients, &remembered))?;
        let former = Former {
            snapshot: sessions::snapshot(&clients, &sessions, &remembered),
            replies: remembered.iter().filter_map(finished_call).collect(),
            batches: remembered.iter().filter(|r| matches!(r, Remembered::Batch { .. })).cloned().collect(),
        };
        let inner = Inner {
            grace,
            clients,
            left: FxHashSet::default(),
            lost: records.lost().context("records of lost clients")?.into_iter().collect(),
            sessions: sessions.into_iter().map(|session| (session.id, session)).collect(),
            coming: FxHashSet::default(),
            unstored: Vec::new(),
            owed: clients::Owed::default(),
            due: Vec::new(),
        };
        let durable = Self {
            records,
            ledger,
            inner: Mutex::new(inner),
            turn: Mutex::new(()),
            scribe: OnceLock::new(),
            nfs4: OnceLock::new(),
            lockd: OnceLock::new(),
            started_at: now,
            reclaim_pause_ms: RECLAIM_PAUSE_MS.min(lease_ms / RECLAIM_PAUSE_OF_LEASE),
        };
        Ok((Arc::new(durable), former))
    }

    /// Has records written by a thread of their own from now on.
    fn write_apart(self: &Arc<Self>) -> Result<()> {
        let scribe = Scribe::start(Arc::downgrade(self)).context("cannot start threads")?;
        // Set once, at the start.
        let _ = self.scribe.set(scribe);
        Ok(())
    }

    /// Whether every record that somebody wanted is written.
    pub(crate) fn is_all_written(&self) -> bool {
        self.scribe.get().is_none_or(Scribe::is_idle)
    }

    /// The ledger of requests.
    pub const fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Names the service that is to hear of the end of grace.
    pub fn serves(&self, nfs4: &Arc<Nfs4>) {
        // Set once, at the start; a second time would be no other service.
        let _ = self.nfs4.set(Arc::downgrade(nfs4));
    }

    /// Names the lock manager that is to hear of it first.
    pub fn serves_locks(&self, lockd: &Arc<Lockd>) {
        // Set once, at the start.
        let _ = self.lockd.set(Arc::downgrade(lockd));
    }
}

/// A client's record after a crash. What was revoked in a life that is over stands against its client like a grace that
/// it missed, until the two agree again; `lost_state` is of this life alone, and ends when the client acknowledges it.
fn of_former_life(record: ClientRecord) -> Known {
    let missed_grace = record.missed_grace || record.lost_state;
    let record = ClientRecord { lost_state: false, missed_grace, ..record };
    Known { record, is_stored: true }
}

/// A call for the cache of replies, if that is what is remembered.
fn finished_call(remembered: &Remembered) -> Option<(Key, Bytes)> {
    let Remembered::Call { key, results } = remembered else { return None };
    let key = Key::decode(&mut Reader::new(key)).ok()?;
    Some((key, Bytes::copy_from_slice(results)))
}

#[cfg(test)]
mod tests;
