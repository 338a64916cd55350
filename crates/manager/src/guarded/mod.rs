//! The guard before a backend: every method that does something which may be promised to somebody not to be done asks
//! first. So no protocol can forget to, and what holds for one holds for all.

mod attributes;
mod names;
#[cfg(test)]
mod race;
#[cfg(test)]
pub(crate) mod tests;
mod told;

use std::hash::BuildHasher as _;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use holdfast_base::{ByteRange, FileKey};
use holdfast_state::{Deed, EntryKinds};
use holdfast_vfs::handover::ArrivedFile;
use holdfast_vfs::{
    AccessLists, AccessMask, Advice, Advised, Appended, AttrMask, Attrs, Backend, Change, CopySpan,
    CreateHow, Created, CtimeGuard, Cx, DirEntry, DirListing, File, FileObject, FileSpan, Flow, FsLimits,
    FsResult, FsUsage, Grounds, Handle, HeldPledge, Lend, ListEnd, LocalListener, LockKind, LockedBy, Name,
    NewFile, NewNode, Node, OpenMode, Page, PageKey, Pledge, Read, Region, RemoveKind, Removed, RenameFlags,
    Rights, Seek, SetAttrs, Spare, Touched, WriteAt, Written, XattrMode, attrs_if_any,
};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxBuildHasher;

use crate::contend::Met;
use crate::index::Entered;
use crate::manager::Manager;

/// A backend behind its guard. What a method may fail with besides its own errors: `Delay`, while something promised
/// to another client is being recalled; where waiting is not allowed, `WouldBlock`.
pub struct Guarded {
    inner: Arc<dyn Backend>,
    manager: Arc<Manager>,
    appends: Appends,
}

/// One append of a file at a time: files share locks, which are held for as long as one takes.
struct Appends([Mutex<()>; 64]);

impl Appends {
    fn of(&self, file: FileKey) -> MutexGuard<'_, ()> {
        let place = FxBuildHasher.hash_one(file) >> 58;
        self.0[place as usize].lock()
    }
}

impl Guarded {
    /// Puts a backend behind the guard. What local processes do to it is heard from now on.
    #[must_use]
    pub fn new(inner: Arc<dyn Backend>, manager: &Arc<Manager>) -> Arc<Self> {
        let listener: Weak<dyn LocalListener> = manager.this.clone();
        inner.listen(listener);
        if let Some(seconds) = inner.pledge_seconds() {
            manager.bound_recalls(seconds.saturating_mul(1000));
        }
        Arc::new(Self {
            inner,
            manager: Arc::clone(manager),
            appends: Appends([const { Mutex::new(()) }; 64]),
        })
    }

    /// Sees to it that nothing stands against looking at something.
    #[inline]
    fn look(&self, cx: &Cx<'_>, object: &Handle, deed: Deed) -> FsResult<()> {
        self.manager.contend_if_promised(object, deed, cx)
    }

    /// Does something that changes an object.
    fn change<R>(
        &self,
        cx: &Cx<'_>,
        deeds: &[(FileKey, Deed)],
        mut change: impl FnMut() -> FsResult<R>,
    ) -> FsResult<R> {
        let deeds = Deeds::of(deeds);
        self.manager.without_conflict((cx.client, cx.wait), || {
            let _entered = self.enter(&deeds, cx)?;
            Ok(change()?)
        })
    }

    fn enter(&self, deeds: &Deeds, cx: &Cx<'_>) -> Result<[Option<Entered<'_>>; DEEDS_MAX], Met> {
        let mut entered = [const { None }; DEEDS_MAX];
        for (place, (file, deed)) in entered.iter_mut().zip(deeds.each()) {
            self.manager.check_reclaimed(file, deed, cx.client)?;
            *place = Some(self.manager.index.enter(file, deed, cx.client)?);
        }
        Ok(entered)
    }
}

/// The most that one call does: RENAME changes two directories, what it moves and what it replaces, and two names.
const DEEDS_MAX: usize = 6;

/// One more entry, and one less, for who is told of changes.
const ADDS: Deed = Deed::ChangeEntries(EntryKinds::ADD);
const REMOVES: Deed = Deed::ChangeEntries(EntryKinds::REMOVE);

/// What one call does to which objects.
#[derive(Clone, Copy, Debug, Default)]
struct Deeds([Option<(FileKey, Deed)>; DEEDS_MAX]);

impl Deeds {
    fn of(deeds: &[(FileKey, Deed)]) -> Self {
        let mut all = Self::default();
        for (place, (object, deed)) in all.0.iter_mut().zip(deeds) {
            *place = Some((*object, *deed));
        }
        all
    }

    /// With a change of this name, which may be promised by itself. Nobody is told of it: any change of it is one.
    fn naming(mut self, name: FileKey) -> Self {
        if let Some(place) = self.0.iter_mut().find(|place| place.is_none()) {
            *place = Some((name, Deed::ChangeEntries(EntryKinds::UNKNOWN)));
        }
        self
    }

    fn each(&self) -> impl Iterator<Item = (FileKey, Deed)> {
        self.0.iter().copied().flatten()
    }
}

/// What a SETATTR does. A size of nothing is told apart: the holder need not flush what is cut off anyway.
fn deeds_of_setattr(set: &SetAttrs) -> (Option<Deed>, Option<Deed>) {
    let data = set.size.map(|size| if size == 0 { Deed::Truncate } else { Deed::WriteData });
    let SetAttrs { mode, umask: _, uid, gid, size: _, atime, mtime } = set;
    let has_others = mode.is_some() || uid.is_some() || gid.is_some() || atime.is_some() || mtime.is_some();
    // Setting nothing is a change too: it moves the change attribute.
    (data, (has_others || data.is_none()).then_some(Deed::ChangeAttrs))
}

impl Backend for Guarded {
    fn root(&self) -> FsResult<Handle> {
        self.inner.root()
    }

    fn getattr(&self, cx: &Cx<'_>, object: &Handle, want: AttrMask) -> FsResult<Attrs> {
        let attrs = self.inner.getattr(cx, object, want);
        // Asked after the look. What is returned as it came is not copied.
        if !self.manager.has_promises() {
            return attrs;
        }
        self.as_held(cx, object, (attrs?, want))
    }

    fn setattr(&self, cx: &Cx<'_>, file: File<'_>, set: &SetAttrs, guard: CtimeGuard) -> FsResult<Change> {
        let (data, attrs) = deeds_of_setattr(set);
        let first = data.or(attrs).unwrap_or(Deed::ChangeAttrs);
        let key = file.handle().key();
        let both = [(key, first), (key, Deed::ChangeAttrs)];
        let deeds = if data.is_some() && attrs.is_some() { &both[..] } else { &both[..1] };
        self.change(cx, deeds, || self.inner.setattr(cx, file, set, guard))
    }

    fn lookup(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, want: AttrMask) -> FsResult<Node> {
        self.look(cx, dir, Deed::LookEntries)?;
        let node = self.inner.lookup(cx, dir, name, want);
        if !self.manager.has_promises() {
            return node;
        }
        let node = node?;
        let attrs = self.as_held(cx, &node.handle, (node.attrs, want))?;
        Ok(Node { attrs, ..node })
    }

    fn named(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>) -> FsResult<Option<Handle>> {
        self.look(cx, dir, Deed::LookEntries)?;
        self.inner.named(cx, dir, name)
    }

    fn parent(&self, cx: &Cx<'_>, dir: &Handle, want: AttrMask) -> FsResult<Node> {
        self.inner.parent(cx, dir, want)
    }

    fn access(&self, cx: &Cx<'_>, object: &Handle, asked: AccessMask) -> FsResult<Rights> {
        self.look(cx, object, Deed::LookRights)?;
        self.inner.access(cx, object, asked)
    }

    fn readlink(&self, cx: &Cx<'_>, link: &Handle) -> FsResult<Vec<u8>> {
        self.inner.readlink(cx, link)
    }

    fn readdir(
        &self,
        cx: &Cx<'_>,
        listing: DirListing<'_>,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        self.list(cx, listing, None, take)
    }

    fn readdir_on(
        &self,
        cx: &Cx<'_>,
        listing: DirListing<'_>,
        grounds: &mut Grounds,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        self.list(cx, listing, Some(grounds), take)
    }

    fn kept_page(&self, cx: &Cx<'_>, dir: &Handle, key: &PageKey) -> Option<Arc<Page>> {
        // A write delegation that was given since has changed what the page rests on (`Backend::pledge`).
        // Capabilities are given without such a change: while anything may be changed unseen each listing looks anew.
        if self.manager.has_exclusive_caps() {
            return None;
        }
        self.inner.kept_page(cx, dir, key)
    }

    fn keep_page(&self, dir: &Handle, key: &PageKey, page: (Page, Grounds)) {
        self.inner.keep_page(dir, key, page);
    }

    fn create(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, how: &CreateHow<'_>) -> FsResult<Created> {
        self.create_guarded(cx, (dir, name), how)
    }

    fn make_file(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        how: (&SetAttrs, Option<OpenMode>),
    ) -> FsResult<NewFile> {
        self.make_file_guarded(cx, (dir, name), how)
    }

    fn make(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        what: NewNode<'_>,
        set: &SetAttrs,
    ) -> FsResult<(Node, Change)> {
        self.change_name(cx, (dir, name), &[(dir.key(), ADDS)], || {
            let made = self.inner.make(cx, dir, name, what, set)?;
            self.tell_added(cx, (dir, name), (&made.1, &made.0.handle), false);
            Ok(made)
        })
    }

    fn make_nameless(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        set: &SetAttrs,
    ) -> FsResult<(Node, Arc<dyn FileObject>)> {
        // No entry of the directory changes; who may make it, and what it inherits, are the directory's attributes.
        self.look(cx, dir, Deed::LookRights)?;
        self.inner.make_nameless(cx, dir, set)
    }

    fn make_spare(&self, cx: &Cx<'_>, dir: &Handle) -> FsResult<Spare> {
        self.look(cx, dir, Deed::LookRights)?;
        self.inner.make_spare(cx, dir)
    }

    fn heritage(&self, cx: &Cx<'_>, dir: &Handle) -> FsResult<u64> {
        self.look(cx, dir, Deed::LookRights)?;
        self.inner.heritage(cx, dir)
    }

    fn place(
        &self,
        cx: &Cx<'_>,
        spare: &Spare,
        dir: &Handle,
        name: Name<'_>,
        set: &SetAttrs,
    ) -> FsResult<Change> {
        // As of a create: what is made has been promised to nobody.
        self.change_name(cx, (dir, name), &[(dir.key(), ADDS)], || {
            let change = self.inner.place(cx, spare, dir, name, set)?;
            self.tell_added(cx, (dir, name), (&change, &spare.handle), false);
            Ok(change)
        })
    }

    fn link(&self, cx: &Cx<'_>, object: &Handle, dir: &Handle, name: Name<'_>) -> FsResult<(Change, Attrs)> {
        let deeds = [(dir.key(), ADDS), (object.key(), Deed::ChangeName)];
        self.change_name(cx, (dir, name), &deeds, || {
            let linked = self.inner.link(cx, object, dir, name)?;
            self.tell_added(cx, (dir, name), (&linked.0, object), false);
            Ok(linked)
        })
    }

    fn rename(
        &self,
        cx: &Cx<'_>,
        from: (&Handle, Name<'_>),
        to: (&Handle, Name<'_>),
        flags: RenameFlags,
    ) -> FsResult<(Change, Change)> {
        let dirs = [from.0.key(), to.0.key()];
        let deeds = |is_careful| self.deeds_of_rename(cx, dirs, (from, to), (flags, is_careful));
        self.change_names(cx, dirs, deeds, || {
            let tells = self.manager.tells_entries();
            let replaced = if tells { self.behind(cx, to) } else { None };
            let renamed = self.inner.rename(cx, from, to, flags)?;
            match flags {
                RenameFlags::Exchange => self.tell_exchanged(cx, (from, to), &renamed),
                _ => self.tell_renamed(cx, (from, to), &renamed, replaced),
            }
            Ok(renamed)
        })
    }

    fn remove(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, kind: RemoveKind) -> FsResult<Change> {
        let dir_key = dir.key();
        let deeds = |is_careful| self.deeds_of_remove(cx, dir_key, (dir, name, is_careful));
        self.change_names(cx, [dir_key; 2], deeds, || {
            let removed = self.inner.remove(cx, dir, name, kind)?;
            self.tell_removed(cx, (dir, name), &removed);
            Ok(removed)
        })
    }

    fn remove_seen(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        kind: RemoveKind,
        victim: &Handle,
    ) -> FsResult<Option<Removed>> {
        self.remove_seen_guarded(cx, (dir, name), kind, victim)
    }

    fn open(&self, cx: &Cx<'_>, file: &Handle, mode: OpenMode) -> FsResult<Arc<dyn FileObject>> {
        self.look(cx, file, deed_of_open(mode))?;
        self.inner.open(cx, file, mode)
    }

    fn read(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, into: &mut [u8]) -> FsResult<Read> {
        self.look(cx, file.handle(), Deed::ReadData)?;
        self.inner.read(cx, file, offset, into)
    }

    fn read_and_look(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        offset: u64,
        into: &mut [u8],
    ) -> FsResult<(Read, Option<Attrs>)> {
        if self.manager.has_promises() {
            let attrs = attrs_if_any(self.getattr(cx, file.handle(), AttrMask::STAT))?;
            return Ok((self.read(cx, file, offset, into)?, attrs));
        }
        let (read, attrs) = self.inner.read_and_look(cx, file, offset, into)?;
        // Asked after the look, as ever: were it promised to somebody meanwhile, the attributes would be his to tell.
        let attrs = attrs.filter(|_| !self.manager.has_promises());
        Ok((read, attrs))
    }

    fn read_span(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        offset: u64,
        bytes: usize,
    ) -> FsResult<Option<FileSpan>> {
        self.look(cx, file.handle(), Deed::ReadData)?;
        self.inner.read_span(cx, file, offset, bytes)
    }

    fn write(&self, cx: &Cx<'_>, file: File<'_>, at: WriteAt, data: &[u8]) -> FsResult<Written> {
        self.change(cx, &[(file.handle().key(), Deed::WriteData)], || self.inner.write(cx, file, at, data))
    }

    fn write_first(&self, cx: &Cx<'_>, file: File<'_>, data: &[u8], set: &SetAttrs) -> FsResult<()> {
        let key = file.handle().key();
        let deeds = [(key, Deed::WriteData), (key, Deed::ChangeAttrs)];
        let deeds = if *set == SetAttrs::default() { &deeds[..1] } else { &deeds[..] };
        self.change(cx, deeds, || self.inner.write_first(cx, file, data, set))
    }

    fn append(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        data: &[u8],
        about_to: &mut dyn FnMut(u64) -> FsResult<()>,
    ) -> FsResult<Appended> {
        let key = file.handle().key();
        self.change(cx, &[(key, Deed::WriteData)], || {
            let _alone = self.appends.of(key);
            self.inner.append(cx, file, data, &mut *about_to)
        })
    }

    fn commit(&self, touched: &[Touched], results: &mut [FsResult<()>]) {
        self.inner.commit(touched, results);
    }

    fn commit_with(
        &self,
        own: BorrowedFd<'_>,
        touched: &[Touched],
        results: &mut [FsResult<()>],
    ) -> Option<FsResult<()>> {
        self.inner.commit_with(own, touched, results)
    }

    fn recalls_ended(&self) -> u64 {
        // Where nothing is promised there is nothing to wait for; should that change meanwhile, whoever waits looks again at once.
        if self.manager.has_promises() { self.manager.recalls.count() } else { u64::MAX }
    }

    fn await_recall(&self, seen: u64, ms: u64) -> bool {
        self.manager.recalls.wait(seen, ms)
    }

    fn commit_domain(&self, object: &Handle) -> u64 {
        self.inner.commit_domain(object)
    }

    fn write_verifier(&self) -> [u8; 8] {
        self.inner.write_verifier()
    }

    fn seek(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, what: Seek) -> FsResult<u64> {
        self.look(cx, file.handle(), Deed::ReadData)?;
        self.inner.seek(cx, file, offset, what)
    }

    fn region(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, bytes: u64, what: Region) -> FsResult<()> {
        let deeds = [(file.handle().key(), Deed::WriteData)];
        self.change(cx, &deeds, || self.inner.region(cx, file, offset, bytes, what))
    }

    /// It neither shows nor changes anything that could be promised.
    fn advise(&self, cx: &Cx<'_>, file: File<'_>, range: ByteRange, what: Advice) -> FsResult<Advised> {
        self.inner.advise(cx, file, range, what)
    }

    fn copy(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<u64> {
        self.look(cx, from.handle(), Deed::ReadData)?;
        self.change(cx, &[(to.handle().key(), Deed::WriteData)], || self.inner.copy(cx, from, to, span))
    }

    fn clone_range(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<()> {
        self.look(cx, from.handle(), Deed::ReadData)?;
        self.change(cx, &[(to.handle().key(), Deed::WriteData)], || {
            self.inner.clone_range(cx, from, to, span)
        })
    }

    fn getxattr(&self, cx: &Cx<'_>, object: &Handle, name: &[u8]) -> FsResult<Vec<u8>> {
        self.look(cx, object, Deed::LookXattrs)?;
        self.inner.getxattr(cx, object, name)
    }

    fn setxattr(
        &self,
        cx: &Cx<'_>,
        object: &Handle,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<Change> {
        let deeds = [(object.key(), Deed::ChangeAttrs)];
        self.change(cx, &deeds, || self.inner.setxattr(cx, object, name, value, mode))
    }

    fn listxattr(&self, cx: &Cx<'_>, object: &Handle) -> FsResult<Vec<Vec<u8>>> {
        self.look(cx, object, Deed::LookXattrs)?;
        self.inner.listxattr(cx, object)
    }

    fn access_lists(&self, cx: &Cx<'_>, object: File<'_>) -> FsResult<AccessLists> {
        self.look(cx, object.handle(), Deed::LookXattrs)?;
        self.inner.access_lists(cx, object)
    }

    fn removexattr(&self, cx: &Cx<'_>, object: &Handle, name: &[u8]) -> FsResult<Change> {
        self.change(cx, &[(object.key(), Deed::ChangeAttrs)], || self.inner.removexattr(cx, object, name))
    }

    fn may_be_on_other_hosts(&self, object: &Handle) -> bool {
        self.inner.may_be_on_other_hosts(object)
    }

    fn lock(&self, file: &Arc<dyn FileObject>, range: ByteRange, kind: LockKind) -> FsResult<()> {
        self.inner.lock(file, range, kind)
    }

    fn unlock(&self, file: &Arc<dyn FileObject>, range: ByteRange) -> FsResult<()> {
        self.inner.unlock(file, range)
    }

    fn test_lock(
        &self,
        file: &Arc<dyn FileObject>,
        range: ByteRange,
        kind: LockKind,
    ) -> FsResult<Option<LockedBy>> {
        self.inner.test_lock(file, range, kind)
    }

    fn await_unlock(&self, file: &Arc<dyn FileObject>, range: ByteRange, kind: LockKind) -> FsResult<()> {
        self.inner.await_unlock(file, range, kind)
    }

    fn pledge(
        &self,
        object: &Handle,
        what: Pledge,
        open: Option<&Arc<dyn FileObject>>,
    ) -> FsResult<Option<HeldPledge>> {
        self.inner.pledge(object, what, open)
    }

    fn leases_are_scarce(&self) -> bool {
        self.inner.leases_are_scarce()
    }

    fn pledge_seconds(&self) -> Option<u64> {
        self.inner.pledge_seconds()
    }

    fn listen(&self, listener: Weak<dyn LocalListener>) {
        self.inner.listen(listener);
    }

    fn import_file(&self, file: &Handle, arrived: ArrivedFile) -> FsResult<Arc<dyn FileObject>> {
        self.inner.import_file(file, arrived)
    }

    fn lend(&self, cx: &Cx<'_>, file: &Handle, what: Lend) -> FsResult<Option<OwnedFd>> {
        // What is opened by its path later is judged then, as a local process's deed.
        let mode = OpenMode { read: true, write: what == Lend::Write, nfs_exceptions: false };
        self.look(cx, file, deed_of_open(mode))?;
        self.inner.lend(cx, file, what)
    }

    fn usage(&self, cx: &Cx<'_>, object: &Handle) -> FsResult<FsUsage> {
        self.inner.usage(cx, object)
    }

    fn limits(&self, object: &Handle) -> FsResult<FsLimits> {
        self.inner.limits(object)
    }

    fn cached(&self) -> Option<(usize, usize)> {
        self.inner.cached()
    }

    fn path_of(&self, object: &Handle) -> Option<PathBuf> {
        self.inner.path_of(object)
    }

    fn shed(&self, keep_percent: u8) {
        self.inner.shed(keep_percent);
    }

    fn sweep(&self) {
        self.inner.sweep();
    }
}

/// Opening to write changes nothing by itself: whether it may be done at the moment when somebody else is promised
/// something is decided once more by the state engine, which has both.
const fn deed_of_open(mode: OpenMode) -> Deed {
    if mode.write { Deed::OpenWrite } else { Deed::OpenRead }
}
