//! Blocking requests: their locks are taken on the backend when the engine grants them, their clients are told until
//! they have heard, and the lock is held meanwhile.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::limits::NLM_GRANTED_PATIENCE_MS;
use holdfast_base::{ByteRange, FileKey, Instant};
use holdfast_rpc::CallError;
use holdfast_state::{ForeignClaim, ForeignOwner, ForeignWait, LockKind, RangeMap};
use holdfast_wire::nlm4::{NLM_PROGRAM, NLM_V4, NlmProc4, NlmRes4, NlmStat4};
use holdfast_xdr::from_bytes;

use crate::held::{Granted, Held, OwnerFile, Stage};
use crate::lockd::{Answer, Lockd, Work};
use crate::locks::Tried;
use crate::peers::{NoAnswer, PeerCall};

/// How long one call may take before the client is told again: longer than it takes to give up.
const CALL_MS: u64 = 12_000;

/// Until the client is told again when it did not answer the first time; twice as long each time after.
const PAUSE_MS: u64 = 500;

/// The longest such pause.
const PAUSE_MS_MAX: u64 = 8_000;

/// The pause when a client that may have the lock has not been heard of for long.
const PAUSE_MS_LATE: u64 = 60_000;

impl Lockd {
    /// The engine has granted what an owner waited for.
    pub(crate) fn granted(&self, owner: ForeignOwner, file: FileKey, (range, kind): (ByteRange, LockKind)) {
        let found = self.table.lock().file_of(owner, file);
        let Some(of) = found else {
            // Whoever let go of it left the file, perhaps a moment before this was granted.
            let _ = self.step(|engine, now| engine.foreign_leave(owner, file, now));
            return;
        };
        let mut held = of.held.lock();
        if held.is_gone {
            let _ = self.step(|engine, now| engine.foreign_leave(owner, file, now));
            return;
        }
        let is_it = |b: &crate::held::Blocked| b.range == range && b.kind == kind && b.stage == Stage::InLine;
        // Not there: cancelled, which gave it back, or asked for again and had.
        let Some(at) = held.blocked.iter().position(is_it) else { return };
        let before = held.known(range);
        if !self.holds_all(&of, (range, kind)) {
            // The owner unlocked or changed a part meanwhile, not knowing of the grant: it is to have all of it, or to
            // wait on.
            self.give_back(&of, &mut held, range, &before);
        }
        self.retry(&of, &mut held, at);
        self.forget_if_idle(&of, &mut held);
    }

    /// Whether the engine has the owner hold a whole range so strongly.
    fn holds_all(&self, of: &OwnerFile, (range, kind): (ByteRange, LockKind)) -> bool {
        let held = self.parts.manager.look(|engine| engine.foreign_held(of.owner, of.file, range));
        let mut lacking = RangeMap::default();
        lacking.set(range, ());
        held.iter().filter(|(_, had)| *had >= kind).for_each(|(part, _)| lacking.clear(*part));
        lacking.is_empty()
    }

    fn begin_telling(
        &self,
        of: &Arc<OwnerFile>,
        held: &mut Held,
        at: usize,
        before: Vec<(ByteRange, LockKind)>,
    ) {
        let now = self.now();
        held.blocked[at].stage = Stage::Granted(Granted::new(now, before));
        self.tell(of, held, at, now);
    }

    /// Calls GRANTED.
    fn tell(&self, of: &Arc<OwnerFile>, held: &mut Held, at: usize, now: Instant) {
        let blocked = &mut held.blocked[at];
        let Stage::Granted(granted) = &mut blocked.stage else { return };
        granted.tries += 1;
        granted.next_at = now.after_ms(CALL_MS);
        granted.may_be_known |= granted.is_asked;
        granted.is_asked = true;
        let (number, asking) = (blocked.number, self.asking());
        let call = PeerCall {
            peer: of.host.ip,
            from: blocked.local,
            program: NLM_PROGRAM,
            version: NLM_V4,
            procedure: NlmProc4::Granted.as_u32(),
            args: blocked.granted_args(of),
        };
        let answered = move |result: Result<Vec<u8>, NoAnswer>| {
            let stat = |bytes: Vec<u8>| from_bytes::<NlmRes4<'_>>(&bytes).map(|res| res.stat);
            let garbled = |_| NoAnswer { why: CallError::Garbled, may_have_run: true };
            let answer = result.and_then(|bytes| stat(bytes).map_err(garbled));
            asking.due().push(Work::Answered { number, answer });
        };
        self.parts.peers.call(call, Box::new(answered));
    }

    /// Whether a request of a host at this address waits under this number.
    pub(crate) fn is_waiting(&self, number: u64, ip: IpAddr) -> bool {
        self.table.lock().waiting(number).is_some_and(|of| of.host.ip == ip)
    }

    /// A client has answered GRANTED, or has not.
    pub(crate) fn answered(&self, number: u64, answer: &Answer) {
        let found = self.table.lock().waiting(number).cloned();
        let Some(of) = found else { return };
        let mut held = of.held.lock();
        let now = self.now();
        let Some(blocked) = held.blocked(number) else { return };
        let Stage::Granted(granted) = &mut blocked.stage else { return };
        granted.is_asked = false;
        granted.may_be_known |= answer.as_ref().is_err_and(|no| no.may_have_run);
        match answer {
            Ok(NlmStat4::Granted) => self.end_telling(&of, &mut held, number, false),
            // A restarting client, or none that could be reached: again.
            Ok(NlmStat4::DeniedGracePeriod) | Err(_) => {
                let pause = PAUSE_MS << granted.tries.min(8);
                // Who may be gone for good is told seldom; until it comes back it has the lock.
                let is_late = now.ms_since(granted.since) >= NLM_GRANTED_PATIENCE_MS;
                granted.next_at = now.after_ms(if is_late { PAUSE_MS_LATE } else { pause.min(PAUSE_MS_MAX) });
            }
            // It may have taken an earlier one, and has nobody waiting now (Linux answers so); or it never heard of one
            // and does not want it any more: then it cancels.
            Ok(_) if granted.may_be_known => {
                granted.is_refused = true;
                granted.next_at = now.after_ms(NLM_GRANTED_PATIENCE_MS);
            }
            // It does not wait for this any more.
            Ok(_) => self.end_telling(&of, &mut held, number, true),
        }
        self.forget_if_idle(&of, &mut held);
    }

    fn end_telling(&self, of: &Arc<OwnerFile>, held: &mut Held, number: u64, is_refused: bool) {
        self.table.lock().leave_waiting(number);
        let Some(at) = held.blocked.iter().position(|b| b.number == number) else { return };
        let blocked = held.blocked.remove(at);
        match blocked.stage {
            Stage::Granted(granted) if is_refused => {
                self.give_back(of, held, blocked.range, &granted.before);
            }
            Stage::Granted(_) => held.is_known(blocked.range, Some(blocked.kind)),
            Stage::InLine | Stage::Outside => {}
        }
    }

    /// Looks after what waits: tells clients again, and tries again what processes outside had.
    pub(crate) fn retry_waiting(&self) {
        let now = self.now();
        let all = self.table.lock().all_waiting();
        for (number, of) in all {
            let mut held = of.held.lock();
            let Some(at) = held.blocked.iter().position(|b| b.number == number) else { continue };
            match &held.blocked[at].stage {
                Stage::InLine => {}
                Stage::Outside => self.retry(&of, &mut held, at),
                Stage::Granted(granted) if granted.next_at > now => {}
                // It has not cancelled.
                Stage::Granted(granted) if granted.is_refused => {
                    self.end_telling(&of, &mut held, number, false);
                }
                // One that may have it and is out of reach keeps it, as it would any lock.
                // (A call still under way may reach it yet.)
                Stage::Granted(granted)
                    if !granted.may_be_known
                        && !granted.is_asked
                        && now.ms_since(granted.since) >= NLM_GRANTED_PATIENCE_MS =>
                {
                    tracing::debug!(host = %of.host.ip, "a client that waited for a lock cannot be told of it");
                    self.end_telling(&of, &mut held, number, true);
                }
                Stage::Granted(_) => self.tell(&of, &mut held, at, now),
            }
            self.forget_if_idle(&of, &mut held);
        }
    }

    /// Tries a waiting request, which the engine may have granted.
    fn retry(&self, of: &Arc<OwnerFile>, held: &mut Held, at: usize) {
        let (range, kind) = (held.blocked[at].range, held.blocked[at].kind);
        let before = held.known(range);
        match self.try_lock(of, held, (range, kind), (ForeignClaim::New, ForeignWait::InLine, None)) {
            Tried::Taken => self.begin_telling(of, held, at, before),
            Tried::InLine => held.blocked[at].stage = Stage::InLine,
            // A delegation being recalled passes like a process outside.
            Tried::Outside | Tried::Refused(NlmStat4::DeniedGracePeriod) => {
                self.give_back(of, held, range, &before);
                held.blocked[at].stage = Stage::Outside;
            }
            Tried::Refused(_) => {
                self.give_back(of, held, range, &before);
                // The client asks again by itself, and hears what is wrong.
                let number = held.blocked.remove(at).number;
                self.table.lock().leave_waiting(number);
            }
        }
    }
}
