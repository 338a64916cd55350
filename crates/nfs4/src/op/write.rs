//! WRITE (RFC 8881 section 18.32), COMMIT (18.3) and SETATTR (18.30): changing what is in a file and known of it.

use holdfast_state::Access;
use holdfast_vfs::{AttrMask, Stability, Touched, WriteAt};
use holdfast_wire::nfs4::{
    Commit4Args, NfsStat4, OpNum4, SetAttr4Args, SetAttr4Res, StableHow4, Write4Args, Write4Ok,
};

use super::{Encoded, Op};
use crate::attr::decode::{self, Occasion};
use crate::cx::Cx;
use crate::desc::{BITMAP_BYTES, Flags, OpDesc};
use crate::error::OpResult;
use crate::io::{self, IoFile};

impl Op for Write4Args<'_> {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::Write, Flags::NEEDS_FH.with(Flags::MODIFIES).with(Flags::WRITES)).reply(16);
    type Ok = Write4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Write4Ok> {
        let at = cx.at(NfsStat4::IsDir)?;
        let stateid = cx.stateid(self.stateid)?;
        let file = io::file(cx, &at, stateid, Access::WRITE)?;
        let stability = match self.stable {
            StableHow4::Unstable => Stability::Unstable,
            StableHow4::DataSync => Stability::DataSync,
            StableHow4::FileSync => Stability::FileSync,
        };
        let to = WriteAt { offset: self.offset.0, stability, want_change: false };
        // Before the write: data lost in between must not go with a verifier that a later COMMIT repeats.
        let writeverf = at.backend().write_verifier();
        let written = cx.mutate(&at).write(file.of(&at.handle), to, self.data)?;
        let committed = match stability {
            Stability::Unstable => StableHow4::Unstable,
            Stability::DataSync | Stability::FileSync => {
                cx.commit_before_reply(&at, Touched { handle: at.handle, data: true });
                StableHow4::FileSync
            }
        };
        let count = u32::try_from(written.bytes).map_err(|_| NfsStat4::ServerFault)?;
        Ok(Write4Ok { count, committed, writeverf })
    }
}

impl Op for Commit4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::Commit, Flags::NEEDS_FH).reply(8);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let at = cx.at(NfsStat4::IsDir)?;
        io::must_be_regular(at.backend().getattr(&at.cx(), &at.handle, AttrMask::STAT)?.kind)?;
        // The whole file, whatever the range: forcing a part of it costs the same.
        cx.commit_before_reply(&at, Touched { handle: at.handle, data: true });
        cx.leave_verifier(&at);
        Ok(Encoded)
    }
}

impl Op for SetAttr4Args<'_> {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::SetAttr, Flags::MUTATION.with(Flags::BITMAP_ON_ERROR)).reply(BITMAP_BYTES);
    type Ok = SetAttr4Res;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<SetAttr4Res> {
        let at = cx.at(NfsStat4::Rofs)?;
        let limits = at.backend().limits(&at.handle)?;
        let ids = cx.config().ids.as_ref();
        let wanted = decode::wanted(&self.obj_attributes, cx.minor(), &limits, ids, Occasion::Setattr)?;
        // RFC 8881 section 18.30.3: the state id counts for a size alone.
        let file = if wanted.set.size.is_some() {
            let stateid = cx.stateid(self.stateid)?;
            io::file(cx, &at, stateid, Access::WRITE)?
        } else {
            IoFile::STATELESS
        };
        if !wanted.mask.is_empty() {
            cx.mutate(&at).setattr(file.of(&at.handle), &wanted.set, None)?;
            cx.touched(&at, at.handle);
        }
        Ok(SetAttr4Res { attrsset: wanted.mask })
    }
}
