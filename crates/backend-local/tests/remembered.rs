//! What the backend remembers instead of asking again holds only as long as it is true, whoever changes it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;

use disk::{Disk, run};
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::Cookie;
use holdfast_vfs::{
    AttrMask, Backend, Caller, Cx, DirListing, File, Flow, FsError, FsResult, Handle, Name, Stability, Wait,
    WriteAt,
};

fn lookup(b: &LocalBackend, caller: &Caller, dir: &Handle, name: &[u8]) -> FsResult<u64> {
    let cx = Cx::new(caller, Wait::Yes);
    b.lookup(&cx, dir, Name::new(name)?, AttrMask::ALL).map(|node| node.attrs.fileid)
}

fn listed(b: &LocalBackend, dir: &Handle) -> Vec<(Vec<u8>, u64, bool)> {
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let listing = DirListing { dir, from: Cookie(0), want: Some(AttrMask::ALL) };
    let mut found = Vec::new();
    b.readdir(&cx, listing, &mut |entry| {
        let attrs = entry.node.unwrap().unwrap().attrs;
        found.push((entry.name.to_vec(), attrs.fileid, attrs.fsid == b_fsid(b, dir)));
        Flow::Continue
    })
    .unwrap();
    found
}

fn b_fsid(b: &LocalBackend, dir: &Handle) -> holdfast_vfs::FsId {
    let caller = Caller::root();
    b.getattr(&Cx::new(&caller, Wait::Yes), dir, AttrMask::ALL).unwrap().fsid
}

fn on_each_disk(test: impl Fn(&Disk, &LocalBackend, &Handle)) {
    for kind in ["ext4", "xfs"] {
        let disk = Disk::make(kind, &[]);
        let state = tempfile::tempdir().unwrap();
        let backend = LocalBackend::open(&disk.mount, LocalOptions::new(state.path().to_owned())).unwrap();
        let root = backend.root().unwrap();
        test(&disk, &backend, &root);
    }
}

#[test]
fn a_name_that_a_local_process_gives_to_another_file_leads_there_at_once() {
    on_each_disk(|disk, b, root| {
        let (one, two) = (disk.mount.join("one"), disk.mount.join("two"));
        let caller = Caller::root();
        for round in 0..200 {
            fs::write(&one, "1").unwrap();
            fs::write(&two, "2").unwrap();
            let (first, second) = (fs::metadata(&one).unwrap().ino(), fs::metadata(&two).unwrap().ino());
            for _ in 0..2 {
                assert_eq!(lookup(b, &caller, root, b"one"), Ok(first), "round {round}");
            }
            fs::rename(&two, &one).unwrap();
            assert_eq!(lookup(b, &caller, root, b"one"), Ok(second), "round {round}");
            assert!(listed(b, root).iter().any(|(n, ino, _)| n == b"one" && *ino == second));
            fs::remove_file(&one).unwrap();
            assert_eq!(lookup(b, &caller, root, b"one"), Err(FsError::NotFound), "round {round}");
        }
    });
}

#[test]
fn a_name_that_becomes_a_mount_point_leads_to_what_is_mounted() {
    on_each_disk(|disk, b, root| {
        let above = tempfile::tempdir().unwrap();
        let point = disk.mount.join("point");
        fs::create_dir(&point).unwrap();
        let covered = fs::metadata(&point).unwrap().ino();
        let caller = Caller::root();
        for _ in 0..2 {
            assert_eq!(lookup(b, &caller, root, b"point"), Ok(covered));
            assert!(listed(b, root).contains(&(b"point".to_vec(), covered, true)));
        }
        run("mount", &["--bind", above.path().to_str().unwrap(), point.to_str().unwrap()]);
        let mounted = fs::metadata(above.path()).unwrap().ino();
        let (by_name, by_listing) = (lookup(b, &caller, root, b"point"), listed(b, root));
        // Lazily: the backend holds what it found there.
        run("umount", &["--lazy", point.to_str().unwrap()]);
        assert_eq!(by_name, Ok(mounted));
        assert!(by_listing.contains(&(b"point".to_vec(), mounted, false)), "{by_listing:?}");
        assert_eq!(lookup(b, &caller, root, b"point"), Ok(covered));
    });
}

#[test]
fn rights_that_were_granted_end_when_the_mode_changes_and_are_nobody_elses() {
    on_each_disk(|disk, b, root| {
        let (dir, file) = (disk.mount.join("dir"), disk.mount.join("dir/file"));
        fs::create_dir(&dir).unwrap();
        fs::write(&file, "content").unwrap();
        let user = |uid| Caller { uid, gid: uid, groups: Arc::from([]) };
        let cx = |caller| Cx::new(caller, Wait::Yes);
        let set = |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(&disk.mount, 0o755);
        set(&dir, 0o755);
        set(&file, 0o644);
        let (a, other) = (user(1000), user(1001));
        let dir_handle = b.lookup(&cx(&a), root, Name::new(b"dir").unwrap(), AttrMask::ALL).unwrap().handle;
        let name = Name::new(b"file").unwrap();
        let handle = b.lookup(&cx(&a), &dir_handle, name, AttrMask::ALL).unwrap().handle;
        let read = |who| b.read(&cx(who), File::Stateless(&handle), 0, &mut [0; 8]).map(|r| r.bytes);
        for _ in 0..50 {
            assert_eq!((read(&a), read(&a), read(&other)), (Ok(7), Ok(7), Ok(7)));
            set(&file, 0o600);
            assert_eq!((read(&a), read(&other)), (Err(FsError::Access), Err(FsError::Access)));
            set(&file, 0o644);
            assert!(
                lookup(b, &a, &dir_handle, b"file").is_ok() && lookup(b, &a, &dir_handle, b"file").is_ok()
            );
            set(&dir, 0o700);
            assert_eq!(lookup(b, &a, &dir_handle, b"file"), Err(FsError::Access));
            assert!(lookup(b, &Caller::root(), &dir_handle, b"file").is_ok());
            assert_eq!(lookup(b, &a, &dir_handle, b"file"), Err(FsError::Access));
            set(&dir, 0o755);
        }
    });
}

#[test]
fn the_owners_rights_outlast_his_own_writes_and_end_with_what_they_rest_on() {
    on_each_disk(|disk, b, root| {
        let (dir, file) = (disk.mount.join("dir"), disk.mount.join("dir/file"));
        fs::create_dir(&dir).unwrap();
        fs::write(&file, "content").unwrap();
        for path in [&dir, &file] {
            std::os::unix::fs::chown(path, Some(1000), Some(1000)).unwrap();
        }
        for (path, mode) in [(&disk.mount, 0o755), (&dir, 0o755), (&file, 0o644)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let owner = Caller { uid: 1000, gid: 1000, groups: Arc::from([]) };
        let cx = Cx::new(&owner, Wait::Yes);
        let dir_handle = b.lookup(&cx, root, Name::new(b"dir").unwrap(), AttrMask::ALL).unwrap().handle;
        let name = Name::new(b"file").unwrap();
        let handle = b.lookup(&cx, &dir_handle, name, AttrMask::ALL).unwrap().handle;
        let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: true };
        let write = || b.write(&cx, File::Stateless(&handle), at, b"x").map(|written| written.bytes);
        let chattr = |flag| run("chattr", &[flag, file.to_str().unwrap()]);
        for _ in 0..3 {
            assert_eq!((write(), write(), write()), (Ok(1), Ok(1), Ok(1)));
            chattr("+i");
            assert_eq!(write(), Err(FsError::Perm), "immutable");
            chattr("-i");
            assert_eq!(write(), Ok(1));
            std::os::unix::fs::chown(&file, Some(1001), None).unwrap();
            assert_eq!(write(), Err(FsError::Access), "another's");
            std::os::unix::fs::chown(&file, Some(1000), None).unwrap();
            // Makes the directory another time, and leaves its mode.
            assert!(lookup(b, &owner, &dir_handle, b"file").is_ok());
            fs::write(dir.join("more"), "").unwrap();
            fs::remove_file(dir.join("more")).unwrap();
            assert!(lookup(b, &owner, &dir_handle, b"file").is_ok());
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o600)).unwrap();
            assert_eq!(lookup(b, &owner, &dir_handle, b"file"), Err(FsError::Access));
            fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        }
    });
}
