//! The room on the file system, as it was seen a moment ago: programs that walk through trees ask for it all the time, and
//! nobody is promised that others take none meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::Instant;
use holdfast_base::limits::ROOM_FRESH_MS;
use holdfast_cache::Room;
use parking_lot::Mutex;

use crate::stats::Hits;

/// What was seen, until something is changed through this mount or a moment has passed.
#[derive(Debug, Default)]
pub(crate) struct RoomSeen {
    is_kept: bool,
    changes: AtomicU64,
    seen: Mutex<Option<(Room, u64, Instant)>>,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl RoomSeen {
    /// With `is_kept` false nothing is ever fresh.
    pub(crate) fn new(is_kept: bool) -> Self {
        Self { is_kept, ..Self::default() }
    }

    /// Something is changed.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// To be taken before the server is asked.
    pub(crate) fn mark(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Keeps an answer to a question that was asked at this mark.
    pub(crate) fn keep(&self, room: Room, mark: u64, now: Instant) {
        *self.seen.lock() = self.is_kept.then_some((room, mark, now));
    }

    /// What is still to be believed; else the server is to be asked.
    pub(crate) fn fresh(&self, now: Instant) -> Option<Room> {
        let seen = *self.seen.lock();
        let is_fresh =
            |(_, mark, at): &(Room, u64, Instant)| *mark == self.mark() && now.ms_since(*at) < ROOM_FRESH_MS;
        let fresh = seen.filter(is_fresh).map(|(room, _, _)| room);
        let count = if fresh.is_some() { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
        fresh
    }

    /// How often it was still to be believed, and how often not.
    pub(crate) fn counts(&self) -> Hits {
        Hits::new(self.hits.load(Ordering::Relaxed), self.misses.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_believed_for_a_moment_and_until_something_is_changed() {
        let seen = RoomSeen::new(true);
        let room = Room { bytes_free: 7, ..Room::default() };
        seen.keep(room, seen.mark(), Instant(100));
        assert_eq!(seen.fresh(Instant(100 + ROOM_FRESH_MS - 1)), Some(room));
        assert_eq!(seen.fresh(Instant(100 + ROOM_FRESH_MS)), None);
        seen.changed();
        assert_eq!(seen.fresh(Instant(100)), None);
        assert_eq!(seen.counts(), Hits::new(1, 2));
        let never = RoomSeen::new(false);
        never.keep(room, never.mark(), Instant(100));
        assert_eq!(never.fresh(Instant(100)), None);
    }
}
