//! Mounts whose daemon has died: whoever uses one hears ENOTCONN ("Transport endpoint is not connected"), until somebody takes
//! it away.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use holdfast_fuse::Unmount;
use rustix::io::Errno;

use crate::mountinfo::{self, FS_TYPE};

/// Who asks a mount that lives waits for its server at the longest so long; and so long, at the longest, a daemon that was
/// killed takes to die.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes a mount of ours out of the tree if it is dead, whoever uses it; whether it was.
///
/// # Errors
/// What the system, or `fusermount3`, says to the unmounting.
pub fn take_away(mountpoint: &Path) -> Result<bool> {
    let is_ours = mountinfo::topmost(mountpoint)?.is_some_and(|mount| mount.fs_type == FS_TYPE);
    if !is_ours || !is_dead(mountpoint) {
        return Ok(false);
    }
    holdfast_fuse::unmount(mountpoint, Unmount::Lazy).context("its daemon has died")?;
    Ok(true)
}

/// Asked is what no cache of the kernel's answers; by a thread, as nobody else may come to wait.
fn is_dead(mountpoint: &Path) -> bool {
    let (tell, told) = mpsc::channel();
    let path = mountpoint.to_owned();
    let asking = std::thread::Builder::new().name("look".into());
    // Nobody listens any more when it took too long.
    let asking = asking.spawn(move || tell.send(rustix::fs::statfs(&path).err()));
    let answer = asking.ok().and_then(|_| told.recv_timeout(PATIENCE).ok()).flatten();
    matches!(answer, Some(Errno::NOTCONN | Errno::CONNABORTED))
}
