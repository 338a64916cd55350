//! Holes, regions, copies, clones.

use super::TestBackend;
use super::world::World;
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::open::{CopySpan, File, Region, Seek};

const MIB: u64 = 1 << 20;

fn seek(w: &World, file: &Handle, offset: u64, what: Seek) -> FsResult<u64> {
    w.b().seek(&w.cx(), File::Stateless(file), offset, what)
}

pub(super) fn holes_and_data_are_found(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", &[1; 65536]);
    w.write(&file, 4 * MIB, &[2; 65536]);
    let end = 4 * MIB + 65536;
    if w.b().limits(&file).unwrap().has_sparse {
        assert_eq!(seek(&w, &file, 100, Seek::Data), Ok(100));
        let hole = seek(&w, &file, 0, Seek::Hole).unwrap();
        assert!((65536..=4 * MIB).contains(&hole), "{hole}");
        let data = seek(&w, &file, MIB, Seek::Data).unwrap();
        assert!(data > MIB && data <= 4 * MIB, "{data}");
    }
    assert_eq!(seek(&w, &file, 4 * MIB, Seek::Hole), Ok(end), "the end is a hole");
    for what in [Seek::Data, Seek::Hole] {
        assert_eq!(seek(&w, &file, end, what), Err(FsError::NoDevice));
        assert_eq!(seek(&w, &file, u64::MAX, what), Err(FsError::NoDevice));
    }
}

pub(super) fn regions_are_reserved_punched_and_zeroed(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", &[7; 65536]);
    let region = |offset, bytes, what| w.b().region(&w.cx(), File::Stateless(&file), offset, bytes, what);
    let size = || w.attrs(&file).size;
    // A file system may know only some of them; what it knows, it does rightly.
    let did = |what, offset, bytes| match region(offset, bytes, what) {
        Err(FsError::NotSupported) => false,
        other => {
            other.unwrap();
            true
        }
    };
    if did(Region::Allocate, 65536, 65536) {
        assert_eq!(size(), 131_072);
    }
    if did(Region::AllocateKeepSize, 0, MIB) {
        assert!(size() <= 131_072);
    }
    if did(Region::Punch, 4096, 8192) {
        let data = w.read(&file);
        assert!(data[4096..12288].iter().all(|b| *b == 0));
        assert!(data[..4096].iter().chain(&data[12288..65536]).all(|b| *b == 7));
        let before = size();
        assert_eq!(region(before, MIB, Region::Punch), Ok(()));
        assert_eq!(size(), before, "punching never changes the size");
    }
    if did(Region::Zero, 16384, 4096) {
        assert!(w.read(&file)[16384..20480].iter().all(|b| *b == 0));
    }
    assert_eq!(region(u64::MAX - 1, 1, Region::Allocate), Err(FsError::TooBig));
}

pub(super) fn copies_have_the_same_bytes(t: TestBackend) {
    let w = World::new(t);
    let data: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    let (from, to) = (w.file(&w.root, "from", &data), w.touch(&w.root, "to"));
    let copy = |span| w.b().copy(&w.cx(), File::Stateless(&from), File::Stateless(&to), span);
    assert_eq!(copy(CopySpan { from: 0, to: 0, bytes: 0 }), Ok(200_000));
    assert_eq!(w.read(&to), data);
    assert_eq!(copy(CopySpan { from: 1000, to: 10, bytes: 500 }), Ok(500));
    assert_eq!(w.read(&to)[10..510], data[1000..1500]);
    assert_eq!(copy(CopySpan { from: 199_990, to: 200_000, bytes: 500 }), Ok(10));
    assert_eq!(w.attrs(&to).size, 200_010);
    assert_eq!(copy(CopySpan { from: 500_000, to: 0, bytes: 5 }), Ok(0));
    let itself = CopySpan { from: 0, to: 100, bytes: 5000 };
    let overlapping = w.b().copy(&w.cx(), File::Stateless(&from), File::Stateless(&from), itself);
    assert_eq!(overlapping, Err(FsError::Invalid));
}

pub(super) fn clones_share_or_say_that_they_cannot(t: TestBackend) {
    let w = World::new(t);
    let limits = w.b().limits(&w.root).unwrap();
    let (from, to) = (w.file(&w.root, "from", &[5; 65536]), w.touch(&w.root, "to"));
    let clone = |span| w.b().clone_range(&w.cx(), File::Stateless(&from), File::Stateless(&to), span);
    let done = clone(CopySpan { from: 0, to: 0, bytes: 65536 });
    if !limits.has_clone {
        assert_eq!(done, Err(FsError::NotSupported));
        return;
    }
    assert_eq!(done, Ok(()));
    assert_eq!(w.read(&to), [5; 65536]);
    w.write(&to, 0, b"changed");
    assert_eq!(w.read(&from), [5; 65536]);
    assert_eq!(clone(CopySpan { from: 7, to: 0, bytes: 4096 }), Err(FsError::Invalid));
}
