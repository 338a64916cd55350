//! The server is back: what was changed here is compared with what it has now, before anything goes out. Nothing that
//! was done on either side is lost: where both cannot have the name, ours gets another.

use bytes::Bytes;
use holdfast_base::{Civil, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Conflict;
use crate::ask::{Generation, RenameMode};
use crate::attrs::{Attrs, NewAttrs, SetTime};
use crate::caps::CapSet;
use crate::errno::Errno;
use crate::extent::Progress;
use crate::ids::{Caller, Name, NodeId, Now};
use crate::machine::Machine;
use crate::node::Node;
use crate::queue::{Load, Op, Queued, Stage, Thing};
use crate::tell::{Forget, Reclaim, Reclaimed};

/// Where objects are, as far as names are known.
type Places = FxHashMap<NodeId, (NodeId, Name)>;

/// What became of an object at the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    Changed,
    Removed,
}

impl Node {
    /// An operation of ours about it was done: what the server says of it from now on is ours, as far as it has this
    /// modification time.
    pub(crate) fn told_by(&mut self, op: &Op) {
        self.attrs.change = 0;
        match op {
            Op::Make { attrs, .. } => self.told_mtime = attrs.mtime,
            Op::Write { mtime, .. } => self.told_mtime = Some(*mtime),
            Op::SetAttr { changes, .. } => {
                if let Some(SetTime::At(at)) = changes.mtime {
                    self.told_mtime = Some(at);
                }
            }
            _ => {}
        }
    }

    /// Whether others have changed it since the server last told of it, or was told by us.
    fn is_changed_there(&self, theirs: &Attrs) -> bool {
        match (self.attrs.change, self.told_mtime) {
            (0, told) => told.is_some_and(|told| told != theirs.mtime),
            (change, _) => change != theirs.change,
        }
    }
}

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
            let known = node.held.shared() & node.sure;
            node.held = (node.held | CapSet(known.0 << 1)).closed();
        }
    }

    /// A file is about to be written while the server is away: what is known of it whole stays known, below what is
    /// written, and goes along with it.
    pub(crate) fn keep_whole(&mut self, id: NodeId) {
        if self.journal.is_none() || !self.stream.is_held {
            return;
        }
        let Some(whole) = self.clean(id).cloned() else { return };
        let born = self.tick();
        self.with_data(id, |data| data.extents.put_below(0, &whole, Progress::Dirty, born));
    }

    /// What is to be asked for when the server is back: exclusively what was changed here, shared whatever else is known.
    #[must_use]
    pub fn claims(&self) -> Vec<Reclaim> {
        let caps = |n: &Node| match n.pending > 0 || n.has_unsent(Generation(u64::MAX)) {
            true => n.held,
            false => n.held.shared(),
        };
        let claim = |n: &Node| Some(Reclaim { handle: n.handle.clone()?, caps: caps(n) });
        self.nodes.values().filter(|n| !n.held.is_none() || n.pending > 0).filter_map(|n| claim(n)).collect()
    }

    /// What was changed on both sides, since this mount was first made.
    #[must_use]
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// Decides what becomes of what was changed here and there, before [`reclaimed`](Self::reclaimed) is told the same.
    /// What was sent before is sent again as it was; only what was not may still be told otherwise. Returns how many
    /// conflicts were found.
    pub fn merge(&mut self, told: &[Reclaimed], now: Now) -> usize {
        let before = self.conflicts.len();
        let places = self.places();
        self.note_paths(&places);
        let sent: FxHashSet<NodeId> = self
            .stream
            .kept
            .iter()
            .filter(|k| k.stage != Stage::Executed)
            .flat_map(|k| &k.ops)
            .filter_map(|q| q.op.nodes()[0])
            .collect();
        for Reclaimed { handle, result } in told {
            let Some(id) = self.handles.get(handle).copied().filter(|id| !sent.contains(id)) else {
                continue;
            };
            let Some(node) = self.nodes.get(&id).filter(|n| n.dir.is_none()) else { continue };
            let there = match result {
                Ok((attrs, _)) if node.is_changed_there(attrs) => There::Changed,
                Err(Errno::ESTALE | Errno::ENOENT) => There::Removed,
                _ => continue,
            };
            self.merge_file(id, there, &places, now);
        }
        for queued in &mut self.stream.unsent {
            // A name that was free when ours got it may not be any more.
            if let Op::Rename { mode, over: None, .. } = &mut queued.op {
                *mode = RenameMode::NoReplace;
                self.stream.touched.push(queued.serial);
            }
        }
        self.conflicts.len() - before
    }

    fn places(&self) -> Places {
        let mut places = Places::default();
        for (id, node) in &self.nodes {
            let Some(dir) = &node.dir else { continue };
            places.extend(dir.entries(0).map(|(_, name, child)| (child, (*id, name.clone()))));
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
        let mut path = self.paths.get(&dir).cloned().unwrap_or_default();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        if self.conflicts.len() < holdfast_base::limits::CONFLICTS_MAX {
            self.conflicts.push(Conflict { path, kept_as, what: what.to_owned() });
        }
    }

    /// The server made ours under another name.
    pub(crate) fn conflict_kept(&mut self, dir: NodeId, name: &Name, other: &Name) {
        if self.journal.is_some() {
            self.note_conflict((dir, name), Some(other.clone()), "made here and there");
        }
    }

    /// What had returned here has failed there.
    pub(crate) fn conflict_failed(&mut self, queued: &Queued, errno: Errno) {
        if self.journal.is_none() {
            return;
        }
        let (place, verb) = match &queued.op {
            Op::Make { dir, name, .. } => ((*dir, name), "made"),
            Op::Link { dir, name, .. } => ((*dir, name), "linked"),
            Op::Unlink { dir, name, .. } | Op::Rmdir { dir, name, .. } => ((*dir, name), "removed"),
            Op::Rename { from, .. } => ((from.0, &from.1), "renamed"),
            _ => return,
        };
        self.note_conflict(place, None, &format!("{verb} here, which failed there: {errno}"));
    }

    fn merge_file(&mut self, id: NodeId, there: There, places: &Places, now: Now) {
        let Some(node) = self.nodes.get(&id) else { return };
        let dirty = node.data.extents.any(|p, _| matches!(p, Progress::Dirty | Progress::Sent(_)));
        let unsent = node.unsent.clone();
        let op_of =
            |m: &Self, serial: u64| m.stream.unsent.iter().find(|q| q.serial == serial).map(|q| q.op.clone());
        let ops: Vec<_> = unsent.iter().filter_map(|s| op_of(self, *s).map(|op| (*s, op))).collect();
        let removal = ops.iter().find_map(|(s, op)| match op {
            Op::Unlink { dir, name, .. } => Some((*s, *dir, name.clone())),
            _ => None,
        });
        if let Some((serial, dir, name)) = removal {
            self.elide(serial);
            self.disturb(id, CapSet::SHARED);
            self.unknow(dir, &name);
            if there == There::Changed {
                self.note_conflict((dir, &name), None, "removed here, changed there: theirs is kept");
            }
            return;
        }
        self.merge_replaced(id, there, now);
        let is_data = |op: &Op| match op {
            Op::Write { .. } => true,
            Op::SetAttr { changes, .. } => changes.size.is_some(),
            _ => false,
        };
        if dirty || ops.iter().any(|(_, op)| is_data(op)) {
            let owed = ops.iter().filter(|(_, op)| matches!(op, Op::Write { .. } | Op::SetAttr { .. }));
            owed.for_each(|(serial, _)| self.elide(*serial));
            if let Some((dir, name)) = places.get(&id).cloned() {
                self.set_apart(id, (dir, &name), there, now);
            }
        }
    }

    /// What was replaced by a rename here was changed there: both are kept.
    fn merge_replaced(&mut self, id: NodeId, there: There, now: Now) {
        if there != There::Changed {
            return;
        }
        let replaces = |q: &Queued| matches!(&q.op, Op::Rename { over: Some(over), .. } if *over == id);
        let Some(serial) = self.stream.unsent.iter().find(|q| replaces(q)).map(|q| q.serial) else { return };
        let Some(Queued { op: Op::Rename { to, mode, over, .. }, .. }) = self.stream.unsent_mut(serial)
        else {
            return;
        };
        let (dir, name) = to.clone();
        let ours = beside(&name, now.wall);
        (to.1, *mode, *over) = (ours.clone(), RenameMode::NoReplace, None);
        self.disturb(id, CapSet::SHARED);
        self.unknow(dir, &name);
        self.note_conflict((dir, &name), Some(ours), "replaced here, changed there");
    }

    /// Makes a file of its own of what was written here.
    fn set_apart(&mut self, id: NodeId, (dir, name): (NodeId, &Name), there: There, now: Now) {
        let Some(node) = self.nodes.get(&id) else { return };
        let (mut attrs, size) = (node.attrs, node.attrs.size);
        let caller = node.data.writer.clone().unwrap_or_else(|| Caller::new(attrs.uid, attrs.gid));
        let pieces = node.data.extents.read(0, size, Generation(u64::MAX));
        let known: u64 = pieces.iter().map(|p| p.data.len() as u64).sum();
        let below: Option<Bytes> = self.clean(id).cloned();
        self.with_data(id, |data| data.extents.turn(|_, _| None));
        self.with_data(id, |data| (data.mtime_owed, data.truncations) = (false, Vec::new()));
        self.disturb(id, CapSet::SHARED);
        self.invalidate(Forget::Data(id));
        self.last_shown += 1;
        (attrs.fileid, attrs.nlink, attrs.change) = (self.last_shown, 1, 0);
        let ours = self.add_node(None, attrs, now.mono);
        let other = beside(name, now.wall);
        let made = NewAttrs {
            mode: attrs.mode,
            uid: None,
            gid: None,
            atime: Some(attrs.atime),
            mtime: Some(attrs.mtime),
        };
        let (thing, load, want) = (Thing::File, Load::default(), CapSet::ALL);
        let op = Op::Make { dir, name: other.clone(), node: ours, thing, attrs: made, load, want };
        let serial = self.queue(op, &caller, now);
        let born = self.tick();
        self.with_data(ours, |data| {
            (data.carrier, data.writer) = (Some(serial), Some(caller));
            pieces.iter().for_each(|p| data.extents.write(p.offset, &p.data, born));
            if let Some(below) = below {
                data.extents.put_below(0, &below, Progress::Dirty, born);
            }
        });
        // What both names stand for the server says from now on.
        self.unknow(dir, name);
        let whole = known >= size;
        let what = match (there, whole) {
            (There::Changed, true) => "changed here and there",
            (There::Changed, false) => {
                "changed here and there; ours has only what was written here, the rest is zeros"
            }
            (There::Removed, true) => "changed here, removed there",
            (There::Removed, false) => {
                "changed here, removed there; ours has only what was written here, the rest is zeros"
            }
        };
        self.note_conflict((dir, name), Some(other), what);
        self.settle(ours, false, now);
    }
}

fn path_of(places: &Places, id: NodeId) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut at = id;
    while let Some((dir, name)) = places.get(&at).filter(|_| parts.len() < 4096) {
        parts.push(name.as_bytes());
        at = *dir;
    }
    parts.reverse();
    parts.join(&b'/')
}

/// `NAME-YYYYMMDDTHHMMSSZ`, the name cut so that it fits.
fn beside(name: &Name, at: Timestamp) -> Name {
    let Civil { year, month, day, hour, minute, second } = Civil::from_unix(at.seconds.unsigned_abs());
    let stamp = format!("-{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z");
    let room = holdfast_base::limits::NAME_BYTES_MAX - stamp.len();
    let mut whole = name.as_bytes()[..name.as_bytes().len().min(room)].to_vec();
    whole.extend_from_slice(stamp.as_bytes());
    Name::new(&whole)
}
