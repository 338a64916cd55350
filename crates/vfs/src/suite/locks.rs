//! Locks of open files, against those of others.

use std::sync::Arc;

use holdfast_base::{ByteRange, Length, Offset};

use super::TestBackend;
use super::world::{BOTH, World};
use crate::error::FsError;
use crate::open::{FileObject, LockKind};

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::from_nfs4(Offset(offset), Length(length)).unwrap()
}

type OpenFile = Arc<dyn FileObject>;

/// Two open files that are others to each other.
fn two(t: TestBackend) -> Option<(World, OpenFile, OpenFile)> {
    if !t.abilities.has_outside_locks {
        return None;
    }
    let w = World::new(t);
    let file = w.touch(&w.root, "file");
    let (one, other) = (w.open(&file, BOTH), w.open(&file, BOTH));
    Some((w, one, other))
}

pub(super) fn a_lock_holds_against_another_open_file(t: TestBackend) {
    let Some((w, one, other)) = two(t) else { return };
    w.b().lock(&one, range(10, 10), LockKind::Write).unwrap();
    assert_eq!(w.b().lock(&other, range(19, 5), LockKind::Read), Err(FsError::Locked));
    assert_eq!(w.b().lock(&other, range(20, 5), LockKind::Write), Ok(()));
    for file in [&one, &other] {
        let found = w.b().test_lock(file, range(0, 20), LockKind::Write).unwrap();
        assert_eq!(found, None, "nobody outside holds anything");
    }
    // The same open file may take it anew, in another kind.
    w.b().lock(&one, range(10, 10), LockKind::Read).unwrap();
    assert_eq!(w.b().lock(&other, range(10, 5), LockKind::Read), Ok(()));
    assert_eq!(w.b().lock(&one, range(0, u64::MAX), LockKind::Write), Err(FsError::Locked));
}

pub(super) fn unlocking_a_part_frees_that_part(t: TestBackend) {
    let Some((w, one, other)) = two(t) else { return };
    w.b().lock(&one, ByteRange::ALL, LockKind::Write).unwrap();
    w.b().unlock(&one, range(100, 50)).unwrap();
    assert_eq!(w.b().lock(&other, range(100, 50), LockKind::Write), Ok(()));
    assert_eq!(w.b().lock(&other, range(99, 1), LockKind::Write), Err(FsError::Locked));
    assert_eq!(w.b().lock(&other, range(1 << 40, 1), LockKind::Write), Err(FsError::Locked));
    assert_eq!(w.b().lock(&other, range(150, 10), LockKind::Read), Err(FsError::Locked));
}

pub(super) fn closing_frees_all_locks(t: TestBackend) {
    let Some((w, one, other)) = two(t) else { return };
    w.b().lock(&one, ByteRange::ALL, LockKind::Write).unwrap();
    assert_eq!(w.b().lock(&other, range(0, 1), LockKind::Write), Err(FsError::Locked));
    drop(one);
    assert_eq!(w.b().lock(&other, range(0, 1), LockKind::Write), Ok(()));
}
