//! What was on its way when the server went, and found there that what it was about is gone: it goes out once more, as what
//! was not sent would have been decided.

use rustc_hash::FxHashSet;

use super::apart::is_about_data;
use super::{Places, There, Told};
use crate::attrs::Changes;
use crate::errno::Errno;
use crate::extent::Progress;
use crate::ids::{NodeId, Now};
use crate::machine::Machine;
use crate::queue::{Load, Op, Queued, Stage, Thing};

/// So many transactions after those that were on their way nothing of what came of them is outstanding.
const LATE_TXNS: u64 = 64;

impl Machine {
    /// What was written to a file that is gone, or made in a directory that is. False where nothing is to be saved.
    pub(crate) fn rescue(&mut self, queued: &Queued, errno: Errno, now: Now) -> bool {
        if self.journal.is_none() || errno != Errno::ESTALE {
            return false;
        }
        let late = self.journal.as_mut().and_then(|journal| journal.late.take());
        let (through, places) = late.unwrap_or_else(|| (0, self.last_places()));
        let is_rescued = self.rescue_by(queued, &places, now);
        if let Some(journal) = self.journal.as_mut().filter(|_| through > 0) {
            journal.late = Some((through, places));
        }
        is_rescued
    }

    /// All that was on its way when the server was compared with has arrived, and what had to be done otherwise.
    pub(crate) fn end_late(&mut self) {
        let executed = self.stream.executed_txn();
        let is_idle = self.stream.unsent.is_empty() && executed == self.stream.last_txn;
        if let Some(journal) = &mut self.journal {
            let is_over = |through: u64| executed >= through + if is_idle { 0 } else { LATE_TXNS };
            if journal.late.take_if(|(through, _)| is_over(*through)).is_some() {
                journal.below.clear();
            }
        }
    }

    fn rescue_by(&mut self, queued: &Queued, places: &Places, now: Now) -> bool {
        match &queued.op {
            Op::Make { dir, node, .. } => {
                let told = Told::from_iter([(*dir, (There::Removed, None))]);
                let made = self.make_dirs_anew(&told, places, Some((*dir, queued.caller.clone())), now);
                made.contains(dir) && self.make_again(queued, *node)
            }
            Op::Write { node, .. } | Op::SetAttr { node, .. } => {
                let has_name = self.nodes.get(node).is_some_and(|n| n.attrs.nlink > 0 && n.dead.is_none());
                if !has_name {
                    return false;
                }
                self.not_sent(*node, queued.serial);
                if !self.has_data_of_its_own(*node) {
                    return false;
                }
                self.merge_contents(*node, There::Removed, (places, &FxHashSet::default()), now);
                self.drop_what_concerns(*node);
                true
            }
            _ => false,
        }
    }

    /// An operation on what was to be made, and is made once more.
    pub(crate) fn do_again(&mut self, queued: &Queued, now: Now) -> bool {
        let is_alive = |id: &NodeId| self.nodes.get(id).is_some_and(|n| n.dead.is_none());
        if self.journal.is_none() || !queued.op.nodes().iter().flatten().all(is_alive) {
            return false;
        }
        match &queued.op {
            Op::Void => return false,
            Op::Make { node, .. } => return self.make_again(queued, *node),
            // Its data goes with the making, or behind where that was on its way again before.
            Op::Write { node, .. } => {
                self.not_sent(*node, queued.serial);
                self.flush.aging.push_back((now.mono, *node));
            }
            // It is made with the size that it has now.
            Op::SetAttr { node, changes } => {
                let left = Changes { size: None, ..*changes };
                self.with_data(*node, |data| data.truncations.retain(|(_, serial)| *serial != queued.serial));
                if !left.is_empty() {
                    let op = Op::SetAttr { node: *node, changes: left };
                    self.stream.asides.push((queued.serial, op, queued.caller.clone()));
                }
            }
            op => self.stream.asides.push((queued.serial, op.clone(), queued.caller.clone())),
        }
        true
    }

    fn make_again(&mut self, queued: &Queued, id: NodeId) -> bool {
        let mut op = queued.op.clone();
        if let Op::Make { load, .. } = &mut op {
            *load = Load::default();
        }
        self.not_sent(id, queued.serial);
        // It is made as it is now.
        for (serial, op) in self.ops_about(id) {
            if is_about_data(&op) {
                self.elide(serial);
            }
        }
        self.with_data(id, |data| data.truncations.clear());
        self.keep_named(id);
        if let Some(node) = self.nodes.get_mut(&id) {
            (node.made, node.told_mtime, node.base) = (None, None, None);
        }
        self.stream.asides.push((queued.serial, op, queued.caller.clone()));
        true
    }

    /// It is about to be named otherwise: what is on its way comes out again as it was.
    pub(super) fn keep_named(&mut self, id: NodeId) {
        let target = self.target(id);
        let mut rewritten = Vec::new();
        for kept in self.stream.kept.iter_mut().filter(|k| k.stage != Stage::Executed) {
            let names = kept.ops.iter().any(|q| q.op.nodes().contains(&Some(id)));
            if names && !kept.was.contains_key(&id) {
                kept.was.insert(id, target.clone());
                rewritten.push(kept.txn);
            }
        }
        self.are_rewritten(rewritten);
    }

    /// Data that went with a mutation has still to go.
    pub(super) fn not_sent(&mut self, id: NodeId, serial: u64) {
        let again = |p| if p == Progress::Stream(serial) { Progress::Dirty } else { p };
        self.with_data(id, |data| data.extents.turn(|p, _| Some(again(p))));
    }

    /// What was put before others carries the data of what it makes.
    pub(super) fn carry(&mut self, first: u64, last: u64) {
        let new = self.stream.unsent.iter().filter(|q| (first..=last).contains(&q.serial));
        let makes: Vec<_> = new
            .filter_map(|q| match q.op {
                Op::Make { node, thing: Thing::File, .. } | Op::Write { node, .. } => Some((node, q.serial)),
                _ => None,
            })
            .collect();
        for (id, serial) in makes {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.data.carrier = Some(serial);
            }
        }
    }
}
