//! Having others forget: the one thread that tells the kernel what not to believe any more. It serves no requests, for
//! some of what it says waits for requests under way.

use std::collections::VecDeque;

use holdfast_cache::{Forget, Invalidation};
use parking_lot::{Condvar, Mutex};

use crate::volume::Shared;

/// Whoever believes what the volume told.
pub trait Invalidate: Send + Sync + 'static {
    /// Makes it forget. May wait for requests under way.
    fn forget(&self, what: &Forget);
}

/// What is to be forgotten, in order.
#[derive(Debug, Default)]
pub(crate) struct Forgets {
    queue: Mutex<(VecDeque<Invalidation>, bool)>,
    bell: Condvar,
}

impl Forgets {
    pub(crate) fn add(&self, more: Vec<Invalidation>) {
        if !more.is_empty() {
            self.queue.lock().0.extend(more);
            self.bell.notify_one();
        }
    }

    pub(crate) fn end(&self) {
        self.queue.lock().1 = true;
        self.bell.notify_all();
    }

    fn next(&self) -> Option<Invalidation> {
        let mut queue = self.queue.lock();
        loop {
            if queue.1 {
                return None;
            }
            match queue.0.pop_front() {
                Some(next) => return Some(next),
                None => self.bell.wait(&mut queue),
            }
        }
    }
}

/// Works until the volume is closed.
pub(crate) fn run(shared: &Shared, others: &dyn Invalidate) {
    while let Some(next) = shared.forgets.next() {
        shared.machine.lock().forgetting(next.number);
        others.forget(&next.what);
        let mut machine = shared.machine.lock();
        machine.invalidated(next.number);
        shared.look_for_work(machine);
    }
}
