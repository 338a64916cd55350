//! Descriptors for other processes of this host.
//!
//! Whoever has one can open the file anew through `/proc`, with his own rights and other flags, and the kernel does the
//! same when it is made the backing file of a FUSE mount. So what is lent for reading lies on a mount of our own that is
//! read-only, whatever the file's mode says, and nobody else ever sees.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use holdfast_vfs::{Cx, FsError, FsResult, Handle, Lend, OpenMode};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::fs::OFlags;
use rustix::io::fcntl_dupfd_cloexec;

use crate::errors::fs_error;
use crate::filesystem::FileSystem;
use crate::handles::{self, Inner};
use crate::local::LocalBackend;
use crate::object::Object;
use crate::opening::local_file;
use crate::options::LocalUse;
use crate::sys::{self, Capability, ReadOnlyMount};

/// Read-only mounts of file systems met, by key; `None` where none is to be had.
#[derive(Default)]
pub(crate) struct Lending(Mutex<FxHashMap<u64, Option<Arc<ReadOnlyMount>>>>);

impl LocalBackend {
    /// See [`holdfast_vfs::Backend::lend`].
    pub(crate) fn do_lend(&self, cx: &Cx<'_>, file: &Handle, what: Lend) -> FsResult<Option<OwnedFd>> {
        // Where nobody else is said to write, only our own writes are looked out for.
        if self.options.is_sole_writer || self.options.local == LocalUse::None {
            return Ok(None);
        }
        let object = self.resolve(cx.wait, file)?;
        object.must_be_file()?;
        match what {
            Lend::Read => self.lend_reader(cx, &object),
            Lend::Write => self.lend_writer(cx, object),
            Lend::Path => self.lend_path(cx, &object),
            Lend::PathToRead => {
                let mode = OpenMode { read: true, write: false, nfs_exceptions: true };
                self.judge(cx, &object, mode)?;
                self.read_only(&object)
            }
        }
    }

    fn lend_writer(&self, cx: &Cx<'_>, object: Arc<Object>) -> FsResult<Option<OwnedFd>> {
        if has_set_id(&object)? {
            return Ok(None);
        }
        let mode = OpenMode { read: true, write: true, nfs_exceptions: true };
        let opening = self.open_judged(cx, &object, mode)?;
        let opened = self.opened(object, opening, mode);
        fcntl_dupfd_cloexec(&local_file(&opened)?.fd, 0).map(Some).map_err(fs_error)
    }

    fn lend_path(&self, cx: &Cx<'_>, object: &Object) -> FsResult<Option<OwnedFd>> {
        if has_set_id(object)? {
            return Ok(None);
        }
        let mode = OpenMode { read: true, write: true, nfs_exceptions: true };
        self.judge(cx, object, mode)?;
        // Ours may be the one that made the file, by which more can be done to it.
        self.proc_fd.path_only(object.fd()).map(Some)
    }

    /// The object on a mount that is read-only, as an `O_PATH` descriptor.
    fn read_only(&self, object: &Object) -> FsResult<Option<OwnedFd>> {
        let Inner::Kernel(handle) = handles::decode(&object.handle)?.1 else { return Ok(None) };
        self.identity.as_server();
        let Some(mount) = self.read_only_mount(&object.fs) else { return Ok(None) };
        let open =
            || sys::open_by_handle(mount.top(), &handle, libc::O_PATH | libc::O_NOFOLLOW).map_err(fs_error);
        self.sparing(open).map(Some)
    }

    fn lend_reader(&self, cx: &Cx<'_>, object: &Object) -> FsResult<Option<OwnedFd>> {
        // Another open would break the lease, and the leased one can write.
        if self.watch.leased(&object.handle, false, false).is_some() {
            return Ok(None);
        }
        let Some(there) = self.read_only(object)? else { return Ok(None) };
        let open = || self.proc_fd.reopen(&there, OFlags::RDONLY | OFlags::NONBLOCK);
        let judged = {
            let _acting = self.identity.act_as(cx.caller)?;
            self.sparing_as(cx, open)
        };
        let mode = OpenMode { read: true, write: false, nfs_exceptions: true };
        match judged {
            Err(FsError::Access) if self.is_excepted(cx, object, mode)? => {
                self.identity.as_server();
                self.sparing(open).map(Some)
            }
            other => other.map(Some),
        }
    }

    /// The thread has the server's rights.
    fn read_only_mount(&self, fs: &FileSystem) -> Option<Arc<ReadOnlyMount>> {
        let mut known = self.lending.0.lock();
        let mount = known.entry(fs.key).or_insert_with(|| {
            let made = mounted_apart(fs.top.as_fd());
            made.inspect_err(|error| tracing::info!(%error, "no descriptors are lent for reading"))
                .ok()
                .map(Arc::new)
        });
        mount.clone()
    }
}

/// Whether a write takes bits of the mode away, unless he who writes is privileged: which the borrower may be, and the
/// caller not.
fn has_set_id(object: &Object) -> FsResult<bool> {
    Ok(u32::from(object.look()?.stx_mode) & (libc::S_ISUID | libc::S_ISGID) != 0)
}

/// On a thread of its own, that has what those who serve callers have given up.
fn mounted_apart(top: BorrowedFd<'_>) -> rustix::io::Result<ReadOnlyMount> {
    let mount = || {
        sys::raise_capability(Capability::SysAdmin)?;
        sys::mount_read_only(top)
    };
    std::thread::scope(|scope| scope.spawn(mount).join().unwrap_or(Err(rustix::io::Errno::IO)))
}
