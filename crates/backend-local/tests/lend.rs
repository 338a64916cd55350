//! Descriptors lent to other processes: judged, and for reading never to be made writable. Root, and a kernel that
//! mounts, are needed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, chown};
use std::path::PathBuf;

use holdfast_backend_local::{LocalBackend, LocalOptions, LocalUse};
use holdfast_vfs::{
    AttrMask, Backend as _, Caller, CreateHow, CreateMode, Cx, FsError, Handle, Lend, Name, Pledge, SetAttrs,
    Wait,
};

struct Lent {
    dir: tempfile::TempDir,
    backend: LocalBackend,
}

fn serving(local: LocalUse) -> Lent {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
    let mut options = LocalOptions::new(dir.path().join("state"));
    options.local = local;
    options.is_sole_writer = local == LocalUse::None;
    let backend = LocalBackend::open(&root, options).unwrap();
    Lent { dir, backend }
}

impl Lent {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("root").join(name)
    }

    fn file(&self, name: &str, mode: u32, owner: u32) -> Handle {
        std::fs::write(self.path(name), "content").unwrap();
        chown(self.path(name), Some(owner), Some(owner)).unwrap();
        std::fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
        let (root, name) = (self.backend.root().unwrap(), Name::new(name.as_bytes()).unwrap());
        self.backend.lookup(&Cx::new(&Caller::root(), Wait::Yes), &root, name, AttrMask::NONE).unwrap().handle
    }

    fn lend(&self, caller: &Caller, handle: &Handle, what: Lend) -> Result<Option<File>, FsError> {
        let lent = self.backend.lend(&Cx::new(caller, Wait::Yes), handle, what);
        lent.map(|fd| fd.map(File::from))
    }
}

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: [].into() }
}

#[test]
fn what_is_lent_for_reading_is_not_to_be_made_writable_not_even_by_root() {
    let at = serving(LocalUse::Lazy);
    let handle = at.file("f", 0o666, 0);
    let mut file = at.lend(&Caller::root(), &handle, Lend::Read).unwrap().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "content");
    let again = OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EROFS));
    // The file itself is as writable as ever.
    OpenOptions::new().append(true).open(at.path("f")).unwrap().write_all(b"!").unwrap();
    assert_eq!(file.read_at(&mut [0; 16], 0).unwrap(), 8);
}

#[test]
fn the_caller_is_judged_as_by_an_open() {
    let at = serving(LocalUse::Lazy);
    let own = at.file("own", 0o600, 1000);
    let others = at.file("others", 0o644, 0);
    assert!(at.lend(&user(1000), &own, Lend::Write).unwrap().is_some());
    assert_eq!(at.lend(&user(1001), &own, Lend::Read).unwrap_err(), FsError::Access);
    assert_eq!(at.lend(&user(1001), &own, Lend::Write).unwrap_err(), FsError::Access);
    assert!(at.lend(&user(1001), &others, Lend::Read).unwrap().is_some());
    assert_eq!(at.lend(&user(1001), &others, Lend::Write).unwrap_err(), FsError::Access);
}

#[test]
fn what_is_lent_for_writing_writes_and_its_change_is_seen() {
    let at = serving(LocalUse::Lazy);
    let handle = at.file("f", 0o600, 0);
    let root = Caller::root();
    let cx = Cx::new(&root, Wait::Yes);
    let want = AttrMask::STAT | AttrMask::CHANGE;
    let before = at.backend.getattr(&cx, &handle, want).unwrap();
    let file = at.lend(&root, &handle, Lend::Write).unwrap().unwrap();
    file.write_at(b"longer than before", 0).unwrap();
    let after = at.backend.getattr(&cx, &handle, want).unwrap();
    assert_eq!(after.size, 18);
    assert_ne!(after.change, before.change);
}

#[test]
fn a_path_is_lent_to_whom_may_write_or_on_a_mount_that_is_read_only() {
    let at = serving(LocalUse::Lazy);
    let handle = at.file("f", 0o644, 1000);
    let again = |file: &File, writes: bool| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        OpenOptions::new().read(true).write(writes).open(path).map_err(|e| e.raw_os_error())
    };
    assert_eq!(at.lend(&user(1001), &handle, Lend::Path).unwrap_err(), FsError::Access);
    let path = at.lend(&user(1000), &handle, Lend::Path).unwrap().unwrap();
    assert_eq!(path.read_at(&mut [0; 1], 0).unwrap_err().raw_os_error(), Some(libc::EBADF));
    again(&path, true).unwrap().write_at(b"C", 0).unwrap();
    let path = at.lend(&user(1001), &handle, Lend::PathToRead).unwrap().unwrap();
    assert_eq!(again(&path, true).unwrap_err(), Some(libc::EROFS));
    assert_eq!(again(&path, false).unwrap().read_at(&mut [0; 16], 0).unwrap(), 7);
    let secret = at.file("secret", 0o600, 1000);
    assert_eq!(at.lend(&user(1001), &secret, Lend::PathToRead).unwrap_err(), FsError::Access);
}

#[test]
fn a_path_of_what_was_made_here_is_no_more_than_one() {
    let at = serving(LocalUse::Lazy);
    let (caller, set) = (Caller::root(), SetAttrs { mode: Some(0o644), ..SetAttrs::default() });
    let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::NONE };
    let (cx, root) = (Cx::new(&caller, Wait::Yes), at.backend.root().unwrap());
    let made = at.backend.create(&cx, &root, Name::new(b"made").unwrap(), &how).unwrap();
    let path = at.lend(&caller, &made.node.handle, Lend::Path).unwrap().unwrap();
    let flags = rustix::fs::fcntl_getfl(&path).unwrap();
    assert!(flags.contains(rustix::fs::OFlags::PATH), "{flags:?}: by another its mode could be changed");
}

#[test]
fn a_file_with_set_id_bits_is_not_lent_for_writing() {
    let at = serving(LocalUse::Lazy);
    for mode in [0o4755, 0o2755] {
        let handle = at.file("f", mode, 0);
        assert!(at.lend(&Caller::root(), &handle, Lend::Write).unwrap().is_none());
        assert!(at.lend(&Caller::root(), &handle, Lend::Read).unwrap().is_some());
    }
}

#[test]
fn nothing_is_lent_where_nobody_else_is_said_to_write() {
    let at = serving(LocalUse::None);
    let handle = at.file("f", 0o644, 0);
    assert!(at.lend(&Caller::root(), &handle, Lend::Write).unwrap().is_none());
    assert!(at.lend(&Caller::root(), &handle, Lend::Read).unwrap().is_none());
}

#[test]
fn a_write_pledge_lends_its_own_open_file_and_none_for_reading() {
    let at = serving(LocalUse::Lazy);
    let handle = at.file("f", 0o644, 0);
    let root = Caller::root();
    let cx = Cx::new(&root, Wait::Yes);
    let mode = holdfast_vfs::OpenMode { read: true, write: true, nfs_exceptions: true };
    let open = at.backend.open(&cx, &handle, mode).unwrap();
    let pledge = at.backend.pledge(&handle, Pledge::WriteFile, Some(&open)).unwrap().unwrap();
    assert!(at.lend(&root, &handle, Lend::Read).unwrap().is_none());
    let lent = at.lend(&root, &handle, Lend::Write).unwrap().unwrap();
    lent.write_at(b"C", 0).unwrap();
    assert!(!pledge.is_broken(), "lending, and what is done with it, is not a local deed");
    drop((pledge, open));
    // As long as it is out nobody else is promised that nothing is written.
    assert!(at.backend.pledge(&handle, Pledge::ReadFile, None).unwrap().is_none());
    drop(lent);
    assert!(at.backend.pledge(&handle, Pledge::ReadFile, None).unwrap().is_some());
}
