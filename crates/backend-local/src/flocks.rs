//! `flock`s beside locks of whole files. To a local file system they are a kind of their own, which no lock of a range
//! meets; but a Linux client sends its `flock` as a lock of the whole file. So what locks a whole file for a client
//! holds a `flock` as well, and local processes that lock that way are met. Who may have what is not decided here.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;

use holdfast_vfs::LockKind;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, Result};

/// What open files of ours hold, by the numbers of their descriptors; no more of them than descriptors. One for the whole
/// process, and kept while one is tried: an own test takes the `flock` for a moment, and must not be in the way of an
/// owner to whom the state engine has granted it.
static HELD: Mutex<Held> = Mutex::new(None);

/// Made when the first one is held.
type Held = Option<FxHashMap<RawFd, LockKind>>;

const fn operation(kind: Option<LockKind>) -> FlockOperation {
    match kind {
        None => FlockOperation::Unlock,
        Some(LockKind::Read) => FlockOperation::NonBlockingLockShared,
        Some(LockKind::Write) => FlockOperation::NonBlockingLockExclusive,
    }
}

fn of(held: &Held, fd: &OwnedFd) -> Option<LockKind> {
    held.as_ref()?.get(&fd.as_raw_fd()).copied()
}

fn note(held: &mut Held, fd: &OwnedFd, kind: Option<LockKind>) {
    if let Some(kind) = kind {
        held.get_or_insert_default().insert(fd.as_raw_fd(), kind);
    } else if let Some(held) = held {
        held.remove(&fd.as_raw_fd());
    }
}

/// What an open file of ours holds.
pub(crate) fn held(fd: &OwnedFd) -> Option<LockKind> {
    of(&HELD.lock(), fd)
}

/// Has an open file hold this from now on.
///
/// # Errors
/// `AGAIN` when somebody is in the way. Then it holds what it held.
pub(crate) fn hold(fd: &OwnedFd, kind: Option<LockKind>) -> Result<()> {
    let mut held = HELD.lock();
    let had = of(&held, fd);
    let done = flock(fd, operation(kind));
    let now = if done.is_ok() { kind } else { taken_again(fd, had) };
    note(&mut held, fd, now);
    done
}

/// What one that was refused a stronger one has: the kernel takes away first what it had. Who is in the way was beside it,
/// so nobody has it alone, unless he goes and another one comes between the two calls; then it is gone (`flock(2)`).
fn taken_again(fd: &OwnedFd, had: Option<LockKind>) -> Option<LockKind> {
    had.filter(|_| flock(fd, operation(had)).is_ok())
}

/// The kind of `flock` of somebody who is not us in the way of an open file's; `ours` are all of that file that may hold
/// one. The kernel tells only who tries: what is free is held for some microseconds. Where two of ours hold it beside each
/// other that tells nothing, and `unsure` is the answer.
pub(crate) fn in_the_way(
    fd: &OwnedFd,
    ours: &[Arc<OwnedFd>],
    (kind, unsure): (LockKind, Option<LockKind>),
) -> Result<Option<LockKind>> {
    let mut held = HELD.lock();
    let holders = ours.iter().filter_map(|fd| of(&held, fd).map(|had| (&**fd, had)));
    let (fd, had) = match holders.take(2).collect::<Vec<_>>()[..] {
        [] => (fd, None),
        // Beside ours nobody has more than is shared.
        [(_, had), ..] if had >= kind => return Ok(None),
        [(holder, had)] => (holder, Some(had)),
        _ => return Ok(unsure),
    };
    let tried = flock(fd, operation(Some(kind)));
    let is_shared = match (tried, kind) {
        // Made weaker again, which nobody can be in the way of.
        (Ok(()), _) => return flock(fd, operation(had)).map(|()| None),
        (Err(Errno::AGAIN), LockKind::Read) => false,
        (Err(Errno::AGAIN), LockKind::Write) => flock(fd, operation(Some(LockKind::Read))).is_ok(),
        (Err(e), _) => return Err(e),
    };
    if is_shared && had.is_none() {
        flock(fd, operation(None))?;
    }
    note(&mut held, fd, had.filter(|_| is_shared));
    Ok(Some(if is_shared { LockKind::Read } else { LockKind::Write }))
}

/// An open file has come from another process with what it held there.
pub(crate) fn arrived(fd: &OwnedFd, kind: Option<LockKind>) {
    note(&mut HELD.lock(), fd, kind);
}

/// Forgets an open file before it is closed. What it holds goes with its last descriptor.
pub(crate) fn forget(fd: &OwnedFd) {
    note(&mut HELD.lock(), fd, None);
}
