//! Blocks of files' contents that lie on this host's disk: which are there, in which slot of the driver's file, and what is
//! still to be done about them. Contents pass through on their way to the driver alone; what is kept of a block is some 60
//! bytes.
//!
//! A slot is written only while no record that counts after a crash can name it: what is written over leaves the records
//! first, and lies in another slot. So whoever reads by the records reads what was meant, or finds by its sum that it is not
//! there. When blocks count as a file's contents stands in `contents.rs`.

mod contents;
mod records;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use holdfast_base::limits::{KEPT_QUEUE_BYTES_MAX, KEPT_SPARE_SLOTS_MAX};
use rustc_hash::FxHashMap;

use crate::ids::NodeId;

pub use contents::Settling;
pub(crate) use contents::Validity;

/// A block as the driver finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAt {
    /// Which writing of a slot this is.
    pub number: u64,
    /// Its slot.
    pub slot: u32,
    /// Bytes that were written there.
    pub bytes: u32,
    /// The sum of them, as the driver told it.
    pub sum: u64,
    /// So many of them count.
    pub len: u32,
    /// Which of its file's blocks it is.
    pub index: u32,
}

/// A block to be written. All of these are done one after the other, in the order in which they come out, each before
/// [`Machine::block_written`](crate::Machine::block_written) is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockOut {
    /// Which writing this is.
    pub number: u64,
    /// Where to.
    pub slot: u32,
    /// What it begins as, where not all of it is new.
    pub base: Option<BlockAt>,
    /// What is new in it begins here; what lies between it and its base is zeros.
    pub at: u32,
    /// What is new.
    pub data: Bytes,
}

impl BlockOut {
    /// The bytes to be written, of what was found of its base.
    #[must_use]
    pub fn made_of(&self, base: Option<&[u8]>) -> Bytes {
        let Some(at) = self.base else { return self.data.clone() };
        let base = base.unwrap_or_default();
        let mut all = base[..base.len().min(at.len as usize)].to_vec();
        let (from, to) = (self.at as usize, self.at as usize + self.data.len());
        all.resize(all.len().max(to), 0);
        all[from..to].copy_from_slice(&self.data);
        all.into()
    }
}

/// What is said of a slot, in bits.
mod is {
    /// A block of a file is there, or will be.
    pub(super) const KEPT: u8 = 1;
    /// The driver has written it.
    pub(super) const WRITTEN: u8 = 2;
    /// It would be there after a crash.
    pub(super) const FORCED: u8 = 4;
    /// A record may name it.
    pub(super) const RECORDED: u8 = 8;
    /// The server would have it after a crash of its own.
    pub(super) const SETTLED: u8 = 16;
    /// It was read since the clock's hand went by.
    pub(super) const USED: u8 = 32;
    /// Its record is not as it is.
    pub(super) const CHANGED: u8 = 64;
}

/// One slot of the driver's file.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    node: u64,
    sum: u64,
    index: u32,
    /// So many bytes count; behind them the file has zeros, or ends.
    len: u32,
    /// So many were written.
    stored: u32,
    is: u8,
}

impl Slot {
    const fn has(&self, bits: u8) -> bool {
        self.is & bits == bits
    }

    fn set(&mut self, bits: u8, to: bool) {
        self.is = if to { self.is | bits } else { self.is & !bits };
    }
}

/// Blocks of one file, all of one version of what counts of it.
#[derive(Debug, Default)]
struct File {
    version: u32,
    /// Slots, by the block's place.
    blocks: BTreeMap<u32, u32>,
    /// It waits for the server to be asked whether it is on its disk.
    is_settling: bool,
}

/// A writing that was not heard of.
#[derive(Debug)]
struct Pending {
    slot: u32,
    data: Bytes,
    /// The data is all of the block.
    is_whole: bool,
}

/// All of a mount.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    slots: Vec<Slot>,
    capacity: u32,
    free: Vec<u32>,
    /// Nothing is to name them any more: with the next delta.
    leaving: Vec<u32>,
    /// With a delta that is not known to count yet.
    left: Vec<u32>,
    files: FxHashMap<NodeId, File>,
    hand: u32,
    last: u64,
    out: VecDeque<BlockOut>,
    /// By number: writings that were not heard of.
    pending: FxHashMap<u64, Pending>,
    pending_bytes: usize,
    /// Written and not forced, in the order of their numbers.
    unforced: VecDeque<u64>,
    by_number: FxHashMap<u64, u32>,
    changed: Vec<u32>,
    settling: VecDeque<NodeId>,
}

impl Disk {
    /// The slot of a file's block, where what is kept of the file is of this version.
    fn find(&self, id: NodeId, version: u32, index: u32) -> Option<u32> {
        let file = self.files.get(&id).filter(|file| file.version == version)?;
        file.blocks.get(&index).copied()
    }

    fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    fn slot_mut(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    fn at(&self, slot: u32) -> BlockAt {
        let Slot { number, index, len, stored, sum, .. } = *self.slot(slot);
        BlockAt { number, slot, bytes: stored, sum, len, index }
    }

    /// A file of this version; what was kept of another one goes.
    fn file(&mut self, id: NodeId, version: u32) -> &mut File {
        if self.files.get(&id).is_some_and(|file| file.version != version) {
            self.forget(id);
        }
        self.files.entry(id).or_insert_with(|| File { version, ..File::default() })
    }

    /// What is kept of a file goes, unless it is of this version; whether something is kept.
    pub(crate) fn sweep(&mut self, id: NodeId, version: Option<u32>) -> bool {
        let Some(file) = self.files.get(&id) else { return false };
        let is_it = Some(file.version) == version;
        if !is_it {
            self.forget(id);
        }
        is_it
    }

    fn forget(&mut self, id: NodeId) {
        let Some(file) = self.files.remove(&id) else { return };
        file.blocks.into_values().for_each(|slot| self.let_go(slot));
    }

    /// One block of a file goes.
    fn drop_block(&mut self, id: NodeId, index: u32) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let Some(slot) = file.blocks.remove(&index) else { return };
        if file.blocks.is_empty() {
            self.files.remove(&id);
        }
        self.let_go(slot);
    }

    /// Nothing of the table leads to a slot any more: once nothing of the records does, it is free.
    fn let_go(&mut self, slot: u32) {
        let one = *self.slot(slot);
        self.heard_of(one.number);
        self.by_number.remove(&one.number);
        self.slot_mut(slot).is = one.is & is::RECORDED;
        if one.has(is::RECORDED) {
            self.leaving.push(slot);
        } else {
            self.free_slot(slot);
        }
    }

    fn free_slot(&mut self, slot: u32) {
        *self.slot_mut(slot) = Slot::default();
        if slot < self.capacity {
            self.free.push(slot);
        }
    }

    /// A slot that may be written, if there is one; and sees to it that there are others soon.
    fn take_slot(&mut self) -> Option<u32> {
        if self.capacity == 0 {
            return None;
        }
        let is_full = self.slots.len() as u64 >= u64::from(self.capacity);
        let spare = (self.capacity as usize / 16).clamp(1, KEPT_SPARE_SLOTS_MAX);
        if is_full {
            let have = self.free.len() + self.leaving.len() + self.left.len();
            let _ = (have..spare).all(|_| self.evict());
        }
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if is_full {
            return None;
        }
        self.slots.push(Slot::default());
        Some(self.slots.len() as u32 - 1)
    }

    /// The first block goes that was not read since the hand went by; false where there is none.
    fn evict(&mut self) -> bool {
        for _ in 0..2 * self.slots.len() {
            self.hand = if self.hand as usize + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            let hand = self.hand;
            let slot = self.slot_mut(hand);
            // What is still to be written came just now.
            if !slot.has(is::KEPT | is::WRITTEN) {
                continue;
            }
            if slot.has(is::USED) {
                slot.set(is::USED, false);
                continue;
            }
            let (id, index) = (NodeId(slot.node), slot.index);
            self.drop_block(id, index);
            return true;
        }
        false
    }

    /// Has a block written, in place of what is kept of it.
    fn write(
        &mut self,
        (id, version): (NodeId, u32),
        index: u32,
        (base, at, data): (Option<BlockAt>, u32, Bytes),
        is_settled: bool,
    ) {
        let len = (at + data.len() as u32).max(base.map_or(0, |base| base.len));
        let has_room = self.pending_bytes + data.len() <= KEPT_QUEUE_BYTES_MAX
            && self.out.len() < KEPT_QUEUE_BYTES_MAX >> 12;
        let slot = if has_room { self.take_slot() } else { None };
        // Its base is read before anything that comes behind it in the queue.
        self.drop_block(id, index);
        let Some(slot) = slot else { return };
        self.last += 1;
        let number = self.last;
        let is = is::KEPT | if is_settled { is::SETTLED } else { 0 };
        *self.slot_mut(slot) = Slot { number, node: id.0, sum: 0, index, len, stored: len, is };
        self.pending_bytes += data.len();
        self.pending.insert(number, Pending { slot, data: data.clone(), is_whole: base.is_none() });
        self.by_number.insert(number, slot);
        self.file(id, version).blocks.insert(index, slot);
        self.out.push_back(BlockOut { number, slot, base, at, data });
    }

    /// The same for a part of it. What it would be made of may not be there, where it was not heard of yet.
    fn patch(&mut self, file: (NodeId, u32), index: u32, (at, data): (u32, Bytes)) {
        let Some(slot) = self.find(file.0, file.1, index) else { return };
        let (base, is_settled) = (self.at(slot), self.slot(slot).has(is::SETTLED));
        match self.pending.get(&base.number) {
            None => self.write(file, index, (Some(base), at, data), is_settled),
            Some(Pending { data: whole, is_whole: true, .. }) => {
                let out = BlockOut { number: 0, slot, base: Some(base), at, data };
                let all = out.made_of(Some(whole));
                self.write(file, index, (None, 0, all), is_settled);
            }
            Some(_) => self.drop_block(file.0, index),
        }
    }

    fn heard_of(&mut self, number: u64) -> Option<u32> {
        let Pending { slot, data, .. } = self.pending.remove(&number)?;
        self.pending_bytes -= data.len();
        Some(slot)
    }

    /// What has become of a writing.
    fn written(&mut self, number: u64, sum: Option<u64>) {
        let Some(slot) = self.heard_of(number) else { return };
        let Some(sum) = sum else {
            let (id, index) = (NodeId(self.slot(slot).node), self.slot(slot).index);
            return self.drop_block(id, index);
        };
        let slot = self.slot_mut(slot);
        slot.sum = sum;
        slot.set(is::WRITTEN, true);
        self.unforced.push_back(number);
    }

    /// All that was written up to this number would be there after a crash.
    fn forced(&mut self, through: u64) {
        while let Some(number) = self.unforced.front().copied().filter(|number| *number <= through) {
            self.unforced.pop_front();
            let Some(slot) = self.by_number.remove(&number) else { continue };
            self.slot_mut(slot).set(is::FORCED, true);
            self.change(slot);
            let id = NodeId(self.slot(slot).node);
            if !self.slot(slot).has(is::SETTLED) {
                self.settle_later(id);
            }
        }
    }

    fn settle_later(&mut self, id: NodeId) {
        let Some(file) = self.files.get_mut(&id) else { return };
        if !std::mem::replace(&mut file.is_settling, true) {
            self.settling.push_back(id);
        }
    }

    /// The record of a slot is to be written anew.
    fn change(&mut self, slot: u32) {
        if self.slot(slot).has(is::FORCED) && !self.slot(slot).has(is::CHANGED) {
            self.slot_mut(slot).set(is::CHANGED, true);
            self.changed.push(slot);
        }
    }

    /// What was left out of deltas counts: it may be written over.
    pub(crate) fn deltas_count(&mut self) {
        for slot in std::mem::take(&mut self.left) {
            self.free_slot(slot);
        }
    }

    /// Blocks that are kept.
    pub(crate) fn count(&self) -> u64 {
        self.files.values().map(|file| file.blocks.len() as u64).sum()
    }

    /// So many slots may be used.
    fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
        self.free.retain(|slot| *slot < capacity);
        let beyond: Vec<_> =
            self.slots.iter().skip(capacity as usize).filter(|s| s.has(is::KEPT)).copied().collect();
        for Slot { node, index, .. } in beyond {
            self.drop_block(NodeId(node), index);
        }
    }

    /// Whether the table is of one piece: for tests.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (id, file) in &self.files {
            for (index, slot) in &file.blocks {
                let one = self.slot(*slot);
                if !one.has(is::KEPT) || (NodeId(one.node), one.index) != (*id, *index) {
                    return Err(format!("slot {slot} is not block {index} of {id:?}: {one:?}"));
                }
            }
        }
        let kept = self.slots.iter().filter(|slot| slot.has(is::KEPT)).count();
        let named: usize = self.files.values().map(|file| file.blocks.len()).sum();
        let idle = self.free.iter().chain(&self.leaving).chain(&self.left);
        if let Some(slot) = idle.clone().find(|slot| self.slot(**slot).has(is::KEPT)) {
            return Err(format!("slot {slot} is free and in use"));
        }
        if let Some(slot) = self.free.iter().find(|slot| self.slot(**slot).has(is::RECORDED)) {
            return Err(format!("slot {slot} is free, and a record names it"));
        }
        let bytes: usize = self.pending.values().map(|pending| pending.data.len()).sum();
        match (kept == named, bytes == self.pending_bytes) {
            (true, true) => Ok(()),
            _ => Err(format!("{kept} kept, {named} named; {bytes} bytes wait, not {}", self.pending_bytes)),
        }
    }
}
