//! The slow, obvious reference: a list of everything anybody has. Locks are kept byte by byte, shares OPEN by OPEN;
//! every question is answered by looking at all of it. A client whose lease ran out is there until it is in somebody's
//! way. Parties of other doors are counted on from the clients; theirs never runs out.

use std::collections::BTreeSet;

use holdfast_base::Instant;
use holdfast_state::{Access, DelegationKind, LockKind, Share, StateError};

use grace::{Asked, Recovery};
use line::{Had, Party, Wait};
use promises::{Callbacks, Delegation, deed_of_share, excludes};

pub(crate) mod grace;
pub(crate) mod line;
pub(crate) mod promises;

pub(crate) const CLIENTS: usize = 4;
/// The first clients speak 4.1, the last one 4.0.
pub(crate) const FIRST_40: usize = CLIENTS - 1;
pub(crate) const OWNERS: usize = 2;
pub(crate) const FILES: usize = 2;
pub(crate) const BYTES: usize = 12;
/// Parties of other doors.
pub(crate) const FOREIGN: usize = 3;

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

impl Open {
    /// Whether two OPENs are of one owner and file.
    pub(crate) fn is_same_state(&self, other: &Self) -> bool {
        (self.client, self.owner, self.file) == (other.client, other.owner, other.file)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) opens: Vec<Open>,
    pub(crate) locks: Vec<Lock>,
    pub(crate) lock_states: Vec<LockState>,
    pub(crate) seen: [Instant; CLIENTS],
    /// The engine does not know them, or has them go.
    pub(crate) gone: [bool; CLIENTS],
    pub(crate) callbacks: [Callbacks; CLIENTS],
    /// Going: to be released at the next tick.
    pub(crate) leaving: BTreeSet<usize>,
    /// Lost because somebody wanted what they had, in this step.
    pub(crate) expired: Vec<usize>,
    pub(crate) delegations: Vec<Delegation>,
    /// Revoked, not yet freed: client and file.
    pub(crate) revoked: Vec<(usize, usize)>,
    /// The same, of this step.
    pub(crate) newly_revoked: Vec<(usize, usize)>,
    pub(crate) recent: [Option<Instant>; FILES + 1],
    /// In line, all doors in one.
    pub(crate) waits: Vec<Wait>,
    /// Waits that ended in a lock, in this step.
    pub(crate) granted: Vec<Had>,
    /// Owners of NFSv4 who were told that they may have theirs, in this step: of which file.
    pub(crate) told: Vec<(Party, usize)>,
    pub(crate) now: Instant,
    pub(crate) lease_ms: u64,
    pub(crate) recovery: Recovery,
}

impl Model {
    pub(crate) fn is_alive(&self, client: usize, now: Instant) -> bool {
        client >= CLIENTS || (!self.gone[client] && now.ms_since(self.seen[client]) <= self.lease_ms)
    }

    /// Whether a client is there and out of its lease.
    pub(crate) fn is_away(&self, client: usize, now: Instant) -> bool {
        client < CLIENTS && !self.is_alive(client, now)
    }

    /// Whether anybody who is away holds a lock, which whoever asks for it takes.
    pub(crate) fn has_away_holders(&self) -> bool {
        self.locks.iter().any(|lock| self.is_away(lock.client, self.now))
    }

    /// Whether an owner has the file open.
    pub(crate) fn has_open(&self, client: usize, owner: usize, file: usize) -> bool {
        self.opens.iter().any(|open| (open.client, open.owner, open.file) == (client, owner, file))
    }

    /// Whether a client has anything.
    pub(crate) fn holds(&self, client: usize) -> bool {
        self.opens.iter().any(|open| open.client == client)
            || self.delegations.iter().any(|delegation| delegation.client == client)
            || self.revoked.iter().any(|(holder, _)| *holder == client)
    }

    /// Those who are away and in the way go, and those in line behind them are let in.
    pub(crate) fn expire(&mut self, clients: Vec<usize>) {
        for client in clients {
            self.lose(client);
            self.leaving.remove(&client);
            self.expired.push(client);
            self.forget(client);
        }
        self.let_in();
    }

    pub(crate) fn forget(&mut self, client: usize) {
        self.believe(client);
        self.opens.retain(|open| open.client != client);
        self.locks.retain(|lock| lock.client != client);
        self.lock_states.retain(|state| state.client != client);
        self.waits.retain(|wait| wait.lock.client != client);
        self.delegations.retain(|delegation| delegation.client != client);
        self.revoked.retain(|(holder, _)| *holder != client);
    }

    /// The union of an owner's OPENs of a file; `None` without any.
    pub(crate) fn share(&self, client: usize, owner: usize, file: usize) -> Option<Share> {
        let its = self.opens.iter().filter(|o| (o.client, o.owner, o.file) == (client, owner, file));
        its.map(|open| open.share).reduce(|a, b| Share { access: a.access | b.access, deny: a.deny | b.deny })
    }

    /// Whether an open goes with all others, its owner's own among them; but not when that asks again for what it had.
    pub(crate) fn can_open(&mut self, new: Open, asked: Asked, now: Instant) -> bool {
        let is_counted = |open: &Open| asked != Asked::Again || !open.is_same_state(&new);
        self.can_share(new.file, new.share, |open| open.client != new.client, is_counted, now)
    }

    /// Whether an open goes with all those of clients that are not away, which lose nothing to what is not granted.
    pub(crate) fn is_denied_by_nobody_here(&self, new: Open, asked: Asked, now: Instant) -> bool {
        let is_counted = |open: &&Open| asked != Asked::Again || !open.is_same_state(&new);
        let in_way =
            |open: &&Open| open.file == new.file && open.share.conflicts(new.share) && is_counted(open);
        let stays = |open: &Open| open.client == new.client || !self.is_away(open.client, now);
        !self.opens.iter().filter(in_way).any(stays)
    }

    /// Whether a share goes with all those `counted`; of those in its way, the ones `expirable` go if they are away, and
    /// nobody else is in the way.
    pub(crate) fn can_share(
        &mut self,
        file: usize,
        wanted: Share,
        expirable: impl Fn(&Open) -> bool,
        counted: impl Fn(&Open) -> bool,
        now: Instant,
    ) -> bool {
        let in_way = |open: &&Open| open.file == file && open.share.conflicts(wanted);
        if !self.opens.iter().filter(in_way).any(&counted) {
            return true;
        }
        let away = self.opens.iter().filter(in_way).filter(|open| expirable(open));
        let away: BTreeSet<_> = away.map(|open| open.client).filter(|c| self.is_away(*c, now)).collect();
        let stays = |open: &Open| counted(open) && !away.contains(&open.client);
        if self.opens.iter().filter(in_way).any(stays) {
            return false;
        }
        self.expire(away.into_iter().collect());
        true
    }

    /// What an OPEN is answered.
    pub(crate) fn judge_open(&mut self, new: Open, asked: Asked) -> Result<(), StateError> {
        let Open { client, owner, file, share } = new;
        let (now, deed) = (self.now, deed_of_share(share));
        // What a delegation does not allow its holder asks for as anybody does.
        let is_allowed = self
            .delegation(client, file)
            .is_some_and(|own| own.kind == DelegationKind::Write || !excludes(own.kind, deed));
        let grounds = if asked == Asked::Delegated && !is_allowed { Asked::Anew } else { asked };
        if let Some(error) = self.refused(client, grounds, self.has_share(new)) {
            return Err(error);
        }
        let is_again = asked == Asked::Again;
        if !self.is_denied_by_nobody_here(new, asked, now) {
            return Err(if is_again { StateError::ReclaimConflict } else { StateError::ShareDenied });
        }
        // An owner that has not opened the file may not know of its client's delegation.
        let is_known = asked != Asked::Anew || self.has_open(client, owner, file);
        if self.contend(file, deed, is_known.then_some(client), now) {
            return Err(StateError::Delay);
        }
        assert!(self.can_open(new, asked, now));
        Ok(())
    }

    /// Whether an open for writing may read as well: when nobody else denies it, and nobody may reclaim an open that does.
    pub(crate) fn judge_read_for_write(&mut self, by: (usize, usize), file: usize) -> Result<(), StateError> {
        let wanted = Share { access: Access::READ, deny: Access::NONE };
        let is_other = |open: &Open| (open.client, open.owner) != by;
        if self.is_grace() {
            return Err(StateError::Grace);
        }
        let can = self.can_share(file, wanted, |open| open.client != by.0, is_other, self.now);
        can.then_some(()).ok_or(StateError::Locked)
    }

    pub(crate) fn judge_io(&mut self, file: usize, access: Access) -> Result<(), StateError> {
        if self.is_grace() {
            return Err(StateError::Grace);
        }
        let share = Share { access, deny: Access::NONE };
        let nobodys = Open { client: usize::MAX, owner: 0, file, share };
        self.can_open(nobodys, Asked::Anew, self.now).then_some(()).ok_or(StateError::Locked)
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

    /// Whether nobody other than this lock-owner is in the way, holding bytes or having them kept; those who hold and are away
    /// go.
    pub(crate) fn can_lock(&mut self, new: Lock, last: usize, now: Instant) -> bool {
        let away: BTreeSet<_> = self.in_way_of_lock(new, last).collect();
        let away: Vec<_> = away.into_iter().filter(|client| self.is_away(*client, now)).collect();
        self.expire(away);
        self.in_way_of_lock(new, last).next().is_none() && !self.is_kept_from(new, last)
    }

    /// Who holds a byte in the way of a lock.
    pub(crate) fn in_way_of_lock(&self, new: Lock, last: usize) -> impl Iterator<Item = usize> + '_ {
        self.holders_in_way(new, last).map(|(client, _)| client)
    }

    /// The same, by owner.
    pub(crate) fn holders_in_way(&self, new: Lock, last: usize) -> impl Iterator<Item = Party> + '_ {
        let others = self.locks.iter().filter(move |lock| lock.party() != new.party());
        let others = others.filter(move |lock| {
            let overlaps = (new.byte..=last).contains(&lock.byte);
            lock.file == new.file && overlaps && lock.kind.conflicts(new.kind)
        });
        others.map(Lock::party)
    }

    pub(crate) fn lock(&mut self, new: Lock, last: usize) {
        self.unlock(new, last);
        self.locks.extend((new.byte..=last).map(|byte| Lock { byte, ..new }));
    }

    /// A lock on its way: what its owner has that is stronger stays until it is had.
    pub(crate) fn strengthen(&mut self, new: Lock, last: usize) {
        for byte in new.byte..=last {
            let had =
                self.locks.iter().find(|l| (l.party(), l.file, l.byte) == (new.party(), new.file, byte));
            let kind = had.map_or(new.kind, |had| had.kind.max(new.kind));
            self.lock(Lock { byte, kind, ..new }, byte);
        }
    }

    pub(crate) fn unlock(&mut self, of: Lock, last: usize) {
        let is_its = |l: &Lock| (l.client, l.owner, l.file) == (of.client, of.owner, of.file);
        self.locks.retain(|lock| !is_its(lock) || !(of.byte..=last).contains(&lock.byte));
    }
}
