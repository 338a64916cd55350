use std::fs;
use std::os::unix::fs::MetadataExt as _;

use holdfast_vfs::{AttrMask, Backend as _, Caller, Cx, Name, Pledge, Wait};

use crate::{LocalBackend, LocalOptions};

/// Whether a mark of this process is on an inode of this number, as the kernel lists them.
fn is_marked(ino: u64) -> bool {
    let info = |entry: std::io::Result<fs::DirEntry>| fs::read_to_string(entry.ok()?.path()).ok();
    let infos = fs::read_dir("/proc/self/fdinfo").unwrap().filter_map(info);
    let mark = format!("fanotify ino:{ino:x} ");
    infos.into_iter().any(|text| text.lines().any(|line| line.starts_with(&mark)))
}

#[test]
fn a_mark_is_taken_down_from_what_was_taken_for_removed_and_is_pledged_again() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let backend = LocalBackend::open(dir.path(), LocalOptions::new(state.path().to_owned())).unwrap();
    fs::write(dir.path().join("file"), "data").unwrap();
    let ino = fs::metadata(dir.path().join("file")).unwrap().ino();
    let caller = Caller::root();
    let (cx, root) = (Cx::new(&caller, Wait::Yes), backend.root().unwrap());
    let name = Name::new(b"file").unwrap();
    let file = backend.lookup(&cx, &root, name, AttrMask::STAT).unwrap().handle;
    let pledge = || backend.pledge(&file, Pledge::ReadFile, None).unwrap().expect("fanotify");
    let first = pledge();
    assert!(is_marked(ino));
    // Its last name was seen going, and somebody had given it another a moment before.
    backend.watch.removed(&file);
    let second = pledge();
    drop(first);
    assert!(is_marked(ino));
    drop(second);
    assert!(!is_marked(ino));
}
