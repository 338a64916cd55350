//! A server that has forgotten what it executed: what was sent and not answered may have been done or not. What can be told
//! by names is told by names; the rest counts as not sent, and is compared as that is.

use crate::attrs::{Attrs, Changes, Kind, SetTime};
use crate::ids::{Caller, Handle, Name, NodeId, Now};
use crate::machine::Machine;
use crate::mutation::Born;
use crate::queue::{Load, Op, Queued, Stage};

use super::apart::is_about_data;
use holdfast_base::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};

/// A name by which something may be there already, by our own doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// In which directory.
    pub dir: Within,
    /// The name; empty: the object itself is meant.
    pub name: Name,
}

/// A directory, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Within {
    /// By its handle.
    Known(Handle),
    /// What one of these doubts, by their places in the list, has found.
    Found(Vec<usize>),
}

/// What each doubt finds, with its attributes: some are within what others find. `look` looks up a name.
///
/// # Errors
/// Those of `look`.
pub fn resolved<E>(
    doubts: &[Doubt],
    mut look: impl FnMut(&Handle, &Name) -> Result<Option<(Handle, Attrs)>, E>,
) -> Result<Vec<Option<(Handle, Attrs)>>, E> {
    let mut found: Vec<Option<(Handle, Attrs)>> = vec![None; doubts.len()];
    let mut looked = vec![false; doubts.len()];
    loop {
        let mut is_new = false;
        for (at, Doubt { dir, name }) in
            doubts.iter().enumerate().filter(|(at, _)| !looked[*at]).collect::<Vec<_>>()
        {
            let dir = match dir {
                Within::Known(dir) => Some(dir.clone()),
                Within::Found(all) => all.iter().find_map(|at| Some(found.get(*at)?.as_ref()?.0.clone())),
            };
            if let Some(dir) = dir {
                found[at] = look(&dir, name)?;
                (looked[at], is_new) = (true, true);
            }
        }
        if !is_new {
            return Ok(found);
        }
    }
}

impl Machine {
    /// Whether something was sent that the server may have to be asked about, as it is not known to be on its disk.
    #[must_use]
    pub fn has_sent(&self) -> bool {
        !self.stream.kept.is_empty()
    }

    /// What is to be looked up, in order, before [`settle_doubts`](Self::settle_doubts).
    #[must_use]
    pub fn doubts(&self) -> Vec<Doubt> {
        let looked = || {
            self.in_doubt()
                .filter_map(|(q, heard)| Some((self.is_looked_up(&q.op, heard)?, q.op.nodes()[0]?)))
        };
        let bearers: Vec<NodeId> = looked().map(|(_, id)| id).collect();
        let within = |id: NodeId| match self.nodes.get(&id).and_then(|n| n.handle.clone()) {
            Some(handle) => Within::Known(handle),
            None => Within::Found((0..bearers.len()).filter(|at| bearers[*at] == id).collect()),
        };
        looked().map(|((dir, name), _)| Doubt { dir: within(dir), name }).collect()
    }

    /// What was sent, and whether its results were heard. What is on the server's disk is in no doubt: it is kept for its names,
    /// and what others have done to it since stays.
    fn in_doubt(&self) -> impl Iterator<Item = (&Queued, bool)> {
        let kept = self.stream.kept.iter().filter(|k| k.txn > self.stream.stable_txn);
        kept.flat_map(|k| k.ops.iter().map(|q| (q, k.stage == Stage::Executed)))
    }

    /// The name by which it may be seen that an operation was done; none: the object itself.
    fn is_looked_up(&self, op: &Op, heard: bool) -> Option<(NodeId, Name)> {
        let itself = |id: &NodeId| Some((*id, Name::new(b"")));
        match op {
            Op::Make { node, .. } | Op::Write { node, .. } | Op::SetAttr { node, .. } if heard => {
                itself(node)
            }
            Op::Unlink { dir, name, .. } | Op::Rmdir { dir, name, .. } if heard => Some((*dir, name.clone())),
            Op::Make { dir, name, .. } | Op::Link { dir, name, .. } => Some((*dir, name.clone())),
            Op::Rename { to, .. } => Some(to.clone()),
            _ => None,
        }
    }

    /// What each of the [`doubts`](Self::doubts) has found. What is there is done; everything else that was sent, and is not
    /// known to be on the server's disk, counts as not sent.
    pub fn settle_doubts(&mut self, found: &[Option<(Handle, Attrs)>], now: Now) {
        self.progress += 1;
        let all: Vec<(Queued, bool)> = self.in_doubt().map(|(q, heard)| (q.clone(), heard)).collect();
        self.stream.kept.clear();
        self.stream.stable_txn = self.stream.last_txn;
        self.stream.is_asking_stable = false;
        let times: Vec<_> =
            all.iter().filter_map(|(q, _)| Some((q.op.nodes()[0]?, told_time(&q.op)?))).collect();
        let looked = all.iter().filter(|(q, heard)| self.is_looked_up(&q.op, *heard).is_some());
        let looked: Vec<Option<NodeId>> = looked.map(|(q, _)| q.op.nodes()[0]).collect();
        let (mut lost, mut at) = (Vec::new(), 0);
        for (queued, heard) in all {
            let mut places = Vec::new();
            if self.is_looked_up(&queued.op, heard).is_some() {
                places.push(at);
                // What was made may have been renamed since.
                let makes = !heard && matches!(queued.op, Op::Make { .. });
                places
                    .extend((at + 1..looked.len()).filter(|of| makes && looked[*of] == queued.op.nodes()[0]));
                at += 1;
            }
            let there: Vec<_> = places.into_iter().filter_map(|at| found.get(at)?.as_ref()).collect();
            let is_done = if heard {
                self.is_still_done(&queued.op, there.first().copied(), &times)
            } else {
                self.release_nodes(&queued.op);
                there.into_iter().any(|(handle, attrs)| self.is_done(&queued, handle, attrs, &times, now))
            };
            if !is_done {
                lost.push((queued, heard));
            }
        }
        self.unload(lost.iter().filter(|(_, heard)| *heard).map(|(queued, _)| (queued.serial, &queued.op)));
        let mut again: Vec<_> =
            lost.into_iter().filter_map(|(queued, heard)| self.as_not_sent(queued, heard)).collect();
        put_behind_cuts(&mut again);
        if let Some((from, to)) = self.put_before(again, true, now) {
            self.carry(from, to);
            self.cut_again(from, to);
        }
        // They are as any that was not sent: what has to come before them does.
        self.stream.ahead = 0;
    }

    /// What these have cut off is back there, and void until they have come again.
    fn cut_again(&mut self, first: u64, last: u64) {
        let again = self.stream.unsent.iter().filter(|q| (first..=last).contains(&q.serial));
        let cut = |q: &Queued| match q.op {
            Op::SetAttr { node, changes: Changes { size: Some(size), .. } } => Some((node, (size, q.serial))),
            _ => None,
        };
        for (id, cut) in again.filter_map(cut).collect::<Vec<_>>() {
            self.with_data(id, |data| data.truncations.push(cut));
        }
    }

    /// Whether what was done, as was heard, was not lost with the server's power.
    fn is_still_done(&self, op: &Op, there: Option<&(Handle, Attrs)>, times: &[(NodeId, Timestamp)]) -> bool {
        let Some((id, node)) = op.nodes()[0].and_then(|id| Some((id, self.nodes.get(&id)?))) else {
            return true;
        };
        let is_it = there.is_some_and(|(handle, _)| node.handle.as_ref() == Some(handle));
        match op {
            Op::Unlink { .. } | Op::Rmdir { .. } => !is_it,
            Op::Write { .. } => there.is_some_and(|(_, attrs)| times.contains(&(id, attrs.mtime))),
            Op::Rename { .. } | Op::Link { .. } => is_it,
            _ => there.is_some(),
        }
    }

    /// Whether what is there by that name is what the operation was to bring about.
    fn is_done(
        &mut self,
        queued: &Queued,
        handle: &Handle,
        theirs: &Attrs,
        times: &[(NodeId, Timestamp)],
        now: Now,
    ) -> bool {
        let (Op::Make { node: id, .. } | Op::Link { node: id, .. } | Op::Rename { node: id, .. }) =
            &queued.op
        else {
            return false;
        };
        let Some(node) = self.nodes.get_mut(id) else { return false };
        let Op::Make { .. } = queued.op else { return node.handle.as_ref() == Some(handle) };
        // The time was given here, to the nanosecond; that of a directory changes with what is put into it, and one
        // that somebody else has made is as good.
        let is_ours = theirs.kind == Kind::Dir || times.contains(&(*id, theirs.mtime));
        if node.attrs.kind != theirs.kind || !is_ours {
            return false;
        }
        node.told_by(queued, true);
        self.bind(*id, &Born { handle: handle.clone(), grant: None }, now);
        self.loaded(*id, queued.serial);
        true
    }

    /// The operation as it was before it was sent; none where what comes behind it says the same.
    fn as_not_sent(&mut self, queued: Queued, heard: bool) -> Option<(Op, Caller)> {
        let Queued { serial, caller, mut op, .. } = queued;
        let id = op.nodes()[0]?;
        if heard
            && matches!(op, Op::Make { .. })
            && let Some(handle) = self.nodes.get_mut(&id)?.handle.take()
        {
            // The answers to what is being asked under it are of something that is gone.
            self.nodes.get_mut(&id)?.changing = 0;
            self.handles.remove(&handle);
        }
        self.not_sent(id, serial);
        let later: Vec<u64> = self
            .ops_about(id)
            .into_iter()
            .filter(|(_, op)| is_about_data(op))
            .map(|(serial, _)| serial)
            .collect();
        match &mut op {
            Op::Make { load, .. } => {
                *load = Load::default();
                later.into_iter().for_each(|serial| self.elide(serial));
                self.with_data(id, |data| data.truncations.clear());
                self.nodes.get_mut(&id)?.made = None;
            }
            Op::Write { load, mtime, .. } => {
                *load = Load::default();
                self.nodes.get_mut(&id)?.data.maybe = Some(*mtime);
                if !later.is_empty() {
                    return None;
                }
            }
            Op::SetAttr { changes, .. } => {
                if self.nodes.get(&id)?.handle.is_none() {
                    // It is made with the data and the size that it has now.
                    changes.size = None;
                }
                if changes.is_empty() {
                    return None;
                }
                if let Some(SetTime::At(at)) = changes.mtime {
                    self.nodes.get_mut(&id)?.data.maybe = Some(at);
                }
            }
            _ => {}
        }
        Some((op, caller))
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

/// The modification time that an operation gives.
fn told_time(op: &Op) -> Option<Timestamp> {
    match op {
        Op::Make { attrs, .. } => attrs.mtime,
        Op::Write { mtime, .. } => Some(*mtime),
        Op::SetAttr { changes, .. } => match changes.mtime {
            Some(SetTime::At(at)) => Some(at),
            _ => None,
        },
        _ => None,
    }
}
