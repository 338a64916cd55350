//! Arguments of the operations, one type each where a method would need more than three words.

use holdfast_base::Timestamp;

use crate::flags::{FallocateFlags, OpenFlags, RenameFlags};
use crate::types::{Device, FileHandle, LockClass, LockOwner, LockSpan, NodeId, SetTime};

/// A name in a directory. 1 to 255 bytes or more (the kernel lets up to `PATH_MAX` through), no `/`, no NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameIn<'a> {
    /// The directory.
    pub dir: NodeId,
    /// The name.
    pub name: &'a [u8],
}

/// What SETATTR changes; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits, with the type.
    pub mode: Option<u32>,
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
    /// Last change of attributes (sent only with the kernel's write-back cache).
    pub ctime: Option<Timestamp>,
    /// The open file through which a size is set (`ftruncate`): then write permission is not asked again.
    pub file: Option<FileHandle>,
    /// Whose mandatory locks do not count.
    pub lock_owner: Option<LockOwner>,
    /// Set-id bits must go (with `HANDLE_KILLPRIV_V2`: the caller lacks CAP_FSETID).
    pub kill_set_ids: bool,
}

/// MKNOD and MKDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Make {
    /// Type and permission bits. The umask is applied already unless `DONT_MASK` was agreed on.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// For devices, which.
    pub rdev: Device,
}

/// OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// As given to `open(2)`, without `O_CREAT`, `O_EXCL`, `O_NOCTTY`; `O_TRUNC` only with `ATOMIC_O_TRUNC`.
    pub flags: OpenFlags,
    /// The truncation takes set-id bits away.
    pub kill_set_ids: bool,
}

/// CREATE and TMPFILE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create {
    /// As given to `open(2)`; `EXCLUSIVE` among them where asked.
    pub flags: OpenFlags,
    /// Permission bits, with the type. The umask is applied already unless `DONT_MASK` was agreed on.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// The truncation of what exists takes set-id bits away.
    pub kill_set_ids: bool,
}

/// READ, READDIR and READDIRPLUS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Through which open.
    pub file: FileHandle,
    /// First byte; for directories the `next` of the last entry taken, 0 at the beginning.
    pub offset: u64,
    /// Bytes at most.
    pub bytes: u32,
    /// How the file was opened, where the kernel knows.
    pub flags: OpenFlags,
    /// Who reads, when mandatory locks matter.
    pub lock_owner: Option<LockOwner>,
}

/// WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write<'a> {
    /// Through which open; of a page written back, any open for writing.
    pub file: FileHandle,
    /// First byte. With `O_APPEND` the end as the kernel knows it: what it does not know makes it wrong.
    pub offset: u64,
    /// What. Lies in the serving thread's buffer: valid during the call.
    pub data: &'a [u8],
    /// How the file was opened, where the kernel knows.
    pub flags: OpenFlags,
    /// Who writes, when it is known.
    pub lock_owner: Option<LockOwner>,
    /// A page of a shared mapping on its way back: `uid`, `gid` and `pid` of the request say nothing.
    pub is_write_back: bool,
    /// Set-id bits must go.
    pub kill_set_ids: bool,
}

/// FLUSH: one of perhaps several closes of an open file. Its error is the close's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flush {
    /// Which open.
    pub file: FileHandle,
    /// Whose POSIX locks on the file end.
    pub lock_owner: LockOwner,
}

/// RELEASE and RELEASEDIR: the last close. Nobody hears its error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Which open.
    pub file: FileHandle,
    /// How it was opened.
    pub flags: OpenFlags,
    /// Whose `flock`s end, when `ends_flock`; else 0. Open-file-description locks taken through it end as well, though
    /// the kernel does not say whose they are (see [`LockClass`]).
    pub lock_owner: LockOwner,
    /// Whether `flock` was used on it.
    pub ends_flock: bool,
}

/// How much `fsync` forces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncWhat {
    /// Data and what is needed to read it.
    Data,
    /// Everything.
    All,
}

/// GETLK, SETLK and SETLKW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockAsk {
    /// Through which open.
    pub file: FileHandle,
    /// Who.
    pub owner: LockOwner,
    /// Which kind.
    pub class: LockClass,
    /// Where and how.
    pub span: LockSpan,
}

/// What SETXATTR does about an attribute that exists or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Either,
    /// Fail with EEXIST when it exists.
    Create,
    /// Fail with ENODATA when it does not.
    Replace,
}

/// SETXATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetXattr<'a> {
    /// Full name (`user.…`).
    pub name: &'a [u8],
    /// Value.
    pub value: &'a [u8],
    /// About an existing one.
    pub mode: XattrMode,
    /// The set-group-id bit must go, with an access ACL.
    pub kill_set_gid: bool,
}

/// FALLOCATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallocate {
    /// Through which open.
    pub file: FileHandle,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What to do there.
    pub mode: FallocateFlags,
}

/// What LSEEK looks for; other ways of seeking never leave the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFor {
    /// The next byte that lies in data.
    Data,
    /// The next byte that lies in a hole; the end of the file is one.
    Hole,
}

/// COPY_FILE_RANGE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// The file to copy from.
    pub from: NodeId,
    /// Through which open.
    pub from_file: FileHandle,
    /// First byte there.
    pub from_offset: u64,
    /// The file to copy to.
    pub to: NodeId,
    /// Through which open.
    pub to_file: FileHandle,
    /// First byte there.
    pub to_offset: u64,
    /// Bytes; fewer may be copied.
    pub length: u64,
}

/// RENAME and RENAME2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rename<'a> {
    /// From.
    pub from: NameIn<'a>,
    /// To.
    pub to: NameIn<'a>,
    /// How.
    pub flags: RenameFlags,
}

/// IOCTL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ioctl<'a> {
    /// Through which open.
    pub file: FileHandle,
    /// The number.
    pub command: u32,
    /// What the caller passed, as the command's number says how much.
    pub data: &'a [u8],
    /// Bytes that may be answered.
    pub out_bytes: u32,
    /// Whether it is about an open directory.
    pub is_dir: bool,
}
