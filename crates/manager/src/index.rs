//! What is promised on which file, to be asked before every single operation: an atomic counter a file (shared with
//! some others), and behind it, only where something is promised, the exact list.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::limits::{PROMISE_COUNTERS, PROMISE_PARTS};
use holdfast_base::{ClientId, FileKey};
use holdfast_state::{Deed, DelegationKind, DelegationToken};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// A counter's word: changes in flight below, promises above.
const PROMISE: u64 = 1 << 32;

/// Somebody else relies on that this is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// With what.
    pub file: FileKey,
    /// What was about to be done.
    pub deed: Deed,
}

/// What came of a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Promised {
    /// It is in force.
    New,
    /// It is in force, in place of a lesser one of the same token.
    Widened,
    /// It is not.
    Refused,
}

/// One promise.
#[derive(Clone, Copy, Debug)]
struct Promise {
    token: DelegationToken,
    kind: DelegationKind,
    holder: ClientId,
}

type Part = FxHashMap<FileKey, Vec<Promise>>;

/// All promises in force, and how many changes are in flight. The engine decides what is promised; this only has it at
/// hand without the engine's lock.
pub struct PromiseIndex {
    counters: Box<[AtomicU64]>,
    parts: Box<[Mutex<Part>]>,
    /// Everything that was asked, for tests.
    #[cfg(test)]
    pub(crate) asked: Mutex<Vec<(FileKey, Deed)>>,
}

/// A change in flight. While it lives nothing that excludes it is promised.
#[must_use]
#[derive(Debug)]
pub struct Entered<'i> {
    counter: &'i AtomicU64,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.counter.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Default for PromiseIndex {
    fn default() -> Self {
        let counters = (0..PROMISE_COUNTERS).map(|_| AtomicU64::new(0)).collect();
        let parts = (0..PROMISE_PARTS).map(|_| Mutex::default()).collect();
        Self {
            counters,
            parts,
            #[cfg(test)]
            asked: Mutex::default(),
        }
    }
}

impl PromiseIndex {
    /// Begins a change, unless it is promised to somebody else that nobody makes it.
    ///
    /// # Errors
    /// [`Conflict`].
    pub fn enter(&self, file: FileKey, deed: Deed, by: Option<ClientId>) -> Result<Entered<'_>, Conflict> {
        #[cfg(test)]
        self.asked.lock().push((file, deed));
        let counter = self.counter(file);
        let before = counter.fetch_add(1, Ordering::SeqCst);
        let entered = Entered { counter };
        if before >= PROMISE {
            self.ask(file, deed, by)?;
        }
        Ok(entered)
    }

    /// Whether nothing promised to somebody else stands against this, which changes nothing: if it has begun before a
    /// promise is given, it may as well have ended before.
    ///
    /// # Errors
    /// [`Conflict`].
    pub fn look(&self, file: FileKey, deed: Deed, by: Option<ClientId>) -> Result<(), Conflict> {
        #[cfg(test)]
        self.asked.lock().push((file, deed));
        if self.counter(file).load(Ordering::SeqCst) < PROMISE {
            return Ok(());
        }
        self.ask(file, deed, by)
    }

    /// Puts a promise into force, or widens one of the same token. Refused when a change of that file, or of one that
    /// shares its counter, is in flight.
    pub fn promise(
        &self,
        file: FileKey,
        kind: DelegationKind,
        holder: ClientId,
        token: DelegationToken,
    ) -> Promised {
        // Held until the list is written: whoever finds the counter raised waits here to see it.
        let mut part = self.part(file).lock();
        let counter = self.counter(file);
        let before = counter.fetch_add(PROMISE, Ordering::SeqCst);
        if !before.is_multiple_of(PROMISE) {
            counter.fetch_sub(PROMISE, Ordering::SeqCst);
            return Promised::Refused;
        }
        let promises = part.entry(file).or_default();
        if let Some(had) = promises.iter_mut().find(|promise| promise.token == token) {
            had.kind = kind;
            counter.fetch_sub(PROMISE, Ordering::SeqCst);
            return Promised::Widened;
        }
        promises.push(Promise { token, kind, holder });
        Promised::New
    }

    /// Makes a promise less than it was.
    pub fn narrow(&self, file: FileKey, token: DelegationToken, kind: DelegationKind) {
        let mut part = self.part(file).lock();
        let promise =
            part.get_mut(&file).and_then(|all| all.iter_mut().find(|promise| promise.token == token));
        if let Some(promise) = promise {
            promise.kind = kind;
        }
    }

    /// Takes a promise out of force. Returns whether it was in force.
    pub fn release(&self, file: FileKey, token: DelegationToken) -> bool {
        let mut part = self.part(file).lock();
        let Some(promises) = part.get_mut(&file) else { return false };
        let Some(at) = promises.iter().position(|promise| promise.token == token) else { return false };
        promises.swap_remove(at);
        if promises.is_empty() {
            part.remove(&file);
        }
        self.counter(file).fetch_sub(PROMISE, Ordering::SeqCst);
        true
    }

    /// Promises in force. For tests and status pages: it looks at every part.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lock().values().map(Vec::len).sum::<usize>()).sum()
    }

    /// Whether nothing is promised; as [`PromiseIndex::len`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn ask(&self, file: FileKey, deed: Deed, by: Option<ClientId>) -> Result<(), Conflict> {
        let part = self.part(file).lock();
        let Some(promises) = part.get(&file) else { return Ok(()) };
        let stands_against = |promise: &Promise| by != Some(promise.holder) && deed.conflicts(promise.kind);
        if promises.iter().any(stands_against) { Err(Conflict { file, deed }) } else { Ok(()) }
    }

    fn counter(&self, file: FileKey) -> &AtomicU64 {
        // Keys are hashes already. Other bits than those that choose the part.
        &self.counters[(file.0 as usize) % PROMISE_COUNTERS]
    }

    fn part(&self, file: FileKey) -> &Mutex<Part> {
        &self.parts[((file.0 >> 64) as usize) % PROMISE_PARTS]
    }
}

impl fmt::Debug for PromiseIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromiseIndex").field("promises", &self.len()).finish_non_exhaustive()
    }
}
