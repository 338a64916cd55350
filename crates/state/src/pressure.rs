//! Budgets: what is above one is asked back from those who hold most, a little at a time.

use std::ops::Bound;

use holdfast_base::limits::{
    CAPS_PRESSED_LOOKED, CAPS_PRESSED_MAX, CAPS_PRESSED_PARTS, CAPS_SPARE_PART, DELEGATIONS_SPARE_PART,
    PRESSED_SLOTS_MIN, RECALL_ANY_CLIENTS_MAX, RECALL_ANY_PAUSE_MS, RECALLED_AT_ONCE_MAX,
};
use holdfast_base::{CapSet, ClientId, FileKey, Instant, SessionId};

use crate::client::ClientIncarnation;
use crate::effect::Effect;
use crate::engine::{Engine, Kind, Standing, StateKey};
use crate::names::Dialect;

impl Engine {
    pub(crate) fn tick_pressure(&mut self, now: Instant) {
        self.press_delegations(now);
        self.press_caps(now);
        self.press_slots();
    }

    /// Asks for delegations of the holders' choice (CB_RECALL_ANY, RFC 8881 section 20.6). Who is away hears nothing, and
    /// keeps its own by courtesy alone: such clients go first.
    fn press_delegations(&mut self, now: Instant) {
        // Asked for while there is still room: at the bound nothing is granted, and nobody would give anything back.
        let most = self.policy.delegations_max;
        let excess = self.delegations.saturating_sub(most - most / DELEGATIONS_SPARE_PART);
        if excess == 0 {
            return;
        }
        let mut excess = self.press_away(excess, now);
        let is_asked = |client: &ClientIncarnation| client.delegations > 0 && !client.is_leaving;
        let holders = self.clients.by_id.iter().filter(|(_, client)| is_asked(client));
        let mut holders: Vec<(u32, ClientId)> =
            holders.map(|(id, client)| (client.delegations, *id)).collect();
        holders.sort_unstable_by(|a, b| b.cmp(a));
        let is_full = self.delegations >= most;
        for (held, id) in holders.into_iter().take(RECALL_ANY_CLIENTS_MAX) {
            if excess == 0 {
                return;
            }
            // Half at most: what is in use would only be asked for again.
            let less = excess.min(held.div_ceil(2) as usize);
            excess -= less;
            if self.cannot_choose(id, is_full, now) {
                self.recall_oldest(id, less.min(RECALLED_AT_ONCE_MAX), now);
                continue;
            }
            let Some(client) = self.clients.by_id.get_mut(&id) else { continue };
            if client.recall_any_at.is_some_and(|at| now.ms_since(at) < RECALL_ANY_PAUSE_MS) {
                continue;
            }
            client.recall_any_at = Some(now);
            let keep = held - less as u32;
            self.effects.push(Effect::RecallAny { client: id, keep, files: true, directories: true });
        }
    }

    /// Whether a client is not asked which of its delegations it can do without: 4.0 has no words for that (CB_GETATTR and
    /// CB_RECALL are all callbacks of RFC 7530), and who was asked of late, and had its time, while there still is no room for
    /// others, may use them all.
    fn cannot_choose(&self, id: ClientId, is_full: bool, now: Instant) -> bool {
        let answering = RECALL_ANY_PAUSE_MS..3 * RECALL_ANY_PAUSE_MS;
        let is_in_vain = |at: Instant| is_full && answering.contains(&now.ms_since(at));
        self.clients.by_id.get(&id).is_some_and(|client| {
            client.dialect() == Dialect::V40 || client.recall_any_at.is_some_and(is_in_vain)
        })
    }

    /// Recalls those of a client's delegations that it has had for longest, so many with those that are being recalled.
    fn recall_oldest(&mut self, id: ClientId, less: usize, now: Instant) {
        let Some(client) = self.clients.by_id.get(&id) else { return };
        let mut held: Vec<(bool, Instant, StateKey)> = Vec::new();
        for key in &client.states {
            let Ok(state) = self.state(*key) else { continue };
            if let (Standing::Good, Kind::Delegation(of)) = (state.standing, &state.kind)
                && of.granted.is_some()
            {
                held.push((of.recall.is_none(), of.granted_at, *key));
            }
        }
        held.sort_unstable();
        let due: Vec<_> = held.into_iter().take(less).filter(|(is_idle, ..)| *is_idle).collect();
        for (.., key) in due {
            self.begin_recall(key, false, now);
        }
    }

    /// Has clients go that hold delegations and whose lease has run out, those away longest first, until so many are free.
    /// How many are still too many.
    fn press_away(&mut self, mut excess: usize, now: Instant) -> usize {
        let mut away = Vec::new();
        for (id, client) in self.clients.by_id.iter().filter(|(_, client)| client.delegations > 0) {
            let held = client.delegations as usize;
            match client.courteous_since {
                // What it has is free as soon as its record is gone.
                _ if client.is_leaving => excess = excess.saturating_sub(held),
                Some(since) => away.push((since, *id, held)),
                None => {}
            }
        }
        away.sort_unstable();
        for (_, id, held) in away {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(held);
            self.begin_leaving(id, now);
        }
        excess
    }

    /// Recalls capabilities, of the clients that hold most (`docs/design/caps-protocol.md`, section 3.4).
    fn press_caps(&mut self, now: Instant) {
        let most = self.policy.capabilities_max;
        // What is being recalled is on its way back.
        let stay = most - most / CAPS_SPARE_PART + self.caps.recalls.len();
        let excess = self.caps.objects.saturating_sub(stay);
        let mut due = excess.div_ceil(CAPS_PRESSED_PARTS).min(CAPS_PRESSED_MAX);
        if due == 0 {
            return;
        }
        // Who has no connection just now is left alone while its lease lasts: it could not answer, and would lose everything.
        let can_answer =
            |(id, of): &(&ClientId, &crate::caps::CapClient)| of.is_reachable || self.is_lapsed(**id, now);
        let holders = self.caps.clients.iter().filter(can_answer);
        let mut holders: Vec<(usize, ClientId)> = holders.map(|(id, of)| (of.files.len(), *id)).collect();
        holders.sort_unstable_by(|a, b| b.cmp(a));
        for (held, id) in holders.into_iter().take(RECALL_ANY_CLIENTS_MAX) {
            if due == 0 {
                return;
            }
            due -= self.press_caps_of(id, due.min(held.div_ceil(2)), now);
        }
    }

    /// Recalls up to so many objects of a client, whole; returns how many. Its server does not see what a mount uses, so
    /// that goes by age: what it still needs it asks for again, and is then among the youngest. What nobody may change
    /// unseen comes first, for there is nothing to be flushed.
    fn press_caps_of(&mut self, client: ClientId, less: usize, now: Instant) -> usize {
        let Some(of) = self.caps.clients.get_mut(&client) else { return 0 };
        let after = of.pressed_through.map_or(Bound::Unbounded, Bound::Excluded);
        let ring = of.files.range((after, Bound::Unbounded)).chain(&of.files);
        let looked: Vec<FileKey> =
            ring.take(of.files.len().min(less * CAPS_PRESSED_LOOKED)).copied().collect();
        of.pressed_through = looked.last().copied();
        let candidate = |file: FileKey| {
            let hold = self.caps.hold(client, file)?;
            let is_idle = hold.recall.is_none() && hold.offered.is_none();
            is_idle.then_some((hold.held.is_exclusive(), hold.granted_seq, file))
        };
        let mut oldest: Vec<_> = looked.into_iter().filter_map(candidate).collect();
        oldest.sort_unstable();
        oldest.truncate(less);
        for (.., file) in &oldest {
            self.begin_cap_recall(client, *file, CapSet::NONE, now);
        }
        oldest.len()
    }

    /// Asks back those of these holds that were granted longest ago: so many of them, together with what is being given back already,
    /// and not what their holders keep beside `what`. Who cannot be called is left alone, as by a budget.
    pub fn caps_ask_oldest_back(
        &mut self,
        among: Vec<(ClientId, FileKey)>,
        most: usize,
        what: CapSet,
        now: Instant,
    ) {
        let candidate = |(client, file): (ClientId, FileKey)| {
            let of = self.caps.clients.get(&client)?;
            let hold = self.caps.hold(client, file).filter(|hold| hold.held.intersects(what))?;
            let can_answer = of.is_reachable || self.is_lapsed(client, now);
            let is_idle = hold.recall.is_none() && hold.offered.is_none();
            can_answer.then_some((is_idle, hold.granted_seq, client, file, hold.held.without(what)))
        };
        let mut held: Vec<_> = among.into_iter().filter_map(candidate).collect();
        let under_way = held.iter().filter(|(is_idle, ..)| !is_idle).count();
        held.retain(|(is_idle, ..)| *is_idle);
        let most = most.saturating_sub(under_way).min(held.len());
        if most == 0 {
            return;
        }
        held.select_nth_unstable_by_key(most - 1, |(_, granted, ..)| *granted);
        for (_, _, client, file, keep) in held.into_iter().take(most) {
            self.begin_cap_recall(client, file, keep, now);
        }
    }

    /// Asks for slots, of the sessions that have most; gives them back when there is room.
    fn press_slots(&mut self) {
        let asked: usize = self.sessions.iter().map(|(_, session)| session.slots.target() as usize).sum();
        if asked > self.policy.slots_max {
            self.ask_slots(asked - self.policy.slots_max);
        } else if self.sessions.is_pressed() {
            self.sessions.relax(self.policy.slots_max - asked);
        }
    }

    fn ask_slots(&mut self, mut excess: usize) {
        let mut sessions: Vec<(u32, SessionId)> =
            self.sessions.iter().map(|(id, session)| (session.slots.target(), id)).collect();
        sessions.sort_unstable_by(|a, b| b.cmp(a));
        for (target, id) in sessions.into_iter().take(RECALL_ANY_CLIENTS_MAX) {
            let spare = (target / 2).min(target.saturating_sub(PRESSED_SLOTS_MIN));
            let less = excess.min(spare as usize) as u32;
            let Some(session) = self.sessions.get_mut(id) else { continue };
            if less == 0 {
                return;
            }
            session.slots.set_target(target - less);
            let target = session.slots.target_highest();
            self.effects.push(Effect::RecallSlots { session: id, target });
            excess -= less as usize;
        }
    }
}
