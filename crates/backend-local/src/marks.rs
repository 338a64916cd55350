//! Counts of changes, by the number of what is changed: whoever shows again what was seen before compares. Counting is
//! exact in both directions of time: from before a change begins until after it has ended nothing of the object can be
//! shown from memory, so nobody sees the old state after anybody could have seen the new one.
//!
//! One table for the whole process, since one object may be served by two backends (an exported directory below
//! another). Numbers that share a count only cost a look.

use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_vfs::{FileKind, Mark};

use crate::object::Object;

/// Counts of attributes: 512 KiB in all.
const ATTRIBUTE_PLACES: usize = 1 << 16;
/// Counts of directories' entries.
const ENTRY_PLACES: usize = 1 << 12;
/// Counts of the ends of watches (`watch/listed.rs`).
const WATCH_PLACES: usize = 1 << 8;

/// A change under way, in the upper bits of a count. The lower 48 last nine years at a million changes a second.
const UNDER_WAY: u64 = 1 << 48;

const PLACES: usize = ATTRIBUTE_PLACES + ENTRY_PLACES + WATCH_PLACES;

static COUNTS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

const fn attributes(ino: u64) -> usize {
    (ino as usize) % ATTRIBUTE_PLACES
}

const fn entries(ino: u64) -> usize {
    ATTRIBUTE_PLACES + (ino as usize) % ENTRY_PLACES
}

const fn watch(ino: u64) -> usize {
    ATTRIBUTE_PLACES + ENTRY_PLACES + (ino as usize) % WATCH_PLACES
}

fn mark_at(place: usize) -> Option<Mark> {
    let count = COUNTS[place].load(Ordering::SeqCst);
    (count < UNDER_WAY).then_some(Mark { place: place as u32, count })
}

/// Where the count of an object's attributes stands; `None` while they are being changed. Taken *before* the look.
pub(crate) fn of_attributes(ino: u64) -> Option<Mark> {
    mark_at(attributes(ino))
}

/// The same of a directory's entries.
pub(crate) fn of_entries(ino: u64) -> Option<Mark> {
    mark_at(entries(ino))
}

/// How often the watch on a directory has ended: what local processes do in it is told of while this stands.
pub(crate) fn of_watch(ino: u64) -> Option<Mark> {
    mark_at(watch(ino))
}

/// What local processes do in this directory is told of no more, or something was missed.
pub(crate) fn watch_ended(ino: u64) {
    COUNTS[watch(ino)].fetch_add(1, Ordering::SeqCst);
}

/// A local process has changed this object, or the entries of it.
pub(crate) fn changed_elsewhere(ino: u64, has_other_entries: bool) {
    COUNTS[attributes(ino)].fetch_add(1, Ordering::SeqCst);
    if has_other_entries {
        COUNTS[entries(ino)].fetch_add(1, Ordering::SeqCst);
    }
}

/// Whether nothing has changed since a mark was taken, nor is about to.
pub(crate) fn holds(mark: Mark) -> bool {
    COUNTS.get(mark.place as usize).is_some_and(|count| count.load(Ordering::SeqCst) == mark.count)
}

/// Attributes of this object have changed by what is over: a time of last access. Gives what the count was.
pub(crate) fn was_read(object: &Object) -> u64 {
    COUNTS[attributes(object.ino)].fetch_add(1, Ordering::SeqCst)
}

/// A change that is under way as long as this lives.
#[must_use]
pub(crate) struct Changing([Option<&'static AtomicU64>; 2]);

impl Changing {
    /// Of an object's attributes, and of its entries if it is a directory.
    pub(crate) fn of(object: &Object) -> Self {
        let has_entries = object.kind == FileKind::Directory;
        let counts =
            [Some(&COUNTS[attributes(object.ino)]), has_entries.then(|| &COUNTS[entries(object.ino)])];
        for count in counts.iter().flatten() {
            count.fetch_add(UNDER_WAY, Ordering::SeqCst);
        }
        Self(counts)
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        for count in self.0.iter().flatten() {
            count.fetch_add(1_u64.wrapping_sub(UNDER_WAY), Ordering::SeqCst);
        }
    }
}
