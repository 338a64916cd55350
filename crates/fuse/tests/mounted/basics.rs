//! What applications do with files, through the kernel.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_fuse::{Config, End, InitFlags, MountOptions, Unmount};
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use crate::double::Manner;
use crate::stage::{Stage, drop_caches, until};

#[test]
fn the_connection_has_what_the_kernel_and_we_both_know() {
    let stage = Stage::new();
    let connection = *stage.session.connection();
    assert!((31..=45).contains(&connection.minor), "{connection:?}");
    assert!(connection.flags.contains(InitFlags::PARALLEL_DIROPS | InitFlags::SETXATTR_EXT));
    assert!(!connection.flags.intersects(InitFlags::WRITEBACK_CACHE | InitFlags::AUTO_INVAL_DATA));
    assert_eq!(connection.write_bytes_max, 1 << 20);
    assert_eq!(stage.finish(), End::Unmounted);
}

#[test]
fn files_directories_and_links_live_their_lives() {
    let stage = Stage::new();
    fs::write(stage.path("a"), b"hello").unwrap();
    assert_eq!(fs::read(stage.path("a")).unwrap(), b"hello");
    fs::create_dir(stage.path("d")).unwrap();
    fs::rename(stage.path("a"), stage.path("d/b")).unwrap();
    fs::hard_link(stage.path("d/b"), stage.path("c")).unwrap();
    symlink("d/b", stage.path("s")).unwrap();
    assert_eq!(fs::read(stage.path("s")).unwrap(), b"hello");
    assert_eq!(fs::metadata(stage.path("c")).unwrap().nlink(), 2);
    let mut names: Vec<_> = fs::read_dir(stage.root()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["c", "d", "s"]);
    fs::set_permissions(stage.path("c"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(stage.path("d/b")).unwrap().mode() & 0o777, 0o640);
    assert!(fs::remove_dir(stage.path("d")).is_err());
    fs::remove_file(stage.path("d/b")).unwrap();
    fs::remove_dir(stage.path("d")).unwrap();
    assert_eq!(fs::metadata(stage.path("absent")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let double = std::sync::Arc::clone(&stage.double);
    assert_eq!(stage.finish(), End::Unmounted);
    assert_eq!(double.destroyed.load(Ordering::SeqCst), 1, "destroy comes once");
}

#[test]
fn large_reads_and_writes_come_in_large_pieces() {
    let stage = Stage::new();
    let data: Vec<u8> = (0..8u32 << 20).map(|i| u8::try_from(i * 7 % 251).unwrap()).collect();
    let mut options = OpenOptions::new();
    options.write(true).create(true).custom_flags(libc::O_DIRECT);
    let file = options.open(stage.path("big")).unwrap();
    // O_DIRECT wants no alignment of FUSE.
    file.write_all_at(&data, 0).unwrap();
    drop(file);
    // 1 MiB each, but for memory that does not begin with a page.
    assert!((8..=9).contains(&stage.calls("write")), "{}", stage.calls("write"));
    assert!(fs::read(stage.path("big")).unwrap() == data, "what was written is read");
}

#[test]
fn a_listing_of_many_names_is_whole_and_lookups_balance() {
    let stage = Stage::new();
    for i in 0..3000 {
        File::create(stage.path(&format!("name-{i:05}"))).unwrap();
    }
    for _ in 0..2 {
        let mut seen = 0;
        for entry in fs::read_dir(stage.root()).unwrap() {
            let entry = entry.unwrap();
            assert!(entry.metadata().unwrap().is_file());
            seen += 1;
        }
        assert_eq!(seen, 3000);
    }
    assert!(stage.calls("readdirplus") > 0);
    // Every FORGET is checked against what was counted (the double panics where it does not agree).
    until("all are forgotten", || {
        drop_caches();
        stage.double.known_nodes() == 1
    });
    assert!(stage.double.forgotten.load(Ordering::SeqCst) >= 3000);
    assert_eq!(stage.finish(), End::Unmounted);
}

#[test]
fn birth_time_is_told() {
    let stage = Stage::new();
    fs::write(stage.path("a"), b"x").unwrap();
    let told = fs::metadata(stage.path("a")).unwrap().created();
    if stage.session.connection().minor < 39 {
        assert!(told.is_err(), "this kernel has no STATX");
        return;
    }
    let born = told.unwrap();
    assert!(born.elapsed().unwrap() < Duration::from_secs(60));
    assert!(stage.calls("statx") > 0);
}

#[test]
fn sparse_files_show_their_holes() {
    let stage = Stage::new();
    let file = File::create_new(stage.path("a")).unwrap();
    file.write_all_at(b"x", 1 << 20).unwrap();
    let at = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap();
    assert_eq!(at, 1 << 20);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(at)).unwrap(), (1 << 20) + 1);
    let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 1 << 20, 1).unwrap();
    let mut byte = [9];
    OpenOptions::new().read(true).open(stage.path("a")).unwrap().read_exact_at(&mut byte, 1 << 20).unwrap();
    assert_eq!(byte, [0]);
}

#[test]
fn copies_stay_within_the_file_system() {
    let stage = Stage::new();
    fs::write(stage.path("a"), vec![7; 1 << 20]).unwrap();
    let (from, to) = (File::open(stage.path("a")).unwrap(), File::create(stage.path("b")).unwrap());
    let copied = rustix::fs::copy_file_range(&from, None, &to, None, 1 << 20).unwrap();
    assert_eq!(copied, 1 << 20);
    assert!(stage.calls("copy_file_range") > 0);
    assert!(fs::read(stage.path("b")).unwrap() == vec![7; 1 << 20]);
}

#[test]
fn a_nameless_file_can_be_written_and_read() {
    let stage = Stage::new();
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let file = rustix::fs::open(stage.root(), flags, Mode::from_raw_mode(0o600)).unwrap();
    let mut file = File::from(file);
    file.write_all(b"nobody sees").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "nobody sees");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(stage.root()).unwrap().count(), 0);
}

#[test]
fn extended_attributes_have_their_sizes_checked() {
    let stage = Stage::new();
    fs::write(stage.path("a"), b"").unwrap();
    let path = stage.path("a");
    let none = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(&path, "user.k", b"value", none).unwrap();
    let mut buffer = [0; 16];
    assert_eq!(rustix::fs::getxattr(&path, "user.k", &mut buffer).unwrap(), 5);
    assert_eq!(rustix::fs::getxattr_query(&path, "user.k").unwrap(), 5);
    let short = rustix::fs::getxattr(&path, "user.k", &mut [0u8; 2][..]);
    assert_eq!(short, Err(rustix::io::Errno::RANGE));
    assert_eq!(rustix::fs::listxattr(&path, &mut buffer).unwrap(), 7);
    let create = rustix::fs::XattrFlags::CREATE;
    assert_eq!(rustix::fs::setxattr(&path, "user.k", b"v", create), Err(rustix::io::Errno::EXIST));
    rustix::fs::removexattr(&path, "user.k").unwrap();
    assert_eq!(rustix::fs::getxattr(&path, "user.k", &mut buffer), Err(rustix::io::Errno::NODATA));
}

#[test]
fn renames_exchange_or_refuse_to_replace() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let stage = Stage::new();
    fs::write(stage.path("a"), b"a").unwrap();
    fs::write(stage.path("b"), b"b").unwrap();
    let (a, b) = (stage.path("a"), stage.path("b"));
    let refused = renameat_with(CWD, &a, CWD, &b, RenameFlags::NOREPLACE);
    assert_eq!(refused, Err(rustix::io::Errno::EXIST));
    renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(a).unwrap(), b"b");
}

#[test]
fn devices_and_pipes_keep_their_numbers() {
    let stage = Stage::new();
    for (major, minor) in [(1, 3), (259, 70_000)] {
        let path = stage.path(&format!("dev-{major}"));
        let kind = rustix::fs::FileType::CharacterDevice;
        let number = rustix::fs::makedev(major, minor);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, Mode::from_raw_mode(0o600), number).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().rdev(), number);
        let x = rustix::fs::statx(rustix::fs::CWD, &path, AtFlags::empty(), StatxFlags::ALL).unwrap();
        assert_eq!((x.stx_rdev_major, x.stx_rdev_minor), (major, minor));
    }
}

#[test]
fn groups_of_the_caller_are_known() {
    let stage = Stage::new();
    let listing = Command::new("/usr/bin/setpriv")
        .args(["--reuid=65534", "--regid=65534", "--groups=7,1234", "/bin/ls"])
        .arg(stage.root())
        .status();
    assert!(listing.unwrap().success());
    assert_eq!(*stage.double.last_groups.lock(), [7, 1234]);
}

#[test]
fn a_mount_made_read_only_refuses_writes() {
    let mut options = MountOptions::new("double:/");
    options.is_read_only = true;
    let stage = Stage::with_options(Manner::default(), &Config::default(), &options);
    let refused = fs::write(stage.path("a"), b"x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
}

#[test]
fn the_table_of_mounts_names_the_source_and_the_type() {
    let stage = Stage::new();
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = stage.root().display().to_string();
    let line = table.lines().find(|line| line.contains(&at)).unwrap();
    assert!(line.contains(" fuse.holdfast double:/ "), "{line}");
}

#[test]
fn an_unmount_of_a_busy_mount_is_refused_and_a_lazy_one_serves_on() {
    let stage = Stage::new();
    fs::write(stage.path("a"), b"held").unwrap();
    let file = File::open(stage.path("a")).unwrap();
    assert!(stage.session.unmount(Unmount::Plain).is_err());
    stage.session.unmount(Unmount::Lazy).unwrap();
    assert!(!stage.path("a").exists());
    let mut byte = [0; 4];
    file.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(&byte, b"held");
    assert_eq!(stage.session.wait_for(Duration::from_millis(20)), None);
    drop(file);
    assert_eq!(stage.session.wait_for(Duration::from_secs(30)), Some(End::Unmounted));
}

#[test]
fn an_abort_frees_those_who_wait() {
    let stage = Stage::new();
    fs::write(stage.path("a"), b"x").unwrap();
    stage.double.gates.close("getattr", true);
    let path = stage.path("a");
    let waiting = std::thread::spawn(move || fs::metadata(path).map(drop));
    until("the operation waits", || stage.double.gates.waiting("getattr") == 1);
    stage.session.abort().unwrap();
    assert!(waiting.join().unwrap().is_err());
    let end = stage.session.wait_for(Duration::from_secs(30));
    assert!(matches!(end, Some(End::Aborted | End::Unmounted)), "{end:?}");
    stage.session.unmount(Unmount::Lazy).unwrap();
}

#[test]
fn a_release_is_served_to_its_end_after_the_unmount() {
    let stage = Stage::new();
    let file = File::create(stage.path("a")).unwrap();
    stage.double.gates.close("release", true);
    drop(file);
    until("the release waits", || stage.double.gates.waiting("release") == 1);
    let at = stage.root().to_path_buf();
    let unmounted = std::thread::spawn(move || Command::new("/bin/umount").arg(at).status().unwrap());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(stage.session.wait_for(Duration::from_millis(50)), None, "the release is still served");
    assert_eq!(stage.double.destroyed.load(Ordering::SeqCst), 0);
    stage.double.gates.open("release");
    assert!(unmounted.join().unwrap().success());
    assert!(stage.session.wait_for(Duration::from_secs(30)).is_some());
    assert_eq!(stage.double.destroyed.load(Ordering::SeqCst), 1);
}

#[test]
fn a_panic_in_the_file_system_is_an_error_and_not_the_end() {
    let stage = Stage::new();
    assert_eq!(fs::read(stage.path("panic")).unwrap_err().raw_os_error(), Some(libc::EIO));
    fs::write(stage.path("a"), b"x").unwrap();
}

#[test]
fn a_mount_made_by_somebody_else_is_served() {
    use std::os::fd::AsRawFd;
    let folder = tempfile::tempdir().unwrap();
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    let data = std::ffi::CString::new(data).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("double:/", folder.path(), "fuse.holdfast", flags, &*data).unwrap();
    let double = crate::double::Double::new(Manner::default());
    let session = holdfast_fuse::Session::over(double, device, &Config::default()).unwrap();
    fs::write(folder.path().join("a"), b"x").unwrap();
    assert!(session.unmount(Unmount::Plain).is_err(), "it is not ours");
    holdfast_fuse::unmount(folder.path(), Unmount::Plain).unwrap();
    assert_eq!(session.wait_for(Duration::from_secs(30)), Some(End::Unmounted));
}

#[test]
fn a_mount_point_behind_a_symbolic_link_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("real")).unwrap();
    symlink("real", folder.path().join("link")).unwrap();
    let double = crate::double::Double::new(Manner::default());
    let at = folder.path().join("link");
    let options = MountOptions::new("double:/");
    let session = holdfast_fuse::Session::mount(double, &at, &options, &Config::default()).unwrap();
    assert_eq!(session.mountpoint(), Some(&*folder.path().join("real")));
    holdfast_fuse::unmount(&at, Unmount::Force).unwrap();
    assert!(session.wait_for(Duration::from_secs(30)).is_some());
}
