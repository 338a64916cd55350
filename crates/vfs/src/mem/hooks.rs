//! What tests ask and switch, beside the [`crate::Backend`] itself.

use holdfast_base::ByteRange;

use super::MemBackend;
use super::inode::Ino;
use super::state::Lock;
use crate::data::Touched;
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::open::{Advice, LockKind};

impl MemBackend {
    /// From now on every `n`-th call that may not wait answers [`FsError::WouldBlock`]; 0 switches it off.
    pub fn block_every(&self, n: u64) {
        let mut state = self.state();
        state.hooks.block_every = n;
        state.hooks.inline_calls = 0;
    }

    /// The next call that is told of a caller fails with this, having changed nothing. Calls add up.
    pub fn fail_next_call(&self, why: FsError) {
        self.state().hooks.call_failures.push_back(why);
    }

    /// The `n`-th of the next calls that are told of a caller panics, as a defect would; 0 takes it back. Returns
    /// what was left of the count before.
    pub fn panic_at_call(&self, n: u32) -> u32 {
        std::mem::replace(&mut self.state().hooks.panics_in, n)
    }

    /// The next commit fails with this, and the write verifier changes. Calls add up.
    pub fn fail_next_commit(&self, why: FsError) {
        self.state().hooks.commit_failures.push_back(why);
    }

    /// The write verifier changes right after the next write or copy, as when a write-back fails just then. Calls
    /// add up.
    pub fn lose_next_write(&self) {
        self.state().hooks.losses += 1;
    }

    /// The next write first does this, as on a disk that keeps it waiting: nothing of the file system is locked meanwhile.
    pub fn before_next_write(&self, act: impl FnOnce() + Send + 'static) {
        self.state().hooks.before_write = Some(Box::new(act));
    }

    /// What [`crate::Backend::leases_are_scarce`] answers from now on.
    pub fn set_leases_scarce(&self, are_scarce: bool) {
        self.state().hooks.leases_are_scarce = are_scarce;
    }

    /// Whether [`crate::Backend::read_span`] gives descriptors (of temporary files) rather than `None`.
    pub fn give_spans(&self, gives_spans: bool) {
        self.state().hooks.gives_spans = gives_spans;
    }

    /// What was advised and followed since this was last asked; from the first time on it is followed.
    pub fn advised(&self) -> Vec<(ByteRange, Advice)> {
        self.state().hooks.advised.replace(Vec::new()).unwrap_or_default()
    }

    /// Bounds the bytes of one user's files.
    pub fn set_quota(&self, uid: u32, bytes: u64) {
        self.state().space.quotas.insert(uid, bytes / super::BLOCK);
    }

    /// Makes the file system read-only, or writable again.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.state().is_read_only = is_read_only;
    }

    /// Everything that was committed, in this order; the oldest are forgotten above
    /// [`holdfast_base::limits::MEM_COMMIT_LOG_MAX`].
    #[must_use]
    pub fn commits(&self) -> Vec<Touched> {
        self.state().commits.iter().copied().collect()
    }

    /// What was changed and is not committed, in the order of making: empty exactly when a power cut would lose
    /// nothing.
    #[must_use]
    pub fn uncommitted(&self) -> Vec<Touched> {
        let state = self.state();
        let dirty = state.inodes.iter().filter(|(_, inode)| inode.is_dirty || inode.is_data_dirty);
        dirty.map(|(&ino, inode)| Touched { handle: state.handle(ino), data: inode.is_data_dirty }).collect()
    }

    /// Takes a lock as a process beside the server would.
    ///
    /// # Errors
    /// [`FsError::Locked`] when an open file of the server, or another outsider, holds a conflicting one;
    /// [`FsError::Delay`] when there are too many.
    pub fn lock_outside(&self, file: &Handle, range: ByteRange, kind: LockKind) -> FsResult<()> {
        let mut state = self.state();
        let ino = state.ino(file)?;
        state.conflict(ino, None, range, kind).map_or(Ok(()), |_| Err(FsError::Locked))?;
        state.push_lock(Lock { ino, file: None, range, kind })
    }

    /// From now on other hosts are said to have its files as well.
    pub fn lie_on_other_hosts(&self) {
        self.state().is_on_other_hosts = true;
    }

    /// Lets go of all that outsiders hold of a file, and tells who waited for it, on this thread.
    pub fn unlock_outside(&self, file: &Handle) {
        let mut state = self.state();
        if let Ok(ino) = state.ino(file) {
            state.locks.retain(|lock| lock.ino != ino || lock.file.is_some());
        }
        drop(state);
        self.tell_unlocked();
    }

    /// Ranges that the server's open files hold of a file, in order.
    #[must_use]
    pub fn locks_held(&self, file: &Handle) -> Vec<(ByteRange, LockKind)> {
        let state = self.state();
        let Ok(ino) = state.ino(file) else { return Vec::new() };
        let ours = state.locks.iter().filter(|lock| lock.ino == ino && lock.file.is_some());
        let mut held: Vec<_> = ours.map(|lock| (lock.range, lock.kind)).collect();
        held.sort_by_key(|(range, _)| *range);
        held
    }

    /// Files open at the moment.
    #[must_use]
    pub fn open_files(&self) -> u64 {
        self.state().inodes.values().map(|inode| inode.opens).sum()
    }

    /// Checks what must always hold: links and names agree, space is counted right, nothing lives unnamed and
    /// unopened.
    ///
    /// # Errors
    /// Says what does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.state().check()
    }
}

impl super::State {
    /// What [`MemBackend::lose_next_write`] asked for.
    pub(super) const fn lose(&mut self) {
        if let Some(left) = self.hooks.losses.checked_sub(1) {
            self.hooks.losses = left;
            self.verifier = self.verifier.wrapping_add(1);
        }
    }

    /// The first lock of somebody else in the way: an outsider, or another open file, as with the kernel's
    /// open-file-description locks.
    pub(super) fn conflict(
        &self,
        ino: Ino,
        file: Option<u64>,
        range: ByteRange,
        kind: LockKind,
    ) -> Option<&Lock> {
        let is_other = |lock: &Lock| file.is_none() || lock.file != file;
        let excludes = |lock: &Lock| kind == LockKind::Write || lock.kind == LockKind::Write;
        self.locks
            .iter()
            .filter(|lock| lock.ino == ino && lock.range.overlaps(range) && is_other(lock) && excludes(lock))
            .min_by_key(|lock| lock.range)
    }

    /// The first lock of an outsider in the way.
    pub(super) fn outsider(&self, ino: Ino, range: ByteRange, kind: LockKind) -> Option<&Lock> {
        let excludes = |lock: &Lock| kind == LockKind::Write || lock.kind == LockKind::Write;
        let is_outside = |lock: &&Lock| lock.ino == ino && lock.file.is_none() && lock.range.overlaps(range);
        self.locks.iter().filter(is_outside).filter(|lock| excludes(lock)).min_by_key(|lock| lock.range)
    }

    pub(super) fn push_lock(&mut self, lock: Lock) -> FsResult<()> {
        if self.locks.len() >= holdfast_base::limits::MEM_LOCKS_MAX {
            return Err(FsError::Delay);
        }
        self.locks.push(lock);
        Ok(())
    }

    /// Takes a range out of what an open file holds.
    pub(super) fn release(&mut self, ino: Ino, file: u64, range: ByteRange) -> FsResult<()> {
        let mut rest = Vec::new();
        self.locks.retain(|lock| {
            if lock.ino != ino || lock.file != Some(file) || !lock.range.overlaps(range) {
                return true;
            }
            let (first, last) = (lock.range.first(), lock.range.last());
            let below = range.first().checked_sub(1).and_then(|end| ByteRange::from_bounds(first, end));
            let above = range.last().checked_add(1).and_then(|start| ByteRange::from_bounds(start, last));
            rest.extend([below, above].into_iter().flatten().map(|range| (range, lock.kind)));
            false
        });
        rest.into_iter()
            .try_for_each(|(range, kind)| self.push_lock(Lock { ino, file: Some(file), range, kind }))
    }
}
