//! The content of a regular file: blocks that were written, blocks that are only reserved, and holes between.
//! Space is charged by the caller beforehand; nothing here can fail.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::error::{FsError, FsResult};
use crate::open::Seek;

/// Bytes of one block.
pub(super) const BLOCK: u64 = 4096;
const BLOCK_LEN: usize = BLOCK as usize;

type Written = Box<[u8; BLOCK_LEN]>;

/// A sparse file. A block that is present but `None` is reserved: it counts as space and reads as zeros.
#[derive(Clone, Default)]
pub(super) struct Blocks {
    size: u64,
    blocks: BTreeMap<u64, Option<Written>>,
}

/// The part of one block that a range covers.
struct Piece {
    block: u64,
    start: usize,
    end: usize,
}

impl Piece {
    fn is_whole(&self) -> bool {
        self.start == 0 && self.end == BLOCK_LEN
    }
}

fn pieces(offset: u64, bytes: u64) -> impl Iterator<Item = Piece> {
    let end = offset.saturating_add(bytes);
    let blocks = if bytes == 0 { 0..0 } else { offset / BLOCK..end.div_ceil(BLOCK) };
    blocks.map(move |block| {
        let base = block * BLOCK;
        Piece { block, start: offset.saturating_sub(base) as usize, end: (end - base).min(BLOCK) as usize }
    })
}

impl Blocks {
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Blocks that count as space.
    pub(super) fn held(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Blocks of a range that are not there yet.
    pub(super) fn missing(&self, offset: u64, bytes: u64) -> u64 {
        if bytes == 0 {
            return 0;
        }
        let (first, end) = (offset / BLOCK, offset.saturating_add(bytes).div_ceil(BLOCK));
        end - first - self.blocks.range(first..end).count() as u64
    }

    /// How many bytes at `offset` can be written with `budget` more blocks.
    pub(super) fn fitting(&self, offset: u64, bytes: u64, budget: u64) -> u64 {
        let (mut left, mut fits) = (budget, 0);
        for piece in pieces(offset, bytes) {
            if !self.blocks.contains_key(&piece.block) {
                if left == 0 {
                    break;
                }
                left -= 1;
            }
            fits += (piece.end - piece.start) as u64;
        }
        fits
    }

    /// Reads into `into`; returns how many bytes the file had there.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let bytes = self.size.saturating_sub(offset).min(into.len() as u64);
        let mut rest = &mut into[..bytes as usize];
        for piece in pieces(offset, bytes) {
            let (head, tail) = rest.split_at_mut(piece.end - piece.start);
            match self.blocks.get(&piece.block) {
                Some(Some(data)) => head.copy_from_slice(&data[piece.start..piece.end]),
                Some(None) | None => head.fill(0),
            }
            rest = tail;
        }
        bytes as usize
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut rest = data;
        for piece in pieces(offset, data.len() as u64) {
            let (head, tail) = rest.split_at(piece.end - piece.start);
            let block = self.blocks.entry(piece.block).or_default();
            block.get_or_insert_with(|| Box::new([0; BLOCK_LEN]))[piece.start..piece.end]
                .copy_from_slice(head);
            rest = tail;
        }
        if !data.is_empty() {
            self.size = self.size.max(offset.saturating_add(data.len() as u64));
        }
    }

    /// Cuts or extends; returns how many blocks were freed.
    pub(super) fn set_size(&mut self, size: u64) -> u64 {
        let held = self.held();
        if size < self.size {
            self.blocks.split_off(&size.div_ceil(BLOCK));
            // What is cut must read as zeros when the file grows again.
            if let Some(Some(data)) = self.blocks.get_mut(&(size / BLOCK)) {
                data[(size % BLOCK) as usize..].fill(0);
            }
        }
        self.size = size;
        held - self.held()
    }

    pub(super) fn reserve(&mut self, offset: u64, bytes: u64) {
        for piece in pieces(offset, bytes) {
            self.blocks.entry(piece.block).or_default();
        }
    }

    pub(super) fn extend_to(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// Frees whole blocks and zeroes the rest; returns how many were freed.
    pub(super) fn punch(&mut self, offset: u64, bytes: u64) -> u64 {
        let held = self.held();
        let end = offset.saturating_add(bytes);
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        let there: Vec<u64> = self.blocks.range(first..last.max(first)).map(|(&b, _)| b).collect();
        for block in there {
            let base = block * BLOCK;
            let start = offset.saturating_sub(base) as usize;
            let piece = Piece { block, start, end: (end - base).min(BLOCK) as usize };
            self.clear(&piece, false);
        }
        held - self.held()
    }

    /// Makes a range read as zeros, keeping its space.
    pub(super) fn zero(&mut self, offset: u64, bytes: u64) {
        for piece in pieces(offset, bytes) {
            self.clear(&piece, true);
            self.blocks.entry(piece.block).or_default();
        }
    }

    fn clear(&mut self, piece: &Piece, keeps_space: bool) {
        let Entry::Occupied(mut entry) = self.blocks.entry(piece.block) else { return };
        if !piece.is_whole() {
            if let Some(data) = entry.get_mut() {
                data[piece.start..piece.end].fill(0);
            }
        } else if keeps_space {
            *entry.get_mut() = None;
        } else {
            entry.remove();
        }
    }

    /// The next data or hole. What is only reserved counts as a hole, as unwritten extents do.
    pub(super) fn seek(&self, offset: u64, what: Seek) -> FsResult<u64> {
        if offset >= self.size {
            return Err(FsError::NoDevice);
        }
        let first = offset / BLOCK;
        let mut written =
            self.blocks.range(first..).filter(|(_, data)| data.is_some()).map(|(&block, _)| block);
        match what {
            Seek::Data => {
                let at = written.next().ok_or(FsError::NoDevice)?.saturating_mul(BLOCK).max(offset);
                if at < self.size { Ok(at) } else { Err(FsError::NoDevice) }
            }
            Seek::Hole => {
                let mut hole = first;
                while written.next() == Some(hole) {
                    hole += 1;
                }
                Ok(hole.saturating_mul(BLOCK).clamp(offset, self.size))
            }
        }
    }

    /// Whether a whole block was never written.
    pub(super) fn is_hole(&self, block: u64) -> bool {
        !matches!(self.blocks.get(&block), Some(Some(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_reads_as_zeros_after_growing_again() {
        let mut b = Blocks::default();
        b.write(4000, &[7; 200]);
        assert_eq!(b.held(), 2);
        assert_eq!(b.set_size(4050), 1);
        b.set_size(5000);
        let mut out = [9; 1000];
        assert_eq!(b.read(4000, &mut out), 1000);
        assert_eq!(out[..50], [7; 50]);
        assert_eq!(out[50..], [0; 950]);
    }

    #[test]
    fn seek_tells_data_from_holes_and_from_reserved_space() {
        let mut b = Blocks::default();
        b.set_size(5 * BLOCK);
        b.write(2 * BLOCK + 10, b"x");
        b.reserve(3 * BLOCK, BLOCK);
        assert_eq!(b.seek(0, Seek::Data), Ok(2 * BLOCK));
        assert_eq!(b.seek(2 * BLOCK + 5, Seek::Data), Ok(2 * BLOCK + 5));
        assert_eq!(b.seek(3 * BLOCK, Seek::Data), Err(FsError::NoDevice));
        assert_eq!(b.seek(0, Seek::Hole), Ok(0));
        assert_eq!(b.seek(2 * BLOCK, Seek::Hole), Ok(3 * BLOCK));
        assert_eq!(b.seek(5 * BLOCK, Seek::Hole), Err(FsError::NoDevice));
        b.write(4 * BLOCK, &[1; 10]);
        b.set_size(4 * BLOCK + 10);
        assert_eq!(b.seek(4 * BLOCK + 1, Seek::Hole), Ok(4 * BLOCK + 10));
    }

    #[test]
    fn punching_frees_whole_blocks_only() {
        let mut b = Blocks::default();
        b.write(0, &[1; 3 * BLOCK as usize]);
        assert_eq!(b.punch(10, 2 * BLOCK), 1);
        let mut out = vec![9; 3 * BLOCK as usize];
        b.read(0, &mut out);
        let end = 2 * BLOCK as usize + 10;
        assert!(out[..10].iter().chain(&out[end..]).all(|&x| x == 1));
        assert!(out[10..end].iter().all(|&x| x == 0));
    }

    #[test]
    fn a_budget_of_blocks_says_how_much_fits() {
        let mut b = Blocks::default();
        b.write(BLOCK, b"x");
        assert_eq!(b.fitting(10, 3 * BLOCK, 1), 2 * BLOCK - 10);
        assert_eq!(b.fitting(BLOCK, BLOCK, 0), BLOCK);
        assert_eq!(b.missing(10, 3 * BLOCK), 3);
        assert_eq!(b.missing(u64::MAX - 1, 1), 1);
    }
}
