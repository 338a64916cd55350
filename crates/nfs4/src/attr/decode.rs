//! From `fattr4` to what a client wants set.

use holdfast_base::Timestamp;
use holdfast_vfs::{FsLimits, SetAttrs, SetTime};
use holdfast_wire::nfs4::{Attr, Bitmap4, Fattr4, ModeUmask4, NfsStat4, NfsTime4, SetTime4};
use holdfast_xdr::{Decode, Reader};

use super::ids::{Id, IdNames};
use crate::desc::Minor;

/// Longest text of an owner that is looked at; a longer one is no owner of ours.
const OWNER_TEXT_BYTES_MAX: usize = 1024;

/// What the attributes are set for: what may be among them differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// SETATTR: no `mode_umask` (RFC 8275 section 5).
    Setattr,
    /// OPEN and CREATE of something new.
    Create,
    /// EXCLUSIVE4_1: only what `suppattr_exclcreat` lists.
    ExclusiveCreate,
}

/// What was asked to be set, and by which attributes: the answer's `attrsset` when all succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// For the backend.
    pub(crate) set: SetAttrs,
    /// Times that are the client's to tell by a delegation (RFC 9754): not for the backend as they are.
    pub(crate) delegated: DelegatedTimes,
    /// As the client named them.
    pub(crate) mask: Bitmap4,
}

/// Times as the holder of a delegation tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DelegatedTimes {
    pub(crate) access: Option<Timestamp>,
    pub(crate) modify: Option<Timestamp>,
}

/// Reads a `fattr4` that is to be applied.
///
/// # Errors
/// NFS4ERR_ATTRNOTSUPP for what this file system does not keep, NFS4ERR_INVAL for what cannot be set or has a
/// value out of range, NFS4ERR_FBIG for a size above the file system's greatest, NFS4ERR_BADOWNER, NFS4ERR_BADXDR.
pub(crate) fn wanted(
    fattr: &Fattr4<'_>,
    minor: Minor,
    limits: &FsLimits,
    ids: &dyn IdNames,
    occasion: Occasion,
) -> Result<Wanted, NfsStat4> {
    check(fattr.mask, super::supported(minor, limits), occasion)?;
    let mut wanted = Wanted { mask: fattr.mask, ..Wanted::default() };
    let mut values = Reader::new(fattr.values);
    for attr in fattr.mask.iter().filter_map(Attr::from_u32) {
        one(attr, &mut values, ids, &mut wanted)?;
    }
    values.finish().map_err(bad_xdr)?;
    if wanted.set.size.is_some_and(|size| size > limits.file_bytes_max) {
        return Err(NfsStat4::Fbig);
    }
    Ok(wanted)
}

fn check(mask: Bitmap4, supported: Bitmap4, occasion: Occasion) -> Result<(), NfsStat4> {
    let settable = match occasion {
        Occasion::Setattr => super::SETTABLE.without(Attr::ModeUmask as u32),
        Occasion::Create => super::SETTABLE.minus(super::DELEGATED_TIMES),
        Occasion::ExclusiveCreate => super::EXCLUSIVE_CREATE,
    };
    if mask.has_beyond() || !mask.minus(supported).is_empty() {
        return Err(NfsStat4::AttrNotSupp);
    }
    let both_modes = mask.has(Attr::Mode) && mask.has(Attr::ModeUmask);
    if both_modes || !mask.minus(settable).is_empty() {
        return Err(NfsStat4::Inval);
    }
    Ok(())
}

fn one(attr: Attr, from: &mut Reader<'_>, ids: &dyn IdNames, wanted: &mut Wanted) -> Result<(), NfsStat4> {
    let Wanted { set, delegated, .. } = wanted;
    match attr {
        Attr::Size => set.size = Some(from.u64().map_err(bad_xdr)?),
        Attr::Mode => set.mode = Some(mode(from.u32().map_err(bad_xdr)?)?),
        Attr::Owner => {
            let text = owner(from)?;
            set.uid = Some(known(ids.user(text))?);
        }
        Attr::OwnerGroup => {
            let text = owner(from)?;
            set.gid = Some(known(ids.group(text))?);
        }
        Attr::TimeAccessSet => set.atime = Some(set_time(SetTime4::decode(from).map_err(bad_xdr)?)?),
        Attr::TimeModifySet => set.mtime = Some(set_time(SetTime4::decode(from).map_err(bad_xdr)?)?),
        Attr::ModeUmask => {
            let value = ModeUmask4::decode(from).map_err(bad_xdr)?;
            set.mode = Some(mode(value.mode)?);
            // RFC 8275 section 5: only the permission bits of a umask count.
            set.umask = Some(value.umask & 0o777);
        }
        Attr::TimeDelegAccess => delegated.access = Some(time(NfsTime4::decode(from).map_err(bad_xdr)?)?),
        Attr::TimeDelegModify => delegated.modify = Some(time(NfsTime4::decode(from).map_err(bad_xdr)?)?),
        _ => return Err(NfsStat4::Inval),
    }
    Ok(())
}

/// An owner's text. An empty one is no string of the protocol's (RFC 7530 section 5.9), let alone somebody unknown.
fn owner<'a>(from: &mut Reader<'a>) -> Result<&'a [u8], NfsStat4> {
    match from.opaque(OWNER_TEXT_BYTES_MAX).map_err(bad_xdr)? {
        [] => Err(NfsStat4::Inval),
        text => Ok(text),
    }
}

const fn known(id: Id) -> Result<u32, NfsStat4> {
    match id {
        Id::Known(id) => Ok(id),
        Id::Unknown => Err(NfsStat4::BadOwner),
        Id::NotYet => Err(NfsStat4::Delay),
    }
}

const fn mode(bits: u32) -> Result<u32, NfsStat4> {
    if bits & !0o7777 == 0 { Ok(bits) } else { Err(NfsStat4::Inval) }
}

fn set_time(given: SetTime4) -> Result<SetTime, NfsStat4> {
    match given {
        SetTime4::ToServerTime => Ok(SetTime::Now),
        SetTime4::ToClientTime(given) => time(given).map(SetTime::At),
    }
}

pub(crate) const fn time(NfsTime4 { seconds, nseconds }: NfsTime4) -> Result<Timestamp, NfsStat4> {
    if nseconds < 1_000_000_000 { Ok(Timestamp { seconds, nanos: nseconds }) } else { Err(NfsStat4::Inval) }
}

fn bad_xdr(_: holdfast_xdr::Error) -> NfsStat4 {
    NfsStat4::BadXdr
}

#[cfg(test)]
mod tests {
    use holdfast_xdr::{Encode, Writer};

    use super::super::ids::NumericIds;
    use super::*;

    fn limits() -> FsLimits {
        FsLimits {
            name_bytes_max: 255,
            links_max: 1000,
            file_bytes_max: 1 << 40,
            time_delta_nanos: 1,
            has_xattrs: true,
            has_birth_time: true,
            has_clone: false,
            has_sparse: true,
            change_is_version_counter: false,
            is_read_only: false,
            clone_block_bytes: 0,
        }
    }

    fn read(attrs: &[Attr], values: &[u8], occasion: Occasion) -> Result<Wanted, NfsStat4> {
        let fattr = Fattr4 { mask: Bitmap4::of(attrs), values };
        wanted(&fattr, Minor::V2, &limits(), &NumericIds, occasion)
    }

    fn bytes(write: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut w = Writer::new();
        write(&mut w);
        w.into_vec()
    }

    #[test]
    fn values_are_read_in_the_order_of_their_numbers() {
        let values = bytes(|w| {
            w.u64(5);
            w.u32(0o640);
            w.opaque(b"7");
            SetTime4::ToServerTime.encode(w);
        });
        let attrs = [Attr::TimeModifySet, Attr::Owner, Attr::Mode, Attr::Size];
        let set = read(&attrs, &values, Occasion::Setattr).unwrap().set;
        let expected = SetAttrs {
            size: Some(5),
            mode: Some(0o640),
            uid: Some(7),
            mtime: Some(SetTime::Now),
            ..SetAttrs::default()
        };
        assert_eq!(set, expected);
    }

    #[test]
    fn what_cannot_be_set_is_refused_by_kind() {
        let refused = |attrs: &[Attr], values: &[u8]| read(attrs, values, Occasion::Setattr).unwrap_err();
        assert_eq!(refused(&[Attr::Acl], &[]), NfsStat4::AttrNotSupp);
        assert_eq!(refused(&[Attr::FileId], &[0; 8]), NfsStat4::Inval);
        assert_eq!(refused(&[Attr::Mode], &0o10000u32.to_be_bytes()), NfsStat4::Inval);
        assert_eq!(refused(&[Attr::Owner], &bytes(|w| w.opaque(b"nobody"))), NfsStat4::BadOwner);
        assert_eq!(refused(&[Attr::OwnerGroup], &bytes(|w| w.opaque(b""))), NfsStat4::Inval);
        assert_eq!(refused(&[Attr::Size], &(1u64 << 40 | 1).to_be_bytes()), NfsStat4::Fbig);
        assert_eq!(refused(&[Attr::Size], &[0; 4]), NfsStat4::BadXdr);
        assert_eq!(refused(&[Attr::Size], &[0; 12]), NfsStat4::BadXdr);
        let late = SetTime4::ToClientTime(NfsTime4 { seconds: 0, nseconds: 1_000_000_000 });
        assert_eq!(refused(&[Attr::TimeModifySet], &bytes(|w| late.encode(w))), NfsStat4::Inval);
    }

    #[test]
    fn a_umask_comes_only_with_a_creation_and_not_beside_a_mode() {
        let values = bytes(|w| {
            w.u32(0o666);
            w.u32(0o022);
        });
        let made = read(&[Attr::ModeUmask], &values, Occasion::Create).unwrap().set;
        assert_eq!((made.mode, made.umask), (Some(0o666), Some(0o022)));
        assert_eq!(read(&[Attr::ModeUmask], &values, Occasion::Setattr), Err(NfsStat4::Inval));
        let both = bytes(|w| {
            w.u32(0o600);
            w.put(&values);
        });
        assert_eq!(read(&[Attr::Mode, Attr::ModeUmask], &both, Occasion::Create), Err(NfsStat4::Inval));
    }
}
