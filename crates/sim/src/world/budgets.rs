//! A server that is short of memory: what it may use is less for a while, and clients are asked for what they hold.

use holdfast_state::Policy;

use super::{Noted, World};

impl World {
    /// So many delegations and slots there may be for so long, in however many processes of the server.
    pub fn press(&self, (delegations, slots): (usize, usize), ms: u64) {
        self.note(Noted::Fault, &ms.to_be_bytes());
        self.tell(|| {
            format!("server: has room for {delegations} delegations and {slots} slots, for {ms} ms")
        });
        self.budget(delegations, slots);
        let usual = Policy::default();
        self.later(ms, move |world| {
            world.tell(|| "server: has room again".into());
            world.budget(usual.delegations_max, usual.slots_max);
        });
    }

    fn budget(&self, delegations_max: usize, slots_max: usize) {
        self.with_life(|life| {
            life.obey(|policy| Policy { delegations_max, slots_max, ..policy });
        });
    }
}
