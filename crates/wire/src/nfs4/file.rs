//! Operations on files, names and handles that every minor version has (RFC 7530 section 16, RFC 8881
//! section 18).
//! An operation without arguments has no `Args`; one whose result is its status alone has no `Ok`.

use holdfast_base::limits::{
    DIRECTORY_ENTRIES_MAX, RECORD_BYTES_MAX, WIRE_HANDLE4_BYTES_MAX, WIRE_NAME_BYTES_MAX,
};

use holdfast_base::{Cookie, Offset};
use holdfast_xdr::{Decode, Encode};

use super::{Bitmap4, ChangeInfo4, Fattr4, NfsFtype4, SpecData4, StableHow4, Stateid4, Verifier4};

/// The arguments of ACCESS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Access4Args {
    /// Rights asked about: `ACCESS4_*`.
    pub access: u32,
}

/// ACCESS succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Access4Ok {
    /// Which of them the server can tell.
    pub supported: u32,
    /// Which of them are allowed.
    pub access: u32,
}

/// The arguments of COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Commit4Args {
    /// Where the range begins.
    pub offset: Offset,
    /// Its bytes; 0 to the end.
    pub count: u32,
}

/// COMMIT succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Commit4Ok {
    /// Changes when unstable data may have been lost.
    pub writeverf: Verifier4,
}

/// `createtype4`: what to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum CreateType4<'a> {
    /// A symbolic link with this text.
    #[xdr(case = NfsFtype4::Lnk as u32)]
    Lnk(#[xdr(max = WIRE_NAME_BYTES_MAX)] &'a [u8]),
    /// A block device.
    #[xdr(case = NfsFtype4::Blk as u32)]
    Blk(SpecData4),
    /// A character device.
    #[xdr(case = NfsFtype4::Chr as u32)]
    Chr(SpecData4),
    /// A socket.
    #[xdr(case = NfsFtype4::Sock as u32)]
    Sock,
    /// A named pipe.
    #[xdr(case = NfsFtype4::Fifo as u32)]
    Fifo,
    /// A directory.
    #[xdr(case = NfsFtype4::Dir as u32)]
    Dir,
    /// Anything else: answered with NFS4ERR_BADTYPE.
    #[xdr(default)]
    Other(u32),
}

/// The arguments of CREATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Create4Args<'a> {
    /// What to make.
    pub objtype: CreateType4<'a>,
    /// Its name.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub objname: &'a [u8],
    /// Its attributes.
    pub createattrs: Fattr4<'a>,
}

/// CREATE succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Create4Ok {
    /// The directory before and after.
    pub cinfo: ChangeInfo4,
    /// Which attributes were set.
    pub attrset: Bitmap4,
}

/// The arguments of GETATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GetAttr4Args {
    /// Which attributes.
    pub attr_request: Bitmap4,
}

/// GETATTR succeeded. A server writes it in place: the mask, `Writer::mark`, the values, `Writer::fill` with
/// their length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GetAttr4Ok<'a> {
    /// The attributes.
    pub obj_attributes: Fattr4<'a>,
}

/// GETFH succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GetFh4Ok<'a> {
    /// The current filehandle.
    #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
    pub object: &'a [u8],
}

/// The arguments of LINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Link4Args<'a> {
    /// The name to add.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub newname: &'a [u8],
}

/// LINK succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Link4Ok {
    /// The directory before and after.
    pub cinfo: ChangeInfo4,
}

/// The arguments of LOOKUP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Lookup4Args<'a> {
    /// The name.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub objname: &'a [u8],
}

/// The arguments of NVERIFY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Nverify4Args<'a> {
    /// Attributes to compare.
    pub obj_attributes: Fattr4<'a>,
}

/// The arguments of OPENATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OpenAttr4Args {
    /// Make the named attribute directory if there is none.
    pub createdir: bool,
}

/// The arguments of PUTFH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct PutFh4Args<'a> {
    /// The handle.
    #[xdr(max = WIRE_HANDLE4_BYTES_MAX)]
    pub object: &'a [u8],
}

/// The arguments of READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Read4Args {
    /// The open, lock or delegation.
    pub stateid: Stateid4,
    /// From where.
    pub offset: Offset,
    /// Bytes at most.
    pub count: u32,
}

/// READ succeeded. A server writes it in place: `eof`, then `Writer::opaque_with`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Read4Ok<'a> {
    /// The end of the file was reached.
    pub eof: bool,
    /// The bytes.
    #[xdr(max = RECORD_BYTES_MAX)]
    pub data: &'a [u8],
}

/// The arguments of READDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReadDir4Args {
    /// Where to go on; 0 begins.
    pub cookie: Cookie,
    /// The verifier that came with the cookie.
    pub cookieverf: Verifier4,
    /// A hint: bytes of names and cookies.
    pub dircount: u32,
    /// Bytes of the whole result at most.
    pub maxcount: u32,
    /// Attributes wanted of each entry.
    pub attr_request: Bitmap4,
}

/// One entry of READDIR, without the boolean that announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Entry4<'a> {
    /// Where to go on after it.
    pub cookie: Cookie,
    /// The name.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub name: &'a [u8],
    /// The attributes.
    pub attrs: Fattr4<'a>,
}

/// READDIR succeeded. A server writes it piece by piece: the verifier, for each entry `true` and an
/// [`Entry4`], then `false` and `eof`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReadDir4Ok<'a> {
    /// To be given back with the cookies.
    pub cookieverf: Verifier4,
    /// The entries.
    #[xdr(max = DIRECTORY_ENTRIES_MAX, chain)]
    pub entries: Vec<Entry4<'a>>,
    /// There are no more.
    pub eof: bool,
}

/// READLINK succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReadLink4Ok<'a> {
    /// The link's text.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub link: &'a [u8],
}

/// The arguments of REMOVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Remove4Args<'a> {
    /// The name to remove.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub target: &'a [u8],
}

/// REMOVE succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Remove4Ok {
    /// The directory before and after.
    pub cinfo: ChangeInfo4,
}

/// The arguments of RENAME: from the saved to the current directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Rename4Args<'a> {
    /// The name in the saved directory.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub oldname: &'a [u8],
    /// The name in the current directory.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub newname: &'a [u8],
}

/// RENAME succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Rename4Ok {
    /// The source directory before and after.
    pub source_cinfo: ChangeInfo4,
    /// The target directory before and after.
    pub target_cinfo: ChangeInfo4,
}

/// The arguments of SETATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SetAttr4Args<'a> {
    /// An open with write access when the size is set.
    pub stateid: Stateid4,
    /// The attributes to set.
    pub obj_attributes: Fattr4<'a>,
}

/// What follows SETATTR's status, *on errors too* (RFC 8881 section 18.30.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SetAttr4Res {
    /// Which attributes were set.
    pub attrsset: Bitmap4,
}

/// The arguments of VERIFY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Verify4Args<'a> {
    /// Attributes to compare.
    pub obj_attributes: Fattr4<'a>,
}

/// The arguments of WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Write4Args<'a> {
    /// The open, lock or delegation.
    pub stateid: Stateid4,
    /// To where.
    pub offset: Offset,
    /// How durable it must be before the reply.
    pub stable: StableHow4,
    /// The bytes.
    #[xdr(max = RECORD_BYTES_MAX)]
    pub data: &'a [u8],
}

/// WRITE succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Write4Ok {
    /// Bytes written.
    pub count: u32,
    /// How durable they are.
    pub committed: StableHow4,
    /// Changes when unstable data may have been lost.
    pub writeverf: Verifier4,
}
