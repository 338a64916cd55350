//! One operation, one place: each file says what an operation means, once for all minor versions. What all repeat
//! (filehandles present, order, budget, status, state id, slots) is the engine's.

use holdfast_xdr::{Decode, Encode, Reader, Writer};

use crate::cx::Cx;
use crate::desc::{Flags, OpDesc};
use crate::error::{Failure, OpResult};
use holdfast_wire::nfs4::{NfsStat4, OpNum4};

mod bind_conn;
mod close;
mod copy;
mod create_session;
mod delegation;
mod exchange_id;
mod filehandle;
mod getattr;
pub(crate) mod lock;
mod lookup;
mod name;
mod open;
mod read;
mod readdir;
mod reclaim_complete;
mod secinfo;
mod sequence;
mod setclientid;
mod space;
mod stateid;
mod write;
mod xattr;

pub(crate) use filehandle::{GetFh, PutPubFh, PutRootFh, RestoreFh, SaveFh};
pub(crate) use lookup::{LookupP, ReadLink};

/// An operation, implemented by its arguments.
pub(crate) trait Op {
    /// Its row in the table.
    const DESC: OpDesc;

    /// What follows NFS4_OK. [`Encoded`] when `run` writes it itself.
    type Ok: Encode;

    /// Executes it. On failure whatever was written to `cx.reply` is taken back, except with
    /// [`Failure::WithBody`].
    ///
    /// # Errors
    /// The operation's status; [`Failure::Wait`] to be run again, from the start, where waiting is allowed:
    /// nothing may have been changed by then.
    fn run(self, cx: &mut Cx<'_>) -> OpResult<Self::Ok>;

    /// Bytes of the result after its status, at most, for these arguments.
    fn reply_bytes_max(&self) -> usize {
        Self::DESC.reply_bytes_max
    }
}

/// The result of an operation that wrote it into `cx.reply` itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded;

impl Encode for Encoded {
    fn encode(&self, _: &mut Writer) {}
}

/// Declares the arguments of operations that have none on the wire.
macro_rules! without_args {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, holdfast_xdr::Decode)]
        pub(crate) struct $name;
    )*};
}
pub(crate) use without_args;

/// Decodes and runs an operation, and appends its result.
pub(crate) fn execute<'a, O: Op + Decode<'a>>(args: &mut Reader<'a>, cx: &mut Cx<'_>) -> Result<(), Failure> {
    let op = O::decode(args).map_err(|_| NfsStat4::BadXdr)?;
    if matches!(O::DESC.num, OpNum4::Read | OpNum4::ReadPlus) {
        cx.next = args.clone().u32().ok();
    }
    if O::DESC.flags.has(Flags::MODIFIES) {
        cx.expect_reply(op.reply_bytes_max())?;
    }
    let ok = op.run(cx)?;
    ok.encode(cx.reply);
    Ok(())
}
