//! READ (RFC 8881 section 18.22) and READ_PLUS (RFC 7862 section 15.10).

use holdfast_base::limits::{IO_BYTES_MAX, READ_PLUS_SEGMENTS_MAX};
use holdfast_base::{Length, Offset};
use holdfast_state::Access;
use holdfast_vfs::{AttrMask, FsError, Read, Seek};
use holdfast_wire::nfs4::{
    DataContent4, DataInfo4, NfsStat4, OpNum4, Read4Args, ReadPlus4Args, ReadPlusContent,
};
use holdfast_xdr::Encode;

use super::{Encoded, Op};
use crate::cx::{At, Cx};
use crate::desc::{Flags, OpDesc};
use crate::error::OpResult;
use crate::io::{self, IoFile};

/// From here on data is sent from the page cache without a copy: below, the second system call costs more than the
/// copy saves (docs/design/hot-path.md).
const SEND_FILE_BYTES_MIN: usize = 32 << 10;

/// Bytes around the data of READ: `eof`, the length, padding.
const READ_OVERHEAD_BYTES: usize = 12;

/// Bytes around one data segment of READ_PLUS, alone in its result: `eof`, count, kind, offset, length, padding.
const SEGMENT_OVERHEAD_BYTES: usize = 28;

/// Bytes of a hole, and of a data segment without its data.
const SEGMENT_BYTES: usize = 20;

impl Op for Read4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::Read, Flags::NEEDS_FH);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let at = cx.at(NfsStat4::IsDir)?;
        let stateid = cx.stateid(self.stateid)?;
        let at = at.by_stateid(cx, stateid);
        let file = io::file(cx, &at, stateid, Access::READ)?;
        let room = cx.reply_room().saturating_sub(READ_OVERHEAD_BYTES);
        let bytes = (self.count as usize).min(IO_BYTES_MAX).min(room);
        if bytes >= SEND_FILE_BYTES_MIN && cx.may_send_file() {
            let span = at.backend().read_span(&at.cx(), file.of(&at.handle), self.offset.0, bytes)?;
            if let Some(span) = span {
                span.is_eof.encode(cx.reply);
                cx.reply.length(span.bytes);
                cx.send_file(span);
                return Ok(Encoded);
            }
        }
        let eof = cx.reply.mark();
        let read = read_here(cx, &at, &file, self.offset.0, bytes)?;
        cx.reply.fill(eof, u32::from(read.is_eof));
        Ok(Encoded)
    }
}

/// Reads into the reply, as opaque data.
fn read_here(cx: &mut Cx<'_>, at: &At, file: &IoFile, offset: u64, bytes: usize) -> OpResult<Read> {
    let mut outcome = Read { bytes: 0, is_eof: false };
    cx.reply.opaque_with(bytes, |into| {
        outcome = at.backend().read(&at.cx(), file.of(&at.handle), offset, into)?;
        Ok::<_, FsError>(outcome.bytes)
    })?;
    Ok(outcome)
}

/// A stretch of a file that is all data or all hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    offset: u64,
    bytes: u64,
    is_data: bool,
}

impl Op for ReadPlus4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::ReadPlus, Flags::NEEDS_FH);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let at = cx.at(NfsStat4::IsDir)?;
        let stateid = cx.stateid(self.stateid)?;
        let file = io::file(cx, &at, stateid, Access::READ)?;
        let room = cx.reply_room().saturating_sub(SEGMENT_OVERHEAD_BYTES);
        let bytes = (self.count as usize).min(IO_BYTES_MAX).min(room) as u64;
        let attrs = at.backend().getattr(&at.cx(), &at.handle, AttrMask::STAT)?;
        io::must_be_regular(attrs.kind)?;
        let size = attrs.size;
        let end = self.offset.0.saturating_add(bytes).min(size);
        let first = stretch(&at, &file, self.offset.0, end)?;
        match first {
            Some(s) if s.is_data && s.offset + s.bytes == end && cx.may_send_file() => {
                send_data(cx, &at, &file, s, size)
            }
            first => write_stretches(cx, &at, &file, first, end, size),
        }
    }
}

/// The usual case: all of it is data, and can go from the page cache.
fn send_data(cx: &mut Cx<'_>, at: &At, file: &IoFile, data: Stretch, size: u64) -> OpResult<Encoded> {
    let bytes = data.bytes as usize;
    if bytes >= SEND_FILE_BYTES_MIN
        && let Some(span) = at.backend().read_span(&at.cx(), file.of(&at.handle), data.offset, bytes)?
        && span.bytes > 0
    {
        span.is_eof.encode(cx.reply);
        cx.reply.u32(1);
        cx.reply.u32(DataContent4::Data as u32);
        cx.reply.u64(data.offset);
        cx.reply.length(span.bytes);
        cx.send_file(span);
        return Ok(Encoded);
    }
    write_stretches(cx, at, file, Some(data), data.offset + data.bytes, size)
}

fn write_stretches(
    cx: &mut Cx<'_>,
    at: &At,
    file: &IoFile,
    first: Option<Stretch>,
    end: u64,
    size: u64,
) -> OpResult<Encoded> {
    let (eof, count) = (cx.reply.mark(), cx.reply.mark());
    let (mut next, mut segments) = (first, 0);
    let mut is_eof = end >= size;
    while let Some(mut s) = next {
        if segments as usize == READ_PLUS_SEGMENTS_MAX || cx.reply_room() <= SEGMENT_BYTES {
            is_eof = false;
            break;
        }
        if s.is_data {
            // What the segments before took is no longer there for data.
            s.bytes = s.bytes.min((cx.reply_room() - SEGMENT_BYTES) as u64 & !3);
            cx.reply.u32(DataContent4::Data as u32);
            cx.reply.u64(s.offset);
            let read = read_here(cx, at, file, s.offset, s.bytes as usize)?;
            segments += 1;
            if read.is_eof || (read.bytes as u64) < s.bytes {
                is_eof = read.is_eof;
                break;
            }
        } else {
            ReadPlusContent::Hole(DataInfo4 { offset: Offset(s.offset), length: Length(s.bytes) })
                .encode(cx.reply);
            segments += 1;
        }
        next = stretch(at, file, s.offset + s.bytes, end)?;
    }
    cx.reply.fill(eof, u32::from(is_eof));
    cx.reply.fill(count, segments);
    Ok(Encoded)
}

/// What lies at `offset`, up to `end`. A file that shrank meanwhile is a hole from its end on, and one on a file
/// system that cannot find holes is all data.
fn stretch(at: &At, file: &IoFile, offset: u64, end: u64) -> OpResult<Option<Stretch>> {
    if offset >= end {
        return Ok(None);
    }
    let seek = |what| at.backend().seek(&at.cx(), file.of(&at.handle), offset, what);
    let to = |next: u64, is_data| Some(Stretch { offset, bytes: next.min(end) - offset, is_data });
    match seek(Seek::Data) {
        Ok(data) if data > offset => Ok(to(data, false)),
        Ok(_) => match seek(Seek::Hole) {
            Ok(hole) if hole > offset => Ok(to(hole, true)),
            Ok(_) | Err(FsError::NoDevice) => Ok(to(end, true)),
            Err(e) => Err(e.into()),
        },
        Err(FsError::NoDevice) => Ok(to(end, false)),
        Err(FsError::NotSupported) => Ok(to(end, true)),
        Err(e) => Err(e.into()),
    }
}
