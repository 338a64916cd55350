//! Where control sockets lie: `DIR/DEVICE-PID.sock`, so that the mount that is on top at a path finds its own, and one
//! whose mount is gone and that still sends what is left does not stand in its successor's way.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The directory of control sockets and logs: `/run/holdfast/mounts` for root, else below `XDG_RUNTIME_DIR`, else in
/// `/tmp` under the user's number.
#[must_use]
pub fn runtime_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("HOLDFAST_RUNTIME_DIR") {
        return PathBuf::from(dir);
    }
    let user = rustix::process::geteuid();
    if user.is_root() {
        return "/run/holdfast/mounts".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("holdfast/mounts"),
        None => format!("/tmp/holdfast-{}/mounts", user.as_raw()).into(),
    }
}

/// The place of one mount's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    path: PathBuf,
}

impl Place {
    /// The place for a mount that this process serves. The directory is made where it is missing, for its user alone.
    ///
    /// # Errors
    /// Those of the system; `PermissionDenied` where the directory belongs to somebody else.
    pub fn of_own(dir: &Path, device: &str) -> io::Result<Self> {
        make_private(dir)?;
        Ok(Self { path: dir.join(format!("{}-{}.sock", plain(device), std::process::id())) })
    }

    /// The places where the daemon of a mounted device may answer.
    ///
    /// # Errors
    /// Those of the system; a directory that is not there has none.
    pub fn of_device(dir: &Path, device: &str) -> io::Result<Vec<Self>> {
        let prefix = format!("{}-", plain(device));
        let entries = match std::fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut places = Vec::new();
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&prefix) && name.ends_with(".sock") {
                places.push(Self { path: entry.path() });
            }
        }
        Ok(places)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bind(&self) -> io::Result<UnixListener> {
        // Left by a process of the same number that was killed.
        let _ = std::fs::remove_file(&self.path);
        UnixListener::bind(&self.path)
    }

    pub(crate) fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect(&self.path)
    }
}

/// `:` is not in file names, out of courtesy to those who write them into lists of paths.
fn plain(device: &str) -> String {
    device.replace(':', "_")
}

fn make_private(dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    if std::fs::metadata(dir)?.uid() != rustix::process::geteuid().as_raw() {
        let message = format!("{} belongs to somebody else", dir.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(())
}
