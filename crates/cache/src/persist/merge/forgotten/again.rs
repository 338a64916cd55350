//! What is done again of what was sent: as if it had not been.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Sent;
use super::signs::Signs;
use crate::ask::RenameMode;
use crate::attrs::{Changes, Kind};
use crate::ids::{Caller, NodeId, Now};
use crate::machine::Machine;
use crate::persist::merge::apart::is_about_data;
use crate::queue::{Load, Op, Queued, Thing};

impl Machine {
    /// What has to go out once more, in order. `lost`: which of the names that were given and taken are not so there.
    pub(super) fn done_again(
        &mut self,
        signs: &Signs<'_>,
        lost: &[bool],
        gone: &FxHashSet<NodeId>,
        now: Now,
    ) -> Vec<(Op, Caller)> {
        let is_unmade = |((q, _), is_lost): &(&Sent, &bool)| **is_lost && matches!(q.op, Op::Make { .. });
        let unmade = signs.sent().iter().zip(lost).filter(is_unmade);
        let unmade: FxHashSet<NodeId> = unmade.filter_map(|((q, _), _)| q.op.nodes()[0]).collect();
        let is_nameless = |id: &NodeId| self.nodes.get(id).is_none_or(|n| n.attrs.nlink == 0);
        let concerned = signs.sent().iter().filter_map(|(q, _)| q.op.nodes()[0]);
        let nameless: FxHashSet<NodeId> =
            concerned.filter(|id| is_nameless(id) && !unmade.contains(id)).collect();
        let is_kept = |q: &Queued| q.op.nodes()[0].is_some_and(|id| !nameless.contains(&id));
        let heard = signs.sent().iter().filter(|(q, heard)| *heard && is_kept(q));
        self.unload(heard.map(|(q, _)| (q.serial, &q.op)));
        let mut again = Vec::new();
        for (at, ((queued, _), is_lost)) in signs.sent().iter().zip(lost).enumerate() {
            let Some(id) = queued.op.nodes()[0] else { continue };
            self.not_sent(id, queued.serial);
            let ops = if gone.contains(&id) {
                self.drop_changes(id);
                self.replaced_again(signs, (at, &queued.op), lost, now).into_iter().collect()
            } else {
                match &queued.op {
                    Op::Make { .. } if *is_lost => {
                        self.made_again(queued.op.clone(), signs, now).into_iter().collect()
                    }
                    Op::Make { .. } | Op::Write { .. } | Op::SetAttr { .. } if nameless.contains(&id) => {
                        Vec::new()
                    }
                    op @ (Op::Make { .. } | Op::Write { .. } | Op::SetAttr { .. }) => {
                        self.filled_again(id, op, now)
                    }
                    op if *is_lost => self.named_again(op.clone(), signs, gone, now).into_iter().collect(),
                    _ => Vec::new(),
                }
            };
            again.extend(ops.into_iter().map(|op| (op, queued.caller.clone())));
        }
        put_behind_cuts(&mut again);
        again
    }

    /// What carries data or attributes of what is there, or is made again.
    fn filled_again(&mut self, id: NodeId, op: &Op, now: Now) -> Vec<Op> {
        match op {
            Op::Make { attrs, load, thing: Thing::File, .. }
                if !load.data.is_empty() || load.size.is_some() =>
            {
                let mtime =
                    attrs.mtime.or_else(|| Some(self.nodes.get(&id)?.attrs.mtime)).unwrap_or_default();
                let write = self.written_again(Op::Write { node: id, load: Load::default(), mtime }, now);
                // Beyond its data it may have got longer.
                let changes = Changes { size: load.size, ..Changes::default() };
                let sized = (!changes.is_empty()).then_some(Op::SetAttr { node: id, changes });
                write.into_iter().chain(sized).collect()
            }
            Op::Write { mtime, .. } => {
                let op = Op::Write { node: id, load: Load::default(), mtime: *mtime };
                self.written_again(op, now).into_iter().collect()
            }
            Op::SetAttr { changes, .. } => {
                let mut changes = *changes;
                if self.nodes.get(&id).is_some_and(|n| n.handle.is_none()) {
                    // It is made with the data and the size that it has now.
                    changes.size = None;
                }
                if changes.is_empty() { Vec::new() } else { vec![Op::SetAttr { node: id, changes }] }
            }
            _ => Vec::new(),
        }
    }

    /// None where what comes behind it carries the data.
    fn written_again(&mut self, op: Op, now: Now) -> Option<Op> {
        let id = op.nodes()[0]?;
        let later = self.ops_about(id);
        if !later.iter().any(|(_, op)| is_about_data(op)) {
            return Some(op);
        }
        if !later.iter().any(|(_, op)| matches!(op, Op::Write { .. })) {
            // Behind what is to be cut off.
            self.flush.aging.push_back((now.mono, id));
        }
        None
    }

    /// What is gone there is made as it is now.
    fn made_again(&mut self, mut op: Op, signs: &Signs<'_>, now: Now) -> Option<Op> {
        let Op::Make { dir, node, load, .. } = &mut op else { return None };
        *dir = self.node_again(*dir, signs, now)?;
        *load = Load::default();
        let id = *node;
        self.unmake(id, now);
        for (serial, _) in self.ops_about(id).into_iter().filter(|(_, op)| is_about_data(op)) {
            self.elide(serial);
        }
        self.with_data(id, |data| data.truncations.clear());
        let node = self.nodes.get_mut(&id)?;
        (node.made, node.told_mtime, node.base) = (None, None, None);
        Some(op)
    }

    /// A name that is to be given or taken once more. What it replaced is looked for by its handle: what nobody knows any more is
    /// not replaced.
    fn named_again(
        &mut self,
        mut op: Op,
        signs: &Signs<'_>,
        gone: &FxHashSet<NodeId>,
        now: Now,
    ) -> Option<Op> {
        match &mut op {
            Op::Link { node, dir, .. } | Op::Unlink { dir, node, .. } | Op::Rmdir { dir, node, .. } => {
                *node = self.node_again(*node, signs, now)?;
                *dir = self.node_again(*dir, signs, now)?;
            }
            Op::Rename { from, to, node, over, mode, .. } => {
                let known = over.filter(|over| {
                    let is_known = self.nodes.contains_key(over) && !gone.contains(over);
                    is_known || signs.is_at(*over, to)
                });
                *over = known.and_then(|over| self.node_again(over, signs, now));
                if over.is_none() {
                    *mode = RenameMode::NoReplace;
                }
                *node = self.node_again(*node, signs, now)?;
                from.0 = self.node_again(from.0, signs, now)?;
                to.0 = self.node_again(to.0, signs, now)?;
            }
            _ => return None,
        }
        Some(op)
    }

    /// What was replaced by something that has ended since is back there, or will be: its name goes.
    fn replaced_again(
        &mut self,
        signs: &Signs<'_>,
        (at, op): (usize, &Op),
        lost: &[bool],
        now: Now,
    ) -> Option<Op> {
        let Op::Rename { to, over: Some(over), .. } = op else { return None };
        let what = (*over, to.clone());
        let is_back = signs.is_at(*over, to) || signs.is_placed_again(at, &what, lost);
        if !is_back || signs.is_placed_later(at, &what) {
            return None;
        }
        let (node, dir) = (self.node_again(*over, signs, now)?, self.node_again(to.0, signs, now)?);
        let name = to.1.clone();
        let is_dir = self.nodes.get(&node)?.attrs.kind == Kind::Dir;
        Some(if is_dir { Op::Rmdir { dir, name, node } } else { Op::Unlink { dir, name, node } })
    }

    /// What is forgotten here is known again by its handle.
    fn node_again(&mut self, id: NodeId, signs: &Signs<'_>, now: Now) -> Option<NodeId> {
        if self.nodes.contains_key(&id) {
            return Some(id);
        }
        let handle = signs.handle(id)?;
        match self.handles.get(handle) {
            Some(other) => Some(*other),
            None => Some(self.add_node(Some(handle.clone()), signs.attrs_of(handle)?, now.mono)),
        }
    }

    /// What these have cut off is back there, and void until they have come again.
    pub(super) fn cut_again(&mut self, first: u64, last: u64) {
        let again = self.stream.unsent.iter().filter(|q| (first..=last).contains(&q.serial));
        let cut = |q: &Queued| match q.op {
            Op::SetAttr { node, changes: Changes { size: Some(size), .. } } => Some((node, (size, q.serial))),
            _ => None,
        };
        for (id, cut) in again.filter_map(cut).collect::<Vec<_>>() {
            self.with_data(id, |data| data.truncations.push(cut));
        }
    }
}

/// A write takes with it all that a file's data is by now, so it goes behind what was cut off since it was first sent, and there
/// is one.
fn put_behind_cuts(again: &mut Vec<(Op, Caller)>) {
    let (mut cut, mut written) = (FxHashSet::default(), FxHashSet::default());
    let mut moved: FxHashMap<NodeId, (Op, Caller)> = FxHashMap::default();
    let mut last_cuts = FxHashSet::default();
    let mut kept = Vec::with_capacity(again.len());
    for (op, caller) in again.drain(..).rev() {
        match op {
            Op::SetAttr { node, changes: Changes { size: Some(_), .. } } if cut.insert(node) => {
                last_cuts.insert(kept.len());
            }
            Op::Write { node, .. } if cut.contains(&node) => {
                if written.insert(node) {
                    moved.insert(node, (op, caller));
                }
                continue;
            }
            Op::Write { node, .. } => drop(written.insert(node)),
            _ => {}
        }
        kept.push((op, caller));
    }
    for (at, queued) in kept.into_iter().enumerate().rev() {
        let node = queued.0.nodes()[0].filter(|_| last_cuts.contains(&at));
        again.push(queued);
        again.extend(node.and_then(|node| moved.remove(&node)));
    }
}
