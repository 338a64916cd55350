//! COPY within the server (RFC 7862 section 15.2), at once or in the background with OFFLOAD_STATUS (15.9) and
//! OFFLOAD_CANCEL (15.8), and CLONE (15.13).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_base::Length;
use holdfast_ledger::failpoint::{self, Point};
use holdfast_state::Access;
use holdfast_vfs::{AttrMask, CopySpan};
use holdfast_wire::nfs4::{
    Clone4Args, Copy4Args, Copy4Ok, CopyRequirements4, NfsStat4, OffloadCancel4Args, OffloadStatus4Args,
    OffloadStatus4Ok, OpNum4, StableHow4, Stateid4, Verifier4, WriteResponse4,
};

use super::Op;
use super::name::same_export;
use crate::cx::{At, Cx};
use crate::desc::{Flags, Minor, OpDesc, STATEID_BYTES};
use crate::error::{Failure, OpResult, fit, from_fs};
use crate::io::{self, IoFile};
use crate::offload::Offload;

/// Bytes copied by one call of the backend: what a slow disk moves in about a second, so that time is looked at
/// that often.
const STEP_BYTES: u64 = 64 << 20;

/// How long one COPY goes on: well below the time after which clients send again. What is left the client asks
/// for itself, as the answer says how far it came.
const COPY_TIME_MAX: Duration = Duration::from_secs(5);

/// Up to here a copy is done before its reply, whatever the client allows: the callback would cost more than it saves.
const SYNCHRONOUS_BYTES_MAX: u64 = STEP_BYTES;

const COPIES: Flags = Flags::MUTATION.with(Flags::NEEDS_SAVED_FH).with(Flags::WAITS);

impl Op for Copy4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::Copy, COPIES).reply(4 + STATEID_BYTES + 8 + 4 + 8 + 8);
    type Ok = Copy4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Copy4Ok> {
        if !self.source_servers.is_empty() {
            // Between servers: not served (RFC 7862 section 4.6 leaves it optional).
            return Err(NfsStat4::NotSupp.into());
        }
        cx.must_wait()?;
        let pair = Pair::of(cx, &self.src_stateid, &self.dst_stateid)?;
        let span = CopySpan { from: self.src_offset.0, to: self.dst_offset.0, bytes: self.count.0 };
        let span = CopySpan { bytes: pair.wanted(span)?, ..span };
        let verifier = pair.to.backend().write_verifier();
        if !self.synchronous
            && span.bytes > SYNCHRONOUS_BYTES_MAX
            && has_back_channel(cx)
            && let Some(offload) = cx.service().offloads.begin(cx.client()?, pair.to.handle.key())
        {
            return Ok(answer((0, verifier), Some(in_background(cx, pair, span, &offload)?)));
        }
        failpoint::pass(Point::BeforeMutation);
        let copied = pair.copy(span, |copied, begun| copied > 0 && begun.elapsed() >= COPY_TIME_MAX)?;
        failpoint::pass(Point::AfterMutation);
        Ok(answer((copied, verifier), None))
    }
}

fn answer((copied, writeverf): (u64, Verifier4), callback_id: Option<Stateid4>) -> Copy4Ok {
    let (count, committed) = (Length(copied), StableHow4::Unstable);
    Copy4Ok {
        response: WriteResponse4 { callback_id, count, committed, writeverf },
        requirements: CopyRequirements4 { consecutive: true, synchronous: callback_id.is_none() },
    }
}

/// Whether the client could be told that a copy has ended.
fn has_back_channel(cx: &Cx<'_>) -> bool {
    let Some(slot) = &cx.compound.slot else { return false };
    cx.service().look(|engine| {
        engine.sessions().get(slot.session).is_some_and(|session| session.back_connections().next().is_some())
    })
}

/// Copies on a thread of its own: a copy may take hours, which none of the pool's threads can be spared for.
fn in_background(cx: &Cx<'_>, pair: Pair, span: CopySpan, offload: &Arc<Offload>) -> OpResult<Stateid4> {
    let service = Arc::clone(cx.service());
    let to = cx.config().namespace.seal(cx.current()?);
    let (stateid, of_thread) = (offload.stateid(), Arc::clone(offload));
    let run = move || {
        // Before the first byte, as WRITE's.
        let verifier = pair.to.backend().write_verifier();
        let copy = || {
            pair.copy(span, |copied, _| {
                of_thread.advance(copied);
                // A copy of nothing would look like the end of the source.
                let must_end = copied > 0 && service.offloads.is_stopping.load(Ordering::Relaxed);
                must_end || of_thread.is_cancelled()
            })
        };
        // A panic of the backend must end the copy: it would keep its place and its client waiting for ever.
        let result = catch_unwind(AssertUnwindSafe(copy)).unwrap_or(Err(NfsStat4::ServerFault.into()));
        let status = match result {
            Ok(copied) => {
                of_thread.advance(copied);
                NfsStat4::Ok
            }
            Err(Failure::Fs(error)) => fit(from_fs(error), OpNum4::Copy, Minor::V2),
            Err(_) => NfsStat4::Io,
        };
        service.end_offload(of_thread, &to, (status, verifier));
    };
    if std::thread::Builder::new().name("copy".to_owned()).spawn(run).is_err() {
        cx.service().offloads.forget(offload);
        return Err(NfsStat4::Delay.into());
    }
    Ok(stateid)
}

/// The copy that a state id names, to the current file.
fn offload_of(cx: &mut Cx<'_>, stateid: Stateid4) -> OpResult<Arc<Offload>> {
    let key = cx.at(NfsStat4::BadStateid)?.handle.key();
    let client = cx.client()?;
    cx.service().offloads.find(client, key, stateid).ok_or_else(|| NfsStat4::BadStateid.into())
}

impl Op for OffloadStatus4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::OffloadStatus, Flags::NEEDS_FH).reply(16);
    type Ok = OffloadStatus4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<OffloadStatus4Ok> {
        let (copied, complete) = offload_of(cx, self.stateid)?.status();
        Ok(OffloadStatus4Ok { count: Length(copied), complete })
    }
}

impl Op for OffloadCancel4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::OffloadCancel, Flags::NEEDS_FH);
    type Ok = ();

    /// The copy stops before its next step, and its end is not told.
    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let offload = offload_of(cx, self.stateid)?;
        cx.service().offloads.cancel(&offload);
        Ok(())
    }
}

impl Op for Clone4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::Clone, COPIES);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        cx.must_wait()?;
        let Pair { from, source, to, target } = Pair::of(cx, &self.src_stateid, &self.dst_stateid)?;
        let span = CopySpan { from: self.src_offset.0, to: self.dst_offset.0, bytes: self.count.0 };
        failpoint::pass(Point::BeforeMutation);
        to.backend().clone_range(&to.cx(), source.of(&from.handle), target.of(&to.handle), span)?;
        failpoint::pass(Point::AfterMutation);
        cx.touched(&to, to.handle);
        Ok(())
    }
}

/// Source and target of a copy, each with its open file.
struct Pair {
    from: At,
    source: IoFile,
    to: At,
    target: IoFile,
}

impl Pair {
    fn of(cx: &mut Cx<'_>, source: &Stateid4, target: &Stateid4) -> OpResult<Self> {
        let (from, to) = same_export(cx)?;
        let (source, target) = (cx.saved_stateid(*source)?, cx.stateid(*target)?);
        let source = io::file(cx, &from, source, Access::READ)?;
        let target = io::file(cx, &to, target, Access::WRITE)?;
        Ok(Self { from, source, to, target })
    }

    /// Bytes that a copy is of.
    fn wanted(&self, span: CopySpan) -> OpResult<u64> {
        let attrs = self.from.backend().getattr(&self.from.cx(), &self.from.handle, AttrMask::STAT)?;
        io::must_be_regular(attrs.kind)?;
        let wanted = match span.bytes {
            // RFC 7862 section 15.2.3: 0 means to the end; a source that lies beyond the end is an error.
            0 => attrs.size.checked_sub(span.from),
            n => span.from.checked_add(n).is_some_and(|end| end <= attrs.size).then_some(n),
        };
        let wanted = wanted.filter(|wanted| span.to.checked_add(*wanted).is_some());
        wanted.ok_or_else(|| NfsStat4::Inval.into())
    }

    /// Copies until all is copied, the source ends, or `is_enough`, asked before each step, says so. An error after
    /// the first step is that of the client's next request.
    fn copy(&self, span: CopySpan, is_enough: impl Fn(u64, Instant) -> bool) -> OpResult<u64> {
        let (from, to) = (self.source.of(&self.from.handle), self.target.of(&self.to.handle));
        let (begun, mut copied) = (Instant::now(), 0);
        while copied < span.bytes && !is_enough(copied, begun) {
            let bytes = (span.bytes - copied).min(STEP_BYTES);
            let step = CopySpan { from: span.from + copied, to: span.to + copied, bytes };
            match self.to.backend().copy(&self.to.cx(), from, to, step) {
                Ok(0) => break,
                Ok(n) => copied += n,
                Err(e) if copied == 0 => return Err(e.into()),
                Err(_) => break,
            }
        }
        Ok(copied)
    }
}
