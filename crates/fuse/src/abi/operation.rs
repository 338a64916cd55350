//! Requests as values.

use holdfast_base::Timestamp;

use crate::abi::IN_HEADER_BYTES;
use crate::abi::fields::Fields;
pub use crate::abi::fields::Malformed;
use crate::abi::init::InitIn;
use crate::abi::opcode::Opcode;
use crate::flags::{FallocateFlags, OpenFlags, RenameFlags};
use crate::ops::{
    CopyRange, Create, Fallocate, Flush, Ioctl, LockAsk, Make, NameIn, Open, Read, Release, Rename, SeekFor,
    SetAttr, SetXattr, SyncWhat, Write, XattrMode,
};
use crate::types::{Device, FileHandle, Forget, LockClass, LockMode, LockOwner, LockSpan, NodeId, SetTime};

type Result<T> = std::result::Result<T, Malformed>;

/// What every request begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of the whole.
    pub bytes: u32,
    /// What is asked for, as a number.
    pub opcode: u32,
    /// The request's own number; even, and never used again on a connection.
    pub unique: u64,
    /// What it is about.
    pub node: NodeId,
    /// The caller's user id (`fsuid`).
    pub uid: u32,
    /// The caller's group id (`fsgid`).
    pub gid: u32,
    /// The caller's thread, in the daemon's eyes; 0 where it has none.
    pub pid: u32,
}

impl Header {
    /// Decodes the header; answers the operation's own bytes as well.
    ///
    /// # Errors
    /// [`Malformed`] when the length does not agree with what there is.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8])> {
        let mut fields = Fields::new(bytes);
        let header = Self {
            bytes: fields.u32()?,
            opcode: fields.u32()?,
            unique: fields.u64()?,
            node: NodeId(fields.u64()?),
            uid: fields.u32()?,
            gid: fields.u32()?,
            pid: fields.u32()?,
        };
        // Extensions (security contexts, a supplementary group) lie at the end; they come only where agreed on.
        let extension_bytes = usize::from(fields.u16()?) * 8;
        fields.skip(2)?;
        let end = bytes.len().checked_sub(extension_bytes).ok_or(Malformed)?;
        if usize::try_from(header.bytes) != Ok(bytes.len()) {
            return Err(Malformed);
        }
        bytes.get(IN_HEADER_BYTES..end).map(|body| (header, body)).ok_or(Malformed)
    }
}

/// Which forms of messages were agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// SETXATTR has its longer form.
    pub has_setxattr_ext: bool,
}

/// A request. The node of the header is left out; operations on a name have it as the name's directory.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named as the operations and methods that they stand for")]
pub enum Operation<'a> {
    Lookup(NameIn<'a>),
    Forget(Forget),
    BatchForget(Forgets<'a>),
    Getattr(Option<FileHandle>),
    Statx(Option<FileHandle>),
    Setattr(SetAttr),
    Readlink,
    Symlink {
        at: NameIn<'a>,
        text: &'a [u8],
    },
    Mknod {
        at: NameIn<'a>,
        make: Make,
    },
    Mkdir {
        at: NameIn<'a>,
        make: Make,
    },
    Unlink(NameIn<'a>),
    Rmdir(NameIn<'a>),
    Rename(Rename<'a>),
    Link {
        node: NodeId,
        to: NameIn<'a>,
    },
    Open(Open),
    Opendir(Open),
    Create {
        at: NameIn<'a>,
        create: Create,
    },
    Tmpfile(Create),
    Read(Read),
    Readdir(Read),
    Readdirplus(Read),
    Write(Write<'a>),
    Statfs,
    Syncfs,
    Release(Release),
    Releasedir(Release),
    Fsync {
        file: FileHandle,
        what: SyncWhat,
    },
    Fsyncdir {
        file: FileHandle,
        what: SyncWhat,
    },
    Flush(Flush),
    Setxattr(SetXattr<'a>),
    Getxattr {
        name: &'a [u8],
        bytes_max: u32,
    },
    Listxattr {
        bytes_max: u32,
    },
    Removexattr(&'a [u8]),
    Getlk(LockAsk),
    Setlk(LockAsk),
    Setlkw(LockAsk),
    Access(u32),
    Init(InitIn),
    Interrupt {
        unique: u64,
    },
    Destroy,
    Ioctl(Ioctl<'a>),
    Fallocate(Fallocate),
    Lseek {
        file: FileHandle,
        offset: u64,
        what: SeekFor,
    },
    CopyFileRange {
        copy: CopyRange,
        has_wide_reply: bool,
    },
    /// Known, and never served.
    Unserved(Opcode),
}

impl<'a> Operation<'a> {
    /// Decodes what follows the header.
    ///
    /// # Errors
    /// [`Malformed`]; a number that is not known at all is `Ok(None)`.
    pub fn decode(header: &Header, body: &'a [u8], dialect: Dialect) -> Result<Option<Self>> {
        let Some(opcode) = Opcode::from_number(header.opcode) else { return Ok(None) };
        let mut f = Fields::new(body);
        let dir = header.node;
        let f = &mut f;
        Ok(Some(match opcode {
            Opcode::Lookup => Self::Lookup(name_in(f, dir)?),
            Opcode::Forget => Self::Forget(Forget { node: dir, lookups: f.u64()? }),
            Opcode::BatchForget => Self::BatchForget(Forgets::decode(f)?),
            Opcode::Getattr => Self::Getattr(getattr_file(f)?),
            Opcode::Statx => Self::Statx(getattr_file(f)?),
            Opcode::Setattr => Self::Setattr(setattr(f)?),
            Opcode::Readlink => Self::Readlink,
            Opcode::Symlink => Self::Symlink { at: name_in(f, dir)?, text: f.text()? },
            Opcode::Mknod => mknod(f, dir)?,
            Opcode::Mkdir => mkdir(f, dir)?,
            Opcode::Unlink => Self::Unlink(name_in(f, dir)?),
            Opcode::Rmdir => Self::Rmdir(name_in(f, dir)?),
            Opcode::Rename => rename(f, dir, false)?,
            Opcode::Rename2 => rename(f, dir, true)?,
            Opcode::Link => Self::Link { node: NodeId(f.u64()?), to: name_in(f, dir)? },
            Opcode::Open => Self::Open(open(f)?),
            Opcode::Opendir => Self::Opendir(open(f)?),
            Opcode::Create => create(f, dir)?,
            Opcode::Tmpfile => Self::Tmpfile(create_args(f)?),
            Opcode::Read => Self::Read(read(f)?),
            Opcode::Readdir => Self::Readdir(read(f)?),
            Opcode::Readdirplus => Self::Readdirplus(read(f)?),
            Opcode::Write => Self::Write(write(f)?),
            Opcode::Statfs => Self::Statfs,
            Opcode::Syncfs => Self::Syncfs,
            Opcode::Release => Self::Release(release(f)?),
            Opcode::Releasedir => Self::Releasedir(release(f)?),
            Opcode::Fsync => fsync(f).map(|(file, what)| Self::Fsync { file, what })?,
            Opcode::Fsyncdir => fsync(f).map(|(file, what)| Self::Fsyncdir { file, what })?,
            Opcode::Flush => Self::Flush(flush(f)?),
            Opcode::Setxattr => Self::Setxattr(setxattr(f, dialect)?),
            Opcode::Getxattr => xattr_bytes(f)
                .and_then(|bytes_max| Ok(Self::Getxattr { bytes_max, name: f.name_of_xattr()? }))?,
            Opcode::Listxattr => Self::Listxattr { bytes_max: xattr_bytes(f)? },
            Opcode::Removexattr => Self::Removexattr(f.name_of_xattr()?),
            Opcode::Getlk => Self::Getlk(lock(f)?),
            Opcode::Setlk => Self::Setlk(lock(f)?),
            Opcode::Setlkw => Self::Setlkw(lock(f)?),
            Opcode::Access => Self::Access(f.u32()?),
            Opcode::Init => Self::Init(InitIn::decode(f)?),
            Opcode::Interrupt => Self::Interrupt { unique: f.u64()? },
            Opcode::Destroy => Self::Destroy,
            Opcode::Ioctl => Self::Ioctl(ioctl(f)?),
            Opcode::Fallocate => Self::Fallocate(fallocate(f)?),
            Opcode::Lseek => lseek(f)?,
            Opcode::CopyFileRange => copy(f, dir, false)?,
            Opcode::CopyFileRange64 => copy(f, dir, true)?,
            Opcode::Bmap
            | Opcode::Poll
            | Opcode::NotifyReply
            | Opcode::Setupmapping
            | Opcode::Removemapping => Self::Unserved(opcode),
        }))
    }
}

/// The FORGETs of a BATCH_FORGET.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forgets<'a>(&'a [u8]);

impl<'a> Forgets<'a> {
    fn decode(f: &mut Fields<'a>) -> Result<Self> {
        let count = usize::try_from(f.u32()?).map_err(|_| Malformed)?;
        f.skip(4)?;
        f.bytes(count.checked_mul(16).ok_or(Malformed)?).map(Self)
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = Forget> + 'a {
        self.0.chunks_exact(16).filter_map(|one| {
            let mut f = Fields::new(one);
            Some(Forget { node: NodeId(f.u64().ok()?), lookups: f.u64().ok()? })
        })
    }
}

impl<'a> Fields<'a> {
    fn name_of_xattr(&mut self) -> Result<&'a [u8]> {
        let name = self.text()?;
        if name.is_empty() { Err(Malformed) } else { Ok(name) }
    }
}

fn name_in<'a>(f: &mut Fields<'a>, dir: NodeId) -> Result<NameIn<'a>> {
    Ok(NameIn { dir, name: f.name()? })
}

fn getattr_file(f: &mut Fields<'_>) -> Result<Option<FileHandle>> {
    const HAS_FILE: u32 = 1;
    let flags = f.u32()?;
    f.skip(4)?;
    let file = FileHandle(f.u64()?);
    Ok((flags & HAS_FILE != 0).then_some(file))
}

fn setattr(f: &mut Fields<'_>) -> Result<SetAttr> {
    let valid = f.u32()?;
    f.skip(4)?;
    let (file, size, owner) = (f.u64()?, f.u64()?, f.u64()?);
    let (atime, mtime, ctime) = (f.u64()?, f.u64()?, f.u64()?);
    let (atime_nanos, mtime_nanos, ctime_nanos) = (f.u32()?, f.u32()?, f.u32()?);
    let mode = f.u32()?;
    f.skip(4)?;
    let (uid, gid) = (f.u32()?, f.u32()?);
    let has = |bit: u32| valid & (1 << bit) != 0;
    let time = |seconds: u64, nanos: u32| Timestamp { seconds: seconds.cast_signed(), nanos };
    let set_time = |is_now: bool, at: Timestamp| if is_now { SetTime::Now } else { SetTime::At(at) };
    Ok(SetAttr {
        mode: has(0).then_some(mode),
        uid: has(1).then_some(uid),
        gid: has(2).then_some(gid),
        size: has(3).then_some(size),
        atime: has(4).then(|| set_time(has(7), time(atime, atime_nanos))),
        mtime: has(5).then(|| set_time(has(8), time(mtime, mtime_nanos))),
        ctime: has(10).then(|| time(ctime, ctime_nanos)),
        file: has(6).then_some(FileHandle(file)),
        lock_owner: has(9).then_some(LockOwner(owner)),
        kill_set_ids: has(11),
    })
}

fn mknod<'a>(f: &mut Fields<'a>, dir: NodeId) -> Result<Operation<'a>> {
    let (mode, rdev, umask) = (f.u32()?, Device::decode(f.u32()?), f.u32()?);
    f.skip(4)?;
    Ok(Operation::Mknod { at: name_in(f, dir)?, make: Make { mode, umask, rdev } })
}

fn mkdir<'a>(f: &mut Fields<'a>, dir: NodeId) -> Result<Operation<'a>> {
    let (mode, umask) = (f.u32()?, f.u32()?);
    // The type's bits are not sent with MKDIR alone.
    let make = Make { mode: mode | libc::S_IFDIR, umask, rdev: Device::default() };
    Ok(Operation::Mkdir { at: name_in(f, dir)?, make })
}

fn rename<'a>(f: &mut Fields<'a>, dir: NodeId, has_flags: bool) -> Result<Operation<'a>> {
    let to_dir = NodeId(f.u64()?);
    let mut flags = RenameFlags::NONE;
    if has_flags {
        flags = RenameFlags::from_bits(f.u32()?);
        f.skip(4)?;
    }
    Ok(Operation::Rename(Rename { from: name_in(f, dir)?, to: name_in(f, to_dir)?, flags }))
}

const KILL_SET_IDS: u32 = 1;

fn open(f: &mut Fields<'_>) -> Result<Open> {
    Ok(Open { flags: OpenFlags::from_bits(f.u32()?), kill_set_ids: f.u32()? & KILL_SET_IDS != 0 })
}

fn create_args(f: &mut Fields<'_>) -> Result<Create> {
    Ok(Create {
        flags: OpenFlags::from_bits(f.u32()?),
        mode: f.u32()?,
        umask: f.u32()?,
        kill_set_ids: f.u32()? & KILL_SET_IDS != 0,
    })
}

fn create<'a>(f: &mut Fields<'a>, dir: NodeId) -> Result<Operation<'a>> {
    let create = create_args(f)?;
    Ok(Operation::Create { at: name_in(f, dir)?, create })
}

fn read(f: &mut Fields<'_>) -> Result<Read> {
    const HAS_OWNER: u32 = 1 << 1;
    let (file, offset, bytes, read_flags, owner) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?, f.u64()?);
    Ok(Read {
        file: FileHandle(file),
        offset,
        bytes,
        flags: OpenFlags::from_bits(f.u32()?),
        lock_owner: (read_flags & HAS_OWNER != 0).then_some(LockOwner(owner)),
    })
}

fn write<'a>(f: &mut Fields<'a>) -> Result<Write<'a>> {
    let (file, offset, bytes, write_flags, owner) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?, f.u64()?);
    let flags = OpenFlags::from_bits(f.u32()?);
    f.skip(4)?;
    Ok(Write {
        file: FileHandle(file),
        offset,
        data: f.bytes(usize::try_from(bytes).map_err(|_| Malformed)?)?,
        flags,
        lock_owner: (write_flags & (1 << 1) != 0).then_some(LockOwner(owner)),
        is_write_back: write_flags & 1 != 0,
        kill_set_ids: write_flags & (1 << 2) != 0,
    })
}

fn release(f: &mut Fields<'_>) -> Result<Release> {
    let (file, flags, release_flags) = (f.u64()?, f.u32()?, f.u32()?);
    Ok(Release {
        file: FileHandle(file),
        flags: OpenFlags::from_bits(flags),
        lock_owner: LockOwner(f.u64()?),
        ends_flock: release_flags & (1 << 1) != 0,
    })
}

fn flush(f: &mut Fields<'_>) -> Result<Flush> {
    let file = FileHandle(f.u64()?);
    f.skip(8)?;
    Ok(Flush { file, lock_owner: LockOwner(f.u64()?) })
}

fn fsync(f: &mut Fields<'_>) -> Result<(FileHandle, SyncWhat)> {
    let file = FileHandle(f.u64()?);
    Ok((file, if f.u32()? & 1 != 0 { SyncWhat::Data } else { SyncWhat::All }))
}

fn setxattr<'a>(f: &mut Fields<'a>, dialect: Dialect) -> Result<SetXattr<'a>> {
    let bytes = usize::try_from(f.u32()?).map_err(|_| Malformed)?;
    let mode = match f.u32()?.cast_signed() {
        0 => XattrMode::Either,
        libc::XATTR_CREATE => XattrMode::Create,
        libc::XATTR_REPLACE => XattrMode::Replace,
        _ => return Err(Malformed),
    };
    let mut kill_set_gid = false;
    if dialect.has_setxattr_ext {
        kill_set_gid = f.u32()? & 1 != 0;
        f.skip(4)?;
    }
    let name = f.name_of_xattr()?;
    Ok(SetXattr { name, value: f.bytes(bytes)?, mode, kill_set_gid })
}

fn xattr_bytes(f: &mut Fields<'_>) -> Result<u32> {
    let bytes = f.u32()?;
    f.skip(4)?;
    Ok(bytes)
}

fn lock(f: &mut Fields<'_>) -> Result<LockAsk> {
    let (file, owner) = (FileHandle(f.u64()?), LockOwner(f.u64()?));
    let (start, end) = (f.u64()?, f.u64()?);
    let mode = match f.u32()?.cast_signed() {
        libc::F_RDLCK => LockMode::Read,
        libc::F_WRLCK => LockMode::Write,
        libc::F_UNLCK => LockMode::Unlock,
        _ => return Err(Malformed),
    };
    let pid = f.u32()?;
    let class = if f.u32()? & 1 != 0 { LockClass::Flock } else { LockClass::Range };
    if end < start {
        return Err(Malformed);
    }
    Ok(LockAsk { file, owner, class, span: LockSpan { start, end, mode, pid } })
}

fn ioctl<'a>(f: &mut Fields<'a>) -> Result<Ioctl<'a>> {
    let (file, flags, command) = (FileHandle(f.u64()?), f.u32()?, f.u32()?);
    // The caller's address: of no use to a restricted ioctl.
    f.skip(8)?;
    let (in_bytes, out_bytes) = (f.u32()?, f.u32()?);
    let data = f.bytes(usize::try_from(in_bytes).map_err(|_| Malformed)?)?;
    Ok(Ioctl { file, command, data, out_bytes, is_dir: flags & (1 << 4) != 0 })
}

fn fallocate(f: &mut Fields<'_>) -> Result<Fallocate> {
    let (file, offset, length) = (FileHandle(f.u64()?), f.u64()?, f.u64()?);
    Ok(Fallocate { file, offset, length, mode: FallocateFlags::from_bits(f.u32()?) })
}

fn lseek<'a>(f: &mut Fields<'a>) -> Result<Operation<'a>> {
    let (file, offset) = (FileHandle(f.u64()?), f.u64()?);
    let what = match f.u32()?.cast_signed() {
        libc::SEEK_DATA => SeekFor::Data,
        libc::SEEK_HOLE => SeekFor::Hole,
        _ => return Err(Malformed),
    };
    Ok(Operation::Lseek { file, offset, what })
}

fn copy<'a>(f: &mut Fields<'a>, from: NodeId, has_wide_reply: bool) -> Result<Operation<'a>> {
    let copy = CopyRange {
        from,
        from_file: FileHandle(f.u64()?),
        from_offset: f.u64()?,
        to: NodeId(f.u64()?),
        to_file: FileHandle(f.u64()?),
        to_offset: f.u64()?,
        length: f.u64()?,
    };
    f.skip(8)?;
    Ok(Operation::CopyFileRange { copy, has_wide_reply })
}
