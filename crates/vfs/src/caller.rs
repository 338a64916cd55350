//! On whose behalf, and with how much patience, a backend acts.

use std::sync::Arc;

use holdfast_base::ClientId;

/// The user an operation is done for, after squashing and group lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups, at most [`holdfast_base::limits::CALLER_GROUPS_MAX`].
    pub groups: Arc<[u32]>,
}

impl Caller {
    /// The superuser without supplementary groups.
    #[must_use]
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Arc::new([]) }
    }
}

/// Whether a method may wait for a disk or a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// It may not: it answers [`crate::FsError::WouldBlock`] instead, having changed nothing.
    No,
    /// It may be as slow as a file system is that has in memory what it is asked for: it may wait for that one's locks and
    /// its journal. Not for other threads, for a client or for a daemon, and what must be read from a disk first is better left
    /// to others: it answers [`crate::FsError::WouldBlock`] where it knows, having changed nothing. For who has something to do
    /// besides.
    Journal,
    /// It may wait for a disk and for other threads, not for a client to give back what was promised to it: that is asked
    /// for, and the answer is [`crate::FsError::WouldBlock`], nothing having been changed ([`crate::Backend::await_recall`]).
    /// For who holds what a client may need to give it back.
    Disk,
    /// It may.
    Yes,
}

impl Wait {
    /// Whether it may wait for a disk and for other threads.
    #[must_use]
    pub const fn may_last(self) -> bool {
        matches!(self, Self::Disk | Self::Yes)
    }
}

/// What every method of a backend is told about the operation it serves.
#[derive(Clone, Copy, Debug)]
pub struct Cx<'a> {
    /// Whose permissions count.
    pub caller: &'a Caller,
    /// Whether waiting is allowed.
    pub wait: Wait,
    /// Which client acts, where that is known: what has been promised to it does not stand in its own way. Callers
    /// of NFSv3, anonymous state ids and the server itself are nobody.
    pub client: Option<ClientId>,
}

impl<'a> Cx<'a> {
    /// An operation of no known client.
    #[must_use]
    pub const fn new(caller: &'a Caller, wait: Wait) -> Self {
        Self { caller, wait, client: None }
    }

    /// The same, done by this client.
    #[must_use]
    pub const fn by(self, client: Option<ClientId>) -> Self {
        Self { client, ..self }
    }
}
