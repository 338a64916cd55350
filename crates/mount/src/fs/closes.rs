//! Which closes the kernel need not tell (`FOPEN_NOFLUSH`): one of the three requests that it costs to read a file whose pages
//! are kept, and the kernel waits for it.
//!
//! FLUSH says three things. That data is to be sent: not of an open that only reads. That somebody may be told what has failed:
//! the cache says whether there is anything. And that a process has closed a descriptor, by which it lets go of *all* its
//! POSIX locks of that file, whichever descriptor they were taken through. So a file of which such a lock was ever asked for
//! here has all its closes told from then on; and once one was asked for through an open that can only read, every file has,
//! for that open was perhaps not told of itself. What was open before stays as it is: the locks then end with the descriptors
//! that they were taken through. Too late, at worst, never too soon.

use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::limits::LOCKED_FILES_MAX;
use holdfast_fuse::NodeId;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;

/// What keeps closes from being passed over.
#[derive(Debug, Default)]
pub(super) struct Closes {
    /// Of all files.
    are_all_told: AtomicBool,
    is_any_locked: AtomicBool,
    /// Of these.
    locked: Mutex<FxHashSet<NodeId>>,
}

impl Closes {
    /// Whether the close of an open is to be told, for its locks' sake.
    pub(super) fn is_told(&self, at: NodeId) -> bool {
        if self.are_all_told.load(Ordering::SeqCst) {
            return true;
        }
        // Most mounts never see a lock.
        self.is_any_locked.load(Ordering::SeqCst) && self.locked.lock().contains(&at)
    }

    /// A POSIX lock of a file is about to be asked for.
    pub(super) fn lock_asked(&self, at: NodeId, may_write: bool) {
        if self.are_all_told.load(Ordering::SeqCst) {
            return;
        }
        let mut locked = self.locked.lock();
        locked.insert(at);
        self.is_any_locked.store(true, Ordering::SeqCst);
        if !may_write || locked.len() > LOCKED_FILES_MAX {
            self.are_all_told.store(true, Ordering::SeqCst);
            *locked = FxHashSet::default();
        }
    }

    /// The kernel knows a file no more: nobody has it open.
    pub(super) fn forgotten(&self, at: NodeId) {
        if self.is_any_locked.load(Ordering::SeqCst) {
            self.locked.lock().remove(&at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closes_of_a_file_are_told_once_a_lock_of_it_was_asked_for() {
        let closes = Closes::default();
        assert!(!closes.is_told(NodeId(2)));
        closes.lock_asked(NodeId(2), true);
        assert!(closes.is_told(NodeId(2)) && !closes.is_told(NodeId(3)));
        closes.forgotten(NodeId(2));
        assert!(!closes.is_told(NodeId(2)));
    }

    #[test]
    fn all_closes_are_told_once_one_was_locked_that_can_only_be_read_or_too_many_were() {
        let closes = Closes::default();
        closes.lock_asked(NodeId(2), false);
        closes.forgotten(NodeId(2));
        assert!(closes.is_told(NodeId(3)));
        let closes = Closes::default();
        (0..=LOCKED_FILES_MAX as u64).for_each(|number| closes.lock_asked(NodeId(number), true));
        assert!(closes.is_told(NodeId(u64::MAX)));
    }
}
