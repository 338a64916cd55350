//! Files with several handles, and file systems within one.

use super::*;

#[test]
fn nothing_is_promised_of_what_can_be_changed_under_another_handle() {
    must_be_root();
    let disk = Disk::make("ext4", &[]);
    let outer = world(disk.fresh(), LocalUse::Lazy);
    fs::create_dir(outer.path("below")).unwrap();
    fs::write(outer.path("below/file"), "data").unwrap();
    let below = outer.find("below");
    let before = outer.pledge(&below, Pledge::Directory, None);
    {
        let inner = world(outer.path("below"), LocalUse::None);
        assert!(before.is_broken() && outer.is_told(&below, LocalDeed::Unknown), "it was promised before");
        drop(before);
        let file = inner.find("file");
        assert!(inner.try_pledge(&file, Pledge::ReadFile, None).is_none());
        assert!(outer.try_pledge(&below, Pledge::Directory, None).is_none());
        let again = world(outer.path("below"), LocalUse::Lazy);
        assert_eq!(again.find("file").key(), file.key(), "the same directory twice is no other handle");
    }
    drop(outer.pledge(&below, Pledge::Directory, None));
    // The same file system at a second place of the export.
    fs::create_dir(outer.path("point")).unwrap();
    let point = outer.path("point");
    disk::run("mount", &["--bind", outer.path("below").to_str().unwrap(), point.to_str().unwrap()]);
    let (top, there) = (outer.find("point"), outer.backend.pledge(&below, Pledge::Directory, None));
    let here = outer.backend.pledge(&top, Pledge::Directory, None);
    disk::run("umount", &["--lazy", point.to_str().unwrap()]);
    assert!(here.unwrap().is_none() && there.unwrap().is_none());
}

#[test]
fn objects_of_a_subvolume_are_told_of_by_their_own_keys() {
    must_be_root();
    let disk = Disk::make("btrfs", &[]);
    let top = disk.fresh();
    disk::run("btrfs", &["subvolume", "create", top.join("sub").to_str().unwrap()]);
    let w = world(top, LocalUse::Lazy);
    let sub = w.find("sub");
    let guard = w.pledge(&sub, Pledge::Directory, None);
    done(w.run("echo new > \"$1/new\"", "sub"));
    assert!(w.is_told(&sub, LocalDeed::ChangedEntries) && guard.is_broken());
}
