//! What a file that is set apart has below what was written here: what the server had there, as far as that was kept on this
//! host. Of the rest nobody knows it any more; it is zeros, and told with its places. Nothing is read here: whoever compares
//! reads the blocks before, within bounds.

use bytes::Bytes;
use holdfast_base::limits::{MERGED_BYTES_MAX, MERGED_GAPS_TOLD};

use super::apart::is_about_data;
use crate::ask::Generation;
use crate::attrs::Kind;
use crate::disk::BlockAt;
use crate::errno::Errno;
use crate::extent::{Extents, Piece, Progress};
use crate::ids::NodeId;
use crate::machine::Machine;
use crate::node::Node;
use crate::tell::Reclaimed;

/// A block that was found on this host's disk.
#[derive(Clone, Debug)]
pub struct FoundBlock {
    /// Of which file.
    pub node: NodeId,
    /// What was asked for.
    pub at: BlockAt,
    /// Its bytes.
    pub data: Bytes,
}

/// What lies below what was written here of one file.
#[derive(Debug, Default)]
pub(crate) struct Below {
    /// The file is gone there: what was on its way to it may still have to be saved.
    pub(super) is_gone: bool,
    pieces: Vec<Piece>,
    /// From here on there are zeros, for the file ended here, or was cut off here.
    end: u64,
}

impl Machine {
    /// Blocks of files that are about to be set apart, by what the server has told: to be read, and handed to
    /// [`merge`](Self::merge). No more than [`MERGED_BYTES_MAX`] of them, small files' first, so that as many as possible are
    /// whole.
    #[must_use]
    pub fn blocks_below(&self, told: &[Reclaimed]) -> Vec<(NodeId, BlockAt)> {
        let of = |id| Some((id, self.kept_below(id)?.filter_map(|(at, data)| data.is_none().then_some(at))));
        let files = self.may_be_set_apart(told).into_iter().filter_map(|(id, _)| of(id));
        let mut files: Vec<(NodeId, Vec<BlockAt>)> =
            files.map(|(id, blocks)| (id, blocks.collect())).collect();
        files.sort_by_key(|(id, blocks)| (blocks.len(), id.0));
        let most = MERGED_BYTES_MAX / self.settings.block_bytes as usize;
        let blocks = files.into_iter().flat_map(|(id, blocks)| blocks.into_iter().map(move |at| (id, at)));
        blocks.take(most).collect()
    }

    /// Files that were changed here, and are changed or gone there: and whether they are gone.
    fn may_be_set_apart(&self, told: &[Reclaimed]) -> Vec<(NodeId, bool)> {
        let is_one = |told: &Reclaimed| {
            let node = self.nodes.get(self.handles.get(&told.handle)?)?;
            let is_other = match &told.result {
                Ok((attrs, _)) => node.is_changed_there(attrs),
                Err(errno) => matches!(*errno, Errno::ESTALE | Errno::ENOENT),
            };
            let is_file = node.attrs.kind == Kind::File && node.dead.is_none();
            (is_file && is_other && self.is_changed_here(node)).then_some((node.id, told.result.is_err()))
        };
        told.iter().filter_map(is_one).collect()
    }

    /// Whether contents of it were changed here that the server may not have, on their way or not.
    fn is_changed_here(&self, node: &Node) -> bool {
        node.has_unsent(Generation(u64::MAX))
            || self.ops_about(node.id).iter().any(|(_, op)| is_about_data(op))
    }

    /// Blocks of a file that fill gaps between what was written here, each with its bytes where those are in memory still.
    fn kept_below(&self, id: NodeId) -> Option<impl Iterator<Item = (BlockAt, Option<Bytes>)>> {
        let node = self.nodes.get(&id).filter(|node| node.counts_blocks())?;
        let size = u64::from(self.settings.block_bytes);
        let is_wanted = move |(at, _): &(BlockAt, Option<Bytes>)| {
            let from = u64::from(at.index) * size;
            !node.data.extents.gaps((from, from + size), node.data.readable_since).is_empty()
        };
        let blocks = self.disk.as_ref()?.kept_of(id, node.data.kept.version);
        Some(blocks.into_iter().filter(is_wanted))
    }

    /// Notes what lies below, while it is known: deciding what becomes of a file makes what was kept of it void.
    pub(super) fn note_below(&mut self, told: &[Reclaimed], found: Vec<FoundBlock>) {
        let files = self.may_be_set_apart(told);
        let mut blocks: rustc_hash::FxHashMap<NodeId, Vec<FoundBlock>> = Default::default();
        for block in found {
            blocks.entry(block.node).or_default().push(block);
        }
        let below = |(id, is_gone)| {
            let found = blocks.remove(&id).unwrap_or_default();
            (id, Below { is_gone, ..self.below(id, &found) })
        };
        let noted: Vec<_> = files.into_iter().map(below).collect();
        if let Some(journal) = &mut self.journal {
            journal.below.extend(noted);
        }
    }

    fn below(&self, id: NodeId, found: &[FoundBlock]) -> Below {
        let Some(node) = self.nodes.get(&id) else { return Below::default() };
        let end = node.attrs.size.min(self.zeros_from(node));
        if let Some(whole) = self.clean(id).or_else(|| self.grown(id)) {
            return Below { is_gone: false, pieces: vec![Piece { offset: 0, data: whole.clone() }], end };
        }
        let size = u64::from(self.settings.block_bytes);
        let piece = |(at, data): (BlockAt, Option<Bytes>)| {
            let same = |block: &&FoundBlock| block.at.number == at.number;
            let data = data.or_else(|| Some(found.iter().find(same)?.data.clone()))?;
            let offset = u64::from(at.index) * size;
            let most = end.saturating_sub(offset).min(size) as usize;
            let mut data = data.get(..at.len as usize).map(|_| data.slice(..(at.len as usize).min(most)))?;
            if data.len() < most {
                // The file ended within it, and has got longer here alone.
                let mut longer = data.to_vec();
                longer.resize(most, 0);
                data = longer.into();
            }
            (!data.is_empty()).then_some(Piece { offset, data })
        };
        let pieces = self.kept_below(id).map(|blocks| blocks.filter_map(piece).collect());
        Below { is_gone: false, pieces: pieces.unwrap_or_default(), end }
    }

    /// From where on a file is zeros, but for what was written here.
    fn zeros_from(&self, node: &Node) -> u64 {
        let executed = self.stream.surely_executed().0;
        let cut = node.data.truncations.iter().filter(|(_, serial)| *serial > executed);
        // What was written here by WRITEs since may have made it longer there.
        let base = node.base.as_deref().filter(|_| node.data.clocked_since.is_none());
        let there = base.and_then(|base| base.size).unwrap_or(u64::MAX);
        cut.map(|(from, _)| *from).min().unwrap_or(u64::MAX).min(there)
    }

    /// What was noted, or is known now, of a file that is set apart.
    pub(super) fn take_below(&mut self, id: NodeId) -> Below {
        let noted = self.journal.as_mut().and_then(|journal| journal.below.remove(&id));
        noted.unwrap_or_else(|| self.below(id, &[]))
    }
}

impl Below {
    /// Puts it below what was written here. Says what is lost all the same, in words, or nothing.
    pub(super) fn put(&self, ours: &mut Extents, size: u64, born: Generation) -> Option<String> {
        for piece in &self.pieces {
            ours.put_below(piece.offset, &piece.data, Progress::Dirty, born);
        }
        let gaps = ours.gaps((0, self.end.min(size)), Generation(0));
        (!gaps.is_empty()).then(|| worded(&gaps, size))
    }
}

/// `of 90 bytes 26 are lost and are zeros: 16-31, 50-59`.
fn worded(gaps: &[(u64, u64)], size: u64) -> String {
    let lost: u64 = gaps.iter().map(|(from, to)| to - from).sum();
    let mut places: Vec<_> =
        gaps.iter().take(MERGED_GAPS_TOLD).map(|(from, to)| format!("{from}-{}", to - 1)).collect();
    if let Some(more) = gaps.len().checked_sub(MERGED_GAPS_TOLD).filter(|more| *more > 0) {
        places.push(format!("and {more} more"));
    }
    format!("of {size} bytes {lost} are lost and are zeros: {}", places.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_told_with_its_places_and_how_much_it_is() {
        assert_eq!(worded(&[(16, 32), (50, 60)], 90), "of 90 bytes 26 are lost and are zeros: 16-31, 50-59");
        let many: Vec<_> = (0..100).map(|n| (n * 10, n * 10 + 1)).collect();
        let told = worded(&many, 1000);
        assert!(told.starts_with("of 1000 bytes 100 are lost and are zeros: 0-0, 10-10"), "{told}");
        assert!(told.ends_with(&format!(", and {} more", 100 - MERGED_GAPS_TOLD)), "{told}");
    }
}
