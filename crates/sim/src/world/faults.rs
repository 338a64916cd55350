//! A disk that fails, and one that is full.

use super::{Noted, World};
use crate::disk::Fault;

impl World {
    /// The next operation of that kind fails on the disk.
    pub fn fail_next(&self, fault: Fault) {
        let words = format!("disk: {fault:?} is to fail next");
        self.note(Noted::Fault, words.as_bytes());
        self.tell(|| words);
        self.machine.disk.fail_next(fault);
    }

    /// The disk has no room for so long.
    pub fn fill_disk(&self, ms: u64) {
        self.note(Noted::Fault, &ms.to_be_bytes());
        self.tell(|| format!("disk: is full for {ms} ms"));
        self.machine.disk.set_full(true);
        self.later(ms, |world| {
            world.tell(|| "disk: has room again".into());
            world.machine.disk.set_full(false);
        });
    }
}
