//! Sets of bits that cross the ABI, as distinct types: a flag of one kind cannot be mistaken for another's.

use std::ops::{BitOr, BitOrAssign};

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident: $repr:ty { $($(#[$fdoc:meta])* $flag:ident = $bits:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name($repr);

        impl $name {
            /// No flag.
            pub const NONE: Self = Self(0);
            $($(#[$fdoc])* pub const $flag: Self = Self($bits);)*

            /// These bits as they are, unknown ones included.
            #[must_use]
            pub const fn from_bits(bits: $repr) -> Self {
                Self(bits)
            }

            /// The bits.
            #[must_use]
            pub const fn bits(self) -> $repr {
                self.0
            }

            /// Whether every flag of `other` is set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any flag of `other` is set.
            #[must_use]
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Whether no flag is set.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The flags of both.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// The flags that both have.
            #[must_use]
            pub const fn intersection(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// These flags without those of `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let known: &[($repr, &str)] = &[$(($bits, stringify!($flag)),)*];
                let mut names: Vec<String> = known
                    .iter()
                    .filter(|(bits, _)| self.0 & bits == *bits)
                    .map(|(_, name)| (*name).to_owned())
                    .collect();
                let rest = known.iter().fold(self.0, |rest, (bits, _)| rest & !bits);
                if rest != 0 {
                    names.push(format!("{rest:#x}"));
                }
                write!(f, "{}({})", stringify!($name), names.join("|"))
            }
        }
    };
}

flags! {
    /// What kernel and daemon agree on in INIT. Names and bits are the ABI's.
    InitFlags: u64 {
        /// Several READs of one file may be under way at once.
        ASYNC_READ = 1 << 0;
        /// Byte-range locks come to the daemon (GETLK, SETLK, SETLKW).
        POSIX_LOCKS = 1 << 1;
        /// OPEN and CREATE carry `O_TRUNC`; without it the kernel sends a SETATTR after OPEN.
        ATOMIC_O_TRUNC = 1 << 3;
        /// The daemon answers LOOKUP of `.` and `..` of any node, so that the mount can be exported by NFS.
        EXPORT_SUPPORT = 1 << 4;
        /// WRITEs larger than a page.
        BIG_WRITES = 1 << 5;
        /// The kernel does not apply the umask: the daemon does, from the `umask` of each creation.
        DONT_MASK = 1 << 6;
        /// Replies may be spliced into the device.
        SPLICE_WRITE = 1 << 7;
        /// Pages of a spliced reply may be moved instead of copied.
        SPLICE_MOVE = 1 << 8;
        /// Requests may be spliced out of the device.
        SPLICE_READ = 1 << 9;
        /// `flock` comes to the daemon.
        FLOCK_LOCKS = 1 << 10;
        /// `ioctl` on directories comes to the daemon.
        HAS_IOCTL_DIR = 1 << 11;
        /// The kernel drops a file's pages by itself when it sees another mtime or size.
        AUTO_INVAL_DATA = 1 << 12;
        /// READDIRPLUS is served.
        DO_READDIRPLUS = 1 << 13;
        /// The kernel asks with READDIRPLUS only while the answers are used.
        READDIRPLUS_AUTO = 1 << 14;
        /// Several direct requests of one file may be under way at once.
        ASYNC_DIO = 1 << 15;
        /// The kernel's own write-back cache: never asked for (it breaks coherence).
        WRITEBACK_CACHE = 1 << 16;
        /// OPEN may be answered ENOSYS: then no OPEN is sent any more, and every open succeeds.
        NO_OPEN_SUPPORT = 1 << 17;
        /// LOOKUPs and READDIRs of one directory may be under way at once.
        PARALLEL_DIROPS = 1 << 18;
        /// The daemon takes set-id bits and capabilities away on write, truncate and chown.
        HANDLE_KILLPRIV = 1 << 19;
        /// The kernel keeps and checks POSIX ACLs.
        POSIX_ACL = 1 << 20;
        /// Reading the device after an abort tells ECONNABORTED rather than ENODEV.
        ABORT_ERROR = 1 << 21;
        /// `max_pages` of INIT's reply counts: requests larger than 128 KiB.
        MAX_PAGES = 1 << 22;
        /// The kernel keeps the text of symbolic links.
        CACHE_SYMLINKS = 1 << 23;
        /// OPENDIR may be answered ENOSYS, as with `NO_OPEN_SUPPORT`.
        NO_OPENDIR_SUPPORT = 1 << 24;
        /// The kernel drops pages only when told (or on open without KEEP_CACHE).
        EXPLICIT_INVAL_DATA = 1 << 25;
        /// DAX alignment (virtio only).
        MAP_ALIGNMENT = 1 << 26;
        /// Directories can be announced as mount points (virtio only).
        SUBMOUNTS = 1 << 27;
        /// As `HANDLE_KILLPRIV`, and the kernel says in each WRITE, OPEN and SETATTR when set-id bits must go.
        HANDLE_KILLPRIV_V2 = 1 << 28;
        /// SETXATTR has its longer form, with flags.
        SETXATTR_EXT = 1 << 29;
        /// INIT has its longer form, with 64 flags.
        INIT_EXT = 1 << 30;
        /// Creations carry the security context of the new object.
        SECURITY_CTX = 1 << 32;
        /// DAX per inode (virtio only).
        HAS_INODE_DAX = 1 << 33;
        /// Creations carry the caller's supplementary group that is the directory's.
        CREATE_SUPP_GROUP = 1 << 34;
        /// A name can be expired rather than dropped.
        HAS_EXPIRE_ONLY = 1 << 35;
        /// Shared mappings of files opened for direct I/O.
        DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Reads and writes can pass through to another file.
        PASSTHROUGH = 1 << 37;
        /// The mount cannot be exported: handles are not made up from node ids.
        NO_EXPORT_SUPPORT = 1 << 38;
        /// Requests can be sent again to a daemon that took the connection over.
        HAS_RESEND = 1 << 39;
        /// The mount may be id-mapped.
        ALLOW_IDMAP = 1 << 40;
        /// Requests over io_uring.
        OVER_IO_URING = 1 << 41;
        /// The kernel ends a connection whose requests take too long.
        REQUEST_TIMEOUT = 1 << 42;
    }
}

flags! {
    /// How the kernel is to treat an open file (reply to OPEN, OPENDIR, CREATE, TMPFILE).
    OpenedFlags: u32 {
        /// Past the page cache: every read and write of the file comes to the daemon.
        DIRECT_IO = 1 << 0;
        /// Keep the pages that are there; without it an open drops them.
        KEEP_CACHE = 1 << 1;
        /// Seeking is refused.
        NONSEEKABLE = 1 << 2;
        /// Keep the listing (directories).
        CACHE_DIR = 1 << 3;
        /// No position at all.
        STREAM = 1 << 4;
        /// No FLUSH at close: then its error reaches nobody.
        NOFLUSH = 1 << 5;
        /// Several direct writes at once; the daemon orders them.
        PARALLEL_DIRECT_WRITES = 1 << 6;
        /// Reads and writes go to the backing file. Set by the session where a backing file is given.
        PASSTHROUGH = 1 << 7;
    }
}

flags! {
    /// Flags of `open(2)` as they come with OPEN, CREATE, READ, WRITE and RELEASE: Linux's values.
    OpenFlags: u32 {
        /// Writing only; with `READ_WRITE` unset and this unset: reading only.
        WRITE_ONLY = libc::O_WRONLY.cast_unsigned();
        /// Reading and writing.
        READ_WRITE = libc::O_RDWR.cast_unsigned();
        /// Fail when it exists.
        EXCLUSIVE = libc::O_EXCL.cast_unsigned();
        /// Cut to nothing.
        TRUNCATE = libc::O_TRUNC.cast_unsigned();
        /// Writes go to the end.
        APPEND = libc::O_APPEND.cast_unsigned();
        /// Do not wait.
        NONBLOCK = libc::O_NONBLOCK.cast_unsigned();
        /// Each write is as durable as after `fdatasync`.
        DSYNC = libc::O_DSYNC.cast_unsigned();
        /// Each write is as durable as after `fsync`.
        SYNC = libc::O_SYNC.cast_unsigned();
        /// Past caches.
        DIRECT = libc::O_DIRECT.cast_unsigned();
        /// To be run (`__FMODE_EXEC` of the kernel, which has no name for applications).
        EXECUTE = 0x20;
    }
}

impl OpenFlags {
    /// Whether the file may be read through this open.
    #[must_use]
    pub const fn may_read(self) -> bool {
        self.0 & libc::O_ACCMODE.cast_unsigned() != libc::O_WRONLY.cast_unsigned()
    }

    /// Whether the file may be written through this open.
    #[must_use]
    pub const fn may_write(self) -> bool {
        self.0 & libc::O_ACCMODE.cast_unsigned() != libc::O_RDONLY.cast_unsigned()
    }
}

flags! {
    /// How `renameat2` treats the target.
    RenameFlags: u32 {
        /// Fail when it exists.
        NO_REPLACE = 1 << 0;
        /// Swap the two.
        EXCHANGE = 1 << 1;
        /// Leave a whiteout where the source was.
        WHITEOUT = 1 << 2;
    }
}

flags! {
    /// Modes of `fallocate`.
    FallocateFlags: u32 {
        /// The size stays.
        KEEP_SIZE = 1 << 0;
        /// Free the space.
        PUNCH_HOLE = 1 << 1;
        /// Make it read as zeros.
        ZERO_RANGE = 1 << 4;
    }
}
