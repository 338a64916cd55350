//! What a file holds, read from its bytes alone: total, pure, and never surprised.
//!
//! A segment is read from its start until the first record that is not whole or does not follow on; what comes
//! after that in the segment is not believed. Entries are then put together from all segments.

use std::collections::HashMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::file::BootId;
use crate::layout::Layout;
use crate::record::{self, AGED, DOUBTFUL, Kind, Record, SEALED};
use crate::{Certainty, Keep};

/// One entry found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) keep: Keep,
    pub(crate) intent: &'a [u8],
    pub(crate) reply: Option<&'a [u8]>,
    /// Whether the reply came with the entry itself.
    pub(crate) is_note: bool,
    pub(crate) order: u64,
    pub(crate) certainty: Certainty,
}

/// All that was found.
#[derive(Debug, Default)]
pub(crate) struct Scan<'a> {
    /// Oldest first.
    pub(crate) found: Vec<Found<'a>>,
    /// The first order number that is free.
    pub(crate) next_order: u64,
    /// Segments that the writer had left and whose end is missing.
    pub(crate) damaged_segments: usize,
}

/// By the numbers of entries, which are ours: nobody else chooses them.
#[derive(Default)]
struct Parts<'a> {
    begins: FxHashMap<u64, Record<'a>>,
    finishes: FxHashMap<u64, Record<'a>>,
    sealed: FxHashSet<u64>,
    forgotten: FxHashSet<u64>,
}

/// Reads a journal's bytes. `boot` is the machine's present boot.
pub(crate) fn scan(bytes: &[u8], boot: BootId) -> Result<Scan<'_>, &'static str> {
    let (layout, written_on) = Layout::parse(bytes)?;
    let mut starts: Vec<(u64, &[u8])> = (0..layout.segments)
        .filter_map(|n| bytes.get(layout.segment_at(n)..)?.get(..layout.segment_bytes))
        .filter_map(|segment| {
            let first = record::parse(segment, layout.salt)?.header;
            (first.kind == Kind::Start).then_some((first.seq, segment))
        })
        .collect();
    // In the order of writing, so that of several replies of one entry the last is taken.
    starts.sort_unstable_by_key(|(seq, _)| *seq);
    let mut parts = Parts::default();
    let mut damaged_segments = 0;
    let newest = starts.len().saturating_sub(1);
    for (n, (_, segment)) in starts.iter().enumerate() {
        let is_ended = read_segment(segment, layout.salt, &mut parts);
        damaged_segments += usize::from(!is_ended && n < newest);
    }
    let is_same_boot = boot.is_known() && boot == written_on;
    Ok(assemble(&parts, is_same_boot, damaged_segments))
}

/// Takes the records of one segment; tells whether its end was found.
fn read_segment<'a>(segment: &'a [u8], salt: u32, parts: &mut Parts<'a>) -> bool {
    let mut rest = segment;
    let mut last_seq = None;
    while let Some(record) = record::parse(rest, salt) {
        let header = record.header;
        if last_seq.is_some_and(|last: u64| last.checked_add(1) != Some(header.seq)) {
            return false;
        }
        last_seq = Some(header.seq);
        match header.kind {
            Kind::Start => {}
            Kind::Begin | Kind::Note => drop(parts.begins.insert(header.order, record)),
            Kind::Finish => drop(parts.finishes.insert(header.order, record)),
            Kind::Seal => drop(parts.sealed.insert(header.order)),
            Kind::Forget => drop(parts.forgotten.insert(header.order)),
            Kind::End => return true,
        }
        rest = rest.get(record.size()..).unwrap_or_default();
    }
    false
}

/// Of each key the entry that began last, unless that one was forgotten: an older one of the same key whose bytes
/// are still there must not rise again.
fn assemble<'a>(parts: &Parts<'a>, is_same_boot: bool, damaged_segments: usize) -> Scan<'a> {
    let mut newest: HashMap<&[u8], u64> = HashMap::with_capacity(parts.begins.len());
    for (order, record) in &parts.begins {
        let slot = newest.entry(record.key).or_default();
        *slot = (*slot).max(*order);
    }
    let mut found: Vec<Found<'a>> = newest
        .values()
        .filter(|order| !parts.forgotten.contains(order))
        .filter_map(|order| Some(entry(parts, parts.begins.get(order)?, is_same_boot)))
        .collect();
    found.sort_unstable_by_key(|f| f.order);
    let last = parts.begins.keys().chain(&parts.forgotten).max().copied().unwrap_or(0);
    Scan { found, next_order: last.saturating_add(1), damaged_segments }
}

fn entry<'a>(parts: &Parts<'a>, begin: &Record<'a>, is_same_boot: bool) -> Found<'a> {
    let header = begin.header;
    let is_note = header.kind == Kind::Note;
    let finish = parts.finishes.get(&header.order);
    // The record that came last says whether the entry was settled since the power cut.
    let (flags, reply) = match finish {
        Some(finish) => (finish.header.flags, Some(finish.payload)),
        None => (header.flags, is_note.then_some(begin.payload)),
    };
    let is_sealed = (header.flags | flags) & SEALED != 0 || parts.sealed.contains(&header.order);
    let certainty = match (is_sealed, is_same_boot && flags & DOUBTFUL == 0) {
        (true, _) => Certainty::Sealed,
        (false, true) => Certainty::ProcessDied,
        (false, false) => Certainty::MachineDied,
    };
    Found {
        key: begin.key,
        keep: if header.flags & AGED != 0 { Keep::Aged } else { Keep::Latest },
        intent: if is_note { &[] } else { begin.payload },
        reply,
        is_note: is_note && finish.is_none(),
        order: header.order,
        certainty,
    }
}
