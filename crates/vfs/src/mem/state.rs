//! Everything the backend holds, under one lock: objects, space, and what every operation needs of them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use holdfast_base::limits::{MEM_COMMIT_LOG_MAX, MEM_FILE_BYTES_MAX, NAME_BYTES_MAX};
use holdfast_base::{ByteRange, Timestamp};

use super::blocks::BLOCK;
use super::inode::{Body, Ino, Inode, MODE_BITS, SET_GID, is_member};
use super::outside::Outside;
use super::pictures::Picture;
use crate::attrs::{Attrs, Change, FsId, FsLimits, FsUsage, PreAttrs, SetAttrs, SetTime};
use crate::caller::Caller;
use crate::data::Touched;
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::open::{Advice, LockKind};

/// Where the backend takes the time from.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// First byte of every handle: which backend gave it.
const HANDLE_TAG: u8 = b'm';
const HANDLE_BYTES: usize = 25;

/// The exported directory's number.
pub(super) const ROOT: Ino = 1;

/// Mode of what is made without one.
pub(super) const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// Space, counted in blocks.
#[derive(Clone)]
pub(super) struct Space {
    pub(super) blocks_max: u64,
    pub(super) objects_max: u64,
    used: u64,
    used_by: HashMap<u32, u64>,
    pub(super) quotas: HashMap<u32, u64>,
}

impl Space {
    pub(super) fn new(blocks_max: u64, objects_max: u64) -> Self {
        Self { blocks_max, objects_max, used: 0, used_by: HashMap::new(), quotas: HashMap::new() }
    }

    /// Blocks the user may still take, and why no more.
    pub(super) fn budget(&self, uid: u32) -> (u64, FsError) {
        let free = self.blocks_max.saturating_sub(self.used);
        let used = self.used_by.get(&uid).copied().unwrap_or(0);
        match self.quotas.get(&uid).map(|max| max.saturating_sub(used)) {
            Some(left) if left < free => (left, FsError::Quota),
            _ => (free, FsError::NoSpace),
        }
    }

    pub(super) fn charge(&mut self, uid: u32, blocks: u64) -> FsResult<()> {
        let (budget, why) = self.budget(uid);
        if blocks > budget {
            return Err(why);
        }
        self.charge_anyway(uid, blocks);
        Ok(())
    }

    /// Counts blocks that are held whatever the bounds say.
    pub(super) fn charge_anyway(&mut self, uid: u32, blocks: u64) {
        self.used += blocks;
        *self.used_by.entry(uid).or_default() += blocks;
    }

    pub(super) fn refund(&mut self, uid: u32, blocks: u64) {
        self.used = self.used.saturating_sub(blocks);
        if let Some(used) = self.used_by.get_mut(&uid) {
            *used = used.saturating_sub(blocks);
            if *used == 0 {
                self.used_by.remove(&uid);
            }
        }
    }
}

/// A byte-range lock; `file` is the open file that holds it, `None` for somebody outside.
pub(super) struct Lock {
    pub(super) ino: Ino,
    pub(super) file: Option<u64>,
    pub(super) range: ByteRange,
    pub(super) kind: LockKind,
}

/// What tests switch.
#[derive(Default)]
pub(super) struct Hooks {
    /// Every so manieth call that may not wait answers WouldBlock; 0 for none.
    pub(super) block_every: u64,
    pub(super) inline_calls: u64,
    /// What the next commits fail with.
    pub(super) commit_failures: VecDeque<FsError>,
    /// What the next calls fail with.
    pub(super) call_failures: VecDeque<FsError>,
    pub(super) gives_spans: bool,
    /// With so manieth of the next calls that are told of a caller it panics; 0 for never.
    pub(super) panics_in: u32,
    /// After how many writes to come the write verifier changes.
    pub(super) losses: u32,
    /// What the next write does first.
    pub(super) before_write: Option<Box<dyn FnOnce() + Send>>,
    /// What was there before each call, while that is kept.
    pub(super) pictures: Option<Vec<Picture>>,
    /// What it says of leases, of which it has none.
    pub(super) leases_are_scarce: bool,
    /// Advice that was followed, while it is.
    pub(super) advised: Option<Vec<(ByteRange, Advice)>>,
}

/// The whole file system.
pub(super) struct State {
    pub(super) fsid: FsId,
    pub(super) now: Now,
    pub(super) links_max: u32,
    pub(super) is_read_only: bool,
    pub(super) has_plain_times: bool,
    pub(super) inodes: BTreeMap<Ino, Inode>,
    pub(super) last_ino: Ino,
    pub(super) last_file: u64,
    pub(super) space: Space,
    pub(super) locks: Vec<Lock>,
    pub(super) is_on_other_hosts: bool,
    pub(super) outside: Outside,
    pub(super) hooks: Hooks,
    pub(super) commits: VecDeque<Touched>,
    pub(super) verifier: u64,
}

impl State {
    pub(super) fn handle(&self, ino: Ino) -> Handle {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[0] = HANDLE_TAG;
        bytes[1..9].copy_from_slice(&self.fsid.major.to_be_bytes());
        bytes[9..17].copy_from_slice(&self.fsid.minor.to_be_bytes());
        bytes[17..].copy_from_slice(&ino.to_be_bytes());
        // 25 bytes are within the bound of a handle (52), so the fallback is never taken.
        Handle::new(&bytes).unwrap_or_else(|| unreachable!("a handle of {HANDLE_BYTES} bytes fits"))
    }

    /// The object of a handle.
    pub(super) fn ino(&self, handle: &Handle) -> FsResult<Ino> {
        let bytes = handle.as_bytes();
        let (head, tail) = bytes.split_at_checked(17).ok_or(FsError::BadHandle)?;
        let ino: [u8; 8] = tail.try_into().map_err(|_| FsError::BadHandle)?;
        if head != &self.handle(0).as_bytes()[..17] {
            return Err(FsError::BadHandle);
        }
        let ino = Ino::from_be_bytes(ino);
        if self.inodes.contains_key(&ino) { Ok(ino) } else { Err(FsError::Stale) }
    }

    pub(super) fn get(&self, ino: Ino) -> FsResult<&Inode> {
        self.inodes.get(&ino).ok_or(FsError::Stale)
    }

    pub(super) fn get_mut(&mut self, ino: Ino) -> FsResult<&mut Inode> {
        self.inodes.get_mut(&ino).ok_or(FsError::Stale)
    }

    pub(super) fn attrs(&self, ino: Ino) -> FsResult<Attrs> {
        Ok(self.get(ino)?.attrs(ino, self.fsid))
    }

    pub(super) fn pre(&self, ino: Ino) -> FsResult<PreAttrs> {
        self.attrs(ino).map(|a| PreAttrs::from(&a))
    }

    pub(super) fn change(&self, ino: Ino, before: PreAttrs) -> FsResult<Change> {
        Ok(Change { before, after: self.attrs(ino)?, is_atomic: true })
    }

    pub(super) fn check_writable(&self) -> FsResult<()> {
        if self.is_read_only { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Notes that a directory's entries changed.
    pub(super) fn touch_dir(&mut self, dir: Ino, now: Timestamp) -> FsResult<()> {
        let inode = self.get_mut(dir)?;
        inode.touch(now, true);
        inode.is_dirty = true;
        Ok(())
    }

    /// Forgets an object that has neither a name nor an open file.
    pub(super) fn reap(&mut self, ino: Ino) {
        let is_gone = |i: &Inode| i.nlink == 0 && i.opens == 0;
        if self.inodes.get(&ino).is_some_and(is_gone)
            && let Some(inode) = self.inodes.remove(&ino)
        {
            self.space.refund(inode.uid, inode.charged());
            self.locks.retain(|lock| lock.ino != ino);
        }
    }

    /// Makes an object in a directory; it has no name yet.
    pub(super) fn make_inode(
        &mut self,
        caller: &Caller,
        dir: Ino,
        body: Body,
        set: &SetAttrs,
    ) -> FsResult<Ino> {
        if self.inodes.len() as u64 >= self.space.objects_max {
            return Err(FsError::NoSpace);
        }
        let is_dir = matches!(body, Body::Directory(..));
        let (mode, gid) = self.birth_mode(caller, dir, is_dir, set)?;
        let mode = if matches!(body, Body::Symlink(_)) { 0o777 } else { mode };
        let now = (self.now)();
        let time = |t: Option<SetTime>| match t {
            Some(SetTime::At(t)) => t,
            Some(SetTime::Now) | None => now,
        };
        let inode = Inode {
            body,
            mode,
            nlink: 0,
            uid: set.uid.unwrap_or(caller.uid),
            gid,
            atime: time(set.atime),
            mtime: time(set.mtime),
            ctime: now,
            btime: now,
            change: 1,
            xattrs: BTreeMap::new(),
            exclusive: None,
            opens: 0,
            has_plain_times: self.has_plain_times,
            had_no_name: false,
            is_dirty: false,
            is_data_dirty: false,
        };
        self.last_ino += 1;
        self.inodes.insert(self.last_ino, inode);
        Ok(self.last_ino)
    }

    /// Mode and group of a new object: a set-group-id directory hands its group on (and, to directories, the
    /// bit itself); who is not of the group gets no set-group-id program.
    fn birth_mode(&self, caller: &Caller, dir: Ino, is_dir: bool, set: &SetAttrs) -> FsResult<(u32, u32)> {
        let parent = self.get(dir)?;
        let inherits = parent.mode & SET_GID != 0;
        let born_gid = if inherits { parent.gid } else { caller.gid };
        let gid = set.gid.unwrap_or(born_gid);
        let is_root = caller.uid == 0;
        if !is_root && set.uid.is_some_and(|uid| uid != caller.uid) {
            return Err(FsError::Perm);
        }
        if !is_root && gid != born_gid && !is_member(caller, gid) {
            return Err(FsError::Perm);
        }
        let given = set.mode.unwrap_or(if is_dir { DIR_MODE } else { FILE_MODE }) & MODE_BITS;
        let mut mode = given & !(set.umask.unwrap_or(0) & 0o777);
        if is_dir && inherits {
            mode |= SET_GID;
        } else if !is_dir && !is_root && !is_member(caller, gid) {
            mode &= !SET_GID;
        }
        Ok((mode, gid))
    }

    pub(super) fn log_commit(&mut self, touched: Touched) {
        if self.commits.len() >= MEM_COMMIT_LOG_MAX {
            self.commits.pop_front();
        }
        self.commits.push_back(touched);
    }

    pub(super) fn usage(&self, caller: &Caller) -> FsUsage {
        let free = self.space.blocks_max.saturating_sub(self.space.used) * BLOCK;
        let files_free = self.space.objects_max.saturating_sub(self.inodes.len() as u64);
        FsUsage {
            bytes_total: self.space.blocks_max * BLOCK,
            bytes_free: free,
            bytes_available: self.space.budget(caller.uid).0 * BLOCK,
            files_total: self.space.objects_max,
            files_free,
            files_available: files_free,
        }
    }

    pub(super) fn limits(&self) -> FsLimits {
        FsLimits {
            name_bytes_max: NAME_BYTES_MAX as u32,
            links_max: self.links_max,
            file_bytes_max: MEM_FILE_BYTES_MAX,
            time_delta_nanos: 1,
            has_xattrs: true,
            has_birth_time: true,
            has_clone: true,
            has_sparse: true,
            change_is_version_counter: true,
            is_read_only: self.is_read_only,
            clone_block_bytes: BLOCK as u32,
        }
    }

    /// Checks what must always hold; the text says what does not.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        for (&ino, inode) in &self.inodes {
            let Body::Directory(dir, parent) = &inode.body else { continue };
            let mut subdirs = 0;
            for (_, name, child) in dir.after(0) {
                let child_inode = self.inodes.get(&child).ok_or_else(|| format!("{name:?} names nothing"))?;
                if let Body::Directory(_, up) = child_inode.body {
                    subdirs += 1;
                    if up != ino {
                        return Err(format!("directory {child} is in {ino} but says {up}"));
                    }
                }
                *names.entry(child).or_default() += 1;
            }
            if inode.nlink != 0 && inode.nlink != 2 + subdirs {
                return Err(format!(
                    "directory {ino} has {} links and {subdirs} subdirectories",
                    inode.nlink
                ));
            }
            if !self.inodes.contains_key(parent) && inode.nlink != 0 {
                return Err(format!("the parent {parent} of {ino} is gone"));
            }
        }
        for (&ino, inode) in &self.inodes {
            let named = names.get(&ino).copied().unwrap_or(0);
            let is_dir = matches!(inode.body, Body::Directory(..));
            if is_dir && ino != ROOT && named > 1 || !is_dir && named != inode.nlink {
                return Err(format!("object {ino} has {named} names and {} links", inode.nlink));
            }
            if inode.nlink == 0 && inode.opens == 0 {
                return Err(format!("object {ino} should be gone"));
            }
        }
        let charged: u64 = self.inodes.values().map(Inode::charged).sum();
        if charged != self.space.used {
            return Err(format!("{charged} blocks are held and {} charged", self.space.used));
        }
        Ok(())
    }
}
