//! Files made for creates to come: where there are none, and what power leaves of those that were placed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::path::Path;

use disk::Disk;
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_vfs::{
    Backend, Caller, Cx, File, FsError, Handle, Name, NewNode, SetAttrs, Stability, Touched, Wait, WriteAt,
};

const COUNT: usize = 20;

struct World {
    backend: LocalBackend,
    root: Handle,
    _state: tempfile::TempDir,
    disk: Disk,
}

impl World {
    fn new(kind: &str, mkfs_args: &[&str]) -> Self {
        let disk = Disk::make(kind, mkfs_args);
        let state = tempfile::tempdir().unwrap();
        let backend = LocalBackend::open(&disk.mount, LocalOptions::new(state.path().to_owned())).unwrap();
        let root = backend.root().unwrap();
        Self { backend, root, _state: state, disk }
    }

    fn mkdir(&self, called: &str) -> Handle {
        let set = SetAttrs { mode: Some(0o755), ..SetAttrs::default() };
        let caller = Caller::root();
        let name = Name::new(called.as_bytes()).unwrap();
        self.backend.make(&cx(&caller), &self.root, name, NewNode::Directory, &set).unwrap().0.handle
    }
}

fn cx(caller: &Caller) -> Cx<'_> {
    Cx::new(caller, Wait::Yes)
}

fn gives_project_7(directory: &Path) {
    holdfast_backend_local::release_thread();
    disk::run("chattr", &["-p", "7", directory.to_str().unwrap()]);
    disk::run("chattr", &["+P", directory.to_str().unwrap()]);
}

#[test]
fn a_directory_that_hands_on_its_project_has_none_and_takes_none() {
    let w = World::new("xfs", &[]);
    let dir = w.mkdir("d");
    let caller = Caller::root();
    let before = w.backend.make_spare(&cx(&caller), &dir).unwrap();
    gives_project_7(&w.disk.mount.join("d"));
    assert_eq!(w.backend.make_spare(&cx(&caller), &dir).map(drop), Err(FsError::NotSupported));
    let set = SetAttrs { mode: Some(0o600), ..SetAttrs::default() };
    let placed = w.backend.place(&cx(&caller), &before, &dir, Name::new(b"f").unwrap(), &set);
    assert_eq!(placed.map(drop), Err(FsError::CrossDevice));
}

#[test]
fn there_are_none_where_the_log_of_fast_commits_would_hold_them() {
    let w = World::new("ext4", &["-O", "fast_commit"]);
    let caller = Caller::root();
    assert_eq!(w.backend.make_spare(&cx(&caller), &w.root).map(drop), Err(FsError::NotSupported));
    // Files without a name are there all the same, for who asks for one.
    assert!(w.backend.make_nameless(&cx(&caller), &w.root, &SetAttrs::default()).is_ok());
}

#[test]
fn what_was_placed_and_committed_survives_a_cut_and_the_rest_is_in_nobodys_way() {
    for kind in ["ext4", "xfs", "btrfs"] {
        let w = World::new(kind, &[]);
        let dir = w.mkdir("d");
        let caller = Caller::root();
        let spares: Vec<_> = (0..COUNT).map(|_| w.backend.make_spare(&cx(&caller), &dir).unwrap()).collect();
        let mut touched = vec![Touched { handle: dir, data: false }];
        for (n, spare) in spares.iter().enumerate().take(COUNT / 2) {
            let (data, name) = (format!("content {n}"), format!("f{n}"));
            let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
            let file = File::Open(&spare.handle, &spare.file);
            w.backend.write(&cx(&caller), file, at, data.as_bytes()).unwrap();
            let set = SetAttrs { mode: Some(0o640), ..SetAttrs::default() };
            let name = Name::new(name.as_bytes()).unwrap();
            w.backend.place(&cx(&caller), spare, &dir, name, &set).unwrap();
            touched.push(Touched { handle: spare.handle, data: true });
        }
        let mut done = vec![Ok(()); touched.len()];
        w.backend.commit(&touched, &mut done);
        assert!(done.iter().all(Result::is_ok), "{kind}: {done:?}");
        holdfast_backend_local::release_thread();
        let copy = w.disk.copy_image();
        drop((spares, w));
        let left = copy.mounted("");
        let names = std::fs::read_dir(left.mount.join("d")).unwrap().count();
        assert_eq!(names, COUNT / 2, "{kind}");
        for n in 0..COUNT / 2 {
            let read = std::fs::read_to_string(left.mount.join(format!("d/f{n}"))).unwrap();
            assert_eq!(read, format!("content {n}"), "{kind}");
        }
    }
}
