//! An object that was resolved: the descriptors through which everything is done to it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use holdfast_vfs::{Caller, FileKind, FsError, FsResult, Handle};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, OFlags, Statx, statx};

use crate::errors::fs_error;
use crate::filesystem::{FileSystem, LOOK};
use crate::procfd::ProcFd;

/// How many descriptors idle objects hold.
#[derive(Clone, Default)]
pub(crate) struct Tally(Arc<AtomicUsize>);

impl Tally {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn sub(&self, n: usize) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }
}

/// What a descriptor for I/O was opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    Writing,
}

/// One object. Lives in the descriptor cache and in what was opened through it.
pub(crate) struct Object {
    pub(crate) handle: Handle,
    pub(crate) fs: Arc<FileSystem>,
    /// `O_PATH`, or the one that made a file, which is for neither reading nor writing.
    fd: OwnedFd,
    pub(crate) kind: FileKind,
    pub(crate) ino: u64,
    /// The mount it was reached through; tells whether a name below it leads into another file system.
    pub(crate) mount_id: u64,
    tally: Tally,
    /// Set at each use, cleared by the cache's hand.
    pub(crate) was_used: AtomicBool,
    /// Whether the table of dirty files holds it.
    pub(crate) is_dirty: AtomicBool,
    /// Whether its last name was seen gone.
    pub(crate) is_unlinked: AtomicBool,
    /// Opens by [`holdfast_vfs::Backend::open`] that live.
    pub(crate) opens: AtomicUsize,
    /// Guarded by themselves: descriptors for stateless I/O, opened with the server's rights.
    reader: Mutex<Option<Arc<OwnedFd>>>,
    writer: Mutex<Option<Arc<OwnedFd>>>,
    /// Guarded by itself: whom the kernel granted what, last.
    granted: Mutex<Option<Granted>>,
}

/// A judgement of the kernel that holds as long as the object's ctime stays: mode, owner and ACL cannot change
/// without it, where every change after a look gets a time of its own. Of the owner and the superuser it holds as long
/// as its basis stays, whatever else is done to the object, so that who writes to his own file is judged once.
struct Granted {
    ctime: (i64, u32),
    basis: Basis,
    caller: Caller,
    /// `R_OK | W_OK | X_OK`.
    rights: i32,
}

/// What the owner's and the superuser's rights rest on. An ACL is not among it: its entry for the owner is the mode's
/// (acl(5)), and the superuser passes it by.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Basis {
    mode: u16,
    uid: u32,
    gid: u32,
    /// Immutable, append-only.
    attributes: u64,
}

impl Basis {
    const fn of(st: &Statx) -> Self {
        let attributes = st.stx_attributes.bits();
        Self { mode: st.stx_mode, uid: st.stx_uid, gid: st.stx_gid, attributes }
    }
}

/// The ctime of a look, to compare.
pub(crate) const fn ctime_of(st: &Statx) -> (i64, u32) {
    (st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec)
}

impl Object {
    pub(crate) fn new(handle: Handle, fs: Arc<FileSystem>, fd: OwnedFd, st: &Statx, tally: &Tally) -> Self {
        tally.add();
        Self {
            handle,
            fs,
            fd,
            kind: kind_of(st),
            ino: st.stx_ino,
            mount_id: st.stx_mnt_id,
            tally: tally.clone(),
            was_used: AtomicBool::new(true),
            is_dirty: AtomicBool::new(false),
            is_unlinked: AtomicBool::new(false),
            opens: AtomicUsize::new(0),
            reader: Mutex::new(None),
            writer: Mutex::new(None),
            granted: Mutex::new(None),
        }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Keeps the cache's hand off for one more round.
    pub(crate) fn note_use(&self) {
        // Read first: a line that many threads only read stays in all their caches.
        if !self.was_used.load(Ordering::Relaxed) {
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    /// The object as it is now. Counts as a look at its change attribute.
    pub(crate) fn look(&self) -> FsResult<Statx> {
        statx(&self.fd, "", AtFlags::EMPTY_PATH, LOOK).map_err(fs_error)
    }

    /// Whether the kernel granted the caller these rights to the object as it looks now. `are_told_apart` unless all
    /// callers are judged as the user who runs the server.
    pub(crate) fn was_granted(
        &self,
        caller: &Caller,
        (rights, are_told_apart): (i32, bool),
        st: &Statx,
    ) -> bool {
        let stands_out = are_told_apart && (caller.uid == 0 || caller.uid == st.stx_uid);
        self.fs.is_multigrain
            && self.granted.lock().as_ref().is_some_and(|g| {
                g.rights & rights == rights
                    && (g.ctime == ctime_of(st) || (stands_out && g.basis == Basis::of(st)))
                    && g.caller == *caller
            })
    }

    /// Notes that the kernel granted the caller these rights *after* `st` was seen: should the object have changed
    /// in between, its next look has another ctime.
    pub(crate) fn note_granted(&self, caller: &Caller, rights: i32, st: &Statx) {
        if !self.fs.is_multigrain {
            return;
        }
        let mut granted = self.granted.lock();
        match &mut *granted {
            Some(g) if g.ctime == ctime_of(st) && g.caller == *caller => g.rights |= rights,
            other => {
                let (ctime, basis) = (ctime_of(st), Basis::of(st));
                *other = Some(Granted { ctime, basis, caller: caller.clone(), rights });
            }
        }
    }

    /// [`FsError::NotDir`], or [`FsError::IsSymlink`] for a symbolic link, unless it is a directory.
    pub(crate) fn must_be_dir(&self) -> FsResult<()> {
        match self.kind {
            FileKind::Directory => Ok(()),
            FileKind::Symlink => Err(FsError::IsSymlink),
            _ => Err(FsError::NotDir),
        }
    }

    /// The error that opening it for data gives, unless it is a regular file.
    pub(crate) fn must_be_file(&self) -> FsResult<()> {
        file_only(self.kind)
    }

    /// A descriptor for stateless I/O. The thread has the server's rights when `is_new` is called for.
    pub(crate) fn io(&self, what: For, proc_fd: &ProcFd) -> FsResult<Arc<OwnedFd>> {
        let (slot, flags) = match what {
            For::Reading => (&self.reader, OFlags::RDONLY),
            For::Writing => (&self.writer, OFlags::RDWR),
        };
        let mut slot = slot.lock();
        if let Some(fd) = &*slot {
            return Ok(Arc::clone(fd));
        }
        // NONBLOCK: a lease that a local process holds is told as an error instead of waited for.
        let fd = Arc::new(proc_fd.reopen(&self.fd, flags | OFlags::NONBLOCK)?);
        self.tally.add();
        *slot = Some(Arc::clone(&fd));
        Ok(fd)
    }

    /// Whether [`Object::io`] would not have to open anything.
    pub(crate) fn has_io(&self, what: For) -> bool {
        match what {
            For::Reading => self.reader.lock().is_some(),
            For::Writing => self.writer.lock().is_some(),
        }
    }

    /// Closes the descriptor for reading: while it is open there can be no write lease.
    pub(crate) fn close_reader(&self) {
        if self.reader.lock().take().is_some() {
            self.tally.sub(1);
        }
    }

    /// Closes the descriptor for writing: while it is open no local process can run the file or take a lease.
    pub(crate) fn close_writer(&self) {
        if self.writer.lock().take().is_some() {
            self.tally.sub(1);
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let io = usize::from(self.reader.get_mut().is_some()) + usize::from(self.writer.get_mut().is_some());
        self.tally.sub(1 + io);
    }
}

/// The error that opening this kind for data gives.
pub(crate) fn file_only(kind: FileKind) -> FsResult<()> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(FsError::IsDir),
        FileKind::Symlink => Err(FsError::IsSymlink),
        _ => Err(FsError::WrongKind),
    }
}

/// The kind in a `statx`'s mode.
pub(crate) fn kind_of(st: &Statx) -> FileKind {
    match u32::from(st.stx_mode) & libc::S_IFMT {
        libc::S_IFDIR => FileKind::Directory,
        libc::S_IFLNK => FileKind::Symlink,
        libc::S_IFBLK => FileKind::Block,
        libc::S_IFCHR => FileKind::Char,
        libc::S_IFSOCK => FileKind::Socket,
        libc::S_IFIFO => FileKind::Fifo,
        _ => FileKind::Regular,
    }
}
