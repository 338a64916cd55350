//! What the server had of an object when it was last heard of: what has become other since is others' doing.

use holdfast_base::Timestamp;
use rustc_hash::FxHashSet;

use super::apart::is_about_data;
use super::left::is_as_made;
use super::{Left, There};
use crate::attrs::{Attrs, Changes, SetTime};
use crate::ids::NodeId;
use crate::machine::Machine;
use crate::node::Node;
use crate::queue::{Load, Op, Queued, Stage, Thing};

/// Attributes that the server told last, or was told and took; `None`: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    /// With the next, while it is the server that told last.
    pub(crate) size: Option<u64>,
    pub(crate) mtime: Option<Timestamp>,
}

impl Base {
    /// What the server says.
    pub(crate) fn of(theirs: &Attrs) -> Self {
        let Attrs { mode, uid, gid, size, mtime, .. } = *theirs;
        Self { mode: Some(mode), uid: Some(uid), gid: Some(gid), size: Some(size), mtime: Some(mtime) }
    }

    /// The same after an operation of ours.
    fn after(self, op: &Op) -> Self {
        let now = Self { size: None, mtime: None, ..self };
        match op {
            // Who owns it the server decides.
            Op::Make { attrs, .. } => Self { mode: Some(attrs.mode), ..Self::default() },
            Op::SetAttr { changes, .. } => Self {
                mode: changes.mode.or(now.mode),
                uid: changes.uid.or(now.uid),
                gid: changes.gid.or(now.gid),
                ..now
            },
            _ => now,
        }
    }
}

/// What was known of an object before an operation of ours on it was heard of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) base: Option<Base>,
    pub(crate) told_mtime: Option<Timestamp>,
    /// Its time there was of the server's clock, by a WRITE of ours: nobody can tell it from others'.
    pub(crate) is_clocked: bool,
}

/// What may be seen of an object that a server has lost some of our changes of: what it was before, and what each of them gave.
/// All else is others' doing.
#[derive(Debug, Default)]
pub(super) struct Past {
    given: Vec<Timestamp>,
    before: Vec<Timestamp>,
    /// What the server has made of those.
    left: Vec<Left>,
    is_clocked: bool,
    /// The server may have been killed in the middle of what we sent last, and no other client can have been there since.
    may_be_half_done: bool,
    /// What it may have been long then, by what was there and what we sent.
    sizes: Vec<u64>,
    /// Something gave it the time of the server's clock, or it is not known what it had.
    is_untimed: bool,
    mode: Values,
    uid: Values,
    gid: Values,
}

/// Of one attribute.
#[derive(Debug, Default)]
struct Values {
    all: Vec<u32>,
    /// It was not known at some time.
    is_any: bool,
}

impl Values {
    fn had(&mut self, value: Option<u32>) {
        self.all.extend(value);
        self.is_any |= value.is_none();
    }

    /// What the server has now, if that need not be others' doing.
    fn admits(&self, now: u32) -> Option<u32> {
        (self.is_any || self.all.contains(&now)).then_some(now)
    }
}

/// How long a file may be when the server has done any part of this to it.
fn sizes_left(op: &Op) -> Vec<u64> {
    let ends = |load: &Load| load.data.iter().map(|(at, data)| at + data.len() as u64).collect::<Vec<_>>();
    match op {
        Op::Make { load, .. } => [0].into_iter().chain(ends(load)).chain(load.size).collect(),
        Op::Write { load, .. } => ends(load).into_iter().chain(load.size).collect(),
        Op::SetAttr { changes, .. } => changes.size.into_iter().collect(),
        _ => Vec::new(),
    }
}

impl Before {
    /// As an object was made that is not made again.
    pub(crate) fn made(make: &Op) -> Self {
        Self { base: Some(Base::default().after(make)), ..Self::default() }
    }
}

impl Past {
    /// It was so once.
    pub(super) fn had(&mut self, Before { base, told_mtime, is_clocked }: &Before) {
        self.is_clocked |= is_clocked;
        let base = base.unwrap_or_default();
        self.is_untimed |= base.mtime.is_none() && told_mtime.is_none();
        self.before.extend(base.mtime.into_iter().chain(*told_mtime));
        self.sizes.extend(base.size);
        self.mode.had(base.mode);
        self.uid.had(base.uid);
        self.gid.had(base.gid);
    }

    /// This was sent about it.
    pub(super) fn got(&mut self, op: &Op) {
        self.given.extend(told_time(op));
        self.sizes.extend(sizes_left(op));
        let is_now = matches!(op, Op::SetAttr { changes: Changes { mtime: Some(SetTime::Now), .. }, .. });
        let is_file = matches!(op, Op::Make { thing: Thing::File, .. });
        self.is_untimed |= is_now || told_time(op).is_none() && (is_file || is_about_data(op));
        match op {
            Op::Make { attrs, .. } => {
                self.mode.had(Some(attrs.mode));
                // Who owns it the server decides.
                (self.uid.is_any, self.gid.is_any) = (true, true);
            }
            Op::SetAttr { changes, .. } => {
                self.mode.all.extend(changes.mode);
                self.uid.all.extend(changes.uid);
                self.gid.all.extend(changes.gid);
            }
            _ => {}
        }
    }

    /// This the server has made of what was sent.
    pub(super) fn became(&mut self, left: Left) {
        self.left.push(left);
    }

    /// This was sent, nothing was heard of it, and no other client can have been there since: the server may have been killed when it
    /// had written, or cut off, and not set the time that comes behind that. A local process may have been there, of which the server
    /// did not know, or could not tell: one that leaves a size that is none of ours is seen.
    pub(super) fn was_under_way(&mut self, op: &Op) {
        self.may_be_half_done |= is_about_data(op);
    }

    /// Whether a modification time is one that was given here.
    pub(super) fn is_time_given(&self, mtime: Timestamp) -> bool {
        self.given.contains(&mtime)
    }

    /// Whether its modification time is none of others'.
    pub(super) fn admits_time(&self, theirs: &Attrs) -> bool {
        let mtime = theirs.mtime;
        let is_known = self.is_time_given(mtime) || self.before.contains(&mtime);
        // Who sets a time moves the other as well.
        let is_half_done =
            self.may_be_half_done && mtime == theirs.ctime && self.sizes.contains(&theirs.size);
        is_known || is_half_done || self.left.iter().any(|left| left.admits(theirs))
    }

    /// Whether its contents are surely of others. `shown`: as it is shown here.
    pub(super) fn is_changed(&self, theirs: &Attrs, shown: &Attrs) -> bool {
        let can_tell = !self.is_clocked && !self.is_untimed && !is_as_made(theirs);
        can_tell && !self.admits_time(theirs) && shown.mtime != theirs.mtime
    }

    /// Takes from what is to be set what others have set to something else. Whether there was anything.
    pub(super) fn spare(&self, ours: &mut Changes, theirs: &Attrs) -> bool {
        let fields = [
            (&mut ours.mode, &self.mode, theirs.mode),
            (&mut ours.uid, &self.uid, theirs.uid),
            (&mut ours.gid, &self.gid, theirs.gid),
        ];
        let mut is_any = false;
        for (ours, had, now) in fields {
            if had.admits(now).is_none() && ours.is_some_and(|ours| ours != now) {
                (*ours, is_any) = (None, true);
            }
        }
        is_any
    }
}

/// The modification time that an operation gives.
pub(super) fn told_time(op: &Op) -> Option<Timestamp> {
    match op {
        Op::Make { attrs, .. } => attrs.mtime,
        Op::Write { mtime, .. } => Some(*mtime),
        Op::SetAttr { changes: Changes { mtime: Some(SetTime::At(at)), .. }, .. } => Some(*at),
        _ => None,
    }
}

/// Whether it changes an object, not names alone.
pub(super) fn is_about_object(op: &Op) -> bool {
    matches!(op, Op::Make { .. } | Op::Write { .. } | Op::SetAttr { .. })
}

impl Node {
    /// What is known of what the server has.
    pub(super) fn seen(&self) -> Before {
        let is_clocked = self.data.clocked_since.is_some();
        Before { base: self.base.as_deref().copied(), told_mtime: self.told_mtime, is_clocked }
    }

    /// A server that may have lost changes of ours has this now: what need not be others' doing is compared with from now on.
    /// `sent`: the last mutation that was, or is not to be.
    pub(super) fn was_left(&mut self, theirs: &Attrs, past: &Past, sent: u64) {
        if past.is_clocked {
            self.data.clocked_since = Some(sent);
        }
        let mut base = self.base.as_deref().copied().unwrap_or_default();
        if past.admits_time(theirs) {
            self.attrs.change = theirs.change;
            (base.size, base.mtime, self.told_mtime) =
                (Some(theirs.size), Some(theirs.mtime), Some(theirs.mtime));
        }
        base.mode = past.mode.admits(theirs.mode).or(base.mode);
        base.uid = past.uid.admits(theirs.uid).or(base.uid);
        base.gid = past.gid.admits(theirs.gid).or(base.gid);
        self.base = Some(Box::new(base));
    }

    /// An operation of ours about it was done: what the server says of it from now on is ours, as far as it has this
    /// modification time, or what became of it there (`left`). `follows`: there is a journal.
    pub(crate) fn told_by(&mut self, queued: &Queued, left: Option<Left>, follows: bool) {
        let Queued { serial, op, .. } = queued;
        let had = self.base.as_ref().filter(|_| self.attrs.change != 0).and_then(|base| base.mtime);
        self.attrs.change = 0;
        let set = told_time(op);
        let is_behind = self.data.clocked_since.is_some_and(|since| since < *serial);
        if set.is_some() && is_behind && self.data.in_flight.is_empty() {
            self.data.clocked_since = None;
        } else if set.is_none() && is_about_data(op) {
            self.data.clocked_since = self.data.clocked_since.max(Some(*serial));
        }
        // What sets no time has left the one that was there.
        let set = set.map(|set| left.map_or(set, |left| left.mtime));
        self.told_mtime = set.or(had).or(self.told_mtime);
        if follows {
            let before = self.base.as_deref().copied().unwrap_or_default();
            self.base = Some(Box::new(before.after(op)));
        }
    }

    /// Whether others have changed its contents since the server last told of it, or was told by us. A change of its
    /// names or attributes alone leaves size and modification time.
    pub(super) fn is_changed_there(&self, theirs: &Attrs) -> bool {
        match (self.attrs.change, self.told_mtime) {
            // It is in the middle of being written by us: how that looks there nobody can tell from others' doing.
            _ if self.data.clocked_since.is_some() => false,
            (0, told) => told.is_some_and(|told| told != theirs.mtime),
            (change, _) if change == theirs.change => false,
            _ => match self.base.as_deref() {
                Some(Base { size: Some(size), mtime: Some(mtime), .. }) => {
                    (*size, *mtime) != (theirs.size, theirs.mtime)
                }
                _ => true,
            },
        }
    }
}

impl Machine {
    /// What is known of what these are about, before their results are taken in: a server that loses them may have that again.
    pub(crate) fn seen_before(&self, ops: &[Queued]) -> Vec<(NodeId, Before)> {
        let follows = self.journal.is_some();
        let changes = |op: &Op| follows && matches!(op, Op::Write { .. } | Op::SetAttr { .. });
        let about = ops.iter().filter(|q| changes(&q.op)).filter_map(|q| q.op.nodes()[0]);
        let ids: FxHashSet<NodeId> = about.collect();
        ids.into_iter().filter_map(|id| Some((id, self.nodes.get(&id)?.seen()))).collect()
    }

    /// The results of a batch have come behind those of later ones: what those have told of its objects is what the server
    /// has of them.
    pub(crate) fn told_later(&mut self, place: usize, ops: &[Queued]) {
        let later = self.stream.kept.iter().skip(place + 1).filter(|k| k.stage == Stage::Executed);
        let mut later = later.flat_map(|k| k.ops.iter().map(move |queued| (queued, k))).peekable();
        if self.journal.is_none() || later.peek().is_none() {
            return;
        }
        let told: FxHashSet<NodeId> = ops.iter().filter_map(|queued| queued.op.nodes()[0]).collect();
        for (queued, kept) in later {
            let Some(id) = queued.op.nodes()[0].filter(|id| told.contains(id)) else { continue };
            if let Some(node) = self.nodes.get_mut(&id) {
                node.told_by(queued, kept.left_of(id), true);
            }
        }
    }

    /// Attributes set here: what was set there as well, to something else, stays theirs; for nothing can be kept twice. A
    /// time goes with the contents.
    pub(super) fn merge_attrs(&mut self, id: NodeId, there: There, theirs: &Attrs) {
        let Some(base) = self.nodes.get(&id).and_then(|n| n.base.as_deref().copied()) else { return };
        let mut is_lost = false;
        for (serial, op) in self.ops_about(id) {
            let Op::SetAttr { changes, .. } = op else { continue };
            let mut left = changes;
            let fields = [
                (&mut left.mode, base.mode, theirs.mode),
                (&mut left.uid, base.uid, theirs.uid),
                (&mut left.gid, base.gid, theirs.gid),
            ];
            for (ours, before, now) in fields {
                if before.is_some_and(|before| before != now) && ours.is_some_and(|ours| ours != now) {
                    (*ours, is_lost) = (None, true);
                }
            }
            if there == There::Changed {
                (left.atime, left.mtime) = (None, None);
            }
            if left.is_empty() {
                self.elide(serial);
            } else if left != changes
                && let Some(queued) = self.stream.unsent_mut(serial)
                && let Op::SetAttr { changes, .. } = &mut queued.op
            {
                *changes = left;
            }
        }
        if is_lost {
            self.distrust(id);
            if let Some((dir, name)) = self.place_of(id) {
                self.note_conflict((dir, &name), None, "attributes set here and there: theirs are kept");
            }
        }
    }
}
