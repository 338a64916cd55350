//! When blocks on this host's disk count as what the server has of a file, below what was written here and is not there yet.
//!
//! They come from what was read and written under a promise, count while the file's data is sure, and are void as soon as it
//! may be other than it was: what was done to it meanwhile nobody knows. Where nothing was changed here since the server told
//! its change attribute, they count again when it tells the same.

use bytes::Bytes;
use holdfast_base::CapSet;
use holdfast_base::limits::KEPT_READ_BLOCKS_MAX;

use super::{BlockAt, BlockOut, Disk, is};
use crate::ask::Question;
use crate::extent::Piece;
use crate::ids::{Handle, NodeId};
use crate::machine::Machine;
use crate::node::Node;
use crate::step::{Outcome, Turn};

/// Which of a file's blocks count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validity {
    /// Those of this version alone: it grows when they are void.
    pub(crate) version: u32,
    /// They count if this is its change attribute.
    pub(crate) doubted: Option<u64>,
}

/// A file that the server is to put on its disk (COMMIT): what was read of it counts after a crash of the server as well, if
/// nobody has changed it meanwhile. Whatever comes of it, [`Machine::settled_blocks`] is to be told.
#[derive(Clone, Debug, PartialEq)]
pub struct Settling {
    /// The file.
    pub object: Handle,
    id: NodeId,
    version: u32,
    through: u64,
}

impl Validity {
    /// None of them counts any more.
    pub(crate) const fn void(&mut self) {
        self.version += 1;
        self.doubted = None;
    }

    /// Nobody watches the file any more, which had this change attribute, if that is known.
    pub(crate) fn doubt(&mut self, change: Option<u64>) {
        match (self.doubted, change) {
            (Some(_), _) => {}
            (None, Some(change)) => self.doubted = Some(change),
            (None, None) => self.void(),
        }
    }

    /// The file is watched from now on, and has this change attribute.
    pub(crate) fn learn(&mut self, change: u64) {
        if self.doubted.take() != Some(change) {
            self.void();
        }
    }
}

impl Node {
    /// Whether the blocks that are kept of its contents are what the server has.
    pub(crate) fn counts_blocks(&self) -> bool {
        self.sure.contains(CapSet::FILE_S) && self.data.kept.doubted.is_none()
    }

    /// The change attribute by which it may be told later that nothing has happened to it.
    pub(crate) fn known_change(&self) -> Option<u64> {
        Some(self.attrs.change).filter(|change| self.is_theirs && *change != 0)
    }

    /// What lies between what was written here: below that a block has what was before it, and it may reach the server, and be
    /// forgotten here, while a reader of the block still asks for others.
    fn not_written_here(&self, block: &Piece) -> Vec<Piece> {
        let mut at = block.offset;
        let mut between = Vec::new();
        let mut written = self.data.extents.read(at, block.end(), self.data.readable_since);
        written.push(Piece { offset: block.end(), data: Bytes::new() });
        for piece in written {
            if at < piece.offset {
                let (from, to) = ((at - block.offset) as usize, (piece.offset - block.offset) as usize);
                between.push(Piece { offset: at, data: block.data.slice(from..to) });
            }
            at = piece.end();
        }
        between
    }
}

impl Machine {
    /// From now on contents of files are kept on this host's disk, in so many slots; none: no more, and what is there does not
    /// count. Needs [`follow`](Self::follow).
    pub fn keep_blocks(&mut self, slots: u32) {
        if slots > 0 {
            self.disk.get_or_insert_default().resize(slots);
            return;
        }
        if let Some(disk) = &mut self.disk {
            // Their records still go with the next delta.
            disk.resize(0);
            disk.out.clear();
        }
    }

    /// Blocks to be written, in this order.
    pub fn take_blocks(&mut self) -> Vec<BlockOut> {
        self.disk.as_mut().map(|disk| disk.out.drain(..).collect()).unwrap_or_default()
    }

    /// What has become of one: the sum of its bytes; `None`: it could not be made.
    pub fn block_written(&mut self, number: u64, sum: Option<u64>) {
        if let Some(disk) = &mut self.disk {
            disk.written(number, sum);
        }
    }

    /// All that was told as written up to this number would be there after a crash.
    pub fn blocks_forced(&mut self, through: u64) {
        if let Some(disk) = &mut self.disk {
            disk.forced(through);
        }
    }

    /// The next file that the server is to be asked to put on its disk.
    pub fn take_settling(&mut self) -> Option<Settling> {
        let disk = self.disk.as_mut().filter(|_| !self.stream.is_held)?;
        while let Some(id) = disk.settling.pop_front() {
            let Some(file) = disk.files.get_mut(&id) else { continue };
            file.is_settling = false;
            let (version, through) = (file.version, disk.last);
            let Some(node) = self.nodes.get(&id).filter(|n| n.data.kept.version == version) else { continue };
            let Some(object) = node.handle.clone().filter(|_| node.counts_blocks()) else { continue };
            return Some(Settling { object, id, version, through });
        }
        None
    }

    /// What came of it.
    pub fn settled_blocks(&mut self, out: &Settling, is_done: bool) {
        let Some(node) = self.nodes.get(&out.id).filter(|_| is_done) else { return };
        let is_same = node.data.kept.version == out.version && node.counts_blocks();
        let Some(disk) = self.disk.as_mut().filter(|_| is_same) else { return };
        let Some(file) = disk.files.get(&out.id).filter(|file| file.version == out.version) else { return };
        let slots: Vec<u32> = file.blocks.values().copied().collect();
        for slot in slots {
            let one = disk.slot_mut(slot);
            if one.number <= out.through && !one.has(is::SETTLED) {
                one.set(is::SETTLED, true);
                disk.change(slot);
            }
        }
    }

    /// The server may have lost what was not on its disk: what was read of that does not count.
    pub(crate) fn drop_unsettled(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        let lost = |slot: &&super::Slot| slot.has(is::KEPT) && !slot.has(is::SETTLED);
        let lost: Vec<_> =
            disk.slots.iter().filter(lost).map(|slot| (NodeId(slot.node), slot.index)).collect();
        lost.into_iter().for_each(|(id, index)| disk.drop_block(id, index));
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.settings.block_bytes)
    }

    /// The block in which a place of a file is; none so far out that there are none.
    fn block_of(&self, at: u64) -> Option<u32> {
        u32::try_from(at / self.block_bytes()).ok().filter(|index| *index < u32::MAX)
    }

    /// Keeps blocks of what was read of a file, as the server has it, and was covered from the question to the answer.
    pub(crate) fn keep_blocks_read(&mut self, id: NodeId, offset: u64, data: &Bytes) {
        let size = self.block_bytes();
        let Some(node) = self.nodes.get(&id) else { return };
        let (end, version) = (node.attrs.size, node.data.kept.version);
        if end <= self.settings.whole_bytes_max || !node.counts_blocks() || !node.data.truncations.is_empty()
        {
            return;
        }
        let read_to = offset.saturating_add(data.len() as u64);
        let Some(mut at) = offset.checked_next_multiple_of(size) else { return };
        while at < read_to && (at + size <= read_to || read_to == end) {
            let Some(index) = self.block_of(at) else { return };
            let Some(disk) = &mut self.disk else { return };
            let to = read_to.min(at + size);
            let had = disk.find(id, version, index).map(|slot| disk.slot(slot).len);
            // One that ends where it did has not been cut off, or written behind.
            if had.is_none_or(|len| u64::from(len) < to - at) {
                let part = data.slice((at - offset) as usize..(to - offset) as usize);
                disk.write((id, version), index, (None, 0, part), false);
            }
            at = to;
        }
    }

    /// The server has what was written here: so do the blocks.
    pub(crate) fn patch_blocks(&mut self, id: NodeId, pieces: &[Piece]) {
        let size = self.block_bytes();
        let Some(node) = self.nodes.get(&id) else { return };
        let (end, version) = (node.attrs.size, node.data.kept.version);
        if !node.counts_blocks() {
            // Whatever is there is not what it was.
            return self.void_blocks(id);
        }
        let is_small = end <= self.settings.whole_bytes_max;
        for piece in pieces {
            let mut at = piece.offset;
            while at < piece.end() {
                let (begin, index) = (at - at % size, self.block_of(at));
                let (Some(index), Some(disk)) = (index, &mut self.disk) else { return };
                let to = piece.end().min(begin + size);
                let part = piece.data.slice((at - piece.offset) as usize..(to - piece.offset) as usize);
                let is_whole = at == begin && (to == begin + size || to == end);
                if is_whole && !is_small {
                    disk.write((id, version), index, (None, 0, part), true);
                } else {
                    disk.patch((id, version), index, ((at - begin) as u32, part));
                }
                at = to;
            }
        }
    }

    /// A file was cut off: what is behind its end is nothing.
    pub(crate) fn cut_blocks(&mut self, id: NodeId, end: u64) {
        let size = self.block_bytes();
        let (Some(from), Some(disk)) = (self.block_of(end), &mut self.disk) else { return };
        let Some(file) = disk.files.get(&id) else { return };
        let behind: Vec<_> = file.blocks.range(from..).map(|(index, slot)| (*index, *slot)).collect();
        for (index, slot) in behind {
            let left = end.saturating_sub(u64::from(index) * size).min(size) as u32;
            if left == 0 {
                disk.drop_block(id, index);
            } else if left < disk.slot(slot).len {
                disk.slot_mut(slot).len = left;
                disk.change(slot);
            }
        }
    }

    /// What is kept of a file's contents is not what it has.
    pub(crate) fn void_blocks(&mut self, id: NodeId) {
        if !self.disk.as_ref().is_some_and(|disk| disk.files.contains_key(&id)) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(&id) {
            node.data.kept.void();
        }
        if let Some(disk) = &mut self.disk {
            disk.forget(id);
        }
    }

    /// What is kept of a file's contents from a place on, within what the server has of it: some of the range's beginning, or
    /// nothing. Asks the disk.
    pub(crate) fn kept_part(
        &mut self,
        turn: &Turn,
        id: NodeId,
        (from, to): (u64, u64),
    ) -> Outcome<Option<Bytes>> {
        let size = self.block_bytes();
        let Some(node) = self.nodes.get(&id).filter(|node| node.counts_blocks()) else { return Ok(None) };
        let version = node.data.kept.version;
        let (Some(index), Some(disk)) = (self.block_of(from), &mut self.disk) else { return Ok(None) };
        let within = (from % size) as u32;
        let Some(slot) = disk.find(id, version, index) else { return Ok(None) };
        disk.slot_mut(slot).set(is::USED, true);
        let one = *disk.slot(slot);
        if within >= one.len {
            // The file ended there, and has got longer here alone.
            let zeros = (to - from).min(size - u64::from(within)) as usize;
            return Ok(Some(Bytes::from(vec![0; zeros])));
        }
        let most = (one.len - within).min(u32::try_from(to - from).unwrap_or(u32::MAX)) as usize;
        if let Some(pending) = disk.pending.get(&one.number) {
            let part = || pending.data.slice(within as usize..within as usize + most);
            return Ok(pending.is_whole.then(part));
        }
        let blocks = disk.run(id, version, index, to.div_ceil(size));
        self.stats.blocks_read += blocks.len() as u64;
        self.ask(turn, Question::Blocks { node: id, blocks })
    }

    /// What is to be asked of the server for a range of which nothing is here: whole blocks, where those can be kept.
    pub(crate) fn to_be_read(&self, id: NodeId, (from, to): (u64, u64)) -> (u64, u64) {
        let size = self.block_bytes();
        let to = self.next_kept(id, from).map_or(to, |next| next.min(to));
        let is_plain =
            |n: &Node| n.pending == 0 && n.data.extents.is_empty() && n.data.truncations.is_empty();
        let is_wide = self.disk.is_some() && size <= u64::from(self.settings.io_bytes);
        let Some(node) = self.nodes.get(&id).filter(|node| is_wide && is_plain(node)) else {
            return (from, to - from);
        };
        if node.attrs.size <= self.settings.whole_bytes_max {
            return (from, to - from);
        }
        let begin = from - from % size;
        let end = to.checked_next_multiple_of(size).unwrap_or(to).min(node.attrs.size).max(to);
        (begin, end - begin)
    }

    /// Where the next block begins that is kept of a file, behind a place at which none is.
    pub(crate) fn next_kept(&self, id: NodeId, from: u64) -> Option<u64> {
        let node = self.nodes.get(&id).filter(|node| node.counts_blocks())?;
        let file = self.disk.as_ref()?.files.get(&id)?;
        let file = Some(file).filter(|file| file.version == node.data.kept.version)?;
        let index = self.block_of(from)? + 1;
        let next = file.blocks.range(index..).next()?;
        Some(u64::from(*next.0) * self.block_bytes())
    }

    /// What was found of blocks that were asked for: of what still counts, the bytes; what is not there any more goes.
    pub(crate) fn absorb_blocks(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        asked: &[BlockAt],
        found: Vec<Option<Bytes>>,
    ) {
        let size = self.block_bytes();
        let Some(node) = self.nodes.get(&id) else { return };
        let (version, counts) = (node.data.kept.version, node.counts_blocks());
        let Some(disk) = &mut self.disk else { return };
        for (block, data) in asked.iter().zip(found.into_iter().chain(std::iter::repeat(None))) {
            let is_it = |slot: &u32| disk.slot(*slot).number == block.number;
            let Some(slot) = disk.find(id, version, block.index).filter(is_it) else { continue };
            let len = disk.slot(slot).len as usize;
            match data.filter(|data| data.len() >= len) {
                Some(data) if counts => {
                    let piece = Piece { offset: u64::from(block.index) * size, data: data.slice(..len) };
                    turn.pieces.extend(node.not_written_here(&piece));
                }
                Some(_) => {}
                None => {
                    self.stats.blocks_lost += 1;
                    disk.drop_block(id, block.index);
                }
            }
        }
    }
}

impl Disk {
    /// Blocks of a file that can be had, each with its bytes where they are not on the disk yet.
    pub(crate) fn kept_of(&self, id: NodeId, version: u32) -> Vec<(BlockAt, Option<Bytes>)> {
        let Some(file) = self.files.get(&id).filter(|file| file.version == version) else {
            return Vec::new();
        };
        let block = |slot: &u32| match self.pending.get(&self.slot(*slot).number) {
            Some(pending) => pending.is_whole.then(|| (self.at(*slot), Some(pending.data.clone()))),
            None => self.slot(*slot).has(is::WRITTEN).then(|| (self.at(*slot), None)),
        };
        file.blocks.values().filter_map(block).collect()
    }

    /// Blocks that are on the disk one behind the other, from this one on and before that.
    fn run(&mut self, id: NodeId, version: u32, first: u32, end: u64) -> Vec<BlockAt> {
        let mut blocks = Vec::new();
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        for index in (first..end).take(KEPT_READ_BLOCKS_MAX) {
            let Some(slot) = self.find(id, version, index).filter(|slot| self.slot(*slot).has(is::WRITTEN))
            else {
                break;
            };
            self.slot_mut(slot).set(is::USED, true);
            blocks.push(self.at(slot));
        }
        blocks
    }
}
