//! The backend's open files behind opens and locks. The state engine decides when one is opened and closed and
//! bounds their number by that of state ids; here they only lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::FileKey;
use holdfast_base::limits::LOCK_WAITED_FILES_MAX;
use holdfast_export::WireHandle;
use holdfast_state::{LockToken, OpenId};
use holdfast_vfs::FileObject;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

#[path = "handover/files.rs"]
mod handover;

pub(crate) use handover::FilesImage;

/// Open files by the engine's numbers.
#[derive(Default)]
pub(crate) struct OpenFiles {
    next: AtomicU64,
    opens: RwLock<FxHashMap<OpenId, Opened>>,
    locks: RwLock<LockFiles>,
    /// Handles of files whose locks somebody waits for, to name them in CB_NOTIFY_LOCK.
    waited: Mutex<FxHashMap<FileKey, WireHandle>>,
}

/// An open file, and for whom it was opened.
#[derive(Clone)]
struct Opened {
    file: Arc<dyn FileObject>,
    uid: u32,
}

/// The file that carries one lock-owner's locks.
struct LockFile {
    of: FileKey,
    file: Arc<dyn FileObject>,
    /// Write locks need a descriptor for writing.
    can_write: bool,
}

/// The files that carry lock-owners' locks.
#[derive(Default)]
struct LockFiles {
    by_token: FxHashMap<LockToken, LockFile>,
    /// How many of them are of one file.
    by_file: FxHashMap<FileKey, u32>,
}

impl OpenFiles {
    /// Keeps a file, opened for this user, under a new number.
    pub(crate) fn keep(&self, file: Arc<dyn FileObject>, uid: u32) -> OpenId {
        let id = OpenId(self.next.fetch_add(1, Ordering::Relaxed));
        self.opens.write().insert(id, Opened { file, uid });
        id
    }

    pub(crate) fn get(&self, id: OpenId) -> Option<Arc<dyn FileObject>> {
        self.opens.read().get(&id).map(|open| Arc::clone(&open.file))
    }

    /// An open file, and whether it was opened for this user.
    pub(crate) fn get_as(&self, id: OpenId, uid: u32) -> Option<(Arc<dyn FileObject>, bool)> {
        self.opens.read().get(&id).map(|open| (Arc::clone(&open.file), open.uid == uid))
    }

    /// Lets go of an open file: it is closed when the last I/O on it ends. Returned so that the caller drops it
    /// outside the table's lock.
    pub(crate) fn close(&self, id: OpenId) -> Option<Arc<dyn FileObject>> {
        self.opens.write().remove(&id).map(|open| open.file)
    }

    /// Keeps the file that carries a lock-owner's locks on `key` from now on. The one that did before is given back,
    /// to be closed.
    pub(crate) fn keep_locks(
        &self,
        token: LockToken,
        key: FileKey,
        (file, can_write): (Arc<dyn FileObject>, bool),
    ) -> Option<Arc<dyn FileObject>> {
        let mut locks = self.locks.write();
        let before = locks.by_token.insert(token, LockFile { of: key, file, can_write });
        if before.is_none() {
            *locks.by_file.entry(key).or_default() += 1;
        }
        before.map(|before| before.file)
    }

    pub(crate) fn locks(&self, token: LockToken) -> Option<Arc<dyn FileObject>> {
        self.locks.read().by_token.get(&token).map(|locks| Arc::clone(&locks.file))
    }

    /// Whether the file that carries a lock-owner's locks can carry write locks too.
    pub(crate) fn has_write_locks_file(&self, token: LockToken) -> bool {
        self.locks.read().by_token.get(&token).is_some_and(|locks| locks.can_write)
    }

    /// Whether any lock-owner may hold backend locks on this file.
    pub(crate) fn has_locks(&self, key: FileKey) -> bool {
        self.locks.read().by_file.contains_key(&key)
    }

    /// Lets go of a lock-owner's locks on a file.
    pub(crate) fn close_locks(&self, token: LockToken) -> Option<Arc<dyn FileObject>> {
        let mut locks = self.locks.write();
        let LockFile { of: key, file, .. } = locks.by_token.remove(&token)?;
        if let Some(count) = locks.by_file.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                locks.by_file.remove(&key);
            }
        }
        Some(file)
    }

    /// Notes the handle of a file whose locks somebody waits for.
    pub(crate) fn wait_for(&self, key: FileKey, handle: WireHandle) {
        let mut waited = self.waited.lock();
        if waited.len() >= LOCK_WAITED_FILES_MAX && !waited.contains_key(&key) {
            // Whoever waited for these asks again by himself.
            waited.clear();
        }
        waited.insert(key, handle);
    }

    /// The handle of a file whose locks somebody waits for.
    pub(crate) fn waited_for(&self, key: FileKey) -> Option<WireHandle> {
        self.waited.lock().get(&key).copied()
    }

    /// Every open file and lock file, and the handle of every file whose locks somebody waits for.
    pub(crate) fn each(
        &self,
        file: &mut dyn FnMut(&Arc<dyn FileObject>),
        fh: &mut dyn FnMut(FileKey, WireHandle),
    ) {
        self.opens.read().values().for_each(|open| file(&open.file));
        self.locks.read().by_token.values().for_each(|lock| file(&lock.file));
        self.waited.lock().iter().for_each(|(key, handle)| fh(*key, *handle));
    }

    /// Open files and lock files held.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.opens.read().len(), self.locks.read().by_token.len())
    }
}
