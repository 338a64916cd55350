//! Who must not wait is told that the disk would have to be waited for, and not made to.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::fs::File as Local;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use disk::Disk;
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_vfs::{
    AttrMask, Backend, Caller, Cx, File, FsError, FsResult, Handle, Name, Stability, Wait, WriteAt,
};
use rustix::fs::{Advice, fadvise};

const BYTES: usize = 3 << 20;

/// A file of so many bytes in memory, all on disk too.
fn on_each_disk(test: impl Fn(&LocalBackend, &Handle, &Path)) {
    for kind in ["ext4", "xfs"] {
        let disk = Disk::make(kind, &[]);
        let path: PathBuf = disk.mount.join("file");
        std::fs::write(&path, vec![7; BYTES]).unwrap();
        let state = tempfile::tempdir().unwrap();
        let backend = LocalBackend::open(&disk.mount, LocalOptions::new(state.path().to_owned())).unwrap();
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let root = backend.root().unwrap();
        let handle = backend.lookup(&cx, &root, Name::new(b"file").unwrap(), AttrMask::ALL).unwrap().handle;
        test(&backend, &handle, &path);
    }
}

/// Drops it from memory: all of it, as the kernel keeps a file in pieces of any size, of which it drops none in part.
fn forget(path: &Path) -> Local {
    let file = Local::open(path).unwrap();
    file.sync_all().unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    file
}

/// The same but for its ends.
fn forget_middle(path: &Path) {
    let file = forget(path);
    fadvise(&file, 0, None, Advice::Random).unwrap();
    for end in [0, BYTES as u64 - 1] {
        file.read_exact_at(&mut [0], end).unwrap();
    }
}

fn span(b: &LocalBackend, file: &Handle, wait: Wait) -> FsResult<usize> {
    let caller = Caller::root();
    let span = b.read_span(&Cx::new(&caller, wait), File::Stateless(file), 0, BYTES)?;
    Ok(span.unwrap().bytes)
}

fn write(b: &LocalBackend, file: &Handle, (offset, bytes): (u64, usize), wait: Wait) -> FsResult<usize> {
    let caller = Caller::root();
    let at = WriteAt { offset, stability: Stability::Unstable, want_change: true };
    b.write(&Cx::new(&caller, wait), File::Stateless(file), at, &vec![8; bytes]).map(|written| written.bytes)
}

#[test]
fn a_stretch_whose_middle_is_not_in_memory_is_not_sent_by_who_must_not_wait() {
    on_each_disk(|b, file, path| {
        assert_eq!(span(b, file, Wait::Yes), Ok(BYTES));
        assert_eq!(span(b, file, Wait::No), Ok(BYTES), "all is in memory");
        forget_middle(path);
        assert_eq!(span(b, file, Wait::No), Err(FsError::WouldBlock));
        assert_eq!(span(b, file, Wait::Yes), Ok(BYTES));
        assert_eq!(span(b, file, Wait::No), Ok(BYTES), "who may wait has brought it in");
    });
}

#[test]
fn a_write_that_has_to_read_the_rest_of_a_page_is_not_begun_by_who_must_not_wait() {
    on_each_disk(|b, file, path| {
        let end = BYTES as u64;
        for (what, place, must_wait) in [
            ("inside a page", (100, 10), true),
            ("the first page in part", (100, 8092), true),
            ("the last page in part", (0, 4097), true),
            ("whole pages", (8192, 8192), false),
            ("from a page's start past the end", (end - 4096, 5000), false),
            ("behind the end", (end, 10), false),
        ] {
            drop(forget(path));
            let now = write(b, file, place, Wait::No);
            assert_eq!(now, if must_wait { Err(FsError::WouldBlock) } else { Ok(place.1) }, "{what}");
            assert_eq!(write(b, file, place, Wait::Yes), Ok(place.1), "{what}");
            assert_eq!(write(b, file, place, Wait::No), Ok(place.1), "{what}, in memory");
            std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(end).unwrap();
        }
    });
}

#[test]
fn a_links_text_that_lies_in_a_block_of_its_own_is_read_by_who_may_wait() {
    on_each_disk(|b, _, path| {
        let caller = Caller::root();
        let (now, waiting) = (Cx::new(&caller, Wait::No), Cx::new(&caller, Wait::Yes));
        let root = b.root().unwrap();
        let text = |bytes: usize| "x/".repeat(bytes / 2);
        for (name, bytes, must_wait) in [("short", 40, false), ("long", 1000, true)] {
            std::os::unix::fs::symlink(text(bytes), path.with_file_name(name)).unwrap();
            let link = b.lookup(&waiting, &root, Name::new(name.as_bytes()).unwrap(), AttrMask::ALL).unwrap();
            let read = b.readlink(&now, &link.handle);
            let expected = if must_wait { Err(FsError::WouldBlock) } else { Ok(text(bytes).into_bytes()) };
            assert_eq!(read, expected, "{name}");
            assert_eq!(b.readlink(&waiting, &link.handle), Ok(text(bytes).into_bytes()), "{name}");
        }
    });
}
