//! From the backend's errors to `nfsstat3`: total, and for each procedure within what RFC 1813 lists for it and a
//! few more that Linux's server sends too. (The RFC's lists are "not intended to be the definitive statement of
//! all of the errors which can be returned", section 3.3.)

use NfsStat3 as S;
use Proc3 as P;
use holdfast_vfs::FsError;
use holdfast_wire::nfs3::{NfsStat3, Proc3};

/// The status that a procedure answers for an error.
#[must_use]
pub fn status_of(procedure: Proc3, error: FsError) -> NfsStat3 {
    let status = special(procedure, error).unwrap_or_else(|| general(error));
    if is_allowed(procedure, status) { status } else { S::ServerFault }
}

const fn general(error: FsError) -> NfsStat3 {
    match error {
        FsError::NotFound => S::NoEnt,
        FsError::Exists => S::Exist,
        // A symbolic link where a directory was needed; where a file was, see `special`.
        FsError::NotDir | FsError::IsSymlink => S::NotDir,
        FsError::IsDir => S::IsDir,
        FsError::WrongKind | FsError::Invalid => S::Inval,
        FsError::NotEmpty => S::NotEmpty,
        // Something in use is refused for good: JUKEBOX would make clients try for ever.
        FsError::Access | FsError::BadName | FsError::Busy => S::Acces,
        FsError::Perm => S::Perm,
        FsError::NameTooLong => S::NameTooLong,
        FsError::NoSpace => S::NoSpc,
        FsError::Quota => S::Dquot,
        FsError::TooBig => S::Fbig,
        FsError::ReadOnly => S::Rofs,
        FsError::TooManyLinks => S::Mlink,
        FsError::CrossDevice => S::Xdev,
        FsError::NoDevice => S::Nxio,
        FsError::Io => S::Io,
        FsError::Stale => S::Stale,
        FsError::BadHandle => S::BadHandle,
        FsError::BadCookie => S::BadCookie,
        FsError::NotSupported => S::NotSupp,
        // Extended attributes are no part of this protocol.
        FsError::NoXattr | FsError::XattrTooBig => S::ServerFault,
        FsError::NotSync => S::NotSync,
        FsError::Locked | FsError::WouldBlock | FsError::Delay => S::Jukebox,
    }
}

/// Where a procedure says it with another word.
const fn special(procedure: Proc3, error: FsError) -> Option<NfsStat3> {
    match (procedure, error) {
        // Something else stands under the name: RFC 1813 section 3.3.8 knows EXIST for it.
        (P::Create, FsError::IsDir | FsError::IsSymlink | FsError::WrongKind) => Some(S::Exist),
        // No regular file (sections 3.3.6, 3.3.7 and 3.3.2: INVAL).
        (P::Read | P::Write | P::Commit, FsError::IsDir | FsError::IsSymlink | FsError::NotDir) => {
            Some(S::Inval)
        }
        (P::SetAttr, FsError::IsDir | FsError::IsSymlink) => Some(S::Inval),
        // The caller gave a name that the file system cannot hold; INVAL is not in these procedures' lists.
        (P::Lookup, FsError::Invalid) => Some(S::Acces),
        (P::Create | P::Mkdir | P::Remove, FsError::Invalid) => Some(S::Acces),
        (P::ReadLink, FsError::IsDir | FsError::NotDir) => Some(S::Inval),
        _ => None,
    }
}

/// Whether a procedure may answer this status.
#[must_use]
pub fn is_allowed(procedure: Proc3, status: NfsStat3) -> bool {
    // Every procedure: a bad export rule or credential is ACCES, a call to be repeated JUKEBOX.
    const ALWAYS: &[NfsStat3] = &[S::Ok, S::Io, S::Acces, S::Stale, S::BadHandle, S::ServerFault, S::Jukebox];
    // A name added, taken away or changed.
    const NAMES: &[NfsStat3] =
        &[S::Perm, S::NotDir, S::NoSpc, S::Rofs, S::Dquot, S::NameTooLong, S::NotSupp, S::Exist];
    let of_kind: &[NfsStat3] = match procedure {
        P::Create | P::Mkdir | P::Symlink | P::Mknod | P::Remove | P::Rmdir | P::Rename | P::Link => NAMES,
        _ => &[],
    };
    let own: &[NfsStat3] = match procedure {
        P::Null | P::GetAttr | P::Access => &[],
        P::SetAttr => &[S::Perm, S::Inval, S::NoSpc, S::Rofs, S::Dquot, S::NotSync, S::Fbig, S::NotSupp],
        P::Lookup => &[S::NoEnt, S::NotDir, S::NameTooLong],
        P::ReadLink => &[S::Inval, S::NotSupp],
        P::Read => &[S::Nxio, S::Inval],
        P::Write => &[S::Fbig, S::Dquot, S::NoSpc, S::Rofs, S::Inval, S::Perm],
        // INVAL: times of a billion nanoseconds, which the RFC forgot here (it lists it for SETATTR).
        P::Create => &[S::NoEnt, S::Fbig, S::Inval],
        // A directory is also a link to the one above.
        P::Mkdir => &[S::NoEnt, S::Mlink, S::Inval],
        P::Symlink => &[S::NoEnt, S::Inval],
        P::Mknod => &[S::NoEnt, S::BadType, S::Inval],
        P::Remove => &[S::NoEnt, S::IsDir],
        P::Rmdir => &[S::NoEnt, S::Inval, S::NotEmpty],
        P::Rename => &[S::NoEnt, S::IsDir, S::Xdev, S::Inval, S::Mlink, S::NotEmpty],
        P::Link => &[S::NoEnt, S::IsDir, S::Xdev, S::Inval, S::Mlink],
        P::ReadDir => &[S::NotDir, S::BadCookie, S::TooSmall],
        P::ReadDirPlus => &[S::NotDir, S::BadCookie, S::TooSmall, S::NotSupp],
        P::FsStat | P::FsInfo | P::PathConf => &[],
        P::Commit => &[S::Inval, S::NoSpc, S::Dquot, S::Rofs],
    };
    ALWAYS.contains(&status) || of_kind.contains(&status) || own.contains(&status)
}
