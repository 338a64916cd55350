//! Who frees the users of a mount when its daemon is killed.
//!
//! The kernel ends a connection when its device is closed, and that is when the daemon's last thread is gone. A thread
//! that is telling the kernel what not to believe waits for a directory that a process has locked, uninterruptibly; the
//! process waits for an answer that a killed daemon does not give: neither ever ends, and others who come join them. So
//! another process, which does nothing else, is told by the kernel when the daemon's first thread ends, and aborts the
//! connection.

use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use crate::mountinfo;
use crate::signals::Signals;

/// The variable that tells the program that it is the guard, of which process and of which mount.
const MARK: &str = "HOLDFAST_MOUNT_GUARD";

/// What the daemon says when it ends as it should.
const OVER: &[u8] = b".";

/// The signal comes a moment before the process counts as dead.
const DYING: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// The guard, as its daemon has it. Dropped, it knows that all is well.
pub(crate) struct Guard(Child);

impl Guard {
    /// Starts the guard of a mount by its device number. To be called on the daemon's first thread, which is the one
    /// that is watched.
    ///
    /// # Errors
    /// When it cannot be started; the mount works without it.
    pub(crate) fn start(device: &str) -> io::Result<Self> {
        let mut arguments = std::env::args_os();
        let mut command = Command::new(std::env::current_exe()?);
        std::os::unix::process::CommandExt::arg0(&mut command, arguments.next().unwrap_or_default());
        command.args(arguments).env(MARK, format!("{} {device}", std::process::id()));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have been killed itself.
        if let Some(mut pipe) = self.0.stdin.take() {
            let _ = pipe.write_all(OVER);
        }
        let _ = self.0.wait();
    }
}

/// Whether this process is to be a guard.
#[must_use]
pub fn is_guard() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Waits for the end of the daemon; if it was not meant to end, frees those who use its mount.
///
/// # Errors
/// When they cannot be freed.
pub fn watch(mountpoint: &Path) -> Result<()> {
    let signals = Signals::hold().context("holding signals back")?;
    let of = std::env::var(MARK).context(MARK)?;
    let (daemon, device) = of.split_once(' ').context(MARK)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // Not to be ended by what ends others of the daemon's terminal.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    std::thread::Builder::new().name("farewell".into()).spawn(|| {
        // Without a word the daemon is dead, of which the signal tells.
        if io::stdin().read_exact(&mut [0; OVER.len()]).is_ok() {
            std::process::exit(0);
        }
    })?;
    while !is_dead_soon(daemon) {
        signals.wait()?;
    }
    free(mountpoint, device)
}

/// Whether a process is dead, or will be in a moment, though threads of it may be left.
fn is_dead_soon(pid: &str) -> bool {
    let until = Instant::now() + DYING;
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        let state = stat.ok().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next());
        if matches!(state, None | Some('Z' | 'X')) {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

fn free(mountpoint: &Path, device: &str) -> Result<()> {
    let is_there =
        |mount: mountinfo::MountInfo| mount.device == device && mount.fs_type == mountinfo::FS_TYPE;
    if !mountinfo::topmost(mountpoint)?.is_some_and(is_there) {
        return Ok(());
    }
    // While it is in use a forced unmount aborts it and takes nothing away: who uses it next is to hear an error, and
    // not to find himself in the directory below. This asks the daemon nothing.
    let _in_use = rustix::fs::open(mountpoint, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    holdfast_fuse::abort(mountpoint)?;
    eprintln!("the daemon of {} was killed; those who waited have been freed", mountpoint.display());
    Ok(())
}
