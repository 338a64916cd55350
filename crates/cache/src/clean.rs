//! Small files whole, as the server has them: what was written here and has gone out, and what was read. While a promise
//! covers a file it is read from here without a question. The kernel keeps pages too, but not the last one of a file that
//! was written through it. It is handed what it has not, when the file is opened to be read and when that goes to make
//! room (`stores.rs`).

use std::collections::VecDeque;

use bytes::Bytes;
use holdfast_base::limits::SMALL_FILE_BYTES;
use rustc_hash::FxHashMap;

use crate::ask::Generation;
use crate::extent::Piece;
use crate::ids::{Handle, NodeId};
use crate::machine::Machine;
use crate::node::Node;
use crate::tell::Whole;
use holdfast_base::CapSet;

/// What a file weighs beside its bytes.
pub(crate) const OVERHEAD: usize = 200;

/// Where what is kept of a file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was written here. The kernel may not have all of it.
    Written,
    /// It was brought before anybody read it: the kernel has none of it.
    Brought,
    /// The kernel has read it, or was given it.
    Read,
}

#[derive(Debug)]
struct File {
    number: u64,
    data: Bytes,
    origin: Origin,
}

/// Files kept, the oldest of which goes first when there are too many.
#[derive(Debug, Default)]
pub(crate) struct Clean {
    files: FxHashMap<NodeId, File>,
    order: VecDeque<(u64, NodeId)>,
    weight: usize,
    last: u64,
}

impl Clean {
    fn put(&mut self, id: NodeId, data: Bytes, origin: Origin) -> u64 {
        self.remove(id);
        self.last += 1;
        self.weight += data.len() + OVERHEAD;
        self.files.insert(id, File { number: self.last, data, origin });
        self.order.push_back((self.last, id));
        self.last
    }

    /// What has to go for no more than this to be kept; of it what the kernel has not read.
    fn make_room(&mut self, most: usize) -> Vec<(NodeId, Whole)> {
        let mut victims = Vec::new();
        while self.weight > most {
            let Some((number, id)) = self.order.pop_front() else { break };
            if self.files.get(&id).is_none_or(|file| file.number != number) {
                continue;
            }
            if let Some(File { number, data, origin: Origin::Written }) = self.remove(id) {
                victims.push((id, Whole { number, data }));
            }
        }
        if self.order.len() > 2 * self.files.len() + 1024 {
            let files = &self.files;
            self.order.retain(|(number, id)| files.get(id).is_some_and(|file| file.number == *number));
        }
        victims
    }

    pub(crate) fn forget(&mut self, id: NodeId) {
        self.remove(id);
    }

    fn remove(&mut self, id: NodeId) -> Option<File> {
        let file = self.files.remove(&id)?;
        self.weight -= file.data.len() + OVERHEAD;
        Some(file)
    }

    fn get(&self, id: NodeId, number: u64) -> Option<&Bytes> {
        self.files.get(&id).filter(|file| file.number == number).map(|file| &file.data)
    }

    /// The kernel has read of a file, and keeps what it has read: with the pages that it kept before all there is, as a rule.
    pub(crate) fn was_read(&mut self, id: NodeId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.origin = Origin::Read;
        }
    }

    /// It was not given it after all.
    pub(crate) fn was_not_taken(&mut self, id: NodeId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.origin = Origin::Written;
        }
    }

    /// What is kept of a file, unless the kernel has it.
    pub(crate) fn not_read(&self, id: NodeId) -> Option<Whole> {
        let file = self.files.get(&id).filter(|file| file.origin != Origin::Read)?;
        Some(Whole { number: file.number, data: file.data.clone() })
    }
}

impl Node {
    /// These kinds are not guaranteed any more, and data that is asked for at this moment or was before may not be what
    /// the file holds later.
    pub(crate) fn doubt(&mut self, kinds: CapSet, at: Generation) {
        self.sure = self.sure.without(kinds);
        if let Some(hidden) = self.hidden.as_mut().filter(|_| kinds.contains(CapSet::LINK_S)) {
            hidden.is_only_name = false;
        }
        if kinds.contains(CapSet::FILE_S) {
            self.data.differs(at);
            let change = self.known_change();
            self.data.kept.doubt(change);
        }
    }

    /// Whether what was asked for at this moment is what the server has now, and nothing is under way that it does not know.
    fn has_brought(&self, at: Generation) -> bool {
        let is_covered =
            self.data.readable_since < at && self.data.differs_since < at && self.data.moved < at;
        is_covered && self.pending == 0 && self.changing == 0 && self.data.extents.is_empty()
    }

    /// Whether the server's data may be kept as the file's.
    fn may_keep(&self, size: usize, most: u64) -> bool {
        self.sure.contains(CapSet::FILE_S)
            && self.changing == 0
            && size as u64 == self.attrs.size
            && size > 0
            && self.attrs.size <= most
    }
}

impl Machine {
    /// Keeps the data of a file that has just been sent with a mutation, if that was all of it.
    pub(crate) fn keep_sent(&mut self, id: NodeId, carried: &[Piece]) {
        let (first, rest) = match carried.split_first() {
            Some((first, rest)) if first.offset == 0 => (first, rest),
            _ => return,
        };
        let mut end = first.end();
        for piece in rest {
            if piece.offset != end {
                return;
            }
            end = piece.end();
        }
        let Some(node) = self.nodes.get(&id) else { return };
        let most = self.settings.whole_bytes_max;
        if !node.may_keep(usize::try_from(end).unwrap_or(usize::MAX), most) || !node.data.extents.is_empty() {
            return;
        }
        let whole = if rest.is_empty() {
            first.data.clone()
        } else {
            carried.iter().flat_map(|p| p.data.iter().copied()).collect()
        };
        self.keep_clean(id, whole, Origin::Written);
    }

    /// Keeps what was read of a file, whole or in blocks, if it was covered from the question to the answer.
    pub(crate) fn keep_read(
        &mut self,
        handle: &Handle,
        offset: u64,
        data: &Bytes,
        (at, origin): (Generation, Origin),
    ) {
        let Some(id) = self.handles.get(handle).copied() else { return };
        let Some(node) = self.nodes.get(&id).filter(|node| node.has_brought(at)) else { return };
        if offset == 0 && node.may_keep(data.len(), self.settings.whole_bytes_max) {
            // Out of the reply, which may be larger.
            self.keep_clean(id, Bytes::copy_from_slice(data), origin);
        } else {
            self.keep_blocks_read(id, offset, data);
        }
    }

    pub(crate) fn keep_clean(&mut self, id: NodeId, data: Bytes, origin: Origin) {
        let number = self.clean.put(id, data, origin);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.data.clean = Some(number);
        }
        self.make_room();
    }

    fn make_room(&mut self) {
        let victims = self.clean.make_room(self.settings.clean_bytes_max);
        self.hand_over(victims);
    }

    /// All of a small file, if it is known here, whether the server has it or not.
    pub(crate) fn known_whole(&self, id: NodeId) -> Option<Vec<u8>> {
        let node = self.nodes.get(&id).filter(|n| n.attrs.size <= SMALL_FILE_BYTES)?;
        if let Some(whole) = self.clean(id).or_else(|| self.grown(id)) {
            return Some(whole.to_vec());
        }
        let mut whole = Vec::new();
        for piece in node.data.extents.read(0, node.attrs.size, node.data.readable_since) {
            if piece.offset != whole.len() as u64 {
                return None;
            }
            whole.extend_from_slice(&piece.data);
        }
        (whole.len() as u64 == node.attrs.size).then_some(whole)
    }

    /// Keeps all of a file with what was just appended to it: past the kernel's pages nobody else does, once a part is sent.
    pub(crate) fn keep_appended(&mut self, id: NodeId, mut whole: Vec<u8>, data: &Bytes) {
        if (whole.len() + data.len()) as u64 > SMALL_FILE_BYTES {
            return;
        }
        whole.extend_from_slice(data);
        let number = self.clean.put(id, whole.into(), Origin::Written);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.data.grown = Some(number);
        }
        self.make_room();
    }

    /// All of a file as it is to be shown, if it is kept.
    pub(crate) fn grown(&self, id: NodeId) -> Option<&Bytes> {
        let node = self.nodes.get(&id)?;
        let data = self.clean.get(id, node.data.grown?)?;
        (data.len() as u64 == node.attrs.size).then_some(data)
    }

    /// All of a file, if it is kept and nothing is known that the server does not know.
    pub(crate) fn clean(&self, id: NodeId) -> Option<&Bytes> {
        let node = self.nodes.get(&id)?;
        let data = self.clean.get(id, node.data.clean?)?;
        let is_whole = node.data.extents.is_empty() && data.len() as u64 == node.attrs.size;
        is_whole.then_some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_when_there_is_too_much_and_the_sum_stays_right() {
        let mut clean = Clean::default();
        let piece = Bytes::from(vec![0; 1 << 20]);
        let put = |clean: &mut Clean, i, data: Bytes| {
            let number = clean.put(NodeId(i), data, Origin::Read);
            assert!(clean.make_room(64 << 20).is_empty(), "the kernel has it");
            number
        };
        let numbers: Vec<u64> = (0..100).map(|i| put(&mut clean, i, piece.clone())).collect();
        assert!(clean.weight <= 64 << 20);
        assert!(clean.get(NodeId(0), numbers[0]).is_none(), "the oldest");
        assert!(clean.get(NodeId(99), numbers[99]).is_some());
        for _ in 0..10_000 {
            put(&mut clean, 99, Bytes::from_static(b"x"));
        }
        assert!(clean.order.len() < 2_000, "what was replaced is not remembered for ever");
        let weight: usize = clean.files.values().map(|file| file.data.len() + OVERHEAD).sum();
        assert_eq!(weight, clean.weight);
    }
}
