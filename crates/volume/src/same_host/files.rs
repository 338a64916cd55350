//! Which descriptors are held of which files, and when one is asked for. Pure: descriptors are `D`, moments are handed in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::limits::{SAME_HOST_AFTER, SAME_HOST_HELD_MAX, SAME_HOST_IDLE_MS};
use holdfast_cache::{Caller, CapSet, Handle};
use rustc_hash::FxHashMap;

use super::lent::Lent;

/// What to do about a read or write.
#[derive(Debug)]
pub(super) enum Way<D> {
    /// By this descriptor.
    Lent(Arc<Lent<D>>),
    /// One may be asked for; [`Files::lent`] is to be told what came of it.
    Ask(Asking),
    /// Over the network.
    Wire,
}

/// One question for a descriptor.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    object: Handle,
    caller: Caller,
    pub(super) writes: bool,
    /// What was void then.
    voids: u64,
    epoch: u64,
}

impl Asking {
    /// The same for reading alone.
    pub(super) fn into_reader(self) -> Self {
        Self { writes: false, ..self }
    }
}

/// One descriptor, for one caller: it was judged for him.
#[derive(Debug)]
struct Slot<D> {
    caller: Caller,
    lent: Arc<Lent<D>>,
    used: Instant,
}

/// What is known of one file.
#[derive(Debug)]
struct Entry<D> {
    slots: Vec<Slot<D>>,
    /// No longer to be read or written by, as what it stood on is gone; but what was written through it has to be put on
    /// disk through it, for so an error is told.
    retired: Vec<Arc<Lent<D>>>,
    /// Reads and writes that went over the network.
    seen: u32,
    /// Some were writes.
    is_written: bool,
    /// A write that went over the network may have to be committed there.
    by_wire: bool,
    asking: u32,
    voids: u64,
    not_before: Option<Instant>,
    used: Instant,
}

impl<D> Entry<D> {
    const fn new(now: Instant) -> Self {
        Self {
            slots: Vec::new(),
            retired: Vec::new(),
            seen: 0,
            is_written: false,
            // Nobody knows what was before.
            by_wire: true,
            asking: 0,
            voids: 0,
            not_before: None,
            used: now,
        }
    }

    /// Takes descriptors out of use.
    fn retire(&mut self, is_due: impl Fn(&Slot<D>) -> bool) {
        self.voids += 1;
        for slot in self.slots.extract_if(.., |slot| is_due(slot)) {
            if slot.lent.is_owing() {
                self.retired.push(slot.lent);
            }
        }
    }

    fn is_idle(&self, now: Instant) -> bool {
        let is_old = now.saturating_duration_since(self.used) >= IDLE;
        is_old && self.slots.is_empty() && self.retired.is_empty() && self.asking == 0
    }
}

/// All files of which anything is known.
#[derive(Debug)]
pub(super) struct Files<D> {
    entries: FxHashMap<Handle, Entry<D>>,
    /// Descriptors in use.
    held: usize,
    /// Rises when everything is void.
    epoch: u64,
}

impl<D> Default for Files<D> {
    fn default() -> Self {
        Self { entries: FxHashMap::default(), held: 0, epoch: 0 }
    }
}

const IDLE: Duration = Duration::from_millis(SAME_HOST_IDLE_MS);

/// Files of which something is remembered, descriptors or not; beyond, what is idle is forgotten early.
const ENTRIES_MAX: usize = 8 * SAME_HOST_HELD_MAX;

impl<D> Files<D> {
    fn entry(&mut self, object: &Handle, now: Instant) -> Option<&mut Entry<D>> {
        if self.entries.len() >= ENTRIES_MAX && !self.entries.contains_key(object) {
            self.entries.retain(|_, e| !(e.slots.is_empty() && e.retired.is_empty() && e.asking == 0));
            if self.entries.len() >= ENTRIES_MAX {
                return None;
            }
        }
        let entry = self.entries.entry(object.clone()).or_insert_with(|| Entry::new(now));
        entry.used = now;
        Some(entry)
    }

    /// How to read (or write) a file for a caller. `may_ask`: a server of this host is at hand.
    pub(super) fn way(
        &mut self,
        object: &Handle,
        caller: &Caller,
        writes: bool,
        (may_ask, now): (bool, Instant),
    ) -> Way<D> {
        let (epoch, is_full) = (self.epoch, self.held >= SAME_HOST_HELD_MAX);
        let Some(entry) = self.entry(object, now) else { return Way::Wire };
        entry.is_written |= writes;
        let fits = |slot: &&mut Slot<D>| (slot.lent.writes || !writes) && slot.caller == *caller;
        if let Some(slot) = entry.slots.iter_mut().find(fits) {
            slot.used = now;
            return Way::Lent(Arc::clone(&slot.lent));
        }
        entry.seen = entry.seen.saturating_add(1);
        let is_time = entry.not_before.is_none_or(|at| at <= now);
        if !may_ask || is_full || !is_time || entry.seen <= SAME_HOST_AFTER || entry.asking > 0 {
            return Way::Wire;
        }
        entry.asking += 1;
        let (object, caller) = (object.clone(), caller.clone());
        let writes = writes || entry.is_written;
        Way::Ask(Asking { object, caller, writes, voids: entry.voids, epoch })
    }

    /// What came of a question: a descriptor, or none and how long not to ask again. The descriptor is to be used, if
    /// what it stands on was not lost meanwhile.
    pub(super) fn lent(
        &mut self,
        asking: &Asking,
        came: Result<D, Duration>,
        now: Instant,
    ) -> Option<Arc<Lent<D>>> {
        let epoch = self.epoch;
        let entry = self.entries.get_mut(&asking.object)?;
        entry.asking = entry.asking.saturating_sub(1);
        let descriptor = match came {
            Ok(descriptor) => descriptor,
            Err(pause) => {
                entry.not_before = Some(now + pause);
                return None;
            }
        };
        if entry.voids != asking.voids || epoch != asking.epoch {
            return None;
        }
        let lent = Arc::new(Lent::new(descriptor, asking.writes));
        entry.slots.push(Slot { caller: asking.caller.clone(), lent: Arc::clone(&lent), used: now });
        self.held += 1;
        Some(lent)
    }

    /// Only this is held of a file from now on. Whether something is left to be put on disk by what it was written by.
    pub(super) fn keep(&mut self, object: &Handle, keep: CapSet) -> bool {
        if keep.contains(CapSet::FILE_X) {
            return false;
        }
        let reads = keep.contains(CapSet::FILE_S);
        self.retire(object, |slot| slot.lent.writes || !reads);
        self.entries.get(object).is_some_and(|entry| !entry.retired.is_empty())
    }

    /// The file is to be had to be written: nobody may have it open then, not even to read.
    pub(super) fn make_way(&mut self, object: &Handle) {
        self.retire(object, |slot| !slot.lent.writes);
    }

    fn retire(&mut self, object: &Handle, is_due: impl Fn(&Slot<D>) -> bool) {
        if let Some(entry) = self.entries.get_mut(object) {
            let before = entry.slots.len();
            entry.retire(is_due);
            self.held -= before - entry.slots.len();
        }
    }

    /// Nothing is held any more.
    pub(super) fn lose_all(&mut self) {
        self.epoch += 1;
        self.held = 0;
        for entry in self.entries.values_mut() {
            entry.retire(|_| true);
            entry.not_before = None;
            // The next server may lend nothing, and then nobody counts what goes over the network.
            entry.by_wire = true;
        }
    }

    /// Whether what is written through this will be put on disk through it: it is in use, or kept for that alone.
    pub(super) fn keeps(&self, object: &Handle, lent: &Arc<Lent<D>>) -> bool {
        self.entries.get(object).is_some_and(|entry| {
            let mut kept = entry.slots.iter().map(|slot| &slot.lent).chain(&entry.retired);
            kept.any(|kept| Arc::ptr_eq(kept, lent))
        })
    }

    /// Data went over the network.
    pub(super) fn wrote_by_wire(&mut self, object: &Handle, now: Instant) {
        if let Some(entry) = self.entry(object, now) {
            entry.by_wire = true;
        }
    }

    /// What has to be put on disk of a file: through these, and, when the answer says so, by the server.
    pub(super) fn uncommitted(&mut self, object: &Handle) -> (Vec<Arc<Lent<D>>>, bool) {
        let Some(entry) = self.entries.get_mut(object) else { return (Vec::new(), true) };
        let held = entry.slots.iter().map(|slot| &slot.lent).chain(&entry.retired);
        let lent = held.filter(|lent| lent.is_owing()).cloned().collect();
        (lent, std::mem::take(&mut entry.by_wire))
    }

    /// It is on disk: what was kept for that alone goes.
    pub(super) fn committed(&mut self, object: &Handle) {
        if let Some(entry) = self.entries.get_mut(object) {
            entry.retired.retain(|lent| lent.is_owing());
        }
    }

    /// Closes what has not been used for a while. What is retired is to be put on disk.
    pub(super) fn tidy(&mut self, now: Instant) -> Vec<(Handle, Arc<Lent<D>>)> {
        let mut retired = Vec::new();
        let mut held = 0;
        self.entries.retain(|object, entry| {
            let is_due = |slot: &Slot<D>| {
                let is_old = now.saturating_duration_since(slot.used) >= IDLE;
                is_old && !slot.lent.is_owing()
            };
            entry.slots.retain(|slot| !is_due(slot));
            held += entry.slots.len();
            let is_due = |lent: &&Arc<Lent<D>>| lent.is_unsynced();
            retired
                .extend(entry.retired.iter().filter(is_due).map(|lent| (object.clone(), Arc::clone(lent))));
            !entry.is_idle(now)
        });
        self.held = held;
        retired
    }

    /// Descriptors in use.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Whether nothing needs to be looked after.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests;
