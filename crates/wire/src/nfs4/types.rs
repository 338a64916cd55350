//! The small types that many operations share (RFC 8881 section 3.3).

use holdfast_base::limits::{ADDRESS_BYTES_MAX, OWNER_BYTES_MAX, PATH_NAMES_MAX, WIRE_NAME_BYTES_MAX};
use holdfast_base::{ChangeId, ClientId, Length, Offset, Seqid};
use holdfast_xdr::{Decode, Encode};

/// `verifier4`: eight bytes that mean something only to who made them.
pub type Verifier4 = [u8; 8];

/// `deviceid4`.
pub type DeviceId4 = [u8; 16];

/// `layouttype4`: kept as a number, since an unknown one is answered with NFS4ERR_UNKNOWN_LAYOUTTYPE.
pub type LayoutType4 = u32;

/// The NFS program.
pub const NFS4_PROGRAM: u32 = 100_003;
/// Its version.
pub const NFS_V4: u32 = 4;
/// Does nothing.
pub const NFSPROC4_NULL: u32 = 0;
/// Does everything else.
pub const NFSPROC4_COMPOUND: u32 = 1;
/// The length that means "to the end".
pub const NFS4_MAXFILELEN: u64 = u64::MAX;

/// `nfs_ftype4`: what kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum NfsFtype4 {
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
    /// A named attribute directory.
    AttrDir = 8,
    /// A named attribute.
    NamedAttr = 9,
}

/// `nfstime4`: since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NfsTime4 {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000 (the receiver checks).
    pub nseconds: u32,
}

/// `settime4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum SetTime4 {
    /// The server's clock.
    #[xdr(case = 0)]
    ToServerTime,
    /// This time.
    #[xdr(case = 1)]
    ToClientTime(NfsTime4),
}

/// `fsid4`: identity of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Fsid4 {
    /// One half.
    pub major: u64,
    /// The other half.
    pub minor: u64,
}

/// `specdata4`: a device's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SpecData4 {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

/// `change_info4`: a directory before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct ChangeInfo4 {
    /// Whether nothing else changed the directory between the two.
    pub atomic: bool,
    /// The change attribute before.
    pub before: ChangeId,
    /// The change attribute after.
    pub after: ChangeId,
}

/// `stateid4` (RFC 8881 section 8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Stateid4 {
    /// Counts the changes of the state.
    pub seqid: Seqid,
    /// Names the state.
    pub other: [u8; 12],
}

impl Stateid4 {
    /// The anonymous state id: all zeros.
    pub const ANONYMOUS: Self = Self { seqid: Seqid(0), other: [0; 12] };
    /// The READ bypass state id: all ones.
    pub const READ_BYPASS: Self = Self { seqid: Seqid(u32::MAX), other: [0xff; 12] };
    /// The current state id of the compound (RFC 8881 section 16.2.3.1.2; 4.1 and later).
    pub const CURRENT: Self = Self { seqid: Seqid(1), other: [0; 12] };
    /// The state id that is always invalid (4.1 and later).
    pub const INVALID: Self = Self { seqid: Seqid(u32::MAX), other: [0; 12] };

    /// Whether `other` is one of the two reserved values, whatever `seqid` says.
    #[must_use]
    pub const fn is_special(&self) -> bool {
        matches!(self.other, [0x00, ..] | [0xff, ..]) && {
            let mut i = 1;
            while i < 12 && self.other[i] == self.other[0] {
                i += 1;
            }
            i == 12
        }
    }
}

/// `state_owner4`: an open or lock owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct StateOwner4<'a> {
    /// The client; ignored in 4.1, where the session tells.
    pub clientid: ClientId,
    /// The client's name of the owner.
    #[xdr(max = OWNER_BYTES_MAX)]
    pub owner: &'a [u8],
}

/// `netaddr4` (RFC 5665).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NetAddr4<'a> {
    /// The transport: `tcp`, `tcp6`, `rdma`.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub netid: &'a [u8],
    /// The universal address.
    #[xdr(max = ADDRESS_BYTES_MAX)]
    pub addr: &'a [u8],
}

/// `netloc4` (RFC 7862 section 15.2): where a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum NetLoc4<'a> {
    /// By name.
    #[xdr(case = 1)]
    Name(#[xdr(max = ADDRESS_BYTES_MAX)] &'a [u8]),
    /// By URL.
    #[xdr(case = 2)]
    Url(#[xdr(max = WIRE_NAME_BYTES_MAX)] &'a [u8]),
    /// By address.
    #[xdr(case = 3)]
    NetAddr(NetAddr4<'a>),
}

/// `component4`: one name, for lists of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Component4<'a>(#[xdr(max = WIRE_NAME_BYTES_MAX)] pub &'a [u8]);

/// `pathname4`: a path as a list of names.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct PathName4<'a> {
    /// From the root downwards.
    #[xdr(max = PATH_NAMES_MAX)]
    pub names: Vec<Component4<'a>>,
}

/// `stable_how4`: how durable a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum StableHow4 {
    /// Until a COMMIT it may be lost.
    Unstable = 0,
    /// The data, and what is needed to read it, are stable.
    DataSync = 1,
    /// Data and all metadata are stable.
    FileSync = 2,
}

/// `data_content4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum DataContent4 {
    /// Data.
    Data = 0,
    /// A hole.
    Hole = 1,
}

/// `write_response4` (RFC 7862 section 15.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct WriteResponse4 {
    /// Names the asynchronous operation, if it is one.
    pub callback_id: Option<Stateid4>,
    /// Bytes done.
    pub count: Length,
    /// How durable.
    pub committed: StableHow4,
    /// Changes when unstable data may have been lost.
    pub writeverf: Verifier4,
}

/// `data_info4`: a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct DataInfo4 {
    /// Where it begins.
    pub offset: Offset,
    /// How long it is.
    pub length: Length,
}

/// Read data, or a directory.
pub const ACCESS4_READ: u32 = 0x001;
/// Look a name up.
pub const ACCESS4_LOOKUP: u32 = 0x002;
/// Change data, or entries.
pub const ACCESS4_MODIFY: u32 = 0x004;
/// Write at the end, or add entries.
pub const ACCESS4_EXTEND: u32 = 0x008;
/// Delete an entry.
pub const ACCESS4_DELETE: u32 = 0x010;
/// Execute.
pub const ACCESS4_EXECUTE: u32 = 0x020;
/// Read extended attributes (RFC 8276).
pub const ACCESS4_XAREAD: u32 = 0x040;
/// Write extended attributes (RFC 8276).
pub const ACCESS4_XAWRITE: u32 = 0x080;
/// List extended attributes (RFC 8276).
pub const ACCESS4_XALIST: u32 = 0x100;
