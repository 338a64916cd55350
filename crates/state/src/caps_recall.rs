//! Conflicts with capabilities: who must give back what, how long is waited, and what happens to those who do not.

use holdfast_base::limits::RECALL_RETRY_MS;
use holdfast_base::{CapSet, ClientId, FileKey, Instant, in_doubt_ms};

use crate::caps::CapRecall;
use crate::caps_set::Forbidden;
use crate::contention::{Contention, RecallAnswer};
use crate::deed::{Deed, EntryKinds};
use crate::effect::Effect;
use crate::engine::Engine;
use crate::flushing::Flushing;

impl Engine {
    /// Has recalled what of others' stands in the way of what a client wants of an object: capabilities and
    /// delegations. Nothing exclusive is fought for where something was recalled a moment ago, and nothing at all for who
    /// is at a bound.
    pub fn caps_contend(
        &mut self,
        file: FileKey,
        want: CapSet,
        client: ClientId,
        now: Instant,
    ) -> Contention {
        if !self.has_room_for_caps(client, file) {
            // It would be given nothing of what others give back.
            return Contention::Clear;
        }
        let want = if self.caps.is_recent(file, now) { want.shared() } else { want };
        let by_caps = self.contend_with_caps(file, Forbidden::beside(want), Some(client), now);
        let wants_all_names = want.contains(CapSet::FILE_X);
        let by_names = if wants_all_names { self.contend_with_names(file, Some(client), now) } else { None };
        let mut earliest = [by_caps, by_names].into_iter().flatten().min();
        for deed in deeds_of(want).into_iter().flatten() {
            let since = self.contend_with_delegations(file, deed, Some(client), now);
            earliest = [earliest, since].into_iter().flatten().min();
        }
        earliest.map_or(Contention::Clear, |since| Contention::Recalling { since })
    }

    /// Has recalled what stands in the way of a deed that nobody can hold up, or that has been done already. Of
    /// capabilities that is everything, and not only what the deed is in conflict with: what guards them against such
    /// deeds is one guard, and has broken; what would be left nothing guards, and whoever waits for that guard to go,
    /// in the kernel, would wait as long as anything were left.
    pub fn contend_outside(&mut self, file: FileKey, deed: Deed, now: Instant) {
        self.contend_with_delegations(file, deed, None, now);
        self.contend_with_caps(file, Forbidden::ALL, None, now);
        self.contend_with_names(file, None, now);
    }

    /// A local process may wait in the kernel for whatever is being recalled of a file, also what had been before it came.
    pub fn waits_outside(&mut self, file: FileKey, now: Instant) {
        self.delegations_wait_outside(file, now);
        for hold in self.caps.by_file.get_mut(&file).into_iter().flatten() {
            hold.recall.iter_mut().for_each(|recall| recall.flushing.waits_outside(now));
        }
    }

    /// Whether others hold what stands in the way of a deed; begins nothing.
    pub(crate) fn is_contended_by_caps(&self, file: FileKey, deed: Deed, by: Option<ClientId>) -> bool {
        let holds = self.caps.by_file.get(&file).map(Vec::as_slice).unwrap_or_default();
        holds.iter().any(|hold| Some(hold.client) != by && deed.conflicts_with_caps(hold.all()))
    }

    /// Recalls what of others' capabilities is forbidden; since when, at the longest, it is waited for.
    pub(crate) fn contend_with_caps(
        &mut self,
        file: FileKey,
        forbidden: Forbidden,
        by: Option<ClientId>,
        now: Instant,
    ) -> Option<Instant> {
        let holds = self.caps.by_file.get(&file)?;
        let is_in_way =
            |hold: &&crate::caps::CapHold| Some(hold.client) != by && forbidden.touches(hold.all());
        let others: Vec<_> = holds.iter().filter(is_in_way).map(|hold| hold.client).collect();
        self.note_entries_taken(file, forbidden, by, now);
        self.expire_lapsed(others.clone(), now);
        let waited =
            others.into_iter().filter_map(|client| self.contend_with_hold(client, file, forbidden, now));
        waited.min()
    }

    /// The same of those whose lease has not run out, and of nobody else.
    pub(crate) fn contend_with_living_caps(
        &mut self,
        file: FileKey,
        forbidden: Forbidden,
        by: Option<ClientId>,
        now: Instant,
    ) -> Option<Instant> {
        let holds = self.caps.by_file.get(&file)?;
        let is_in_way = |hold: &&crate::caps::CapHold| {
            Some(hold.client) != by && forbidden.touches(hold.all()) && !self.is_lapsed(hold.client, now)
        };
        let others: Vec<_> = holds.iter().filter(is_in_way).map(|hold| hold.client).collect();
        self.note_entries_taken(file, forbidden, by, now);
        others.into_iter().filter_map(|client| self.contend_with_hold(client, file, forbidden, now)).min()
    }

    pub(crate) fn contend_with_hold(
        &mut self,
        client: ClientId,
        file: FileKey,
        forbidden: Forbidden,
        now: Instant,
    ) -> Option<Instant> {
        if self.is_leaving(client) {
            // Its record could not be taken away, and what it holds is nobody's yet.
            return Some(now);
        }
        let hold = self.caps.hold_mut(client, file)?;
        if hold.offered.is_some_and(|(offered, _)| forbidden.touches(offered)) {
            hold.offered = None;
        }
        if !forbidden.touches(hold.held) {
            let held = hold.held;
            self.caps.note_recall(file, now);
            // The offer may have been all there was.
            self.caps_leave(client, file, held, now);
            return None;
        }
        match hold.recall {
            Some(recall) if recall.until <= now => {
                (!self.caps_recall_over(client, file, now)).then_some(recall.since)
            }
            Some(recall) if !forbidden.touches(recall.keep) => Some(recall.since),
            Some(recall) => {
                hold.recall = Some(CapRecall { keep: forbidden.leaves(recall.keep), ..recall });
                self.send_cap_recall(client, file);
                Some(recall.since)
            }
            None => {
                let keep = forbidden.leaves(hold.held);
                self.caps.note_recall(file, now);
                self.begin_cap_recall(client, file, keep, now);
                Some(now)
            }
        }
    }

    /// Counts as given back what is being recalled for a change, of those who wait to change something themselves: what
    /// they keep beside writers they cannot give back sooner. Returns whether there was any.
    pub fn caps_yield(
        &mut self,
        file: FileKey,
        deed: Deed,
        (by, waiting): (ClientId, &[ClientId]),
        now: Instant,
    ) -> bool {
        let holds = self.caps.by_file.get(&file).map(Vec::as_slice).unwrap_or_default();
        let is_in_way = |hold: &&crate::caps::CapHold| {
            hold.client != by && waiting.contains(&hold.client) && deed.conflicts_with_caps(hold.held)
        };
        let yields = |hold: &crate::caps::CapHold| {
            let keep = hold.recall.filter(|_| hold.is_beside_writers)?.keep;
            // What is held exclusively has to be flushed.
            (!hold.held.without(keep).is_exclusive()).then_some((hold.client, hold.held.and(keep)))
        };
        let yielded: Vec<_> = holds.iter().filter(is_in_way).filter_map(yields).collect();
        for (client, left) in &yielded {
            self.caps_leave(*client, file, *left, now);
        }
        !yielded.is_empty()
    }

    /// Asks for all but `keep`, of what is not being recalled yet.
    pub(crate) fn begin_cap_recall(&mut self, client: ClientId, file: FileKey, keep: CapSet, now: Instant) {
        let until = now.after_ms(self.recall_ms());
        let Some(hold) = self.caps.hold_mut(client, file) else { return };
        let flushing = Flushing::default();
        hold.recall = Some(CapRecall {
            keep,
            told: keep,
            since: now,
            until,
            retry_at: None,
            is_heard: false,
            flushing,
        });
        self.caps.recalls.insert((client, file));
        self.send_cap_recall(client, file);
    }

    /// Asks back what is being recalled; each time under another number, so that a grant that is still under way is
    /// seen to be older.
    fn send_cap_recall(&mut self, client: ClientId, file: FileKey) {
        let seq = self.caps.next_seq();
        let Some(hold) = self.caps.hold_mut(client, file) else { return };
        let Some(recall) = &mut hold.recall else { return };
        (hold.seq, recall.retry_at, recall.is_heard) = (seq, None, false);
        let keep = recall.keep;
        self.effects.push(Effect::CapRecall { client, file, keep, seq });
    }

    /// What came of a recall sent. Accepted, the release is awaited; else it is sent again.
    pub fn caps_recall_answered(
        &mut self,
        client: ClientId,
        (file, seq): (FileKey, u64),
        answer: RecallAnswer,
        now: Instant,
    ) {
        let Some(hold) = self.caps.hold_mut(client, file).filter(|hold| hold.seq == seq) else { return };
        let Some(recall) = &mut hold.recall else { return };
        recall.is_heard = answer == RecallAnswer::Accepted;
        recall.retry_at = (!recall.is_heard).then(|| now.after_ms(RECALL_RETRY_MS));
    }

    /// A client can be called from now on, and so be given something; what could not be recalled waits for
    /// [`Engine::caps_path`].
    pub fn caps_reachable(&mut self, client: ClientId) {
        if let Some(of) = self.caps.clients.get_mut(&client) {
            of.is_reachable = true;
        }
    }

    /// Whether a client can be called. What could not be recalled is recalled now.
    pub fn caps_path(&mut self, client: ClientId, is_up: bool) {
        let Some(of) = self.caps.clients.get_mut(&client) else { return };
        of.is_reachable = is_up;
        if !is_up {
            return;
        }
        let due: Vec<_> = self.caps.recalls.iter().filter(|(of, _)| *of == client).copied().collect();
        for (client, file) in due {
            if self.caps.hold(client, file).and_then(|hold| hold.recall).is_some_and(|r| r.retry_at.is_some())
            {
                self.send_cap_recall(client, file);
            }
        }
    }

    /// A client has changed something, by so many bytes: while it flushes what it did under capabilities that are being recalled, its
    /// time to release them goes on, within bounds. What comes from a client that has not heard of a recall is no flush for it.
    pub fn caps_flushed(&mut self, client: ClientId, bytes: u64, now: Instant) {
        if self.caps.recalls.is_empty() {
            return;
        }
        let recall_ms = self.recall_ms();
        let from = (client, FileKey(0));
        let to = (client, FileKey(u128::MAX));
        for (_, file) in self.caps.recalls.range(from..=to).copied().collect::<Vec<_>>() {
            let Some(recall) = self.caps.hold_mut(client, file).and_then(|hold| hold.recall.as_mut()) else {
                continue;
            };
            let (times, counted) = ((recall.since, recall.until), if recall.is_heard { bytes } else { 0 });
            recall.until = recall.flushing.come(counted, times, (now, recall_ms));
        }
    }

    /// Whether anything that a client holds is being recalled.
    #[must_use]
    pub fn is_asked_back(&self, client: ClientId) -> bool {
        self.caps.recalls.range((client, FileKey(0))..=(client, FileKey(u128::MAX))).next().is_some()
    }

    /// Milliseconds in which capabilities are given back, once asked for: no more than a lease.
    #[must_use]
    pub fn caps_recall_ms(&self) -> u64 {
        self.recall_ms().min(self.config.lease_ms)
    }

    /// Whether all that a client holds may be taken from it soon, for a recall that it has not heard of or does not follow.
    /// It is told so by each answer to SEQUENCE, and does not count that as a word that it still holds it: so it relies on
    /// nothing any more when it is taken.
    #[must_use]
    pub fn are_caps_in_doubt(&self, client: ClientId, now: Instant) -> bool {
        if self.caps.recalls.is_empty() {
            return false;
        }
        let doubt_ms = in_doubt_ms(self.caps_recall_ms());
        let mut its = self.caps.recalls.range((client, FileKey(0))..=(client, FileKey(u128::MAX)));
        its.any(|(client, file)| {
            let recall = self.caps.hold(*client, *file).and_then(|hold| hold.recall);
            recall.is_some_and(|recall| recall.until.ms_since(now) <= doubt_ms)
        })
    }

    /// Whether the time of any recall of a client's is over.
    pub(crate) fn caps_is_overdue(&self, client: ClientId, now: Instant) -> bool {
        if self.caps.recalls.is_empty() {
            return false;
        }
        let mut its = self.caps.recalls.range((client, FileKey(0))..=(client, FileKey(u128::MAX)));
        its.any(|(client, file)| {
            let recall = self.caps.hold(*client, *file).and_then(|hold| hold.recall);
            recall.is_some_and(|recall| recall.until <= now)
        })
    }

    /// The time of a recall is over, and nothing was released. False when that could not be put on record, and while a batch of the
    /// client is being executed; no other is begun ([`Engine::caps_executes`]).
    fn caps_recall_over(&mut self, client: ClientId, file: FileKey, now: Instant) -> bool {
        if self.caps_is_executing(client) {
            return false;
        }
        if let Some((held, recall)) = self.caps.hold(client, file).and_then(|h| Some((h.held, h.recall?))) {
            let what = held.without(recall.keep);
            let (waited_ms, is_heard) = (now.ms_since(recall.since), recall.is_heard);
            self.effects.push(Effect::CapRecallOver { client, file, what, waited_ms, is_heard });
        }
        self.caps_revoke(client, now)
    }

    /// Takes all capabilities from a client that did not release in time. It is in a new epoch, and must say HELLO before
    /// it is granted anything. False when that could not be put on record: it keeps them till then.
    pub fn caps_revoke(&mut self, client: ClientId, now: Instant) -> bool {
        let holds = self.caps.clients.get(&client).and_then(|of| of.files.first().copied());
        let Some(file) = holds else { return true };
        // Before anybody else has what is taken: after a restart the client must not reclaim it.
        if !self.witness.note_losses(client, true) {
            return false;
        }
        let Some(of) = self.caps.clients.get_mut(&client) else { return true };
        of.epoch += 1;
        of.is_loss_unheard = true;
        self.effects.push(Effect::StateRevoked { client, file });
        self.effects.push(Effect::CapsLost { client });
        self.caps_drop_all(client, now);
        true
    }

    /// Revokes from those who did not release in time, and sends again what was not heard.
    pub(crate) fn tick_caps(&mut self, now: Instant) {
        self.caps.recent.sweep(now);
        self.caps.names.sweep(now);
        for (client, file) in self.caps.recalls.iter().copied().collect::<Vec<_>>() {
            let Some(recall) = self.caps.hold(client, file).and_then(|hold| hold.recall) else { continue };
            let is_taken = recall.until <= now && self.caps_recall_over(client, file, now);
            if !is_taken && recall.retry_at.is_some_and(|at| at <= now) {
                self.send_cap_recall(client, file);
            }
        }
    }
}

/// Deeds that recall the delegations that what is wanted cannot stand beside.
const fn deeds_of(want: CapSet) -> [Option<Deed>; 2] {
    let changes_name =
        want.contains(CapSet::AUTH_X) || want.contains(CapSet::LINK_X) || want.contains(CapSet::XATTR_X);
    match (changes_name, want.contains(CapSet::FILE_X), want.contains(CapSet::FILE_S)) {
        (true, _, _) => [Some(Deed::ChangeName), None],
        (false, true, _) => [Some(Deed::OpenWrite), Some(Deed::ChangeEntries(EntryKinds::ALL))],
        (false, false, true) => [Some(Deed::OpenRead), None],
        (false, false, false) => [None, None],
    }
}
