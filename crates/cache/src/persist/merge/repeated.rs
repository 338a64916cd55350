//! What the server has done, and lost with its power, is done again; but not over what others have done since, who may have been
//! told that theirs is on the disk. What of ours was to be there is set apart then, as what was changed on both sides.

use rustc_hash::{FxHashMap, FxHashSet};

use super::base::{Past, is_about_object};
use super::{Places, There};
use crate::ask::Generation;
use crate::attrs::{Attrs, Changes, Kind};
use crate::errno::Errno;
use crate::ids::{Handle, NodeId, Now};
use crate::machine::Machine;
use crate::node::Node;
use crate::queue::{Kept, Load, Op, Stage};
use crate::tell::{Reclaim, Reclaimed, Report};
use holdfast_base::CapSet;

/// What the server has of objects, as it said when it had begun anew.
pub(crate) type Found = FxHashMap<NodeId, Attrs>;

impl Machine {
    /// What a server that began anew is to be asked for, without claiming it: what was done to it last may be lost, and is done
    /// again then.
    #[must_use]
    pub fn in_question(&self) -> Vec<Reclaim> {
        let unstable = || self.stream.kept.iter().filter(|k| k.txn > self.stream.stable_txn);
        let about = unstable().flat_map(|k| &k.ops).filter(|q| is_about_object(&q.op));
        let ids: FxHashSet<NodeId> = about.filter_map(|q| q.op.nodes()[0]).collect();
        let known = ids.into_iter().filter_map(|id| self.nodes.get(&id)?.handle.clone());
        // What was made and has been removed since may be there still.
        let made = unstable().flat_map(|k| &k.born).map(|(_, handle)| handle.clone());
        let all: FxHashSet<Handle> = known.chain(made).collect();
        all.into_iter().map(|handle| Reclaim { handle, caps: CapSet::NONE }).collect()
    }

    /// What was made there and is made again, by the handles that it had.
    pub(super) fn lost_there(&self) -> impl Iterator<Item = Reclaim> {
        let is_unmade =
            |id: &NodeId| self.nodes.get(id).is_some_and(|n| n.handle.is_none() && n.dead.is_none());
        let lost = self.born().into_iter().filter(move |(_, id)| is_unmade(id));
        lost.map(|(handle, _)| Reclaim { handle, caps: CapSet::NONE })
    }

    /// What was made by what is kept, as far as it was heard of.
    fn born(&self) -> FxHashMap<Handle, NodeId> {
        let mut all = FxHashMap::default();
        for kept in self.stream.kept.iter().filter(|k| !k.born.is_empty()) {
            let mut at = 0;
            for queued in &kept.ops {
                if let Op::Make { node, .. } = &queued.op
                    && let Ok(place) = kept.born.binary_search_by_key(&at, |(op, _)| *op)
                {
                    all.insert(kept.born[place].1.clone(), *node);
                }
                at += queued.op.parts() as u32;
            }
        }
        all
    }

    /// What a server has told of what is known here, or was.
    pub(crate) fn found_by(&self, told: &[Reclaimed]) -> Found {
        let born = self.born();
        let found = told.iter().filter_map(|told| Some((&told.handle, told.result.as_ref().ok()?.0)));
        let node = |handle| self.handles.get(handle).or_else(|| born.get(handle)).copied();
        found.filter_map(|(handle, attrs)| Some((node(handle)?, attrs))).collect()
    }

    /// What comes out again is changed so that it leaves what others have done since. `found`: what there is now.
    pub(crate) fn spare_others(&mut self, found: &Found, now: Now) {
        let pasts = self.pasts_repeated();
        let (mut contents, mut attributes) = (Vec::new(), Vec::new());
        for (id, past) in &pasts {
            let (Some(theirs), Some(node)) = (found.get(id), self.nodes.get(id)) else { continue };
            let is_file = theirs.kind == Kind::File && node.attrs.kind == Kind::File;
            if is_file && !node.data.was_clocked && past.is_changed(theirs, &node.attrs) {
                contents.push((*id, *theirs));
            }
            attributes.push((*id, *theirs));
        }
        attributes.sort_unstable_by_key(|(id, _)| *id);
        for (id, theirs) in attributes {
            let Some(past) = pasts.get(&id) else { continue };
            let spared = |op: &mut Op| match op {
                Op::SetAttr { changes, .. } => past.spare(changes, &theirs),
                _ => false,
            };
            if self.rewrite_sent(id, spared) {
                self.distrust(id);
                if let Some((dir, name)) = self.place_of(id) {
                    self.note_conflict((dir, &name), None, "attributes set here and there: theirs are kept");
                }
            }
        }
        self.know_by_times(&pasts, found);
        contents.sort_unstable_by_key(|(id, _)| *id);
        for (id, theirs) in contents {
            self.spare_contents(id, &theirs, now);
        }
    }

    /// A server fills a file that is there once more only where it has the time that it is told: so it is told the one that it has, if
    /// that is of something that was done here after it was made, and comes again as well.
    fn know_by_times(&mut self, pasts: &FxHashMap<NodeId, Past>, found: &Found) {
        if self.journal.is_some() {
            // It compares before anything goes out, and what it has made is not found so.
            return;
        }
        let executed = self.stream.executed_there;
        let again = self.stream.kept.iter_mut().filter(|kept| is_undone(kept, executed));
        for queued in again.flat_map(|kept| &mut kept.ops) {
            let Op::Make { node, attrs, load, .. } = &mut queued.op else { continue };
            let is_ours = |theirs: &&Attrs| pasts.get(node).is_some_and(|past| past.admits_time(theirs));
            if let Some(theirs) = found.get(node).filter(|_| load.spare.is_some()).filter(is_ours) {
                attrs.mtime = Some(theirs.mtime);
            }
        }
    }

    /// What may be seen there of each object that something is done to again, if that is all ours; of those of which it is known
    /// what they were before.
    fn pasts_repeated(&self) -> FxHashMap<NodeId, Past> {
        let unstable = || self.stream.kept.iter().filter(|k| k.txn > self.stream.stable_txn);
        let mut again = FxHashSet::default();
        let executed = self.stream.executed_there;
        for kept in unstable().filter(|k| k.is_repeated && is_undone(k, executed)) {
            again.extend(kept.ops.iter().filter(|q| is_about_object(&q.op)).filter_map(|q| q.op.nodes()[0]));
        }
        let mut pasts: FxHashMap<NodeId, Past> = FxHashMap::default();
        for kept in unstable() {
            for (id, before) in kept.before.iter().filter(|(id, _)| again.contains(id)) {
                pasts.entry(*id).or_default().had(before);
            }
            for queued in kept.ops.iter().filter(|q| is_about_object(&q.op)) {
                let Some(id) = queued.op.nodes()[0].filter(|id| again.contains(id)) else { continue };
                // Of what was there before, and nothing is known of that, nobody can tell.
                if pasts.contains_key(&id) || matches!(queued.op, Op::Make { .. }) {
                    let past = pasts.entry(id).or_default();
                    past.got(&queued.op);
                    if kept.is_unheard && is_undone(kept, executed) && self.is_ours_alone(id) {
                        past.was_under_way(&queued.op);
                    }
                }
            }
            for (id, left) in &kept.left {
                pasts.get_mut(id).into_iter().for_each(|past| past.became(*left));
            }
        }
        pasts
    }

    /// Whether nobody else can have changed a file since it was promised: no other client, for the promise was had back, and no process
    /// on the server's host, which has told of none. Who works without the server compares before he hears of that.
    fn is_ours_alone(&self, id: NodeId) -> bool {
        let is_had = |node: &Node| (node.held | node.giving_back).contains(CapSet::FILE_X);
        let is_it = |node: &Node| is_had(node) && !node.is_changed_since;
        self.journal.is_none() && self.nodes.get(&id).is_some_and(|node| is_it(node))
    }

    /// Changes what is to come out again about an object, and keeps its form, by which others name what it makes. Whether anything
    /// was changed. What was sent behind what is lost, and not answered, rests on that, and was done no more than that: it is
    /// changed as well.
    fn rewrite_sent(&mut self, id: NodeId, mut change: impl FnMut(&mut Op) -> bool) -> bool {
        let mut rewritten = Vec::new();
        let executed = self.stream.executed_there;
        let is_again = |k: &&mut Kept| is_undone(k, executed);
        for kept in self.stream.kept.iter_mut().filter(is_again) {
            let about = kept.ops.iter_mut().filter(|q| q.op.nodes()[0] == Some(id));
            if about.fold(false, |is, queued| change(&mut queued.op) | is) {
                rewritten.push(kept.txn);
            }
        }
        let is_any = !rewritten.is_empty();
        self.are_rewritten(rewritten);
        is_any
    }

    /// Theirs stays; what ours had is a file of its own.
    fn spare_contents(&mut self, id: NodeId, theirs: &Attrs, now: Now) {
        let places = self.places_sent();
        self.rewrite_sent(id, |op| is_emptied(op, theirs));
        let kept = self.stream.kept.iter().filter(|k| k.stage != Stage::Executed).flat_map(|k| &k.ops);
        let about = kept.filter(|q| q.op.nodes()[0] == Some(id));
        let serials: Vec<u64> = about.map(|q| q.serial).collect();
        for serial in &serials {
            self.not_sent(id, *serial);
        }
        self.with_data(id, |data| data.truncations.retain(|(_, serial)| !serials.contains(serial)));
        let has_data = self.has_data_of_its_own(id);
        let place = places.get(&id).cloned();
        let by = (&places, &FxHashSet::default());
        if self.journal.is_some() {
            self.merge_contents(id, There::Changed, by, now);
        } else {
            // What is done to its names goes out as ever.
            self.part_contents(id, There::Changed, by, now);
        }
        self.distrust(id);
        if self.journal.is_none() && has_data {
            let report = Report::new("write again what the server has lost", id, Errno::EEXIST);
            self.note_error(id, Errno::EEXIST);
            self.report_at(place, report);
        }
    }

    /// Where things are: a server that began anew had all names forgotten, but for those of what was sent.
    fn places_sent(&self) -> Places {
        let mut places = self.last_places();
        for queued in self.stream.kept.iter().flat_map(|k| &k.ops).chain(&self.stream.unsent) {
            let placed = match &queued.op {
                Op::Make { node, dir, name, .. } | Op::Link { node, dir, name } => {
                    (*node, (*dir, name.clone()))
                }
                Op::Rename { node, to, .. } => (*node, to.clone()),
                _ => continue,
            };
            places.insert(placed.0, placed.1);
        }
        places
    }
}

/// Whether a batch comes out again that the server has not executed, as far as it has told: what it has it tells by its number, and
/// another in its place would be refused. What was sent since may have been executed.
fn is_undone(kept: &Kept, executed: Option<(u64, Generation)>) -> bool {
    kept.stage == Stage::Waiting
        && executed.is_some_and(|(through, told)| kept.txn > through && kept.asked < told)
}

/// Takes from an operation what it was to do to contents. It stays as many operations of the program.
fn is_emptied(op: &mut Op, theirs: &Attrs) -> bool {
    let empty = |load: &mut Load| {
        load.data.iter_mut().for_each(|(_, bytes)| *bytes = bytes::Bytes::new());
        load.size = None;
    };
    match op {
        Op::Make { load, attrs, .. } => {
            empty(load);
            (attrs.mtime, attrs.atime) = (Some(theirs.mtime), None);
        }
        Op::Write { load, mtime, .. } => {
            empty(load);
            *mtime = theirs.mtime;
        }
        Op::SetAttr { changes, .. } => {
            *changes = Changes { size: None, atime: None, mtime: None, ..*changes }
        }
        _ => return false,
    }
    true
}
