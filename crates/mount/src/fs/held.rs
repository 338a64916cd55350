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

/// How often it is looked whether somebody who waits for his own number has given up.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Locks of a mount.
#[derive(Default)]
pub(super) struct Held {
    /// Who has taken some through an open file.
    owners: Mutex<FxHashMap<FileHandle, Vec<LockOwner>>>,
    /// Open files and processes that have ended, whose locks are being given back: which owners', of a file.
    ending: Mutex<FxHashMap<NodeId, Vec<LockOwner>>>,
    ended: Condvar,
}

/// Locks of a file are being given back, until this ends.
pub(super) struct Ending {
    held: Arc<Held>,
    at: NodeId,
    owner: LockOwner,
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

    pub(super) fn ending(self: &Arc<Self>, at: NodeId, owner: LockOwner) -> Ending {
        self.ending.lock().entry(at).or_default().push(owner);
        Ending { held: Arc::clone(self), at, owner }
    }

    /// Whether locks of a file are being given back.
    pub(super) fn is_ending(&self, at: NodeId) -> bool {
        self.ending.lock().contains_key(&at)
    }

    /// Waits until those are; but not for ever, as nobody can be freed from this.
    pub(super) fn wait(&self, at: NodeId) {
        let mut ending = self.ending.lock();
        let is_under_way = |ending: &mut FxHashMap<_, _>| ending.contains_key(&at);
        self.ended.wait_while_for(&mut ending, is_under_way, Duration::from_millis(LOCKS_ENDING_MS));
    }

    /// Waits until locks of this owner are given back. The kernel soon gives a new process the number that an ended one had, and
    /// what the one takes must not go with what the other had; so it is waited for as long as it lasts, or `is_over` says.
    pub(super) fn wait_for(&self, at: NodeId, owner: LockOwner, is_over: impl Fn() -> bool) {
        let mut ending = self.ending.lock();
        while ending.get(&at).is_some_and(|owners| owners.contains(&owner)) && !is_over() {
            self.ended.wait_for(&mut ending, LOOK_EVERY);
        }
    }
}

impl Ending {
    pub(super) const fn owner(&self) -> LockOwner {
        self.owner
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut ending = self.held.ending.lock();
        if let Some(owners) = ending.get_mut(&self.at) {
            if let Some(place) = owners.iter().position(|owner| *owner == self.owner) {
                owners.swap_remove(place);
            }
            if owners.is_empty() {
                ending.remove(&self.at);
            }
        }
        self.held.ended.notify_all();
    }
}
