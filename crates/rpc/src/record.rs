//! Record marking (RFC 5531 section 11), without I/O: bytes in, whole records out. A record that lies whole in
//! the bytes at hand is borrowed from them; one that does not is gathered in a buffer of its own, which grows with
//! what really came and not with what a header promised.

use bytes::buf::Limit;
use bytes::{BufMut, Bytes, BytesMut};
use holdfast_base::limits::{RECORD_BYTES_MAX, RECORD_FRAGMENTS_MAX, SPARE_RECORDS_MAX};
use parking_lot::Mutex;

/// Bit of a fragment header that says "last of its record".
const LAST: u32 = 1 << 31;

/// How far a gathering buffer grows ahead of the bytes that came, at first; after that it doubles.
const GROWTH_BYTES: usize = 128 << 10;

/// From this length on a record is gathered in a spare buffer when there is one: below it, fresh memory costs less
/// than finding one.
const SPARE_FROM_BYTES: usize = 256 << 10;

/// Buffers of large records that were handled, for the next ones: fresh ones cost a page fault for each 4 KiB, an
/// eighth of all the work of a large WRITE.
static SPARES: Mutex<Vec<BytesMut>> = Mutex::new(Vec::new());

/// Bytes of a record that must have come before it gets one: who only promises shall not hold them.
const SPARE_AFTER_BYTES: usize = 4 << 10;

/// Takes back the buffer of a record that was handled, unless somebody kept a part of it.
pub(crate) fn recycle(record: Assembled<'_>) {
    let Assembled::Own(bytes) = record else { return };
    if bytes.len() < SPARE_FROM_BYTES {
        return;
    }
    let Ok(mut buffer) = bytes.try_into_mut() else { return };
    buffer.clear();
    let mut spares = SPARES.lock();
    if spares.len() < SPARE_RECORDS_MAX {
        spares.push(buffer);
    }
}

/// Gives the memory of all spare buffers back.
pub(crate) fn drop_spares() {
    let spares = std::mem::take(&mut *SPARES.lock());
    drop(spares);
}

/// One whole record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    place: Place<'a>,
    /// What came with it and stands behind it: the next record begins here.
    rest: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// In a read buffer that is about to be used again.
    Borrowed(&'a [u8]),
    /// In a buffer of its own.
    Own(&'a Bytes),
}

impl<'a> Record<'a> {
    /// A record inside a buffer that others share.
    #[must_use]
    pub const fn borrowed(bytes: &'a [u8]) -> Self {
        Self { place: Place::Borrowed(bytes), rest: &[] }
    }

    /// A record with a buffer of its own.
    #[must_use]
    pub const fn own(bytes: &'a Bytes) -> Self {
        Self { place: Place::Own(bytes), rest: &[] }
    }

    /// The same with what came with it, from where the next record begins.
    #[must_use]
    pub const fn followed_by(self, rest: &'a [u8]) -> Self {
        Self { rest, ..self }
    }

    /// The record that came with this one and is the next, when it is whole and in one piece.
    #[must_use]
    pub fn next(&self) -> Option<&'a [u8]> {
        let (header, rest) = self.rest.split_first_chunk::<4>()?;
        let header = u32::from_be_bytes(*header);
        if header & LAST == 0 { None } else { rest.get(..(header & !LAST) as usize) }
    }

    /// Its bytes, without fragment headers.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        match self.place {
            Place::Borrowed(bytes) => bytes,
            Place::Own(bytes) => bytes,
        }
    }

    /// The record, to keep.
    #[must_use]
    pub fn keep(&self) -> Bytes {
        self.keep_part(self.bytes())
    }

    /// A part of the record, to keep. `part` may be any slice; one from elsewhere is copied.
    #[must_use]
    pub fn keep_part(&self, part: &[u8]) -> Bytes {
        match self.place {
            Place::Own(bytes) if bytes.as_ptr_range().start <= part.as_ptr() && is_within(bytes, part) => {
                bytes.slice_ref(part)
            }
            _ => Bytes::copy_from_slice(part),
        }
    }
}

fn is_within(whole: &[u8], part: &[u8]) -> bool {
    part.as_ptr_range().end <= whole.as_ptr_range().end
}

/// A record as the assembler hands it out.
#[derive(Debug, PartialEq, Eq)]
pub enum Assembled<'a> {
    /// It lies whole in the input.
    Borrowed(&'a [u8]),
    /// It came in parts and was gathered.
    Own(Bytes),
}

impl Assembled<'_> {
    /// The record.
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        match self {
            Self::Borrowed(bytes) => Record::borrowed(bytes),
            Self::Own(bytes) => Record::own(bytes),
        }
    }
}

/// Why a stream cannot be followed any further. The connection is to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A record above [`RECORD_BYTES_MAX`].
    #[error("a record of at least {0} bytes")]
    TooLong(usize),
    /// A record of more than [`RECORD_FRAGMENTS_MAX`] fragments.
    #[error("a record of too many fragments")]
    TooManyFragments,
}

/// Splits a byte stream into records.
#[derive(Debug, Default)]
pub struct Assembler {
    gathered: BytesMut,
    header: [u8; 4],
    header_bytes: usize,
    /// Of the current fragment.
    left: usize,
    fragments: usize,
    is_last: bool,
}

impl Assembler {
    /// At the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next record out of `input`, or all of `input` when it does not complete one.
    ///
    /// # Errors
    /// A record beyond the bounds; known from the header, before its bytes are taken.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Assembled<'a>>, RecordError> {
        loop {
            if self.left > 0 {
                let whole = self.fragments == 1 && self.is_last && self.gathered.is_empty();
                if whole && let Some((record, rest)) = input.split_at_checked(self.left) {
                    *input = rest;
                    self.begin_record();
                    return Ok(Some(Assembled::Borrowed(record)));
                }
                let n = self.left.min(input.len());
                if self.gathered.is_empty() {
                    self.take_spare(n);
                }
                self.gathered.extend_from_slice(&input[..n]);
                *input = &input[n..];
                self.left -= n;
                if self.left > 0 {
                    return Ok(None);
                }
            }
            if self.fragments > 0 && self.is_last && self.header_bytes == 0 {
                let record = std::mem::take(&mut self.gathered).freeze();
                self.begin_record();
                return Ok(Some(Assembled::Own(record)));
            }
            if !self.take_header(input)? {
                return Ok(None);
            }
        }
    }

    fn begin_record(&mut self) {
        self.left = 0;
        self.fragments = 0;
        self.is_last = false;
    }

    /// Reads a fragment's header; false when `input` ends first.
    fn take_header(&mut self, input: &mut &[u8]) -> Result<bool, RecordError> {
        let n = (4 - self.header_bytes).min(input.len());
        self.header[self.header_bytes..self.header_bytes + n].copy_from_slice(&input[..n]);
        *input = &input[n..];
        self.header_bytes += n;
        if self.header_bytes < 4 {
            return Ok(false);
        }
        self.header_bytes = 0;
        let header = u32::from_be_bytes(self.header);
        self.left = (header & !LAST) as usize;
        self.is_last = header & LAST != 0;
        self.fragments += 1;
        let bytes = self.gathered.len().saturating_add(self.left);
        if bytes > RECORD_BYTES_MAX {
            return Err(RecordError::TooLong(bytes));
        }
        // Empty fragments count: they cost the sender 4 bytes each and could go on for ever.
        if self.fragments > RECORD_FRAGMENTS_MAX {
            return Err(RecordError::TooManyFragments);
        }
        Ok(true)
    }

    /// Goes on in a spare buffer when there is one and the rest of the fragment is worth it; `came` bytes of the
    /// record are there.
    fn take_spare(&mut self, came: usize) -> bool {
        if self.left < SPARE_FROM_BYTES || came < SPARE_AFTER_BYTES {
            return false;
        }
        let Some(mut spare) = SPARES.lock().pop() else { return false };
        if spare.capacity() <= self.gathered.len() {
            return false;
        }
        spare.extend_from_slice(&self.gathered);
        self.gathered = spare;
        true
    }

    /// Where the rest of a started fragment may be read to directly, without a copy; never more than belongs to
    /// it. Nothing when no fragment is started. What was read is told by [`Assembler::filled`].
    pub fn room(&mut self) -> Option<Limit<&mut BytesMut>> {
        if self.left == 0 || self.gathered.is_empty() {
            return None;
        }
        if self.gathered.capacity() == self.gathered.len() && !self.take_spare(self.gathered.len()) {
            self.gathered.reserve(self.left.min(GROWTH_BYTES.max(self.gathered.len())));
        }
        let room = (self.gathered.capacity() - self.gathered.len()).min(self.left);
        Some((&mut self.gathered).limit(room))
    }

    /// Says that `n` bytes were read to where [`Assembler::room`] pointed.
    pub fn filled(&mut self, n: usize) {
        debug_assert!(n <= self.left);
        self.left = self.left.saturating_sub(n);
    }

    /// What was taken in of a record that is not whole yet, as bytes that bring another assembler to the same
    /// place; fragments that are whole are joined with the one that is not.
    pub(crate) fn begun(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.fragments > 0 {
            // The sum stays within the bound on records, far below 2^31.
            let length = (self.gathered.len() + self.left) as u32;
            bytes.extend_from_slice(&(if self.is_last { LAST | length } else { length }).to_be_bytes());
            bytes.extend_from_slice(&self.gathered);
        }
        bytes.extend_from_slice(&self.header[..self.header_bytes]);
        bytes
    }

    /// Whether part of a record has come.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.header_bytes > 0 || self.fragments > 0
    }

    /// Bytes held of a record that is not whole yet.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.gathered.capacity()
    }
}

/// The header of a record of one fragment. Records of ours stay far below 2 GiB.
#[must_use]
pub const fn header_of(bytes: usize) -> [u8; 4] {
    (LAST | bytes as u32).to_be_bytes()
}

#[cfg(test)]
#[path = "record/tests.rs"]
mod tests;
