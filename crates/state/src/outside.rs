//! Locks that only the backend knows, and those in line who wait for their end.

use holdfast_base::limits::LOCK_WAITERS_PER_FILE_MAX;
use holdfast_base::{ByteRange, FileKey, Instant};

use crate::engine::Engine;
use crate::file::File;
use crate::lock::LockTicket;
use crate::lock_set::LockKind;
use crate::range_map::RangeMap;
use crate::waiters::{Manner, Party, Waiter};

impl File {
    /// Whether somebody outside was met there who would be in the way of a lock.
    pub(crate) fn is_held_outside(&self, range: ByteRange, kind: LockKind) -> bool {
        self.outside.overlapping(range).any(|(_, held)| held.conflicts(kind))
    }
}

impl Engine {
    /// As `lock_abort`, of a client that waits until nobody outside is in its way any more
    /// ([`Engine::freed_outside`]) and is to be told then. Nor is anybody else let in before whom that one, who has this, is in
    /// the way of: they would only call on each other again and again.
    pub fn lock_abort_in_line(
        &mut self,
        ticket: LockTicket,
        (held, as_kind): (ByteRange, LockKind),
        now: Instant,
    ) -> bool {
        let (file, range, kind) = (ticket.file, ticket.range, ticket.becomes);
        if let Some(of) = self.files.get_mut(&file).filter(|of| of.outside.len() < LOCK_WAITERS_PER_FILE_MAX)
        {
            of.outside.set(held, as_kind);
        }
        let party = self.state(ticket.state).ok().and_then(|state| {
            let owner = self.owners.get(state.owner?.0)?.name.clone();
            Some(Party::Nfs4 { client: state.client, owner })
        });
        let is_there = self.lock_abort(ticket, now);
        if let (true, Some(party), Some(kind)) = (is_there, party, kind) {
            let manner = Manner::Notified;
            self.enqueue_waiter(file, Waiter { party, range, kind, manner, asked_at: now, kept_until: None });
        }
        is_there
    }

    /// Somebody outside, whose locks only the backend knows, has let go of some: those who waited for that are let in.
    pub fn freed_outside(&mut self, file: FileKey, range: ByteRange, now: Instant) {
        if let Some(of) = self.files.get_mut(&file) {
            // What else is held is met again.
            of.outside = RangeMap::default();
        }
        self.wake_waiters(file, Some(range), now);
    }

    /// Whoever has locked a range has met nobody there. Others of its line may be let in now.
    pub(crate) fn met_nobody_outside(&mut self, file: FileKey, range: ByteRange, now: Instant) {
        let Some(of) = self.files.get_mut(&file) else { return };
        if of.outside.overlapping(range).next().is_some() {
            of.outside.clear(range);
            self.wake_waiters(file, Some(range), now);
        }
    }
}
