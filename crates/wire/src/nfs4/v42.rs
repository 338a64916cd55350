//! Operations of 4.2 (RFC 7862 section 15) and extended attributes (RFC 8276 section 8.4).

use holdfast_base::limits::{
    DIRECTORY_ENTRIES_MAX, LOCATIONS_MAX, READ_PLUS_SEGMENTS_MAX, RECORD_BYTES_MAX, WIRE_NAME_BYTES_MAX,
};

use holdfast_base::{Cookie, Length, Offset};
use holdfast_xdr::{Decode, Encode};

use super::{
    Bitmap4, ChangeInfo4, Component4, DataInfo4, NetLoc4, NfsStat4, NfsTime4, StableHow4, Stateid4,
    WriteResponse4,
};

/// The arguments of ALLOCATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Allocate4Args {
    /// An open with write access.
    pub stateid: Stateid4,
    /// Where it begins.
    pub offset: Offset,
    /// Bytes.
    pub length: Length,
}

/// The arguments of DEALLOCATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Deallocate4Args {
    /// An open with write access.
    pub stateid: Stateid4,
    /// Where it begins.
    pub offset: Offset,
    /// Bytes.
    pub length: Length,
}

/// The arguments of CLONE: from the saved to the current file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Clone4Args {
    /// An open of the source.
    pub src_stateid: Stateid4,
    /// An open of the destination.
    pub dst_stateid: Stateid4,
    /// From where.
    pub src_offset: Offset,
    /// To where.
    pub dst_offset: Offset,
    /// Bytes; 0 to the end.
    pub count: Length,
}

/// The arguments of COPY: from the saved to the current file.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct Copy4Args<'a> {
    /// An open of the source.
    pub src_stateid: Stateid4,
    /// An open of the destination.
    pub dst_stateid: Stateid4,
    /// From where.
    pub src_offset: Offset,
    /// To where.
    pub dst_offset: Offset,
    /// Bytes; 0 to the end.
    pub count: Length,
    /// In order.
    pub consecutive: bool,
    /// Before the reply.
    pub synchronous: bool,
    /// Where the source is; empty: here.
    #[xdr(max = LOCATIONS_MAX)]
    pub source_servers: Vec<NetLoc4<'a>>,
}

/// `copy_requirements4`; also what follows NFS4ERR_OFFLOAD_NO_REQS of COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CopyRequirements4 {
    /// In order.
    pub consecutive: bool,
    /// Before the reply.
    pub synchronous: bool,
}

/// COPY succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Copy4Ok {
    /// How much, how durable.
    pub response: WriteResponse4,
    /// How it was done.
    pub requirements: CopyRequirements4,
}

/// The arguments of COPY_NOTIFY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CopyNotify4Args<'a> {
    /// An open of the source.
    pub src_stateid: Stateid4,
    /// Who will fetch it.
    pub destination_server: NetLoc4<'a>,
}

/// COPY_NOTIFY succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct CopyNotify4Ok<'a> {
    /// How long the permission holds.
    pub lease_time: NfsTime4,
    /// What the destination shows.
    pub stateid: Stateid4,
    /// Where to fetch it.
    #[xdr(max = LOCATIONS_MAX)]
    pub source_servers: Vec<NetLoc4<'a>>,
}

/// The arguments of OFFLOAD_CANCEL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OffloadCancel4Args {
    /// The asynchronous operation.
    pub stateid: Stateid4,
}

/// The arguments of OFFLOAD_STATUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OffloadStatus4Args {
    /// The asynchronous operation.
    pub stateid: Stateid4,
}

/// OFFLOAD_STATUS succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct OffloadStatus4Ok {
    /// Bytes done.
    pub count: Length,
    /// How it ended, if it did.
    pub complete: Option<NfsStat4>,
}

/// Hint: nothing special.
pub const IO_ADVISE4_NORMAL: u32 = 0;
/// Hint: from low to high.
pub const IO_ADVISE4_SEQUENTIAL: u32 = 1;
/// Hint: from high to low.
pub const IO_ADVISE4_SEQUENTIAL_BACKWARDS: u32 = 2;
/// Hint: in no order.
pub const IO_ADVISE4_RANDOM: u32 = 3;
/// Hint: soon.
pub const IO_ADVISE4_WILLNEED: u32 = 4;
/// Hint: perhaps soon.
pub const IO_ADVISE4_WILLNEED_OPPORTUNISTIC: u32 = 5;
/// Hint: not soon.
pub const IO_ADVISE4_DONTNEED: u32 = 6;
/// Hint: once.
pub const IO_ADVISE4_NOREUSE: u32 = 7;
/// Hint: will be read.
pub const IO_ADVISE4_READ: u32 = 8;
/// Hint: will be written.
pub const IO_ADVISE4_WRITE: u32 = 9;
/// Hint: keep near the client.
pub const IO_ADVISE4_INIT_PROXIMITY: u32 = 10;

/// The arguments of IO_ADVISE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct IoAdvise4Args {
    /// An open.
    pub stateid: Stateid4,
    /// Where the range begins.
    pub offset: Offset,
    /// Its bytes.
    pub count: Length,
    /// `IO_ADVISE4_*` by number.
    pub hints: Bitmap4,
}

/// IO_ADVISE succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct IoAdvise4Ok {
    /// Those the server will follow.
    pub hints: Bitmap4,
}

/// The arguments of READ_PLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ReadPlus4Args {
    /// The open, lock or delegation.
    pub stateid: Stateid4,
    /// From where.
    pub offset: Offset,
    /// Bytes at most.
    pub count: u32,
}

/// `data4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Data4<'a> {
    /// Where it begins.
    pub offset: Offset,
    /// The bytes.
    #[xdr(max = RECORD_BYTES_MAX)]
    pub data: &'a [u8],
}

/// `read_plus_content`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum ReadPlusContent<'a> {
    /// Data.
    #[xdr(case = 0)]
    Data(Data4<'a>),
    /// A hole.
    #[xdr(case = 1)]
    Hole(DataInfo4),
}

/// READ_PLUS succeeded. A server writes it piece by piece: `eof` and the count by `Writer::mark`, then each
/// segment: for a hole a [`ReadPlusContent`], for data `DataContent4::Data`, the offset,
/// `Writer::opaque_with`.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ReadPlus4Ok<'a> {
    /// The end of the file was reached.
    pub eof: bool,
    /// The segments, in order.
    #[xdr(max = READ_PLUS_SEGMENTS_MAX)]
    pub contents: Vec<ReadPlusContent<'a>>,
}

/// The arguments of SEEK.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Seek4Args {
    /// An open.
    pub stateid: Stateid4,
    /// From where.
    pub offset: Offset,
    /// A `DataContent4`, as a number: an unknown one is answered with NFS4ERR_UNION_NOTSUPP.
    pub what: u32,
}

/// SEEK succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Seek4Ok {
    /// There is none before the end.
    pub eof: bool,
    /// Where it is.
    pub offset: Offset,
}

/// `app_data_block4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct AppDataBlock4<'a> {
    /// Where the first block begins.
    pub offset: Offset,
    /// Bytes of a block.
    pub block_size: Length,
    /// Blocks.
    pub block_count: Length,
    /// Where in a block its number stands.
    pub reloff_blocknum: Length,
    /// The first block's number.
    pub block_num: u32,
    /// Where in a block the pattern stands.
    pub reloff_pattern: Length,
    /// The pattern.
    #[xdr(max = RECORD_BYTES_MAX)]
    pub pattern: &'a [u8],
}

/// The arguments of WRITE_SAME; its result is a [`WriteResponse4`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct WriteSame4Args<'a> {
    /// An open with write access.
    pub stateid: Stateid4,
    /// How durable.
    pub stable: StableHow4,
    /// What to write.
    pub adb: AppDataBlock4<'a>,
}

/// The arguments of GETXATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GetXattr4Args<'a> {
    /// The name, without `user.`.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub name: &'a [u8],
}

/// GETXATTR succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GetXattr4Ok<'a> {
    /// The value.
    #[xdr(max = RECORD_BYTES_MAX)]
    pub value: &'a [u8],
}

/// `setxattr_option4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum SetXattrOption4 {
    /// Create or replace.
    Either = 0,
    /// Must not exist.
    Create = 1,
    /// Must exist.
    Replace = 2,
}

/// The arguments of SETXATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SetXattr4Args<'a> {
    /// Whether it must exist.
    pub option: SetXattrOption4,
    /// The name, without `user.`.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub key: &'a [u8],
    /// The value.
    #[xdr(max = RECORD_BYTES_MAX)]
    pub value: &'a [u8],
}

/// SETXATTR succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SetXattr4Ok {
    /// The file before and after.
    pub info: ChangeInfo4,
}

/// The arguments of LISTXATTRS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ListXattrs4Args {
    /// Where to go on; 0 begins.
    pub cookie: Cookie,
    /// Bytes of the result at most.
    pub maxcount: u32,
}

/// LISTXATTRS succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct ListXattrs4Ok<'a> {
    /// Where to go on.
    pub cookie: Cookie,
    /// The names, without `user.`.
    #[xdr(max = DIRECTORY_ENTRIES_MAX)]
    pub names: Vec<Component4<'a>>,
    /// There are no more.
    pub eof: bool,
}

/// The arguments of REMOVEXATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct RemoveXattr4Args<'a> {
    /// The name, without `user.`.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub name: &'a [u8],
}

/// REMOVEXATTR succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct RemoveXattr4Ok {
    /// The file before and after.
    pub info: ChangeInfo4,
}
