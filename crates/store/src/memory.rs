//! A store that lives as long as the process: for tests, simulation, and servers that need not remember.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::Mutex;

use crate::watch::Watchers;
use crate::{Batch, Change, Fence, Flow, Result, Store, Watch};

/// The memory store.
#[derive(Default)]
pub struct MemoryStore {
    pairs: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    watchers: Watchers,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.pairs.lock().get(key).cloned())
    }

    fn scan(&self, prefix: &[u8], take: &mut dyn FnMut(&[u8], &[u8]) -> Flow) -> Result<()> {
        let pairs = self.pairs.lock();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        for (key, value) in pairs.range::<[u8], _>(from).take_while(|(k, _)| k.starts_with(prefix)) {
            if take(key, value) == Flow::Stop {
                break;
            }
        }
        Ok(())
    }

    fn transaction(&self, batch: &Batch) -> Result<()> {
        batch.check_bounds()?;
        let mut pairs = self.pairs.lock();
        batch.check_conditions(|key| Ok(pairs.get(key).cloned()))?;
        for change in batch.changes() {
            match change {
                Change::Put(key, value) => drop(pairs.insert(key.clone(), value.clone())),
                Change::Delete(key) => drop(pairs.remove(key)),
            }
        }
        drop(pairs);
        batch.changes().iter().for_each(|change| self.watchers.tell(change.key()));
        Ok(())
    }

    fn watch(&self, prefix: &[u8]) -> Result<Watch> {
        self.watchers.add(prefix)
    }

    fn fence(&self, name: &[u8]) -> Result<Fence> {
        let mut pairs = self.pairs.lock();
        let place = Fence::of(name, 0)?;
        let turn = Fence::stored_turn(pairs.get(place.key()).map(Vec::as_slice)) + 1;
        pairs.insert(place.key().to_vec(), turn.to_be_bytes().to_vec());
        Fence::of(name, turn)
    }
}
