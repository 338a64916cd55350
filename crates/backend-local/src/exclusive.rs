//! Exclusive creates: the verifier by which a retry knows its own file, and how there is never a file without it. A server that
//! was killed between making a file and writing the verifier would leave one that its client's retry takes for somebody
//! else's (RFC 1813 section 3.3.8, RFC 8881 section 18.16.3). So the file gets all that it is to have while it has no name
//! (`O_TMPFILE`), and its name last. Where the file system has no such files, or may not have them, the name comes first.

use std::os::fd::{AsFd as _, OwnedFd};

use holdfast_base::Timestamp;
use holdfast_vfs::{CreateHow, Cx, Exclusive, FileKind, FsError, FsResult, OpenMode, SetAttrs, SetTime};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat, statx};
use rustix::io::Errno;

use crate::errors::fs_error;
use crate::failpoint;
use crate::files::Made;
use crate::filesystem::LOOK;
use crate::local::LocalBackend;
use crate::names::left_to_set;
use crate::object::Object;
use crate::procfd::FdName;

/// The two times that keep an exclusive create's verifier: 31 bits each, as every file system here can hold, the
/// last two bits folded in.
fn verifier_times(verifier: Exclusive) -> (i64, i64) {
    let v = u64::from_le_bytes(verifier.0);
    let low = v & 0x7fff_ffff;
    let high = (v >> 31 & 0x7fff_ffff) ^ v >> 62;
    (low as i64, high as i64)
}

pub(crate) fn made_with(st: &Statx, verifier: Exclusive) -> bool {
    let (atime, mtime) = verifier_times(verifier);
    (st.stx_atime.tv_sec, st.stx_atime.tv_nsec) == (atime, 0)
        && (st.stx_mtime.tv_sec, st.stx_mtime.tv_nsec) == (mtime, 0)
        && st.stx_size == 0
}

/// What is to be set of a file that keeps a verifier.
fn with_verifier(set: &SetAttrs, verifier: Exclusive) -> SetAttrs {
    let (atime, mtime) = verifier_times(verifier);
    let at = |seconds| Some(SetTime::At(Timestamp { seconds, nanos: 0 }));
    SetAttrs { atime: at(atime), mtime: at(mtime), ..*set }
}

/// What came of giving a nameless file its name.
enum Naming {
    Done,
    Taken,
    /// The file system, or a rule for links, does not let it have one.
    Refused,
}

impl LocalBackend {
    /// Makes the file; `None` when the name exists. The thread acts as the caller.
    pub(crate) fn make_exclusive(
        &self,
        cx: &Cx<'_>,
        (dir, name): (&Object, &[u8]),
        (how, verifier): (&CreateHow<'_>, Exclusive),
        mode: Mode,
    ) -> FsResult<Option<Made>> {
        let set = with_verifier(how.set, verifier);
        let by_name = || self.make_named(cx, (dir, name), (&set, how.open), (mode, LOOK));
        if !dir.fs.makes_nameless() {
            return by_name();
        }
        // With O_EXCL a name that exists is told before whatever else is in the way: no permission, no room.
        match statx(dir.fd(), name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty()) {
            Ok(_) => return Ok(None),
            Err(Errno::NOENT) => {}
            Err(e) => return Err(fs_error(e)),
        }
        let Some(fd) = self.open_nameless(cx, dir, mode)? else { return by_name() };
        failpoint::pass();
        let fd = self.finish_nameless(cx, fd, &set, how.open)?;
        match self.give_name(cx, (dir, name), &fd)? {
            Naming::Done => {}
            Naming::Taken => return Ok(None),
            Naming::Refused => return by_name(),
        }
        failpoint::pass();
        match self.known_by_name((dir, name), &fd, LOOK) {
            Ok((object, st)) => Ok(Some(Made { object, st, fd: Some(fd) })),
            Err(e) => self.unmake(cx, (dir, name), e),
        }
    }

    /// A file without a name; `None` where the file system has none, which is not tried again.
    fn open_nameless(&self, cx: &Cx<'_>, dir: &Object, mode: Mode) -> FsResult<Option<OwnedFd>> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        self.sparing_as(cx, || match openat(dir.fd(), ".", flags, mode) {
            // The latter where the flag is taken for that of opening a directory (open(2)).
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                dir.fs.note_no_nameless();
                Ok(None)
            }
            other => other.map(Some).map_err(fs_error),
        })
    }

    /// Gives it all but its name; the descriptor that comes back is opened as was asked for.
    fn finish_nameless(
        &self,
        cx: &Cx<'_>,
        fd: OwnedFd,
        set: &SetAttrs,
        open: Option<OpenMode>,
    ) -> FsResult<OwnedFd> {
        if let Some(size) = set.size.filter(|size| *size > 0) {
            rustix::fs::ftruncate(&fd, size).map_err(fs_error)?;
        }
        let made = || {
            let st = statx(&fd, "", AtFlags::EMPTY_PATH, StatxFlags::MODE).map_err(fs_error)?;
            Ok(u32::from(st.stx_mode))
        };
        if let Some(rest) = left_to_set(set, FileKind::Regular, made)? {
            self.apply(cx, (fd.as_fd(), FileKind::Regular), &rest)?;
        }
        if open.is_none_or(|mode| mode.write) {
            return Ok(fd);
        }
        // A nameless file is opened for writing or not at all, and who has it open so keeps others from leases on it. Its
        // maker may read it whatever its mode.
        self.identity.as_server();
        match self.sparing(|| self.proc_fd.reopen(&fd, OFlags::RDONLY)) {
            // Of a server that is not the superuser's.
            Err(FsError::Access) => Ok(fd),
            other => other,
        }
    }

    fn give_name(&self, cx: &Cx<'_>, (dir, name): (&Object, &[u8]), fd: &OwnedFd) -> FsResult<Naming> {
        let _acting = self.identity.act_as(cx.caller)?;
        let (source, flags) = (FdName::new(fd), AtFlags::SYMLINK_FOLLOW);
        match rustix::fs::linkat(self.proc_fd.dir(), source.as_bytes(), dir.fd(), name, flags) {
            Ok(()) => Ok(Naming::Done),
            Err(Errno::EXIST) => Ok(Naming::Taken),
            Err(Errno::OPNOTSUPP | Errno::PERM | Errno::XDEV | Errno::NOENT) => Ok(Naming::Refused),
            Err(e) => Err(fs_error(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_vfs::{AttrMask, Backend as _, Caller, CreateMode, Name, Wait};

    use super::*;
    use crate::LocalOptions;

    #[test]
    fn where_there_are_no_nameless_files_the_name_comes_first() {
        let (served, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = LocalOptions::new(state.path().to_owned());
        let backend = LocalBackend::open(served.path(), options).unwrap();
        let caller = Caller { uid: rustix::process::geteuid().as_raw(), ..Caller::root() };
        let (cx, root) = (Cx::new(&caller, Wait::Yes), backend.root().unwrap());
        let set = SetAttrs { mode: Some(0o640), ..SetAttrs::default() };
        let make = |name: &[u8], verifier| {
            let mode = CreateMode::Exclusive(Exclusive([verifier; 8]));
            let how = CreateHow { mode, set: &set, open: None, want: AttrMask::ALL };
            backend
                .create(&cx, &root, Name::new(name).unwrap(), &how)
                .map(|made| (made.is_new, made.node.attrs))
        };
        assert!(backend.root.fs.makes_nameless(), "the temporary directory has nameless files");
        let (_, before) = make(b"before", 1).unwrap();
        backend.root.fs.note_no_nameless();
        let (is_new, after) = make(b"after", 1).unwrap();
        assert!(is_new && !backend.root.fs.makes_nameless());
        assert_eq!((after.mode, after.atime, after.mtime), (before.mode, before.atime, before.mtime));
        assert_eq!(make(b"after", 1).map(|(is_new, _)| is_new), Ok(false));
        assert_eq!(make(b"after", 2).map(drop), Err(FsError::Exists));
    }

    #[test]
    fn verifiers_fit_times_of_31_bits_and_every_bit_counts() {
        let times = |v: u64| verifier_times(Exclusive(v.to_le_bytes()));
        for bit in 0..64 {
            let (a, m) = times(1 << bit);
            assert!((a, m) != (0, 0), "bit {bit}");
            assert!(a <= i64::from(i32::MAX) && m <= i64::from(i32::MAX));
        }
        assert_eq!(times(u64::MAX).0, i64::from(i32::MAX));
    }
}
