//! A reply that somebody will send later.

use std::sync::Arc;

use holdfast_xdr::Writer;

use crate::connection::{Connection, Ticket};
use crate::dispatch::{self, Work};
use crate::message::{self, RESULTS_AT};
use crate::pool::Job;
use crate::service::{FileBody, Outcome, Resume};

/// The reply to a call that waits for a lock, a recall, a peer. Dropping it unsent answers SYSTEM_ERR, so that
/// the client is not left waiting.
pub struct PendingReply {
    inner: Option<Inner>,
}

struct Inner {
    xid: u32,
    reply: Writer,
    ticket: Ticket,
}

impl PendingReply {
    pub(crate) const fn new(xid: u32, reply: Writer, ticket: Ticket) -> Self {
        Self { inner: Some(Inner { xid, reply, ticket }) }
    }

    /// The call's transaction id.
    #[must_use]
    pub fn xid(&self) -> u32 {
        self.inner.as_ref().map_or(0, |i| i.xid)
    }

    /// Where the reply goes.
    ///
    /// # Panics
    /// Never: only the methods that consume the reply take its content away.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the content is there until a consuming method takes it")]
    pub fn connection(&self) -> &Arc<Connection> {
        self.inner.as_ref().expect("not consumed").ticket.connection()
    }

    /// The reply as written so far, to go on with.
    ///
    /// # Panics
    /// Never: see [`PendingReply::connection`].
    #[expect(clippy::expect_used, reason = "the content is there until a consuming method takes it")]
    pub fn writer(&mut self) -> &mut Writer {
        &mut self.inner.as_mut().expect("not consumed").reply
    }

    /// Takes back all results written so far.
    pub fn reset(&mut self) {
        self.writer().truncate(RESULTS_AT);
    }

    /// Says that no peer has to do anything for this reply to be sent: it waits for a disk. An orderly end of the
    /// server then waits for it, and does not for others, whose peers may never answer.
    pub fn waits_for_no_peer(&mut self) {
        if let Some(inner) = &mut self.inner {
            inner.ticket.be_sure();
        }
    }

    /// Sends what was written.
    pub fn send(self) {
        self.finish(Outcome::Reply);
    }

    /// Sends what was written, then a stretch of a file.
    pub fn send_file(self, file: FileBody) {
        self.finish(Outcome::ReplyFile(file));
    }

    /// Sends nothing.
    pub fn abandon(mut self) {
        self.inner = None;
    }

    /// Goes on with the call on the pool. Never waits, and never fails: calls that wait are bounded already.
    pub fn resume(mut self, resume: Box<dyn Resume>) {
        let Some(Inner { xid, reply, ticket }) = self.inner.take() else { return };
        let connection = Arc::clone(ticket.connection());
        let in_flight = Ticket::in_flight(&connection, ticket.bytes());
        let work = Work::Resume { resume, reply, xid };
        connection.core.pool.push(Job::Call { work, ticket: in_flight });
    }

    /// Ends the call with an outcome, as [`crate::service::Program::call`] would. [`Outcome::Offload`] makes no
    /// sense here and answers SYSTEM_ERR.
    pub fn finish(mut self, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Resume(resume) => return self.resume(resume),
            other => other,
        };
        let Some(Inner { xid, mut reply, ticket }) = self.inner.take() else { return };
        dispatch::finish(ticket, xid, &mut reply, outcome);
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(Inner { xid, mut reply, ticket }) = self.inner.take() {
            message::write_failed(&mut reply, xid, message::Failure::SYSTEM);
            ticket.connection().send(reply.as_slice(), None);
        }
    }
}

impl std::fmt::Debug for PendingReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingReply").field("xid", &self.xid()).finish_non_exhaustive()
    }
}
