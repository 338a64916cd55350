//! What came of batches: handles for what was made, and the undoing of what failed.

use std::collections::HashSet;

use crate::ask::Generation;
use crate::attrs::Changes;
use crate::errno::Errno;
use crate::extent::Progress;
use crate::ids::{Name, NodeId, Now};
use crate::machine::Machine;
use crate::mutation::{Batch, Born, MutationResult, Until, WriteId};
use crate::persist::Left;
use crate::queue::{Kept, Op, Queued, Stage};
use crate::tell::{Forget, Report};
use holdfast_base::CapSet;
use holdfast_base::limits::{CAPS_OPS_KEPT_MAX, UNSETTLED_BATCHES_MAX};

impl Machine {
    /// A batch was executed. `stable_through`: the last transaction that is on disk with all before it.
    pub fn batch_done(&mut self, txn: u64, results: Vec<MutationResult>, stable_through: u64, now: Now) {
        self.progress += 1;
        let max = self.settings.batches_in_flight_max;
        let Some(place) = self.stream.kept.iter().position(|k| k.txn == txn) else { return };
        let kept = &mut self.stream.kept[place];
        if kept.stage == Stage::Executed {
            return;
        }
        (kept.stage, kept.is_unheard) = (Stage::Executed, false);
        let (took, repeated, is_resent) = (now.mono.ms_since(kept.sent_at), kept.is_repeated, kept.is_resent);
        // The time of the server's disk is none of the path's; nor is that from a second call to the answer to the first.
        if kept.until == Until::Executed && !is_resent {
            self.stream.window.took(took, now.mono, max);
        }
        // What it says is held may be lost since.
        let is_void = self.has_lapsed || self.stream.kept[place].asked < self.epoch;
        let ops = std::mem::take(&mut self.stream.kept[place].ops);
        // A reply that is too short tells nothing of the rest.
        let results = results.into_iter().chain(std::iter::repeat(MutationResult::Failed(Errno::EIO)));
        let before = self.seen_before(&ops);
        let last_serial = self.stream.last_serial();
        let (mut born, mut left) = (Vec::new(), Vec::new());
        let mut op = 0;
        for (queued, result) in ops.iter().zip(results) {
            let result = if is_void { result.without_grant() } else { result };
            let its = self.left_by(&queued.op, &result, took).filter(|_| !is_resent);
            left.extend(its);
            if let MutationResult::Done { made: Some(made), .. } = &result {
                born.push((op, made.handle.clone()));
            }
            op += queued.op.parts() as u32;
            self.op_done((queued, its.map(|(_, left)| left)), result, repeated, now);
        }
        self.told_later(place, &ops);
        if let Some(kept) = self.stream.kept.get_mut(place) {
            (kept.ops, kept.born) = (ops, born);
            // Of what it has done before, and has lost, something may be on its disk.
            kept.left.extend(left);
            if kept.before.is_empty() {
                kept.before = before;
            }
        }
        self.do_otherwise(now);
        self.pledge_again(last_serial);
        self.end_late();
        self.recall_deferred(now);
        self.stable_through(stable_through);
    }

    /// Whether what became of this batch is to be taken in. It is not where the batch is to come out again, or has: of
    /// that nothing is known yet, and what is heard so late may be a former server's word, of what has gone with it.
    #[must_use]
    pub fn awaits(&self, batch: &Batch) -> bool {
        let is_it = |k: &&Kept| k.txn == batch.txn && k.stage == Stage::Sent;
        self.stream.kept.iter().find(is_it).is_some_and(|k| k.asked == batch.asked)
    }

    /// A batch may or may not have reached the server: it comes out again, as it was.
    pub fn batch_lost(&mut self, txn: u64) {
        self.progress += 1;
        if let Some(kept) = self.stream.kept.iter_mut().find(|k| k.txn == txn && k.stage == Stage::Sent) {
            kept.stage = Stage::Waiting;
            self.stream.may_wait = true;
        }
    }

    fn op_done(
        &mut self,
        (queued, left): (&Queued, Option<Left>),
        result: MutationResult,
        repeated: bool,
        now: Now,
    ) {
        self.release_nodes(&queued.op);
        let (at, follows) = (self.tick(), self.journal.is_some());
        for (place, id) in queued.op.nodes().into_iter().enumerate() {
            let Some(node) = id.and_then(|id| self.nodes.get_mut(&id)) else { continue };
            // Answers to questions asked before may not know of it.
            node.data.moved = at;
            if place == 0 {
                node.told_by(queued, left, follows);
            }
        }
        match result {
            MutationResult::Done { made, attrs: _, other_name } => {
                self.op_succeeded(queued, made, now);
                if let (Op::Make { dir, name, node, .. }, Some(other)) = (&queued.op, other_name) {
                    self.kept_both(*dir, name, *node, &other);
                }
            }
            MutationResult::Failed(Errno::EEXIST) if !repeated && self.put_aside(queued, now) => {}
            MutationResult::Failed(errno) if !repeated && self.rescue(queued, errno, now) => {}
            MutationResult::Failed(errno) => {
                self.refused(&queued.caller, errno);
                self.op_failed(queued, errno, repeated);
            }
            MutationResult::Depends if self.do_again(queued, now) => {}
            MutationResult::Depends => self.op_failed(queued, Errno::EIO, repeated),
        }
    }

    fn op_succeeded(&mut self, queued: &Queued, made: Option<Born>, now: Now) {
        match &queued.op {
            Op::Make { dir, node, load, .. } => {
                let handle = made.as_ref().map(|born| born.handle.clone());
                match made {
                    Some(born) => self.bind(*node, &born, now),
                    None => self.lose_sight(queued),
                }
                self.loaded(*node, queued.serial);
                if let Some(lent) = &load.spare {
                    self.spare_used(*dir, &lent.spare, handle.as_ref());
                }
            }
            Op::Write { node, .. } => self.loaded(*node, queued.serial),
            Op::Unlink { node, .. } | Op::Rmdir { node, .. } => {
                let nameless = |n: &&mut Box<crate::node::Node>| n.attrs.nlink == 0 && n.opens.is_empty();
                if let Some(gone) = self.nodes.get_mut(node).filter(nameless) {
                    gone.is_over = true;
                }
                self.drop_if_gone(*node);
            }
            Op::Rename { over: Some(over), .. } => self.drop_if_gone(*over),
            _ => {}
        }
    }

    /// Data that went with a mutation is with the server, or gone.
    pub(crate) fn loaded(&mut self, id: NodeId, serial: u64) {
        let carried = Progress::Stream(serial);
        let at = self.tick();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.data.moved = at;
        let is_all = !node.data.extents.any(|p, _| p != carried);
        let all = if is_all { node.data.extents.read(0, u64::MAX, Generation(0)) } else { Vec::new() };
        let there = node.data.extents.all_that((0, u64::MAX), |p| p == carried);
        self.patch_blocks(id, &there);
        self.with_data(id, |data| data.extents.turn(|p, _| (p != carried).then_some(p)));
        self.keep_sent(id, &all);
    }

    /// A node that was made here has got its handle, and what is held on it.
    pub(crate) fn bind(&mut self, id: NodeId, object: &Born, now: Now) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if let Some(old) = node.handle.take().filter(|old| self.handles.get(old) == Some(&id)) {
            self.handles.remove(&old);
        }
        node.handle = Some(object.handle.clone());
        // What is on its way to be given back is so by another handle.
        node.is_releasing = false;
        let shown = node.attrs.fileid;
        if let Some(seq) = self.early.remove(&object.handle) {
            node.seq = node.seq.max(seq);
            node.held = CapSet::NONE;
        }
        // A directory that was there already may be known here by another name, and what was made may have been listed before this was
        // heard: then that one has the handle.
        self.handles.entry(object.handle.clone()).or_insert(id);
        let is_its_own = self.handles.get(&object.handle) == Some(&id);
        if is_its_own && self.shown.len() < holdfast_base::limits::SHOWN_NUMBERS_MAX {
            self.shown.insert(object.handle.clone(), shown);
        }
        // What is recalled is so of the one that the handle leads to.
        match object.grant.filter(|_| is_its_own) {
            Some(grant) => self.bind_grant(id, grant, now),
            None => self.drop_assumed(id, CapSet::ALL_X, now),
        }
        if let Some(node) = self.nodes.get(&id) {
            self.tell_of_opens_unguarded(id, !node.held);
        }
    }

    /// Something was made, and the server does not say by which handle: whoever wants it finds it by its name.
    fn lose_sight(&mut self, queued: &Queued) {
        let Op::Make { dir, name, node, .. } = &queued.op else { return };
        if self.nodes.get(node).is_some_and(|n| n.handle.is_none()) {
            self.unknow(*dir, name);
            self.kill(*node, Errno::ESTALE);
        }
    }

    /// What was assumed to be held on something made here is compared with what the server gave.
    fn bind_grant(&mut self, id: NodeId, grant: crate::caps::Grant, now: Now) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if grant.seq <= node.seq {
            // A recall has overtaken it.
            self.drop_assumed(id, CapSet::ALL_X, now);
            return;
        }
        node.seq = grant.seq;
        let is_news = node.take_traits(&grant, false);
        let lost = node.held.without(grant.caps.sound());
        // Mostly it is asked back already.
        node.giving_back |= lost;
        if is_news {
            self.invalidate(Forget::Attrs(id));
        }
        self.drop_assumed(id, lost, now);
    }

    fn drop_assumed(&mut self, id: NodeId, lost: CapSet, now: Now) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let lost = node.held & lost;
        node.held = node.held.without(lost);
        let through = node.last_serial;
        if lost.is_exclusive() {
            // What was changed under it nothing covers: it goes at once.
            self.settle(id, true, now);
            self.stream.hurry(through);
        }
        if !lost.is_empty() {
            self.lose(id, lost);
        }
    }

    /// Another's object had taken the name: both are there, ours under another name.
    fn kept_both(&mut self, dir: NodeId, name: &Name, node: NodeId, other: &Name) {
        self.unknow(dir, name);
        self.name_unsent((dir, name), node, other);
        self.conflict_kept(dir, name, other);
        self.note_error(node, Errno::EEXIST);
        self.note_error(dir, Errno::EEXIST);
        let kept_as = Some(other.clone());
        let report = Report { kept_as, ..Report::new("create", node, Errno::EEXIST) };
        self.report_at(Some((dir, name.clone())), report);
    }

    pub(crate) fn note_error(&mut self, id: NodeId, errno: Errno) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.losses.note(errno);
        }
    }

    /// Nothing is known of a name any more.
    pub(crate) fn unknow(&mut self, id: NodeId, name: &Name) {
        let tick = self.tick();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.names_lost = tick;
        node.disturbed = tick;
        node.sure = node.sure.without(CapSet::FILE_S);
        let lost = node.dir.as_ref().and_then(|dir| dir.slot(name.as_bytes())?.node);
        if let Some(dir) = node.dir.as_mut() {
            dir.drop_name(name.as_bytes());
        }
        self.leases.forget(id, name.as_bytes());
        self.forget_listing(id);
        if self.journal.is_some() {
            self.remember_places(id, lost.into_iter().map(|child| (child, name.clone())).collect());
        }
        self.invalidate(Forget::Entry(id, name.clone()));
        self.invalidate(Forget::Attrs(id));
    }

    /// A mutation that had returned has failed: what it made believe is forgotten, and what built upon it.
    fn op_failed(&mut self, queued: &Queued, errno: Errno, repeated: bool) {
        if self.is_done_there(queued, errno) || self.keeps_servers_time(queued, errno) {
            return;
        }
        let is_unmade = self.is_unmade(&queued.op);
        if let Op::Write { node, .. } = &queued.op {
            self.loaded(*node, queued.serial);
            if !is_unmade {
                self.data_refused(*node, errno);
            }
            return;
        }
        self.stats.mutations_failed += 1;
        let text = |n: &Name| String::from_utf8_lossy(n.as_bytes()).into_owned();
        let (what, node, at) = match &queued.op {
            Op::Void | Op::Write { .. } => return,
            Op::Make { dir, name, node, load, .. } => {
                if let Some(lent) = &load.spare {
                    self.spare_used(*dir, &lent.spare, None);
                }
                self.unknow(*dir, name);
                self.note_error(*dir, errno);
                self.kill(*node, errno);
                ("create".to_owned(), *node, Some((*dir, name.clone())))
            }
            Op::Link { node, dir, name } | Op::Unlink { dir, name, node } | Op::Rmdir { dir, name, node } => {
                self.unknow(*dir, name);
                self.note_error(*dir, errno);
                self.distrust(*node);
                let verb = if matches!(queued.op, Op::Link { .. }) { "link" } else { "remove" };
                (verb.to_owned(), *node, Some((*dir, name.clone())))
            }
            Op::Rename { from, to, node, over, .. } => {
                self.not_renamed((from, to), (*node, *over), errno);
                (format!("rename to {:?}", text(&to.1)), *node, Some(from.clone()))
            }
            Op::SetAttr { node, .. } => {
                self.distrust(*node);
                ("change attributes".to_owned(), *node, None)
            }
        };
        // Sent again after the server had lost it, to be found done after all: the server's own settling tells.
        // What was done to a file before its last name went is nobody's loss when the file has ended with the server.
        let has_ended = errno == Errno::ESTALE && self.nodes.get(&node).is_some_and(|n| n.has_ended_here());
        // What stands for a make of what is there: others have removed it since.
        let is_nothing = matches!(&queued.op, Op::SetAttr { changes, .. } if changes.is_empty());
        let has_ended = has_ended || errno == Errno::ESTALE && is_nothing;
        let expected = has_ended || is_unmade || (repeated && matches!(errno, Errno::ENOENT | Errno::EEXIST));
        if !expected {
            self.conflict_failed(queued, errno);
            self.note_error(node, errno);
            self.report_at(at, Report::new(what, node, errno));
        }
    }

    /// Whether its object was never made, which has been told: nothing more was lost by what was to be done to it.
    fn is_unmade(&self, op: &Op) -> bool {
        let object = op.nodes()[0].and_then(|id| self.nodes.get(&id));
        !matches!(op, Op::Make { .. }) && object.is_some_and(|node| node.dead.is_some())
    }

    /// What was shown as renamed has its name still, and what was to be replaced, too.
    fn not_renamed(
        &mut self,
        (from, to): (&(NodeId, Name), &(NodeId, Name)),
        (node, over): (NodeId, Option<NodeId>),
        errno: Errno,
    ) {
        for (dir, name) in [from, to] {
            self.unknow(*dir, name);
            self.note_error(*dir, errno);
        }
        self.distrust(node);
        if let Some(over) = over {
            if let Some(over) = self.nodes.get_mut(&over) {
                over.has_lost_name = false;
            }
            self.distrust(over);
            // What was written to it meanwhile was dropped with its name.
            self.note_error(over, errno);
        }
    }

    /// What was to replace another file, and has not got its data, replaces nothing: the old file stays as it is.
    pub(crate) fn replaces_nothing(&mut self, id: NodeId, errno: Errno) {
        for serial in self.nodes.get(&id).map(|node| node.unsent.clone()).unwrap_or_default() {
            let op = self.stream.unsent_mut(serial).map(|queued| queued.op.clone());
            let Some(Op::Rename { from, to, node, over: Some(over), .. }) = op else { continue };
            self.elide(serial);
            self.not_renamed((&from, &to), (node, Some(over)), errno);
            let what = format!("rename to {:?}", String::from_utf8_lossy(to.1.as_bytes()));
            self.report_at(Some(from), Report::new(what, id, errno));
        }
    }

    /// What we believe of the object is not so.
    pub(crate) fn distrust(&mut self, id: NodeId) {
        self.disturb(id, CapSet::ALL_S);
        self.invalidate(Forget::Attrs(id));
        // Nor, perhaps, that it has gone.
        if let Some(node) = self.nodes.get_mut(&id) {
            node.data.is_let_go = false;
        }
    }

    /// The object was never made. What was queued about it is dropped; what is on its way will fail by itself.
    fn kill(&mut self, id: NodeId, errno: Errno) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.dead = Some(errno);
        (node.held, node.giving_back) = (CapSet::NONE, CapSet::NONE);
        node.sure = CapSet::NONE;
        node.recall = None;
        node.losses.note(errno);
        let unsent = std::mem::take(&mut node.unsent);
        if let Some(dir) = node.dir.as_mut() {
            dir.clear();
        }
        self.forget_listing(id);
        for serial in unsent {
            let op = self.stream.unsent_mut(serial).map(|q| q.op.clone());
            self.elide(serial);
            // The names it was to get, or has got here, it has not.
            match op {
                Some(Op::Link { dir, name, .. }) => self.unknow(dir, &name),
                Some(Op::Rename { from, to, node, over, .. }) => {
                    self.not_renamed((&from, &to), (node, over), errno);
                }
                _ => {}
            }
        }
        self.with_data(id, |data| data.extents.turn(|_, _| None));
        self.invalidate(Forget::Data(id));
    }

    /// Nothing up to this transaction will be sent again or named: the server may forget it.
    #[must_use]
    pub fn done_through(&self) -> u64 {
        self.stream.done_through()
    }

    /// What the server says is on disk needs not be kept.
    fn stable_through(&mut self, txn: u64) {
        self.stream.settle(txn);
    }

    /// The transaction up to which the server shall put everything on disk, if it should now: because somebody waits,
    /// or because much is kept.
    pub fn take_stable(&mut self, now: Now) -> Option<u64> {
        let stream = &self.stream;
        if stream.is_held || stream.is_asking_stable || stream.kept.is_empty() {
            return None;
        }
        let wanted = stream.wanted_stable > stream.stable() && !self.will_be_stable(now);
        let many =
            || stream.kept.len() >= UNSETTLED_BATCHES_MAX / 2 || stream.parts_kept() >= CAPS_OPS_KEPT_MAX / 2;
        let first = stream.first_unstable();
        let old = first.is_some_and(|k| {
            k.stage == Stage::Executed
                && now.mono.ms_since(k.sent_at) >= holdfast_base::limits::UNSYNCED_AGE_MS
        });
        if !(wanted || old || many()) {
            return None;
        }
        let through = stream.executed_txn();
        if first.is_none_or(|k| k.txn > through) {
            return None;
        }
        self.stream.is_asking_stable = true;
        Some(through)
    }

    /// Everything up to this transaction is on disk; but for these operations, whose effect could not be kept. The server tells
    /// all of a transaction's at once, and again until it hears that we are done with it.
    pub fn stable_done(&mut self, through: u64, failed: &[(u64, u32, Errno)], now: Now) {
        let _ = now;
        self.stream.is_asking_stable = false;
        self.told_stable(through, failed);
    }

    pub(crate) fn told_stable(&mut self, through: u64, failed: &[(u64, u32, Errno)]) {
        self.progress += 1;
        for (txn, op, errno) in failed {
            let kept = self.stream.kept.iter().find(|k| k.txn == *txn && !k.is_loss_told);
            let Some(op) = kept.and_then(|k| k.ops.get(*op as usize)).map(|q| q.op.clone()) else { continue };
            self.not_on_disk(&op, *errno);
        }
        let told: HashSet<u64> = failed.iter().map(|(txn, ..)| *txn).collect();
        for kept in &mut self.stream.kept {
            kept.is_loss_told |= told.contains(&kept.txn);
        }
        self.stable_through(through);
    }

    /// A mutation that was executed may be undone by a loss of power: of its object, and of the directories whose names it
    /// changed, for it is these that are synced for the sake of a name.
    fn not_on_disk(&mut self, op: &Op, errno: Errno) {
        let [Some(node), dirs @ ..] = op.nodes() else { return };
        let [from, to, _replaced] = dirs;
        for id in [Some(node), from, to].into_iter().flatten() {
            self.note_error(id, errno);
        }
        self.report(Report::new("sync", node, errno));
    }

    /// The request to put things on disk was lost.
    pub fn stable_lost(&mut self) {
        self.stream.is_asking_stable = false;
        self.progress += 1;
    }

    /// The server knows nothing of what was sent. What is on the disk it has all the same.
    pub fn forgotten(&mut self) {
        self.progress += 1;
        let renamed = self.stream.forgotten();
        self.are_rewritten(renamed);
    }

    /// After a new connection, or another server: what the server has executed and what is on its disk. What it has not
    /// executed comes out of `take_batch` again, in order and under the same numbers. `executed_through` is `None` where the
    /// server is the one that it was and has lost nothing: what it says that it has executed may be of before the
    /// results that have come since.
    pub fn resume(&mut self, executed_through: Option<u64>, stable_through: u64, now: Now) {
        self.progress += 1;
        // What comes out again is told from what came out before.
        self.tick();
        self.stable_through(stable_through);
        self.stream.is_asking_stable = false;
        // What is on its disk it need not do again, nor may: others have changed it since. It is kept for what names it, and names
        // itself what is kept no longer.
        if executed_through.is_some_and(|through| through < self.stream.stable_txn) {
            self.forgotten();
        }
        self.stream.executed_there = executed_through.map(|through| (through, self.generation));
        let found = std::mem::take(&mut self.found);
        if let Some(executed) = executed_through.filter(|_| !found.is_empty()) {
            self.make_none_again(executed, &found);
        }
        let mut again: Vec<(u64, Op)> = Vec::new();
        for kept in &mut self.stream.kept {
            let is_beyond = executed_through.is_some_and(|through| kept.txn > through);
            let lost = kept.stage == Stage::Executed && is_beyond;
            if lost {
                (kept.is_repeated, kept.is_loss_told) = (true, false);
                again.extend(kept.ops.iter().map(|q| (q.serial, q.op.clone())));
            }
            if lost || kept.stage == Stage::Sent {
                kept.stage = Stage::Waiting;
                self.stream.may_wait = true;
            }
        }
        self.unload(again.iter().map(|(serial, op)| (*serial, op)));
        for (serial, op) in again {
            for id in op.nodes().into_iter().flatten().collect::<HashSet<_>>() {
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.pending += 1;
                    node.last_serial = node.last_serial.max(serial);
                    node.lost_serial = node.lost_serial.max(serial);
                }
            }
            if let Op::Make { node, .. } = op {
                self.unmake(node, now);
            }
        }
        if !found.is_empty() {
            self.spare_others(&found, now);
        }
    }

    /// The server had made it, and lost it: until it is made again nothing is asked of it. What its data was sent to, or who has
    /// it open, is gone with it.
    pub(crate) fn unmake(&mut self, id: NodeId, now: Now) {
        let through = WriteId(self.flush.last_id);
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.data.lost_through = through;
        // The answers to what is being asked under its old handle are of something that is gone.
        node.changing = 0;
        node.data.kept.void();
        if let Some(handle) = node.handle.take()
            && self.handles.get(&handle) == Some(&id)
        {
            self.handles.remove(&handle);
        }
        for fh in &node.opens {
            if let Some(open) = self.opens.get_mut(fh) {
                (open.token, open.at_server, open.is_being_told) = (None, false, false);
            }
        }
        self.write_again(id, now);
    }

    /// Data that the server had and lost is read from here until it has it again. The newest first: what was written over since,
    /// or cut off, is not to be seen again.
    pub(crate) fn unload<'q>(&mut self, lost: impl DoubleEndedIterator<Item = (u64, &'q Op)>) {
        for (serial, op) in lost.rev() {
            match op {
                Op::SetAttr { node, changes: Changes { size: Some(size), .. } } => {
                    // What it cut off is back there until it is cut off again.
                    self.with_data(*node, |data| data.truncations.push((*size, serial)));
                }
                Op::Make { node, load, .. } | Op::Write { node, load, .. } => {
                    self.with_data(*node, |data| data.take_back(&load.data, serial));
                }
                _ => {}
            }
        }
    }
}
