//! Whether what is about to be done with a file would wait for its disk. Whoever must not wait runs where waiting holds
//! up more than himself: a thread of the network's that hangs in a system call may be the one that would have heard of
//! everybody else's calls.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;

use holdfast_vfs::FsResult;
use rustix::fs::{Advice, fadvise, sendfile};

use crate::errors::fs_error;
use crate::sys;

/// What the kernel keeps of files, it keeps in pieces of so many bytes and more.
const PAGE: u64 = 4096;

/// Whether a page of a stretch, whose both ends are in memory, is not. A file that is read at random has its pages here and
/// there; `sendfile` waits for those between.
pub(crate) fn has_gap(fd: impl AsFd, offset: u64, bytes: u64) -> bool {
    let pages = (offset + bytes).div_ceil(PAGE) - offset / PAGE;
    // None, though the ends could be read: it is not kept in pages (a file in persistent memory, a hole in tmpfs).
    // And what does not tell is believed to be there, as read-ahead brings whole stretches.
    sys::cached_pages(fd, offset, bytes).is_some_and(|cached| cached != 0 && cached < pages)
}

/// Brings a stretch into memory, and waits for it.
pub(crate) fn bring_in(fd: impl AsFd, offset: u64, bytes: usize) -> FsResult<()> {
    static NOWHERE: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let nowhere =
        NOWHERE.get_or_init(|| File::options().write(true).open("/dev/null").ok().map(OwnedFd::from));
    // All of it at once, so that the disk sees one long request. No more than advice: it may fail.
    let _ = fadvise(&fd, offset, std::num::NonZero::new(bytes as u64), Advice::WillNeed);
    let Some(nowhere) = nowhere else { return Ok(()) };
    let (mut at, mut left) = (offset, bytes);
    while left > 0 {
        // Waits for each page, and copies none.
        match rustix::io::retry_on_intr(|| sendfile(nowhere, &fd, Some(&mut at), left)).map_err(fs_error)? {
            0 => break,
            sent => left -= sent,
        }
    }
    Ok(())
}

/// Whether a write has to read first, from the disk: the rest of a page that it changes in part.
pub(crate) fn reads_first(
    fd: impl AsFd,
    (offset, bytes): (u64, u64),
    size: impl FnOnce() -> FsResult<u64>,
) -> FsResult<bool> {
    let end = offset + bytes;
    if offset.is_multiple_of(PAGE) && end.is_multiple_of(PAGE) {
        return Ok(false);
    }
    let size = size()?;
    let is_cold = |at: u64| sys::cached_pages(&fd, at / PAGE * PAGE, PAGE) == Some(0);
    let has_head = !offset.is_multiple_of(PAGE) && offset / PAGE * PAGE < size;
    let has_tail = !end.is_multiple_of(PAGE) && end < size;
    Ok((has_head && is_cold(offset)) || (has_tail && is_cold(end)))
}
