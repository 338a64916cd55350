//! Waiting for recalls: briefly, and by few.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_base::waiting;
use parking_lot::{Condvar, Mutex};

/// Those who wait for something promised to be given back.
#[derive(Debug)]
pub(crate) struct Recalls {
    /// Counts everything that ends.
    ended: Mutex<u64>,
    changed: Condvar,
    waiting: AtomicUsize,
    seats: usize,
    /// Nobody is to wait now.
    is_held: AtomicBool,
}

/// A place among those who may wait.
struct Seat<'r>(&'r AtomicUsize);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Recalls {
    pub(crate) fn new(seats: usize) -> Self {
        Self {
            ended: Mutex::new(0),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            seats,
            is_held: AtomicBool::new(false),
        }
    }

    /// How much has ended: to be asked for before asking whether something has.
    pub(crate) fn count(&self) -> u64 {
        *self.ended.lock()
    }

    /// Waits until something ends that had not when `seen` was counted. False when nothing did in time, or when this
    /// thread may not wait.
    pub(crate) fn wait(&self, seen: u64, ms: u64) -> bool {
        let Some(_seat) = self.seat() else { return false };
        waiting::about_to_wait();
        let mut ended = self.ended.lock();
        let is_waiting = |ended: &mut u64| *ended == seen && !self.is_held.load(Ordering::SeqCst);
        self.changed.wait_while_for(&mut ended, is_waiting, Duration::from_millis(ms));
        *ended != seen
    }

    /// Something ended.
    pub(crate) fn end(&self) {
        *self.ended.lock() += 1;
        self.changed.notify_all();
    }

    /// Has all who wait give up, and nobody begin to, or ends that.
    pub(crate) fn hold(&self, is_held: bool) {
        // Under the lock, so that nobody who has just looked falls asleep on it.
        let _ended = self.ended.lock();
        self.is_held.store(is_held, Ordering::SeqCst);
        self.changed.notify_all();
    }

    fn seat(&self) -> Option<Seat<'_>> {
        if self.is_held.load(Ordering::SeqCst) {
            return None;
        }
        let taken = self.waiting.fetch_add(1, Ordering::Relaxed);
        let seat = Seat(&self.waiting);
        (taken < self.seats).then_some(seat)
    }
}
