//! Going on with files that another process of this server opened.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_vfs::handover::ArrivedFile;
use holdfast_vfs::{FileObject, FsResult, Handle, LockKind};
use rustix::fs::{AtFlags, OFlags, statx};

use crate::errors::fs_error;
use crate::filesystem::LOOK;
use crate::flocks;
use crate::handles;
use crate::local::LocalBackend;
use crate::object::Object;
use crate::opening::{Opening, local_file};
use crate::sys_notify::{self, LeaseKind};

impl LocalBackend {
    /// The object is reached through the descriptor, not through its handle: it may have no name any more.
    pub(crate) fn do_import_file(
        &self,
        handle: &Handle,
        ArrivedFile { fd, mode, is_shared }: ArrivedFile,
    ) -> FsResult<Arc<dyn FileObject>> {
        self.identity.as_server();
        let (key, _) = handles::decode(handle)?;
        let path = self.sparing(|| self.proc_fd.reopen(&*fd, OFlags::PATH))?;
        let st = statx(&path, "", AtFlags::EMPTY_PATH, LOOK).map_err(fs_error)?;
        let object = match self.cache.find(handle) {
            Some(object) => object,
            None => {
                let fs = self.mounts.by_key(key, self.root_fd())?;
                self.cache.insert(Object::new(*handle, fs, path, &st, self.cache.tally()))
            }
        };
        object.must_be_file()?;
        if st.stx_nlink == 0 {
            // What was removed while open leaves the cache at its last close.
            object.is_unlinked.store(true, Ordering::SeqCst);
        }
        let file = self.opened(object, Opening::arrived(fd, is_shared), mode);
        let opened = local_file(&file)?;
        let Carried { locks, flock, breaking } = Carried::by(&opened.fd);
        if breaking {
            // Who waits for it goes on when the promise has ended, as he would have without us.
            *opened.breaking.lock() = self.watch.adopt_breaking(&opened.object, &opened.fd, mode);
        } else {
            // A lease that nobody waits for goes on otherwise, with nobody listening. Who promised something pledges
            // anew.
            let _ = sys_notify::set_lease(&*opened.fd, LeaseKind::None);
        }
        // Locks on a descriptor that is another's in the first place are the other's.
        if (locks || flock.is_some()) && !is_shared {
            self.watch.0.lockers.enter(opened);
            flocks::arrived(&opened.fd, flock);
        }
        Ok(file)
    }
}

/// What belongs to an open file. The kernel tells nowhere else.
struct Carried {
    locks: bool,
    /// The kind of its `flock`.
    flock: Option<LockKind>,
    /// A lease that somebody waits for.
    breaking: bool,
}

impl Carried {
    fn by(fd: &OwnedFd) -> Self {
        match std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())) {
            Ok(text) => Self::in_words(&text),
            // Taken for so: what is not unlocked stays locked until the close.
            Err(_) => Self { locks: true, flock: None, breaking: false },
        }
    }

    fn in_words(fdinfo: &str) -> Self {
        let has = |words: &[&str]| {
            let is_it = |line: &str| words.iter().all(|word| line.split_whitespace().any(|w| w == *word));
            fdinfo.lines().filter(|line| line.starts_with("lock:")).any(is_it)
        };
        let kinds = [("WRITE", LockKind::Write), ("READ", LockKind::Read)];
        let flock = kinds.into_iter().find(|(word, _)| has(&["FLOCK", word])).map(|(_, kind)| kind);
        Self { locks: has(&["OFDLCK"]), flock, breaking: has(&["LEASE", "BREAKING"]) }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::ByteRange;
    use holdfast_vfs::handover::{Incoming, Outgoing};
    use holdfast_vfs::{AttrMask, Backend, Caller, Cx, File, FsError, Name, OpenMode, Wait};
    use rustix::fs::FlockOperation;

    use super::*;
    use crate::LocalOptions;
    use crate::opening::LocalFile;

    #[test]
    fn an_open_file_with_its_locks_goes_on_elsewhere_though_its_name_is_gone() {
        let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(dir.path().join("file"), "content").unwrap();
        let other = std::fs::File::open(dir.path().join("file")).unwrap();
        let caller = Caller { uid: rustix::process::geteuid().as_raw(), ..Caller::root() };
        let cx = Cx::new(&caller, Wait::Yes);
        let open = || {
            let backend = LocalBackend::open(dir.path(), LocalOptions::new(state.path().to_owned())).unwrap();
            Arc::new(backend) as Arc<dyn Backend>
        };
        let first = open();
        let root = first.root().unwrap();
        let node = first.lookup(&cx, &root, Name::new(b"file").unwrap(), AttrMask::STAT).unwrap();
        let mode = OpenMode { read: true, write: true, nfs_exceptions: false };
        let file = first.open(&cx, &node.handle, mode).unwrap();
        first.lock(&file, ByteRange::ALL, LockKind::Write).unwrap();
        std::fs::remove_file(dir.path().join("file")).unwrap();

        let mut outgoing = Outgoing::default();
        let numbers = [outgoing.add_file(&file).unwrap(), outgoing.add_file(&file).unwrap()];
        assert_eq!(numbers[0], numbers[1], "one file object stays one");
        let descriptors: Vec<_> = outgoing.descriptors().map(|fd| fd.try_clone_to_owned().ok()).collect();
        let images = outgoing.files().to_vec();
        drop((outgoing, file, first));
        let is_free = || crate::sys::ofd_test(&other, libc::F_RDLCK, 0, 0).unwrap().is_none();
        assert!(!is_free(), "the descriptor on its way keeps the lock");

        let second = open();
        let mut incoming = Incoming::new(descriptors);
        assert_eq!(incoming.open_files(&images, std::slice::from_ref(&second)), 0);
        let file = incoming.file(numbers[0]).unwrap();
        drop(incoming);
        let mut into = [0; 16];
        let read = second.read(&cx, File::Open(&node.handle, &file), 0, &mut into).unwrap();
        assert_eq!(&into[..read.bytes], b"content");
        assert!(!is_free());
        assert!(local_file(&file).unwrap().has_locks.load(Ordering::SeqCst));
        let is_flocked = || {
            let local = std::fs::File::open(format!("/proc/self/fd/{}", other.as_raw_fd())).unwrap();
            rustix::fs::flock(&local, FlockOperation::NonBlockingLockShared).is_err()
        };
        assert!(is_flocked(), "the whole file is locked, so for `flock` as well");
        second.lock(&file, ByteRange::from_bounds(0, 9).unwrap(), LockKind::Read).unwrap();
        assert!(!is_flocked(), "it is known how strong it was");
        second.unlock(&file, ByteRange::ALL).unwrap();
        assert!(is_free());
    }

    #[test]
    fn files_that_share_a_descriptor_arrive_with_one_and_keep_their_locks_apart() {
        let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(dir.path().join("file"), "content").unwrap();
        let backend = LocalBackend::open(dir.path(), LocalOptions::new(state.path().to_owned())).unwrap();
        let caller = Caller { uid: rustix::process::geteuid().as_raw(), ..Caller::root() };
        let cx = Cx::new(&caller, Wait::Yes);
        let name = Name::new(b"file").unwrap();
        let handle = backend.lookup(&cx, &backend.root().unwrap(), name, AttrMask::STAT).unwrap().handle;
        let mode = OpenMode { read: true, write: true, nfs_exceptions: false };
        let first = backend.open(&cx, &handle, mode).unwrap();
        // As under a write lease, which a second open would break.
        let LocalFile { object, fd, .. } = local_file(&first).unwrap();
        let second = backend.opened(Arc::clone(object), Opening::shared(Arc::clone(fd)), mode);
        let (low, high) = (ByteRange::from_bounds(0, 9).unwrap(), ByteRange::from_bounds(10, 19).unwrap());
        backend.lock(&first, low, LockKind::Write).unwrap();

        let mut outgoing = Outgoing::default();
        let [one, other] = [&first, &second].map(|file| outgoing.add_file(file).unwrap());
        assert_eq!(outgoing.descriptors().count(), 1, "the two would be closed under one number");
        let descriptors = outgoing.descriptors().map(|fd| fd.try_clone_to_owned().ok()).collect();
        let images = outgoing.files().to_vec();
        // In this order: one that goes while another has the descriptor takes its locks along.
        drop((outgoing, second, first));
        let backend: Arc<dyn Backend> = Arc::new(backend);
        let mut incoming = Incoming::new(descriptors);
        assert_eq!(incoming.open_files(&images, std::slice::from_ref(&backend)), 0);
        let [one, other] = [one, other].map(|number| incoming.file(number).unwrap());
        drop(incoming);
        assert!(Arc::ptr_eq(&local_file(&one).unwrap().fd, &local_file(&other).unwrap().fd));

        // What the other one unlocks and locks is its own.
        backend.unlock(&other, ByteRange::ALL).unwrap();
        assert_eq!(backend.lock(&other, low, LockKind::Write), Err(FsError::Locked));
        backend.lock(&other, high, LockKind::Write).unwrap();
        drop(other);
        let outside = std::fs::File::open(dir.path().join("file")).unwrap();
        let is_free = || crate::sys::ofd_test(&outside, libc::F_RDLCK, 0, 0).unwrap().is_none();
        assert!(!is_free(), "the first one's lock stays");
        drop(one);
        assert!(is_free());
    }
}
