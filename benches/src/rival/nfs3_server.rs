//! The crate `nfs3_server` from crates.io, by the program that its authors publish for it, `cargo-nfs3-server`, which
//! mirrors a directory over NFSv3. `scripts/install-bench` builds it into the target folder.

use super::Ports;
use crate::volume::EXPORT_NAME;
use anyhow::{Result, ensure};
use holdfast_lab::kernel::target_dir;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How to start it over one directory: NFSv3 and MOUNT on one port, a log of warnings alone, as the others have.
///
/// Errors when it is not installed.
pub(super) fn command(export: &Path, ports: Ports) -> Result<Command> {
    let mut command = Command::new(binary()?);
    command
        .arg("--path")
        .arg(export)
        .args(["--export-name", &format!("/{EXPORT_NAME}"), "--log-level", "warn"])
        .args(["--bind-ip", &ports.nfs.ip().to_string(), "--bind-port", &ports.nfs.port().to_string()]);
    Ok(command)
}

/// What prints its version: it has no option for that, so what cargo wrote down when it was installed.
///
/// Errors when it is not installed.
pub(super) fn version_command() -> Result<Command> {
    let mut command = Command::new("cargo");
    binary()?;
    command.args(["install", "--list", "--quiet", "--root"]).arg(root());
    Ok(command)
}

fn root() -> PathBuf {
    target_dir().join("rivals")
}

fn binary() -> Result<PathBuf> {
    let path = root().join("bin/cargo-nfs3-server");
    ensure!(path.is_file(), "no {}: scripts/install-bench", path.display());
    Ok(path)
}
