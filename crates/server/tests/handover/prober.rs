//! A process of the server's host, as far as locks go: it tries to get a lock as fast as it can.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// A thread that never stops trying.
pub(crate) struct Prober {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<(u64, u64)>,
}

/// Tries once to write-lock the whole file, through an open file description of its own; lets go at once.
fn try_once(file: &File) -> bool {
    let ask = |kind: libc::c_int| {
        let mut lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        #[allow(unsafe_code)]
        // SAFETY: the pointer is to a lock that lives throughout the call.
        unsafe {
            libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) == 0
        }
    };
    let is_had = ask(libc::F_WRLCK);
    if is_had {
        ask(libc::F_UNLCK);
    }
    is_had
}

impl Prober {
    pub(crate) fn of(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let ends = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ends);
        let probe = move || {
            let (mut tried, mut had) = (0, 0);
            while !until.load(Ordering::Relaxed) {
                tried += 1;
                had += u64::from(try_once(&file));
            }
            (tried, had)
        };
        Self { ends, thread: std::thread::spawn(probe) }
    }

    /// How often it tried, and how often it got the lock.
    pub(crate) fn end(self) -> (u64, u64) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Whether a local process can have the lock now.
pub(crate) fn is_free(path: &Path) -> bool {
    try_once(&File::options().read(true).write(true).open(path).unwrap())
}
