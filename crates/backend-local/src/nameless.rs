//! Files without a name (`O_TMPFILE`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_vfs::{Cx, FileObject, FsError, FsResult, Handle, Node, OpenMode, SetAttrs};
use rustix::fs::{OFlags, openat};

use crate::errors::fs_error;
use crate::filesystem::HandleKind;
use crate::local::{Keep, LocalBackend};
use crate::names::ALL_OF_NODE;
use crate::opening::Opening;

impl LocalBackend {
    /// See [`holdfast_vfs::Backend::make_nameless`].
    pub(crate) fn do_make_nameless(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        set: &SetAttrs,
    ) -> FsResult<(Node, Arc<dyn FileObject>)> {
        let dir = self.resolve(cx.wait, dir)?;
        dir.must_be_dir()?;
        // A row of the table says by which name an object is found again.
        if dir.fs.handles != HandleKind::Kernel {
            return Err(FsError::NotSupported);
        }
        self.may_wait(cx, &dir)?;
        let acting = self.identity.act_as(cx.caller)?;
        let mode = self.creation_mode(&dir, set, 0o600)?;
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let fd = self.sparing_as(cx, || openat(dir.fd(), ".", flags, mode).map_err(fs_error))?;
        if let Some(size) = set.size.filter(|size| *size > 0) {
            rustix::fs::ftruncate(&fd, size).map_err(fs_error)?;
        }
        let path = self.proc_fd.reopen(&fd, OFlags::PATH)?;
        let (object, st) = self.take_in(&dir, b".", path, Keep::Always)?;
        // As of what has lost its last name: the last close lets go of it.
        object.is_unlinked.store(true, Ordering::SeqCst);
        let open = OpenMode { read: true, write: true, nfs_exceptions: false };
        let file = self.opened(Arc::clone(&object), Opening::own(fd), open);
        let st = self.finish_new(cx, &object, st, set)?;
        drop(acting);
        let attrs = self.attrs_of(&object, &st, ALL_OF_NODE);
        Ok((Node { handle: object.handle, attrs }, file))
    }
}
