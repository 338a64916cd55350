//! A server that has forgotten what it executed: what was sent may have been done or not, and what was done may be lost with
//! the server's power. What can be told by names is told by names; what carries data counts as lost, for a time or a name on the
//! disk proves nothing of data. What is lost counts as not sent, and is compared as that is.

mod again;
mod signs;

use rustc_hash::{FxHashMap, FxHashSet};

use super::base::{Past, is_about_object};
use crate::attrs::{Attrs, Kind};
use crate::ids::{Caller, Handle, Name, NodeId, Now};
use crate::machine::Machine;
use crate::mutation::{Born, Target};
use crate::queue::{Op, Queued, Stage};
use signs::{Signs, places, vacates};

/// Where something may be there, or gone, by our own doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// In which directory.
    pub dir: Within,
    /// The name; empty: the object itself is meant.
    pub name: Name,
    /// As whom to look: who has changed something there may see it.
    pub caller: Caller,
    of: Looked,
}

/// A directory, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Within {
    /// By its handle.
    Known(Handle),
    /// What one of these doubts, by their places in the list, has found.
    Found(Vec<usize>),
}

/// What is looked at, once, whatever is in doubt about it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Looked {
    Itself(NodeId),
    Name(NodeId, Name),
}

/// What was sent, and whether its results were heard.
type Sent = (Queued, bool);

/// What each doubt finds, with its attributes: some are within what others find. `look` looks up the name of a doubt in a
/// directory.
///
/// # Errors
/// Those of `look`.
pub fn resolved<E>(
    doubts: &[Doubt],
    mut look: impl FnMut(&Handle, &Doubt) -> Result<Option<(Handle, Attrs)>, E>,
) -> Result<Vec<Option<(Handle, Attrs)>>, E> {
    let mut found: Vec<Option<(Handle, Attrs)>> = vec![None; doubts.len()];
    let mut looked = vec![false; doubts.len()];
    loop {
        let mut is_new = false;
        for (at, doubt) in doubts.iter().enumerate().filter(|(at, _)| !looked[*at]).collect::<Vec<_>>() {
            let dir = match &doubt.dir {
                Within::Known(dir) => Some(dir.clone()),
                Within::Found(all) => all.iter().find_map(|at| Some(found.get(*at)?.as_ref()?.0.clone())),
            };
            if let Some(dir) = dir {
                found[at] = look(&dir, doubt)?;
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
        let handles = self.handles_sent();
        let (mut order, mut known) = (Vec::new(), FxHashSet::default());
        let mut bearers: FxHashMap<NodeId, Vec<usize>> = FxHashMap::default();
        for (queued, heard) in self.in_doubt() {
            for looked in self.looked_at(&queued.op, heard) {
                if known.insert(looked.clone()) {
                    order.push((looked, queued.caller.clone()));
                }
            }
        }
        let at: FxHashMap<&Looked, usize> =
            order.iter().zip(0..).map(|((looked, _), at)| (looked, at)).collect();
        for (queued, _) in self.in_doubt() {
            let Some((id, (dir, name))) = places(&queued.op) else { continue };
            let place = at.get(&Looked::Name(dir, name));
            bearers.entry(id).or_default().extend(place);
        }
        let within = |id: NodeId| match self.handle_sent(id, &handles) {
            Some(handle) => Within::Known(handle.clone()),
            None => Within::Found(bearers.get(&id).cloned().unwrap_or_default()),
        };
        let doubt = |(of, caller): &(Looked, Caller)| {
            let (dir, name) = match of {
                Looked::Itself(id) => (within(*id), Name::new(b"")),
                Looked::Name(dir, name) => (within(*dir), name.clone()),
            };
            Doubt { dir, name, caller: caller.clone(), of: of.clone() }
        };
        order.iter().map(doubt).collect()
    }

    /// What was sent, and whether its results were heard. What is on the server's disk is in no doubt: it is kept for its names,
    /// and what others have done to it since stays.
    fn in_doubt(&self) -> impl Iterator<Item = (&Queued, bool)> {
        let kept = self.stream.kept.iter().filter(|k| k.txn > self.stream.stable_txn);
        kept.flat_map(|k| k.ops.iter().map(|q| (q, k.stage == Stage::Executed)))
    }

    /// Where it may be seen whether an operation was done: by names, or the object itself.
    fn looked_at(&self, op: &Op, heard: bool) -> Vec<Looked> {
        let named = |of: Option<(NodeId, (NodeId, Name))>| of.map(|(_, (dir, name))| Looked::Name(dir, name));
        let mut all: Vec<Looked> = match op {
            Op::Void => Vec::new(),
            Op::Make { node, .. } if heard => vec![Looked::Itself(*node)],
            Op::Write { node, .. } | Op::SetAttr { node, .. } => vec![Looked::Itself(*node)],
            op => named(places(op)).into_iter().chain(named(vacates(op))).collect(),
        };
        // What is forgotten here may have to be known again.
        let forgotten = |id: &NodeId| !self.nodes.contains_key(id);
        all.extend(op.nodes().into_iter().flatten().filter(forgotten).map(Looked::Itself));
        // What has no name here any more may have ended there, too.
        let nameless = |id: &NodeId| self.nodes.get(id).is_some_and(|node| node.attrs.nlink == 0);
        all.extend(op.nodes()[0].filter(nameless).map(Looked::Itself));
        all
    }

    /// The handles by which things were named when they were sent.
    fn handles_sent(&self) -> FxHashMap<NodeId, Handle> {
        let born = self.stream.kept.iter().flat_map(|k| k.born.iter().map(|(op, h)| ((k.txn, *op), h)));
        let born: FxHashMap<(u64, u32), &Handle> = born.collect();
        let handle = |target: &Target| match target {
            Target::Handle(handle) => Some(handle.clone()),
            Target::Made { txn, op } => born.get(&(*txn, *op)).map(|handle| (*handle).clone()),
        };
        let named = self.stream.kept.iter().flat_map(|k| &k.was);
        named.filter_map(|(id, target)| Some((*id, handle(target)?))).collect()
    }

    fn handle_sent<'h>(&'h self, id: NodeId, sent: &'h FxHashMap<NodeId, Handle>) -> Option<&'h Handle> {
        match self.nodes.get(&id) {
            Some(node) => node.handle.as_ref(),
            None => sent.get(&id),
        }
    }

    /// What each of the [`doubts`](Self::doubts) has found. What is there is done; everything else that was sent, and is not
    /// known to be on the server's disk, counts as not sent.
    pub fn settle_doubts(&mut self, doubts: &[Doubt], found: &[Option<(Handle, Attrs)>], now: Now) {
        self.progress += 1;
        let sent: Vec<Sent> = self.in_doubt().map(|(q, heard)| (q.clone(), heard)).collect();
        let mut handles = self.handles_sent();
        let mut pasts = self.pasts(&sent);
        self.stream.keep_none();
        self.stream.stable_txn = self.stream.last_txn;
        self.stream.is_asking_stable = false;
        let seen = doubts.iter().zip(found).filter_map(|(doubt, found)| Some((&doubt.of, found.as_ref()?)));
        let seen: FxHashMap<&Looked, &(Handle, Attrs)> = seen.collect();
        for (queued, _) in sent.iter().filter(|(_, heard)| !heard) {
            self.release_nodes(&queued.op);
        }
        let mut there = self.find_made(&sent, &seen, &pasts, now);
        let ids: FxHashSet<NodeId> = sent.iter().flat_map(|(q, _)| q.op.nodes()).flatten().collect();
        for id in ids {
            let Some(handle) = self.handle_sent(id, &handles).cloned() else {
                handles.remove(&id);
                continue;
            };
            if let Some((_, attrs)) = seen.get(&Looked::Itself(id)).filter(|(of, _)| *of == handle) {
                there.insert(id, *attrs);
            }
            handles.insert(id, handle);
        }
        let signs = Signs::new(&sent, seen, handles, there);
        let gone = self.ended(&signs);
        let lost = signs.lost(&gone);
        let again = self.done_again(&signs, &lost, &gone, now);
        let executed = self.stream.sent();
        for (id, attrs) in signs.there() {
            if let (Some(node), Some(past)) = (self.nodes.get_mut(id), pasts.remove(id)) {
                node.was_left(attrs, &past, executed);
            }
        }
        if let Some((from, to)) = self.put_before(again, true, now) {
            self.carry(from, to);
            self.cut_again(from, to);
        }
        // They are as any that was not sent: what has to come before them does.
        self.stream.ahead = 0;
    }

    /// What may be seen of objects that is not others' doing.
    fn pasts(&self, sent: &[Sent]) -> FxHashMap<NodeId, Past> {
        let mut pasts: FxHashMap<NodeId, Past> = FxHashMap::default();
        for (id, before) in self.stream.kept.iter().flat_map(|k| &k.before) {
            pasts.entry(*id).or_default().had(before);
        }
        for (Queued { op, .. }, _) in sent {
            let Some(id) = op.nodes()[0].filter(|_| is_about_object(op)) else { continue };
            let past = pasts.entry(id).or_default();
            past.got(op);
            self.nodes.get(&id).into_iter().for_each(|node| past.had(&node.seen()));
        }
        for (id, left) in self.stream.kept.iter().flat_map(|k| &k.left) {
            pasts.get_mut(id).into_iter().for_each(|past| past.became(*left));
        }
        pasts
    }

    /// What was made, and not heard of: it is found by its names, and bound to what is there.
    fn find_made(
        &mut self,
        sent: &[Sent],
        seen: &FxHashMap<&Looked, &(Handle, Attrs)>,
        pasts: &FxHashMap<NodeId, Past>,
        now: Now,
    ) -> FxHashMap<NodeId, Attrs> {
        let mut names: FxHashMap<NodeId, Vec<(NodeId, Name)>> = FxHashMap::default();
        let mut last_of: FxHashMap<(NodeId, Name), NodeId> = FxHashMap::default();
        for (id, place) in sent.iter().filter_map(|(q, _)| places(&q.op)) {
            names.entry(id).or_default().push(place.clone());
            last_of.insert(place, id);
        }
        let mut made = FxHashMap::default();
        for (queued, _) in sent.iter().filter(|(q, heard)| !heard && matches!(q.op, Op::Make { .. })) {
            let Some(id) = queued.op.nodes()[0] else { continue };
            let (Some(node), Some(names)) = (self.nodes.get(&id), names.get(&id)) else { continue };
            // The time was given here, to the nanosecond; that of a directory changes with what is put into it, and one
            // that somebody else has made is as good.
            let is_dir = node.attrs.kind == Kind::Dir;
            let is_ours = |place: &(NodeId, Name), theirs: &Attrs| {
                theirs.kind == node.attrs.kind
                    && if is_dir {
                        last_of.get(place) == Some(&id)
                    } else {
                        pasts.get(&id).is_some_and(|past| past.is_time_given(theirs.mtime))
                    }
            };
            let found = names.iter().find_map(|place| {
                let (handle, attrs) = seen.get(&Looked::Name(place.0, place.1.clone()))?;
                // Not what is known here as something else, which was to be moved away before.
                let is_another = self.handles.get(handle).is_some_and(|of| *of != id);
                (!is_another && is_ours(place, attrs)).then(|| (handle.clone(), *attrs))
            });
            let Some((handle, attrs)) = found else { continue };
            if let Some(node) = self.nodes.get_mut(&id) {
                node.told_by(queued, None, true);
            }
            self.bind(id, &Born { handle, grant: None }, now);
            made.insert(id, attrs);
        }
        made
    }

    /// What is not there, and has no name here any more: it is not made again, nor is anything else done to it.
    fn ended(&self, signs: &Signs<'_>) -> FxHashSet<NodeId> {
        // What is still to be taken from it is done as it was meant, to what is made again.
        let over = self.stream.unsent.iter().filter_map(|q| match &q.op {
            Op::Rename { over, .. } => *over,
            _ => None,
        });
        let over: FxHashSet<NodeId> = over.collect();
        let is_done_with = |id: &NodeId| {
            let is_named = |(_, op): &(u64, Op)| places(op).is_some() || vacates(op).is_some();
            self.nodes.get(id).is_none_or(|node| {
                let has_ended = node.attrs.nlink == 0 || node.dead.is_some();
                has_ended && !over.contains(id) && !self.ops_about(*id).iter().any(is_named)
            })
        };
        signs.concerned().filter(|id| !signs.is_there(*id) && is_done_with(id)).collect()
    }
}
