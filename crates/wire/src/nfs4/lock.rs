//! Byte-range locks (RFC 8881 sections 18.10-18.12).

use holdfast_base::{Length, Offset, Seqid};
use holdfast_xdr::{Decode, Encode};

use super::{StateOwner4, Stateid4};

/// `nfs_lock_type4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum LockType4 {
    /// Shared.
    Read = 1,
    /// Exclusive.
    Write = 2,
    /// Shared, and the client means to wait.
    ReadWait = 3,
    /// Exclusive, and the client means to wait.
    WriteWait = 4,
}

impl LockType4 {
    /// Whether the lock is exclusive.
    #[must_use]
    pub const fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::WriteWait)
    }

    /// Whether the client means to wait for it.
    #[must_use]
    pub const fn is_blocking(self) -> bool {
        matches!(self, Self::ReadWait | Self::WriteWait)
    }
}

/// `open_to_lock_owner4`: the first lock of an owner on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OpenToLockOwner4<'a> {
    /// The 4.0 open owner's number.
    pub open_seqid: Seqid,
    /// The open.
    pub open_stateid: Stateid4,
    /// The 4.0 lock owner's number.
    pub lock_seqid: Seqid,
    /// The lock owner.
    pub lock_owner: StateOwner4<'a>,
}

/// `exist_lock_owner4`: a further lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ExistLockOwner4 {
    /// The owner's locks on the file.
    pub lock_stateid: Stateid4,
    /// The 4.0 lock owner's number.
    pub lock_seqid: Seqid,
}

/// `locker4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Locker4<'a> {
    /// `new_lock_owner` is false.
    #[xdr(case = 0)]
    Exist(ExistLockOwner4),
    /// `new_lock_owner` is true.
    #[xdr(case = 1)]
    New(OpenToLockOwner4<'a>),
}

/// The arguments of LOCK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Lock4Args<'a> {
    /// Which kind.
    pub locktype: LockType4,
    /// Reclaimed after a restart of the server.
    pub reclaim: bool,
    /// Where it begins.
    pub offset: Offset,
    /// Bytes; all ones to the end.
    pub length: Length,
    /// Who locks.
    pub locker: Locker4<'a>,
}

/// What follows NFS4ERR_DENIED of LOCK and LOCKT: the lock in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Lock4Denied<'a> {
    /// Where it begins.
    pub offset: Offset,
    /// Bytes; all ones to the end.
    pub length: Length,
    /// Which kind.
    pub locktype: LockType4,
    /// Whose it is.
    pub owner: StateOwner4<'a>,
}

/// LOCK succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Lock4Ok {
    /// The owner's locks on the file.
    pub lock_stateid: Stateid4,
}

/// The arguments of LOCKT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Lockt4Args<'a> {
    /// Which kind.
    pub locktype: LockType4,
    /// Where it begins.
    pub offset: Offset,
    /// Bytes; all ones to the end.
    pub length: Length,
    /// Who would lock.
    pub owner: StateOwner4<'a>,
}

/// The arguments of LOCKU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Locku4Args {
    /// Ignored.
    pub locktype: LockType4,
    /// The 4.0 lock owner's number.
    pub seqid: Seqid,
    /// The owner's locks on the file.
    pub lock_stateid: Stateid4,
    /// Where it begins.
    pub offset: Offset,
    /// Bytes; all ones to the end.
    pub length: Length,
}

/// LOCKU succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Locku4Ok {
    /// The owner's locks on the file.
    pub lock_stateid: Stateid4,
}

/// The arguments of RELEASE_LOCKOWNER (4.0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReleaseLockOwner4Args<'a> {
    /// The lock owner.
    pub lock_owner: StateOwner4<'a>,
}
