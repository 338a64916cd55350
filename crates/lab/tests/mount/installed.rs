//! What `make install` puts where; that mounts can be made by the names it gives is seen in `unprivileged`.

use anyhow::{Context as _, Result, ensure};
use holdfast_lab::kernel::checkout;
use holdfast_lab::server::holdfast_binary;
use holdfast_lab::{Trial, process};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::new("installed::everything_is_in_its_place_and_goes_again", staged)]
}

/// Runs `make TARGET` with these variables, and the program under test for the one that was built.
///
/// Errors when that fails.
pub(crate) fn make(target: &str, variables: &[String]) -> Result<()> {
    let mut command = Command::new("make");
    command.args(["--no-print-directory", "-C"]).arg(checkout()).arg(target).args(variables);
    let output = command.env("HOLDFAST_BIN", holdfast_binary()?).output().context("make")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "make {target} {variables:?}: {}", process::tail(&said, 5));
    Ok(())
}

fn staged() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let root = scratch.path();
    let variables = [format!("DESTDIR={}", root.display()), "PREFIX=/opt/files".into()];
    make("install", &variables)?;
    let mode = fs::metadata(root.join("opt/files/bin/holdfast"))?.permissions().mode() & 0o777;
    ensure!(mode == 0o755, "the program's mode is {mode:o}");
    for helper in ["mount.fuse.holdfast", "umount.fuse.holdfast", "mount.holdfast", "umount.holdfast"] {
        let to = fs::read_link(root.join("sbin").join(helper)).context(helper)?;
        // Where it will be, and not where it is staged.
        ensure!(to == Path::new("/opt/files/bin/holdfast"), "{helper} leads to {}", to.display());
        let page = fs::read_to_string(root.join(format!("opt/files/share/man/man8/{helper}.8")))?;
        let of = page.trim_end().strip_prefix(".so ").context("a page that names no other")?;
        ensure!(root.join("opt/files/share/man").join(of).is_file(), "no {of}");
    }
    let unit = fs::read_to_string(root.join("opt/files/lib/systemd/system/holdfast.service"))?;
    let started: Vec<_> =
        unit.lines().filter(|line| line.starts_with("Exec") && line.contains("holdfast ")).collect();
    ensure!(
        !started.is_empty() && started.iter().all(|line| line.contains("=/opt/files/bin/holdfast ")),
        "{started:?}"
    );
    make("uninstall", &variables)?;
    let left = files(root)?;
    ensure!(left.is_empty(), "left: {left:?}");
    Ok(())
}

/// Everything below that is no directory.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if fs::symlink_metadata(&path)?.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}
