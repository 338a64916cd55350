//! HELLO: the ticket, and what is to be done when promises were lost.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use holdfast_base::limits::FORCED_BATCHES_MAX;
use holdfast_base::relied_on_ms;
use holdfast_cache::{Errno, Settings};
use holdfast_client::{Cancel, Cred, Cx, Hooked, SessionHandle};
use holdfast_wire::caps::{
    ByeArgs, CapsProc, CapsStat, Features, HelloArgs, HelloOk, Limits, StableArgs, StableOk, Ticket, TxnId,
};
use holdfast_xdr::{Encode, Writer};
use parking_lot::MutexGuard;

use super::batches::GREETING_LOOK;
use super::calling::{DELAY_MAX, DELAY_MIN, decode, failure_of, pause_for, target};
use super::sheets::Ledger;
use super::{Failure, Inner, claims};

/// What the server said to HELLO.
#[derive(Clone, Copy, Debug)]
pub(super) struct Greeting {
    pub(super) ticket: Ticket,
    /// All that was to be claimed again with it is, or is lost; else there is another to come.
    pub(super) is_settled: bool,
    pub(super) epoch: u64,
    pub(super) features: Features,
    pub(super) limits: Limits,
}

impl Greeting {
    /// Whether batches can be answered when they are on the server's disk. They are beside the others.
    pub(super) fn forces(&self) -> bool {
        let most = Settings::full().batches_in_flight_max + FORCED_BATCHES_MAX;
        self.features.contains(Features::FORCE) && self.limits.batches as usize >= most
    }
}

/// What a mount knows.
const FEATURES: [Features; 7] = [
    Features::SAME_HOST,
    Features::APPEND,
    Features::NAMES,
    Features::POOL,
    Features::LISTS,
    Features::RESERVE,
    Features::FORCE,
];

/// Sends one call and gives its reply: over the client, or in the middle of its recovery.
pub(super) type Sender<'a> = &'a dyn Fn(CapsProc, Vec<u8>) -> Result<Bytes, Failure>;

/// Has every new session and connection greeted, so that recalls arrive, before anything else is asked over it.
pub(super) fn follow_sessions(inner: &Arc<Inner>) {
    let told: Weak<Inner> = Arc::downgrade(inner);
    inner.nfs.client().on_new_session(Arc::new(move |session: &SessionHandle<'_>, event| {
        let Some(inner) = told.upgrade() else { return Hooked::Done };
        if event.is_given_up {
            inner.lose_all();
            return Hooked::Done;
        }
        let cred = Cred::own();
        let send = |procedure: CapsProc, args: Vec<u8>| {
            let reply = session.call_program(target(procedure), &cred, &[args.into()]);
            reply.map_err(|error| failure_of(&error))
        };
        // Who has the turn may wait for a server that hears and does not answer.
        let Some(_turn) = inner.renewing.try_lock_until(session.until()) else { return Hooked::NotYet };
        if event.is_leaving {
            inner.settle_up(event.session, &send);
            return Hooked::Done;
        }
        let how = Greet { is_lost: event.must_reclaim, cancel: session.cancel() };
        match inner.hello(event.session, how, &send) {
            Ok(_) => Hooked::Done,
            Err(failure) => {
                // Whoever calls next hears BADTICKET or finds the connection broken, and tries again.
                tracing::debug!(?failure, "no HELLO over the new connection");
                if event.must_reclaim { inner.unclaimed(failure) } else { Hooked::Done }
            }
        }
    }));
}

/// How HELLO is said.
struct Greet<'a> {
    /// The server does not know us, whatever it says of the epoch: it may be another one.
    is_lost: bool,
    /// Given when nobody waits for it any more.
    cancel: &'a Cancel,
}

impl Inner {
    /// A ticket that is not `stale`. Whose lease is lost hears BADTICKET and then BADSESSION, before recovery need have
    /// noticed: it waits for recovery, as those do who ask by NFS.
    pub(super) fn renewed(&self, stale: Option<Ticket>, cancel: &Cancel) -> Result<Ticket, Failure> {
        let mut pause = DELAY_MIN;
        loop {
            match self.renewed_once(stale, cancel) {
                // Not under the lock: recovery has its own HELLO said. The session may have outlived its client by a moment.
                Err(Failure::Refused(CapsStat::BadSession | CapsStat::BadTicket)) => {
                    let cred = Cred::own();
                    let known = self.nfs.client().check_session(Cx::new(&cred, cancel));
                    known.map_err(|error| failure_of(&error))?;
                }
                Err(Failure::Refused(CapsStat::Delay) | Failure::Disconnected) => {}
                Err(Failure::Refused(stat)) => return Err(Failure::Ungreeted(stat)),
                done => return done,
            }
            pause_for(pause, cancel)?;
            pause = (pause * 2).min(DELAY_MAX);
        }
    }

    /// The turn to say HELLO. Who has it may wait for a server that hangs.
    fn turn(&self, cancel: &Cancel) -> Result<MutexGuard<'_, ()>, Failure> {
        while !cancel.is_cancelled() {
            if let Some(turn) = self.renewing.try_lock_for(GREETING_LOOK) {
                return Ok(turn);
            }
        }
        Err(Failure::Stopped(Errno::EINTR))
    }

    /// Somebody else's ticket, or one by a HELLO of our own.
    fn renewed_once(&self, stale: Option<Ticket>, cancel: &Cancel) -> Result<Ticket, Failure> {
        let _turn = self.turn(cancel)?;
        if let Some(greeting) = *self.greeting.read()
            && Some(greeting.ticket) != stale
            && greeting.is_settled
        {
            return Ok(greeting.ticket);
        }
        let session = self.nfs.client().session_id().ok_or(Failure::Refused(CapsStat::BadSession))?;
        let cred = Cred::own();
        let send = |procedure: CapsProc, args: Vec<u8>| self.send(procedure, &cred, cancel, args.into());
        self.hello(session, Greet { is_lost: false, cancel }, &send).map(|greeting| greeting.ticket)
    }

    /// Puts on the disk of a server that is left for another what it has executed, so that nothing of it is sent to the
    /// other, and gives back what is held there.
    fn settle_up(&self, session: holdfast_base::SessionId, send: Sender<'_>) {
        let Some(promises) = self.promises() else { return };
        let settled = self.executed_through(session, send).and_then(|(ticket, executed)| {
            let args =
                StableArgs { ticket, through: executed, done_through: self.ledger.lock().done_through() };
            let told: StableOk = checked(&send(CapsProc::Stable, encoded(&args))?)?;
            // What it could not write is told by the other, which has it again.
            if told.failed.is_empty() {
                promises.stable(told.stable_through.0);
            }
            send(CapsProc::Bye, encoded(&ByeArgs { ticket })).map(drop)
        });
        if let Err(failure) = settled {
            tracing::warn!(
                ?failure,
                "not settled with the server that is left: some of it is sent to the next again"
            );
        }
    }

    fn executed_through(
        &self,
        session: holdfast_base::SessionId,
        send: Sender<'_>,
    ) -> Result<(Ticket, TxnId), Failure> {
        let args = HelloArgs {
            session,
            incarnation: self.incarnation,
            features: Features::default(),
            done_through: self.ledger.lock().done_through(),
        };
        let told: HelloOk = checked(&send(CapsProc::Hello, encoded(&args))?)?;
        Ok((told.ticket, told.executed_through))
    }

    /// What was to be claimed of a server that began anew is not, for this reason: whether it can be yet. If not, it is lost.
    fn unclaimed(&self, failure: Failure) -> Hooked {
        let passes = matches!(
            failure,
            Failure::Disconnected
                | Failure::Stopped(_)
                | Failure::Refused(CapsStat::Delay | CapsStat::BadSession | CapsStat::BadTicket)
        );
        if passes {
            return Hooked::NotYet;
        }
        self.lose_all();
        Hooked::Done
    }

    /// What was promised before the server began anew is not relied on any more. Not under the lock: who says HELLO may wait for the
    /// server. What that says counts as of another life all the same.
    fn lose_all(&self) {
        match &mut *self.greeting.write() {
            Some(greeting) => greeting.is_settled = false,
            // Nobody has promised anything yet.
            None => return,
        }
        if let Some(neighbour) = self.neighbour.get() {
            neighbour.lose_all();
        }
        if let Some(promises) = self.promises() {
            promises.given_up();
        }
    }

    fn hello(
        &self,
        session: holdfast_base::SessionId,
        Greet { is_lost, cancel }: Greet<'_>,
        send: Sender<'_>,
    ) -> Result<Greeting, Failure> {
        if is_lost && let Some(greeting) = &mut *self.greeting.write() {
            // Also for the next, should this one break.
            greeting.is_settled = false;
        }
        Ledger::refresh(&self.ledger, self.promises().as_deref());
        let args = HelloArgs {
            session,
            incarnation: self.incarnation,
            features: Features(FEATURES.iter().fold(0, |bits, one| bits | one.0)),
            done_through: self.ledger.lock().done_through(),
        };
        let reply = send(CapsProc::Hello, encoded(&args))?;
        let told: HelloOk = checked(&reply)?;
        let before = *self.greeting.read();
        let is_anew = before.is_none_or(|before| !before.is_settled || before.epoch != told.epoch);
        let HelloOk { ticket, epoch, features, limits, .. } = told;
        let promises = self.promises();
        let must_claim = (before.is_some() && is_anew) || promises.as_ref().is_some_and(|of| of.must_renew());
        let greeting = Greeting { ticket, is_settled: !must_claim, epoch, features, limits };
        // Before anything is claimed: what is may be asked back by this epoch.
        *self.greeting.write() = Some(greeting);
        if told.lease_seconds > 0 {
            let recall_ms = u64::from(told.lease_seconds) * 1000;
            self.nfs.client().rely_for(Duration::from_millis(relied_on_ms(recall_ms)));
        }
        if is_anew && let Some(neighbour) = self.neighbour.get() {
            neighbour.lose_all();
        }
        let greeting = Greeting { is_settled: true, ..greeting };
        if let Some(promises) = promises {
            promises.can_force(greeting.forces());
            if must_claim {
                tracing::info!(epoch = told.epoch, in_grace = told.in_grace, "promises were lost");
                let (held, questions) = (promises.to_reclaim(), promises.in_question());
                promises.renewed(claims::claim_all(&told, (&questions, &held), (send, cancel))?);
            }
            if !told.is_known && before.is_some() {
                tracing::warn!(
                    "the server does not know what was sent and is not on its disk: it is sent again"
                );
            }
            let is_as_before = !is_anew && !promises.must_renew();
            promises.resume(executed_through(&told, is_as_before), told.stable_through.0, told.is_known);
        }
        *self.greeting.write() = Some(greeting);
        Ok(greeting)
    }

    pub(super) fn say_bye(&self, cancel: &Cancel) -> Result<(), Failure> {
        self.end_aside(cancel);
        let reply = self.call(CapsProc::Bye, &Cred::own(), cancel, |ticket, w| ByeArgs { ticket }.encode(w));
        reply.map(drop)
    }
}

/// The transaction beyond which what was executed may be lost. Nothing is where the server is the one it was and knows
/// us: others call it meanwhile, and what they have heard of it may be of after it said this.
fn executed_through(told: &HelloOk, is_as_before: bool) -> Option<u64> {
    (!is_as_before || !told.is_known).then_some(told.executed_through.0)
}

pub(super) fn encoded<T: Encode>(args: &T) -> Vec<u8> {
    let mut w = Writer::new();
    args.encode(&mut w);
    w.into_vec()
}

pub(super) fn checked<'a, T: holdfast_xdr::Decode<'a>>(reply: &'a Bytes) -> Result<T, Failure> {
    let number = holdfast_xdr::Reader::new(reply).u32().map_err(|_| Failure::Garbled)?;
    match CapsStat::from_u32(number) {
        Some(CapsStat::Ok) => decode(reply),
        other => Err(Failure::Refused(other.unwrap_or(CapsStat::ServerFault))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_the_one_it_was_has_lost_nothing_of_what_it_executed() {
        let told = |is_known| HelloOk {
            ticket: Ticket(1),
            epoch: 1,
            features: Features::default(),
            lease_seconds: 90,
            in_grace: false,
            is_known,
            limits: Limits::default(),
            executed_through: TxnId(7),
            stable_through: TxnId(5),
        };
        assert_eq!(executed_through(&told(true), true), None);
        assert_eq!(executed_through(&told(false), true), Some(7), "it has forgotten us");
        assert_eq!(executed_through(&told(true), false), Some(7), "it is another, or began anew");
    }
}
