//! The journal with what a start found in it: requests that were cut short, and what became of them.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use holdfast_base::{SessionId, SlotId, Timestamp};
use holdfast_export::{Export, Force};
use holdfast_journal::{BootId, Certainty, Config, EntryId, Journal, OpenError, Recovered};
use holdfast_recovery::intent::Step;
use holdfast_recovery::keys::slot_key;
use holdfast_recovery::{Intent, Settled};
use holdfast_vfs::{Backend, Node};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::alive::Alive;
use crate::names::Names;
use crate::settling::Settling;
use crate::{intent, look};

/// A request that a crash cut short.
pub(crate) struct Past {
    pub(crate) entry: EntryId,
    pub(crate) seqid: u32,
    pub(crate) call_hash: u64,
    pub(crate) operation: u32,
    payload: Vec<u8>,
    settled: Settled,
    made: Option<Node>,
}

impl Past {
    pub(crate) fn of(entry: EntryId, payload: &[u8], step: &Step<'_>, settled: Settled) -> Self {
        Self {
            entry,
            seqid: step.seqid,
            call_hash: step.call_hash,
            operation: step.operation,
            payload: payload.to_vec(),
            settled,
            made: None,
        }
    }

    /// With what it made, as it was found.
    pub(crate) fn having_made(mut self, made: Option<Node>) -> Self {
        self.made = made;
        self
    }

    /// What it made, as it was found at the start, where that is known.
    pub(crate) const fn made(&self) -> Option<&Node> {
        self.made.as_ref()
    }

    /// What became of it; asked again as long as the file system could not tell.
    pub(crate) fn settled(&self, backend: &dyn Backend) -> Settled {
        match (self.settled, intent::read(&self.payload)) {
            (Settled::CannotTell, Ok((_, step))) => look::settle_now(backend, &step.intent),
            (settled, _) => settled,
        }
    }
}

impl Past {
    /// The name of what was to be made.
    pub(crate) fn made_name(&self) -> Option<Vec<u8>> {
        match intent::read(&self.payload).ok()?.1.intent {
            // The latter where the file was made before, to be this one.
            Intent::Make { at, .. } | Intent::Link { at, .. } => Some(at.name.to_vec()),
            _ => None,
        }
    }
}

/// What a restarted server knows of a request of its former life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// The last mutation on a session's slot. Without a reply it was cut short: the request is expected again under
    /// the same number.
    Slot {
        /// The session.
        session: SessionId,
        /// Its slot.
        slot: SlotId,
        /// The slot's number.
        seqid: u32,
        /// Tells the request from another under that number.
        call_hash: u64,
        /// Its reply.
        reply: Option<Vec<u8>>,
    },
    /// An operation of a batch. Without an outcome it was cut short, or may have been.
    Batch {
        /// The client's incarnation.
        incarnation: [u8; 16],
        /// The transaction.
        txn: u64,
        /// The operation's place in it.
        op: u32,
        /// As given to [`crate::Undertaking::finish`].
        outcome: Option<Vec<u8>>,
        /// The same, of what has not outlived the machine, or perhaps not.
        doubtful: Option<Vec<u8>>,
        /// What is left of its record, for [`crate::Undertaking::remembered`].
        record: BatchRecord,
    },
    /// A finished call that a cache of replies knew by this key.
    Call {
        /// As given to [`crate::Undertaking::of_call`].
        key: Vec<u8>,
        /// Its results.
        results: Vec<u8>,
    },
}

/// The record of an operation of a batch, as a restart found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRecord {
    pub(crate) entry: EntryId,
    survived: bool,
}

impl BatchRecord {
    pub(crate) fn of(entry: &Recovered) -> Self {
        Self { entry: entry.id, survived: Self::outlived(entry.certainty) }
    }

    fn outlived(certainty: Certainty) -> bool {
        certainty != Certainty::MachineDied
    }

    /// Whether nothing was lost of what the server had done until then, though no record tells of it: only the process died,
    /// or all was on the disk.
    #[must_use]
    pub const fn survived(self) -> bool {
        self.survived
    }
}

/// The clock that stamps files.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The machine's calendar; 1970 where it says less.
#[must_use]
pub fn system_now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}

/// The record of one server's requests.
pub struct Ledger {
    journal: Journal,
    now: Now,
    /// By the journal's keys. Empty soon after a start, and then never looked into.
    pasts: Mutex<FxHashMap<Vec<u8>, Arc<Past>>>,
    names: Names,
    alive: Alive,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger").field("usage", &self.journal.usage()).finish_non_exhaustive()
    }
}

impl Ledger {
    /// Opens the journal at `path`, or makes it, and settles what it holds against the exports' file systems: what
    /// was executed is made durable, what was cut short is looked at. Before the first request is served: a request
    /// could change what is looked at. Waits for disks.
    ///
    /// # Errors
    /// Those of [`Journal::open`].
    pub fn open(
        path: &Path,
        config: &Config,
        exports: &[Arc<Export>],
    ) -> Result<(Arc<Self>, Vec<Remembered>), OpenError> {
        Self::open_on_boot(path, config, exports, BootId::current())
    }

    /// As [`Ledger::open`], saying which boot of the machine this is: for simulation and tests.
    ///
    /// # Errors
    /// Those of [`Journal::open`].
    pub fn open_on_boot(
        path: &Path,
        config: &Config,
        exports: &[Arc<Export>],
        boot: BootId,
    ) -> Result<(Arc<Self>, Vec<Remembered>), OpenError> {
        Self::open_on_machine(path, config, exports, (boot, Arc::new(system_now)))
    }

    /// As [`Ledger::open_on_boot`], with the clock that stamps files: for simulation.
    ///
    /// # Errors
    /// Those of [`Journal::open`].
    pub fn open_on_machine(
        path: &Path,
        config: &Config,
        exports: &[Arc<Export>],
        (boot, now): (BootId, Now),
    ) -> Result<(Arc<Self>, Vec<Remembered>), OpenError> {
        let (journal, recovered) = Journal::open_on_boot(path, config, boot)?;
        // Behind the journal's lock: no other process is at it.
        let alive = Alive::open(path, boot);
        let Settling { pasts, remembered, .. } = Settling::of(&journal, exports, recovered);
        let pasts = Mutex::new(pasts);
        Ok((Arc::new(Self { journal, now, pasts, names: Names::new(), alive }), remembered))
    }

    /// Opens the journal of a process that handed everything over: it cut nothing short, so there is nothing to settle, and what
    /// it answered is known otherwise, but for batches, which are given. What it had not made durable yet stays as it is. `told`
    /// is what [`Ledger::cut_short`] of that process told.
    ///
    /// # Errors
    /// Those of [`Journal::open`].
    pub fn go_on(
        path: &Path,
        config: &Config,
        told: Vec<(Vec<u8>, Settled)>,
    ) -> Result<(Arc<Self>, Vec<Remembered>), OpenError> {
        Self::go_on_with(path, config, (BootId::current(), Arc::new(system_now)), told)
    }

    /// As [`Ledger::go_on`], saying which boot of the machine this is, with the clock that stamps files: for simulation.
    ///
    /// # Errors
    /// Those of [`Journal::open`].
    pub fn go_on_with(
        path: &Path,
        config: &Config,
        (boot, now): (BootId, Now),
        told: Vec<(Vec<u8>, Settled)>,
    ) -> Result<(Arc<Self>, Vec<Remembered>), OpenError> {
        let (journal, recovered) = Journal::open_on_boot(path, config, boot)?;
        let alive = Alive::open(path, boot);
        let told: FxHashMap<_, _> = told.into_iter().collect();
        let (mut pasts, mut batches) = (FxHashMap::default(), Vec::new());
        for entry in recovered {
            let settled = told.get(&entry.key).copied();
            if let Some(settled) = settled
                && let Ok((_, step)) = intent::read(&entry.intent)
            {
                let past = Past::of(entry.id, &entry.intent, &step, settled);
                pasts.insert(entry.key.clone(), Arc::new(past));
            }
            if let Some((incarnation, txn, op)) = intent::parse_batch_key(&entry.key) {
                // An outcome of what did not outlive a crash is none; and what a crash left is looked at.
                let (outcome, doubtful, survived) = if settled.is_some() {
                    (None, entry.reply, false)
                } else {
                    (entry.reply, None, BatchRecord::outlived(entry.certainty))
                };
                let record = BatchRecord { entry: entry.id, survived };
                batches.push(Remembered::Batch { incarnation, txn, op, outcome, doubtful, record });
            }
        }
        let pasts = Mutex::new(pasts);
        Ok((Arc::new(Self { journal, now, pasts, names: Names::new(), alive }), batches))
    }

    /// What became of requests that a crash cut short and that have not come again, by the journal's keys: it was looked at before
    /// others could change it, so another process that goes on has to be told.
    #[must_use]
    pub fn cut_short(&self) -> Vec<(Vec<u8>, Settled)> {
        self.pasts.lock().iter().map(|(key, past)| (key.clone(), past.settled)).collect()
    }

    /// The server lives, and may change something in the next moment: its next life is to know that, should this one be cut short.
    /// Cheap, and now and then a write of a few bytes into the state directory.
    pub fn lives(&self) {
        self.alive.note(self.now());
    }

    /// Whether what was changed then was changed when the life before this one was over: by somebody else, that is. False where it
    /// is not known when that was, as after a loss of power.
    #[must_use]
    pub fn was_dead_at(&self, changed: Timestamp) -> bool {
        self.alive.was_dead_at(changed)
    }

    /// Now, by the clock that stamps files.
    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Forgets the entries of a session that is gone; `slots` is how many it had.
    pub fn forget_session(&self, session: SessionId, slots: u32) {
        (0..slots).for_each(|slot| self.forget_slot(session, SlotId(slot)));
    }

    /// Forgets the entry of one slot.
    pub fn forget_slot(&self, session: SessionId, slot: SlotId) {
        let key = slot_key(session, slot);
        self.journal.forget_key(&key);
        self.drop_past(&key);
    }

    /// Forgets operations of a batch, the first so many.
    pub fn forget_batch(&self, incarnation: &[u8; 16], txn: u64, ops: u32) {
        (0..ops).for_each(|op| self.forget_batch_op(incarnation, txn, op));
    }

    /// Forgets one operation of a batch.
    pub fn forget_batch_op(&self, incarnation: &[u8; 16], txn: u64, op: u32) {
        let key = intent::batch_key(incarnation, txn, op);
        self.journal.forget_key(&key);
        self.drop_past(&key);
    }

    /// Gives up on calls that a crash cut short and that nobody sent again. Slots keep theirs until their session goes.
    pub fn give_up_calls(&self) {
        self.pasts.lock().retain(|key, past| {
            let is_call = key.first() == Some(&intent::CALL);
            if is_call {
                self.journal.forget(past.entry);
            }
            !is_call
        });
    }

    /// The journal beneath: what it holds, for status pages.
    #[must_use]
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    pub(crate) const fn names(&self) -> &Names {
        &self.names
    }

    pub(crate) fn past(&self, key: &[u8]) -> Option<Arc<Past>> {
        let pasts = self.pasts.lock();
        if pasts.is_empty() { None } else { pasts.get(key).cloned() }
    }

    pub(crate) fn drop_past(&self, key: &[u8]) {
        let mut pasts = self.pasts.lock();
        if !pasts.is_empty() {
            pasts.remove(key);
        }
    }
}

impl Force for Ledger {
    fn force(&self) -> io::Result<()> {
        self.journal.force()
    }

    fn force_by(
        &self,
        by: &mut dyn FnMut(BorrowedFd<'_>) -> Option<io::Result<()>>,
    ) -> Option<io::Result<()>> {
        self.journal.force_by(by)
    }
}
