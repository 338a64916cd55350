//! What every procedure repeats, once: decode, find the objects, admit the caller, answer duplicates, fail with
//! the right body, and hold the reply until what it promises is durable.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use holdfast_base::ExportId;
use holdfast_export::Object;
use holdfast_ledger::Undertaking;
use holdfast_ledger::failpoint::{self, Point};
use holdfast_rpc::reply_cache::{Begin, Key, Token};
use holdfast_rpc::{Auth, Call, Mode, Outcome, PendingReply};
use holdfast_vfs::{FsError, FsResult, Wait};
use holdfast_wire::nfs3::{Fh3, NFS3_PROGRAM, NfsStat3, Proc3, WccData};
use holdfast_xdr::{Decode, Encode, Writer};

use crate::caller;
use crate::procedure::{Desc, FailBody, Failure, Handles, On, Op, Procedure, Site, Target};
use crate::service::{Answered, Nfs3};
use crate::status::{is_allowed, status_of};

/// What is left to be done when a procedure has run.
struct Ending {
    desc: Desc,
    status: NfsStat3,
    /// Where the result begins in the reply.
    start: usize,
    /// Of a call that must not run twice. Dropped, the call counts as never having come.
    token: Option<Token>,
    /// Its record in the journal.
    undertaking: Option<Box<Undertaking>>,
    observation: Observation,
}

/// What is noted of a call for whoever observes.
#[derive(Clone, Copy)]
struct Observation {
    peer: IpAddr,
    export: Option<ExportId>,
    received: usize,
    started: Option<(Instant, u32)>,
}

impl Nfs3 {
    /// Runs one call of a procedure.
    pub(crate) fn serve<P: Procedure>(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        let Ok(args) = P::Args::decode(&mut call.args.clone()) else { return Outcome::Garbage };
        if P::DESC.waits && call.mode == Mode::Inline {
            return Outcome::Offload;
        }
        if caller::credential(call.auth).is_none() {
            return Outcome::WeakAuth;
        }
        let token = match P::DESC.replays.then(|| self.parts.replies.begin(Key::of(NFS3_PROGRAM, call))) {
            None => None,
            Some(Begin::New(token)) => Some(token),
            Some(Begin::Running(duplicate)) => return duplicate.outcome(),
            Some(Begin::Replay(results)) => {
                reply.put(&results);
                return Outcome::Reply;
            }
        };
        let start = reply.len();
        let peer = call.connection.peer();
        let mut observation = self.observation(call, peer.ip());
        let mut op = Op {
            call,
            namespace: &self.parts.namespace,
            manager: &self.parts.manager,
            peer: peer.ip(),
            wait: patience(call.mode),
            touched: Vec::new(),
            file: None,
            ends_with_verifier: false,
            undertaking: token.as_ref().filter(|_| P::DESC.records).and_then(|token| self.undertaking(token)),
        };
        // Stays where it is made: it is larger than what most calls do with it.
        let objects = self.objects(P::DESC, args.handles(), call.auth, peer);
        let (on, result) = match &objects {
            Ok(on) => (Some(on), P::run(&mut op, on, &args, reply)),
            Err(failure) => (None, Err(*failure)),
        };
        let undertaking = op.undertaking.take();
        observation.export = on.and_then(export_of);
        let mut ending =
            Ending { desc: P::DESC, status: NfsStat3::Ok, start, token, undertaking, observation };
        if let Err(failure) = result {
            reply.truncate(start);
            ending.status = match self.fail(P::DESC, failure, on, &op, reply) {
                Ok(status) => status,
                Err(WouldBlock) => {
                    // It may never be run again: its connection may end.
                    ending.undertaking.iter().for_each(|undertaking| undertaking.withdraw());
                    return Outcome::Offload;
                }
            };
            op.touched.clear();
        }
        self.end(ending, on, &mut op, reply)
    }

    fn undertaking(&self, token: &Token) -> Option<Box<Undertaking>> {
        let ledger = self.parts.ledger.as_ref()?;
        let mut key = Writer::from_vec(Vec::with_capacity(64));
        token.key().encode(&mut key);
        Some(Box::new(Undertaking::of_call(ledger, key.as_slice(), token.key().xid)))
    }

    /// The objects that the arguments name, when the caller may come near them.
    #[inline]
    fn objects(
        &self,
        desc: Desc,
        (first, second): (Fh3<'_>, Option<Fh3<'_>>),
        auth: &Arc<Auth>,
        peer: SocketAddr,
    ) -> Result<On, Failure> {
        let first = self.target(desc, first, auth, peer)?;
        let second = second.map(|fh| self.target(desc, fh, auth, peer)).transpose()?;
        Ok(On { first, second })
    }

    #[inline]
    fn target(&self, desc: Desc, fh: Fh3<'_>, auth: &Arc<Auth>, peer: SocketAddr) -> Result<Target, Failure> {
        let (export, handle) = match self.parts.namespace.open(fh.0)? {
            Object::Pseudo(_) if desc.mutates => return Err(NfsStat3::Rofs.into()),
            Object::Pseudo(dir) => return Ok(Target::Pseudo(dir)),
            Object::Export(export, handle) => (export, handle),
        };
        if !export.admits(peer.ip(), peer.port()) {
            return Err(NfsStat3::Acces.into());
        }
        if export.is_moved() {
            // That it is elsewhere this version has no word for.
            return Err(NfsStat3::Stale.into());
        }
        if desc.mutates && export.options.is_read_only {
            return Err(NfsStat3::Rofs.into());
        }
        let caller = caller::caller(&export, auth, &*self.parts.groups)?;
        Ok(Target::Site(Site { export, handle, caller }))
    }

    /// Writes a failed result, with the attributes that go with it.
    fn fail(
        &self,
        desc: Desc,
        failure: Failure,
        on: Option<&On>,
        op: &Op<'_>,
        reply: &mut Writer,
    ) -> Result<NfsStat3, WouldBlock> {
        let status = match failure {
            Failure::Fs(FsError::WouldBlock) if op.wait != Wait::Yes => return Err(WouldBlock),
            Failure::Fs(error) => status_of(desc.procedure, error),
            Failure::Status(status) => status,
        };
        debug_assert!(is_allowed(desc.procedure, status), "{} answers {status}", desc.procedure);
        status.encode(reply);
        let Some(on) = on else {
            write_empty(desc.fail, reply);
            return Ok(status);
        };
        let second = on.second.as_ref().unwrap_or(&on.first);
        match desc.fail {
            FailBody::Empty => {}
            FailBody::PostOp => op.post_op(&on.first)?.encode(reply),
            FailBody::Wcc => op.wcc_after(&on.first)?.encode(reply),
            FailBody::TwoWcc => {
                op.wcc_after(&on.first)?.encode(reply);
                op.wcc_after(second)?.encode(reply);
            }
            FailBody::PostOpWcc => {
                op.post_op(&on.first)?.encode(reply);
                op.wcc_after(second)?.encode(reply);
            }
        }
        Ok(status)
    }

    /// Sends the reply, or has it wait for its commit.
    fn end(&self, ending: Ending, on: Option<&On>, op: &mut Op<'_>, reply: &mut Writer) -> Outcome {
        if let Some(file) = op.file.take() {
            self.note(&ending, reply.len() + file.bytes);
            return Outcome::ReplyFile(file);
        }
        ending.record(reply);
        let Some(On { first: Target::Site(site), .. }) = on.filter(|_| !op.touched.is_empty()) else {
            self.note(&ending, reply.len());
            ending.keep(reply);
            return Outcome::Reply;
        };
        let (this, backend) = (self.clone(), Arc::clone(&site.export.backend));
        let (touched, ends_with_verifier) = (std::mem::take(&mut op.touched), op.ends_with_verifier);
        Outcome::Park(Box::new(move |mut pending: PendingReply| {
            pending.waits_for_no_peer();
            let committer = Arc::clone(&this.parts.committer);
            let on = Arc::clone(&backend);
            let done = move |result| {
                let verifier = ends_with_verifier.then(|| on.write_verifier());
                this.committed(ending, pending, result, verifier);
            };
            committer.submit(&backend, touched, Box::new(done));
        }))
    }

    /// Sends a reply that waited for its commit.
    fn committed(
        &self,
        mut ending: Ending,
        mut pending: PendingReply,
        result: FsResult<()>,
        verifier: Option<[u8; 8]>,
    ) {
        failpoint::pass(Point::AfterCommit);
        let reply = pending.writer();
        let is_durable = result.is_ok();
        match (result, verifier) {
            (Ok(()), Some(verifier)) => {
                reply.truncate(reply.len() - verifier.len());
                verifier.encode(reply);
            }
            (Ok(()), None) => {}
            (Err(error), _) => {
                ending.status = commit_failed(ending.desc.procedure, error);
                reply.truncate(ending.start);
                ending.status.encode(reply);
                write_empty(ending.desc.fail, reply);
            }
        }
        self.note(&ending, reply.len());
        match &ending.undertaking {
            Some(undertaking) if is_durable => undertaking.seal(),
            Some(undertaking) => undertaking.finish(&reply.as_slice()[ending.start..]),
            None => {}
        }
        ending.keep(reply);
        failpoint::pass(Point::BeforeSend);
        pending.send();
    }

    fn observation(&self, call: &Call<'_>, peer: IpAddr) -> Observation {
        let observer = self.parts.observer.as_ref();
        let started = observer.and_then(|observer| observer.begins(call.mode != Mode::Inline));
        Observation { peer, export: None, received: call.args.rest().len(), started }
    }

    /// Tells of a call that is answered; `end` is where its reply ends.
    fn note(&self, ending: &Ending, end: usize) {
        let (procedure, status) = (ending.desc.procedure, ending.status);
        tracing::trace!(%procedure, %status, "answered");
        if let Some(observer) = &self.parts.observer {
            let Observation { peer, export, received, started } = ending.observation;
            observer.answered(&Answered {
                procedure,
                status,
                peer,
                export,
                received: received as u64,
                sent: (end - ending.start) as u64,
                took: started.map(|(at, _)| at.elapsed()),
                weight: started.map_or(0, |(_, weight)| weight),
            });
        }
    }
}

/// How long a call may wait where it runs.
pub(crate) const fn patience(mode: Mode) -> Wait {
    match mode {
        Mode::Inline => Wait::No,
        Mode::Turn => Wait::Journal,
        Mode::Pool => Wait::Yes,
    }
}

/// The export in which the first object lies.
fn export_of(on: &On) -> Option<ExportId> {
    match &on.first {
        Target::Site(site) => Some(site.export.id),
        Target::Pseudo(_) => None,
    }
}

/// The call is to be run again where it may wait.
struct WouldBlock;

impl From<FsError> for WouldBlock {
    fn from(_: FsError) -> Self {
        Self
    }
}

impl Ending {
    /// Records the reply, which a crash from here on does not take from the client.
    fn record(&self, reply: &Writer) {
        match &self.undertaking {
            Some(undertaking) if self.status == NfsStat3::Jukebox => undertaking.forget(),
            Some(undertaking) => undertaking.finish(&reply.as_slice()[self.start..]),
            None => {}
        }
        failpoint::pass(Point::AfterJournal);
    }

    /// Keeps the reply for duplicates. JUKEBOX as well: its client asks again under another transaction id (RFC 1813 section
    /// 2.6), and a copy of the first call that comes late, over a connection that was given up, must not be done beside that.
    fn keep(self, reply: &Writer) {
        if let Some(token) = self.token {
            token.finish(&reply.as_slice()[self.start..]);
        }
    }
}

/// What a failed commit is to the client. The change was done and may be lost: never JUKEBOX for a change of
/// names, for the client would do it a second time.
fn commit_failed(procedure: Proc3, error: FsError) -> NfsStat3 {
    let can_repeat = matches!(procedure, Proc3::Write | Proc3::Commit);
    let status = match error {
        FsError::NoSpace => NfsStat3::NoSpc,
        FsError::Quota => NfsStat3::Dquot,
        FsError::Delay if can_repeat => NfsStat3::Jukebox,
        _ => NfsStat3::Io,
    };
    if is_allowed(procedure, status) { status } else { NfsStat3::Io }
}

fn write_empty(body: FailBody, w: &mut Writer) {
    let no_attr = |w: &mut Writer| false.encode(w);
    match body {
        FailBody::Empty => {}
        FailBody::PostOp => no_attr(w),
        FailBody::Wcc => WccData::NONE.encode(w),
        FailBody::TwoWcc => {
            WccData::NONE.encode(w);
            WccData::NONE.encode(w);
        }
        FailBody::PostOpWcc => {
            no_attr(w);
            WccData::NONE.encode(w);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_commit_is_never_a_reason_to_repeat_a_change_of_names() {
        for error in [FsError::Delay, FsError::Io, FsError::Stale, FsError::WouldBlock] {
            assert_eq!(commit_failed(Proc3::Create, error), NfsStat3::Io);
        }
        assert_eq!(commit_failed(Proc3::Commit, FsError::Delay), NfsStat3::Jukebox);
        assert_eq!(commit_failed(Proc3::Write, FsError::NoSpace), NfsStat3::NoSpc);
        assert_eq!(commit_failed(Proc3::Rename, FsError::Quota), NfsStat3::Dquot);
    }
}
