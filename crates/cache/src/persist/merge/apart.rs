//! Contents that were changed on both sides: ours becomes an object of its own.

use rustc_hash::FxHashSet;

use super::{Places, There};
use crate::ask::Generation;
use crate::attrs::NewAttrs;
use crate::errno::Errno;
use crate::extent::Progress;
use crate::ids::{Caller, Name, NodeId, Now};
use crate::machine::Machine;
use crate::node::Node;
use crate::queue::{Load, Op, Thing};
use crate::tell::{Forget, Report};
use holdfast_base::CapSet;

/// The name of what has none that is known.
pub(super) const NAMELESS: &[u8] = b"unnamed";

pub(super) fn is_about_data(op: &Op) -> bool {
    match op {
        Op::Write { .. } => true,
        Op::SetAttr { changes, .. } => changes.size.is_some(),
        _ => false,
    }
}

impl Machine {
    /// Whether contents of a file were changed here and are not on their way.
    pub(super) fn has_data_of_its_own(&self, id: NodeId) -> bool {
        let dirty = |p: Progress, _| matches!(p, Progress::Dirty | Progress::Sent(_));
        self.nodes.get(&id).is_some_and(|n| n.data.extents.any(dirty))
            || self.ops_about(id).iter().any(|(_, op)| is_about_data(op))
    }

    /// Who wrote a file last, or owns it.
    pub(super) fn writer(&self, id: NodeId) -> Option<Caller> {
        let node = self.nodes.get(&id)?;
        Some(node.data.writer.clone().unwrap_or_else(|| Caller::new(node.attrs.uid, node.attrs.gid)))
    }

    /// Where an object is, as far as names are known now.
    pub(super) fn place_of(&self, id: NodeId) -> Option<(NodeId, Name)> {
        let named = |dir: &crate::dir::Dir| {
            dir.entries(0).find(|(.., child)| *child == id).map(|(_, n, _)| n.clone())
        };
        self.nodes.values().find_map(|n| Some((n.id, named(n.dir.as_deref()?)?)))
    }

    /// What was changed of a file that has no name here any more.
    pub(super) fn drop_changes(&mut self, id: NodeId) {
        for (serial, op) in self.ops_about(id) {
            if matches!(op, Op::Write { .. } | Op::SetAttr { .. }) {
                self.elide(serial);
            }
        }
        self.with_data(id, |data| {
            data.extents.turn(|_, _| None);
            data.mtime_owed = false;
        });
    }

    /// What becomes of a file, the contents of which may be other than they were.
    pub(super) fn merge_contents(
        &mut self,
        id: NodeId,
        there: There,
        (places, made_anew): (&Places, &FxHashSet<NodeId>),
        now: Now,
    ) {
        if there == There::Same {
            return;
        }
        if there == There::Changed {
            self.merge_removal(id);
            self.merge_replaced(id, now);
        }
        self.part_contents(id, there, (places, made_anew), now);
    }

    /// The same, whatever is to become of its names.
    pub(super) fn part_contents(
        &mut self,
        id: NodeId,
        there: There,
        (places, made_anew): (&Places, &FxHashSet<NodeId>),
        now: Now,
    ) {
        let is_gone = |n: &Node| n.has_surely_no_name() || n.attrs.nlink == 0 && there == There::Removed;
        if self.nodes.get(&id).is_some_and(|n| is_gone(n)) {
            return self.drop_changes(id);
        }
        if !self.has_data_of_its_own(id) {
            return;
        }
        for (serial, op) in self.ops_about(id) {
            let goes = there == There::Removed && matches!(op, Op::Rename { .. } | Op::Link { .. });
            if goes || matches!(op, Op::Write { .. } | Op::SetAttr { .. }) {
                self.elide(serial);
            }
        }
        let place = places.get(&id).cloned().unwrap_or_else(|| (NodeId::ROOT, Name::new(NAMELESS)));
        let is_below_ours = made_anew.contains(&place.0);
        self.set_apart(id, (place.0, &place.1), (there, is_below_ours), now);
    }

    /// Makes a file of its own of what was written here. In a directory that is made anew it can have its name.
    fn set_apart(
        &mut self,
        id: NodeId,
        (dir, name): (NodeId, &Name),
        (there, is_below_ours): (There, bool),
        now: Now,
    ) {
        let other = if is_below_ours { Some(name.clone()) } else { self.aside(name, now) };
        let (Some(node), Some(other), Some(caller)) = (self.nodes.get(&id), other, self.writer(id)) else {
            return;
        };
        let (mut attrs, size) = (node.attrs, node.attrs.size);
        // As it was shown here: of what the server has got since a promise covers it, too.
        let is_sure = node.sure.contains(CapSet::FILE_S);
        let since = if is_sure { node.data.readable_since } else { Generation(u64::MAX) };
        let pieces = node.data.extents.read(0, size, since);
        let below = self.take_below(id);
        self.with_data(id, |data| data.extents.turn(|_, _| None));
        self.with_data(id, |data| (data.mtime_owed, data.truncations) = (false, Vec::new()));
        self.disturb(id, CapSet::ALL_S);
        self.invalidate(Forget::Data(id));
        self.last_shown += 1;
        (attrs.fileid, attrs.nlink, attrs.change) = (self.last_shown, 1, 0);
        let ours = self.add_node(None, attrs, now.mono);
        let (atime, mtime) = (Some(attrs.atime), Some(attrs.mtime));
        let made = NewAttrs { mode: attrs.mode, atime, mtime, ..NewAttrs::default() };
        let (thing, load, want, joins) = (Thing::File, Load::default(), CapSet::ALL_X, false);
        let op = Op::Make { dir, name: other.clone(), node: ours, thing, attrs: made, load, want, joins };
        let serial = self.queue(op, &caller, now);
        let born = self.tick();
        let lost = self.with_data(ours, |data| {
            (data.carrier, data.writer) = (Some(serial), Some(caller));
            pieces.iter().for_each(|p| data.extents.write(p.offset, &p.data, born));
            below.put(&mut data.extents, size, born)
        });
        // What both names stand for the server says from now on.
        self.unknow(dir, name);
        let what = match there {
            There::Removed => "changed here, removed there",
            _ => "changed here and there",
        };
        match lost.flatten() {
            Some(lost) => {
                let what = format!("{what}; ours is not whole: {lost}");
                self.tell_not_whole((dir, name), (ours, other), &what);
            }
            None if is_below_ours => {}
            None => self.note_conflict((dir, name), Some(other), what),
        }
        self.settle(ours, false, now);
    }

    /// A file of ours that is set apart has not all that it had: that is in the log as well, for zeros look like contents.
    fn tell_not_whole(&mut self, (dir, name): (NodeId, &Name), (ours, other): (NodeId, Name), what: &str) {
        let report = Report { kept_as: Some(other.clone()), ..Report::new(what, ours, Errno::EIO) };
        self.tell_of(Some((dir, name.clone())), report);
        self.note_conflict((dir, name), Some(other), what);
    }
}
