//! Who waits in line does not ask meanwhile, so no conflict brings to light what has changed of those in its way: the tick asks in
//! its name. It never lets anybody in out of turn.

use holdfast_base::{ByteRange, ClientId, Instant};

use crate::contention::Contention;
use crate::engine::Engine;
use crate::file::File;
use crate::lock_set::LockKind;
use crate::range_map::RangeMap;
use crate::waiters::{Manner, Waiter, claim};

/// What those in line want of a file's bytes, the strongest wish where there are several. Who polls asks by itself, if it still
/// wants; and who has not asked for long may be gone.
fn wanted_in_line(file: &File, now: Instant) -> RangeMap<LockKind> {
    let mut wanted = RangeMap::default();
    let waiters = file.waiters.iter().filter(|waiter| waiter.manner != Manner::Polls);
    for waiter in waiters.filter(|waiter| waiter.waits_still(now)) {
        claim(&mut wanted, waiter.range, waiter.kind);
    }
    wanted
}

impl Engine {
    /// Of those whose lease has run out, has them go for whose locks somebody waits. At once, as with any conflict.
    pub(crate) fn expire_waited_for(&mut self, away: &[ClientId], now: Instant) {
        if away.is_empty() {
            return;
        }
        let who_is_away = |holder| self.client_of(holder).filter(|id| away.binary_search(id).is_ok());
        let mut waited_for = Vec::new();
        for file in self.waiting.iter().filter_map(|key| self.files.get(key)) {
            let held = file.locks.iter().filter_map(|(holder, ranges)| Some((who_is_away(holder)?, ranges)));
            let held: Vec<_> = held.collect();
            if held.is_empty() {
                continue;
            }
            // One look at each waiter and at each lock, however many are in each other's way.
            let wanted = wanted_in_line(file, now);
            let is_wanted = |(at, had): (ByteRange, LockKind)| {
                wanted.overlapping(at).any(|(_, kind)| kind.conflicts(had))
            };
            let of_wanted = held.into_iter().filter(|(_, ranges)| ranges.iter().any(is_wanted));
            waited_for.extend(of_wanted.map(|(id, _)| id));
        }
        if !waited_for.is_empty() {
            self.expire_lapsed(waited_for, now);
        }
    }

    /// One who waits in line by another door does not ask again for what is promised to somebody, and is let in by no lock that is
    /// freed: what is in the way of those who could have their lock otherwise is asked back in their name, also what was
    /// promised since. Whether anybody has gone for it: what he held, of other files too, is in nobody's way any more.
    pub(crate) fn contend_for_waiters(&mut self, now: Instant) -> bool {
        let clients = self.clients.by_id.len();
        let mut due = Vec::new();
        for key in self.waiting.iter().filter(|key| self.is_promised(**key)) {
            let Some(file) = self.files.get(key) else { continue };
            let given = file.waiters.iter().filter(|waiter| waiter.manner == Manner::Given);
            let is_free = |waiter: &&Waiter| {
                let holder = self.holder_of(&waiter.party, *key);
                file.locks.conflict(holder, waiter.range, waiter.kind).is_none()
            };
            due.extend(given.filter(is_free).map(|waiter| waiter.kind).max().map(|kind| (*key, kind)));
        }
        for (key, kind) in due {
            if self.contend(key, crate::foreign::deed(kind), None, now) == Contention::Clear {
                self.wake_waiters(key, None, now);
            }
        }
        self.clients.by_id.len() < clients
    }
}
