//! Which locks were taken through which open files, and which are being given back.
//!
//! The end of an open file is told after its `close` has returned, and that of a process cannot wait for the server. Who asks
//! for a lock then must not find one that is on its way out: the kernel has told of that end before.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::limits::LOCKS_ENDING_MS;
use holdfast_fuse::{FileHandle, NodeId};
use holdfast_volume::LockOwner;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

/// Locks of a mount.
#[derive(Default)]
pub(super) struct Held {
    /// Who has taken some through an open file.
    owners: Mutex<FxHashMap<FileHandle, Vec<LockOwner>>>,
    /// Open files and processes that have ended, whose locks are being given back.
    ending: Mutex<FxHashMap<NodeId, u32>>,
    ended: Condvar,
}

/// Locks of a file are being given back, until this ends.
pub(super) struct Ending {
    held: Arc<Held>,
    at: NodeId,
}

impl Held {
    /// Somebody has taken a lock.
    pub(super) fn taken(&self, file: FileHandle, owner: LockOwner) {
        let mut owners = self.owners.lock();
        let of_file = owners.entry(file).or_default();
        if !of_file.contains(&owner) {
            of_file.push(owner);
        }
    }

    /// A process has closed the file, and so given back its locks; those that it takes from now on by another open file are not
    /// to go with this one.
    pub(super) fn closed_by(&self, file: FileHandle, owner: LockOwner) {
        if let Some(of_file) = self.owners.lock().get_mut(&file) {
            of_file.retain(|other| *other != owner);
        }
    }

    /// An open file has ended: who had taken locks through it.
    pub(super) fn of_ended(&self, file: FileHandle) -> Vec<LockOwner> {
        self.owners.lock().remove(&file).unwrap_or_default()
    }

    pub(super) fn ending(self: &Arc<Self>, at: NodeId) -> Ending {
        *self.ending.lock().entry(at).or_default() += 1;
        Ending { held: Arc::clone(self), at }
    }

    /// Whether locks of a file are being given back.
    pub(super) fn is_ending(&self, at: NodeId) -> bool {
        self.ending.lock().contains_key(&at)
    }

    /// Waits until those are; but not for ever, as nobody can be freed from this.
    pub(super) fn wait(&self, at: NodeId) {
        let mut ending = self.ending.lock();
        let is_under_way = |ending: &mut FxHashMap<NodeId, u32>| ending.contains_key(&at);
        self.ended.wait_while_for(&mut ending, is_under_way, Duration::from_millis(LOCKS_ENDING_MS));
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut ending = self.held.ending.lock();
        if let Some(count) = ending.get_mut(&self.at) {
            *count -= 1;
            if *count == 0 {
                ending.remove(&self.at);
            }
        }
        self.held.ended.notify_all();
    }
}
