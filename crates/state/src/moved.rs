//! Files that are served elsewhere from now on: nothing is held of them here any more.

use holdfast_base::{ClientId, FileKey, Instant};

use crate::deed::Deed;
use crate::effect::Effect;
use crate::engine::{Engine, StateKey};
use crate::file::Holder;

impl Engine {
    /// Ends what is held of a file here, for it is served elsewhere. Promises are recalled all the same, once: their holders
    /// are to find out where it is before they are asked for anything. Nothing counts as revoked, for nobody takes it over
    /// here: capabilities stay until they are given back, as their holder may be in the middle of sending. Returns the
    /// clients of NFSv4 that held something.
    pub fn moved_away(&mut self, file: FileKey, now: Instant) -> Vec<ClientId> {
        self.contend_outside(file, Deed::ChangeName, now);
        let mut holders: Vec<_> = self.report_caps_holders(file);
        let Some(of) = self.files.get(&file) else { return holders };
        let (mut states, mut foreign) = (of.opens.to_vec(), Vec::new());
        states.extend(of.delegations.iter().copied());
        for (holder, _) in of.locks.iter() {
            match holder {
                Holder::State(key) => states.push(key),
                Holder::Foreign(owner) => foreign.push(owner),
            }
        }
        holders.extend(states.iter().filter_map(|key: &StateKey| Some(self.states.get(key.0)?.client)));
        for owner in foreign {
            self.effects.push(Effect::ForeignRevoked { owner, file });
            self.foreign_busy.remove(&(owner, file));
            self.release_holder(file, Holder::Foreign(owner), now);
        }
        // With an open go its locks.
        states.into_iter().for_each(|key| self.drop_state(key, now));
        holders.sort_unstable();
        holders.dedup();
        holders
    }

    fn report_caps_holders(&self, file: FileKey) -> Vec<ClientId> {
        let holds = self.caps.by_file.get(&file).map(Vec::as_slice).unwrap_or_default();
        holds.iter().filter(|hold| !hold.held.is_empty()).map(|hold| hold.client).collect()
    }
}
