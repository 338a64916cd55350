//! Data that the server took and has lost is written again.
//!
//! Not while a change of the file is being asked for, though: that may be of the same place, and newer, and nobody could say which of the
//! two the server gets last. With the answer the older data is replaced, or, where the change has failed, goes out.

use crate::extent::Progress;
use crate::ids::{NodeId, Now};
use crate::machine::Machine;

impl Machine {
    /// All data of a file that is not on the server's disk is nowhere else.
    pub(crate) fn write_again(&mut self, id: NodeId, now: Now) {
        self.flush.rewrites.remove(&id);
        self.rewrite(id, |_| true, now);
    }

    /// Data sent before the server lost its memory is sent again: all that has another verifier than its present one.
    pub(crate) fn compare_verifiers(&mut self, id: NodeId, now_is: u64, now: Now) {
        let Some(node) = self.nodes.get(&id) else { return };
        if node.changing == 0 {
            return self.rewrite(id, |verifier| verifier != now_is, now);
        }
        if node.data.extents.has_verifier(|verifier| verifier != now_is) {
            self.flush.rewrites.insert(id, now_is);
        }
    }

    /// A question was answered: what waited for it goes out.
    pub(crate) fn rewrite_due(&mut self, now: Now) {
        if self.flush.rewrites.is_empty() {
            return;
        }
        let is_free = |id: &NodeId| self.nodes.get(id).is_none_or(|node| node.changing == 0);
        let due: Vec<_> = self.flush.rewrites.iter().map(|(id, now_is)| (*id, *now_is)).collect();
        for (id, now_is) in due.into_iter().filter(|(id, _)| is_free(id)).collect::<Vec<_>>() {
            self.flush.rewrites.remove(&id);
            self.compare_verifiers(id, now_is, now);
        }
    }

    fn rewrite(&mut self, id: NodeId, is_lost: impl Fn(u64) -> bool, now: Now) {
        self.with_data(id, |data| {
            if data.extents.has_verifier(&is_lost) {
                data.extents.turn(|p, _| match p {
                    Progress::Unstable { verifier, .. } if is_lost(verifier) => Some(Progress::Dirty),
                    p => Some(p),
                });
            }
        });
        self.written_on(id, now);
    }
}
