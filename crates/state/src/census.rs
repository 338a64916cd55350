//! How much there is of everything, for metrics and for tests of bounds.

use crate::client::ClientIncarnation;
use crate::deed::DelegationKind;
use crate::engine::{Engine, Kind, Standing};

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
    /// Objects that clients hold capabilities of, each client's counted by itself.
    pub capabilities: usize,
    /// Those of which some are being recalled.
    pub capabilities_recalled: usize,
    /// Clients that keep their state by courtesy, as of the last tick.
    pub courteous: usize,
}

/// What is counted as it comes and goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    opens: usize,
    locks: usize,
    read: usize,
    write: usize,
    directory: usize,
}

impl Tally {
    /// A state's name came.
    pub(crate) const fn came(&mut self, kind: &Kind) {
        match kind {
            Kind::Open(_) => self.opens += 1,
            Kind::Lock(_) => self.locks += 1,
            Kind::Delegation(_) => {}
        }
    }

    /// It went.
    pub(crate) const fn went(&mut self, kind: &Kind) {
        match kind {
            Kind::Open(_) => self.opens -= 1,
            Kind::Lock(_) => self.locks -= 1,
            Kind::Delegation(_) => {}
        }
    }

    /// What is granted became another.
    pub(crate) fn granted(&mut self, before: Option<DelegationKind>, after: Option<DelegationKind>) {
        if let Some(kind) = before {
            *self.of(kind) -= 1;
        }
        if let Some(kind) = after {
            *self.of(kind) += 1;
        }
    }

    const fn of(&mut self, kind: DelegationKind) -> &mut usize {
        match kind {
            DelegationKind::Read => &mut self.read,
            DelegationKind::Write => &mut self.write,
            DelegationKind::Directory | DelegationKind::NotifiedDirectory(_) => &mut self.directory,
        }
    }

    /// The same by counting.
    pub(crate) fn taken(engine: &Engine) -> Self {
        let mut tally = Self::default();
        for (_, state) in engine.states.iter() {
            tally.came(&state.kind);
            if let (Kind::Delegation(delegation), Standing::Good) = (&state.kind, state.standing) {
                tally.granted(None, delegation.granted);
            }
        }
        tally
    }
}

impl Engine {
    /// Counts everything. Walks clients and files, so not for the hot path.
    #[must_use]
    pub fn census(&self) -> Census {
        let Tally { opens, locks, read, write, directory } = self.tally;
        let revoked = |client: &ClientIncarnation| client.delegations_revoked as usize;
        let clients = || self.clients.by_id.values();
        let ranges =
            |file: &crate::file::File| file.locks.iter().map(|(_, ranges)| ranges.len()).sum::<usize>();
        Census {
            clients: self.clients.by_id.len(),
            clients_unconfirmed: self.clients.unconfirmed.len(),
            sessions: self.sessions.len(),
            owners: self.owners.len(),
            opens,
            locks,
            files: self.files.len(),
            ranges: self.files.values().map(ranges).sum(),
            waiters: self.files.values().map(|file| file.waiters.len()).sum(),
            delegations_read: read,
            delegations_write: write,
            delegations_directory: directory,
            recalls: self.recalls.len(),
            delegations_revoked: clients().map(revoked).sum(),
            wants: self.wants.0.len(),
            capabilities: self.caps.objects,
            capabilities_recalled: self.caps.recalls.len(),
            courteous: clients().filter(|client| client.courteous_since.is_some()).count(),
        }
    }
}
