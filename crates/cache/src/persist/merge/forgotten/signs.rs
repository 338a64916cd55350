//! What can be told by names of what was sent: which of it has to be done again.

mod judged;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Looked, Sent};
use crate::attrs::Attrs;
use crate::ids::{Handle, Name, NodeId};
use crate::queue::Op;
use judged::Judging;

/// A name in a directory.
pub(super) type Slot = (NodeId, Name);

/// What an operation puts under a name.
pub(super) fn places(op: &Op) -> Option<(NodeId, Slot)> {
    match op {
        Op::Make { dir, name, node, .. } | Op::Link { dir, name, node } => {
            Some((*node, (*dir, name.clone())))
        }
        Op::Rename { to, node, .. } => Some((*node, to.clone())),
        _ => None,
    }
}

/// What an operation takes from under a name.
pub(super) fn vacates(op: &Op) -> Option<(NodeId, Slot)> {
    match op {
        Op::Unlink { dir, name, node } | Op::Rmdir { dir, name, node } => Some((*node, (*dir, name.clone()))),
        Op::Rename { from, node, .. } => Some((*node, from.clone())),
        _ => None,
    }
}

/// What was looked at, beside what was sent. Later operations change what is seen of earlier ones.
pub(super) struct Signs<'s> {
    sent: &'s [Sent],
    seen: FxHashMap<&'s Looked, &'s (Handle, Attrs)>,
    handles: FxHashMap<NodeId, Handle>,
    there: FxHashMap<NodeId, Attrs>,
    /// How what has a handle looks, wherever it was seen.
    attrs: FxHashMap<&'s Handle, Attrs>,
    /// The operations that put an object under a name, in order.
    placing: FxHashMap<(NodeId, Slot), Vec<usize>>,
}

impl<'s> Signs<'s> {
    pub(super) fn new(
        sent: &'s [Sent],
        seen: FxHashMap<&'s Looked, &'s (Handle, Attrs)>,
        handles: FxHashMap<NodeId, Handle>,
        there: FxHashMap<NodeId, Attrs>,
    ) -> Self {
        let mut placing: FxHashMap<(NodeId, Slot), Vec<usize>> = FxHashMap::default();
        for (at, (queued, _)) in sent.iter().enumerate() {
            if let Some(placed) = places(&queued.op) {
                placing.entry(placed).or_default().push(at);
            }
        }
        let attrs = seen.values().map(|(handle, attrs)| (handle, *attrs)).collect();
        Self { sent, seen, handles, there, attrs, placing }
    }

    pub(super) fn sent(&self) -> &'s [Sent] {
        self.sent
    }

    /// What all that was sent is about.
    pub(super) fn concerned(&self) -> impl Iterator<Item = NodeId> {
        self.sent.iter().filter_map(|(queued, _)| queued.op.nodes()[0])
    }

    /// What was seen itself, and how it looks.
    pub(super) fn there(&self) -> impl Iterator<Item = (&NodeId, &Attrs)> {
        self.there.iter()
    }

    pub(super) fn is_there(&self, id: NodeId) -> bool {
        self.there.contains_key(&id)
    }

    pub(super) fn handle(&self, id: NodeId) -> Option<&Handle> {
        self.handles.get(&id)
    }

    /// How what has this handle looks, wherever it was seen.
    pub(super) fn attrs_of(&self, handle: &Handle) -> Option<Attrs> {
        self.attrs.get(handle).copied()
    }

    /// Whether a name stands for this object there.
    pub(super) fn is_at(&self, id: NodeId, (dir, name): &Slot) -> bool {
        let found = self.seen.get(&Looked::Name(*dir, name.clone()));
        found.is_some_and(|(handle, _)| self.handles.get(&id) == Some(handle))
    }

    /// Whether something that came later puts this object under the name.
    pub(super) fn is_placed_later(&self, at: usize, what: &(NodeId, Slot)) -> bool {
        self.placing.get(what).is_some_and(|all| all.last().is_some_and(|last| *last > at))
    }

    /// Whether something that came before, and is done again, puts this object under the name.
    pub(super) fn is_placed_again(&self, at: usize, what: &(NodeId, Slot), lost: &[bool]) -> bool {
        let all = self.placing.get(what).map_or(&[][..], |all| all);
        all.iter().take_while(|one| **one < at).any(|one| lost[*one])
    }

    /// Which of what was sent has changed names that are not so there: with what is done again, all that was done later to its names
    /// is. A name that is absent proves nothing, where what was done before to what had it is lost; and what is lost explains nothing
    /// of what came before it. `gone`: not to be made again.
    pub(super) fn lost(&self, gone: &FxHashSet<NodeId>) -> Vec<bool> {
        Judging::new(self, gone).judged()
    }
}

#[cfg(test)]
mod tests;
