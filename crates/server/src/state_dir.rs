//! The state directory: where it is when nobody says, and how it is made.

use std::env;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// The directory given, or the default one, made when missing.
///
/// # Errors
/// When it cannot be made, or there is no home directory to put it in.
pub(crate) fn prepare(given: Option<PathBuf>) -> Result<PathBuf> {
    let dir = chosen(given)?;
    // Handles' signing key and clients' records lie below: nobody else's business.
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).with_context(|| {
        format!("cannot make the state directory {}: name another with --state-dir", dir.display())
    })?;
    Ok(dir)
}

/// The directory given, or the default one.
///
/// # Errors
/// When there is no home directory to put it in.
pub(crate) fn chosen(given: Option<PathBuf>) -> Result<PathBuf> {
    given.map_or_else(default_dir, Ok)
}

/// The state directory of a server that was not told one, and runs as the user who asks.
///
/// # Errors
/// When there is no home directory to put it in.
pub fn default_dir() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/holdfast"));
    }
    if let Some(base) = env::var_os("XDG_STATE_HOME").filter(|d| !d.is_empty()) {
        return Ok(PathBuf::from(base).join("holdfast"));
    }
    let home =
        env::var_os("HOME").context("no home directory to keep state in: name one with --state-dir")?;
    Ok(PathBuf::from(home).join(".local/state/holdfast"))
}
