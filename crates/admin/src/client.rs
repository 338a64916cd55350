//! The asking side.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::report::{Client, Holding, Page};
use crate::request::{Answer, Call, ClientsWanted, LocksWanted, Outcome, Refusal, Request, VERSION};
use crate::socket;

/// How long an answer is waited for: a reload may wait for disks.
const PATIENCE: Duration = Duration::from_secs(120);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No server answers at this state directory.
    #[error(
        "no server runs with the state directory {}: start one with `holdfast serve … --state-dir {}`, or name \
         another with --state-dir", .0.display(), .0.display()
    )]
    NoServer(PathBuf),
    /// This user may not ask.
    #[error("{}: permission denied: ask as root or as the user the server runs as", .0.display())]
    NotAllowed(PathBuf),
    /// The server refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The connection broke.
    #[error("the server did not answer: {0}")]
    Lost(#[from] io::Error),
    /// The answer makes no sense to this version.
    #[error("the server's answer is not understood ({0}): is it of another version?")]
    Garbled(#[from] serde_json::Error),
}

/// A connection to a server's admin socket.
#[derive(Debug)]
pub struct AdminClient {
    stream: BufReader<UnixStream>,
}

impl AdminClient {
    /// Connects to the server of a state directory.
    ///
    /// # Errors
    /// [`AskError::NoServer`], [`AskError::NotAllowed`], [`AskError::Lost`].
    pub fn connect(state_dir: &Path) -> Result<Self, AskError> {
        let stream = socket::connect(state_dir).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::NotADirectory => {
                AskError::NoServer(state_dir.to_owned())
            }
            io::ErrorKind::PermissionDenied => AskError::NotAllowed(socket::path_in(state_dir)),
            _ => AskError::Lost(error),
        })?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Asks, and reads the answer as what the request says it is.
    ///
    /// # Errors
    /// [`AskError::Refused`], [`AskError::Lost`], [`AskError::Garbled`].
    pub fn ask<T: DeserializeOwned>(&mut self, request: Request) -> Result<T, AskError> {
        let mut line = serde_json::to_vec(&Call { version: VERSION, request })?;
        line.push(b'\n');
        // Who is refused finds the reason below, or the connection closed.
        let sent = self.stream.get_mut().write_all(&line);
        let mut text = String::new();
        if self.stream.read_line(&mut text)? == 0 {
            sent?;
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection").into());
        }
        match serde_json::from_str::<Answer>(&text)?.outcome {
            Outcome::Ok(value) => Ok(serde_json::from_value(value)?),
            Outcome::Error(refusal) => Err(refusal.into()),
        }
    }

    /// All pages of the clients.
    ///
    /// # Errors
    /// As [`AdminClient::ask`].
    pub fn clients(&mut self, mut wanted: ClientsWanted) -> Result<Vec<Client>, AskError> {
        let mut all = Vec::new();
        loop {
            let page: Page<Client> = self.ask(Request::Clients(wanted.clone()))?;
            all.extend(page.rows);
            if page.next.is_none() {
                return Ok(all);
            }
            wanted.after = page.next;
        }
    }

    /// All pages of what is held.
    ///
    /// # Errors
    /// As [`AdminClient::ask`].
    pub fn locks(&mut self, mut wanted: LocksWanted) -> Result<Vec<Holding>, AskError> {
        let mut all = Vec::new();
        loop {
            let page: Page<Holding> = self.ask(Request::Locks(wanted.clone()))?;
            all.extend(page.rows);
            if page.next.is_none() {
                return Ok(all);
            }
            wanted.after = page.next;
        }
    }
}
