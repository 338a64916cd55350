//! The results of each procedure (RFC 1813 section 3.3): `XxxOk` goes with `NFS3_OK`, `XxxRes` is the whole.

use holdfast_base::Cookie;
use holdfast_base::limits::{DIRECTORY_ENTRIES_MAX, RECORD_BYTES_MAX, WIRE_NAME_BYTES_MAX};
use holdfast_xdr::{Decode, Encode};

use super::{Fattr3, Fh3, NfsTime3, PostOpAttr, PostOpFh3, Res3, StableHow, Verifier3, WccData};

/// GETATTR's result.
pub type GetAttr3Res = Res3<Fattr3, ()>;

/// SETATTR's result.
pub type SetAttr3Res = Res3<WccData, WccData>;

/// LOOKUP succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Lookup3Ok<'a> {
    /// The object.
    pub object: Fh3<'a>,
    /// Its attributes.
    pub obj_attributes: PostOpAttr,
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
}

/// LOOKUP's result; on failure the directory's attributes.
pub type Lookup3Res<'a> = Res3<Lookup3Ok<'a>, PostOpAttr>;

/// ACCESS succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Access3Ok {
    /// The object's attributes.
    pub obj_attributes: PostOpAttr,
    /// Which rights are allowed.
    pub access: u32,
}

/// ACCESS's result.
pub type Access3Res = Res3<Access3Ok, PostOpAttr>;

/// READLINK succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReadLink3Ok<'a> {
    /// The link's attributes.
    pub symlink_attributes: PostOpAttr,
    /// Its text.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub data: &'a [u8],
}

/// READLINK's result.
pub type ReadLink3Res<'a> = Res3<ReadLink3Ok<'a>, PostOpAttr>;

/// READ succeeded. A server that reads in place writes `NfsStat3::Ok`, a [`Read3Header`], then the data by
/// `Writer::opaque_with`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Read3Ok<'a> {
    /// The file's attributes.
    pub file_attributes: PostOpAttr,
    /// Bytes read.
    pub count: u32,
    /// The end of the file was reached.
    pub eof: bool,
    /// The bytes.
    #[xdr(max = RECORD_BYTES_MAX)]
    pub data: &'a [u8],
}

/// A [`Read3Ok`] without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Read3Header {
    /// The file's attributes.
    pub file_attributes: PostOpAttr,
    /// Bytes that follow.
    pub count: u32,
    /// The end of the file was reached.
    pub eof: bool,
}

/// READ's result.
pub type Read3Res<'a> = Res3<Read3Ok<'a>, PostOpAttr>;

/// WRITE succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Write3Ok {
    /// The file before and after.
    pub file_wcc: WccData,
    /// Bytes written.
    pub count: u32,
    /// How durable they are.
    pub committed: StableHow,
    /// Changes when unstable data may have been lost.
    pub verf: Verifier3,
}

/// WRITE's result.
pub type Write3Res = Res3<Write3Ok, WccData>;

/// CREATE, MKDIR, SYMLINK or MKNOD succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Create3Ok<'a> {
    /// The new object.
    pub obj: PostOpFh3<'a>,
    /// Its attributes.
    pub obj_attributes: PostOpAttr,
    /// The directory before and after.
    pub dir_wcc: WccData,
}

/// CREATE's, MKDIR's, SYMLINK's and MKNOD's result.
pub type Create3Res<'a> = Res3<Create3Ok<'a>, WccData>;

/// REMOVE's and RMDIR's result.
pub type Remove3Res = Res3<WccData, WccData>;

/// Both directories of RENAME.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct RenameWcc3 {
    /// The source before and after.
    pub fromdir_wcc: WccData,
    /// The target before and after.
    pub todir_wcc: WccData,
}

/// RENAME's result.
pub type Rename3Res = Res3<RenameWcc3, RenameWcc3>;

/// What LINK touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct LinkWcc3 {
    /// The object's attributes.
    pub file_attributes: PostOpAttr,
    /// The directory before and after.
    pub linkdir_wcc: WccData,
}

/// LINK's result.
pub type Link3Res = Res3<LinkWcc3, LinkWcc3>;

/// How a listing begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DirHeader3 {
    /// The directory's attributes.
    pub dir_attributes: PostOpAttr,
    /// To be given back with the cookies.
    pub cookieverf: Verifier3,
}

/// `entry3`, without the boolean that announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Entry3<'a> {
    /// The inode number.
    pub fileid: u64,
    /// The name.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub name: &'a [u8],
    /// Where to go on after it.
    pub cookie: Cookie,
}

/// `entryplus3`, without the boolean that announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct EntryPlus3<'a> {
    /// As in READDIR.
    pub entry: Entry3<'a>,
    /// Its attributes.
    pub name_attributes: PostOpAttr,
    /// Its handle.
    pub name_handle: PostOpFh3<'a>,
}

/// READDIR succeeded. A server writes it with [`crate::EntryList`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReadDir3Ok<'a> {
    /// How it begins.
    pub header: DirHeader3,
    /// The entries.
    #[xdr(max = DIRECTORY_ENTRIES_MAX, chain)]
    pub entries: Vec<Entry3<'a>>,
    /// There are no more.
    pub eof: bool,
}

/// READDIRPLUS succeeded. A server writes it with [`crate::EntryList`].
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReadDirPlus3Ok<'a> {
    /// How it begins.
    pub header: DirHeader3,
    /// The entries.
    #[xdr(max = DIRECTORY_ENTRIES_MAX, chain)]
    pub entries: Vec<EntryPlus3<'a>>,
    /// There are no more.
    pub eof: bool,
}

/// READDIR's result.
pub type ReadDir3Res<'a> = Res3<ReadDir3Ok<'a>, PostOpAttr>;

/// READDIRPLUS's result.
pub type ReadDirPlus3Res<'a> = Res3<ReadDirPlus3Ok<'a>, PostOpAttr>;

/// FSSTAT succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct FsStat3Ok {
    /// The object's attributes.
    pub obj_attributes: PostOpAttr,
    /// Bytes in all.
    pub tbytes: u64,
    /// Bytes free.
    pub fbytes: u64,
    /// Bytes free for the caller.
    pub abytes: u64,
    /// Inodes in all.
    pub tfiles: u64,
    /// Inodes free.
    pub ffiles: u64,
    /// Inodes free for the caller.
    pub afiles: u64,
    /// Seconds for which this will not change.
    pub invarsec: u32,
}

/// FSSTAT's result.
pub type FsStat3Res = Res3<FsStat3Ok, PostOpAttr>;

/// FSINFO succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct FsInfo3Ok {
    /// The object's attributes.
    pub obj_attributes: PostOpAttr,
    /// Bytes of a READ at most.
    pub rtmax: u32,
    /// Bytes of a READ at best.
    pub rtpref: u32,
    /// A READ's bytes should be a multiple of this.
    pub rtmult: u32,
    /// Bytes of a WRITE at most.
    pub wtmax: u32,
    /// Bytes of a WRITE at best.
    pub wtpref: u32,
    /// A WRITE's bytes should be a multiple of this.
    pub wtmult: u32,
    /// Bytes of a READDIR at best.
    pub dtpref: u32,
    /// Bytes of a file at most.
    pub maxfilesize: u64,
    /// The clock's grain.
    pub time_delta: NfsTime3,
    /// `FSF3_*`.
    pub properties: u32,
}

/// FSINFO's result.
pub type FsInfo3Res = Res3<FsInfo3Ok, PostOpAttr>;

/// PATHCONF succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct PathConf3Ok {
    /// The object's attributes.
    pub obj_attributes: PostOpAttr,
    /// Hard links at most.
    pub linkmax: u32,
    /// Bytes of a name at most.
    pub name_max: u32,
    /// Longer names are refused, not cut.
    pub no_trunc: bool,
    /// Only the superuser may give files away.
    pub chown_restricted: bool,
    /// Names that differ in case are one.
    pub case_insensitive: bool,
    /// The case of names is kept.
    pub case_preserving: bool,
}

/// PATHCONF's result.
pub type PathConf3Res = Res3<PathConf3Ok, PostOpAttr>;

/// COMMIT succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Commit3Ok {
    /// The file before and after.
    pub file_wcc: WccData,
    /// Changes when unstable data may have been lost.
    pub verf: Verifier3,
}

/// COMMIT's result.
pub type Commit3Res = Res3<Commit3Ok, WccData>;
