//! Calls back to the client.

use std::sync::Arc;
use std::time::Duration;

use holdfast_xdr::Writer;

use super::Connection;
use crate::callback::{Answered, CallError, OutgoingCall};
use crate::message;

impl Connection {
    /// Calls the client back over this connection. `answered` is told the results, or why there are none, exactly
    /// once, from a thread that must not be blocked; perhaps before this returns.
    pub fn call_back(
        self: &Arc<Self>,
        call: &OutgoingCall<'_>,
        timeout: Duration,
        answered: impl FnOnce(Result<&[u8], CallError>) + Send + 'static,
    ) {
        self.make_call(call, timeout, Box::new(answered), None);
    }

    /// The same for who can use an answer after its time: once `answered` has heard of [`CallError::TimedOut`], `late`
    /// is told the answer, or that the connection ended. Until then it counts as one of the calls under way.
    pub fn call_back_patiently(
        self: &Arc<Self>,
        call: &OutgoingCall<'_>,
        timeout: Duration,
        answered: impl FnOnce(Result<&[u8], CallError>) + Send + 'static,
        late: impl FnOnce(Result<&[u8], CallError>) + Send + 'static,
    ) {
        self.make_call(call, timeout, Box::new(answered), Some(Box::new(late)));
    }

    fn make_call(
        self: &Arc<Self>,
        call: &OutgoingCall<'_>,
        timeout: Duration,
        answered: Answered,
        late: Option<Answered>,
    ) {
        let xid = match self.back.begin(answered, late) {
            Ok(xid) => xid,
            Err((error, answered)) => return answered(Err(error)),
        };
        if let Some(crew) = &self.core.crew {
            let weak = Arc::downgrade(self);
            let timer = crew.runtime().spawn(async move {
                tokio::time::sleep(timeout).await;
                if let Some(connection) = weak.upgrade() {
                    connection.back.time_out(xid);
                }
            });
            self.back.set_timer(xid, timer.abort_handle());
        }
        let mut record = Writer::new();
        message::write_call(&mut record, xid, call);
        self.send(record.as_slice(), None);
    }

    /// The same as a future; it resolves to the encoded results.
    ///
    /// # Errors
    /// Any [`CallError`].
    pub async fn call_back_and_wait(
        self: &Arc<Self>,
        call: &OutgoingCall<'_>,
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.call_back(call, timeout, move |result| {
            // Whoever asked may have stopped waiting.
            let _ = sender.send(result.map(<[u8]>::to_vec));
        });
        receiver.await.unwrap_or(Err(CallError::Closed))
    }

    /// Hands over the answer to a call of ours; false when nobody waits for it.
    pub(crate) fn answer(&self, xid: u32, result: Result<&[u8], CallError>) -> bool {
        self.back.finish(xid, result)
    }
}
