//! Taking locks in the state engine and on the backend, and letting go of what is not due any more. Taking never weakens
//! anything; letting go is done in one place.

use std::net::IpAddr;

use holdfast_base::ByteRange;
use holdfast_state::{
    ForeignClaim, ForeignRefusal, ForeignRequest, ForeignTicket, ForeignWait, LockKind, RangeMap,
};
use holdfast_vfs::{FsError, FsResult};
use holdfast_wire::nlm4::NlmStat4;

use crate::claim::gaps;
use crate::held::{Blocked, Held, OwnerFile, Stage};
use crate::lockd::Lockd;
use crate::locks::{How, status_of_state};
use crate::names::status_of;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    Taken,
    /// In the engine's line.
    InLine,
    /// A process outside has it, or the engine has it otherwise and the request may not stand in line there: to be tried
    /// again.
    Later,
    Refused(NlmStat4),
}

/// On what terms a lock is tried: the claim, whether it may wait, and what is put on record first.
pub(crate) type Terms = (ForeignClaim, ForeignWait, Option<(IpAddr, How)>);

impl Lockd {
    /// Tries to have a lock here and outside; its host is on record first, unless it is known to be. Taken, the lock is
    /// there at least so strongly: what was stronger is so still, until it is settled.
    pub(crate) fn take(
        &self,
        of: &OwnerFile,
        held: &mut Held,
        (range, kind): (ByteRange, LockKind),
        (claim, wait, keep): Terms,
    ) -> Tried {
        if kind == LockKind::Write {
            self.clear_the_way(of, held, range);
        }
        let has_write = held.locked.overlapping(range).any(|(_, had)| had == LockKind::Write);
        if kind == LockKind::Write || !has_write {
            let may_stand = wait == ForeignWait::InLine && held.may_stand_in_line(range, kind);
            let in_line = if may_stand { wait } else { ForeignWait::No };
            let tried = self.take_part(of, held, (range, kind), (claim, in_line, keep));
            return if wait == in_line { tried } else { later(tried) };
        }
        // The engine gives what is asked for in place of what was there. So only what is missing is asked for.
        for gap in gaps(&held.locked, range) {
            let tried = self.take_part(of, held, (gap, kind), (claim, ForeignWait::No, keep));
            if tried != Tried::Taken {
                self.let_go_if_it_can(of, held, range);
                return if wait == ForeignWait::InLine { later(tried) } else { tried };
            }
        }
        Tried::Taken
    }

    /// The same for a range where nothing is stronger.
    fn take_part(
        &self,
        of: &OwnerFile,
        held: &mut Held,
        (range, kind): (ByteRange, LockKind),
        (claim, wait, keep): Terms,
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
        held.is_out_of_line(range, kind);
        if let Some((local, how)) = keep
            && let Err(stat) = self.keep_host(&of.host, local, how)
        {
            return Tried::Refused(stat);
        }
        match held.outside.take(&of.site, &held.locked, (range, kind)) {
            Ok(()) => {
                change.commit();
                held.locked.set(range, kind);
                Tried::Taken
            }
            Err(FsError::Locked) => Tried::Later,
            Err(error) => Tried::Refused(status_of(error)),
        }
    }

    /// Takes this owner's requests for shared locks out of the engine's line where they would weaken an exclusive one when
    /// they are granted ([`Held::may_stand_in_line`]).
    fn clear_the_way(&self, of: &OwnerFile, held: &mut Held, range: ByteRange) {
        let is_in_way = |b: &&mut Blocked| {
            b.stage == Stage::InLine && b.kind == LockKind::Read && b.range.overlaps(range)
        };
        for blocked in held.blocked.iter_mut().filter(is_in_way) {
            let (shared, kind) = (blocked.range, blocked.kind);
            let cancelled =
                self.step(|engine, now| engine.foreign_cancel(of.owner, of.file, shared, kind, now));
            // Else it was granted just now, and the worker is about to hear.
            if cancelled == Some(true) {
                blocked.stage = Stage::Tried;
            }
        }
    }

    /// Lets go of what is locked of a range and not due any more, and of nothing else.
    ///
    /// # Errors
    /// The backend's, when it does not let go: then the engine does not either.
    pub(crate) fn settle(&self, of: &OwnerFile, held: &mut Held, range: ByteRange) -> FsResult<()> {
        let due = held.due(range);
        // Outside first: else the next owner would be let in here and turned away there.
        let (weaker, gone) = excess(&held.locked.within(range), &due);
        for part in weaker {
            held.outside.take(&of.site, &held.locked, (part, LockKind::Read))?;
        }
        for part in gone {
            held.outside.give_up(&of.site, part)?;
        }
        let is_in_grace = self.is_in_grace();
        // The engine may have granted something that the worker has not come to: it is asked for again, if it is hit.
        let _ = self.step(|engine, now| {
            let (weaker, gone) = excess(&engine.foreign_held(of.owner, of.file, range), &due);
            let claim = if is_in_grace { ForeignClaim::Reclaim } else { ForeignClaim::New };
            // Weakened before it is cleared: what is cleared lets others in, and they must not get in between.
            for range in weaker {
                let (owner, file, kind, wait) = (of.owner, of.file, LockKind::Read, ForeignWait::No);
                let weaker = ForeignRequest { owner, file, range, kind, claim, wait };
                // Should it fail, for want of room, the engine holds more than is due.
                if let Ok(ticket) = engine.foreign_prepare(&weaker, now) {
                    engine.foreign_commit(ticket, now);
                }
            }
            for part in gone {
                engine.foreign_unlock(of.owner, of.file, part, now);
            }
        });
        held.locked.clear(range);
        due.iter().for_each(|(part, kind)| held.locked.set(part, kind));
        Ok(())
    }

    /// The same where nobody could be told that the backend does not let go; it is tried again when the range is next
    /// spoken of.
    pub(crate) fn let_go_if_it_can(&self, of: &OwnerFile, held: &mut Held, range: ByteRange) {
        if let Err(error) = self.settle(of, held, range) {
            tracing::warn!(%error, "a lock of an NLM client cannot be given up");
        }
    }
}

/// What was tried of a request that waits otherwise than in the engine's line.
const fn later(tried: Tried) -> Tried {
    match tried {
        Tried::Refused(NlmStat4::Denied) => Tried::Later,
        other => other,
    }
}

/// Where more is held than is due: what is to be weakened, and what is to go.
fn excess(held: &[(ByteRange, LockKind)], due: &RangeMap<LockKind>) -> (Vec<ByteRange>, Vec<ByteRange>) {
    let (mut weaker, mut gone) = (Vec::new(), Vec::new());
    for (range, had) in held {
        let parts = due.within(*range).into_iter();
        weaker.extend(parts.filter(|(_, kind)| kind < had).map(|(part, _)| part));
        gone.extend(gaps(due, *range));
    }
    (weaker, gone)
}
