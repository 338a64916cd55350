//! Which incarnations of clients of 4.1 are gone without having said so: should one come back, it may believe in what it saw of
//! directories before.

use std::collections::BTreeMap;

use holdfast_base::limits::{LOST_CLIENTS_MAX, LOST_INCARNATIONS_MAX};
use holdfast_recovery::{ClientName, LostRecord, RecordChange};

/// Those that are remembered.
#[derive(Default)]
pub(super) struct Lost {
    // Ordered, as names are the clients' to choose.
    by_name: BTreeMap<ClientName, LostRecord>,
    by_number: BTreeMap<u64, ClientName>,
}

impl Lost {
    pub(super) fn may_be(&self, name: &ClientName, verifier: [u8; 8]) -> bool {
        self.by_name.get(name).is_some_and(|lost| lost.verifiers.contains(&verifier))
    }

    /// Remembers an incarnation. What is to be stored of it: with the change that takes its record away or puts another's in its
    /// place.
    pub(super) fn add(&mut self, name: &ClientName, verifier: [u8; 8]) -> Vec<RecordChange> {
        if !name.is_sessions {
            return Vec::new();
        }
        let former = self.by_name.remove(name);
        let mut verifiers = former.map_or_else(Vec::new, |former| {
            self.by_number.remove(&former.number);
            former.verifiers
        });
        verifiers.retain(|known| *known != verifier);
        verifiers.push(verifier);
        let too_many = verifiers.len().saturating_sub(LOST_INCARNATIONS_MAX);
        verifiers.drain(..too_many);
        let number = self.by_number.last_key_value().map_or(0, |(last, _)| last + 1);
        let lost = LostRecord { name: name.clone(), number, verifiers };
        self.insert(lost.clone());
        let mut changes = vec![RecordChange::Lost(lost)];
        if self.by_name.len() > LOST_CLIENTS_MAX
            && let Some((_, name)) = self.by_number.pop_first()
        {
            self.by_name.remove(&name);
            changes.push(RecordChange::ForgetLost(name));
        }
        changes
    }

    /// What is to be stored when an incarnation is on record again, with its record; [`Lost::note_back`] once that is done.
    pub(super) fn back(&self, name: &ClientName, verifier: [u8; 8]) -> Option<RecordChange> {
        let lost = self.by_name.get(name).filter(|lost| lost.verifiers.contains(&verifier))?;
        let verifiers: Vec<_> = lost.verifiers.iter().copied().filter(|known| *known != verifier).collect();
        Some(if verifiers.is_empty() {
            RecordChange::ForgetLost(name.clone())
        } else {
            RecordChange::Lost(LostRecord { verifiers, ..lost.clone() })
        })
    }

    /// The record of an incarnation is stored: it is remembered by that. Before, it would be taken for new should that fail.
    pub(super) fn note_back(&mut self, name: &ClientName, verifier: [u8; 8]) {
        let Some(lost) = self.by_name.get_mut(name) else { return };
        lost.verifiers.retain(|known| *known != verifier);
        if lost.verifiers.is_empty() {
            self.by_number.remove(&lost.number);
            self.by_name.remove(name);
        }
    }

    /// What follows for the lost from changes of records.
    pub(super) fn of(&mut self, changes: &[RecordChange]) -> Vec<RecordChange> {
        let lose = |change: &RecordChange| match change {
            RecordChange::LoseClient(name, verifier) => self.add(name, *verifier),
            _ => Vec::new(),
        };
        changes.iter().flat_map(lose).collect()
    }

    fn insert(&mut self, lost: LostRecord) {
        self.by_number.insert(lost.number, lost.name.clone());
        self.by_name.insert(lost.name.clone(), lost);
    }
}

impl FromIterator<LostRecord> for Lost {
    fn from_iter<I: IntoIterator<Item = LostRecord>>(all: I) -> Self {
        let mut lost = Self::default();
        all.into_iter().for_each(|record| lost.insert(record));
        lost
    }
}
