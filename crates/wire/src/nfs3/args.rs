//! The arguments of each procedure (RFC 1813 section 3.3). GETATTR, READLINK, FSSTAT, FSINFO and PATHCONF
//! take a [`Fh3`], LOOKUP, REMOVE and RMDIR a [`DirOpArgs3`].

use holdfast_base::limits::{RECORD_BYTES_MAX, WIRE_NAME_BYTES_MAX};
use holdfast_base::{Cookie, Offset};
use holdfast_xdr::{Decode, Encode};

use super::{DirOpArgs3, Fh3, Ftype3, NfsTime3, Sattr3, SpecData3, StableHow, Verifier3};

/// The arguments of SETATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SetAttr3Args<'a> {
    /// The object.
    pub object: Fh3<'a>,
    /// What to set.
    pub new_attributes: Sattr3,
    /// Only if this is its ctime, else NFS3ERR_NOT_SYNC.
    pub guard: Option<NfsTime3>,
}

/// The arguments of ACCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Access3Args<'a> {
    /// The object.
    pub object: Fh3<'a>,
    /// Rights asked about: `ACCESS3_*`.
    pub access: u32,
}

/// The arguments of READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Read3Args<'a> {
    /// The file.
    pub file: Fh3<'a>,
    /// From where.
    pub offset: Offset,
    /// Bytes at most.
    pub count: u32,
}

/// The arguments of WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Write3Args<'a> {
    /// The file.
    pub file: Fh3<'a>,
    /// To where.
    pub offset: Offset,
    /// Bytes; should be the length of `data`.
    pub count: u32,
    /// How durable it must be before the reply.
    pub stable: StableHow,
    /// The bytes.
    #[xdr(max = RECORD_BYTES_MAX)]
    pub data: &'a [u8],
}

/// `createhow3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum CreateHow3 {
    /// Make it, or take what is there.
    #[xdr(case = 0)]
    Unchecked(Sattr3),
    /// Make it, or fail with NFS3ERR_EXIST.
    #[xdr(case = 1)]
    Guarded(Sattr3),
    /// Make it exactly once, the verifier telling a retry.
    #[xdr(case = 2)]
    Exclusive(Verifier3),
}

/// The arguments of CREATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Create3Args<'a> {
    /// Where (the RFC's `where`).
    pub place: DirOpArgs3<'a>,
    /// How.
    pub how: CreateHow3,
}

/// The arguments of MKDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Mkdir3Args<'a> {
    /// Where (the RFC's `where`).
    pub place: DirOpArgs3<'a>,
    /// Its attributes.
    pub attributes: Sattr3,
}

/// The arguments of SYMLINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Symlink3Args<'a> {
    /// Where (the RFC's `where`).
    pub place: DirOpArgs3<'a>,
    /// Its attributes.
    pub attributes: Sattr3,
    /// The link's text.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub data: &'a [u8],
}

/// `devicedata3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DeviceData3 {
    /// Its attributes.
    pub attributes: Sattr3,
    /// The device's number.
    pub spec: SpecData3,
}

/// `mknoddata3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum MknodData3 {
    /// A character device.
    #[xdr(case = Ftype3::Chr as u32)]
    Chr(DeviceData3),
    /// A block device.
    #[xdr(case = Ftype3::Blk as u32)]
    Blk(DeviceData3),
    /// A socket.
    #[xdr(case = Ftype3::Sock as u32)]
    Sock(Sattr3),
    /// A named pipe.
    #[xdr(case = Ftype3::Fifo as u32)]
    Fifo(Sattr3),
    /// Anything else: answered with NFS3ERR_BADTYPE.
    #[xdr(default)]
    Other(u32),
}

/// The arguments of MKNOD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Mknod3Args<'a> {
    /// Where (the RFC's `where`).
    pub place: DirOpArgs3<'a>,
    /// What.
    pub what: MknodData3,
}

/// The arguments of RENAME.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Rename3Args<'a> {
    /// The old name.
    pub from: DirOpArgs3<'a>,
    /// The new name.
    pub to: DirOpArgs3<'a>,
}

/// The arguments of LINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Link3Args<'a> {
    /// The object.
    pub file: Fh3<'a>,
    /// The name to add.
    pub link: DirOpArgs3<'a>,
}

/// The arguments of READDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReadDir3Args<'a> {
    /// The directory.
    pub dir: Fh3<'a>,
    /// Where to go on; 0 begins.
    pub cookie: Cookie,
    /// The verifier that came with the cookie.
    pub cookieverf: Verifier3,
    /// Bytes of the whole `READDIR3resok` at most.
    pub count: u32,
}

/// The arguments of READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReadDirPlus3Args<'a> {
    /// The directory.
    pub dir: Fh3<'a>,
    /// Where to go on; 0 begins.
    pub cookie: Cookie,
    /// The verifier that came with the cookie.
    pub cookieverf: Verifier3,
    /// Bytes of file ids, names and cookies at most.
    pub dircount: u32,
    /// Bytes of the whole `READDIRPLUS3resok` at most.
    pub maxcount: u32,
}

/// The arguments of COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Commit3Args<'a> {
    /// The file.
    pub file: Fh3<'a>,
    /// Where the range begins.
    pub offset: Offset,
    /// Its bytes; 0 to the end.
    pub count: u32,
}
