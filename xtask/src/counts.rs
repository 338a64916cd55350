//! Counting instructions: the bench crate's own program does it, for it needs what the engines need, and this crate nothing of
//! it. Here is decided by which compiler it is built: counts are compared by the one that they were recorded with.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

/// Compares, or records with `--record`.
///
/// # Errors
/// Counts that are not as recorded, or cannot be compared where they have to be.
pub(crate) fn run(root: &Path, argument: Option<&str>) -> Result<()> {
    // What is recorded is recorded with the compiler at hand, which from then on is the one of the record.
    let recorded_by = argument.is_none().then(|| other_compiler(root)).flatten();
    let mut command = match &recorded_by {
        Some(version) => {
            println!("built by Rust {version}, with which they were recorded");
            toolchain(version, "cargo")
        }
        None => Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
    };
    command.args(["run", "--release", "--quiet", "--package", "holdfast-bench", "--bin", "holdfast-counts"]);
    if !command.arg("--").args(argument).status()?.success() {
        bail!("instructions are not as recorded");
    }
    Ok(())
}

/// The version with which they were recorded, where that is another than at hand and rustup has it. It is not fetched
/// here: `scripts/install-tests` does that.
fn other_compiler(root: &Path) -> Option<String> {
    let record = std::fs::read_to_string(root.join("benches/counts.txt")).ok()?;
    let recorded = record.lines().next()?.strip_prefix("# ")?;
    let is_recorded = |rustc: &mut Command| {
        let said = rustc.arg("-V").output().ok().filter(|said| said.status.success());
        said.is_some_and(|said| String::from_utf8_lossy(&said.stdout).trim() == recorded)
    };
    let version = recorded.split(' ').nth(1)?;
    let is_another = !is_recorded(&mut Command::new("rustc"));
    (is_another && is_recorded(&mut toolchain(version, "rustc"))).then(|| version.to_owned())
}

/// A program of an installed toolchain.
fn toolchain(version: &str, program: &str) -> Command {
    let mut command = Command::new("rustup");
    command.args(["run", version, program]).env("RUSTUP_AUTO_INSTALL", "0");
    command
}
