//! The end of a compound: what it changed becomes durable, then its reply is kept for retries, then it is sent.
//! Never in another order: a reply that left promises both.

use holdfast_ledger::failpoint::{self, Point};
use holdfast_rpc::{FileBody, Outcome, PendingReply};
use holdfast_vfs::FsError;
use holdfast_wire::nfs4::{NfsStat4, OpNum4};
use holdfast_xdr::Writer;

use crate::compound::Compound;
use crate::slot::SlotUse;

impl Compound {
    /// Ends a compound whose results are all written.
    pub(crate) fn finish(mut self, reply: &mut Writer) -> Outcome {
        self.record(reply);
        if self.touched.is_empty() {
            return self.conclude(reply);
        }
        let this = Box::new(self);
        Outcome::Park(Box::new(move |mut pending| {
            pending.waits_for_no_peer();
            this.commit(pending);
        }))
    }

    /// Has everything forced that was touched, one backend after the other: compounds that touch two are rare.
    fn commit(mut self: Box<Self>, mut pending: PendingReply) {
        let Some((backend, touched)) = self.touched.pop() else {
            failpoint::pass(Point::AfterCommit);
            self.fill_verifiers(pending.writer());
            self.service.memory.free(self.dropped.drain(..));
            if let Some(undertaking) = &self.undertaking {
                undertaking.seal();
            }
            let outcome = self.conclude(pending.writer());
            return pending.finish(outcome);
        };
        let committer = self.service.config.committer.clone();
        let done = move |result: Result<(), FsError>| {
            if let Err(error) = result {
                self.fail_commit(error, pending.writer());
                self.record(pending.writer());
                // What is not durable is not to be believed after the machine dies.
                self.undertaking = None;
            }
            self.commit(pending);
        };
        committer.submit(&backend, touched, Box::new(done));
    }

    /// A reply recorded before has none, which makes its client write again after a crash, as it must.
    fn fill_verifiers(&mut self, reply: &mut Writer) {
        for (halves, backend) in self.verifiers.drain(..) {
            let [a, b, c, d, e, f, g, h] = backend.write_verifier();
            for (half, bytes) in halves.into_iter().zip([[a, b, c, d], [e, f, g, h]]) {
                reply.fill(half, u32::from_be_bytes(bytes));
            }
        }
    }

    /// The changes could not be made durable. They were made, and can be seen, but the client must not believe
    /// them safe: as with fsync(2), it is told so in place of the first operation that changed anything, for which
    /// of them is lost nobody knows. State granted on the way (an open) stays until the client closes it or its
    /// lease ends.
    fn fail_commit(&mut self, error: FsError, reply: &mut Writer) {
        self.touched.clear();
        self.verifiers.clear();
        self.dropped.clear();
        let Some(first) = self.first_touch else { return };
        // What was read before it stands in the reply, and is to follow: where this begins, if nothing lies between them.
        self.file = self.file.take().filter(|(at, _)| *at <= first.result_at);
        reply.truncate(first.result_at);
        self.stand_ins.forget(first.result_at);
        reply.u32(first.op.as_u32());
        self.outcome = commit_failed(first.op, error);
        if self.outcome == NfsStat4::Io {
            tracing::warn!(op = ?first.op, %error, "a change could not be made durable");
        }
        reply.u32(self.outcome.as_u32());
        if crate::table::row(first.op)
            .is_some_and(|row| row.desc.flags.has(crate::desc::Flags::BITMAP_ON_ERROR))
        {
            reply.u32(0);
        }
        self.index = first.index + 1;
        reply.fill(self.status, self.outcome.as_u32());
        reply.fill(self.count, self.index);
    }

    /// Records the reply of a change, which a crash from here on does not take from the client.
    fn record(&self, reply: &Writer) {
        if let Some(undertaking) = &self.undertaking {
            undertaking.finish(&self.stand_ins.told(reply.as_slice(), self.start));
        }
        failpoint::pass(Point::AfterJournal);
    }

    /// Keeps the reply for retries, and lets it go.
    fn conclude(&mut self, reply: &mut Writer) -> Outcome {
        if let Some(slot) = self.slot.take() {
            if self.tells_of_restart {
                self.service.config.manager.quiet(|engine, _| engine.restart_heard(slot.session));
            }
            self.complete(&slot, reply);
        }
        // A reply with data from a file is not kept; dropping the token says so.
        if let Some(token) = self.token.take().filter(|_| self.file.is_none()) {
            token.finish(&reply.as_slice()[self.start..]);
        }
        failpoint::pass(Point::BeforeSend);
        match self.file.take() {
            None => Outcome::Reply,
            Some((at, span)) => {
                let mut trailer = vec![0; span.bytes.next_multiple_of(4) - span.bytes];
                trailer.extend_from_slice(&reply.as_slice()[at..]);
                reply.truncate(at);
                Outcome::ReplyFile(FileBody { fd: span.fd, offset: span.offset, bytes: span.bytes, trailer })
            }
        }
    }

    /// Ends the use of a slot. What the client did not ask to be kept is kept as SEQUENCE's result and
    /// NFS4ERR_RETRY_UNCACHED_REP for the operation after it (RFC 8881 section 2.10.6.1.3), unless the reply is no
    /// longer than that. Those few words are patched in the reply itself, and put back.
    fn complete(&self, slot: &SlotUse, reply: &mut Writer) {
        let is_short = self.index <= 1 || (self.index == 2 && self.outcome != NfsStat4::Ok);
        let second = self.second.filter(|_| !slot.is_kept && !is_short);
        let retries_wait = match second {
            Some((second, end)) => {
                let uncached = NfsStat4::RetryUncachedRep.as_u32();
                for (place, word) in [(self.status, uncached), (self.count, 2), (second, uncached)] {
                    reply.fill(place, word);
                }
                let waits = self.service.complete(slot, &reply.as_slice()[self.start..end]);
                for (place, word) in
                    [(self.status, self.outcome.as_u32()), (self.count, self.index), (second, 0)]
                {
                    reply.fill(place, word);
                }
                waits
            }
            // Data that comes from a file cannot be kept; only a reply that is not to be kept has any.
            None if self.file.is_some() => self.service.complete(slot, &[]),
            None => self.service.complete(slot, &reply.as_slice()[self.start..]),
        };
        if retries_wait {
            // Without the data that a file would give, there is nothing to send them.
            let whole = if self.file.is_some() { &[] } else { &reply.as_slice()[self.start..] };
            self.service.answer_retries(slot, whole);
        }
    }

    /// Whether the reply will be kept, as far as is known yet.
    pub(crate) fn is_reply_kept(&self) -> bool {
        self.token.is_some() || self.slot.as_ref().is_some_and(|slot| slot.is_kept)
    }
}

/// What a failed commit is to the client of an operation. The change was done and may be lost: never DELAY, for the client
/// would do it a second time, which harms nothing with COMMIT alone. That there was no room is told by those that may (RFC 8881
/// section 15.2, RFC 7862 section 11.2, RFC 8276 section 8.4); COMMIT and REMOVE are not among them.
const fn commit_failed(op: OpNum4, error: FsError) -> NfsStat4 {
    let may_lack_room = matches!(
        op,
        OpNum4::Create
            | OpNum4::Link
            | OpNum4::Open
            | OpNum4::Rename
            | OpNum4::SetAttr
            | OpNum4::Write
            | OpNum4::Allocate
            | OpNum4::Clone
            | OpNum4::Copy
            | OpNum4::SetXattr
    );
    match error {
        FsError::Delay if matches!(op, OpNum4::Commit) => NfsStat4::Delay,
        FsError::NoSpace if may_lack_room => NfsStat4::NoSpc,
        FsError::Quota if may_lack_room => NfsStat4::Dquot,
        _ => NfsStat4::Io,
    }
}
