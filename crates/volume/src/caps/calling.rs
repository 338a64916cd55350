//! Calls of the program: sent again until they have an answer, with a new ticket where the old one does not count any
//! more.

use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_cache::Errno;
use holdfast_client::{Cancel, Cred, Cx, Error, Target};
use holdfast_wire::caps::{CAPS_PROGRAM, CAPS_V1, CapsProc, CapsStat, Ticket};
use holdfast_xdr::{Decode, Encode, Reader, Writer};

use super::sheets::Ledger;
use super::{Inner, convert};
use crate::server::Undone;

/// Pauses between calls that the server is not ready for.
pub(super) const DELAY_MIN: Duration = Duration::from_millis(1);
pub(super) const DELAY_MAX: Duration = Duration::from_millis(100);
/// The same while reclaims are taken: that ends at once where nobody is missing, else in many seconds.
const GRACE_MIN: Duration = Duration::from_millis(10);
const GRACE_MAX: Duration = Duration::from_secs(1);

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The server's status.
    Refused(CapsStat),
    /// Its status to HELLO: what was to be asked was not.
    Ungreeted(CapsStat),
    /// Given up, or not reached in time.
    Stopped(Errno),
    /// The connection broke under it.
    Disconnected,
    /// The answer makes no sense.
    Garbled,
    /// The server does not have the program.
    Absent,
}

impl Failure {
    pub(super) fn errno(self) -> Errno {
        match self {
            Self::Refused(stat) | Self::Ungreeted(stat) => convert::errno_of(stat.as_u32()),
            Self::Stopped(errno) => errno,
            Self::Garbled | Self::Disconnected => Errno::EIO,
            Self::Absent => Errno::EOPNOTSUPP,
        }
    }

    pub(super) fn undone(self) -> Undone {
        match self {
            // Of what is nowhere to be found the server may yet say where it is.
            Self::Stopped(_)
            | Self::Disconnected
            | Self::Absent
            | Self::Ungreeted(_)
            | Self::Refused(CapsStat::Moved) => Undone::Lost,
            other => {
                // An errno alone does not tell why.
                tracing::warn!(why = ?other, "the server does not do it");
                Undone::Failed(other.errno())
            }
        }
    }
}

/// Encodes arguments behind what was written so far.
pub(super) fn put<T: Encode>(args: &T, w: &mut Writer) {
    args.encode(w);
}

/// The result in a reply that was found to be a success.
pub(super) fn decode<'a, T: Decode<'a>>(reply: &'a Bytes) -> Result<T, Failure> {
    let mut r = Reader::new(reply);
    // The status, which `call` has looked at.
    r.u32().map_err(|_| Failure::Garbled)?;
    let value = T::decode(&mut r).map_err(|_| Failure::Garbled)?;
    r.finish().map_err(|_| Failure::Garbled)?;
    Ok(value)
}

fn status(reply: &Bytes) -> Result<Option<CapsStat>, Failure> {
    let number = Reader::new(reply).u32().map_err(|_| Failure::Garbled)?;
    let stat = CapsStat::from_u32(number).unwrap_or(CapsStat::ServerFault);
    Ok((stat != CapsStat::Ok).then_some(stat))
}

impl Inner {
    /// Calls a procedure until it has a result. The arguments are made for each try, as the ticket may be another one.
    pub(super) fn call(
        &self,
        procedure: CapsProc,
        cred: &Cred,
        cancel: &Cancel,
        args: impl Fn(Ticket, &mut Writer),
    ) -> Result<Bytes, Failure> {
        self.call_while(&|| true, procedure, cred, cancel, args)
    }

    /// The same for as long as the result is waited for; else [`Failure::Disconnected`].
    pub(super) fn call_while(
        &self,
        is_awaited: &dyn Fn() -> bool,
        procedure: CapsProc,
        cred: &Cred,
        cancel: &Cancel,
        args: impl Fn(Ticket, &mut Writer),
    ) -> Result<Bytes, Failure> {
        let (mut pause, mut grace) = (DELAY_MIN, GRACE_MIN);
        let mut used = self.settled_ticket();
        loop {
            let ticket = match used {
                Some(ticket) => ticket,
                None => self.renewed(None, cancel)?,
            };
            // Asked when the ticket is known: that of another server may be.
            if !is_awaited() {
                return Err(Failure::Disconnected);
            }
            let mut w = Writer::new();
            args(ticket, &mut w);
            let moves = self.nfs.client().moves();
            let reply = match self.send(procedure, cred, cancel, w.into_vec().into()) {
                // It is being made anew; whoever comes first would only find it broken still.
                Err(Failure::Disconnected) => {
                    pause_for(DELAY_MIN, cancel)?;
                    continue;
                }
                other => other?,
            };
            let wait = match status(&reply)? {
                None => return Ok(reply),
                Some(CapsStat::BadTicket) => {
                    used = Some(self.renewed(Some(ticket), cancel)?);
                    continue;
                }
                Some(CapsStat::Window) => {
                    // What the server may forget was said as it was known then. By now it may be more, and nothing else may
                    // be about to say so.
                    Ledger::refresh(&self.ledger, self.promises().as_deref());
                    pause
                }
                Some(CapsStat::Delay | CapsStat::Misordered) => pause,
                Some(CapsStat::Moved) if self.follow(moves, cancel)? => {
                    // Not the ticket of the server that we have left.
                    used = self.settled_ticket();
                    continue;
                }
                Some(CapsStat::Grace) => {
                    if grace == GRACE_MIN {
                        // It may be us who are waited for: recovery, which says when all is reclaimed, hears of a restart
                        // by SEQUENCE alone, and would send the next one to renew the lease. What comes of it is recovery's
                        // to see; this call goes on though the connection were lost once more.
                        let _ = self.nfs.client().check_session(Cx::new(&Cred::own(), cancel));
                    }
                    let now = grace;
                    grace = (grace * 2).min(GRACE_MAX);
                    now
                }
                Some(other) => return Err(Failure::Refused(other)),
            };
            pause_for(wait, cancel)?;
            pause = (pause * 2).min(DELAY_MAX);
        }
    }

    /// The ticket, where nothing is to be claimed with it any more: what is to be sent again is known then.
    fn settled_ticket(&self) -> Option<Ticket> {
        self.greeting.read().filter(|greeting| greeting.is_settled).map(|greeting| greeting.ticket)
    }

    /// Goes where the export is now, when it was heard that it is not here and there had been `moves`. False when nobody knows
    /// where.
    pub(super) fn follow(&self, moves: u64, cancel: &Cancel) -> Result<bool, Failure> {
        let root = crate::nfs::wire(&self.root);
        let followed = self.nfs.client().follow(Cx::new(&Cred::own(), cancel), &root, moves);
        followed.map_err(|error| failure_of(&error))
    }

    /// One try.
    pub(super) fn send(
        &self,
        procedure: CapsProc,
        cred: &Cred,
        cancel: &Cancel,
        args: Bytes,
    ) -> Result<Bytes, Failure> {
        let sent = self.nfs.client().call_program(target(procedure), Cx::new(cred, cancel), &[args]);
        sent.map_err(|error| failure_of(&error))
    }
}

/// Sleeps between two tries.
pub(super) fn pause_for(pause: Duration, cancel: &Cancel) -> Result<(), Failure> {
    cancel.sleep_until(Instant::now() + pause).map_err(|_| Failure::Stopped(Errno::EINTR))
}

pub(super) const fn target(procedure: CapsProc) -> Target {
    Target { program: CAPS_PROGRAM, version: CAPS_V1, procedure: procedure.as_u32() }
}

pub(super) fn failure_of(error: &Error) -> Failure {
    match error {
        Error::Rpc(_) => Failure::Absent,
        Error::Disconnected => Failure::Disconnected,
        other => Failure::Stopped(Errno(other.errno().raw_os_error())),
    }
}
