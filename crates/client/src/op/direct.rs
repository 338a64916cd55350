//! I/O that ends at the server's disk: what is written is there before the answer, and what is written or read does not stay in the
//! server's memory, as far as the server can be told so (IO_ADVISE, RFC 7862 section 15.5).

use std::cell::Cell;

use bytes::Bytes;
use holdfast_base::{Length, Offset};
use holdfast_wire::nfs4::{
    ArgOp, Bitmap4, IO_ADVISE4_DONTNEED, IoAdvise4Args, IoAdvise4Ok, NfsStat4, OpNum4, Read4Args, Read4Ok,
    StableHow4, Stateid4,
};

use super::Io;
use crate::client::Inner;
use crate::compound::{Answer, Compound};
use crate::run::Manner;
use crate::{Client, Cx, Error, ReadData, Result, Written};

/// The first minor version with IO_ADVISE.
const ADVICE_SINCE: u32 = 2;

/// A stretch of a file.
type Stretch = (Stateid4, u64, u64);

impl Client {
    /// As [`Client::read`]; afterwards the server does not keep in memory what was read.
    ///
    /// # Errors
    /// Those of [`Client::read`].
    pub fn read_from_disk(&self, cx: Cx<'_>, io: Io<'_>, offset: u64, count: u32) -> Result<ReadData> {
        let inner = self.inner();
        let count = count.min(inner.limits().max_read);
        let is_advised = Cell::new(false);
        inner.run(
            cx,
            // Of the advice after the two nothing is worth asking again.
            &Manner { essential: Some(2), ..Manner::IDLE },
            |compound| {
                let stateid = inner.stateid(compound, io, false)?;
                compound.put(io.file);
                compound.op(&ArgOp::Read(Read4Args { stateid, offset: Offset(offset), count }));
                is_advised.set(inner.advise(compound, (stateid, offset, u64::from(count))));
                Ok(())
            },
            |answer| {
                answer.put()?;
                let reply = answer.record();
                let ok: Read4Ok<'_> = answer.next(OpNum4::Read)?;
                let read = ReadData { data: reply.keep(ok.data), eof: ok.eof };
                inner.hear_of_advice(answer, is_advised.get());
                Ok(read)
            },
        )
    }

    /// As [`Client::write`], with what is written on the server's disk when it returns, and not kept in its memory.
    ///
    /// # Errors
    /// Those of [`Client::write`].
    pub fn write_to_disk(&self, cx: Cx<'_>, io: Io<'_>, offset: u64, data: Bytes) -> Result<Written> {
        self.write_so(cx, io, (offset, data), (StableHow4::DataSync, true))
    }
}

impl Inner {
    /// Tells the server that memory is not to be spent on a stretch, unless it would not understand; whether it is told.
    pub(super) fn advise(&self, compound: &mut Compound, (stateid, offset, bytes): Stretch) -> bool {
        // No bytes would mean all that follow.
        if bytes == 0 || self.limits().minor < ADVICE_SINCE || self.facts.read().takes_no_advice {
            return false;
        }
        let hints = Bitmap4::EMPTY.with(IO_ADVISE4_DONTNEED);
        let (offset, count) = (Offset(offset), Length(bytes));
        compound.op(&ArgOp::IoAdvise(IoAdvise4Args { stateid, offset, count, hints }));
        true
    }

    /// What came of that changes nothing; but who does not know the operation is not asked for it again.
    pub(super) fn hear_of_advice(&self, answer: &mut Answer, is_advised: bool) {
        if !is_advised {
            return;
        }
        match answer.next::<IoAdvise4Ok>(OpNum4::IoAdvise) {
            Err(Error::Nfs(NfsStat4::NotSupp | NfsStat4::OpIllegal)) => {
                tracing::debug!("the server takes no advice: what passes its memory it decides by itself");
                self.facts.write().takes_no_advice = true;
            }
            told => tracing::trace!(?told, "advised"),
        }
    }
}
