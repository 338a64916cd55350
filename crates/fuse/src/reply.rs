//! Where a file system puts data and listings: straight into what the kernel will copy.

use std::io::IoSlice;
use std::ops::Range;

use bytes::Bytes;
use holdfast_base::limits::FUSE_REPLY_PARTS_MAX;

use crate::abi::encode;
use crate::types::{Entry, EntryKind, NodeId};

/// Zeros to send from.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

enum Part {
    Shared(Bytes),
    Own(Range<usize>),
    Zeros(usize),
}

/// Takes what a READ answers, as pieces that are handed to the kernel without being copied.
#[derive(Default)]
pub struct DataSink {
    parts: Vec<Part>,
    bytes: usize,
    bytes_max: usize,
    /// Memory for pieces that a file system reads or copies; kept from one READ to the next.
    own: Vec<u8>,
    own_used: usize,
    tells: bool,
}

impl DataSink {
    /// An empty one that takes so many bytes.
    #[must_use]
    pub fn with_room(bytes_max: usize) -> Self {
        Self { bytes_max, ..Self::default() }
    }

    /// Makes it empty, keeping its memory.
    pub(crate) fn reset(&mut self, bytes_max: usize) {
        self.parts.clear();
        (self.bytes, self.bytes_max, self.own_used, self.tells) = (0, bytes_max, 0, false);
    }

    /// Has [`Filesystem::taken`](crate::Filesystem::taken) called when the kernel has taken what is given here.
    pub const fn tell_when_taken(&mut self) {
        self.tells = true;
    }

    pub(crate) const fn tells(&self) -> bool {
        self.tells
    }

    /// Bytes taken so far.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that can still be taken.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.bytes_max - self.bytes
    }

    /// Takes shared memory, without copying it; what does not fit is left.
    pub fn push(&mut self, mut piece: Bytes) {
        piece.truncate(self.room());
        if piece.is_empty() {
            return;
        }
        // The kernel takes no more pieces in one call.
        if self.parts.len() >= FUSE_REPLY_PARTS_MAX {
            return self.copy(&piece);
        }
        self.bytes += piece.len();
        self.parts.push(Part::Shared(piece));
    }

    /// Takes so many zeros, as a hole reads.
    pub fn zeros(&mut self, count: usize) {
        let count = count.min(self.room());
        let is_full = self.parts.len() >= FUSE_REPLY_PARTS_MAX;
        match self.parts.last_mut() {
            _ if count == 0 => {}
            Some(Part::Zeros(before)) => {
                *before += count;
                self.bytes += count;
            }
            _ if is_full => self.fill(count, |into| {
                into.fill(0);
                into.len()
            }),
            _ => {
                self.parts.push(Part::Zeros(count));
                self.bytes += count;
            }
        }
    }

    /// Copies a piece; what does not fit is left.
    pub fn copy(&mut self, piece: &[u8]) {
        let piece = piece.get(..self.room()).unwrap_or(piece);
        self.fill(piece.len(), |into| {
            into.copy_from_slice(piece);
            piece.len()
        });
    }

    /// Has up to `count` bytes (cut to the room) written into memory of the sink's own; `fill` answers how many it
    /// wrote.
    pub fn fill(&mut self, count: usize, fill: impl FnOnce(&mut [u8]) -> usize) {
        let start = self.own_used;
        let end = start + count.min(self.room());
        if self.own.len() < end {
            self.own.resize(end, 0);
        }
        let Some(into) = self.own.get_mut(start..end) else { return };
        let written = fill(into).min(end - start);
        self.own_used = start + written;
        self.bytes += written;
        match self.parts.last_mut() {
            Some(Part::Own(range)) if range.end == start => range.end = self.own_used,
            _ if written > 0 => self.parts.push(Part::Own(start..self.own_used)),
            _ => {}
        }
    }

    /// What was taken, in one piece.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut slices = Vec::new();
        self.slices(&mut slices);
        slices.iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    /// Appends what was taken.
    pub(crate) fn slices<'a>(&'a self, into: &mut Vec<IoSlice<'a>>) {
        for part in &self.parts {
            match part {
                Part::Shared(bytes) => into.push(IoSlice::new(bytes)),
                Part::Own(range) => into.extend(self.own.get(range.clone()).map(IoSlice::new)),
                Part::Zeros(count) => {
                    let mut left = *count;
                    while left > 0 {
                        let now = left.min(ZEROS.len());
                        into.push(IoSlice::new(&ZEROS[..now]));
                        left -= now;
                    }
                }
            }
        }
    }
}

/// Takes the entries of a listing.
pub struct DirSink<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    bytes_max: usize,
    has_nodes: bool,
}

/// One entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct DirItem<'a> {
    /// The name; `.` and `..` among them.
    pub name: &'a [u8],
    /// The number shown to applications.
    pub ino: u64,
    /// What it is.
    pub kind: EntryKind,
    /// Where a listing goes on after it: any number but 0.
    pub next: u64,
}

impl<'a> DirSink<'a> {
    /// One that appends to `out`, at most so many bytes; `has_nodes` for READDIRPLUS.
    #[must_use]
    pub const fn new(out: &'a mut Vec<u8>, bytes_max: usize, has_nodes: bool) -> Self {
        let start = out.len();
        Self { out, start, bytes_max, has_nodes }
    }

    /// Whether nothing was taken yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.out.len() == self.start
    }

    /// Whether an entry with this name would fit: to be asked before a lookup is counted for it.
    #[must_use]
    pub const fn has_room(&self, name: &[u8]) -> bool {
        let node_bytes = if self.has_nodes { encode::ENTRY_BYTES } else { 0 };
        self.out.len() - self.start + node_bytes + encode::dirent_bytes(name) <= self.bytes_max
    }

    /// Takes an entry, with what LOOKUP would answer (READDIRPLUS; not for `.` and `..`) where it is known. Answers
    /// whether it was taken: with `false` the listing is full, and no lookup was counted.
    pub fn push(&mut self, item: &DirItem<'_>, entry: Option<&Entry>) -> bool {
        if !self.has_room(item.name) {
            return false;
        }
        if self.has_nodes {
            let is_dot = matches!(item.name, b"." | b"..");
            let none = Entry::absent(std::time::Duration::ZERO);
            let entry = entry.filter(|e| !is_dot && e.node != NodeId(0)).unwrap_or(&none);
            encode::entry(self.out, entry);
        }
        encode::dirent(self.out, item.ino, item.next, item.kind, item.name);
        true
    }
}

#[cfg(test)]
mod tests;
