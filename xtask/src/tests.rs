//! Test programs side by side: cargo runs them one after another, and most of them wait for clocks rather than for a processor.

use std::cmp::Reverse;
use std::io::{Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
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
    passed: bool,
    took: Duration,
    output: String,
}

/// Builds what `cargo test ARGUMENTS` would run and runs it, one program more at once than there are processors. A program that fails
/// is shown with all it has said; of the others a line, and what they have measured.
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
    let passed = command(&program.path, &program.package).stdout(stdout).stderr(stderr).status()?.success();
    let mut said = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut said)?;
    Ok(Outcome { passed, took: began.elapsed(), output: String::from_utf8_lossy(&said).into_owned() })
}

fn command(path: &Path, package: &Path) -> Command {
    let mut command = Command::new(path);
    command.current_dir(package).env("CARGO_MANIFEST_DIR", package).stdin(Stdio::null());
    command
}

/// Tells of an outcome, in one piece; whether the program has passed.
fn report(program: &Program, outcome: Result<Outcome>) -> bool {
    match outcome {
        Ok(outcome) => {
            let summary =
                outcome.output.lines().rfind(|line| line.starts_with("test result:")).unwrap_or("no result");
            let line = format!("{:6.1} s  {}: {summary}", outcome.took.as_secs_f64(), program.name);
            if outcome.passed {
                let measured: String =
                    measured(&outcome.output).map(|line| format!("\n          {line}")).collect();
                println!("{line}{measured}");
            } else {
                println!("{}\n{line}", outcome.output);
            }
            outcome.passed
        }
        Err(e) => {
            println!("{}: {e:#}", program.name);
            false
        }
    }
}

/// Figures that a program tells although it passes, each on a line that begins so. The harness may have begun the line.
fn measured(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter_map(|line| Some(line.split_once("measured: ")?.1))
}

#[cfg(test)]
mod of_figures {
    use super::measured;

    #[test]
    fn what_was_measured_is_found_wherever_the_harness_puts_it() {
        let output =
            "running 2 tests\nmeasured: 3 a second\ntest a ... measured: 4 ns\nok\ntest result: ok.\n";
        assert_eq!(measured(output).collect::<Vec<_>>(), ["3 a second", "4 ns"]);
    }
}
