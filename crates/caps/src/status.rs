//! What refusals of file systems and of the state engine are called in the caps program.

use holdfast_state::StateError;
use holdfast_vfs::FsError;
use holdfast_wire::caps::CapsStat;

/// The status of a file system's error.
pub(crate) const fn of_fs(error: FsError) -> CapsStat {
    match error {
        FsError::NotFound => CapsStat::NoEnt,
        FsError::Exists => CapsStat::Exist,
        FsError::NotDir => CapsStat::NotDir,
        FsError::IsDir => CapsStat::IsDir,
        FsError::IsSymlink => CapsStat::Symlink,
        FsError::WrongKind => CapsStat::BadType,
        FsError::NotEmpty => CapsStat::NotEmpty,
        FsError::Access => CapsStat::Access,
        FsError::Perm => CapsStat::Perm,
        FsError::Invalid => CapsStat::Inval,
        FsError::BadName => CapsStat::BadName,
        FsError::NameTooLong => CapsStat::NameTooLong,
        FsError::NoSpace => CapsStat::NoSpc,
        FsError::Quota => CapsStat::Dquot,
        FsError::TooBig => CapsStat::Fbig,
        FsError::ReadOnly => CapsStat::Rofs,
        FsError::TooManyLinks => CapsStat::Mlink,
        FsError::CrossDevice => CapsStat::Xdev,
        FsError::NoDevice => CapsStat::Nxio,
        FsError::Io => CapsStat::Io,
        FsError::Stale => CapsStat::Stale,
        FsError::BadHandle => CapsStat::BadHandle,
        FsError::BadCookie => CapsStat::BadCookie,
        FsError::NotSupported => CapsStat::NotSupp,
        FsError::NoXattr => CapsStat::NoXattr,
        FsError::XattrTooBig => CapsStat::Xattr2Big,
        FsError::Busy => CapsStat::FileOpen,
        FsError::NotSync => CapsStat::Changed,
        FsError::Locked | FsError::WouldBlock | FsError::Delay => CapsStat::Delay,
    }
}

/// Whether the same may go well a little later.
pub(crate) const fn is_passing(error: FsError) -> bool {
    matches!(error, FsError::Locked | FsError::WouldBlock | FsError::Delay)
}

/// The status of a refusal by the state engine.
pub(crate) const fn of_state(error: StateError) -> CapsStat {
    match error {
        StateError::Grace => CapsStat::Grace,
        StateError::NoGrace | StateError::ReclaimBad => CapsStat::NoGrace,
        StateError::ReclaimConflict => CapsStat::NotHeld,
        StateError::StaleClientid | StateError::Expired => CapsStat::BadTicket,
        StateError::BadSession => CapsStat::BadSession,
        _ => CapsStat::Delay,
    }
}
