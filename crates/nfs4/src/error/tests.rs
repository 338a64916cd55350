use super::*;

#[test]
fn fit_gives_each_minor_version_its_own_words() {
    for (status, op, minor, expected) in [
        (NfsStat4::Resource, OpNum4::Open, Minor::V0, NfsStat4::Resource),
        (NfsStat4::Resource, OpNum4::Open, Minor::V1, NfsStat4::Delay),
        (NfsStat4::WrongType, OpNum4::Open, Minor::V0, NfsStat4::Symlink),
        (NfsStat4::WrongType, OpNum4::Open, Minor::V2, NfsStat4::WrongType),
        (NfsStat4::WrongType, OpNum4::ReadLink, Minor::V0, NfsStat4::Inval),
        (NfsStat4::Symlink, OpNum4::Lookup, Minor::V0, NfsStat4::Symlink),
        (NfsStat4::Symlink, OpNum4::Remove, Minor::V1, NfsStat4::NotDir),
        (NfsStat4::FileOpen, OpNum4::Remove, Minor::V1, NfsStat4::FileOpen),
        (NfsStat4::FileOpen, OpNum4::Write, Minor::V1, NfsStat4::Access),
        (NfsStat4::NoEnt, OpNum4::Lookup, Minor::V1, NfsStat4::NoEnt),
    ] {
        assert_eq!(fit(status, op, minor), expected, "{status} of {op} in {minor:?}");
    }
}

#[test]
fn the_backends_errors_keep_their_meaning() {
    for (error, expected) in [
        (FsError::NotFound, "NFS4ERR_NOENT"),
        (FsError::Exists, "NFS4ERR_EXIST"),
        (FsError::NotDir, "NFS4ERR_NOTDIR"),
        (FsError::IsDir, "NFS4ERR_ISDIR"),
        (FsError::IsSymlink, "NFS4ERR_SYMLINK"),
        (FsError::WrongKind, "NFS4ERR_WRONG_TYPE"),
        (FsError::NotEmpty, "NFS4ERR_NOTEMPTY"),
        (FsError::Access, "NFS4ERR_ACCESS"),
        (FsError::Perm, "NFS4ERR_PERM"),
        (FsError::Invalid, "NFS4ERR_INVAL"),
        (FsError::BadName, "NFS4ERR_BADNAME"),
        (FsError::NameTooLong, "NFS4ERR_NAMETOOLONG"),
        (FsError::NoSpace, "NFS4ERR_NOSPC"),
        (FsError::Quota, "NFS4ERR_DQUOT"),
        (FsError::TooBig, "NFS4ERR_FBIG"),
        (FsError::ReadOnly, "NFS4ERR_ROFS"),
        (FsError::TooManyLinks, "NFS4ERR_MLINK"),
        (FsError::CrossDevice, "NFS4ERR_XDEV"),
        (FsError::NoDevice, "NFS4ERR_NXIO"),
        (FsError::Io, "NFS4ERR_IO"),
        (FsError::Stale, "NFS4ERR_STALE"),
        (FsError::BadHandle, "NFS4ERR_BADHANDLE"),
        (FsError::BadCookie, "NFS4ERR_BAD_COOKIE"),
        (FsError::NotSupported, "NFS4ERR_NOTSUPP"),
        (FsError::NoXattr, "NFS4ERR_NOXATTR"),
        (FsError::XattrTooBig, "NFS4ERR_XATTR2BIG"),
        (FsError::Busy, "NFS4ERR_FILE_OPEN"),
        (FsError::Locked, "NFS4ERR_LOCKED"),
        (FsError::NotSync, "NFS4ERR_NOT_SAME"),
        (FsError::WouldBlock, "NFS4ERR_DELAY"),
        (FsError::Delay, "NFS4ERR_DELAY"),
    ] {
        assert_eq!(from_fs(error).name(), expected, "{error}");
    }
}

#[test]
fn only_would_block_makes_an_operation_wait() {
    assert!(matches!(Failure::from(FsError::WouldBlock), Failure::Wait));
    assert!(matches!(Failure::from(FsError::Delay), Failure::Fs(FsError::Delay)));
}
