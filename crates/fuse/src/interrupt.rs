//! INTERRUPT: how a signalled or killed process gets its system call back.
//!
//! The kernel sends INTERRUPT for a request that a thread of the daemon has read and not answered. It is told to that
//! request, whose method then returns EINTR. As threads read side by side, an INTERRUPT may be looked at before the
//! thread that read its request has got as far as to register it: such early ones are kept until the request appears,
//! or given back to the kernel (EAGAIN), which sends them again while the request lives.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use holdfast_base::limits::{FUSE_EARLY_INTERRUPT_MS, FUSE_EARLY_INTERRUPTS_MAX};
use parking_lot::{Condvar, Mutex, RwLock};
use rustix::io::Errno;

type Wake = Box<dyn FnOnce() + Send>;

/// What one serving thread is at.
#[derive(Default)]
pub(crate) struct Slot {
    /// The request it serves; 0 for none.
    unique: AtomicU64,
    /// The last request of it that was interrupted.
    struck: AtomicU64,
    /// Whether `watchers` may hold any.
    is_watched: AtomicBool,
    /// Who is to be woken, by registration.
    watchers: Mutex<(u64, Vec<(u64, Wake)>)>,
    woken: Condvar,
}

impl Slot {
    /// Marks the request as interrupted, if it is still the one that is served.
    fn strike(&self, unique: u64) -> bool {
        let mut watchers = self.watchers.lock();
        if unique == 0 || self.unique.load(Ordering::SeqCst) != unique {
            return false;
        }
        self.struck.store(unique, Ordering::Release);
        let wake = std::mem::take(&mut watchers.1);
        drop(watchers);
        self.woken.notify_all();
        for (_, wake) in wake {
            wake();
        }
        true
    }

    /// No request is served any more.
    fn end(&self) {
        if self.is_watched.swap(false, Ordering::Relaxed) {
            // A registration that outlives its request must not be woken for the next one.
            let mut watchers = self.watchers.lock();
            self.unique.store(0, Ordering::SeqCst);
            watchers.1.clear();
        } else {
            self.unique.store(0, Ordering::SeqCst);
        }
    }
}

/// Whether one request was interrupted, and a way to be woken when it is. May outlive the request, and then never
/// says so again.
#[derive(Clone)]
pub struct Interrupt {
    slot: Arc<Slot>,
    unique: u64,
}

impl Interrupt {
    pub(crate) const fn new(slot: Arc<Slot>, unique: u64) -> Self {
        Self { slot, unique }
    }

    /// Whether the caller was signalled. Costs one read of memory.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.slot.struck.load(Ordering::Acquire) == self.unique
    }

    /// For loops: stops with EINTR once the caller was signalled.
    ///
    /// # Errors
    /// EINTR.
    pub fn check(&self) -> Result<(), Errno> {
        if self.is_set() { Err(Errno::INTR) } else { Ok(()) }
    }

    /// Has `wake` called once when the caller is signalled: at once when it was already, not at all when the watch is
    /// dropped, or the request answered, before. It is called on a serving thread: it may take short locks and notify,
    /// and must not wait.
    #[must_use = "dropping the watch ends it"]
    pub fn watch(&self, wake: impl FnOnce() + Send + 'static) -> Watch {
        self.slot.is_watched.store(true, Ordering::Relaxed);
        let mut watchers = self.slot.watchers.lock();
        watchers.0 += 1;
        let id = watchers.0;
        if self.is_set() {
            drop(watchers);
            wake();
        } else if self.slot.unique.load(Ordering::SeqCst) == self.unique {
            watchers.1.push((id, Box::new(wake)));
        }
        Watch { slot: Arc::clone(&self.slot), id }
    }

    /// Sleeps until the caller is signalled (true) or the time is over (false).
    #[must_use]
    pub fn sleep(&self, time: Duration) -> bool {
        // Beyond a century nobody tells the difference, and the sum stays a valid time.
        let until = Instant::now() + time.min(Duration::from_secs(1 << 32));
        let mut watchers = self.slot.watchers.lock();
        while !self.is_set() {
            if self.slot.woken.wait_until(&mut watchers, until).timed_out() {
                return self.is_set();
            }
        }
        true
    }
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Interrupt({}, {})", self.unique, self.is_set())
    }
}

/// A registration with [`Interrupt::watch`]; ends when dropped. A call that has begun is not waited for.
#[must_use]
pub struct Watch {
    slot: Arc<Slot>,
    id: u64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.slot.watchers.lock().1.retain(|(id, _)| *id != self.id);
    }
}

/// An INTERRUPT whose request has not been seen.
struct Early {
    /// The request it is for.
    unique: u64,
    /// Its own number, to be answered by.
    own_unique: u64,
    at: Instant,
}

/// All serving threads of a session, to find whom an INTERRUPT is for.
#[derive(Default)]
pub(crate) struct Board {
    slots: RwLock<Vec<Arc<Slot>>>,
    early: Mutex<VecDeque<Early>>,
    early_count: AtomicUsize,
}

impl Board {
    pub(crate) fn join(&self) -> Arc<Slot> {
        let slot = Arc::new(Slot::default());
        self.slots.write().push(Arc::clone(&slot));
        slot
    }

    pub(crate) fn leave(&self, slot: &Arc<Slot>) {
        self.slots.write().retain(|one| !Arc::ptr_eq(one, slot));
    }

    /// The thread begins with a request. Answers INTERRUPTs to be given back to the kernel, by their own numbers.
    ///
    /// Either this sees an early INTERRUPT, or [`Board::interrupt`] sees the request: both write what the other reads
    /// before they read.
    #[must_use]
    pub(crate) fn begin(&self, slot: &Slot, unique: u64) -> Vec<u64> {
        slot.unique.store(unique, Ordering::SeqCst);
        if self.early_count.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let mut early = self.early.lock();
        let before = early.len();
        early.retain(|one| one.unique != unique);
        if early.len() < before {
            slot.strike(unique);
        }
        let given_back = Self::expire(&mut early, Instant::now());
        self.early_count.store(early.len(), Ordering::SeqCst);
        given_back
    }

    /// Interrupts every request that is being served.
    pub(crate) fn strike_all(&self) {
        for slot in self.slots.read().iter() {
            slot.strike(slot.unique.load(Ordering::SeqCst));
        }
    }

    #[expect(clippy::unused_self, reason = "the counterpart of begin")]
    pub(crate) fn end(&self, slot: &Slot) {
        slot.end();
    }

    /// An INTERRUPT arrived. Answers INTERRUPTs to be given back to the kernel, by their own numbers.
    #[must_use]
    pub(crate) fn interrupt(&self, unique: u64, own_unique: u64) -> Vec<u64> {
        let now = Instant::now();
        let mut early = self.early.lock();
        early.push_back(Early { unique, own_unique, at: now });
        self.early_count.store(early.len(), Ordering::SeqCst);
        // The callbacks run without the lock on the early ones: they belong to others.
        drop(early);
        let is_found = self.slots.read().iter().any(|slot| slot.strike(unique));
        let mut early = self.early.lock();
        if is_found {
            early.retain(|one| one.unique != unique);
        }
        let given_back = Self::expire(&mut early, now);
        self.early_count.store(early.len(), Ordering::SeqCst);
        given_back
    }

    /// Those whose request should have been here by now, or is answered already (which is where most end), and those
    /// beyond the bound. The kernel knows which.
    fn expire(early: &mut VecDeque<Early>, now: Instant) -> Vec<u64> {
        let mut given_back = Vec::new();
        let patience = Duration::from_millis(FUSE_EARLY_INTERRUPT_MS);
        while let Some(first) = early.front()
            && (early.len() > FUSE_EARLY_INTERRUPTS_MAX || now.duration_since(first.at) > patience)
        {
            given_back.push(first.own_unique);
            early.pop_front();
        }
        given_back
    }
}

#[cfg(test)]
mod tests;
