//! A file system that is full: the store on real ones, filled and freed again. Needs root, as it mounts them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use holdfast_store::suite::collect;
use holdfast_store::{Batch, EmbeddedStore, Store, StoreError};

/// A small file system, unmounted when dropped.
struct Small {
    dir: tempfile::TempDir,
}

fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).output();
    let done = done.unwrap_or_else(|e| panic!("this test needs the program {program}: {e}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {}: {said}", args.join(" "));
}

impl Small {
    fn make(kind: &str) -> Self {
        assert!(rustix::process::geteuid().is_root(), "this test mounts file systems: run it as root");
        let small = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(small.mount()).unwrap();
        let (mount, image) = (small.mount(), small.dir.path().join("image"));
        let (mount, image) = (mount.to_str().unwrap(), image.to_str().unwrap());
        match kind {
            "tmpfs" => run("mount", &["-t", "tmpfs", "-o", "size=32m", "tmpfs", mount]),
            // Without extents, as ext3 was, nothing can be reserved.
            _ => {
                File::create(image).unwrap().set_len(32 << 20).unwrap();
                run(&format!("mkfs.{kind}"), &["-q", "-F", "-m", "0", image]);
                run("mount", &["-o", "loop", image, mount]);
            }
        }
        small
    }

    fn mount(&self) -> PathBuf {
        self.dir.path().join("mount")
    }

    /// Takes every byte there is.
    fn fill(&self) {
        let mut file = File::create(self.mount().join("filler")).unwrap();
        for bytes in [1 << 16, 1 << 12, 1 << 9] {
            let error = loop {
                if let Err(error) = file.write_all(&vec![1; bytes]).and_then(|()| file.sync_data()) {
                    break error;
                }
            };
            assert_eq!(error.kind(), ErrorKind::StorageFull);
        }
    }

    fn free(&self) {
        std::fs::remove_file(self.mount().join("filler")).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let patience = Instant::now() + Duration::from_secs(20);
        // The children that other tests fork hold our descriptors until they are another program.
        while !Command::new("umount").arg(self.mount()).output().is_ok_and(|done| done.status.success()) {
            assert!(Instant::now() < patience, "cannot be unmounted");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Opens a store that was just dropped: the children that other tests fork hold its lock until they are another program.
fn open_again(path: &Path) -> EmbeddedStore {
    let patience = Instant::now() + Duration::from_secs(20);
    loop {
        match EmbeddedStore::open(path) {
            Err(StoreError::InUse { .. }) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome.unwrap(),
        }
    }
}

fn key(n: u32) -> Vec<u8> {
    format!("client/{n:08}").into_bytes()
}

const RECORD: [u8; 300] = [7; 300];

/// Puts new records until there is no room; how many.
fn put_all(store: &dyn Store, from: u32) -> (u32, StoreError) {
    for n in from.. {
        if let Err(error) = store.put(&key(n), &RECORD) {
            return (n, error);
        }
    }
    unreachable!("a file system of 32 MiB holds everything")
}

fn a_full_disk_is_outlived(kind: &str) {
    let small = Small::make(kind);
    let path = small.mount().join("records.redb");
    let store = EmbeddedStore::open(&path).unwrap();
    let before = 200;
    (0..before).for_each(|n| store.put(&key(n), &RECORD).unwrap());
    small.fill();
    // What fits into the file as it is is taken in.
    let (stored, error) = put_all(&store, before);
    assert!(error.to_string().contains(small.mount().to_str().unwrap()), "{kind}: {error}");
    assert_eq!(store.get(&key(stored)), Ok(None), "{kind}: what was refused is not there");
    // Marks and removals go on, whatever others did with the room that was left.
    let mut marked = RECORD;
    marked[0] = 8;
    for n in 0..stored {
        assert_eq!(store.put(&key(n), &marked), Ok(()), "{kind}: {n} of {stored} marked");
    }
    let removed = |from: u32, to: u32| (from..to).fold(Batch::new(), |batch, n| batch.delete(&key(n)));
    for n in (0..stored).step_by(100) {
        assert_eq!(store.transaction(&removed(n, n + 100)), Ok(()), "{kind}: {n} of {stored} removed");
    }
    assert_eq!(collect(&store, b"client/").unwrap(), []);
    small.free();
    assert_eq!(patiently(&store), Ok(()), "{kind}: there is room, and nobody started anew");
    drop(store);
    let store = open_again(&path);
    assert_eq!(collect(&store, b"client/").unwrap().len(), 1, "{kind}");
}

/// A put, tried for a few seconds: where nothing can be reserved a full file system is given a second.
fn patiently(store: &dyn Store) -> Result<(), StoreError> {
    let patience = Instant::now() + Duration::from_secs(5);
    loop {
        match store.put(&key(0), &RECORD) {
            Err(_) if Instant::now() < patience => std::thread::sleep(Duration::from_millis(100)),
            outcome => return outcome,
        }
    }
}

#[test]
fn a_full_tmpfs_is_outlived() {
    a_full_disk_is_outlived("tmpfs");
}

#[test]
fn a_full_ext4_is_outlived() {
    a_full_disk_is_outlived("ext4");
}

#[test]
fn a_full_file_system_that_cannot_reserve_is_outlived() {
    let small = Small::make("ext3");
    let store = EmbeddedStore::open(&small.mount().join("records.redb")).unwrap();
    (0..200).for_each(|n| store.put(&key(n), &RECORD).unwrap());
    small.fill();
    let (stored, _) = put_all(&store, 200);
    assert_eq!(store.get(&key(stored)), Ok(None));
    assert_eq!(collect(&store, b"client/").unwrap().len(), stored as usize, "all that was answered is there");
    small.free();
    assert_eq!(patiently(&store), Ok(()));
}

#[test]
fn a_store_on_a_full_file_system_opens_again() {
    let small = Small::make("tmpfs");
    let path: &Path = &small.mount().join("records.redb");
    let store = EmbeddedStore::open(path).unwrap();
    store.put(b"a", b"1").unwrap();
    small.fill();
    drop(store);
    let store = open_again(path);
    assert_eq!(store.get(b"a"), Ok(Some(b"1".to_vec())));
    assert_eq!(store.delete(b"a"), Ok(()));
}
