//! Operations of the client's own accord: closing what was dropped, undoing what came too late. They wait like any
//! other, so they have a thread of their own.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use crate::client::Inner;

pub(crate) type Chore = Box<dyn FnOnce(&Inner) + Send>;

/// What is to be done.
#[derive(Default)]
pub(crate) struct Chores {
    queue: Mutex<Queue>,
    is_filled: Condvar,
}

#[derive(Default)]
struct Queue {
    chores: VecDeque<Chore>,
    is_over: bool,
}

impl Chores {
    /// Adds one; after the end it is dropped.
    pub(crate) fn add(&self, chore: Chore) {
        let mut queue = self.queue.lock();
        if !queue.is_over {
            queue.chores.push_back(chore);
            self.is_filled.notify_one();
        }
    }

    pub(crate) fn end(&self) {
        let mut queue = self.queue.lock();
        queue.is_over = true;
        let dropped = std::mem::take(&mut queue.chores);
        drop(queue);
        drop(dropped);
        self.is_filled.notify_all();
    }

    fn next(&self) -> Option<Chore> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_over {
                return None;
            }
            if let Some(chore) = queue.chores.pop_front() {
                return Some(chore);
            }
            self.is_filled.wait(&mut queue);
        }
    }
}

impl Inner {
    /// The thread.
    pub(crate) fn run_chores(&self) {
        while let Some(chore) = self.chores.next() {
            chore(self);
        }
    }
}
