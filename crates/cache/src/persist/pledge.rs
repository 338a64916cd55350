//! What this host's disk alone has, as it was done while the server was away: until that has it on its own.

use super::Journal;
use crate::ask::Generation;
use crate::ids::NodeId;
use crate::machine::Machine;

/// Up to where all may have been done without the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pledge {
    born: Generation,
    serial: u64,
    /// Something of it was given up for what was done since: that takes its place.
    gives_way: bool,
}

impl Machine {
    /// All that was done up to now may be on this host's disk alone.
    pub fn pledge(&mut self) {
        let (born, serial) = (self.generation, self.stream.last_serial());
        if let Some(journal) = &mut self.journal {
            journal.pledge = Some(Pledge { born, serial, gives_way: false });
        }
    }

    /// Whether something is, of what was done when that was last said: a journal that is given up then takes it with it.
    pub fn is_pledged(&mut self) -> bool {
        self.pledge_what_takes_its_place();
        let Some(Pledge { born, serial, .. }) = self.pledged() else { return false };
        let is_left = self.stream.stable() < self.stream.placed(serial)
            || self.nodes.values().any(|node| node.data.extents.any(|_, at| at <= born));
        if !is_left && let Some(journal) = &mut self.journal {
            journal.pledge = None;
        }
        is_left
    }

    fn pledged(&self) -> Option<Pledge> {
        self.journal.as_ref()?.pledge
    }

    /// What was done without the server goes out otherwise, behind what it was before.
    pub(crate) fn pledge_again(&mut self, last_serial: u64) {
        let is_pledged = |journal: &Journal| journal.pledge.is_some();
        if self.stream.last_serial() > last_serial && self.journal.as_deref().is_some_and(is_pledged) {
            self.pledge();
        }
    }

    /// A mutation was queued that takes data of these along, or comes behind it: the data is forgotten here once that was executed,
    /// and may be lost with the server's power until it is on its disk.
    pub(crate) fn pledge_with(&mut self, ids: &[Option<NodeId>], serial: u64) {
        let Some(Pledge { born, .. }) = self.pledged() else { return };
        let has_pledged =
            |id: &NodeId| self.nodes.get(id).is_some_and(|node| node.data.extents.any(|_, at| at <= born));
        if ids.iter().flatten().any(has_pledged)
            && let Some(pledge) = self.journal.as_mut().and_then(|journal| journal.pledge.as_mut())
        {
            pledge.serial = serial;
        }
    }

    /// Data of this range is about to be written over, cut off or dropped, which is in the journal alone: with the journal what it was
    /// would be lost as well.
    pub(crate) fn pledged_gives_way(&mut self, id: NodeId, (start, end): (u64, u64)) {
        let Some(Pledge { born, .. }) = self.pledged() else { return };
        let is_hit = self.nodes.get(&id).is_some_and(|node| node.data.extents.has_older(start, end, born));
        if is_hit && let Some(pledge) = self.journal.as_mut().and_then(|journal| journal.pledge.as_mut()) {
            pledge.gives_way = true;
        }
    }

    /// What has taken its place by now is kept as it was. Said with each delta: what comes behind it is not.
    pub(super) fn pledge_what_takes_its_place(&mut self) {
        if self.pledged().is_some_and(|pledge| pledge.gives_way) {
            self.pledge();
        }
    }
}
