//! Locks: always the server's to grant.
//!
//! POSIX locks and those of open file descriptions are byte ranges of different owners; a `flock` is the whole file
//! of another owner still, so that the three are told apart wherever the server looks at owners. Its conflicts with the
//! other kinds are as with Linux's NFS client, where the server sees ranges alone.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use holdfast_base::ByteRange;
use holdfast_cache::{Caller, Errno, Fh, Handle, NodeId, OpenToken};

use crate::running::Waiting;
use crate::volume::{Shared, Volume};

type Result<T> = std::result::Result<T, Errno>;

/// Which calls took the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockClass {
    /// `fcntl`: of a process, or of an open file description.
    Range,
    /// `flock`.
    Flock,
}

/// Who holds a lock, as the kernel tells owners of a mount apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockOwner {
    /// The kernel's number.
    pub owner: u64,
    /// Which of its locks: one owner's `flock`s and ranges do not know of each other.
    pub class: LockClass,
}

impl LockOwner {
    /// The owner's name towards the server.
    #[must_use]
    pub fn bytes(self) -> [u8; 9] {
        let mut bytes = [0; 9];
        bytes[..8].copy_from_slice(&self.owner.to_be_bytes());
        bytes[8] = match self.class {
            LockClass::Range => b'r',
            LockClass::Flock => b'f',
        };
        bytes
    }
}

/// A lock to be taken, given back or asked about.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest<'a> {
    /// As whom.
    pub caller: &'a Caller,
    /// Of which file.
    pub object: &'a Handle,
    /// By which open.
    pub open: Option<OpenToken>,
    /// Whose.
    pub owner: LockOwner,
    /// Of what.
    pub range: ByteRange,
    /// Nobody else may have any.
    pub exclusive: bool,
}

/// A lock in the way of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockConflict {
    /// Of what.
    pub range: ByteRange,
    /// Nobody else may have any.
    pub exclusive: bool,
}

/// A lock asked for, or to be given back.
#[derive(Clone, Copy, Debug)]
pub struct LockWanted {
    /// By which open.
    pub fh: Fh,
    /// Whose.
    pub owner: LockOwner,
    /// Of what.
    pub range: ByteRange,
    /// Nobody else may have any.
    pub exclusive: bool,
}

/// By which a volume is told that locks were lost.
#[derive(Clone)]
pub struct LossSignal(Weak<Shared>);

impl LossSignal {
    /// Some on the file with this handle were: others may have had them. Waits for nothing.
    pub fn locks_lost(&self, file: &[u8]) {
        if let Some(shared) = self.0.upgrade() {
            shared.locks_lost(&Handle::new(file));
        }
    }
}

impl std::fmt::Debug for LossSignal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LossSignal")
    }
}

impl Shared {
    fn locks_lost(&self, object: &Handle) {
        // First: what is asked for from now on is judged.
        self.has_lost_locks.store(true, Ordering::SeqCst);
        let mut machine = self.machine.lock();
        machine.locks_lost(object);
        self.look_for_work(machine);
    }

    /// Whoever reads or writes may do so for the owner of any lock: the kernel says whose it is of some requests, and of none
    /// that goes through its pages. So nobody does, while any lock of the file is lost and not given back.
    pub(crate) fn unless_lost(&self, object: impl FnOnce() -> Option<Handle>) -> Result<()> {
        if !self.has_lost_locks.load(Ordering::SeqCst) {
            return Ok(());
        }
        let is_lost = object().is_some_and(|object| self.server.has_lost_locks(&object));
        if is_lost { Err(Errno::EIO) } else { Ok(()) }
    }
}

/// Locks.
impl Volume {
    /// An open at the server, which locks belong to.
    fn at_server(&self, who: &dyn Waiting, fh: Fh) -> Result<(Handle, Option<OpenToken>)> {
        self.open_for(who, |machine, turn, now| machine.server_open(turn, fh, now))
    }

    pub(crate) fn open_at_server(&self, who: &dyn Waiting, fh: Fh) -> Result<Handle> {
        self.at_server(who, fh).map(|(object, _)| object)
    }

    /// By which it is told that locks were lost.
    #[must_use]
    pub fn loss_signal(&self) -> LossSignal {
        LossSignal(Arc::downgrade(&self.0))
    }

    pub(crate) fn unless_lost(&self, fh: Fh) -> Result<()> {
        self.0.unless_lost(|| self.0.machine.lock().handle_opened(fh))
    }

    /// Takes a lock of a node's file.
    ///
    /// # Errors
    /// `EAGAIN` where it is held and `wait` is false; `EINTR` and others as everywhere.
    pub fn lock(&self, who: &dyn Waiting, node: NodeId, wanted: &LockWanted, wait: bool) -> Result<()> {
        let who = &self.as_opener(who, wanted.fh);
        let (object, open) = self.at_server(who, wanted.fh)?;
        self.run_for(who, |machine, turn, now| machine.lock_wanted(turn, node, now))?;
        let caller = who.whole_caller();
        let LockWanted { owner, range, exclusive, .. } = *wanted;
        let request = LockRequest { caller: &caller, object: &object, open, owner, range, exclusive };
        let taken = self.0.while_living(&who.cancel(), |cancel| self.0.server.lock(&request, wait, cancel));
        taken.map_err(|errno| self.or_stopped(errno))?;
        // What others wrote under the lock before is to be seen now. The kernel may have to wait for another's read that
        // waits for the server: whoever gives up meanwhile has the lock until he gives it back or closes the file, which
        // holds others off longer than need be, and never too short.
        self.run_for(who, |machine, turn, _| machine.lock_taken(turn, node))
    }

    /// Gives an owner's locks in a range back, also lost ones, once what was written under them has reached the server or is lost: whoever
    /// closes the file is told of that, and nobody else is to be kept from it. No open is needed: it may have ended.
    ///
    /// # Errors
    /// As everywhere.
    pub fn unlock(&self, who: &dyn Waiting, node: NodeId, owner: LockOwner, range: ByteRange) -> Result<()> {
        let Some(object) = self.handle_of(node) else { return Ok(()) };
        if !self.0.server.holds_locks(&object, &owner.bytes()) {
            return Ok(());
        }
        match self.run_for(who, |machine, turn, now| machine.written(turn, node, now)) {
            Err(errno) if errno == Errno::EINTR || errno == crate::offline::AWAY => return Err(errno),
            _ => {}
        }
        let unlock = |cancel: &_| self.0.server.unlock(&object, owner, range, cancel);
        self.0.while_living(&who.cancel(), unlock).map_err(|errno| self.or_stopped(errno))
    }

    fn or_stopped(&self, errno: Errno) -> Errno {
        if errno == Errno::EINTR { self.0.stopped() } else { errno }
    }

    /// Whether something can be written through an open.
    #[must_use]
    pub fn may_write(&self, fh: Fh) -> bool {
        self.0.machine.lock().may_write(fh)
    }

    /// Whether an owner may hold locks on a node's file.
    #[must_use]
    pub fn holds_locks(&self, node: NodeId, owner: LockOwner) -> bool {
        self.handle_of(node).is_some_and(|object| self.0.server.holds_locks(&object, &owner.bytes()))
    }

    /// What is in the way of a lock.
    ///
    /// # Errors
    /// As everywhere.
    pub fn lock_test(&self, who: &dyn Waiting, wanted: &LockWanted) -> Result<Option<LockConflict>> {
        let who = &self.as_opener(who, wanted.fh);
        let (object, open) = self.at_server(who, wanted.fh)?;
        let caller = who.whole_caller();
        let LockWanted { owner, range, exclusive, .. } = *wanted;
        let request = LockRequest { caller: &caller, object: &object, open, owner, range, exclusive };
        let told = self.0.while_living(&who.cancel(), |cancel| self.0.server.lock_test(&request, cancel));
        told.map_err(|errno| self.or_stopped(errno))
    }
}

#[cfg(test)]
mod tests;
