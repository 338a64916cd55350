//! Locks of those who do not come by NFSv4 stateids. Their own services keep their names and leases; here they are
//! only in each other's way.

use holdfast_base::limits::{LOCK_HOLDERS_PER_FILE_MAX, LOCK_RANGES_PER_OWNER_FILE_MAX};
use holdfast_base::{ByteRange, FileKey, Instant};

use crate::engine::Engine;
use crate::error::StateError;
use crate::file::Holder;
use crate::lock::{LockRefusal, WantedLock};
use crate::lock_set::{LockKind, LockSet};
use crate::range_map::RangeMap;

/// By which door a foreign owner came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Door {
    /// NLM, beside NFSv3.
    Nlm,
    /// 9P2000.L.
    P9,
    /// A Holdfast mount.
    Caps,
}

/// An owner of another door, by a number that its service gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ForeignOwner {
    /// The door.
    pub door: Door,
    /// The number; never given to another while its owner holds anything.
    pub id: u64,
}

impl Engine {
    /// Gives a foreign owner a lock, replacing what it held of the range.
    ///
    /// # Errors
    /// `Denied`; `Resource`.
    pub fn foreign_lock(
        &mut self,
        owner: ForeignOwner,
        file: FileKey,
        range: ByteRange,
        kind: LockKind,
        now: Instant,
    ) -> Result<(), LockRefusal> {
        let holder = Holder::Foreign(owner);
        let wanted = WantedLock { file, holder: Some(holder), asking: None, range, kind };
        if let Some(conflict) = self.find_conflict(&wanted, now) {
            return Err(LockRefusal::Denied(conflict));
        }
        let held = self.files.get(&file).map(|file| &file.locks);
        let ranges = held.and_then(|locks| locks.of(holder)).map_or(0, RangeMap::len);
        let holders = held.map_or(0, LockSet::len);
        if ranges + 3 > LOCK_RANGES_PER_OWNER_FILE_MAX || holders >= LOCK_HOLDERS_PER_FILE_MAX {
            return Err(StateError::Resource.into());
        }
        let locks = &mut self.files.entry(file).or_default().locks;
        let is_weaker = locks.within(holder, range).iter().any(|(_, had)| *had > kind);
        locks.set(holder, range, kind);
        if is_weaker {
            self.wake_waiters(file, now);
        }
        Ok(())
    }

    /// Takes a range from a foreign owner.
    pub fn foreign_unlock(&mut self, owner: ForeignOwner, file: FileKey, range: ByteRange, now: Instant) {
        self.leave_file(file, |file| file.locks.clear(Holder::Foreign(owner), range));
        self.wake_waiters(file, now);
    }

    /// Takes everything on a file from a foreign owner.
    pub fn foreign_leave(&mut self, owner: ForeignOwner, file: FileKey, now: Instant) {
        self.release_holder(file, Holder::Foreign(owner), now);
    }
}
