//! Locks: always the server's to grant.
//!
//! POSIX locks and those of open file descriptions are byte ranges of different owners; a `flock` is the whole file
//! of another owner still, so that the three are told apart wherever the server looks at owners. Its conflicts with the
//! other kinds are as with Linux's NFS client, where the server sees ranges alone.

use holdfast_base::ByteRange;
use holdfast_cache::{Caller, Handle, OpenToken};

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
