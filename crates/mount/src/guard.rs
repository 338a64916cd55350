//! Who frees the users of a mount when its daemon is killed, and has the server drop what the daemon held.
//!
//! The kernel ends a connection when its device is closed, and that is when the daemon's last thread is gone. A thread
//! that is telling the kernel what not to believe waits for a directory that a process has locked, uninterruptibly; the
//! process waits for an answer that a killed daemon does not give: neither ever ends, and others who come join them. So
//! another process, which does nothing else, is told by the kernel when the daemon's first thread ends, and aborts the
//! connection. Then it ends the daemon's client at the server, which the daemon has told it of: nobody need wait for a lease.
//! A daemon that is stopped, traced or slow is not dead, and nothing happens to it.

mod word;

use std::fmt;
use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use holdfast_client::{KnownAs, Options, end_former};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use crate::connecting;
use crate::life::MountRequest;
use crate::mountinfo;
use crate::signals::Signals;
use word::Word;

/// The variable that tells the program that it is the guard, of which process and of which mount.
const MARK: &str = "HOLDFAST_MOUNT_GUARD";

/// The signal comes a moment before the process counts as dead.
const DYING: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);

/// How long a server may take for a connection and for each answer: the lease does the same, later.
const SERVER_PATIENCE: Duration = Duration::from_secs(3);

/// The guard, as its daemon has it. Dropped, it knows that all is well.
pub(crate) struct Guard {
    process: Child,
    told: Option<KnownAs>,
}

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
        let process = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        Ok(Self { process, told: None })
    }

    /// Tells it by what the server knows the mount, where that is news. While no server does the last one may keep something.
    pub(crate) fn tell(&mut self, known: Option<KnownAs>) {
        if let Some(known) = known.filter(|known| self.told.as_ref() != Some(known)) {
            self.say(&Word::Known(known.clone()));
            self.told = Some(known);
        }
    }

    /// The mount is gone, and what is there from now on is none of the guard's.
    pub(crate) fn unmounted(&mut self) {
        self.say(&Word::Unmounted);
    }

    fn say(&mut self, word: &Word) {
        if let Some(pipe) = &mut self.process.stdin {
            // It may have been killed itself.
            let _ = pipe.write_all(format!("{word}\n").as_bytes());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.say(&Word::Over);
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Whether this process is to be a guard.
#[must_use]
pub fn is_guard() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Waits for the end of the daemon; if it was not meant to end, frees those who use its mount, and those who wait for what it held.
///
/// # Errors
/// When they cannot be freed.
pub fn watch(request: &MountRequest) -> Result<()> {
    let signals = Signals::hold().context("holding signals back")?;
    let of = std::env::var(MARK).context(MARK)?;
    let (daemon, device) = of.split_once(' ').context(MARK)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // Not to be ended by what ends others of the daemon's terminal.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/")?;
    let (hear, words) = mpsc::channel();
    std::thread::Builder::new().name("listen".into()).spawn(move || listen(&hear))?;
    while !is_dead_soon(daemon) {
        signals.wait()?;
    }
    let mut said = Said::default();
    words.try_iter().for_each(|word| said.note(word));
    let freed = if said.is_unmounted { Ok(()) } else { free(&request.mountpoint, device) };
    said.note_rest(&words);
    let ended = said.known.map_or(Ok(()), |known| end(request, &known));
    freed.and(ended)
}

/// Hands on what the daemon says, until its last thread is gone. Without a last word it is dead, of which a signal tells.
fn listen(hear: &Sender<Word>) {
    let mut pipe = io::stdin().lock();
    let mut line = String::new();
    while pipe.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        match line.strip_suffix('\n').and_then(|word| word.parse().ok()) {
            Some(Word::Over) => std::process::exit(0),
            // Nobody hears it any more where this process ends.
            Some(word) => drop(hear.send(word)),
            None => tracing::debug!(line, "no word of the daemon's"),
        }
        line.clear();
    }
}

/// What the daemon has said.
#[derive(Default)]
struct Said {
    is_unmounted: bool,
    known: Option<KnownAs>,
}

impl Said {
    fn note(&mut self, word: Word) {
        match word {
            Word::Known(known) => self.known = Some(known),
            Word::Unmounted => self.is_unmounted = true,
            // Whoever listens has ended.
            Word::Over => {}
        }
    }

    /// What was on its way when the daemon died: its pipe ends with its last thread, which nothing keeps any more.
    fn note_rest(&mut self, words: &Receiver<Word>) {
        while let Ok(word) = words.recv_timeout(DYING) {
            self.note(word);
        }
    }
}

/// Whether a process is dead, or will be in a moment, though threads of it may be left.
fn is_dead_soon(pid: &str) -> bool {
    let until = Instant::now() + DYING;
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        let is_dead = match stat.ok().and_then(|stat| stat.rsplit_once(") ")?.1.chars().next()) {
            Some(state) => matches!(state, 'Z' | 'X'),
            // Gone, or not shown to us: then it is our parent still.
            None => rustix::process::getppid().is_none_or(|parent| parent.to_string() != pid),
        };
        if is_dead {
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
    let at = mountpoint.display();
    say(format_args!("the daemon of {at} was killed; those who waited have been freed"));
    Ok(())
}

fn end(request: &MountRequest, known: &KnownAs) -> Result<()> {
    let wanted = connecting::wanted(&request.source, &request.options);
    let server = known.address;
    end_former(Options { patience: SERVER_PATIENCE, ..wanted }, known)
        .with_context(|| format!("what the killed daemon held at {server} ends with its lease"))?;
    say(format_args!("{server} has dropped what the killed daemon held"));
    Ok(())
}

/// In the log, where there is room for it.
fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}
