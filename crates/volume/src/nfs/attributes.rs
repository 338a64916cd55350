//! Attributes between the client's words and the machine's.

use holdfast_base::Timestamp;
use holdfast_cache::{Attrs, Changes, Device, Kind, NewAttrs, SetTime};
use holdfast_client::{Attributes, Error, SetAttributes};
use holdfast_wire::nfs4::{Attr, Bitmap4, NfsFtype4, NfsStat4, NfsTime4, SetTime4};

/// What the machine wants to know of every object.
pub(crate) const WANTED: Bitmap4 = Attributes::STAT_BIRTH;

/// The machine's attributes.
///
/// # Errors
/// The error that stands in their place in a listing; `Protocol` when what no object lacks is missing.
pub(crate) fn attrs_of(told: &Attributes) -> Result<Attrs, Error> {
    if let Some(status) = told.error.filter(|status| *status != NfsStat4::Ok) {
        return Err(Error::Nfs(status));
    }
    if !told.has(Attr::Type) || !told.has(Attr::FileId) {
        return Err(Error::Protocol("attributes without a type or a number"));
    }
    Ok(Attrs {
        kind: kind_of(told.kind),
        mode: told.mode & 0o7777,
        nlink: told.links,
        uid: told.uid,
        gid: told.gid,
        size: told.size,
        allocated: told.used,
        device: Device { major: told.device.0, minor: told.device.1 },
        atime: time_of(told.accessed),
        mtime: time_of(told.modified),
        ctime: time_of(told.changed),
        btime: told.born.map(time_of),
        change: told.change.0,
        fileid: told.fileid,
    })
}

/// Kind and number of an entry whose other attributes cannot be had; no kind, and the number 0, where these cannot either.
pub(super) fn brief_of(told: &Attributes) -> (Option<Kind>, u64) {
    let number = if told.has(Attr::MountedOnFileId) { told.mounted_on } else { told.fileid };
    (told.has(Attr::Type).then(|| kind_of(told.kind)), number)
}

fn kind_of(told: NfsFtype4) -> Kind {
    match told {
        NfsFtype4::Dir => Kind::Dir,
        NfsFtype4::Lnk => Kind::Symlink,
        NfsFtype4::Blk => Kind::Block,
        NfsFtype4::Chr => Kind::Char,
        NfsFtype4::Fifo => Kind::Fifo,
        NfsFtype4::Sock => Kind::Socket,
        // Named attributes are not reached; whatever else is told is taken for a file.
        _ => Kind::File,
    }
}

fn time_of(told: NfsTime4) -> Timestamp {
    Timestamp { seconds: told.seconds, nanos: told.nseconds.min(999_999_999) }
}

fn wire_time(time: Timestamp) -> NfsTime4 {
    NfsTime4 { seconds: time.seconds, nseconds: time.nanos }
}

fn wire_set(time: SetTime) -> SetTime4 {
    match time {
        SetTime::Now => SetTime4::ToServerTime,
        SetTime::At(time) => SetTime4::ToClientTime(wire_time(time)),
    }
}

pub(super) fn set_attributes(changes: &Changes) -> SetAttributes {
    SetAttributes {
        size: changes.size,
        mode: changes.mode,
        uid: changes.uid,
        gid: changes.gid,
        accessed: changes.atime.map(wire_set),
        modified: changes.mtime.map(wire_set),
        ..SetAttributes::default()
    }
}

pub(super) fn new_attributes(attrs: &NewAttrs) -> SetAttributes {
    let has_umask = attrs.umask != 0;
    SetAttributes {
        mode: (!has_umask).then_some(attrs.mode),
        mode_umask: has_umask.then_some((attrs.mode, attrs.umask)),
        uid: attrs.uid,
        gid: attrs.gid,
        accessed: attrs.atime.map(|time| wire_set(SetTime::At(time))),
        modified: attrs.mtime.map(|time| wire_set(SetTime::At(time))),
        ..SetAttributes::default()
    }
}
