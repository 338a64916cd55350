//! What many messages share.

use holdfast_base::limits::WIRE_HANDLE4_BYTES_MAX;
use holdfast_base::{CapSet, ChangeId};
use holdfast_xdr::{Decode, Encode};

/// A result: what was asked for, or the number of a [`super::CapsStat`] that says why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum Res<T> {
    /// Done.
    #[xdr(case = 0)]
    Ok(T),
    /// Not done.
    #[xdr(default)]
    Failed(u32),
}

impl<T> Res<T> {
    /// As Rust has it; a number that this version does not know counts as a server's fault.
    ///
    /// # Errors
    /// What the server said.
    pub fn into_result(self) -> Result<T, super::CapsStat> {
        match self {
            Self::Ok(value) => Ok(value),
            Self::Failed(n) => Err(super::CapsStat::from_u32(n).unwrap_or(super::CapsStat::ServerFault)),
        }
    }
}

impl<T> From<Result<T, super::CapsStat>> for Res<T> {
    fn from(result: Result<T, super::CapsStat>) -> Self {
        match result {
            Ok(value) => Self::Ok(value),
            Err(stat) => Self::Failed(stat.as_u32()),
        }
    }
}

/// A file handle, the same as NFSv4's of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct Handle<'a>(#[xdr(max = WIRE_HANDLE4_BYTES_MAX)] pub &'a [u8]);

/// Names a client and the promises made to it so far; another after any of them was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Ticket(pub u64);

/// A transaction's number: 1 is a client's first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct TxnId(pub u64);

impl TxnId {
    /// The next.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// What a grant says beside the capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct GrantFlags(pub u32);

impl GrantFlags {
    /// Of a directory: what is made in it has the mode that the maker asks for (no default access list, no label or
    /// project to inherit), so that the maker can show it before the server has made it.
    pub const PLAIN: Self = Self(1);
    /// Of a directory: what is made in it gets the directory's group, whatever the directory's mode says.
    pub const GROUP_OF_DIRECTORY: Self = Self(2);
    /// It has an access list beside its mode, or may have one: the mode alone does not say who may do what. Told where
    /// `AUTH_S` is held.
    pub const LISTED: Self = Self(4);
    /// Of a directory: it surely hands on no access list. Told where `AUTH_S` and `XATTR_S` are held, which cover that.
    pub const HANDS_ON_NONE: Self = Self(8);
    /// Of a claim (RECLAIM): it was changed when the server that began anew was dead already, by somebody on its host.
    pub const CHANGED_SINCE: Self = Self(16);

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What a client holds of an object, in all, from this moment on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Grant {
    /// The whole set, not what is new of it.
    pub held: CapSet,
    /// Counts grants and recalls of this client's on this object: the higher is the newer.
    pub seq: u64,
    /// More about it.
    pub flags: GrantFlags,
}

/// What an object is: NFS's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum NodeKind {
    /// A regular file.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A block device.
    Block = 3,
    /// A character device.
    Char = 4,
    /// A symbolic link.
    Symlink = 5,
    /// A socket.
    Socket = 6,
    /// A named pipe.
    Fifo = 7,
}

/// A moment, since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct Time {
    /// Seconds; before 1970 negative.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000; more counts as that less 1.
    pub nanos: u32,
}

/// An object's attributes, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Attrs {
    /// What it is.
    pub kind: NodeKind,
    /// Permission bits: `0o7777`.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// A device's major number.
    pub rdev_major: u32,
    /// A device's minor number.
    pub rdev_minor: u32,
    /// Bytes of data.
    pub size: u64,
    /// Bytes on disk.
    pub used: u64,
    /// The file system, first half.
    pub fsid_major: u64,
    /// Second half.
    pub fsid_minor: u64,
    /// Its number there.
    pub fileid: u64,
    /// NFSv4's change attribute.
    pub change: ChangeId,
    /// Last read.
    pub atime: Time,
    /// Last change of data.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// When it was made, where the file system keeps that.
    pub btime: Option<Time>,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum SetTime {
    /// The server's.
    #[xdr(case = 0)]
    Now,
    /// This one.
    #[xdr(case = 1)]
    At(Time),
}

/// Attributes to set; what is absent stays, or is as a fresh object has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SetAttrs {
    /// Permission bits.
    pub mode: Option<u32>,
    /// With something made: the maker's mask, where the directory may have a default access list. Where the mode was
    /// masked already there is none.
    pub umask: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of data.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of data.
    pub mtime: Option<SetTime>,
}

/// What both sides can do beyond the first version, a bit each. The lowest was once the removal of whole trees, and is not
/// to mean anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Features(pub u32);

impl Features {
    /// Files are made before they are given a name (POOL, and the operation PLACE of a batch).
    pub const POOL: Self = Self(2);
    /// Descriptors are handed over to clients on the same host.
    pub const SAME_HOST: Self = Self(4);
    /// Data is written at a file's end, wherever that is by then (the operation APPEND of a batch).
    pub const APPEND: Self = Self(8);
    /// Names are promised by themselves (FIND), and tokens stand for them in RECALL and RELEASE.
    pub const NAMES: Self = Self(16);
    /// Grants tell of access lists (`GrantFlags::LISTED`), which can be asked for (ACCESS_LIST).
    pub const LISTS: Self = Self(32);
    /// Room is reserved, also beyond a file's end (the operation RESERVE of a batch).
    pub const RESERVE: Self = Self(64);
    /// BATCH can be asked to answer when it is durable (`Until::Stable`).
    pub const FORCE: Self = Self(128);

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How much the server takes at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Limits {
    /// Bytes of a call, header and all.
    pub call_bytes: u32,
    /// Operations of a batch.
    pub batch_ops: u32,
    /// Batches under way.
    pub batches: u32,
    /// Transactions that are remembered for a client, from `done_through` on.
    pub txns_kept: u32,
    /// Items of ACQUIRE, RELEASE and RECLAIM.
    pub items: u32,
    /// Objects that one client may hold capabilities of.
    pub objects: u32,
}
