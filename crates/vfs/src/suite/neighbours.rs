//! Processes on the server's own host: what is pledged against them, and their locks.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use holdfast_base::{ByteRange, FileKey, Length, Offset};

use super::world::{BOTH, READ, World, at, mode};
use super::{Neighbour, NeighbourDeed, TestBackend};
use crate::error::FsError;
use crate::handle::Handle;
use crate::open::{File, FileObject, LockKind};
use crate::pledge::{HeldPledge, LocalDeed, LocalListener, Pledge};

/// How long a deed may take to be told: the mechanisms take milliseconds, a busy machine more.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Ear {
    deeds: Mutex<Vec<(FileKey, LocalDeed)>>,
    unlocks: Mutex<Vec<(FileKey, ByteRange)>>,
}

impl LocalListener for Ear {
    fn local_deed(&self, file: FileKey, deed: LocalDeed) {
        self.deeds.lock().unwrap().push((file, deed));
    }

    fn local_unlock(&self, file: FileKey, range: ByteRange) {
        self.unlocks.lock().unwrap().push((file, range));
    }
}

/// Waits until something holds; says whether it did in time.
fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

struct Scene {
    w: World,
    neighbour: Box<dyn Neighbour>,
    ear: Arc<Ear>,
}

fn scene(mut t: TestBackend) -> Option<Scene> {
    let neighbour = t.neighbour.take()?;
    let w = World::new(t);
    let ear = Arc::new(Ear::default());
    let listener: Arc<dyn LocalListener> = Arc::<Ear>::clone(&ear);
    w.b().listen(Arc::downgrade(&listener));
    Some(Scene { w, neighbour, ear })
}

impl Scene {
    /// Not at the first try where other tests of the process fork at that moment: their children hold all our
    /// descriptors until they have become another program.
    fn pledge(&self, object: &Handle, what: Pledge, open: Option<&Arc<dyn FileObject>>) -> HeldPledge {
        let mut held = None;
        let is_held = || {
            held = self.w.b().pledge(object, what, open).unwrap();
            held.is_some()
        };
        assert!(soon(is_held), "this backend pledges");
        held.unwrap()
    }

    /// A neighbour does something that must break the pledge; the guard is dropped as one who was told would.
    fn breaks(&self, object: &Handle, guard: HeldPledge, (deed, n): (NeighbourDeed, &str)) {
        let finish = self.neighbour.begin(deed, object, n);
        assert!(soon(|| guard.is_broken()), "{deed:?} was not noticed");
        let is_told = || self.ear.deeds.lock().unwrap().iter().any(|(key, _)| *key == object.key());
        assert!(soon(is_told), "{deed:?} was not told");
        drop(guard);
        finish();
    }
}

pub(super) fn what_a_neighbour_does_breaks_the_pledge_and_is_told(t: TestBackend) {
    let Some(s) = scene(t) else { return };
    for deed in [NeighbourDeed::Append, NeighbourDeed::ChangeMode, NeighbourDeed::Rename] {
        let n = format!("{deed:?}");
        let file = s.w.file(&s.w.root, &n, b"data");
        assert_eq!(s.w.commit(&file), Ok(()));
        s.breaks(&file, s.pledge(&file, Pledge::ReadFile, None), (deed, &n));
    }
    let dir = s.w.mkdir(&s.w.root, "dir", 0o755);
    s.breaks(&dir, s.pledge(&dir, Pledge::Directory, None), (NeighbourDeed::MakeEntry, "dir"));
}

pub(super) fn a_neighbours_look_breaks_what_nobody_else_may_look_at(t: TestBackend) {
    let Some(s) = scene(t) else { return };
    let file = s.w.touch(&s.w.root, "file");
    let open = s.w.open(&file, BOTH);
    let guard = s.pledge(&file, Pledge::WriteFile, Some(&open));
    s.breaks(&file, guard, (NeighbourDeed::Read, "file"));
}

pub(super) fn what_we_do_ourselves_breaks_no_pledge(t: TestBackend) {
    let Some(s) = scene(t) else { return };
    let (file, dir) = (s.w.file(&s.w.root, "file", b"data"), s.w.mkdir(&s.w.root, "dir", 0o755));
    assert_eq!(s.w.commit(&file), Ok(()));
    let of_file = s.pledge(&file, Pledge::ReadFile, None);
    let of_dir = s.pledge(&dir, Pledge::Directory, None);
    s.w.set(&file, &mode(0o600)).unwrap();
    assert_eq!(s.w.read(&file), b"data");
    drop(s.w.open(&file, READ));
    s.w.touch(&dir, "entry");
    s.w.remove(&dir, "entry").unwrap();
    // What a neighbour does to another object comes later than all of this.
    let other = s.w.mkdir(&s.w.root, "other", 0o755);
    s.breaks(&other, s.pledge(&other, Pledge::Directory, None), (NeighbourDeed::MakeEntry, "other"));
    assert!(!of_file.is_broken() && !of_dir.is_broken());
}

pub(super) fn a_file_that_is_pledged_is_opened_read_and_written_all_the_same(t: TestBackend) {
    let Some(s) = scene(t) else { return };
    let file = s.w.touch(&s.w.root, "file");
    let open = s.w.open(&file, BOTH);
    let guard = s.pledge(&file, Pledge::WriteFile, Some(&open));
    let (again, stateless) = (s.w.open(&file, BOTH), File::Stateless(&file));
    let wrote = s.w.b().write(&s.w.cx(), File::Open(&file, &again), at(0), b"again").unwrap();
    assert_eq!(wrote.bytes, 5);
    assert_eq!(s.w.b().write(&s.w.cx(), stateless, at(5), b" more").unwrap().bytes, 5);
    assert_eq!(s.w.read(&file), b"again more");
    assert_eq!(s.w.commit(&file), Ok(()));
    drop((guard, again, open));
    assert_eq!(s.w.read(&file), b"again more");
    // A reader's pledge gives way to our own writer: that is told, and hinders nobody.
    let of_file = s.pledge(&file, Pledge::ReadFile, None);
    let writer = s.w.open(&file, BOTH);
    s.w.b().write(&s.w.cx(), File::Open(&file, &writer), at(0), b"A").unwrap();
    drop(of_file);
    assert_eq!(s.w.read(&file), b"Again more");
}

pub(super) fn a_pledge_is_for_its_kind_of_object(t: TestBackend) {
    let Some(s) = scene(t) else { return };
    let (file, dir) = (s.w.touch(&s.w.root, "file"), s.w.mkdir(&s.w.root, "dir", 0o755));
    let refused = |object, what| s.w.b().pledge(object, what, None).map(drop);
    assert_eq!(refused(&dir, Pledge::ReadFile), Err(FsError::IsDir));
    assert_eq!(refused(&file, Pledge::Directory), Err(FsError::NotDir));
    s.w.remove(&s.w.root, "file").unwrap();
    assert_eq!(refused(&file, Pledge::ReadFile), Err(FsError::Stale));
}

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::from_nfs4(Offset(offset), Length(length)).unwrap()
}

pub(super) fn a_neighbours_lock_is_found_whatever_we_hold_ourselves(t: TestBackend) {
    let Some(s) = scene(t) else { return };
    let file = s.w.touch(&s.w.root, "file");
    let (one, two, three) = (s.w.open(&file, BOTH), s.w.open(&file, BOTH), s.w.open(&file, BOTH));
    s.w.b().lock(&one, range(0, 20), LockKind::Read).unwrap();
    s.w.b().lock(&two, range(30, 10), LockKind::Write).unwrap();
    let test = |open| s.w.b().test_lock(open, ByteRange::ALL, LockKind::Write).unwrap();
    for open in [&one, &two, &three] {
        assert_eq!(test(open), None, "what we hold ourselves is no outsider's");
    }
    // A shared lock in the midst of ours, and one behind.
    for (held, kind) in [(range(5, 5), LockKind::Read), (range(100, 1), LockKind::Write)] {
        let lock = s.neighbour.lock(&file, "file", held, kind).unwrap();
        for open in [&one, &two, &three] {
            let found = test(open).unwrap();
            assert_eq!((found.range, found.kind), (held, kind));
        }
        assert_eq!(s.w.b().lock(&three, held, LockKind::Write), Err(FsError::Locked));
        drop(lock);
        assert!(soon(|| test(&three).is_none()));
    }
    assert!(s.neighbour.lock(&file, "file", range(35, 1), LockKind::Read).is_err(), "ours hold against it");
}

pub(super) fn a_neighbours_unlock_is_told_to_who_waits(t: TestBackend) {
    let Some(s) = scene(t) else { return };
    let file = s.w.touch(&s.w.root, "file");
    let open = s.w.open(&file, BOTH);
    let lock = s.neighbour.lock(&file, "file", range(0, 10), LockKind::Write).unwrap();
    s.w.b().await_unlock(&open, range(5, 1), LockKind::Read).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(s.ear.unlocks.lock().unwrap().is_empty());
    drop(lock);
    assert!(soon(|| *s.ear.unlocks.lock().unwrap() == [(file.key(), range(5, 1))]));
}
