//! What mounts of one world have to do with each other.

use std::rc::Rc;

use super::World;
use crate::life::Life;
use crate::mount::Mount;

/// It is compared who relies on what as often as one in so many times that somebody was touched.
const COMPARED_EVERY: u64 = 4;

/// How long is waited between two looks whether all is as it was, in milliseconds.
const SETTLED_LOOK_MS: u64 = 100;

impl World {
    pub(crate) fn living_mounts(&self) -> Vec<Rc<Mount>> {
        self.mounts.borrow().iter().filter_map(std::rc::Weak::upgrade).collect()
    }

    /// Compares what mounts rely on, now and then.
    pub(crate) fn compare_mounts(&self) {
        self.looks_at_mounts.set(self.looks_at_mounts.get() + 1);
        if self.looks_at_mounts.get().is_multiple_of(COMPARED_EVERY) {
            let held: Vec<_> = self.living_mounts().iter().map(|mount| (mount.host, mount.held())).collect();
            self.oracles.relied_on(&held);
        }
    }

    /// Waits until what was lost with the server's power is there again: nobody can ask a mount for what it has given back, and would
    /// have to do once more.
    pub(crate) async fn undisturbed(&self) {
        while self.is_disturbed.get() {
            let is_up = self.with_life(Life::may_be_handed_over).unwrap_or_default();
            if is_up && self.living_mounts().iter().all(|mount| !mount.has_more()) {
                self.is_disturbed.set(false);
                return;
            }
            self.exec.sleep(SETTLED_LOOK_MS).await;
        }
    }
}
