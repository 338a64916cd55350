//! LOCK, UNLOCK, CANCEL and TEST: with the state engine, then on the backend.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::limits::NLM_BLOCKED_PER_OWNER_FILE_MAX;
use holdfast_base::{ByteRange, FileKey, Length, Offset};
use holdfast_state::{
    Conflict, ConflictHolder, ForeignClaim, ForeignRefusal, ForeignWait, LockKind, StateError,
};
use holdfast_wire::nlm4::NlmStat4;

use crate::claim::Standing;
use crate::held::{Blocked, Held, OwnerFile, Stage};
use crate::lockd::Lockd;
use crate::names::{HostName, OwnerName, status_of};
use crate::outside::Site;
use crate::taking::Tried;

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
        // Asked for again by a client that does not wait for GRANTED any more, or has cancelled and changed its mind.
        if !how.reclaim && held.is_granted(range, kind) {
            if let Err(stat) = self.keep_host(&of.host, asked.local, how) {
                return stat;
            }
            self.answer_granted(of, held, (range, kind));
            return NlmStat4::Granted;
        }
        let waits = held.waiting(range, kind).is_some();
        // Who asks again keeps its place.
        if !waits && !self.table.lock().has_room_for_ranges(of) {
            return NlmStat4::DeniedNoLocks;
        }
        let has_room = waits || held.blocked.len() < NLM_BLOCKED_PER_OWNER_FILE_MAX;
        // A reclaim is had at once or never.
        let may_wait = how.block && has_room && !how.reclaim;
        let claim = if how.reclaim { ForeignClaim::Reclaim } else { ForeignClaim::New };
        let wait = if may_wait { ForeignWait::InLine } else { ForeignWait::No };
        let keep = Some((asked.local, how));
        let stage = match self.take(of, held, (range, kind), (claim, wait, keep)) {
            Tried::Taken => {
                self.answer_granted(of, held, (range, kind));
                return NlmStat4::Granted;
            }
            Tried::InLine => Stage::InLine,
            Tried::Later if may_wait => Stage::Tried,
            Tried::Later => return NlmStat4::Denied,
            Tried::Refused(stat) => {
                // Who asked again waits no more, without a word: it has heard an error.
                if let Some(at) = held.waiting(range, kind).filter(|_| how.block && may_wait) {
                    let number = held.blocked[at].number;
                    self.drop_requests(of, held, |b| b.number == number);
                    self.let_go_if_it_can(of, held, range);
                }
                return stat;
            }
        };
        if let Some(at) = held.waiting(range, kind) {
            held.blocked[at].stage = stage;
            return NlmStat4::Blocked;
        }
        let kept = self.keep_host(&of.host, asked.local, how);
        let number =
            kept.and_then(|()| self.table.lock().enter_waiting(of).map_err(|_| NlmStat4::DeniedNoLocks));
        let number = match number {
            Ok(number) => number,
            Err(stat) => {
                let _ = self.step(|engine, now| engine.foreign_cancel(of.owner, of.file, range, kind, now));
                self.let_go_if_it_can(of, held, range);
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

    /// A lock that is there is its client's by the answer to its request. Whatever became of the same request before is
    /// settled by that.
    fn answer_granted(&self, of: &OwnerFile, held: &mut Held, (range, kind): (ByteRange, LockKind)) {
        let had_asked = self.drop_requests(of, held, |b| b.is_for(range, kind));
        held.is_known(range, Some(kind));
        if had_asked || held.locked.within(range) != held.due(range).within(range) {
            self.let_go_if_it_can(of, held, range);
        }
    }

    /// UNLOCK. What was not held is unlocked already. Requests for parts of the range are given up too.
    pub(crate) fn unlock(&self, asked: &Asked) -> NlmStat4 {
        let found = self.table.lock().file(&asked.host, &asked.owner, asked.file);
        let Some(of) = found else { return NlmStat4::Granted };
        let mut held = of.held.lock();
        if held.is_gone {
            return NlmStat4::Granted;
        }
        let can = self.step(|engine, _| engine.foreign_can_unlock(of.owner, of.file, asked.range));
        if let Some(Err(error)) = can {
            return status_of_state(error);
        }
        // Had one been granted just now, what follows gives it back.
        self.drop_requests(&of, &mut held, |b| asked.range.contains(b.range));
        held.is_known(asked.range, None);
        let settled = self.settle(&of, &mut held, asked.range);
        self.forget_if_idle(&of, &mut held);
        match settled {
            Ok(()) => NlmStat4::Granted,
            Err(error) => {
                tracing::warn!(%error, "a lock of an NLM client cannot be given up");
                NlmStat4::Failed
            }
        }
    }

    /// CANCEL. A lock granted meanwhile of which the client does not know is given back, when no call that could tell it
    /// is on its way any more; one that it knows of is its own, and there is nothing to cancel.
    pub(crate) fn cancel(&self, asked: &Asked) -> NlmStat4 {
        let found = self.table.lock().file(&asked.host, &asked.owner, asked.file);
        let Some(of) = found else { return NlmStat4::Denied };
        let mut held = of.held.lock();
        let (range, kind) = (asked.range, asked.kind);
        let granted = held.blocked.iter().rposition(|b| b.is_for(range, kind));
        let Some(at) = held.waiting(range, kind).or(granted) else { return NlmStat4::Denied };
        match held.blocked[at].granted_mut() {
            Some(granted) if granted.calls > 0 => granted.standing = Standing::Cancelled,
            _ => {
                let number = held.blocked[at].number;
                self.drop_requests(&of, &mut held, |b| b.number == number);
                self.let_go_if_it_can(&of, &mut held, range);
            }
        }
        self.forget_if_idle(&of, &mut held);
        NlmStat4::Granted
    }

    /// Forgets requests, granted or not; whether there were any. What was granted is to be settled then.
    pub(crate) fn drop_requests(
        &self,
        of: &OwnerFile,
        held: &mut Held,
        which: impl Fn(&Blocked) -> bool,
    ) -> bool {
        let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut held.blocked).into_iter().partition(which);
        held.blocked = kept;
        gone.iter().for_each(|blocked| self.leave_line(of, blocked));
        !gone.is_empty()
    }

    /// Takes a request out of the engine's line and the table of those that wait.
    pub(crate) fn leave_line(&self, of: &OwnerFile, blocked: &Blocked) {
        self.table.lock().leave_waiting(blocked.number);
        if blocked.stage == Stage::InLine {
            let Blocked { range, kind, .. } = *blocked;
            let _ = self.step(|engine, now| engine.foreign_cancel(of.owner, of.file, range, kind, now));
        }
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

    /// Brings its site's account up to date.
    pub(crate) fn count_ranges(&self, of: &OwnerFile, held: &mut Held) {
        let has = if held.is_gone { 0 } else { held.locked.len() };
        if has != held.counted {
            self.table.lock().count_ranges(of, held.counted, has);
            held.counted = has;
        }
    }

    /// The end of whatever may have changed what an owner has of a file: it is counted, and forgotten where it is nothing.
    pub(crate) fn forget_if_idle(&self, of: &OwnerFile, held: &mut Held) {
        self.count_ranges(of, held);
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
