//! What can be told by names of what was sent: which of it has to be done again.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Looked, Sent};
use crate::attrs::Attrs;
use crate::ids::{Handle, Name, NodeId};
use crate::queue::Op;

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

fn is_placing(op: &Op, id: NodeId, slot: &Slot) -> bool {
    places(op).is_some_and(|(other, to)| other == id && to == *slot)
}

/// What was looked at, beside what was sent. Later operations change what is seen of earlier ones.
pub(super) struct Signs<'s> {
    sent: &'s [Sent],
    seen: FxHashMap<&'s Looked, &'s (Handle, Attrs)>,
    handles: FxHashMap<NodeId, Handle>,
    there: FxHashMap<NodeId, Attrs>,
    /// The operations that touch a name, in order.
    touching: FxHashMap<Slot, Vec<usize>>,
}

impl<'s> Signs<'s> {
    pub(super) fn new(
        sent: &'s [Sent],
        seen: FxHashMap<&'s Looked, &'s (Handle, Attrs)>,
        handles: FxHashMap<NodeId, Handle>,
        there: FxHashMap<NodeId, Attrs>,
    ) -> Self {
        let mut touching: FxHashMap<Slot, Vec<usize>> = FxHashMap::default();
        for (at, (queued, _)) in sent.iter().enumerate() {
            for (_, slot) in places(&queued.op).into_iter().chain(vacates(&queued.op)) {
                touching.entry(slot).or_default().push(at);
            }
        }
        Self { sent, seen, handles, there, touching }
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
        self.seen.values().find(|(of, _)| of == handle).map(|(_, attrs)| *attrs)
    }

    /// Whether a name stands for this object there.
    pub(super) fn is_at(&self, id: NodeId, (dir, name): &Slot) -> bool {
        let found = self.seen.get(&Looked::Name(*dir, name.clone()));
        found.is_some_and(|(handle, _)| self.handles.get(&id) == Some(handle))
    }

    /// What was done later to a name, each with its place.
    fn later(&self, at: usize, slot: &Slot) -> impl Iterator<Item = (usize, &Op)> {
        let all = self.touching.get(slot).map_or(&[][..], |all| all);
        let from = all.partition_point(|one| *one <= at);
        all[from..].iter().map(|one| (*one, &self.sent[*one].0.op))
    }

    /// Whether something that came later puts this object under the name.
    pub(super) fn is_placed_later(&self, at: usize, (id, slot): &(NodeId, Slot)) -> bool {
        self.later(at, slot).any(|(_, op)| is_placing(op, *id, slot))
    }

    /// Whether something that came before, and is done again, puts this object under the name.
    pub(super) fn is_placed_again(&self, at: usize, what: &(NodeId, Slot), lost: &[bool]) -> bool {
        let all = self.touching.get(&what.1).map_or(&[][..], |all| all);
        let before = all.iter().take_while(|one| **one < at).filter(|one| lost[**one]);
        before.into_iter().any(|one| places(&self.sent[*one].0.op).as_ref() == Some(what))
    }

    /// Whether the object has got the name, or would not have it any more by what was done later: nothing that is lost.
    fn is_placed(&self, at: usize, (id, slot): &(NodeId, Slot), lost: &[bool]) -> bool {
        self.is_at(*id, slot)
            || self.later(at, slot).any(|(later, op)| {
                let is_other = places(op).is_some_and(|(other, to)| to == *slot && self.is_at(other, slot));
                let is_taken = vacates(op).is_some_and(|(other, from)| from == *slot && other == *id);
                is_other || is_taken && !lost[later]
            })
    }

    fn is_vacated(&self, at: usize, (id, slot): &(NodeId, Slot), lost: &[bool]) -> bool {
        !self.is_at(*id, slot)
            || self.later(at, slot).any(|(later, op)| is_placing(op, *id, slot) && !lost[later])
    }

    fn is_done(&self, at: usize, op: &Op, lost: &[bool]) -> bool {
        match op {
            Op::Make { node, .. } => self.is_there(*node),
            op => {
                let replaced = match op {
                    Op::Rename { to, over: Some(over), .. } => Some((*over, to.clone())),
                    _ => None,
                };
                // What was replaced on the way is not to be back.
                replaced.is_none_or(|replaced| self.is_vacated(at, &replaced, lost))
                    && places(op).is_none_or(|placed| self.is_placed(at, &placed, lost))
                    && vacates(op).is_none_or(|vacated| self.is_vacated(at, &vacated, lost))
            }
        }
    }

    /// Which of what was sent has changed names that are not so there: with what is done again, all that was done later to its names
    /// is. A name that is absent proves nothing, where what was done before to what had it is lost. `gone`: not to be made again.
    pub(super) fn lost(&self, gone: &FxHashSet<NodeId>) -> Vec<bool> {
        let mut lost = vec![false; self.sent.len()];
        loop {
            // What is lost explains nothing of what came before it.
            let more = self.lost_with(&lost, gone);
            if more == lost {
                return lost;
            }
            lost = more;
        }
    }

    /// The same, with what is known to be lost.
    fn lost_with(&self, lost: &[bool], gone: &FxHashSet<NodeId>) -> Vec<bool> {
        let (mut touched, mut concerned) = (FxHashSet::default(), FxHashSet::default());
        let mut unmade = FxHashSet::default();
        let judge = |(at, (queued, _)): (usize, &Sent)| {
            let op = &queued.op;
            let (placed, vacated) = (places(op), vacates(op));
            let slots: Vec<Slot> = placed.iter().chain(&vacated).map(|(_, slot)| slot.clone()).collect();
            let Some(id) = op.nodes()[0].filter(|id| !slots.is_empty() && !gone.contains(id)) else {
                return false;
            };
            let makes = matches!(op, Op::Make { .. });
            let is_lost = lost[at]
                || !self.is_done(at, op, lost)
                || unmade.contains(&id)
                || (!makes && slots.iter().any(|slot| touched.contains(slot)))
                || (placed.is_none() && concerned.contains(&id));
            if is_lost {
                touched.extend(slots);
                concerned.insert(id);
                if makes {
                    unmade.insert(id);
                }
            }
            is_lost
        };
        self.sent.iter().enumerate().map(judge).collect()
    }
}
