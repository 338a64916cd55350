//! Waking one connection's task from any thread, cheaply, and without a wake-up lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;

/// Set by anybody, awaited by one task.
#[derive(Debug, Default)]
pub(crate) struct Kick {
    is_set: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Kick {
    /// Wakes the task, now or as soon as it next waits.
    pub(crate) fn kick(&self) {
        if !self.is_set.swap(true, Ordering::AcqRel)
            && let Some(waker) = self.waker.lock().take()
        {
            waker.wake();
        }
    }

    /// Whether it was kicked since the last time; registers the task in any case. The waker is stored before the
    /// flag is read, so a kick in between is seen here or wakes.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> bool {
        let mut slot = self.waker.lock();
        if !slot.as_ref().is_some_and(|w| w.will_wake(cx.waker())) {
            *slot = Some(cx.waker().clone());
        }
        drop(slot);
        self.is_set.swap(false, Ordering::AcqRel)
    }
}
