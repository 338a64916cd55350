//! The conformance suite of `holdfast-vfs`, on every kind of file system that is served.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use disk::neighbour::Beside;
use disk::{Disk, must_be_root};
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_vfs::Backend;
use holdfast_vfs::suite::{Abilities, TestBackend, run};

const ALL: Abilities = Abilities {
    acts_as_callers: true,
    makes_devices: true,
    has_outside_locks: true,
    keeps_handles_of_open_removed: true,
};

/// What a case leaves, removed with the server's own rights, whoever the thread acts as by then. The exported directory
/// as well: a handle made up must not be that of a file which an earlier case left on the disk that they share.
struct Leavings {
    _state: tempfile::TempDir,
    root: PathBuf,
}

impl Drop for Leavings {
    fn drop(&mut self) {
        holdfast_backend_local::release_thread();
        let removed = std::fs::remove_dir_all(&self.root);
        assert!(removed.is_ok() || std::thread::panicking(), "{}: {removed:?}", self.root.display());
    }
}

fn open(root: &Path, state: &Path, change: fn(&mut LocalOptions)) -> Arc<dyn Backend> {
    let mut options = LocalOptions::new(state.to_owned());
    change(&mut options);
    Arc::new(LocalBackend::open(root, options).unwrap())
}

fn test_backend(root: PathBuf, abilities: Abilities, change: fn(&mut LocalOptions)) -> TestBackend {
    let state = tempfile::tempdir().unwrap();
    let backend = open(&root, state.path(), change);
    let state_dir = state.path().to_owned();
    let keep = Box::new(Leavings { _state: state, root: root.clone() });
    TestBackend {
        backend,
        abilities,
        neighbour: Some(Box::new(Beside(root.clone()))),
        reopen: Some(Box::new(move || open(&root, &state_dir, change))),
        keep,
    }
}

/// The same where nobody is beside the server.
fn alone(t: TestBackend) -> TestBackend {
    TestBackend { neighbour: None, ..t }
}

fn conforms_on(disk: &Disk) {
    run(&|| test_backend(disk.fresh(), ALL, |_| {}));
}

#[test]
fn ext4_conforms() {
    conforms_on(&Disk::make("ext4", &[]));
}

/// Its log bears no files without a name, so that exclusive creates are named first.
#[test]
fn ext4_with_fast_commits_conforms() {
    conforms_on(&Disk::make("ext4", &["-O", "fast_commit"]));
}

#[test]
fn xfs_conforms() {
    conforms_on(&Disk::make("xfs", &[]));
}

#[test]
fn btrfs_conforms() {
    conforms_on(&Disk::make("btrfs", &[]));
}

#[test]
fn tmpfs_conforms() {
    conforms_on(&Disk::tmpfs());
}

#[test]
fn overlay_conforms() {
    let below = Disk::make("ext4", &[]);
    conforms_on(&Disk::overlay(&below, |_| {}));
}

#[test]
fn conforms_as_the_sole_writer_with_kept_credentials_and_few_descriptors() {
    let disk = Disk::tmpfs();
    run(&|| {
        alone(test_backend(disk.fresh(), ALL, |options| {
            options.is_sole_writer = true;
            options.keep_credentials = true;
            options.descriptors_max = 64;
        }))
    });
    holdfast_backend_local::release_thread();
}

#[test]
fn conforms_as_the_sole_writer_where_pages_of_listings_are_kept() {
    let disk = Disk::make("xfs", &[]);
    run(&|| alone(test_backend(disk.fresh(), ALL, |options| options.is_sole_writer = true)));
}

#[test]
fn an_ordinary_user_is_served() {
    must_be_root();
    let dir = tempfile::tempdir().unwrap();
    disk::run("chown", &["65534:65534", dir.path().to_str().unwrap()]);
    let child = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--no-new-privs"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "conforms_as_an_ordinary_user", "--ignored", "--nocapture"])
        .env("TMPDIR", dir.path())
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
#[ignore = "run by an_ordinary_user_is_served, as another user"]
fn conforms_as_an_ordinary_user() {
    assert!(!rustix::process::geteuid().is_root());
    let abilities = Abilities { acts_as_callers: false, makes_devices: false, ..ALL };
    run(&|| test_backend(tempfile::tempdir().unwrap().keep(), abilities, |_| {}));
}
