//! What pledges cost is given back, what bounds them holds, and a kernel that tells too much breaks promises rather
//! than lose a deed. One test at a time: they count what the whole process holds.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use disk::neighbour::{done, lock_range, shell};
use disk::{Disk, must_be_root};
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::limits::LOCAL_UNLOCKS_AWAITED_MAX;
use holdfast_base::{ByteRange, FileKey, Length, Offset};
use holdfast_vfs::{
    AttrMask, Backend, Caller, Cx, FsError, Handle, HeldPledge, LocalDeed, LocalListener, LockKind, Name,
    OpenMode, Pledge, Wait,
};

/// Pledges at once: the usual limit of descriptors allows more than this fourfold.
const AT_ONCE: usize = 4_000;

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    must_be_root();
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(top: &Path, state: &Path, pledges_max: usize) -> LocalBackend {
    let mut options = LocalOptions::new(state.to_owned());
    options.pledges_max = pledges_max;
    LocalBackend::open(top, options).unwrap()
}

fn files(backend: &LocalBackend, top: &Path, count: usize) -> Vec<Handle> {
    let caller = Caller::root();
    let (cx, root) = (Cx::new(&caller, Wait::Yes), backend.root().unwrap());
    let one = |n| {
        let name = format!("f{n}");
        fs::write(top.join(&name), "data").unwrap();
        backend.lookup(&cx, &root, Name::new(name.as_bytes()).unwrap(), AttrMask::STAT).unwrap().handle
    };
    (0..count).map(one).collect()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn watching_threads() -> usize {
    let name = |task: std::io::Result<fs::DirEntry>| fs::read_to_string(task.ok()?.path().join("comm")).ok();
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks.filter_map(name).filter(|name| name.trim() == "local-watch").count()
}

fn soon(mut holds: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > Duration::from_secs(30) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

#[test]
fn twelve_thousand_pledges_leave_nothing_behind() {
    let _alone = alone();
    let (disk, state) = (Disk::tmpfs(), tempfile::tempdir().unwrap());
    let top = disk.fresh();
    let at_first = descriptors();
    {
        let backend = open(&top, state.path(), AT_ONCE);
        let handles = files(&backend, &top, AT_ONCE - 1);
        let root = backend.root().unwrap();
        let round = || {
            // Half of the descriptors are left to those who write.
            let caller = Caller::root();
            let cx = Cx::new(&caller, Wait::Yes);
            let both = OpenMode { read: true, write: true, nfs_exceptions: false };
            let pledge = |(n, h): (usize, &Handle)| {
                let open = (n >= AT_ONCE / 2).then(|| backend.open(&cx, h, both).unwrap());
                let what = if open.is_some() { Pledge::WriteFile } else { Pledge::ReadFile };
                backend.pledge(h, what, open.as_ref()).unwrap().expect("a guard")
            };
            let guards: Vec<HeldPledge> = handles.iter().enumerate().map(pledge).collect();
            let directory = backend.pledge(&root, Pledge::Directory, None).unwrap().expect("a guard");
            backend.shed(0);
            let held = descriptors();
            assert!(held >= AT_ONCE, "each holds its descriptor: {held}");
            assert!(!guards.iter().any(|guard| guard.is_broken()) && !directory.is_broken());
            drop((guards, directory));
            backend.shed(0);
        };
        round();
        let after_one = descriptors();
        assert!(after_one < at_first + 100, "{at_first} at first, {after_one} after a round");
        round();
        round();
        assert!(descriptors() <= after_one + 2, "{after_one} after one round, {} after three", descriptors());
        // Those of the cases before may be ending still.
        assert!(soon(|| watching_threads() == 1));
    }
    assert!(soon(|| watching_threads() == 0), "the thread goes with its backend");
    assert!(soon(|| descriptors() <= at_first + 2), "{at_first} before, {} after", descriptors());
}

#[test]
fn no_more_is_pledged_than_the_bound_allows() {
    let _alone = alone();
    let (disk, state) = (Disk::tmpfs(), tempfile::tempdir().unwrap());
    let top = disk.fresh();
    let backend = open(&top, state.path(), 10);
    let handles = files(&backend, &top, 11);
    let pledge = |n: usize| backend.pledge(&handles[n], Pledge::ReadFile, None).unwrap();
    let mut guards: Vec<_> = (0..10).map(|n| pledge(n).expect("a guard")).collect();
    assert!(pledge(10).is_none());
    let root = backend.root().unwrap();
    assert!(
        backend.pledge(&root, Pledge::Directory, None).unwrap().is_some(),
        "directories have room beyond"
    );
    assert!(pledge(3).is_some(), "another who relies on what is guarded already costs nothing");
    guards.pop();
    assert!(pledge(10).is_some());
}

/// Stays in its first call until it is let go.
struct Slow {
    wait: Mutex<Option<mpsc::Receiver<()>>>,
    unknown: AtomicUsize,
}

impl LocalListener for Slow {
    fn local_deed(&self, _: FileKey, deed: LocalDeed) {
        let wait = self.wait.lock().unwrap().take();
        if let Some(wait) = wait {
            wait.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        self.unknown.fetch_add(usize::from(deed == LocalDeed::Unknown), Ordering::SeqCst);
    }
}

#[test]
fn when_the_kernels_queue_overflows_everything_pledged_is_broken() {
    let _alone = alone();
    let (disk, state) = (Disk::tmpfs(), tempfile::tempdir().unwrap());
    let top = disk.fresh();
    let queue: usize =
        fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap().trim().parse().unwrap();
    let count = AT_ONCE - 1;
    let backend = open(&top, state.path(), AT_ONCE);
    let (go, wait) = mpsc::channel();
    let slow = Arc::new(Slow { wait: Mutex::new(Some(wait)), unknown: AtomicUsize::new(0) });
    let listener: Arc<dyn LocalListener> = Arc::<Slow>::clone(&slow);
    backend.listen(Arc::downgrade(&listener));
    let handles = files(&backend, &top, count);
    let untouched = tempfile::tempdir_in(&top).unwrap();
    let caller = Caller::root();
    let name = Name::new(untouched.path().file_name().unwrap().as_encoded_bytes()).unwrap();
    let cx = Cx::new(&caller, Wait::Yes);
    let dir = backend.lookup(&cx, &backend.root().unwrap(), name, AttrMask::STAT).unwrap().handle;
    let of_dir = backend.pledge(&dir, Pledge::Directory, None).unwrap().expect("a guard");
    let pledge = |h: &Handle| backend.pledge(h, Pledge::ReadFile, None).unwrap().expect("a guard");
    let guards: Vec<HeldPledge> = handles.iter().map(pledge).collect();
    // Each change is an event of its own where another process makes it; more of them than the queue holds.
    for _ in 0..queue / count + 2 {
        done(shell("find \"$1\" -name 'f*' -exec chmod 600 {} +", &[&top]));
    }
    go.send(()).unwrap();
    assert!(soon(|| of_dir.is_broken()), "nothing happened to it, but who knows");
    assert!(soon(|| guards.iter().all(|guard| guard.is_broken())));
    assert!(soon(|| slow.unknown.load(Ordering::SeqCst) > count), "each is told of");
}

#[test]
fn locks_waited_for_are_bounded_and_forgotten_with_their_open_files() {
    let _alone = alone();
    let (disk, state) = (Disk::tmpfs(), tempfile::tempdir().unwrap());
    let top = disk.fresh();
    let backend = open(&top, state.path(), 10);
    let file = files(&backend, &top, 1)[0];
    let outside = fs::File::options().read(true).write(true).open(top.join("f0")).unwrap();
    assert!(lock_range(&outside, ByteRange::ALL, LockKind::Write));
    let (caller, mode) = (Caller::root(), OpenMode { read: true, write: true, nfs_exceptions: false });
    let open = || backend.open(&Cx::new(&caller, Wait::Yes), &file, mode).unwrap();
    let range = |n: usize| ByteRange::from_nfs4(Offset(n as u64), Length(1)).unwrap();
    let waiter = open();
    for n in 0..LOCAL_UNLOCKS_AWAITED_MAX {
        backend.await_unlock(&waiter, range(n), LockKind::Write).unwrap();
    }
    let one_more = range(LOCAL_UNLOCKS_AWAITED_MAX);
    assert_eq!(backend.await_unlock(&waiter, one_more, LockKind::Write), Err(FsError::Delay));
    assert_eq!(backend.await_unlock(&waiter, range(0), LockKind::Write), Ok(()), "the same again is no more");
    drop(waiter);
    let another = open();
    assert_eq!(backend.await_unlock(&another, one_more, LockKind::Write), Ok(()));
}

#[test]
fn a_test_among_very_many_locks_of_ours_ends() {
    let _alone = alone();
    let (disk, state) = (Disk::tmpfs(), tempfile::tempdir().unwrap());
    let top = disk.fresh();
    let backend = open(&top, state.path(), 10);
    let file = files(&backend, &top, 1)[0];
    let (caller, mode) = (Caller::root(), OpenMode { read: true, write: true, nfs_exceptions: false });
    let open = || backend.open(&Cx::new(&caller, Wait::Yes), &file, mode).unwrap();
    let range = |n: usize| ByteRange::from_nfs4(Offset(n as u64 * 2), Length(1)).unwrap();
    let holders: Vec<_> = (0..50).map(|_| open()).collect();
    for n in 0..5_000 {
        backend.lock(&holders[n % holders.len()], range(n), LockKind::Write).unwrap();
    }
    let start = Instant::now();
    assert_eq!(backend.test_lock(&open(), ByteRange::ALL, LockKind::Read), Ok(None));
    assert!(start.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_lease_is_told_of_though_no_more_signals_can_be_queued() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let _alone = alone();
    let (disk, state) = (Disk::tmpfs(), tempfile::tempdir().unwrap());
    let top = disk.fresh();
    let backend = open(&top, state.path(), 10);
    let handles = files(&backend, &top, 2);
    let pledge = |n: usize| backend.pledge(&handles[n], Pledge::ReadFile, None).unwrap().expect("a guard");
    let (one, other) = (pledge(0), pledge(1));
    let before = getrlimit(Resource::Sigpending);
    setrlimit(Resource::Sigpending, Rlimit { current: Some(0), maximum: before.maximum }).unwrap();
    let child = shell("echo more >> \"$1\"", &[&top.join("f1")]);
    let is_told = soon(|| other.is_broken());
    setrlimit(Resource::Sigpending, before).unwrap();
    drop(other);
    done(child);
    assert!(is_told && !one.is_broken());
}

/// Marks of all groups of this process, as the kernel lists them.
fn marks() -> usize {
    let info = |entry: std::io::Result<fs::DirEntry>| fs::read_to_string(entry.ok()?.path()).ok();
    let infos = fs::read_dir("/proc/self/fdinfo").unwrap().filter_map(info);
    infos.map(|text| text.lines().filter(|line| line.starts_with("fanotify ino:")).count()).sum()
}

#[test]
fn a_guard_is_let_go_of_wholly_by_a_thread_that_acts_for_somebody_without_rights() {
    use std::os::unix::fs::PermissionsExt as _;
    let _alone = alone();
    let (disk, state) = (Disk::tmpfs(), tempfile::tempdir().unwrap());
    let top = disk.fresh();
    let mut options = LocalOptions::new(state.path().to_owned());
    options.keep_credentials = true;
    let backend = LocalBackend::open(&top, options).unwrap();
    let handles = files(&backend, &top, 2);
    fs::set_permissions(top.join("f0"), fs::Permissions::from_mode(0o600)).unwrap();
    let nobody = Caller { uid: 65534, gid: 65534, groups: Arc::from([]) };
    let mode = OpenMode { read: true, write: false, nfs_exceptions: false };
    let act = || {
        let opened = backend.open(&Cx::new(&nobody, Wait::Yes), &handles[0], mode);
        assert_eq!(opened.map(drop), Err(FsError::Access));
    };
    let pledge = || backend.pledge(&handles[0], Pledge::ReadFile, None).unwrap().expect("a guard");
    act();
    let guard = pledge();
    assert_eq!(marks(), 1);
    act();
    drop(guard);
    assert_eq!(marks(), 0);
    // The same where a lease gives way to a writer of ours: the mark gets wider, and goes wholly.
    let guard = pledge();
    act();
    let root = Caller::root();
    let both = OpenMode { read: true, write: true, nfs_exceptions: false };
    let writer = backend.open(&Cx::new(&root, Wait::Yes), &handles[0], both).unwrap();
    assert!(!guard.is_broken());
    act();
    drop((guard, writer));
    assert_eq!(marks(), 0);
    holdfast_backend_local::release_thread();
}
