//! Client records as NFSv4 uses them.

use std::io;

use holdfast_base::ClientId;
use holdfast_base::limits::{RECORD_DOUBT_TICKS, RECORD_WAIT_HELD_MS, RECORD_WAIT_MS};
use holdfast_nfs4::ClientRecords;
use holdfast_recovery::{ClientName, ClientRecord, Reclaim, RecordChange, RecoveryError};
use holdfast_state::{ClientImage, Dialect, Recorded, Verifier};
use rustc_hash::{FxHashMap, FxHashSet};

use super::known::Known;
use super::scribe::Patience;
use super::{Durable, Inner};

fn name_of(client: &ClientImage) -> ClientName {
    ClientName { is_sessions: client.dialect == Dialect::V41, owner: client.name.as_bytes().to_vec() }
}

impl Inner {
    /// The record of a client that confirmed its id. One that did not restart itself keeps its claims: it may yet
    /// reclaim, in this grace or, should the server die again, in the next.
    fn confirmed(&self, client: &ClientImage) -> ClientRecord {
        let fresh = ClientRecord {
            name: name_of(client),
            verifier: client.verifier.0,
            principal: client.principal.as_bytes().to_vec(),
            client_id: client.id,
            holds_state: false,
            holds_caps: false,
            lost_state: false,
            missed_grace: false,
            created: None,
        };
        match self.clients.named(&fresh.name).map(|known| &known.record) {
            Some(old) if old.verifier == fresh.verifier && old.principal == fresh.principal => {
                let ClientRecord { holds_state, holds_caps, lost_state, missed_grace, .. } = *old;
                // Under another id it counts anew.
                let created = old.created.filter(|_| old.client_id == fresh.client_id);
                ClientRecord { holds_state, holds_caps, lost_state, missed_grace, created, ..fresh }
            }
            _ => fresh,
        }
    }
}

impl Durable {
    /// Stores a record, then knows it. The caller has the turn.
    fn keep(&self, record: ClientRecord) -> io::Result<()> {
        self.keep_with(record, None)
    }

    /// The same, and in one with it something else.
    pub(super) fn keep_with(&self, record: ClientRecord, more: Option<RecordChange>) -> io::Result<()> {
        let mut changes = {
            let mut inner = self.inner.lock();
            let replaced = inner.clients.named(&record.name).map(|known| known.record.verifier);
            let replaced = replaced.filter(|verifier| *verifier != record.verifier);
            let mut changes =
                replaced.map_or_else(Vec::new, |verifier| inner.lost.add(&record.name, verifier));
            changes.extend(inner.lost.back(&record.name, record.verifier));
            changes
        };
        changes.push(RecordChange::Client(record.clone()));
        changes.extend(more);
        self.records.store(&changes).map_err(io::Error::other)?;
        let mut inner = self.inner.lock();
        inner.lost.note_back(&record.name, record.verifier);
        // A former incarnation's record lay under the same name: nothing of it is left to be forgotten.
        inner.clients.insert(Known { record, is_stored: true });
        Ok(())
    }
}

/// What could not be removed or marked, and is tried again by each tick. Nothing that depends on it was given to anybody:
/// the state engine has that from the answer.
#[derive(Default)]
pub(super) struct Owed {
    /// Whose records are to go.
    pub(super) forget: FxHashSet<ClientId>,
    /// Who has acknowledged what it lost.
    pub(super) unmark: FxHashSet<ClientId>,
    /// Who was to lose something and did not, as it could not be marked in time, with the ticks since. It may be marked by now;
    /// and should it give back what it was to lose, nobody asks again.
    pub(super) doubtful: FxHashMap<ClientId, u32>,
    /// The log has been told, once for all that fails until it goes again.
    is_told: bool,
}

impl Owed {
    pub(super) fn tell(&mut self, error: &RecoveryError) {
        if !std::mem::replace(&mut self.is_told, true) {
            tracing::error!(%error, "records of clients cannot be removed or marked: what these held is given to nobody");
        }
    }

    pub(super) fn went(&mut self) {
        if std::mem::take(&mut self.is_told) {
            tracing::info!("records of clients can be removed and marked again");
        }
    }
}

/// What a client is about to be granted for the first time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holding {
    /// State of NFSv4.
    State,
    /// Capabilities.
    Caps,
}

/// What changes records on behalf of the state engine, which may be held meanwhile: nothing may be asked of it. The caller has
/// the turn.
impl Durable {
    /// Has records changed by the thread for that, where there is one: without it who asks waits for the disk itself. `None` when
    /// that takes too long, or has for somebody else who waits for it still ([`Scribe::ask`](super::scribe::Scribe::ask)).
    pub(super) fn write<R: Send + 'static>(
        &self,
        (wait_ms, patience): (u64, Patience),
        job: impl FnOnce(&Self) -> R + Send + 'static,
    ) -> Option<R> {
        match self.scribe.get() {
            None => Some(job(self)),
            Some(scribe) if scribe.is_late() => None,
            Some(scribe) => scribe.ask((wait_ms, patience), job),
        }
    }

    fn persist_now(&self, client: &ClientImage) -> io::Result<()> {
        let _turn = self.turn.lock();
        let (record, is_kept) = {
            let inner = self.inner.lock();
            let record = inner.confirmed(client);
            let known = inner.clients.named(&record.name);
            let is_kept = known.is_some_and(|known| known.is_stored && known.record == record);
            (record, is_kept)
        };
        let (name, verifier) = (record.name.clone(), record.verifier);
        if !is_kept {
            self.keep(record)?;
        }
        let mut inner = self.inner.lock();
        let effects = inner.grace.returned(&name, verifier);
        inner.due.extend(effects);
        Ok(())
    }

    fn will_hold_now(&self, client: &ClientImage, what: Holding) -> io::Result<()> {
        let _turn = self.turn.lock();
        let mut record = self.inner.lock().confirmed(client);
        record.holds_state = true;
        record.holds_caps |= what == Holding::Caps;
        // (A reclaim may come here when grace has ended meanwhile.)
        if !record.name.is_sessions && !self.inner.lock().grace.is_reclaiming(&record.name) {
            record.missed_grace = false;
        }
        self.keep(record)
    }

    fn reclaim_done_now(&self, client: ClientId) {
        let _turn = self.turn.lock();
        let known = {
            let inner = self.inner.lock();
            inner.clients.get(client).map(|known| (known.record.clone(), known.is_stored))
        };
        let Some((record, is_stored)) = known else { return };
        let (holds_state, lost_state) = (record.holds_state, record.lost_state);
        // What it lost in this life is not acknowledged by this.
        let agreed = ClientRecord { lost_state, ..record.clone().agreed(holds_state) };
        let name = record.name.clone();
        if (agreed != record || !is_stored)
            && let Err(error) = self.keep(agreed)
        {
            tracing::error!(%error, "a client that has reclaimed all cannot be stored as such");
        }
        let mut inner = self.inner.lock();
        let effects = inner.grace.reclaim_complete(&name);
        inner.due.extend(effects);
    }

    fn forget_now(&self, clients: &[ClientId]) -> bool {
        let (known, changes) = {
            let mut inner = self.inner.lock();
            let record = |id: &ClientId| Some((*id, &inner.clients.get(*id)?.record));
            let change = |(id, of): (ClientId, &ClientRecord)| {
                let change = if inner.left.contains(&id) {
                    RecordChange::ForgetClient(of.name.clone())
                } else {
                    RecordChange::LoseClient(of.name.clone(), of.verifier)
                };
                ((id, of.name.clone()), change)
            };
            let (known, mut changes): (Vec<_>, Vec<_>) =
                clients.iter().filter_map(record).map(change).unzip();
            changes.extend(inner.lost.of(&changes));
            (known, changes)
        };
        if known.is_empty() {
            return true;
        }
        let stored = self.records.store(&changes);
        let mut inner = self.inner.lock();
        if let Err(error) = stored {
            inner.owed.tell(&error);
            inner.owed.forget.extend(known.into_iter().map(|(id, _)| id));
            return false;
        }
        inner.owed.went();
        for (id, name) in known {
            inner.clients.remove(id);
            inner.left.remove(&id);
            inner.owed.forget.remove(&id);
            inner.owed.unmark.remove(&id);
            let effects = inner.grace.gone(&name);
            inner.due.extend(effects);
        }
        true
    }

    fn mark_now(&self, client: ClientId, has_lost: bool) -> bool {
        let known = {
            let mut inner = self.inner.lock();
            inner.owed.unmark.remove(&client);
            inner.clients.get(client).map(|known| (known.record.clone(), known.is_stored))
        };
        let Some((record, is_stored)) = known else { return true };
        if record.lost_state == has_lost && is_stored {
            return true;
        }
        let outcome =
            self.records.store(&[RecordChange::Client(ClientRecord { lost_state: has_lost, ..record })]);
        let mut inner = self.inner.lock();
        if let Err(error) = outcome {
            inner.owed.tell(&error);
            // Perhaps it is marked. Then it is so for nothing, till this client's record is stored the next time.
            inner.owed.unmark.extend((!has_lost).then_some(client));
            if let Some(known) = inner.clients.get_mut(client) {
                known.is_stored = false;
            }
            return false;
        }
        inner.owed.went();
        if let Some(known) = inner.clients.get_mut(client) {
            known.record.lost_state = has_lost;
            known.is_stored = true;
        }
        true
    }

    /// Tries again what is owed.
    pub(super) fn settle_owed(&self) {
        let turn = self.turn.lock();
        let (forget, unmark): (Vec<_>, Vec<_>) = {
            let mut inner = self.inner.lock();
            let owed = &mut inner.owed;
            (owed.forget.drain().collect(), owed.unmark.drain().collect())
        };
        self.forget_now(&forget);
        for client in unmark {
            self.mark_now(client, false);
        }
        drop(turn);
        self.forgotten();
    }

    /// Has the marks put right of those who were to lose something, and of whom that is not asked any more. Who asks it of the
    /// engine, which knows, is given.
    pub(super) fn settle_doubts(&self, record_losses: impl Fn(ClientId)) {
        let settled: Vec<_> = {
            let mut inner = self.inner.lock();
            let doubtful = &mut inner.owed.doubtful;
            doubtful.values_mut().for_each(|ticks| *ticks += 1);
            let is_settled = |ticks: &u32| *ticks > RECORD_DOUBT_TICKS;
            doubtful.extract_if(|_, ticks| is_settled(ticks)).map(|(client, _)| client).collect()
        };
        settled.into_iter().for_each(record_losses);
    }
}

impl Durable {
    fn note_holder(&self, client: &ClientImage, what: Holding) -> io::Result<()> {
        let image = client.clone();
        let job = move |this: &Self| this.will_hold_now(&image, what);
        self.write((RECORD_WAIT_MS, Patience::Leaves), job).unwrap_or_else(|| Err(not_in_time()))
    }

    /// Whether a client's record says already that it may hold capabilities.
    pub(crate) fn may_hold_caps(&self, client: ClientId) -> bool {
        let inner = self.inner.lock();
        inner.clients.get(client).is_some_and(|known| known.may_hold() && known.record.holds_caps)
    }

    /// The client is about to be granted its first capability: as [`ClientRecords::will_hold`].
    pub(crate) fn will_hold_caps(&self, client: &ClientImage) -> io::Result<()> {
        self.note_holder(client, Holding::Caps)
    }
}

/// Without an answer in time.
fn not_in_time() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the store of records does not answer")
}

impl ClientRecords for Durable {
    fn persist(&self, client: &ClientImage) -> io::Result<()> {
        let image = client.clone();
        let kept = self.write((RECORD_WAIT_MS, Patience::Stays), move |this| this.persist_now(&image));
        kept.unwrap_or_else(|| Err(not_in_time()))?;
        self.forgotten();
        Ok(())
    }

    fn forget(&self, clients: &[ClientId]) -> bool {
        let asked = clients.to_vec();
        let gone = self.write((RECORD_WAIT_HELD_MS, Patience::Leaves), move |this| {
            let _turn = this.turn.lock();
            this.forget_now(&asked)
        });
        if gone.is_none() {
            self.inner.lock().owed.forget.extend(clients);
        }
        gone.unwrap_or(false)
    }

    fn left(&self, client: ClientId) {
        let mut inner = self.inner.lock();
        if inner.clients.get(client).is_some() {
            inner.left.insert(client);
        }
    }

    fn may_have_met(&self, name: &[u8], verifier: Verifier) -> bool {
        let name = ClientName { is_sessions: true, owner: name.to_vec() };
        let inner = self.inner.lock();
        let is_on_record = |known: &Known| known.record.verifier == verifier.0;
        inner.clients.named(&name).is_some_and(is_on_record) || inner.lost.may_be(&name, verifier.0)
    }

    fn forgotten(&self) {
        let effects = std::mem::take(&mut self.inner.lock().due);
        self.run(effects);
    }

    fn reclaim_done(&self, client: ClientId) {
        let job = move |this: &Self| this.reclaim_done_now(client);
        if self.write((RECORD_WAIT_MS, Patience::Stays), job).is_none()
            && let Some(scribe) = self.scribe.get()
        {
            // Nothing that is answered depends on it: till it is stored the client may reclaim less, not more.
            scribe.tell(job);
        }
        self.forgotten();
    }

    fn may_hold(&self, client: ClientId) -> bool {
        self.inner.lock().clients.get(client).is_some_and(Known::may_hold)
    }

    fn will_hold(&self, client: &ClientImage) -> io::Result<()> {
        self.note_holder(client, Holding::State)
    }

    fn note_losses(&self, client: ClientId, has_lost: bool) -> bool {
        let marked = self.write((RECORD_WAIT_HELD_MS, Patience::Leaves), move |this| {
            let _turn = this.turn.lock();
            this.mark_now(client, has_lost)
        });
        let mut inner = self.inner.lock();
        let owed = &mut inner.owed;
        if marked == Some(true) {
            owed.doubtful.remove(&client);
        } else if has_lost {
            owed.doubtful.insert(client, 0);
        } else if marked.is_none() {
            owed.unmark.insert(client);
        }
        marked.unwrap_or(false)
    }

    fn recorded(&self, client: &ClientImage) -> Recorded {
        let name = name_of(client);
        match self.inner.lock().grace.reclaim(&name, client.principal.as_bytes()) {
            Reclaim::Granted => Recorded::Yes,
            Reclaim::Over | Reclaim::NotEntitled | Reclaim::AlreadyComplete => Recorded::No,
        }
    }
}
