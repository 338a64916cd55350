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

use crate::claim::{Granted, Standing};
use crate::held::{Blocked, Held, OwnerFile, Stage};
use crate::lockd::{Answer, Lockd, Work};
use crate::peers::{NoAnswer, PeerCall};
use crate::taking::Tried;

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
            // Whoever let go of it left the file, with what was granted; what the owner has there since is another matter.
            return;
        };
        let mut held = of.held.lock();
        if held.is_gone {
            return;
        }
        // Not there: cancelled, which gave it back, or asked for again and had.
        let Some(at) = held.waiting(range, kind).filter(|at| held.blocked[*at].stage == Stage::InLine) else {
            return;
        };
        if !self.holds_all(&of, (range, kind)) {
            // The owner unlocked or changed a part meanwhile, not knowing of the grant: it is to have all of it, or to
            // wait on.
            self.let_go_if_it_can(&of, &mut held, range);
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

    /// Calls GRANTED, unless something else comes first.
    fn tell(&self, of: &Arc<OwnerFile>, held: &mut Held, at: usize, now: Instant) {
        let Blocked { number, range, kind, .. } = held.blocked[at];
        if held.must_wait(number, range, kind) {
            return;
        }
        let blocked = &mut held.blocked[at];
        let Stage::Granted(granted) = &mut blocked.stage else { return };
        granted.tries += 1;
        granted.next_at = now.after_ms(CALL_MS);
        granted.may_be_known |= granted.calls > 0;
        granted.calls += 1;
        let asking = self.asking();
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
        let Some(at) = held.position(number) else { return };
        let Some(granted) = held.blocked[at].granted_mut() else { return };
        granted.calls = granted.calls.saturating_sub(1);
        granted.may_be_known |= answer.as_ref().is_err_and(|no| no.may_have_run);
        let is_refused = !matches!(answer, Ok(NlmStat4::DeniedGracePeriod) | Err(_));
        match granted.standing {
            // Linux before 6.4 takes a call until its CANCEL is answered, and has nothing then. Who waits for the same anew, and
            // took the call for that, has sent its LOCK already, and is answered that it has it.
            Standing::Cancelled if *answer == Ok(NlmStat4::Granted) => {
                granted.next_at = now.after_ms(NLM_GRANTED_PATIENCE_MS);
            }
            _ if *answer == Ok(NlmStat4::Granted) => self.end_telling(&of, &mut held, at, true),
            // Whoever has cancelled takes a call no more.
            Standing::Cancelled if granted.calls > 0 => {}
            Standing::Cancelled => self.end_telling(&of, &mut held, at, false),
            // It does not wait for this any more.
            _ if is_refused && !granted.may_be_known => self.end_telling(&of, &mut held, at, false),
            Standing::Doubted => {}
            // It may have taken an earlier one, and has nobody waiting now (Linux answers so); or it never heard of one
            // and does not want it any more: then it cancels.
            _ if is_refused => granted.doubt(now),
            // A restarting client, or none that could be reached: again.
            Standing::Wanted => {
                let pause = PAUSE_MS << granted.tries.min(8);
                // Who may be gone for good is told seldom; until it comes back it has the lock.
                let is_late = now.ms_since(granted.since) >= NLM_GRANTED_PATIENCE_MS;
                granted.next_at = now.after_ms(if is_late { PAUSE_MS_LATE } else { pause.min(PAUSE_MS_MAX) });
            }
            Standing::Torn if granted.is_told() => granted.doubt(now),
            // It has not heard, and waits: for all of it again.
            Standing::Torn => self.wait_again(&of, &mut held, at),
        }
        self.forget_if_idle(&of, &mut held);
    }

    /// It is known what became of a grant: its client has the lock, or does not want it.
    fn end_telling(&self, of: &OwnerFile, held: &mut Held, at: usize, is_taken: bool) {
        let blocked = held.blocked.remove(at);
        self.table.lock().leave_waiting(blocked.number);
        if is_taken && let Stage::Granted(granted) = &blocked.stage {
            // Newer than whatever else it knows: that took its part of the claim.
            granted.claim.iter().for_each(|(part, kind)| held.sure.set(part, kind));
        }
        self.let_go_if_it_can(of, held, blocked.range);
    }

    /// A grant of which its client cannot have heard, and of which something was let go since, is no grant any more.
    fn wait_again(&self, of: &OwnerFile, held: &mut Held, at: usize) {
        held.blocked[at].stage = Stage::Tried;
        let range = held.blocked[at].range;
        self.let_go_if_it_can(of, held, range);
    }

    /// Looks after what waits: tells clients again, and tries again what processes outside had.
    pub(crate) fn retry_waiting(&self) {
        let now = self.now();
        let all = self.table.lock().all_waiting();
        for (number, of) in all {
            let mut held = of.held.lock();
            let Some(at) = held.blocked.iter().position(|b| b.number == number) else { continue };
            match &mut held.blocked[at].stage {
                Stage::InLine => {}
                Stage::Tried => {
                    let Blocked { range, kind, .. } = held.blocked[at];
                    if !held.must_wait(number, range, kind) {
                        self.retry(&of, &mut held, at);
                    }
                }
                Stage::Granted(granted) if granted.next_at > now => {}
                Stage::Granted(granted) => match granted.standing {
                    // It has not cancelled.
                    Standing::Doubted => self.end_telling(&of, &mut held, at, true),
                    Standing::Cancelled => self.end_telling(&of, &mut held, at, false),
                    Standing::Torn if granted.is_told() => granted.doubt(now),
                    Standing::Torn => self.wait_again(&of, &mut held, at),
                    // One that may have it and is out of reach keeps it, as it would any lock.
                    Standing::Wanted
                        if !granted.is_told() && now.ms_since(granted.since) >= NLM_GRANTED_PATIENCE_MS =>
                    {
                        tracing::debug!(host = %of.host.ip, "a client that waited for a lock cannot be told of it");
                        self.end_telling(&of, &mut held, at, false);
                    }
                    Standing::Wanted => self.tell(&of, &mut held, at, now),
                },
            }
            self.forget_if_idle(&of, &mut held);
        }
    }

    /// Tries a waiting request, which the engine may have granted.
    fn retry(&self, of: &Arc<OwnerFile>, held: &mut Held, at: usize) {
        let (number, range, kind) = (held.blocked[at].number, held.blocked[at].range, held.blocked[at].kind);
        let stage = match self.take(of, held, (range, kind), (ForeignClaim::New, ForeignWait::InLine, None)) {
            Tried::Taken => {
                let now = self.now();
                held.blocked[at].stage = Stage::Granted(Granted::new(now, (range, kind)));
                return self.tell(of, held, at, now);
            }
            Tried::InLine => Stage::InLine,
            // A delegation being recalled passes like a process outside.
            Tried::Later | Tried::Refused(NlmStat4::DeniedGracePeriod) => Stage::Tried,
            // The client asks again by itself, and hears what is wrong.
            Tried::Refused(_) => {
                self.drop_requests(of, held, |b| b.number == number);
                return self.let_go_if_it_can(of, held, range);
            }
        };
        held.blocked[at].stage = stage;
        if held.blocked[at].stage == Stage::Tried {
            self.let_go_if_it_can(of, held, range);
        }
    }
}
