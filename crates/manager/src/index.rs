//! What is promised on which file, to be asked before every single operation: an atomic counter a file (shared with
//! some others), and behind it, only where something is promised, the exact list.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::limits::{CAPS_OBJECTS_MAX, DELEGATIONS_MAX, PROMISE_COUNTERS, PROMISE_PARTS};
use holdfast_base::{CapSet, ClientId, FileKey};
use holdfast_state::{Deed, DelegationKind, DelegationToken};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// A counter's word: changes in flight below, promises above, and above these the promises that reading goes against.
/// There are never so many of any that they run into each other: the bounds on calls and on delegations see to that.
const PROMISE: u64 = 1 << 20;
const EXCLUSIVE: u64 = 1 << 42;
const _: () = assert!(DELEGATIONS_MAX + CAPS_OBJECTS_MAX < 1 << 22);

/// What is promised.
#[derive(Clone, Copy, Debug)]
enum What {
    Delegation(DelegationKind),
    Caps(CapSet),
}

/// Which promise: a delegation, or the one that stands for all that its holder has by capabilities of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Delegation(DelegationToken),
    Caps(ClientId),
}

impl What {
    /// What a promise adds to the word.
    const fn weight(self) -> u64 {
        let excludes_readers = match self {
            Self::Delegation(kind) => {
                Deed::ReadData.conflicts(kind)
                    || Deed::LookAttrs.conflicts(kind)
                    || Deed::OpenRead.conflicts(kind)
            }
            Self::Caps(set) => set.is_exclusive(),
        };
        if excludes_readers { PROMISE + EXCLUSIVE } else { PROMISE }
    }

    const fn stands_against(self, deed: Deed) -> bool {
        match self {
            Self::Delegation(kind) => deed.conflicts(kind),
            Self::Caps(set) => deed.conflicts_with_caps(set),
        }
    }
}

/// From which word on a deed may meet a promise.
const fn bar(deed: Deed) -> u64 {
    match deed {
        // Of a file that many have a read delegation of there is a long list, which reading is not to look at.
        Deed::ReadData
        | Deed::LookAttrs
        | Deed::LookEntries
        | Deed::LookXattrs
        | Deed::LookRights
        | Deed::OpenRead => EXCLUSIVE,
        _ => PROMISE,
    }
}

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
    which: Which,
    what: What,
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
        if before >= bar(deed) {
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
        if self.counter(file).load(Ordering::SeqCst) < bar(deed) {
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
        self.put(file, (Which::Delegation(token), What::Delegation(kind)), holder)
    }

    /// The same of what a client holds by capabilities, all together.
    pub fn promise_caps(&self, file: FileKey, set: CapSet, holder: ClientId) -> Promised {
        self.put(file, (Which::Caps(holder), What::Caps(set)), holder)
    }

    fn put(&self, file: FileKey, (which, what): (Which, What), holder: ClientId) -> Promised {
        // Held until the list is written: whoever finds the counter raised waits here to see it.
        let mut part = self.part(file).lock();
        let counter = self.counter(file);
        let before = counter.fetch_add(what.weight(), Ordering::SeqCst);
        if !before.is_multiple_of(PROMISE) {
            counter.fetch_sub(what.weight(), Ordering::SeqCst);
            return Promised::Refused;
        }
        let promises = part.entry(file).or_default();
        if let Some(had) = promises.iter_mut().find(|promise| promise.which == which) {
            let lesser = std::mem::replace(&mut had.what, what);
            counter.fetch_sub(lesser.weight(), Ordering::SeqCst);
            return Promised::Widened;
        }
        promises.push(Promise { which, what, holder });
        Promised::New
    }

    /// Makes a promise less than it was.
    pub fn narrow(&self, file: FileKey, token: DelegationToken, kind: DelegationKind) {
        self.lessen(file, Which::Delegation(token), What::Delegation(kind));
    }

    /// Leaves a client this of what it holds by capabilities. With nothing left the promise is out of force. Returns
    /// whether it was in force and is not any more.
    pub fn leave_caps(&self, file: FileKey, left: CapSet, holder: ClientId) -> bool {
        if left.is_empty() {
            return self.end(file, Which::Caps(holder)).is_some();
        }
        self.lessen(file, Which::Caps(holder), What::Caps(left));
        false
    }

    fn lessen(&self, file: FileKey, which: Which, what: What) {
        let mut part = self.part(file).lock();
        let promise =
            part.get_mut(&file).and_then(|all| all.iter_mut().find(|promise| promise.which == which));
        if let Some(promise) = promise {
            let had = std::mem::replace(&mut promise.what, what);
            // Never less in between than what is promised.
            self.counter(file).fetch_add(what.weight(), Ordering::SeqCst);
            self.counter(file).fetch_sub(had.weight(), Ordering::SeqCst);
        }
    }

    /// Takes a promise out of force. Returns what it was, when it was in force.
    pub fn release(&self, file: FileKey, token: DelegationToken) -> Option<DelegationKind> {
        match self.end(file, Which::Delegation(token))? {
            What::Delegation(kind) => Some(kind),
            What::Caps(_) => None,
        }
    }

    fn end(&self, file: FileKey, which: Which) -> Option<What> {
        let mut part = self.part(file).lock();
        let promises = part.get_mut(&file)?;
        let at = promises.iter().position(|promise| promise.which == which)?;
        let ended = promises.swap_remove(at);
        if promises.is_empty() {
            part.remove(&file);
        }
        self.counter(file).fetch_sub(ended.what.weight(), Ordering::SeqCst);
        Some(ended.what)
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
        let stands_against =
            |promise: &Promise| by != Some(promise.holder) && promise.what.stands_against(deed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_says_what_is_promised_whatever_it_was_before() {
        let index = PromiseIndex::default();
        let (file, token, holder) = (FileKey(5), DelegationToken(1), ClientId(1));
        let word = || index.counter(file).load(Ordering::SeqCst);
        let promise = |kind| index.promise(file, kind, holder, token);
        assert_eq!(promise(DelegationKind::Read), Promised::New);
        assert_eq!(word(), PROMISE);
        assert!(index.look(file, Deed::ReadData, None).is_ok());
        assert!(index.look(file, Deed::WriteData, None).is_err());
        assert_eq!(promise(DelegationKind::Write), Promised::Widened);
        assert_eq!(word(), PROMISE + EXCLUSIVE);
        assert!(index.look(file, Deed::LookAttrs, None).is_err());
        assert!(index.look(file, Deed::LookAttrs, Some(holder)).is_ok());
        index.narrow(file, token, DelegationKind::Read);
        assert_eq!(word(), PROMISE);
        assert_eq!(promise(DelegationKind::Write), Promised::Widened);
        let change = index.enter(file, Deed::WriteData, Some(holder)).unwrap();
        assert_eq!(
            index.promise(file, DelegationKind::Write, ClientId(2), DelegationToken(2)),
            Promised::Refused
        );
        drop(change);
        assert_eq!(index.release(file, token), Some(DelegationKind::Write));
        assert_eq!(index.release(file, token), None);
        assert_eq!(word(), 0);
    }
}
