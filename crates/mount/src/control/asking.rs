//! The command's side.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::socket::{Place, runtime_dir};
use super::{Answer, Progress, Request};
use crate::mountinfo::{self, FS_TYPE, MountInfo};

/// How long a line of an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No mount of ours is there.
    #[error("{}: no Holdfast mount", .0.display())]
    NotMounted(PathBuf),
    /// A mount of ours is there, but no daemon answers for it.
    #[error("{}: mounted, but its daemon does not answer ({reason}); `holdfast umount -f` takes the mount away", .path.display())]
    NoDaemon {
        /// As it was given.
        path: PathBuf,
        /// What went wrong with its socket.
        reason: String,
    },
    /// This user may not ask.
    #[error("{}: permission denied: ask as root or as the user who mounted", .0.display())]
    NotAllowed(PathBuf),
    /// The daemon refused or failed.
    #[error("{0}")]
    Refused(String),
    /// The connection broke.
    #[error("the mount's daemon did not answer: {0}")]
    Lost(#[from] io::Error),
    /// The answer makes no sense to this version.
    #[error("the answer of the mount's daemon is not understood ({0}): is it of another version?")]
    Garbled(#[from] serde_json::Error),
}

/// A connection to the daemon of a mount.
#[derive(Debug)]
pub struct Controller {
    stream: BufReader<UnixStream>,
    mount: MountInfo,
}

impl Controller {
    /// Connects to the daemon of what is mounted at a path.
    ///
    /// # Errors
    /// [`AskError::NotMounted`], [`AskError::NoDaemon`], [`AskError::NotAllowed`], [`AskError::Lost`].
    pub fn connect(path: &Path) -> Result<Self, AskError> {
        let mountpoint = mountinfo::resolve(path)?;
        let mount = mountinfo::topmost(&mountpoint)?.filter(|mount| mount.fs_type == FS_TYPE);
        let mount = mount.ok_or_else(|| AskError::NotMounted(path.to_owned()))?;
        let dir = runtime_dir();
        let places = Place::of_device(&dir, &mount.device).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => AskError::NotAllowed(dir),
            _ => AskError::Lost(error),
        })?;
        let mut reason = "no control socket".to_owned();
        for place in places {
            match place.connect() {
                Ok(stream) => {
                    let mut asking = Self { stream: BufReader::new(stream), mount: mount.clone() };
                    // The same device number may have been another mount's, whose daemon still sends what is left.
                    if asking.ask::<super::Identity>(&Request::Identity)?.is_mounted {
                        return Ok(asking);
                    }
                }
                Err(error) => reason = error.to_string(),
            }
        }
        Err(AskError::NoDaemon { path: path.to_owned(), reason })
    }

    /// The mount, as the kernel shows it.
    #[must_use]
    pub fn mount(&self) -> &MountInfo {
        &self.mount
    }

    /// Asks, and reads the answer as what the request says it is.
    ///
    /// # Errors
    /// [`AskError::Refused`], [`AskError::Lost`], [`AskError::Garbled`].
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, AskError> {
        self.ask_with_progress(request, &mut |_| {})
    }

    /// As [`Controller::ask`]; whatever is told of progress meanwhile goes to `shown`.
    ///
    /// # Errors
    /// As [`Controller::ask`].
    pub fn ask_with_progress<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        shown: &mut dyn FnMut(Progress),
    ) -> Result<T, AskError> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        let stream = self.stream.get_mut();
        stream.set_read_timeout(Some(PATIENCE))?;
        let sent = stream.write_all(&line);
        loop {
            let mut text = String::new();
            if self.stream.read_line(&mut text)? == 0 {
                sent?;
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection").into());
            }
            match serde_json::from_str(&text)? {
                Answer::Progress(progress) => shown(progress),
                Answer::Ok(value) => return Ok(serde_json::from_value(value)?),
                Answer::Error(message) => return Err(AskError::Refused(message)),
            }
        }
    }

    /// Waits until the daemon closes the connection, as it does when it ends.
    ///
    /// # Errors
    /// [`AskError::Lost`] when it does not within `patience`.
    pub fn wait_end(mut self, patience: Duration) -> Result<(), AskError> {
        self.stream.get_ref().set_read_timeout(Some(patience))?;
        let mut text = String::new();
        self.stream.read_line(&mut text)?;
        Ok(())
    }
}
