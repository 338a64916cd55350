//! How clients go: leases that run out, records replaced or destroyed. A client whose lease ran out keeps what it holds
//! until somebody wants it (a courtesy, bounded in number and time); then all of it is released by effects.

use holdfast_base::{ClientId, Instant};

use crate::client::ClientIncarnation;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::StateError;
use crate::names::Dialect;

impl Engine {
    /// Whether a client's lease has run out. A request being executed holds the lease, and a batch: the client waits for us.
    pub(crate) fn is_lapsed(&self, id: ClientId, now: Instant) -> bool {
        let Some(client) = self.clients.by_id.get(&id) else { return true };
        self.lease_left_ms(id, client, now).is_none()
    }

    /// When a confirmed client of 4.0 was last heard of; `None` for any other.
    #[must_use]
    pub fn last_heard_of(&self, id: ClientId) -> Option<Instant> {
        self.clients.confirmed(id, Dialect::V40).ok().map(|client| client.renewed_at)
    }

    /// Milliseconds of a client's lease that are left; `None` when it ran out.
    pub(crate) fn lease_left_ms(
        &self,
        id: ClientId,
        client: &ClientIncarnation,
        now: Instant,
    ) -> Option<u64> {
        if client.is_leaving {
            return None;
        }
        if self.caps_is_executing(id) {
            return Some(self.config.lease_ms);
        }
        let sessions = client.sessions.iter().filter_map(|id| self.sessions.get(*id));
        let last = sessions.map(|s| if s.slots.running() > 0 { now } else { s.last_used });
        let last = last.fold(client.renewed_at, Instant::max);
        self.config.lease_ms.checked_sub(now.ms_since(last))
    }

    /// Does what time brings: sees to clients whose lease has run out, to recalls, to waits for locks and delegations,
    /// and to budgets. To be called about once a second, the effects of one call before the next; conflicts do not
    /// wait for it.
    ///
    /// A client that goes does so in two steps, unless somebody waits for what it has: first its record is forgotten and nobody may act as it, and only the
    /// next call lets others have what it held. A crash between the two finds either a client that may reclaim and
    /// nobody in its way, or one that may not.
    pub fn tick(&mut self, now: Instant) {
        self.release_leaving(now);
        let away = self.note_courtesy(now);
        self.drop_idle_owners(now);
        self.pass_by_waiters(now);
        self.expire_waited_for(&away, now);
        while self.contend_for_waiters(now) {}
        self.tick_recalls(now);
        self.tick_caps(now);
        self.tick_wants(now);
        self.tick_pressure(now);
    }

    /// The second step of those who go.
    fn release_leaving(&mut self, now: Instant) {
        let leaving = self.clients.by_id.iter().filter(|(_, client)| client.is_leaving);
        let mut leaving: Vec<_> = leaving.map(|(id, _)| *id).collect();
        // The map's order is arbitrary; effects must not be.
        leaving.sort_unstable();
        // As a rule they are off the record by now. If not, they are tried again with the next tick.
        if leaving.is_empty() || !self.witness.forget(&leaving) {
            return;
        }
        for id in leaving {
            self.release_client(id, now);
        }
    }

    /// Finds clients whose lease ran out, and has those go that hold nothing, were away too long, or are too many: which
    /// stay, in order.
    fn note_courtesy(&mut self, now: Instant) -> Vec<ClientId> {
        let mut away = Vec::new();
        let mut due = Vec::new();
        for (id, client) in &self.clients.by_id {
            if self.lease_left_ms(*id, client, now).is_some() || client.is_leaving {
                continue;
            }
            let since = client.courteous_since.unwrap_or(now);
            let is_over = now.ms_since(since) >= self.policy.courtesy_ms;
            let holds_nothing = client.states.is_empty() && self.caps.count_of(*id) == 0;
            if holds_nothing || is_over { due.push(*id) } else { away.push((since, *id)) }
        }
        for client in self.clients.by_id.values_mut() {
            client.courteous_since = None;
        }
        away.sort_unstable();
        let too_many = away.len().saturating_sub(self.policy.courtesy_clients_max);
        due.extend(away.iter().take(too_many).map(|(_, id)| *id));
        let staying = away.split_off(too_many);
        for (since, id) in &staying {
            if let Some(client) = self.clients.by_id.get_mut(id) {
                client.courteous_since = Some(*since);
            }
            // Later it gets none.
            if *since == now {
                self.set_locks_aside(*id);
            }
        }
        due.sort_unstable();
        for id in due {
            self.begin_leaving(id, now);
        }
        let mut staying: Vec<_> = staying.into_iter().map(|(_, id)| id).collect();
        staying.sort_unstable();
        staying
    }

    /// The first step of going: the record is forgotten, and nobody may act as the client.
    pub(crate) fn begin_leaving(&mut self, id: ClientId, now: Instant) {
        let Some(client) = self.clients.by_id.get_mut(&id) else { return };
        if !client.is_confirmed {
            return self.remove_client(id, now);
        }
        client.is_leaving = true;
        let sessions = std::mem::take(&mut client.sessions);
        for session in sessions {
            self.drop_session(session);
        }
        self.effects.push(Effect::ForgetClient(id));
    }

    /// A client that comes anew finishes the leaving of its former self.
    ///
    /// # Errors
    /// `Delay` while that still has a record, and so still has what it held.
    pub(crate) fn finish_leaving(
        &mut self,
        dialect: Dialect,
        name: &[u8],
        now: Instant,
    ) -> Result<(), StateError> {
        let confirmed = self.clients.records(dialect, name).confirmed;
        let is_leaving = |id: &ClientId| self.clients.by_id.get(id).is_some_and(|client| client.is_leaving);
        match confirmed.filter(is_leaving) {
            Some(id) if !self.expire(&[id], now) => Err(StateError::Delay),
            _ => Ok(()),
        }
    }

    /// Whether a client goes once its record is gone.
    pub(crate) fn is_leaving(&self, id: ClientId) -> bool {
        self.clients.by_id.get(&id).is_some_and(|client| client.is_leaving)
    }

    /// Of these clients, has those go whose lease ran out.
    #[cold]
    pub(crate) fn expire_lapsed(&mut self, mut clients: Vec<ClientId>, now: Instant) {
        clients.sort_unstable();
        clients.dedup();
        clients.retain(|client| self.is_lapsed(*client, now));
        self.expire(&clients, now);
    }

    /// Has clients go at once, so that others can have what they held: first their records, all together, then all else.
    /// Whether they are gone. If not, as they may be off the record or not, nobody may act as them any more, and the tick
    /// goes on trying.
    pub(crate) fn expire(&mut self, clients: &[ClientId], now: Instant) -> bool {
        let may_reclaim = |id: &ClientId| {
            let client = self.clients.by_id.get(id);
            client.is_some_and(|of| of.is_confirmed && (!of.states.is_empty() || self.caps.count_of(*id) > 0))
        };
        let holders: Vec<_> = clients.iter().copied().filter(may_reclaim).collect();
        if !holders.is_empty() && !self.witness.forget(&holders) {
            let staying = holders.into_iter().filter(|id| !self.is_leaving(*id));
            for id in staying.collect::<Vec<_>>() {
                self.begin_leaving(id, now);
            }
            return false;
        }
        for id in clients {
            self.remove_client(*id, now);
        }
        true
    }

    /// At a limit, those go whom only courtesy keeps, longest away first: one at a time.
    pub(crate) fn make_room(&mut self, now: Instant) -> bool {
        self.make_room_among(|_| true, now)
    }

    /// The same among some of them.
    pub(super) fn make_room_among(
        &mut self,
        whom: impl Fn(&ClientIncarnation) -> bool,
        now: Instant,
    ) -> bool {
        let of_these = self.clients.by_id.iter().filter(|(_, client)| whom(client));
        let away = of_these.filter_map(|(id, client)| Some((client.courteous_since?, *id)));
        let away = away.filter(|(_, id)| self.is_lapsed(*id, now));
        let Some((_, id)) = away.min() else { return false };
        self.expire(&[id], now)
    }

    /// Removes a client with all it holds, as an administrator's decision: at once, or once its record can be removed.
    /// Whether there was one.
    pub fn revoke_client(&mut self, id: ClientId, now: Instant) -> bool {
        let is_known = self.clients.by_id.contains_key(&id);
        self.expire(&[id], now);
        is_known
    }

    /// Removes a client with all it holds. If others may have that now, its record must be gone: see [`Engine::expire`].
    pub(crate) fn remove_client(&mut self, id: ClientId, now: Instant) {
        let is_confirmed = self.clients.by_id.get(&id).is_some_and(|client| client.is_confirmed);
        self.release_client(id, now);
        if is_confirmed {
            self.effects.push(Effect::ForgetClient(id));
        }
    }

    /// Takes all a client holds, and the client.
    fn release_client(&mut self, id: ClientId, now: Instant) {
        let Some(client) = self.clients.by_id.get_mut(&id) else { return };
        // Nobody is left to acknowledge anything.
        (client.revoked, client.delegations_revoked) = (0, 0);
        let states = client.states.clone();
        let sessions = std::mem::take(&mut client.sessions);
        let owners: Vec<_> =
            client.open_owners.values().chain(client.lock_owners.values()).copied().collect();
        for session in sessions {
            self.drop_session(session);
        }
        self.forget_waiters_of(id, now);
        self.wants.forget_client(id);
        self.caps_forget_client(id, now);
        for state in states {
            self.drop_state(state, now);
        }
        for owner in owners {
            self.owners.remove(owner.0, ());
        }
        self.clients.remove(id);
    }
}
