//! Numbers of the operations.

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Opcode {
    /// A name in a directory.
    Lookup = 1,
    /// Takes lookups of a node back; has no reply.
    Forget = 2,
    /// Attributes.
    Getattr = 3,
    /// Changes attributes.
    Setattr = 4,
    /// A symbolic link's text.
    Readlink = 5,
    /// Makes a symbolic link.
    Symlink = 6,
    /// Makes anything but a directory or symbolic link.
    Mknod = 8,
    /// Makes a directory.
    Mkdir = 9,
    /// Removes a name.
    Unlink = 10,
    /// Removes a directory.
    Rmdir = 11,
    /// Renames.
    Rename = 12,
    /// Makes another name.
    Link = 13,
    /// Opens a file.
    Open = 14,
    /// Reads.
    Read = 15,
    /// Writes.
    Write = 16,
    /// Space.
    Statfs = 17,
    /// The last close.
    Release = 18,
    /// Makes a file durable.
    Fsync = 20,
    /// Sets an extended attribute.
    Setxattr = 21,
    /// An extended attribute.
    Getxattr = 22,
    /// Names of extended attributes.
    Listxattr = 23,
    /// Removes an extended attribute.
    Removexattr = 24,
    /// A close.
    Flush = 25,
    /// Agrees on version and flags.
    Init = 26,
    /// Opens a directory.
    Opendir = 27,
    /// Lists a directory.
    Readdir = 28,
    /// The last close of a directory.
    Releasedir = 29,
    /// Makes names durable.
    Fsyncdir = 30,
    /// Who is in a lock's way.
    Getlk = 31,
    /// Takes or drops a lock.
    Setlk = 32,
    /// Waits for a lock.
    Setlkw = 33,
    /// What the caller may do.
    Access = 34,
    /// Makes and opens a file.
    Create = 35,
    /// The caller of a request was signalled.
    Interrupt = 36,
    /// Where a block lies (`fuseblk`).
    Bmap = 37,
    /// The end (`fuseblk`).
    Destroy = 38,
    /// An ioctl.
    Ioctl = 39,
    /// Whether I/O would wait.
    Poll = 40,
    /// The answer to RETRIEVE.
    NotifyReply = 41,
    /// Several FORGETs.
    BatchForget = 42,
    /// Reserves or frees space.
    Fallocate = 43,
    /// READDIR with LOOKUPs.
    Readdirplus = 44,
    /// Renames, with flags.
    Rename2 = 45,
    /// Data and holes.
    Lseek = 46,
    /// Copies within the file system.
    CopyFileRange = 47,
    /// DAX (virtio).
    Setupmapping = 48,
    /// DAX (virtio).
    Removemapping = 49,
    /// Makes everything durable.
    Syncfs = 50,
    /// Makes a nameless file.
    Tmpfile = 51,
    /// Attributes with birth time.
    Statx = 52,
    /// COPY_FILE_RANGE whose result has 64 bits.
    CopyFileRange64 = 53,
}

impl Opcode {
    /// Every operation, in the order of the numbers.
    pub const ALL: &'static [Self] = &[
        Self::Lookup,
        Self::Forget,
        Self::Getattr,
        Self::Setattr,
        Self::Readlink,
        Self::Symlink,
        Self::Mknod,
        Self::Mkdir,
        Self::Unlink,
        Self::Rmdir,
        Self::Rename,
        Self::Link,
        Self::Open,
        Self::Read,
        Self::Write,
        Self::Statfs,
        Self::Release,
        Self::Fsync,
        Self::Setxattr,
        Self::Getxattr,
        Self::Listxattr,
        Self::Removexattr,
        Self::Flush,
        Self::Init,
        Self::Opendir,
        Self::Readdir,
        Self::Releasedir,
        Self::Fsyncdir,
        Self::Getlk,
        Self::Setlk,
        Self::Setlkw,
        Self::Access,
        Self::Create,
        Self::Interrupt,
        Self::Bmap,
        Self::Destroy,
        Self::Ioctl,
        Self::Poll,
        Self::NotifyReply,
        Self::BatchForget,
        Self::Fallocate,
        Self::Readdirplus,
        Self::Rename2,
        Self::Lseek,
        Self::CopyFileRange,
        Self::Setupmapping,
        Self::Removemapping,
        Self::Syncfs,
        Self::Tmpfile,
        Self::Statx,
        Self::CopyFileRange64,
    ];

    /// The operation with this number, if there is one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        // The numbers rise: few are missing, so the place is at most a handful below the number.
        let at = Self::ALL.partition_point(|op| (*op as u32) < number);
        Self::ALL.get(at).copied().filter(|op| *op as u32 == number)
    }

    /// Whether the kernel waits for a reply.
    #[must_use]
    pub const fn has_reply(self) -> bool {
        !matches!(self, Self::Forget | Self::BatchForget | Self::Interrupt | Self::NotifyReply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_finds_its_operation_and_no_other_does() {
        for op in Opcode::ALL {
            assert_eq!(Opcode::from_number(*op as u32), Some(*op));
        }
        for missing in [0, 7, 19, 54, 4096, u32::MAX] {
            assert_eq!(Opcode::from_number(missing), None);
        }
    }
}
