//! Client records as NFSv4 uses them.

use std::io;

use holdfast_base::ClientId;
use holdfast_nfs4::ClientRecords;
use holdfast_recovery::{ClientName, ClientRecord, Reclaim, RecordChange};
use holdfast_state::{ClientImage, Dialect, Recorded};

use super::{Durable, Inner, Known};

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
            lost_state: false,
            missed_grace: false,
        };
        let before = self.clients.values().map(|known| &known.record).find(|old| old.name == fresh.name);
        match before {
            Some(old) if old.verifier == fresh.verifier && old.principal == fresh.principal => {
                let ClientRecord { holds_state, lost_state, missed_grace, .. } = *old;
                ClientRecord { holds_state, lost_state, missed_grace, ..fresh }
            }
            _ => fresh,
        }
    }
}

impl Durable {
    /// Stores a record, then knows it. The caller has the turn.
    fn keep(&self, record: ClientRecord) -> io::Result<()> {
        self.records.store(&[RecordChange::Client(record.clone())]).map_err(io::Error::other)?;
        let mut inner = self.inner.lock();
        // A former incarnation's record lay under the same name: nothing of it is left to be forgotten.
        inner.clients.retain(|_, known| known.record.name != record.name);
        inner.clients.insert(record.client_id, Known { record, is_stored: true });
        Ok(())
    }
}

impl ClientRecords for Durable {
    fn persist(&self, client: &ClientImage) -> io::Result<()> {
        let turn = self.turn.lock();
        let record = self.inner.lock().confirmed(client);
        let (name, verifier) = (record.name.clone(), record.verifier);
        self.keep(record)?;
        drop(turn);
        let effects = self.inner.lock().grace.returned(&name, verifier);
        self.run(effects);
        Ok(())
    }

    fn forget(&self, clients: &[ClientId]) {
        let turn = self.turn.lock();
        let names: Vec<_> = {
            let mut inner = self.inner.lock();
            clients
                .iter()
                .filter_map(|client| inner.clients.remove(client))
                .map(|known| known.record.name)
                .collect()
        };
        let changes: Vec<_> = names.iter().cloned().map(RecordChange::ForgetClient).collect();
        // Before the reply that may give to another what these clients held: they must not reclaim it after a crash.
        if let Err(error) = self.records.store(&changes) {
            tracing::error!(%error, clients = names.len(), "the records of clients that are gone cannot be removed");
        }
        drop(turn);
        for name in names {
            let effects = self.inner.lock().grace.gone(&name);
            self.run(effects);
        }
    }

    fn reclaim_done(&self, client: ClientId) {
        let turn = self.turn.lock();
        let known = {
            let inner = self.inner.lock();
            inner.clients.get(&client).map(|known| (known.record.clone(), known.is_stored))
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
        drop(turn);
        let effects = self.inner.lock().grace.reclaim_complete(&name);
        self.run(effects);
    }

    fn may_hold(&self, client: ClientId) -> bool {
        self.inner.lock().clients.get(&client).is_some_and(|known| {
            // The first new lock of a 4.0 client shows that it has reclaimed what it wanted.
            let is_agreed = known.record.name.is_sessions || !known.record.missed_grace;
            known.is_stored && known.record.holds_state && is_agreed
        })
    }

    fn will_hold(&self, client: &ClientImage) -> io::Result<()> {
        let _turn = self.turn.lock();
        let mut record = self.inner.lock().confirmed(client);
        record.holds_state = true;
        if !record.name.is_sessions {
            record.missed_grace = false;
        }
        self.keep(record)
    }

    fn note_losses(&self, client: ClientId, has_lost: &dyn Fn() -> bool) {
        let _turn = self.turn.lock();
        // Asked now that nobody else stores: the last to do so has the last word.
        let lost_state = has_lost();
        let Some(record) = self.inner.lock().clients.get(&client).map(|known| known.record.clone()) else {
            return;
        };
        if record.lost_state == lost_state {
            return;
        }
        let record = ClientRecord { lost_state, ..record };
        if let Err(error) = self.keep(record.clone()) {
            tracing::error!(%error, "that a client lost state cannot be stored");
            // It is, with whatever is stored of this client next: its next OPEN sees to that.
            if let Some(known) = self.inner.lock().clients.get_mut(&client) {
                *known = Known { record, is_stored: false };
            }
        }
    }

    fn recorded(&self, client: &ClientImage) -> Recorded {
        let name = name_of(client);
        match self.inner.lock().grace.reclaim(&name, client.principal.as_bytes()) {
            Reclaim::Granted => Recorded::Yes,
            Reclaim::Over | Reclaim::NotEntitled | Reclaim::AlreadyComplete => Recorded::No,
        }
    }
}
