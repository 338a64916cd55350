//! Between the program's words and the machine's.

use holdfast_base::Timestamp;
use holdfast_cache::{
    Acting, Answer, Attrs, Caller, CapSet, Changes, Device, Errno, Grant, Handle, Kind, Listed, Name,
    NewAttrs, Object, Promise, Question, SetTime,
};
use holdfast_client::Error;
use holdfast_wire::caps as wire;
use holdfast_wire::caps::{CapsStat, NodeKind};
use holdfast_wire::nfs4::NfsStat4;

/// What an application is told of a status.
#[must_use]
pub fn errno_of(status: u32) -> Errno {
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

/// What is held, as it was told.
#[must_use]
pub fn grant(told: wire::Grant) -> Grant {
    Grant {
        caps: told.held.sound(),
        seq: told.seq,
        plain: told.flags.contains(wire::GrantFlags::PLAIN),
        group_of_directory: told.flags.contains(wire::GrantFlags::GROUP_OF_DIRECTORY),
        listed: told.flags.contains(wire::GrantFlags::LISTED),
        hands_on_none: told.flags.contains(wire::GrantFlags::HANDS_ON_NONE),
        changed_since: told.flags.contains(wire::GrantFlags::CHANGED_SINCE),
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

/// Attributes, as they were told.
#[must_use]
pub fn attrs(told: &wire::Attrs) -> Attrs {
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

/// An object, as it was told.
#[must_use]
pub fn object(told: &wire::NodeAt<'_>) -> Object {
    Object { handle: Handle::new(told.handle.0), attrs: attrs(&told.attrs), grant: Some(grant(told.grant)) }
}

/// Changes of attributes, to be told.
#[must_use]
pub fn changes(changes: &Changes) -> wire::SetAttrs {
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

/// What something new is to have, to be told.
#[must_use]
pub fn new_attrs(attrs: &NewAttrs) -> wire::SetAttrs {
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

/// What a name stands for, as it was told.
#[must_use]
pub fn looked(told: &wire::FindOk<'_>) -> Answer {
    let found = match &told.looked.found {
        wire::Looked::Absent => None,
        wire::Looked::Present(node) => Some(object(node)),
    };
    let promise = told.promise.map(|told| Promise { token: Handle::new(told.token.0), seq: told.seq });
    Answer::Looked { found, dir: Some(grant(told.looked.dir.grant)), promise }
}

/// A stretch of a directory, as it was told.
#[must_use]
pub fn listed(told: &wire::ListOk<'_>) -> Answer {
    let entries = told.entries.iter().map(|entry| {
        let object = entry.node.into_result().ok().map(|node| object(&node));
        // Without its attributes its kind is not told; whoever wants it looks it up.
        let brief = (object.as_ref().map(|object| object.attrs.kind), entry.fileid);
        Listed { name: Name::new(entry.name), cookie: entry.cookie.0, object, brief }
    });
    Answer::Listed {
        entries: entries.collect(),
        eof: told.eof,
        verifier: 0,
        dir: Some(grant(told.dir.grant)),
        dir_attrs: Some(attrs(&told.dir.attrs)),
    }
}

/// As whom a caller acts, as it was told.
#[must_use]
pub fn acting(told: wire::WhoAmIOk) -> Acting {
    if told.is_read_only {
        Acting::Unknown
    } else if told.is_mapped {
        Acting::As(Caller { uid: told.uid, gid: told.gid, groups: told.groups.into() })
    } else {
        Acting::AsItself
    }
}

/// Of an object, what is wished for.
type Wish = Option<(Handle, CapSet)>;

/// What a question that goes by NFS wishes for, of the object and of the directory.
#[must_use]
pub fn wishes(question: &Question, answer: &Answer) -> (Wish, Wish) {
    let wish = |handle: &Handle, want: CapSet| (!want.is_empty()).then(|| (handle.clone(), want));
    let made = |want: CapSet| match answer {
        Answer::Created { object, .. } => wish(&object.handle, want),
        _ => None,
    };
    match question {
        // What was made is gone again, and nobody would hear of what is granted.
        _ if matches!(answer, Answer::Done) => (None, None),
        Question::Open { object, want, .. } | Question::SetAttr { object, want, .. } => {
            (wish(object, *want), None)
        }
        Question::Create { dir, want, want_dir, .. } | Question::Make { dir, want, want_dir, .. } => {
            (made(*want), wish(dir, *want_dir))
        }
        Question::Nameless { want, .. } => (made(*want), None),
        Question::Link { dir, want_dir, .. } | Question::Remove { dir, want_dir, .. } => {
            (None, wish(dir, *want_dir))
        }
        Question::Rename { to_dir, want_dir, .. } => (None, wish(to_dir, *want_dir)),
        _ => (None, None),
    }
}

/// What came of those wishes, in the answer that was had without them.
pub fn grant_wishes(answer: &mut Answer, of_object: Option<(Attrs, Grant)>, of_dir: Option<(Attrs, Grant)>) {
    match answer {
        Answer::Created { object, dir, dir_attrs, .. } => {
            if let Some((attrs, grant)) = of_object {
                (object.attrs, object.grant) = (attrs, Some(grant));
            }
            (*dir, *dir_attrs) = (of_dir.map(|(_, grant)| grant), of_dir.map(|(attrs, _)| attrs));
        }
        Answer::Gone { dir, dir_attrs } => {
            (*dir, *dir_attrs) = (of_dir.map(|(_, grant)| grant), of_dir.map(|(attrs, _)| attrs));
        }
        Answer::Opened { attrs, grant, .. } | Answer::Attrs { attrs, grant } => {
            if let Some((now, given)) = of_object {
                (*attrs, *grant) = (now, Some(given));
            }
        }
        _ => {}
    }
}
