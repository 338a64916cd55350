//! Our own opens of files that a lease of ours is on. The kernel takes them for anybody's: it would break the lease and
//! make us wait for ourselves.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use holdfast_vfs::{Cx, FsError, FsResult, Handle, OpenMode};
use rustix::io::Errno;

use crate::errors::fs_error;
use crate::local::LocalBackend;
use crate::object::{For, Object};
use crate::opening::LocalFile;
use crate::sys;

impl LocalBackend {
    /// Whether the caller may open the file so, judged as an open would be: for one who shares a descriptor.
    pub(crate) fn judge(&self, cx: &Cx<'_>, object: &Object, mode: OpenMode) -> FsResult<()> {
        let need = if mode.read { libc::R_OK } else { 0 } | if mode.write { libc::W_OK } else { 0 };
        let judged = {
            let _acting = self.identity.act_as(cx.caller)?;
            sys::has_rights(object.fd(), need)
        };
        match judged {
            Err(Errno::ACCESS) if mode.nfs_exceptions && self.is_excepted(cx, object, mode)? => Ok(()),
            other => other.map_err(fs_error),
        }
    }

    /// Opens what a lease of ours may be on, which then gives way.
    pub(crate) fn beside_leases<T>(
        &self,
        handle: &Handle,
        writes: bool,
        open: impl Fn() -> FsResult<T>,
    ) -> FsResult<T> {
        self.watch.make_way(handle, writes);
        match open() {
            // The lease came between the two; or another open of ours has just met it as well, and it is gone now.
            Err(FsError::Delay) if self.watch.is_used() => {
                self.watch.make_way(handle, writes);
                open()
            }
            other => other,
        }
    }

    /// An open file of its own for the locks of one whose descriptor carries another's.
    pub(crate) fn reopen_for_locks(&self, file: &LocalFile) -> FsResult<OwnedFd> {
        self.identity.as_server();
        let open = || self.sparing(|| self.reopen(&file.object, file.mode));
        self.beside_leases(&file.object.handle, file.mode.write, open)
    }

    /// A descriptor for stateless I/O: the one that is kept, the one that our write lease is on, or a new one, opened
    /// with the server's rights.
    pub(crate) fn io(&self, object: &Object, what: For) -> FsResult<Arc<OwnedFd>> {
        if object.has_io(what) {
            return object.io(what, &self.proc_fd);
        }
        let writes = what == For::Writing;
        if let Some(fd) = self.watch.leased(&object.handle, true, writes) {
            return Ok(fd);
        }
        self.identity.as_server();
        self.beside_leases(&object.handle, writes, || self.sparing(|| object.io(what, &self.proc_fd)))
    }
}
