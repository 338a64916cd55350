//! Threads that wait for the machine, and are all woken when it has moved.

use std::thread::Thread;
use std::time::Instant;

use holdfast_client::Cancel;
use parking_lot::Mutex;

/// Those who wait.
#[derive(Debug, Default)]
pub(crate) struct Crowd(Mutex<Vec<Thread>>);

/// One of them, until dropped.
struct Member<'a>(&'a Crowd);

impl Drop for Member<'_> {
    fn drop(&mut self) {
        let own = std::thread::current().id();
        let mut waiting = self.0.0.lock();
        if let Some(place) = waiting.iter().position(|thread| thread.id() == own) {
            waiting.swap_remove(place);
        }
    }
}

impl Crowd {
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Has all look again.
    pub(crate) fn wake_all(&self) {
        self.0.lock().iter().for_each(Thread::unpark);
    }

    /// Waits until `ready` brings something; `None` when the token is given or the deadline passes first.
    pub(crate) fn wait<T>(
        &self,
        cancel: &Cancel,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(value) = ready() {
            return Some(value);
        }
        self.0.lock().push(std::thread::current());
        let _member = Member(self);
        cancel.wait(deadline, ready).ok()
    }
}
