//! The server's records of clients, kept by nothing but the engine's word, as the server keeps them: who may reclaim in this life,
//! and will in the next. The reference has an opinion of its own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use holdfast_base::ClientId;
use holdfast_state::{ClientImage, OwnerName, Recorded, Verifier, Witness};

#[derive(Clone, Debug)]
struct Record {
    id: ClientId,
    verifier: Verifier,
    may_hold: bool,
    /// Something was revoked in this life, and its client has not acknowledged that.
    has_lost: bool,
    /// Others may have had what its client held in a life before.
    has_missed: bool,
    may_reclaim: bool,
    is_done: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Records(Arc<Mutex<BTreeMap<OwnerName, Record>>>);

impl Records {
    fn all(&self) -> MutexGuard<'_, BTreeMap<OwnerName, Record>> {
        self.0.lock().unwrap()
    }

    fn change(&self, client: ClientId, change: impl Fn(&mut Record)) {
        self.all().values_mut().filter(|record| record.id == client).for_each(change);
    }

    /// Who is confirmed under another verifier has restarted by itself, and has nothing to reclaim.
    pub(crate) fn persist(&self, client: &ClientImage) {
        let ClientImage { id, verifier, .. } = *client;
        let mut all = self.all();
        let known = all.get(&client.name).filter(|record| record.verifier == verifier);
        let record = match known {
            Some(known) => Record { id, ..known.clone() },
            None => {
                let (may_hold, has_lost, has_missed) = (false, false, false);
                Record { id, verifier, may_hold, has_lost, has_missed, may_reclaim: false, is_done: false }
            }
        };
        all.insert(client.name.clone(), record);
    }

    /// Before it holds anything.
    pub(crate) fn will_hold(&self, client: ClientId) {
        self.change(client, |record| record.may_hold = true);
    }

    /// It needs grace no longer.
    pub(crate) fn finish(&self, client: ClientId) {
        self.change(client, |record| record.is_done = true);
    }

    /// Client and server agree on what is held.
    pub(crate) fn agree(&self, client: ClientId) {
        self.change(client, |record| (record.has_missed, record.is_done) = (false, true));
    }

    /// The server dies: what it was told is all that the next one knows.
    pub(crate) fn crash(&self) {
        for record in self.all().values_mut() {
            record.has_missed |= std::mem::take(&mut record.has_lost);
            record.may_reclaim = record.may_hold && !record.has_missed;
            record.is_done = false;
        }
    }

    /// Those who are not done may not reclaim any more.
    pub(crate) fn grace_ends(&self) {
        for record in self.all().values_mut() {
            record.has_missed |= !record.is_done;
        }
    }

    pub(crate) fn knows(&self, client: ClientId) -> bool {
        self.all().values().any(|record| record.id == client)
    }

    pub(crate) fn recorded(&self, client: ClientId) -> Recorded {
        let may = self.all().values().any(|record| record.id == client && record.may_reclaim);
        if may { Recorded::Yes } else { Recorded::No }
    }
}

impl Witness for Records {
    fn forget(&self, clients: &[ClientId]) -> bool {
        self.all().retain(|_, record| !clients.contains(&record.id));
        true
    }

    fn note_losses(&self, client: ClientId, has_lost: bool) -> bool {
        self.change(client, |record| record.has_lost = has_lost);
        true
    }
}
