//! The backend's open files behind opens and locks. The state engine decides when one is opened and closed and
//! bounds their number by that of state ids; here they only lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::limits::LOCK_WAITED_FILES_MAX;
use holdfast_base::{FileKey, Instant};
use holdfast_export::WireHandle;
use holdfast_state::{Engine, LockToken, OpenId};
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
    /// The files that carry lock-owners' locks.
    locks: RwLock<FxHashMap<LockToken, LockFile>>,
    /// Handles of files whose locks somebody waits for, to name them in CB_NOTIFY_LOCK.
    waited: Mutex<Waited>,
    /// Open files through which the backend watches locks of local processes that somebody waits for.
    watched: Mutex<FxHashMap<FileKey, Watched>>,
}

/// Handles of files whose locks somebody waits for, with some that nobody waits for any more.
#[derive(Default)]
struct Waited {
    handles: FxHashMap<FileKey, WireHandle>,
    /// When there are so many, those that nobody waits for are looked for: twice as many as were left the last time, so that
    /// each costs the same however many there are.
    many: usize,
}

/// An open file through which locks of local processes are watched.
struct Watched {
    file: Arc<dyn FileObject>,
    since: Instant,
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
        self.locks.write().insert(token, LockFile { of: key, file, can_write }).map(|before| before.file)
    }

    pub(crate) fn locks(&self, token: LockToken) -> Option<Arc<dyn FileObject>> {
        self.locks.read().get(&token).map(|locks| Arc::clone(&locks.file))
    }

    /// Whether the file that carries a lock-owner's locks can carry write locks too.
    pub(crate) fn has_write_locks_file(&self, token: LockToken) -> bool {
        self.locks.read().get(&token).is_some_and(|locks| locks.can_write)
    }

    /// Lets go of a lock-owner's locks on a file.
    pub(crate) fn close_locks(&self, token: LockToken) -> Option<Arc<dyn FileObject>> {
        let LockFile { of, file, .. } = self.locks.write().remove(&token)?;
        // Kept open for who waits through it, it would keep the locks. Nobody does any more: that was their owner.
        let mut watched = self.watched.lock();
        if watched.get(&of).is_some_and(|watched| Arc::ptr_eq(&watched.file, &file)) {
            watched.remove(&of);
        }
        Some(file)
    }

    /// Notes the handle of a file for who waits for its locks, if somebody does. To be called within the very step that put
    /// him in line: in the next the lock may be free, and he is told so under this handle.
    pub(crate) fn wait_for(&self, engine: &Engine, key: FileKey, handle: WireHandle) {
        if !engine.is_lock_awaited(key) {
            return;
        }
        let mut waited = self.waited.lock();
        if waited.handles.len() >= waited.many.max(LOCK_WAITED_FILES_MAX) {
            waited.forget(engine);
        }
        waited.handles.insert(key, handle);
    }

    /// The handle of a file whose locks somebody waits for.
    pub(crate) fn waited_for(&self, key: FileKey) -> Option<WireHandle> {
        self.waited.lock().handles.get(&key).copied()
    }

    /// Forgets the handles of files whose locks nobody waits for any more.
    pub(crate) fn forget_waited(&self, engine: &Engine) {
        self.waited.lock().forget(engine);
    }

    /// Keeps a file open while the backend watches locks of local processes through it. The one that did before is
    /// given back, to be closed.
    pub(crate) fn watch(
        &self,
        key: FileKey,
        file: Arc<dyn FileObject>,
        since: Instant,
    ) -> Option<Arc<dyn FileObject>> {
        let mut watched = self.watched.lock();
        if watched.len() >= LOCK_WAITED_FILES_MAX && !watched.contains_key(&key) {
            // Whoever waits for this one asks again by himself.
            return Some(file);
        }
        watched.insert(key, Watched { file, since }).map(|before| before.file)
    }

    /// Nobody has waited for these locks for so long, in milliseconds, or asked again.
    pub(crate) fn unwatch(&self, now: Instant, ms: u64) {
        let is_old = |_: &FileKey, of: &mut Watched| now.ms_since(of.since) > ms;
        let old: Vec<_> = self.watched.lock().extract_if(is_old).collect();
        drop(old);
    }

    /// Every open file and lock file, and the handle of every file whose locks somebody waits for.
    pub(crate) fn each(
        &self,
        file: &mut dyn FnMut(&Arc<dyn FileObject>),
        fh: &mut dyn FnMut(FileKey, WireHandle),
    ) {
        self.opens.read().values().for_each(|open| file(&open.file));
        self.locks.read().values().for_each(|lock| file(&lock.file));
        self.waited.lock().handles.iter().for_each(|(key, handle)| fh(*key, *handle));
    }

    /// Open files and lock files held.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.opens.read().len(), self.locks.read().len())
    }
}

impl Waited {
    fn forget(&mut self, engine: &Engine) {
        self.handles.retain(|key, _| engine.is_lock_awaited(*key));
        self.many = 2 * self.handles.len();
    }
}
