//! How clients go: leases that run out, records replaced or destroyed. All they held is released by effects.

use holdfast_base::{ClientId, Instant};

use crate::effect::Effect;
use crate::engine::Engine;

impl Engine {
    /// Whether a client's lease has run out. A request being executed holds the lease: the client waits for us.
    pub(crate) fn is_lapsed(&self, id: ClientId, now: Instant) -> bool {
        let Some(client) = self.clients.by_id.get(&id) else { return true };
        let is_fresh = |moment: Instant| now.ms_since(moment) <= self.config.lease_ms;
        let by_session = || {
            let mut sessions = client.sessions.iter().filter_map(|id| self.sessions.get(*id));
            sessions.any(|session| session.slots.running() > 0 || is_fresh(session.last_used))
        };
        !is_fresh(client.renewed_at) && !by_session()
    }

    /// Expires every client whose lease has run out, drops 4.0 owners that were idle for a lease, and
    /// passes by lock waiters that did not come when notified. To be called
    /// about once a second; conflicts do not wait for it.
    pub fn tick(&mut self, now: Instant) {
        let mut lapsed: Vec<_> =
            self.clients.by_id.keys().copied().filter(|id| self.is_lapsed(*id, now)).collect();
        // The map's order is arbitrary; effects must not be.
        lapsed.sort_unstable();
        for id in lapsed {
            self.remove_client(id, now);
        }
        self.drop_idle_owners(now);
        self.pass_by_waiters(now);
    }

    /// Removes a client at once with all it holds, as an administrator's decision. Whether there was one.
    pub fn revoke_client(&mut self, id: ClientId, now: Instant) -> bool {
        let is_known = self.clients.by_id.contains_key(&id);
        self.remove_client(id, now);
        is_known
    }

    /// Removes a client with all it holds.
    pub(crate) fn remove_client(&mut self, id: ClientId, now: Instant) {
        let Some(client) = self.clients.by_id.get_mut(&id) else { return };
        let states = std::mem::take(&mut client.states);
        let sessions = std::mem::take(&mut client.sessions);
        let owners: Vec<_> =
            client.open_owners.values().chain(client.lock_owners.values()).copied().collect();
        let is_confirmed = client.is_confirmed;
        for session in sessions {
            self.drop_session(session);
        }
        self.forget_waiters_of(id, now);
        for state in states {
            self.drop_state(state, now);
        }
        for owner in owners {
            self.owners.remove(owner.0, ());
        }
        self.clients.remove(id);
        if is_confirmed {
            self.effects.push(Effect::ForgetClient(id));
        }
    }
}
