//! Byte-range locks as open-file-description locks, so that they hold against processes on this machine.

use std::sync::Arc;

use holdfast_base::ByteRange;
use holdfast_vfs::{FileObject, FsError, FsResult, LockKind, LockedBy};
use libc::c_int;
use rustix::io::Errno;

use crate::errors::fs_error;
use crate::files::local_file;
use crate::sys;

/// A range as `fcntl` has it: first byte and length, 0 for "to the end". `None` beyond what any local process can
/// lock.
fn local_range(range: ByteRange) -> Option<(i64, i64)> {
    let first = i64::try_from(range.first()).ok()?;
    let len = match i64::try_from(range.last()) {
        // The last byte of all is not to be named by a length.
        Ok(last) if last < i64::MAX => last - first + 1,
        _ => 0,
    };
    Some((first, len))
}

const fn local_kind(kind: LockKind) -> c_int {
    match kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
    }
}

pub(crate) fn lock(file: &Arc<dyn FileObject>, range: ByteRange, kind: LockKind) -> FsResult<()> {
    let file = local_file(file)?;
    let Some((first, len)) = local_range(range) else { return Ok(()) };
    sys::ofd_lock(&*file.fd, local_kind(kind), first, len).map_err(|e| match e {
        Errno::AGAIN | Errno::ACCESS => FsError::Locked,
        e => fs_error(e),
    })
}

pub(crate) fn unlock(file: &Arc<dyn FileObject>, range: ByteRange) -> FsResult<()> {
    let file = local_file(file)?;
    let Some((first, len)) = local_range(range) else { return Ok(()) };
    sys::ofd_lock(&*file.fd, libc::F_UNLCK, first, len).map_err(fs_error)
}

pub(crate) fn test(
    file: &Arc<dyn FileObject>,
    range: ByteRange,
    kind: LockKind,
) -> FsResult<Option<LockedBy>> {
    let file = local_file(file)?;
    let Some((first, len)) = local_range(range) else { return Ok(None) };
    let found = sys::ofd_test(&*file.fd, local_kind(kind), first, len).map_err(fs_error)?;
    Ok(found.and_then(|(kind, first, len)| {
        let first = u64::try_from(first).unwrap_or(0);
        let last = match u64::try_from(len) {
            Ok(len) if len > 0 => first + (len - 1),
            _ => u64::MAX,
        };
        let kind = if kind == libc::F_RDLCK { LockKind::Read } else { LockKind::Write };
        Some(LockedBy { range: ByteRange::from_bounds(first, last)?, kind })
    }))
}
