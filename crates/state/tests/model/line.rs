//! The reference's line of those who wait for locks, all doors in one: who is let in, for whom bytes are kept and for how long,
//! who is passed by, and whose wait would never end.

use std::collections::BTreeSet;

use holdfast_base::Instant;
use holdfast_base::limits::{LOCK_HANDOFF_MS, LOCK_WAIT_FRESH_MS};
use holdfast_state::{Access, LockKind, StateError};

use super::grace::{Asked, LockAnswer};
use super::promises::{deed_of_lock, excludes};
use super::{BYTES, Lock, Model};

/// How somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// At another door: it is given the lock.
    Given,
    /// A client of NFSv4 that is told, and asks again.
    Told,
    /// One that asks from time to time, and is in nobody's way meanwhile.
    Polls,
}

/// A lock that somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) lock: Lock,
    pub(crate) last: usize,
    pub(crate) manner: Manner,
    pub(crate) asked_at: Instant,
    /// Until when the bytes are kept for who was told.
    pub(crate) kept_until: Option<Instant>,
}

/// A lock that somebody was given or told of: its first byte and its last.
pub(crate) type Had = (Lock, usize);

/// Client and owner.
pub(crate) type Party = (usize, usize);

impl Lock {
    pub(crate) const fn party(&self) -> Party {
        (self.client, self.owner)
    }
}

impl Wait {
    pub(crate) const fn new(lock: Lock, last: usize, manner: Manner, asked_at: Instant) -> Self {
        Self { lock, last, manner, asked_at, kept_until: None }
    }

    fn is_in_way(&self, lock: Lock, last: usize) -> bool {
        let overlaps = self.lock.byte <= last && lock.byte <= self.last;
        self.lock.file == lock.file && overlaps && self.lock.kind.conflicts(lock.kind)
    }

    fn waits_still(&self, now: Instant) -> bool {
        self.manner == Manner::Given || now.ms_since(self.asked_at) <= LOCK_WAIT_FRESH_MS
    }
}

impl Model {
    /// Whether somebody was told and has not come in time, has not asked for longer than one who waits lets pass, or is away.
    fn is_over(&self, wait: &Wait) -> bool {
        let is_late = wait.kept_until.is_some_and(|end| end <= self.now);
        let unasked_ms = self.now.ms_since(wait.asked_at);
        let is_silent = unasked_ms > self.lease_ms.max(LOCK_WAIT_FRESH_MS);
        wait.manner != Manner::Given && (is_late || is_silent || self.is_away(wait.lock.client, self.now))
    }

    /// Whether anybody has come to the end of his wait, whom the next tick passes by.
    pub(crate) fn has_over(&self) -> bool {
        self.waits.iter().any(|wait| self.is_over(wait))
    }

    pub(crate) fn pass_by(&mut self) {
        let stay = self.waits.iter().filter(|wait| !self.is_over(wait)).copied();
        self.waits = stay.collect();
    }

    /// Those go who are away and have what somebody waits for, and does not ask for by itself.
    pub(crate) fn expire_waited_for(&mut self) {
        let waits = self.waits.iter().filter(|wait| wait.manner != Manner::Polls);
        let waits = waits.filter(|wait| wait.waits_still(self.now));
        let holders = waits.flat_map(|wait| self.in_way_of_lock(wait.lock, wait.last));
        let away: BTreeSet<_> = holders.filter(|client| self.is_away(*client, self.now)).collect();
        let is_leaving = |client: &usize| self.leaving.contains(client);
        self.expire(away.into_iter().filter(|client| !is_leaving(client)).collect());
    }

    /// What is promised is asked back for those at other doors whom nothing else is in the way of: again where somebody goes for
    /// it, who may have been in the way of others.
    pub(crate) fn contend_for_waiters(&mut self) {
        let gone = self.expired.len();
        for file in 0..super::FILES {
            let given =
                self.waits.iter().filter(|wait| wait.manner == Manner::Given && wait.lock.file == file);
            let free = given.filter(|wait| self.in_way_of_lock(wait.lock, wait.last).next().is_none());
            if let Some(kind) = free.map(|wait| wait.lock.kind).max() {
                self.contend(file, deed_of_lock(kind), None, self.now);
            }
        }
        self.let_in();
        if self.expired.len() > gone {
            self.contend_for_waiters();
        }
    }

    /// What an owner of NFSv4 waits for.
    pub(crate) fn waited_for(&self, party: Party, file: usize) -> Option<Had> {
        let wait = self.waits.iter().find(|wait| (wait.lock.party(), wait.lock.file) == (party, file));
        wait.map(|wait| (wait.lock, wait.last))
    }

    /// For whom bytes are kept that somebody else asks for.
    pub(crate) fn is_kept_from(&self, new: Lock, last: usize) -> bool {
        let others = self.waits.iter().filter(|wait| wait.lock.party() != new.party());
        let mut kept = others.filter(|wait| wait.kept_until.is_some_and(|end| self.now < end));
        kept.any(|wait| wait.is_in_way(new, last))
    }

    /// A request was denied, and its owner waits: in the place that it has in line, if any. An owner of NFSv4 waits for one lock
    /// of a file at a time; others may for several.
    pub(crate) fn wait(&mut self, wait: Wait) {
        let is_same = |other: &&mut Wait| {
            let is_its = (other.lock.party(), other.lock.file) == (wait.lock.party(), wait.lock.file);
            is_its && (wait.manner != Manner::Given || (other.lock, other.last) == (wait.lock, wait.last))
        };
        match self.waits.iter_mut().find(is_same) {
            Some(known) => *known = wait,
            None => self.waits.push(wait),
        }
        self.let_in();
    }

    /// An owner of NFSv4 gives up, or has a lock that covers what it waited for.
    pub(crate) fn waits_no_more(&mut self, of: Lock, last: usize) {
        let covers = |wait: &Wait| of.byte <= wait.lock.byte && wait.last <= last;
        let is_its = |wait: &Wait| (wait.lock.party(), wait.lock.file) == (of.party(), of.file);
        self.waits.retain(|wait| !is_its(wait) || !covers(wait));
    }

    /// Lets in who waits and whom neither a lock nor, at other doors, a delegation is in the way of, nor anybody for whom bytes
    /// are kept, nor one before it in line.
    pub(crate) fn let_in(&mut self) {
        while self.let_one_in() {}
    }

    fn let_one_in(&mut self) -> bool {
        let may = |at: &usize| {
            let wait = &self.waits[*at];
            let is_waiting = wait.manner != Manner::Polls && wait.kept_until.is_none();
            let is_claimed = |(n, other): (usize, &Wait)| {
                let has_claim = other.kept_until.is_some() || (n < *at && other.manner != Manner::Polls);
                n != *at && has_claim && other.is_in_way(wait.lock, wait.last)
            };
            let deed = deed_of_lock(wait.lock.kind);
            let is_promised = wait.manner == Manner::Given
                && self.delegations.iter().any(|d| d.file == wait.lock.file && excludes(d.kind, deed));
            is_waiting
                && !is_promised
                && !self.waits.iter().enumerate().any(is_claimed)
                && self.in_way_of_lock(wait.lock, wait.last).next().is_none()
        };
        let Some(at) = (0..self.waits.len()).find(may) else { return false };
        let Wait { lock, last, manner, .. } = self.waits[at];
        if manner == Manner::Given {
            self.waits.remove(at);
            self.lock(lock, last);
            self.granted.push((lock, last));
        } else {
            self.waits[at].kept_until = Some(self.now.after_ms(LOCK_HANDOFF_MS));
            self.told.push((lock.party(), lock.file));
        }
        true
    }

    /// Whether somebody who waited for this lock would wait for itself.
    pub(crate) fn would_deadlock(&self, lock: Lock, last: usize) -> bool {
        let mut reached: BTreeSet<Party> = self.holders_in_way(lock, last).collect();
        loop {
            if reached.contains(&lock.party()) {
                return true;
            }
            let waits = self.waits.iter().filter(|wait| wait.waits_still(self.now));
            let waits = waits.filter(|wait| reached.contains(&wait.lock.party()));
            let next: BTreeSet<Party> =
                waits.flat_map(|wait| self.holders_in_way(wait.lock, wait.last)).collect();
            if next.is_subset(&reached) {
                return false;
            }
            reached.extend(next);
        }
    }

    /// What a LOCK through an open is answered; who is denied and waits is in line from then on.
    pub(crate) fn judge_lock(
        &mut self,
        (new, last): Had,
        open_owner: usize,
        asked: Asked,
        waits: Option<Manner>,
    ) -> LockAnswer {
        let needed = if new.kind == LockKind::Read { Access::READ } else { Access::WRITE };
        let share = self.share(new.client, open_owner, new.file);
        if !share.is_some_and(|share| share.access.contains(needed)) {
            return LockAnswer::Refused(StateError::OpenMode);
        }
        let has_it = self.has_locked(new, last);
        match self.refused(new.client, asked, has_it) {
            // Whoever had it at hand before the restart, it was nobody else.
            Some(StateError::Grace) if self.is_its_own(new, has_it) => {}
            Some(error) => return LockAnswer::Refused(error),
            None => {}
        }
        if self.can_lock(new, last, self.now) {
            return LockAnswer::Granted;
        }
        match waits {
            _ if asked == Asked::Again => return LockAnswer::Refused(StateError::ReclaimConflict),
            Some(_) if self.would_deadlock(new, last) => {
                self.waits_no_more(Lock { byte: 0, ..new }, BYTES);
                self.let_in();
                return LockAnswer::Refused(StateError::Deadlock);
            }
            Some(manner) => self.wait(Wait::new(new, last, manner, self.now)),
            None => {}
        }
        LockAnswer::Denied
    }

    /// Whether anybody waits for a lock of a file.
    pub(crate) fn is_awaited(&self, file: usize) -> bool {
        self.waits.iter().any(|wait| wait.lock.file == file)
    }
}
