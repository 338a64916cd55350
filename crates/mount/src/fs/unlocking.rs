//! Locks given back for those who cannot wait for it: a few threads, however many files a killed process had locked. What is
//! owed is as much as files are locked, which the server bounds. Nothing is given up while the mount lives, for nobody else
//! would give it back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::ByteRange;
use holdfast_base::limits::UNLOCK_THREADS_MAX;
use holdfast_volume::{LockOwner, Volume, Waiting, cache};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::Opener;
use super::convert::errno;
use super::held::Ending;

/// How long after the server was silent it is asked again to take locks back.
const AGAIN: Duration = Duration::from_secs(1);

/// All locks of an owner on a file that are to be given back.
pub(super) struct Owed {
    /// Who is gone, and until when it is tried.
    pub(super) opener: Opener,
    pub(super) node: cache::NodeId,
    pub(super) ending: Ending,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Owed>,
    threads: usize,
}

/// Gives back what is owed, in the order in which it came, until the server has answered or the mount ends.
pub(super) struct Unlocking {
    state: Mutex<State>,
    threads_max: usize,
    give_back: Box<dyn Fn(&Owed) -> bool + Send + Sync>,
}

impl Unlocking {
    pub(super) fn new(volume: Volume) -> Arc<Self> {
        Self::with(UNLOCK_THREADS_MAX, move |owed| {
            drop_all(&volume, &owed.opener, owed.node, owed.ending.owner())
                || owed.opener.cancel.is_cancelled()
        })
    }

    fn with(threads_max: usize, give_back: impl Fn(&Owed) -> bool + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), threads_max, give_back: Box::new(give_back) })
    }

    pub(super) fn owe(self: &Arc<Self>, owed: Owed) {
        let mut state = self.state.lock();
        state.waiting.push_back(owed);
        // None is idle: each ends when it finds nothing.
        if state.threads < self.threads_max {
            let unlocking = Arc::clone(self);
            match std::thread::Builder::new().name("unlock".into()).spawn(move || unlocking.run()) {
                Ok(_) => state.threads += 1,
                // Those that run come to it.
                Err(_) if state.threads > 0 => {}
                Err(error) => {
                    tracing::warn!(%error, "locks of a process that ended stay until nobody here has its file open");
                    let given_up = state.waiting.pop_back();
                    drop(state);
                    drop(given_up);
                }
            }
        }
    }

    fn run(&self) {
        while let Some(owed) = self.next() {
            while !(self.give_back)(&owed) {
                std::thread::sleep(AGAIN);
            }
        }
    }

    /// The next to be given back; none, and this thread counts no more.
    fn next(&self) -> Option<Owed> {
        let mut state = self.state.lock();
        let next = state.waiting.pop_front();
        state.threads -= usize::from(next.is_none());
        next
    }
}

/// Whether that is done with; `false` where it was given up, or the server was silent for longer than the mount waits.
pub(super) fn drop_all(volume: &Volume, who: &dyn Waiting, node: cache::NodeId, owner: LockOwner) -> bool {
    match volume.unlock(who, node, owner, ByteRange::ALL).map_err(errno) {
        Ok(()) => true,
        Err(errno) => {
            tracing::debug!(%errno, "locks were not given back");
            !matches!(errno, Errno::INTR | Errno::TIMEDOUT)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use holdfast_fuse::NodeId;
    use holdfast_volume::cache::Caller;
    use holdfast_volume::{Cancel, LockClass};

    use super::super::held::Held;
    use super::*;

    #[test]
    fn a_process_with_many_files_costs_a_few_threads_and_each_is_tried_until_it_is_done() {
        const FILES: u64 = 100;
        const OWNER: LockOwner = LockOwner { owner: 7, class: LockClass::Range };
        let held: Arc<Held> = Arc::default();
        let (busy, most) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let (tries, all_three) = (Arc::new(AtomicUsize::new(0)), Barrier::new(3));
        let (seen, tried) = (Arc::clone(&most), Arc::clone(&tries));
        let unlocking = Unlocking::with(3, move |_| {
            seen.fetch_max(1 + busy.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
            let before = tried.fetch_add(1, Ordering::SeqCst);
            if before < 3 {
                all_three.wait();
            }
            busy.fetch_sub(1, Ordering::SeqCst);
            // The first time it is said that the server was silent.
            before > 0
        });
        for file in 1..=FILES {
            let ending = held.ending(NodeId(file), OWNER);
            let opener = Opener { caller: Caller::new(0, 0), cancel: Cancel::new() };
            unlocking.owe(Owed { opener, node: cache::NodeId(file), ending });
            // The first of them last: each has a thread of its own all the same.
            let until = std::time::Instant::now() + Duration::from_secs(20);
            while tries.load(Ordering::SeqCst) < file.min(3) as usize {
                assert!(std::time::Instant::now() < until, "{file} waits for those before it");
                std::thread::yield_now();
            }
        }
        (1..=FILES).for_each(|file| held.wait_for(NodeId(file), OWNER, || false));
        assert!((1..=FILES).all(|file| !held.is_ending(NodeId(file))));
        assert_eq!(tries.load(Ordering::SeqCst), FILES as usize + 1);
        assert_eq!(most.load(Ordering::SeqCst), 3);
    }
}
