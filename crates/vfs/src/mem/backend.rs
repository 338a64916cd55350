//! The [`Backend`] of the in-memory file system: finds the objects, asks for permission where it is due, and
//! hands on to the state.

use std::fs::OpenOptions;
use std::hash::{Hash as _, Hasher as _};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, Weak};

use holdfast_base::{ByteRange, Cookie};

use super::inode::{Body, Ino, READ, WRITE};
use super::names::End;
use super::state::{Lock, ROOT, State};
use super::{MemBackend, MemFile};
use crate::attrs::{AccessMask, AttrMask, Attrs, Change, FileKind, FsLimits, FsUsage, Rights, SetAttrs};
use crate::backend::Backend;
use crate::caller::{Cx, Wait};
use crate::data::{FileSpan, Touched, WriteAt};
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::listing::{DirEntry, DirListing, Flow, ListEnd};
use crate::making::{CreateHow, NewNode};
use crate::name::Name;
use crate::open::{
    Advice, Advised, CopySpan, Created, CtimeGuard, File, FileObject, LockKind, LockedBy, Node, OpenMode,
    Read, Region, RemoveKind, RenameFlags, Seek, Spare, Written, XattrMode,
};
use crate::pledge::{HeldPledge, LocalListener, Pledge};

fn mem_file(file: &Arc<dyn FileObject>) -> FsResult<&MemFile> {
    // `&**` so that the object is asked, not the `Arc` around it.
    (**file).as_any().downcast_ref::<MemFile>().ok_or(FsError::Invalid)
}

/// The object of a file, when the caller may do `want` to its data.
fn file_ino(state: &State, cx: &Cx<'_>, file: File<'_>, want: u32) -> FsResult<Ino> {
    match file {
        File::Open(handle, open) => {
            let open = mem_file(open)?;
            let is_granted = if want == READ { open.can_read } else { open.can_write };
            if !is_granted {
                return Err(FsError::Access);
            }
            if state.handle(open.ino) == *handle { Ok(open.ino) } else { Err(FsError::Invalid) }
        }
        File::Stateless(handle) => {
            let ino = state.ino(handle)?;
            let inode = state.get(ino)?;
            inode.blocks()?;
            inode.check_nfs(cx.caller, want)?;
            Ok(ino)
        }
    }
}

/// An entry on its way out of the lock.
struct Listed {
    name: Box<[u8]>,
    next: Cookie,
    fileid: Ino,
    node: Option<FsResult<Node>>,
}

/// Entries taken out under one lock.
const BATCH: usize = 64;

fn list(state: &State, cx: &Cx<'_>, ino: Ino, from: Cookie, want: Option<AttrMask>) -> FsResult<Vec<Listed>> {
    let inode = state.get(ino)?;
    let dir = inode.dir()?;
    inode.check(cx.caller, READ)?;
    let entries = dir.after(from.0).take(BATCH);
    Ok(entries
        .map(|(cookie, name, fileid)| Listed {
            name: name.into(),
            next: Cookie(cookie),
            fileid,
            node: want.map(|_| MemBackend::node(state, fileid)),
        })
        .collect())
}

impl MemBackend {
    fn enter(&self, cx: &Cx<'_>) -> FsResult<MutexGuard<'_, State>> {
        let mut state = self.state();
        if cx.wait == Wait::No && state.hooks.block_every > 0 {
            state.hooks.inline_calls += 1;
            if state.hooks.inline_calls.is_multiple_of(state.hooks.block_every) {
                return Err(FsError::WouldBlock);
            }
        }
        state.take_picture();
        let left = state.hooks.panics_in;
        state.hooks.panics_in = left.saturating_sub(1);
        assert!(left != 1, "a test asked for this panic");
        match state.hooks.call_failures.pop_front() {
            Some(why) => Err(why),
            None => Ok(state),
        }
    }

    fn node(state: &State, ino: Ino) -> FsResult<Node> {
        Ok(Node { handle: state.handle(ino), attrs: state.attrs(ino)? })
    }
}

impl Backend for MemBackend {
    fn root(&self) -> FsResult<Handle> {
        Ok(self.state().handle(ROOT))
    }

    fn getattr(&self, cx: &Cx<'_>, object: &Handle, _: AttrMask) -> FsResult<Attrs> {
        let state = self.enter(cx)?;
        state.attrs(state.ino(object)?)
    }

    fn setattr(&self, cx: &Cx<'_>, file: File<'_>, set: &SetAttrs, guard: CtimeGuard) -> FsResult<Change> {
        let mut state = self.enter(cx)?;
        let (ino, size_is_granted) = match file {
            File::Stateless(handle) => (state.ino(handle)?, false),
            File::Open(..) if set.size.is_some() => (file_ino(&state, cx, file, WRITE)?, true),
            File::Open(handle, _) => (state.ino(handle)?, true),
        };
        state.setattr(cx.caller, ino, set, guard, size_is_granted)
    }

    fn lookup(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, _: AttrMask) -> FsResult<Node> {
        let state = self.enter(cx)?;
        let ino = state.lookup(cx.caller, state.ino(dir)?, name)?;
        Self::node(&state, ino)
    }

    fn parent(&self, cx: &Cx<'_>, dir: &Handle, _: AttrMask) -> FsResult<Node> {
        let state = self.enter(cx)?;
        let ino = state.parent(cx.caller, state.ino(dir)?)?;
        Self::node(&state, ino)
    }

    fn access(&self, cx: &Cx<'_>, object: &Handle, asked: AccessMask) -> FsResult<Rights> {
        let state = self.enter(cx)?;
        let inode = state.get(state.ino(object)?)?;
        let meaningful = AccessMask::meaningful_for(inode.kind()) & asked;
        Ok(Rights { meaningful, granted: inode.rights(cx.caller) & meaningful })
    }

    fn readlink(&self, cx: &Cx<'_>, link: &Handle) -> FsResult<Vec<u8>> {
        let state = self.enter(cx)?;
        match &state.get(state.ino(link)?)?.body {
            Body::Symlink(text) => Ok(text.to_vec()),
            _ => Err(FsError::WrongKind),
        }
    }

    fn readdir(
        &self,
        cx: &Cx<'_>,
        listing: DirListing<'_>,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        let mut state = self.enter(cx)?;
        let ino = state.ino(listing.dir)?;
        let mut from = listing.from;
        // 1 and 2 belong to `.` and `..`, which are never given out here.
        if matches!(from.0, 1 | 2) || i64::try_from(from.0).is_err() {
            return Err(FsError::BadCookie);
        }
        loop {
            let batch = list(&state, cx, ino, from, listing.want)?;
            // The taker may call the backend.
            drop(state);
            let Some(last) = batch.last() else { return Ok(ListEnd::Eof) };
            from = last.next;
            for entry in batch {
                let Listed { name, next, fileid, node } = entry;
                if take(DirEntry { name: &name, next, fileid, node }) == Flow::Stop {
                    return Ok(ListEnd::Stopped);
                }
            }
            state = self.state();
        }
    }

    fn create(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, how: &CreateHow<'_>) -> FsResult<Created> {
        let mut state = self.enter(cx)?;
        let dir = state.ino(dir)?;
        let made = state.create(cx.caller, dir, name, how)?;
        let node = Self::node(&state, made.ino)?;
        drop(state);
        // Between the two the name may go, and the object with it: then the open finds it stale.
        let file = how.open.map(|mode| self.open_file(made.ino, mode)).transpose()?;
        Ok(Created { node, dir: made.dir, is_new: made.is_new, file })
    }

    fn make(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        what: NewNode<'_>,
        set: &SetAttrs,
    ) -> FsResult<(Node, Change)> {
        let mut state = self.enter(cx)?;
        let dir = state.ino(dir)?;
        let (ino, change) = state.make(cx.caller, dir, name, what, set)?;
        Ok((Self::node(&state, ino)?, change))
    }

    fn make_nameless(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        set: &SetAttrs,
    ) -> FsResult<(Node, Arc<dyn FileObject>)> {
        let mut state = self.enter(cx)?;
        let dir = state.ino(dir)?;
        let ino = state.make_nameless(cx.caller, dir, set)?;
        let node = Self::node(&state, ino)?;
        drop(state);
        Ok((node, self.open_file(ino, OpenMode { read: true, write: true, nfs_exceptions: false })?))
    }

    fn make_spare(&self, cx: &Cx<'_>, dir: &Handle) -> FsResult<Spare> {
        let set = SetAttrs { mode: Some(0o777), ..SetAttrs::default() };
        let (Node { handle, attrs }, file) = self.make_nameless(cx, dir, &set)?;
        Ok(Spare { handle, file, mode: attrs.mode, fileid: attrs.fileid })
    }

    fn heritage(&self, cx: &Cx<'_>, dir: &Handle) -> FsResult<u64> {
        let state = self.enter(cx)?;
        let dir = state.get(state.ino(dir)?)?;
        dir.dir()?;
        let mut hasher = std::hash::DefaultHasher::new();
        (dir.mode, dir.uid, dir.gid, dir.xattrs.get(crate::DEFAULT_LIST)).hash(&mut hasher);
        Ok(hasher.finish())
    }

    fn place(
        &self,
        cx: &Cx<'_>,
        spare: &Spare,
        dir: &Handle,
        name: Name<'_>,
        set: &SetAttrs,
    ) -> FsResult<Change> {
        let mut state = self.enter(cx)?;
        let (ino, dir) = (state.ino(&spare.handle)?, state.ino(dir)?);
        state.place_spare(cx.caller, (ino, spare.mode), (dir, name), set)
    }

    fn link(&self, cx: &Cx<'_>, object: &Handle, dir: &Handle, name: Name<'_>) -> FsResult<(Change, Attrs)> {
        let mut state = self.enter(cx)?;
        let (ino, dir) = (state.ino(object)?, state.ino(dir)?);
        let change = state.link(cx.caller, ino, dir, name)?;
        Ok((change, state.attrs(ino)?))
    }

    fn rename(
        &self,
        cx: &Cx<'_>,
        from: (&Handle, Name<'_>),
        to: (&Handle, Name<'_>),
        flags: RenameFlags,
    ) -> FsResult<(Change, Change)> {
        let mut state = self.enter(cx)?;
        let from = End { dir: state.ino(from.0)?, name: from.1 };
        let to = End { dir: state.ino(to.0)?, name: to.1 };
        state.rename(cx.caller, from, to, flags)
    }

    fn remove(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, kind: RemoveKind) -> FsResult<Change> {
        let mut state = self.enter(cx)?;
        let dir = state.ino(dir)?;
        state.remove(cx.caller, dir, name, kind)
    }

    fn open(&self, cx: &Cx<'_>, file: &Handle, mode: OpenMode) -> FsResult<Arc<dyn FileObject>> {
        let state = self.enter(cx)?;
        let ino = state.ino(file)?;
        state.check_open(cx.caller, ino, mode)?;
        drop(state);
        self.open_file(ino, mode)
    }

    fn read(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, into: &mut [u8]) -> FsResult<Read> {
        let mut state = self.enter(cx)?;
        let ino = file_ino(&state, cx, file, READ)?;
        state.read(ino, offset, into)
    }

    fn read_span(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        offset: u64,
        bytes: usize,
    ) -> FsResult<Option<FileSpan>> {
        let mut state = self.enter(cx)?;
        let ino = file_ino(&state, cx, file, READ)?;
        if !state.hooks.gives_spans {
            return Ok(None);
        }
        let size = state.get(ino)?.blocks()?.size();
        let mut data = vec![0; size.saturating_sub(offset).min(bytes as u64) as usize];
        let read = state.read(ino, offset, &mut data)?;
        let fd = Arc::new(temporary(&data).map_err(|_| FsError::Io)?);
        Ok(Some(FileSpan { fd, offset: 0, bytes: read.bytes, is_eof: read.is_eof }))
    }

    fn write(&self, cx: &Cx<'_>, file: File<'_>, at: WriteAt, data: &[u8]) -> FsResult<Written> {
        let before = self.state().hooks.before_write.take();
        if let Some(act) = before {
            act();
        }
        let mut state = self.enter(cx)?;
        let ino = file_ino(&state, cx, file, WRITE)?;
        let written = state.write(cx.caller, ino, at, data)?;
        state.lose();
        Ok(written)
    }

    fn commit(&self, touched: &[Touched], results: &mut [FsResult<()>]) {
        let mut state = self.state();
        for (touched, result) in touched.iter().zip(results) {
            *result = state.commit(*touched);
        }
    }

    fn commit_domain(&self, _: &Handle) -> u64 {
        let fsid = self.state().fsid;
        fsid.major.rotate_left(32) ^ fsid.minor
    }

    fn write_verifier(&self) -> [u8; 8] {
        self.state().verifier.to_be_bytes()
    }

    fn seek(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, what: Seek) -> FsResult<u64> {
        let state = self.enter(cx)?;
        let ino = file_ino(&state, cx, file, READ)?;
        state.get(ino)?.blocks()?.seek(offset, what)
    }

    fn advise(&self, cx: &Cx<'_>, file: File<'_>, range: ByteRange, what: Advice) -> FsResult<Advised> {
        let mut state = self.enter(cx)?;
        let ino = file_ino(&state, cx, file, READ).or_else(|_| file_ino(&state, cx, file, WRITE))?;
        let is_dirty = state.get(ino)?.is_data_dirty;
        // There is nothing but memory; a test may want to see what is asked.
        let Some(advised) = &mut state.hooks.advised else { return Ok(Advised::NotFollowed) };
        if is_dirty && what == Advice::DontNeed {
            return Ok(Advised::OnceCommitted);
        }
        advised.push((range, what));
        Ok(Advised::Followed)
    }

    fn region(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, bytes: u64, what: Region) -> FsResult<()> {
        let mut state = self.enter(cx)?;
        let ino = file_ino(&state, cx, file, WRITE)?;
        state.region(cx.caller, ino, offset, bytes, what)
    }

    fn copy(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<u64> {
        let mut state = self.enter(cx)?;
        let from = file_ino(&state, cx, from, READ)?;
        let to = file_ino(&state, cx, to, WRITE)?;
        let copied = state.copy(cx.caller, from, to, span)?;
        state.lose();
        Ok(copied)
    }

    fn clone_range(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<()> {
        let mut state = self.enter(cx)?;
        let from = file_ino(&state, cx, from, READ)?;
        let to = file_ino(&state, cx, to, WRITE)?;
        state.clone_range(cx.caller, from, to, span)
    }

    fn getxattr(&self, cx: &Cx<'_>, object: &Handle, name: &[u8]) -> FsResult<Vec<u8>> {
        let state = self.enter(cx)?;
        let ino = state.ino(object)?;
        state.check_xattr(cx.caller, ino, name, READ)?;
        state.get(ino)?.xattrs.get(name).cloned().ok_or(FsError::NoXattr)
    }

    fn setxattr(
        &self,
        cx: &Cx<'_>,
        object: &Handle,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<Change> {
        let mut state = self.enter(cx)?;
        let ino = state.ino(object)?;
        state.check_xattr(cx.caller, ino, name, WRITE)?;
        state.setxattr(ino, name, value, mode)
    }

    fn listxattr(&self, cx: &Cx<'_>, object: &Handle) -> FsResult<Vec<Vec<u8>>> {
        let state = self.enter(cx)?;
        let inode = state.get(state.ino(object)?)?;
        let is_visible = |name: &&Vec<u8>| cx.caller.uid == 0 || !name.starts_with(b"trusted.");
        Ok(inode.xattrs.keys().filter(is_visible).cloned().collect())
    }

    fn removexattr(&self, cx: &Cx<'_>, object: &Handle, name: &[u8]) -> FsResult<Change> {
        let mut state = self.enter(cx)?;
        let ino = state.ino(object)?;
        state.check_xattr(cx.caller, ino, name, WRITE)?;
        state.removexattr(ino, name)
    }

    fn may_be_on_other_hosts(&self, _: &Handle) -> bool {
        self.state().is_on_other_hosts
    }

    fn lock(&self, file: &Arc<dyn FileObject>, range: ByteRange, kind: LockKind) -> FsResult<()> {
        let file = mem_file(file)?;
        let mut state = self.state();
        if state.conflict(file.ino, Some(file.id), range, kind).is_some() {
            return Err(FsError::Locked);
        }
        state.release(file.ino, file.id, range)?;
        state.push_lock(Lock { ino: file.ino, file: Some(file.id), range, kind })
    }

    fn unlock(&self, file: &Arc<dyn FileObject>, range: ByteRange) -> FsResult<()> {
        let file = mem_file(file)?;
        self.state().release(file.ino, file.id, range)
    }

    fn test_lock(
        &self,
        file: &Arc<dyn FileObject>,
        range: ByteRange,
        kind: LockKind,
    ) -> FsResult<Option<LockedBy>> {
        let file = mem_file(file)?;
        let state = self.state();
        let lock = state.outsider(file.ino, range, kind);
        Ok(lock.map(|lock| LockedBy { range: lock.range, kind: lock.kind }))
    }

    fn await_unlock(&self, file: &Arc<dyn FileObject>, range: ByteRange, kind: LockKind) -> FsResult<()> {
        self.await_unlock_of(mem_file(file)?, range, kind)
    }

    fn pledge(
        &self,
        object: &Handle,
        what: Pledge,
        _: Option<&Arc<dyn FileObject>>,
    ) -> FsResult<Option<HeldPledge>> {
        self.make_pledge(object, what)
    }

    fn leases_are_scarce(&self) -> bool {
        self.state().hooks.leases_are_scarce
    }

    fn listen(&self, listener: Weak<dyn LocalListener>) {
        self.set_listener(listener);
    }

    fn usage(&self, cx: &Cx<'_>, object: &Handle) -> FsResult<FsUsage> {
        let state = self.enter(cx)?;
        state.ino(object)?;
        Ok(state.usage(cx.caller))
    }

    fn limits(&self, object: &Handle) -> FsResult<FsLimits> {
        let state = self.state();
        state.ino(object)?;
        Ok(state.limits())
    }

    fn shed(&self, _: u8) {
        // Nothing here is a cache: what it holds is the file system itself.
    }
}

impl State {
    fn commit(&mut self, touched: Touched) -> FsResult<()> {
        if let Some(why) = self.hooks.commit_failures.pop_front() {
            self.verifier = self.verifier.wrapping_add(1);
            return Err(why);
        }
        self.log_commit(touched);
        // What was removed since has nothing left to lose.
        let Ok(inode) = self.ino(&touched.handle).and_then(|ino| self.get_mut(ino)) else { return Ok(()) };
        let is_regular = inode.kind() == FileKind::Regular;
        inode.is_dirty = false;
        inode.is_data_dirty &= is_regular && !touched.data;
        Ok(())
    }
}

/// A nameless file with this content, for tests of what is sent from descriptors.
fn temporary(data: &[u8]) -> std::io::Result<OwnedFd> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("holdfast-span-{}-{count}", std::process::id()));
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    let written = file.write_all(data);
    std::fs::remove_file(&path)?;
    written.map(|()| file.into())
}
