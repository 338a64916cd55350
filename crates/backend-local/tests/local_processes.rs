//! What is promised against processes on this host holds against real ones: which wait, which are told of, and what
//! is not promised.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;
#[path = "local_processes/flocks.rs"]
mod flocks;
#[path = "local_processes/fresh.rs"]
mod fresh;
#[path = "local_processes/listeners.rs"]
mod listeners;
#[path = "local_processes/made.rs"]
mod made;
#[path = "local_processes/overlap.rs"]
mod overlap;
#[path = "local_processes/removed.rs"]
mod removed;
#[path = "local_processes/taken_over.rs"]
mod taken_over;

use std::fs::{self, File as StdFile};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use disk::neighbour::{done, shell};
use disk::{Disk, must_be_root};
use holdfast_backend_local::{LocalBackend, LocalOptions, LocalUse};
use holdfast_base::{ByteRange, FileKey, Length, Offset};
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, FileObject, FsError, Handle, HeldPledge,
    LocalDeed, LocalListener, LockKind, Name, OpenMode, Pledge, SetAttrs, Stability, Touched, Wait, WriteAt,
};

const READ: OpenMode = OpenMode { read: true, write: false, nfs_exceptions: false };
const WRITE: OpenMode = OpenMode { read: false, write: true, nfs_exceptions: false };
const BOTH: OpenMode = OpenMode { read: true, write: true, nfs_exceptions: false };
/// `truncate(2)`, which opens nothing.
const CUT: &str = "python3 -c 'import os,sys;os.truncate(sys.argv[1],0)' \"$1\"";
/// Less than half of what the kernel makes the breaker of a lease wait.
const PATIENCE: Duration = Duration::from_secs(20);

/// Remembers what it was told.
#[derive(Default)]
struct Ear(Mutex<Vec<(FileKey, LocalDeed)>>);

impl LocalListener for Ear {
    fn local_deed(&self, file: FileKey, deed: LocalDeed) {
        self.0.lock().unwrap().push((file, deed));
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

struct World {
    backend: LocalBackend,
    ear: Arc<Ear>,
    caller: Caller,
    root: Handle,
    top: PathBuf,
    local: LocalUse,
    _state: tempfile::TempDir,
    /// Dropped last.
    _disk: Option<Disk>,
}

fn world(top: PathBuf, local: LocalUse) -> World {
    world_with(top, local, |_| ())
}

fn world_with(top: PathBuf, local: LocalUse, set: impl FnOnce(&mut LocalOptions)) -> World {
    let state = tempfile::tempdir().unwrap();
    let mut options = LocalOptions::new(state.path().to_owned());
    options.local = local;
    set(&mut options);
    let backend = LocalBackend::open(&top, options).unwrap();
    let ear = Arc::new(Ear::default());
    let listener: Arc<dyn LocalListener> = Arc::<Ear>::clone(&ear);
    backend.listen(Arc::downgrade(&listener));
    let root = backend.root().unwrap();
    let caller = Caller { uid: rustix::process::geteuid().as_raw(), ..Caller::root() };
    World { backend, ear, caller, root, top, local, _state: state, _disk: None }
}

/// On a disk that lives as long.
fn world_on(disk: Disk, local: LocalUse) -> World {
    let world = world(disk.fresh(), local);
    World { _disk: Some(disk), ..world }
}

/// With each kind of file system, and each way to guard.
fn on_each(test: impl Fn(&World)) {
    for disk in [Disk::tmpfs(), Disk::make("ext4", &[]), Disk::make("xfs", &[])] {
        for local in [LocalUse::Lazy, LocalUse::Strict] {
            test(&world(disk.fresh(), local));
        }
    }
}

impl World {
    fn cx(&self) -> Cx<'_> {
        Cx::new(&self.caller, Wait::Yes)
    }

    fn path(&self, n: &str) -> PathBuf {
        self.top.join(n)
    }

    /// A file that a local process has made.
    fn file(&self, n: &str) -> Handle {
        fs::write(self.path(n), "data").unwrap();
        self.find(n)
    }

    fn find(&self, n: &str) -> Handle {
        let name = Name::new(n.as_bytes()).unwrap();
        self.backend.lookup(&self.cx(), &self.root, name, AttrMask::STAT).unwrap().handle
    }

    fn open(&self, file: &Handle, mode: OpenMode) -> Arc<dyn FileObject> {
        self.backend.open(&self.cx(), file, mode).unwrap()
    }

    fn try_pledge(
        &self,
        of: &Handle,
        what: Pledge,
        open: Option<&Arc<dyn FileObject>>,
    ) -> Option<HeldPledge> {
        self.backend.pledge(of, what, open).unwrap()
    }

    /// Tries again while other tests fork: their children hold our descriptors for a moment.
    fn pledge(&self, of: &Handle, what: Pledge, open: Option<&Arc<dyn FileObject>>) -> HeldPledge {
        let mut held = None;
        assert!(soon(|| {
            held = self.try_pledge(of, what, open);
            held.is_some()
        }));
        held.unwrap()
    }

    /// Waits, for the same reason, until an open file is free to lock all.
    fn is_unlocked(&self, open: &Arc<dyn FileObject>) -> bool {
        soon(|| self.backend.test_lock(open, ByteRange::ALL, LockKind::Write) == Ok(None))
    }

    fn write(&self, file: File<'_>, data: &[u8]) {
        let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
        assert_eq!(self.backend.write(&self.cx(), file, at, data).unwrap().bytes, data.len());
    }

    fn is_told(&self, file: &Handle, deed: LocalDeed) -> bool {
        soon(|| self.ear.0.lock().unwrap().contains(&(file.key(), deed)))
    }

    fn run(&self, program: &str, n: &str) -> Child {
        shell(program, &[&self.path(n)])
    }
}

fn is_waiting(child: &mut Child) -> bool {
    std::thread::sleep(Duration::from_millis(60));
    child.try_wait().unwrap().is_none()
}

#[test]
fn who_opens_for_writing_or_cuts_waits_until_the_readers_pledge_is_let_go() {
    must_be_root();
    on_each(|w| {
        for (program, n) in [("echo more >> \"$1\"", "append"), (": > \"$1\"", "cut"), (CUT, "cut-by-path")] {
            let file = w.file(n);
            let guard = w.pledge(&file, Pledge::ReadFile, None);
            done(w.run("cat \"$1\" > /dev/null", n));
            assert!(!guard.is_broken(), "reading beside readers");
            let mut child = w.run(program, n);
            assert!(w.is_told(&file, LocalDeed::OpenToWrite) && guard.is_broken());
            assert!(is_waiting(&mut child));
            assert_eq!(fs::read(w.path(n)).unwrap(), b"data", "what was promised still holds");
            drop(guard);
            done(child);
            assert_ne!(fs::read(w.path(n)).unwrap(), b"data");
        }
    });
}

#[test]
fn who_opens_for_reading_waits_until_the_writers_pledge_is_let_go() {
    must_be_root();
    on_each(|w| {
        let file = w.file("file");
        let open = w.open(&file, BOTH);
        let guard = w.pledge(&file, Pledge::WriteFile, Some(&open));
        let mut child = w.run("test \"$(cat \"$1\")\" = late", "file");
        assert!(w.is_told(&file, LocalDeed::OpenToRead) && guard.is_broken());
        assert!(is_waiting(&mut child));
        w.write(File::Open(&file, &open), b"late");
        drop(guard);
        done(child);
        assert!(
            w.backend.pledge_seconds().is_some_and(|seconds| seconds > 0),
            "how long it would have waited"
        );
    });
}

#[test]
fn what_no_lease_guards_is_told_within_moments() {
    must_be_root();
    on_each(|w| {
        for (program, deed) in [
            ("chmod 600 \"$1\"", LocalDeed::ChangedAttrs),
            ("touch -d 2001-01-01 \"$1\"", LocalDeed::ChangedAttrs),
            ("ln \"$1\" \"$1.link\"", LocalDeed::ChangedAttrs),
            (": > \"$1.x\"; mv \"$1.x\" \"$1\"", LocalDeed::ChangedAttrs),
            ("mv \"$1\" \"$1.new\"", LocalDeed::ChangedName),
        ] {
            let n = format!("{}{deed:?}", &program[..2]);
            let file = w.file(&n);
            let guard = w.pledge(&file, Pledge::ReadFile, None);
            done(w.run(program, &n));
            assert!(w.is_told(&file, deed), "{program}");
            assert!(guard.is_broken());
        }
        let file = w.file("gone");
        let guard = w.pledge(&file, Pledge::ReadFile, None);
        done(w.run("rm \"$1\"", "gone"));
        assert!(w.is_told(&file, LocalDeed::ChangedAttrs), "its links are fewer");
        assert!(guard.is_broken());
    });
}

#[test]
fn a_directory_is_told_of_and_promised_only_where_that_is_enough() {
    must_be_root();
    let disk = Disk::make("ext4", &[]);
    let strict = world(disk.fresh(), LocalUse::Strict);
    assert!(strict.try_pledge(&strict.root, Pledge::Directory, None).is_none());
    let w = world(disk.fresh(), LocalUse::Lazy);
    w.file("old");
    fs::create_dir(w.path("below")).unwrap();
    let below = w.find("below");
    for program in [
        "echo new > \"$1/new\"",
        "rm \"$1/old\"",
        "mkdir \"$1/directory\"",
        "rmdir \"$1/directory\"",
        "mv \"$1/new\" \"$1/newer\"",
        "mv \"$1/newer\" \"$1/below/newer\"",
    ] {
        let guard = w.pledge(&w.root, Pledge::Directory, None);
        let other = w.pledge(&below, Pledge::Directory, None);
        w.ear.0.lock().unwrap().clear();
        done(shell(program, &[&w.top]));
        assert!(w.is_told(&w.root, LocalDeed::ChangedEntries), "{program}");
        assert!(soon(|| guard.is_broken()));
        assert!(soon(|| other.is_broken() || !program.contains("below")));
        assert_eq!(other.is_broken(), program.contains("below"), "{program}");
    }
}

#[test]
fn nothing_is_promised_of_a_file_that_a_local_process_may_be_writing() {
    must_be_root();
    on_each(|w| {
        let file = w.file("file");
        let writer = StdFile::options().append(true).open(w.path("file")).unwrap();
        assert!(w.try_pledge(&file, Pledge::ReadFile, None).is_none());
        drop(writer);
        drop(w.pledge(&file, Pledge::ReadFile, None));
        // A mapping is as good as an open file, and nothing ever tells of what is stored through it.
        let program = "import mmap,os,sys;f=os.open(sys.argv[1],os.O_RDWR);m=mmap.mmap(f,4);os.close(f);\
                       print(flush=True);sys.stdin.read()";
        let mut child = std::process::Command::new("python3")
            .args(["-c", program])
            .arg(w.path("file"))
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("this test needs python3");
        std::io::Read::read(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        assert!(w.try_pledge(&file, Pledge::ReadFile, None).is_none());
        drop(child.stdin.take());
        done(child);
        let open = w.open(&file, BOTH);
        let reader = StdFile::open(w.path("file")).unwrap();
        assert!(w.try_pledge(&file, Pledge::WriteFile, Some(&open)).is_none());
        drop(reader);
        drop(w.pledge(&file, Pledge::WriteFile, Some(&open)));
    });
}

#[test]
fn several_may_rely_on_a_file_as_readers_and_the_guard_stays_until_the_last_lets_go() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::Strict);
    let file = w.file("file");
    let (one, two) = (w.pledge(&file, Pledge::ReadFile, None), w.pledge(&file, Pledge::ReadFile, None));
    let open = w.open(&file, READ);
    let three = w.pledge(&file, Pledge::ReadFile, Some(&open));
    assert!(w.try_pledge(&file, Pledge::WriteFile, Some(&open)).is_none());
    drop((one, open));
    let mut child = w.run("echo more >> \"$1\"", "file");
    assert!(soon(|| two.is_broken() && three.is_broken()));
    assert!(w.try_pledge(&file, Pledge::ReadFile, None).is_none(), "not while it is broken");
    drop(two);
    assert!(is_waiting(&mut child));
    drop(three);
    done(child);
    drop(w.pledge(&file, Pledge::ReadFile, None));
}

#[test]
fn our_own_opens_never_wait_for_our_own_leases() {
    must_be_root();
    on_each(|w| {
        let file = w.file("file");
        let open = w.open(&file, BOTH);
        let guard = w.pledge(&file, Pledge::WriteFile, Some(&open));
        let started = Instant::now();
        // Shared: these are no second open for the kernel.
        let again = w.open(&file, BOTH);
        w.write(File::Open(&file, &again), b"more");
        w.write(File::Stateless(&file), b"MO");
        let mut results = [Ok(())];
        w.backend.commit(&[Touched { handle: file, data: true }], &mut results);
        assert_eq!(results, [Ok(())]);
        let cut = SetAttrs { size: Some(3), ..SetAttrs::default() };
        w.backend.setattr(&w.cx(), File::Stateless(&file), &cut, None).unwrap();
        let mut into = [0; 8];
        let read = w.backend.read(&w.cx(), File::Stateless(&file), 0, &mut into).unwrap();
        assert_eq!(&into[..read.bytes], b"MOr");
        assert!(!guard.is_broken() && w.ear.0.lock().unwrap().is_empty());
        w.backend.lock(&again, ByteRange::ALL, LockKind::Write).unwrap();
        assert!(!soon_or_not(|| guard.is_broken()), "one may lock through the descriptor");
        // Another's locks need an open file of their own: strictly that ends the promise, lazily it is kept another way.
        assert_eq!(w.backend.lock(&open, ByteRange::ALL, LockKind::Read), Err(FsError::Locked));
        assert!(started.elapsed() < PATIENCE);
        assert_eq!(soon_or_not(|| guard.is_broken()), w.local == LocalUse::Strict);
        done(w.run("cat \"$1\" > /dev/null", "file"));
        assert!(
            w.is_told(&file, LocalDeed::OpenToWrite) && guard.is_broken(),
            "a local reader ends it in any case"
        );
        drop((guard, open));
        assert_eq!(w.backend.test_lock(&again, ByteRange::ALL, LockKind::Read), Ok(None));
    });
}

#[test]
fn a_lock_of_who_gives_a_file_back_comes_before_the_process_that_waits_for_it() {
    must_be_root();
    on_each(|w| {
        let file = w.file("file");
        // As a client that was delegated the file when it wrote it, and has opened and locked it since, on its own.
        let written = w.open(&file, WRITE);
        let guard = w.pledge(&file, Pledge::WriteFile, Some(&written));
        drop(written);
        let mut child = w.run("! flock --nonblock \"$1\" true", "file");
        assert!(w.is_told(&file, LocalDeed::OpenToRead));
        let claimed = w.open(&file, BOTH);
        assert!(is_waiting(&mut child), "this open is no other for the kernel");
        w.backend.lock(&claimed, ByteRange::ALL, LockKind::Write).unwrap();
        assert!(is_waiting(&mut child), "nor is the lock");
        drop(guard);
        done(child);
        drop(claimed);
        done(w.run("flock --nonblock \"$1\" true", "file"));
    });
}

#[test]
fn a_file_that_the_writer_may_not_read_is_not_promised() {
    must_be_root();
    on_each(|w| {
        let file = w.file("file");
        let caller = Caller { uid: 4711, gid: 4711, ..Caller::root() };
        let cx = Cx::new(&caller, Wait::Yes);
        for (mode, is_promised) in [(0o602, false), (0o606, true)] {
            fs::set_permissions(w.path("file"), fs::Permissions::from_mode(mode)).unwrap();
            let open = w.backend.open(&cx, &file, WRITE).unwrap();
            let held = || w.try_pledge(&file, Pledge::WriteFile, Some(&open)).is_some();
            assert_eq!(if is_promised { soon(held) } else { held() }, is_promised);
        }
    });
}

/// Gives something a moment to happen.
fn soon_or_not(happens: impl Fn() -> bool) -> bool {
    std::thread::sleep(Duration::from_millis(50));
    happens()
}

#[test]
fn an_own_writer_beside_readers_ends_a_strict_promise_and_not_a_lazy_one() {
    must_be_root();
    for local in [LocalUse::Strict, LocalUse::Lazy] {
        let w = world_on(Disk::tmpfs(), local);
        let file = w.file("file");
        let guard = w.pledge(&file, Pledge::ReadFile, None);
        let writer = w.open(&file, BOTH);
        w.write(File::Open(&file, &writer), b"ours");
        if local == LocalUse::Strict {
            assert!(guard.is_broken() && w.is_told(&file, LocalDeed::OpenToWrite));
            continue;
        }
        assert!(!soon_or_not(|| guard.is_broken()) && w.ear.0.lock().unwrap().is_empty());
        done(w.run("echo more >> \"$1\"", "file"));
        assert!(w.is_told(&file, LocalDeed::Wrote) && guard.is_broken());
    }
}

#[test]
fn a_lock_goes_with_its_open_file_though_a_pledge_keeps_the_descriptor() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::Lazy);
    let file = w.file("file");
    let open = w.open(&file, BOTH);
    w.backend.lock(&open, ByteRange::ALL, LockKind::Write).unwrap();
    let guard = w.pledge(&file, Pledge::WriteFile, Some(&open));
    drop(open);
    drop(guard);
    let other = w.open(&file, BOTH);
    assert!(w.is_unlocked(&other), "the lock stays with the pledge's descriptor");
    assert_eq!(w.backend.lock(&other, ByteRange::ALL, LockKind::Write), Ok(()));
    drop(other);
    let open = w.open(&file, BOTH);
    assert!(w.is_unlocked(&open));
    w.backend.lock(&open, ByteRange::ALL, LockKind::Write).unwrap();
    let guard = w.pledge(&file, Pledge::WriteFile, Some(&open));
    drop(open);
    let other = StdFile::options().write(true).custom_flags_nonblock().open(w.path("file"));
    assert!(other.is_err(), "the lease stands without its open file");
    drop(guard);
}

trait NonBlocking {
    fn custom_flags_nonblock(&mut self) -> &mut Self;
}

impl NonBlocking for fs::OpenOptions {
    fn custom_flags_nonblock(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::custom_flags(self, libc::O_NONBLOCK)
    }
}

#[test]
fn a_process_lock_of_a_neighbour_is_seen_beside_locks_of_ours() {
    must_be_root();
    let w = world_on(Disk::make("ext4", &[]), LocalUse::Lazy);
    let file = w.file("file");
    let range = |offset, length| ByteRange::from_nfs4(Offset(offset), Length(length)).unwrap();
    let (one, two) = (w.open(&file, BOTH), w.open(&file, BOTH));
    w.backend.lock(&one, range(0, 10), LockKind::Write).unwrap();
    let program = "import fcntl,sys;f=open(sys.argv[1],'r+');fcntl.lockf(f,fcntl.LOCK_EX,5,20);\
                   print(flush=True);sys.stdin.read()";
    let mut child = std::process::Command::new("python3")
        .args(["-c", program])
        .arg(w.path("file"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("this test needs python3");
    std::io::Read::read(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    for open in [&one, &two] {
        let found = w.backend.test_lock(open, ByteRange::ALL, LockKind::Read).unwrap().unwrap();
        assert_eq!((found.range, found.kind), (range(20, 5), LockKind::Write));
        assert_eq!(w.backend.test_lock(open, range(0, 20), LockKind::Write), Ok(None));
    }
    drop(child.stdin.take());
    done(child);
    assert_eq!(w.backend.test_lock(&two, ByteRange::ALL, LockKind::Read), Ok(None));
}

#[test]
fn an_ordinary_users_promises_hold_as_well() {
    must_be_root();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("others"), "data").unwrap();
    fs::set_permissions(dir.path().join("others"), fs::Permissions::from_mode(0o666)).unwrap();
    disk::run("chown", &["65534:65534", dir.path().to_str().unwrap()]);
    let child = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"])
        .args(["--no-new-privs"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "promises_of_an_ordinary_user", "--ignored", "--nocapture"])
        .env("HOLDFAST_TEST_DIR", dir.path())
        .env("TMPDIR", dir.path())
        .output()
        .expect("this test needs the program setpriv");
    let said = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("1 passed"), "{said}{errors}");
}

#[test]
#[ignore = "run by an_ordinary_users_promises_hold_as_well, as another user"]
fn promises_of_an_ordinary_user() {
    assert!(!rustix::process::geteuid().is_root());
    let top = PathBuf::from(std::env::var_os("HOLDFAST_TEST_DIR").unwrap());
    for local in [LocalUse::Lazy, LocalUse::Strict] {
        let w = world(top.clone(), local);
        let own = w.file("own");
        let guard = w.pledge(&own, Pledge::ReadFile, None);
        let mut child = w.run("echo more >> \"$1\"", "own");
        assert!(
            w.is_told(&own, LocalDeed::OpenToWrite) && is_waiting(&mut child),
            "a lease on a file of his own"
        );
        drop(guard);
        done(child);
        let others = w.find("others");
        if local == LocalUse::Strict {
            assert!(w.try_pledge(&others, Pledge::ReadFile, None).is_none(), "no lease on files of others");
            continue;
        }
        let guard = w.pledge(&others, Pledge::ReadFile, None);
        drop(w.open(&others, READ));
        assert!(!soon_or_not(|| guard.is_broken()), "what we do ourselves");
        done(w.run("echo more >> \"$1\"", "others"));
        assert!(w.is_told(&others, LocalDeed::Wrote) && guard.is_broken());
        drop(guard);
        let of_dir = w.pledge(&w.root, Pledge::Directory, None);
        done(w.run("echo new > \"$1\"", "new"));
        assert!(w.is_told(&w.root, LocalDeed::ChangedEntries) && of_dir.is_broken());
    }
}

#[test]
fn a_reader_who_becomes_the_writer_is_guarded_by_a_lease_again() {
    must_be_root();
    let w = world_on(Disk::make("ext4", &[]), LocalUse::Lazy);
    let file = w.file("file");
    let reader = w.pledge(&file, Pledge::ReadFile, None);
    let open = w.open(&file, BOTH);
    let writer = w.pledge(&file, Pledge::WriteFile, Some(&open));
    drop(reader);
    let mut child = w.run("cat \"$1\" > /dev/null", "file");
    assert!(is_waiting(&mut child) && w.is_told(&file, LocalDeed::OpenToRead));
    drop(writer);
    done(child);
    // The other way round, when the writer's part came to nothing: readers do not wait.
    drop(open);
    let reader = w.pledge(&file, Pledge::ReadFile, None);
    let open = w.open(&file, BOTH);
    drop(w.pledge(&file, Pledge::WriteFile, Some(&open)));
    assert!(!reader.is_broken());
    w.ear.0.lock().unwrap().clear();
    done(w.run("cat \"$1\" > /dev/null", "file"));
    assert!(w.is_told(&file, LocalDeed::OpenToWrite), "what it was opened for is not known");
}

#[test]
fn where_nobody_is_said_to_be_everything_is_promised() {
    must_be_root();
    let w = world_on(Disk::tmpfs(), LocalUse::None);
    let file = w.file("file");
    let writer = StdFile::options().append(true).open(w.path("file")).unwrap();
    let guards = [w.pledge(&file, Pledge::ReadFile, None), w.pledge(&w.root, Pledge::Directory, None)];
    drop(writer);
    done(w.run("chmod 600 \"$1\"", "file"));
    assert!(!soon_or_not(|| guards.iter().any(|guard| guard.is_broken())));
    assert_eq!(w.backend.pledge_seconds(), None);
}

#[test]
fn no_write_of_a_local_process_slips_in_while_a_guard_is_held() {
    must_be_root();
    on_each(|w| {
        let file = w.file("counter");
        let program = "import os,sys\nfor n in range(100000000):\n f=os.open(sys.argv[1],os.O_WRONLY)\n \
                       os.pwrite(f,b'%08d'%n,0)\n os.close(f)";
        let mut child = std::process::Command::new("python3")
            .args(["-c", program])
            .arg(w.path("counter"))
            .spawn()
            .expect("this test needs python3");
        let (mut held, mut seen, end) = (0, None, Instant::now() + Duration::from_millis(700));
        let mut changes = 0;
        while Instant::now() < end || changes < 5 {
            let Some(guard) = w.try_pledge(&file, Pledge::ReadFile, None) else { continue };
            let first = fs::read(w.path("counter")).unwrap();
            std::thread::sleep(Duration::from_micros(held % 300));
            assert_eq!(fs::read(w.path("counter")).unwrap(), first, "round {held}");
            drop(guard);
            held += 1;
            changes += usize::from(seen.replace(first.clone()).is_some_and(|before| before != first));
            assert!(Instant::now() < end + PATIENCE, "the local process gets on between guards");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn opens_pledges_and_locks_of_ours_at_once_wait_for_nobody() {
    must_be_root();
    on_each(|w| {
        let file = w.file("busy");
        let (end, delays) = (Instant::now() + Duration::from_millis(400), AtomicUsize::new(0));
        let longest = Mutex::new(Duration::ZERO);
        let again = |what: &dyn Fn()| {
            while Instant::now() < end {
                let start = Instant::now();
                what();
                let mut longest = longest.lock().unwrap();
                *longest = start.elapsed().max(*longest);
            }
        };
        let open = |mode| match w.backend.open(&w.cx(), &file, mode) {
            Ok(open) => Some(open),
            Err(FsError::Delay) => {
                delays.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(e) => panic!("{e}"),
        };
        std::thread::scope(|s| {
            s.spawn(|| again(&|| drop(w.try_pledge(&file, Pledge::ReadFile, None))));
            s.spawn(|| {
                again(&|| {
                    let Some(open) = open(BOTH) else { return };
                    let guard = w.try_pledge(&file, Pledge::WriteFile, Some(&open));
                    w.write(File::Open(&file, &open), b"ours");
                    drop((open, guard));
                });
            });
            s.spawn(|| {
                again(&|| {
                    let Some(open) = open(BOTH) else { return };
                    let _ = w.backend.lock(&open, ByteRange::ALL, LockKind::Write);
                });
            });
            s.spawn(|| again(&|| drop(open(READ))));
        });
        assert!(*longest.lock().unwrap() < PATIENCE, "nobody waited for a lease of ours");
        assert!(w.is_unlocked(&w.open(&file, BOTH)), "who is done has no lock");
        // What is not committed is held open for writing.
        w.backend.commit(&[Touched { handle: file, data: true }], &mut [Ok(())]);
        drop(w.pledge(&file, Pledge::ReadFile, None));
        println!("{} of our opens were told to come again", delays.load(Ordering::Relaxed));
    });
}
