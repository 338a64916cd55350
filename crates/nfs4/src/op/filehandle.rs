//! PUTFH, PUTROOTFH, PUTPUBFH, GETFH, SAVEFH, RESTOREFH (RFC 8881 sections 18.19-18.21, 18.8, 18.27, 18.28): which
//! object is current, and which is kept aside.

use holdfast_wire::nfs4::{NfsStat4, OpNum4, PutFh4Args};

use super::{Encoded, Op, without_args};
use crate::cx::Cx;
use crate::desc::{Flags, OpDesc};
use crate::error::OpResult;
use holdfast_base::limits::WIRE_HANDLE_BYTES_MAX;

without_args! {
    /// GETFH.
    GetFh;
    /// PUTPUBFH.
    PutPubFh;
    /// PUTROOTFH.
    PutRootFh;
    /// RESTOREFH.
    RestoreFh;
    /// SAVEFH.
    SaveFh;
}

impl Op for PutFh4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::PutFh, Flags::CLEARS_STATEID);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let object = cx.config().namespace.open(self.object)?;
        cx.set_current(object)
    }
}

impl Op for PutRootFh {
    const DESC: OpDesc = OpDesc::new(OpNum4::PutRootFh, Flags::CLEARS_STATEID);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let root = cx.config().namespace.root()?;
        cx.set_current(root)
    }
}

/// The public filehandle is the root (RFC 8881 section 4.1.2 leaves it to the server).
impl Op for PutPubFh {
    const DESC: OpDesc = OpDesc::new(OpNum4::PutPubFh, Flags::CLEARS_STATEID);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        PutRootFh.run(cx)
    }
}

impl Op for GetFh {
    const DESC: OpDesc = OpDesc::new(OpNum4::GetFh, Flags::NEEDS_FH).reply(4 + WIRE_HANDLE_BYTES_MAX);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let handle = cx.config().namespace.seal(cx.current()?);
        cx.reply.opaque(handle.as_bytes());
        Ok(Encoded)
    }
}

/// The state id is saved and restored with its object (RFC 8881 section 16.2.3.1.2).
impl Op for SaveFh {
    const DESC: OpDesc = OpDesc::new(OpNum4::SaveFh, Flags::NEEDS_FH);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        cx.compound.saved.clone_from(&cx.compound.current);
        Ok(())
    }
}

impl Op for RestoreFh {
    const DESC: OpDesc = OpDesc::new(OpNum4::RestoreFh, Flags::NONE);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let saved = cx.compound.saved.clone();
        cx.compound.current = Some(saved.ok_or(NfsStat4::RestoreFh)?);
        Ok(())
    }
}
