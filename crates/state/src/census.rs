//! How much there is of everything, for metrics and for tests of bounds.

use crate::engine::{Engine, Kind};

/// Counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Client records, confirmed or not.
    pub clients: usize,
    /// Those not confirmed.
    pub clients_unconfirmed: usize,
    /// Sessions.
    pub sessions: usize,
    /// Open-owners and lock-owners.
    pub owners: usize,
    /// Stateids of opens, closed and revoked ones included.
    pub opens: usize,
    /// Stateids of locks, revoked ones included.
    pub locks: usize,
    /// Files of which somebody holds or awaits something.
    pub files: usize,
    /// Byte ranges locked.
    pub ranges: usize,
    /// Requests waiting for locks.
    pub waiters: usize,
}

impl Engine {
    /// Counts everything; walks all state, so not for the hot path.
    #[must_use]
    pub fn census(&self) -> Census {
        let opens = self.states.iter().filter(|(_, state)| matches!(state.kind, Kind::Open(_))).count();
        let ranges =
            |file: &crate::file::File| file.locks.iter().map(|(_, ranges)| ranges.len()).sum::<usize>();
        Census {
            clients: self.clients.by_id.len(),
            clients_unconfirmed: self.clients.unconfirmed,
            sessions: self.sessions.len(),
            owners: self.owners.len(),
            opens,
            locks: self.states.len() - opens,
            files: self.files.len(),
            ranges: self.files.values().map(ranges).sum(),
            waiters: self.files.values().map(|file| file.waiters.len()).sum(),
        }
    }
}
