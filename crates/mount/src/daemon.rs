//! The daemon behind a mount: the same program, started anew with its log in a file, which says over a pipe that it has
//! mounted or why it could not. Whoever ran `holdfast mount` waits for that and no longer.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::control::runtime_dir;
use crate::logfile;

/// The variable that tells the program that it is the daemon.
const MARK: &str = "HOLDFAST_MOUNT_DAEMON";

/// Who waits is told of it after so long.
const QUIET: Duration = Duration::from_secs(3);

/// What the daemon says when it has mounted.
const MOUNTED: &str = "mounted";

/// Whether this process is a daemon that somebody waits for.
#[must_use]
pub fn is_daemon() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts the daemon with this program's own arguments and waits until it has mounted.
///
/// # Errors
/// What kept it from mounting, in its own words.
pub fn start(arguments: &[OsString], mountpoint: &Path) -> Result<()> {
    let dir = runtime_dir();
    std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let log_path = logfile::path_for(&dir, mountpoint);
    let log = logfile::open(&log_path).with_context(|| log_path.display().to_string())?;
    let program = std::env::current_exe().context("finding this program")?;
    let (name, arguments) = arguments.split_first().context("no arguments")?;
    let mut command = Command::new(program);
    std::os::unix::process::CommandExt::arg0(&mut command, name);
    command.args(arguments).env(MARK, "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut daemon = command.spawn().context("starting the daemon")?;
    let answer = tell_of_a_long_wait(log_path.clone());
    let mut said = String::new();
    if let Some(pipe) = daemon.stdout.take() {
        BufReader::new(pipe).read_line(&mut said)?;
    }
    drop(answer);
    match said.trim_end() {
        MOUNTED => Ok(()),
        "" => {
            let status = daemon.wait()?;
            bail!("the daemon ended ({status}) before it had mounted; see {}", log_path.display())
        }
        reason => {
            // It ends by itself; what it says is complete.
            let _ = daemon.wait();
            bail!("{reason}")
        }
    }
}

/// A server that does not answer is waited for, and half a minute of silence looks like a fault of ours. What is given back
/// is dropped when the waiting is over.
fn tell_of_a_long_wait(log_path: PathBuf) -> mpsc::Sender<()> {
    let (sender, is_over) = mpsc::channel();
    std::thread::spawn(move || {
        if is_over.recv_timeout(QUIET) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("holdfast: still waiting for the server to answer (why: {})", log_path.display());
        }
    });
    sender
}

/// Tells whoever waits that it is mounted, and leaves his terminal.
///
/// # Errors
/// When there is nobody any more: then the mount is not wanted.
pub fn report_mounted() -> io::Result<()> {
    say(MOUNTED)?;
    // It fails where this process leads a group of processes already, and so has no terminal to leave.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")
}

/// Tells whoever waits why it is not mounted.
pub fn report_failure(reason: &str) {
    let _ = say(&reason.replace('\n', "; "));
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
