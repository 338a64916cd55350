//! One object: its attributes, its content, and who may do what to it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use holdfast_base::{ChangeId, Timestamp};

use super::blocks::{BLOCK, Blocks};
use crate::attrs::{AccessMask, Attrs, Device, FileKind, FsId};
use crate::caller::Caller;
use crate::error::{FsError, FsResult};
use crate::open::Exclusive;

/// An object's number; never given twice.
pub(super) type Ino = u64;

/// Permission to read, write and execute or search: the bits of one digit of a mode.
pub(super) const READ: u32 = 4;
pub(super) const WRITE: u32 = 2;
pub(super) const EXEC: u32 = 1;

pub(super) const SET_UID: u32 = 0o4000;
pub(super) const SET_GID: u32 = 0o2000;
pub(super) const STICKY: u32 = 0o1000;
pub(super) const MODE_BITS: u32 = 0o7777;

/// A directory's entries, by name and by cookie. A name keeps its cookie for as long as it is there.
#[derive(Clone, Default)]
pub(super) struct Dir {
    by_name: HashMap<Box<[u8]>, u64>,
    by_cookie: BTreeMap<u64, (Box<[u8]>, Ino)>,
    last_cookie: u64,
}

/// 1 and 2 belong to `.` and `..` in the protocols.
const COOKIES_RESERVED: u64 = 2;

impl Dir {
    pub(super) fn get(&self, name: &[u8]) -> Option<Ino> {
        let cookie = self.by_name.get(name)?;
        self.by_cookie.get(cookie).map(|(_, ino)| *ino)
    }

    /// Adds the name, or points it at another object.
    pub(super) fn put(&mut self, name: &[u8], ino: Ino) {
        if let Some(entry) = self.by_name.get(name).and_then(|c| self.by_cookie.get_mut(c)) {
            entry.1 = ino;
            return;
        }
        self.last_cookie = self.last_cookie.max(COOKIES_RESERVED) + 1;
        self.by_name.insert(name.into(), self.last_cookie);
        self.by_cookie.insert(self.last_cookie, (name.into(), ino));
    }

    pub(super) fn take(&mut self, name: &[u8]) -> Option<Ino> {
        let cookie = self.by_name.remove(name)?;
        self.by_cookie.remove(&cookie).map(|(_, ino)| ino)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Entries after a cookie, each with its own.
    pub(super) fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], Ino)> {
        self.by_cookie
            .range((Bound::Excluded(cookie), Bound::Unbounded))
            .map(|(&cookie, (name, ino))| (cookie, &**name, *ino))
    }
}

/// What an object holds.
#[derive(Clone)]
pub(super) enum Body {
    Regular(Blocks),
    Directory(Dir, Ino),
    Symlink(Box<[u8]>),
    Fifo,
    Socket,
    Char(Device),
    Block(Device),
}

/// An object.
#[derive(Clone)]
pub(super) struct Inode {
    pub(super) body: Body,
    pub(super) mode: u32,
    pub(super) nlink: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) atime: Timestamp,
    pub(super) mtime: Timestamp,
    pub(super) ctime: Timestamp,
    pub(super) btime: Timestamp,
    pub(super) change: u64,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The verifier of the exclusive create that made it, until the first setattr.
    pub(super) exclusive: Option<Exclusive>,
    /// Open files; an object without a name lives until the last is closed.
    pub(super) opens: u64,
    /// As the file system was made ([`super::MemOptions::has_plain_times`]).
    pub(super) has_plain_times: bool,
    /// It was made without a name, and has had none yet: it may be given one.
    pub(super) had_no_name: bool,
    /// Changes of attributes or entries that no commit covered yet.
    pub(super) is_dirty: bool,
    /// The same of data.
    pub(super) is_data_dirty: bool,
}

impl Inode {
    pub(super) fn kind(&self) -> FileKind {
        match self.body {
            Body::Regular(_) => FileKind::Regular,
            Body::Directory(..) => FileKind::Directory,
            Body::Symlink(_) => FileKind::Symlink,
            Body::Fifo => FileKind::Fifo,
            Body::Socket => FileKind::Socket,
            Body::Char(_) => FileKind::Char,
            Body::Block(_) => FileKind::Block,
        }
    }

    pub(super) fn attrs(&self, ino: Ino, fsid: FsId) -> Attrs {
        let (size, used) = match &self.body {
            Body::Regular(blocks) => (blocks.size(), blocks.held() * BLOCK),
            Body::Directory(..) => (BLOCK, BLOCK),
            Body::Symlink(text) => (text.len() as u64, 0),
            _ => (0, 0),
        };
        let rdev = match self.body {
            Body::Char(device) | Body::Block(device) => device,
            _ => Device::default(),
        };
        Attrs {
            kind: self.kind(),
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            size,
            used,
            rdev,
            fsid,
            fileid: ino,
            mounted_on_fileid: ino,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: Some(self.btime),
            change: ChangeId(self.change),
        }
    }

    /// Blocks it is charged for: data, and extended attributes as if packed together.
    pub(super) fn charged(&self) -> u64 {
        let data = match &self.body {
            Body::Regular(blocks) => blocks.held(),
            _ => 0,
        };
        data + xattr_blocks(&self.xattrs)
    }

    pub(super) fn dir(&self) -> FsResult<&Dir> {
        match &self.body {
            Body::Directory(dir, _) => Ok(dir),
            Body::Symlink(_) => Err(FsError::IsSymlink),
            _ => Err(FsError::NotDir),
        }
    }

    pub(super) fn dir_mut(&mut self) -> FsResult<&mut Dir> {
        match &mut self.body {
            Body::Directory(dir, _) => Ok(dir),
            Body::Symlink(_) => Err(FsError::IsSymlink),
            _ => Err(FsError::NotDir),
        }
    }

    pub(super) fn blocks(&self) -> FsResult<&Blocks> {
        match &self.body {
            Body::Regular(blocks) => Ok(blocks),
            other => Err(not_regular(other)),
        }
    }

    pub(super) fn blocks_mut(&mut self) -> FsResult<&mut Blocks> {
        match &mut self.body {
            Body::Regular(blocks) => Ok(blocks),
            other => Err(not_regular(other)),
        }
    }

    /// Notes a change of attributes; `modifies` when data or entries changed as well. Times never stand still
    /// or go back across a change, so that clients that look at ctime notice each one, unless they are to be plain.
    pub(super) fn touch(&mut self, now: Timestamp, modifies: bool) {
        let is_taken = self.has_plain_times || now > self.ctime;
        self.ctime = if is_taken { now } else { next_nano(self.ctime) };
        if modifies {
            self.mtime = self.ctime;
        }
        self.change += 1;
    }

    /// Whether the mode grants all of `want` to the caller, as POSIX says.
    pub(super) fn may(&self, caller: &Caller, want: u32) -> bool {
        if caller.uid == 0 {
            let runs = self.kind() == FileKind::Directory || self.mode & 0o111 != 0;
            return want & EXEC == 0 || runs;
        }
        let shift = if caller.uid == self.uid {
            6
        } else if is_member(caller, self.gid) {
            3
        } else {
            0
        };
        (self.mode >> shift) & want == want
    }

    pub(super) fn check(&self, caller: &Caller, want: u32) -> FsResult<()> {
        if self.may(caller, want) { Ok(()) } else { Err(FsError::Access) }
    }

    pub(super) fn is_owner(&self, caller: &Caller) -> bool {
        caller.uid == 0 || caller.uid == self.uid
    }

    /// Permission for I/O with NFS's exceptions: the owner may always, and who may execute may read
    /// (RFC 1813 section 4.4).
    pub(super) fn check_nfs(&self, caller: &Caller, want: u32) -> FsResult<()> {
        if caller.uid == self.uid || (want == READ && self.may(caller, EXEC)) {
            return Ok(());
        }
        self.check(caller, want)
    }

    /// The rights of an ACCESS call, judged by the mode alone: the client's kernel builds on it.
    pub(super) fn rights(&self, caller: &Caller) -> AccessMask {
        let is_dir = self.kind() == FileKind::Directory;
        let mut rights = AccessMask::NONE;
        if self.may(caller, READ) {
            rights = rights | AccessMask::READ | AccessMask::XATTR_READ | AccessMask::XATTR_LIST;
        }
        if self.may(caller, WRITE) {
            rights = rights | AccessMask::XATTR_WRITE;
        }
        if self.may(caller, if is_dir { WRITE | EXEC } else { WRITE }) {
            rights = rights | AccessMask::MODIFY | AccessMask::EXTEND;
            rights = if is_dir { rights | AccessMask::DELETE } else { rights };
        }
        if self.may(caller, EXEC) {
            rights = rights | if is_dir { AccessMask::LOOKUP } else { AccessMask::EXECUTE };
        }
        rights
    }

    /// What the kernel does when somebody without privilege changes a file's data: set-id bits go.
    pub(super) fn drop_privileges(&mut self, caller: &Caller) {
        if caller.uid != 0 && self.kind() == FileKind::Regular {
            self.mode = without_set_ids(self.mode);
        }
    }
}

/// A mode after a change of owner or data. Set-group-id without group execute never meant privilege.
pub(super) const fn without_set_ids(mode: u32) -> u32 {
    let mode = mode & !SET_UID;
    if mode & 0o010 != 0 { mode & !SET_GID } else { mode }
}

pub(super) fn is_member(caller: &Caller, gid: u32) -> bool {
    caller.gid == gid || caller.groups.contains(&gid)
}

pub(super) fn xattr_blocks(xattrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> u64 {
    let bytes: usize = xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    (bytes as u64).div_ceil(BLOCK)
}

const fn not_regular(body: &Body) -> FsError {
    match body {
        Body::Directory(..) => FsError::IsDir,
        Body::Symlink(_) => FsError::IsSymlink,
        _ => FsError::WrongKind,
    }
}

const fn next_nano(t: Timestamp) -> Timestamp {
    if t.nanos >= 999_999_999 {
        Timestamp { seconds: t.seconds.saturating_add(1), nanos: 0 }
    } else {
        Timestamp { seconds: t.seconds, nanos: t.nanos + 1 }
    }
}
