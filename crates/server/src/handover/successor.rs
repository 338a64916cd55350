//! The program that takes this one's place: found, asked whether it can, and started.

use std::env;
use std::ffi::OsString;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};

use super::arrival::{VARIABLE, at};
use super::check::{ASKED, another_state_dir, versions};
use super::{Frozen, image, sys};
use crate::supervised;

/// How long the new program may take to say what it understands: it looks at the configuration as well.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// How this program was started, and so how its successor is.
pub(crate) struct Successor {
    path: PathBuf,
    name: OsString,
    args: Vec<OsString>,
}

impl Successor {
    /// The file that this program was started from, by its path: what lies there when it is needed may be newer. To be
    /// asked at the start, while the path is sure to be the file's.
    ///
    /// # Errors
    /// The system does not tell.
    pub(crate) fn of_this() -> Result<Self> {
        let path = env::current_exe().context("/proc/self/exe")?;
        let mut args = env::args_os();
        let name = args.next().unwrap_or_else(|| path.clone().into());
        Ok(Self { path, name, args: args.collect() })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.name).args(&self.args);
        for variable in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] {
            command.env_remove(variable);
        }
        command
    }

    /// Starts it as a child, with this in its environment besides.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start_with(&self, (variable, value): (&str, &str)) -> Result<Child> {
        let mut command = self.command();
        let path = self.path.display();
        command.env(variable, value).spawn().with_context(|| format!("{path} cannot be started"))
    }

    /// Asks the program, started with the same arguments, whether it can read what this one writes, and would go on in
    /// the same state directory.
    ///
    /// # Errors
    /// That it cannot, or what else is wrong with it.
    pub(super) fn check(&self, state_dir: &Path) -> Result<()> {
        let path = self.path.display();
        let mut command = self.command();
        command.env(VARIABLE, ASKED).env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{path} cannot be started"))?;
        let until = Instant::now() + ANSWER_PATIENCE;
        while child.try_wait()?.is_none() {
            if Instant::now() > until {
                let _ = child.kill();
                let _ = child.wait();
                bail!("{path} does not say which handovers it understands");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let output = child.wait_with_output()?;
        let told = String::from_utf8_lossy(&output.stdout);
        if let Some(other) = another_state_dir(&told, state_dir) {
            bail!(
                "the configuration now has the state in {other}: only an ordinary restart can move it there"
            );
        }
        match versions(&told) {
            Some(versions) if output.status.success() && versions.contains(&image::VERSION) => Ok(()),
            Some(versions) if output.status.success() => {
                let (low, high) = versions.into_inner();
                bail!("{path} understands handovers {low} to {high}, and this is {}", image::VERSION)
            }
            _ => {
                let complaint = String::from_utf8_lossy(&output.stderr);
                let complaint = complaint.lines().last().unwrap_or("it says nothing");
                bail!("{path} cannot take over ({}): {complaint}", output.status)
            }
        }
    }

    /// Becomes the new program. Returns only when that failed, and nothing happened then.
    pub(super) fn replace(&self, frozen: Frozen) -> Error {
        match self.try_replace(frozen) {
            Ok(error) => error,
            Err(error) => error,
        }
    }

    fn try_replace(&self, Frozen { image, outgoing, engine }: Frozen) -> Result<Error> {
        let numbers: Vec<_> = outgoing.descriptors().map(|fd| fd.as_raw_fd()).collect();
        let image = image::written(&image, engine.descriptor, &numbers)?;
        engine.end()?;
        let mut command = self.command();
        command.env(VARIABLE, at(std::process::id(), image.as_raw_fd()));
        let pass = |flags: FdFlags| {
            use std::os::fd::AsFd as _;
            let all = outgoing.descriptors().chain([image.as_fd()]).chain(supervised::parent());
            all.map(|fd: BorrowedFd<'_>| fcntl_setfd(fd, flags)).fold(Ok(()), Result::and)
        };
        sys::block_signals();
        let error = match pass(FdFlags::empty()) {
            Ok(()) => {
                Error::from(command.exec()).context(format!("{} cannot be started", self.path.display()))
            }
            Err(error) => Error::from(error).context("descriptors cannot be passed on"),
        };
        let _ = pass(FdFlags::CLOEXEC);
        sys::ignore_broken_pipes();
        sys::unblock_signals();
        Ok(error)
    }
}
