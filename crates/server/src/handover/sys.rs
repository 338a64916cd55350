//! What the system has to be asked for without a safe way.
#![allow(unsafe_code)]

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// The signals that the server answers. They wait while one program takes the other's place: until the new one has
/// said what it does with them, they would end it.
const SIGNALS: [libc::c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR2];

/// Takes a descriptor that this process was started with; `None` when there is none of that number. Other programs
/// that this one starts do not get it.
pub(crate) fn take(number: RawFd) -> Option<OwnedFd> {
    if number <= libc::STDERR_FILENO {
        return None;
    }
    // SAFETY: asks and sets flags of a number, whatever it stands for.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: it is open, and ours: whoever started this process left it for this purpose under this number, each is
    // taken once, and nothing in this process has opened anything before.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

fn mask(how: libc::c_int) {
    // SAFETY: the set is a plain value that sigemptyset makes valid; the calls touch nothing else.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in SIGNALS {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

/// Lets signals wait, for this thread and what takes its place.
pub(super) fn block_signals() {
    mask(libc::SIG_BLOCK);
}

/// Lets them come, to this thread: one suffices for a process.
pub(crate) fn unblock_signals() {
    mask(libc::SIG_UNBLOCK);
}

/// Has writing to what nobody reads any more be an error again, not the end of the process. Rust's runtime sees to it
/// at the start, and its `exec` takes it back for the new program's sake, also when there is no new program then.
pub(super) fn ignore_broken_pipes() {
    // SAFETY: sets what a signal does; it runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Nanoseconds since the machine started: the same in all processes.
pub(crate) fn boot_time() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes a timespec, which this is. It cannot fail: every Linux has this clock. Not by rustix, which ends the
    // program on a kernel whose vDSO has no `getcpu` (User Mode Linux 7.3).
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
