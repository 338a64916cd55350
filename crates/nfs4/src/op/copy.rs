//! COPY within the server (RFC 7862 section 15.2) and CLONE (15.13).

use std::time::{Duration, Instant};

use holdfast_base::Length;
use holdfast_state::Access;
use holdfast_vfs::{AttrMask, CopySpan};
use holdfast_wire::nfs4::{
    Clone4Args, Copy4Args, Copy4Ok, CopyRequirements4, NfsStat4, OpNum4, StableHow4, WriteResponse4,
};

use super::Op;
use super::name::same_export;
use crate::cx::{At, Cx};
use crate::desc::{Flags, OpDesc};
use crate::error::OpResult;
use crate::io::{self, IoFile};

/// Bytes copied by one call of the backend: what a slow disk moves in about a second, so that time is looked at
/// that often.
const STEP_BYTES: u64 = 64 << 20;

/// How long one COPY goes on: well below the time after which clients send again. What is left the client asks
/// for itself, as the answer says how far it came.
const COPY_TIME_MAX: Duration = Duration::from_secs(5);

const COPIES: Flags = Flags::MUTATION.with(Flags::NEEDS_SAVED_FH).with(Flags::WAITS);

impl Op for Copy4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::Copy, COPIES).reply(4 + 8 + 4 + 8 + 8);
    type Ok = Copy4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Copy4Ok> {
        if !self.source_servers.is_empty() {
            // Between servers: not served (RFC 7862 section 4.6 leaves it optional).
            return Err(NfsStat4::NotSupp.into());
        }
        cx.must_wait()?;
        let pair = Pair::of(cx, &self.src_stateid, &self.dst_stateid)?;
        let span = CopySpan { from: self.src_offset.0, to: self.dst_offset.0, bytes: self.count.0 };
        let copied = pair.copy(span)?;
        let verifier = pair.to.backend().write_verifier();
        Ok(Copy4Ok {
            response: WriteResponse4 {
                callback_id: None,
                count: Length(copied),
                committed: StableHow4::Unstable,
                writeverf: verifier,
            },
            requirements: CopyRequirements4 { consecutive: true, synchronous: true },
        })
    }
}

impl Op for Clone4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::Clone, COPIES);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        cx.must_wait()?;
        let Pair { from, source, to, target } = Pair::of(cx, &self.src_stateid, &self.dst_stateid)?;
        let span = CopySpan { from: self.src_offset.0, to: self.dst_offset.0, bytes: self.count.0 };
        to.backend().clone_range(&to.cx(), source.of(&from.handle), target.of(&to.handle), span)?;
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
    fn of(
        cx: &mut Cx<'_>,
        source: &holdfast_wire::nfs4::Stateid4,
        target: &holdfast_wire::nfs4::Stateid4,
    ) -> OpResult<Self> {
        let (from, to) = same_export(cx)?;
        let (source, target) = (cx.saved_stateid(*source)?, cx.stateid(*target)?);
        let source = io::file(cx, &from, source, Access::READ)?;
        let target = io::file(cx, &to, target, Access::WRITE)?;
        Ok(Self { from, source, to, target })
    }

    /// Copies until all is copied, the source ends, or it takes too long. An error after the first step is that
    /// of the client's next request.
    fn copy(&self, span: CopySpan) -> OpResult<u64> {
        let (from, to) = (self.source.of(&self.from.handle), self.target.of(&self.to.handle));
        let size = self.from.backend().getattr(&self.from.cx(), &self.from.handle, AttrMask::STAT)?.size;
        let wanted = match span.bytes {
            // RFC 7862 section 15.2.3: 0 means to the end; a source that lies beyond the end is an error.
            0 => size.checked_sub(span.from).ok_or(NfsStat4::Inval)?,
            n if span.from.checked_add(n).is_none_or(|end| end > size) => return Err(NfsStat4::Inval.into()),
            n => n,
        };
        let (begun, mut copied) = (Instant::now(), 0);
        while copied < wanted && (copied == 0 || begun.elapsed() < COPY_TIME_MAX) {
            let step = CopySpan {
                from: span.from + copied,
                to: span.to.checked_add(copied).ok_or(NfsStat4::Inval)?,
                bytes: (wanted - copied).min(STEP_BYTES),
            };
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
