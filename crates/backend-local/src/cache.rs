//! The descriptor cache: objects by handle, in parts with a lock each, thrown out by a second-chance hand.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::limits::BACKEND_CACHE_SHARDS;
use holdfast_vfs::Handle;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::object::{Object, Tally};

#[derive(Default)]
struct Shard {
    by_handle: FxHashMap<Handle, usize>,
    slots: Vec<Arc<Object>>,
    hand: usize,
}

/// All idle objects, and those in use, by handle.
pub(crate) struct Cache {
    shards: Box<[Mutex<Shard>]>,
    tally: Tally,
    descriptors_max: usize,
}

impl Cache {
    pub(crate) fn new(descriptors_max: usize) -> Self {
        Self {
            shards: (0..BACKEND_CACHE_SHARDS).map(|_| Mutex::default()).collect(),
            tally: Tally::default(),
            descriptors_max: descriptors_max.max(BACKEND_CACHE_SHARDS),
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    fn shard(&self, handle: &Handle) -> &Mutex<Shard> {
        // The map's own hash uses the low bits and the top seven; take others.
        let hash = FxBuildHasher.hash_one(handle);
        &self.shards[(hash >> 40) as usize % self.shards.len()]
    }

    pub(crate) fn find(&self, handle: &Handle) -> Option<Arc<Object>> {
        let shard = self.shard(handle).lock();
        let object = &shard.slots[*shard.by_handle.get(handle)?];
        if !object.was_used.load(Ordering::Relaxed) {
            object.was_used.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(object))
    }

    /// Takes an object in; gives the one that was there before when there was one.
    pub(crate) fn insert(&self, object: Object) -> Arc<Object> {
        let mut shard = self.shard(&object.handle).lock();
        if let Some(at) = shard.by_handle.get(&object.handle) {
            return Arc::clone(&shard.slots[*at]);
        }
        let slots_max = self.descriptors_max / self.shards.len();
        let mut thrown = Vec::new();
        while shard.slots.len() >= slots_max
            || (self.tally.count() - thrown.len() > self.descriptors_max && !shard.slots.is_empty())
        {
            match shard.throw_one() {
                Some(old) => thrown.push(old),
                None => break,
            }
        }
        let object = Arc::new(object);
        let at = shard.slots.len();
        shard.by_handle.insert(object.handle, at);
        shard.slots.push(Arc::clone(&object));
        drop(shard);
        // Closing descriptors happens outside the lock: the last close of a removed file frees its space.
        drop(thrown);
        object
    }

    pub(crate) fn remove(&self, handle: &Handle) -> Option<Arc<Object>> {
        let mut shard = self.shard(handle).lock();
        let at = *shard.by_handle.get(handle)?;
        Some(shard.take(at))
    }

    /// Throws idle objects out until no part holds more than this share of what it may.
    pub(crate) fn shed(&self, keep_percent: u8) {
        let keep = self.descriptors_max / self.shards.len() * usize::from(keep_percent.min(100)) / 100;
        for shard in &self.shards {
            let mut thrown = Vec::new();
            let mut shard = shard.lock();
            while shard.slots.len() > keep {
                match shard.throw_one() {
                    Some(old) => thrown.push(old),
                    None => break,
                }
            }
            if keep == 0 {
                shard.slots.shrink_to_fit();
                shard.by_handle.shrink_to_fit();
            }
        }
    }

    /// Drops idle objects that have no name any more: a local process removed them, and we alone keep their
    /// space.
    pub(crate) fn sweep(&self) {
        for shard in &self.shards {
            let idle: Vec<_> = {
                let shard = shard.lock();
                shard.slots.iter().filter(|o| Arc::strong_count(o) == 1).cloned().collect()
            };
            for object in idle {
                if object.look().is_ok_and(|st| st.stx_nlink == 0) {
                    self.remove(&object.handle);
                }
            }
        }
    }
}

impl Shard {
    fn take(&mut self, at: usize) -> Arc<Object> {
        let object = self.slots.swap_remove(at);
        self.by_handle.remove(&object.handle);
        if let Some(moved) = self.slots.get(at) {
            self.by_handle.insert(moved.handle, at);
        }
        object
    }

    /// The next idle object that was not used since the hand came by last; `None` when all are in use.
    fn throw_one(&mut self) -> Option<Arc<Object>> {
        for _ in 0..2 * self.slots.len() {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let object = &self.slots[self.hand];
            if Arc::strong_count(object) == 1 && !object.was_used.swap(false, Ordering::Relaxed) {
                return Some(self.take(self.hand));
            }
            self.hand += 1;
        }
        None
    }
}
