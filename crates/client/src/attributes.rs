//! File attributes as callers see them, and as they travel.

use holdfast_base::ChangeId;
use holdfast_wire::nfs4::{
    Attr, Bitmap4, Fattr4, Fsid4, ModeUmask4, NfsFtype4, NfsStat4, NfsTime4, SetTime4, SpecData4,
};
use holdfast_xdr::{Decode, Encode, Reader, Writer};

use crate::names::{group_number, user_number};
use crate::{Error, Handle, Result};

/// Attributes of an object. What the server did not give is zero or `None`; [`Attributes::mask`] says what is there.
#[derive(Clone, Debug)]
pub struct Attributes {
    /// Which are there.
    pub mask: Bitmap4,
    /// What it is.
    pub kind: NfsFtype4,
    /// Differs after every change.
    pub change: ChangeId,
    /// Bytes.
    pub size: u64,
    /// Its file system.
    pub fsid: Fsid4,
    /// Its number within it.
    pub fileid: u64,
    /// The number that the directory above shows: differs at the root of a mounted file system.
    pub mounted_on: u64,
    /// Permission bits.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner; 65534 when the name is not known here.
    pub uid: u32,
    /// Group, likewise.
    pub gid: u32,
    /// Of a device, its number.
    pub device: (u32, u32),
    /// Bytes taken on the disk.
    pub used: u64,
    /// Last read.
    pub accessed: Time,
    /// Last changed, attributes included.
    pub changed: Time,
    /// Contents last changed.
    pub modified: Time,
    /// When it was made, where the server knows.
    pub born: Option<Time>,
    /// Its handle, when asked for.
    pub handle: Option<Handle>,
    /// Why the attributes of a directory's entry could not be read.
    pub error: Option<NfsStat4>,
}

/// A time: seconds since 1970 and nanoseconds.
pub type Time = NfsTime4;

const ZERO: Time = Time { seconds: 0, nseconds: 0 };

impl Default for Attributes {
    fn default() -> Self {
        Self {
            mask: Bitmap4::EMPTY,
            kind: NfsFtype4::Reg,
            change: ChangeId(0),
            size: 0,
            fsid: Fsid4 { major: 0, minor: 0 },
            fileid: 0,
            mounted_on: 0,
            mode: 0,
            links: 0,
            uid: 0,
            gid: 0,
            device: (0, 0),
            used: 0,
            accessed: ZERO,
            changed: ZERO,
            modified: ZERO,
            born: None,
            handle: None,
            error: None,
        }
    }
}

impl Attributes {
    /// All that `stat` shows, and the change number.
    pub const STAT: Bitmap4 = Bitmap4::of(&[
        Attr::Type,
        Attr::Change,
        Attr::Size,
        Attr::Fsid,
        Attr::FileId,
        Attr::Mode,
        Attr::NumLinks,
        Attr::Owner,
        Attr::OwnerGroup,
        Attr::RawDev,
        Attr::SpaceUsed,
        Attr::TimeAccess,
        Attr::TimeMetadata,
        Attr::TimeModify,
        Attr::MountedOnFileId,
    ]);

    /// The same with the time of birth.
    pub const STAT_BIRTH: Bitmap4 = Self::STAT.with_attr(Attr::TimeCreate);

    /// For entries of a directory: the same with the handle, and the error where one cannot be read.
    pub const ENTRY: Bitmap4 = Self::STAT_BIRTH.with_attr(Attr::FileHandle).with_attr(Attr::RdAttrError);

    /// What a WRITE changes.
    pub const WRITTEN: Bitmap4 =
        Bitmap4::of(&[Attr::Change, Attr::Size, Attr::SpaceUsed, Attr::TimeMetadata, Attr::TimeModify]);

    /// Whether an attribute is there.
    #[must_use]
    pub const fn has(&self, attr: Attr) -> bool {
        self.mask.has(attr)
    }

    /// Decodes the attributes of a reply.
    ///
    /// # Errors
    /// [`Error::Protocol`], when a value does not decode or is one that was not asked for.
    pub(crate) fn decode(fattr: &Fattr4<'_>) -> Result<Self> {
        let mut found = Self { mask: fattr.mask, ..Self::default() };
        let mut r = Reader::new(fattr.values);
        for number in fattr.mask.iter() {
            let attr = Attr::try_from(number)?;
            found.take(attr, &mut r)?;
        }
        r.finish()?;
        Ok(found)
    }

    fn take(&mut self, attr: Attr, r: &mut Reader<'_>) -> Result<()> {
        match attr {
            Attr::Type => self.kind = NfsFtype4::decode(r)?,
            Attr::Change => self.change = ChangeId(r.u64()?),
            Attr::Size => self.size = r.u64()?,
            Attr::Fsid => self.fsid = Fsid4::decode(r)?,
            Attr::RdAttrError => self.error = Some(NfsStat4::decode(r)?),
            Attr::FileHandle => self.handle = Some(Handle::new(r.opaque(128)?)),
            Attr::FileId => self.fileid = r.u64()?,
            Attr::Mode => self.mode = r.u32()?,
            Attr::NumLinks => self.links = r.u32()?,
            Attr::Owner => self.uid = user_number(r.opaque(1024)?),
            Attr::OwnerGroup => self.gid = group_number(r.opaque(1024)?),
            Attr::RawDev => {
                let device = SpecData4::decode(r)?;
                self.device = (device.major, device.minor);
            }
            Attr::SpaceUsed => self.used = r.u64()?,
            Attr::TimeAccess => self.accessed = Time::decode(r)?,
            Attr::TimeMetadata => self.changed = Time::decode(r)?,
            Attr::TimeModify => self.modified = Time::decode(r)?,
            Attr::TimeCreate => self.born = Some(Time::decode(r)?),
            Attr::MountedOnFileId => self.mounted_on = r.u64()?,
            _ => return Err(Error::Protocol("an attribute that was not asked for")),
        }
        Ok(())
    }
}

/// The space and the files of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsStat {
    /// Bytes in all.
    pub total: u64,
    /// Bytes free.
    pub free: u64,
    /// Bytes that this caller may still use.
    pub available: u64,
    /// Files in all.
    pub files: u64,
    /// Files free.
    pub files_free: u64,
    /// Files that this caller may still make.
    pub files_available: u64,
    /// Bytes of a name at most.
    pub name_max: u32,
}

impl FsStat {
    pub(crate) const WANT: Bitmap4 = Bitmap4::of(&[
        Attr::FilesAvail,
        Attr::FilesFree,
        Attr::FilesTotal,
        Attr::MaxName,
        Attr::SpaceAvail,
        Attr::SpaceFree,
        Attr::SpaceTotal,
    ]);

    pub(crate) fn decode(fattr: &Fattr4<'_>) -> Result<Self> {
        let mut stat = Self { name_max: 255, ..Self::default() };
        let mut r = Reader::new(fattr.values);
        for number in fattr.mask.iter() {
            match Attr::try_from(number)? {
                Attr::FilesAvail => stat.files_available = r.u64()?,
                Attr::FilesFree => stat.files_free = r.u64()?,
                Attr::FilesTotal => stat.files = r.u64()?,
                Attr::MaxName => stat.name_max = r.u32()?,
                Attr::SpaceAvail => stat.available = r.u64()?,
                Attr::SpaceFree => stat.free = r.u64()?,
                Attr::SpaceTotal => stat.total = r.u64()?,
                _ => return Err(Error::Protocol("an attribute that was not asked for")),
            }
        }
        Ok(stat)
    }
}

/// Which attributes to set, of a new object or an old one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Bytes; only of files.
    pub size: Option<u64>,
    /// Permission bits.
    pub mode: Option<u32>,
    /// Of a new object: permission bits and the caller's umask, which a default ACL overrides (RFC 8275). Servers
    /// without it are given the mode with the umask applied.
    pub mode_umask: Option<(u32, u32)>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// When last read.
    pub accessed: Option<SetTime4>,
    /// When last changed.
    pub modified: Option<SetTime4>,
    /// When made.
    pub born: Option<Time>,
}

impl SetAttributes {
    /// Whether nothing is to be set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same to be set of what is there already: of that the mode alone is (RFC 8275 section 5).
    pub(crate) fn with_mode_alone(&self) -> Self {
        let left = self.mode_umask.map(|(bits, umask)| bits & !umask);
        Self { mode: left.or(self.mode), mode_umask: None, ..*self }
    }

    /// As it travels: the mask and the values. `supported` leaves out what the server does not know.
    pub(crate) fn encode(&self, supported: Bitmap4) -> (Bitmap4, Vec<u8>) {
        let (mut mode, mut mode_umask) = (self.mode, self.mode_umask);
        if let Some((bits, umask)) = mode_umask
            && !supported.has(Attr::ModeUmask)
        {
            mode = Some(bits & !umask);
            mode_umask = None;
        }
        let (mut mask, mut w) = (Bitmap4::EMPTY, Writer::new());
        let mut put = |attr: Attr, encode: &dyn Fn(&mut Writer)| {
            mask = mask.with_attr(attr);
            encode(&mut w);
        };
        // In the order of the attributes' numbers.
        if let Some(size) = self.size {
            put(Attr::Size, &|w| w.u64(size));
        }
        if let Some(mode) = mode {
            put(Attr::Mode, &|w| w.u32(mode));
        }
        if let Some(uid) = self.uid {
            put(Attr::Owner, &|w| w.opaque(uid.to_string().as_bytes()));
        }
        if let Some(gid) = self.gid {
            put(Attr::OwnerGroup, &|w| w.opaque(gid.to_string().as_bytes()));
        }
        if let Some(time) = self.accessed {
            put(Attr::TimeAccessSet, &|w| time.encode(w));
        }
        if let Some(time) = self.born.filter(|_| supported.has(Attr::TimeCreate)) {
            put(Attr::TimeCreate, &|w| time.encode(w));
        }
        if let Some(time) = self.modified {
            put(Attr::TimeModifySet, &|w| time.encode(w));
        }
        if let Some((mode, umask)) = mode_umask {
            put(Attr::ModeUmask, &|w| ModeUmask4 { mode, umask }.encode(w));
        }
        (mask, w.into_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_mode_umask_is_given_the_mode_that_is_left() {
        let set = SetAttributes { mode_umask: Some((0o666, 0o022)), ..SetAttributes::default() };
        let (mask, values) = set.encode(Bitmap4::EMPTY);
        assert!(mask.has(Attr::Mode) && !mask.has(Attr::ModeUmask));
        assert_eq!(values, 0o644u32.to_be_bytes());
        let (mask, _) = set.encode(Bitmap4::from(Attr::ModeUmask));
        assert!(mask.has(Attr::ModeUmask) && !mask.has(Attr::Mode));
        let (mask, values) = set.with_mode_alone().encode(Bitmap4::of(&[Attr::Mode, Attr::ModeUmask]));
        assert!(mask.has(Attr::Mode) && !mask.has(Attr::ModeUmask));
        assert_eq!(values, 0o644u32.to_be_bytes());
    }

    #[test]
    fn attributes_come_back_in_the_order_of_their_numbers() {
        let mut w = Writer::new();
        w.u64(7);
        w.u32(0o644);
        w.opaque(b"1000");
        let mask = Bitmap4::of(&[Attr::Size, Attr::Mode, Attr::Owner]);
        let found = Attributes::decode(&Fattr4 { mask, values: w.as_slice() }).unwrap();
        assert_eq!((found.size, found.mode, found.uid), (7, 0o644, 1000));
        let cut = Fattr4 { mask, values: &w.as_slice()[..9] };
        assert!(Attributes::decode(&cut).is_err());
    }
}
