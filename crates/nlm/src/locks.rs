//! LOCK, UNLOCK, CANCEL and TEST: with the state engine, then on the backend.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::limits::NLM_BLOCKED_PER_OWNER_FILE_MAX;
use holdfast_base::{ByteRange, FileKey, Length, Offset};
use holdfast_state::{
    Conflict, ConflictHolder, ForeignClaim, ForeignRefusal, ForeignRequest, ForeignTicket, ForeignWait,
    LockKind, RangeMap, StateError,
};
use holdfast_vfs::FsError;
use holdfast_wire::nlm4::NlmStat4;

use crate::held::{Blocked, Held, OwnerFile, Stage};
use crate::lockd::Lockd;
use crate::names::{HostName, OwnerName, status_of};
use crate::outside::Site;

/// A lock as a call names it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) site: Site,
    pub(crate) file: FileKey,
    pub(crate) host: HostName,
    pub(crate) owner: OwnerName,
    pub(crate) range: ByteRange,
    pub(crate) kind: LockKind,
    /// The address of ours that was called.
    pub(crate) local: IpAddr,
    /// As the client wrote them.
    pub(crate) fh: Vec<u8>,
    pub(crate) offset: Offset,
    pub(crate) length: Length,
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) block: bool,
    pub(crate) reclaim: bool,
    /// The host is to be on record, and told when we restart.
    pub(crate) is_monitored: bool,
    /// The state of the client's monitor; 0 when it does not know.
    pub(crate) state: i32,
}

/// A lock in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InWay {
    pub(crate) exclusive: bool,
    pub(crate) svid: i32,
    pub(crate) oh: Vec<u8>,
    pub(crate) range: ByteRange,
}

/// A change of locks under way, which is taken back unless it is committed, also when a backend panics.
struct Change<'a> {
    lockd: &'a Lockd,
    ticket: Option<ForeignTicket>,
}

impl<'a> Change<'a> {
    const fn of(lockd: &'a Lockd, ticket: ForeignTicket) -> Self {
        Self { lockd, ticket: Some(ticket) }
    }

    fn commit(mut self) {
        if let Some(ticket) = self.ticket.take() {
            // What could fail is another's record.
            let _ = self.lockd.step(|engine, now| engine.foreign_commit(ticket, now));
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let _ = self.lockd.step(|engine, now| engine.foreign_abort(ticket, now));
        }
    }
}

/// How a lock was tried.
pub(crate) enum Tried {
    Taken,
    /// In the engine's line.
    InLine,
    /// A process outside has it.
    Outside,
    Refused(NlmStat4),
}

impl Lockd {
    pub(crate) fn is_in_grace(&self) -> bool {
        self.is_in_grace.load(Ordering::Acquire)
    }

    /// LOCK and NM_LOCK.
    pub(crate) fn lock(&self, asked: &Asked, how: How) -> NlmStat4 {
        if let Err(stat) = self.admit_host(&asked.host, asked.local, how.reclaim) {
            return stat;
        }
        loop {
            let named = (&asked.host, &asked.owner);
            let of = self.table.lock().file_or_new(named, asked.file, &asked.site);
            let Ok(of) = of else { return NlmStat4::DeniedNoLocks };
            let mut held = of.held.lock();
            // Only for as long as others take turns in letting go of it.
            if held.is_gone {
                continue;
            }
            held.state = how.state;
            let stat = self.lock_in_turn(&of, &mut held, asked, how);
            self.forget_if_idle(&of, &mut held);
            return stat;
        }
    }

    fn lock_in_turn(&self, of: &Arc<OwnerFile>, held: &mut Held, asked: &Asked, how: How) -> NlmStat4 {
        let (range, kind) = (asked.range, asked.kind);
        let waits = held.blocked.iter().any(|b| b.range == range && b.kind == kind);
        let has_room = waits || held.blocked.len() < NLM_BLOCKED_PER_OWNER_FILE_MAX;
        // A reclaim is had at once or never.
        let may_wait = how.block && has_room && !how.reclaim;
        let claim = if how.reclaim { ForeignClaim::Reclaim } else { ForeignClaim::New };
        let wait = if may_wait { ForeignWait::InLine } else { ForeignWait::No };
        let keep = Some((asked.local, how));
        let stage = match self.try_lock(of, held, (range, kind), (claim, wait, keep)) {
            Tried::Taken => {
                // Asked for again by a client that does not wait for GRANTED any more.
                if let Some(blocked) = held.take_blocked(range, kind) {
                    self.table.lock().leave_waiting(blocked.number);
                }
                held.is_known(range, Some(kind));
                return NlmStat4::Granted;
            }
            Tried::InLine => Stage::InLine,
            Tried::Outside if may_wait => Stage::Outside,
            Tried::Outside => return NlmStat4::Denied,
            Tried::Refused(stat) => return stat,
        };
        if let Some(known) = held.blocked.iter_mut().find(|b| b.range == range && b.kind == kind) {
            // Even one that was granted: its owner has let others have a part since, or would have it all now.
            known.stage = stage;
            return NlmStat4::Blocked;
        }
        let kept = self.keep_host(&of.host, asked.local, how);
        let number =
            kept.and_then(|()| self.table.lock().enter_waiting(of).map_err(|_| NlmStat4::DeniedNoLocks));
        let number = match number {
            Ok(number) => number,
            Err(stat) => {
                let _ = self.step(|engine, now| engine.foreign_cancel(of.owner, of.file, range, kind, now));
                return stat;
            }
        };
        held.blocked.push(Blocked {
            number,
            range,
            kind,
            offset: asked.offset,
            length: asked.length,
            fh: asked.fh.clone(),
            local: asked.local,
            stage,
        });
        NlmStat4::Blocked
    }

    /// Tries to have a lock here and outside; its host is on record first, unless it is known to be.
    pub(crate) fn try_lock(
        &self,
        of: &OwnerFile,
        held: &mut Held,
        (range, kind): (ByteRange, LockKind),
        (claim, wait, keep): (ForeignClaim, ForeignWait, Option<(IpAddr, How)>),
    ) -> Tried {
        let request = ForeignRequest { owner: of.owner, file: of.file, range, kind, claim, wait };
        let prepared = self.step(|engine, now| engine.foreign_prepare(&request, now));
        let change = match prepared {
            Some(Ok(ticket)) => Change::of(self, ticket),
            Some(Err(ForeignRefusal::Waiting)) => return Tried::InLine,
            Some(Err(ForeignRefusal::Denied(_))) => return Tried::Refused(NlmStat4::Denied),
            Some(Err(ForeignRefusal::Error(error))) => return Tried::Refused(status_of_state(error)),
            None => return Tried::Refused(NlmStat4::Failed),
        };
        if let Some((local, how)) = keep
            && let Err(stat) = self.keep_host(&of.host, local, how)
        {
            return Tried::Refused(stat);
        }
        match held.outside.take(&of.site, &held.ranges, (range, kind)) {
            Ok(()) => {
                change.commit();
                held.ranges.set(range, kind);
                Tried::Taken
            }
            Err(FsError::Locked) => Tried::Outside,
            Err(error) => Tried::Refused(status_of(error)),
        }
    }

    /// UNLOCK. What was not held is unlocked already.
    pub(crate) fn unlock(&self, asked: &Asked) -> NlmStat4 {
        let found = self.table.lock().file(&asked.host, &asked.owner, asked.file);
        let Some(of) = found else { return NlmStat4::Granted };
        let mut held = of.held.lock();
        if held.is_gone {
            return NlmStat4::Granted;
        }
        let (given_up, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut held.blocked).into_iter().partition(|b| asked.range.contains(b.range));
        held.blocked = kept;
        for blocked in given_up {
            // Had it been granted just now, what follows gives it back.
            self.leave_line(&of, &blocked);
        }
        // Outside first: else the next owner would be let in here and turned away there.
        if let Err(error) = held.outside.give_up(&of.site, asked.range) {
            tracing::warn!(%error, "a lock of an NLM client cannot be given up");
            return NlmStat4::Failed;
        }
        let _ = self.step(|engine, now| engine.foreign_unlock(of.owner, of.file, asked.range, now));
        held.ranges.clear(asked.range);
        held.is_known(asked.range, None);
        self.stop_telling_of(&of, &mut held, asked.range);
        self.forget_if_idle(&of, &mut held);
        NlmStat4::Granted
    }

    /// A grant of which a part was let go since is not to be told any more, as others may have that part. Its client asks
    /// again by itself (Linux every 30 s); of the rest it may know, so it keeps that.
    fn stop_telling_of(&self, of: &OwnerFile, held: &mut Held, range: ByteRange) {
        let is_hit = |b: &Blocked| matches!(b.stage, Stage::Granted(_)) && b.range.overlaps(range);
        let (hit, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut held.blocked).into_iter().partition(is_hit);
        held.blocked = kept;
        for blocked in hit {
            self.table.lock().leave_waiting(blocked.number);
            if let Stage::Granted(granted) = &blocked.stage
                && !granted.may_be_known
                && !granted.is_asked
            {
                self.give_back(of, held, blocked.range, &granted.before);
            }
        }
    }

    /// CANCEL. A lock granted meanwhile of which the client does not know yet is given back; one that it knows of is
    /// its own, and there is nothing to cancel.
    pub(crate) fn cancel(&self, asked: &Asked) -> NlmStat4 {
        let found = self.table.lock().file(&asked.host, &asked.owner, asked.file);
        let Some(of) = found else { return NlmStat4::Denied };
        let mut held = of.held.lock();
        let Some(blocked) = held.take_blocked(asked.range, asked.kind) else { return NlmStat4::Denied };
        let was_in_line = self.leave_line(&of, &blocked);
        match blocked.stage {
            Stage::Granted(granted) => self.give_back(&of, &mut held, blocked.range, &granted.before),
            Stage::InLine if !was_in_line => {
                // The engine granted it, and the worker has not come to it.
                let before = held.known(blocked.range);
                self.give_back(&of, &mut held, blocked.range, &before);
            }
            Stage::InLine | Stage::Outside => {}
        }
        self.forget_if_idle(&of, &mut held);
        NlmStat4::Granted
    }

    /// Takes a request out of the engine's line; whether it stood there.
    pub(crate) fn leave_line(&self, of: &OwnerFile, blocked: &Blocked) -> bool {
        self.table.lock().leave_waiting(blocked.number);
        let Blocked { range, kind, .. } = *blocked;
        self.step(|engine, now| engine.foreign_cancel(of.owner, of.file, range, kind, now)).unwrap_or(false)
    }

    /// Has the owner hold of a range what it held before a grant, and what other grants gave it: never more than it holds
    /// now.
    pub(crate) fn give_back(
        &self,
        of: &OwnerFile,
        held: &mut Held,
        range: ByteRange,
        before: &[(ByteRange, LockKind)],
    ) {
        let left = held.left_of(range, before);
        let mut gaps = RangeMap::default();
        gaps.set(range, ());
        left.iter().for_each(|(part, _)| gaps.clear(*part));
        for &(part, kind) in &left {
            // Weaker than what is held, so nobody can be in the way.
            if held.outside.take(&of.site, &held.ranges, (part, kind)).is_err() {
                tracing::warn!("a lock of an NLM client cannot be made what it was");
            }
        }
        for (gap, ()) in gaps.iter() {
            if let Err(error) = held.outside.give_up(&of.site, gap) {
                tracing::warn!(%error, "a lock of an NLM client cannot be given up");
            }
        }
        // Weakened before it is cleared: what is cleared lets others in, and they must not get in between.
        let _ = self.step(|engine, now| {
            for &(part, kind) in &left {
                let _ = engine.foreign_lock(of.owner, of.file, part, kind, now);
            }
            for (gap, ()) in gaps.iter() {
                engine.foreign_unlock(of.owner, of.file, gap, now);
            }
        });
        held.ranges.clear(range);
        left.iter().for_each(|(part, kind)| held.ranges.set(*part, *kind));
    }

    /// TEST.
    pub(crate) fn test(&self, asked: &Asked) -> Result<Option<InWay>, NlmStat4> {
        if self.is_in_grace() {
            return Err(NlmStat4::DeniedGracePeriod);
        }
        let (owner, of) = {
            let mut table = self.table.lock();
            let of = table.file(&asked.host, &asked.owner, asked.file);
            let known = table.owner(&asked.host, &asked.owner);
            (known.unwrap_or_else(|| table.nobody()), of)
        };
        let (range, kind) = (asked.range, asked.kind);
        let tested = self.step(|engine, now| engine.foreign_test(owner, asked.file, range, kind, now));
        match tested {
            Some(Ok(())) => {}
            Some(Err(ForeignRefusal::Denied(conflict))) => return Ok(Some(self.in_way(&conflict))),
            Some(Err(ForeignRefusal::Error(error))) => return Err(status_of_state(error)),
            // Only who asks for a lock is put in line.
            Some(Err(ForeignRefusal::Waiting)) => return Err(NlmStat4::Failed),
            None => return Err(NlmStat4::Failed),
        }
        let outside = match &of {
            Some(of) => of.held.lock().outside.test(&asked.site, (range, kind)),
            None => crate::outside::Outside::default().test(&asked.site, (range, kind)),
        };
        let found = outside.map_err(status_of)?;
        Ok(found.map(|by| InWay {
            exclusive: by.kind == holdfast_vfs::LockKind::Write,
            svid: 0,
            oh: Vec::new(),
            range: by.range,
        }))
    }

    fn in_way(&self, conflict: &Conflict) -> InWay {
        let exclusive = conflict.kind == LockKind::Write;
        let nobody = InWay { exclusive, svid: 0, oh: Vec::new(), range: conflict.range };
        let ConflictHolder::Foreign(owner) = conflict.holder else { return nobody };
        let table = self.table.lock();
        let Some((_, name)) = table.name_of(owner) else { return nobody };
        InWay { svid: name.svid.unwrap_or(0), oh: name.oh.clone(), ..nobody }
    }

    /// Forgets an owner-file of which its owner has nothing.
    pub(crate) fn forget_if_idle(&self, of: &OwnerFile, held: &mut Held) {
        if held.is_idle() && !held.is_gone {
            held.is_gone = true;
            held.outside.close();
            self.table.lock().forget_file(of, self.now());
        }
    }
}

/// What a refusal of the state engine is to a caller of NLM.
pub(crate) const fn status_of_state(error: StateError) -> NlmStat4 {
    match error {
        StateError::Grace | StateError::NoGrace | StateError::Delay => NlmStat4::DeniedGracePeriod,
        StateError::Deadlock => NlmStat4::Deadlck,
        StateError::Resource => NlmStat4::DeniedNoLocks,
        StateError::ShareDenied | StateError::ReclaimConflict | StateError::ReclaimBad => NlmStat4::Denied,
        _ => NlmStat4::Failed,
    }
}
