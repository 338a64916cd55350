//! Files made for creates to come: without a name (`O_TMPFILE`), as their later maker, and given it by `linkat`.
//!
//! Making and linking together cost 1.4 to 1.8 times what `open` with `O_CREAT` does. What they buy is that the file is known,
//! by number and handle, before it is made.

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_vfs::{Change, Cx, DEFAULT_LIST, FsError, FsResult, Handle, Name, SetAttrs, SetTime, Spare};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Mode, StatxFlags};
use rustix::io::Errno;

use crate::attributes::timespec;
use crate::errors::fs_error;
use crate::filesystem::HandleKind;
use crate::local::LocalBackend;
use crate::marks::Changing;
use crate::object::Object;
use crate::opening::local_file;
use crate::procfd::{FdName, ProcFd};
use crate::sys;

/// All bits of permission. A file made with fewer has a narrower mask where the directory has a default access list, which no
/// later mode widens; cut to what is asked for it has what a create gives.
const ALL_PERMISSIONS: u32 = 0o777;

/// Bits of a mode that the kernel looks at once more, and by another rule, when a mode is set.
const SPECIAL_BITS: u32 = 0o7000;

impl LocalBackend {
    /// See [`holdfast_vfs::Backend::make_spare`].
    pub(crate) fn do_make_spare(&self, cx: &Cx<'_>, dir: &Handle) -> FsResult<Spare> {
        let fs = Arc::clone(&self.resolve(cx.wait, dir)?.fs);
        // An ext4 with fast commits puts every inode that was changed into its log, and a log that holds a nameless one does
        // not play back (seen on 6.18: the mount after a cut fails).
        if !fs.committer.bears_nameless() {
            return Err(FsError::NotSupported);
        }
        let set = SetAttrs { mode: Some(ALL_PERMISSIONS), ..SetAttrs::default() };
        let (node, file) = self.do_make_nameless(cx, dir, &set)?;
        // A file keeps the project that it has: where the directory stops handing on its own it would be the wrong one.
        if sys::project_of(&*local_file(&file)?.fd).is_ok_and(|project| project != 0) {
            return Err(FsError::NotSupported);
        }
        let attrs = node.attrs;
        Ok(Spare { handle: node.handle, file, mode: attrs.mode & ALL_PERMISSIONS, fileid: attrs.fileid })
    }

    /// See [`holdfast_vfs::Backend::heritage`].
    pub(crate) fn do_heritage(&self, cx: &Cx<'_>, dir: &Handle) -> FsResult<u64> {
        let dir = self.resolve(cx.wait, dir)?;
        dir.must_be_dir()?;
        if dir.fs.handles != HandleKind::Kernel {
            return Err(FsError::NotSupported);
        }
        let st = dir.look()?;
        let mut hasher = rustc_hash::FxHasher::default();
        for part in [u32::from(st.stx_mode), st.stx_uid, st.stx_gid] {
            hasher.write_u32(part);
        }
        if self.has_default_acl(&dir)? {
            let path = ProcFd::name_of(dir.fd());
            let mut list = Vec::with_capacity(holdfast_base::limits::XATTR_VALUE_BYTES_MAX);
            match rustix::fs::getxattr(&path[..], DEFAULT_LIST, rustix::buffer::spare_capacity(&mut list)) {
                Ok(_) => hasher.write(&list),
                Err(Errno::NODATA) => {}
                Err(e) => return Err(fs_error(e)),
            }
        }
        Ok(hasher.finish())
    }

    /// See [`holdfast_vfs::Backend::place`].
    pub(crate) fn do_place(
        &self,
        cx: &Cx<'_>,
        spare: &Spare,
        (dir, name): (&Handle, Name<'_>),
        set: &SetAttrs,
    ) -> FsResult<Change> {
        let file = local_file(&spare.file)?;
        let object = &file.object;
        if set.uid.is_some() || set.gid.is_some() || set.mode.is_some_and(|mode| mode & SPECIAL_BITS != 0) {
            return Err(FsError::NotSupported);
        }
        let dir = self.resolve(cx.wait, dir)?;
        dir.must_be_dir()?;
        self.may_wait(cx, &dir)?;
        Self::begin_unnamed();
        let _changing = Changing::of(object);
        let before = self.before(&dir)?;
        {
            let _acting = self.identity.act_as(cx.caller)?;
            let mode = self.creation_mode(&dir, set, 0o600)? & Mode::from_raw_mode(spare.mode);
            if let Some(size) = set.size
                && size > object.look()?.stx_size
            {
                rustix::fs::ftruncate(&*file.fd, size).map_err(fs_error)?;
            }
            rustix::fs::fchmod(&*file.fd, mode).map_err(fs_error)?;
            // It was made a while ago, and nobody is to see that.
            let times = rustix::fs::Timestamps {
                last_access: timespec(set.atime.or(Some(SetTime::Now))),
                last_modification: timespec(set.mtime.or(Some(SetTime::Now))),
            };
            rustix::fs::futimens(&*file.fd, &times).map_err(fs_error)?;
            let source = FdName::new(object.fd());
            let flags = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(self.proc_fd.dir(), source.as_bytes(), dir.fd(), name.as_bytes(), flags)
                .map_err(fs_error)?;
        }
        // A file as all are: what is closed is not gone.
        object.is_unlinked.store(false, Ordering::SeqCst);
        self.note_change(object);
        self.after(before).inspect_err(|_| take_back(&dir, name, object))
    }
}

/// Takes a name back that was just given: who is told that it failed is not to find it. Where it stands for something else by now, or
/// nobody can tell, it stays.
fn take_back(dir: &Object, name: Name<'_>, object: &Object) {
    let identity = |fd: BorrowedFd<'_>, name: &[u8], flags| {
        let st = rustix::fs::statx(fd, name, flags, StatxFlags::INO).ok()?;
        Some((st.stx_dev_major, st.stx_dev_minor, st.stx_ino))
    };
    let ours = identity(object.fd(), b"", AtFlags::EMPTY_PATH);
    if ours.is_some() && identity(dir.fd(), name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) == ours {
        // What a disk that fails leaves of this is not for us to say.
        let _ = rustix::fs::unlinkat(dir.fd(), name.as_bytes(), AtFlags::empty());
        object.is_unlinked.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalOptions;
    use holdfast_vfs::{Backend as _, Caller, Wait};

    #[test]
    fn a_name_that_was_given_is_taken_back_from_this_very_file_alone() {
        let (served, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let options = LocalOptions::new(state.path().to_owned());
        let backend = LocalBackend::open(served.path(), options).unwrap();
        let (root, caller) = (backend.root().unwrap(), Caller::root());
        let cx = Cx::new(&caller, Wait::Yes);
        let spare = backend.make_spare(&cx, &root).unwrap();
        let [name, moved] = [&b"f"[..], b"g"].map(|name| Name::new(name).unwrap());
        backend.place(&cx, &spare, &root, name, &SetAttrs::default()).unwrap();
        let [at_name, at_moved] = ["f", "g"].map(|name| served.path().join(name));
        std::fs::rename(&at_name, &at_moved).unwrap();
        std::fs::write(&at_name, "another").unwrap();
        let (dir, object) =
            (backend.resolve(Wait::Yes, &root).unwrap(), &local_file(&spare.file).unwrap().object);
        take_back(&dir, name, object);
        assert!(at_name.exists() && at_moved.exists(), "it stands for something else by now");
        take_back(&dir, moved, object);
        assert!(at_name.exists() && !at_moved.exists());
        assert!(object.is_unlinked.load(Ordering::SeqCst));
    }
}
