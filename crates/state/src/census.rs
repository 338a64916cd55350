//! How much there is of everything, for metrics and for tests of bounds.

use crate::client::ClientIncarnation;
use crate::deed::DelegationKind;
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
    /// Read delegations granted.
    pub delegations_read: usize,
    /// Write delegations granted.
    pub delegations_write: usize,
    /// Directory delegations granted.
    pub delegations_directory: usize,
    /// Delegations being recalled.
    pub recalls: usize,
    /// Delegations revoked and not yet freed.
    pub delegations_revoked: usize,
    /// Delegations wanted by those who could not have them.
    pub wants: usize,
    /// Clients that keep their state by courtesy, as of the last tick.
    pub courteous: usize,
}

impl Engine {
    /// Counts everything; walks all state, so not for the hot path.
    #[must_use]
    pub fn census(&self) -> Census {
        let count =
            |is_one: fn(&Kind) -> bool| self.states.iter().filter(|(_, state)| is_one(&state.kind)).count();
        let revoked = |client: &ClientIncarnation| client.delegations_revoked as usize;
        let clients = || self.clients.by_id.values();
        let ranges =
            |file: &crate::file::File| file.locks.iter().map(|(_, ranges)| ranges.len()).sum::<usize>();
        Census {
            clients: self.clients.by_id.len(),
            clients_unconfirmed: self.clients.unconfirmed,
            sessions: self.sessions.len(),
            owners: self.owners.len(),
            opens: count(|kind| matches!(kind, Kind::Open(_))),
            locks: count(|kind| matches!(kind, Kind::Lock(_))),
            files: self.files.len(),
            ranges: self.files.values().map(ranges).sum(),
            waiters: self.files.values().map(|file| file.waiters.len()).sum(),
            delegations_read: self.count_delegations(DelegationKind::Read),
            delegations_write: self.count_delegations(DelegationKind::Write),
            delegations_directory: self.count_delegations(DelegationKind::Directory),
            recalls: self.recalls.len(),
            delegations_revoked: clients().map(revoked).sum(),
            wants: self.wants.0.len(),
            courteous: clients().filter(|client| client.courteous_since.is_some()).count(),
        }
    }
}
