//! Regular files: opening, creating, reading and writing, with NFS's exceptions from POSIX.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use holdfast_vfs::{
    AttrMask, Attrs, CreateHow, CreateMode, Created, Cx, File, FileKind, FileSpan, FsError, FsResult, Handle,
    Name, Node, OpenMode, Read, SetAttrs, Wait, WriteAt, Written, attrs_if_any,
};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat, statx};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags};

use crate::errors::fs_error;
use crate::exclusive::made_with;
use crate::failpoint;
use crate::filesystem::LOOK;
use crate::local::{Keep, LocalBackend};
use crate::looks::{self, Begun};
use crate::marks::Changing;
use crate::object::{For, Object};
use crate::opening::{Opening, local_file, open_flags};
use crate::residency;
use crate::sys;

/// How often a create starts anew when the name comes and goes under it.
const CREATE_TRIES: usize = 8;

/// Neither for reading nor for writing (open(2), "access mode 3"): such a descriptor of a file keeps nobody from a lease on
/// it or from running it, as an `O_PATH` one, but can have made it.
const FOR_NEITHER: OFlags = OFlags::ACCMODE;

/// A file that was made, and a look at it as it is now.
pub(crate) struct Made {
    pub(crate) object: Arc<Object>,
    pub(crate) st: Statx,
    /// Opened as was asked for; `None` where nothing was, and the one that made the file stays with the object.
    pub(crate) fd: Option<OwnedFd>,
}

impl LocalBackend {
    /// The descriptor for stateless I/O, after judging the caller by the object as `st` shows it.
    pub(crate) fn stateless(
        &self,
        cx: &Cx<'_>,
        object: &Object,
        what: For,
        st: &Statx,
    ) -> FsResult<Arc<OwnedFd>> {
        object.must_be_file()?;
        let need = if what == For::Reading { libc::R_OK } else { libc::W_OK };
        if !object.was_granted(cx.caller, (need, self.identity.can_switch()), st) {
            let judged = {
                let _acting = self.identity.act_as(cx.caller)?;
                sys::has_rights(object.fd(), need)
            };
            let mode =
                OpenMode { read: what == For::Reading, write: what == For::Writing, nfs_exceptions: true };
            match judged {
                Ok(()) => object.note_granted(cx.caller, need, st),
                Err(Errno::ACCESS) if self.is_excepted(cx, object, mode)? => {}
                Err(e) => return Err(fs_error(e)),
            }
        }
        self.io(object, what)
    }

    /// The object and a descriptor to read from; with a look at it, when one had to be taken.
    pub(crate) fn readable(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
    ) -> FsResult<(Arc<Object>, Arc<OwnedFd>, Option<Statx>)> {
        match file {
            File::Open(_, open) => {
                let open = local_file(open)?;
                Ok((Arc::clone(&open.object), Arc::clone(&open.fd), None))
            }
            File::Stateless(handle) => {
                let object = self.resolve(cx.wait, handle)?;
                let st = object.look_shared()?;
                let fd = self.stateless(cx, &object, For::Reading, &st)?;
                Ok((object, fd, Some(st)))
            }
        }
    }

    /// A descriptor to write to.
    pub(crate) fn writable(
        &self,
        cx: &Cx<'_>,
        object: &Arc<Object>,
        file: File<'_>,
    ) -> FsResult<Arc<OwnedFd>> {
        match file {
            File::Open(_, open) => {
                let open = local_file(open)?;
                if open.mode.write { Ok(Arc::clone(&open.fd)) } else { Err(FsError::Access) }
            }
            File::Stateless(_) => self.stateless(cx, object, For::Writing, &object.look()?),
        }
    }

    /// The object of a file, with no descriptor for I/O.
    pub(crate) fn object_of(&self, cx: &Cx<'_>, file: File<'_>) -> FsResult<Arc<Object>> {
        match file {
            File::Open(_, open) => Ok(Arc::clone(&local_file(open)?.object)),
            File::Stateless(handle) => self.resolve(cx.wait, handle),
        }
    }

    pub(crate) fn do_create(
        &self,
        cx: &Cx<'_>,
        dir: &Handle,
        name: Name<'_>,
        how: &CreateHow<'_>,
    ) -> FsResult<Created> {
        let dir = self.resolve(cx.wait, dir)?;
        dir.must_be_dir()?;
        self.may_wait(cx, &dir)?;
        Self::begin_unnamed();
        for _ in 0..CREATE_TRIES {
            if how.mode != CreateMode::MustExist
                && let Some(made) = self.create_new(cx, &dir, name.as_bytes(), how)?
            {
                return Ok(made);
            }
            match self.open_existing(cx, &dir, name.as_bytes(), how) {
                Err(FsError::NotFound) if how.mode != CreateMode::MustExist => {}
                other => return other,
            }
        }
        Err(FsError::Delay)
    }

    /// Makes the file; `None` when the name exists.
    fn create_new(
        &self,
        cx: &Cx<'_>,
        dir: &Arc<Object>,
        name: &[u8],
        how: &CreateHow<'_>,
    ) -> FsResult<Option<Created>> {
        let before = self.before(dir)?;
        let acting = self.identity.act_as(cx.caller)?;
        let mode = self.creation_mode(dir, how.set, 0o600)?;
        let made = match how.mode {
            CreateMode::Exclusive(verifier) => self.make_exclusive(cx, (dir, name), (how, verifier), mode),
            _ => self.make_named(cx, (dir, name), (how.set, how.open), (mode, LOOK)),
        };
        let Some(Made { object, st, fd }) = made? else { return Ok(None) };
        drop(acting);
        self.note_as(&object, &st);
        let attrs = self.attrs_of(&object, &st, how.want);
        let file =
            how.open.zip(fd).map(|(mode, fd)| self.opened(Arc::clone(&object), Opening::own(fd), mode));
        let node = Node { handle: object.handle, attrs };
        Ok(Some(Created { node, dir: self.after(before)?, is_new: true, file }))
    }

    /// Makes the file under its name and gives it then what is left to give. The thread acts as the caller. Where nothing was left the
    /// look at it is for `asked` alone.
    pub(crate) fn make_named(
        &self,
        cx: &Cx<'_>,
        (dir, name): (&Object, &[u8]),
        (set, open): (&SetAttrs, Option<OpenMode>),
        (mode, asked): (Mode, StatxFlags),
    ) -> FsResult<Option<Made>> {
        let has_size = set.size.is_some_and(|size| size > 0);
        let is_kept = open.is_none() && !has_size && dir.fs.nature.kind.opens_for_neither();
        let access = match open {
            Some(mode) => open_flags(mode),
            None if is_kept => FOR_NEITHER,
            None => OFlags::RDWR,
        };
        let flags =
            access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY;
        let opened = self.sparing_as(cx, || match openat(dir.fd(), name, flags, mode) {
            Err(Errno::EXIST) => Ok(None),
            other => other.map(Some).map_err(fs_error),
        });
        let Some(fd) = opened? else { return Ok(None) };
        failpoint::pass();
        let (known, fd) = if is_kept {
            (self.known_by((dir, name), fd, asked), None)
        } else {
            (self.known_by_name((dir, name), &fd, asked), Some(fd))
        };
        let finished = known.and_then(|(object, st)| {
            self.finish_file(cx, (&object, st), fd.as_ref(), (set, open)).map(|st| (object, st))
        });
        match finished {
            Ok((object, st)) => Ok(Some(Made { object, st, fd })),
            Err(e) => self.unmake(cx, (dir, name), e),
        }
    }

    /// Takes in the file that was made under this name, with a look at it for what is asked.
    pub(crate) fn known_by_name(
        &self,
        at: (&Object, &[u8]),
        fd: &OwnedFd,
        asked: StatxFlags,
    ) -> FsResult<(Arc<Object>, Statx)> {
        self.known_by(at, self.proc_fd.path_only(fd)?, asked)
    }

    /// The same by the descriptor that is to stay with it.
    fn known_by(
        &self,
        at: (&Object, &[u8]),
        fd: OwnedFd,
        asked: StatxFlags,
    ) -> FsResult<(Arc<Object>, Statx)> {
        let st = statx(&fd, "", AtFlags::EMPTY_PATH, asked).map_err(fs_error)?;
        self.take_in_seen(at, (fd, st), Keep::Always)
    }

    /// Takes the name of what cannot be used away again.
    pub(crate) fn unmake<T>(
        &self,
        cx: &Cx<'_>,
        (dir, name): (&Object, &[u8]),
        error: FsError,
    ) -> FsResult<T> {
        let _acting = self.identity.act_as(cx.caller)?;
        // The first error tells more than one of cleaning up.
        let _ = rustix::fs::unlinkat(dir.fd(), name, AtFlags::empty());
        Err(error)
    }

    fn finish_file(
        &self,
        cx: &Cx<'_>,
        (object, mut st): (&Object, Statx),
        fd: Option<&OwnedFd>,
        (set, open): (&SetAttrs, Option<OpenMode>),
    ) -> FsResult<Statx> {
        if let Some(size) = set.size.filter(|size| *size > 0) {
            if let Some(fd) = fd.filter(|_| open.is_none_or(|mode| mode.write)) {
                rustix::fs::ftruncate(fd, size).map_err(fs_error)?;
            } else {
                let target = self.proc_fd.reopen(object.fd(), OFlags::WRONLY | OFlags::NONBLOCK)?;
                rustix::fs::ftruncate(&target, size).map_err(fs_error)?;
            }
            st = object.look()?;
        }
        self.finish_new(cx, object, st, set)
    }

    fn open_existing(
        &self,
        cx: &Cx<'_>,
        dir: &Arc<Object>,
        name: &[u8],
        how: &CreateHow<'_>,
    ) -> FsResult<Created> {
        // Nothing is done to the directory, so nobody has to be kept out of it; and the cut below takes the file's
        // own lock, which may be the directory's.
        let before = self.before_unguarded(dir)?;
        let (object, found) = self.child(cx, dir, name, Keep::Always)?;
        match how.mode {
            CreateMode::Guarded => return Err(FsError::Exists),
            CreateMode::Exclusive(verifier) => {
                if object.kind != FileKind::Regular || !made_with(&found, verifier) {
                    return Err(FsError::Exists);
                }
            }
            CreateMode::MustExist | CreateMode::Unchecked => object.must_be_file()?,
        }
        let file = match how.open {
            // Its maker may open it however he asked to, whatever mode it got (as with O_CREAT).
            Some(mode) if matches!(how.mode, CreateMode::Exclusive(_)) => {
                let mode = OpenMode { nfs_exceptions: true, ..mode };
                Some(self.opened(Arc::clone(&object), self.open_judged(cx, &object, mode)?, mode))
            }
            Some(mode) => Some(self.opened(Arc::clone(&object), self.open_judged(cx, &object, mode)?, mode)),
            None => None,
        };
        if how.mode == CreateMode::Unchecked && how.set.size == Some(0) {
            let cut = SetAttrs { size: Some(0), ..SetAttrs::default() };
            let target = match &file {
                Some(open) if how.open.is_some_and(|m| m.write) => File::Open(&object.handle, open),
                _ => File::Stateless(&object.handle),
            };
            self.do_setattr(cx, target, &cut, None)?;
        }
        let attrs = self.look_at(&object, how.want)?;
        let dir = holdfast_vfs::Change {
            before: before.pre,
            after: self.attrs_of(dir, &before.st, AttrMask::ALL),
            is_atomic: true,
        };
        Ok(Created { node: Node { handle: object.handle, attrs }, dir, is_new: false, file })
    }

    pub(crate) fn do_read(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        offset: u64,
        into: &mut [u8],
    ) -> FsResult<Read> {
        let (object, fd, st) = self.readable(cx, file)?;
        let read = read_file(&fd, st, (offset, cx.wait), into);
        looks::was_read(&object);
        read
    }

    /// See [`holdfast_vfs::Backend::read_and_look`]: the look at which the caller is judged does for both.
    pub(crate) fn do_read_and_look(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        offset: u64,
        into: &mut [u8],
    ) -> FsResult<(Read, Option<Attrs>)> {
        let (object, fd, st) = self.readable(cx, file)?;
        let attrs = match &st {
            Some(st) if st.stx_nlink > 0 => Some(self.attrs_of(&object, st, AttrMask::STAT)),
            // What has lost its last name may have to be let go.
            _ => attrs_if_any(self.do_getattr(cx, file.handle(), AttrMask::STAT))?,
        };
        let read = read_file(&fd, st, (offset, cx.wait), into);
        looks::was_read(&object);
        Ok((read?, attrs))
    }

    pub(crate) fn do_read_span(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        offset: u64,
        bytes: usize,
    ) -> FsResult<Option<FileSpan>> {
        let (object, fd, st) = self.readable(cx, file)?;
        // It may be read later than this: its time of last access is then shown late (`LISTING_PAGE_SECONDS_MAX`).
        looks::was_read(&object);
        let size = st.map_or_else(|| looks::size_of(&fd), |st| Ok(st.stx_size))?;
        let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = bytes.min(left);
        match cx.wait {
            Wait::No | Wait::Journal if bytes > 0 => {
                // One byte at both ends tells what is still on its way from the disk.
                for at in [offset, offset + bytes as u64 - 1] {
                    read_some(&fd, at, &mut [0], Wait::No)?;
                }
                if residency::has_gap(&fd, offset, bytes as u64) {
                    return Err(FsError::WouldBlock);
                }
            }
            Wait::No | Wait::Journal => {}
            // It may be sent by somebody who must not wait.
            Wait::Yes | Wait::Disk => residency::bring_in(&fd, offset, bytes)?,
        }
        Ok(Some(FileSpan { fd, offset, bytes, is_eof: offset + bytes as u64 >= size }))
    }

    pub(crate) fn do_write(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        at: WriteAt,
        data: &[u8],
    ) -> FsResult<Written> {
        let object = self.object_of(cx, file)?;
        let (writes, before, _changing) = match (file, at.want_change) {
            (File::Open(..), false) => (None, None, Some(Changing::of(&object))),
            _ => {
                let (writes, before) = self.before_write(&object)?;
                (Some(writes), Some(before), None)
            }
        };
        let fd = match (file, &before) {
            (File::Stateless(_), Some(before)) => self.stateless(cx, &object, For::Writing, &before.st)?,
            _ => self.writable(cx, &object, file)?,
        };
        if i64::try_from(at.offset.saturating_add(data.len() as u64)).is_err() {
            return Err(FsError::TooBig);
        }
        let size = || before.as_ref().map_or_else(|| looks::size_of(&fd), |before| Ok(before.st.stx_size));
        if !cx.wait.may_last() && residency::reads_first(&fd, (at.offset, data.len() as u64), size)? {
            return Err(FsError::WouldBlock);
        }
        let written = {
            let _acting = self.identity.act_as(cx.caller)?;
            write_all(&fd, at.offset, data)
        };
        // After the write, so that a commit that comes between cannot take the mark away; whatever the outcome,
        // since a part may have been written.
        self.mark_dirty(&object, &fd)?;
        let bytes = written?;
        let change = match before {
            Some(before) if at.want_change => Some(self.after(before)?),
            before => {
                self.note_change(&object);
                let begun = before.map(Begun::from);
                if let (Some(writes), Some(begun)) = (writes, begun) {
                    writes.go_on(begun);
                }
                None
            }
        };
        Ok(Written { bytes, change })
    }
}

fn read_file(
    fd: &OwnedFd,
    st: Option<Statx>,
    (offset, wait): (u64, Wait),
    into: &mut [u8],
) -> FsResult<Read> {
    // Linux counts bytes up to 2^63 - 1 and takes a range beyond for an error, not for the file's end.
    let within = usize::try_from((i64::MAX as u64).saturating_sub(offset)).unwrap_or(usize::MAX);
    let within = within.min(into.len());
    let into = &mut into[..within];
    if into.is_empty() {
        return Ok(Read { bytes: 0, is_eof: offset >= looks::size_of(fd)? });
    }
    let mut bytes = read_some(fd, offset, into, wait)?;
    let asked = into.len();
    while bytes < asked {
        // Short: the end, or the rest is not in memory.
        let at = offset + bytes as u64;
        let more = match read_some(fd, at, &mut into[bytes..], wait) {
            Err(FsError::WouldBlock) if at >= looks::size_of(fd)? => 0,
            other => other?,
        };
        if more == 0 {
            return Ok(Read { bytes, is_eof: true });
        }
        bytes += more;
    }
    let end = offset + bytes as u64;
    let size = match st {
        // What the look showed is as good as a later one, unless the read went beyond it: the file grew.
        Some(st) if end <= st.stx_size => st.stx_size,
        _ => looks::size_of(fd)?,
    };
    Ok(Read { bytes, is_eof: end >= size })
}

fn read_some(fd: &OwnedFd, offset: u64, into: &mut [u8], wait: Wait) -> FsResult<usize> {
    loop {
        let done = match wait {
            Wait::Yes | Wait::Disk => rustix::io::pread(fd, &mut *into, offset),
            Wait::No | Wait::Journal => {
                let read =
                    rustix::io::preadv2(fd, &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT);
                match read {
                    // tmpfs has no such flag, and nothing to wait for.
                    Err(Errno::OPNOTSUPP) => rustix::io::pread(fd, &mut *into, offset),
                    other => other,
                }
            }
        };
        match done {
            Err(Errno::INTR) => {}
            other => return other.map_err(fs_error),
        }
    }
}

/// Writes until all is written or space runs out after something was.
pub(crate) fn write_all(fd: &OwnedFd, offset: u64, data: &[u8]) -> FsResult<usize> {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(fd, &data[done..], offset + done as u64) {
            Ok(0) => return if done > 0 { Ok(done) } else { Err(FsError::Io) },
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(_) if done > 0 => return Ok(done),
            Err(e) => return Err(fs_error(e)),
        }
    }
    Ok(done)
}
