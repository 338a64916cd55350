//! The words that the kernel and a file system exchange, apart from how they lie in memory.

use std::time::Duration;

use holdfast_base::Timestamp;

use crate::flags::OpenedFlags;
use crate::passthrough::BackingId;

/// The number under which the kernel knows an object: chosen by the file system in its first [`Entry`], valid until
/// as many lookups as were counted are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: Self = Self(1);
}

/// A number that the file system gives to an open file or directory and gets back with every use of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHandle(pub u64);

/// Who owns a lock: an opaque number made by the kernel. A POSIX lock's owner is the process's table of descriptors
/// and comes again with FLUSH at each close. An open-file-description lock's, and a `flock`'s, is the open file; it
/// comes again with RELEASE only where `flock` was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner(pub u64);

/// A device's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Major number: 12 bits.
    pub major: u32,
    /// Minor number: 20 bits.
    pub minor: u32,
}

impl Device {
    /// From the kernel's 32-bit form.
    #[must_use]
    pub const fn decode(bits: u32) -> Self {
        Self { major: (bits & 0xf_ff00) >> 8, minor: (bits & 0xff) | ((bits >> 12) & 0xf_ff00) }
    }

    /// To the kernel's 32-bit form; what does not fit is cut.
    #[must_use]
    pub const fn encode(self) -> u32 {
        (self.minor & 0xff) | ((self.major & 0xfff) << 8) | ((self.minor & 0xf_ff00) << 12)
    }
}

/// Attributes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The number shown to applications.
    pub ino: u64,
    /// Bytes of data.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of data.
    pub mtime: Timestamp,
    /// Last change of data or attributes.
    pub ctime: Timestamp,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// For devices, which.
    pub rdev: Device,
    /// Bytes good for one read or write; 0 for the kernel's own idea.
    pub blksize: u32,
}

/// How long the kernel may believe what it was told. [`FOREVER`] means: until it is notified.
pub type Validity = Duration;

/// Until notified.
pub const FOREVER: Validity = Duration::from_secs(u32::MAX as u64);

/// An object found under a name or made there. Each one that reaches the kernel counts as one lookup, to be taken
/// back by FORGET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its number. [`Entry::absent`] has 0, which tells the kernel that the name is known not to exist.
    pub node: NodeId,
    /// Tells apart uses of one number. Stays 0 where numbers are not used again.
    pub generation: u64,
    /// Its attributes.
    pub attr: Attr,
    /// How long the name may be believed.
    pub entry_valid: Validity,
    /// How long the attributes may be believed.
    pub attr_valid: Validity,
}

impl Entry {
    /// A name that does not exist, to be believed for so long. Counts as no lookup.
    #[must_use]
    pub const fn absent(entry_valid: Validity) -> Self {
        const EPOCH: Timestamp = Timestamp { seconds: 0, nanos: 0 };
        let attr = Attr {
            ino: 0,
            size: 0,
            blocks: 0,
            atime: EPOCH,
            mtime: EPOCH,
            ctime: EPOCH,
            mode: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: Device { major: 0, minor: 0 },
            blksize: 0,
        };
        Self { node: NodeId(0), generation: 0, attr, entry_valid, attr_valid: Duration::ZERO }
    }
}

/// Attributes, and how long they may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttrReply {
    /// The attributes.
    pub attr: Attr,
    /// For how long.
    pub valid: Validity,
}

/// An opened file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The file system's number for it.
    pub file: FileHandle,
    /// How the kernel is to treat it.
    pub flags: OpenedFlags,
    /// Reads and writes go here, where the session has passthrough. Every further open of the same file must then
    /// name the same, until the last is closed (else the kernel answers EIO).
    pub backing: Option<BackingId>,
}

/// Space and objects of a file system, as `statfs` tells them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Units of `fragment_bytes` in all.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Free to ordinary users.
    pub blocks_available: u64,
    /// Objects in all.
    pub files: u64,
    /// Free ones.
    pub files_free: u64,
    /// Bytes good for one transfer.
    pub block_bytes: u32,
    /// Bytes of the unit of `blocks`.
    pub fragment_bytes: u32,
    /// Bytes of the longest name.
    pub name_bytes_max: u32,
}

/// The reply to STATX: what GETATTR cannot tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatxReply {
    /// The basic attributes.
    pub attr: Attr,
    /// Birth time, where it is known.
    pub btime: Option<Timestamp>,
    /// `STATX_ATTR_…` bits that are set.
    pub attributes: u64,
    /// `STATX_ATTR_…` bits that mean anything here.
    pub attributes_mask: u64,
    /// How long the attributes may be believed.
    pub valid: Validity,
}

/// Lookups of one node to be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget {
    /// Which.
    pub node: NodeId,
    /// How many. When none are left the kernel does not use the number until a new lookup.
    pub lookups: u64,
}

/// Which kind of lock a request is about. A POSIX lock and an open-file-description lock come alike; their owners
/// differ (see [`LockOwner`]). What treats both right: FLUSH ends the `Range` locks of its owner on the file, and
/// RELEASE ends every lock that was taken *through that open file* ([`crate::LockAsk::file`]), whoever owns it: all
/// processes that had it have closed it by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockClass {
    /// `fcntl`: of a process (POSIX) or of an open file (OFD). Conflicts with other owners' `Range` locks.
    Range,
    /// `flock`: of an open file, always the whole of it. Conflicts with other owners' `Flock` locks. The same owner
    /// may hold `Range` locks beside it.
    Flock,
}

/// What a lock lets its holder do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockMode {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None: let go.
    Unlock,
}

/// A stretch of a file with a lock's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSpan {
    /// First byte.
    pub start: u64,
    /// Last byte, included; `u64::MAX` or `i64::MAX` (as the kernel sends it) to the end.
    pub end: u64,
    /// Its mode.
    pub mode: LockMode,
    /// The process that asked, or (in a reply) that holds it; 0 where there is none on this machine.
    pub pid: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// This.
    At(Timestamp),
}

/// What an entry of a directory is, in the high bits of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryKind(pub u32);

impl EntryKind {
    /// Not known without asking.
    pub const UNKNOWN: Self = Self(0);

    /// The kind of an object with this `st_mode`.
    #[must_use]
    pub const fn of_mode(mode: u32) -> Self {
        Self((mode & libc::S_IFMT) >> 12)
    }
}
