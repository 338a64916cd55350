//! The seam between the machine and whatever answers it.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use holdfast_base::ByteRange;
use holdfast_cache::{
    AheadOut, Answer, Ask, Batch, Caller, CommitOut, Errno, Handle, MutationResult, PoolOut, Release, Spare,
    WriteOut,
};
use holdfast_client::Cancel;

use crate::locks::{LockConflict, LockOwner, LockRequest};

/// What came of a batch.
#[derive(Clone, Debug)]
pub struct BatchDone {
    /// One for each operation, in order.
    pub results: Vec<MutationResult>,
    /// All transactions up to this one are executed.
    pub executed_through: u64,
    /// And up to this one on disk, but for what failed.
    pub stable_through: u64,
    /// Operations whose data could not be put there: told where the batch was to be answered when it is there.
    pub failed: Vec<FailedLater>,
}

/// What is on disk.
#[derive(Clone, Debug, Default)]
pub struct Settled {
    /// All transactions up to this one, but for what failed.
    pub through: u64,
    /// Operations whose data could not be put there.
    pub failed: Vec<FailedLater>,
}

/// An operation that failed after it had been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedLater {
    /// Its transaction.
    pub txn: u64,
    /// Its place in the batch, from 0.
    pub place: u32,
    /// Why.
    pub errno: Errno,
}

/// What came of data written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteDone {
    /// Bytes.
    pub count: u32,
    /// They are on disk.
    pub stable: bool,
    /// Changes when the server may have lost unstable data.
    pub verifier: u64,
}

/// Why something of the flusher's was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undone {
    /// The connection broke, or promises were lost: the same again later.
    Lost,
    /// The server refused.
    Failed(Errno),
}

/// A server, as the volume sees it. Every method blocks until it has an answer, retries what the protocol says is to be
/// retried, and can be given up by its token.
pub trait Server: Send + Sync + 'static {
    /// Answers a question of the machine.
    ///
    /// # Errors
    /// What the application is told; `EINTR` when given up.
    fn perform(&self, ask: &Ask, cancel: &Cancel) -> Result<Answer, Errno>;

    /// Whether what a question was to change, and was given up, may have been changed, or may be yet.
    fn may_yet_be_done(&self, ask: &Ask) -> bool {
        let _ = ask;
        false
    }

    /// Waits until all that was given up has been done, or cannot be done any more.
    ///
    /// # Errors
    /// That is not so yet; `EINTR` when given up.
    fn settle_given_up(&self, cancel: &Cancel) -> Result<(), Errno> {
        let _ = cancel;
        Ok(())
    }

    /// Executes a batch, once, after all that have lower numbers.
    ///
    /// # Errors
    /// [`Undone`].
    fn batch(&self, batch: &Batch, cancel: &Cancel) -> Result<BatchDone, Undone>;

    /// Waits until transactions are on disk; gives through which.
    ///
    /// # Errors
    /// [`Undone`].
    fn stable(&self, through: u64, cancel: &Cancel) -> Result<Settled, Undone>;

    /// Writes data, not necessarily to the disk.
    ///
    /// # Errors
    /// [`Undone`].
    fn write(&self, write: &WriteOut, cancel: &Cancel) -> Result<WriteDone, Undone>;

    /// Puts a file's data on disk; gives the verifier.
    ///
    /// # Errors
    /// [`Undone`].
    fn commit(&self, commit: &CommitOut, cancel: &Cancel) -> Result<u64, Undone>;

    /// Gives capabilities back.
    ///
    /// # Errors
    /// [`Undone::Lost`]: to be given back again.
    fn release(&self, releases: &[Release], cancel: &Cancel) -> Result<(), Undone>;

    /// Has the server make files for creates to come, after what is not needed was given back.
    ///
    /// # Errors
    /// [`Undone`].
    fn pool(&self, out: &PoolOut, cancel: &Cancel) -> Result<Vec<Spare>, Undone> {
        let _ = (out, cancel);
        Err(Undone::Failed(Errno::EOPNOTSUPP))
    }

    /// Reads small files whole, with few calls and in little time; of each in their order, where it could be read at once. `None`
    /// where it is not worth it, or none could be.
    fn read_ahead(&self, out: &AheadOut, cancel: &Cancel) -> Option<Vec<Option<Bytes>>> {
        let _ = (out, cancel);
        None
    }

    /// Takes a lock.
    ///
    /// # Errors
    /// `EAGAIN` where it is held and `wait` is false; `EINTR`.
    fn lock(&self, lock: &LockRequest<'_>, wait: bool, cancel: &Cancel) -> Result<(), Errno>;

    /// Gives an owner's locks in a range back, whichever open they were taken by: that may have ended.
    ///
    /// # Errors
    /// What the application is told.
    fn unlock(
        &self,
        object: &Handle,
        owner: LockOwner,
        range: ByteRange,
        cancel: &Cancel,
    ) -> Result<(), Errno>;

    /// Who holds what is in the way of a lock.
    ///
    /// # Errors
    /// What the application is told.
    fn lock_test(&self, lock: &LockRequest<'_>, cancel: &Cancel) -> Result<Option<LockConflict>, Errno>;

    /// The file behind an object, for a caller who may write it, where the server is on this host and lends it.
    fn path_behind(&self, object: &Handle, caller: &Caller, cancel: &Cancel) -> Option<OwnedFd> {
        let _ = (object, caller, cancel);
        None
    }

    /// Whether an owner may hold locks on a file.
    fn holds_locks(&self, object: &Handle, owner: &[u8]) -> bool;

    /// Whether locks of anybody on a file were lost, and not given back by him since.
    fn has_lost_locks(&self, object: &Handle) -> bool {
        let _ = object;
        false
    }
}
