//! A case in a process of its own, which has a limit: one that hangs is told of, ended with all that it has started, and
//! fails, and the others go on.
//!
//! What a case starts inherits a variable by which it is known for the case's, whoever its parent is by then.

use crate::remains::Remains;
use crate::scratch::Scratch;
use anyhow::{Context, Result, anyhow, bail};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The variable that names the case's own directory; in the process of a case and in all that it starts.
pub const PLACE: &str = "HOLDFAST_LAB_CASE";

/// In the case's directory: why it failed.
const FAILURE: &str = "failure";

const POLL: Duration = Duration::from_millis(20);
/// To find out what a case that hangs has running. What is looked at may hang as well.
const TELLING: Duration = Duration::from_secs(30);
/// To end all of it; more than [`Remains::end`] takes.
const ENDING: Duration = Duration::from_secs(90);

/// The directory of the case that this process runs, if it is such a one.
pub(crate) fn place() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(PathBuf::from)
}

/// Runs the case of this name in a process of its own, for `limit` at the longest.
///
/// Errors as the case does; when its process dies; and when it does not end.
pub(crate) fn run_apart(name: &str, limit: Duration) -> Result<()> {
    let place = Scratch::new("case")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--exact", name]).env(PLACE, place.path()).stdin(Stdio::null());
    let mut case = command.spawn().context("starting a case")?;
    let remains = Remains::of(case.id(), place.path());
    match wait(&mut case, limit)? {
        Some(status) => {
            // What it has not put away itself would take time from those after it.
            end(name, &remains);
            if status.success() { Ok(()) } else { Err(failure(place.path(), status)) }
        }
        None => {
            println!("     {name} did not end within its limit of {limit:?}. What it has running:");
            println!("{}", tell(&remains));
            end(name, &remains);
            if wait(&mut case, ENDING)?.is_none() {
                bail!("it hangs, and its process {} cannot be ended; see above", case.id());
            }
            bail!(
                "it did not end within its limit of {limit:?}, and was ended; what it had running is told above"
            )
        }
    }
}

/// Runs a case in this process, which is there for it alone; gives the status for `main`.
pub(crate) fn run_here(place: &Path, body: &dyn Fn() -> Result<()>) -> ExitCode {
    // Nobody would end it, were the runner killed.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| Err(anyhow!("it panicked"))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let told = format!("{error:#}");
            if std::fs::write(place.join(FAILURE), &told).is_err() {
                eprintln!("{told}");
            }
            ExitCode::FAILURE
        }
    }
}

fn wait(child: &mut Child, patience: Duration) -> Result<Option<ExitStatus>> {
    let started = Instant::now();
    loop {
        match child.try_wait()? {
            None if started.elapsed() < patience => std::thread::sleep(POLL),
            ended => return Ok(ended),
        }
    }
}

/// Why it failed: by its own word, if it had the time for one.
fn failure(place: &Path, status: ExitStatus) -> anyhow::Error {
    match std::fs::read_to_string(place.join(FAILURE)) {
        Ok(told) => anyhow!(told),
        Err(_) => anyhow!("its process ended with {status}"),
    }
}

fn tell(remains: &Remains) -> String {
    let asked = remains.clone();
    within(TELLING, move || asked.tell())
        .unwrap_or_else(|| "(it could not be found out: that hangs, too)".to_owned())
}

/// Ends what the case has left. Where even looking for that hangs, the others would meet it, too: the run is over.
fn end(name: &str, remains: &Remains) {
    let ended = remains.clone();
    match within(ENDING, move || ended.end()) {
        Some(Ok(())) => {}
        Some(Err(error)) => println!("     {name}: {error:#}"),
        None => {
            println!(
                "\ntest result: FAILED. {name} hangs, and what it has started cannot be ended: the run is given up\n"
            );
            std::process::exit(1);
        }
    }
}

/// Does it on a thread of its own, which is left to itself when it takes longer than this.
fn within<T: Send + 'static>(patience: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || drop(done.send(work())));
    is_done.recv_timeout(patience).ok()
}
