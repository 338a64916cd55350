//! What is advised about a range of a file is followed, and of what is not on disk nothing is dropped or waited for.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::fs::File as Local;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

use disk::Disk;
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::ByteRange;
use holdfast_vfs::{
    Advice, Advised, AttrMask, Backend, Caller, Cx, File, FsError, Name, Stability, Touched, Wait, WriteAt,
};
use rustix::io::{Errno, ReadWriteFlags};

/// Not whole pages.
const BYTES: usize = (1 << 20) + 100;

/// Whether the page of this byte is in memory.
fn is_in_memory(file: &Local, at: u64) -> bool {
    let mut byte = [0];
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
        Ok(_) => true,
        Err(Errno::AGAIN) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn memory_is_freed_of_what_is_on_disk_and_filled_with_what_will_be_needed() {
    for kind in ["ext4", "xfs"] {
        let disk = Disk::make(kind, &[]);
        let path = disk.mount.join("file");
        std::fs::write(&path, b"").unwrap();
        let state = tempfile::tempdir().unwrap();
        let backend = LocalBackend::open(&disk.mount, LocalOptions::new(state.path().to_owned())).unwrap();
        let caller = Caller::root();
        let [cx, hurried] = [Wait::Yes, Wait::No].map(|wait| Cx::new(&caller, wait));
        let root = backend.root().unwrap();
        let file = backend.lookup(&cx, &root, Name::new(b"file").unwrap(), AttrMask::ALL).unwrap().handle;
        let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
        backend.write(&cx, File::Stateless(&file), at, &vec![7; BYTES]).unwrap();
        let local = Local::open(&path).unwrap();
        rustix::fs::fadvise(&local, 0, None, rustix::fs::Advice::Random).unwrap();
        let range = ByteRange::from_bounds(0, BYTES as u64 - 1).unwrap();
        let advise = |cx: &Cx<'_>, range, what| backend.advise(cx, File::Stateless(&file), range, what);
        assert_eq!(advise(&hurried, range, Advice::DontNeed), Err(FsError::WouldBlock));
        assert_eq!(advise(&cx, range, Advice::DontNeed), Ok(Advised::OnceCommitted), "{kind}");
        assert!(is_in_memory(&local, 0));
        let mut results = [Ok(())];
        backend.commit(&[Touched { handle: file, data: true }], &mut results);
        assert_eq!(results, [Ok(())]);
        assert_eq!(advise(&cx, range, Advice::DontNeed), Ok(Advised::Followed), "{kind}");
        for at in [0, BYTES as u64 / 2, BYTES as u64 - 1] {
            assert!(!is_in_memory(&local, at), "{kind}: byte {at}");
        }
        assert_eq!(advise(&cx, ByteRange::ALL, Advice::WillNeed), Ok(Advised::Followed));
        let until = Instant::now() + Duration::from_secs(10);
        while !is_in_memory(&local, BYTES as u64 - 1) {
            assert!(Instant::now() < until, "{kind}: it is not brought into memory");
            std::thread::sleep(Duration::from_millis(10));
        }
        let beyond = ByteRange::from_bounds(BYTES as u64, u64::MAX).unwrap();
        assert_eq!(advise(&cx, beyond, Advice::DontNeed), Ok(Advised::Followed));
        assert!(is_in_memory(&local, 0), "{kind}: of that nothing was said");
    }
}
