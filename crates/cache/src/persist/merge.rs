//! The server is back: what was changed here is compared with what it has now, before anything goes out. Nothing that
//! was done on either side is lost: where both cannot have the name, ours gets another.

mod apart;
mod base;
mod below;
mod dirs;
mod forgotten;
mod late;
mod left;
mod names;
mod repeated;
mod uncommitted;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Conflict;
use crate::ask::{Generation, RenameMode};
use crate::attrs::{Attrs, Kind};
use crate::errno::Errno;
use crate::extent::Progress;
use crate::ids::{Name, NodeId, Now};
use crate::machine::Machine;
use crate::node::Node;
use crate::queue::{Op, Stage, Thing, placed};
use crate::tell::{Reclaim, Reclaimed};
use holdfast_base::CapSet;
use holdfast_base::limits::CONFLICTS_MAX;

pub(crate) use base::{Base, Before};
pub(super) use below::Below;
pub use below::FoundBlock;
pub use forgotten::{Doubt, Within, resolved};
pub(crate) use left::Left;
pub(crate) use repeated::Found;

/// Where objects are, as far as names are known.
pub(crate) type Places = FxHashMap<NodeId, (NodeId, Name)>;

/// Conflicts looked through for one that was told already.
const TOLD_LATELY: usize = 256;

/// What became of an object at the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    /// Its contents are as they were.
    Same,
    Changed,
    Removed,
}

/// What became of those that were asked for, with their attributes now.
type Told = FxHashMap<NodeId, (There, Option<Attrs>)>;

/// Where things were when the server was compared with, for what was on its way then, up to this transaction.
pub(super) type Late = (u64, Places);

impl Machine {
    /// From now on nothing is sent (or is again), whoever waits for it: the server is away, or what it has is being
    /// compared with what is known here.
    pub fn hold(&mut self, is_held: bool) {
        self.stream.is_held = is_held;
        self.progress += 1;
    }

    /// The server is away: what is known and guaranteed may be changed as if it were held exclusively, for nobody can be
    /// asked, and [`merge`](Self::merge) compares before anything goes out.
    pub fn assume(&mut self) {
        self.progress += 1;
        for node in self.nodes.values_mut().filter(|n| n.recall.is_none() && n.dead.is_none()) {
            // PLAIN comes with the exclusive capability that is not to be had now.
            node.plain |= node.surely_hands_on_none();
            let known = node.held.shared() & node.sure;
            node.held = (node.held | CapSet(known.0 << 1)).sound();
        }
    }

    /// Whether nobody can be asked, and what is decided here is compared later.
    pub(crate) fn is_alone(&self) -> bool {
        self.journal.is_some() && self.stream.is_held
    }

    /// A file is about to be written while the server is away: what is known of it whole stays known, below what is
    /// written, and goes along with it.
    pub(crate) fn keep_whole(&mut self, id: NodeId) {
        if !self.is_alone() {
            return;
        }
        let Some(whole) = self.clean(id).cloned() else { return };
        let born = self.tick();
        self.with_data(id, |data| data.extents.put_below(0, &whole, Progress::Dirty, born));
    }

    /// What is to be asked for when the server is back: exclusively what was changed here, shared whatever else is known.
    #[must_use]
    pub fn claims(&self) -> Vec<Reclaim> {
        let is_changed = |n: &Node| n.pending > 0 || n.has_unsent(Generation(u64::MAX));
        let caps = |n: &Node| if is_changed(n) { n.to_claim() } else { n.held.shared() };
        let claim = |n: &Node| Some(Reclaim { handle: n.handle.clone()?, caps: caps(n) });
        let claimed = self.nodes.values().filter(|n| !n.held.is_empty() || is_changed(n));
        claimed.filter_map(|n| claim(n)).chain(self.lost_there()).collect()
    }

    /// What was changed on both sides, since this mount was first made.
    #[must_use]
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// Decides what becomes of what was changed here and there, before [`reclaimed`](Self::reclaimed) is told the same.
    /// What was sent before is sent again as it was; only what was not may still be told otherwise. `found`: what was read
    /// of [`blocks_below`](Self::blocks_below). Returns how many conflicts were found.
    pub fn merge(&mut self, told: &[Reclaimed], found: Vec<FoundBlock>, now: Now) -> usize {
        let before = self.conflicts.len();
        self.note_below(told, found);
        if let Some(journal) = &mut self.journal {
            journal.merged_at = Some(now.wall);
        }
        let places = self.last_places();
        self.note_paths(&places);
        let links = self.names_there(told);
        self.spare_others(&self.found_by(told), now);
        let (order, told) = self.compared(told);
        let made_anew = self.make_dirs_anew(&told, &places, None, now);
        for id in order {
            let Some((there, attrs)) = told.get(&id).copied() else { continue };
            if made_anew.contains(&id) {
                continue;
            }
            if self.nodes.get(&id).is_some_and(|n| n.dir.is_none()) {
                self.merge_contents(id, there, (&places, &made_anew), now);
            }
            match attrs {
                Some(attrs) => self.merge_attrs(id, there, &attrs),
                None => self.drop_what_concerns(id),
            }
        }
        self.keep_last_names(&links);
        self.provide_for_names_taken();
        let is_late = self.stream.kept.iter().any(|k| k.stage != Stage::Executed);
        if let Some(journal) = &mut self.journal {
            journal.late = is_late.then_some((self.stream.last_txn, places));
            journal.below.retain(|_, below| is_late && below.is_gone);
        }
        self.conflicts.len() - before
    }

    /// What became of each object; and their order. What is on its way about an object cannot be decided anew.
    fn compared(&self, told: &[Reclaimed]) -> (Vec<NodeId>, Told) {
        let under_way = self.stream.kept.iter().filter(|k| k.stage != Stage::Executed).flat_map(|k| &k.ops);
        let sent: FxHashSet<NodeId> = under_way.filter_map(|q| q.op.nodes()[0]).collect();
        let mut order = Vec::new();
        let mut all = Told::default();
        for Reclaimed { handle, result } in told {
            let Some(id) = self.handles.get(handle).copied().filter(|id| !sent.contains(id)) else {
                continue;
            };
            let Some(node) = self.nodes.get(&id) else { continue };
            let there = match result {
                Ok((attrs, _)) if node.attrs.kind == Kind::File && node.is_changed_there(attrs) => {
                    There::Changed
                }
                Ok(_) => There::Same,
                Err(Errno::ESTALE | Errno::ENOENT) => There::Removed,
                Err(_) => continue,
            };
            order.push(id);
            all.insert(id, (there, result.as_ref().ok().map(|(attrs, _)| *attrs)));
        }
        (order, all)
    }

    /// A name that was free when ours got it may not be any more; and a directory made there is as good as ours.
    fn provide_for_names_taken(&mut self) {
        let mut touched = Vec::new();
        for queued in &mut self.stream.unsent {
            match &mut queued.op {
                Op::Rename { mode, over: None, .. } => *mode = RenameMode::NoReplace,
                Op::Make { thing: Thing::Dir, joins, .. } => *joins = true,
                _ => continue,
            }
            touched.push(queued.serial);
        }
        self.stream.touch(touched);
    }

    pub(crate) fn places(&self) -> Places {
        let mut places = Places::default();
        for (id, node) in &self.nodes {
            let Some(dir) = &node.dir else { continue };
            places.extend(dir.entries(0).map(|(_, name, child)| (child, (*id, name.clone()))));
        }
        places
    }

    /// The same, and where objects were whose names were forgotten since.
    pub(crate) fn last_places(&self) -> Places {
        let mut places = self.places();
        for (id, node) in &self.nodes {
            if let Some(place) = &node.place {
                places.entry(*id).or_insert_with(|| place.clone());
            }
        }
        places
    }

    /// Directories' paths, while names are known.
    fn note_paths(&mut self, places: &Places) {
        self.paths = self
            .nodes
            .iter()
            .filter(|(_, node)| node.dir.is_some())
            .map(|(id, _)| (*id, path_of(places, *id)))
            .collect();
    }

    fn note_conflict(&mut self, (dir, name): (NodeId, &Name), kept_as: Option<Name>, what: &str) {
        if self.conflicts.len() >= CONFLICTS_MAX {
            return;
        }
        if !self.paths.contains_key(&dir) {
            // All at once: of what was made since, many may be refused.
            self.note_paths(&self.last_places());
            // What is no directory any more is not looked for again.
            self.paths.entry(dir).or_default();
        }
        let mut path = self.paths.get(&dir).cloned().unwrap_or_default();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let conflict = Conflict { path, kept_as, what: what.to_owned() };
        let is_told = self.conflicts.iter().rev().take(TOLD_LATELY).any(|told| *told == conflict);
        if !is_told {
            self.conflicts.push(conflict);
        }
    }

    /// What was queued about an object, by serial.
    pub(super) fn ops_about(&self, id: NodeId) -> Vec<(u64, Op)> {
        let Some(node) = self.nodes.get(&id).filter(|n| !n.unsent.is_empty()) else { return Vec::new() };
        let first = self.stream.unsent.front().map_or(0, |q| q.serial);
        let op = |serial: &u64| self.stream.unsent.get(serial.checked_sub(first)? as usize);
        node.unsent.iter().filter_map(|serial| Some((*serial, op(serial)?.op.clone()))).collect()
    }

    /// Puts mutations before all that are not sent; gives their first and last serial.
    fn put_before(
        &mut self,
        ops: Vec<(Op, crate::ids::Caller)>,
        is_first: bool,
        now: Now,
    ) -> Option<(u64, u64)> {
        if ops.is_empty() {
            return None;
        }
        let count = ops.len();
        let moved = self.stream.put_before(ops, is_first, now.mono);
        let first = moved[0].0;
        let is_later = |n: &Node| n.last_serial >= first || n.data.barrier >= first;
        let concerned: Vec<NodeId> = self.nodes.values().filter(|n| is_later(n)).map(|n| n.id).collect();
        for id in concerned {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.move_serials(&moved);
            }
        }
        let own = self.stream.unsent.iter().skip((moved[0].1 - first) as usize).take(count);
        let own: Vec<_> = own.map(|q| (q.serial, q.op.nodes())).collect();
        let range = own.first().zip(own.last()).map(|((from, _), (to, _))| (*from, *to));
        for (serial, nodes) in own {
            for (place, id) in nodes.into_iter().enumerate() {
                let Some(node) = id.and_then(|id| self.nodes.get_mut(&id)) else { continue };
                node.pending += 1;
                node.last_serial = node.last_serial.max(serial);
                node.is_theirs = false;
                if place == 0 {
                    let place = node.unsent.partition_point(|other| *other < serial);
                    node.unsent.insert(place, serial);
                }
            }
        }
        self.stats.mutations_queued += count as u64;
        range
    }
}

impl Node {
    /// Mutations have got later serials.
    fn move_serials(&mut self, moved: &[crate::queue::Moved]) {
        let moved = |serial: &mut u64| *serial = placed(*serial, moved);
        self.unsent.iter_mut().for_each(moved);
        self.data.truncations.iter_mut().for_each(|(_, serial)| moved(serial));
        self.data.carrier.iter_mut().for_each(moved);
        moved(&mut self.last_serial);
        moved(&mut self.lost_serial);
        moved(&mut self.data.barrier);
        moved(&mut self.data.filled_by);
        moved(&mut self.data.written_over);
        self.recall.iter_mut().for_each(|recall| moved(&mut recall.through));
    }
}

/// An object's path from the root, as far as names are known.
pub(crate) fn path_of(places: &Places, id: NodeId) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut at = id;
    while let Some((dir, name)) = places.get(&at).filter(|_| parts.len() < 4096) {
        parts.push(name.as_bytes());
        at = *dir;
    }
    parts.reverse();
    parts.join(&b'/')
}
