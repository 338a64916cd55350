//! Names that ours cannot have: they get others.

use holdfast_base::{Civil, Timestamp};

use crate::Reclaimed;
use crate::errno::Errno;
use crate::ids::{Name, NodeId, Now};
use crate::machine::Machine;
use crate::queue::{Op, Queued, Stage};
use crate::tell::Report;
use holdfast_base::CapSet;
use holdfast_base::limits::CONFLICTS_MAX;
use rustc_hash::{FxHashMap, FxHashSet};

/// For so long after the comparing what turns out to be in the way is put aside under the time of the comparing.
const MERGE_S: i64 = 600;

impl Machine {
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
        let (place, what) = match &queued.op {
            Op::Make { dir, name, .. } => ((*dir, name), format!("made here, which failed there: {errno}")),
            Op::Link { dir, name, .. } => ((*dir, name), format!("linked here, which failed there: {errno}")),
            Op::Unlink { dir, name, .. } | Op::Rmdir { dir, name, .. } => {
                let what = match errno {
                    Errno::ENOTEMPTY => "removed here, filled there: theirs is kept".into(),
                    Errno::ESTALE => "removed here, replaced there: theirs is kept".into(),
                    _ => format!("removed here, which failed there: {errno}"),
                };
                ((*dir, name), what)
            }
            Op::Rename { from, .. } => {
                let what = match errno {
                    Errno::ENOENT | Errno::ESTALE => {
                        "renamed here, renamed or removed there: theirs is kept".into()
                    }
                    Errno::EINVAL => {
                        "moved here to below itself, as it was moved there: theirs is kept".into()
                    }
                    _ => format!("renamed here, which failed there: {errno}"),
                };
                ((from.0, &from.1), what)
            }
            Op::SetAttr { node, .. } => return self.conflict_refused(*node, "attributes set", errno),
            Op::Write { .. } | Op::Void => return,
        };
        self.note_conflict(place, None, &what);
        if let Op::Link { node, .. } = &queued.op {
            self.keep_names(*node);
        }
    }

    /// The server would not have what was done to an object here, as its disk is full, say: who did it may be long gone.
    pub(crate) fn conflict_refused(&mut self, id: NodeId, what: &str, errno: Errno) {
        if self.journal.is_none() || self.conflicts.len() >= CONFLICTS_MAX {
            return;
        }
        let last = || self.nodes.get(&id)?.place.clone();
        if let Some((dir, name)) = self.place_of(id).or_else(last) {
            self.note_conflict((dir, &name), None, &format!("{what} here, which failed there: {errno}"));
        }
    }

    /// It has not got a name that it was to have: those that it has it keeps.
    fn keep_names(&mut self, id: NodeId) {
        for (serial, op) in self.ops_about(id) {
            if let Op::Unlink { dir, name, .. } = op {
                self.elide(serial);
                self.unknow(dir, &name);
            }
        }
    }

    /// How many names objects have there.
    pub(super) fn names_there(&self, told: &[Reclaimed]) -> FxHashMap<NodeId, u32> {
        let of = |told: &Reclaimed| {
            let (attrs, _) = told.result.as_ref().ok()?;
            Some((*self.handles.get(&told.handle)?, attrs.nlink))
        };
        told.iter().filter_map(of).collect()
    }

    /// Of a file with several names each side may have removed another: then ours stay. `links`: how many it has there. What became of
    /// a link that was on its way nobody can say.
    pub(super) fn keep_last_names(&mut self, links: &FxHashMap<NodeId, u32>) {
        let under_way = self.stream.kept.iter().filter(|k| k.stage != Stage::Executed).flat_map(|k| &k.ops);
        let linked = |op: &Op| if let Op::Link { node, .. } = op { Some(*node) } else { None };
        let late: FxHashSet<NodeId> = under_way.filter_map(|q| linked(&q.op)).collect();
        let removed = self.stream.unsent.iter().filter_map(|q| match &q.op {
            Op::Unlink { node, .. } => Some(*node),
            _ => None,
        });
        let removed: FxHashSet<NodeId> = removed.collect();
        for id in removed {
            let stays = self.nodes.get(&id).is_some_and(|n| n.attrs.nlink > 0);
            let there = links.get(&id).copied().or_else(|| late.contains(&id).then_some(0));
            let (true, Some(there)) = (stays, there) else { continue };
            let ops = self.ops_about(id);
            let more = ops.iter().filter(|(_, op)| linked(op).is_some()).count();
            let gone: Vec<_> = ops.iter().filter(|(_, op)| matches!(op, Op::Unlink { .. })).collect();
            if there as usize + more > gone.len() {
                continue;
            }
            for (_, op) in &gone {
                if let Op::Unlink { dir, name, .. } = op {
                    self.note_conflict((*dir, name), None, "removed here, its other name there: it is kept");
                }
            }
            self.keep_names(id);
        }
    }

    /// What was to be removed is gone already, by somebody else's doing: nothing has failed.
    pub(crate) fn is_done_there(&mut self, queued: &Queued, errno: Errno) -> bool {
        let (Op::Unlink { dir, name, node } | Op::Rmdir { dir, name, node }) = &queued.op else {
            return false;
        };
        if self.journal.is_none() || errno != Errno::ENOENT {
            return false;
        }
        self.unknow(*dir, name);
        self.distrust(*node);
        true
    }

    /// The name that ours was to get by a rename or a link is another's: it gets one beside it. False where there is
    /// none.
    pub(crate) fn put_aside(&mut self, queued: &Queued, now: Now) -> bool {
        let mut op = queued.op.clone();
        let (node, dir, taken, verb) = match &op {
            Op::Rename { to, node, .. } => (*node, to.0, to.1.clone(), "renamed"),
            Op::Link { node, dir, name } => (*node, *dir, name.clone(), "linked"),
            _ => return false,
        };
        let Some(other) = self.aside(&taken, now) else { return false };
        match &mut op {
            Op::Rename { from, to, after, .. } => {
                (to.1, *after) = (other.clone(), None);
                let from = from.clone();
                self.unknow(from.0, &from.1);
            }
            Op::Link { name, .. } => *name = other.clone(),
            _ => {}
        }
        self.unknow(dir, &taken);
        self.name_unsent((dir, &taken), node, &other);
        self.stream.asides.push((queued.serial, op, queued.caller.clone()));
        self.note_error(node, Errno::EEXIST);
        self.note_error(dir, Errno::EEXIST);
        if self.journal.is_some() {
            let what = format!("{verb} here, the name was taken there");
            self.note_conflict((dir, &taken), Some(other.clone()), &what);
        }
        let report = Report { kept_as: Some(other), ..Report::new(verb, node, Errno::EEXIST) };
        self.report_at(Some((dir, taken)), report);
        true
    }

    /// Whether a name must not be removed yet: what got another name before may not have got it, as that is another's now.
    pub(crate) fn may_be_all_that_is_left(&self, queued: &Queued, batch: &[Queued]) -> bool {
        let Op::Unlink { node, .. } = queued.op else { return false };
        if self.journal.is_none() || self.nodes.get(&node).is_none_or(|n| n.attrs.nlink == 0) {
            return false;
        }
        let under_way = self.stream.kept.iter().filter(|k| k.stage != Stage::Executed).flat_map(|k| &k.ops);
        under_way.chain(batch).any(|q| matches!(q.op, Op::Link { node: linked, .. } if linked == node))
    }

    /// What could not be done as it was asked for goes out otherwise; who waits for it waits for that.
    pub(crate) fn do_otherwise(&mut self, now: Now) {
        let asides = std::mem::take(&mut self.stream.asides);
        let Some(first) = asides.first().map(|(serial, ..)| *serial) else { return };
        // Behind the directories that they are in, if those are made anew; before what is in a directory that is among them.
        let makes = |op: &Op| if let Op::Make { node, .. } = op { Some(*node) } else { None };
        let made: FxHashSet<NodeId> = asides.iter().filter_map(|(_, op, _)| makes(op)).collect();
        let needs_one = |op: &Op| op.nodes().iter().flatten().any(|id| made.contains(id));
        let is_first = self.stream.put_ahead().any(|q| needs_one(&q.op));
        let ops = asides.into_iter().map(|(_, op, caller)| (op, caller)).collect();
        if let Some((from, to)) = self.put_before(ops, is_first, now) {
            self.carry(from, to);
        }
        self.stream.stands_for(first);
        let last = self.stream.placed(first);
        self.stream.hurry(last);
    }

    /// Something of ours has another name than it was to have: so have the mutations that name it so.
    pub(crate) fn name_unsent(&mut self, (at, name): (NodeId, &Name), of: NodeId, other: &Name) {
        let mut touched = Vec::new();
        for queued in &mut self.stream.unsent {
            let named = match &mut queued.op {
                Op::Rename { from, node, .. } if *node == of && from.0 == at && from.1 == *name => {
                    &mut from.1
                }
                Op::Rename { to, over: Some(over), .. } if *over == of && to.0 == at && to.1 == *name => {
                    &mut to.1
                }
                Op::Unlink { dir, name: named, node } | Op::Rmdir { dir, name: named, node }
                    if *node == of && *dir == at && named == name =>
                {
                    named
                }
                _ => continue,
            };
            *named = other.clone();
            touched.push(queued.serial);
        }
        self.stream.touch(touched);
    }

    /// What was replaced by a rename here was changed there: both are kept.
    pub(super) fn merge_replaced(&mut self, id: NodeId, now: Now) {
        let replaces = |q: &Queued| matches!(&q.op, Op::Rename { over: Some(over), .. } if *over == id);
        let Some(serial) = self.stream.unsent.iter().find(|q| replaces(q)).map(|q| q.serial) else { return };
        let Some(Queued { op: Op::Rename { to: (dir, name), node, .. }, .. }) =
            self.stream.unsent_mut(serial)
        else {
            return;
        };
        let (dir, name, node) = (*dir, name.clone(), *node);
        let Some(ours) = self.aside(&name, now) else { return };
        if let Some(Queued { op: Op::Rename { to, over, .. }, .. }) = self.stream.unsent_mut(serial) {
            (to.1, *over) = (ours.clone(), None);
        }
        // It waits for the rename no more.
        if let Some(node) = self.nodes.get_mut(&id) {
            node.pending = node.pending.saturating_sub(1);
        }
        self.name_unsent((dir, &name), node, &ours);
        self.disturb(id, CapSet::ALL_S);
        self.unknow(dir, &name);
        self.note_conflict((dir, &name), Some(ours), "replaced here, changed there");
    }

    /// What was queued about an object that was removed there.
    pub(super) fn drop_what_concerns(&mut self, id: NodeId) {
        for (serial, op) in self.ops_about(id) {
            let (lost, verb) = match &op {
                Op::Unlink { dir, name, .. } | Op::Rmdir { dir, name, .. } => {
                    (vec![(*dir, name.clone())], None)
                }
                Op::Rename { from, to, .. } => (vec![from.clone(), to.clone()], Some("renamed")),
                Op::Link { dir, name, .. } => (vec![(*dir, name.clone())], Some("linked")),
                Op::SetAttr { .. } => (vec![], None),
                Op::Void | Op::Make { .. } | Op::Write { .. } => continue,
            };
            self.elide(serial);
            for (dir, name) in &lost {
                self.unknow(*dir, name);
            }
            if let (Some(verb), Some((dir, name))) = (verb, lost.first()) {
                self.note_conflict((*dir, name), None, &format!("{verb} here, removed there"));
            }
        }
        self.disturb(id, CapSet::ALL_S);
    }

    /// A file that was changed there is not removed, unless it has another name here.
    pub(super) fn merge_removal(&mut self, id: NodeId) {
        if self.nodes.get(&id).is_none_or(|n| n.attrs.nlink > 0) {
            return;
        }
        let mut is_removed = false;
        for (serial, op) in self.ops_about(id) {
            let Op::Unlink { dir, name, .. } = op else { continue };
            is_removed = true;
            self.elide(serial);
            self.unknow(dir, &name);
            self.note_conflict((dir, &name), None, "removed here, changed there: theirs is kept");
        }
        if is_removed {
            self.disturb(id, CapSet::ALL_S);
        }
    }

    /// A name beside another's that says when it was given; `None` when there are too many.
    pub(super) fn aside(&self, name: &Name, now: Now) -> Option<Name> {
        let merged = self.journal.as_ref().and_then(|journal| journal.merged_at);
        let at = merged.filter(|at| now.wall.seconds - at.seconds < MERGE_S).unwrap_or(now.wall);
        beside(name, at)
    }
}

/// `NAME-YYYYMMDDTHHMMSSZ`, the name cut so that it fits; of one that is so already `NAME-YYYYMMDDTHHMMSSZ.1` and so on.
fn beside(name: &Name, at: Timestamp) -> Option<Name> {
    let Civil { year, month, day, hour, minute, second } = Civil::from_unix(at.seconds.unsigned_abs());
    let stamp = format!("-{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z");
    let bytes = name.as_bytes();
    let stamped = (0..bytes.len()).rev().find(|from| bytes[*from..].starts_with(stamp.as_bytes()));
    let (base, end) = match stamped {
        None => (bytes, stamp),
        Some(from) => {
            let number = std::str::from_utf8(&bytes[from + stamp.len()..]).ok()?;
            let next = number.strip_prefix('.').map_or(Some(1), |n| n.parse::<u32>().ok()?.checked_add(1))?;
            (&bytes[..from], format!("{stamp}.{next}"))
        }
    };
    let is_tried = end.rsplit_once('.').is_some_and(|(_, n)| n.parse::<u32>().is_ok_and(|n| n > OTHERS_MAX));
    let room = holdfast_base::limits::NAME_BYTES_MAX - end.len();
    let mut whole = base[..base.len().min(room)].to_vec();
    whole.extend_from_slice(end.as_bytes());
    (!is_tried).then(|| Name::new(&whole))
}

/// Names tried beside one that is taken.
const OTHERS_MAX: u32 = 99;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_beside_another_tells_the_time_and_then_counts() {
        let at = Timestamp { seconds: 0, nanos: 0 };
        let name = |name: &str| {
            beside(&Name::new(name.as_bytes()), at).map(|n| String::from_utf8(n.as_bytes().to_vec()).unwrap())
        };
        assert_eq!(name("a.txt").unwrap(), "a.txt-19700101T000000Z");
        assert_eq!(name("a-19700101T000000Z").unwrap(), "a-19700101T000000Z.1");
        assert_eq!(name("a-19700101T000000Z.9").unwrap(), "a-19700101T000000Z.10");
        assert_eq!(name("a-19700101T000000Z.99"), None);
        assert_eq!(name(&"x".repeat(255)).unwrap().len(), 255);
        assert_eq!(name("a-19710101T000000Z").unwrap(), "a-19710101T000000Z-19700101T000000Z");
    }
}
