//! Open files: what each is made of, and how one comes to be.

use std::any::Any;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use holdfast_vfs::handover::HandedFile;
use holdfast_vfs::{Cx, FileObject, FsError, FsResult, Handle, OpenMode};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use crate::cache::Cache;
use crate::local::LocalBackend;
use crate::locks::{Lockers, lock_fd};
use crate::object::Object;
use crate::sys;
use crate::watch::Guard;

/// An open file.
pub(crate) struct LocalFile {
    pub(crate) object: Arc<Object>,
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) mode: OpenMode,
    /// Whether `fd` is another open file's as well: a write lease of ours is on it, which a second one would break.
    pub(crate) is_shared: bool,
    /// The open file that carries the locks, once there are any, where the descriptor's are another one's.
    pub(crate) own: OnceLock<Arc<OwnedFd>>,
    pub(crate) has_locks: AtomicBool,
    /// Of a file from another process, with a lease on it that somebody waits for: what keeps him waiting, until the
    /// promise that it stood for is made again or the file is closed.
    pub(crate) breaking: Mutex<Option<Guard>>,
    lockers: Arc<Lockers>,
    /// The exported directory: tells this backend from others in a handover.
    root: Handle,
    cache: Arc<Cache>,
}

/// A descriptor for an open file.
pub(crate) struct Opening {
    fd: Arc<OwnedFd>,
    is_shared: bool,
}

impl Opening {
    /// Of a file that nobody else has through this descriptor.
    pub(crate) fn own(fd: OwnedFd) -> Self {
        Self { fd: Arc::new(fd), is_shared: false }
    }

    /// Of a file that others have through the same descriptor.
    pub(crate) const fn shared(fd: Arc<OwnedFd>) -> Self {
        Self { fd, is_shared: true }
    }

    /// Of a file that was open in another process.
    pub(crate) const fn arrived(fd: Arc<OwnedFd>, is_shared: bool) -> Self {
        Self { fd, is_shared }
    }
}

impl FileObject for LocalFile {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn hand_over(&self) -> Option<HandedFile<'_>> {
        let (handle, fd) = (self.object.handle, lock_fd(self).as_fd());
        let is_shared = self.own.get().is_none() && self.lockers.are_anothers(self);
        Some(HandedFile { root: self.root, handle, mode: self.mode, fd, is_shared })
    }
}

impl Drop for LocalFile {
    fn drop(&mut self) {
        self.lockers.leave(self);
        if self.object.opens.fetch_sub(1, Ordering::SeqCst) == 1
            && self.object.is_unlinked.load(Ordering::SeqCst)
        {
            self.cache.remove(&self.object.handle);
        }
    }
}

/// The backend's own type behind an open file.
pub(crate) fn local_file(file: &Arc<dyn FileObject>) -> FsResult<&LocalFile> {
    file.as_any().downcast_ref().ok_or(FsError::BadHandle)
}

/// How a descriptor is opened. For reading also where only writing is asked for: whoever is delegated the file then may read
/// it as well, and when that is taken back the open that he asks for has to do with this descriptor, for another would end the
/// lease on it before his locks are here.
pub(crate) const fn open_flags(mode: OpenMode) -> OFlags {
    if mode.write { OFlags::RDWR } else { OFlags::RDONLY }
}

impl LocalBackend {
    pub(crate) fn do_open(
        &self,
        cx: &Cx<'_>,
        file: &Handle,
        mode: OpenMode,
    ) -> FsResult<Arc<dyn FileObject>> {
        let object = self.resolve(cx.wait, file)?;
        object.must_be_file()?;
        let opening = self.open_judged(cx, &object, mode)?;
        Ok(self.opened(object, opening, mode))
    }

    pub(crate) fn opened(
        &self,
        object: Arc<Object>,
        opening: Opening,
        mode: OpenMode,
    ) -> Arc<dyn FileObject> {
        object.opens.fetch_add(1, Ordering::SeqCst);
        let Opening { fd, is_shared } = opening;
        Arc::new(LocalFile {
            object,
            fd,
            mode,
            is_shared,
            own: OnceLock::new(),
            has_locks: AtomicBool::new(false),
            breaking: Mutex::new(None),
            lockers: Arc::clone(&self.watch.0.lockers),
            root: self.root.handle,
            cache: Arc::clone(&self.cache),
        })
    }

    /// Opens with the kernel judging the caller, and NFS's exceptions when the mode has them. Under a write lease of
    /// ours the leased file is shared instead: a second one would break the lease.
    pub(crate) fn open_judged(&self, cx: &Cx<'_>, object: &Object, mode: OpenMode) -> FsResult<Opening> {
        if let Some(fd) = self.watch.leased(&object.handle, mode.read, mode.write) {
            self.judge(cx, object, mode)?;
            return Ok(Opening::shared(fd));
        }
        self.beside_leases(&object.handle, mode.write, || self.open_own(cx, object, mode)).map(Opening::own)
    }

    /// Of what has no name its owner is let in as with the exceptions: he made it open, whatever its mode, and opens it by the
    /// handle that he was told.
    fn open_own(&self, cx: &Cx<'_>, object: &Object, mode: OpenMode) -> FsResult<OwnedFd> {
        let open = || self.reopen(object, mode);
        let judged = {
            let _acting = self.identity.act_as(cx.caller)?;
            self.sparing_as(cx, open)
        };
        match judged {
            Err(FsError::Access)
                if (mode.nfs_exceptions || object.look()?.stx_nlink == 0)
                    && self.is_excepted(cx, object, mode)? =>
            {
                self.identity.as_server();
                self.sparing(open)
            }
            other => other,
        }
    }

    /// A descriptor of the object for `mode`, as the thread acts now; no more than that where reading is denied.
    pub(crate) fn reopen(&self, object: &Object, mode: OpenMode) -> FsResult<OwnedFd> {
        match self.proc_fd.reopen(object.fd(), open_flags(mode) | OFlags::NONBLOCK) {
            Err(FsError::Access) if mode.write && !mode.read => {
                self.proc_fd.reopen(object.fd(), OFlags::WRONLY | OFlags::NONBLOCK)
            }
            other => other,
        }
    }

    /// [`LocalBackend::sparing`] for what is done as the caller.
    pub(crate) fn sparing_as<T>(&self, cx: &Cx<'_>, open: impl Fn() -> FsResult<T>) -> FsResult<T> {
        self.sparing(|| {
            let _acting = self.identity.act_as(cx.caller)?;
            open()
        })
    }

    /// Whether NFS allows what POSIX does not (RFC 1813 section 4.4): the owner reads and writes whatever the
    /// mode says, since he checked it when he opened the file; and who may run a file may read it, since running
    /// it over NFS is reading it.
    pub(crate) fn is_excepted(&self, cx: &Cx<'_>, object: &Object, mode: OpenMode) -> FsResult<bool> {
        if object.look()?.stx_uid == cx.caller.uid {
            return Ok(true);
        }
        let _acting = self.identity.act_as(cx.caller)?;
        Ok(!mode.write && mode.read && sys::has_rights(object.fd(), libc::X_OK).is_ok())
    }
}
