//! Directories that do not outlive the run that made them, even when that run was killed.
//!
//! Each holds a locked file; the lock dies with its holder, so the next run can tell the living from the dead
//! and clean up after the dead (see [`crate::loopfs`], whose leavings are mounts).

use anyhow::{Context, Result};
use rustix::mount::{UnmountFlags, unmount};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PREFIX: &str = "holdfast-lab-";
const LOCK: &str = ".alive";
const LOCK_BEGUN: &str = ".alive-soon";

/// A scratch directory, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: TempDir,
    _lock: File,
}

impl Scratch {
    /// Makes one under the system's temporary directory, and first removes what dead runs left of this `kind`.
    pub fn new(kind: &str) -> Result<Self> {
        let prefix = format!("{PREFIX}{kind}-");
        sweep(&std::env::temp_dir(), &prefix);
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir().context("making a scratch directory")?;
        // Ordinary users walk through it, for suites act as them.
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755))?;
        // It has its name when it is locked: before, another's sweep would take us for dead.
        let (unnamed, named) = (dir.path().join(LOCK_BEGUN), dir.path().join(LOCK));
        let lock = File::create(&unnamed)?;
        lock.lock()?;
        std::fs::rename(&unnamed, &named)?;
        Ok(Self { dir, _lock: lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// The scratch directory whose lock this is.
pub(crate) fn of_lock(path: &Path) -> Option<&Path> {
    let directory = path.parent()?;
    let is_scratch = directory.file_name()?.to_string_lossy().starts_with(PREFIX);
    (is_scratch && path.file_name()? == LOCK).then_some(directory)
}

/// Removes directories of dead runs. Failures are passed over: what cannot be removed harms nobody but the disk.
fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) && is_dead(&entry.path()) {
            detach_mounts(&entry.path());
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A directory without a lock file is one that is just being made: leave it.
fn is_dead(dir: &Path) -> bool {
    File::open(dir.join(LOCK)).is_ok_and(|file| file.try_lock().is_ok())
}

/// Unmounts whatever is mounted directly below `dir`, lest its removal empty a file system; by force, as a mount whose daemon was
/// killed would be waited for.
fn detach_mounts(dir: &Path) {
    for mount_point in mounts_below(dir) {
        let _ = unmount(&mount_point, UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut found: Vec<PathBuf> =
        table.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from).collect();
    found.retain(|path| path.starts_with(dir));
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_run_left_is_removed_and_what_a_living_one_holds_is_not() {
        let living = Scratch::new("unit").unwrap();
        let dead = std::env::temp_dir().join(format!("{PREFIX}unit-dead-{}", std::process::id()));
        std::fs::create_dir_all(&dead).unwrap();
        std::fs::write(dead.join(LOCK), "").unwrap();
        let _next = Scratch::new("unit").unwrap();
        assert!(!dead.exists());
        assert!(living.path().exists());
    }
}
