//! The slow, obvious reference: a list of everything anybody has. Locks are kept byte by byte, shares OPEN by OPEN;
//! every question is answered by looking at all of it. A client whose lease ran out is as if it were not there.

use holdfast_base::Instant;
use holdfast_state::{Access, LockKind, Share};

use super::world::LEASE_MS;

pub(crate) const CLIENTS: usize = 4;
pub(crate) const OWNERS: usize = 2;
pub(crate) const FILES: usize = 2;
pub(crate) const BYTES: usize = 12;

/// One OPEN, by client, owner and file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) client: usize,
    pub(crate) owner: usize,
    pub(crate) file: usize,
    pub(crate) share: Share,
}

/// One locked byte, by client, lock-owner and file, with the open-owner it was first locked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    pub(crate) client: usize,
    pub(crate) owner: usize,
    pub(crate) file: usize,
    pub(crate) byte: usize,
    pub(crate) kind: LockKind,
}

/// A lock-owner's state on a file: which open-owner's open it hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LockState {
    pub(crate) client: usize,
    pub(crate) owner: usize,
    pub(crate) file: usize,
    pub(crate) open_owner: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) opens: Vec<Open>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) lock_states: Vec<LockState>,
    pub(crate) seen: [Instant; CLIENTS],
}

impl Model {
    pub(crate) fn is_alive(&self, client: usize, now: Instant) -> bool {
        now.ms_since(self.seen[client]) <= LEASE_MS
    }

    pub(crate) fn forget(&mut self, client: usize) {
        self.opens.retain(|open| open.client != client);
        self.locks.retain(|lock| lock.client != client);
        self.lock_states.retain(|state| state.client != client);
    }

    /// The union of an owner's OPENs of a file; `None` without any.
    pub(crate) fn share(&self, client: usize, owner: usize, file: usize) -> Option<Share> {
        let its = self.opens.iter().filter(|o| (o.client, o.owner, o.file) == (client, owner, file));
        its.map(|open| open.share).reduce(|a, b| Share { access: a.access | b.access, deny: a.deny | b.deny })
    }

    pub(crate) fn can_open(&self, new: Open, now: Instant) -> bool {
        // The owner's own are no exception.
        let mut all =
            self.opens.iter().filter(|open| open.file == new.file && self.is_alive(open.client, now));
        !all.any(|open| open.share.conflicts(new.share))
    }

    /// Whether an open for writing may read as well: when nobody else denies it.
    pub(crate) fn can_read_for_write(&self, by: (usize, usize), file: usize, now: Instant) -> bool {
        let others = self.opens.iter().filter(|open| (open.client, open.owner) != by && open.file == file);
        !others
            .filter(|open| self.is_alive(open.client, now))
            .any(|open| open.share.deny.contains(Access::READ))
    }

    pub(crate) fn can_do_io(&self, file: usize, access: Access, now: Instant) -> bool {
        let share = Share { access, deny: Access::NONE };
        self.can_open(Open { client: usize::MAX, owner: 0, file, share }, now)
    }

    /// OPENs that remain when an owner downgrades to `target`; `None` when no subset has that union. Tries every
    /// subset.
    pub(crate) fn downgrade(&self, client: usize, owner: usize, file: usize, target: Share) -> bool {
        let its = self.opens.iter().filter(|o| (o.client, o.owner, o.file) == (client, owner, file));
        let mut kinds: Vec<Share> = Vec::new();
        for open in its {
            if !kinds.contains(&open.share) {
                kinds.push(open.share);
            }
        }
        (1..1u32 << kinds.len()).any(|subset| {
            let chosen =
                kinds.iter().enumerate().filter(|(n, _)| subset & 1 << n != 0).map(|(_, share)| *share);
            let union = chosen.reduce(|a, b| Share { access: a.access | b.access, deny: a.deny | b.deny });
            union == Some(target)
        })
    }

    pub(crate) fn apply_downgrade(&mut self, client: usize, owner: usize, file: usize, target: Share) {
        let exceeds =
            |o: &Open| !target.access.contains(o.share.access) || !target.deny.contains(o.share.deny);
        self.opens.retain(|o| (o.client, o.owner, o.file) != (client, owner, file) || !exceeds(o));
    }

    pub(crate) fn close(&mut self, client: usize, owner: usize, file: usize) {
        self.opens.retain(|o| (o.client, o.owner, o.file) != (client, owner, file));
        let ends = |s: &LockState| (s.client, s.open_owner, s.file) == (client, owner, file);
        let ended: Vec<_> = self.lock_states.iter().copied().filter(ends).collect();
        self.lock_states.retain(|state| !ends(state));
        self.locks
            .retain(|l| !ended.iter().any(|s| (s.client, s.owner, s.file) == (l.client, l.owner, l.file)));
    }

    /// Whether somebody alive other than this lock-owner is in the way.
    pub(crate) fn can_lock(&self, new: Lock, last: usize, now: Instant) -> bool {
        let others = self.locks.iter().filter(|lock| (lock.client, lock.owner) != (new.client, new.owner));
        let mut others = others.filter(|lock| lock.file == new.file && self.is_alive(lock.client, now));
        !others.any(|lock| (new.byte..=last).contains(&lock.byte) && lock.kind.conflicts(new.kind))
    }

    pub(crate) fn lock(&mut self, new: Lock, last: usize) {
        self.unlock(new, last);
        self.locks.extend((new.byte..=last).map(|byte| Lock { byte, ..new }));
    }

    pub(crate) fn unlock(&mut self, of: Lock, last: usize) {
        let is_its = |l: &Lock| (l.client, l.owner, l.file) == (of.client, of.owner, of.file);
        self.locks.retain(|lock| !is_its(lock) || !(of.byte..=last).contains(&lock.byte));
    }
}
