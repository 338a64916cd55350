//! A file system in memory: the reference that protocols are tested against, and what `mem:` serves. It checks
//! permissions as a kernel does, keeps cookies stable, counts space, and records what was committed, so that a
//! test can ask whether a mutation was durable before its reply. Times come from a source given in.

mod backend;
mod blocks;
mod data;
mod hooks;
mod inode;
mod names;
mod outside;
mod pictures;
mod state;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_base::Timestamp;
use holdfast_base::limits::{MEM_BYTES_MAX, MEM_LINKS_MAX, MEM_OBJECTS_MAX};

use crate::attrs::FsId;
use crate::open::{FileObject, OpenMode};
use blocks::BLOCK;
use inode::{Body, Dir, Ino, Inode};
use outside::Outside;
pub use pictures::Picture;
pub use state::Now;
use state::{Hooks, ROOT, Space, State};

/// How a [`MemBackend`] is made.
#[derive(Clone)]
pub struct MemOptions {
    /// Identity of the file system: part of every handle, so two backends beside each other need two.
    pub fsid: FsId,
    /// Where times come from.
    pub now: Now,
    /// Bytes of data and extended attributes, rounded down to blocks of 4096.
    pub bytes_max: u64,
    /// Objects, the root among them.
    pub objects_max: u64,
    /// Hard links of one object, and so subdirectories of one directory.
    pub links_max: u32,
    /// Mode of the root.
    pub root_mode: u32,
    /// Owner and group of the root.
    pub root_owner: (u32, u32),
    /// Refuse every change.
    pub is_read_only: bool,
    /// A change takes the time that `now` tells, as kernels without multigrain times do: two may share one, and where the
    /// clock was set back times go back. Else each takes a later one than the object had.
    pub has_plain_times: bool,
}

impl MemOptions {
    /// For serving: the machine's clock.
    #[must_use]
    pub fn system() -> Self {
        Self::with_clock(Arc::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            Timestamp { seconds, nanos: since.subsec_nanos() }
        }))
    }

    /// For tests: every look at the clock is one second after the one before, from 1,600,000,000 on.
    #[must_use]
    pub fn deterministic() -> Self {
        let ticks = AtomicU64::new(0);
        Self::with_clock(Arc::new(move || {
            let tick = i64::try_from(ticks.fetch_add(1, Ordering::Relaxed)).unwrap_or(i64::MAX);
            Timestamp { seconds: tick.saturating_add(1_600_000_000), nanos: 0 }
        }))
    }

    fn with_clock(now: Now) -> Self {
        Self {
            fsid: FsId { major: 0x6d65_6d00, minor: 1 },
            now,
            bytes_max: MEM_BYTES_MAX,
            objects_max: MEM_OBJECTS_MAX,
            links_max: MEM_LINKS_MAX,
            root_mode: 0o755,
            root_owner: (0, 0),
            is_read_only: false,
            has_plain_times: false,
        }
    }
}

/// The in-memory file system.
#[derive(Clone)]
pub struct MemBackend {
    state: Arc<Mutex<State>>,
}

impl MemBackend {
    /// An empty file system.
    #[must_use]
    pub fn new(options: &MemOptions) -> Self {
        let now = (options.now)();
        let root = Inode {
            body: Body::Directory(Dir::default(), ROOT),
            mode: options.root_mode,
            nlink: 2,
            uid: options.root_owner.0,
            gid: options.root_owner.1,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            change: 1,
            xattrs: BTreeMap::new(),
            exclusive: None,
            opens: 0,
            has_plain_times: options.has_plain_times,
            had_no_name: false,
            is_dirty: false,
            is_data_dirty: false,
        };
        let state = State {
            fsid: options.fsid,
            now: Arc::clone(&options.now),
            links_max: options.links_max,
            is_read_only: options.is_read_only,
            has_plain_times: options.has_plain_times,
            inodes: BTreeMap::from([(ROOT, root)]),
            last_ino: ROOT,
            last_file: 0,
            space: Space::new(options.bytes_max / BLOCK, options.objects_max),
            locks: Vec::new(),
            is_on_other_hosts: false,
            outside: Outside::default(),
            hooks: Hooks::default(),
            commits: VecDeque::new(),
            verifier: now.seconds.unsigned_abs() ^ (u64::from(now.nanos) << 32),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// The state. A panic elsewhere cannot leave it half changed in a way that later calls could not stand.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens an object that was checked; the state must not be locked by this thread.
    fn open_file(&self, ino: Ino, mode: OpenMode) -> crate::FsResult<Arc<dyn FileObject>> {
        let mut state = self.state();
        state.get_mut(ino)?.opens += 1;
        state.last_file += 1;
        let id = state.last_file;
        drop(state);
        let file = MemFile { fs: self.clone(), ino, id, can_read: mode.read, can_write: mode.write };
        Ok(Arc::new(file))
    }
}

/// An open file.
struct MemFile {
    fs: MemBackend,
    ino: Ino,
    /// Owner of the locks taken through it.
    id: u64,
    can_read: bool,
    can_write: bool,
}

impl FileObject for MemFile {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for MemFile {
    fn drop(&mut self) {
        let mut state = self.fs.state();
        state.locks.retain(|lock| lock.file != Some(self.id));
        state.outside.closed(self.id);
        if let Ok(inode) = state.get_mut(self.ino) {
            inode.opens -= 1;
            state.reap(self.ino);
        }
    }
}
