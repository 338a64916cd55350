//! Writes of a byte whose effect on a file's attributes nobody asks for cost its journal no more than those of a local program.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use disk::Disk;
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_vfs::{AttrMask, Backend as _, Caller, Cx, File, Name, OpenMode, Stability, Wait, WriteAt};

/// More than there are ticks of a clock while they are done.
const WRITES: u64 = 4000;

/// What XFS has counted of transactions.
fn transactions(mount: &Path) -> u64 {
    let device = std::fs::metadata(mount).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let name = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).unwrap();
    let name = name.file_name().unwrap().to_str().unwrap().to_owned();
    let told = std::fs::read_to_string(format!("/sys/fs/xfs/{name}/stats/stats")).unwrap();
    let line = told.lines().find_map(|line| line.strip_prefix("trans ")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_byte_takes_no_transaction_when_nobody_asks_for_the_files_times() {
    let disk = Disk::make("xfs", &[]);
    std::fs::write(disk.mount.join("file"), vec![7; 64 << 10]).unwrap();
    let state = tempfile::tempdir().unwrap();
    let backend = LocalBackend::open(&disk.mount, LocalOptions::new(state.path().to_owned())).unwrap();
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::No);
    let root = backend.root().unwrap();
    let name = Name::new(b"file").unwrap();
    let handle = backend.lookup(&Cx::new(&caller, Wait::Yes), &root, name, AttrMask::ALL).unwrap().handle;
    let mode = OpenMode { read: true, write: true, nfs_exceptions: true };
    let open = backend.open(&Cx::new(&caller, Wait::Yes), &handle, mode).unwrap();
    let before = transactions(&disk.mount);
    for number in 0..WRITES {
        let at = WriteAt { offset: number, stability: Stability::Unstable, want_change: false };
        backend.write(&cx, File::Open(&handle, &open), at, b"x").unwrap();
    }
    // One a tick of the clock, as for whoever writes.
    let taken = transactions(&disk.mount) - before;
    assert!(taken < WRITES / 2, "{taken} transactions of {WRITES} writes");
}
