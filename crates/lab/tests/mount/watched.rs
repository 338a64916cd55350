//! The runner itself: a case that hangs in a mount is ended and told of, and the others go on.

use crate::fixture::Served;
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::scratch::Scratch;
use holdfast_lab::{Trial, case, process};
use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The variable with which the cases that are there for the one of the runner are offered.
const HANGS: &str = "HOLDFAST_LAB_HANGS";
const LIMIT: Duration = Duration::from_secs(30);
/// To end what hangs, and for the other case, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::new("watched::a_case_that_hangs_is_ended_and_the_others_go_on", ended)];
    if std::env::var_os(HANGS).is_some() {
        trials.push(Trial::new("watched::hangs", hangs).limit(LIMIT));
        trials.push(Trial::new("watched::passes", || Ok(())));
    }
    trials
}

/// The daemon is held still, so that no signal frees who waits for it: neither a process of the case nor the case.
fn hangs() -> Result<()> {
    let served = Served::new()?;
    let mount = served.mount("cache=none")?;
    let path = mount.path();
    let stop = format!("kill -STOP {}", mount.daemon());
    process::capture("bash", &["-c", &stop])?;
    let mut waiting = Command::new("cat").arg(path.join("absent")).spawn()?;
    std::fs::read(path.join("absent too"))?;
    waiting.wait()?;
    Ok(())
}

fn ended() -> Result<()> {
    let scratch = Scratch::new("watched")?;
    let said = scratch.path().join("stdout");
    let file = File::create(&said)?;
    let mark = scratch.path().to_string_lossy().into_owned();
    let started = Instant::now();
    let mut runner = Command::new(std::env::current_exe()?)
        .args(["--exact", "watched::hangs", "watched::passes", "--test-threads=1"])
        .env_remove(case::PLACE)
        .env_remove("HOLDFAST_SCALE")
        .env(HANGS, &mark)
        .stdin(Stdio::null())
        .stdout(file)
        .spawn()?;
    let status = loop {
        if let Some(status) = runner.try_wait()? {
            break status;
        }
        ensure!(
            started.elapsed() < LIMIT + PATIENCE,
            "the runner hangs\n{}",
            std::fs::read_to_string(&said)?
        );
        std::thread::sleep(Duration::from_millis(50));
    };
    let said = std::fs::read_to_string(&said)?;
    ensure!(
        !status.success() && started.elapsed() >= LIMIT,
        "{status} after {:?}\n{said}",
        started.elapsed()
    );
    let wanted = [
        "watched::hangs did not end within its limit",
        // The daemon, and what waits for it.
        "mount 127.0.0.1:",
        "request_wait_answer",
        // The server's log.
        "ready",
        "test watched::hangs ... FAILED",
        "test watched::passes ... ok",
        "1 passed; 1 failed",
    ];
    for words in wanted {
        ensure!(said.contains(words), "{words:?} was not said\n{said}");
    }
    let left = marked(&mark)?;
    ensure!(left.is_empty(), "these are left: {left:?}\n{said}");
    Ok(())
}

/// Processes that have inherited the mark.
fn marked(mark: &str) -> Result<Vec<String>> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("/proc")?.flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let is_marked = environment.windows(mark.len()).any(|window| window == mark.as_bytes());
        if is_marked && entry.file_name().to_string_lossy() != own {
            let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push(String::from_utf8_lossy(&arguments).replace('\0', " "));
        }
    }
    Ok(found)
}
