//! Which of what was sent, and is on no disk, has given or taken a name, or changed attributes.

use std::hash::{Hash as _, Hasher as _};

use rustc_hash::FxHasher;

use super::{Op, Queued, Stream};
use crate::ids::NodeId;

/// Numbers of the names that a batch gives and takes, and of the nodes whose attributes it sets, in order: of what is not among
/// them it does neither.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Vec<u32>);

impl Numbers {
    pub(crate) fn of(ops: &[Queued]) -> Self {
        let names = ops.iter().flat_map(|q| q.op.names()).flatten();
        let set = ops.iter().filter_map(|q| q.op.sets()).map(number_of_settings);
        let mut all: Vec<u32> = names.map(|(dir, name)| number_of(dir, name.as_bytes())).chain(set).collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    fn may_have(&self, number: u32) -> bool {
        self.0.binary_search(&number).is_ok()
    }
}

/// Of two names it may be the same.
fn number_of(dir: NodeId, name: &[u8]) -> u32 {
    let mut hasher = FxHasher::default();
    (dir, name).hash(&mut hasher);
    // The upper half depends on all of it.
    (hasher.finish() >> 32) as u32
}

/// The same of a node's attributes: no name is empty.
fn number_of_settings(node: NodeId) -> u32 {
    number_of(node, b"")
}

impl Stream {
    /// The last mutation up to this serial that gave or took one of these names and was sent, but is not known to be on disk; 0:
    /// none did. Asked with each name that the server is to change by itself: batches are gone through, not what is in them.
    pub(crate) fn last_change_of(&self, names: &[(NodeId, &[u8])], through: u64) -> u64 {
        let numbers: Vec<u32> = names.iter().map(|(dir, name)| number_of(*dir, name)).collect();
        let changes = |op: &Op| {
            let mut of = op.names().into_iter().flatten();
            of.any(|(dir, name)| names.contains(&(dir, name.as_bytes())))
        };
        self.last_of(&numbers, through, changes)
    }

    /// The same of changes of this node's attributes.
    pub(crate) fn last_setting_of(&self, id: NodeId, through: u64) -> u64 {
        self.last_of(&[number_of_settings(id)], through, |op| op.sets() == Some(id))
    }

    fn last_of(&self, numbers: &[u32], through: u64, is_it: impl Fn(&Op) -> bool) -> u64 {
        let unstable = self.kept.iter().rev().take_while(|k| k.txn > self.stable_txn);
        let may_be = unstable.filter(|k| numbers.iter().any(|number| k.names.may_have(*number)));
        let mut sent = may_be.flat_map(|k| k.ops.iter().rev());
        sent.find(|q| q.serial <= through && is_it(&q.op)).map_or(0, |q| q.serial)
    }
}

#[cfg(test)]
mod tests;
