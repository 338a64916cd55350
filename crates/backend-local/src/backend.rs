//! The trait, method by method: each is a line to the module of its subject.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use holdfast_base::ByteRange;
use holdfast_base::limits::BACKEND_SWEEP_TURNS;
use holdfast_vfs::handover::ArrivedFile;
use holdfast_vfs::{
    AccessLists, AccessMask, Advice, Advised, Appended, AttrMask, Attrs, Backend, Change, CopySpan,
    CreateHow, Created, CtimeGuard, Cx, DirEntry, DirListing, File, FileObject, FileSpan, Flow, FsError,
    FsLimits, FsResult, FsUsage, Grounds, Handle, HeldPledge, Lend, ListEnd, LocalListener, LockKind,
    LockedBy, Name, NewFile, NewNode, Node, OpenMode, Page, PageKey, Pledge, Read, Region, RemoveKind,
    Removed, RenameFlags, Rights, Seek, SetAttrs, Spare, Touched, Wait, WriteAt, Written, XattrMode,
};

use crate::errors::fs_error;
use crate::local::LocalBackend;
use crate::locks;

impl Backend for LocalBackend {
    fn root(&self) -> FsResult<Handle> {
        if self.root.look()?.stx_nlink == 0 { Err(FsError::Stale) } else { Ok(self.root.handle) }
    }

    fn getattr(&self, cx: &Cx<'_>, object: &Handle, want: AttrMask) -> FsResult<Attrs> {
        self.do_getattr(cx, object, want)
    }

    fn setattr(&self, cx: &Cx<'_>, file: File<'_>, set: &SetAttrs, guard: CtimeGuard) -> FsResult<Change> {
        self.do_setattr(cx, file, set, guard)
    }

    fn lookup(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, want: AttrMask) -> FsResult<Node> {
        self.do_lookup(cx, dir, name, want)
    }

    fn named(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>) -> FsResult<Option<Handle>> {
        self.do_named(cx, dir, name)
    }

    fn parent(&self, cx: &Cx<'_>, dir: &Handle, want: AttrMask) -> FsResult<Node> {
        self.do_parent(cx, dir, want)
    }

    fn access(&self, cx: &Cx<'_>, object: &Handle, asked: AccessMask) -> FsResult<Rights> {
        self.do_access(cx, object, asked)
    }

    fn readlink(&self, cx: &Cx<'_>, link: &Handle) -> FsResult<Vec<u8>> {
        self.do_readlink(cx, link)
    }

    fn readdir(
        &self,
        cx: &Cx<'_>,
        listing: DirListing<'_>,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        self.do_readdir(cx, listing, None, take)
    }

    fn readdir_on(
        &self,
        cx: &Cx<'_>,
        listing: DirListing<'_>,
        grounds: &mut Grounds,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        self.do_readdir(cx, listing, Some(grounds), take)
    }

    fn kept_page(&self, cx: &Cx<'_>, dir: &Handle, key: &PageKey) -> Option<Arc<Page>> {
        self.find_page(cx, dir, key)
    }

    fn keep_page(&self, dir: &Handle, key: &PageKey, page: (Page, Grounds)) {
        self.put_page(dir, key, page);
    }

    fn create(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, how: &CreateHow<'_>) -> FsResult<Created> {
        self.do_create(cx, dir, name, how)
    }

    fn make(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        what: NewNode<'_>,
        set: &SetAttrs,
    ) -> FsResult<(Node, Change)> {
        self.do_make(cx, dir, name, what, set)
    }

    fn link(&self, cx: &Cx<'_>, object: &Handle, dir: &Handle, name: Name<'_>) -> FsResult<(Change, Attrs)> {
        self.do_link(cx, object, dir, name)
    }

    fn make_file(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        (set, open): (&SetAttrs, Option<OpenMode>),
    ) -> FsResult<NewFile> {
        self.do_make_file(cx, (dir, name), set, open)
    }

    fn make_nameless(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        set: &SetAttrs,
    ) -> FsResult<(Node, Arc<dyn FileObject>)> {
        self.do_make_nameless(cx, dir, set)
    }

    fn make_spare(&self, cx: &Cx<'_>, dir: &Handle) -> FsResult<Spare> {
        self.do_make_spare(cx, dir)
    }

    fn heritage(&self, cx: &Cx<'_>, dir: &Handle) -> FsResult<u64> {
        self.do_heritage(cx, dir)
    }

    fn place(
        &self,
        cx: &Cx<'_>,
        spare: &Spare,
        dir: &Handle,
        name: Name<'_>,
        set: &SetAttrs,
    ) -> FsResult<Change> {
        self.do_place(cx, spare, (dir, name), set)
    }

    fn rename(
        &self,
        cx: &Cx<'_>,
        from: (&Handle, Name<'_>),
        to: (&Handle, Name<'_>),
        flags: RenameFlags,
    ) -> FsResult<(Change, Change)> {
        self.do_rename(cx, from, to, flags)
    }

    fn remove(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, kind: RemoveKind) -> FsResult<Change> {
        self.do_remove(cx, dir, name, kind)
    }

    fn remove_seen(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        kind: RemoveKind,
        victim: &Handle,
    ) -> FsResult<Option<Removed>> {
        self.do_remove_seen(cx, (dir, name), kind, victim)
    }

    fn open(&self, cx: &Cx<'_>, file: &Handle, mode: OpenMode) -> FsResult<Arc<dyn FileObject>> {
        self.do_open(cx, file, mode)
    }

    fn read(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, into: &mut [u8]) -> FsResult<Read> {
        self.do_read(cx, file, offset, into)
    }

    fn read_and_look(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        offset: u64,
        into: &mut [u8],
    ) -> FsResult<(Read, Option<Attrs>)> {
        self.do_read_and_look(cx, file, offset, into)
    }

    fn read_span(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        offset: u64,
        bytes: usize,
    ) -> FsResult<Option<FileSpan>> {
        self.do_read_span(cx, file, offset, bytes)
    }

    fn write(&self, cx: &Cx<'_>, file: File<'_>, at: WriteAt, data: &[u8]) -> FsResult<Written> {
        self.do_write(cx, file, at, data)
    }

    fn write_first(&self, cx: &Cx<'_>, file: File<'_>, data: &[u8], set: &SetAttrs) -> FsResult<()> {
        self.do_write_first(cx, file, data, set)
    }

    fn append(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        data: &[u8],
        about_to: &mut dyn FnMut(u64) -> FsResult<()>,
    ) -> FsResult<Appended> {
        self.do_append(cx, file, data, about_to)
    }

    fn commit(&self, touched: &[Touched], results: &mut [FsResult<()>]) {
        self.do_commit(touched, results);
    }

    fn commit_with(
        &self,
        own: BorrowedFd<'_>,
        touched: &[Touched],
        results: &mut [FsResult<()>],
    ) -> Option<FsResult<()>> {
        self.do_commit_with(own, touched, results)
    }

    fn commit_domain(&self, object: &Handle) -> u64 {
        self.domain_of(object)
    }

    fn write_verifier(&self) -> [u8; 8] {
        self.verifier()
    }

    fn seek(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, what: Seek) -> FsResult<u64> {
        self.do_seek(cx, file, offset, what)
    }

    fn region(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, bytes: u64, what: Region) -> FsResult<()> {
        self.do_region(cx, file, (offset, bytes), what)
    }

    fn advise(&self, cx: &Cx<'_>, file: File<'_>, range: ByteRange, what: Advice) -> FsResult<Advised> {
        self.do_advise(cx, file, range, what)
    }

    fn copy(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<u64> {
        self.do_copy(cx, from, to, span)
    }

    fn clone_range(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<()> {
        self.do_clone(cx, from, to, span)
    }

    fn getxattr(&self, cx: &Cx<'_>, object: &Handle, name: &[u8]) -> FsResult<Vec<u8>> {
        self.do_getxattr(cx, object, name)
    }

    fn setxattr(
        &self,
        cx: &Cx<'_>,
        object: &Handle,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<Change> {
        self.do_setxattr(cx, object, (name, value), mode)
    }

    fn listxattr(&self, cx: &Cx<'_>, object: &Handle) -> FsResult<Vec<Vec<u8>>> {
        self.do_listxattr(cx, object)
    }

    fn access_lists(&self, cx: &Cx<'_>, object: File<'_>) -> FsResult<AccessLists> {
        self.do_access_lists(cx, object)
    }

    fn removexattr(&self, cx: &Cx<'_>, object: &Handle, name: &[u8]) -> FsResult<Change> {
        self.do_removexattr(cx, object, name)
    }

    fn may_be_on_other_hosts(&self, object: &Handle) -> bool {
        self.filesystem_of(object).is_none_or(|fs| !fs.nature.is_of_this_host_alone())
    }

    fn lock(&self, file: &Arc<dyn FileObject>, range: ByteRange, kind: LockKind) -> FsResult<()> {
        self.do_lock(file, range, kind)
    }

    fn unlock(&self, file: &Arc<dyn FileObject>, range: ByteRange) -> FsResult<()> {
        locks::unlock(file, range)
    }

    fn test_lock(
        &self,
        file: &Arc<dyn FileObject>,
        range: ByteRange,
        kind: LockKind,
    ) -> FsResult<Option<LockedBy>> {
        self.do_test_lock(file, range, kind)
    }

    fn import_file(&self, file: &Handle, arrived: ArrivedFile) -> FsResult<Arc<dyn FileObject>> {
        self.do_import_file(file, arrived)
    }

    fn await_unlock(&self, file: &Arc<dyn FileObject>, range: ByteRange, kind: LockKind) -> FsResult<()> {
        self.do_await_unlock(file, range, kind)
    }

    fn pledge(
        &self,
        object: &Handle,
        what: Pledge,
        open: Option<&Arc<dyn FileObject>>,
    ) -> FsResult<Option<HeldPledge>> {
        self.do_pledge(object, what, open)
    }

    fn leases_are_scarce(&self) -> bool {
        self.watch.leases_are_scarce(self.root.fs.handles)
    }

    fn pledge_seconds(&self) -> Option<u64> {
        self.watch.lease_seconds()
    }

    fn listen(&self, listener: Weak<dyn LocalListener>) {
        self.watch.listen(listener);
    }

    fn lend(&self, cx: &Cx<'_>, file: &Handle, what: Lend) -> FsResult<Option<std::os::fd::OwnedFd>> {
        self.do_lend(cx, file, what)
    }

    fn usage(&self, cx: &Cx<'_>, object: &Handle) -> FsResult<FsUsage> {
        let object = self.resolve(cx.wait, object)?;
        let st = rustix::fs::fstatvfs(object.fd()).map_err(fs_error)?;
        let bytes = |blocks: u64| blocks.saturating_mul(st.f_frsize);
        Ok(FsUsage {
            bytes_total: bytes(st.f_blocks),
            bytes_free: bytes(st.f_bfree),
            bytes_available: bytes(st.f_bavail),
            files_total: st.f_files,
            files_free: st.f_ffree,
            files_available: st.f_favail,
        })
    }

    fn limits(&self, object: &Handle) -> FsResult<FsLimits> {
        Ok(self.resolve(Wait::Yes, object)?.fs.limits)
    }

    fn cached(&self) -> Option<(usize, usize)> {
        Some(self.cache.fill())
    }

    fn path_of(&self, object: &Handle) -> Option<PathBuf> {
        let object = self.resolve(Wait::Yes, object).ok()?;
        self.proc_fd.path_of(object.fd()).ok()
    }

    fn shed(&self, keep_percent: u8) {
        self.identity.as_server();
        self.listings.clear();
        self.pages.clear();
        self.cache.shed(keep_percent);
        (0..BACKEND_SWEEP_TURNS).for_each(|_| self.do_sweep());
    }

    fn sweep(&self) {
        self.identity.as_server();
        self.do_sweep();
    }
}
