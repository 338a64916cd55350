//! The table of statuses.

use holdfast_nfs3::{is_allowed, status_of};
use holdfast_vfs::FsError;
use holdfast_wire::nfs3::NfsStat3 as S;
use holdfast_wire::nfs3::Proc3 as P;

const ERRORS: [FsError; 31] = [
    FsError::NotFound,
    FsError::Exists,
    FsError::NotDir,
    FsError::IsDir,
    FsError::IsSymlink,
    FsError::WrongKind,
    FsError::NotEmpty,
    FsError::Access,
    FsError::Perm,
    FsError::Invalid,
    FsError::BadName,
    FsError::NameTooLong,
    FsError::NoSpace,
    FsError::Quota,
    FsError::TooBig,
    FsError::ReadOnly,
    FsError::TooManyLinks,
    FsError::CrossDevice,
    FsError::NoDevice,
    FsError::Io,
    FsError::Stale,
    FsError::BadHandle,
    FsError::BadCookie,
    FsError::NotSupported,
    FsError::NoXattr,
    FsError::XattrTooBig,
    FsError::Busy,
    FsError::Locked,
    FsError::NotSync,
    FsError::WouldBlock,
    FsError::Delay,
];

#[test]
fn every_error_of_every_procedure_has_an_allowed_status() {
    for &procedure in P::ALL {
        for error in ERRORS {
            let status = status_of(procedure, error);
            assert!(is_allowed(procedure, status), "{procedure}: {error} gives {status}");
            assert_ne!(status, S::Ok);
        }
    }
}

#[test]
fn the_errors_that_matter_keep_their_meaning() {
    for (procedure, error, status) in [
        (P::Lookup, FsError::NotFound, S::NoEnt),
        (P::Lookup, FsError::IsSymlink, S::NotDir),
        (P::Lookup, FsError::BadName, S::Acces),
        (P::Lookup, FsError::NameTooLong, S::NameTooLong),
        (P::SetAttr, FsError::Perm, S::Perm),
        (P::SetAttr, FsError::IsDir, S::Inval),
        (P::SetAttr, FsError::NotSync, S::NotSync),
        (P::SetAttr, FsError::TooBig, S::Fbig),
        (P::ReadLink, FsError::WrongKind, S::Inval),
        (P::Read, FsError::IsDir, S::Inval),
        (P::Read, FsError::IsSymlink, S::Inval),
        (P::Read, FsError::Io, S::Io),
        (P::Write, FsError::TooBig, S::Fbig),
        (P::Write, FsError::NoSpace, S::NoSpc),
        (P::Write, FsError::Quota, S::Dquot),
        (P::Write, FsError::Locked, S::Jukebox),
        (P::Create, FsError::IsDir, S::Exist),
        (P::Create, FsError::IsSymlink, S::Exist),
        (P::Mkdir, FsError::TooManyLinks, S::Mlink),
        (P::Mknod, FsError::Perm, S::Perm),
        (P::Remove, FsError::IsDir, S::IsDir),
        (P::Remove, FsError::Busy, S::Acces),
        (P::Rmdir, FsError::NotEmpty, S::NotEmpty),
        (P::Rename, FsError::NotEmpty, S::NotEmpty),
        (P::Rename, FsError::CrossDevice, S::Xdev),
        (P::Link, FsError::TooManyLinks, S::Mlink),
        (P::ReadDir, FsError::BadCookie, S::BadCookie),
        (P::GetAttr, FsError::Stale, S::Stale),
        (P::GetAttr, FsError::BadHandle, S::BadHandle),
        (P::GetAttr, FsError::NoXattr, S::ServerFault),
        (P::Commit, FsError::Delay, S::Jukebox),
    ] {
        assert_eq!(status_of(procedure, error), status, "{procedure}: {error}");
    }
}
