//! The descriptor cache: objects by where their handles say they are, in parts with a lock each, thrown out by a second-chance hand.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_base::limits::{BACKEND_CACHE_SHARDS, BACKEND_SWEEP_TURNS};
use holdfast_vfs::Handle;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};

use crate::handles::Spot;
use crate::object::{Object, Tally};

#[derive(Default)]
struct Shard {
    by_spot: FxHashMap<Spot, usize>,
    slots: Vec<Arc<Object>>,
    hand: usize,
}

/// All idle objects, and those in use, by handle.
pub(crate) struct Cache {
    shards: Box<[Mutex<Shard>]>,
    tally: Tally,
    descriptors_max: usize,
    /// Of the sweeps.
    turn: AtomicUsize,
}

impl Cache {
    pub(crate) fn new(descriptors_max: usize) -> Self {
        Self {
            shards: (0..BACKEND_CACHE_SHARDS).map(|_| Mutex::default()).collect(),
            tally: Tally::default(),
            descriptors_max: descriptors_max.max(BACKEND_CACHE_SHARDS),
            turn: AtomicUsize::new(0),
        }
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    fn shard(&self, spot: Spot) -> &Mutex<Shard> {
        // The map's own hash uses the low bits and the top seven; take others.
        let hash = FxBuildHasher.hash_one(spot);
        &self.shards[(hash >> 40) as usize % self.shards.len()]
    }

    pub(crate) fn find(&self, handle: &Handle) -> Option<Arc<Object>> {
        let spot = Spot::of(handle);
        let shard = self.shard(spot).lock();
        let object = shard.at(spot).filter(|o| o.handle == *handle)?;
        object.note_use();
        Some(Arc::clone(object))
    }

    /// The object with a number, on a file system where a number is enough. Does not count as a use: a listing
    /// that passes by must not keep what nobody else wants.
    pub(crate) fn find_number(&self, fs_key: u64, ino: u64) -> Option<Arc<Object>> {
        let spot = Spot::of_number(fs_key, ino);
        self.shard(spot).lock().at(spot).cloned()
    }

    /// Whether there is so much room that a listing may leave objects behind.
    pub(crate) fn has_room(&self) -> bool {
        self.tally.count() < self.descriptors_max / 4 * 3
    }

    /// Objects held, and how many there may be.
    pub(crate) fn fill(&self) -> (usize, usize) {
        (self.shards.iter().map(|shard| shard.lock().slots.len()).sum(), self.descriptors_max)
    }

    /// Takes an object in; gives the one that was there before when there was one.
    pub(crate) fn insert(&self, object: Object) -> Arc<Object> {
        let spot = Spot::of(&object.handle);
        let mut shard = self.shard(spot).lock();
        if let Some(present) = shard.at(spot) {
            // Two handles at one spot: a collision, or another form of the handle since a remount. The second
            // one does without the cache.
            return if present.handle == object.handle { Arc::clone(present) } else { Arc::new(object) };
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
        shard.by_spot.insert(spot, at);
        shard.slots.push(Arc::clone(&object));
        drop(shard);
        // Closing descriptors happens outside the lock: the last close of a removed file frees its space.
        drop(thrown);
        object
    }

    pub(crate) fn remove(&self, handle: &Handle) -> Option<Arc<Object>> {
        let spot = Spot::of(handle);
        let mut shard = self.shard(spot).lock();
        let at = *shard.by_spot.get(&spot)?;
        (shard.slots[at].handle == *handle).then(|| shard.take(at))
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
                shard.by_spot.shrink_to_fit();
            }
        }
    }

    /// Objects that nobody has open and no call is about, of the next part of all: each comes by once in [`BACKEND_SWEEP_TURNS`]
    /// calls.
    pub(crate) fn next_idle(&self) -> Vec<Arc<Object>> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % BACKEND_SWEEP_TURNS;
        let shards = self.shards.iter().skip(turn).step_by(BACKEND_SWEEP_TURNS);
        let idle_of = |shard: &Mutex<Shard>| {
            let shard = shard.lock();
            shard.slots.iter().filter(|o| is_idle(o)).cloned().collect::<Vec<_>>()
        };
        shards.flat_map(idle_of).collect()
    }
}

/// Whether none but the cache knows it, and the table of dirty files.
fn is_idle(object: &Arc<Object>) -> bool {
    // To ask somebody elsewhere each second costs more than it brings.
    if object.fs.nature.kind.may_be_remote() {
        return false;
    }
    let known = 1 + usize::from(object.is_dirty.load(Ordering::SeqCst));
    Arc::strong_count(object) <= known && object.opens.load(Ordering::SeqCst) == 0
}

impl Shard {
    fn at(&self, spot: Spot) -> Option<&Arc<Object>> {
        self.by_spot.get(&spot).map(|at| &self.slots[*at])
    }

    fn take(&mut self, at: usize) -> Arc<Object> {
        let object = self.slots.swap_remove(at);
        self.by_spot.remove(&Spot::of(&object.handle));
        if let Some(moved) = self.slots.get(at) {
            self.by_spot.insert(Spot::of(&moved.handle), at);
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
