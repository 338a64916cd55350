//! Attributes of objects and of file systems, and the masks they are asked for with.

use std::ops::{BitAnd, BitOr};

use holdfast_base::{ChangeId, Timestamp};

/// What kind of object a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A block device.
    Block,
    /// A character device.
    Char,
    /// A symbolic link.
    Symlink,
    /// A socket.
    Socket,
    /// A named pipe.
    Fifo,
}

/// A device's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// Stable identity of a file system, derived from its UUID, never from a device number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FsId {
    /// First half.
    pub major: u64,
    /// Second half.
    pub minor: u64,
}

macro_rules! mask {
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $flag:ident = $bit:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(u32);

        impl $name {
            /// Nothing.
            pub const NONE: Self = Self(0);
            $($(#[$fdoc])* pub const $flag: Self = Self(1 << $bit);)*

            /// Whether every bit of `other` is set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether no bit is set.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The bits of both.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }

        impl BitAnd for $name {
            type Output = Self;

            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }
    };
}

mask! {
    /// Which attributes a caller wants. A backend may fill in more; it must not leave out one that was asked.
    AttrMask {
        /// Everything `stat` tells: kind, mode, links, owners, size, space, device, times, file id, fsid.
        STAT = 0;
        /// The change attribute. Asking is "looking": the next change must give another value.
        CHANGE = 1;
        /// The birth time.
        BIRTH = 2;
        /// The file id of the directory that a mounted file system's root covers.
        MOUNTED_ON = 3;
    }
}

impl AttrMask {
    /// All there is.
    pub const ALL: Self = Self(0xf);
}

mask! {
    /// Access rights as NFS asks for them (RFC 1813 section 3.3.4, RFC 8276 section 8.5).
    AccessMask {
        /// Read data or list a directory.
        READ = 0;
        /// Look a name up in a directory.
        LOOKUP = 1;
        /// Rewrite data or change entries.
        MODIFY = 2;
        /// Append data or add entries.
        EXTEND = 3;
        /// Remove an entry.
        DELETE = 4;
        /// Run a file.
        EXECUTE = 5;
        /// Read extended attributes.
        XATTR_READ = 6;
        /// Write extended attributes.
        XATTR_WRITE = 7;
        /// List extended attributes.
        XATTR_LIST = 8;
    }
}

impl AccessMask {
    /// The mask of these bits of the wire's ACCESS word, which has the same order; unknown bits are dropped.
    #[must_use]
    pub const fn from_wire(bits: u32) -> Self {
        Self(bits & 0x1ff)
    }

    /// The wire's ACCESS word.
    #[must_use]
    pub const fn to_wire(self) -> u32 {
        self.0
    }

    /// The rights that mean anything for an object of this kind: nothing is looked up in or deleted from what is no
    /// directory, and no directory is run (RFC 8881 section 18.1.3).
    #[must_use]
    pub const fn meaningful_for(kind: FileKind) -> Self {
        let senseless = match kind {
            FileKind::Directory => Self::EXECUTE,
            _ => Self::LOOKUP.union(Self::DELETE),
        };
        Self(0x1ff & !senseless.0)
    }
}

/// What a caller may do with an object, of what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// What means anything for the object's kind, and was judged.
    pub meaningful: AccessMask,
    /// What of it the caller may do.
    pub granted: AccessMask,
}

/// An object's attributes at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attrs {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, set-id bits and sticky bit: `0o7777`.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of data.
    pub size: u64,
    /// Bytes of disk space.
    pub used: u64,
    /// For devices, which.
    pub rdev: Device,
    /// The file system it lies on.
    pub fsid: FsId,
    /// Its number on that file system.
    pub fileid: u64,
    /// With [`AttrMask::MOUNTED_ON`]: the number of the directory it is mounted on; else, and where nothing is
    /// mounted, the same as `fileid`.
    pub mounted_on_fileid: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of data.
    pub mtime: Timestamp,
    /// Last change of data or attributes.
    pub ctime: Timestamp,
    /// With [`AttrMask::BIRTH`]: birth time, where the file system keeps it.
    pub btime: Option<Timestamp>,
    /// With [`AttrMask::CHANGE`]: the change attribute; else unspecified.
    pub change: ChangeId,
}

/// What NFSv3's `wcc_attr` and NFSv4's `change_info` need of the moment before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreAttrs {
    /// Bytes of data.
    pub size: u64,
    /// Last change of data.
    pub mtime: Timestamp,
    /// Last change of data or attributes.
    pub ctime: Timestamp,
    /// The change attribute.
    pub change: ChangeId,
}

impl From<&Attrs> for PreAttrs {
    fn from(a: &Attrs) -> Self {
        Self { size: a.size, mtime: a.mtime, ctime: a.ctime, change: a.change }
    }
}

/// An object before and after a mutation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Before.
    pub before: PreAttrs,
    /// After, with [`AttrMask::STAT`] and [`AttrMask::CHANGE`].
    pub after: Attrs,
    /// Whether nobody else can have changed the object between the two.
    pub is_atomic: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's present time.
    Now,
    /// This time.
    At(Timestamp),
}

/// Attributes to set; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttrs {
    /// Permission bits: `0o7777`.
    pub mode: Option<u32>,
    /// At creation only: the caller's umask, to be applied unless a default ACL rules (RFC 8275 section 5).
    pub umask: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of data: cut or extended with zeros.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of data.
    pub mtime: Option<SetTime>,
}

/// Space and objects of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FsUsage {
    /// Bytes in all.
    pub bytes_total: u64,
    /// Bytes free, the superuser's reserve included.
    pub bytes_free: u64,
    /// Bytes free to the caller.
    pub bytes_available: u64,
    /// Objects in all.
    pub files_total: u64,
    /// Objects free.
    pub files_free: u64,
    /// Objects free to the caller.
    pub files_available: u64,
}

/// What a file system can do and hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsLimits {
    /// Bytes of the longest name.
    pub name_bytes_max: u32,
    /// Hard links of one file.
    pub links_max: u32,
    /// Bytes of the largest file.
    pub file_bytes_max: u64,
    /// Granularity of times, in nanoseconds.
    pub time_delta_nanos: u32,
    /// Whether user extended attributes can be kept.
    pub has_xattrs: bool,
    /// Whether birth times are kept.
    pub has_birth_time: bool,
    /// Whether `copy_file_range` can share blocks (`FICLONERANGE`).
    pub has_clone: bool,
    /// Whether holes can be punched and found.
    pub has_sparse: bool,
    /// Whether the change attribute is a counter of versions (RFC 7862 section 12.2.3) rather than a time with a counter, which
    /// differs after each change, but is lower where the calendar was set back.
    pub change_is_version_counter: bool,
    /// Whether the file system is mounted read-only.
    pub is_read_only: bool,
    /// Bytes by which clones must be aligned; 0 without clones.
    pub clone_block_bytes: u32,
}
