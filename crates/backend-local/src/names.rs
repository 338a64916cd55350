//! Names: finding, making, linking, renaming and removing them, always one component below a descriptor, never
//! through a symbolic link.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use holdfast_vfs::{
    AttrMask, Attrs, Change, Cx, Device, FileKind, FsError, FsResult, Handle, Name, NewNode, Node,
    RemoveKind, RenameFlags, SetAttrs,
};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, openat, openat2};
use rustix::io::Errno;

use crate::errors::fs_error;
use crate::filesystem::HandleKind;
use crate::handles;
use crate::local::{Keep, LocalBackend};
use crate::looks;
use crate::marks::Changing;
use crate::object::Object;
use crate::procfd::FdName;
use crate::sys;

const FIND: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What a mutation's reply tells about the new object.
pub(crate) const ALL_OF_NODE: AttrMask = AttrMask::ALL;

impl LocalBackend {
    pub(crate) fn do_lookup(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        want: AttrMask,
    ) -> FsResult<Node> {
        let dir = self.resolve(cx.wait, dir)?;
        dir.must_be_dir()?;
        let (object, st) = match self.child_or_bound(cx, &dir, name.as_bytes()) {
            Err(FsError::NotFound) if dir.look()?.stx_nlink == 0 => return Err(FsError::Stale),
            other => other?,
        };
        Ok(Node { handle: object.handle, attrs: self.attrs_of(&object, &st, want) })
    }

    /// The object of a name, judged by the caller's right to search, and a look at it.
    pub(crate) fn child(
        &self,
        cx: &Cx<'_>,
        dir: &Object,
        name: &[u8],
        keep: Keep,
    ) -> FsResult<(Arc<Object>, Statx)> {
        let acting = self.identity.act_as(cx.caller)?;
        let may_block = cx.wait.may_last() || dir.fs.nature.kind.is_in_memory();
        // A walk by name costs four times what a descriptor does: where numbers tell the object, one is enough.
        if may_block && dir.fs.handles == HandleKind::Kernel && !dir.fs.nature.kind.numbers_are_unique() {
            match handles::with_c_name(name, |name| sys::name_to_handle(dir.fd(), name))? {
                // A mount point has its own mount's number; what is mounted there, the descriptor tells.
                Ok(kernel) if kernel.mount_id as u64 == dir.mount_id => {
                    if let Some(object) = self.cache.find(&handles::of_kernel(&dir.fs, &kernel)?) {
                        let st = object.look()?;
                        return Ok((object, st));
                    }
                }
                Ok(_) | Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => {}
                Err(e) => return Err(fs_error(e)),
            }
        }
        let fd = self.sparing(|| open_name(dir, name, may_block))?;
        let found = self.take_in(dir, name, fd, keep);
        drop(acting);
        found
    }

    pub(crate) fn do_parent(&self, cx: &Cx<'_>, dir: &Handle, want: AttrMask) -> FsResult<Node> {
        let dir = self.resolve(cx.wait, dir)?;
        dir.must_be_dir()?;
        if dir.handle == self.root.handle {
            return Err(FsError::NotFound);
        }
        let acting = self.identity.act_as(cx.caller)?;
        let fd = self.sparing(|| openat(dir.fd(), "..", FIND, Mode::empty()).map_err(fs_error))?;
        drop(acting);
        let object = self.take_in_parent(&dir, fd)?;
        Ok(Node { handle: object.handle, attrs: self.look_at(&object, want)? })
    }

    pub(crate) fn do_readlink(&self, cx: &Cx<'_>, link: &Handle) -> FsResult<Vec<u8>> {
        let link = self.resolve(cx.wait, link)?;
        if link.kind != FileKind::Symlink {
            return Err(FsError::WrongKind);
        }
        if !cx.wait.may_last() && link.look()?.stx_blocks > 0 {
            // A long text has a block of its own, of which nobody tells whether it is in memory.
            self.may_wait(cx, &link)?;
        }
        let text = rustix::fs::readlinkat(link.fd(), "", Vec::with_capacity(256)).map_err(fs_error)?;
        looks::was_read(&link);
        Ok(text.into_bytes())
    }

    pub(crate) fn do_make(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        what: NewNode<'_>,
        set: &SetAttrs,
    ) -> FsResult<(Node, Change)> {
        let dir = self.resolve(cx.wait, dir)?;
        dir.must_be_dir()?;
        self.may_wait(cx, &dir)?;
        Self::begin_unnamed();
        let before = self.before(&dir)?;
        let acting = self.identity.act_as(cx.caller)?;
        let name = name.as_bytes();
        let mode = self.creation_mode(&dir, set, if what == NewNode::Directory { 0o700 } else { 0o600 })?;
        make_at(&dir, name, what, mode)?;
        let made = open_name(&dir, name, true)
            .and_then(|fd| self.take_in(&dir, name, fd, Keep::Always))
            .and_then(|(object, st)| self.finish_new(cx, &object, st, set).map(|st| (object, st)));
        let (object, st) = match made {
            Ok(made) => made,
            Err(e) => {
                let _acting = self.identity.act_as(cx.caller)?;
                let flags = if what == NewNode::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
                // The first error tells more than one of cleaning up.
                let _ = rustix::fs::unlinkat(dir.fd(), name, flags);
                return Err(e);
            }
        };
        drop(acting);
        self.note_as(&object, &st);
        let attrs = self.attrs_of(&object, &st, ALL_OF_NODE);
        Ok((Node { handle: object.handle, attrs }, self.after(before)?))
    }

    /// The mode to make an object with. The process's umask is 0; the caller's holds unless the directory has a
    /// default ACL, which then rules (RFC 8275 section 5).
    pub(crate) fn creation_mode(&self, dir: &Object, set: &SetAttrs, default: u32) -> FsResult<Mode> {
        let mode = set.mode.unwrap_or(default) & 0o7777;
        let mode = match set.umask {
            Some(umask) if !self.has_default_acl(dir)? => mode & !umask,
            _ => mode,
        };
        Ok(Mode::from_raw_mode(mode))
    }

    /// Gives a new object what its making could not: owner, set-id bits and times. `st` is the look at what was
    /// made; a later one is given back when something had to be done.
    pub(crate) fn finish_new(
        &self,
        cx: &Cx<'_>,
        object: &Object,
        st: Statx,
        set: &SetAttrs,
    ) -> FsResult<Statx> {
        match left_to_set(set, object.kind, || Ok(u32::from(st.stx_mode)))? {
            Some(rest) => self.apply(cx, (object.fd(), object.kind), &rest)?,
            None => return Ok(st),
        }
        object.look()
    }

    pub(crate) fn do_link(
        &self,
        cx: &Cx<'_>,
        object: &Handle,
        dir: &Handle,
        name: Name<'_>,
    ) -> FsResult<(Change, Attrs)> {
        let object = self.resolve(cx.wait, object)?;
        let dir = self.resolve(cx.wait, dir)?;
        dir.must_be_dir()?;
        if object.kind == FileKind::Directory {
            return Err(FsError::IsDir);
        }
        self.may_wait(cx, &dir)?;
        Self::begin_unnamed();
        let _changing = Changing::of(&object);
        let before = self.before(&dir)?;
        {
            let _acting = self.identity.act_as(cx.caller)?;
            let source = FdName::new(object.fd());
            let flags = AtFlags::SYMLINK_FOLLOW;
            match rustix::fs::linkat(self.proc_fd.dir(), source.as_bytes(), dir.fd(), name.as_bytes(), flags)
            {
                // The object lost its last name meanwhile.
                Err(Errno::NOENT) if object.look()?.stx_nlink == 0 => return Err(FsError::Stale),
                other => other.map_err(fs_error)?,
            }
        }
        // The newest name is the likeliest to stay: programs link a temporary file and remove its first name.
        self.table.moved(&dir, name.as_bytes())?;
        self.note_change(&object);
        let attrs = self.look_at(&object, ALL_OF_NODE)?;
        Ok((self.after(before)?, attrs))
    }

    pub(crate) fn do_rename(
        &self,
        cx: &Cx<'_>,
        from: (&Handle, Name<'_>),
        to: (&Handle, Name<'_>),
        flags: RenameFlags,
    ) -> FsResult<(Change, Change)> {
        let from_dir = self.resolve(cx.wait, from.0)?;
        let to_dir = self.resolve(cx.wait, to.0)?;
        from_dir.must_be_dir()?;
        to_dir.must_be_dir()?;
        self.may_wait(cx, &from_dir)?;
        let (old, new) = (from.1.as_bytes(), to.1.as_bytes());
        let (before_from, before_to) = if from_dir.handle == to_dir.handle {
            (self.before(&from_dir)?, None)
        } else {
            let (from, to) = self.before_both(&from_dir, &to_dir)?;
            (from, Some(to))
        };
        {
            let _acting = self.identity.act_as(cx.caller)?;
            let replaced = (flags == RenameFlags::Replace).then(|| self.held_child(&to_dir, new)).flatten();
            let how = match flags {
                RenameFlags::Replace => rustix::fs::RenameFlags::empty(),
                RenameFlags::NoReplace => rustix::fs::RenameFlags::NOREPLACE,
                RenameFlags::Exchange => rustix::fs::RenameFlags::EXCHANGE,
            };
            rustix::fs::renameat_with(from_dir.fd(), old, to_dir.fd(), new, how).map_err(|e| match e {
                // POSIX allows it for a directory that has entries; XFS says it.
                Errno::EXIST if flags == RenameFlags::Replace => FsError::NotEmpty,
                e => fs_error(e),
            })?;
            self.let_go(replaced);
            self.note_named(&to_dir, new);
            if flags == RenameFlags::Exchange {
                self.note_named(&from_dir, old);
            }
            self.table.renamed((&from_dir, old), (&to_dir, new), flags)?;
        }
        let from_change = self.after(before_from)?;
        let to_change = before_to.map_or(Ok(from_change), |before| self.after(before))?;
        Ok((from_change, to_change))
    }

    pub(crate) fn do_remove(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        kind: RemoveKind,
    ) -> FsResult<Change> {
        let dir = self.resolve(cx.wait, dir)?;
        dir.must_be_dir()?;
        self.may_wait(cx, &dir)?;
        let before = self.before(&dir)?;
        {
            let _acting = self.identity.act_as(cx.caller)?;
            let victim = self.held_child(&dir, name.as_bytes());
            unlink(&dir, name.as_bytes(), kind)?;
            self.let_go(victim);
        }
        self.after(before)
    }

    /// The object of a name when we hold a descriptor of it.
    pub(crate) fn cached_child(&self, dir: &Object, name: &[u8]) -> Option<Arc<Object>> {
        match dir.fs.handles {
            HandleKind::Kernel => {
                let kernel =
                    handles::with_c_name(name, |name| sys::name_to_handle(dir.fd(), name)).ok()?.ok()?;
                self.cache.find(&handles::of_kernel(&dir.fs, &kernel).ok()?)
            }
            HandleKind::Table => self.cache.find(&self.table.find_name(dir, name)?),
        }
    }

    /// After an object lost a name: when that was the last one, our idle descriptor must not keep its space. Says whether
    /// it was; `None` where that is not known.
    pub(crate) fn let_go(&self, object: Option<Arc<Object>>) -> Option<bool> {
        let object = object?;
        let is_gone = object.look().ok()?.stx_nlink == 0;
        if is_gone {
            self.table.removed(&object);
            self.watch.removed(&object.handle);
            self.forget(&object);
        } else {
            self.note_change(&object);
        }
        Some(is_gone)
    }
}

/// What of this the making of an object has not set: owner, set-id bits and times. `made` gives the mode that it got.
pub(crate) fn left_to_set(
    set: &SetAttrs,
    kind: FileKind,
    made: impl FnOnce() -> FsResult<u32>,
) -> FsResult<Option<SetAttrs>> {
    let wanted = set.mode.filter(|_| kind != FileKind::Symlink).unwrap_or(0) & 0o6000;
    // A chown clears the set-id bits, and mkdir does not take them.
    let mode = if wanted == 0 {
        None
    } else {
        let made = made()? & 0o7777;
        let mode = made | wanted;
        (set.uid.is_some() || set.gid.is_some() || made != mode).then_some(mode)
    };
    let rest = SetAttrs { mode, umask: None, size: None, ..*set };
    let is_nothing =
        (rest.uid, rest.gid, rest.mode, rest.atime, rest.mtime) == (None, None, None, None, None);
    Ok((!is_nothing).then_some(rest))
}

fn open_name(dir: &Object, name: &[u8], may_block: bool) -> FsResult<OwnedFd> {
    if may_block {
        return openat(dir.fd(), name, FIND, Mode::empty()).map_err(fs_error);
    }
    // Answers EAGAIN for what is not in the kernel's cache of names.
    match openat2(dir.fd(), name, FIND, Mode::empty(), ResolveFlags::CACHED) {
        Err(Errno::AGAIN) => Err(FsError::WouldBlock),
        other => other.map_err(fs_error),
    }
}

/// Removes a name. The thread acts as the caller.
pub(crate) fn unlink(dir: &Object, name: &[u8], kind: RemoveKind) -> FsResult<()> {
    let unlink = |flags| rustix::fs::unlinkat(dir.fd(), name, flags);
    let done = match kind {
        RemoveKind::NonDirectory => unlink(AtFlags::empty()),
        RemoveKind::Directory => unlink(AtFlags::REMOVEDIR),
        RemoveKind::Any => match unlink(AtFlags::empty()) {
            Err(Errno::ISDIR) => unlink(AtFlags::REMOVEDIR),
            other => other,
        },
    };
    done.map_err(|e| match e {
        // POSIX allows it for a directory that has entries.
        Errno::EXIST => FsError::NotEmpty,
        e => fs_error(e),
    })
}

fn make_at(dir: &Object, name: &[u8], what: NewNode<'_>, mode: Mode) -> FsResult<()> {
    let device = |d: Device| rustix::fs::makedev(d.major, d.minor);
    let node = |kind, dev| rustix::fs::mknodat(dir.fd(), name, kind, mode, dev);
    match what {
        NewNode::Directory => rustix::fs::mkdirat(dir.fd(), name, mode),
        NewNode::Symlink(text) => {
            if text.is_empty() || text.contains(&0) {
                return Err(FsError::Invalid);
            }
            rustix::fs::symlinkat(text, dir.fd(), name)
        }
        NewNode::Fifo => node(FileType::Fifo, 0),
        NewNode::Socket => node(FileType::Socket, 0),
        NewNode::Char(d) => node(FileType::CharacterDevice, device(d)),
        NewNode::Block(d) => node(FileType::BlockDevice, device(d)),
    }
    .map_err(fs_error)
}
