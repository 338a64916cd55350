//! Mounts of ordinary users, by `fusermount3`; and passthrough, which is root's.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use holdfast_fuse::{
    Config, End, InitFlags, MountError, MountHow, MountOptions, PassthroughError, Session, Unmount,
};

use crate::double::{Double, Manner};
use crate::stage::Stage;

/// In the environment of a process of this test's own, run as another user: where to mount.
const AS_USER: &str = "HOLDFAST_FUSE_TEST_AT";

/// A user that every Debian has, and who is nobody here.
const USER: u32 = 65534;

fn need_fusermount() {
    assert!(Path::new("/usr/bin/fusermount3").exists(), "fusermount3 is missing (Debian: apt install fuse3)");
}

#[test]
fn an_ordinary_user_mounts_uses_and_unmounts() {
    need_fusermount();
    if let Some(at) = std::env::var_os(AS_USER) {
        return as_the_user(Path::new(&at));
    }
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    let at = folder.path().join("mnt");
    fs::create_dir(&at).unwrap();
    std::os::unix::fs::chown(&at, Some(USER), Some(USER)).unwrap();
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // The test's program lies where only root may look. Copied by another process: one that a neighbour starts meanwhile
    // would keep the copy open to write for a moment, and nobody may run it then.
    let program = folder.path().join("program");
    let copied = Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&program).status();
    assert!(copied.unwrap().success());
    let device = std::os::unix::fs::MetadataExt::mode(&fs::metadata("/dev/fuse").unwrap()) & 0o777;
    fs::set_permissions("/dev/fuse", std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let output = Command::new(&program)
        .args(["--exact", "users::an_ordinary_user_mounts_uses_and_unmounts", "--nocapture"])
        .env(AS_USER, &at)
        .uid(USER)
        .gid(USER)
        .output();
    fs::set_permissions("/dev/fuse", std::os::unix::fs::PermissionsExt::from_mode(device)).unwrap();
    let output = output.unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
}

fn as_the_user(at: &Path) {
    assert_eq!(rustix::process::geteuid().as_raw(), USER);
    let mount = |options: &MountOptions| {
        Session::mount(Double::new(Manner::default()), at, options, &Config::default())
    };
    let options = MountOptions::new("double:/with,comma");
    let session = mount(&options).expect("mounted");
    fs::write(at.join("a"), b"mine").unwrap();
    assert_eq!(fs::read(at.join("a")).unwrap(), b"mine");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(table.contains(" fuse.holdfast double:/with,comma "), "{table}");
    let refused = session.passthrough().open(fs::File::open("/proc/self/exe").unwrap().as_fd());
    assert_eq!(refused, Err(PassthroughError::NotOffered));
    session.unmount(Unmount::Plain).expect("unmounted");
    assert_eq!(session.wait_for(Duration::from_secs(30)), Some(End::Unmounted));

    // Somebody waits, and the mount is forced away.
    let double = Double::new(Manner::default());
    let session =
        Session::mount(Arc::clone(&double) as _, at, &options, &Config::default()).expect("mounted");
    double.gates.close("statfs", true);
    let path = at.to_path_buf();
    let waiting = std::thread::spawn(move || rustix::fs::statvfs(&path).map(drop));
    crate::stage::until("it waits", || double.gates.waiting("statfs") == 1);
    match session.unmount(Unmount::Force) {
        Ok(()) => {}
        Err(error) => panic!("{error}"),
    }
    if session.is_gone() {
        assert!(waiting.join().unwrap().is_err());
    } else {
        // Where the control files are not mounted a user cannot abort: the mount is out of the tree, and goes when
        // who waits is answered.
        double.gates.open("statfs");
        waiting.join().unwrap().expect("answered");
    }
    assert!(session.wait_for(Duration::from_secs(30)).is_some());

    let elsewhere = Path::new("/usr");
    let error = Session::mount(Double::new(Manner::default()), elsewhere, &options, &Config::default()).err();
    let Some(MountError::Helper(said)) = error else { panic!("{error:?}") };
    assert!(said.contains("/usr"), "{said}");
}

#[test]
fn root_can_use_the_same_way() {
    need_fusermount();
    let mut options = MountOptions::new("double:/");
    options.how = Some(MountHow::Assisted);
    let stage = Stage::with_options(Manner::default(), &Config::default(), &options);
    fs::write(stage.path("a"), b"x").unwrap();
    assert_eq!(stage.finish(), End::Unmounted);
}

#[test]
fn a_missing_mount_point_is_said() {
    let options = MountOptions::new("double:/");
    let at = Path::new("/no/such/place");
    let error = Session::mount(Double::new(Manner::default()), at, &options, &Config::default()).err();
    assert!(matches!(error, Some(MountError::Mountpoint(..))), "{error:?}");
}

#[test]
fn passthrough_reads_and_writes_another_file() {
    use std::os::unix::fs::FileExt;
    let config = Config { flags: Config::FLAGS | InitFlags::PASSTHROUGH, ..Config::default() };
    let stage = Stage::with(Manner::default(), &config);
    let passthrough = stage.session.passthrough();
    // On a file system that is stacked on none.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let behind = fs::File::create_new(folder.path().join("behind")).unwrap();
    if !stage.session.connection().flags.contains(InitFlags::PASSTHROUGH) {
        assert_eq!(passthrough.open(behind.as_fd()), Err(PassthroughError::NotOffered));
        println!("this kernel has no passthrough");
        return;
    }
    fs::write(stage.path("a"), b"").unwrap();
    let id = passthrough.open(behind.as_fd()).unwrap();
    stage.double.pass_through(Some(id));
    let file = fs::OpenOptions::new().read(true).write(true).open(stage.path("a")).unwrap();
    passthrough.close(id);
    file.write_all_at(b"through", 0).unwrap();
    assert_eq!((stage.calls("write"), stage.calls("read")), (0, 0), "the daemon sees neither");
    assert_eq!(fs::read(folder.path().join("behind")).unwrap(), b"through");
    let pipe = std::io::pipe().unwrap().0;
    let unsuitable = passthrough.open(pipe.as_fd());
    assert!(matches!(unsuitable, Err(PassthroughError::Unsuitable(_))), "{unsuitable:?}");
}
