//! From what went wrong to the status on the wire: total conversions of the backend's and the state engine's
//! errors, and the few places where minor versions have different words for one thing.

use holdfast_state::StateError;
use holdfast_vfs::FsError;
use holdfast_wire::nfs4::{NfsStat4, OpNum4};

use crate::desc::Minor;
use crate::slot::Turn;

/// Why an operation has no ordinary result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It failed with this status, and nothing follows the status.
    Status(NfsStat4),
    /// It failed with this status, and what it wrote to the reply follows it (LOCK's conflicting lock).
    WithBody(NfsStat4),
    /// The backend failed.
    Fs(FsError),
    /// The state engine refused.
    State(StateError),
    /// It has to wait and may not here: run it again, from the start, on the pool. Nothing was changed.
    Wait,
    /// SEQUENCE found that the whole compound is not to be run.
    Turn(Turn),
}

/// The result of an operation.
pub(crate) type OpResult<T> = Result<T, Failure>;

impl From<NfsStat4> for Failure {
    fn from(status: NfsStat4) -> Self {
        Self::Status(status)
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        match error {
            FsError::WouldBlock => Self::Wait,
            error => Self::Fs(error),
        }
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Self::State(error)
    }
}

/// The status for a backend's error, before [`fit`].
#[must_use]
pub(crate) const fn from_fs(error: FsError) -> NfsStat4 {
    match error {
        FsError::NotFound => NfsStat4::NoEnt,
        FsError::Exists => NfsStat4::Exist,
        FsError::NotDir => NfsStat4::NotDir,
        FsError::IsDir => NfsStat4::IsDir,
        FsError::IsSymlink => NfsStat4::Symlink,
        FsError::WrongKind => NfsStat4::WrongType,
        FsError::NotEmpty => NfsStat4::NotEmpty,
        FsError::Access => NfsStat4::Access,
        FsError::Perm => NfsStat4::Perm,
        FsError::Invalid => NfsStat4::Inval,
        FsError::BadName => NfsStat4::BadName,
        FsError::NameTooLong => NfsStat4::NameTooLong,
        FsError::NoSpace => NfsStat4::NoSpc,
        FsError::Quota => NfsStat4::Dquot,
        FsError::TooBig => NfsStat4::Fbig,
        FsError::ReadOnly => NfsStat4::Rofs,
        FsError::TooManyLinks => NfsStat4::Mlink,
        FsError::CrossDevice => NfsStat4::Xdev,
        FsError::NoDevice => NfsStat4::Nxio,
        FsError::Io => NfsStat4::Io,
        FsError::Stale => NfsStat4::Stale,
        FsError::BadHandle => NfsStat4::BadHandle,
        FsError::BadCookie => NfsStat4::BadCookie,
        FsError::NotSupported => NfsStat4::NotSupp,
        FsError::NoXattr => NfsStat4::NoXattr,
        FsError::XattrTooBig => NfsStat4::Xattr2Big,
        FsError::Busy => NfsStat4::FileOpen,
        FsError::Locked => NfsStat4::Locked,
        FsError::NotSync => NfsStat4::NotSame,
        FsError::WouldBlock | FsError::Delay => NfsStat4::Delay,
    }
}

/// The status for the state engine's refusal, before [`fit`].
#[must_use]
pub(crate) const fn from_state(error: StateError) -> NfsStat4 {
    match error {
        StateError::BadStateid => NfsStat4::BadStateid,
        StateError::OldStateid => NfsStat4::OldStateid,
        StateError::StaleStateid => NfsStat4::StaleStateid,
        StateError::Expired => NfsStat4::Expired,
        StateError::AdminRevoked => NfsStat4::AdminRevoked,
        StateError::DelegRevoked => NfsStat4::DelegRevoked,
        StateError::Deadlock => NfsStat4::Deadlock,
        StateError::StaleClientid => NfsStat4::StaleClientId,
        StateError::ClidInuse => NfsStat4::ClidInUse,
        StateError::NoEnt => NfsStat4::NoEnt,
        StateError::NotSame => NfsStat4::NotSame,
        StateError::Perm => NfsStat4::Perm,
        StateError::ClientidBusy => NfsStat4::ClientIdBusy,
        StateError::CompleteAlready => NfsStat4::CompleteAlready,
        StateError::BadSession => NfsStat4::BadSession,
        StateError::BadSlot => NfsStat4::BadSlot,
        StateError::BadHighSlot => NfsStat4::BadHighSlot,
        StateError::SeqMisordered => NfsStat4::SeqMisordered,
        StateError::SeqFalseRetry => NfsStat4::SeqFalseRetry,
        StateError::RetryUncachedRep => NfsStat4::RetryUncachedRep,
        StateError::TooSmall => NfsStat4::TooSmall,
        StateError::BadSeqid => NfsStat4::BadSeqid,
        StateError::Grace => NfsStat4::Grace,
        StateError::NoGrace => NfsStat4::NoGrace,
        StateError::ReclaimBad => NfsStat4::ReclaimBad,
        StateError::ReclaimConflict => NfsStat4::ReclaimConflict,
        StateError::ShareDenied => NfsStat4::ShareDenied,
        StateError::Locked => NfsStat4::Locked,
        StateError::LocksHeld => NfsStat4::LocksHeld,
        StateError::OpenMode => NfsStat4::OpenMode,
        StateError::Inval => NfsStat4::Inval,
        StateError::Resource => NfsStat4::Resource,
        StateError::Delay => NfsStat4::Delay,
    }
}

/// The status that this operation may give in this minor version for what is meant by `status`
/// (RFC 7530 section 13.2, RFC 8881 section 15.2). What is legal already stays.
#[must_use]
pub(crate) const fn fit(status: NfsStat4, op: OpNum4, minor: Minor) -> NfsStat4 {
    match (status, minor, op) {
        // 4.1 has no RESOURCE (RFC 8881 section 15.1.16.2).
        (NfsStat4::Resource, Minor::V1 | Minor::V2, _) => NfsStat4::Delay,
        // 4.1 says what is missing (RFC 8881 section 15.1.16.4).
        (NfsStat4::RestoreFh, Minor::V1 | Minor::V2, _) => NfsStat4::NoFileHandle,
        // 4.0 has no WRONG_TYPE. For OPEN of a device Linux and its clients speak of a symbolic link; READLINK of
        // what is none, READ of what has no data are INVAL (RFC 7530 sections 16.25.4, 16.23.4).
        (NfsStat4::WrongType, Minor::V0, OpNum4::Open) => NfsStat4::Symlink,
        (NfsStat4::WrongType, Minor::V0, _) => NfsStat4::Inval,
        // In 4.1 only LOOKUP, LOOKUPP, READDIR and the like tell NOTDIR; a link in READ's or WRITE's way is SYMLINK
        // there and INVAL in 4.0.
        (NfsStat4::Symlink, Minor::V0, OpNum4::Read | OpNum4::Write | OpNum4::Commit) => NfsStat4::Inval,
        (
            NfsStat4::Symlink,
            _,
            OpNum4::ReadDir | OpNum4::Create | OpNum4::Remove | OpNum4::Rename | OpNum4::Link,
        ) => NfsStat4::NotDir,
        // A guard that failed inside a mutation: somebody was faster.
        (
            NfsStat4::NotSame,
            _,
            OpNum4::SetAttr | OpNum4::Remove | OpNum4::Rename | OpNum4::Create | OpNum4::Open,
        ) => NfsStat4::Delay,
        // Only REMOVE and RENAME know FILE_OPEN (RFC 8881 section 15.4).
        (NfsStat4::FileOpen, _, OpNum4::Remove | OpNum4::Rename | OpNum4::Link) => NfsStat4::FileOpen,
        (NfsStat4::FileOpen, _, _) => NfsStat4::Access,
        (status, _, _) => status,
    }
}

#[cfg(test)]
mod tests;
