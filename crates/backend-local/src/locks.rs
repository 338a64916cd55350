//! Byte-range locks as open-file-description locks, so that they hold against processes on this machine; those of whole
//! files as `flock`s as well.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::ByteRange;
use holdfast_base::limits::LOCAL_LOCK_LOOKS_MAX;
use holdfast_vfs::{FileObject, FsError, FsResult, Handle, LockKind, LockedBy};
use libc::c_int;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::io::Errno;

use crate::errors::fs_error;
use crate::flocks;
use crate::local::LocalBackend;
use crate::opening::{LocalFile, local_file};
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

/// What `fcntl` has for every byte there is.
const WHOLE: (i64, i64) = (0, 0);

/// The open files of ours that hold locks. Their locks look like outsiders' to each other, so that who asks for those
/// of others has to know them.
pub(crate) struct Lockers {
    by_file: Mutex<FxHashMap<Handle, Vec<Arc<OwnedFd>>>>,
    /// Whether local processes may use the files.
    has_neighbours: bool,
}

impl Lockers {
    pub(crate) fn new(has_neighbours: bool) -> Self {
        Self { by_file: Mutex::default(), has_neighbours }
    }

    /// Notes that an open file may hold locks from now on. False where its descriptor carries another's: the kernel would not
    /// tell theirs apart.
    pub(crate) fn enter(&self, file: &LocalFile) -> bool {
        // Mostly it has some: then nobody else's locks are waited for.
        if file.has_locks.load(Ordering::SeqCst) {
            return true;
        }
        let mut by_file = self.by_file.lock();
        let all = by_file.entry(file.object.handle).or_default();
        let fd = lock_fd(file);
        if !file.has_locks.load(Ordering::SeqCst) {
            if all.iter().any(|other| Arc::ptr_eq(other, fd)) {
                return false;
            }
            all.push(Arc::clone(fd));
            file.has_locks.store(true, Ordering::SeqCst);
        }
        true
    }

    /// Whether locks on an open file's descriptor are another's: of one that shares it and has some, or else of the one that
    /// it was opened for.
    pub(crate) fn are_anothers(&self, file: &LocalFile) -> bool {
        if file.has_locks.load(Ordering::SeqCst) {
            return false;
        }
        let by_file = self.by_file.lock();
        let carries = |all: &Vec<Arc<OwnedFd>>| all.iter().any(|other| Arc::ptr_eq(other, &file.fd));
        file.is_shared || by_file.get(&file.object.handle).is_some_and(carries)
    }

    /// An open file is closed: its locks go now, whoever else may still hold the descriptor.
    pub(crate) fn leave(&self, file: &LocalFile) {
        if !file.has_locks.load(Ordering::SeqCst) {
            return;
        }
        let fd = lock_fd(file);
        flocks::forget(fd);
        let mut by_file = self.by_file.lock();
        if let Some(fds) = by_file.get_mut(&file.object.handle) {
            fds.retain(|other| !Arc::ptr_eq(other, fd));
            if fds.is_empty() {
                by_file.remove(&file.object.handle);
            }
        }
        drop(by_file);
        // Closing frees them, unless a lease, or another open file, keeps the descriptor.
        if Arc::strong_count(fd) > 1 {
            let _ = sys::ofd_lock(&**fd, libc::F_UNLCK, 0, 0);
            let _ = flocks::hold(fd, None);
        }
    }

    /// Whether a `flock` on the file is a lock of its own kind, and somebody may hold one. On a network file system it is
    /// a lock of the whole range, which meets ours there.
    fn meets_flocks(&self, file: &LocalFile) -> bool {
        self.has_neighbours && !file.object.fs.nature.kind.may_be_remote()
    }

    /// What an open file holds by `flock` once it has locked a range: as much as it has of every byte by one lock of the
    /// whole file. Nobody locks a whole file in parts who means a `flock`.
    fn due(
        &self,
        file: &LocalFile,
        range: (i64, i64),
        (kind, had): (LockKind, Option<LockKind>),
    ) -> Option<LockKind> {
        if range == WHOLE && self.meets_flocks(file) { Some(kind) } else { had.min(Some(kind)) }
    }

    /// Takes a lock for an open file.
    fn lock(&self, file: &LocalFile, (first, len): (i64, i64), kind: LockKind) -> FsResult<()> {
        let refused = |e| match e {
            Errno::AGAIN | Errno::ACCESS => FsError::Locked,
            e => fs_error(e),
        };
        let fd = lock_fd(file);
        let had = flocks::held(fd);
        let due = self.due(file, (first, len), (kind, had));
        // First, since it says what to go back to when the other is refused.
        if due > had {
            flocks::hold(fd, due).map_err(refused)?;
        }
        let locked = sys::ofd_lock(&**fd, local_kind(kind), first, len);
        let weaker = if locked.is_ok() { due } else { had };
        if weaker < due.max(had) {
            flocks::hold(fd, weaker).map_err(fs_error)?;
        }
        locked.map_err(refused)
    }

    /// The first lock of somebody who is not us in the way of an open file's.
    ///
    /// The kernel names the first lock that is in the way of *one* open file, which may be another of ours. A lock of
    /// an outsider is in the way of them all: so a range is asked of each, and narrowed to where all find something.
    /// Where two of ours hold it beside each other that is no proof; but then the state engine has refused already.
    ///
    /// `unsure` is what to say when ours are so many that it would take too long to tell: whether a lock that was found
    /// is taken for an outsider's.
    pub(crate) fn test(
        &self,
        file: &LocalFile,
        (range, kind): (ByteRange, LockKind),
        unsure: Unsure,
    ) -> FsResult<Option<LockedBy>> {
        let ours = self.by_file.lock().get(&file.object.handle).cloned().unwrap_or_default();
        let mut looks = Looks { left: LOCAL_LOCK_LOOKS_MAX, kind };
        let fd = lock_fd(file);
        // Parts that nothing is known of yet. Each turn either takes a part away for good, or takes what one lock of
        // ours covers out of it.
        let mut parts = vec![range];
        while let Some(part) = parts.pop() {
            let Some((found, is_open_files)) = looks.first_lock(fd, part)? else { continue };
            let within = common(found.range, part);
            let (true, false, Some(within)) = (is_open_files, ours.is_empty(), within) else {
                return Ok(Some(found));
            };
            if looks.left < ours.len() {
                return Ok((unsure == Unsure::Held).then_some(found));
            }
            if let Some(outside) = looks.in_the_way_of_all(&ours, found, within)? {
                return Ok(Some(outside));
            }
            let above =
                within.last().checked_add(1).and_then(|first| ByteRange::from_bounds(first, part.last()));
            let below =
                within.first().checked_sub(1).and_then(|last| ByteRange::from_bounds(part.first(), last));
            parts.extend([above, below].into_iter().flatten());
        }
        if local_range(range) != Some(WHOLE) || !self.meets_flocks(file) {
            return Ok(None);
        }
        let unsure = (unsure == Unsure::Held).then_some(LockKind::Read);
        let found = flocks::in_the_way(fd, &ours, (kind, unsure)).map_err(fs_error)?;
        Ok(found.map(|kind| LockedBy { range: ByteRange::ALL, kind }))
    }
}

/// What [`Lockers::test`] says when it cannot tell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsure {
    /// Nobody outside is in the way: to one who can try, and is told then.
    Free,
    /// Somebody is.
    Held,
}

/// Questions to the kernel for one test.
struct Looks {
    left: usize,
    kind: LockKind,
}

impl Looks {
    /// What the kernel finds in the way of an open file's lock, and whether it belongs to an open file.
    fn first_lock(&mut self, fd: &OwnedFd, range: ByteRange) -> FsResult<Option<(LockedBy, bool)>> {
        self.left = self.left.saturating_sub(1);
        let Some((first, len)) = local_range(range) else { return Ok(None) };
        let found = sys::ofd_test(fd, local_kind(self.kind), first, len).map_err(fs_error)?;
        Ok(found.and_then(|found| {
            let first = u64::try_from(found.first).unwrap_or(0);
            let last = match u64::try_from(found.len) {
                Ok(len) if len > 0 => first + (len - 1),
                _ => u64::MAX,
            };
            let kind = if found.kind == libc::F_RDLCK { LockKind::Read } else { LockKind::Write };
            Some((LockedBy { range: ByteRange::from_bounds(first, last)?, kind }, found.is_open_files))
        }))
    }

    /// What is in the way of every one of these in a range: the smallest of what they find.
    fn in_the_way_of_all(
        &mut self,
        ours: &[Arc<OwnedFd>],
        found: LockedBy,
        within: ByteRange,
    ) -> FsResult<Option<LockedBy>> {
        let bytes = |lock: &LockedBy| lock.range.last() - lock.range.first();
        let mut smallest = found;
        for fd in ours {
            match self.first_lock(fd, within)? {
                None => return Ok(None),
                Some((other, _)) if bytes(&other) < bytes(&smallest) => smallest = other,
                Some(_) => {}
            }
        }
        Ok(Some(smallest))
    }
}

/// The part that two ranges share.
fn common(one: ByteRange, other: ByteRange) -> Option<ByteRange> {
    ByteRange::from_bounds(one.first().max(other.first()), one.last().min(other.last()))
}

/// The open file that carries the locks: where several share a descriptor it is the first one's, and the others' are of their own.
pub(crate) fn lock_fd(file: &LocalFile) -> &Arc<OwnedFd> {
    file.own.get().unwrap_or(&file.fd)
}

impl LocalBackend {
    pub(crate) fn do_lock(
        &self,
        file: &Arc<dyn FileObject>,
        range: ByteRange,
        kind: LockKind,
    ) -> FsResult<()> {
        let file = local_file(file)?;
        let Some(range) = local_range(range) else { return Ok(()) };
        let lockers = &self.watch.0.lockers;
        // The first one locks through the lease's own descriptor, so that a local process which is about to open the file, and
        // waits for the lease, does not get in before it.
        if !lockers.enter(file) {
            let own = Arc::new(self.reopen_for_locks(file)?);
            // Somebody else may have been faster; his does as well.
            let _ = file.own.set(own);
            lockers.enter(file);
        }
        lockers.lock(file, range, kind)
    }

    pub(crate) fn do_test_lock(
        &self,
        file: &Arc<dyn FileObject>,
        range: ByteRange,
        kind: LockKind,
    ) -> FsResult<Option<LockedBy>> {
        self.watch.0.lockers.test(local_file(file)?, (range, kind), Unsure::Free)
    }
}

pub(crate) fn unlock(file: &Arc<dyn FileObject>, range: ByteRange) -> FsResult<()> {
    let file = local_file(file)?;
    let Some((first, len)) = local_range(range) else { return Ok(()) };
    // Without locks there is nothing to drop; and a shared descriptor's are somebody else's.
    if !file.has_locks.load(Ordering::SeqCst) {
        return Ok(());
    }
    let fd = lock_fd(file);
    sys::ofd_lock(&**fd, libc::F_UNLCK, first, len).map_err(fs_error)?;
    if flocks::held(fd).is_some() {
        flocks::hold(fd, None).map_err(fs_error)?;
    }
    Ok(())
}
