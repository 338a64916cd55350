//! Handles that are rows of a table find their objects again after local processes renamed them, and never another.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use disk::{Disk, run, unmount};
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::limits::HANDLE_NAMES_MAX;
use holdfast_vfs::{AttrMask, Backend, Caller, Cx, FsError, FsResult, Handle, Name, Wait};

struct World {
    backend: LocalBackend,
    caller: Caller,
    top: PathBuf,
    state: tempfile::TempDir,
    _disks: [Disk; 2],
}

/// An overlay, which has no handles of its own.
fn world() -> World {
    let below = Disk::make("ext4", &[]);
    let disk = Disk::overlay(&below, |_| {});
    let (top, state) = (disk.mount.clone(), tempfile::tempdir().unwrap());
    let backend = open(&top, state.path());
    assert!(!backend.has_kernel_handles());
    World { backend, caller: Caller::root(), top, state, _disks: [disk, below] }
}

fn open(top: &Path, state: &Path) -> LocalBackend {
    LocalBackend::open(top, LocalOptions::new(state.to_owned())).unwrap()
}

impl World {
    fn path(&self, n: &str) -> PathBuf {
        self.top.join(n)
    }

    /// The handle of a path, by looking its names up.
    fn find(&self, path: &str) -> Handle {
        let cx = Cx::new(&self.caller, Wait::Yes);
        path.split('/').fold(self.backend.root().unwrap(), |dir, n| {
            let name = Name::new(n.as_bytes()).unwrap();
            self.backend.lookup(&cx, &dir, name, AttrMask::STAT).unwrap().handle
        })
    }

    /// The number of a handle's object, with no descriptor left from before: after a restart.
    fn number(&mut self, handle: &Handle) -> FsResult<u64> {
        let elsewhere = tempfile::tempdir().unwrap();
        self.backend = open(elsewhere.path(), &elsewhere.path().join("state"));
        self.backend = open(&self.top, self.state.path());
        let cx = Cx::new(&self.caller, Wait::Yes);
        self.backend.getattr(&cx, handle, AttrMask::STAT).map(|attrs| attrs.fileid)
    }
}

fn number_of(path: PathBuf) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[test]
fn what_a_local_process_renamed_in_its_directory_is_found() {
    let mut w = world();
    fs::create_dir_all(w.path("a/b")).unwrap();
    fs::write(w.path("a/b/file"), "data").unwrap();
    for n in 0..100 {
        fs::write(w.path(&format!("a/b/other{n}")), "").unwrap();
    }
    let (file, dir) = (w.find("a/b/file"), w.find("a/b"));
    let (file_number, dir_number) = (number_of(w.path("a/b/file")), number_of(w.path("a/b")));
    fs::rename(w.path("a/b/file"), w.path("a/b/renamed")).unwrap();
    assert_eq!(w.number(&file), Ok(file_number));
    // The directories above it, and another file in its place.
    fs::rename(w.path("a/b"), w.path("a/c")).unwrap();
    fs::rename(w.path("a"), w.path("z")).unwrap();
    fs::rename(w.path("z/c/renamed"), w.path("z/c/again")).unwrap();
    fs::write(w.path("z/c/renamed"), "another").unwrap();
    assert_eq!((w.number(&dir), w.number(&file)), (Ok(dir_number), Ok(file_number)));
    assert_eq!(w.find("z/c/again"), file, "and it keeps its handle");
    assert_ne!(w.find("z/c/renamed"), file);
}

#[test]
fn what_was_moved_elsewhere_is_stale_until_it_is_met_there() {
    let mut w = world();
    fs::create_dir_all(w.path("a")).unwrap();
    fs::create_dir_all(w.path("b")).unwrap();
    fs::write(w.path("a/file"), "data").unwrap();
    let file = w.find("a/file");
    let number = number_of(w.path("a/file"));
    fs::rename(w.path("a/file"), w.path("b/file")).unwrap();
    assert_eq!(w.number(&file), Err(FsError::Stale));
    assert_eq!(w.find("b/file"), file);
    assert_eq!(w.number(&file), Ok(number));
    fs::remove_file(w.path("b/file")).unwrap();
    assert_eq!(w.number(&file), Err(FsError::Stale));
}

#[test]
fn a_file_with_several_names_is_found_by_any_that_is_left() {
    let mut w = world();
    fs::write(w.path("first"), "data").unwrap();
    for dir in ["a", "b", "c"] {
        fs::create_dir(w.path(dir)).unwrap();
        fs::hard_link(w.path("first"), w.path(dir).join("name")).unwrap();
    }
    let file = w.find("first");
    let number = number_of(w.path("first"));
    for dir in ["a", "b", "c"] {
        assert_eq!(w.find(&format!("{dir}/name")), file);
    }
    const { assert!(HANDLE_NAMES_MAX >= 4) };
    for gone in ["c/name", "first", "b/name"] {
        fs::remove_file(w.path(gone)).unwrap();
        assert_eq!(w.number(&file), Ok(number), "without {gone}");
    }
    fs::remove_file(w.path("a/name")).unwrap();
    assert_eq!(w.number(&file), Err(FsError::Stale));
}

#[test]
fn what_another_mount_covers_is_not_taken_for_what_lies_below_it() {
    let mut w = world();
    fs::create_dir(w.path("dir")).unwrap();
    let dir = w.find("dir");
    let number = number_of(w.path("dir"));
    let path = w.path("dir");
    let path = path.to_str().unwrap();
    // The same number on the same device, through another mount, which may have other rules.
    run("mount", &["--bind", "-o", "ro", path, path]);
    let covered = w.number(&dir);
    unmount(path);
    assert_eq!(covered, Err(FsError::Stale));
    assert_eq!(w.number(&dir), Ok(number));
}
