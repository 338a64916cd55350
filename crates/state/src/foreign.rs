//! Locks and share reservations of those who do not come by NFSv4 stateids. Their own services keep their names and
//! leases; here they are in each other's way, and in that of everybody else.

use holdfast_base::limits::{FOREIGN_SHARES_PER_FILE_MAX, LOCK_HOLDERS_PER_FILE_MAX};
use holdfast_base::{ByteRange, FileKey, Instant};
use serde::{Deserialize, Serialize};

use crate::contention::Contention;
use crate::deadlock::Circle;
use crate::deed::Deed;
use crate::engine::Engine;
use crate::error::StateError;
use crate::file::Holder;
use crate::lock::LockRefusal;
use crate::lock_conflict::{Conflict, WantedLock};
use crate::lock_room::Payer;
use crate::lock_set::{LockKind, LockSet};
use crate::share::{Access, Share};
use crate::waiters::{Manner, Party, Waiter};

/// By which door a foreign owner came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Door {
    /// NLM, beside NFSv3.
    Nlm,
    /// 9P2000.L.
    P9,
    /// A Holdfast mount.
    Caps,
}

/// An owner of another door, by a number that its service gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ForeignOwner {
    /// The door.
    pub door: Door,
    /// The number; never given to another while its owner holds anything.
    pub id: u64,
}

/// On what grounds something is asked for. Whether a reclaim is entitled is for its service to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignClaim {
    /// As something new.
    New,
    /// As something held before the restart.
    Reclaim,
}

/// What becomes of a foreign lock that is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignWait {
    /// Nothing.
    No,
    /// It is put in line and granted in turn, by [`crate::Effect::ForeignGranted`].
    InLine,
}

/// A lock that a foreign owner asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignRequest {
    /// Whose.
    pub owner: ForeignOwner,
    /// On which file.
    pub file: FileKey,
    /// Which bytes.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// On what grounds.
    pub claim: ForeignClaim,
    /// What becomes of it when denied.
    pub wait: ForeignWait,
}

/// Why a foreign lock is not had, or not yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignRefusal {
    /// A lock is in the way.
    Denied(Conflict),
    /// It is in line.
    Waiting,
    /// Anything else.
    Error(StateError),
}

impl From<StateError> for ForeignRefusal {
    fn from(error: StateError) -> Self {
        Self::Error(error)
    }
}

/// A lock reserved for a foreign owner, who can ask for nothing else on the file until commit or abort.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the owner stays busy until commit or abort"]
pub struct ForeignTicket {
    number: u64,
    owner: ForeignOwner,
    file: FileKey,
    range: ByteRange,
    kind: LockKind,
    before: Vec<(ByteRange, LockKind)>,
}

/// What a lock without an open means to delegations: their holders keep locks to themselves.
pub(crate) const fn deed(kind: LockKind) -> Deed {
    match kind {
        LockKind::Read => Deed::OpenRead,
        LockKind::Write => Deed::OpenWrite,
    }
}

impl ForeignClaim {
    fn admit(self, is_grace: bool) -> Result<(), StateError> {
        match self {
            Self::New if is_grace => Err(StateError::Grace),
            Self::Reclaim if !is_grace => Err(StateError::NoGrace),
            Self::New | Self::Reclaim => Ok(()),
        }
    }
}

impl Engine {
    /// Reserves a lock for a foreign owner. The edge takes it on the backend, then calls `foreign_commit` or
    /// `foreign_abort`.
    ///
    /// # Errors
    /// `Denied` by a lock in the way; `Waiting` when it was put in line, because of a lock or of a delegation that is
    /// being recalled; else `Grace`, `NoGrace`, `Resource`, `Deadlock` when waiting would never end, and `Delay` while
    /// a delegation is being recalled or another request of this owner on this file is under way.
    pub fn foreign_prepare(
        &mut self,
        request: &ForeignRequest,
        now: Instant,
    ) -> Result<ForeignTicket, ForeignRefusal> {
        let ForeignRequest { owner, file, range, kind, claim, wait } = *request;
        claim.admit(self.grace.is_on(now))?;
        if self.foreign_busy.contains_key(&(owner, file)) {
            return Err(StateError::Delay.into());
        }
        let holder = Holder::Foreign(owner);
        let wanted = WantedLock { file, holder: Some(holder), asking: None, range, kind };
        let mut conflict = self.find_conflict(&wanted, now);
        let mut contention = Contention::Clear;
        if conflict.is_none() || wait == ForeignWait::InLine {
            contention = self.contend(file, deed(kind), None, now);
            // With what a dead client held, somebody in line may have been let in just now.
            conflict = self.find_conflict(&wanted, now);
        }
        if contention != Contention::Clear || conflict.is_some() {
            return Err(self.foreign_denied(request, conflict, now));
        }
        let held = self.files.get(&file).map(|file| &file.locks);
        if held.map_or(0, LockSet::len) >= LOCK_HOLDERS_PER_FILE_MAX {
            return Err(StateError::Resource.into());
        }
        self.check_room_for_lock(file, Some(holder), Payer::Door(owner.door))?;
        let before = self.change_locks(file, holder, |locks| {
            let before = locks.within(holder, range);
            locks.strengthen(holder, range, kind);
            before
        });
        self.retain_waiters(file, |waiter| {
            (&waiter.party, waiter.range, waiter.kind) != (&Party::Foreign(owner), range, kind)
        });
        self.tickets += 1;
        self.foreign_busy.insert((owner, file), self.tickets);
        Ok(ForeignTicket { number: self.tickets, owner, file, range, kind, before })
    }

    /// A lock cannot be had at once.
    fn foreign_denied(
        &mut self,
        request: &ForeignRequest,
        conflict: Option<Conflict>,
        now: Instant,
    ) -> ForeignRefusal {
        let ForeignRequest { owner, file, range, kind, wait, .. } = *request;
        match (wait, conflict) {
            (ForeignWait::No, Some(conflict)) if self.is_of_one_leaving(&conflict) => {
                return StateError::Delay.into();
            }
            (ForeignWait::No, Some(conflict)) => return ForeignRefusal::Denied(conflict),
            (ForeignWait::No, None) => return StateError::Delay.into(),
            (ForeignWait::InLine, _) => {}
        }
        let party = Party::Foreign(owner);
        match self.circle(&party, file, (range, kind), now) {
            Circle::Open => {}
            Circle::Closed => return StateError::Deadlock.into(),
            Circle::Unknown => return StateError::Resource.into(),
        }
        let manner = Manner::Given;
        let waiter = Waiter { party, range, kind, manner, asked_at: now, kept_until: None };
        if self.enqueue_waiter(file, waiter) { ForeignRefusal::Waiting } else { StateError::Resource.into() }
    }

    /// The backend agreed. False when the owner left meanwhile, or the administrator took its locks: the edge gives up
    /// the backend's.
    #[expect(clippy::needless_pass_by_value, reason = "a change ends once")]
    pub fn foreign_commit(&mut self, ticket: ForeignTicket, now: Instant) -> bool {
        let ForeignTicket { number, owner, file, range, kind, .. } = ticket;
        if !self.end_foreign(owner, file, number) {
            return false;
        }
        let holder = Holder::Foreign(owner);
        self.change_locks(file, holder, |locks| locks.set(holder, range, kind));
        // It may be weaker than before, and others of its own may have waited for it to be done.
        self.wake_waiters(file, None, now);
        true
    }

    fn end_foreign(&mut self, owner: ForeignOwner, file: FileKey, number: u64) -> bool {
        let is_its = self.foreign_busy.get(&(owner, file)) == Some(&number);
        if is_its {
            self.foreign_busy.remove(&(owner, file));
        }
        is_its
    }

    /// The backend refused: all is as before. False as for `foreign_commit`.
    pub fn foreign_abort(&mut self, ticket: ForeignTicket, now: Instant) -> bool {
        let ForeignTicket { number, owner, file, range, before, .. } = ticket;
        if !self.end_foreign(owner, file, number) {
            return false;
        }
        let holder = Holder::Foreign(owner);
        self.change_locks(file, holder, |locks| {
            locks.clear(holder, range);
            for (part, kind) in before {
                locks.set(holder, part, kind);
            }
        });
        self.wake_waiters(file, None, now);
        true
    }

    /// Gives a foreign owner a lock, replacing what it held of the range, where the backend has no say.
    ///
    /// # Errors
    /// As [`Engine::foreign_prepare`] without waiting.
    pub fn foreign_lock(
        &mut self,
        owner: ForeignOwner,
        file: FileKey,
        range: ByteRange,
        kind: LockKind,
        now: Instant,
    ) -> Result<(), LockRefusal> {
        let (claim, wait) = (ForeignClaim::New, ForeignWait::No);
        let request = ForeignRequest { owner, file, range, kind, claim, wait };
        let ticket = self.foreign_prepare(&request, now).map_err(|refusal| match refusal {
            ForeignRefusal::Denied(conflict) => LockRefusal::Denied(conflict),
            ForeignRefusal::Error(error) => LockRefusal::Error(error),
            // Only those who wait are put in line.
            ForeignRefusal::Waiting => LockRefusal::Error(StateError::Delay),
        })?;
        self.foreign_commit(ticket, now);
        Ok(())
    }

    /// Whether a foreign owner could have a lock; changes nothing, but has delegations recalled whose holders may keep
    /// locks to themselves.
    ///
    /// # Errors
    /// `Denied`; `Delay` while a delegation is being recalled; `Grace`.
    pub fn foreign_test(
        &mut self,
        owner: ForeignOwner,
        file: FileKey,
        range: ByteRange,
        kind: LockKind,
        now: Instant,
    ) -> Result<(), ForeignRefusal> {
        ForeignClaim::New.admit(self.grace.is_on(now))?;
        let holder = Some(Holder::Foreign(owner));
        if let Some(conflict) =
            self.find_conflict(&WantedLock { file, holder, asking: None, range, kind }, now)
        {
            return Err(ForeignRefusal::Denied(conflict));
        }
        match self.contend(file, deed(kind), None, now) {
            Contention::Clear => Ok(()),
            Contention::Recalling { .. } => Err(StateError::Delay.into()),
        }
    }

    /// A foreign owner gives up waiting for a lock. Whether it was in line; else it may hold the lock by now.
    pub fn foreign_cancel(
        &mut self,
        owner: ForeignOwner,
        file: FileKey,
        range: ByteRange,
        kind: LockKind,
        now: Instant,
    ) -> bool {
        let party = Party::Foreign(owner);
        let was_in_line = self.retain_waiters(file, |waiter| {
            (&waiter.party, waiter.range, waiter.kind) != (&party, range, kind)
        });
        if was_in_line {
            self.wake_waiters(file, None, now);
        }
        was_in_line
    }

    /// What a foreign owner holds of a range, cut to it: a grant may have been changed by its owner before its service
    /// heard of it.
    #[must_use]
    pub fn foreign_held(
        &self,
        owner: ForeignOwner,
        file: FileKey,
        range: ByteRange,
    ) -> Vec<(ByteRange, LockKind)> {
        self.files.get(&file).map(|file| file.locks.within(Holder::Foreign(owner), range)).unwrap_or_default()
    }

    /// Takes a range from a foreign owner, for which its service has asked for room ([`Engine::foreign_can_unlock`]).
    pub fn foreign_unlock(&mut self, owner: ForeignOwner, file: FileKey, range: ByteRange, now: Instant) {
        let holder = Holder::Foreign(owner);
        self.change_locks(file, holder, |locks| locks.clear(holder, range));
        self.wake_waiters(file, Some(range), now);
    }

    /// Takes everything on a file from a foreign owner: locks, waits, its share reservation. Tickets come to nothing.
    pub fn foreign_leave(&mut self, owner: ForeignOwner, file: FileKey, now: Instant) {
        self.foreign_busy.remove(&(owner, file));
        self.foreign_unshare(owner, file);
        let party = Party::Foreign(owner);
        let had_waited = self.retain_waiters(file, |waiter| waiter.party != party);
        self.release_holder(file, Holder::Foreign(owner), now);
        if had_waited {
            self.wake_waiters(file, None, now);
        }
    }

    /// Gives a foreign owner a share reservation, in place of the one it had on the file (NLM's SHARE).
    ///
    /// # Errors
    /// `ShareDenied`; `Delay` while a delegation is being recalled; `Grace`, `NoGrace`, `Resource`.
    pub fn foreign_share(
        &mut self,
        owner: ForeignOwner,
        file: FileKey,
        share: Share,
        claim: ForeignClaim,
        now: Instant,
    ) -> Result<(), StateError> {
        claim.admit(self.grace.is_on(now))?;
        let shares = self.files.get(&file).map(|file| file.foreign_shares.as_slice()).unwrap_or_default();
        let own = shares.iter().find(|(other, _)| *other == owner).map(|(_, share)| *share);
        if own.is_none() && shares.len() >= FOREIGN_SHARES_PER_FILE_MAX {
            return Err(StateError::Resource);
        }
        if !self.is_share_free(file, own.unwrap_or_default(), share, None, now) {
            return Err(self.share_refusal(
                file,
                (own.unwrap_or_default(), share),
                StateError::ShareDenied,
                now,
            ));
        }
        if self.contend(file, share.deed(), None, now) != Contention::Clear {
            return Err(StateError::Delay);
        }
        self.files.entry(file).or_default();
        self.change_shares(file, |of| {
            of.foreign_shares.retain(|(other, _)| *other != owner);
            of.foreign_shares.push((owner, share));
            of.change_share(own.unwrap_or_default(), share);
        });
        Ok(())
    }

    /// Takes a share reservation back (NLM's UNSHARE). Whether there was one.
    pub fn foreign_unshare(&mut self, owner: ForeignOwner, file: FileKey) -> bool {
        let mut had = false;
        self.change_shares(file, |of| {
            if let Some(at) = of.foreign_shares.iter().position(|(other, _)| *other == owner) {
                let (_, share) = of.foreign_shares.remove(at);
                of.change_share(share, Share::default());
                had = true;
            }
        });
        had
    }

    /// How many files there are of which an open denies something: while it is 0, NFSv3 I/O need not be judged.
    #[must_use]
    pub const fn denials(&self) -> usize {
        self.denying
    }
}

impl Share {
    /// What taking this reservation means to delegations.
    pub(crate) fn deed(self) -> Deed {
        let is_write = self.access.contains(Access::WRITE) || !self.deny.is_none();
        if is_write { Deed::OpenWrite } else { Deed::OpenRead }
    }
}
