//! Operations of 4.2 on a file's space: ALLOCATE (RFC 7862 section 15.1), DEALLOCATE (15.4), SEEK (15.11),
//! IO_ADVISE (15.5).

use holdfast_base::limits::ADVICE_PER_COMPOUND_MAX;
use holdfast_base::{ByteRange, Length, Offset};
use holdfast_ledger::failpoint::{self, Point};
use holdfast_state::Access;
use holdfast_vfs::{Advice, Advised, AttrMask, FsError, Region, Seek, Touched};
use holdfast_wire::nfs4::{
    Allocate4Args, Bitmap4, DataContent4, Deallocate4Args, IO_ADVISE4_DONTNEED, IO_ADVISE4_WILLNEED,
    IoAdvise4Args, IoAdvise4Ok, NfsStat4, OpNum4, Seek4Args, Seek4Ok, Stateid4,
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

    /// Hints that concern the range alone are followed, and the answer names them. How it will be read (SEQUENTIAL, RANDOM, NOREUSE)
    /// is a property of a descriptor, and those are shared: one client would decide it for others; besides, the kernel's own
    /// read-ahead sees what is read. Who may read the file may give them, or who may write it.
    fn run(self, cx: &mut Cx<'_>) -> OpResult<IoAdvise4Ok> {
        let at = cx.at(NfsStat4::IsDir)?;
        let stateid = cx.stateid(self.stateid)?;
        let file = io::file(cx, &at, stateid, Access::READ);
        let file = file.or_else(|_| io::file(cx, &at, stateid, Access::WRITE))?;
        let (what, hint) = match [IO_ADVISE4_WILLNEED, IO_ADVISE4_DONTNEED].map(|n| self.hints.contains(n)) {
            [true, false] => (Advice::WillNeed, IO_ADVISE4_WILLNEED),
            [false, true] => (Advice::DontNeed, IO_ADVISE4_DONTNEED),
            // Neither, or both, which contradict each other.
            _ => return Ok(IoAdvise4Ok { hints: Bitmap4::EMPTY }),
        };
        if cx.compound.advised >= ADVICE_PER_COMPOUND_MAX {
            return Ok(IoAdvise4Ok { hints: Bitmap4::EMPTY });
        }
        cx.compound.advised += 1;
        let range = range_of(self.offset, self.count);
        let advised = at.backend().advise(&at.cx(), file.of(&at.handle), range, what)?;
        if advised == Advised::OnceCommitted {
            cx.commit_before_reply(&at, Touched { handle: at.handle, data: true });
            cx.compound.dropped.push((at, file, range));
        }
        let hints = if advised == Advised::NotFollowed { Bitmap4::EMPTY } else { Bitmap4::EMPTY.with(hint) };
        Ok(IoAdvise4Ok { hints })
    }
}

/// A count of 0 reaches to the end of the file (RFC 7862 section 15.5.3), as does what no file can have.
fn range_of(offset: Offset, count: Length) -> ByteRange {
    let last = count.0.checked_sub(1).and_then(|more| offset.0.checked_add(more));
    ByteRange::from_bounds(offset.0, last.unwrap_or(u64::MAX)).unwrap_or(ByteRange::ALL)
}
