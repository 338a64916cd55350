//! What a real machine adds to the suite: mounts below the export, layers of an overlay, subvolumes, ACLs, full disks,
//! failing disks, symbolic links in the way, and directories that vanish.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use disk::{Disk, must_be_root, run, unmount};
use holdfast_backend_local::{LocalBackend, LocalOptions, OpenError};
use holdfast_base::Cookie;
use holdfast_vfs::{
    AttrMask, Attrs, Backend, Caller, CreateHow, CreateMode, Cx, DirListing, File, FileKind, Flow, FsError,
    FsResult, Handle, Name, NewNode, Node, OpenMode, RemoveKind, RenameFlags, SetAttrs, Stability, Touched,
    Wait, WriteAt,
};
use tempfile::TempDir;

struct World {
    backend: LocalBackend,
    root: Handle,
    caller: Caller,
}

fn name(n: &str) -> Name<'_> {
    Name::new(n.as_bytes()).unwrap()
}

fn world(root: &Path, state: &TempDir, change: impl FnOnce(&mut LocalOptions)) -> World {
    let mut options = LocalOptions::new(state.path().to_owned());
    change(&mut options);
    let backend = LocalBackend::open(root, options).unwrap();
    let root = backend.root().unwrap();
    World { backend, root, caller: Caller::root() }
}

fn state() -> TempDir {
    tempfile::tempdir().unwrap()
}

impl World {
    fn cx(&self) -> Cx<'_> {
        Cx::new(&self.caller, Wait::Yes)
    }

    fn find(&self, dir: &Handle, n: &str) -> FsResult<Node> {
        self.backend.lookup(&self.cx(), dir, name(n), AttrMask::ALL)
    }

    fn attrs(&self, object: &Handle) -> FsResult<Attrs> {
        self.backend.getattr(&self.cx(), object, AttrMask::ALL)
    }

    fn create(&self, dir: &Handle, n: &str, set: &SetAttrs) -> FsResult<Node> {
        let how = CreateHow { mode: CreateMode::Guarded, set, open: None, want: AttrMask::ALL };
        self.backend.create(&self.cx(), dir, name(n), &how).map(|made| made.node)
    }

    fn write(&self, file: &Handle, offset: u64, data: &[u8]) -> FsResult<usize> {
        let at = WriteAt { offset, stability: Stability::Unstable, want_change: false };
        self.backend.write(&self.cx(), File::Stateless(file), at, data).map(|w| w.bytes)
    }

    fn read(&self, file: &Handle) -> FsResult<Vec<u8>> {
        let mut data = vec![0; 4096];
        let read = self.backend.read(&self.cx(), File::Stateless(file), 0, &mut data)?;
        data.truncate(read.bytes);
        Ok(data)
    }

    fn commit(&self, handle: Handle) -> FsResult<()> {
        let mut results = [Ok(())];
        self.backend.commit(&[Touched { handle, data: true }], &mut results);
        results[0]
    }
}

#[test]
fn mounts_below_the_export_are_crossed_and_found_again_after_a_restart() {
    let (above, below) = (Disk::tmpfs(), Disk::make("ext4", &[]));
    let (root, state) = (above.fresh(), state());
    let point = root.join("dir/point");
    std::fs::create_dir_all(&point).unwrap();
    let covered = std::fs::metadata(&point).unwrap().ino();
    std::fs::write(below.mount.join("file"), "content").unwrap();
    run("mount", &["--bind", below.mount.to_str().unwrap(), point.to_str().unwrap()]);
    let w = world(&root, &state, |_| {});
    let dir = w.find(&w.root, "dir").unwrap().handle;
    let node = w.find(&dir, "point").unwrap();
    assert_ne!(node.attrs.fsid, w.attrs(&w.root).unwrap().fsid);
    assert_eq!(node.attrs.mounted_on_fileid, covered);
    assert_ne!(node.attrs.mounted_on_fileid, node.attrs.fileid);
    let mut listed = None;
    let listing = DirListing { dir: &dir, from: Cookie(0), want: Some(AttrMask::ALL) };
    let take = &mut |entry: holdfast_vfs::DirEntry<'_>| {
        listed = Some((entry.fileid, entry.node.unwrap().unwrap().handle));
        Flow::Continue
    };
    w.backend.readdir(&w.cx(), listing, take).unwrap();
    assert_eq!(listed, Some((covered, node.handle)));
    let file = w.find(&node.handle, "file").unwrap();
    assert_eq!(w.backend.parent(&w.cx(), &node.handle, AttrMask::STAT).unwrap().handle, dir);
    let to = (&w.root, name("file"));
    let moved = w.backend.rename(&w.cx(), (&node.handle, name("file")), to, RenameFlags::Replace);
    assert_eq!(moved.map(drop), Err(FsError::CrossDevice));
    let removed = w.backend.remove(&w.cx(), &dir, name("point"), RemoveKind::Any);
    assert_eq!(removed.map(drop), Err(FsError::Busy));
    assert_ne!(w.backend.commit_domain(&file.handle), w.backend.commit_domain(&dir));
    drop(w);
    // Nothing is looked up on the way: the handle itself leads there.
    let w = world(&root, &state, |_| {});
    assert_eq!(w.read(&file.handle).unwrap(), b"content");
    assert_eq!(w.attrs(&file.handle).unwrap().fsid, node.attrs.fsid);
    drop(w);
    let w = world(&root, &self::state(), |o| o.cross_mounts = false);
    let dir = w.find(&w.root, "dir").unwrap().handle;
    assert_eq!(w.find(&dir, "point").unwrap_err(), FsError::Access);
    drop(w);
    unmount(point.to_str().unwrap());
}

#[test]
fn a_file_system_without_an_id_keeps_the_one_it_was_given() {
    let (disk, state) = (Disk::tmpfs(), state());
    let root = disk.fresh();
    let (before, id) = {
        let w = world(&root, &state, |_| {});
        (w.root, w.attrs(&w.root).unwrap().fsid)
    };
    let w = world(&root, &state, |_| {});
    assert_eq!((w.root, w.attrs(&w.root).unwrap().fsid), (before, id));
}

#[test]
fn files_of_an_overlays_lower_layer_keep_their_handle_when_written() {
    let below = Disk::make("ext4", &[]);
    let disk = Disk::overlay(&below, |lower| {
        std::fs::create_dir(lower.join("dir")).unwrap();
        std::fs::write(lower.join("dir/file"), "content").unwrap();
    });
    let state = state();
    let w = world(&disk.mount, &state, |_| {});
    assert!(!w.backend.has_kernel_handles());
    let dir = w.find(&w.root, "dir").unwrap().handle;
    let file = w.find(&dir, "file").unwrap();
    w.write(&file.handle, 0, b"C").unwrap();
    assert_eq!(w.commit(file.handle), Ok(()));
    assert_eq!(w.find(&dir, "file").unwrap().handle, file.handle);
    w.backend.shed(0);
    assert_eq!(w.read(&file.handle).unwrap(), b"Content");
    drop(w);
    let w = world(&disk.mount, &state, |_| {});
    assert_eq!(w.read(&file.handle).unwrap(), b"Content");
    // Another object under the same name is another object, whoever put it there; the first one is found.
    std::fs::rename(disk.mount.join("dir/file"), disk.mount.join("dir/away")).unwrap();
    std::fs::write(disk.mount.join("dir/file"), "another").unwrap();
    w.backend.shed(0);
    assert_eq!(w.read(&file.handle).unwrap(), b"Content");
    assert_eq!(w.read(&w.find(&dir, "file").unwrap().handle).unwrap(), b"another");
}

#[test]
fn subvolumes_are_file_systems_of_their_own_and_their_handles_last() {
    let (disk, state) = (Disk::make("btrfs", &[]), state());
    let root = disk.fresh();
    let sub = root.join("sub");
    run("btrfs", &["subvolume", "create", sub.to_str().unwrap()]);
    std::fs::write(sub.join("file"), "content").unwrap();
    let w = world(&root, &state, |_| {});
    let node = w.find(&w.root, "sub").unwrap();
    assert_ne!(node.attrs.fsid, w.attrs(&w.root).unwrap().fsid);
    let file = w.find(&node.handle, "file").unwrap();
    drop(w);
    let w = world(&root, &state, |_| {});
    assert_eq!(w.read(&file.handle).unwrap(), b"content");
    assert_eq!(w.attrs(&file.handle).unwrap().fsid, node.attrs.fsid);
}

#[test]
fn a_default_acl_takes_the_umasks_place_and_acls_are_judged() {
    let (disk, state) = (Disk::make("ext4", &[]), state());
    let root = disk.fresh();
    run("setfacl", &["-d", "-m", "u:4001:rw,g::r,o::-", root.to_str().unwrap()]);
    run("setfacl", &["-m", "u:4002:rwx", root.to_str().unwrap()]);
    let mut w = world(&root, &state, |_| {});
    let set = SetAttrs { mode: Some(0o666), umask: Some(0o077), ..SetAttrs::default() };
    let file = w.create(&w.root, "file", &set).unwrap();
    assert_eq!(file.attrs.mode, 0o660, "the ACL's mask, not the umask");
    w.caller = Caller { uid: 4001, gid: 4001, groups: Arc::new([]) };
    assert_eq!(w.write(&file.handle, 0, b"x"), Ok(1));
    assert_eq!(w.create(&w.root, "no", &set).map(drop), Err(FsError::Access));
    w.caller = Caller { uid: 4003, gid: 4003, groups: Arc::new([]) };
    assert_eq!(w.write(&file.handle, 0, b"x"), Err(FsError::Access));
    w.caller = Caller { uid: 4002, gid: 4002, groups: Arc::new([]) };
    assert!(w.create(&w.root, "yes", &set).is_ok());
}

/// One look for both lists, and the same on file systems that name them among the extended attributes as where they are asked for.
#[test]
fn which_lists_there_are_is_known_however_many_other_attributes_there_are() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let (disk, state) = (Disk::make(kind, &[]), state());
        let root = disk.fresh();
        let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
        std::fs::create_dir(at("dir")).unwrap();
        for name in ["file", "many"] {
            std::fs::write(at(name), name).unwrap();
        }
        symlink("file", at("link")).unwrap();
        let w = world(&root, &state, |_| {});
        let lists = |name: &str| {
            let found =
                w.backend.lookup(&w.cx(), &w.root, Name::new(name.as_bytes()).unwrap(), AttrMask::NONE);
            let Node { handle, attrs } = found.unwrap();
            let lists = w.backend.access_lists(&w.cx(), File::Stateless(&handle)).unwrap();
            if attrs.kind == FileKind::Regular {
                let mode = OpenMode { read: true, write: false, nfs_exceptions: false };
                let open = w.backend.open(&w.cx(), &handle, mode).unwrap();
                let through = w.backend.access_lists(&w.cx(), File::Open(&handle, &open)).unwrap();
                assert_eq!(through, lists, "{name}, open");
            }
            (lists.access, lists.default)
        };
        let all = || ["file", "many", "dir", "link"].map(lists);
        assert_eq!(all(), [(false, false); 4], "{kind}");
        run("setfacl", &["-m", "u:4001:rw", &at("file")]);
        run("setfacl", &["-d", "-m", "u:4001:rw", &at("dir")]);
        // More names than fit where one looks first.
        for n in 0..20 {
            run("setfattr", &["-n", &format!("user.a-rather-long-name-{n}"), "-v", "x", &at("many")]);
        }
        assert_eq!(all(), [(true, false), (false, false), (false, true), (false, false)], "{kind}");
        run("setfacl", &["-m", "u:4001:rw", &at("many"), &at("dir")]);
        assert_eq!(all(), [(true, false), (true, false), (true, true), (false, false)], "{kind}");
        run("setfacl", &["-b", &at("file"), &at("many"), &at("dir")]);
        assert_eq!(all(), [(false, false); 4], "{kind}");
    }
}

#[test]
fn a_full_disk_says_so_and_the_roots_reserve_is_the_roots() {
    let (disk, state) = (Disk::make("ext4", &["-m", "20"]), state());
    let root = disk.fresh();
    let mut w = world(&root, &state, |_| {});
    let set = SetAttrs { mode: Some(0o666), ..SetAttrs::default() };
    let file = w.create(&w.root, "file", &set).unwrap().handle;
    w.caller = Caller { uid: 4001, gid: 4001, groups: Arc::new([]) };
    let data = vec![1; 1 << 20];
    let full = (0..600).find_map(|mib| match w.write(&file, mib << 20, &data) {
        Ok(n) if n == data.len() => None,
        Ok(_) => Some(FsError::NoSpace),
        Err(e) => Some(e),
    });
    assert_eq!(full, Some(FsError::NoSpace));
    let usage = w.backend.usage(&w.cx(), &file).unwrap();
    assert!(usage.bytes_free > 50 << 20, "{usage:?}: a caller used the reserve");
}

#[test]
fn an_error_of_write_back_reaches_the_commit_and_changes_the_verifier() {
    // The image lies on a tmpfs that is smaller than it says, so the disk fails when it is written to.
    must_be_root();
    let (small, state) = (Disk::tmpfs(), state());
    run("mount", &["-o", "remount,size=40m", small.mount.to_str().unwrap()]);
    let (image, mount) = (small.mount.join("image"), small.mount.join("disk"));
    std::fs::create_dir(&mount).unwrap();
    std::fs::File::create(&image).unwrap().set_len(200 << 20).unwrap();
    run("mkfs.ext4", &["-q", "-F", "-E", "nodiscard", image.to_str().unwrap()]);
    run("mount", &["-o", "loop", image.to_str().unwrap(), mount.to_str().unwrap()]);
    let w = world(&mount, &state, |_| {});
    let file = w.create(&w.root, "file", &SetAttrs::default()).unwrap().handle;
    let verifier = w.backend.write_verifier();
    for mib in 0..100 {
        w.write(&file, mib << 20, &vec![1; 1 << 20]).unwrap();
    }
    let told = w.commit(file);
    assert!(matches!(told, Err(FsError::Io | FsError::NoSpace)), "{told:?}");
    assert_ne!(w.backend.write_verifier(), verifier);
    drop(w);
    run("umount", &["-l", mount.to_str().unwrap()]);
}

#[test]
fn symbolic_links_never_lead_outside() {
    let (disk, state) = (Disk::tmpfs(), state());
    let root = disk.fresh();
    std::fs::create_dir(disk.mount.join("secret")).unwrap();
    std::fs::write(disk.mount.join("secret/file"), "secret").unwrap();
    symlink("../secret", root.join("link")).unwrap();
    symlink("../secret/file", root.join("file")).unwrap();
    let w = world(&root, &state, |_| {});
    let link = w.find(&w.root, "link").unwrap().handle;
    assert_eq!(w.find(&link, "file").unwrap_err(), FsError::IsSymlink);
    let how = CreateHow {
        mode: CreateMode::Unchecked,
        set: &SetAttrs::default(),
        open: None,
        want: AttrMask::STAT,
    };
    let opened = w.backend.create(&w.cx(), &w.root, name("file"), &how);
    assert_eq!(opened.map(drop).unwrap_err(), FsError::IsSymlink);
    assert_eq!(w.create(&link, "new", &SetAttrs::default()).map(drop), Err(FsError::IsSymlink));
    // A directory that turns into a link while we hold its handle stays the directory.
    let (dir, _) =
        w.backend.make(&w.cx(), &w.root, name("dir"), NewNode::Directory, &SetAttrs::default()).unwrap();
    std::fs::rename(root.join("dir"), root.join("dir2")).unwrap();
    symlink("../secret", root.join("dir")).unwrap();
    assert_eq!(w.find(&dir.handle, "file").unwrap_err(), FsError::NotFound);
    w.create(&dir.handle, "new", &SetAttrs::default()).unwrap();
    assert!(root.join("dir2/new").exists());
}

#[test]
fn a_vanished_export_is_stale_and_what_cannot_be_served_is_named() {
    let (dir, state) = (tempfile::tempdir().unwrap(), state());
    let root = dir.path().join("export");
    std::fs::create_dir(&root).unwrap();
    let w = world(&root, &state, |_| {});
    std::fs::remove_dir(&root).unwrap();
    assert_eq!(w.backend.root(), Err(FsError::Stale));
    assert_eq!(w.attrs(&w.root), Err(FsError::Stale));
    assert_eq!(w.find(&w.root, "x").unwrap_err(), FsError::Stale);
    assert_eq!(w.create(&w.root, "x", &SetAttrs::default()).map(drop), Err(FsError::Stale));
    let open = |path: &Path| LocalBackend::open(path, LocalOptions::new(state.path().to_owned())).map(drop);
    let error = open(&root).unwrap_err();
    assert!(matches!(error, OpenError::Root { .. }) && error.to_string().contains("export"), "{error}");
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(open(&file).unwrap_err(), OpenError::NotADirectory { .. }));
    let options = LocalOptions::new(file.join("state"));
    assert!(matches!(
        LocalBackend::open(dir.path(), options).map(drop).unwrap_err(),
        OpenError::State { .. }
    ));
}

#[test]
fn descriptors_stay_within_their_bound() {
    let (disk, state) = (Disk::tmpfs(), state());
    let root = disk.fresh();
    let w = world(&root, &state, |o| o.descriptors_max = 256);
    let count =
        || std::fs::read_dir("/proc/self/task").map(|_| ()).and_then(|()| std::fs::read_dir("/proc/self/fd"));
    let before = count().unwrap().count();
    let mut handles = Vec::new();
    for i in 0..3000 {
        let file = w.create(&w.root, &format!("f{i}"), &SetAttrs::default()).unwrap().handle;
        w.write(&file, 0, b"x").unwrap();
        assert_eq!(w.commit(file), Ok(()));
        w.read(&file).unwrap();
        handles.push(file);
    }
    // Other tests of this process open some as well.
    let now = count().unwrap().count();
    assert!(now < before + 256 + 200, "{before} before, {now} now");
    assert!(handles.iter().all(|h| w.read(h).as_deref() == Ok(b"x")));
}

#[test]
fn a_removed_files_space_is_freed_at_once() {
    // In a process of its own: a child that another test forks holds all descriptors of this one, and with them the space,
    // until it executes its program.
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "frees_space_in_a_process_of_its_own", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let complaint = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("1 passed"), "{said}{complaint}");
}

#[test]
#[ignore = "run by a_removed_files_space_is_freed_at_once, in a process of its own"]
fn frees_space_in_a_process_of_its_own() {
    let (disk, state) = (Disk::tmpfs(), state());
    let root = disk.fresh();
    let w = world(&root, &state, |_| {});
    let file = w.create(&w.root, "file", &SetAttrs::default()).unwrap().handle;
    for mib in 0..8 {
        w.write(&file, mib << 20, &vec![1; 1 << 20]).unwrap();
    }
    let used = |w: &World| {
        let usage = w.backend.usage(&w.cx(), &w.root).unwrap();
        usage.bytes_total - usage.bytes_free
    };
    assert!(used(&w) >= 8 << 20);
    w.backend.remove(&w.cx(), &w.root, name("file"), RemoveKind::Any).unwrap();
    assert!(used(&w) < 1 << 20, "{} bytes are kept", used(&w));
}

#[test]
fn what_would_wait_for_a_disk_says_so_when_it_may_not() {
    let (disk, state) = (Disk::make("xfs", &[]), state());
    let root = disk.fresh();
    let w = world(&root, &state, |_| {});
    let file = w.create(&w.root, "file", &SetAttrs::default()).unwrap().handle;
    w.write(&file, 0, &[7; 65536]).unwrap();
    assert_eq!(w.commit(file), Ok(()));
    let hasty = Cx::new(&w.caller, Wait::No);
    let read = || {
        let mut data = [0; 16384];
        w.backend.read(&hasty, File::Stateless(&file), 32768, &mut data).map(|r| (r.bytes, data[0]))
    };
    let find = || w.backend.lookup(&hasty, &w.root, name("file"), AttrMask::STAT).map(|n| n.handle);
    assert_eq!((read(), find()), (Ok((16384, 7)), Ok(file)));
    let open = std::fs::File::open(root.join("file")).unwrap();
    rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert_eq!(read(), Err(FsError::WouldBlock));
    let span = w.backend.read_span(&hasty, File::Stateless(&file), 0, 65536);
    assert_eq!(span.map(drop), Err(FsError::WouldBlock));
    assert_eq!(w.read(&file).unwrap().len(), 4096);
    let removed = w.backend.remove(&hasty, &w.root, name("file"), RemoveKind::Any);
    assert_eq!(removed.map(drop), Err(FsError::WouldBlock));
    assert!(w.find(&w.root, "file").is_ok(), "nothing was changed");
    w.backend.shed(0);
    assert_eq!(w.backend.getattr(&hasty, &file, AttrMask::STAT), Err(FsError::WouldBlock));
    assert!(w.attrs(&file).is_ok());
    assert!(w.backend.getattr(&hasty, &file, AttrMask::STAT).is_ok());
}

#[test]
fn the_kernels_own_doors_are_not_handed_out() {
    must_be_root();
    let (dir, state) = (tempfile::tempdir().unwrap(), state());
    let inside = dir.path().join("proc");
    std::fs::create_dir(&inside).unwrap();
    run("mount", &["-t", "proc", "proc", inside.to_str().unwrap()]);
    let world = world(dir.path(), &state, |_| {});
    let found = world.find(&world.root, "proc").map(|node| node.attrs.kind);
    unmount(inside.to_str().unwrap());
    assert_eq!(found, Err(FsError::Access));
}

#[test]
fn a_file_system_of_unknown_kind_is_not_even_looked_at_where_waiting_is_forbidden() {
    must_be_root();
    let (dir, state) = (tempfile::tempdir().unwrap(), state());
    let path = dir.path().to_str().unwrap();
    // Any kind that is not served daily will do, and this one needs no image.
    run("mount", &["-t", "hugetlbfs", "none", path]);
    let looked = {
        let world = world(dir.path(), &state, |_| {});
        [Wait::No, Wait::Yes].map(|wait| {
            let cx = Cx::new(&world.caller, wait);
            world.backend.getattr(&cx, &world.root, AttrMask::STAT).map(|attrs| attrs.kind)
        })
    };
    run("umount", &["-l", path]);
    assert_eq!(looked, [Err(FsError::WouldBlock), Ok(FileKind::Directory)]);
}
