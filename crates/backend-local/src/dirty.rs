//! Files with unstable writes. Their descriptors stay open until a commit, so that an error of write-back finds
//! somebody to be told to.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::limits::BACKEND_DIRTY_FILES_MAX;
use holdfast_vfs::{FsError, FsResult, Handle};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::errors::fs_error;
use crate::local::LocalBackend;
use crate::object::Object;
use crate::sys::{self, SyncData};

struct Entry {
    object: Arc<Object>,
    fd: Arc<OwnedFd>,
    /// Tells this entry from one of the same file that was committed before.
    turn: u64,
}

#[derive(Default)]
struct Files {
    by_handle: FxHashMap<Handle, Entry>,
    /// In the order they got dirty; entries committed meanwhile are passed over.
    order: VecDeque<(Handle, u64)>,
    turn: u64,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Dirty {
    files: Mutex<Files>,
}

impl Dirty {
    /// Takes a file out, for a commit: from now on a write puts it in again.
    pub(crate) fn take(&self, handle: &Handle) -> Option<(Arc<Object>, Arc<OwnedFd>)> {
        let entry = self.files.lock().by_handle.remove(handle)?;
        entry.object.is_dirty.store(false, Ordering::SeqCst);
        Some((entry.object, entry.fd))
    }

    /// A removed file has nothing to lose.
    pub(crate) fn forget(&self, object: &Object) {
        if object.is_dirty.load(Ordering::SeqCst) {
            drop(self.take(&object.handle));
        }
    }

    /// Takes a file in; gives the oldest one when there are too many.
    fn add(&self, object: &Arc<Object>, fd: &Arc<OwnedFd>) -> Option<Entry> {
        let mut files = self.files.lock();
        if object.is_dirty.swap(true, Ordering::SeqCst) {
            return None;
        }
        if files.by_handle.contains_key(&object.handle) {
            // Another object of the same file, thrown out of the cache meanwhile: its descriptor is the one that
            // has not been told of errors since the first write.
            object.is_dirty.store(false, Ordering::SeqCst);
            return None;
        }
        files.turn += 1;
        let turn = files.turn;
        files.by_handle.insert(object.handle, Entry { object: Arc::clone(object), fd: Arc::clone(fd), turn });
        files.order.push_back((object.handle, turn));
        if files.order.len() > 2 * BACKEND_DIRTY_FILES_MAX {
            let Files { by_handle, order, .. } = &mut *files;
            order.retain(|(handle, turn)| by_handle.get(handle).is_some_and(|e| e.turn == *turn));
        }
        while files.by_handle.len() > BACKEND_DIRTY_FILES_MAX {
            let (handle, turn) = files.order.pop_front()?;
            if files.by_handle.get(&handle).is_some_and(|e| e.turn == turn) {
                return files.by_handle.remove(&handle);
            }
        }
        None
    }
}

impl LocalBackend {
    /// Notes a write through `fd`.
    pub(crate) fn mark_dirty(&self, object: &Arc<Object>, fd: &Arc<OwnedFd>) -> FsResult<()> {
        if object.is_dirty.load(Ordering::SeqCst) {
            return Ok(());
        }
        let Some(oldest) = self.dirty.add(object, fd) else { return Ok(()) };
        oldest.object.is_dirty.store(false, Ordering::SeqCst);
        if let Err(e) = sys::sync_data(&*oldest.fd, SyncData::Wait) {
            // Its commit will find nothing to tell; the verifier makes clients send again.
            self.note_lost_data(&oldest.object.handle, fs_error(e));
        }
        oldest.object.close_writer();
        Ok(())
    }

    /// After data may have been lost: every client sends again what it has not committed.
    pub(crate) fn note_lost_data(&self, file: &Handle, error: FsError) {
        self.verifier_bumps.fetch_add(1, Ordering::SeqCst);
        tracing::error!(?file, %error, "write-back failed; the write verifier changes");
    }
}

#[cfg(test)]
mod tests {
    use holdfast_vfs::{AttrMask, Backend as _, Caller, Cx, Name, Wait};

    use super::*;
    use crate::LocalOptions;
    use crate::object::For;

    #[test]
    fn of_two_objects_of_one_file_the_first_is_kept_and_both_are_tracked_again() {
        let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(dir.path().join("file"), "").unwrap();
        let backend = LocalBackend::open(dir.path(), LocalOptions::new(state.path().to_owned())).unwrap();
        let caller = Caller { uid: rustix::process::geteuid().as_raw(), ..Caller::root() };
        let cx = Cx::new(&caller, Wait::Yes);
        let object = || {
            let found =
                backend.lookup(&cx, &backend.root.handle, Name::new(b"file").unwrap(), AttrMask::STAT);
            let object = backend.resolve(Wait::Yes, &found.unwrap().handle).unwrap();
            backend.cache.remove(&object.handle);
            object
        };
        let (first, second) = (object(), object());
        assert!(!Arc::ptr_eq(&first, &second));
        let write = |object: &Arc<Object>| {
            let fd = object.io(For::Writing, &backend.proc_fd).unwrap();
            backend.mark_dirty(object, &fd).unwrap();
        };
        write(&first);
        write(&second);
        let (kept, _) = backend.dirty.take(&first.handle).unwrap();
        assert!(Arc::ptr_eq(&kept, &first));
        for object in [&first, &second] {
            write(object);
            assert!(backend.dirty.take(&object.handle).is_some(), "a write after a commit counts");
        }
    }
}
