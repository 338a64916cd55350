//! Waiting for locks of local processes. The kernel wakes only who waits in it, which would take a thread for each;
//! so they are looked at, with growing pauses.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use holdfast_base::ByteRange;
use holdfast_base::limits::{LOCAL_UNLOCK_POLL_MS_MAX, LOCAL_UNLOCK_POLL_MS_MIN, LOCAL_UNLOCKS_AWAITED_MAX};
use holdfast_vfs::{FileObject, FsError, FsResult, LockKind};

use super::Shared;
use super::thread::going_on;
use crate::local::LocalBackend;
use crate::locks::Unsure;
use crate::opening::local_file;

struct Awaited {
    file: Weak<dyn FileObject>,
    range: ByteRange,
    kind: LockKind,
    next: Instant,
    pause: Duration,
}

/// All that are waited for.
#[derive(Default)]
pub(super) struct Unlocks(Vec<Awaited>);

const FIRST_PAUSE: Duration = Duration::from_millis(LOCAL_UNLOCK_POLL_MS_MIN);
const LONGEST_PAUSE: Duration = Duration::from_millis(LOCAL_UNLOCK_POLL_MS_MAX);

impl Unlocks {
    /// How long until the next look; `None` when nothing is waited for.
    pub(super) fn pause(&self) -> Option<Duration> {
        let next = self.0.iter().map(|awaited| awaited.next).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn add(&mut self, file: &Arc<dyn FileObject>, range: ByteRange, kind: LockKind) -> FsResult<()> {
        let is_same = |a: &Awaited| {
            a.range == range && a.kind == kind && std::ptr::addr_eq(a.file.as_ptr(), Arc::as_ptr(file))
        };
        self.0.retain(|awaited| awaited.file.strong_count() > 0 && !is_same(awaited));
        if self.0.len() >= LOCAL_UNLOCKS_AWAITED_MAX {
            return Err(FsError::Delay);
        }
        let next = Instant::now() + FIRST_PAUSE;
        self.0.push(Awaited { file: Arc::downgrade(file), range, kind, next, pause: FIRST_PAUSE });
        Ok(())
    }

    /// Takes out those whose time has come.
    fn due(&mut self, now: Instant) -> Vec<Awaited> {
        self.0.extract_if(.., |awaited| awaited.next <= now).collect()
    }
}

impl LocalBackend {
    /// See [`holdfast_vfs::Backend::await_unlock`].
    pub(crate) fn do_await_unlock(
        &self,
        file: &Arc<dyn FileObject>,
        range: ByteRange,
        kind: LockKind,
    ) -> FsResult<()> {
        local_file(file)?;
        let shared = &self.watch.0;
        shared.listening(&self.proc_fd).ok_or(FsError::Delay)?;
        shared.unlocks.lock().add(file, range, kind)?;
        shared.wake();
        Ok(())
    }
}

impl Shared {
    pub(super) fn look_at_unlocks(&self) {
        let now = Instant::now();
        let due = self.unlocks.lock().due(now);
        for mut awaited in due {
            let Some(file) = awaited.file.upgrade() else { continue };
            let Ok(local) = local_file(&file) else { continue };
            // What cannot be asked is told as free: who waits tries, and is told what is wrong.
            if let Ok(Some(_)) = self.lockers.test(local, (awaited.range, awaited.kind), Unsure::Held) {
                awaited.pause = (awaited.pause * 2).min(LONGEST_PAUSE);
                awaited.next = now + awaited.pause;
                self.unlocks.lock().0.push(awaited);
            } else if let Some(listener) = self.current_listener() {
                going_on(|| listener.local_unlock(local.object.handle.key(), awaited.range));
            }
        }
    }
}
