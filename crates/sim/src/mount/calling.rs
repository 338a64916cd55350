//! Calls of the caps program: sent again until they have an answer, with a new ticket where the old one does not count any more.

use std::rc::Rc;

use holdfast_base::CapSet;
use holdfast_cache::{Errno, Handle};
use holdfast_volume::convert;
use holdfast_wire::caps::{
    CAPS_PROGRAM, CAPS_V1, CapsCallbackProc, CapsProc, CapsStat, RecallArgs, StableHint, Ticket,
};
use holdfast_xdr::{Decode, Encode, Reader, Writer, from_bytes};

use super::Mount;
use crate::client::conn::Lost;

/// Pauses between calls that the server is not ready for, in milliseconds.
pub(super) const DELAY_MIN: u64 = 1;
pub(super) const DELAY_MAX: u64 = 100;
const GRACE_MIN: u64 = 10;
const GRACE_MAX: u64 = 1_000;

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server's status.
    Refused(CapsStat),
    /// Nobody waits for it any more.
    Unawaited,
}

impl Failure {
    pub(super) fn errno(self) -> Errno {
        match self {
            Self::Refused(stat) => convert::errno_of(stat.as_u32()),
            Self::Unawaited => Errno::EIO,
        }
    }
}

pub(super) fn encoded<T: Encode>(args: &T) -> Vec<u8> {
    let mut w = Writer::new();
    args.encode(&mut w);
    w.into_vec()
}

/// The result in a reply of success.
pub(super) fn checked<'a, T: Decode<'a>>(reply: &'a [u8]) -> Result<T, CapsStat> {
    let mut r = Reader::new(reply);
    let number = r.u32().map_err(|_| CapsStat::ServerFault)?;
    match CapsStat::from_u32(number) {
        Some(CapsStat::Ok) => T::decode(&mut r).map_err(|_| CapsStat::ServerFault),
        other => Err(other.unwrap_or(CapsStat::ServerFault)),
    }
}

impl Mount {
    /// Calls a procedure until it has a result. The arguments are made for each try, as the ticket may be another one.
    pub(super) async fn call(
        self: &Rc<Self>,
        procedure: CapsProc,
        args: impl Fn(Ticket) -> Vec<u8>,
    ) -> Result<Vec<u8>, Failure> {
        self.call_while(|| true, procedure, args).await
    }

    /// The same for as long as the result is waited for.
    pub(super) async fn call_while(
        self: &Rc<Self>,
        is_awaited: impl Fn() -> bool,
        procedure: CapsProc,
        args: impl Fn(Ticket) -> Vec<u8>,
    ) -> Result<Vec<u8>, Failure> {
        let (mut pause, mut grace) = (DELAY_MIN, GRACE_MIN);
        let mut stale = None;
        loop {
            let ticket = self.renewed(stale).await;
            if !is_awaited() {
                return Err(Failure::Unawaited);
            }
            let sent = self.world.now();
            let Ok(reply) = self.send(procedure, &args(ticket)).await else {
                self.world.exec.sleep(DELAY_MIN).await;
                continue;
            };
            let stat = checked::<()>(&reply).err();
            if let Some(stat) = stat {
                self.tell(|| format!("{procedure:?} hears {stat:?}"));
            }
            let wait = match stat {
                None => {
                    // The ticket was good: what was promised by it went on.
                    self.hearing.hears(sent);
                    return Ok(reply);
                }
                Some(CapsStat::BadTicket) => {
                    stale = Some(ticket);
                    continue;
                }
                Some(CapsStat::Window) => {
                    self.refresh_ledger();
                    pause
                }
                Some(CapsStat::Delay | CapsStat::Misordered) => pause,
                Some(CapsStat::Grace) => {
                    if grace == GRACE_MIN {
                        self.check_session().await;
                    }
                    let now = grace;
                    grace = (grace * 2).min(GRACE_MAX);
                    now
                }
                Some(other) => return Err(Failure::Refused(other)),
            };
            self.world.exec.sleep(wait).await;
            pause = (pause * 2).min(DELAY_MAX);
        }
    }

    /// One try.
    pub(super) async fn send(&self, procedure: CapsProc, args: &[u8]) -> Result<Vec<u8>, Lost> {
        let conn = &self.client.conn;
        conn.call(conn.next_xid(), (CAPS_PROGRAM, CAPS_V1, procedure.as_u32()), args).await
    }

    /// Hears by SEQUENCE what has become of the session.
    pub(super) async fn check_session(&self) {
        self.client.renew().await;
    }

    pub(super) fn refresh_ledger(&self) {
        if let Some(done) = self.touch(|machine, _| machine.done_through()) {
            self.ledger.borrow_mut().done(done);
        }
    }

    /// The server calls.
    pub(crate) fn called(&self, procedure: u32, args: &[u8]) -> Option<Vec<u8>> {
        let is_current = |epoch: u64| self.greeting.get().is_some_and(|greeting| greeting.epoch == epoch);
        match CapsCallbackProc::from_u32(procedure)? {
            CapsCallbackProc::Null => {}
            CapsCallbackProc::Recall => {
                let recall: RecallArgs<'_> = from_bytes(args).ok()?;
                if is_current(recall.epoch) {
                    for item in &recall.items {
                        let (handle, keep, seq) = (Handle::new(item.handle.0), item.keep, item.seq);
                        self.recalled(&handle, keep, seq);
                    }
                } else {
                    self.tell(|| "a recall of another epoch".into());
                }
            }
            CapsCallbackProc::Stable => {
                let hint: StableHint = from_bytes(args).ok()?;
                if is_current(hint.epoch) {
                    self.touched(|machine, now| machine.stable_done(hint.through.0, &[], now));
                }
            }
        }
        Some(Vec::new())
    }

    fn recalled(&self, handle: &Handle, keep: CapSet, seq: u64) {
        self.tell(|| format!("{} is recalled, {keep:?} stays (number {seq})", short(handle)));
        self.touched(|machine, now| machine.recalled(handle, keep, seq, now));
    }
}

/// A handle, for people.
pub(super) fn short(handle: &Handle) -> String {
    let bytes = handle.as_bytes();
    let end = &bytes[bytes.len().saturating_sub(4)..];
    end.iter().map(|byte| format!("{byte:02x}")).collect()
}
