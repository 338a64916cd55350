//! One record: a header of 32 bytes, the key, the payload.
//!
//! ```text
//!  0 commit   u32  checksum of all that follows, salted; 0 while the record is being written
//!  4 kind     u8
//!  5 flags    u8
//!  6 key      u16  bytes of the key
//!  8 payload  u32  bytes of the payload
//! 12 entry    u32  place in the writing run's index; means nothing to another run
//! 16 seq      u64  number of this record, one above that of the record before it
//! 24 order    u64  number of the entry it belongs to
//! 32 key, payload, up to 15 bytes of padding
//! ```

use holdfast_base::limits::{JOURNAL_KEY_BYTES_MAX, JOURNAL_PART_BYTES_MAX};

use crate::crc;
use crate::layout::{UNIT, u32_at, u64_at};

pub(crate) const RECORD_HEADER: usize = 32;

/// Bytes of the largest record.
pub(crate) const RECORD_BYTES_MAX: usize = size(JOURNAL_KEY_BYTES_MAX, JOURNAL_PART_BYTES_MAX);

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A segment starts here; the only kind whose `seq` need not follow on.
    Start = 1,
    /// An entry begins: key and intent.
    Begin = 2,
    /// An entry without intent: key and reply.
    Note = 3,
    /// The reply of an entry.
    Finish = 4,
    /// The effects of an entry are stable.
    Seal = 5,
    /// The entry, and every older one of its key, is forgotten.
    Forget = 6,
    /// The writer went on to the next segment.
    End = 7,
}

impl Kind {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Start,
            2 => Self::Begin,
            3 => Self::Note,
            4 => Self::Finish,
            5 => Self::Seal,
            6 => Self::Forget,
            7 => Self::End,
            _ => return None,
        })
    }
}

/// The entry may be dropped when room is short.
pub(crate) const AGED: u8 = 1;
/// The entry's effects are stable.
pub(crate) const SEALED: u8 = 2;
/// The record was carried over from before a power cut and has not been settled.
pub(crate) const DOUBTFUL: u8 = 4;

/// A record's header, without the commit word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) entry: u32,
    pub(crate) seq: u64,
    pub(crate) order: u64,
}

/// Bytes that a record takes in the file.
pub(crate) const fn size(key: usize, payload: usize) -> usize {
    (RECORD_HEADER + key + payload).next_multiple_of(UNIT)
}

impl Header {
    /// The header's bytes with the commit word already right.
    #[inline]
    pub(crate) fn encode(&self, salt: u32, key: &[u8], payload: &[u8]) -> [u8; RECORD_HEADER] {
        let mut h = [0; RECORD_HEADER];
        h[4] = self.kind as u8;
        h[5] = self.flags;
        h[6..8].copy_from_slice(&(key.len() as u16).to_le_bytes());
        h[8..12].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        h[12..16].copy_from_slice(&self.entry.to_le_bytes());
        h[16..24].copy_from_slice(&self.seq.to_le_bytes());
        h[24..32].copy_from_slice(&self.order.to_le_bytes());
        let sum = checksum(salt, &h[4..], key, payload);
        h[..4].copy_from_slice(&sum.to_le_bytes());
        h
    }
}

/// Never 0, which means "being written".
#[inline]
fn checksum(salt: u32, head: &[u8], key: &[u8], payload: &[u8]) -> u32 {
    (!crc::update(crc::update(crc::update(!salt, head), key), payload)).max(1)
}

/// A record read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) header: Header,
    pub(crate) key: &'a [u8],
    pub(crate) payload: &'a [u8],
}

impl Record<'_> {
    pub(crate) const fn size(&self) -> usize {
        size(self.key.len(), self.payload.len())
    }
}

/// Reads the record at the start of `bytes`; `None` unless it is whole and its checksum holds.
pub(crate) fn parse(bytes: &[u8], salt: u32) -> Option<Record<'_>> {
    let (head, body) = bytes.split_at_checked(RECORD_HEADER)?;
    let commit = u32_at(head, 0);
    let key_bytes = usize::from(head[6]) | usize::from(head[7]) << 8;
    let payload_bytes = u32_at(head, 8) as usize;
    if commit == 0 || key_bytes > JOURNAL_KEY_BYTES_MAX || payload_bytes > JOURNAL_PART_BYTES_MAX {
        return None;
    }
    let (key, payload) = body.get(..key_bytes + payload_bytes)?.split_at(key_bytes);
    if checksum(salt, &head[4..], key, payload) != commit {
        return None;
    }
    let header = Header {
        kind: Kind::from_byte(head[4])?,
        flags: head[5],
        entry: u32_at(head, 12),
        seq: u64_at(head, 16),
        order: u64_at(head, 24),
    };
    Some(Record { header, key, payload })
}

/// Whether a record may lie here; else [`parse`] finds none, and looks at nothing behind these bytes.
pub(crate) fn is_begun(bytes: &[u8]) -> bool {
    u32_at(bytes, 0) != 0
}

/// Kind and size of a record, from its header alone: for the writer, who trusts what he wrote.
pub(crate) fn peek(head: &[u8]) -> (u8, usize) {
    let key = usize::from(head[6]) | usize::from(head[7]) << 8;
    (head[4], size(key, u32_at(head, 8) as usize))
}
