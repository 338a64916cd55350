//! The disk's file system as a server sees it: everything goes on to the file system in memory, and what changes
//! it is recorded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_base::{ByteRange, Cookie};
use holdfast_vfs::handover::ArrivedFile;
use holdfast_vfs::{
    AccessMask, AttrMask, Attrs, Backend, Change, CopySpan, CreateHow, Created, CtimeGuard, Cx, DirEntry,
    DirListing, File, FileObject, FileSpan, Flow, FsError, FsLimits, FsResult, FsUsage, Handle, ListEnd,
    LockKind, LockedBy, MemBackend, Name, NewNode, Node, OpenMode, Read, Region, RemoveKind, RenameFlags,
    Rights, Seek, SetAttrs, Touched, WriteAt, Written, XattrMode,
};

use super::Disk;
use super::changes::Shown;
use super::log::{Deed, Entry};
use super::opened::SimFile;

/// Bytes by file and offset.
type Pieces = BTreeMap<(Vec<u8>, u64), Vec<u8>>;

/// A server's view of a [`Disk`].
pub struct SimBackend {
    disk: Disk,
    fs: MemBackend,
    /// The server's life, by which its write verifier is told from others'.
    life: u64,
    process: u64,
    shown: Shown,
    /// What was there before the last write, while reads are to be out of date.
    before: Mutex<Pieces>,
}

const fn entries(dir: &Handle) -> Touched {
    Touched { handle: *dir, data: false }
}

const fn data(file: &Handle) -> Touched {
    Touched { handle: *file, data: true }
}

impl SimBackend {
    pub(super) const fn new(disk: Disk, fs: MemBackend, (life, process): (u64, u64), shown: Shown) -> Self {
        Self { disk, fs, life, process, shown, before: Mutex::new(Pieces::new()) }
    }

    fn opened(
        &self,
        open: Arc<dyn FileObject>,
        file: &Handle,
        mode: OpenMode,
    ) -> FsResult<Arc<dyn FileObject>> {
        Ok(SimFile::opened(open, (self.fs.root()?, *file), mode, &self.disk.opened))
    }

    fn did(&self, cx: &Cx<'_>, deed: Deed, needs: Vec<Touched>, made: Option<u64>) {
        self.disk.record(self.process, Entry::new(deed, cx.caller, needs, made));
    }

    /// A file was changed by what tells nothing of it.
    fn changed(&self, cx: &Cx<'_>, file: &Handle) -> FsResult<()> {
        self.shown.note(&self.fs.getattr(cx, file, AttrMask::CHANGE)?);
        Ok(())
    }

    /// A name is to be given to something new. One that is taken needs no room.
    fn makes(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>) -> FsResult<()> {
        match self.fs.lookup(cx, dir, name, AttrMask::NONE) {
            Err(FsError::NotFound) => self.disk.takes_room(),
            _ => Ok(()),
        }?;
        self.disk.changes_names()
    }

    fn is_stale(&self) -> bool {
        self.disk.state().is_stale
    }

    fn before(&self) -> std::sync::MutexGuard<'_, Pieces> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for SimBackend {
    fn leases_are_scarce(&self) -> bool {
        self.disk.leases_are_scarce()
    }

    fn root(&self) -> FsResult<Handle> {
        self.fs.root()
    }

    fn getattr(&self, cx: &Cx<'_>, object: &Handle, want: AttrMask) -> FsResult<Attrs> {
        self.fs.getattr(cx, object, want).map(|attrs| self.shown.attrs(attrs))
    }

    fn setattr(&self, cx: &Cx<'_>, file: File<'_>, set: &SetAttrs, guard: CtimeGuard) -> FsResult<Change> {
        let change = self.fs.setattr(cx, file, set, guard)?;
        self.did(cx, Deed::SetAttr(*file.handle(), *set), vec![entries(file.handle())], None);
        Ok(self.shown.change(change))
    }

    fn lookup(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, want: AttrMask) -> FsResult<Node> {
        self.fs.lookup(cx, dir, name, want).map(|node| self.shown.node(node))
    }

    fn parent(&self, cx: &Cx<'_>, dir: &Handle, want: AttrMask) -> FsResult<Node> {
        self.fs.parent(cx, dir, want).map(|node| self.shown.node(node))
    }

    fn access(&self, cx: &Cx<'_>, object: &Handle, asked: AccessMask) -> FsResult<Rights> {
        self.fs.access(cx, object, asked)
    }

    fn readlink(&self, cx: &Cx<'_>, link: &Handle) -> FsResult<Vec<u8>> {
        self.fs.readlink(cx, link)
    }

    fn readdir(
        &self,
        cx: &Cx<'_>,
        listing: DirListing<'_>,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        self.fs.readdir(cx, listing, &mut |entry| {
            take(DirEntry { node: self.shown.listed(entry.node), ..entry })
        })
    }

    fn create(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, how: &CreateHow<'_>) -> FsResult<Created> {
        self.makes(cx, dir, name)?;
        let mut made = self.fs.create(cx, dir, name, how)?;
        if let (Some(open), Some(mode)) = (made.file.take(), how.open) {
            made.file = Some(self.opened(open, &made.node.handle, mode)?);
        }
        let number = made.is_new.then_some(made.node.attrs.fileid);
        let deed = Deed::Create { dir: *dir, name: name.as_bytes().to_vec(), mode: how.mode, set: *how.set };
        // A name that was there is at most cut, which is the file's affair.
        let needs = if made.is_new { entries(dir) } else { entries(&made.node.handle) };
        self.did(cx, deed, vec![needs], number);
        if made.is_new {
            made.dir = self.shown.change(made.dir);
        }
        if made.is_new || how.set.size.is_some() {
            self.shown.note(&made.node.attrs);
        }
        made.node = self.shown.node(made.node);
        Ok(made)
    }

    fn make(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        what: NewNode<'_>,
        set: &SetAttrs,
    ) -> FsResult<(Node, Change)> {
        self.makes(cx, dir, name)?;
        let (node, change) = self.fs.make(cx, dir, name, what, set)?;
        let deed = Deed::Make { dir: *dir, name: name.as_bytes().to_vec(), what: what.into(), set: *set };
        self.did(cx, deed, vec![entries(dir)], Some(node.attrs.fileid));
        self.shown.note(&node.attrs);
        Ok((self.shown.node(node), self.shown.change(change)))
    }

    fn link(&self, cx: &Cx<'_>, object: &Handle, dir: &Handle, name: Name<'_>) -> FsResult<(Change, Attrs)> {
        self.makes(cx, dir, name)?;
        let (change, attrs) = self.fs.link(cx, object, dir, name)?;
        let deed = Deed::Link { object: *object, dir: *dir, name: name.as_bytes().to_vec() };
        self.did(cx, deed, vec![entries(dir)], None);
        self.shown.note(&attrs);
        Ok((self.shown.change(change), self.shown.attrs(attrs)))
    }

    fn rename(
        &self,
        cx: &Cx<'_>,
        from: (&Handle, Name<'_>),
        to: (&Handle, Name<'_>),
        flags: RenameFlags,
    ) -> FsResult<(Change, Change)> {
        self.disk.changes_names()?;
        let (left, entered) = self.fs.rename(cx, from, to, flags)?;
        let owned = |(dir, name): (&Handle, Name<'_>)| (*dir, name.as_bytes().to_vec());
        let deed = Deed::Rename { from: owned(from), to: owned(to), flags };
        self.did(cx, deed, vec![entries(from.0), entries(to.0)], None);
        if let Ok(moved) = self.fs.lookup(cx, to.0, to.1, AttrMask::CHANGE) {
            self.shown.note(&moved.attrs);
        }
        let left = self.shown.change(left);
        Ok((left, if from.0 == to.0 { left } else { self.shown.change(entered) }))
    }

    fn remove(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, kind: RemoveKind) -> FsResult<Change> {
        self.disk.changes_names()?;
        let change = self.fs.remove(cx, dir, name, kind)?;
        let deed = Deed::Remove { dir: *dir, name: name.as_bytes().to_vec(), kind };
        self.did(cx, deed, vec![entries(dir)], None);
        Ok(self.shown.change(change))
    }

    fn open(&self, cx: &Cx<'_>, file: &Handle, mode: OpenMode) -> FsResult<Arc<dyn FileObject>> {
        self.opened(self.fs.open(cx, file, mode)?, file, mode)
    }

    fn import_file(&self, file: &Handle, arrived: ArrivedFile) -> FsResult<Arc<dyn FileObject>> {
        SimFile::arrived((self.fs.root()?, *file), arrived, &self.disk.opened)
    }

    fn read(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, into: &mut [u8]) -> FsResult<Read> {
        self.disk.reads()?;
        let read = self.fs.read(cx, file, offset, into)?;
        if self.is_stale()
            && let Some(before) = self.before().get(&(file.handle().as_bytes().to_vec(), offset))
        {
            let bytes = before.len().min(read.bytes);
            into[..bytes].copy_from_slice(&before[..bytes]);
        }
        Ok(read)
    }

    fn read_span(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        offset: u64,
        bytes: usize,
    ) -> FsResult<Option<FileSpan>> {
        self.fs.read_span(cx, file, offset, bytes)
    }

    fn write(&self, cx: &Cx<'_>, file: File<'_>, at: WriteAt, bytes: &[u8]) -> FsResult<Written> {
        let failed = self.disk.writes()?;
        if self.is_stale() {
            let mut before = vec![0; bytes.len()];
            // What cannot be read was not there.
            let _ = self.fs.read(cx, file, at.offset, &mut before);
            self.before().insert((file.handle().as_bytes().to_vec(), at.offset), before);
        }
        self.shown.writes(&self.fs.getattr(cx, file.handle(), AttrMask::CHANGE)?);
        let mut written = self.fs.write(cx, file, at, bytes)?;
        match written.change.take() {
            Some(change) => written.change = Some(self.shown.change(change)),
            None => self.changed(cx, file.handle())?,
        }
        let (handle, offset) = (*file.handle(), at.offset);
        let deed = Deed::Write { file: handle, offset, data: bytes[..written.bytes].to_vec() };
        self.did(cx, deed, vec![data(&handle)], None);
        failed.map_or(Ok(written), Err)
    }

    fn commit(&self, touched: &[Touched], results: &mut [FsResult<()>]) {
        for (touched, result) in touched.iter().zip(results) {
            *result = self.disk.commit((self.process, &self.fs), *touched);
        }
    }

    fn commit_domain(&self, object: &Handle) -> u64 {
        self.fs.commit_domain(object)
    }

    fn write_verifier(&self) -> [u8; 8] {
        let inner = u64::from_be_bytes(self.fs.write_verifier());
        (inner ^ self.life.rotate_left(48)).to_be_bytes()
    }

    fn seek(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, what: Seek) -> FsResult<u64> {
        self.fs.seek(cx, file, offset, what)
    }

    fn region(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, bytes: u64, what: Region) -> FsResult<()> {
        self.fs.region(cx, file, offset, bytes, what)?;
        let handle = *file.handle();
        self.did(cx, Deed::Region { file: handle, offset, bytes, what }, vec![data(&handle)], None);
        self.changed(cx, &handle)
    }

    fn copy(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<u64> {
        let bytes = self.fs.copy(cx, from, to, span)?;
        let (source, target) = (*from.handle(), *to.handle());
        let span = CopySpan { bytes, ..span };
        self.did(cx, Deed::Copy { from: source, to: target, span }, vec![data(&target)], None);
        self.changed(cx, &target)?;
        Ok(bytes)
    }

    fn clone_range(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<()> {
        self.fs.clone_range(cx, from, to, span)?;
        let (source, target) = (*from.handle(), *to.handle());
        self.did(cx, Deed::Copy { from: source, to: target, span }, vec![data(&target)], None);
        self.changed(cx, &target)
    }

    fn getxattr(&self, cx: &Cx<'_>, object: &Handle, name: &[u8]) -> FsResult<Vec<u8>> {
        self.fs.getxattr(cx, object, name)
    }

    fn setxattr(
        &self,
        cx: &Cx<'_>,
        object: &Handle,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<Change> {
        let change = self.fs.setxattr(cx, object, name, value, mode)?;
        let deed = Deed::SetXattr { object: *object, name: name.to_vec(), value: value.to_vec() };
        self.did(cx, deed, vec![entries(object)], None);
        Ok(self.shown.change(change))
    }

    fn listxattr(&self, cx: &Cx<'_>, object: &Handle) -> FsResult<Vec<Vec<u8>>> {
        self.fs.listxattr(cx, object)
    }

    fn removexattr(&self, cx: &Cx<'_>, object: &Handle, name: &[u8]) -> FsResult<Change> {
        let change = self.fs.removexattr(cx, object, name)?;
        let deed = Deed::RemoveXattr { object: *object, name: name.to_vec() };
        self.did(cx, deed, vec![entries(object)], None);
        Ok(self.shown.change(change))
    }

    fn lock(&self, file: &Arc<dyn FileObject>, range: ByteRange, kind: LockKind) -> FsResult<()> {
        self.fs.lock(file, range, kind)
    }

    fn unlock(&self, file: &Arc<dyn FileObject>, range: ByteRange) -> FsResult<()> {
        self.fs.unlock(file, range)
    }

    fn test_lock(
        &self,
        file: &Arc<dyn FileObject>,
        range: ByteRange,
        kind: LockKind,
    ) -> FsResult<Option<LockedBy>> {
        self.fs.test_lock(file, range, kind)
    }

    fn usage(&self, cx: &Cx<'_>, object: &Handle) -> FsResult<FsUsage> {
        self.fs.usage(cx, object)
    }

    fn limits(&self, object: &Handle) -> FsResult<FsLimits> {
        // As the local file systems that are served.
        self.fs.limits(object).map(|limits| FsLimits { change_is_version_counter: false, ..limits })
    }

    fn shed(&self, keep_percent: u8) {
        self.fs.shed(keep_percent);
    }

    fn sweep(&self) {
        self.fs.sweep();
    }
}

/// The position of a listing's beginning.
pub(crate) const START: Cookie = Cookie(0);
