//! Suites that are no part of Holdfast: a checkout named by an environment variable is copied into the target folder
//! and built there, never touched itself.

use crate::kernel::target_dir;
use crate::process;
use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The checkout that the environment variable names, if it does.
pub fn named_by(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

/// A copy of `checkout` under `name` in the target folder, built once by `build`, which is run in it.
///
/// Errors when it cannot be copied, and when it does not build, with the last that `build` said.
pub fn built(checkout: &Path, name: &str, mut build: Command) -> Result<PathBuf> {
    let copy = target_dir().join(name);
    let mark = copy.join("built");
    let parent = copy.parent().context("no parent folder")?;
    std::fs::create_dir_all(parent)?;
    let lock = File::create(parent.join(format!("{}.lock", name.replace('/', "-"))))?;
    lock.lock()?;
    if mark.exists() {
        return Ok(copy);
    }
    // What a build that failed left behind, if anything.
    let _ = std::fs::remove_dir_all(&copy);
    process::capture("cp", &["-r".as_ref(), checkout.as_os_str(), copy.as_os_str()])?;
    let built = build.current_dir(&copy).output().with_context(|| format!("building {name}"))?;
    let said = String::from_utf8_lossy(&built.stderr);
    ensure!(built.status.success(), "{name} does not build: {}", process::tail(&said, 20));
    File::create(mark)?;
    Ok(copy)
}
