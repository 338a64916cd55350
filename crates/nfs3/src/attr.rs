//! Attributes between the backend's words and RFC 1813's.

use holdfast_base::Timestamp;
use holdfast_vfs::{Attrs, Change, FileKind, FsId, PreAttrs, SetAttrs, SetTime};
use holdfast_wire::nfs3::{
    Fattr3, Ftype3, NfsStat3, NfsTime3, Sattr3, SetTime3, SpecData3, WccAttr, WccData,
};

const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// A file system's identity in one number.
pub(crate) const fn fsid(id: FsId) -> u64 {
    // Rotated, so that two halves that are equal do not cancel out.
    id.major ^ id.minor.rotate_left(32)
}

/// A time. NFSv3 has 1970 to 2106: what lies outside is moved to the nearest end, for a wrapped time would lie.
pub(crate) fn time(t: Timestamp) -> NfsTime3 {
    match u32::try_from(t.seconds) {
        Ok(seconds) => NfsTime3 { seconds, nseconds: t.nanos },
        Err(_) if t.seconds < 0 => NfsTime3 { seconds: 0, nseconds: 0 },
        Err(_) => NfsTime3 { seconds: u32::MAX, nseconds: NANOS_PER_SECOND - 1 },
    }
}

/// A time from a client.
pub(crate) fn timestamp(t: NfsTime3) -> Result<Timestamp, NfsStat3> {
    if t.nseconds >= NANOS_PER_SECOND {
        return Err(NfsStat3::Inval);
    }
    Ok(Timestamp { seconds: i64::from(t.seconds), nanos: t.nseconds })
}

pub(crate) fn fattr(a: &Attrs) -> Fattr3 {
    Fattr3 {
        ftype: match a.kind {
            FileKind::Regular => Ftype3::Reg,
            FileKind::Directory => Ftype3::Dir,
            FileKind::Block => Ftype3::Blk,
            FileKind::Char => Ftype3::Chr,
            FileKind::Symlink => Ftype3::Lnk,
            FileKind::Socket => Ftype3::Sock,
            FileKind::Fifo => Ftype3::Fifo,
        },
        mode: a.mode & 0o7777,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        size: a.size,
        used: a.used,
        rdev: SpecData3 { major: a.rdev.major, minor: a.rdev.minor },
        fsid: fsid(a.fsid),
        fileid: a.fileid,
        atime: time(a.atime),
        mtime: time(a.mtime),
        ctime: time(a.ctime),
    }
}

/// Weak cache consistency data of a change. What was before is told only where nobody else can have come
/// between: a client takes it as proof that its cache was right.
pub(crate) fn wcc(change: &Change) -> WccData {
    let wcc_attr = |p: &PreAttrs| WccAttr { size: p.size, mtime: time(p.mtime), ctime: time(p.ctime) };
    WccData { before: change.is_atomic.then(|| wcc_attr(&change.before)), after: Some(fattr(&change.after)) }
}

/// Attributes to set.
pub(crate) fn set_attrs(s: &Sattr3) -> Result<SetAttrs, NfsStat3> {
    let set_time = |t: SetTime3| match t {
        SetTime3::DontChange => Ok(None),
        SetTime3::ToServerTime => Ok(Some(SetTime::Now)),
        SetTime3::ToClientTime(t) => timestamp(t).map(|t| Some(SetTime::At(t))),
    };
    Ok(SetAttrs {
        // Some clients send the type's bits along.
        mode: s.mode.map(|mode| mode & 0o7777),
        umask: None,
        uid: s.uid,
        gid: s.gid,
        size: s.size,
        atime: set_time(s.atime)?,
        mtime: set_time(s.mtime)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_outside_of_32_bits_go_to_the_nearest_end() {
        let at = |seconds| time(Timestamp { seconds, nanos: 5 });
        assert_eq!(at(-1), NfsTime3 { seconds: 0, nseconds: 0 });
        assert_eq!(at(i64::from(u32::MAX)), NfsTime3 { seconds: u32::MAX, nseconds: 5 });
        assert_eq!(at(1 << 32), NfsTime3 { seconds: u32::MAX, nseconds: 999_999_999 });
    }

    #[test]
    fn a_second_has_a_billion_nanoseconds() {
        assert_eq!(timestamp(NfsTime3 { seconds: 1, nseconds: 1_000_000_000 }), Err(NfsStat3::Inval));
    }
}
