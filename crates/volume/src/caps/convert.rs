//! Between the program's words and the machine's.

use holdfast_base::Timestamp;
use holdfast_cache::{Attrs, Changes, Device, Errno, Grant, Handle, Kind, NewAttrs, Object, SetTime};
use holdfast_client::Error;
use holdfast_wire::caps as wire;
use holdfast_wire::caps::{CapsStat, NodeKind};
use holdfast_wire::nfs4::NfsStat4;

pub(super) fn errno_of(status: u32) -> Errno {
    let own = match CapsStat::from_u32(status) {
        // Of an operation that others made impossible meanwhile.
        Some(CapsStat::Changed) => Some(Errno::ESTALE),
        Some(CapsStat::NotHeld | CapsStat::Depends | CapsStat::BadRef) => Some(Errno::EIO),
        Some(CapsStat::Delay | CapsStat::Grace) => Some(Errno::EAGAIN),
        _ => None,
    };
    own.unwrap_or_else(|| {
        let stat = NfsStat4::from_u32(status).unwrap_or(NfsStat4::ServerFault);
        Errno(Error::Nfs(stat).errno().raw_os_error())
    })
}

pub(super) fn grant(told: wire::Grant) -> Grant {
    Grant {
        caps: told.held.sound(),
        seq: told.seq,
        plain: told.flags.contains(wire::GrantFlags::PLAIN),
        group_of_directory: told.flags.contains(wire::GrantFlags::GROUP_OF_DIRECTORY),
        listed: told.flags.contains(wire::GrantFlags::LISTED),
        hands_on_none: told.flags.contains(wire::GrantFlags::HANDS_ON_NONE),
    }
}

fn time(told: wire::Time) -> Timestamp {
    Timestamp { seconds: told.seconds, nanos: told.nanos.min(999_999_999) }
}

fn wire_time(time: Timestamp) -> wire::Time {
    wire::Time { seconds: time.seconds, nanos: time.nanos }
}

pub(super) fn wire_set(time: SetTime) -> wire::SetTime {
    match time {
        SetTime::Now => wire::SetTime::Now,
        SetTime::At(time) => wire::SetTime::At(wire_time(time)),
    }
}

pub(super) fn attrs(told: &wire::Attrs) -> Attrs {
    Attrs {
        kind: match told.kind {
            NodeKind::Regular => Kind::File,
            NodeKind::Directory => Kind::Dir,
            NodeKind::Block => Kind::Block,
            NodeKind::Char => Kind::Char,
            NodeKind::Symlink => Kind::Symlink,
            NodeKind::Socket => Kind::Socket,
            NodeKind::Fifo => Kind::Fifo,
        },
        mode: told.mode & 0o7777,
        nlink: told.nlink,
        uid: told.uid,
        gid: told.gid,
        size: told.size,
        allocated: told.used,
        device: Device { major: told.rdev_major, minor: told.rdev_minor },
        atime: time(told.atime),
        mtime: time(told.mtime),
        ctime: time(told.ctime),
        btime: told.btime.map(time),
        change: told.change.0,
        fileid: told.fileid,
    }
}

pub(super) fn node_kind(kind: Kind) -> NodeKind {
    match kind {
        Kind::File => NodeKind::Regular,
        Kind::Dir => NodeKind::Directory,
        Kind::Symlink => NodeKind::Symlink,
        Kind::Block => NodeKind::Block,
        Kind::Char => NodeKind::Char,
        Kind::Fifo => NodeKind::Fifo,
        Kind::Socket => NodeKind::Socket,
    }
}

pub(super) fn object(told: &wire::NodeAt<'_>) -> Object {
    Object { handle: Handle::new(told.handle.0), attrs: attrs(&told.attrs), grant: Some(grant(told.grant)) }
}

pub(super) fn changes(changes: &Changes) -> wire::SetAttrs {
    wire::SetAttrs {
        mode: changes.mode,
        umask: None,
        uid: changes.uid,
        gid: changes.gid,
        size: changes.size,
        atime: changes.atime.map(wire_set),
        mtime: changes.mtime.map(wire_set),
    }
}

pub(super) fn new_attrs(attrs: &NewAttrs) -> wire::SetAttrs {
    wire::SetAttrs {
        mode: Some(attrs.mode),
        umask: (attrs.umask != 0).then_some(attrs.umask),
        uid: attrs.uid,
        gid: attrs.gid,
        size: None,
        atime: attrs.atime.map(|time| wire_set(SetTime::At(time))),
        mtime: attrs.mtime.map(|time| wire_set(SetTime::At(time))),
    }
}
