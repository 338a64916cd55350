//! Directories that were removed there while they were filled here; and those that are moved while nobody can be asked.

use rustc_hash::{FxHashMap, FxHashSet};

use super::apart::NAMELESS;
use super::{Places, There, Told};
use crate::attrs::NewAttrs;
use crate::errno::Errno;
use crate::ids::{Caller, Name, NodeId, Now};
use crate::machine::Machine;
use crate::queue::{Load, Op, Thing};
use crate::step::Outcome;
use holdfast_base::CapSet;

/// Directories that must be made anew, and for whom.
type Needed = FxHashMap<NodeId, Caller>;

impl Machine {
    /// Makes anew the directories that were removed there and that something of ours is in: the topmost under a name
    /// beside its own, what is below goes with it. Gives which.
    /// `one` is needed besides.
    pub(super) fn make_dirs_anew(
        &mut self,
        told: &Told,
        places: &Places,
        one: Option<(NodeId, Caller)>,
        now: Now,
    ) -> FxHashSet<NodeId> {
        let needed = self.dirs_needed(told, places, one);
        let depth = |id: &NodeId| {
            let (mut at, mut depth) = (*id, 0);
            while depth < needed.len()
                && let Some((above, _)) = self.place(at, places)
                && needed.contains_key(&above)
            {
                (at, depth) = (above, depth + 1);
            }
            depth
        };
        let mut order: Vec<NodeId> = needed.keys().copied().collect();
        order.sort_by_cached_key(|id| (depth(id), *id));
        let mut ops = Vec::new();
        let mut made = FxHashSet::default();
        for id in order {
            let (Some((dir, name)), Some(caller)) = (self.place(id, places), needed.get(&id)) else {
                continue;
            };
            let other = if made.contains(&dir) { Some(name.clone()) } else { self.aside(&name, now) };
            let Some(other) = other else { continue };
            self.forget_where_it_was(id);
            self.name_unsent((dir, &name), id, &other);
            if !made.contains(&dir) {
                self.unknow(dir, &name);
                self.note_conflict((dir, &name), Some(other.clone()), "filled here, removed there");
            }
            let Some(node) = self.nodes.get(&id) else { continue };
            let (mode, mtime) = (node.attrs.mode, Some(node.attrs.mtime));
            let attrs = NewAttrs { mode, atime: mtime, mtime, ..NewAttrs::default() };
            let (thing, load, want) = (Thing::Dir, Load::default(), CapSet::ALL_X);
            let op = Op::Make { dir, name: other, node: id, thing, attrs, load, want, joins: false };
            ops.push((op, caller.clone()));
            made.insert(id);
        }
        self.put_before(ops, true, now);
        made
    }

    /// Those removed there in which something of ours is to be, with all removed above them.
    fn dirs_needed(&self, told: &Told, places: &Places, one: Option<(NodeId, Caller)>) -> Needed {
        let is_gone = |id: &NodeId| told.get(id).is_some_and(|(there, _)| *there == There::Removed);
        let mut all: Vec<(NodeId, Caller)> = one.into_iter().collect();
        for queued in &self.stream.unsent {
            match &queued.op {
                Op::Make { dir, .. } => all.push((*dir, queued.caller.clone())),
                Op::Link { dir, node, .. } if !is_gone(node) => all.push((*dir, queued.caller.clone())),
                Op::Rename { to, node, .. } if !is_gone(node) => all.push((to.0, queued.caller.clone())),
                _ => {}
            }
        }
        let differs = |id: &&NodeId| told.get(*id).is_some_and(|(there, _)| *there != There::Same);
        for id in told.keys().filter(differs).filter(|id| self.has_data_of_its_own(**id)) {
            if let (Some((dir, _)), Some(caller)) = (places.get(id), self.writer(*id)) {
                all.push((*dir, caller));
            }
        }
        let mut needed = Needed::default();
        while let Some((dir, caller)) = all.pop() {
            let is_known = needed.contains_key(&dir) || self.nodes.get(&dir).is_none_or(|n| n.dir.is_none());
            if is_known || !is_gone(&dir) {
                continue;
            }
            if let Some((above, _)) = self.place(dir, places) {
                all.push((above, caller.clone()));
                needed.insert(dir, caller);
            }
        }
        needed
    }

    /// Where a directory is, or was before it was moved or removed here. In the mount's root where that is not known: what is in
    /// it has to be somewhere.
    fn place(&self, id: NodeId, places: &Places) -> Option<(NodeId, Name)> {
        let before = self.ops_about(id).into_iter().find_map(|(_, op)| match op {
            Op::Rmdir { dir, name, .. } => Some((dir, name)),
            Op::Rename { from, .. } => Some(from),
            _ => None,
        });
        let known = before.or_else(|| places.get(&id).cloned());
        let known = known.filter(|(dir, _)| self.nodes.contains_key(dir));
        let nameless = || (id != NodeId::ROOT).then(|| (NodeId::ROOT, Name::new(NAMELESS)));
        known.or_else(nameless)
    }

    /// It is not at the server any more, and is to be made.
    fn forget_where_it_was(&mut self, id: NodeId) {
        self.keep_named(id);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(handle) = node.handle.take()
            && self.handles.get(&handle) == Some(&id)
        {
            self.handles.remove(&handle);
        }
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.changing = 0;
        (node.made, node.is_theirs, node.told_mtime, node.base, node.seq) = (None, false, None, None, 0);
        node.attrs.change = 0;
        self.distrust(id);
    }

    /// Whether a directory may be moved below another while nobody can be asked whether it would come to lie within itself:
    /// where all that is above is known here.
    ///
    /// # Errors
    /// `EINVAL` where it would.
    pub(crate) fn may_move_alone(&self, id: NodeId, below: NodeId) -> Outcome<bool> {
        if !self.is_alone() {
            return Ok(false);
        }
        let places = self.places();
        let (mut at, mut steps) = (below, 0);
        while at != NodeId::ROOT {
            if at == id {
                return Err(Errno::EINVAL.into());
            }
            steps += 1;
            match places.get(&at).filter(|_| steps < 4096) {
                Some((above, _)) => at = *above,
                None => return Ok(false),
            }
        }
        Ok(id != NodeId::ROOT)
    }
}
