//! From `vfs` attributes to `fattr4`.

use holdfast_base::Timestamp;
use holdfast_base::limits::IO_BYTES_MAX;
use holdfast_export::Location;
use holdfast_vfs::{Attrs, FileKind, FsLimits, FsUsage};
use holdfast_wire::nfs4::{
    Attr, Bitmap4, ChangeAttrType4, NfsFtype4, NfsStat4, OPEN_ARGS_SHARE_ACCESS_WANT_ANY_DELEG,
    OPEN_ARGS_SHARE_ACCESS_WANT_CANCEL, OPEN_ARGS_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS,
    OPEN_ARGS_SHARE_ACCESS_WANT_NO_DELEG, OPEN_ARGS_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION,
    OPEN_ARGS_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED,
    OPEN_ARGS_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL, OpenArguments4,
};
use holdfast_xdr::{Encode, Writer};

use super::ids::IdNames;
use crate::desc::Minor;

/// All that an object's attributes are made of.
pub(crate) struct Source<'a> {
    /// Minor version: decides what is supported.
    pub(crate) minor: Minor,
    /// Why others of its attributes are not there.
    pub(crate) status: NfsStat4,
    /// From the backend, asked for with [`super::backend_mask`].
    pub(crate) attrs: &'a Attrs,
    /// Of its file system.
    pub(crate) limits: &'a FsLimits,
    /// Of its file system; needed for [`super::OF_USAGE`] only.
    pub(crate) usage: Option<&'a FsUsage>,
    /// As it goes over the wire.
    pub(crate) handle: &'a [u8],
    /// For `fs_locations`.
    pub(crate) places: Places<'a>,
    /// In seconds.
    pub(crate) lease_seconds: u32,
    /// How owners are written.
    pub(crate) ids: &'a dyn IdNames,
}

/// Where an export is.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    /// Its path here.
    pub(crate) root: &'a [Vec<u8>],
    /// Where else, or instead.
    pub(crate) others: &'a [Location],
}

/// Writes a `fattr4` of the wanted attributes that can be read; `want` are supported, and none of them write-only: GETATTR
/// refuses those before.
pub(crate) fn fattr(source: &Source<'_>, want: Bitmap4, to: &mut Writer) {
    let given = want.minus(super::WRITE_ONLY);
    given.encode(to);
    let length = to.mark();
    for attr in given.iter().filter_map(Attr::from_u32) {
        value(source, attr, to);
    }
    let bytes = to.since(length);
    to.fill(length, bytes as u32);
}

/// Writes a `fattr4` that tells only why an entry's attributes are not there (RFC 8881 section 5.8.1.12).
pub(crate) fn rdattr_error(status: NfsStat4, to: &mut Writer) {
    Bitmap4::from(Attr::RdAttrError).encode(to);
    to.u32(4);
    to.u32(status as u32);
}

fn value(source: &Source<'_>, attr: Attr, to: &mut Writer) {
    let Source { attrs, limits, .. } = source;
    let usage = source.usage.copied().unwrap_or_default();
    match attr {
        Attr::SupportedAttrs => super::supported(source.minor, limits).encode(to),
        Attr::Type => file_type(attrs.kind).encode(to),
        // FH4_PERSISTENT: handles live as long as their object (RFC 8881 section 4.2.2).
        Attr::FhExpireType => to.u32(0),
        Attr::Change => to.u64(attrs.change.0),
        Attr::Size => to.u64(attrs.size),
        Attr::LinkSupport | Attr::SymlinkSupport | Attr::UniqueHandles => true.encode(to),
        Attr::CanSetTime | Attr::CasePreserving | Attr::ChownRestricted => true.encode(to),
        Attr::Homogeneous | Attr::NoTrunc => true.encode(to),
        Attr::NamedAttr | Attr::CaseInsensitive => false.encode(to),
        Attr::Fsid => {
            to.u64(attrs.fsid.major);
            to.u64(attrs.fsid.minor);
        }
        Attr::LeaseTime => to.u32(source.lease_seconds),
        Attr::RdAttrError => to.u32(source.status as u32),
        // No kind of NFSv4 ACL entry is stored: POSIX ACLs rule, below the protocol.
        Attr::AclSupport => to.u32(0),
        Attr::FileHandle => to.opaque(source.handle),
        Attr::FileId => to.u64(attrs.fileid),
        Attr::FilesAvail => to.u64(usage.files_available),
        Attr::FilesFree => to.u64(usage.files_free),
        Attr::FilesTotal => to.u64(usage.files_total),
        Attr::FsLocations => fs_locations(source.places, to),
        Attr::MaxFileSize => to.u64(limits.file_bytes_max),
        Attr::MaxLink => to.u32(limits.links_max),
        Attr::MaxName => to.u32(limits.name_bytes_max),
        Attr::MaxRead | Attr::MaxWrite => to.u64(IO_BYTES_MAX as u64),
        Attr::Mode => to.u32(attrs.mode & 0o7777),
        Attr::NumLinks => to.u32(attrs.nlink),
        Attr::Owner => source.ids.write_user(attrs.uid, to),
        Attr::OwnerGroup => source.ids.write_group(attrs.gid, to),
        Attr::RawDev => {
            to.u32(attrs.rdev.major);
            to.u32(attrs.rdev.minor);
        }
        Attr::SpaceAvail => to.u64(usage.bytes_available),
        Attr::SpaceFree => to.u64(usage.bytes_free),
        Attr::SpaceTotal => to.u64(usage.bytes_total),
        Attr::SpaceUsed => to.u64(attrs.used),
        Attr::TimeAccess => time(attrs.atime, to),
        Attr::TimeCreate => time(attrs.btime.unwrap_or_default(), to),
        Attr::TimeDelta => time(Timestamp { seconds: 0, nanos: limits.time_delta_nanos }, to),
        Attr::TimeMetadata => time(attrs.ctime, to),
        Attr::TimeModify => time(attrs.mtime, to),
        Attr::MountedOnFileId => to.u64(attrs.mounted_on_fileid),
        Attr::SuppAttrExclCreat => {
            super::supported(source.minor, limits).and(super::EXCLUSIVE_CREATE).encode(to);
        }
        Attr::CloneBlkSize => to.u32(limits.clone_block_bytes),
        Attr::ChangeAttrType => change_attr_type(limits).encode(to),
        Attr::XattrSupport => limits.has_xattrs.encode(to),
        Attr::OpenArguments => OPEN_ARGUMENTS.encode(to),
        // Not in `supported`: never asked for here.
        _ => debug_assert!(false, "{attr:?} is not served"),
    }
}

/// What OPEN understands (RFC 9754 section 3).
const OPEN_ARGUMENTS: OpenArguments4 = OpenArguments4 {
    share_access: Bitmap4::from_bits(1 << 1 | 1 << 2 | 1 << 3),
    share_deny: Bitmap4::from_bits(1 | 1 << 1 | 1 << 2 | 1 << 3),
    share_access_want: Bitmap4::EMPTY
        .with(OPEN_ARGS_SHARE_ACCESS_WANT_ANY_DELEG)
        .with(OPEN_ARGS_SHARE_ACCESS_WANT_NO_DELEG)
        .with(OPEN_ARGS_SHARE_ACCESS_WANT_CANCEL)
        .with(OPEN_ARGS_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL)
        .with(OPEN_ARGS_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED)
        .with(OPEN_ARGS_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS)
        .with(OPEN_ARGS_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION),
    // NULL, PREVIOUS, DELEGATE_CUR, FH, DELEG_CUR_FH: not those of a client's earlier life.
    open_claim: Bitmap4::from_bits(1 | 1 << 1 | 1 << 2 | 1 << 4 | 1 << 5),
    create_mode: Bitmap4::from_bits(1 | 1 << 1 | 1 << 2 | 1 << 3),
};

pub(crate) const fn file_type(kind: FileKind) -> NfsFtype4 {
    match kind {
        FileKind::Regular => NfsFtype4::Reg,
        FileKind::Directory => NfsFtype4::Dir,
        FileKind::Block => NfsFtype4::Blk,
        FileKind::Char => NfsFtype4::Chr,
        FileKind::Symlink => NfsFtype4::Lnk,
        FileKind::Socket => NfsFtype4::Sock,
        FileKind::Fifo => NfsFtype4::Fifo,
    }
}

/// A time, even with a count, falls where the calendar is set back. A client that was told that it only grows would take what
/// it hears from then on for old news, and keep its own (RFC 7862 section 12.2.3).
const fn change_attr_type(limits: &FsLimits) -> ChangeAttrType4 {
    if limits.change_is_version_counter {
        ChangeAttrType4::VersionCounter
    } else {
        ChangeAttrType4::Undefined
    }
}

/// Its root here, and each place beside or instead of this one with its own (RFC 8881 section 11.9).
fn fs_locations(places: Places<'_>, to: &mut Writer) {
    path(places.root, to);
    to.length(places.others.len());
    for place in places.others {
        to.length(1);
        to.opaque(place.server().as_bytes());
        path(place.path(places.root), to);
    }
}

fn path(names: &[Vec<u8>], to: &mut Writer) {
    to.length(names.len());
    names.iter().for_each(|name| to.opaque(name));
}

fn time(t: Timestamp, to: &mut Writer) {
    t.seconds.encode(to);
    to.u32(t.nanos);
}

#[cfg(test)]
mod tests {
    use super::super::look::PSEUDO_LIMITS;
    use super::*;

    #[test]
    fn a_change_attribute_is_said_to_grow_only_where_nothing_lets_it_fall() {
        assert_eq!(change_attr_type(&PSEUDO_LIMITS), ChangeAttrType4::Undefined);
        let counted = FsLimits { change_is_version_counter: true, ..PSEUDO_LIMITS };
        assert_eq!(change_attr_type(&counted), ChangeAttrType4::VersionCounter);
    }
}
