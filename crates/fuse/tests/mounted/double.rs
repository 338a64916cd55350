//! A whole file system in memory behind a mount: an adapter over `holdfast-vfs`'s in-memory backend, with locks of its
//! own, and with gates at which operations can be made to wait.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_base::Cookie;
use holdfast_fuse::{
    AttrReply, BackingId, CopyRange, Create, DataSink, DirItem, DirSink, Entry, EntryKind, Errno, Fallocate,
    FallocateFlags, FileHandle, Filesystem, Flush, Forget, LockAsk, LockSpan, Make, NameIn, NodeId, Open,
    OpenFlags, Opened, OpenedFlags, Read, Release, Rename, RenameFlags, Request, Result, SeekFor, SetAttr,
    SetXattr, Statfs, StatxReply, SyncWhat, Validity, Write, XattrMode,
};
use holdfast_vfs::{
    AttrMask, Attrs, Backend, Caller, CopySpan, CreateHow, CreateMode, Cx, DirListing, File, FileObject,
    Flow, FsError, Handle, MemBackend, MemOptions, Name, NewNode, Node, OpenMode, Region, RemoveKind, Seek,
    SetAttrs, Stability, Wait, WriteAt,
};
use parking_lot::Mutex;

use crate::convert::{attr, errno, kind_bits, name, open_mode, time, with_mode};
use crate::gates::Gates;
use crate::locks::Locks;

/// How it answers.
#[derive(Clone)]
pub(crate) struct Manner {
    /// How long the kernel may believe names and attributes.
    pub(crate) valid: Validity,
    /// Whether GETXATTR and the like are answered ENOSYS.
    pub(crate) no_xattrs: bool,
    /// Whether FLUSH is answered ENOSYS.
    pub(crate) no_flush: bool,
    /// Whether OPEN and OPENDIR are answered ENOSYS.
    pub(crate) no_open: bool,
    /// Whether absent names may be believed too.
    pub(crate) remembers_absence: bool,
    pub(crate) opened: OpenedFlags,
    /// Of directories.
    pub(crate) opened_dir: OpenedFlags,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            valid: Duration::ZERO,
            no_xattrs: false,
            no_flush: false,
            no_open: false,
            remembers_absence: false,
            opened: OpenedFlags::NONE,
            opened_dir: OpenedFlags::NONE,
        }
    }
}

struct KnownNode {
    handle: Handle,
    lookups: u64,
}

#[derive(Default)]
struct Nodes {
    by_id: HashMap<u64, KnownNode>,
    by_handle: HashMap<Vec<u8>, u64>,
    last: u64,
}

struct OpenFile {
    handle: Handle,
    file: Arc<dyn FileObject>,
}

pub(crate) struct Double {
    backend: MemBackend,
    manner: Manner,
    nodes: Mutex<Nodes>,
    opens: Mutex<HashMap<u64, Arc<OpenFile>>>,
    last_open: AtomicU64,
    pub(crate) locks: Locks,
    pub(crate) gates: Gates,
    pub(crate) destroyed: AtomicU64,
    pub(crate) forgotten: AtomicU64,
    /// What each operation was asked with, for tests of what the kernel sends.
    pub(crate) calls: Mutex<HashMap<&'static str, u64>>,
    pub(crate) last_groups: Mutex<Vec<u32>>,
    pub(crate) was_exiting: AtomicU64,
    backing: Mutex<Option<BackingId>>,
}

const ROOT: u64 = 1;

impl Double {
    pub(crate) fn new(manner: Manner) -> Arc<Self> {
        let mut options = MemOptions::system();
        options.root_mode = 0o777;
        let backend = MemBackend::new(&options);
        let root = backend.root().expect("a root");
        let mut nodes = Nodes { last: ROOT, ..Nodes::default() };
        nodes.by_id.insert(ROOT, KnownNode { handle: root, lookups: 1 });
        nodes.by_handle.insert(root.as_bytes().to_vec(), ROOT);
        Arc::new(Self {
            backend,
            manner,
            nodes: Mutex::new(nodes),
            opens: Mutex::default(),
            last_open: AtomicU64::new(0),
            locks: Locks::default(),
            gates: Gates::default(),
            destroyed: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            calls: Mutex::default(),
            last_groups: Mutex::default(),
            was_exiting: AtomicU64::new(0),
            backing: Mutex::new(None),
        })
    }

    /// Changes a file behind the mount's back.
    pub(crate) fn write_behind(&self, name: &[u8], data: &[u8]) {
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let root = self.backend.root().expect("a root");
        let name = Name::new(name).expect("a name");
        let node = self.backend.lookup(&cx, &root, name, AttrMask::STAT).expect("the file");
        let file = File::Stateless(&node.handle);
        let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
        self.backend.write(&cx, file, at, data).expect("written");
    }

    /// The node under which the kernel knows a name of the root.
    pub(crate) fn node_of(&self, name: &[u8]) -> NodeId {
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let root = self.backend.root().expect("a root");
        let found = self.backend.lookup(&cx, &root, Name::new(name).expect("a name"), AttrMask::STAT);
        let found = found.expect("the file");
        NodeId(self.nodes.lock().by_handle[found.handle.as_bytes()])
    }

    pub(crate) fn remove_behind(&self, name: &[u8]) {
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let root = self.backend.root().expect("a root");
        let name = Name::new(name).expect("a name");
        self.backend.remove(&cx, &root, name, RemoveKind::Any).expect("removed");
    }

    /// Files opened from now on pass through to this one.
    pub(crate) fn pass_through(&self, to: Option<BackingId>) {
        *self.backing.lock() = to;
    }

    pub(crate) fn known_nodes(&self) -> usize {
        self.nodes.lock().by_id.len()
    }

    fn enter(&self, operation: &'static str, request: &Request<'_>) -> Result<()> {
        *self.calls.lock().entry(operation).or_default() += 1;
        self.gates.pass(operation, request)
    }

    fn with<T>(
        &self,
        request: &Request<'_>,
        f: impl FnOnce(&Cx<'_>) -> std::result::Result<T, FsError>,
    ) -> Result<T> {
        let groups = if request.uid() == 0 { Arc::from([]) } else { request.groups() };
        let caller = Caller { uid: request.uid(), gid: request.gid(), groups };
        f(&Cx::new(&caller, Wait::Yes)).map_err(errno)
    }

    fn handle(&self, node: NodeId) -> Result<Handle> {
        self.nodes.lock().by_id.get(&node.0).map(|known| known.handle).ok_or(Errno::STALE)
    }

    fn entry(&self, node: &Node) -> Entry {
        let mut nodes = self.nodes.lock();
        let id = match nodes.by_handle.get(node.handle.as_bytes()) {
            Some(id) => *id,
            None => {
                nodes.last += 1;
                let id = nodes.last;
                nodes.by_handle.insert(node.handle.as_bytes().to_vec(), id);
                nodes.by_id.insert(id, KnownNode { handle: node.handle, lookups: 0 });
                id
            }
        };
        nodes.by_id.get_mut(&id).expect("known").lookups += 1;
        let valid = self.manner.valid;
        Entry {
            node: NodeId(id),
            generation: 0,
            attr: attr(&node.attrs),
            entry_valid: valid,
            attr_valid: valid,
        }
    }

    fn attr_reply(&self, attrs: &Attrs) -> AttrReply {
        AttrReply { attr: attr(attrs), valid: self.manner.valid }
    }

    fn remember(&self, handle: Handle, file: Arc<dyn FileObject>) -> Opened {
        let id = self.last_open.fetch_add(1, Ordering::Relaxed) + 1;
        self.opens.lock().insert(id, Arc::new(OpenFile { handle, file }));
        Opened { file: FileHandle(id), flags: self.manner.opened, backing: *self.backing.lock() }
    }

    fn opened(&self, file: FileHandle) -> Option<Arc<OpenFile>> {
        self.opens.lock().get(&file.0).cloned()
    }

    fn on_file<T>(
        &self,
        request: &Request<'_>,
        node: NodeId,
        file: FileHandle,
        f: impl FnOnce(&Cx<'_>, File<'_>) -> std::result::Result<T, FsError>,
    ) -> Result<T> {
        let handle = self.handle(node)?;
        let open = self.opened(file);
        self.with(request, |cx| match &open {
            Some(open) => f(cx, File::Open(&open.handle, &open.file)),
            None => f(cx, File::Stateless(&handle)),
        })
    }
}

impl Filesystem for Double {
    fn destroy(&self) {
        self.destroyed.fetch_add(1, Ordering::SeqCst);
    }

    fn lookup(&self, request: &Request<'_>, at: NameIn<'_>) -> Result<Entry> {
        self.enter("lookup", request)?;
        assert!(at.name != b"panic", "a test asked for this");
        let dir = self.handle(at.dir)?;
        let name = name(at)?;
        match self.with(request, |cx| self.backend.lookup(cx, &dir, name, AttrMask::STAT)) {
            Ok(node) => Ok(self.entry(&node)),
            Err(Errno::NOENT) if self.manner.remembers_absence => Ok(Entry::absent(self.manner.valid)),
            Err(errno) => Err(errno),
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        let mut nodes = self.nodes.lock();
        for forget in forgets {
            self.forgotten.fetch_add(forget.lookups, Ordering::SeqCst);
            let Some(known) = nodes.by_id.get_mut(&forget.node.0) else {
                panic!("{forget:?} of an unknown node")
            };
            known.lookups = known.lookups.checked_sub(forget.lookups).expect("no more than were counted");
            if known.lookups == 0 && forget.node != NodeId::ROOT {
                let handle = known.handle;
                nodes.by_id.remove(&forget.node.0);
                nodes.by_handle.remove(handle.as_bytes());
            }
        }
    }

    fn getattr(&self, request: &Request<'_>, node: NodeId, _: Option<FileHandle>) -> Result<AttrReply> {
        self.enter("getattr", request)?;
        let handle = self.handle(node)?;
        self.with(request, |cx| self.backend.getattr(cx, &handle, AttrMask::STAT))
            .map(|a| self.attr_reply(&a))
    }

    fn statx(&self, request: &Request<'_>, node: NodeId, _: Option<FileHandle>) -> Result<StatxReply> {
        self.enter("statx", request)?;
        let handle = self.handle(node)?;
        let attrs = self.with(request, |cx| self.backend.getattr(cx, &handle, AttrMask::ALL))?;
        Ok(StatxReply {
            attr: attr(&attrs),
            btime: attrs.btime,
            attributes: 0,
            attributes_mask: 0,
            valid: self.manner.valid,
        })
    }

    fn setattr(&self, request: &Request<'_>, node: NodeId, set: &SetAttr) -> Result<AttrReply> {
        self.enter("setattr", request)?;
        let wanted = SetAttrs {
            mode: set.mode.map(|mode| mode & 0o7777),
            umask: None,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(time),
            mtime: set.mtime.map(time),
        };
        let file = set.file.unwrap_or_default();
        let change =
            self.on_file(request, node, file, |cx, file| self.backend.setattr(cx, file, &wanted, None))?;
        Ok(self.attr_reply(&change.after))
    }

    fn readlink(&self, request: &Request<'_>, node: NodeId) -> Result<Vec<u8>> {
        let handle = self.handle(node)?;
        self.with(request, |cx| self.backend.readlink(cx, &handle))
    }

    fn mknod(&self, request: &Request<'_>, at: NameIn<'_>, make: &Make) -> Result<Entry> {
        self.enter("mknod", request)?;
        let (dir, name) = (self.handle(at.dir)?, name(at)?);
        let device = holdfast_vfs::Device { major: make.rdev.major, minor: make.rdev.minor };
        let what = match make.mode & libc::S_IFMT {
            libc::S_IFIFO => NewNode::Fifo,
            libc::S_IFSOCK => NewNode::Socket,
            libc::S_IFCHR => NewNode::Char(device),
            libc::S_IFBLK => NewNode::Block(device),
            libc::S_IFREG => {
                let how = CreateHow {
                    mode: CreateMode::Guarded,
                    set: &with_mode(make.mode),
                    open: None,
                    want: AttrMask::STAT,
                };
                let made = self.with(request, |cx| self.backend.create(cx, &dir, name, &how))?;
                return Ok(self.entry(&made.node));
            }
            _ => return Err(Errno::INVAL),
        };
        let made = self.with(request, |cx| self.backend.make(cx, &dir, name, what, &with_mode(make.mode)))?;
        Ok(self.entry(&made.0))
    }

    fn mkdir(&self, request: &Request<'_>, at: NameIn<'_>, make: &Make) -> Result<Entry> {
        self.enter("mkdir", request)?;
        let (dir, name) = (self.handle(at.dir)?, name(at)?);
        let set = with_mode(make.mode);
        let made = self.with(request, |cx| self.backend.make(cx, &dir, name, NewNode::Directory, &set))?;
        Ok(self.entry(&made.0))
    }

    fn symlink(&self, request: &Request<'_>, at: NameIn<'_>, text: &[u8]) -> Result<Entry> {
        let (dir, name) = (self.handle(at.dir)?, name(at)?);
        let what = NewNode::Symlink(text);
        let made = self.with(request, |cx| self.backend.make(cx, &dir, name, what, &SetAttrs::default()))?;
        Ok(self.entry(&made.0))
    }

    fn link(&self, request: &Request<'_>, node: NodeId, to: NameIn<'_>) -> Result<Entry> {
        let (object, dir, name) = (self.handle(node)?, self.handle(to.dir)?, name(to)?);
        let (_, attrs) =
            self.with(request, |cx| self.backend.link(cx, &object, &dir, name)).map_err(|errno| {
                // What the system says of a directory.
                if errno == Errno::ISDIR { Errno::PERM } else { errno }
            })?;
        Ok(self.entry(&Node { handle: object, attrs }))
    }

    fn unlink(&self, request: &Request<'_>, at: NameIn<'_>) -> Result<()> {
        self.enter("unlink", request)?;
        let (dir, name) = (self.handle(at.dir)?, name(at)?);
        self.with(request, |cx| self.backend.remove(cx, &dir, name, RemoveKind::NonDirectory)).map(drop)
    }

    fn rmdir(&self, request: &Request<'_>, at: NameIn<'_>) -> Result<()> {
        let (dir, name) = (self.handle(at.dir)?, name(at)?);
        self.with(request, |cx| self.backend.remove(cx, &dir, name, RemoveKind::Directory)).map(drop)
    }

    fn rename(&self, request: &Request<'_>, rename: &Rename<'_>) -> Result<()> {
        self.enter("rename", request)?;
        let flags = match rename.flags {
            RenameFlags::NONE => holdfast_vfs::RenameFlags::Replace,
            RenameFlags::NO_REPLACE => holdfast_vfs::RenameFlags::NoReplace,
            RenameFlags::EXCHANGE => holdfast_vfs::RenameFlags::Exchange,
            _ => return Err(Errno::INVAL),
        };
        let (from, to) = (self.handle(rename.from.dir)?, self.handle(rename.to.dir)?);
        let (old, new) = (name(rename.from)?, name(rename.to)?);
        self.with(request, |cx| self.backend.rename(cx, (&from, old), (&to, new), flags)).map(drop)
    }

    fn open(&self, request: &Request<'_>, node: NodeId, open: &Open) -> Result<Opened> {
        self.enter("open", request)?;
        if self.manner.no_open {
            return Err(Errno::NOSYS);
        }
        let handle = self.handle(node)?;
        let file = self.with(request, |cx| {
            let file = self.backend.open(cx, &handle, open_mode(open.flags))?;
            if open.flags.contains(OpenFlags::TRUNCATE) {
                let cut = SetAttrs { size: Some(0), ..SetAttrs::default() };
                // O_RDONLY with O_TRUNC is allowed to who may write.
                let by = if open.flags.may_write() {
                    File::Open(&handle, &file)
                } else {
                    File::Stateless(&handle)
                };
                self.backend.setattr(cx, by, &cut, None)?;
            }
            Ok(file)
        })?;
        Ok(self.remember(handle, file))
    }

    fn create(&self, request: &Request<'_>, at: NameIn<'_>, create: &Create) -> Result<(Entry, Opened)> {
        self.enter("create", request)?;
        let (dir, name) = (self.handle(at.dir)?, name(at)?);
        let is_exclusive = create.flags.contains(OpenFlags::EXCLUSIVE);
        let mut set = with_mode(create.mode);
        set.size = create.flags.contains(OpenFlags::TRUNCATE).then_some(0);
        let how = CreateHow {
            mode: if is_exclusive { CreateMode::Guarded } else { CreateMode::Unchecked },
            set: &set,
            open: Some(open_mode(create.flags)),
            want: AttrMask::STAT,
        };
        let made = self.with(request, |cx| self.backend.create(cx, &dir, name, &how))?;
        let file = made.file.ok_or(Errno::IO)?;
        Ok((self.entry(&made.node), self.remember(made.node.handle, file)))
    }

    fn tmpfile(&self, request: &Request<'_>, dir: NodeId, create: &Create) -> Result<(Entry, Opened)> {
        let handle = self.handle(dir)?;
        let hidden = format!(".nameless-{}", self.last_open.load(Ordering::Relaxed));
        let name = Name::new(hidden.as_bytes()).map_err(errno)?;
        let how = CreateHow {
            mode: CreateMode::Guarded,
            set: &with_mode(create.mode),
            open: Some(OpenMode { read: true, write: true, nfs_exceptions: false }),
            want: AttrMask::STAT,
        };
        let mut made = self.with(request, |cx| {
            let made = self.backend.create(cx, &handle, name, &how)?;
            self.backend.remove(cx, &handle, name, RemoveKind::NonDirectory)?;
            Ok(made)
        })?;
        made.node.attrs.nlink = 0;
        let file = made.file.ok_or(Errno::IO)?;
        Ok((self.entry(&made.node), self.remember(made.node.handle, file)))
    }

    fn read(&self, request: &Request<'_>, node: NodeId, read: &Read, out: &mut DataSink) -> Result<()> {
        self.enter("read", request)?;
        let bytes = read.bytes as usize;
        self.on_file(request, node, read.file, |cx, file| {
            let mut result = Ok(());
            out.fill(bytes, |into| match self.backend.read(cx, file, read.offset, into) {
                Ok(read) => read.bytes,
                Err(why) => {
                    result = Err(why);
                    0
                }
            });
            result
        })
    }

    fn write(&self, request: &Request<'_>, node: NodeId, write: &Write<'_>) -> Result<u32> {
        self.enter("write", request)?;
        let at = WriteAt { offset: write.offset, stability: Stability::Unstable, want_change: false };
        let written =
            self.on_file(request, node, write.file, |cx, file| self.backend.write(cx, file, at, write.data))?;
        u32::try_from(written.bytes).map_err(|_| Errno::IO)
    }

    fn flush(&self, request: &Request<'_>, node: NodeId, flush: &Flush) -> Result<()> {
        // Locks end whoever closes.
        self.locks.drop_owner(node, flush.lock_owner);
        // Only who would wait asks: it costs more than the flush.
        if self.gates.is_closed("flush") && request.is_caller_exiting() {
            self.was_exiting.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        self.enter("flush", request)?;
        if self.manner.no_flush { Err(Errno::NOSYS) } else { Ok(()) }
    }

    fn release(&self, request: &Request<'_>, node: NodeId, release: &Release) {
        // It cannot be interrupted; a gate would hold it until opened.
        let _ = self.enter("release", request);
        self.locks.drop_file(node, release.file);
        self.opens.lock().remove(&release.file.0);
    }

    fn fsync(&self, request: &Request<'_>, _: NodeId, _: FileHandle, _: SyncWhat) -> Result<()> {
        self.enter("fsync", request)
    }

    fn opendir(&self, request: &Request<'_>, _: NodeId, _: &Open) -> Result<Opened> {
        self.enter("opendir", request)?;
        if self.manner.no_open {
            Err(Errno::NOSYS)
        } else {
            Ok(Opened { flags: self.manner.opened_dir, ..Opened::default() })
        }
    }

    fn readdir(&self, request: &Request<'_>, node: NodeId, read: &Read, out: &mut DirSink<'_>) -> Result<()> {
        self.list("readdir", request, node, read, out)
    }

    fn readdirplus(
        &self,
        request: &Request<'_>,
        node: NodeId,
        read: &Read,
        out: &mut DirSink<'_>,
    ) -> Result<()> {
        self.list("readdirplus", request, node, read, out)
    }

    fn fsyncdir(&self, request: &Request<'_>, _: NodeId, _: FileHandle, _: SyncWhat) -> Result<()> {
        self.enter("fsyncdir", request)
    }

    fn statfs(&self, request: &Request<'_>, node: NodeId) -> Result<Statfs> {
        self.enter("statfs", request)?;
        let handle = self.handle(node)?;
        let usage = self.with(request, |cx| self.backend.usage(cx, &handle))?;
        Ok(Statfs {
            blocks: usage.bytes_total / 4096,
            blocks_free: usage.bytes_free / 4096,
            blocks_available: usage.bytes_available / 4096,
            files: usage.files_total,
            files_free: usage.files_free,
            block_bytes: 4096,
            fragment_bytes: 4096,
            name_bytes_max: 255,
        })
    }

    fn getxattr(&self, request: &Request<'_>, node: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.enter("getxattr", request)?;
        if self.manner.no_xattrs {
            return Err(Errno::NOSYS);
        }
        let handle = self.handle(node)?;
        self.with(request, |cx| self.backend.getxattr(cx, &handle, name))
    }

    fn setxattr(&self, request: &Request<'_>, node: NodeId, set: &SetXattr<'_>) -> Result<()> {
        let handle = self.handle(node)?;
        let mode = match set.mode {
            XattrMode::Either => holdfast_vfs::XattrMode::Either,
            XattrMode::Create => holdfast_vfs::XattrMode::Create,
            XattrMode::Replace => holdfast_vfs::XattrMode::Replace,
        };
        if set.name.starts_with(b"system.") {
            return Err(Errno::OPNOTSUPP);
        }
        self.with(request, |cx| self.backend.setxattr(cx, &handle, set.name, set.value, mode)).map(drop)
    }

    fn listxattr(&self, request: &Request<'_>, node: NodeId) -> Result<Vec<u8>> {
        let handle = self.handle(node)?;
        let names = self.with(request, |cx| self.backend.listxattr(cx, &handle))?;
        Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect())
    }

    fn removexattr(&self, request: &Request<'_>, node: NodeId, name: &[u8]) -> Result<()> {
        let handle = self.handle(node)?;
        self.with(request, |cx| self.backend.removexattr(cx, &handle, name)).map(drop)
    }

    fn getlk(&self, _: &Request<'_>, node: NodeId, ask: &LockAsk) -> Result<Option<LockSpan>> {
        Ok(self.locks.conflict(node, ask))
    }

    fn setlk(&self, _: &Request<'_>, node: NodeId, ask: &LockAsk) -> Result<()> {
        if self.locks.take(node, ask) { Ok(()) } else { Err(Errno::AGAIN) }
    }

    fn setlkw(&self, request: &Request<'_>, node: NodeId, ask: &LockAsk) -> Result<()> {
        self.enter("setlkw", request)?;
        if self.locks.take(node, ask) {
            return Ok(());
        }
        request.will_wait();
        self.locks.take_waiting(node, ask, &request.interrupt())
    }

    fn fallocate(&self, request: &Request<'_>, node: NodeId, what: &Fallocate) -> Result<()> {
        let keep = FallocateFlags::KEEP_SIZE;
        let region = match what.mode {
            FallocateFlags::NONE => Region::Allocate,
            mode if mode == keep => Region::AllocateKeepSize,
            mode if mode == keep | FallocateFlags::PUNCH_HOLE => Region::Punch,
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.on_file(request, node, what.file, |cx, file| {
            self.backend.region(cx, file, what.offset, what.length, region)
        })
    }

    fn lseek(
        &self,
        request: &Request<'_>,
        node: NodeId,
        file: FileHandle,
        offset: u64,
        what: SeekFor,
    ) -> Result<u64> {
        let what = match what {
            SeekFor::Data => Seek::Data,
            SeekFor::Hole => Seek::Hole,
        };
        self.on_file(request, node, file, |cx, file| self.backend.seek(cx, file, offset, what))
    }

    fn copy_file_range(&self, request: &Request<'_>, copy: &CopyRange) -> Result<u64> {
        self.enter("copy_file_range", request)?;
        let (from, to) = (self.opened(copy.from_file), self.opened(copy.to_file));
        let (from, to) = (from.ok_or(Errno::BADF)?, to.ok_or(Errno::BADF)?);
        let span = CopySpan { from: copy.from_offset, to: copy.to_offset, bytes: copy.length };
        self.with(request, |cx| {
            self.backend.copy(
                cx,
                File::Open(&from.handle, &from.file),
                File::Open(&to.handle, &to.file),
                span,
            )
        })
    }
}

impl Double {
    fn list(
        &self,
        operation: &'static str,
        request: &Request<'_>,
        node: NodeId,
        read: &Read,
        out: &mut DirSink<'_>,
    ) -> Result<()> {
        self.enter(operation, request)?;
        *self.last_groups.lock() = request.groups().to_vec();
        let handle = self.handle(node)?;
        let attrs = self.with(request, |cx| self.backend.getattr(cx, &handle, AttrMask::STAT))?;
        for (at, dots) in [(0, &b"."[..]), (1, b"..")] {
            let dir = EntryKind::of_mode(libc::S_IFDIR);
            let item = DirItem { name: dots, ino: attrs.fileid, kind: dir, next: at + 1 };
            if read.offset <= at && !out.push(&item, None) {
                return Ok(());
            }
        }
        let from = Cookie(if read.offset <= 2 { 0 } else { read.offset });
        let listing = DirListing { dir: &handle, from, want: Some(AttrMask::STAT) };
        let has_nodes = operation == "readdirplus";
        // Whoever may list a directory may see it through this mount; who owns what is checked by the kernel.
        self.with(request, |cx| {
            self.backend.readdir(cx, listing, &mut |entry| {
                if !out.has_room(entry.name) {
                    return Flow::Stop;
                }
                let Some(Ok(found)) = entry.node else { return Flow::Continue };
                let kind = EntryKind::of_mode(kind_bits(found.attrs.kind));
                let item = DirItem { name: entry.name, ino: entry.fileid, kind, next: entry.next.0 };
                let known = has_nodes.then(|| self.entry(&found));
                out.push(&item, known.as_ref());
                Flow::Continue
            })
        })
        .map(drop)
    }
}
