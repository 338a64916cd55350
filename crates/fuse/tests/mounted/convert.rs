//! Words of FUSE as words of the in-memory backend, and back.

use holdfast_fuse::{Attr, Device, Errno, NameIn, OpenFlags, Result, SetTime};
use holdfast_vfs::{Attrs, FileKind, FsError, Name, OpenMode, SetAttrs};

pub(crate) fn errno(why: FsError) -> Errno {
    match why {
        // The kernel's callers of readlink, and open of what is none, know EINVAL.
        FsError::WrongKind => Errno::INVAL,
        FsError::BadHandle => Errno::STALE,
        other => Errno::from_raw_os_error(other.to_errno()),
    }
}

pub(crate) fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::Regular => libc::S_IFREG,
        FileKind::Directory => libc::S_IFDIR,
        FileKind::Block => libc::S_IFBLK,
        FileKind::Char => libc::S_IFCHR,
        FileKind::Symlink => libc::S_IFLNK,
        FileKind::Socket => libc::S_IFSOCK,
        FileKind::Fifo => libc::S_IFIFO,
    }
}

pub(crate) fn attr(a: &Attrs) -> Attr {
    Attr {
        ino: a.fileid,
        size: a.size,
        blocks: a.used.div_ceil(512),
        atime: a.atime,
        mtime: a.mtime,
        ctime: a.ctime,
        mode: a.mode | kind_bits(a.kind),
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: Device { major: a.rdev.major, minor: a.rdev.minor },
        blksize: 0,
    }
}

pub(crate) fn time(at: SetTime) -> holdfast_vfs::SetTime {
    match at {
        SetTime::Now => holdfast_vfs::SetTime::Now,
        SetTime::At(at) => holdfast_vfs::SetTime::At(at),
    }
}

pub(crate) fn name(at: NameIn<'_>) -> Result<Name<'_>> {
    Name::new(at.name).map_err(errno)
}

pub(crate) fn with_mode(mode: u32) -> SetAttrs {
    SetAttrs { mode: Some(mode & 0o7777), ..SetAttrs::default() }
}

pub(crate) fn open_mode(flags: OpenFlags) -> OpenMode {
    OpenMode { read: flags.may_read(), write: flags.may_write(), nfs_exceptions: false }
}
