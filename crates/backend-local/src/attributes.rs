//! Attributes: looking at them, setting them, and judging access.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::{ChangeId, Timestamp};
use holdfast_vfs::{
    AccessMask, AttrMask, Attrs, Change, CtimeGuard, Cx, Device, File, FileKind, FsError, FsId, FsResult,
    Handle, PreAttrs, Rights, SetAttrs, SetTime,
};
use parking_lot::MutexGuard;
use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, RawDir, Statx, StatxAttributes, StatxFlags, StatxTimestamp, Timestamps, Uid,
    statx,
};
use rustix::io::Errno;

use crate::change::nanos;
use crate::errors::fs_error;
use crate::filesystem::{LOOK, dev_of};
use crate::local::LocalBackend;
use crate::looks::{Begun, Writes};
use crate::marks::Changing;
use crate::mounts::open_below;
use crate::object::{Object, kind_of};
use crate::procfd::FdName;
use crate::sys;
use crate::watch::listed;

/// The moment before a change.
pub(crate) struct Before<'a> {
    object: &'a Object,
    pub(crate) pre: PreAttrs,
    pub(crate) st: Statx,
    /// Keeps others out until the second look; `None` when somebody outside could come between anyhow.
    sole: Option<MutexGuard<'a, ()>>,
    /// Until this is dropped, or the second look is over.
    changing: Option<Changing>,
}

impl From<Before<'_>> for Begun {
    fn from(before: Before<'_>) -> Self {
        Self { pre: before.pre, st: before.st }
    }
}

const fn time(t: StatxTimestamp) -> Timestamp {
    Timestamp { seconds: t.tv_sec, nanos: t.tv_nsec }
}

impl LocalBackend {
    pub(crate) fn change_of(&self, object: &Object, st: &Statx) -> ChangeId {
        let ctime = nanos(time(st.stx_ctime));
        if object.fs.is_multigrain {
            ChangeId(ctime)
        } else {
            self.changes.value((dev_of(st), st.stx_ino), ctime)
        }
    }

    /// Notes that we have just changed an object without looking at it before.
    pub(crate) fn note_change(&self, object: &Object) {
        if !object.fs.is_multigrain
            && let Ok(st) = object.look()
        {
            self.note_as(object, &st);
        }
    }

    /// Notes that we have just made or changed an object, which looks so now.
    pub(crate) fn note_as(&self, object: &Object, st: &Statx) {
        if !object.fs.is_multigrain {
            self.changes.note((dev_of(st), st.stx_ino), nanos(time(st.stx_ctime)));
        }
    }

    /// The same of what has just got this name.
    pub(crate) fn note_named(&self, dir: &Object, name: &[u8]) {
        if !dir.fs.is_multigrain
            && let Ok(st) = statx(dir.fd(), name, AtFlags::SYMLINK_NOFOLLOW, LOOK)
        {
            self.changes.note((dev_of(&st), st.stx_ino), nanos(time(st.stx_ctime)));
        }
    }

    pub(crate) fn attrs_of(&self, object: &Object, st: &Statx, want: AttrMask) -> Attrs {
        let fsid = object.fs.id_of(object.fd(), dev_of(st));
        let mut attrs = plain_attrs(st, fsid);
        if want.contains(AttrMask::CHANGE) {
            attrs.change = self.change_of(object, st);
        }
        if want.contains(AttrMask::MOUNTED_ON)
            && st.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
            && object.handle != self.root.handle
        {
            attrs.mounted_on_fileid = self.covered_fileid(object).unwrap_or(st.stx_ino);
        }
        attrs
    }

    pub(crate) fn look_at(&self, object: &Object, want: AttrMask) -> FsResult<Attrs> {
        Ok(self.attrs_of(object, &object.look()?, want))
    }

    /// The number of the directory that a mounted file system covers: only a listing of its parent tells it.
    fn covered_fileid(&self, object: &Object) -> FsResult<u64> {
        if let Some(ino) = object.fs.covered_ino.get() {
            return Ok(*ino);
        }
        self.identity.as_server();
        let path = self.proc_fd.path_below(object.fd(), self.root_fd())?;
        let (above, name) = match path.iter().rposition(|b| *b == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&path[..0], &path[..]),
        };
        let above = open_below(self.root_fd(), above)?;
        let listing = self.proc_fd.reopen(&above, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut buffer = Vec::with_capacity(holdfast_base::limits::BACKEND_LISTING_BUFFER_BYTES);
        let mut entries = RawDir::new(&listing, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(fs_error)?;
            if entry.file_name().to_bytes() == name {
                return Ok(*object.fs.covered_ino.get_or_init(|| entry.ino()));
            }
        }
        Err(FsError::NotFound)
    }

    pub(crate) fn do_getattr(&self, cx: &Cx<'_>, handle: &Handle, want: AttrMask) -> FsResult<Attrs> {
        let object = self.resolve(cx.wait, handle)?;
        let st = object.seen().map_or_else(|| object.look(), Ok)?;
        if st.stx_nlink > 0 {
            return Ok(self.attrs_of(&object, &st, want));
        }
        // It has lost its last name. Unless somebody has it open, our own descriptor is all that keeps it.
        if object.handle == self.root.handle {
            return Err(FsError::Stale);
        }
        if self.forget(&object) {
            // What a file holds is there for whoever has it open, be that a local process; of a directory nothing is left but
            // what a descriptor of somebody's keeps of it.
            if object.kind == FileKind::Directory {
                return Err(FsError::Stale);
            }
            drop(object);
            let object = self.resolve(cx.wait, handle)?;
            return self.look_at(&object, want);
        }
        Ok(self.attrs_of(&object, &st, want))
    }

    /// Drops our idle descriptor of a removed object, so that its space is freed and its handle gets stale.
    /// `false` when it is open: then the last close does it.
    pub(crate) fn forget(&self, object: &Arc<Object>) -> bool {
        // Whoever closes it looks at this mark afterwards, so it is set before we look who has it.
        object.is_unlinked.store(true, Ordering::SeqCst);
        self.dirty.forget(object);
        if object.opens.load(Ordering::SeqCst) > 0 {
            return false;
        }
        if object.kind == FileKind::Directory {
            listed::forget(object);
            self.listings.forget(&object.handle);
        }
        self.cache.remove(&object.handle);
        true
    }

    /// See [`holdfast_vfs::Backend::sweep`]. Of what is pledged the holder has been told, and opens it before he lets go when he
    /// still wants it: until then it is not for us to say that nobody does.
    pub(crate) fn do_sweep(&self) {
        for object in self.cache.next_idle() {
            let is_removed = || object.look().is_ok_and(|st| st.stx_nlink == 0);
            if object.handle != self.root.handle && is_removed() && !self.watch.has_pledged(&object.handle) {
                self.forget(&object);
            }
        }
    }

    /// The first look of a change. [`FsError::Stale`] for a directory that has been removed.
    pub(crate) fn before<'a>(&'a self, object: &'a Object) -> FsResult<Before<'a>> {
        let sole = self.options.is_sole_writer.then(|| self.stripe(object).lock());
        self.before_under(object, (sole, Some(Changing::of(object))))
    }

    /// The look at a directory that stays as it is.
    pub(crate) fn before_unguarded<'a>(&'a self, object: &'a Object) -> FsResult<Before<'a>> {
        self.before_under(object, (None, None))
    }

    /// The first look of a write: none, where writes that came together began with one.
    pub(crate) fn before_write<'a>(&'a self, object: &'a Object) -> FsResult<(Writes, Before<'a>)> {
        // Asked under the lock, so that nobody changes it meanwhile.
        let sole = self.options.is_sole_writer.then(|| self.stripe(object).lock());
        let (writes, begun) = Writes::of(object);
        let changing = Some(Changing::of(object));
        let before = match begun {
            Some(Begun { pre, st }) => Before { object, pre, st, sole, changing },
            None => self.before_under(object, (sole, changing))?,
        };
        Ok((writes, before))
    }

    fn before_under<'a>(
        &'a self,
        object: &'a Object,
        (sole, changing): (Option<MutexGuard<'a, ()>>, Option<Changing>),
    ) -> FsResult<Before<'a>> {
        let st = object.look()?;
        if st.stx_nlink == 0 && object.kind == FileKind::Directory {
            return Err(FsError::Stale);
        }
        let pre = PreAttrs {
            size: st.stx_size,
            mtime: time(st.stx_mtime),
            ctime: time(st.stx_ctime),
            change: self.change_of(object, &st),
        };
        Ok(Before { object, pre, st, sole, changing })
    }

    /// The first looks at two objects that change together, in the order given.
    pub(crate) fn before_both<'a>(
        &'a self,
        one: &'a Object,
        two: &'a Object,
    ) -> FsResult<(Before<'a>, Before<'a>)> {
        if !self.options.is_sole_writer {
            return Ok((self.before(one)?, self.before(two)?));
        }
        let (a, b) = (self.stripe_index(one), self.stripe_index(two));
        // Always the lower first, so that two renames cannot wait for each other.
        let low = self.stripes[a.min(b)].lock();
        let high = (a != b).then(|| self.stripes[a.max(b)].lock());
        let (one_guard, two_guard) = if a <= b { (Some(low), high) } else { (high, Some(low)) };
        let under = |object, sole| self.before_under(object, (sole, Some(Changing::of(object))));
        let (mut first, mut second) = (under(one, one_guard)?, under(two, two_guard)?);
        if a == b {
            // One lock covers both; it must outlive both second looks, which come in this order.
            second.sole = first.sole.take();
        }
        Ok((first, second))
    }

    fn stripe_index(&self, object: &Object) -> usize {
        object.ino as usize % self.stripes.len()
    }

    pub(crate) fn stripe(&self, object: &Object) -> &parking_lot::Mutex<()> {
        &self.stripes[self.stripe_index(object)]
    }

    /// The second look of a change that was made.
    pub(crate) fn after(&self, before: Before<'_>) -> FsResult<Change> {
        let Before { object, pre, sole, changing, .. } = before;
        let mut st = object.look()?;
        if !object.fs.is_multigrain {
            self.note_as(object, &st);
            st = object.look()?;
        }
        let after = self.attrs_of(object, &st, AttrMask::STAT | AttrMask::CHANGE | AttrMask::BIRTH);
        drop((sole, changing));
        Ok(Change { before: pre, after, is_atomic: self.options.is_sole_writer })
    }

    pub(crate) fn do_setattr(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        set: &SetAttrs,
        guard: CtimeGuard,
    ) -> FsResult<Change> {
        let object = self.resolve(cx.wait, file.handle())?;
        self.may_wait(cx, &object)?;
        if set.size.is_some() {
            match object.kind {
                FileKind::Regular => {}
                FileKind::Directory => return Err(FsError::IsDir),
                _ => return Err(FsError::Invalid),
            }
        }
        // Opened before the owner changes: permission is judged by what the file is now.
        let target = match set.size {
            Some(_) => Some(self.writable(cx, &object, file)?),
            None => None,
        };
        let before = self.before(&object)?;
        if guard.is_some_and(|ctime| ctime != before.pre.ctime) {
            return Err(FsError::NotSync);
        }
        if let (Some(fd), Some(size)) = (&target, set.size) {
            // As the caller, so that set-id bits are cleared as a write clears them; after the owner, which is
            // refused more often than a size.
            let _acting = self.identity.act_as(cx.caller)?;
            set_owner(object.fd(), set)?;
            rustix::fs::ftruncate(&**fd, size).map_err(fs_error)?;
            self.mark_dirty(&object, fd)?;
            self.apply(cx, (object.fd(), object.kind), &SetAttrs { uid: None, gid: None, ..*set })?;
        } else {
            self.apply(cx, (object.fd(), object.kind), set)?;
        }
        self.after(before)
    }

    /// Sets everything but the size. A mode comes after the owner, whose change clears set-id bits, and times
    /// come last, since everything else sets them to now.
    pub(crate) fn apply(
        &self,
        cx: &Cx<'_>,
        (object, kind): (BorrowedFd<'_>, FileKind),
        set: &SetAttrs,
    ) -> FsResult<()> {
        {
            let _acting = self.identity.act_as(cx.caller)?;
            set_owner(object, set)?;
            // The mode of a symbolic link means nothing on Linux, and setting it is ignored, as the kernel's NFS server
            // does: clients that copy trees set it all the same.
            if let Some(mode) = set.mode.filter(|_| kind != FileKind::Symlink) {
                self.set_mode(object, mode)?;
            }
        }
        if set.atime.is_some() || set.mtime.is_some() {
            self.set_times(cx, object, set)?;
        }
        Ok(())
    }

    /// As [`LocalBackend::apply`], of an open file: times without a walk.
    pub(crate) fn apply_open(
        &self,
        cx: &Cx<'_>,
        (file, kind): (&OwnedFd, FileKind),
        set: &SetAttrs,
    ) -> FsResult<()> {
        self.apply(cx, (file.as_fd(), kind), &SetAttrs { atime: None, mtime: None, ..*set })?;
        if set.atime.is_none() && set.mtime.is_none() {
            return Ok(());
        }
        self.set_times_by(cx, file.as_fd(), set, |times| rustix::fs::futimens(file, times))
    }

    fn set_mode(&self, object: BorrowedFd<'_>, mode: u32) -> FsResult<()> {
        match sys::chmod_object(object, mode & 0o7777) {
            Err(Errno::NOSYS) => {
                let name = FdName::new(object);
                let mode = Mode::from_raw_mode(mode & 0o7777);
                rustix::fs::chmodat(self.proc_fd.dir(), name.as_bytes(), mode, AtFlags::empty())
                    .map_err(fs_error)
            }
            other => other.map_err(fs_error),
        }
    }

    fn set_times(&self, cx: &Cx<'_>, object: BorrowedFd<'_>, set: &SetAttrs) -> FsResult<()> {
        let by_path = |times: &Timestamps| rustix::fs::utimensat(object, "", times, AtFlags::EMPTY_PATH);
        self.set_times_by(cx, object, set, by_path)
    }

    fn set_times_by(
        &self,
        cx: &Cx<'_>,
        object: BorrowedFd<'_>,
        set: &SetAttrs,
        by: impl Fn(&Timestamps) -> rustix::io::Result<()>,
    ) -> FsResult<()> {
        let times = Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
        let apply = || by(&times);
        let _acting = self.identity.act_as(cx.caller)?;
        let is_given = matches!(set.atime, Some(SetTime::At(_))) || matches!(set.mtime, Some(SetTime::At(_)));
        match apply() {
            // Who may write may set times to now (RFC 1813 section 3.3.2); utimensat grants it for both times
            // together only.
            Err(Errno::PERM | Errno::ACCESS) if !is_given && sys::has_rights(object, libc::W_OK).is_ok() => {
                self.identity.as_server();
                apply().map_err(fs_error)
            }
            other => other.map_err(fs_error),
        }
    }

    pub(crate) fn do_access(&self, cx: &Cx<'_>, handle: &Handle, asked: AccessMask) -> FsResult<Rights> {
        let object = self.resolve(cx.wait, handle)?;
        let meaningful = AccessMask::meaningful_for(object.kind) & asked;
        Ok(Rights { meaningful, granted: self.granted(cx, &object, meaningful)? })
    }

    fn granted(&self, cx: &Cx<'_>, object: &Object, asked: AccessMask) -> FsResult<AccessMask> {
        use AccessMask as A;
        let is_dir = object.kind == FileKind::Directory;
        // What each right needs of the object's permission bits (RFC 1813 section 3.3.4).
        let needs: &[(A, libc::c_int)] = if is_dir {
            &[
                (A::READ, libc::R_OK),
                (A::LOOKUP, libc::X_OK),
                (A::MODIFY, libc::W_OK | libc::X_OK),
                (A::EXTEND, libc::W_OK | libc::X_OK),
                (A::DELETE, libc::W_OK | libc::X_OK),
            ]
        } else {
            &[
                (A::READ, libc::R_OK),
                (A::MODIFY, libc::W_OK),
                (A::EXTEND, libc::W_OK),
                (A::EXECUTE, libc::X_OK),
            ]
        };
        let xattr_needs =
            [(A::XATTR_READ, libc::R_OK), (A::XATTR_WRITE, libc::W_OK), (A::XATTR_LIST, libc::R_OK)];
        let wanted = || needs.iter().chain(&xattr_needs).filter(|(right, _)| asked.contains(*right));
        let all = wanted().fold(0, |bits, (_, need)| bits | need);
        if all == 0 {
            return Ok(A::NONE);
        }
        let bits = self.rights(cx, object, all)?;
        Ok(wanted()
            .filter(|(_, need)| bits & need == *need)
            .fold(A::NONE, |granted, (right, _)| granted | *right))
    }

    /// Which of these rights (`R_OK | W_OK | X_OK`) the caller has.
    fn rights(&self, cx: &Cx<'_>, object: &Object, asked: i32) -> FsResult<i32> {
        // NFSv3 tells the attributes as well: one look does for both.
        let seen = object.look_shared()?;
        if self.may(cx, object, asked, &seen)? {
            return Ok(asked);
        }
        let mut had = 0;
        for bit in [libc::R_OK, libc::W_OK, libc::X_OK] {
            // Were there but one, it is not had.
            if asked & bit != 0 && asked != bit && self.may(cx, object, bit, &seen)? {
                had |= bit;
            }
        }
        Ok(had)
    }
}

fn set_owner(object: BorrowedFd<'_>, set: &SetAttrs) -> FsResult<()> {
    if set.uid.is_none() && set.gid.is_none() {
        return Ok(());
    }
    if set.uid == Some(u32::MAX) || set.gid == Some(u32::MAX) {
        return Err(FsError::Invalid);
    }
    let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
    rustix::fs::chownat(object, "", uid, gid, AtFlags::EMPTY_PATH).map_err(fs_error)
}

pub(crate) fn timespec(set: Option<SetTime>) -> rustix::fs::Timespec {
    let (tv_sec, tv_nsec) = match set {
        None => (0, rustix::fs::UTIME_OMIT),
        Some(SetTime::Now) => (0, rustix::fs::UTIME_NOW),
        Some(SetTime::At(at)) => (at.seconds, i64::from(at.nanos) as _),
    };
    rustix::fs::Timespec { tv_sec, tv_nsec }
}

fn plain_attrs(st: &Statx, fsid: FsId) -> Attrs {
    let has_btime = st.stx_mask & StatxFlags::BTIME.bits() != 0;
    Attrs {
        kind: kind_of(st),
        mode: u32::from(st.stx_mode) & 0o7777,
        nlink: st.stx_nlink,
        uid: st.stx_uid,
        gid: st.stx_gid,
        size: st.stx_size,
        used: st.stx_blocks * 512,
        rdev: Device { major: st.stx_rdev_major, minor: st.stx_rdev_minor },
        fsid,
        fileid: st.stx_ino,
        mounted_on_fileid: st.stx_ino,
        atime: time(st.stx_atime),
        mtime: time(st.stx_mtime),
        ctime: time(st.stx_ctime),
        btime: has_btime.then(|| time(st.stx_btime)),
        change: ChangeId(0),
    }
}
