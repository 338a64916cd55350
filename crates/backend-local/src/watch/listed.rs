//! Directories of which pages of listings are kept although local processes may change them (`pages.rs`). Each has a mark
//! of fanotify, on itself and for what lies in it, set before the first entry of a page is read; and before a page is
//! shown everything is read that the kernel has queued by then. The kernel queues an event before the call that it tells
//! of returns, so no page is older than what a local process has finished.
//!
//! Nobody waits for these events: they are read by who shows a page, and once a second by a thread that lives as long as
//! anything is marked, and takes marks off that are of no use any more.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use holdfast_base::limits::{LISTED_DIRECTORIES_MAX, LISTED_IDLE_SECONDS, LOCAL_EVENT_BUFFER_BYTES};
use holdfast_vfs::Mark;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::events::{self, Event, Fid};
use super::thread::going_on;
use crate::credentials::Identity;
use crate::marks;
use crate::object::Object;
use crate::procfd::{FdName, ProcFd};
use crate::sys_notify::{self, Mark as Marking};

/// How often the thread looks.
const SWEEP: Duration = Duration::from_secs(1);

/// One group for the whole process: an object has one count of changes, whichever export shows it.
struct Listed {
    group: OwnedFd,
    /// `/proc/self/fd`.
    proc_fd: OwnedFd,
    identity: Identity,
    /// Guarded by itself. Events are read and counted under it: who finds none left knows that all are counted.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By file system and number.
    dirs: FxHashMap<(u64, u64), Watched>,
    buffer: Vec<u8>,
    has_thread: bool,
}

struct Watched {
    /// Keeps the inode, and so its number.
    dir: Arc<Object>,
    fid: Fid,
    used: Instant,
}

static LISTED: OnceLock<Option<Listed>> = OnceLock::new();

fn listed(identity: Identity, proc_fd: &ProcFd) -> Option<&'static Listed> {
    let start = || {
        let proc_fd = rustix::io::fcntl_dupfd_cloexec(proc_fd.dir(), 0).ok()?;
        let group = sys_notify::fanotify_group().ok()?;
        Some(Listed { group, proc_fd, identity, state: Mutex::default() })
    };
    LISTED.get_or_init(start).as_ref()
}

/// Sees to it that local processes' deeds in a directory are told of from now on; gives the mark that this rests on.
/// `None` where that cannot be had, or is not worth it: only a listing that goes on (`is_long`) begins it. The thread may
/// have the server's rights afterwards.
pub(crate) fn watch(
    dir: &Arc<Object>,
    is_long: bool,
    (identity, proc_fd): (Identity, &ProcFd),
) -> Option<Mark> {
    let listed = if is_long { listed(identity, proc_fd)? } else { LISTED.get()?.as_ref()? };
    let mut state = listed.state.lock();
    if let Some(watched) = state.dirs.get_mut(&key(dir)) {
        watched.used = Instant::now();
    } else {
        if !is_long || state.dirs.len() >= LISTED_DIRECTORIES_MAX || !listed.start_thread(&mut state) {
            return None;
        }
        let fid = Fid::of(dir)?;
        listed.mark(dir, Marking::Add)?;
        let watched = Watched { dir: Arc::clone(dir), fid, used: Instant::now() };
        state.dirs.insert(key(dir), watched);
    }
    // Under the lock: a watch that ends is counted under it as well.
    marks::of_watch(dir.ino)
}

/// Counts what local processes have done until now in what is watched.
pub(crate) fn catch_up() {
    if let Some(Some(listed)) = LISTED.get() {
        let mut state = listed.state.lock();
        let gone = listed.read_events(&mut state);
        drop(state);
        // Closed outside the lock: that may free what was removed.
        drop(gone);
    }
}

/// Lets a directory go that has lost its name.
pub(crate) fn forget(dir: &Object) {
    if let Some(Some(listed)) = LISTED.get() {
        let gone = listed.end(&mut listed.state.lock(), key(dir));
        drop(gone);
    }
}

fn key(dir: &Object) -> (u64, u64) {
    (dir.fs.key, dir.ino)
}

impl Listed {
    fn mark(&self, dir: &Object, what: Marking) -> Option<()> {
        self.identity.as_server();
        let name = FdName::new(dir.fd());
        sys_notify::fanotify_mark(&self.group, what, events::LISTING, (&self.proc_fd, Some(name.as_c_str())))
            .ok()
    }

    /// Ends one watch.
    fn end(&self, state: &mut State, key: (u64, u64)) -> Option<Watched> {
        let watched = state.dirs.remove(&key)?;
        marks::watch_ended(key.1);
        // Another export may show the same directory.
        if !state.dirs.values().any(|other| other.fid == watched.fid) {
            // The kernel has taken it already when the inode is gone.
            let _ = self.mark(&watched.dir, Marking::Remove);
        }
        Some(watched)
    }

    fn end_all(&self, state: &mut State) -> Vec<Watched> {
        let all: Vec<_> = state.dirs.keys().copied().collect();
        all.into_iter().filter_map(|key| self.end(state, key)).collect()
    }

    /// Reads and counts all that is queued. Gives back what is watched no more.
    fn read_events(&self, state: &mut State) -> Vec<Watched> {
        let ours = rustix::process::getpid().as_raw_nonzero().get();
        let mut gone = Vec::new();
        state.buffer.resize(LOCAL_EVENT_BUFFER_BYTES, 0);
        let mut buffer = std::mem::take(&mut state.buffer);
        while let Ok(bytes @ 1..) = rustix::io::read(&self.group, &mut *buffer) {
            for event in events::parse(&buffer[..bytes]) {
                // What is done through the server is counted where it is done, before and after.
                if event.pid != ours || event.mask & events::OVERFLOW != 0 {
                    self.count(&event, (state, &mut gone));
                }
            }
        }
        state.buffer = buffer;
        gone
    }

    fn count(&self, event: &Event, (state, gone): (&mut State, &mut Vec<Watched>)) {
        let number = event.fid.as_ref().and_then(Fid::number);
        let Some(ino) = number.filter(|_| event.mask & events::OVERFLOW == 0) else {
            gone.append(&mut self.end_all(state));
            return;
        };
        marks::changed_elsewhere(ino, event.mask & events::ENTRIES != 0);
        if event.mask & events::DELETE_SELF != 0 {
            let keys: Vec<_> = state.dirs.keys().copied().filter(|key| key.1 == ino).collect();
            gone.extend(keys.into_iter().filter_map(|key| self.end(state, key)));
        }
    }

    fn start_thread(&'static self, state: &mut State) -> bool {
        if !state.has_thread {
            let thread = std::thread::Builder::new().name("listed".to_owned()).spawn(move || self.run());
            state.has_thread = thread.is_ok();
        }
        state.has_thread
    }

    fn run(&self) {
        // It began as whoever started it.
        self.identity.as_server();
        let mut goes_on = true;
        while goes_on {
            std::thread::sleep(SWEEP);
            going_on(|| goes_on = self.sweep());
        }
    }

    /// Whether anything is still watched.
    fn sweep(&self) -> bool {
        let mut state = self.state.lock();
        let mut gone = self.read_events(&mut state);
        let idle = Duration::from_secs(LISTED_IDLE_SECONDS);
        // Of a removed directory, of which we have a descriptor, nothing is told.
        let is_gone = |dir: &Object| dir.look().map_or(true, |st| st.stx_nlink == 0);
        let unused = |(key, watched): (&(u64, u64), &Watched)| {
            (watched.used.elapsed() >= idle || is_gone(&watched.dir)).then_some(*key)
        };
        let unused: Vec<_> = state.dirs.iter().filter_map(unused).collect();
        gone.extend(unused.into_iter().filter_map(|key| self.end(&mut state, key)));
        state.has_thread = !state.dirs.is_empty();
        let goes_on = state.has_thread;
        drop(state);
        drop(gone);
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use holdfast_vfs::Wait;

    use super::*;
    use crate::{LocalBackend, LocalOptions};

    #[test]
    fn when_events_were_missed_nothing_that_rests_on_them_holds() {
        let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let backend = LocalBackend::open(dir.path(), LocalOptions::new(state.path().to_owned())).unwrap();
        let root = backend.resolve(Wait::Yes, &backend.root.handle).unwrap();
        let with = (backend.identity, &*backend.proc_fd);
        assert!(watch(&root, false, with).is_none(), "a short listing begins nothing");
        let mark = watch(&root, true, with).expect("fanotify");
        assert_eq!(watch(&root, false, with), Some(mark));
        catch_up();
        assert!(marks::holds(mark));
        let listed = LISTED.get().unwrap().as_ref().unwrap();
        let missed = Event { mask: events::OVERFLOW, pid: 0, fid: None };
        let mut gone = Vec::new();
        listed.count(&missed, (&mut listed.state.lock(), &mut gone));
        assert!(!marks::holds(mark) && gone.iter().any(|watched| watched.dir.ino == root.ino));
        assert!(watch(&root, false, with).is_none());
    }
}
