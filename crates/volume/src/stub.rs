//! What servers of tests have in common: one object, and no answer to what a test is not about.

use holdfast_base::{ByteRange, Timestamp};
use holdfast_cache::{
    Answer, Ask, Attrs, Batch, CommitOut, Device, Errno, Grant, Handle, Kind, Object, Release, WriteOut,
};
use holdfast_client::Cancel;

use crate::locks::{LockConflict, LockOwner, LockRequest};
use crate::server::{BatchDone, Server, Settled, Undone, WriteDone};

/// A directory with this mode, of which this is promised.
pub(crate) fn root(mode: u32, grant: Grant) -> Object {
    let at = Timestamp { seconds: 1, nanos: 0 };
    let attrs = Attrs {
        kind: Kind::Dir,
        mode,
        nlink: 2,
        uid: 0,
        gid: 0,
        size: 0,
        allocated: 0,
        device: Device::default(),
        atime: at,
        mtime: at,
        ctime: at,
        btime: None,
        change: 1,
        fileid: 1,
    };
    Object { handle: Handle::new(b"root"), attrs, grant: Some(grant) }
}

/// The part of a server that a test is about.
pub(crate) trait Stub: Send + Sync + 'static {
    fn perform(&self, ask: &Ask, cancel: &Cancel) -> Result<Answer, Errno>;

    fn may_yet_be_done(&self, _: &Ask) -> bool {
        false
    }

    fn settle_given_up(&self, _: &Cancel) -> Result<(), Errno> {
        Ok(())
    }

    fn batch(&self, _: &Batch, _: &Cancel) -> Result<BatchDone, Undone> {
        Err(Undone::Failed(Errno::EOPNOTSUPP))
    }

    fn stable(&self, _: u64, _: &Cancel) -> Result<Settled, Undone> {
        Err(Undone::Failed(Errno::EOPNOTSUPP))
    }

    fn write(&self, _: &WriteOut) -> Result<WriteDone, Undone> {
        Err(Undone::Failed(Errno::EOPNOTSUPP))
    }

    fn release(&self, _: &[Release]) {}

    fn lock(&self, _: &LockRequest<'_>) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn unlock(&self, _: &Handle, _: LockOwner) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn holds_locks(&self, _: &Handle, _: &[u8]) -> bool {
        false
    }

    fn has_lost_locks(&self, _: &Handle) -> bool {
        false
    }
}

impl<S: Stub> Server for S {
    fn perform(&self, ask: &Ask, cancel: &Cancel) -> Result<Answer, Errno> {
        Stub::perform(self, ask, cancel)
    }

    fn may_yet_be_done(&self, ask: &Ask) -> bool {
        Stub::may_yet_be_done(self, ask)
    }

    fn settle_given_up(&self, cancel: &Cancel) -> Result<(), Errno> {
        Stub::settle_given_up(self, cancel)
    }

    fn batch(&self, batch: &Batch, cancel: &Cancel) -> Result<BatchDone, Undone> {
        Stub::batch(self, batch, cancel)
    }

    fn stable(&self, through: u64, cancel: &Cancel) -> Result<Settled, Undone> {
        Stub::stable(self, through, cancel)
    }

    fn write(&self, write: &WriteOut, _: &Cancel) -> Result<WriteDone, Undone> {
        Stub::write(self, write)
    }

    fn commit(&self, _: &CommitOut, _: &Cancel) -> Result<u64, Undone> {
        Err(Undone::Failed(Errno::EOPNOTSUPP))
    }

    fn release(&self, releases: &[Release], _: &Cancel) -> Result<(), Undone> {
        Stub::release(self, releases);
        Ok(())
    }

    fn lock(&self, lock: &LockRequest<'_>, _: bool, _: &Cancel) -> Result<(), Errno> {
        Stub::lock(self, lock)
    }

    fn unlock(&self, object: &Handle, owner: LockOwner, _: ByteRange, _: &Cancel) -> Result<(), Errno> {
        Stub::unlock(self, object, owner)
    }

    fn lock_test(&self, _: &LockRequest<'_>, _: &Cancel) -> Result<Option<LockConflict>, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn holds_locks(&self, object: &Handle, owner: &[u8]) -> bool {
        Stub::holds_locks(self, object, owner)
    }

    fn has_lost_locks(&self, object: &Handle) -> bool {
        Stub::has_lost_locks(self, object)
    }
}
