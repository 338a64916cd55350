//! The ring of segments: appending, and copying forward what is alive.
//!
//! Segments are written in ring order. From the head onwards lie, in this order: segments with nothing alive in
//! them (`cleaned`), then those in use, the oldest (`tail`) first. Two rules keep everything right:
//!
//! * a cleaned segment is made void (its first record is taken away, in one sector) only when a force has covered the
//!   copies made while cleaning it, so a power cut never finds an entry neither here nor there;
//! * segments are cleaned, made void and overwritten oldest first, each made void on disk before the next is and before
//!   anything else is written into it; so what kills an entry (a newer one of its key, a Forget) always outlives the
//!   entry's own records, whichever sectors a power cut leaves.
//!
//! Copies have the size of their originals, so cleaning one segment fills at most one; with at most half of the
//! ring alive, a round through it always finds room.

use std::fs::File;
use std::io;
use std::sync::Arc;

use holdfast_base::limits::{JOURNAL_KEY_BYTES_MAX, JOURNAL_PART_BYTES_MAX};

use crate::index::{Entry, Index};
use crate::layout::{Layout, UNIT};
use crate::map::Map;
use crate::record::{self, AGED, Header, Kind, RECORD_BYTES_MAX, RECORD_HEADER, SEALED};
use crate::{EntryId, JournalError, Keep, Usage};

/// Cleaned segments to keep ahead of the head: one to move into, and one for the copies that this may cause.
const RESERVE: usize = 2;

/// What comes with the beginning of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// What is about to be done.
    Intent,
    /// A reply at once.
    Reply,
}

/// One record to be written.
struct New<'a> {
    kind: Kind,
    flags: u8,
    id: EntryId,
    key: &'a [u8],
    payload: &'a [u8],
}

/// The journal's file as its one writer sees it.
pub(crate) struct Ring {
    // Constant.
    layout: Layout,
    file: Arc<File>,
    // The file's contents.
    map: Map,
    head: usize,
    /// Bytes used in the head.
    used: usize,
    /// Segments whose blocks were written once, the first so many ([`Ring::write_ahead`]).
    written: usize,
    /// Where the head stood, and how many segments were written once, when pages were let go last.
    let_go: (usize, usize, usize),
    cleaned: usize,
    /// The last record written before each segment counted as cleaned.
    cleaned_at: Vec<u64>,
    /// Cleaned segments that are void, the oldest first; all on disk too, but perhaps the last.
    void: usize,
    /// The last of them may not be so on disk; a force that covers this record has it there.
    voided_at: Option<u64>,
    next_seq: u64,
    forced_seq: u64,
    // What is alive.
    index: Index,
    next_order: u64,
    /// Room for one record while it is copied.
    scratch: Vec<u8>,
    failure: Option<String>,
    waits: u64,
    damaged_segments: usize,
}

impl Ring {
    /// A ring over a new file: nothing but zeros after its header.
    pub(crate) fn new(map: Map, file: Arc<File>, layout: Layout, index: Index, next_order: u64) -> Self {
        let mut ring = Self {
            layout,
            file,
            map,
            head: 0,
            used: 0,
            written: 0,
            let_go: (0, 0, 0),
            cleaned: layout.segments - 1,
            cleaned_at: vec![0; layout.segments],
            // A new file holds nothing.
            void: layout.segments - 1,
            voided_at: None,
            next_seq: 1,
            forced_seq: 0,
            index,
            next_order,
            scratch: vec![0; RECORD_BYTES_MAX],
            failure: None,
            waits: 0,
            damaged_segments: 0,
        };
        ring.write_ahead();
        ring.put(&New::mark(Kind::Start));
        ring
    }

    /// Has the head and the segment after it written once. Blocks that are only reserved have to be marked as written
    /// when they are, so that each force of records in them would also be one of the file system's own journal, which
    /// takes the changes of everybody else along; so that is done for a whole segment at once.
    fn write_ahead(&mut self) {
        while self.written < self.layout.segments.min(self.head + 2) {
            self.map.clear(self.layout.segment_at(self.written), self.layout.segment_bytes);
            self.written += 1;
        }
    }

    /// Has the pages that were written since the last time leave the page tables before somebody forces them.
    pub(crate) fn let_go_of_written(&mut self) {
        let (segment, used, written) =
            std::mem::replace(&mut self.let_go, (self.head, self.used, self.written));
        let whole = self.layout.segment_bytes;
        for ahead in written..self.written {
            self.map.let_go(self.layout.segment_at(ahead), whole);
        }
        let (mut segment, mut used) = (segment, used);
        // The head may have come round to where it was.
        while segment != self.head || used > self.used {
            self.map.let_go(self.layout.segment_at(segment) + used, whole - used);
            (segment, used) = ((segment + 1) % self.layout.segments, 0);
        }
        self.map.let_go(self.layout.segment_at(segment) + used, self.used - used);
    }

    pub(crate) fn file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.next_seq - 1
    }

    pub(crate) const fn forced_seq(&self) -> u64 {
        self.forced_seq
    }

    /// The segment that is written to.
    #[cfg(test)]
    pub(crate) const fn head(&self) -> usize {
        self.head
    }

    pub(crate) fn check_failed(&self) -> Result<(), JournalError> {
        self.failure.clone().map_or(Ok(()), |e| Err(JournalError::Failed(e)))
    }

    /// Notes the outcome of a force that covers everything up to `seq`.
    pub(crate) fn forced(&mut self, seq: u64, result: &io::Result<()>) {
        match result {
            Ok(()) if self.failure.is_none() => {
                self.forced_seq = self.forced_seq.max(seq);
                self.voided_at = self.voided_at.filter(|at| *at > seq);
                self.make_void();
            }
            Ok(()) => {}
            Err(e) => self.failure = Some(e.to_string()),
        }
    }

    /// Makes the oldest cleaned segment void that is not, when its copies and the one before it are safe. One at a
    /// time: were two under way, the disk could have the younger one's and not the older one's.
    fn make_void(&mut self) {
        let next = (self.head + 1 + self.void) % self.layout.segments;
        let is_safe = self.voided_at.is_none() && self.cleaned_at[next] <= self.forced_seq;
        if self.void == self.cleaned || !is_safe {
            return;
        }
        self.map.write(self.layout.segment_at(next), &[0; 4]);
        self.void += 1;
        // A force that began before this covers at most the last record written so far.
        self.voided_at = Some(self.next_seq);
    }

    /// Whether the segment after the head is void on disk.
    const fn is_next_void(&self) -> bool {
        self.void > 1 || (self.void == 1 && self.voided_at.is_none())
    }

    pub(crate) fn set_damaged(&mut self, segments: usize) {
        self.damaged_segments = segments;
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            entries: self.index.len(),
            pinned_bytes: self.index.pinned_bytes,
            aged_bytes: self.index.aged_bytes,
            live_bytes_max: self.live_bytes_max(),
            waits: self.waits,
            damaged_segments: self.damaged_segments,
        }
    }

    const fn live_bytes_max(&self) -> u64 {
        (self.layout.segment_bytes * self.layout.segments / 2) as u64
    }

    pub(crate) fn begin(
        &mut self,
        key: &[u8],
        keep: Keep,
        value: &[u8],
        part: Part,
    ) -> Result<EntryId, JournalError> {
        let order = self.next_order;
        let id = self.insert(order, key, keep, (value, part), 0)?;
        self.next_order += 1;
        Ok(id)
    }

    /// Begins an entry under a given order number: a new one, or one carried over.
    pub(crate) fn insert(
        &mut self,
        order: u64,
        key: &[u8],
        keep: Keep,
        (value, part): (&[u8], Part),
        flags: u8,
    ) -> Result<EntryId, JournalError> {
        if !(1..=JOURNAL_KEY_BYTES_MAX).contains(&key.len()) {
            return Err(JournalError::Bounds("the key"));
        }
        check_part(value)?;
        let bytes = record::size(key.len(), value.len());
        self.admit(bytes)?;
        let hash = self.index.hash(key);
        if self.index.find(hash).is_none() {
            self.make_place()?;
        }
        // The old entry dies with the record below; until then a copy of it may be made.
        self.make_room(bytes)?;
        if let Some(old) = self.index.find(hash) {
            self.index.remove(old);
        }
        let id = EntryId { entry: self.index.next_place(), order };
        let aged = if keep == Keep::Aged { AGED } else { 0 };
        let kind = if part == Part::Intent { Kind::Begin } else { Kind::Note };
        let begin_at = self.put(&New { kind, flags: flags | aged, id, key, payload: value });
        Ok(self.index.insert(Entry {
            key: hash,
            order,
            begin_at,
            finish_at: 0,
            bytes: bytes as u32,
            is_aged: keep == Keep::Aged,
            is_sealed: flags & SEALED != 0,
            is_finished: part == Part::Reply,
        }))
    }

    pub(crate) fn finish(&mut self, id: EntryId, reply: &[u8]) -> Result<(), JournalError> {
        self.finish_with(id, reply, 0)
    }

    /// Records a reply, with what else is to be said of it.
    pub(crate) fn finish_with(&mut self, id: EntryId, reply: &[u8], flags: u8) -> Result<(), JournalError> {
        check_part(reply)?;
        self.index.get(id).ok_or(JournalError::Gone)?;
        let bytes = record::size(0, reply.len());
        self.admit(bytes)?;
        self.make_room(bytes)?;
        // Making room drops entries that have their reply, when room is short: this one perhaps, if it had one.
        let entry = *self.index.get(id).ok_or(JournalError::Gone)?;
        let old = if entry.finish_at == 0 { 0 } else { self.size_at(entry.finish_at) };
        let at = self.put(&New { kind: Kind::Finish, flags, id, key: &[], payload: reply });
        self.index.update(id, |e| {
            e.finish_at = at;
            e.bytes = e.bytes + bytes as u32 - old;
            e.is_finished = true;
        });
        Ok(())
    }

    pub(crate) fn seal(&mut self, id: EntryId) -> Result<(), JournalError> {
        if self.index.get(id).ok_or(JournalError::Gone)?.is_sealed {
            return Ok(());
        }
        self.make_room(RECORD_HEADER)?;
        self.put(&New { kind: Kind::Seal, flags: 0, id, key: &[], payload: &[] });
        self.index.update(id, |e| e.is_sealed = true);
        Ok(())
    }

    pub(crate) fn forget(&mut self, id: EntryId) {
        if self.index.remove(id) && self.make_room(RECORD_HEADER).is_ok() {
            self.put(&New { kind: Kind::Forget, flags: 0, id, key: &[], payload: &[] });
        }
    }

    pub(crate) fn forget_key(&mut self, key: &[u8]) -> bool {
        let found = self.index.find(self.index.hash(key));
        found.is_some_and(|id| {
            self.forget(id);
            true
        })
    }

    /// Refuses what would let more than half of the ring be alive for good.
    const fn admit(&self, bytes: usize) -> Result<(), JournalError> {
        if self.index.pinned_bytes + bytes as u64 > self.live_bytes_max() {
            return Err(JournalError::Full);
        }
        Ok(())
    }

    /// Makes a place in the index, dropping the oldest entries that may be dropped.
    fn make_place(&mut self) -> Result<(), JournalError> {
        for _ in 0..=self.layout.segments {
            if !self.index.is_full() {
                return Ok(());
            }
            if self.index.aged == 0 {
                break;
            }
            if self.is_all_in_head() {
                self.advance()?;
            }
            self.clean_tail(true)?;
        }
        Err(JournalError::Full)
    }

    fn is_all_in_head(&self) -> bool {
        self.cleaned == self.layout.segments - 1
    }

    /// Makes the head hold `bytes` more, with the mark of its end after them.
    fn make_room(&mut self, bytes: usize) -> Result<(), JournalError> {
        while !self.fits(bytes) {
            if self.cleaned < RESERVE {
                self.restore_reserve()?;
                continue;
            }
            self.advance()?;
            self.restore_reserve()?;
        }
        Ok(())
    }

    const fn fits(&self, bytes: usize) -> bool {
        self.used + bytes + RECORD_HEADER <= self.layout.segment_bytes
    }

    /// Cleans oldest segments until the reserve is there again.
    fn restore_reserve(&mut self) -> Result<(), JournalError> {
        for _ in 0..self.layout.segments {
            if self.cleaned >= RESERVE {
                return Ok(());
            }
            self.clean_tail(false)?;
        }
        Err(JournalError::Full)
    }

    /// Moves the head into the next segment, which is cleaned; waits for forces until it is void on disk.
    fn advance(&mut self) -> Result<(), JournalError> {
        debug_assert!(self.cleaned > 0);
        self.waits += u64::from(!self.is_next_void());
        while !self.is_next_void() {
            self.check_failed()?;
            let result = self.file.sync_data();
            // Nobody writes meanwhile, so this force has what was made void before it.
            self.voided_at = self.voided_at.filter(|_| result.is_err());
            self.forced(self.last_seq(), &result);
            self.check_failed()?;
        }
        self.put(&New::mark(Kind::End));
        self.head = (self.head + 1) % self.layout.segments;
        self.used = 0;
        self.cleaned -= 1;
        self.void -= 1;
        self.write_ahead();
        self.put(&New::mark(Kind::Start));
        Ok(())
    }

    /// Copies what is alive in the oldest segment to the head. Entries that may be dropped are, when `drop_aged`
    /// or when more than half of the ring is alive.
    fn clean_tail(&mut self, drop_aged: bool) -> Result<(), JournalError> {
        let tail = (self.head + 1 + self.cleaned) % self.layout.segments;
        let (mut at, end) = (self.layout.segment_at(tail), self.layout.segment_at(tail + 1));
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut done = Ok(());
        while at + RECORD_HEADER <= end && done.is_ok() {
            let Some(size) = self.load(at, end, &mut scratch) else { break };
            done = self.carry(at, &scratch[..size], drop_aged);
            at += size;
        }
        self.scratch = scratch;
        done?;
        self.cleaned_at[tail] = self.last_seq();
        self.cleaned += 1;
        Ok(())
    }

    /// Reads the record at `at` into `into`; `None` at the segment's last one.
    fn load(&self, at: usize, end: usize, into: &mut [u8]) -> Option<usize> {
        self.map.read(at, &mut into[..RECORD_HEADER]);
        let (kind, size) = record::peek(into);
        if size > into.len() || at + size > end || kind == Kind::End as u8 {
            return None;
        }
        self.map.read(at, &mut into[..size]);
        Some(size)
    }

    /// Copies one record to the head when it is alive.
    fn carry(&mut self, at: usize, bytes: &[u8], drop_aged: bool) -> Result<(), JournalError> {
        let place = (at / UNIT) as u32;
        // What this process wrote it can read; a record that does not parse was spoilt by somebody else, and what
        // it held is lost on disk too.
        let Some(record) = record::parse(bytes, self.layout.salt) else { return Ok(()) };
        let header = record.header;
        let id = EntryId { entry: header.entry, order: header.order };
        let is_finish = header.kind == Kind::Finish;
        let Some(entry) = self.index.get(id).copied().filter(|e| match header.kind {
            Kind::Begin | Kind::Note => e.begin_at == place,
            Kind::Finish => e.finish_at == place,
            _ => false,
        }) else {
            return Ok(());
        };
        let is_crowded = self.index.pinned_bytes + self.index.aged_bytes > self.live_bytes_max();
        if entry.is_droppable() && (drop_aged || is_crowded) {
            self.index.remove(id);
            return Ok(());
        }
        if !self.fits(bytes.len()) {
            if self.cleaned == 0 {
                return Err(JournalError::Full);
            }
            self.advance()?;
        }
        let flags = header.flags | if entry.is_sealed { SEALED } else { 0 };
        let copy = self.put(&New { kind: header.kind, flags, id, key: record.key, payload: record.payload });
        self.index.update(id, |e| {
            if is_finish {
                e.finish_at = copy;
            } else {
                e.begin_at = copy;
            }
        });
        Ok(())
    }

    fn size_at(&self, place: u32) -> u32 {
        let mut head = [0; RECORD_HEADER];
        self.map.read(place as usize * UNIT, &mut head);
        record::peek(&head).1 as u32
    }

    /// Writes a record at the head, which has the room; tells its place.
    #[inline]
    fn put(&mut self, new: &New<'_>) -> u32 {
        let at = self.layout.segment_at(self.head) + self.used;
        let header = Header {
            kind: new.kind,
            flags: new.flags,
            entry: new.id.entry,
            seq: self.next_seq,
            order: new.id.order,
        };
        let head = header.encode(self.layout.salt, new.key, new.payload);
        self.map.publish(at, &head, new.key, new.payload);
        self.next_seq += 1;
        self.used += record::size(new.key.len(), new.payload.len());
        (at / UNIT) as u32
    }
}

impl New<'_> {
    /// A record that belongs to no entry.
    const fn mark(kind: Kind) -> Self {
        Self { kind, flags: 0, id: EntryId { entry: 0, order: 0 }, key: &[], payload: &[] }
    }
}

const fn check_part(part: &[u8]) -> Result<(), JournalError> {
    if part.len() > JOURNAL_PART_BYTES_MAX {
        return Err(JournalError::Bounds("an intent or a reply"));
    }
    Ok(())
}
