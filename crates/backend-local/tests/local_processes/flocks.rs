//! `flock` of local processes against locks that cover a whole file, which is how a client's `flock` comes.

use std::sync::mpsc;

use holdfast_vfs::FsResult;
use rustix::fs::{FlockOperation, flock};

use super::*;

const KINDS: [LockKind; 2] = [LockKind::Read, LockKind::Write];

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::from_nfs4(Offset(offset), Length(length)).unwrap()
}

/// What a local process has open.
struct Local(StdFile);

impl Local {
    fn of(w: &World, n: &str) -> Self {
        Self(StdFile::open(w.path(n)).unwrap())
    }

    /// Whether it gets it at once.
    fn tries(&self, kind: LockKind) -> bool {
        let operation = match kind {
            LockKind::Read => FlockOperation::NonBlockingLockShared,
            LockKind::Write => FlockOperation::NonBlockingLockExclusive,
        };
        flock(&self.0, operation).is_ok()
    }

    fn lets_go(&self) {
        flock(&self.0, FlockOperation::Unlock).unwrap();
    }

    /// Whether it would get it now.
    fn could(&self, kind: LockKind) -> bool {
        let could = self.tries(kind);
        self.lets_go();
        could
    }

    /// What it could have: nothing, a shared one, or any.
    fn best(&self) -> Option<LockKind> {
        KINDS.into_iter().rev().find(|kind| self.could(*kind))
    }
}

/// An open file of ours, and one of a local process.
fn scene(w: &World) -> (Arc<dyn FileObject>, Local) {
    let file = w.file("file");
    (w.open(&file, BOTH), Local::of(w, "file"))
}

#[test]
fn a_local_flock_and_a_lock_of_the_whole_file_exclude_each_other() {
    must_be_root();
    on_each(|w| {
        let (open, local) = scene(w);
        for (ours, theirs) in KINDS.into_iter().flat_map(|ours| KINDS.map(|theirs| (ours, theirs))) {
            let can_be_both = (ours, theirs) == (LockKind::Read, LockKind::Read);
            // Ours first.
            w.backend.lock(&open, ByteRange::ALL, ours).unwrap();
            assert_eq!(local.could(theirs), can_be_both, "{theirs:?} beside our {ours:?}");
            w.backend.unlock(&open, ByteRange::ALL).unwrap();
            // Theirs first.
            assert!(local.tries(theirs), "what is unlocked is free");
            let found = w.backend.test_lock(&open, ByteRange::ALL, ours).unwrap();
            let refused = (!can_be_both).then_some((ByteRange::ALL, theirs));
            assert_eq!(found.map(|found| (found.range, found.kind)), refused);
            let expected = if can_be_both { Ok(()) } else { Err(FsError::Locked) };
            assert_eq!(w.backend.lock(&open, ByteRange::ALL, ours), expected);
            assert!(!local.could(LockKind::Write) || !can_be_both);
            w.backend.unlock(&open, ByteRange::ALL).unwrap();
            local.lets_go();
            assert_eq!(w.backend.test_lock(&open, ByteRange::ALL, ours), Ok(None));
            assert_eq!(local.best(), Some(LockKind::Write), "what was refused or asked left nothing behind");
        }
    });
}

#[test]
fn another_process_meets_it_too_and_goes_on_when_it_is_gone() {
    must_be_root();
    let w = world_on(Disk::make("ext4", &[]), LocalUse::Lazy);
    let (open, _) = scene(&w);
    w.backend.lock(&open, ByteRange::ALL, LockKind::Write).unwrap();
    done(w.run("! flock --nonblock --shared \"$1\" true", "file"));
    let mut waiting = w.run("flock --exclusive \"$1\" true", "file");
    assert!(is_waiting(&mut waiting));
    w.backend.unlock(&open, ByteRange::ALL).unwrap();
    done(waiting);
}

#[test]
fn a_lock_of_a_part_meets_no_flock() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::Strict);
    let (open, local) = scene(&w);
    for part in [range(0, 10), range(1, u64::MAX)] {
        w.backend.lock(&open, part, LockKind::Write).unwrap();
        assert!(local.tries(LockKind::Write));
        assert_eq!(w.backend.test_lock(&open, part, LockKind::Write), Ok(None));
        w.backend.lock(&open, part, LockKind::Write).unwrap();
        w.backend.unlock(&open, part).unwrap();
        local.lets_go();
    }
}

#[test]
fn a_flock_follows_its_lock_down_and_up() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::Lazy);
    let (open, local) = scene(&w);
    let lock = |range, kind| w.backend.lock(&open, range, kind);
    // Weaker and stronger as a whole.
    lock(ByteRange::ALL, LockKind::Write).unwrap();
    lock(ByteRange::ALL, LockKind::Read).unwrap();
    assert_eq!(local.best(), Some(LockKind::Read));
    lock(ByteRange::ALL, LockKind::Write).unwrap();
    assert_eq!(local.best(), None);
    // A part that is weaker leaves the whole only as strong.
    lock(range(5, 5), LockKind::Read).unwrap();
    assert_eq!(local.best(), Some(LockKind::Read));
    lock(range(20, 5), LockKind::Write).unwrap();
    assert_eq!(local.best(), Some(LockKind::Read));
    // Without a part it is no lock of the whole file any more.
    w.backend.unlock(&open, range(100, 1)).unwrap();
    assert_eq!(local.best(), Some(LockKind::Write));
    // Closing ends it.
    lock(ByteRange::ALL, LockKind::Write).unwrap();
    drop(open);
    assert!(soon(|| local.best() == Some(LockKind::Write)));
}

#[test]
fn what_refuses_a_stronger_lock_leaves_the_weaker_one() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::Lazy);
    let (open, reader) = scene(&w);
    w.backend.lock(&open, ByteRange::ALL, LockKind::Read).unwrap();
    assert!(reader.tries(LockKind::Read));
    let found = w.backend.test_lock(&open, ByteRange::ALL, LockKind::Write).unwrap().unwrap();
    assert_eq!(found.kind, LockKind::Read);
    assert_eq!(w.backend.lock(&open, ByteRange::ALL, LockKind::Write), Err(FsError::Locked));
    reader.lets_go();
    assert_eq!(reader.best(), Some(LockKind::Read), "ours is there still");
    // The other way about: a range is in the way, and the `flock` is what it was.
    let outsider = StdFile::options().read(true).write(true).open(w.path("file")).unwrap();
    assert!(disk::neighbour::lock_range(&outsider, range(5, 1), LockKind::Read));
    assert_eq!(w.backend.lock(&open, ByteRange::ALL, LockKind::Write), Err(FsError::Locked));
    assert_eq!(reader.best(), Some(LockKind::Read));
}

#[test]
fn our_own_flocks_are_nobodys_to_us() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::Lazy);
    let (one, local) = scene(&w);
    let (two, asks) = (w.open(&w.find("file"), BOTH), w.open(&w.find("file"), READ));
    let ask = |open, kind| w.backend.test_lock(open, ByteRange::ALL, kind).unwrap().map(|held| held.kind);
    w.backend.lock(&one, ByteRange::ALL, LockKind::Read).unwrap();
    // As LOCKT of the one who holds it, by an open file of its own.
    assert_eq!(ask(&asks, LockKind::Write), None);
    assert_eq!(local.best(), Some(LockKind::Read), "asked, not changed");
    assert!(local.tries(LockKind::Read));
    assert_eq!(ask(&asks, LockKind::Write), Some(LockKind::Read));
    assert_eq!(ask(&asks, LockKind::Read), None);
    local.lets_go();
    w.backend.lock(&two, ByteRange::ALL, LockKind::Read).unwrap();
    assert_eq!((ask(&asks, LockKind::Read), local.best()), (None, Some(LockKind::Read)));
    w.backend.unlock(&one, ByteRange::ALL).unwrap();
    assert_eq!(local.best(), Some(LockKind::Read), "the other one's");
    w.backend.lock(&two, ByteRange::ALL, LockKind::Write).unwrap();
    assert_eq!((ask(&asks, LockKind::Write), ask(&asks, LockKind::Read)), (None, None));
    assert_eq!(local.best(), None);
}

#[test]
fn who_asks_is_never_in_the_way_of_who_locks() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::Lazy);
    let (locks, _) = scene(&w);
    let asks = w.open(&w.find("file"), READ);
    let (stop, is_over) = mpsc::channel::<()>();
    std::thread::scope(|s| {
        s.spawn(|| {
            let is_over = is_over;
            while is_over.try_recv() == Err(mpsc::TryRecvError::Empty) {
                for kind in KINDS {
                    w.backend.test_lock(&asks, ByteRange::ALL, kind).unwrap();
                }
            }
        });
        for n in 0..20_000 {
            let taken: FsResult<()> = w.backend.lock(&locks, ByteRange::ALL, KINDS[n % 2]);
            assert_eq!(taken, Ok(()), "refused after {n}");
            w.backend.unlock(&locks, ByteRange::ALL).unwrap();
        }
        drop(stop);
    });
}

/// Remembers the ranges that were told to be free.
#[derive(Default)]
struct Told(Mutex<Vec<(FileKey, ByteRange)>>);

impl LocalListener for Told {
    fn local_deed(&self, _: FileKey, _: LocalDeed) {}

    fn local_unlock(&self, file: FileKey, range: ByteRange) {
        self.0.lock().unwrap().push((file, range));
    }
}

#[test]
fn who_waits_for_a_local_flock_is_told_when_it_is_gone() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::Lazy);
    let told = Arc::new(Told::default());
    let listener: Arc<dyn LocalListener> = Arc::<Told>::clone(&told);
    w.backend.listen(Arc::downgrade(&listener));
    let (open, local) = scene(&w);
    // With a shared lock of its own, which it wants to be more.
    w.backend.lock(&open, ByteRange::ALL, LockKind::Read).unwrap();
    assert!(local.tries(LockKind::Read));
    w.backend.await_unlock(&open, ByteRange::ALL, LockKind::Write).unwrap();
    assert!(!soon_or_not(|| !told.0.lock().unwrap().is_empty()));
    local.lets_go();
    assert!(soon(|| *told.0.lock().unwrap() == [(w.find("file").key(), ByteRange::ALL)]));
    assert_eq!(local.best(), Some(LockKind::Read), "what it has stays");
}

#[test]
fn a_flock_goes_with_its_open_file_though_a_pledge_keeps_the_descriptor() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::Lazy);
    let file = w.file("file");
    let open = w.open(&file, BOTH);
    w.backend.lock(&open, ByteRange::ALL, LockKind::Write).unwrap();
    let guard = w.pledge(&file, Pledge::WriteFile, Some(&open));
    // What shares the descriptor changes nothing of another's.
    let shares = w.open(&file, BOTH);
    assert_eq!(w.backend.test_lock(&shares, ByteRange::ALL, LockKind::Write), Ok(None));
    w.backend.unlock(&shares, ByteRange::ALL).unwrap();
    drop((shares, open));
    let other = w.open(&file, BOTH);
    assert!(w.is_unlocked(&other), "the lock stays with the pledge's descriptor");
    drop((other, guard));
    assert_eq!(Local::of(&w, "file").best(), Some(LockKind::Write));
}

#[test]
fn where_nobody_else_uses_the_files_no_flock_is_taken() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::None);
    let (open, local) = scene(&w);
    w.backend.lock(&open, ByteRange::ALL, LockKind::Write).unwrap();
    assert_eq!(local.best(), Some(LockKind::Write));
}
