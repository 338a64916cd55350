//! From the stream to batches: which stretch goes when, and how its objects are named.

use holdfast_base::Instant;
use holdfast_base::limits::{
    CAPS_OPS_KEPT_MAX, QUEUED_MUTATIONS_MAX, SMALL_FILE_BYTES, SMALL_FILE_PIECES_MAX, UNSETTLED_BATCHES_MAX,
    UNSYNCED_AGE_MS, YOUNG_FILE_MS,
};

use crate::ask::Generation;
use crate::attrs::Changes;
use crate::extent::Progress;
use crate::ids::{Caller, NodeId, Now};
use crate::machine::Machine;
use crate::mutation::{Batch, Mutation, NewObject, Target, Until};
use crate::queue::names::Numbers;
use crate::queue::{Kept, Op, Queued, Stage, Thing};
use crate::step::{Outcome, Wait};
use crate::writes::is_small;
use holdfast_base::CapSet;
use rustc_hash::FxHashMap;

/// Operations of the program that one mutation may become.
const PARTS_MAX: usize = SMALL_FILE_PIECES_MAX + 2;

/// The part of a full batch that removals must come to, to go though nobody waits for them.
const REMOVALS_SHARE: usize = 4;

impl Machine {
    /// Puts a mutation at the end of the stream.
    pub(crate) fn queue(&mut self, op: Op, caller: &Caller, now: Now) -> u64 {
        let nodes = op.nodes();
        let serial = self.stream.push(op, caller.clone(), now.mono);
        self.stats.mutations_queued += 1;
        self.pledge_with(&nodes, serial);
        for (i, id) in nodes.into_iter().enumerate() {
            if let Some(node) = id.and_then(|id| self.nodes.get_mut(&id)) {
                node.pending += 1;
                node.last_serial = serial;
                node.is_theirs = false;
                if i == 0 {
                    node.unsent.push(serial);
                }
            }
        }
        serial
    }

    /// Waits for room in the stream.
    pub(crate) fn room_in_stream(&mut self) -> Outcome<()> {
        if self.stream.unsent.len() < QUEUED_MUTATIONS_MAX {
            return Ok(());
        }
        let half = self.stream.last_serial() - (QUEUED_MUTATIONS_MAX / 2) as u64;
        self.stream.hurry(half);
        self.wait(Wait::Room)
    }

    /// The nodes of a mutation are not waiting for it any more.
    pub(crate) fn release_nodes(&mut self, op: &Op) {
        for id in op.nodes().into_iter().flatten() {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.pending = node.pending.saturating_sub(1);
            }
        }
    }

    /// Drops a mutation that is not sent.
    pub(crate) fn elide(&mut self, serial: u64) {
        let caller = self.stream.unsent(serial).map(|queued| queued.caller.clone());
        let Some(op) = self.stream.void(serial) else { return };
        self.release_nodes(&op);
        if let (Op::Make { dir, node, thing: Thing::File, load, .. }, Some(caller)) = (&op, caller) {
            self.create_elided((*dir, *node), &caller, load.spare.clone());
        }
        self.stats.mutations_elided += 1;
        if let Some(node) = op.nodes()[0].and_then(|id| self.nodes.get_mut(&id)) {
            node.unsent.retain(|s| *s != serial);
            if node.data.carrier == Some(serial) {
                node.data.carrier = None;
            }
        }
        self.progress += 1;
    }

    /// A batch to be sent now, if there is one: again, after it was lost; or because somebody waits, because there is
    /// enough for one, or because what is in it grew old.
    pub fn take_batch(&mut self, now: Now) -> Option<Batch> {
        if self.stream.is_held {
            return None;
        }
        self.settle_old(now);
        if let Some(place) = self.stream.waiting() {
            let kept = &mut self.stream.kept[place];
            kept.stage = Stage::Sent;
            kept.sent_at = now.mono;
            kept.is_unheard = true;
            (kept.asked, kept.is_resent) = (self.generation, true);
            self.stats.batches_resent += 1;
            self.stream.kept[place].until = self.answered_when(place);
            return self.encode(place);
        }
        if let Some(again) = self.take_needed(now) {
            return Some(again);
        }
        self.stream.trim();
        let most = if self.is_due(now) { self.settings.batch_ops_max } else { self.removals_due()? };
        // The server remembers no more, and would have what is sent now wait until we are done with what was sent before. This
        // may name what that made, so that we never would be.
        if self.stream.kept.len() >= UNSETTLED_BATCHES_MAX || self.stream.parts_kept() >= CAPS_OPS_KEPT_MAX {
            return None;
        }
        // Counted last, for it is asked with each operation of an application's.
        if self.stream.in_flight() >= self.stream.window.size(self.settings.batches_in_flight_max) {
            return None;
        }
        // It may be seen only then that what comes next needs results.
        self.cut_batch(most, now).or_else(|| self.take_needed(now))
    }

    /// Data of young files grows old with the mutations that make them.
    fn settle_old(&mut self, now: Now) {
        while let Some((due, id)) = self.flush.aging.front().copied() {
            if due > now.mono {
                return;
            }
            self.flush.aging.pop_front();
            if let Some(node) = self.nodes.get_mut(&id) {
                node.data.is_aging = false;
            }
            self.settle(id, true, now);
        }
    }

    fn is_due(&self, now: Now) -> bool {
        let Some(first) = self.stream.unsent.front() else { return false };
        first.serial <= self.stream.hurried
            || now.mono.ms_since(first.at) >= UNSYNCED_AGE_MS
            || self.stream.unsent.len() >= self.settings.batch_ops_max
    }

    /// How many removals stand in front, where they are enough to go though nobody waits: nothing that comes behind them
    /// could spare one, so they may as well be done while others are made. Only beside nothing that is on its way, and each time
    /// twice as many as the last, up to a full batch, so that a long row of them does not cost many batches.
    fn removals_due(&self) -> Option<usize> {
        let most = self.settings.batch_ops_max;
        let last = self.stream.kept.back().map_or(0, |kept| kept.ops.len());
        let enough = (most / REMOVALS_SHARE).max(last * 2).clamp(1, most);
        let is_removal = |q: &Queued| matches!(q.op, Op::Unlink { .. } | Op::Rmdir { .. });
        // What is cheap comes first, for it is asked with each operation of an application's.
        if !self.stream.unsent.get(enough - 1).is_some_and(is_removal) || self.stream.in_flight() > 0 {
            return None;
        }
        let in_front = self.stream.unsent.iter().take(most).take_while(|q| is_removal(q)).count();
        (in_front >= enough).then_some(in_front)
    }

    /// When the oldest mutation has to go without anybody waiting for it.
    pub(crate) fn stream_due(&self) -> Option<Instant> {
        self.stream.unsent.front().map(|q| q.at.after_ms(UNSYNCED_AGE_MS))
    }

    /// Takes the longest stretch of one caller that fits, and is no longer than this.
    fn cut_batch(&mut self, most: usize, now: Now) -> Option<Batch> {
        let txn = self.stream.last_txn + 1;
        let (mut ops, mut bytes, mut parts): (Vec<Queued>, usize, usize) = (Vec::new(), 0, 0);
        while ops.len() < most
            && bytes < self.settings.batch_bytes_max
            && (ops.is_empty() || parts + PARTS_MAX <= self.settings.batch_parts_max)
        {
            let Some(front) = self.stream.unsent.front() else { break };
            let urgent = front.serial <= self.stream.hurried;
            if ops.first().is_some_and(|q: &Queued| q.caller != front.caller)
                || self.holds_back(front, urgent, now)
            {
                break;
            }
            let needs_results = self.may_lack_data(front, &ops)
                || self.may_be_all_that_is_left(front, &ops)
                || self.may_be_named_otherwise(front, &ops);
            if needs_results {
                let before = front.serial - 1;
                self.stream.need(before);
                break;
            }
            let Some(mut queued) = self.stream.unsent.pop_front() else { break };
            if matches!(queued.op, Op::Void) {
                continue;
            }
            self.load(&mut queued);
            self.wish(&mut queued);
            if let Some(node) = queued.op.nodes()[0].and_then(|id| self.nodes.get_mut(&id)) {
                node.unsent.retain(|s| *s != queued.serial);
                if let Op::Make { .. } = queued.op {
                    node.made = Some((txn, parts as u32));
                }
            }
            bytes += queued.op.bytes();
            parts += queued.op.parts();
            ops.push(queued);
        }
        self.stream.trim();
        let caller = ops.first()?.caller.clone();
        self.stream.last_txn = txn;
        self.stats.batches_sent += 1;
        let (stage, sent_at, asked) = (Stage::Sent, now.mono, self.generation);
        let kept = Kept {
            txn,
            caller,
            ops,
            parts,
            stage,
            until: Until::Executed,
            sent_at,
            asked,
            is_resent: false,
            is_unheard: true,
            is_repeated: false,
            is_loss_told: false,
            names_since: None,
            was: FxHashMap::default(),
            born: Vec::new(),
            before: Vec::new(),
            names: Numbers::default(),
            left: Vec::new(),
        };
        self.stream.keep(kept);
        let place = self.stream.kept.len() - 1;
        self.stream.kept[place].until = self.answered_when(place);
        self.encode(place)
    }

    /// Whether a mutation should not go yet: a young file that is still being written, so that its data can go with
    /// it; a file that replaces another, until its data is there.
    fn holds_back(&self, queued: &Queued, urgent: bool, now: Now) -> bool {
        match &queued.op {
            Op::Make { node, thing: Thing::File, .. } => {
                let young = now.mono.ms_since(queued.at) < YOUNG_FILE_MS;
                !urgent && young && self.nodes.get(node).is_some_and(|n| self.has_writers(n))
            }
            Op::Rename { node, after: Some(after), .. } => {
                let unwritten =
                    |p, born: Generation| born <= *after && matches!(p, Progress::Dirty | Progress::Sent(_));
                // Data that goes behind it anyway, as the file was truncated since, must not be waited for.
                let behind = |n: &crate::node::Node| {
                    n.data.barrier > queued.serial || n.data.carrier.is_some_and(|c| c > queued.serial)
                };
                self.nodes
                    .get(node)
                    .is_some_and(|n| n.dead.is_none() && !behind(n) && n.data.extents.any(unwritten))
            }
            _ => false,
        }
    }

    /// Whether data of what replaces another file is on its way, and may be refused while the replacing is done. Not where it goes with
    /// the making, in one: what is named by a making that failed is not done.
    fn may_lack_data(&self, queued: &Queued, ops: &[Queued]) -> bool {
        let Op::Rename { node, over: Some(_), .. } = &queued.op else { return false };
        let Some(moved) = self.nodes.get(node).filter(|moved| moved.dead.is_none()) else { return false };
        let kept = self.stream.kept.iter().filter(|kept| kept.stage != Stage::Executed);
        let mut on_its_way = kept.flat_map(|kept| &kept.ops).chain(ops);
        on_its_way.any(|sent| {
            let carries = |p, _| p == Progress::Stream(sent.serial);
            let is_in_one = matches!(sent.op, Op::Make { .. }) && sent.op.parts() == 1;
            sent.op.nodes()[0] == Some(*node) && !is_in_one && moved.data.extents.any(carries)
        })
    }

    /// Whether it names by its name what is being made, and may have got another, as that is another's: until the server has said
    /// which. Not while the directory is promised all the time: nobody can have made anything there.
    fn may_be_named_otherwise(&self, queued: &Queued, ops: &[Queued]) -> bool {
        let (dir, node) = match &queued.op {
            Op::Rename { from, node, .. } => (from.0, *node),
            Op::Unlink { dir, node, .. } | Op::Rmdir { dir, node, .. } => (*dir, *node),
            _ => return false,
        };
        let is_ours = |n: &crate::node::Node| {
            let is_held = n.held.contains(CapSet::FILE_X) && n.sure.contains(CapSet::FILE_S);
            is_held || self.journal.is_none() && n.giving_back.contains(CapSet::FILE_X)
        };
        if self.nodes.get(&dir).is_some_and(|n| is_ours(n)) {
            return false;
        }
        let unheard = self.stream.kept.iter().filter(|kept| kept.stage != Stage::Executed);
        let mut unheard = unheard.flat_map(|kept| &kept.ops).chain(ops);
        unheard.any(|sent| matches!(sent.op, Op::Make { node: made, .. } if made == node))
    }

    /// Decides what is wished for on what is made. Of a file that is whole, and not open to be written, others may know
    /// as well: it is not held exclusively from now on, so that nothing has to be recalled when somebody looks at it.
    fn wish(&mut self, queued: &mut Queued) {
        let Op::Make { node, thing, want, .. } = &mut queued.op else { return };
        let Some(made) = self.nodes.get(node) else { return };
        let is_whole = !made.data.extents.has_dirty() && !self.has_writers(made);
        if matches!(thing, Thing::Dir) || !is_whole {
            return;
        }
        *want = CapSet::ALL_X.without(CapSet::FILE_X) | CapSet::FILE_S;
        if let Some(made) = self.nodes.get_mut(node) {
            made.held = made.held & *want;
        }
    }

    /// Puts a file's data into the mutation that carries it.
    fn load(&mut self, queued: &mut Queued) {
        let serial = queued.serial;
        let id = match &queued.op {
            Op::Make { node, thing: Thing::File, .. } | Op::Write { node, .. } => *node,
            Op::SetAttr { node, changes: Changes { size: Some(_), .. } } => {
                if let Some(node) = self.nodes.get_mut(node) {
                    (node.data.barrier, node.data.filled_by) = (node.data.barrier.max(serial), serial);
                }
                return;
            }
            _ => return,
        };
        let Some(node) = self.nodes.get_mut(&id) else { return };
        // What sets the size may be queued behind it by now.
        node.data.barrier = node.data.barrier.max(serial);
        if node.data.carrier == Some(serial) {
            node.data.carrier = None;
        }
        let fits = is_small(&node.data) && node.attrs.size <= SMALL_FILE_BYTES;
        let (mtime, atime) = (node.attrs.mtime, node.attrs.atime);
        let is_nameless = node.attrs.nlink == 0;
        let size = node.attrs.size;
        let end_before = node.data.extents.end().unwrap_or(0);
        let data = if fits {
            self.with_data(id, |d| d.extents.take_for_stream(serial)).unwrap_or_default()
        } else {
            let dirty = |n: &&mut Box<crate::node::Node>| n.data.extents.has_dirty();
            let queued = self.nodes.get_mut(&id).filter(dirty);
            if let Some(node) = queued {
                // What was to go with it goes now, for others wait for that.
                node.data.keeps_back = false;
                if !std::mem::replace(&mut node.data.in_bulk, true) {
                    self.flush.bulk.push_back(id);
                }
            }
            Vec::new()
        };
        let is_sized = matches!(queued.op, Op::Make { .. }) && size != end_before;
        if (!data.is_empty() || is_sized)
            && let Some(node) = self.nodes.get_mut(&id)
        {
            node.data.filled_by = serial;
        }
        match &mut queued.op {
            Op::Make { load, attrs, .. } => {
                (attrs.mtime, attrs.atime) = (Some(mtime), Some(atime));
                // Of what has no name any more the data was dropped.
                (load.data, load.size) = (data, (size != end_before && !is_nameless).then_some(size));
            }
            Op::Write { load, mtime: at, .. } => {
                *at = mtime;
                load.data = data;
            }
            _ => {}
        }
    }

    /// How the server is told which object is meant.
    pub(crate) fn target(&self, id: NodeId) -> Target {
        let Some(node) = self.nodes.get(&id) else { return Target::Made { txn: 0, op: 0 } };
        match (&node.handle, node.made) {
            (_, Some((txn, op))) if self.stream.keeps(txn) => Target::Made { txn, op },
            (Some(handle), _) => Target::Handle(handle.clone()),
            (None, made) => made.map_or(Target::Made { txn: 0, op: 0 }, |(txn, op)| Target::Made { txn, op }),
        }
    }

    pub(crate) fn encode(&mut self, place: usize) -> Option<Batch> {
        let mut was = std::mem::take(&mut self.stream.kept.get_mut(place)?.was);
        let kept = self.stream.kept.get(place)?;
        let (txn, caller) = (kept.txn, kept.caller.clone());
        let ops: Vec<_> = kept.ops.iter().map(|q| self.encode_op(&q.op, &mut was)).collect();
        let names_since = ops.iter().flat_map(Mutation::made_by).filter(|by| (1..txn).contains(by)).min();
        let kept = self.stream.kept.get_mut(place)?;
        (kept.names_since, kept.was) = (names_since, was);
        let (asked, until) = (kept.asked, kept.until);
        Some(Batch { txn, done_through: self.stream.done_through(), caller, ops, asked, until })
    }

    /// An operation as it was sent first, whatever is known of its objects by now.
    fn encode_op(&self, op: &Op, was: &mut FxHashMap<NodeId, Target>) -> Mutation {
        let is_known = |id: &NodeId| was.contains_key(id) || self.nodes.contains_key(id);
        let replaced = match op {
            Op::Rename { over, .. } => over.filter(is_known),
            _ => None,
        };
        let mut target = |id: NodeId| was.entry(id).or_insert_with(|| self.target(id)).clone();
        match op {
            // Dropped mutations never come into a batch.
            Op::Void => {
                Mutation::SetAttr { object: Target::Made { txn: 0, op: 0 }, changes: Changes::default() }
            }
            Op::Make { dir, name, thing, attrs, load, want, joins, .. } => {
                let object = match thing {
                    Thing::File => {
                        let pooled = load.spare.as_ref().map(|lent| lent.spare.handle.clone());
                        NewObject::File { data: load.data.clone(), size: load.size, pooled }
                    }
                    Thing::Dir => NewObject::Dir,
                    Thing::Symlink(text) => NewObject::Symlink(text.clone()),
                    Thing::Node(kind, device) => NewObject::Node(*kind, *device),
                };
                let (dir, name) = (target(*dir), name.clone());
                Mutation::Make { dir, name, object, attrs: *attrs, want: *want, joins: *joins }
            }
            Op::Link { node, dir, name } => {
                Mutation::Link { object: target(*node), dir: target(*dir), name: name.clone() }
            }
            Op::SetAttr { node, changes } => Mutation::SetAttr { object: target(*node), changes: *changes },
            Op::Write { node, load, mtime } => {
                Mutation::Write { object: target(*node), data: load.data.clone(), mtime: *mtime }
            }
            Op::Rename { from, to, node, mode, .. } => Mutation::Rename {
                from_dir: target(from.0),
                from: from.1.clone(),
                to_dir: target(to.0),
                to: to.1.clone(),
                mode: *mode,
                victim: target(*node),
                // Where all that was here was forgotten before it was sent, so is what it was.
                over: replaced.map(target),
            },
            Op::Unlink { dir, name, node } => {
                Mutation::Unlink { dir: target(*dir), name: name.clone(), victim: target(*node) }
            }
            Op::Rmdir { dir, name, node } => {
                Mutation::Rmdir { dir: target(*dir), name: name.clone(), victim: target(*node) }
            }
        }
    }
}
