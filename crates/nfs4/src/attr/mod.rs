//! File attributes on the wire: which are served in which minor version, their encoding and decoding. The rest
//! of the crate speaks `vfs`'s attributes.

pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod ids;
pub(crate) mod look;

use holdfast_vfs::{AttrMask, FsLimits};
use holdfast_wire::nfs4::{Attr, Bitmap4};

use crate::desc::Minor;

/// Served in every minor version.
const IN_V40: Bitmap4 = Bitmap4::of(&[
    Attr::SupportedAttrs,
    Attr::Type,
    Attr::FhExpireType,
    Attr::Change,
    Attr::Size,
    Attr::LinkSupport,
    Attr::SymlinkSupport,
    Attr::NamedAttr,
    Attr::Fsid,
    Attr::UniqueHandles,
    Attr::LeaseTime,
    Attr::RdAttrError,
    Attr::AclSupport,
    Attr::CanSetTime,
    Attr::CaseInsensitive,
    Attr::CasePreserving,
    Attr::ChownRestricted,
    Attr::FileHandle,
    Attr::FileId,
    Attr::FilesAvail,
    Attr::FilesFree,
    Attr::FilesTotal,
    Attr::FsLocations,
    Attr::Homogeneous,
    Attr::MaxFileSize,
    Attr::MaxLink,
    Attr::MaxName,
    Attr::MaxRead,
    Attr::MaxWrite,
    Attr::Mode,
    Attr::NoTrunc,
    Attr::NumLinks,
    Attr::Owner,
    Attr::OwnerGroup,
    Attr::RawDev,
    Attr::SpaceAvail,
    Attr::SpaceFree,
    Attr::SpaceTotal,
    Attr::SpaceUsed,
    Attr::TimeAccess,
    Attr::TimeAccessSet,
    Attr::TimeCreate,
    Attr::TimeDelta,
    Attr::TimeMetadata,
    Attr::TimeModify,
    Attr::TimeModifySet,
    Attr::MountedOnFileId,
]);

/// Served from 4.1 on.
const FROM_V41: Bitmap4 = Bitmap4::of(&[Attr::SuppAttrExclCreat]);

/// Served from 4.2 on.
const FROM_V42: Bitmap4 = Bitmap4::of(&[
    Attr::CloneBlkSize,
    Attr::ChangeAttrType,
    Attr::ModeUmask,
    Attr::XattrSupport,
    Attr::TimeDelegAccess,
    Attr::TimeDelegModify,
    Attr::OpenArguments,
]);

/// The times of a file that a delegation hands over to its holder (RFC 9754 section 5).
pub(crate) const DELEGATED_TIMES: Bitmap4 = Bitmap4::of(&[Attr::TimeDelegAccess, Attr::TimeDelegModify]);

/// Can be set and not read (RFC 8881 section 5.5; RFC 8275 section 5; RFC 9754 section 5).
pub(crate) const WRITE_ONLY: Bitmap4 =
    Bitmap4::of(&[Attr::TimeAccessSet, Attr::TimeModifySet, Attr::ModeUmask]).or(DELEGATED_TIMES);

/// Can be set.
pub(crate) const SETTABLE: Bitmap4 = Bitmap4::of(&[
    Attr::Size,
    Attr::Mode,
    Attr::Owner,
    Attr::OwnerGroup,
    Attr::TimeAccessSet,
    Attr::TimeModifySet,
    Attr::ModeUmask,
])
.or(DELEGATED_TIMES);

/// Can be set by an exclusive create beside its verifier, which lies in the two times meanwhile
/// (RFC 8881 section 5.8.1.14).
pub(crate) const EXCLUSIVE_CREATE: Bitmap4 =
    SETTABLE.minus(DELEGATED_TIMES).without(Attr::TimeAccessSet as u32).without(Attr::TimeModifySet as u32);

/// What is told of a file system that lies elsewhere (RFC 8881 section 11.3), and whether that is an error: no attribute of its own.
pub(crate) const OF_ABSENT: Bitmap4 =
    Bitmap4::of(&[Attr::Fsid, Attr::RdAttrError, Attr::FsLocations, Attr::MountedOnFileId]);

/// Needs [`holdfast_vfs::FsUsage`].
pub(crate) const OF_USAGE: Bitmap4 = Bitmap4::of(&[
    Attr::FilesAvail,
    Attr::FilesFree,
    Attr::FilesTotal,
    Attr::SpaceAvail,
    Attr::SpaceFree,
    Attr::SpaceTotal,
]);

/// What a file system serves in a minor version.
pub(crate) const fn supported(minor: Minor, limits: &FsLimits) -> Bitmap4 {
    let all = match minor {
        Minor::V0 => IN_V40,
        Minor::V1 => IN_V40.or(FROM_V41),
        Minor::V2 => IN_V40.or(FROM_V41).or(FROM_V42),
    };
    if limits.has_birth_time { all } else { all.without(Attr::TimeCreate as u32) }
}

/// Asks a backend for nothing but what kind of object it is, which every answer tells: no holder of a delegation need
/// be asked for that.
pub(crate) const KIND: AttrMask = AttrMask::NONE;

/// What to ask a backend for, to serve these attributes.
pub(crate) const fn backend_mask(want: Bitmap4) -> AttrMask {
    let mut mask = AttrMask::STAT;
    if want.has(Attr::Change) {
        mask = mask.union(AttrMask::CHANGE);
    }
    if want.has(Attr::TimeCreate) {
        mask = mask.union(AttrMask::BIRTH);
    }
    if want.has(Attr::MountedOnFileId) {
        mask = mask.union(AttrMask::MOUNTED_ON);
    }
    mask
}
