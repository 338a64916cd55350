//! What is alive, in memory: a slab of entries and a table from keys to them. Never allocates after it is made.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::EntryId;

/// One live entry. Places are file positions in units of [`crate::layout::UNIT`]; 0 is "none", for the header
/// lies there.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) key: KeyHash,
    pub(crate) order: u64,
    /// Where its Begin or Note lies.
    pub(crate) begin_at: u32,
    /// Where its Finish lies.
    pub(crate) finish_at: u32,
    /// Bytes of both.
    pub(crate) bytes: u32,
    pub(crate) is_aged: bool,
    pub(crate) is_sealed: bool,
    /// Whether its reply is recorded, in a Note or a Finish.
    pub(crate) is_finished: bool,
}

impl Entry {
    /// Whether it may be dropped when room is short.
    pub(crate) const fn is_droppable(&self) -> bool {
        self.is_aged && self.is_finished
    }
}

/// Stands for a key: two keys collide as seldom as any two keyed 128-bit hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyHash(u128);

impl Hash for KeyHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0 as u64);
    }
}

/// Passes on what is a hash already.
#[derive(Default)]
pub(crate) struct Ready(u64);

impl Hasher for Ready {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

/// The live entries of one run.
pub(crate) struct Index {
    slab: Vec<Entry>,
    free: Vec<u32>,
    by_key: HashMap<KeyHash, u32, BuildHasherDefault<Ready>>,
    hash_keys: (u64, u64),
    entries_max: usize,
    /// Bytes of entries that must not be dropped.
    pub(crate) pinned_bytes: u64,
    /// Bytes of entries that may be dropped.
    pub(crate) aged_bytes: u64,
    /// How many may be dropped.
    pub(crate) aged: usize,
}

impl Index {
    /// An empty index. The hash keys are random, so that nobody outside can aim at a collision.
    pub(crate) fn new(entries_max: usize, hash_keys: (u64, u64)) -> Self {
        let entries_max = entries_max.clamp(1, u32::MAX as usize);
        let by_key = HashMap::with_capacity_and_hasher(entries_max, BuildHasherDefault::default());
        Self {
            slab: Vec::with_capacity(entries_max),
            free: Vec::with_capacity(entries_max),
            by_key,
            hash_keys,
            entries_max,
            pinned_bytes: 0,
            aged_bytes: 0,
            aged: 0,
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let mut hasher = SipHasher13::new_with_keys(self.hash_keys.0, self.hash_keys.1);
        hasher.write(key);
        KeyHash(hasher.finish128().as_u128())
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.by_key.len() >= self.entries_max
    }

    pub(crate) fn find(&self, key: KeyHash) -> Option<EntryId> {
        let entry = *self.by_key.get(&key)?;
        Some(EntryId { entry, order: self.slab[entry as usize].order })
    }

    /// The entry, unless it is gone.
    #[inline]
    pub(crate) fn get(&self, id: EntryId) -> Option<&Entry> {
        // A freed place has order 0, and orders start at 1.
        self.slab.get(id.entry as usize).filter(|e| e.order == id.order && e.order != 0)
    }

    /// Changes an entry, keeping the sums right; `false` when it is gone.
    #[inline]
    pub(crate) fn update(&mut self, id: EntryId, change: impl FnOnce(&mut Entry)) -> bool {
        let Some(mut entry) = self.get(id).copied() else { return false };
        self.uncount(&entry);
        change(&mut entry);
        self.count(&entry);
        self.slab[id.entry as usize] = entry;
        true
    }

    /// The place that [`Index::insert`] will take; the index is not full.
    pub(crate) fn next_place(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.slab.len() as u32)
    }

    /// Adds an entry at [`Index::next_place`]. Its key has no other.
    pub(crate) fn insert(&mut self, entry: Entry) -> EntryId {
        self.count(&entry);
        let place = match self.free.pop() {
            Some(place) => {
                self.slab[place as usize] = entry;
                place
            }
            None => {
                self.slab.push(entry);
                (self.slab.len() - 1) as u32
            }
        };
        self.by_key.insert(entry.key, place);
        EntryId { entry: place, order: entry.order }
    }

    /// Removes an entry; `false` when it is gone.
    pub(crate) fn remove(&mut self, id: EntryId) -> bool {
        let Some(entry) = self.get(id).copied() else { return false };
        self.uncount(&entry);
        self.by_key.remove(&entry.key);
        self.slab[id.entry as usize] = Entry::default();
        self.free.push(id.entry);
        true
    }

    fn count(&mut self, entry: &Entry) {
        if entry.is_droppable() {
            self.aged_bytes += u64::from(entry.bytes);
            self.aged += 1;
        } else {
            self.pinned_bytes += u64::from(entry.bytes);
        }
    }

    fn uncount(&mut self, entry: &Entry) {
        if entry.is_droppable() {
            self.aged_bytes -= u64::from(entry.bytes);
            self.aged -= 1;
        } else {
            self.pinned_bytes -= u64::from(entry.bytes);
        }
    }
}
