//! Attributes, from the backends' words to the wire's and back.

use holdfast_base::Timestamp;
use holdfast_vfs as vfs;
use holdfast_wire::caps;

/// All that is told of an object.
pub(crate) const ALL: vfs::AttrMask =
    vfs::AttrMask::STAT.union(vfs::AttrMask::CHANGE).union(vfs::AttrMask::BIRTH);

pub(crate) const fn kind(kind: vfs::FileKind) -> caps::NodeKind {
    match kind {
        vfs::FileKind::Regular => caps::NodeKind::Regular,
        vfs::FileKind::Directory => caps::NodeKind::Directory,
        vfs::FileKind::Block => caps::NodeKind::Block,
        vfs::FileKind::Char => caps::NodeKind::Char,
        vfs::FileKind::Symlink => caps::NodeKind::Symlink,
        vfs::FileKind::Socket => caps::NodeKind::Socket,
        vfs::FileKind::Fifo => caps::NodeKind::Fifo,
    }
}

pub(crate) const fn kind_of(kind: caps::NodeKind) -> vfs::FileKind {
    match kind {
        caps::NodeKind::Regular => vfs::FileKind::Regular,
        caps::NodeKind::Directory => vfs::FileKind::Directory,
        caps::NodeKind::Block => vfs::FileKind::Block,
        caps::NodeKind::Char => vfs::FileKind::Char,
        caps::NodeKind::Symlink => vfs::FileKind::Symlink,
        caps::NodeKind::Socket => vfs::FileKind::Socket,
        caps::NodeKind::Fifo => vfs::FileKind::Fifo,
    }
}

const fn time(at: Timestamp) -> caps::Time {
    caps::Time { seconds: at.seconds, nanos: at.nanos }
}

pub(crate) fn attrs(a: &vfs::Attrs) -> caps::Attrs {
    caps::Attrs {
        kind: kind(a.kind),
        mode: a.mode,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev_major: a.rdev.major,
        rdev_minor: a.rdev.minor,
        size: a.size,
        used: a.used,
        fsid_major: a.fsid.major,
        fsid_minor: a.fsid.minor,
        fileid: a.fileid,
        change: a.change,
        atime: time(a.atime),
        mtime: time(a.mtime),
        ctime: time(a.ctime),
        btime: a.btime.map(time),
    }
}

fn set_time(set: caps::SetTime) -> vfs::SetTime {
    match set {
        caps::SetTime::Now => vfs::SetTime::Now,
        caps::SetTime::At(at) => {
            vfs::SetTime::At(Timestamp { seconds: at.seconds, nanos: at.nanos.min(999_999_999) })
        }
    }
}

pub(crate) fn set_attrs(set: &caps::SetAttrs) -> vfs::SetAttrs {
    vfs::SetAttrs {
        mode: set.mode.map(|mode| mode & 0o7777),
        umask: set.umask.map(|umask| umask & 0o777),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set.atime.map(set_time),
        mtime: set.mtime.map(set_time),
    }
}
