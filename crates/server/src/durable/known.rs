//! The clients' records as they are meant to be, by id and by name: a server has ten thousand of them, which all come back
//! at once after a restart.

use std::collections::BTreeMap;

use holdfast_base::ClientId;
use holdfast_recovery::{ClientName, ClientRecord};
use rustc_hash::FxHashMap;

/// A client's record as it is meant to be.
pub(super) struct Known {
    pub(super) record: ClientRecord,
    /// Whether the store has it. Grace's end takes the records of those who were not heard of; one of them may
    /// yet live.
    pub(super) is_stored: bool,
}

impl Known {
    /// Whether it says that the client may hold state.
    pub(super) const fn may_hold(&self) -> bool {
        // The first new lock of a 4.0 client shows that it has reclaimed what it wanted.
        let is_agreed = self.record.name.is_sessions || !self.record.missed_grace;
        self.is_stored && self.record.holds_state && is_agreed
    }
}

/// All records: one a name.
#[derive(Default)]
pub(super) struct Clients {
    by_id: FxHashMap<ClientId, Known>,
    // Ordered, as names are the clients' to choose.
    by_name: BTreeMap<ClientName, ClientId>,
}

impl Clients {
    /// Adds a record, in place of the one under its name, if any: that of a former incarnation.
    pub(super) fn insert(&mut self, known: Known) {
        let id = known.record.client_id;
        if let Some(former) = self.by_name.insert(known.record.name.clone(), id)
            && former != id
        {
            self.by_id.remove(&former);
        }
        self.by_id.insert(id, known);
    }

    pub(super) fn get(&self, id: ClientId) -> Option<&Known> {
        self.by_id.get(&id)
    }

    /// For changes of anything but id and name.
    pub(super) fn get_mut(&mut self, id: ClientId) -> Option<&mut Known> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn named(&self, name: &ClientName) -> Option<&Known> {
        self.by_id.get(self.by_name.get(name)?)
    }

    /// What the store has not got so.
    pub(super) fn unstored(&self) -> impl Iterator<Item = &ClientRecord> {
        self.by_id.values().filter(|known| !known.is_stored).map(|known| &known.record)
    }

    pub(super) fn records(&self) -> impl Iterator<Item = &ClientRecord> {
        self.by_id.values().map(|known| &known.record)
    }

    /// As [`Clients::get_mut`].
    pub(super) fn named_mut(&mut self, name: &ClientName) -> Option<&mut Known> {
        self.by_id.get_mut(self.by_name.get(name)?)
    }

    pub(super) fn remove(&mut self, id: ClientId) {
        if let Some(known) = self.by_id.remove(&id) {
            self.by_name.remove(&known.record.name);
        }
    }
}

impl FromIterator<Known> for Clients {
    fn from_iter<I: IntoIterator<Item = Known>>(all: I) -> Self {
        let mut clients = Self::default();
        all.into_iter().for_each(|known| clients.insert(known));
        clients
    }
}
