//! The one table between Linux's error numbers and [`FsError`]. Total in both directions: an unknown number is an
//! I/O error, because a client can do nothing better with it.

use libc::c_int;

use crate::error::FsError;

/// Pairs that hold in both directions, but for those that the two functions below treat apart.
const TABLE: &[(c_int, FsError)] = &[
    (libc::ENOENT, FsError::NotFound),
    (libc::EEXIST, FsError::Exists),
    (libc::ENOTDIR, FsError::NotDir),
    (libc::EISDIR, FsError::IsDir),
    (libc::ELOOP, FsError::IsSymlink),
    (libc::ESPIPE, FsError::WrongKind),
    (libc::ENOTEMPTY, FsError::NotEmpty),
    (libc::EACCES, FsError::Access),
    (libc::EPERM, FsError::Perm),
    (libc::EINVAL, FsError::Invalid),
    (libc::EILSEQ, FsError::BadName),
    (libc::ENAMETOOLONG, FsError::NameTooLong),
    (libc::ENOSPC, FsError::NoSpace),
    (libc::EDQUOT, FsError::Quota),
    (libc::EFBIG, FsError::TooBig),
    (libc::EROFS, FsError::ReadOnly),
    (libc::EMLINK, FsError::TooManyLinks),
    (libc::EXDEV, FsError::CrossDevice),
    (libc::ENXIO, FsError::NoDevice),
    (libc::EIO, FsError::Io),
    (libc::ESTALE, FsError::Stale),
    (libc::EBADF, FsError::BadHandle),
    (libc::EBADR, FsError::BadCookie),
    (libc::EOPNOTSUPP, FsError::NotSupported),
    (libc::ENODATA, FsError::NoXattr),
    (libc::E2BIG, FsError::XattrTooBig),
    (libc::EBUSY, FsError::Busy),
    (libc::ENOLCK, FsError::Locked),
    (libc::EUCLEAN, FsError::NotSync),
    (libc::EWOULDBLOCK, FsError::WouldBlock),
    (libc::ENOMEM, FsError::Delay),
];

impl FsError {
    /// What a system call's error number means. A number that is not known is [`FsError::Io`].
    #[must_use]
    pub fn from_errno(errno: i32) -> Self {
        match errno {
            // A damaged file system says EUCLEAN or EBADMSG, a failed remote medium the others.
            libc::EUCLEAN | libc::EBADMSG | libc::EREMOTEIO | libc::ESHUTDOWN => Self::Io,
            // The descriptor was not opened for this: the same to a client as lacking the permission.
            libc::EBADF => Self::Access,
            libc::ENODEV => Self::NoDevice,
            libc::EOVERFLOW => Self::TooBig,
            libc::ERANGE => Self::XattrTooBig,
            libc::ENOSYS | libc::ENOTTY => Self::NotSupported,
            libc::ETXTBSY => Self::Busy,
            libc::EDEADLK => Self::Locked,
            libc::EMFILE | libc::ENFILE | libc::EINTR | libc::ENOLCK | libc::ENOBUFS => Self::Delay,
            _ => TABLE.iter().find(|(n, _)| *n == errno).map_or(Self::Io, |(_, e)| *e),
        }
    }

    /// The error number nearest to it.
    #[must_use]
    pub fn to_errno(self) -> i32 {
        match self {
            Self::BadHandle | Self::BadCookie => libc::EINVAL,
            Self::Locked | Self::Delay => libc::EAGAIN,
            Self::NotSync => libc::ESTALE,
            // WrongKind is what readlink(2) and read(2) call EINVAL.
            Self::WrongKind => libc::EINVAL,
            _ => TABLE.iter().find(|(_, e)| *e == self).map_or(libc::EIO, |(n, _)| *n),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_system_call_says_comes_back_as_the_same_number() {
        for n in [
            libc::ENOENT,
            libc::EEXIST,
            libc::ENOTDIR,
            libc::EISDIR,
            libc::ELOOP,
            libc::ENOTEMPTY,
            libc::EACCES,
            libc::EPERM,
            libc::EINVAL,
            libc::ENAMETOOLONG,
            libc::ENOSPC,
            libc::EDQUOT,
            libc::EFBIG,
            libc::EROFS,
            libc::EMLINK,
            libc::EXDEV,
            libc::ENXIO,
            libc::EIO,
            libc::ESTALE,
            libc::EOPNOTSUPP,
            libc::ENODATA,
            libc::E2BIG,
            libc::EBUSY,
            libc::EAGAIN,
        ] {
            assert_eq!(FsError::from_errno(n).to_errno(), n, "errno {n}");
        }
    }

    #[test]
    fn every_number_means_something_and_a_shortage_is_never_a_final_error() {
        for n in -1..4096 {
            let e = FsError::from_errno(n);
            assert!(e.to_errno() > 0, "errno {n}");
        }
        for n in [libc::ENOMEM, libc::EMFILE, libc::ENFILE, libc::EINTR] {
            assert_eq!(FsError::from_errno(n), FsError::Delay);
        }
        for n in [libc::EUCLEAN, libc::EBADMSG, 0, 4095] {
            assert_eq!(FsError::from_errno(n), FsError::Io);
        }
    }
}
