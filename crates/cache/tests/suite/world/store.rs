//! The disk of the first mount's host: slots that hold blocks, and what a crash leaves of them.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bytes::Bytes;
use holdfast_cache::*;

use super::World;

#[derive(Clone, Debug, Default)]
pub struct Store {
    pub slots: BTreeMap<u32, Vec<u8>>,
    /// What they held before they were written last, of those that were not forced since.
    unforced: BTreeMap<u32, Option<Vec<u8>>>,
    queue: VecDeque<BlockOut>,
    last: u64,
    /// So many of ten writings fail.
    pub fails: u64,
    /// Nothing comes to the disk for now.
    pub is_slow: bool,
    /// So many questions were answered with bytes.
    pub read: u64,
}

fn sum(data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    hasher.finish()
}

impl Store {
    fn find(&self, at: &BlockAt) -> Option<Bytes> {
        let data = self.slots.get(&at.slot)?.get(..at.bytes as usize)?;
        (at.sum == sum(data)).then(|| Bytes::copy_from_slice(data))
    }

    fn write(&mut self, out: &BlockOut, fails: bool) -> Option<u64> {
        let base = match &out.base {
            Some(at) => Some(self.find(at)?),
            None => None,
        };
        let data = out.made_of(base.as_deref());
        let before = self.slots.get(&out.slot).cloned();
        self.unforced.entry(out.slot).or_insert_with(|| before.clone());
        let mut there = before.unwrap_or_default();
        there.resize(there.len().max(data.len()), 0);
        if fails {
            // Half of it is there.
            let half = data.len() / 2;
            there[..half].copy_from_slice(&data[..half]);
            self.slots.insert(out.slot, there);
            return None;
        }
        there[..data.len()].copy_from_slice(&data);
        self.slots.insert(out.slot, there);
        Some(sum(&data))
    }
}

impl World {
    /// Does some of what the machine wants written, in order; all of it where `all` is said, and forced.
    pub fn write_blocks(&mut self, all: bool) {
        let Some(mut store) = self.store.take() else { return };
        let machine = &mut self.clients[0].machine;
        store.queue.extend(machine.take_blocks());
        while !store.queue.is_empty() && (all || (!store.is_slow && self.dice.roll(4) != 0)) {
            let out = store.queue.pop_front().unwrap();
            let record = [&b"S"[..], &u64::from(out.slot).to_be_bytes()].concat();
            let is_named = self.kept.as_ref().unwrap().contains_key(&record);
            assert!(!is_named, "a record that counts names slot {}, which is written over", out.slot);
            let fails = self.dice.roll(10) < store.fails;
            let sum = store.write(&out, fails);
            store.last = out.number;
            machine.block_written(out.number, sum);
        }
        if all || (!store.is_slow && self.dice.roll(3) == 0) {
            store.unforced.clear();
            machine.blocks_forced(store.last);
        }
        self.store = Some(store);
        self.check(0);
    }

    pub(super) fn pump_store(&mut self, c: usize) {
        if c != 0 || self.store.is_none() {
            return;
        }
        self.write_blocks(false);
        if self.dice.roll(2) == 0 {
            self.keep(0);
        }
        if self.dice.roll(2) == 0 {
            self.settle_blocks();
        }
    }

    /// The server puts on its disk what was read of it.
    pub fn settle_blocks(&mut self) {
        while let Some(out) = self.clients[0].machine.take_settling() {
            let is_done = self.dice.roll(8) != 0;
            if is_done {
                self.put_on_disk();
            }
            self.clients[0].machine.settled_blocks(&out, is_done);
        }
        self.check(0);
    }

    pub(super) fn ask_disk(&mut self, question: &Question) -> Result<Answer, Errno> {
        let Question::Blocks { blocks, .. } = question else { panic!("{question:?}") };
        let store = self.store.as_mut().unwrap();
        let found: Vec<_> = blocks.iter().map(|at| store.find(at)).collect();
        store.read += found.iter().flatten().count() as u64;
        Ok(Answer::Blocks { found })
    }

    /// What the disk has below what was written here of files that are changed on both sides.
    pub(super) fn blocks_below(&self, told: &[Reclaimed]) -> Vec<FoundBlock> {
        let wanted = self.clients[0].machine.blocks_below(told).into_iter();
        let found = |(node, at): (NodeId, BlockAt)| {
            Some(FoundBlock { node, at, data: self.store.as_ref()?.find(&at)? })
        };
        wanted.filter_map(found).collect()
    }

    /// The daemon dies: what was not written is not. Where the host loses its power, what was not forced may be there, or
    /// not, or in part.
    pub fn disk_after_death(&mut self, loses_power: bool) {
        let Some(mut store) = self.store.take() else { return };
        store.queue.clear();
        for (slot, before) in std::mem::take(&mut store.unforced) {
            match if loses_power { self.dice.roll(3) } else { 0 } {
                1 => drop(match before {
                    Some(before) => store.slots.insert(slot, before),
                    None => store.slots.remove(&slot),
                }),
                2 => {
                    let now = store.slots.get_mut(&slot).unwrap();
                    now.iter_mut().skip(3).for_each(|byte| *byte ^= 0x55);
                }
                _ => {}
            }
        }
        self.owed.clear();
        self.store = Some(store);
    }
}
