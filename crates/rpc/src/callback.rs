//! Calls of ours over a client's connection (the back channel of NFSv4.1, RFC 8881 section 2.10.3.1): who waits
//! for which answer.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::task::AbortHandle;

use holdfast_base::limits::CALLS_BACK_MAX;
use holdfast_wire::rpc::{AcceptStat, RejectedReply};

use crate::auth::Auth;

/// Why a call of ours has no results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No answer within the time given.
    #[error("no answer in time")]
    TimedOut,
    /// The connection is gone, or cannot be made.
    #[error("the connection is gone")]
    Closed,
    /// Too many calls are unanswered; nothing was sent.
    #[error("too many calls are unanswered")]
    Busy,
    /// The peer denied it: credentials or RPC version (`reject_stat`).
    #[error("the peer denied the call: {0:?}")]
    Denied(RejectedReply),
    /// The peer accepted it but did not run it (`accept_stat`, RFC 5531 section 9).
    #[error("the peer did not run the call: {0:?}")]
    NotRun(AcceptStat),
    /// The answer cannot be decoded.
    #[error("the answer cannot be decoded")]
    Garbled,
}

/// A call of ours.
#[derive(Clone, Copy, Debug)]
pub struct OutgoingCall<'a> {
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// As whom.
    pub auth: &'a Auth,
    /// The encoded arguments.
    pub args: &'a [u8],
}

/// Given the encoded results. Runs on whatever thread reads the answer: it must not block.
pub type Answered = Box<dyn FnOnce(Result<&[u8], CallError>) + Send>;

struct Waiter {
    /// None: it has been told that the time is over.
    answered: Option<Answered>,
    /// Who hears of an answer after that.
    late: Option<Answered>,
    timer: Option<AbortHandle>,
}

impl Waiter {
    fn tell(self, result: Result<&[u8], CallError>) {
        if let Some(timer) = self.timer {
            timer.abort();
        }
        if let Some(told) = self.answered.or(self.late) {
            told(result);
        }
    }
}

/// The unanswered calls of one connection.
#[derive(Default)]
pub(crate) struct BackChannel {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    xid: u32,
    waiters: FxHashMap<u32, Waiter>,
    is_closed: bool,
}

impl BackChannel {
    /// A transaction id for a call, and its waiter noted; `late` is told should the answer come after its time.
    pub(crate) fn begin(
        &self,
        answered: Answered,
        late: Option<Answered>,
    ) -> Result<u32, (CallError, Answered)> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err((CallError::Closed, answered));
        }
        if state.waiters.len() >= CALLS_BACK_MAX {
            return Err((CallError::Busy, answered));
        }
        // Fewer are outstanding than there are numbers, so a free one is near.
        let mut xid = state.xid.wrapping_add(1);
        while state.waiters.contains_key(&xid) {
            xid = xid.wrapping_add(1);
        }
        state.xid = xid;
        state.waiters.insert(xid, Waiter { answered: Some(answered), late, timer: None });
        Ok(xid)
    }

    /// The last transaction id used, and how many calls wait for their answer.
    pub(crate) fn progress(&self) -> (u32, usize) {
        let state = self.state.lock();
        (state.xid, state.waiters.len())
    }

    /// Goes on after this transaction id: what answers an earlier one is none of ours.
    pub(crate) fn go_on_after(&self, xid: u32) {
        self.state.lock().xid = xid;
    }

    /// Notes the timer of a call, unless its answer was faster.
    pub(crate) fn set_timer(&self, xid: u32, timer: AbortHandle) {
        match self.state.lock().waiters.get_mut(&xid) {
            Some(waiter) => waiter.timer = Some(timer),
            None => timer.abort(),
        }
    }

    /// Hands over an answer, or the lack of one. Nobody may be waiting for it: it came too late or unasked.
    pub(crate) fn finish(&self, xid: u32, result: Result<&[u8], CallError>) -> bool {
        let Some(waiter) = self.state.lock().waiters.remove(&xid) else { return false };
        waiter.tell(result);
        true
    }

    /// The time for an answer is over. It may come all the same, for who wants to hear of it then.
    pub(crate) fn time_out(&self, xid: u32) {
        let mut state = self.state.lock();
        let Some(waiter) = state.waiters.get_mut(&xid) else { return };
        let answered = if waiter.late.is_some() {
            waiter.timer = None;
            waiter.answered.take()
        } else {
            state.waiters.remove(&xid).and_then(|waiter| waiter.answered)
        };
        drop(state);
        if let Some(answered) = answered {
            answered(Err(CallError::TimedOut));
        }
    }

    /// Calls without an answer.
    pub(crate) fn unanswered(&self) -> Vec<u32> {
        self.state.lock().waiters.keys().copied().collect()
    }

    /// Tells all who wait that nothing will come.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        for waiter in waiters.into_values() {
            waiter.tell(Err(CallError::Closed));
        }
    }
}
