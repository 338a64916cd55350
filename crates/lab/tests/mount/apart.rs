//! File work in a process apart from the one that starts servers and commands: this program again, which is told by
//! lines of JSON and tells by lines of JSON.
//!
//! A child that is being started has all descriptors of its parent until its exec has closed them, each with a FLUSH that
//! a mount answers when its server can. A server that is started while files are open here would so wait for itself; and
//! what was closed here is open for a moment longer.

use anyhow::{Context as _, Result, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The variable that says which work this process is to do.
const TASK: &str = "HOLDFAST_LAB_TASK";

/// What this process is to do, if it is such a one.
pub(crate) fn task() -> Option<String> {
    std::env::var(TASK).ok()
}

/// A process that works. Dropped, it is killed.
#[derive(Debug)]
pub(crate) struct Apart {
    child: Child,
    orders: Option<ChildStdin>,
    told: Receiver<String>,
}

impl Apart {
    /// Starts one for a task.
    pub(crate) fn start(task: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(TASK, task).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting a worker")?;
        let orders = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().context("a worker without output")?).lines();
        let (tell, told) = channel();
        std::thread::Builder::new().name("apart".into()).spawn(move || {
            for line in lines.map_while(Result::ok) {
                if tell.send(line).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { child, orders, told })
    }

    /// Tells it something.
    ///
    /// Errors when it has ended.
    pub(crate) fn tell<T: Serialize>(&self, what: &T) -> Result<()> {
        let mut line = serde_json::to_string(what)?;
        line.push('\n');
        self.orders.as_ref().context("its orders are over")?.write_all(line.as_bytes())?;
        Ok(())
    }

    /// It is told nothing more.
    pub(crate) fn tell_no_more(&mut self) {
        self.orders = None;
    }

    /// What it tells next; `None` when it tells nothing for so long.
    ///
    /// Errors when it has ended, and when it tells something else.
    pub(crate) fn hear<T: DeserializeOwned>(&self, patience: Duration) -> Result<Option<T>> {
        match self.told.recv_timeout(patience) {
            Ok(line) => Ok(Some(serde_json::from_str(&line).with_context(|| line.clone())?)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("a worker has ended early"),
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // One that has been killed goes at once, or a mount does not let it go, which others find out.
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The worker's side: each order to `work`, until there are no more.
pub(crate) fn serve<T: DeserializeOwned>(mut work: impl FnMut(T) -> Result<()>) -> ExitCode {
    let done = std::io::stdin().lines().try_for_each(|line| work(serde_json::from_str(&line?)?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The worker's side: tells something.
///
/// Errors when nobody listens any more.
pub(crate) fn say<T: Serialize>(what: &T) -> Result<()> {
    let mut line = serde_json::to_string(what)?;
    line.push('\n');
    std::io::stdout().lock().write_all(line.as_bytes())?;
    Ok(std::io::stdout().flush()?)
}
