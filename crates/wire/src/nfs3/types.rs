//! The small types that many procedures share (RFC 1813 section 2.6), and the shape of every result.

use holdfast_base::limits::{WIRE_HANDLE_BYTES_MAX, WIRE_NAME_BYTES_MAX};
use holdfast_xdr::{Decode, Encode, Reader, Result, Writer};

use super::NfsStat3;

/// `writeverf3`, `createverf3`, `cookieverf3`: eight bytes that mean something only to who made them.
pub type Verifier3 = [u8; 8];

/// The NFS program.
pub const NFS3_PROGRAM: u32 = 100_003;
/// Its version.
pub const NFS_V3: u32 = 3;

/// `ftype3`: what kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum Ftype3 {
    /// A regular file.
    Reg = 1,
    /// A directory.
    Dir = 2,
    /// A block device.
    Blk = 3,
    /// A character device.
    Chr = 4,
    /// A symbolic link.
    Lnk = 5,
    /// A socket.
    Sock = 6,
    /// A named pipe.
    Fifo = 7,
}

/// `specdata3`: a device's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SpecData3 {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

/// `nfstime3`: since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NfsTime3 {
    /// Seconds.
    pub seconds: u32,
    /// Nanoseconds, below 1,000,000,000 (the receiver checks).
    pub nseconds: u32,
}

/// `nfs_fh3`: a file handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Fh3<'a>(#[xdr(max = WIRE_HANDLE_BYTES_MAX)] pub &'a [u8]);

/// `fattr3`: the attributes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Fattr3 {
    /// What kind of object.
    pub ftype: Ftype3,
    /// Permission bits, without the type's.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes on disk.
    pub used: u64,
    /// A device's number.
    pub rdev: SpecData3,
    /// The file system.
    pub fsid: u64,
    /// The inode number.
    pub fileid: u64,
    /// Last read.
    pub atime: NfsTime3,
    /// Last change of the data.
    pub mtime: NfsTime3,
    /// Last change of anything.
    pub ctime: NfsTime3,
}

/// `post_op_attr`: attributes after the operation, when they could be had.
pub type PostOpAttr = Option<Fattr3>;

/// `post_op_fh3`: the handle of a new object, when it could be had.
pub type PostOpFh3<'a> = Option<Fh3<'a>>;

/// `wcc_attr`: what tells that an object changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct WccAttr {
    /// Bytes.
    pub size: u64,
    /// Last change of the data.
    pub mtime: NfsTime3,
    /// Last change of anything.
    pub ctime: NfsTime3,
}

/// `wcc_data`: weak cache consistency. Say `before` only where it was taken atomically with the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct WccData {
    /// Before the operation.
    pub before: Option<WccAttr>,
    /// After it.
    pub after: PostOpAttr,
}

impl WccData {
    /// Nothing known.
    pub const NONE: Self = Self { before: None, after: None };
}

/// `set_atime`, `set_mtime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum SetTime3 {
    /// Leave it.
    #[xdr(case = 0)]
    DontChange,
    /// The server's clock.
    #[xdr(case = 1)]
    ToServerTime,
    /// This time.
    #[xdr(case = 2)]
    ToClientTime(NfsTime3),
}

/// `sattr3`: attributes to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Sattr3 {
    /// Permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last read.
    pub atime: SetTime3,
    /// Last change of the data.
    pub mtime: SetTime3,
}

/// `diropargs3`: a name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DirOpArgs3<'a> {
    /// The directory.
    pub dir: Fh3<'a>,
    /// The name.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub name: &'a [u8],
}

/// `stable_how`: how durable a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum StableHow {
    /// Until a COMMIT it may be lost.
    Unstable = 0,
    /// The data, and what is needed to read it, are stable.
    DataSync = 1,
    /// Data and all metadata are stable.
    FileSync = 2,
}

/// Read data, or a directory.
pub const ACCESS3_READ: u32 = 0x01;
/// Look a name up.
pub const ACCESS3_LOOKUP: u32 = 0x02;
/// Change data, or entries.
pub const ACCESS3_MODIFY: u32 = 0x04;
/// Write at the end, or add entries.
pub const ACCESS3_EXTEND: u32 = 0x08;
/// Delete an entry.
pub const ACCESS3_DELETE: u32 = 0x10;
/// Execute.
pub const ACCESS3_EXECUTE: u32 = 0x20;
/// FSINFO: hard links are supported.
pub const FSF3_LINK: u32 = 0x01;
/// FSINFO: symbolic links are supported.
pub const FSF3_SYMLINK: u32 = 0x02;
/// FSINFO: PATHCONF is the same for every object.
pub const FSF3_HOMOGENEOUS: u32 = 0x08;
/// FSINFO: times can be set.
pub const FSF3_CANSETTIME: u32 = 0x10;

/// The result of a procedure: its status, then a body that depends on whether the status is `NFS3_OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Res3<O, F> {
    /// `NFS3_OK`, and what goes with it.
    Ok(O),
    /// Another status, and what goes with it. With `NfsStat3::Ok` the bytes would be no valid result: never
    /// made by decoding, and a defect when encoded.
    Fail(NfsStat3, F),
}

impl<O: Encode, F: Encode> Encode for Res3<O, F> {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Ok(ok) => {
                NfsStat3::Ok.encode(w);
                ok.encode(w);
            }
            Self::Fail(status, fail) => {
                debug_assert_ne!(*status, NfsStat3::Ok);
                status.encode(w);
                fail.encode(w);
            }
        }
    }
}

impl<'a, O: Decode<'a>, F: Decode<'a>> Decode<'a> for Res3<O, F> {
    #[inline]
    fn decode(r: &mut Reader<'a>) -> Result<Self> {
        match NfsStat3::decode(r)? {
            NfsStat3::Ok => O::decode(r).map(Self::Ok),
            status => Ok(Self::Fail(status, F::decode(r)?)),
        }
    }
}
