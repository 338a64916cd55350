//! The system calls that tell of other processes: leases, signals that carry a descriptor, fanotify. Each as one safe
//! function; nothing here decides anything.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_long, c_uint};
use rustix::io::Errno;

type Result<T> = std::result::Result<T, Errno>;

fn check(ret: c_long) -> Result<c_long> {
    if ret < 0 {
        // SAFETY: __errno_location gives a valid pointer to this thread's errno.
        Err(Errno::from_raw_os_error(unsafe { *libc::__errno_location() }))
    } else {
        Ok(ret)
    }
}

/// Kinds of leases, as `fcntl` counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseKind {
    /// Broken by who opens for writing, or cuts.
    Read,
    /// Broken by whoever opens.
    Write,
    /// None, or one that has to be given up.
    None,
}

/// Takes or drops a lease on an open file. `EAGAIN` when others, or we, have it open in a way that forbids it;
/// `EACCES` for who is neither its owner nor has `CAP_LEASE`; `EINVAL` where there are no leases.
pub(crate) fn set_lease(file: impl AsFd, kind: LeaseKind) -> Result<()> {
    let kind = match kind {
        LeaseKind::Read => libc::F_RDLCK,
        LeaseKind::Write => libc::F_WRLCK,
        LeaseKind::None => libc::F_UNLCK,
    };
    // SAFETY: takes numbers only.
    check(c_long::from(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLEASE, kind) })).map(drop)
}

/// What a lease has to become: itself while nobody breaks it.
pub(crate) fn lease_target(file: impl AsFd) -> LeaseKind {
    // SAFETY: takes numbers only.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_GETLEASE) } {
        libc::F_RDLCK => LeaseKind::Read,
        libc::F_WRLCK => LeaseKind::Write,
        _ => LeaseKind::None,
    }
}

/// The signal that tells of a lease. A real-time one is queued, each with its descriptor.
pub(crate) fn lease_signal() -> c_int {
    libc::SIGRTMIN() + 5
}

/// This thread's number.
pub(crate) fn thread_id() -> c_int {
    // SAFETY: takes nothing, gives a number.
    (unsafe { libc::syscall(libc::SYS_gettid) }) as c_int
}

#[repr(C)]
struct OwnerEx {
    kind: c_int,
    id: c_int,
}

/// Sends the signals of an open file to one thread, as [`lease_signal`].
pub(crate) fn signal_thread(file: impl AsFd, thread: c_int) -> Result<()> {
    const F_SETSIG: c_int = 10;
    const F_SETOWN_EX: c_int = 15;
    const F_OWNER_TID: c_int = 0;
    let fd = file.as_fd().as_raw_fd();
    let owner = OwnerEx { kind: F_OWNER_TID, id: thread };
    // SAFETY: F_SETSIG takes a number, F_SETOWN_EX reads a struct f_owner_ex, which `owner` is.
    unsafe {
        check(c_long::from(libc::fcntl(fd, F_SETSIG, lease_signal())))?;
        check(c_long::from(libc::fcntl(fd, F_SETOWN_EX, &raw const owner))).map(drop)
    }
}

/// Keeps [`lease_signal`] and `SIGIO` from interrupting this thread, and gives a descriptor to read them from: on
/// this thread only, since they are sent to it alone.
pub(crate) fn signal_descriptor() -> Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset makes `set` a value, the others read or change it; the descriptor is new and ours.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), lease_signal());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGIO);
        match libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) {
            0 => {}
            e => return Err(Errno::from_raw_os_error(e)),
        }
        let fd =
            check(c_long::from(libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)))?;
        Ok(OwnedFd::from_raw_fd(fd as c_int))
    }
}

/// One signal that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Of the open file behind this descriptor.
    Of(RawFd),
    /// The kernel's queue was full: of any of them.
    OfAny,
}

/// The next of this thread's signals; `None` when there are no more.
pub(crate) fn next_signal(signals: impl AsFd) -> Option<Signal> {
    let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: a read of at most the structure's size into it; any bytes are a value of it.
    let (read, info) = unsafe {
        let read = libc::read(signals.as_fd().as_raw_fd(), info.as_mut_ptr().cast(), size);
        (read, info.assume_init())
    };
    if usize::try_from(read) != Ok(size) {
        return None;
    }
    Some(if info.ssi_signo == lease_signal() as u32 { Signal::Of(info.ssi_fd) } else { Signal::OfAny })
}

/// A new group of fanotify that tells of objects by their handles. Where we may (CAP_SYS_ADMIN) its marks do not count for
/// `/proc/sys/fs/fanotify/max_user_marks`: they have bounds of our own.
pub(crate) fn fanotify_group() -> Result<OwnedFd> {
    const FLAGS: c_uint = 0x1 | 0x2 | 0x200; // FAN_CLOEXEC, FAN_NONBLOCK, FAN_REPORT_FID; FAN_CLASS_NOTIF is 0
    const UNLIMITED_MARKS: c_uint = 0x20;
    // SAFETY: takes numbers only.
    let init = |flags: c_uint| check(unsafe { libc::syscall(libc::SYS_fanotify_init, flags, 0) });
    let fd = init(FLAGS | UNLIMITED_MARKS).or_else(|_| init(FLAGS))?;
    // SAFETY: the kernel has just given us this descriptor, nobody else owns it, and it fits an int.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as c_int) })
}

/// What becomes of a mark.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Add = 1,
    Remove = 2,
}

/// Marks one inode for these events, or takes the mark back. `name` is followed from `dir`, symbolic links too; without one it is
/// `dir` itself, which must be more than a path then (not `O_PATH`), and nothing is walked.
pub(crate) fn fanotify_mark(
    group: impl AsFd,
    what: Mark,
    mask: u64,
    (dir, name): (impl AsFd, Option<&CStr>),
) -> Result<()> {
    // SAFETY: the name is NUL-terminated or absent; the rest are numbers.
    check(unsafe {
        libc::syscall(
            libc::SYS_fanotify_mark,
            group.as_fd().as_raw_fd(),
            what as c_uint,
            mask,
            dir.as_fd().as_raw_fd(),
            name.map_or(std::ptr::null(), CStr::as_ptr),
        )
    })
    .map(drop)
}
