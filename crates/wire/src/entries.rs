//! Writing a directory listing entry by entry within a byte budget.

use holdfast_xdr::{Encode, Writer};

/// Bytes that end a listing: the `false` that announces no further entry, and `eof`.
const END_BYTES: usize = 8;

/// A listing under way: a chain of optional entries, then `eof`. For READDIR of every version.
#[derive(Debug)]
#[must_use]
pub struct EntryList<'w> {
    w: &'w mut Writer,
    /// The buffer's length that must not be exceeded before the listing's end is written.
    len_max: usize,
    /// What is left of the bytes for names alone (`dircount`).
    names_left: usize,
    count: usize,
}

impl<'w> EntryList<'w> {
    /// Begins the chain. The listing counts from `start`, a length of the buffer (where the `resok` began,
    /// its header being written already), and may take `bytes_max` to its end; entries' `names_bytes`
    /// together may take `names_max`, `usize::MAX` where nothing bounds them.
    pub const fn new(w: &'w mut Writer, start: usize, bytes_max: usize, names_max: usize) -> Self {
        let len_max = start.saturating_add(bytes_max).saturating_sub(END_BYTES);
        Self { w, len_max, names_left: names_max, count: 0 }
    }

    /// Appends an entry; false, and nothing appended, when it does not fit.
    pub fn push<E: Encode>(&mut self, entry: &E, names_bytes: usize) -> bool {
        self.push_with(names_bytes, |w| entry.encode(w))
    }

    /// Appends an entry that `write` writes; false, and nothing appended, when it does not fit. The first
    /// entry may exceed the bytes for names: `dircount` is a hint, and a listing must go on.
    pub fn push_with(&mut self, names_bytes: usize, write: impl FnOnce(&mut Writer)) -> bool {
        if names_bytes > self.names_left && self.count > 0 {
            return false;
        }
        let before = self.w.len();
        true.encode(self.w);
        write(self.w);
        if self.w.len() > self.len_max {
            self.w.truncate(before);
            return false;
        }
        self.names_left = self.names_left.saturating_sub(names_bytes);
        self.count += 1;
        true
    }

    /// What the entries to come depend on besides themselves: bytes left, bytes left for names, and whether the first
    /// is still to come.
    #[must_use]
    pub const fn room(&self) -> (usize, usize, bool) {
        (self.len_max.saturating_sub(self.w.len()), self.names_left, self.count == 0)
    }

    /// Appends entries that were written in the same [`EntryList::room`] before.
    pub fn put(&mut self, entries: &[u8], count: usize) {
        self.w.put(entries);
        self.count += count;
    }

    /// Length of the buffer at this moment, for [`EntryList::since`].
    #[must_use]
    pub const fn position(&self) -> usize {
        self.w.len()
    }

    /// What was appended since a position.
    #[must_use]
    pub fn since(&self, position: usize) -> &[u8] {
        &self.w.as_slice()[position..]
    }

    /// Entries appended. With none, and more in the directory, the answer is TOOSMALL.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Ends the listing.
    pub fn finish(self, eof: bool) {
        false.encode(self.w);
        eof.encode(self.w);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::Cookie;
    use holdfast_xdr::from_bytes;

    use super::*;
    use crate::nfs3::{DirHeader3, Entry3, ReadDir3Ok};

    const NAMES: [&[u8]; 4] = [b"a", b"bb", b"ccc", b"dddd"];

    fn listing(bytes_max: usize, names_max: usize) -> (usize, Vec<u8>) {
        let mut w = Writer::new();
        DirHeader3 { dir_attributes: None, cookieverf: [7; 8] }.encode(&mut w);
        let mut list = EntryList::new(&mut w, 0, bytes_max, names_max);
        for (i, name) in NAMES.iter().enumerate() {
            let entry = Entry3 { fileid: 10 + i as u64, name, cookie: Cookie(i as u64 + 3) };
            if !list.push(&entry, 24) {
                break;
            }
        }
        let count = list.count();
        list.finish(count == NAMES.len());
        (count, w.into_vec())
    }

    #[test]
    fn a_listing_fills_its_budget_to_the_byte_and_never_exceeds_it() {
        // The header is 12 bytes, each entry 28, the end 8.
        for (bytes_max, count) in [(132, 4), (131, 3), (104, 3), (48, 1), (47, 0)] {
            let (n, bytes) = listing(bytes_max, usize::MAX);
            assert_eq!(n, count, "{bytes_max}");
            assert!(bytes.len() <= bytes_max);
            let ok: ReadDir3Ok<'_> = from_bytes(&bytes).unwrap();
            assert_eq!(ok.entries.iter().map(|e| e.name).collect::<Vec<_>>(), NAMES[..count]);
            assert_eq!(ok.eof, count == NAMES.len());
        }
    }

    #[test]
    fn dircount_bounds_all_entries_but_the_first() {
        assert_eq!(listing(1000, 48).0, 2);
        assert_eq!(listing(1000, 1).0, 1);
    }
}
