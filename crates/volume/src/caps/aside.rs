//! Renames and appends that NFS has no words for: batches of one operation each, asked for and waited for like any other question.
//!
//! They go beside the stream, under an incarnation of their own: the server may have to wait for another client's promises
//! first, and what that client waits for must not stand behind them. One is under way at a time. Each has a number, so that
//! it is done once, whatever breaks; one that was given up leaves its number in doubt, and whoever comes next sees to it
//! that it cannot be done any more (`docs/design/caps-protocol.md`, 5.3). The volume is told, and comes by itself.

use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::limits::CAPS_LANE_IDLE_MS;
use holdfast_base::{Entropy as _, SystemEntropy};
use holdfast_cache::{Answer, Ask, Errno, Generation, Handle, Name, RenameMode};
use holdfast_client::{Cancel, Cred, Cx};
use holdfast_wire::caps::{
    Appended, BatchArgs, BatchHow, BatchOk, BatchOp, ByeArgs, CapsProc, CapsStat, Features, HelloArgs,
    HelloOk, OpResult, Ref, Res, StableArgs, StableOk, Ticket, TxnId, Until, WhoAmIArgs,
};
use holdfast_xdr::Encode;
use parking_lot::Mutex;

use super::calling::{DELAY_MAX, DELAY_MIN, failure_of, pause_for, put};
use super::hello::{checked, encoded};
use super::sheets::rename_how;
use super::{Failure, Inner, convert};
use crate::crowd::Crowd;

/// A server that says that it does not know the incarnation has not had the transaction, or has forgotten it, which it does
/// not before this time.
const FORGOTTEN_AFTER: Duration = Duration::from_millis(CAPS_LANE_IDLE_MS / 2);

/// Transactions beside the stream.
#[derive(Debug, Default)]
pub(super) struct Aside {
    state: Mutex<State>,
    waiting: Crowd,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_taken: bool,
    /// Made when it is first needed: few mounts ever do.
    incarnation: Option<[u8; 16]>,
    ticket: Option<Ticket>,
    /// The last one begun.
    txn: TxnId,
    /// The question that it is of, as long as it is not known whether it was done.
    in_doubt: Option<Generation>,
}

/// The right to have a transaction under way.
struct Turn<'a>(&'a Aside);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_taken = false;
        self.0.waiting.wake_all();
    }
}

impl Aside {
    fn take(&self, cancel: &Cancel) -> Result<Turn<'_>, Failure> {
        let free = || {
            let mut state = self.state.lock();
            (!std::mem::replace(&mut state.is_taken, true)).then_some(())
        };
        self.waiting.wait(cancel, None, free).map(|()| Turn(self)).ok_or(Failure::Stopped(Errno::EINTR))
    }

    fn incarnation(&self) -> Result<[u8; 16], Failure> {
        if let Some(known) = self.state.lock().incarnation {
            return Ok(known);
        }
        let mut made = [0; 16];
        SystemEntropy::new().map_err(|_| Failure::Stopped(Errno::EIO))?.fill(&mut made);
        self.state.lock().incarnation = Some(made);
        Ok(made)
    }
}

/// A name in a directory.
type At<'a> = (&'a Handle, &'a Name);

/// A question, as whom it is asked, and the token that gives it up.
pub(super) type Asking<'a> = (&'a Ask, &'a Cred, &'a Cancel);

/// A transaction of at most one operation, and who asks for it.
struct Transaction<'a> {
    txn: TxnId,
    op: Option<BatchOp<'a>>,
    cred: &'a Cred,
    cancel: &'a Cancel,
    begun: Instant,
}

/// What came of an operation: done, and where something was appended; or the number of the status that says why not.
type Outcome = Result<Option<Appended>, u32>;

impl Inner {
    /// A rename with flags. It is on the server's disk when it is answered, as one by NFS is.
    pub(super) fn rename_aside(
        &self,
        (from_dir, from): At<'_>,
        (to_dir, to): At<'_>,
        mode: RenameMode,
        asking: Asking<'_>,
    ) -> Result<Answer, Errno> {
        let op = BatchOp::Rename {
            from: Ref::Handle(holdfast_wire::caps::Handle(from_dir.as_bytes())),
            from_name: from.as_bytes(),
            to: Ref::Handle(holdfast_wire::caps::Handle(to_dir.as_bytes())),
            to_name: to.as_bytes(),
            how: rename_how(mode),
            // What has the names now is meant, as with every question.
            victim: None,
            over: None,
        };
        match self.do_aside(op, asking).map_err(Failure::errno)? {
            Ok(_) => Ok(Answer::Gone { dir: None, dir_attrs: None }),
            Err(status) => Err(convert::errno_of(status)),
        }
    }

    /// Has one operation done, once.
    pub(super) fn do_aside(
        &self,
        op: BatchOp<'_>,
        (ask, cred, cancel): Asking<'_>,
    ) -> Result<Outcome, Failure> {
        let turn = self.aside.take(cancel)?;
        self.settle_aside(cred, cancel)?;
        let txn = {
            let mut state = turn.0.state.lock();
            (state.txn, state.in_doubt) = (state.txn.next(), Some(ask.at));
            state.txn
        };
        let outcome =
            self.transact(&Transaction { txn, op: Some(op), cred, cancel, begun: Instant::now() })?;
        turn.0.state.lock().in_doubt = None;
        Ok(outcome)
    }

    /// Whether what this question was to change may have been changed, or may be yet, though it was given up.
    pub(super) fn may_yet_be_done(&self, ask: &Ask) -> bool {
        self.aside.state.lock().in_doubt == Some(ask.at)
    }

    /// Sees to it that what was given up was done, or cannot be any more.
    pub(super) fn settle_given_up(&self, cancel: &Cancel) -> Result<(), Failure> {
        let _turn = self.aside.take(cancel)?;
        self.settle_aside(&Cred::own(), cancel)
    }

    /// Where the last one was given up, an empty one takes its number, unless it was done.
    fn settle_aside(&self, cred: &Cred, cancel: &Cancel) -> Result<(), Failure> {
        let State { txn, in_doubt, .. } = *self.aside.state.lock();
        if in_doubt.is_none() {
            return Ok(());
        }
        match self.transact(&Transaction { txn, op: None, cred, cancel, begun: Instant::now() }) {
            Ok(_) | Err(Failure::Refused(CapsStat::Mixed)) => {}
            Err(failure) => return Err(failure),
        }
        self.aside.state.lock().in_doubt = None;
        Ok(())
    }

    /// Sends a transaction until something came of it.
    fn transact(&self, this: &Transaction<'_>) -> Result<Outcome, Failure> {
        let (mut pause, mut is_resent) = (DELAY_MIN, false);
        loop {
            let moves = self.nfs.client().moves();
            match self.try_once(this, &mut is_resent) {
                Err(Failure::Refused(CapsStat::Moved)) if self.follow(moves, this.cancel)? => {
                    self.aside.state.lock().ticket = None;
                }
                Err(Failure::Refused(CapsStat::BadTicket)) => self.aside.state.lock().ticket = None,
                // Those before it are done with once they are on disk.
                Err(Failure::Refused(CapsStat::Window)) => self.settle_before(this)?,
                Err(
                    Failure::Disconnected
                    | Failure::Refused(CapsStat::Delay | CapsStat::Grace | CapsStat::Misordered),
                ) => {}
                other => return other,
            }
            pause_for(pause, this.cancel)?;
            pause = (pause * 2).min(DELAY_MAX);
        }
    }

    fn try_once(&self, this: &Transaction<'_>, is_resent: &mut bool) -> Result<Outcome, Failure> {
        let (txn, done_through) = (this.txn, TxnId(this.txn.0.saturating_sub(1)));
        let ticket = self.aside_ticket(this, (*is_resent, done_through))?;
        let how = BatchHow { is_resent: std::mem::replace(is_resent, true), until: Until::Executed };
        let ops: Vec<_> = this.op.iter().cloned().collect();
        let batch = BatchArgs { ticket, txn, how, done_through, ops };
        let reply = self.send_aside(CapsProc::Batch, &batch, this)?;
        let told: BatchOk<'_> = checked(&reply)?;
        match (&this.op, told.results.first()) {
            (None, _) => return Ok(Ok(None)),
            // On disk by a COMMIT, as what is written by NFS.
            (Some(_), Some(Res::Ok(OpResult::Appended(done)))) => return Ok(Ok(Some(*done))),
            (Some(_), Some(Res::Ok(_))) => {}
            (Some(_), Some(Res::Failed(status))) => return Ok(Err(*status)),
            (Some(_), None) => return Err(Failure::Garbled),
        }
        let reply =
            self.send_aside(CapsProc::Stable, &StableArgs { ticket, through: txn, done_through }, this)?;
        let told: StableOk = checked(&reply)?;
        let failed = told.failed.iter().find(|failed| failed.txn == txn);
        Ok(failed.map_or(Ok(None), |failed| Err(failed.status)))
    }

    /// Has what was done before put on disk, so that the server may forget it.
    fn settle_before(&self, this: &Transaction<'_>) -> Result<(), Failure> {
        let through = TxnId(this.txn.0.saturating_sub(1));
        let Some(ticket) = self.aside.state.lock().ticket else { return Ok(()) };
        match self.send_aside(CapsProc::Stable, &StableArgs { ticket, through, done_through: through }, this)
        {
            // It is said again if it has to be.
            Ok(_) | Err(Failure::Disconnected) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn send_aside(
        &self,
        procedure: CapsProc,
        args: &impl Encode,
        this: &Transaction<'_>,
    ) -> Result<Bytes, Failure> {
        self.send(procedure, this.cred, this.cancel, encoded(args).into())
    }

    /// The ticket, or another by HELLO.
    fn aside_ticket(
        &self,
        this: &Transaction<'_>,
        (is_resent, done_through): (bool, TxnId),
    ) -> Result<Ticket, Failure> {
        if let Some(ticket) = self.aside.state.lock().ticket {
            return Ok(ticket);
        }
        // What was lost is told to who says HELLO first, and it is the mount that has to hear of it.
        let handle = holdfast_wire::caps::Handle(self.root.as_bytes());
        match self.call(CapsProc::WhoAmI, this.cred, this.cancel, |ticket, w| {
            put(&WhoAmIArgs { ticket, handle }, w);
        }) {
            Ok(_) | Err(Failure::Refused(_)) => {}
            Err(failure) => return Err(failure),
        }
        let session = self.nfs.client().session_id().ok_or(Failure::Disconnected)?;
        let (incarnation, features) = (self.aside.incarnation()?, Features::default());
        let hello = HelloArgs { session, incarnation, features, done_through };
        let reply = self.send_aside(CapsProc::Hello, &hello, this)?;
        let told: HelloOk = match checked(&reply) {
            Err(Failure::Refused(CapsStat::BadSession)) => {
                // Recovery may not have noticed yet.
                let known = self.nfs.client().check_session(Cx::new(this.cred, this.cancel));
                known.map_err(|error| failure_of(&error))?;
                return Err(Failure::Refused(CapsStat::Delay));
            }
            told => told?,
        };
        if is_resent && !told.is_known && this.begun.elapsed() >= FORGOTTEN_AFTER {
            // It may have been done, and would be done again.
            return Err(Failure::Stopped(Errno::EIO));
        }
        self.aside.state.lock().ticket = Some(told.ticket);
        Ok(told.ticket)
    }

    /// Has what was done beside the stream forgotten.
    pub(super) fn end_aside(&self, cancel: &Cancel) {
        if let Some(ticket) = self.aside.state.lock().ticket.take() {
            // It is forgotten by itself after a while.
            let _ = self.send(CapsProc::Bye, &Cred::own(), cancel, encoded(&ByeArgs { ticket }).into());
        }
    }
}
