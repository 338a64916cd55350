//! Records of blocks: one for each slot in which something is that would be there after a crash.

use std::collections::BTreeMap;

use bytes::Bytes;
use holdfast_base::limits::{KEPT_BLOCK_BYTES, KEPT_SLOTS_MAX};

use super::{Disk, File, Slot, is};
use crate::ids::NodeId;
use crate::machine::Machine;
use crate::persist::{Change, code, family, key};

impl Disk {
    /// What has changed in the records. What nothing is to name any more is left out with this delta.
    pub(crate) fn put_records(&mut self, out: &mut Vec<Change>) {
        for slot in std::mem::take(&mut self.leaving) {
            out.push(Change::Remove(key(family::BLOCK, u64::from(slot))));
            self.left.push(slot);
        }
        for slot in std::mem::take(&mut self.changed) {
            let one = self.slot_mut(slot);
            if !one.has(is::KEPT | is::FORCED | is::CHANGED) {
                continue;
            }
            one.set(is::CHANGED, false);
            one.set(is::RECORDED, true);
            let one = *one;
            let Some(version) = self.files.get(&NodeId(one.node)).map(|file| file.version) else { continue };
            let mut put = code::Put::default();
            put.u64(one.node);
            [one.index, version, one.len, one.stored].into_iter().for_each(|n| put.u32(n));
            put.u64(one.sum);
            put.flag(one.has(is::SETTLED));
            out.push(Change::Put(key(family::BLOCK, u64::from(slot)), put.0.into()));
        }
    }

    /// All of them are to be written again.
    pub(crate) fn follow(&mut self) {
        (0..self.slots.len() as u32).for_each(|slot| self.change(slot));
    }

    /// Takes over a record; `None`: it is damaged.
    fn restore(&mut self, at: &[u8], value: &Bytes) -> Option<()> {
        let slot = u32::try_from(u64::from_be_bytes(at.get(1..9)?.try_into().ok()?)).ok()?;
        let mut get = code::Get(value);
        let (node, index, version) = (get.u64()?, get.u32()?, get.u32()?);
        let (len, stored, sum, is_settled) = (get.u32()?, get.u32()?, get.u64()?, get.flag()?);
        if len == 0 || len > stored || stored > KEPT_BLOCK_BYTES || slot >= KEPT_SLOTS_MAX {
            return None;
        }
        if slot as usize >= self.slots.len() {
            self.slots.resize(slot as usize + 1, Slot::default());
        }
        let settled = if is_settled { is::SETTLED } else { 0 };
        let is = is::KEPT | is::WRITTEN | is::FORCED | is::RECORDED | settled;
        self.last += 1;
        let number = self.last;
        *self.slot_mut(slot) = Slot { number, node, sum, index, len, stored, is };
        let file = self.files.entry(NodeId(node)).or_insert_with(|| File { version, ..File::default() });
        // Of versions that are void some records may be there still.
        if file.version < version {
            let void = std::mem::replace(file, File { version, ..File::default() });
            void.blocks.into_values().for_each(|slot| self.let_go(slot));
        } else if file.version > version {
            self.let_go(slot);
            return Some(());
        }
        if let Some(former) = self.files.get_mut(&NodeId(node))?.blocks.insert(index, slot) {
            self.let_go(former);
        }
        Some(())
    }
}

impl Machine {
    /// Takes over what the records say of blocks, once all objects are known.
    pub(crate) fn restore_blocks(&mut self, records: &BTreeMap<Vec<u8>, Bytes>) {
        let mut disk = Disk::default();
        for (at, value) in records.range(vec![family::BLOCK]..vec![family::BLOCK + 1]) {
            // What cannot be read is not there.
            let _ = disk.restore(at, value);
        }
        let files: Vec<NodeId> = disk.files.keys().copied().collect();
        for id in files {
            disk.sweep(id, self.nodes.get(&id).map(|node| node.data.kept.version));
        }
        let idle: Vec<u32> = (0..disk.slots.len() as u32).filter(|s| !disk.slot(*s).has(is::KEPT)).collect();
        // Until the records are as they are now, others may be there.
        disk.leaving.clear();
        disk.free.clear();
        disk.left = idle;
        self.disk = Some(Box::new(disk)).filter(|disk| !disk.slots.is_empty());
    }
}
