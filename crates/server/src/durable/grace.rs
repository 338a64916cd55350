//! What is due each second, and the grace period: its report, what it asks for, and its end.

use std::collections::BTreeMap;
use std::sync::Weak;

use holdfast_base::limits::REPLY_CACHE_SECONDS;
use holdfast_base::{ClientId, Instant};
use holdfast_export::Force;
use holdfast_manager::Unreclaimed;
use holdfast_recovery::{ClientName, ClientRecord, Grace, GraceEffect, RecordChange};

use super::known::Known;
use super::{Durable, Inner};

/// How the grace period stands.
pub(crate) struct GraceReport {
    pub(crate) is_over: bool,
    /// When it ends at the latest; `None` when that is being done.
    pub(crate) ends_at: Option<Instant>,
    /// Names of clients that may reclaim and have not said that they are done.
    pub(crate) awaited: Vec<Vec<u8>>,
    /// Whether some may reclaim who can never say so.
    pub(crate) has_untold: bool,
}

impl Inner {
    /// There is none, as nothing was lost.
    pub(super) fn no_grace(&mut self) {
        self.grace = Grace::over(self.clients.records());
    }
}

impl Durable {
    /// The grace that the state engine obeys at first. Its end is always told, never left to a clock: marks must be
    /// stored before anything new is granted.
    pub fn grace(&self) -> holdfast_state::Grace {
        if self.inner.lock().grace.is_over() {
            holdfast_state::Grace::Over
        } else {
            holdfast_state::Grace::Until(Instant(u64::MAX))
        }
    }

    /// Whether the grace period is over.
    pub fn is_grace_over(&self) -> bool {
        self.inner.lock().grace.is_over()
    }

    /// What clients of NFSv4 may still reclaim, and is to be respected meanwhile.
    pub fn unreclaimed(&self) -> Unreclaimed {
        let inner = self.inner.lock();
        match (inner.grace.awaits_caps(), inner.grace.awaited().next()) {
            (true, _) => Unreclaimed::Capabilities,
            (false, Some(_)) => Unreclaimed::Delegations,
            (false, None) => Unreclaimed::Nothing,
        }
    }

    /// How the grace period stands.
    pub(crate) fn grace_report(&self) -> GraceReport {
        let inner = self.inner.lock();
        let grace = &inner.grace;
        GraceReport {
            is_over: grace.is_over(),
            ends_at: grace.deadline(),
            awaited: grace.awaited().map(|name| name.owner.clone()).collect(),
            has_untold: grace.has_untold(),
        }
    }

    /// What is due about once a second. Waits for the disk when there is something to store or to force.
    pub fn tick(&self, now: Instant) {
        // Until then clients claim by how the life before this one ended.
        if self.is_grace_over() {
            self.ledger.lives();
        }
        self.note_signs_of_life();
        self.look_who_is_done(now);
        self.settle_owed();
        if let Some(nfs4) = self.nfs4.get().and_then(Weak::upgrade) {
            self.settle_doubts(|client| nfs4.record_losses(client));
        }
        // The engine may be held by somebody who waits for the records: it is asked before they are looked at.
        let is_grace_obeyed = self.is_grace_obeyed(now);
        let effects = {
            let mut inner = self.inner.lock();
            let unstored = std::mem::take(&mut inner.unstored);
            if !unstored.is_empty() {
                vec![GraceEffect::Store(unstored)]
            } else if inner.grace.is_over() && is_grace_obeyed {
                vec![GraceEffect::Ended]
            } else {
                inner.grace.tick(now)
            }
        };
        self.run(effects);
        if now.ms_since(self.started_at) > REPLY_CACHE_SECONDS * 1000 {
            self.ledger.give_up_calls();
        }
        if let Err(error) = self.ledger.force() {
            tracing::error!(%error, "the journal of replies failed: retries after a crash may run twice");
        }
    }

    /// Ends grace at an administrator's word; `false` when it is over. Waits for the disk. It has not ended yet when what was
    /// to be stored could not be.
    pub(crate) fn end_grace(&self) -> bool {
        let effects = {
            let mut inner = self.inner.lock();
            if inner.grace.is_over() {
                return false;
            }
            inner.grace.end_now()
        };
        tracing::warn!("grace is ended by an administrator: who has not reclaimed loses what it had");
        self.run(effects);
        true
    }

    /// Whether new state is still refused: where grace has ended, its end has not been told, as the lock manager's records
    /// could not be stored, or a planned restart came before the word.
    fn is_grace_obeyed(&self, now: Instant) -> bool {
        self.nfs4
            .get()
            .and_then(Weak::upgrade)
            .is_some_and(|nfs4| nfs4.inspect(|engine| engine.grace().is_on(now)))
    }

    /// A client that goes on with a session of the server's former life is there, though it made none anew.
    fn note_signs_of_life(&self) {
        let Some(nfs4) = self.nfs4.get().and_then(Weak::upgrade) else { return };
        let ids: Vec<_> = {
            let inner = self.inner.lock();
            let sessions = inner.sessions.values().filter(|_| !inner.grace.is_over());
            sessions.map(|session| (session.id, session.client_id)).collect()
        };
        if ids.is_empty() {
            return;
        }
        let alive = nfs4.inspect(|engine| {
            let is_used = |id| engine.sessions().get(id).is_some_and(|s| s.last_used() > self.started_at);
            ids.into_iter().filter(|(id, _)| is_used(*id)).map(|(_, client)| client).collect::<Vec<_>>()
        });
        let mut inner = self.inner.lock();
        for client in alive {
            let named =
                inner.clients.get(client).map(|known| (known.record.name.clone(), known.record.verifier));
            if let Some((name, verifier)) = named {
                // Under its own verifier a client that returns ends nothing.
                let _ = inner.grace.returned(&name, verifier);
            }
        }
    }

    /// Looks which clients of 4.0 have come to the end of reclaiming.
    fn look_who_is_done(&self, now: Instant) {
        let asked: Vec<(ClientName, ClientId)> = {
            let inner = self.inner.lock();
            let id = |name: &ClientName| Some((name.clone(), inner.clients.named(name)?.record.client_id));
            inner.grace.unfinished().filter_map(id).collect()
        };
        let Some(nfs4) = self.nfs4.get().and_then(Weak::upgrade).filter(|_| !asked.is_empty()) else {
            return;
        };
        let heard: BTreeMap<_, _> = nfs4.inspect(|engine| {
            let heard = |(name, id): (ClientName, ClientId)| Some((name, engine.last_heard_of(id)?));
            asked.into_iter().filter_map(heard).collect()
        });
        self.unmark_done(now, |name| heard.get(name).copied());
    }

    /// Takes the marks of those that are done by now: they agree with the server again, as if they had said so. Waits for the disk.
    pub(super) fn unmark_done(&self, now: Instant, heard: impl Fn(&ClientName) -> Option<Instant>) {
        let _turn = self.turn.lock();
        let done: Vec<_> = {
            let mut inner = self.inner.lock();
            let names = inner.grace.done_reclaiming((now, self.reclaim_pause_ms), heard);
            let records = names.iter().filter_map(|name| Some(inner.clients.named(name)?.record.clone()));
            let marked = records.filter(|record| record.missed_grace);
            marked.map(|record| ClientRecord { missed_grace: false, ..record }).collect()
        };
        if done.is_empty() {
            return;
        }
        let changes: Vec<_> = done.iter().cloned().map(RecordChange::Client).collect();
        let stored = self.records.store(&changes);
        let mut inner = self.inner.lock();
        if let Err(error) = stored {
            inner.owed.tell(&error);
            return done.iter().for_each(|record| inner.grace.still_marked(&record.name));
        }
        inner.owed.went();
        for record in done {
            inner.clients.insert(Known { record, is_stored: true });
        }
    }

    /// Does what the grace machine asks for. Not under the lock: it stores, and calls the service.
    pub(super) fn run(&self, effects: Vec<GraceEffect>) {
        for effect in effects {
            match effect {
                GraceEffect::Store(changes) => {
                    let next = self.end_reclaims(changes);
                    self.run(next);
                }
                GraceEffect::Ended => {
                    // Hosts that did not reclaim lose their right before anybody gets what was theirs.
                    if let Some(Err(error)) = self.lockd.get().and_then(Weak::upgrade).map(|l| l.end_grace())
                    {
                        // The next tick sees to it.
                        tracing::error!(%error, "grace cannot end: which hosts may not reclaim cannot be stored");
                        continue;
                    }
                    tracing::info!("grace is over");
                    if let Some(nfs4) = self.nfs4.get().and_then(Weak::upgrade) {
                        nfs4.set_grace(holdfast_state::Grace::Over);
                    }
                }
            }
        }
    }

    /// The marks of grace's end on records as they are now: grace knows those of its beginning, and a client that came
    /// back since has another id.
    fn as_known(&self, mut changes: Vec<RecordChange>) -> Vec<RecordChange> {
        let inner = self.inner.lock();
        for change in &mut changes {
            if let RecordChange::Client(record) = change
                && let Some(known) = inner.clients.named(&record.name)
            {
                *record = ClientRecord { missed_grace: record.missed_grace, ..known.record.clone() };
            }
        }
        changes
    }

    fn end_reclaims(&self, changes: Vec<RecordChange>) -> Vec<GraceEffect> {
        let _turn = self.turn.lock();
        let marks = self.as_known(changes);
        let mut changes = marks.clone();
        changes.extend(self.inner.lock().lost.of(&marks));
        let stored = self.records.store(&changes);
        let mut inner = self.inner.lock();
        if let Err(error) = stored {
            tracing::error!(%error, "grace cannot end: who may not reclaim any more cannot be stored");
            // Who is lost by that is found out anew.
            inner.unstored = marks;
            return Vec::new();
        }
        let silent = marks.iter().filter(|mark| matches!(mark, RecordChange::LoseClient(..))).count();
        let unfinished = marks.len() - silent;
        tracing::info!(
            silent,
            unfinished,
            "clients have not reclaimed what they had, and lose it as grace ends"
        );
        for change in changes {
            match change {
                RecordChange::LoseClient(name, _) | RecordChange::ForgetClient(name) => {
                    if let Some(known) = inner.clients.named_mut(&name) {
                        known.is_stored = false;
                        // It has reclaimed nothing. Should it come back, its record must not say again that it may,
                        // in a life after this, in which others have had what it held.
                        (known.record.holds_state, known.record.holds_caps) = (false, false);
                    }
                }
                RecordChange::Client(record) => {
                    if let Some(known) = inner.clients.get_mut(record.client_id) {
                        known.record = record;
                    }
                }
                RecordChange::Session(_)
                | RecordChange::ForgetSession(_)
                | RecordChange::Lost(_)
                | RecordChange::ForgetLost(_) => {}
            }
        }
        inner.grace.stored()
    }
}
