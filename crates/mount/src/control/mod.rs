//! The control socket of a mount: who it is, how it does, and what it is told to do, from the `holdfast` command.
//!
//! One JSON object a line in each direction, as on a server's admin socket. A request that takes time is answered with
//! any number of `progress` lines before its `ok` or `error`.

mod asking;
mod serving;
mod socket;

pub use asking::{AskError, Controller};
pub use serving::{Controlled, Endpoint};
pub use socket::{Place, runtime_dir};

use serde::{Deserialize, Serialize};

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// Who is this: [`Identity`].
    Identity,
    /// How it does: the statistics of the volume.
    Stats,
    /// Send what is not sent, and wait until it is on stable storage: `null`. With progress.
    Sync,
    /// As [`Request::Sync`], on the way to unmounting: `null`. With progress.
    Drain,
    /// Give up what was not sent, and fail everything that waits for a server: [`Progress`] of what was given up.
    Abandon,
    /// The servers, in the order in which they are tried: a list of [`ServerLine`].
    Servers,
    /// One more server, tried last.
    AddServer {
        /// `HOST[:PORT]`.
        server: String,
    },
    /// A server is not to be used any more.
    RemoveServer {
        /// As it was named.
        server: String,
    },
    /// What was changed on both sides while the server was away: a list of [`ConflictLine`].
    Conflicts,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The process.
    pub pid: u32,
    /// What is mounted.
    pub source: String,
    /// Where.
    pub mountpoint: String,
    /// False while what is left is sent after an unmount.
    pub is_mounted: bool,
    /// The program's version.
    pub version: String,
}

/// What has still to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Changes that wait to be sent, or to be on stable storage.
    pub changes: u64,
    /// Bytes of file data among it.
    pub bytes: u64,
    /// Of these, bytes that the server has and that have to be put on its disk.
    #[serde(default)]
    pub bytes_sent: u64,
}

/// One object that was changed on both sides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictLine {
    /// Its path from the mount point.
    pub path: String,
    /// The name beside it under which ours was kept, where it was.
    pub kept_as: Option<String>,
    /// What happened.
    pub what: String,
}

/// One server of a mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLine {
    /// As it was named.
    pub name: String,
    /// The one in use.
    pub is_current: bool,
    /// By a server, and not by the user.
    #[serde(default)]
    pub is_told: bool,
}

/// One line of an answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// It goes on.
    Progress(Progress),
    /// Done.
    Ok(serde_json::Value),
    /// Not done, and why.
    Error(String),
}
