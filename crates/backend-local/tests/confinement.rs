//! What keeps callers within their rights, the export and its mounts, whatever administrators and local processes
//! do beside.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use disk::{Disk, must_be_root, run, unmount};
use holdfast_backend_local::{LocalBackend, LocalOptions, release_thread};
use holdfast_vfs::{
    AccessMask, AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, FsError, FsResult, Handle, Name,
    NewNode, SetAttrs, Stability, Touched, Wait, WriteAt, XattrMode,
};

fn name(n: &str) -> Name<'_> {
    Name::new(n.as_bytes()).unwrap()
}

fn user(id: u32) -> Caller {
    Caller { uid: id, gid: id, groups: Arc::new([]) }
}

fn open(root: &Path, state: &Path, change: impl FnOnce(&mut LocalOptions)) -> LocalBackend {
    let mut options = LocalOptions::new(state.to_owned());
    change(&mut options);
    LocalBackend::open(root, options).unwrap()
}

const fn cx(caller: &Caller) -> Cx<'_> {
    Cx::new(caller, Wait::Yes)
}

fn find(backend: &LocalBackend, dir: &Handle, n: &str) -> FsResult<Handle> {
    backend.lookup(&cx(&Caller::root()), dir, name(n), AttrMask::STAT).map(|node| node.handle)
}

fn read(backend: &LocalBackend, caller: &Caller, file: &Handle) -> FsResult<Vec<u8>> {
    let mut data = vec![0; 4096];
    let done = backend.read(&cx(caller), File::Stateless(file), 0, &mut data)?;
    data.truncate(done.bytes);
    Ok(data)
}

fn write(backend: &LocalBackend, file: &Handle) -> FsResult<usize> {
    let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
    backend.write(&cx(&Caller::root()), File::Stateless(file), at, b"x").map(|w| w.bytes)
}

/// Makes a file, or cuts it when it is there.
fn cut(backend: &LocalBackend, dir: &Handle, n: &str) -> FsResult<()> {
    let set = SetAttrs { size: Some(0), ..SetAttrs::default() };
    let how = CreateHow { mode: CreateMode::Unchecked, set: &set, open: None, want: AttrMask::STAT };
    backend.create(&cx(&Caller::root()), dir, name(n), &how).map(drop)
}

fn within(what: &str, work: impl FnOnce() + Send + 'static) {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        work();
        tell.send(()).unwrap();
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(()), "{what}");
}

#[test]
fn the_sole_writer_cuts_existing_files_without_waiting_for_itself() {
    must_be_root();
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let backend = Arc::new(open(dir.path(), state.path(), |o| o.is_sole_writer = true));
    let root = backend.root().unwrap();
    let make = |n| {
        let made =
            backend.make(&cx(&Caller::root()), &root, name(n), NewNode::Directory, &SetAttrs::default());
        made.unwrap().0.handle
    };
    // More files than there are locks, so that one shares its directory's and some the other directory's.
    for dir in [make("one"), make("two")] {
        let backend = Arc::clone(&backend);
        within("cutting every file of a directory again", move || {
            for i in 0..2 * 600 {
                cut(&backend, &dir, &format!("f{}", i % 600)).unwrap();
            }
        });
    }
    let dirs = [find(&backend, &root, "one").unwrap(), find(&backend, &root, "two").unwrap()];
    within("two threads that cut files of two directories", move || {
        std::thread::scope(|scope| {
            for dir in &dirs {
                scope.spawn(|| (0..600).for_each(|i| cut(&backend, dir, &format!("f{i}")).unwrap()));
            }
        });
    });
}

#[test]
fn capabilities_of_an_ordinary_user_are_not_his_callers() {
    must_be_root();
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir(&root).unwrap();
    std::fs::write(root.join("secret"), "secret").unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    run("chown", &["-R", "65534:65534", &text(dir.path())]);
    run("chown", &["777:777", &text(&root.join("secret"))]);
    run("chmod", &["600", &text(&root.join("secret"))]);
    run("chmod", &["755", &text(dir.path())]);
    let caps = "+setuid,+setgid,+dac_override,+dac_read_search,+chown,+fowner";
    let child = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(format!("--inh-caps={caps}"))
        .arg(format!("--ambient-caps={caps}"))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "serves_as_an_ordinary_user_with_capabilities", "--ignored", "--nocapture"])
        .env("TMPDIR", dir.path())
        .env("HOLDFAST_TEST_ROOT", &root)
        .output()
        .expect("this test needs the program setpriv");
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&child.stderr)
    );
}

#[test]
#[ignore = "run by capabilities_of_an_ordinary_user_are_not_his_callers, as another user"]
fn serves_as_an_ordinary_user_with_capabilities() {
    let own = rustix::process::geteuid().as_raw();
    assert_ne!(own, 0);
    let root = PathBuf::from(std::env::var_os("HOLDFAST_TEST_ROOT").unwrap());
    let state = tempfile::tempdir().unwrap();
    for keeps in [false, true] {
        let backend = open(&root, state.path(), |o| o.keep_credentials = keeps);
        assert!(backend.acts_as_callers());
        // Not as root, which would move the capabilities for everybody.
        let found =
            backend.lookup(&cx(&user(4321)), &backend.root().unwrap(), name("secret"), AttrMask::STAT);
        let secret = found.unwrap().handle;
        for _ in 0..3 {
            assert_eq!(read(&backend, &user(4321), &secret), Err(FsError::Access));
            assert_eq!(read(&backend, &user(own), &secret), Err(FsError::Access), "he is a caller as well");
            assert_eq!(read(&backend, &user(777), &secret).as_deref(), Ok(&b"secret"[..]));
            assert_eq!(read(&backend, &Caller::root(), &secret).as_deref(), Ok(&b"secret"[..]));
            // The server resolves the handle itself, with its own rights.
            assert_eq!(read(&backend, &user(4321), &secret), Err(FsError::Access));
            backend.shed(0);
            assert!(backend.getattr(&cx(&user(4321)), &secret, AttrMask::STAT).is_ok());
        }
        release_thread();
        std::fs::read(root.join("secret")).expect("a released thread has its own rights again");
    }
}

#[test]
fn a_thread_born_of_one_that_acts_as_a_caller_has_the_servers_rights() {
    must_be_root();
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = dir.path().join("file");
    std::fs::write(&path, "content").unwrap();
    let backend = open(dir.path(), state.path(), |o| o.keep_credentials = true);
    assert!(
        backend.has_kernel_handles(),
        "this test needs a file system with handles below {:?}",
        dir.path()
    );
    let file = find(&backend, &backend.root().unwrap(), "file").unwrap();
    run("chmod", &["600", path.to_str().unwrap()]);
    let rights = backend.access(&cx(&user(4321)), &file, AccessMask::READ).unwrap();
    assert_eq!(rights.granted, AccessMask::NONE);
    let on_another = std::thread::spawn(move || {
        release_thread();
        std::fs::read(path).map_err(|e| e.kind())
    });
    let on_another = on_another.join().unwrap();
    release_thread();
    assert_eq!(on_another, Ok(b"content".to_vec()));
}

#[test]
fn a_read_only_mount_below_the_export_is_read_only_by_handle_too() {
    let (disk, state) = (Disk::make("ext4", &[]), tempfile::tempdir().unwrap());
    let root = disk.fresh();
    let (beside, point) = (disk.mount.join("beside"), root.join("data"));
    std::fs::create_dir(&beside).unwrap();
    std::fs::create_dir(&point).unwrap();
    std::fs::write(beside.join("file"), "content").unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    run("mount", &["--bind", &text(&beside), &text(&point)]);
    run("mount", &["-o", "remount,bind,ro", &text(&point)]);
    let backend = open(&root, state.path(), |_| {});
    let data = find(&backend, &backend.root().unwrap(), "data").unwrap();
    let file = find(&backend, &data, "file").unwrap();
    assert_eq!(write(&backend, &file), Err(FsError::ReadOnly));
    backend.shed(0);
    assert_eq!(write(&backend, &file), Err(FsError::ReadOnly), "out of the cache, by its handle");
    assert_eq!(find(&backend, &data, "file"), Ok(file));
    drop(backend);
    let backend = open(&root, state.path(), |_| {});
    assert_eq!(write(&backend, &file), Err(FsError::ReadOnly), "after a restart");
    assert_eq!(read(&backend, &Caller::root(), &file).as_deref(), Ok(&b"content"[..]));
    drop(backend);
    let other_state = tempfile::tempdir().unwrap();
    let backend = open(&root, other_state.path(), |o| o.cross_mounts = false);
    assert_eq!(find(&backend, &backend.root().unwrap(), "data"), Err(FsError::Access), "a mount is a mount");
    drop(backend);
    unmount(&text(&point));
}

#[test]
fn two_mounts_of_one_file_system_keep_their_handles_whichever_is_met_first() {
    let (above, below, state) = (Disk::tmpfs(), Disk::make("ext4", &[]), tempfile::tempdir().unwrap());
    let root = above.fresh();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    std::fs::write(below.mount.join("file"), "content").unwrap();
    for point in ["a", "b"] {
        std::fs::create_dir(root.join(point)).unwrap();
        run("mount", &["--bind", &text(&below.mount), &text(&root.join(point))]);
    }
    let handles = |first: &str, second: &str| {
        let backend = open(&root, state.path(), |_| {});
        let top = backend.root().unwrap();
        let of = |point| find(&backend, &find(&backend, &top, point).unwrap(), "file").unwrap();
        let (one, two) = (of(first), of(second));
        if first == "a" { (one, two) } else { (two, one) }
    };
    let at_first = handles("a", "b");
    assert_eq!(handles("b", "a"), at_first);
    let backend = open(&root, state.path(), |_| {});
    assert!(read(&backend, &Caller::root(), &at_first.1).is_ok(), "nothing was looked up on the way");
    drop(backend);
    for point in ["a", "b"] {
        unmount(&text(&root.join(point)));
    }
}

#[test]
fn no_way_leads_up_from_a_directory_that_left_the_export() {
    let (disk, state) = (Disk::make("ext4", &[]), tempfile::tempdir().unwrap());
    let root = disk.fresh();
    std::fs::create_dir_all(root.join("a/d")).unwrap();
    std::fs::create_dir(disk.mount.join("other")).unwrap();
    let backend = open(&root, state.path(), |_| {});
    let a = find(&backend, &backend.root().unwrap(), "a").unwrap();
    let d = find(&backend, &a, "d").unwrap();
    let up = |from: &Handle| backend.parent(&cx(&user(1000)), from, AttrMask::STAT).map(|node| node.handle);
    assert_eq!(up(&d), Ok(a));
    std::fs::rename(root.join("a/d"), disk.mount.join("other/d")).unwrap();
    assert_eq!(up(&d), Err(FsError::Stale));
    std::fs::rename(disk.mount.join("other/d"), root.join("d")).unwrap();
    assert_eq!(up(&d), Ok(backend.root().unwrap()));
}

#[test]
fn the_way_up_is_found_from_deeper_than_a_path_may_be_long() {
    let (disk, state) = (Disk::make("ext4", &[]), tempfile::tempdir().unwrap());
    let backend = open(&disk.fresh(), state.path(), |_| {});
    let step = "d".repeat(200);
    let mut way = vec![backend.root().unwrap()];
    for _ in 0..30 {
        let above = way[way.len() - 1];
        let caller = Caller::root();
        let made = backend.make(&cx(&caller), &above, name(&step), NewNode::Directory, &SetAttrs::default());
        way.push(made.unwrap().0.handle);
    }
    backend.shed(0);
    for pair in way.windows(2).rev() {
        let above = backend.parent(&cx(&Caller::root()), &pair[1], AttrMask::STAT).unwrap();
        assert_eq!(above.handle, pair[0]);
    }
}

#[test]
fn handles_end_with_the_directory_that_was_exported() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let (disk, state) = (Disk::make(kind, &[]), tempfile::tempdir().unwrap());
        let (a, b) = (disk.mount.join("a"), disk.mount.join("b"));
        std::fs::create_dir(&a).unwrap();
        std::fs::create_dir(&b).unwrap();
        std::fs::write(a.join("secret"), "secret").unwrap();
        let of_a = open(&a, state.path(), |_| {});
        let secret = find(&of_a, &of_a.root().unwrap(), "secret").unwrap();
        drop(of_a);
        let of_b = open(&b, state.path(), |_| {});
        assert_eq!(read(&of_b, &Caller::root(), &secret), Err(FsError::Stale), "{kind}");
        drop(of_b);
        let of_a = open(&a, state.path(), |_| {});
        assert_eq!(read(&of_a, &Caller::root(), &secret).as_deref(), Ok(&b"secret"[..]), "{kind}");
    }
}

#[test]
fn a_lease_of_a_local_process_does_not_fail_the_commit_of_a_change_that_was_made() {
    // Without a journal each object is forced by itself, which needs it opened.
    let (disk, state) = (Disk::make("ext4", &["-O", "^has_journal"]), tempfile::tempdir().unwrap());
    let root = disk.fresh();
    std::fs::write(root.join("file"), "content").unwrap();
    let script = "import fcntl, os, signal, sys\n\
                  signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
                  fd = os.open(sys.argv[1], os.O_RDWR)\n\
                  fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
                  print('held', flush=True)\n\
                  sys.stdin.read()\n";
    let mut holder = Command::new("python3");
    let holder = holder.args(["-c", script]).arg(root.join("file"));
    let mut holder =
        holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this test needs python3");
    let mut said = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "held\n");
    let backend = open(&root, state.path(), |_| {});
    let file = find(&backend, &backend.root().unwrap(), "file").unwrap();
    assert_eq!(read(&backend, &Caller::root(), &file), Err(FsError::Delay), "the lease is in the way");
    let set = SetAttrs { mode: Some(0o640), ..SetAttrs::default() };
    backend.setattr(&cx(&Caller::root()), File::Stateless(&file), &set, None).unwrap();
    let mut results = [Ok(())];
    backend.commit(&[Touched { handle: file, data: false }], &mut results);
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(results, [Ok(())]);
}

#[test]
fn attributes_that_mean_rights_on_this_machine_are_out_of_reach() {
    must_be_root();
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = dir.path().join("program");
    std::fs::write(&path, "").unwrap();
    run("chown", &["4321:4321", path.to_str().unwrap()]);
    let backend = open(dir.path(), state.path(), |_| {});
    let file = find(&backend, &backend.root().unwrap(), "program").unwrap();
    // cap_setuid=ep, as `setcap` writes it.
    let mut capability = [0; 20];
    capability[..8].copy_from_slice(&[1, 0, 0, 2, 1 << 7, 0, 0, 0]);
    for caller in [user(4321), Caller::root()] {
        let set =
            |n: &[u8]| backend.setxattr(&cx(&caller), &file, n, &capability, XattrMode::Either).map(drop);
        assert_eq!(set(b"security.capability"), Err(FsError::Perm));
        assert_eq!(set(b"trusted.overlay.opaque"), Err(FsError::Perm));
    }
    assert_eq!(
        rustix::fs::getxattr(&path, "security.capability", &mut [0; 64]),
        Err(rustix::io::Errno::NODATA)
    );
}

#[test]
fn the_state_directory_is_the_servers_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let victim = dir.path().join("victim");
    std::fs::write(&victim, "untouched").unwrap();
    std::os::unix::fs::symlink(&victim, state.path().join("file-systems.new")).unwrap();
    std::fs::set_permissions(state.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    open(dir.path(), state.path(), |_| {});
    assert_eq!(mode(state.path()), 0o700);
    assert_eq!(mode(&state.path().join("file-systems")), 0o600);
    assert_eq!(std::fs::read(&victim).unwrap(), b"untouched");
}
