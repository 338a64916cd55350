//! What changes or reads one object: attributes, data, regions, copies, extended attributes.

use holdfast_base::limits::{
    MEM_COPY_BYTES_MAX, MEM_FILE_BYTES_MAX, XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX,
};

use super::blocks::BLOCK;
use super::inode::{Ino, MODE_BITS, READ, SET_GID, WRITE, is_member, without_set_ids, xattr_blocks};
use super::names::check_size;
use super::state::State;
use crate::attrs::{Change, FileKind, SetAttrs, SetTime};
use crate::caller::Caller;
use crate::data::WriteAt;
use crate::error::{FsError, FsResult};
use crate::open::{CopySpan, CtimeGuard, Read, Region, Written, XattrMode};

impl State {
    /// `size_is_granted`: the file was opened for writing, so that a size needs no further permission.
    pub(super) fn setattr(
        &mut self,
        caller: &Caller,
        ino: Ino,
        set: &SetAttrs,
        guard: CtimeGuard,
        size_is_granted: bool,
    ) -> FsResult<Change> {
        let before = self.pre(ino)?;
        if guard.is_some_and(|ctime| ctime != before.ctime) {
            return Err(FsError::NotSync);
        }
        if *set == SetAttrs::default() {
            return self.change(ino, before);
        }
        self.check_writable()?;
        self.check_set(caller, ino, set, size_is_granted)?;
        self.set_owner(ino, set)?;
        if let Some(size) = set.size {
            self.cut(caller, ino, size)?;
        }
        let now = (self.now)();
        let inode = self.get_mut(ino)?;
        if let Some(mode) = set.mode {
            let is_dir = inode.kind() == FileKind::Directory;
            let owner_changes = !is_dir && (set.uid.is_some() || set.gid.is_some());
            let mode = if owner_changes { without_set_ids(mode) } else { mode } & MODE_BITS;
            let keeps_gid = caller.uid == 0 || is_member(caller, inode.gid);
            inode.mode = if keeps_gid { mode } else { mode & !SET_GID };
        }
        let time = |t| match t {
            SetTime::Now => now,
            SetTime::At(t) => t,
        };
        inode.touch(now, set.size.is_some());
        inode.atime = set.atime.map_or(inode.atime, time);
        inode.mtime = set.mtime.map_or(inode.mtime, time);
        inode.exclusive = None;
        inode.is_dirty = true;
        self.change(ino, before)
    }

    fn check_set(&self, caller: &Caller, ino: Ino, set: &SetAttrs, size_is_granted: bool) -> FsResult<()> {
        let inode = self.get(ino)?;
        let is_owner = inode.is_owner(caller);
        if let Some(size) = set.size {
            inode.blocks().map_err(|e| if e == FsError::IsDir { e } else { FsError::Invalid })?;
            if !size_is_granted {
                inode.check_nfs(caller, WRITE)?;
            }
            check_size(size)?;
        }
        if set.mode.is_some() && !is_owner {
            return Err(FsError::Perm);
        }
        let is_root = caller.uid == 0;
        if set.uid.is_some_and(|uid| !is_root && (uid != inode.uid || !is_owner)) {
            return Err(FsError::Perm);
        }
        let may_have = |gid| is_root || (is_owner && (gid == inode.gid || is_member(caller, gid)));
        if set.gid.is_some_and(|gid| !may_have(gid)) {
            return Err(FsError::Perm);
        }
        let times = [set.atime, set.mtime];
        if !is_owner && times.iter().any(|t| matches!(t, Some(SetTime::At(_)))) {
            return Err(FsError::Perm);
        }
        if !is_owner && times.contains(&Some(SetTime::Now)) {
            inode.check(caller, WRITE)?;
        }
        Ok(())
    }

    fn set_owner(&mut self, ino: Ino, set: &SetAttrs) -> FsResult<()> {
        if set.uid.is_none() && set.gid.is_none() {
            return Ok(());
        }
        let (old, charged) = {
            let inode = self.get(ino)?;
            (inode.uid, inode.charged())
        };
        let new = set.uid.unwrap_or(old);
        if new != old {
            self.space.refund(old, charged);
            if let Err(why) = self.space.charge(new, charged) {
                self.space.charge_anyway(old, charged);
                return Err(why);
            }
        }
        let inode = self.get_mut(ino)?;
        inode.uid = new;
        inode.gid = set.gid.unwrap_or(inode.gid);
        if inode.kind() != FileKind::Directory {
            inode.mode = without_set_ids(inode.mode);
        }
        Ok(())
    }

    /// Empties a file; permission was checked.
    pub(super) fn empty(&mut self, caller: &Caller, ino: Ino) -> FsResult<()> {
        self.cut(caller, ino, 0)?;
        let now = (self.now)();
        let inode = self.get_mut(ino)?;
        inode.touch(now, true);
        inode.is_dirty = true;
        Ok(())
    }

    fn cut(&mut self, caller: &Caller, ino: Ino, size: u64) -> FsResult<()> {
        let inode = self.inodes.get_mut(&ino).ok_or(FsError::Stale)?;
        let freed = inode.blocks_mut()?.set_size(size);
        self.space.refund(inode.uid, freed);
        inode.drop_privileges(caller);
        Ok(())
    }

    pub(super) fn read(&mut self, ino: Ino, offset: u64, into: &mut [u8]) -> FsResult<Read> {
        let now = (self.now)();
        let is_read_only = self.is_read_only;
        let inode = self.get_mut(ino)?;
        let blocks = inode.blocks()?;
        let bytes = blocks.read(offset, into);
        let is_eof = offset.saturating_add(bytes as u64) >= blocks.size();
        // As with relatime: the first read after a change is enough.
        if bytes > 0 && inode.atime <= inode.mtime && !is_read_only {
            inode.atime = now;
        }
        Ok(Read { bytes, is_eof })
    }

    pub(super) fn write(&mut self, caller: &Caller, ino: Ino, at: WriteAt, data: &[u8]) -> FsResult<Written> {
        let before = if at.want_change { Some(self.pre(ino)?) } else { None };
        self.check_writable()?;
        let now = (self.now)();
        let inode = self.inodes.get_mut(&ino).ok_or(FsError::Stale)?;
        let uid = inode.uid;
        let blocks = inode.blocks_mut()?;
        let room = MEM_FILE_BYTES_MAX.saturating_sub(at.offset);
        if room == 0 && !data.is_empty() {
            return Err(FsError::TooBig);
        }
        let asked = room.min(data.len() as u64);
        let (budget, why) = self.space.budget(uid);
        let fits = blocks.fitting(at.offset, asked, budget);
        if fits == 0 && asked > 0 {
            return Err(why);
        }
        self.space.charge(uid, blocks.missing(at.offset, fits))?;
        blocks.write(at.offset, &data[..fits as usize]);
        if fits > 0 {
            inode.touch(now, true);
            inode.drop_privileges(caller);
            inode.is_data_dirty = true;
        }
        let change = before.map(|before| self.change(ino, before)).transpose()?;
        Ok(Written { bytes: fits as usize, change })
    }

    pub(super) fn region(
        &mut self,
        caller: &Caller,
        ino: Ino,
        offset: u64,
        bytes: u64,
        what: Region,
    ) -> FsResult<()> {
        self.check_writable()?;
        let now = (self.now)();
        let inode = self.inodes.get_mut(&ino).ok_or(FsError::Stale)?;
        let uid = inode.uid;
        let blocks = inode.blocks_mut()?;
        if bytes == 0 {
            return Err(FsError::Invalid);
        }
        let end = offset.checked_add(bytes).filter(|&end| end <= MEM_FILE_BYTES_MAX);
        match what {
            Region::Allocate | Region::AllocateKeepSize | Region::Zero => {
                let end = end.ok_or(FsError::TooBig)?;
                self.space.charge(uid, blocks.missing(offset, bytes))?;
                if what == Region::Zero {
                    blocks.zero(offset, bytes);
                } else {
                    blocks.reserve(offset, bytes);
                }
                if what == Region::Allocate {
                    blocks.extend_to(end);
                }
            }
            Region::Punch => {
                let freed = blocks.punch(offset, bytes);
                self.space.refund(uid, freed);
            }
        }
        inode.touch(now, true);
        inode.drop_privileges(caller);
        inode.is_data_dirty = true;
        Ok(())
    }

    /// Copies block by block, holes as holes; both permissions were checked.
    pub(super) fn copy(&mut self, caller: &Caller, from: Ino, to: Ino, span: CopySpan) -> FsResult<u64> {
        self.check_writable()?;
        let source_size = self.get(from)?.blocks()?.size();
        self.get(to)?.blocks()?;
        let there = source_size.saturating_sub(span.from);
        let asked = if span.bytes == 0 { there } else { span.bytes.min(there) };
        let asked = asked.min(MEM_COPY_BYTES_MAX);
        if asked == 0 {
            return Ok(0);
        }
        if from == to
            && span.from < span.to.saturating_add(asked)
            && span.to < span.from.saturating_add(asked)
        {
            return Err(FsError::Invalid);
        }
        if span.to.checked_add(asked).is_none_or(|end| end > MEM_FILE_BYTES_MAX) {
            return Err(FsError::TooBig);
        }
        let mut done = 0;
        while done < asked {
            let at = span.from + done;
            let bytes = (BLOCK - at % BLOCK).min(asked - done);
            match self.copy_piece(from, at, to, span.to + done, bytes) {
                Err(why) if done == 0 => return Err(why),
                Err(_) => break,
                Ok(()) => done += bytes,
            }
        }
        let now = (self.now)();
        let inode = self.get_mut(to)?;
        inode.touch(now, true);
        inode.drop_privileges(caller);
        inode.is_data_dirty = true;
        Ok(done)
    }

    fn copy_piece(&mut self, from: Ino, at: u64, to: Ino, target_at: u64, bytes: u64) -> FsResult<()> {
        let source = self.get(from)?.blocks()?;
        let is_hole = source.is_hole(at / BLOCK);
        let mut buffer = [0; BLOCK as usize];
        let piece = &mut buffer[..bytes as usize];
        source.read(at, piece);
        let target = self.inodes.get_mut(&to).ok_or(FsError::Stale)?;
        let uid = target.uid;
        let blocks = target.blocks_mut()?;
        if is_hole {
            self.space.refund(uid, blocks.punch(target_at, bytes));
            blocks.extend_to(target_at + bytes);
        } else {
            self.space.charge(uid, blocks.missing(target_at, bytes))?;
            blocks.write(target_at, piece);
        }
        Ok(())
    }

    /// A copy that is aligned and whole, or none.
    pub(super) fn clone_range(
        &mut self,
        caller: &Caller,
        from: Ino,
        to: Ino,
        span: CopySpan,
    ) -> FsResult<()> {
        let source_size = self.get(from)?.blocks()?.size();
        let target = self.get(to)?;
        let (target_uid, target_size) = (target.uid, target.blocks()?.size());
        let end = match span.bytes {
            0 => Some(source_size),
            n => span.from.checked_add(n),
        };
        let end = end.filter(|&end| end <= source_size && span.from <= end).ok_or(FsError::Invalid)?;
        let bytes = end - span.from;
        let target_end = span.to.checked_add(bytes).ok_or(FsError::Invalid)?;
        let ends_well = end.is_multiple_of(BLOCK) || (end == source_size && target_end >= target_size);
        if !span.from.is_multiple_of(BLOCK) || !span.to.is_multiple_of(BLOCK) || !ends_well {
            return Err(FsError::Invalid);
        }
        if from == to && span.from < target_end && span.to < end {
            return Err(FsError::Invalid);
        }
        let (budget, why) = self.space.budget(target_uid);
        if self.get(to)?.blocks()?.missing(span.to, bytes) > budget {
            return Err(why);
        }
        let mut done = 0;
        while done < bytes {
            let left = CopySpan { from: span.from + done, to: span.to + done, bytes: bytes - done };
            done += self.copy(caller, from, to, left)?;
        }
        Ok(())
    }

    pub(super) fn check_xattr(&self, caller: &Caller, ino: Ino, name: &[u8], want: u32) -> FsResult<()> {
        let inode = self.get(ino)?;
        if name.len() > XATTR_NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        match name.split(|&b| b == b'.').next() {
            Some(b"user") if name.len() > 5 => match inode.kind() {
                FileKind::Regular | FileKind::Directory => inode.check(caller, want),
                _ if want == READ => Err(FsError::NoXattr),
                _ => Err(FsError::Perm),
            },
            Some(b"trusted") if caller.uid != 0 && want == READ => Err(FsError::NoXattr),
            Some(b"trusted" | b"security") if caller.uid != 0 && want == WRITE => Err(FsError::Perm),
            Some(b"trusted" | b"security") => Ok(()),
            _ => Err(FsError::NotSupported),
        }
    }

    pub(super) fn setxattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<Change> {
        self.check_writable()?;
        let before = self.pre(ino)?;
        let inode = self.inodes.get_mut(&ino).ok_or(FsError::Stale)?;
        match (mode, inode.xattrs.contains_key(name)) {
            (XattrMode::Create, true) => return Err(FsError::Exists),
            (XattrMode::Replace, false) => return Err(FsError::NoXattr),
            _ => {}
        }
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(FsError::XattrTooBig);
        }
        // The list carries each name with a NUL.
        let listed: usize = inode.xattrs.keys().filter(|n| *n != name).map(|n| n.len() + 1).sum();
        if listed + name.len() + 1 > XATTR_LIST_BYTES_MAX {
            return Err(FsError::NoSpace);
        }
        let old_blocks = xattr_blocks(&inode.xattrs);
        let old = inode.xattrs.insert(name.to_vec(), value.to_vec());
        let new_blocks = xattr_blocks(&inode.xattrs);
        if new_blocks > old_blocks
            && let Err(why) = self.space.charge(inode.uid, new_blocks - old_blocks)
        {
            match old {
                Some(old) => inode.xattrs.insert(name.to_vec(), old),
                None => inode.xattrs.remove(name),
            };
            return Err(why);
        }
        self.space.refund(inode.uid, old_blocks.saturating_sub(new_blocks));
        self.xattr_changed(ino)?;
        self.change(ino, before)
    }

    pub(super) fn removexattr(&mut self, ino: Ino, name: &[u8]) -> FsResult<Change> {
        self.check_writable()?;
        let before = self.pre(ino)?;
        let inode = self.inodes.get_mut(&ino).ok_or(FsError::Stale)?;
        let old_blocks = xattr_blocks(&inode.xattrs);
        inode.xattrs.remove(name).ok_or(FsError::NoXattr)?;
        self.space.refund(inode.uid, old_blocks - xattr_blocks(&inode.xattrs));
        self.xattr_changed(ino)?;
        self.change(ino, before)
    }

    fn xattr_changed(&mut self, ino: Ino) -> FsResult<()> {
        let now = (self.now)();
        let inode = self.get_mut(ino)?;
        inode.touch(now, false);
        inode.is_dirty = true;
        Ok(())
    }
}
