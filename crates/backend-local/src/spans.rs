//! Holes, reserved regions, copies and clones.

use holdfast_vfs::{CopySpan, Cx, File, FsError, FsResult, Region, Seek};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::errors::fs_error;
use crate::local::LocalBackend;
use crate::marks::Changing;
use crate::sys;

/// Bytes copied by one system call: a call cannot be interrupted, and copies of whole files take minutes.
const COPY_BYTES_AT_ONCE: u64 = 64 << 20;

impl LocalBackend {
    pub(crate) fn do_seek(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, what: Seek) -> FsResult<u64> {
        let (_, fd, _) = self.readable(cx, file)?;
        if i64::try_from(offset).is_err() {
            return Err(FsError::NoDevice);
        }
        let whence = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        rustix::fs::seek(&*fd, whence).map_err(fs_error)
    }

    pub(crate) fn do_region(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        (offset, bytes): (u64, u64),
        what: Region,
    ) -> FsResult<()> {
        let object = self.object_of(cx, file)?;
        self.may_wait(cx, &object)?;
        let _changing = Changing::of(&object);
        let fd = self.writable(cx, &object, file)?;
        if bytes == 0 {
            return Err(FsError::Invalid);
        }
        if offset.checked_add(bytes).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(FsError::TooBig);
        }
        let keep = FallocateFlags::KEEP_SIZE;
        let flags = match what {
            Region::Allocate => FallocateFlags::empty(),
            Region::AllocateKeepSize => keep,
            Region::Punch => FallocateFlags::PUNCH_HOLE | keep,
            Region::Zero => FallocateFlags::ZERO_RANGE | keep,
        };
        let done = {
            let _acting = self.identity.act_as(cx.caller)?;
            rustix::fs::fallocate(&*fd, flags, offset, bytes)
        };
        self.mark_dirty(&object, &fd)?;
        self.note_change(&object);
        done.map_err(fs_error)
    }

    pub(crate) fn do_copy(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<u64> {
        let (source_object, source, _) = self.readable(cx, from)?;
        let target_object = self.object_of(cx, to)?;
        self.may_wait(cx, &target_object)?;
        let (_reading, _changing) = (Changing::of(&source_object), Changing::of(&target_object));
        let target = self.writable(cx, &target_object, to)?;
        let size = source_object.look()?.stx_size;
        let left = size.saturating_sub(span.from);
        let bytes = if span.bytes == 0 { left } else { span.bytes.min(left) };
        if span.to.checked_add(bytes).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(FsError::TooBig);
        }
        let _acting = self.identity.act_as(cx.caller)?;
        let (mut at, mut to_at) = (span.from, span.to);
        let end = span.from + bytes;
        let mut result = Ok(());
        while at < end {
            let n = usize::try_from((end - at).min(COPY_BYTES_AT_ONCE)).unwrap_or(usize::MAX);
            match rustix::fs::copy_file_range(&*source, Some(&mut at), &*target, Some(&mut to_at), n) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => {
                    result = Err(fs_error(e));
                    break;
                }
            }
        }
        self.mark_dirty(&target_object, &target)?;
        self.note_change(&target_object);
        match result {
            Err(e) if at == span.from => Err(e),
            _ => Ok(at - span.from),
        }
    }

    pub(crate) fn do_clone(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<()> {
        let (source_object, source, _) = self.readable(cx, from)?;
        let object = self.object_of(cx, to)?;
        self.may_wait(cx, &object)?;
        let (_reading, _changing) = (Changing::of(&source_object), Changing::of(&object));
        let target = self.writable(cx, &object, to)?;
        let done = {
            let _acting = self.identity.act_as(cx.caller)?;
            sys::clone_range(&*source, &*target, (span.from, span.to, span.bytes))
        };
        self.mark_dirty(&object, &target)?;
        self.note_change(&object);
        done.map_err(fs_error)
    }
}
