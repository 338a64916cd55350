//! Test programs side by side: cargo runs them one after another, and most of them wait for clocks rather than for a processor.

use std::cmp::Reverse;
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;

/// A line of `cargo test --message-format=json`, as far as it tells of a test program.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    executable: Option<PathBuf>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// A test program, with the folder of its package, where cargo would run it.
struct Program {
    name: String,
    path: PathBuf,
    package: PathBuf,
}

struct Outcome {
    /// None when it was ended, being late.
    status: Option<ExitStatus>,
    took: Duration,
    output: String,
}

/// What a program may take, on a machine that has nothing else to do three times what the longest takes.
const LONGEST: Duration = Duration::from_secs(8 * 60);
/// Programs that take longer are told of where the stages of a run are.
const LONG: Duration = Duration::from_secs(60);

/// Builds what `cargo test ARGUMENTS` would run and runs it, one program more at once than there are processors. A program that fails,
/// or takes too long, is shown with all it has said; of the others a line, and what they have measured.
///
/// # Errors
/// When the build fails, a program cannot be started, or one has failed.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let programs = built(arguments)?;
    let total = programs.len();
    let at_once = std::thread::available_parallelism()?.get() + 1;
    let queue = Mutex::new(programs.into_iter());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(program) = take(&queue) {
                    let outcome = outcome(&program);
                    if !report(&program, outcome) {
                        lock(&failed).push(program.name);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !failed.is_empty() {
        bail!("{} of {total} test programs failed: {}", failed.len(), failed.join(", "));
    }
    println!("{total} test programs passed");
    Ok(())
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn take(queue: &Mutex<std::vec::IntoIter<Program>>) -> Option<Program> {
    lock(queue).next()
}

fn built(arguments: &[String]) -> Result<Vec<Program>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .arg("test")
        .args(arguments)
        .args(["--no-run", "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()?;
    if !built.status.success() {
        bail!("the tests do not build");
    }
    let messages = String::from_utf8(built.stdout)?;
    let mut programs: Vec<Program> = messages
        .lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| program(line).transpose())
        .collect::<Result<_>>()?;
    // Whose programs are large stand on all the rest, and they take longest: they begin first.
    programs.sort_by_key(|program| Reverse(program.path.metadata().map_or(0, |of| of.len())));
    Ok(programs)
}

fn program(line: &str) -> Result<Option<Program>> {
    let message: Message = serde_json::from_str(line).context("cargo's messages are not as expected")?;
    let (Some(manifest), Some(target), Some(path)) =
        (message.manifest_path, message.target, message.executable)
    else {
        return Ok(None);
    };
    // Programs that tests start are built too.
    if message.reason != "compiler-artifact" || !message.profile.is_some_and(|profile| profile.test) {
        return Ok(None);
    }
    let package = manifest.parent().context("a manifest without a folder")?.to_owned();
    let of = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Some(Program { name: format!("{of}/{}", target.name), path, package }))
}

fn outcome(program: &Program) -> Result<Outcome> {
    let began = Instant::now();
    // A file, not a pipe: what a test has left running may hold it, and is not waited for.
    let mut output = tempfile::tempfile()?;
    let (stdout, stderr) = (output.try_clone()?, output.try_clone()?);
    let mut child = command(&program.path, &program.package).stdout(stdout).stderr(stderr).spawn()?;
    let status = wait(&mut child, began + LONGEST)?;
    let mut said = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut said)?;
    Ok(Outcome { status, took: began.elapsed(), output: String::from_utf8_lossy(&said).into_owned() })
}

/// Waits for a program, and ends it when it is late.
fn wait(child: &mut Child, until: Instant) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > until {
            end(child.id());
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ends a process with all that it has started and that still knows of it.
fn end(process: u32) {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children: Vec<u32> = tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|all| all.split_whitespace().map(str::parse).collect::<Vec<_>>())
        .flatten()
        .collect();
    // It first: it would take the end of what it has started for the end of a test, and go on to the next.
    if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        let _gone_already = kill_process(pid, Signal::KILL);
    }
    children.into_iter().for_each(end);
}

fn command(path: &Path, package: &Path) -> Command {
    let mut command = Command::new(path);
    command.current_dir(package).env("CARGO_MANIFEST_DIR", package).stdin(Stdio::null());
    command
}

/// Tells of an outcome, in one piece; whether the program has passed.
fn report(program: &Program, outcome: Result<Outcome>) -> bool {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(e) => {
            println!("{}: {e:#}", program.name);
            return false;
        }
    };
    let (name, seconds) = (&program.name, outcome.took.as_secs_f64());
    let summary = match outcome.status {
        Some(_) => {
            outcome.output.lines().rfind(|line| line.starts_with("test result:")).unwrap_or("no result")
        }
        None => &late(&outcome.output),
    };
    let line = format!("{seconds:6.1} s  {name}: {summary}");
    let passed = outcome.status.is_some_and(|status| status.success());
    if passed {
        let measured: String = measured(&outcome.output).map(|line| format!("\n          {line}")).collect();
        println!("{line}{measured}");
    } else {
        println!("{}\n{line}", outcome.output);
    }
    let how = if passed { name.clone() } else { format!("{name}, FAILED: {summary}") };
    if !passed || outcome.took > LONG {
        record(outcome.took, &how);
    }
    passed
}

/// Says where the stages of a run are how long a program took (`scripts/stage`), so that its end tells what to look at.
fn record(took: Duration, what: &str) {
    let Some(stages) = std::env::var_os("HOLDFAST_STAGES") else { return };
    let file = OpenOptions::new().append(true).open(stages);
    if let Err(e) = file.and_then(|mut file| writeln!(file, "{}\t  {what}", took.as_secs())) {
        eprintln!("HOLDFAST_STAGES: {e}");
    }
}

/// What a program that was ended was at, by what it has said.
fn late(output: &str) -> String {
    let ended: Vec<&str> =
        output.lines().filter_map(|line| Some(line.strip_prefix("test ")?.split_once(" ... ")?.0)).collect();
    let long = output.lines().filter_map(|line| {
        Some(line.strip_prefix("test ")?.split_once(" has been running for over 60 seconds")?.0)
    });
    let long: Vec<&str> = long.filter(|name| !ended.contains(name)).collect();
    let at_work = if long.is_empty() {
        String::new()
    } else {
        format!("; at work for more than a minute: {}", long.join(", "))
    };
    format!("not done in {} s, {} tests had ended{at_work}", LONGEST.as_secs(), ended.len())
}

/// Figures that a program tells although it passes, each on a line that begins so. The harness may have begun the line.
fn measured(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| Some(line.split_once("measured: ")?.1))
}

#[cfg(test)]
mod of_output {
    use super::{late, measured};

    #[test]
    fn who_is_late_is_told_by_name() {
        let output = "running 3 tests\ntest a ... ok\ntest b has been running for over 60 seconds\n\
                      test c has been running for over 60 seconds\ntest b ... ok\n";
        assert_eq!(late(output), "not done in 480 s, 2 tests had ended; at work for more than a minute: c");
    }

    #[test]
    fn what_was_measured_is_found_wherever_the_harness_puts_it() {
        let output =
            "running 2 tests\nmeasured: 3 a second\ntest a ... measured: 4 ns\nok\ntest result: ok.\n";
        assert_eq!(measured(output).collect::<Vec<_>>(), ["3 a second", "4 ns"]);
    }
}
