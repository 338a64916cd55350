//! What changes or follows names: lookup, create, make, link, rename, remove.

use super::blocks::Blocks;
use super::inode::{Body, Dir, EXEC, Ino, Inode, READ, STICKY, WRITE};
use super::state::{FILE_MODE, ROOT, State};
use crate::attrs::{Change, FileKind, PreAttrs, SetAttrs, SetTime};
use crate::caller::Caller;
use crate::error::{FsError, FsResult};
use crate::making::{CreateHow, NewNode};
use crate::name::Name;
use crate::open::{CreateMode, OpenMode, RemoveKind, RenameFlags};

/// A file found or made by name.
pub(super) struct Made {
    pub(super) ino: Ino,
    pub(super) dir: Change,
    pub(super) is_new: bool,
}

/// One end of a rename.
#[derive(Clone, Copy)]
pub(super) struct End<'a> {
    pub(super) dir: Ino,
    pub(super) name: Name<'a>,
}

impl State {
    pub(super) fn lookup(&self, caller: &Caller, dir: Ino, name: Name<'_>) -> FsResult<Ino> {
        let inode = self.get(dir)?;
        let entries = inode.dir()?;
        inode.check(caller, EXEC)?;
        entries.get(name.as_bytes()).ok_or(FsError::NotFound)
    }

    pub(super) fn parent(&self, caller: &Caller, dir: Ino) -> FsResult<Ino> {
        let inode = self.get(dir)?;
        inode.dir()?;
        inode.check(caller, EXEC)?;
        match inode.body {
            Body::Directory(_, parent) if dir != ROOT && inode.nlink > 0 => Ok(parent),
            _ => Err(FsError::NotFound),
        }
    }

    /// Checks that entries of the directory may change, and tells what the name is now.
    fn entry(&self, caller: &Caller, dir: Ino, name: Name<'_>) -> FsResult<Option<Ino>> {
        let inode = self.get(dir)?;
        let entries = inode.dir()?;
        inode.check(caller, EXEC)?;
        Ok(entries.get(name.as_bytes()))
    }

    fn check_change(&self, caller: &Caller, dir: Ino) -> FsResult<()> {
        let inode = self.get(dir)?;
        inode.check(caller, WRITE | EXEC)?;
        self.check_writable()?;
        // A directory that was removed while in use takes no entries.
        if inode.nlink == 0 { Err(FsError::Stale) } else { Ok(()) }
    }

    pub(super) fn create(
        &mut self,
        caller: &Caller,
        dir: Ino,
        name: Name<'_>,
        how: &CreateHow<'_>,
    ) -> FsResult<Made> {
        let before = self.pre(dir)?;
        if let Some(ino) = self.entry(caller, dir, name)? {
            self.reuse(caller, ino, how)?;
            return Ok(Made { ino, dir: self.change(dir, before)?, is_new: false });
        }
        if how.mode == CreateMode::MustExist {
            return Err(FsError::NotFound);
        }
        self.check_change(caller, dir)?;
        let mut blocks = Blocks::default();
        if let Some(size) = how.set.size {
            check_size(size)?;
            blocks.set_size(size);
        }
        let ino = self.make_inode(caller, dir, Body::Regular(blocks), how.set)?;
        if let CreateMode::Exclusive(verifier) = how.mode {
            self.get_mut(ino)?.exclusive = Some(verifier);
        }
        self.enter_name(dir, name, ino)?;
        Ok(Made { ino, dir: self.change(dir, before)?, is_new: true })
    }

    /// A file as a create makes it, without a name.
    pub(super) fn make_nameless(&mut self, caller: &Caller, dir: Ino, set: &SetAttrs) -> FsResult<Ino> {
        self.get(dir)?.dir()?;
        self.check_change(caller, dir)?;
        let mut blocks = Blocks::default();
        if let Some(size) = set.size {
            check_size(size)?;
            blocks.set_size(size);
        }
        let ino = self.make_inode(caller, dir, Body::Regular(blocks), set)?;
        self.get_mut(ino)?.had_no_name = true;
        Ok(ino)
    }

    /// What a create does with a name that is there.
    fn reuse(&mut self, caller: &Caller, ino: Ino, how: &CreateHow<'_>) -> FsResult<()> {
        let inode = self.get(ino)?;
        match how.mode {
            CreateMode::Guarded => return Err(FsError::Exists),
            CreateMode::Exclusive(verifier) if inode.exclusive == Some(verifier) => return Ok(()),
            CreateMode::Exclusive(_) => return Err(FsError::Exists),
            CreateMode::MustExist | CreateMode::Unchecked => {}
        }
        inode.blocks()?;
        if let Some(mode) = how.open {
            self.check_open(caller, ino, mode)?;
        }
        if how.set.size == Some(0) && how.mode == CreateMode::Unchecked {
            self.check_writable()?;
            let inode = self.get(ino)?;
            match how.open {
                Some(mode) if !mode.nfs_exceptions => inode.check(caller, WRITE)?,
                _ => inode.check_nfs(caller, WRITE)?,
            }
            self.empty(caller, ino)?;
        }
        Ok(())
    }

    pub(super) fn check_open(&self, caller: &Caller, ino: Ino, mode: OpenMode) -> FsResult<()> {
        let inode = self.get(ino)?;
        inode.blocks()?;
        if mode.write {
            self.check_writable()?;
        }
        // Who made what has no name yet made it open, whatever its mode.
        let is_excepted = mode.nfs_exceptions || inode.nlink == 0;
        for (asked, want) in [(mode.read, READ), (mode.write, WRITE)] {
            match (asked, is_excepted) {
                (false, _) => {}
                (true, true) => inode.check_nfs(caller, want)?,
                (true, false) => inode.check(caller, want)?,
            }
        }
        Ok(())
    }

    pub(super) fn make(
        &mut self,
        caller: &Caller,
        dir: Ino,
        name: Name<'_>,
        what: NewNode<'_>,
        set: &SetAttrs,
    ) -> FsResult<(Ino, Change)> {
        let before = self.pre(dir)?;
        if self.entry(caller, dir, name)?.is_some() {
            return Err(FsError::Exists);
        }
        self.check_change(caller, dir)?;
        let body = match what {
            NewNode::Directory => {
                if self.get(dir)?.nlink >= self.links_max {
                    return Err(FsError::TooManyLinks);
                }
                Body::Directory(Dir::default(), dir)
            }
            NewNode::Symlink([]) => return Err(FsError::NotFound),
            NewNode::Symlink(text) if text.len() >= holdfast_base::limits::PATH_BYTES_MAX => {
                return Err(FsError::NameTooLong);
            }
            NewNode::Symlink(text) => Body::Symlink(text.into()),
            NewNode::Fifo => Body::Fifo,
            NewNode::Socket => Body::Socket,
            // CAP_MKNOD, which the superuser alone has.
            NewNode::Char(_) | NewNode::Block(_) if caller.uid != 0 => return Err(FsError::Perm),
            NewNode::Char(device) => Body::Char(device),
            NewNode::Block(device) => Body::Block(device),
        };
        let ino = self.make_inode(caller, dir, body, set)?;
        self.enter_name(dir, name, ino)?;
        Ok((ino, self.change(dir, before)?))
    }

    /// Gives a new object its first name.
    fn enter_name(&mut self, dir: Ino, name: Name<'_>, ino: Ino) -> FsResult<()> {
        let now = (self.now)();
        let is_dir = self.get(ino)?.kind() == FileKind::Directory;
        self.get_mut(ino)?.nlink = if is_dir { 2 } else { 1 };
        let parent = self.get_mut(dir)?;
        parent.dir_mut()?.put(name.as_bytes(), ino);
        parent.nlink += u32::from(is_dir);
        self.touch_dir(dir, now)
    }

    /// A file that was made for this gets a name, and what else a create gives.
    pub(super) fn place_spare(
        &mut self,
        caller: &Caller,
        (ino, made_mode): (Ino, u32),
        (dir, name): (Ino, Name<'_>),
        set: &SetAttrs,
    ) -> FsResult<Change> {
        let asked = set.mode.unwrap_or(FILE_MODE);
        if set.uid.is_some() || set.gid.is_some() || asked & !0o777 != 0 {
            return Err(FsError::NotSupported);
        }
        let now = (self.now)();
        let time = |set: Option<SetTime>| match set {
            Some(SetTime::At(at)) => at,
            Some(SetTime::Now) | None => now,
        };
        let inode = self.get_mut(ino)?;
        if let Some(size) = set.size.filter(|size| *size > inode.blocks().map_or(0, Blocks::size)) {
            check_size(size)?;
            inode.blocks_mut()?.set_size(size);
        }
        inode.mode = asked & made_mode & !set.umask.unwrap_or(0);
        (inode.atime, inode.mtime) = (time(set.atime), time(set.mtime));
        self.link(caller, ino, dir, name)
    }

    pub(super) fn link(&mut self, caller: &Caller, ino: Ino, dir: Ino, name: Name<'_>) -> FsResult<Change> {
        let before = self.pre(dir)?;
        let entry = self.entry(caller, dir, name)?;
        let inode = self.get(ino)?;
        if inode.kind() == FileKind::Directory {
            return Err(FsError::IsDir);
        }
        if entry.is_some() {
            return Err(FsError::Exists);
        }
        if inode.nlink == 0 && !inode.had_no_name {
            return Err(FsError::Stale);
        }
        self.check_change(caller, dir)?;
        if inode.nlink >= self.links_max {
            return Err(FsError::TooManyLinks);
        }
        let now = (self.now)();
        let inode = self.get_mut(ino)?;
        inode.nlink += 1;
        inode.had_no_name = false;
        inode.touch(now, false);
        self.get_mut(dir)?.dir_mut()?.put(name.as_bytes(), ino);
        self.touch_dir(dir, now)?;
        self.change(dir, before)
    }

    pub(super) fn remove(
        &mut self,
        caller: &Caller,
        dir: Ino,
        name: Name<'_>,
        kind: RemoveKind,
    ) -> FsResult<Change> {
        let before = self.pre(dir)?;
        let ino = self.entry(caller, dir, name)?.ok_or(FsError::NotFound)?;
        self.check_change(caller, dir)?;
        self.check_sticky(caller, dir, ino)?;
        let victim = self.get(ino)?;
        match (kind, victim.dir()) {
            (RemoveKind::NonDirectory, Ok(_)) => return Err(FsError::IsDir),
            (RemoveKind::Directory, Err(_)) => return Err(FsError::NotDir),
            (_, Ok(entries)) if !entries.is_empty() => return Err(FsError::NotEmpty),
            _ => {}
        }
        let now = (self.now)();
        self.get_mut(dir)?.dir_mut()?.take(name.as_bytes());
        self.drop_name(dir, ino)?;
        self.touch_dir(dir, now)?;
        self.change(dir, before)
    }

    /// In a sticky directory only the owner of the entry or of the directory may take it away.
    fn check_sticky(&self, caller: &Caller, dir: Ino, victim: Ino) -> FsResult<()> {
        let parent = self.get(dir)?;
        let is_free =
            parent.mode & STICKY == 0 || parent.is_owner(caller) || self.get(victim)?.is_owner(caller);
        if is_free { Ok(()) } else { Err(FsError::Perm) }
    }

    /// After a name was taken out of `dir`: the object loses a link, or its life.
    fn drop_name(&mut self, dir: Ino, ino: Ino) -> FsResult<()> {
        let now = (self.now)();
        let inode = self.get_mut(ino)?;
        inode.touch(now, false);
        if inode.kind() == FileKind::Directory {
            inode.nlink = 0;
            self.get_mut(dir)?.nlink -= 1;
        } else {
            inode.nlink -= 1;
        }
        self.reap(ino);
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        caller: &Caller,
        from: End<'_>,
        to: End<'_>,
        flags: RenameFlags,
    ) -> FsResult<(Change, Change)> {
        let before = (self.pre(from.dir)?, self.pre(to.dir)?);
        self.get(to.dir)?.dir()?;
        let source = self.entry(caller, from.dir, from.name)?.ok_or(FsError::NotFound)?;
        let target = self.entry(caller, to.dir, to.name)?;
        if flags == RenameFlags::NoReplace && target.is_some() {
            return Err(FsError::Exists);
        }
        for dir in [from.dir, to.dir] {
            self.check_change(caller, dir)?;
        }
        if target == Some(source) {
            // Two names of one object: POSIX leaves both.
            return self.both_changes(from.dir, to.dir, before);
        }
        self.check_sticky(caller, from.dir, source)?;
        self.check_move(caller, source, from.dir, to.dir)?;
        match (flags, target) {
            (RenameFlags::Exchange, None) => return Err(FsError::NotFound),
            (RenameFlags::Exchange, Some(target)) => {
                self.check_sticky(caller, to.dir, target)?;
                self.check_move(caller, target, to.dir, from.dir)?;
                self.place(from, target, to.dir)?;
            }
            (_, target) => {
                if let Some(target) = target {
                    self.check_sticky(caller, to.dir, target)?;
                    check_replace(self.get(source)?, self.get(target)?)?;
                    self.get_mut(to.dir)?.dir_mut()?.take(to.name.as_bytes());
                    self.drop_name(to.dir, target)?;
                }
                self.get_mut(from.dir)?.dir_mut()?.take(from.name.as_bytes());
            }
        }
        self.place(to, source, from.dir)?;
        let now = (self.now)();
        self.touch_dir(from.dir, now)?;
        if to.dir != from.dir {
            self.touch_dir(to.dir, now)?;
        }
        self.both_changes(from.dir, to.dir, before)
    }

    fn both_changes(&self, from: Ino, to: Ino, before: (PreAttrs, PreAttrs)) -> FsResult<(Change, Change)> {
        Ok((self.change(from, before.0)?, self.change(to, before.1)?))
    }

    /// Puts an object that was in `old_dir` under its new name.
    fn place(&mut self, at: End<'_>, ino: Ino, old_dir: Ino) -> FsResult<()> {
        let now = (self.now)();
        self.get_mut(at.dir)?.dir_mut()?.put(at.name.as_bytes(), ino);
        let inode = self.get_mut(ino)?;
        inode.touch(now, false);
        if let Body::Directory(_, parent) = &mut inode.body {
            *parent = at.dir;
            self.get_mut(old_dir)?.nlink -= 1;
            self.get_mut(at.dir)?.nlink += 1;
        }
        Ok(())
    }

    /// A directory never goes below itself, and its `..` changes only for who may write it.
    fn check_move(&self, caller: &Caller, ino: Ino, from: Ino, to: Ino) -> FsResult<()> {
        let inode = self.get(ino)?;
        if inode.kind() != FileKind::Directory || from == to {
            return Ok(());
        }
        let mut above = to;
        loop {
            if above == ino {
                return Err(FsError::Invalid);
            }
            match self.get(above)?.body {
                Body::Directory(_, parent) if above != ROOT => above = parent,
                _ => break,
            }
        }
        if self.get(to)?.nlink >= self.links_max {
            return Err(FsError::TooManyLinks);
        }
        inode.check(caller, WRITE)
    }
}

/// Whether one object may take another's name.
fn check_replace(source: &Inode, target: &Inode) -> FsResult<()> {
    match (source.dir(), target.dir()) {
        (Ok(_), Ok(entries)) if !entries.is_empty() => Err(FsError::NotEmpty),
        (Ok(_), Err(_)) => Err(FsError::NotDir),
        (Err(_), Ok(_)) => Err(FsError::IsDir),
        _ => Ok(()),
    }
}

pub(super) const fn check_size(size: u64) -> FsResult<()> {
    if size > holdfast_base::limits::MEM_FILE_BYTES_MAX { Err(FsError::TooBig) } else { Ok(()) }
}
