//! Locks of clients whose lease has run out, on files that local processes use too. Courtesy keeps them until somebody
//! conflicts; but a local process that is refused, or waits, is seen by nobody, and would wait for as long as courtesy lasts.
//! So what holds such locks against local processes is let go when the lease has run out, and taken again before the client's next
//! request is admitted. What cannot be had back is lost, and the client is told so with that request.

use holdfast_base::{ByteRange, ClientId, FileKey, SessionId};

use crate::check::Caller;
use crate::effect::Effect;
use crate::engine::{Engine, Kind, Standing, StateKey};
use crate::error::StateError;
use crate::file::Holder;
use crate::lock_set::LockKind;
use crate::names::LockToken;
use crate::stateid::StateId;

/// What a lock-owner holds of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocksHeld {
    /// Under which the backend's part is known.
    pub token: LockToken,
    /// By which it is revoked.
    pub stateid: StateId,
    /// Of this file.
    pub file: FileKey,
    /// In order.
    pub ranges: Vec<(ByteRange, LockKind)>,
}

impl Engine {
    /// A client's lease was found to have run out.
    pub(crate) fn set_locks_aside(&mut self, id: ClientId) {
        let holds_locks = self.lock_states(id).next().is_some();
        let Some(client) = self.clients.by_id.get_mut(&id).filter(|_| holds_locks) else { return };
        client.has_locks_aside = true;
        self.hold_up(id, true);
        self.effects.push(Effect::LocksAside { client: id });
    }

    fn lock_states(&self, id: ClientId) -> impl Iterator<Item = StateKey> {
        let of = self.clients.by_id.get(&id).into_iter().flat_map(|client| &client.states);
        of.copied().filter(|key| {
            self.state(*key)
                .is_ok_and(|state| state.standing == Standing::Good && matches!(state.kind, Kind::Lock(_)))
        })
    }

    fn hold_up(&mut self, id: ClientId, is_held_up: bool) {
        let sessions = self.clients.by_id.get(&id).map(|client| client.sessions.clone()).unwrap_or_default();
        for session in sessions {
            if let Some(session) = self.sessions.get_mut(session) {
                session.is_held_up = is_held_up;
            }
        }
    }

    /// Whether a client's locks do not hold against local processes, and nothing of the client's is served until they do.
    #[must_use]
    pub fn are_locks_aside(&self, id: ClientId) -> bool {
        self.clients.by_id.get(&id).is_some_and(|client| client.has_locks_aside)
    }

    /// A client of 4.0 may be back with this very request, which may be about what is found to be lost only now, or about locks
    /// that are being taken again. (One of a session is not served before.)
    pub(crate) fn check_locks_are_back(&self, caller: Caller, client: ClientId) -> Result<(), StateError> {
        if caller == Caller::V40 && self.are_locks_aside(client) {
            return Err(StateError::Delay);
        }
        Ok(())
    }

    /// The client of a session that is not served until its locks hold again.
    #[must_use]
    pub fn held_up(&self, session: SessionId) -> Option<ClientId> {
        self.sessions.get(session).filter(|session| session.is_held_up).map(|session| session.client)
    }

    /// A client gives a sign of life outside of a session's requests. Its locks are taken before it hears of that; in 4.0 it
    /// meets those that are lost when it uses them, for there is no other word.
    pub(crate) fn want_locks_back(&mut self, id: ClientId) {
        if self.are_locks_aside(id) {
            self.effects.push(Effect::LocksWanted { client: id });
        }
    }

    /// All byte-range locks of a client.
    #[must_use]
    pub fn locks_of(&self, id: ClientId) -> Vec<LocksHeld> {
        let held = |key: StateKey| {
            let file = self.state(key).ok()?.file;
            let ranges = self.files.get(&file)?.locks.of(Holder::State(key))?.iter().collect();
            Some(LocksHeld { token: key.token(), stateid: self.stateid(key).ok()?, file, ranges })
        };
        self.lock_states(id).filter_map(held).collect()
    }

    /// They hold again, or were revoked.
    pub fn locks_are_back(&mut self, id: ClientId) {
        if let Some(client) = self.clients.by_id.get_mut(&id) {
            client.has_locks_aside = false;
            // Should its lease not be renewed after all, that is found out anew.
            client.courteous_since = None;
            self.hold_up(id, false);
        }
    }
}
