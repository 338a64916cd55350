//! The change attribute on a file system whose times stand still between two ticks of the kernel, however often somebody looks:
//! all before Linux 6.13, and ramfs, which is mounted here, on every kernel.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::path::Path;

use disk::{must_be_root, run, unmount};
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, Handle, Name, RenameFlags, SetAttrs,
    Stability, Wait, WriteAt,
};

struct Mounted(tempfile::TempDir);

impl Mounted {
    fn ramfs() -> Self {
        must_be_root();
        let dir = tempfile::tempdir().unwrap();
        run("mount", &["-t", "ramfs", "none", dir.path().to_str().unwrap()]);
        Self(dir)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(self.0.path().to_str().unwrap());
    }
}

fn open(root: &Path, state: &Path) -> LocalBackend {
    LocalBackend::open(root, LocalOptions::new(state.to_owned())).unwrap()
}

fn change(b: &LocalBackend, file: &Handle) -> u64 {
    let caller = Caller::root();
    b.getattr(&Cx::new(&caller, Wait::Yes), file, AttrMask::CHANGE).unwrap().change.0
}

fn write(b: &LocalBackend, file: &Handle) {
    let caller = Caller::root();
    let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
    b.write(&Cx::new(&caller, Wait::Yes), File::Stateless(file), at, b"x").unwrap();
}

#[test]
fn change_rises_with_each_change_of_a_file_just_made_or_renamed_and_over_a_restart() {
    let (mounted, state) = (Mounted::ramfs(), tempfile::tempdir().unwrap());
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let (mut files, mut told) = (Vec::new(), Vec::new());
    let b = open(mounted.0.path(), state.path());
    let root = b.root().unwrap();
    for round in 0..50 {
        let (one, two) = (format!("one{round}"), format!("two{round}"));
        let (one, two) = (Name::new(one.as_bytes()).unwrap(), Name::new(two.as_bytes()).unwrap());
        let set = SetAttrs::default();
        let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::ALL };
        let node = b.create(&cx, &root, one, &how).unwrap().node;
        let mut seen = vec![node.attrs.change.0];
        write(&b, &node.handle);
        seen.push(change(&b, &node.handle));
        b.rename(&cx, (&root, one), (&root, two), RenameFlags::Replace).unwrap();
        seen.push(change(&b, &node.handle));
        write(&b, &node.handle);
        seen.push(change(&b, &node.handle));
        files.push(two.as_bytes().to_vec());
        told.push(seen);
    }
    drop(b);
    let b = open(mounted.0.path(), state.path());
    let root = b.root().unwrap();
    for (name, mut seen) in files.iter().zip(told) {
        let found = b.lookup(&cx, &root, Name::new(name).unwrap(), AttrMask::ALL).unwrap();
        seen.push(found.attrs.change.0);
        assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
    }
}
