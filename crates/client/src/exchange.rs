//! One compound on one slot, sent until it is answered: over new connections too, always with the same number, so that
//! the server carries it out once (RFC 8881 section 2.10.6.1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::SlotId;
use holdfast_rpc::CallError;
use holdfast_rpc::link::{Cancel, EncodedAuth, Link, Pending, Stopped, Target};
use holdfast_wire::caps::SEQ4_STATUS_CAPS_IN_DOUBT;
use holdfast_wire::nfs4::{
    NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, NfsStat4, OpNum4, SEQ4_STATUS_RESTART_RECLAIM_NEEDED,
    Sequence4Ok,
};

use crate::boot::BootTime;
use crate::client::Inner;
use crate::compound::{Answer, Compound};
use crate::session::{Lane, Session, SlotHeld};
use crate::{Error, Result};

pub(crate) const COMPOUND: Target =
    Target { program: NFS4_PROGRAM, version: NFS_V4, procedure: NFSPROC4_COMPOUND };

/// Attempts that follow each other at once when connections break; the pause between those after them: it may be the
/// request that breaks them.
const QUICK_RESENDS: u32 = 2;
const RESEND_PAUSE: Duration = Duration::from_millis(500);

/// What becomes of an answer to an operation that was given up. Runs among the chores.
pub(crate) type Late = Box<dyn FnOnce(&Inner, Answer) + Send>;

/// How a compound is sent.
pub(crate) struct Sending<'a> {
    pub(crate) auth: &'a EncodedAuth,
    pub(crate) lane: Lane,
    /// The server shall keep the whole reply: for what must not happen twice.
    pub(crate) is_cached: bool,
    pub(crate) cancel: &'a Cancel,
    pub(crate) deadline: Option<Instant>,
    pub(crate) late: Option<Late>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Missed {
    /// The session is gone: ask anew on the next one. Whether it was carried out is not known.
    Session,
    /// Ask anew, on the same session.
    Again,
    /// No connection, and this caller does not wait for one.
    Link,
    /// Nothing will help.
    Failed(Error),
}

/// A request that was sent and given up, whose slot waits for its end to be known.
pub(crate) struct Orphan {
    pub(crate) slot: SlotHeld,
    pub(crate) args: Vec<Bytes>,
    pub(crate) auth: EncodedAuth,
    pub(crate) late: Option<Late>,
}

/// What a SEQUENCE's answer calls for.
enum Verdict {
    Good,
    Resend(Duration),
    Missed(Missed),
}

impl Inner {
    /// Sends a compound until it is answered.
    pub(crate) fn exchange(
        &self,
        session: &Arc<Session>,
        compound: &Compound,
        how: Sending<'_>,
    ) -> Result<Answer, Missed> {
        let taken = session.take(how.lane, how.cancel, how.deadline).map_err(stopped)?;
        let Some(mut slot) = taken else { return Err(Missed::Session) };
        let args = compound.finish(session.minor, Some(slot.sequence(how.is_cached)));
        let bytes: usize = args.iter().map(Bytes::len).sum();
        if bytes > session.fore.maxrequestsize as usize {
            // Some servers break the connection over it, which we would mend for ever.
            return Err(Missed::Failed(Error::Nfs(NfsStat4::ReqTooBig)));
        }
        let (mut times, epoch) = (0, self.gate.epoch());
        let begun = BootTime::now();
        loop {
            let is_sent = times > 0;
            if times > QUICK_RESENDS && how.cancel.sleep_until(Instant::now() + RESEND_PAUSE).is_err() {
                return Err(self.give_up(slot, is_sent, &args, how));
            }
            let Some(link) = self.link_for(session, &slot, &how)? else {
                return Err(self.without_link(slot, is_sent, &args, how));
            };
            let sent_at = BootTime::now();
            let pending = match link.start(COMPOUND, how.auth, &args, (how.cancel, how.deadline)) {
                Ok(pending) => pending,
                Err(CallError::TimedOut) => return Err(self.give_up(slot, is_sent, &args, how)),
                Err(CallError::Busy) => return Err(Missed::Failed(Error::Rpc(CallError::Busy))),
                Err(_) => continue,
            };
            times += 1;
            let outcome = match pending.wait(how.cancel, how.deadline) {
                Ok(outcome) => outcome,
                Err(why) => {
                    self.orphan(pending, slot, args, how);
                    return Err(stopped(why));
                }
            };
            let reply = match outcome {
                Ok(reply) => reply,
                Err(CallError::Closed) => {
                    self.todo.wake();
                    continue;
                }
                Err(e) => return Err(Missed::Failed(Error::Rpc(e))),
            };
            let mut answer = Answer::new(reply).map_err(Missed::Failed)?;
            match self.sequence(session, &mut slot, &mut answer, (&link, how.lane), (sent_at, begun, epoch)) {
                // It was done, and what came of it is not told twice: what need not be kept is asked anew.
                Verdict::Good if !how.is_cached && answer.was_not_kept() => return Err(Missed::Again),
                Verdict::Good => {
                    answer.hold(slot);
                    return Ok(answer);
                }
                Verdict::Missed(missed) => return Err(missed),
                Verdict::Resend(pause) => {
                    if how.cancel.sleep_until(Instant::now() + pause).is_err() {
                        return Err(self.give_up(slot, true, &args, how));
                    }
                }
            }
        }
    }

    /// A connection to send over; nothing when there will be none for this caller.
    fn link_for(
        &self,
        session: &Arc<Session>,
        slot: &SlotHeld,
        how: &Sending<'_>,
    ) -> Result<Option<Link>, Missed> {
        if session.is_lost() {
            return Err(Missed::Session);
        }
        if let Some(link) = self.links.get(session.id, slot.number()) {
            return Ok(Some(link));
        }
        if how.lane == Lane::Recovery {
            return Ok(None);
        }
        self.todo.wake();
        let waited = self.links.wait((session.id, slot.number()), (how.cancel, how.deadline), || {
            session.is_lost() || self.quit.is_cancelled()
        });
        match waited {
            Ok(Some(link)) => Ok(Some(link)),
            Ok(None) if session.is_lost() => Err(Missed::Session),
            Ok(None) => Err(Missed::Failed(Error::Closed)),
            Err(_) => Ok(None),
        }
    }

    /// There was no connection to be had in time.
    fn without_link(&self, slot: SlotHeld, is_sent: bool, args: &[Bytes], how: Sending<'_>) -> Missed {
        if how.lane == Lane::Recovery {
            self.leave(slot, is_sent, args, how);
            return Missed::Link;
        }
        self.give_up(slot, is_sent, args, how)
    }

    /// The caller gave up between two attempts.
    fn give_up(&self, slot: SlotHeld, is_sent: bool, args: &[Bytes], how: Sending<'_>) -> Missed {
        let why = if how.cancel.is_cancelled() { Error::Cancelled } else { Error::TimedOut };
        self.leave(slot, is_sent, args, how);
        Missed::Failed(why)
    }

    /// A slot that was sent on stays taken until the server's count is known again.
    fn leave(&self, slot: SlotHeld, is_sent: bool, args: &[Bytes], how: Sending<'_>) {
        if is_sent {
            let (args, auth) = (args.to_vec(), how.auth.clone());
            self.todo.orphan(Orphan { slot, args, auth, late: how.late });
        }
    }

    /// The caller gave up while the request is under way: its answer frees the slot, or the loss of the connection
    /// makes it recovery's affair.
    fn orphan(&self, pending: Pending, slot: SlotHeld, args: Vec<Bytes>, how: Sending<'_>) {
        let this = self.this.clone();
        let (auth, late) = (how.auth.clone(), how.late);
        pending.abandon(move |outcome| {
            let Some(inner) = this.upgrade() else { return };
            match outcome {
                Ok(reply) => inner.late_answer(reply, slot, late),
                Err(_) => inner.todo.orphan(Orphan { slot, args, auth, late }),
            }
        });
    }

    fn late_answer(&self, reply: holdfast_rpc::link::Reply, mut slot: SlotHeld, late: Option<Late>) {
        let Ok(mut answer) = Answer::new(reply) else { return };
        match answer.next::<Sequence4Ok>(OpNum4::Sequence) {
            Ok(_) => {
                slot.used();
                // Chores need slots themselves: none is kept by one that waits for its turn.
                if let Some(late) = late {
                    self.chores.add(Box::new(move |inner| late(inner, answer)));
                }
            }
            Err(Error::Nfs(NfsStat4::SeqFalseRetry | NfsStat4::RetryUncachedRep)) => slot.used(),
            // It was not counted.
            Err(_) => {}
        }
    }

    /// Heeds the answer to SEQUENCE.
    fn sequence(
        &self,
        session: &Arc<Session>,
        slot: &mut SlotHeld,
        answer: &mut Answer,
        (link, lane): (&Link, Lane),
        (sent, begun, epoch): (BootTime, BootTime, u64),
    ) -> Verdict {
        let asked = slot.sequence(false);
        let status = match answer.next::<Sequence4Ok>(OpNum4::Sequence) {
            Ok(ok) if ok.sessionid == asked.sessionid && ok.slotid == asked.slotid => {
                slot.used();
                session.aim(ok.target_highest_slotid);
                self.todo.renewed(sent);
                if ok.status_flags & SEQ4_STATUS_CAPS_IN_DOUBT == 0 {
                    // Sent again it may be answered as it was the first time.
                    let has_restarted = ok.status_flags & SEQ4_STATUS_RESTART_RECLAIM_NEEDED != 0;
                    self.todo.promised(begun, has_restarted);
                }
                self.heed(ok.status_flags, lane, epoch);
                return Verdict::Good;
            }
            Ok(_) => return Verdict::Missed(Missed::Failed(Error::Protocol("the answer of another slot"))),
            Err(Error::Nfs(status)) => status,
            Err(e) => return Verdict::Missed(Missed::Failed(e)),
        };
        match status {
            NfsStat4::Delay => Verdict::Resend(Duration::from_millis(50)),
            NfsStat4::ConnNotBoundToSession => {
                self.links.unbind(link);
                self.todo.wake();
                Verdict::Resend(Duration::ZERO)
            }
            NfsStat4::BadSession
            | NfsStat4::DeadSession
            | NfsStat4::StaleClientId
            | NfsStat4::SeqMisordered => {
                tracing::debug!(?status, "the session is gone");
                self.lose_session(session);
                Verdict::Missed(Missed::Session)
            }
            // Linux ends the sessions of a client whose lease is over; NFS-Ganesha says so on them.
            NfsStat4::Expired => {
                self.lose_lease(session);
                Verdict::Missed(Missed::Session)
            }
            NfsStat4::BadSlot => {
                session.aim(SlotId((slot.number() as u32).saturating_sub(1)));
                Verdict::Missed(Missed::Again)
            }
            NfsStat4::SeqFalseRetry | NfsStat4::RetryUncachedRep => {
                slot.used();
                Verdict::Missed(Missed::Again)
            }
            status => Verdict::Missed(Missed::Failed(Error::Nfs(status))),
        }
    }

    /// Notes that the lease is over: the server knows nothing of us, or will not much longer.
    pub(crate) fn lose_lease(&self, session: &Arc<Session>) {
        if self.gate.lose_lease(session) {
            tracing::debug!("the lease is over");
            // Where it knows us all the same, what is left is looked for.
            self.todo.change(|work| work.must_look = true);
        }
        self.lose_session(session);
    }

    /// Notes that the server does not know a session any more.
    pub(crate) fn lose_session(&self, session: &Arc<Session>) {
        session.lose();
        self.links.wake();
        self.todo.wake();
    }

    /// One compound without a session, over one connection: what makes and binds sessions.
    pub(crate) fn bare(&self, link: &Link, minor: u32, compound: &Compound) -> Result<Answer> {
        let args = compound.finish(minor, None);
        let auth = self.options.machine.encoded();
        let deadline = Instant::now() + self.options.patience;
        loop {
            let reply = link.call(COMPOUND, auth, &args, (&self.quit, Some(deadline))).map_err(|e| {
                // A server that hears but does not answer is as good as none.
                link.close();
                if e == CallError::Closed { Error::Disconnected } else { Error::Rpc(e) }
            })?;
            let answer = Answer::new(reply)?;
            if answer.status != NfsStat4::Delay {
                return Ok(answer);
            }
            self.quit.sleep_until(Instant::now() + Duration::from_millis(50)).map_err(Error::from)?;
        }
    }
}

fn stopped(why: Stopped) -> Missed {
    Missed::Failed(why.into())
}
