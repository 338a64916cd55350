//! What this host's disk alone has, as it was done while the server was away: until that has it on its own.

use super::Journal;
use crate::ask::Generation;
use crate::machine::Machine;

/// Up to where all may have been done without the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pledge {
    born: Generation,
    serial: u64,
}

impl Machine {
    /// All that was done up to now may be on this host's disk alone.
    pub fn pledge(&mut self) {
        let pledge = Pledge { born: self.generation, serial: self.stream.last_serial() };
        if let Some(journal) = &mut self.journal {
            journal.pledge = Some(pledge);
        }
    }

    /// Whether something is, of what was done when that was last said: a journal that is given up then takes it with it.
    pub fn is_pledged(&mut self) -> bool {
        let Some(Pledge { born, serial }) = self.journal.as_ref().and_then(|journal| journal.pledge) else {
            return false;
        };
        let is_left = self.stream.stable() < self.stream.placed(serial)
            || self.nodes.values().any(|node| node.data.extents.any(|_, at| at <= born));
        if !is_left && let Some(journal) = &mut self.journal {
            journal.pledge = None;
        }
        is_left
    }

    /// What was done without the server goes out otherwise, behind what it was before.
    pub(crate) fn pledge_again(&mut self, last_serial: u64) {
        let is_pledged = |journal: &Journal| journal.pledge.is_some();
        if self.stream.last_serial() > last_serial && self.journal.as_deref().is_some_and(is_pledged) {
            self.pledge();
        }
    }
}
