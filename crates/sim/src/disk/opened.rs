//! Open files, which another process of the same server can go on with. What the kernel keeps of one, its locks above
//! all, is here the open file of the file system in memory; a descriptor stands for it.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use holdfast_vfs::handover::{ArrivedFile, HandedFile};
use holdfast_vfs::{FileObject, FsError, FsResult, Handle, OpenMode};

/// Open files by the inodes of the descriptors that stand for them.
#[derive(Clone, Default)]
pub(super) struct Descriptions(Arc<Mutex<BTreeMap<u64, Weak<dyn FileObject>>>>);

impl Descriptions {
    /// A descriptor for an open file; `None` when the machine that this runs on has none left.
    fn describe(&self, open: &Arc<dyn FileObject>) -> Option<Arc<OwnedFd>> {
        // In memory where it can be: nothing is ever written to it.
        let file = tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile()).ok()?;
        let number = file.metadata().ok()?.ino();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, open| open.strong_count() > 0);
        known.insert(number, Arc::downgrade(open));
        Some(Arc::new(file.into()))
    }

    fn find(&self, fd: &OwnedFd) -> Option<Arc<dyn FileObject>> {
        let number = File::from(fd.try_clone().ok()?).metadata().ok()?.ino();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
    }
}

/// An open file of one process.
pub(super) struct SimFile {
    /// The file system's.
    open: Arc<dyn FileObject>,
    root: Handle,
    handle: Handle,
    mode: OpenMode,
    known: Descriptions,
    /// Made when somebody asks for it.
    fd: OnceLock<Option<Arc<OwnedFd>>>,
}

impl SimFile {
    /// One that a process opens.
    pub(super) fn opened(
        open: Arc<dyn FileObject>,
        (root, handle): (Handle, Handle),
        mode: OpenMode,
        known: &Descriptions,
    ) -> Arc<dyn FileObject> {
        Arc::new(Self { open, root, handle, mode, known: known.clone(), fd: OnceLock::new() })
    }

    /// One that came from another process.
    pub(super) fn arrived(
        (root, handle): (Handle, Handle),
        arrived: ArrivedFile,
        known: &Descriptions,
    ) -> FsResult<Arc<dyn FileObject>> {
        let open = known.find(&arrived.fd).ok_or(FsError::Stale)?;
        let fd = OnceLock::from(Some(arrived.fd));
        Ok(Arc::new(Self { open, root, handle, mode: arrived.mode, known: known.clone(), fd }))
    }
}

impl FileObject for SimFile {
    /// The file system's own, so that it knows it again.
    fn as_any(&self) -> &dyn Any {
        (*self.open).as_any()
    }

    fn hand_over(&self) -> Option<HandedFile<'_>> {
        let fd = self.fd.get_or_init(|| self.known.describe(&self.open)).as_ref()?;
        Some(HandedFile {
            root: self.root,
            handle: self.handle,
            mode: self.mode,
            fd: fd.as_fd(),
            is_shared: false,
        })
    }
}
