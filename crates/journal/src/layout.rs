//! Where things lie in the file: one page of header, then segments of equal size.

use crate::crc;
use crate::file::BootId;

/// The header's page.
pub(crate) const HEADER_BYTES: usize = 4096;

/// Few segments waste room at their ends; many make each too small for a large record.
const SEGMENTS_MAX: u64 = 64;
const SEGMENTS_MIN: u64 = 8;
const SEGMENT_BYTES_MIN: u64 = 128 << 10;
/// Places are stored as 32-bit counts of [`UNIT`]; this stays well inside.
const BYTES_MAX: u64 = 16 << 30;

/// Records begin at multiples of this, so that the word that commits one never crosses a cache line.
pub(crate) const UNIT: usize = 16;

const MAGIC: [u8; 8] = *b"HFJRNL\0\x01";
const HEADER_USED: usize = 40;

/// Geometry and salt of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) segment_bytes: usize,
    pub(crate) segments: usize,
    /// Goes into every checksum, so that blocks of an older journal cannot pass for this one's.
    pub(crate) salt: u32,
}

impl Layout {
    /// The geometry for a file of about `bytes`; `None` when that is too small or too large.
    pub(crate) fn for_bytes(bytes: u64, salt: u32) -> Option<Self> {
        if bytes > BYTES_MAX {
            return None;
        }
        let segment = (bytes / SEGMENTS_MAX).max(SEGMENT_BYTES_MIN) / 4096 * 4096;
        let segments = bytes / segment;
        (segments >= SEGMENTS_MIN).then_some(Self {
            segment_bytes: usize::try_from(segment).ok()?,
            segments: usize::try_from(segments).ok()?,
            salt,
        })
    }

    pub(crate) const fn file_bytes(&self) -> usize {
        HEADER_BYTES + self.segment_bytes * self.segments
    }

    pub(crate) const fn segment_at(&self, segment: usize) -> usize {
        HEADER_BYTES + self.segment_bytes * segment
    }

    /// The header's bytes: magic, segment size, segments, salt, boot, checksum.
    pub(crate) fn header(&self, boot: BootId) -> [u8; HEADER_USED] {
        let mut h = [0; HEADER_USED];
        h[..8].copy_from_slice(&MAGIC);
        h[8..12].copy_from_slice(&(self.segment_bytes as u32).to_le_bytes());
        h[12..16].copy_from_slice(&(self.segments as u32).to_le_bytes());
        h[16..20].copy_from_slice(&self.salt.to_le_bytes());
        h[20..36].copy_from_slice(&boot.0);
        let sum = !crc::update(!0, &h[..36]);
        h[36..].copy_from_slice(&sum.to_le_bytes());
        h
    }

    /// Reads a header; `Err` says what is wrong with the file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Self, BootId), &'static str> {
        let (Some(h), Some(boot)) = (bytes.first_chunk::<HEADER_USED>(), bytes.get(20..36)) else {
            return Err("it is too short for a journal");
        };
        if h[..7] != MAGIC[..7] {
            return Err("it is no journal of this program");
        }
        if h[7] != MAGIC[7] {
            return Err("it is a journal of another format version");
        }
        if u32_at(h, 36) != !crc::update(!0, &h[..36]) {
            return Err("its header is damaged");
        }
        let mut id = [0; 16];
        id.copy_from_slice(boot);
        let layout = Self {
            segment_bytes: u32_at(h, 8) as usize,
            segments: u32_at(h, 12) as usize,
            salt: u32_at(h, 16),
        };
        match layout.segment_bytes.checked_mul(layout.segments) {
            Some(n) if n > 0 && n <= bytes.len() - HEADER_BYTES.min(bytes.len()) => Ok((layout, BootId(id))),
            _ => Err("it was cut short"),
        }
    }
}

/// A little-endian number at a place that the caller knows to lie inside; 0 beyond.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

/// As [`u32_at`], 64 bits.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}
