//! Holdfast itself: the binary that `HOLDFAST_BIN` names, else the release build of this checkout.

use super::Ports;
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// How to start it over one directory.
///
/// Errors when there is no such binary.
pub(super) fn command(export: &Path, scratch: &Path, ports: Ports, flags: &[&str]) -> Result<Command> {
    let mut command = Command::new(binary()?);
    command
        .env("HOLDFAST_NO_SUPERVISE", "true")
        .arg("serve")
        .arg(export)
        .args(["--listen", &ports.nfs.to_string()])
        .args(["--allow", "all", "--squash", "none", "--no-rpcbind", "--state-dir"])
        .arg(scratch.join("state"))
        .args(flags);
    Ok(command)
}

/// What prints its version.
///
/// Errors when there is no such binary.
pub(super) fn version_command() -> Result<Command> {
    let mut command = Command::new(binary()?);
    command.arg("--version");
    Ok(command)
}

fn binary() -> Result<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/holdfast");
    let path = std::env::var_os("HOLDFAST_BIN").map_or(built, PathBuf::from);
    ensure!(path.is_file(), "no {}: cargo build --release --bin holdfast", path.display());
    Ok(path)
}
