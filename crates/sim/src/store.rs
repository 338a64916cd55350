//! The store of client records: durable at once, and sometimes it fails.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_store::{Batch, Fence, Flow, MemoryStore, Result, Store, StoreError, Watch};

/// Pairs of a store at one moment.
pub type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Default)]
struct Faults {
    /// Transactions that fail, having changed nothing or (apply, then fail) everything.
    next: Vec<bool>,
}

/// A store that outlives servers.
#[derive(Clone, Default)]
pub struct SimStore {
    inner: Arc<Mutex<Arc<MemoryStore>>>,
    faults: Arc<Mutex<Faults>>,
    /// Set when the process that has this handle is dead.
    is_cut_off: Arc<AtomicBool>,
}

impl SimStore {
    /// A handle for one process.
    #[must_use]
    pub fn handle(&self) -> Self {
        Self { is_cut_off: Arc::default(), ..self.clone() }
    }

    /// The process is dead: what is still done in its name changes nothing.
    pub fn cut_off(&self) {
        self.is_cut_off.store(true, Ordering::Relaxed);
    }

    fn inner(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next transaction fails; `applies` says whether it is carried out all the same.
    pub fn fail_next(&self, applies: bool) {
        self.faults().next.push(applies);
    }

    /// Nothing fails any more: a server that starts needs its records.
    pub fn heal(&self) {
        self.faults().next.clear();
    }

    /// What it holds.
    #[must_use]
    pub fn pairs(&self) -> Pairs {
        let mut pairs = Pairs::new();
        // A memory store does not fail.
        let _ = self.inner().scan(b"", &mut |key, value| {
            pairs.insert(key.to_vec(), value.to_vec());
            Flow::Continue
        });
        pairs
    }

    /// Goes back to what it held: what a process killed then left.
    pub fn restore(&self, pairs: &Pairs) {
        let fresh = MemoryStore::new();
        for (key, value) in pairs {
            // A memory store does not fail.
            let _ = fresh.put(key, value);
        }
        *self.inner.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(fresh);
        self.faults().next.clear();
    }
}

impl Store for SimStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner().get(key)
    }

    fn scan(&self, prefix: &[u8], take: &mut dyn FnMut(&[u8], &[u8]) -> Flow) -> Result<()> {
        self.inner().scan(prefix, take)
    }

    fn transaction(&self, batch: &Batch) -> Result<()> {
        if self.is_cut_off.load(Ordering::Relaxed) {
            return Err(StoreError::Io("the process is dead".into()));
        }
        let fault = self.faults().next.pop();
        match fault {
            None => self.inner().transaction(batch),
            Some(applies) => {
                if applies {
                    self.inner().transaction(batch)?;
                }
                Err(StoreError::Io("simulated".into()))
            }
        }
    }

    fn watch(&self, prefix: &[u8]) -> Result<Watch> {
        self.inner().watch(prefix)
    }

    fn fence(&self, name: &[u8]) -> Result<Fence> {
        if self.is_cut_off.load(Ordering::Relaxed) {
            return Err(StoreError::Io("the process is dead".into()));
        }
        self.inner().fence(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_that_fails_may_have_been_carried_out() {
        let store = SimStore::default();
        store.fail_next(false);
        assert!(store.put(b"a", b"1").is_err());
        assert_eq!(store.get(b"a"), Ok(None));
        store.fail_next(true);
        assert!(store.put(b"a", b"1").is_err());
        assert_eq!(store.get(b"a"), Ok(Some(b"1".to_vec())));
    }

    #[test]
    fn it_goes_back_to_what_it_held() {
        let store = SimStore::default();
        store.put(b"a", b"1").unwrap();
        let then = store.pairs();
        store.put(b"b", b"2").unwrap();
        store.restore(&then);
        assert_eq!((store.get(b"a").unwrap(), store.get(b"b").unwrap()), (Some(b"1".to_vec()), None));
    }
}
