//! Locks of open file descriptions.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

use libc::{c_int, c_long};

use super::{Result, check};

fn flock(kind: c_int, first: i64, len: i64) -> libc::flock64 {
    // SAFETY: flock64 is plain numbers; zero is a value of each.
    let mut lock: libc::flock64 = unsafe { MaybeUninit::zeroed().assume_init() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = first;
    lock.l_len = len;
    lock
}

/// Takes (`F_RDLCK`, `F_WRLCK`) or drops (`F_UNLCK`) an open-file-description lock without waiting. A length of 0
/// reaches to the end.
pub(crate) fn ofd_lock(file: impl AsFd, kind: c_int, first: i64, len: i64) -> Result<()> {
    let lock = flock(kind, first, len);
    // SAFETY: F_OFD_SETLK reads a flock64.
    check(c_long::from(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }))
        .map(drop)
}

/// A lock that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundLock {
    pub(crate) kind: c_int,
    pub(crate) first: i64,
    /// 0: to the end.
    pub(crate) len: i64,
    /// Whether an open file holds it, ours or somebody's; else a process does.
    pub(crate) is_open_files: bool,
}

/// The first lock in the way of one, in the kernel's order; never one of this open file's own.
pub(crate) fn ofd_test(file: impl AsFd, kind: c_int, first: i64, len: i64) -> Result<Option<FoundLock>> {
    let mut lock = flock(kind, first, len);
    // SAFETY: F_OFD_GETLK reads and writes a flock64.
    check(c_long::from(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) }))?;
    let found = FoundLock {
        kind: c_int::from(lock.l_type),
        first: lock.l_start,
        len: lock.l_len,
        is_open_files: lock.l_pid == -1,
    };
    Ok((found.kind != libc::F_UNLCK).then_some(found))
}
