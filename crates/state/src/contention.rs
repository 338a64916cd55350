//! Conflicts with delegations: who must give back what, how long is waited, and what happens to those who do not.

use std::collections::VecDeque;

use holdfast_base::limits::{
    RECALL_RETRY_MS, RECALL_UNKNOWN_MAX, RECALL_UNSENT_MAX, RECENT_RECALL_MS, RECENT_RECALLS_MAX,
};
use holdfast_base::{ClientId, FileKey, Instant};
use rustc_hash::FxHashMap;

use crate::client::{CallbackPath, ClientIncarnation};
use crate::deed::Deed;
use crate::delegation::{DelegationToken, Recall};
use crate::effect::Effect;
use crate::engine::{Engine, Kind, Standing, StateKey};
use crate::flushing::Flushing;
use crate::names::Dialect;

/// Whether a deed may be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contention {
    /// Nothing stands in the way.
    Clear,
    /// Something does and is being recalled: wait for [`Effect::DelegationEnded`], or have the client come again.
    Recalling {
        /// Since when, at the longest.
        since: Instant,
    },
}

/// What came of a recall sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecallAnswer {
    /// The holder has heard.
    Accepted,
    /// The holder knows no such delegation (`NFS4ERR_BAD_STATEID`, `NFS4ERR_BADHANDLE`). Of 4.0 the engine sees itself
    /// whether the reply that brings it may still be under way.
    Unknown,
    /// The same, and the holder is not known to have the reply that brings it (4.1: it has not used the slot since).
    Overtook,
    /// The holder answered something else: it was reached, and may do better when it is asked again.
    Refused,
    /// The holder could not be reached.
    Unreachable,
    /// It could not be sent just now, which says nothing of the holder.
    NotSent,
}

impl RecallAnswer {
    /// What an answer means if the reply that tells of the delegation may still be on its way.
    #[must_use]
    pub fn of_one_not_told(self) -> Self {
        if self == Self::Unknown { Self::Overtook } else { self }
    }
}

/// Files recalled of late, oldest first: since the recall began, or came to its end. Whoever had something recalled and
/// asks again only now and then is to find it free, however long that took.
#[derive(Debug, Default)]
pub(crate) struct RecentRecalls {
    pub(crate) at: FxHashMap<FileKey, Instant>,
    pub(crate) order: VecDeque<(FileKey, Instant)>,
}

impl RecentRecalls {
    pub(crate) fn note(&mut self, file: FileKey, now: Instant) {
        if self.at.insert(file, now) == Some(now) {
            // Several delegations of one file at once.
            return;
        }
        self.order.push_back((file, now));
        while self.order.len() > RECENT_RECALLS_MAX {
            self.forget_first();
        }
    }

    pub(crate) fn is_recent(&self, file: FileKey, now: Instant) -> bool {
        self.at.get(&file).is_some_and(|at| now.ms_since(*at) < RECENT_RECALL_MS)
    }

    pub(crate) fn sweep(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(_, at)| now.ms_since(*at) >= RECENT_RECALL_MS) {
            self.forget_first();
        }
    }

    fn forget_first(&mut self) {
        let Some((file, at)) = self.order.pop_front() else { return };
        if self.at.get(&file) == Some(&at) {
            self.at.remove(&file);
        }
    }
}

impl Engine {
    /// Asks for leave to do something to a file. What others hold that excludes it is recalled; what is only offered
    /// to them is not granted, but for what they reclaim; a holder whose lease ran out, or that had its time to return, loses
    /// it on the spot.
    /// One's own delegations are never in the way. `by` is `None` for those without a client id.
    pub fn contend(&mut self, file: FileKey, deed: Deed, by: Option<ClientId>, now: Instant) -> Contention {
        self.contend_as(file, deed, (by, by), now)
    }

    /// As [`Engine::contend`], where a client's delegations may be in its own way, for its mounts may know nothing of
    /// each other, and its capabilities, which belong to one mount, are not: `by` for the one, and for the other.
    pub(crate) fn contend_as(
        &mut self,
        file: FileKey,
        deed: Deed,
        by: (Option<ClientId>, Option<ClientId>),
        now: Instant,
    ) -> Contention {
        if !self.is_promised(file) {
            return Contention::Clear;
        }
        if let Some(since) = self.contend_with_the_living(file, deed, by, now) {
            return Contention::Recalling { since };
        }
        let delegations = self.contend_with_delegations(file, deed, by.0, now);
        let caps = self.contend_with_caps(file, deed.forbids(), by.1, now);
        let earliest = [delegations, caps].into_iter().flatten().min();
        earliest.map_or(Contention::Clear, |since| Contention::Recalling { since })
    }

    /// The same of those whose lease has not run out. While these are waited for nobody else loses anything: the deed may
    /// never be done, and who is away may come back.
    pub(crate) fn contend_with_the_living(
        &mut self,
        file: FileKey,
        deed: Deed,
        by: (Option<ClientId>, Option<ClientId>),
        now: Instant,
    ) -> Option<Instant> {
        if !self.is_promised(file) {
            return None;
        }
        let mut in_way = self.in_way(file, deed, by.0);
        in_way.retain(|key| self.states.get(key.0).is_some_and(|state| !self.is_lapsed(state.client, now)));
        let delegations = in_way.into_iter().filter_map(|key| self.contend_with(key, deed, now)).min();
        let caps = self.contend_with_living_caps(file, deed.forbids(), by.1, now);
        [delegations, caps].into_iter().flatten().min()
    }

    /// Whether anybody holds or is offered a delegation or a capability: of most files nobody does.
    pub(crate) fn is_promised(&self, file: FileKey) -> bool {
        self.files.get(&file).is_some_and(|of| !of.delegations.is_empty())
            || self.caps.by_file.contains_key(&file)
    }

    /// Recalls the delegations in a deed's way; since when, at the longest, they are waited for.
    pub(crate) fn contend_with_delegations(
        &mut self,
        file: FileKey,
        deed: Deed,
        by: Option<ClientId>,
        now: Instant,
    ) -> Option<Instant> {
        let in_way = self.in_way(file, deed, by);
        self.expire_lapsed(
            in_way.iter().filter_map(|key| Some(self.states.get(key.0)?.client)).collect(),
            now,
        );
        in_way.into_iter().filter_map(|key| self.contend_with(key, deed, now)).min()
    }

    /// Whether anything is in the way of a deed; begins nothing.
    #[must_use]
    pub fn is_contended(&self, file: FileKey, deed: Deed, by: Option<ClientId>) -> bool {
        !self.in_way(file, deed, by).is_empty() || self.is_contended_by_caps(file, deed, by)
    }

    /// The delegations in a deed's way, offers included.
    fn in_way(&self, file: FileKey, deed: Deed, by: Option<ClientId>) -> Vec<StateKey> {
        let Some(file) = self.files.get(&file) else { return Vec::new() };
        let is_in_way = |key: &StateKey| {
            let Some(state) = self.states.get(key.0) else { return false };
            let Kind::Delegation(delegation) = &state.kind else { return false };
            Some(state.client) != by && delegation.kinds().any(|kind| deed.conflicts(kind))
        };
        file.delegations.iter().copied().filter(is_in_way).collect()
    }

    /// Since when the delegation is being recalled; `None` when it is not in the way any more.
    fn contend_with(&mut self, key: StateKey, deed: Deed, now: Instant) -> Option<Instant> {
        let state = self.states.get(key.0).filter(|state| state.standing == Standing::Good)?;
        let (client, file) = (state.client, state.file);
        if self.is_leaving(client) {
            // Its record could not be taken away, and what it holds is nobody's yet.
            return Some(now);
        }
        let delegation = self.delegation(key).ok()?;
        let (granted, offered, recall) = (delegation.granted, delegation.offered, delegation.recall);
        if offered.is_some_and(|(kind, _)| deed.conflicts(kind)) {
            self.recent_recalls.note(file, now);
            let delegation = self.delegation_mut(key).ok()?;
            if delegation.is_due {
                delegation.is_unwelcome = true;
                return Some(now);
            }
            self.withdraw_offer(key, now);
        }
        granted.filter(|kind| deed.conflicts(*kind))?;
        match recall {
            Some(recall) if recall.until <= now => {
                (!self.revoke_delegation(key, now)).then_some(recall.since)
            }
            Some(recall) => Some(recall.since),
            None => {
                self.begin_recall(key, deed == Deed::Truncate, now);
                Some(now)
            }
        }
    }

    /// Asks one delegation back though nobody's deed stands against it: its client may not know that it has it.
    pub fn recall(&mut self, token: DelegationToken, now: Instant) {
        let key = token.key();
        let is_good = self.state(key).is_ok_and(|state| state.standing == Standing::Good);
        if is_good && self.delegation(key).is_ok_and(|of| of.granted.is_some() && of.recall.is_none()) {
            self.begin_recall(key, false, now);
        }
    }

    /// Asks a delegation back.
    pub(crate) fn begin_recall(&mut self, key: StateKey, truncates: bool, now: Instant) {
        let until = now.after_ms(self.recall_ms());
        let Ok(file) = self.state(key).map(|state| state.file) else { return };
        let Ok(delegation) = self.delegation_mut(key) else { return };
        let recall = Recall {
            since: now,
            until,
            retry_at: None,
            unknown: 0,
            is_accepted: false,
            is_sent: false,
            truncates,
            flushing: Flushing::default(),
        };
        // What is being given up is not made better.
        delegation.offered = None;
        delegation.recall = Some(recall);
        self.recalls.insert(key);
        self.recent_recalls.note(file, now);
        self.send_recall(key);
    }

    fn send_recall(&mut self, key: StateKey) {
        let Ok(stateid) = self.stateid(key) else { return };
        let Some(state) = self.states.get_mut(key.0) else { return };
        let (client, file) = (state.client, state.file);
        let Kind::Delegation(delegation) = &mut state.kind else { return };
        let Some(recall) = &mut delegation.recall else { return };
        recall.retry_at = None;
        let truncates = recall.truncates;
        self.effects.push(Effect::Recall { client, token: key.delegation(), stateid, file, truncates });
    }

    /// What the holder answered to a recall. Without acceptance it is sent again, until its time is over. Any answer
    /// shows that callbacks reach the client.
    pub fn recall_answered(&mut self, token: DelegationToken, answer: RecallAnswer, now: Instant) {
        let key = token.key();
        let Ok(client) = self.state(key).map(|state| state.client) else { return };
        let is_up =
            self.clients.by_id.get(&client).is_some_and(|client| client.callbacks == CallbackPath::Up);
        let answer = match answer {
            RecallAnswer::Unknown if !self.is_told_of(key) => RecallAnswer::Overtook,
            answer => answer,
        };
        let recall_ms = self.recall_ms();
        let is_reached = !matches!(answer, RecallAnswer::Unreachable | RecallAnswer::NotSent);
        if is_reached && !is_up {
            self.callback_path(client, true);
        }
        let Ok(delegation) = self.delegation_mut(key) else { return };
        let Some(recall) = &mut delegation.recall else { return };
        recall.is_sent |= answer != RecallAnswer::NotSent;
        match answer {
            RecallAnswer::Accepted => {
                recall.is_accepted = true;
                recall.retry_at = None;
            }
            RecallAnswer::Unknown => {
                recall.unknown += 1;
                // Its time is over, so the next conflict or the tick revokes it: that has to be put on record, and whoever
                // brings an answer must not wait for a disk.
                let is_over = recall.unknown >= RECALL_UNKNOWN_MAX;
                recall.until = if is_over { now } else { recall.until };
                recall.retry_at = (!is_over).then(|| now.after_ms(RECALL_RETRY_MS));
            }
            // It may use what it is about to be told of for as long as anybody may who is asked to give something back.
            RecallAnswer::Overtook | RecallAnswer::Refused => {
                recall.retry_at = Some(now.after_ms(RECALL_RETRY_MS));
            }
            // Who has not been asked gives nothing back: its time has not begun, within bounds.
            RecallAnswer::NotSent => {
                if !recall.is_sent {
                    let bound = recall.since.after_ms(recall_ms.saturating_mul(RECALL_UNSENT_MAX));
                    recall.until = recall.until.max(now.after_ms(recall_ms).min(bound));
                }
                recall.retry_at = Some(now.after_ms(RECALL_RETRY_MS));
            }
            RecallAnswer::Unreachable => {
                recall.retry_at = Some(now.after_ms(RECALL_RETRY_MS));
                self.callback_path(client, false);
            }
        }
    }

    /// Whether callbacks reach a client, as the edge found out. A 4.0 client counts as unreachable until this says
    /// otherwise; a session of 4.1 recovers by a new connection too. What could not be recalled is recalled now.
    pub fn callback_path(&mut self, id: ClientId, is_up: bool) {
        let Some(client) = self.clients.by_id.get_mut(&id) else { return };
        client.callbacks = if is_up { CallbackPath::Up } else { CallbackPath::Down };
        for session in &client.sessions {
            if let Some(session) = self.sessions.get_mut(*session) {
                session.is_callback_down = !is_up;
            }
        }
        if !is_up {
            return;
        }
        let is_due = |key: &&StateKey| {
            let is_its = self.states.get(key.0).is_some_and(|state| state.client == id);
            is_its && self.delegation(**key).is_ok_and(|d| d.recall.is_some_and(|r| r.retry_at.is_some()))
        };
        for key in self.recalls.iter().filter(is_due).copied().collect::<Vec<_>>() {
            self.send_recall(key);
        }
    }

    /// So many bytes of a file came from a client, or it is put on disk for it: while it flushes what it kept under a delegation of
    /// this file that is being recalled, or under capabilities of any, its time to return them goes on, within bounds.
    pub fn holder_flushed(&mut self, file: FileKey, client: ClientId, bytes: u64, now: Instant) {
        self.caps_flushed(client, bytes, now);
        let recall_ms = self.recall_ms();
        let Some(key) = self.delegation_on(client, file) else { return };
        let Ok(delegation) = self.delegation_mut(key) else { return };
        if let Some(recall) = &mut delegation.recall {
            let (times, counted) = ((recall.since, recall.until), if recall.is_accepted { bytes } else { 0 });
            recall.until = recall.flushing.come(counted, times, (now, recall_ms));
        }
    }

    /// A local process may wait in the kernel from now on for what is being recalled of a file.
    pub(crate) fn delegations_wait_outside(&mut self, file: FileKey, now: Instant) {
        let of_file = self.files.get(&file).map(|file| file.delegations.to_vec());
        for key in of_file.unwrap_or_default() {
            if let Ok(delegation) = self.delegation_mut(key)
                && let Some(recall) = &mut delegation.recall
            {
                recall.flushing.waits_outside(now);
            }
        }
    }

    /// Takes a delegation from a client that did not return it. Its name stays, so that the client learns of it. Whether
    /// it is taken: not before that is on record.
    fn revoke_delegation(&mut self, key: StateKey, now: Instant) -> bool {
        if let Ok(file) = self.state(key).map(|state| state.file) {
            self.recent_recalls.note(file, now);
        }
        self.revoke_key(key, Standing::DelegationRevoked, now)
    }

    /// Revokes what was not returned in time, and sends again what was not heard.
    pub(crate) fn tick_recalls(&mut self, now: Instant) {
        self.recent_recalls.sweep(now);
        for key in self.recalls.iter().copied().collect::<Vec<_>>() {
            let Ok(Some(recall)) = self.delegation(key).map(|delegation| delegation.recall) else { continue };
            if recall.until <= now {
                self.revoke_delegation(key, now);
            } else if recall.retry_at.is_some_and(|at| at <= now) {
                self.send_recall(key);
            }
        }
    }

    /// Whether a client may turn out to be one that can be asked: 4.0's way to it is tried once it has confirmed where it
    /// is to be called, and it need not wait for that before it reclaims.
    pub(crate) fn may_call_back(&self, id: ClientId) -> bool {
        let is_untried = |client: &ClientIncarnation| {
            client.dialect() == Dialect::V40 && client.callbacks == CallbackPath::Untried
        };
        self.can_call_back(id) || self.clients.by_id.get(&id).is_some_and(is_untried)
    }

    /// Whether a client was called and could not be reached, as far as the edge has told. What was not tried is not down.
    #[must_use]
    pub fn is_callback_path_down(&self, id: ClientId) -> bool {
        self.clients.by_id.get(&id).is_some_and(|client| client.callbacks == CallbackPath::Down)
    }

    /// Whether a client can be asked to give something back.
    pub(crate) fn can_call_back(&self, id: ClientId) -> bool {
        let Some(client) = self.clients.by_id.get(&id) else { return false };
        match client.dialect() {
            Dialect::V40 => client.callbacks == CallbackPath::Up,
            Dialect::V41 => {
                client.sessions.iter().filter_map(|id| self.sessions.get(*id)).any(|s| s.can_call_back())
            }
        }
    }
}
