//! The system calls that no safe wrapper offers, each as one safe function. Nothing else here decides anything.
#![allow(unsafe_code)]

mod handles;
mod locks;
mod rights;

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_long, c_uint};
use rustix::io::Errno;

pub(crate) use handles::*;
pub(crate) use locks::*;
pub(crate) use rights::*;

type Result<T> = std::result::Result<T, Errno>;

fn check(ret: c_long) -> Result<c_long> {
    if ret < 0 { Err(last_errno()) } else { Ok(ret) }
}

fn last_errno() -> Errno {
    // SAFETY: __errno_location gives a valid pointer to this thread's errno.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// Sets the mode of an object by any descriptor. `ENOSYS` before Linux 6.6.
pub(crate) fn chmod_object(object: impl AsFd, mode: u32) -> Result<()> {
    // SAFETY: the empty path is NUL-terminated.
    check(unsafe {
        libc::syscall(
            libc::SYS_fchmodat2,
            object.as_fd().as_raw_fd(),
            c"".as_ptr(),
            mode,
            libc::AT_EMPTY_PATH,
        )
    })
    .map(drop)
}

/// The names of an object's extended attributes, each with a NUL behind it, by its name in a directory: symbolic links are followed.
/// `ENOSYS` before Linux 6.13.
pub(crate) fn list_xattrs(dir: impl AsFd, name: &CStr, into: &mut [u8]) -> Result<usize> {
    /// `libc` does not name it yet. Where it has another number (Alpha, MIPS, x32) there is no such call by this one.
    const LISTXATTRAT: c_long = 465;
    const FLAGS: c_uint = 0;
    // SAFETY: the name is NUL-terminated, and `into` has as many bytes as is said.
    let told = check(unsafe {
        libc::syscall(
            LISTXATTRAT,
            dir.as_fd().as_raw_fd(),
            name.as_ptr(),
            FLAGS,
            into.as_mut_ptr(),
            into.len(),
        )
    })?;
    Ok(told as usize)
}

/// How far a call of [`sync_data`] goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncData {
    /// Starts write-back.
    Start,
    /// Starts what has not been started, waits for all, and reports errors of write-back.
    Wait,
}

/// Writes a whole file's dirty pages back; neither its inode nor the device's cache.
pub(crate) fn sync_data(file: impl AsFd, how: SyncData) -> Result<()> {
    let flags = match how {
        SyncData::Start => libc::SYNC_FILE_RANGE_WRITE,
        SyncData::Wait => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    // SAFETY: takes numbers only.
    check(c_long::from(unsafe { libc::sync_file_range(file.as_fd().as_raw_fd(), 0, 0, flags) })).map(drop)
}

/// `struct file_clone_range`.
#[repr(C)]
struct CloneRange {
    from: i64,
    from_offset: u64,
    bytes: u64,
    to_offset: u64,
}

const FICLONERANGE: libc::Ioctl = 0x4020_940d_u32 as libc::Ioctl;

/// Shares blocks of one file with another.
pub(crate) fn clone_range(from: impl AsFd, to: impl AsFd, span: (u64, u64, u64)) -> Result<()> {
    let (from_offset, to_offset, bytes) = span;
    let arg = CloneRange { from: i64::from(from.as_fd().as_raw_fd()), from_offset, bytes, to_offset };
    // SAFETY: FICLONERANGE reads a file_clone_range, which `arg` is.
    check(c_long::from(unsafe { libc::ioctl(to.as_fd().as_raw_fd(), FICLONERANGE, &raw const arg) }))
        .map(drop)
}

/// The kernel's time at the granularity that files get. From libc: rustix ends the program on a kernel whose vDSO has no
/// `getcpu`, such as User Mode Linux 7.3.
pub(crate) fn coarse_time() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a timespec, which this is. It cannot fail: every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    now
}

/// Pages of a stretch of a file in memory.
#[derive(Clone, Copy)]
pub(crate) struct CachedPages {
    /// All, and those on their way there.
    pub(crate) all: u64,
    /// Changed, or on their way to the disk.
    unwritten: u64,
}

impl CachedPages {
    pub(crate) const fn is_unwritten(self) -> bool {
        self.unwritten > 0
    }
}

/// What of a stretch of a file is in memory; 0 bytes reach to its end. `None` before Linux 6.5, and where the caller may not know.
pub(crate) fn cached(file: impl AsFd, offset: u64, bytes: u64) -> Option<CachedPages> {
    #[repr(C)]
    struct Range {
        offset: u64,
        bytes: u64,
    }
    #[repr(C)]
    #[derive(Default)]
    struct Stat {
        cached: u64,
        dirty: u64,
        written_back: u64,
        evicted: u64,
        recently_evicted: u64,
    }
    // The same number on all architectures that this runs on; libc has no name for it on each.
    const SYS_CACHESTAT: c_long = 451;
    let (range, mut stat) = (Range { offset, bytes }, Stat::default());
    // SAFETY: cachestat reads a cachestat_range and writes a cachestat, which these are; both outlive the call.
    check(unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_fd().as_raw_fd(), &raw const range, &raw mut stat, 0 as c_uint)
    })
    .ok()?;
    Some(CachedPages { all: stat.cached, unwritten: stat.dirty + stat.written_back })
}

/// How many pages of a stretch of a file are in memory: see [`cached`].
pub(crate) fn cached_pages(file: impl AsFd, offset: u64, bytes: u64) -> Option<u64> {
    cached(file, offset, bytes).map(|there| there.all)
}

const FS_IOC_GETFSUUID: libc::Ioctl = 0x8011_1500_u32 as libc::Ioctl;

/// The UUID that the file system says it has. `ENOTTY` before Linux 6.9 and where it has none.
pub(crate) fn fs_uuid(object: impl AsFd) -> Result<[u8; 16]> {
    #[repr(C)]
    struct FsUuid {
        len: u8,
        uuid: [u8; 16],
    }
    let mut arg = FsUuid { len: 0, uuid: [0; 16] };
    // SAFETY: FS_IOC_GETFSUUID writes a struct fsuuid2, which `arg` is.
    check(c_long::from(unsafe { libc::ioctl(object.as_fd().as_raw_fd(), FS_IOC_GETFSUUID, &raw mut arg) }))?;
    if arg.len == 16 && arg.uuid != [0; 16] { Ok(arg.uuid) } else { Err(Errno::NOTTY) }
}

const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;

/// The project that an open file counts for; 0 for none. `ENOTTY` where the file system knows of none.
pub(crate) fn project_of(file: impl AsFd) -> Result<u32> {
    #[repr(C)]
    #[derive(Default)]
    struct FsXattr {
        flags: u32,
        extent_bytes: u32,
        extents: u32,
        project: u32,
        shared_extent_bytes: u32,
        unused: [u8; 8],
    }
    let mut arg = FsXattr::default();
    // SAFETY: FS_IOC_FSGETXATTR writes a struct fsxattr, which `arg` is.
    check(c_long::from(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), FS_IOC_FSGETXATTR, &raw mut arg) }))?;
    Ok(arg.project)
}

const BTRFS_IOC_START_SYNC: libc::Ioctl = 0x8008_9418_u32 as libc::Ioctl;
const BTRFS_IOC_WAIT_SYNC: libc::Ioctl = 0x4008_9416_u32 as libc::Ioctl;

/// Starts a commit of a btrfs file system and waits until it is on the disk.
pub(crate) fn btrfs_commit(object: impl AsFd) -> Result<()> {
    let fd = object.as_fd().as_raw_fd();
    let mut transaction: u64 = 0;
    // SAFETY: START_SYNC writes one u64, WAIT_SYNC reads one.
    unsafe {
        check(c_long::from(libc::ioctl(fd, BTRFS_IOC_START_SYNC, &raw mut transaction)))?;
        check(c_long::from(libc::ioctl(fd, BTRFS_IOC_WAIT_SYNC, &raw const transaction))).map(drop)
    }
}

/// A mount of our own that lies nowhere: nobody finds it, and what is opened through it cannot be written.
pub(crate) struct ReadOnlyMount {
    /// Its directory, really open, as `open_by_handle_at` wants it.
    top: OwnedFd,
    /// Keeps the mount from being taken apart.
    _tree: OwnedFd,
}

impl ReadOnlyMount {
    /// To open by handle below.
    pub(crate) fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }
}

/// Mounts what lies below a directory once more, read-only and nowhere. Needs `CAP_SYS_ADMIN`, and Linux 5.12.
pub(crate) fn mount_read_only(dir: impl AsFd) -> Result<ReadOnlyMount> {
    use rustix::fs::{Mode, OFlags, openat};
    use rustix::mount::{OpenTreeFlags, open_tree};
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = open_tree(dir, "", flags)?;
    let set =
        libc::mount_attr { attr_set: libc::MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path is NUL-terminated; the kernel reads one mount_attr of the size that it is told.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const set,
            size_of::<libc::mount_attr>(),
        )
    })?;
    let top = openat(&tree, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(ReadOnlyMount { top, _tree: tree })
}
