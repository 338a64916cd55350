//! Record marking (RFC 5531 section 11) as a client needs it, over blocking and non-blocking sockets.

use anyhow::{Result, ensure};
use std::io::{self, Read};
use std::ops::Range;

/// The bit that says that a fragment is the record's last.
const LAST: u32 = 1 << 31;
/// Bytes asked for in one read.
const READ_BYTES: usize = 256 << 10;
/// Bytes of a record at most.
const RECORD_BYTES_MAX: usize = 4 << 20;

/// The mark before a record of `bytes` bytes that is sent as one fragment.
pub(crate) fn mark(bytes: usize) -> [u8; 4] {
    debug_assert!(bytes <= RECORD_BYTES_MAX);
    (LAST | bytes as u32).to_be_bytes()
}

/// Bytes that have come, and the records in them.
#[derive(Debug)]
pub(crate) struct Records {
    buffer: Vec<u8>,
    filled: usize,
    /// Bytes at the front that have been given out.
    taken: usize,
    /// Bytes that are kept of a record.
    keeps: usize,
    /// The beginning of a record of which no more is kept, and how many bytes of it are still to come.
    cut: Option<(Vec<u8>, usize)>,
    given: Vec<u8>,
}

impl Records {
    /// Nothing has come.
    pub(crate) fn new() -> Self {
        Self::cut_to(usize::MAX)
    }

    /// The same; of longer records (sent as one fragment) so many bytes are given, and the others read over, as `iperf3`
    /// does: to put together what nobody looks at would be work of the client's that is no server's fault.
    pub(crate) fn cut_to(keeps: usize) -> Self {
        Self { buffer: vec![0; READ_BYTES], filled: 0, taken: 0, keeps, cut: None, given: Vec::new() }
    }

    /// Reads once; gives the number of bytes, 0 at the end of the stream.
    ///
    /// Errors of the socket, `WouldBlock` among them.
    pub(crate) fn read_from(&mut self, source: &mut impl Read) -> io::Result<usize> {
        if self.taken > 0 {
            self.buffer.copy_within(self.taken..self.filled, 0);
            self.filled -= self.taken;
            self.taken = 0;
        }
        if self.buffer.len() - self.filled < READ_BYTES / 2 {
            self.buffer.resize(self.buffer.len() + READ_BYTES, 0);
        }
        let n = source.read(&mut self.buffer[self.filled..])?;
        self.filled += n;
        Ok(n)
    }

    /// The next whole record, if it has come. One in several fragments is put together in place.
    ///
    /// Errors when a record is longer than any reply here may be.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        self.begin_cut();
        if let Some((start, left)) = &mut self.cut {
            let come = (self.filled - self.taken).min(*left);
            self.taken += come;
            *left -= come;
            if *left > 0 {
                return Ok(None);
            }
            self.given = std::mem::take(start);
            self.cut = None;
            return Ok(Some(&self.given));
        }
        let Some(range) = self.whole_record()? else { return Ok(None) };
        Ok(Some(&self.buffer[range]))
    }

    /// Takes the beginning of a record that is longer than what is kept of one.
    fn begin_cut(&mut self) {
        let come = &self.buffer[self.taken..self.filled];
        let Some((mark, come)) = come.split_first_chunk::<4>().filter(|_| self.cut.is_none()) else { return };
        let mark = u32::from_be_bytes(*mark);
        let bytes = (mark & !LAST) as usize;
        if mark & LAST != 0 && bytes > self.keeps && bytes <= RECORD_BYTES_MAX && come.len() >= self.keeps {
            self.cut = Some((come[..self.keeps].to_vec(), bytes - self.keeps));
            self.taken += 4 + self.keeps;
        }
    }

    fn whole_record(&mut self) -> Result<Option<Range<usize>>> {
        let mut fragments: [Range<usize>; 16] = Default::default();
        let (mut count, mut at) = (0, self.taken);
        loop {
            let Some(mark) = self.buffer[at..self.filled].first_chunk::<4>() else { return Ok(None) };
            let mark = u32::from_be_bytes(*mark);
            let fragment = at + 4..at + 4 + (mark & !LAST) as usize;
            ensure!(fragment.end - self.taken <= RECORD_BYTES_MAX, "a record too long for any reply");
            if fragment.end > self.filled {
                return Ok(None);
            }
            at = fragment.end;
            ensure!(count < fragments.len(), "a record in too many fragments");
            fragments[count] = fragment;
            count += 1;
            if mark & LAST != 0 {
                break;
            }
        }
        let first = fragments[0].start;
        let mut end = fragments[0].end;
        for fragment in &fragments[1..count] {
            self.buffer.copy_within(fragment.clone(), end);
            end += fragment.len();
        }
        self.taken = at;
        Ok(Some(first..end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_whole_however_they_are_cut() {
        let mut wire = Vec::new();
        wire.extend_from_slice(&mark(3));
        wire.extend_from_slice(b"one");
        wire.extend_from_slice(&2u32.to_be_bytes());
        wire.extend_from_slice(b"tw");
        wire.extend_from_slice(&mark(1));
        wire.extend_from_slice(b"o");
        for cut in 0..wire.len() {
            let mut records = Records::new();
            let mut found = Vec::new();
            for mut part in [&wire[..cut], &wire[cut..]] {
                while !part.is_empty() {
                    records.read_from(&mut part).unwrap();
                }
                while let Some(record) = records.next().unwrap() {
                    found.push(record.to_vec());
                }
            }
            assert_eq!(found, [b"one".to_vec(), b"two".to_vec()], "cut at {cut}");
        }
    }

    #[test]
    fn of_long_records_the_beginning_comes_once_all_has_come() {
        let mut wire = Vec::new();
        for (bytes, fill) in [(1000, 1), (3, 2), (700_000, 3), (8, 4)] {
            wire.extend_from_slice(&mark(bytes));
            wire.resize(wire.len() + bytes, fill);
        }
        for step in [1, 7, 1 << 20] {
            let (mut records, mut found) = (Records::cut_to(8), Vec::new());
            for mut part in wire.chunks(step) {
                while !part.is_empty() {
                    records.read_from(&mut part).unwrap();
                    while let Some(record) = records.next().unwrap() {
                        found.push(record.to_vec());
                    }
                }
            }
            assert_eq!(found, [vec![1; 8], vec![2; 3], vec![3; 8], vec![4; 8]], "in steps of {step}");
            assert!(records.buffer.len() <= 2 * READ_BYTES, "nothing of the rest is kept");
        }
    }

    #[test]
    fn a_record_beyond_the_bound_is_refused() {
        let mut records = Records::new();
        records.read_from(&mut &[0xff; 8][..]).unwrap();
        assert!(records.next().is_err());
    }
}
