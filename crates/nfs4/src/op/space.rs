//! Operations of 4.2 on a file's space: ALLOCATE (RFC 7862 section 15.1), DEALLOCATE (15.4), SEEK (15.11),
//! IO_ADVISE (15.5).

use holdfast_base::Offset;
use holdfast_ledger::failpoint::{self, Point};
use holdfast_state::Access;
use holdfast_vfs::{AttrMask, FsError, Region, Seek};
use holdfast_wire::nfs4::{
    Allocate4Args, Bitmap4, DataContent4, Deallocate4Args, IoAdvise4Args, IoAdvise4Ok, NfsStat4, OpNum4,
    Seek4Args, Seek4Ok, Stateid4,
};

use super::Op;
use crate::cx::Cx;
use crate::desc::{BITMAP_BYTES, Flags, OpDesc};
use crate::error::OpResult;
use crate::io;

impl Op for Allocate4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::Allocate, Flags::MUTATION);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        region(cx, self.stateid, (self.offset.0, self.length.0), Region::Allocate)
    }
}

impl Op for Deallocate4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::Deallocate, Flags::MUTATION);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        region(cx, self.stateid, (self.offset.0, self.length.0), Region::Punch)
    }
}

fn region(cx: &mut Cx<'_>, stateid: Stateid4, (offset, bytes): (u64, u64), what: Region) -> OpResult<()> {
    let at = cx.at(NfsStat4::IsDir)?;
    let stateid = cx.stateid(stateid)?;
    let file = io::file(cx, &at, stateid, Access::WRITE)?;
    if bytes == 0 || offset.checked_add(bytes).is_none() {
        return Err(NfsStat4::Inval.into());
    }
    failpoint::pass(Point::BeforeMutation);
    at.backend().region(&at.cx(), file.of(&at.handle), offset, bytes, what)?;
    failpoint::pass(Point::AfterMutation);
    cx.touched(&at, at.handle);
    Ok(())
}

impl Op for Seek4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::Seek, Flags::NEEDS_FH).reply(12);
    type Ok = Seek4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Seek4Ok> {
        let what = match self.what {
            n if n == DataContent4::Data as u32 => Seek::Data,
            n if n == DataContent4::Hole as u32 => Seek::Hole,
            _ => return Err(NfsStat4::UnionNotSupp.into()),
        };
        let at = cx.at(NfsStat4::IsDir)?;
        let stateid = cx.stateid(self.stateid)?;
        let file = io::file(cx, &at, stateid, Access::READ)?;
        let attrs = at.backend().getattr(&at.cx(), &at.handle, AttrMask::STAT)?;
        io::must_be_regular(attrs.kind)?;
        let size = attrs.size;
        if self.offset.0 >= size {
            return Err(NfsStat4::Nxio.into());
        }
        match at.backend().seek(&at.cx(), file.of(&at.handle), self.offset.0, what) {
            // The virtual hole at the end is found by saying that there is no other.
            Ok(found) => Ok(Seek4Ok { eof: found >= size, offset: Offset(found) }),
            Err(FsError::NoDevice) => Ok(Seek4Ok { eof: true, offset: Offset(size) }),
            Err(e) => Err(e.into()),
        }
    }
}

impl Op for IoAdvise4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::IoAdvise, Flags::NEEDS_FH).reply(BITMAP_BYTES);
    type Ok = IoAdvise4Ok;

    /// None of the hints is followed: the kernel's own read-ahead sees what is read, and the answer says so.
    fn run(self, cx: &mut Cx<'_>) -> OpResult<IoAdvise4Ok> {
        let at = cx.at(NfsStat4::IsDir)?;
        let stateid = cx.stateid(self.stateid)?;
        io::file(cx, &at, stateid, Access::NONE)?;
        Ok(IoAdvise4Ok { hints: Bitmap4::EMPTY })
    }
}
