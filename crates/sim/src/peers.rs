//! The server's calls to clients on ways of its own, held until the world carries them: to lock managers and status
//! monitors, and to clients of 4.0.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use holdfast_nfs4::{CallOut, CalledOut, CallsOut};
use holdfast_nlm::{Answered, NoAnswer, PeerCall, Peers};
use holdfast_rpc::CallError;
use holdfast_wire::nfs4::CB_COMPOUND;

/// Who is told what came of a call.
pub(crate) enum Waiting {
    /// The lock manager.
    Locks(Answered),
    /// NFSv4.0.
    Callbacks(CalledOut),
}

impl Waiting {
    /// Tells the results; without any the call was lost, and may have been run.
    pub(crate) fn end(self, results: Option<Vec<u8>>) {
        match self {
            Self::Locks(answered) => {
                answered(results.ok_or(NoAnswer { why: CallError::TimedOut, may_have_run: true }));
            }
            Self::Callbacks(done) => done(results.as_deref().ok_or(CallError::TimedOut)),
        }
    }
}

/// A call to be carried.
pub(crate) struct ToCarry {
    pub(crate) to: IpAddr,
    pub(crate) program: u32,
    pub(crate) procedure: u32,
    pub(crate) args: Vec<u8>,
    pub(crate) waiting: Waiting,
}

impl ToCarry {
    /// The arguments of a CB_COMPOUND, if it is one.
    pub(crate) fn callback(&self) -> Option<&[u8]> {
        let is_one = matches!(self.waiting, Waiting::Callbacks(_)) && self.procedure == CB_COMPOUND;
        is_one.then_some(self.args.as_slice())
    }
}

/// What the server wants carried.
#[derive(Default)]
pub(crate) struct Outbox {
    calls: Mutex<Vec<ToCarry>>,
}

impl Outbox {
    /// Takes what there is.
    pub(crate) fn take(&self) -> Vec<ToCarry> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, call: ToCarry) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

impl Peers for Outbox {
    fn call(&self, call: PeerCall, answered: Answered) {
        let PeerCall { peer: to, program, procedure, args, .. } = call;
        self.put(ToCarry { to, program, procedure, args, waiting: Waiting::Locks(answered) });
    }
}

impl CallsOut for Outbox {
    fn call(&self, call: CallOut, done: CalledOut) {
        let CallOut { to, program, procedure, args } = call;
        self.put(ToCarry { to: to.ip(), program, procedure, args, waiting: Waiting::Callbacks(done) });
    }
}
