//! The seam between protocols and file systems.
//!
//! Concurrency: every method may be called from any thread at any time; a backend orders what must be ordered
//! itself, as a kernel file system does. With [`crate::Wait::No`] a method that would wait for a disk or a peer
//! answers [`FsError::WouldBlock`] and has changed nothing; each method says how likely that is.
//!
//! Durability: a mutation that returned is visible to all but not yet durable. It becomes so by
//! [`Backend::commit`], which callers batch: see `docs/durability.md`.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use holdfast_base::ByteRange;

use crate::attrs::{AccessMask, AttrMask, Attrs, Change, FileKind, FsLimits, FsUsage, Rights, SetAttrs};
use crate::caller::Cx;
use crate::data::{FileSpan, Lend, Touched, WriteAt};
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::handover::ArrivedFile;
use crate::listing::{DirEntry, DirListing, Flow, ListEnd};
use crate::lists::{ACCESS_LIST, AccessLists, DEFAULT_LIST};
use crate::making::{CreateHow, NewNode};
use crate::name::Name;
use crate::open::{
    Advice, Advised, Appended, CopySpan, CreateMode, Created, CtimeGuard, File, FileObject, LockKind,
    LockedBy, NewFile, Node, OpenMode, Read, Region, RemoveKind, Removed, RenameFlags, Seek, Spare,
    Stability, Written, XattrMode,
};
use crate::page::{Grounds, Page, PageKey};
use crate::pledge::{HeldPledge, LocalListener, NobodyThere, Pledge};

/// Whether a name stands for an object.
///
/// # Errors
/// [`FsError::NotFound`] where there is no such name; those of [`Backend::named`].
pub fn stands_for<B: Backend + ?Sized>(
    backend: &B,
    cx: &Cx<'_>,
    (dir, name): (&Handle, Name<'_>),
    object: &Handle,
) -> FsResult<bool> {
    backend.named(cx, dir, name)?.map(|there| there == *object).ok_or(FsError::NotFound)
}

/// Whether nothing leads any more to an object that has just lost a name: that was its last one, or it is a directory.
pub fn is_gone<B: Backend + ?Sized>(backend: &B, cx: &Cx<'_>, object: &Handle) -> bool {
    match backend.getattr(cx, object, AttrMask::STAT) {
        Ok(left) => left.nlink == 0 || left.kind == FileKind::Directory,
        Err(FsError::Stale | FsError::NotFound) => true,
        Err(_) => false,
    }
}

/// A file system, or several below one directory, addressed by persistent handles.
pub trait Backend: Send + Sync {
    /// The exported directory itself. Does not wait.
    ///
    /// # Errors
    /// [`FsError::Stale`] when it vanished.
    fn root(&self) -> FsResult<Handle>;

    /// Attributes of an object. Rarely waits: an inode that is in memory does not.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::BadHandle`].
    fn getattr(&self, cx: &Cx<'_>, object: &Handle, want: AttrMask) -> FsResult<Attrs>;

    /// Changes attributes; a size needs write permission, with NFS's exceptions when `file` is stateless.
    /// Waits like a mutation. All of the set is applied, or none where the file system allows. A symbolic link's
    /// mode is ignored.
    ///
    /// # Errors
    /// [`FsError::NotSync`] when the guard differs, [`FsError::Perm`], [`FsError::Access`],
    /// [`FsError::Invalid`] for a size on what is no regular file, [`FsError::IsDir`] on a directory.
    fn setattr(&self, cx: &Cx<'_>, file: File<'_>, set: &SetAttrs, guard: CtimeGuard) -> FsResult<Change>;

    /// Finds a name. Crosses into a file system mounted there, where the export allows. May wait for a cold
    /// directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDir`], [`FsError::IsSymlink`] when `dir` is a symbolic link,
    /// [`FsError::Access`].
    fn lookup(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, want: AttrMask) -> FsResult<Node>;

    /// What a name stands for, for who is about to change it and wants no more than the handle; `None` where it is free.
    ///
    /// # Errors
    /// Those of [`Backend::lookup`] but [`FsError::NotFound`].
    fn named(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>) -> FsResult<Option<Handle>> {
        match self.lookup(cx, dir, name, AttrMask::NONE) {
            Ok(node) => Ok(Some(node.handle)),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The directory above. Of the exported directory itself: [`FsError::NotFound`], so that nobody climbs out.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotDir`], [`FsError::Access`].
    fn parent(&self, cx: &Cx<'_>, dir: &Handle, want: AttrMask) -> FsResult<Node>;

    /// Which of these rights the caller has, and which of them mean anything here. Does not fail for lack of them.
    ///
    /// # Errors
    /// [`FsError::Stale`].
    fn access(&self, cx: &Cx<'_>, object: &Handle, asked: AccessMask) -> FsResult<Rights>;

    /// A symbolic link's text.
    ///
    /// # Errors
    /// [`FsError::WrongKind`] for what is no symbolic link.
    fn readlink(&self, cx: &Cx<'_>, link: &Handle) -> FsResult<Vec<u8>>;

    /// Gives entries to `take` in cookie order until it stops or the directory ends. Each entry that is there
    /// throughout is given exactly once to a caller that goes on from the last cookie it took.
    ///
    /// # Errors
    /// [`FsError::BadCookie`], [`FsError::NotDir`], [`FsError::Access`].
    fn readdir(
        &self,
        cx: &Cx<'_>,
        listing: DirListing<'_>,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd>;

    /// [`Backend::readdir`] that notes what it rests on, for [`Backend::keep_page`].
    ///
    /// # Errors
    /// Those of [`Backend::readdir`].
    fn readdir_on(
        &self,
        cx: &Cx<'_>,
        listing: DirListing<'_>,
        grounds: &mut Grounds,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        grounds.refuse();
        self.readdir(cx, listing, take)
    }

    /// Part of a listing that was kept, if the caller may list the directory and would be shown exactly that. Never
    /// waits.
    fn kept_page(&self, cx: &Cx<'_>, dir: &Handle, key: &PageKey) -> Option<Arc<Page>> {
        let _ = (cx, dir, key);
        None
    }

    /// Gives part of a listing to be kept, with what [`Backend::readdir_on`] noted while it was made. Whether it is
    /// kept, and for how long, is the backend's affair.
    fn keep_page(&self, dir: &Handle, key: &PageKey, page: (Page, Grounds)) {
        let _ = (dir, key, page);
    }

    /// Opens or makes a regular file by name, and opens it when `open` says how. Attributes are applied to a
    /// new file before anybody can see it with others, where the file system allows. Waits like a mutation.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::NotFound`], [`FsError::IsDir`], [`FsError::IsSymlink`],
    /// [`FsError::WrongKind`] for devices, sockets and pipes, [`FsError::NoSpace`], [`FsError::Quota`].
    fn create(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, how: &CreateHow<'_>) -> FsResult<Created>;

    /// As [`Backend::create`] of a name that must be new ([`CreateMode::Guarded`]), for who need not know how the file and the directory
    /// look before and after: a backend that overrides it does without those looks.
    ///
    /// # Errors
    /// Those of [`Backend::create`].
    fn make_file(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        (set, open): (&SetAttrs, Option<OpenMode>),
    ) -> FsResult<NewFile> {
        let how = CreateHow { mode: CreateMode::Guarded, set, open, want: AttrMask::NONE };
        let Created { node, file, .. } = self.create(cx, dir, name, &how)?;
        Ok(NewFile { handle: node.handle, file })
    }

    /// Makes anything but a regular file. Waits like a mutation.
    ///
    /// # Errors
    /// [`FsError::Exists`] and the file system's own.
    fn make(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        what: NewNode<'_>,
        set: &SetAttrs,
    ) -> FsResult<(Node, Change)>;

    /// Makes a regular file without a name, as if it were made in a directory: with the group, the access list and the
    /// project that it would have there. It lives while it is open, beginning with the open file that comes along; its owner
    /// opens it whatever its mode, and [`Backend::link`] may give it a name. Waits like a mutation.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] where the file system has no such files, or no handles of them; [`FsError::NotDir`],
    /// [`FsError::Access`], [`FsError::NoSpace`], [`FsError::Quota`].
    fn make_nameless(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        set: &SetAttrs,
    ) -> FsResult<(Node, Arc<dyn FileObject>)> {
        let _ = (cx, dir, set);
        Err(FsError::NotSupported)
    }

    /// Makes a regular file for a create to come: without a name, as the caller, with what the directory gives to what is
    /// made in it and with all permissions that it lets a file have. Waits like a mutation.
    ///
    /// # Errors
    /// As [`Backend::make_nameless`]; [`FsError::NotSupported`] as well where the directory hands on what a file cannot be
    /// given later (a project).
    fn make_spare(&self, cx: &Cx<'_>, dir: &Handle) -> FsResult<Spare> {
        let _ = (cx, dir);
        Err(FsError::NotSupported)
    }

    /// What a directory decides about what is made in it: who owns it, its mode, its default access list. As a number,
    /// which is another when any of that is. A spare file that was made while it was another is not to be used.
    ///
    /// # Errors
    /// As [`Backend::getattr`]; [`FsError::NotSupported`] where there are no spare files.
    fn heritage(&self, cx: &Cx<'_>, dir: &Handle) -> FsResult<u64> {
        let _ = (cx, dir);
        Err(FsError::NotSupported)
    }

    /// Makes a spare file the one that a guarded create of this name with `set` makes, but for when it was born: what was
    /// written to it by then is its content. It has all that `set` says before it has the name. The caller is whom it was
    /// made for. The directory's change. Waits like a mutation.
    ///
    /// # Errors
    /// [`FsError::Exists`], the file system's own, and [`FsError::NotSupported`] for what only a create can do: an owner, a
    /// group, bits of the mode besides those of permission. It may have been changed then, and may be tried again with
    /// another name and the same `set`.
    fn place(
        &self,
        cx: &Cx<'_>,
        spare: &Spare,
        dir: &Handle,
        name: Name<'_>,
        set: &SetAttrs,
    ) -> FsResult<Change> {
        let _ = (cx, spare, dir, name, set);
        Err(FsError::NotSupported)
    }

    /// Gives an object another name. The directory's change, and the object's attributes afterwards. Waits like
    /// a mutation.
    ///
    /// # Errors
    /// [`FsError::Exists`], [`FsError::IsDir`] for directories, [`FsError::CrossDevice`],
    /// [`FsError::TooManyLinks`].
    fn link(&self, cx: &Cx<'_>, object: &Handle, dir: &Handle, name: Name<'_>) -> FsResult<(Change, Attrs)>;

    /// Renames. Changes of the source's and of the target's directory, in this order (equal when one). Waits
    /// like a mutation.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::Exists`], [`FsError::NotEmpty`], [`FsError::CrossDevice`],
    /// [`FsError::Invalid`] when a directory would go below itself.
    fn rename(
        &self,
        cx: &Cx<'_>,
        from: (&Handle, Name<'_>),
        to: (&Handle, Name<'_>),
        flags: RenameFlags,
    ) -> FsResult<(Change, Change)>;

    /// Removes a name. Waits like a mutation.
    ///
    /// # Errors
    /// [`FsError::NotFound`], [`FsError::NotEmpty`], [`FsError::IsDir`], [`FsError::NotDir`], [`FsError::Busy`].
    fn remove(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>, kind: RemoveKind) -> FsResult<Change>;

    /// Removes a name that has to stand for `victim`; where it stands for something else, `None`, and nothing was done.
    /// That no other client gives the name away between the look and the removal is the guard's affair; a local process
    /// may, for no file system removes a name by what it stands for.
    ///
    /// # Errors
    /// Those of [`Backend::remove`].
    fn remove_seen(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        kind: RemoveKind,
        victim: &Handle,
    ) -> FsResult<Option<Removed>> {
        if !stands_for(self, cx, (dir, name), victim)? {
            return Ok(None);
        }
        self.remove(cx, dir, name, kind)?;
        Ok(Some(Removed { is_gone: is_gone(self, cx, victim) }))
    }

    /// Opens a regular file, checking permissions once for all I/O through it.
    ///
    /// # Errors
    /// [`FsError::Access`], [`FsError::IsDir`], [`FsError::IsSymlink`], [`FsError::WrongKind`],
    /// [`FsError::ReadOnly`].
    fn open(&self, cx: &Cx<'_>, file: &Handle, mode: OpenMode) -> FsResult<Arc<dyn FileObject>>;

    /// Reads into `into`. Waits when the data is not in memory.
    ///
    /// # Errors
    /// [`FsError::Io`], [`FsError::IsDir`], [`FsError::WrongKind`], [`FsError::Access`].
    fn read(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, into: &mut [u8]) -> FsResult<Read>;

    /// As [`Backend::read`], with the attributes of [`AttrMask::STAT`] as they were before it, for who has to tell of both;
    /// none where only those cannot be had. A backend that looks at the file anyhow does so once.
    ///
    /// # Errors
    /// Those of [`Backend::read`], and [`FsError::WouldBlock`] of [`Backend::getattr`].
    fn read_and_look(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        offset: u64,
        into: &mut [u8],
    ) -> FsResult<(Read, Option<Attrs>)> {
        let attrs = attrs_if_any(self.getattr(cx, file.handle(), AttrMask::STAT))?;
        Ok((self.read(cx, file, offset, into)?, attrs))
    }

    /// The same stretch as a descriptor to send from, when this backend has descriptors and the stretch is in
    /// memory or waiting is allowed; `None` when reading into memory is the way.
    ///
    /// # Errors
    /// Those of [`Backend::read`].
    fn read_span(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, bytes: usize)
    -> FsResult<Option<FileSpan>>;

    /// Writes into the file system's cache. `want_change` asks for the file before and after (NFSv3's wcc), at
    /// the price of two looks. Of writes to one file that came together ([`holdfast_base::batch`]) the last may tell what
    /// all have done, if nobody else has changed it meanwhile: then only it asks. Seldom waits. Never durable by itself: the caller commits what was to be stable.
    ///
    /// # Errors
    /// [`FsError::NoSpace`], [`FsError::Quota`], [`FsError::TooBig`], [`FsError::Io`], [`FsError::Access`].
    fn write(&self, cx: &Cx<'_>, file: File<'_>, at: WriteAt, data: &[u8]) -> FsResult<Written>;

    /// Gives a file that was made a moment ago its first bytes, and then the attributes that writing them has changed; nobody is told
    /// how it looked in between. Fewer bytes than there are to write: [`FsError::NoSpace`]. Otherwise as [`Backend::write`] and
    /// [`Backend::setattr`], which it does with one look less each where a backend overrides it.
    ///
    /// # Errors
    /// Those of both. Bytes may have been written.
    fn write_first(&self, cx: &Cx<'_>, file: File<'_>, data: &[u8], set: &SetAttrs) -> FsResult<()> {
        let mut done = 0;
        while done < data.len() {
            let (offset, stability) = (done as u64, Stability::Unstable);
            let at = WriteAt { offset, stability, want_change: false };
            match self.write(cx, file, at, &data[done..])?.bytes {
                0 => return Err(FsError::NoSpace),
                bytes => done += bytes,
            }
        }
        if *set == SetAttrs::default() { Ok(()) } else { self.setattr(cx, file, set, None).map(drop) }
    }

    /// Writes at the end of a file, where that is when it is written: `about_to` is told the place before, and what it fails
    /// with is what comes of it. Otherwise as [`Backend::write`].
    ///
    /// As it stands here it is a look and a write: whoever guards the backend lets no other append of the file come between, and
    /// a backend that knows better overrides it.
    ///
    /// # Errors
    /// Those of [`Backend::write`].
    fn append(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        data: &[u8],
        about_to: &mut dyn FnMut(u64) -> FsResult<()>,
    ) -> FsResult<Appended> {
        let offset = self.getattr(cx, file.handle(), AttrMask::STAT)?.size;
        about_to(offset)?;
        let at = WriteAt { offset, stability: Stability::Unstable, want_change: false };
        Ok(Appended { offset, bytes: self.write(cx, file, at, data)?.bytes })
    }

    /// Makes durable all completed changes of these objects, one result an object: an error of write-back
    /// belongs to the file it befell. Waits: never call it inline. One call may be far cheaper than many.
    fn commit(&self, touched: &[Touched], results: &mut [FsResult<()>]);

    /// As [`Backend::commit`], making durable with the same force, and not after what was touched, all that was written to
    /// a file of the server's own before the call; what came of that is returned. `None` when one force does not do both:
    /// then nothing was done. All objects are of one domain ([`Backend::commit_domain`]). Waits.
    fn commit_with(
        &self,
        own: BorrowedFd<'_>,
        touched: &[Touched],
        results: &mut [FsResult<()>],
    ) -> Option<FsResult<()>> {
        let _ = (own, touched, results);
        None
    }

    /// How many times what was promised to some client has ended so far. To be asked before a call with [`crate::Wait::Disk`].
    fn recalls_ended(&self) -> u64 {
        0
    }

    /// Waits until something promised ends that had not when `seen` was counted, for `ms` milliseconds at most. False when
    /// nothing did, or when this thread cannot be spared.
    fn await_recall(&self, seen: u64, ms: u64) -> bool {
        let _ = (seen, ms);
        false
    }

    /// Which commits can share one force: objects of one file system give the same number. Does not wait.
    fn commit_domain(&self, object: &Handle) -> u64;

    /// The write verifier: another after a restart, and after data that was written but not committed may have
    /// been lost (RFC 1813 section 3.3.7).
    fn write_verifier(&self) -> [u8; 8];

    /// The next data or hole at or after `offset`.
    ///
    /// # Errors
    /// [`FsError::NoDevice`] when `offset` is at or beyond the end of the file, or no data follows.
    fn seek(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, what: Seek) -> FsResult<u64>;

    /// Reserves, frees or zeroes a region. Waits like a mutation.
    ///
    /// # Errors
    /// [`FsError::NotSupported`], [`FsError::NoSpace`], [`FsError::Quota`], [`FsError::TooBig`].
    fn region(&self, cx: &Cx<'_>, file: File<'_>, offset: u64, bytes: u64, what: Region) -> FsResult<()>;

    /// Hears what somebody who may read a file, or write it, is about to do with a range of it. Nothing of that is seen but by its
    /// speed. Waits when it is followed; never for a disk to take what was written.
    ///
    /// # Errors
    /// [`FsError::Access`], [`FsError::IsDir`], [`FsError::WrongKind`].
    fn advise(&self, cx: &Cx<'_>, file: File<'_>, range: ByteRange, what: Advice) -> FsResult<Advised> {
        let _ = (cx, file, range, what);
        Ok(Advised::NotFollowed)
    }

    /// Copies within the backend, sharing blocks where it can; returns bytes copied, perhaps fewer than asked.
    /// Waits: never call it inline.
    ///
    /// # Errors
    /// [`FsError::CrossDevice`], [`FsError::NoSpace`], [`FsError::Invalid`] for overlapping spans of one file.
    fn copy(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<u64>;

    /// Shares blocks (reflink): all or nothing.
    ///
    /// # Errors
    /// [`FsError::NotSupported`], [`FsError::CrossDevice`], [`FsError::Invalid`] when not aligned.
    fn clone_range(&self, cx: &Cx<'_>, from: File<'_>, to: File<'_>, span: CopySpan) -> FsResult<()>;

    /// The value of an extended attribute, by its full name (`user.…`).
    ///
    /// # Errors
    /// [`FsError::NoXattr`], [`FsError::NotSupported`], [`FsError::Access`].
    fn getxattr(&self, cx: &Cx<'_>, object: &Handle, name: &[u8]) -> FsResult<Vec<u8>>;

    /// Sets an extended attribute. Waits like a mutation.
    ///
    /// # Errors
    /// [`FsError::Exists`] and [`FsError::NoXattr`] by mode, [`FsError::NoSpace`], [`FsError::XattrTooBig`].
    fn setxattr(
        &self,
        cx: &Cx<'_>,
        object: &Handle,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<Change>;

    /// Full names of all extended attributes that the caller may see.
    ///
    /// # Errors
    /// [`FsError::NotSupported`], [`FsError::Access`].
    fn listxattr(&self, cx: &Cx<'_>, object: &Handle) -> FsResult<Vec<Vec<u8>>>;

    /// Which access lists an object has. A link has none. Through an open file it costs less.
    ///
    /// # Errors
    /// Those of [`Backend::getxattr`] that do not say that there is none.
    fn access_lists(&self, cx: &Cx<'_>, object: File<'_>) -> FsResult<AccessLists> {
        let has = |list: &[u8]| match self.getxattr(cx, object.handle(), list) {
            Err(FsError::NoXattr | FsError::NotSupported) => Ok(false),
            list => list.map(|list| !list.is_empty()),
        };
        Ok(AccessLists { access: has(ACCESS_LIST)?, default: has(DEFAULT_LIST)? })
    }

    /// Removes an extended attribute. Waits like a mutation.
    ///
    /// # Errors
    /// [`FsError::NoXattr`].
    fn removexattr(&self, cx: &Cx<'_>, object: &Handle, name: &[u8]) -> FsResult<Change>;

    /// Whether an object may lie on other hosts as well, as on a network file system: who vouches for the processes of this
    /// host has not vouched for theirs, and locks are to be taken even where no process of this host looks at them. Asks
    /// nobody.
    ///
    /// The default holds for file systems that nobody can reach but through this host.
    fn may_be_on_other_hosts(&self, object: &Handle) -> bool {
        let _ = object;
        false
    }

    /// Takes a lock for the open file against everybody outside this server, replacing what the same open file
    /// holds in the range. One of the whole file meets a local process's `flock` as well, as far as there are any. Never waits
    /// for the holder. The state engine has granted it within the server.
    ///
    /// # Errors
    /// [`FsError::Locked`] when somebody outside holds a conflicting one.
    fn lock(&self, file: &Arc<dyn FileObject>, range: ByteRange, kind: LockKind) -> FsResult<()>;

    /// Lets go of a range.
    ///
    /// # Errors
    /// [`FsError::Io`].
    fn unlock(&self, file: &Arc<dyn FileObject>, range: ByteRange) -> FsResult<()>;

    /// The first lock outside this server that would be in the way of this open file's. What this server holds by
    /// other open files is passed over: the state engine knows it. When those are very many, an outsider's lock may be
    /// passed over with them; to ask by the open file that holds the asker's own locks spares most of the looking.
    ///
    /// # Errors
    /// [`FsError::Io`].
    fn test_lock(
        &self,
        file: &Arc<dyn FileObject>,
        range: ByteRange,
        kind: LockKind,
    ) -> FsResult<Option<LockedBy>>;

    /// Asks to be told, once, when no lock of a local process is in the way of this open file's any more
    /// ([`LocalListener::local_unlock`]). The kernel tells nobody, so the backend looks now and then: with pauses
    /// that grow from [`holdfast_base::limits::LOCAL_UNLOCK_POLL_MS_MIN`] to
    /// [`holdfast_base::limits::LOCAL_UNLOCK_POLL_MS_MAX`]. Forgotten when the open file is closed. Asking again
    /// for the same starts anew. Does not wait.
    ///
    /// # Errors
    /// [`FsError::Delay`] when too many are waited for: the one who waits must ask by himself.
    fn await_unlock(&self, file: &Arc<dyn FileObject>, range: ByteRange, kind: LockKind) -> FsResult<()> {
        let _ = (file, range, kind);
        Err(FsError::Delay)
    }

    /// Holds something against processes on the server's own host. `None` when that cannot be done: then nothing
    /// that relies on it may be promised to anybody. `open` is the open file of whoever asks: for a
    /// [`Pledge::WriteFile`] it must be given, open for writing, and the only open of the file.
    ///
    /// A deed of this server's own through this backend breaks a pledge never by itself: who judges deeds has seen
    /// it. The exception is an open that cannot be had beside the kernel's guard: the guard is given up, which is
    /// told as a local process's deed would be ([`LocalListener::local_deed`]).
    ///
    /// Whoever lets a client have attributes that this backend does not know pledges that first: what was kept by
    /// [`Backend::keep_page`] of an object pledged to be written, or of such a directory, is not shown again.
    ///
    /// May wait for a disk, never for a client.
    ///
    /// The default holds for file systems that nobody on this host can reach but through this backend.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::BadHandle`]; [`FsError::IsDir`], [`FsError::NotDir`] and
    /// [`FsError::WrongKind`] when the object is not of the kind that the pledge is for. ([`Pledge::ReadFile`] is for all but
    /// directories: of a link or a device it holds what is told by looking, for nothing else can change.)
    fn pledge(
        &self,
        object: &Handle,
        what: Pledge,
        open: Option<&Arc<dyn FileObject>>,
    ) -> FsResult<Option<HeldPledge>> {
        let _ = (object, what, open);
        Ok(Some(Box::new(NobodyThere)))
    }

    /// Whether few files more can be guarded for who writes: whoever holds such a promise is asked for it back, the oldest first, before
    /// there is nothing left for new ones. Costs nothing to speak of, and is asked with each promise.
    fn leases_are_scarce(&self) -> bool {
        false
    }

    /// How long the kernel makes a local process wait for a guard to be dropped, in seconds; `None` when no local
    /// process is ever made to wait. Whoever holds a promise longer than that after a deed was told breaks it.
    fn pledge_seconds(&self) -> Option<u64> {
        None
    }

    /// From now on tells `listener` what local processes do to what was pledged, as long as it lives. One at a
    /// time: a second call replaces the first. Where there are no local processes, nothing is ever told.
    fn listen(&self, listener: Weak<dyn LocalListener>) {
        let _ = listener;
    }

    /// Goes on with a file that another process of this server opened ([`FileObject::hand_over`]); its locks are the
    /// open file's still. May wait for a disk.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] where nothing is ever handed over; [`FsError::Stale`] when the file system is not
    /// there any more.
    fn import_file(&self, file: &Handle, arrived: ArrivedFile) -> FsResult<Arc<dyn FileObject>> {
        let _ = (file, arrived);
        Err(FsError::NotSupported)
    }

    /// A descriptor of a regular file, to be used by another process of this host. The caller is judged as by [`Backend::open`]. What is lent for reading cannot be made writable by whoever
    /// has it, not by opening it anew through `/proc` either. `None` where there are no descriptors, or where that cannot
    /// be kept; nothing is lost by it, for [`Backend::read`] and [`Backend::write`] are there. Waits like an open.
    ///
    /// Nobody can take it back: who lends sees to it that the borrower has what it takes to use it.
    ///
    /// # Errors
    /// Those of [`Backend::open`].
    fn lend(&self, cx: &Cx<'_>, file: &Handle, what: Lend) -> FsResult<Option<OwnedFd>> {
        let _ = (cx, file, what);
        Ok(None)
    }

    /// Space and objects of the file system that `object` lies on.
    ///
    /// # Errors
    /// [`FsError::Stale`], [`FsError::Io`].
    fn usage(&self, cx: &Cx<'_>, object: &Handle) -> FsResult<FsUsage>;

    /// What that file system can do and hold. Does not wait.
    ///
    /// # Errors
    /// [`FsError::Stale`].
    fn limits(&self, object: &Handle) -> FsResult<FsLimits>;

    /// How many objects are kept open only to be found faster, and how many there may be; `None` where none are.
    fn cached(&self) -> Option<(usize, usize)> {
        None
    }

    /// Where an object is at the moment, for people to read: the whole path as this host has it, with ` (deleted)`
    /// after the last one it had when it has none any more; one of them when it has several. `None` where nobody
    /// knows. May wait for a disk.
    fn path_of(&self, object: &Handle) -> Option<PathBuf> {
        let _ = object;
        None
    }

    /// Notes that the backend may drop what it caches for idle objects, down to a fraction of its bounds.
    fn shed(&self, keep_percent: u8);

    /// Lets go of some of the idle objects that others than this server have removed, so that their space is free again. To be
    /// called about once a second, by somebody who can wait for a disk.
    fn sweep(&self) {}
}

/// Attributes that go with something else, which does not fail when they cannot be had; unless that is for now, and because
/// waiting is not allowed.
///
/// # Errors
/// [`FsError::WouldBlock`].
pub fn attrs_if_any(attrs: FsResult<Attrs>) -> FsResult<Option<Attrs>> {
    match attrs {
        Ok(attrs) => Ok(Some(attrs)),
        Err(FsError::WouldBlock) => Err(FsError::WouldBlock),
        Err(_) => Ok(None),
    }
}
