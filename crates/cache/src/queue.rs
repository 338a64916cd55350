//! The one ordered stream of mutations: those not sent, which may still be merged and dropped, and the batches that are
//! kept until the server has them on disk.

pub(crate) mod names;

use std::collections::VecDeque;

use bytes::Bytes;
use holdfast_base::{Instant, Timestamp};
use rustc_hash::FxHashMap;

use crate::ask::{Generation, RenameMode};
use crate::attrs::{Changes, Device, Kind, NewAttrs};
use crate::ids::{Caller, Handle, Name, NodeId};
use crate::mutation::{Target, Until, operations_to_make, operations_to_write};
use holdfast_base::CapSet;

/// What a mutation makes.
#[derive(Clone, Debug)]
pub(crate) enum Thing {
    File,
    Dir,
    Symlink(Bytes),
    Node(Kind, Device),
}

/// A mutation by nodes; how the server is told of them is decided when it is sent.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Dropped.
    Void,
    Make {
        dir: NodeId,
        name: Name,
        node: NodeId,
        thing: Thing,
        attrs: NewAttrs,
        load: Load,
        /// What is wished for on it; decided when it is sent.
        want: CapSet,
        /// It was made while nobody could be asked: a directory that has the name will do for ours.
        joins: bool,
    },
    Link {
        node: NodeId,
        dir: NodeId,
        name: Name,
    },
    SetAttr {
        node: NodeId,
        changes: Changes,
    },
    Write {
        node: NodeId,
        load: Load,
        mtime: Timestamp,
    },
    Rename {
        from: (NodeId, Name),
        to: (NodeId, Name),
        node: NodeId,
        mode: RenameMode,
        after: Option<Generation>,
        /// What it replaces.
        over: Option<NodeId>,
    },
    Unlink {
        dir: NodeId,
        name: Name,
        node: NodeId,
    },
    Rmdir {
        dir: NodeId,
        name: Name,
        node: NodeId,
    },
}

/// Data that goes with a mutation, put in when it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    pub(crate) data: Vec<(u64, Bytes)>,
    pub(crate) size: Option<u64>,
    /// Of a file that is made: the one that the server has made to be it.
    pub(crate) spare: Option<crate::pool::Lent>,
}

impl Op {
    /// The nodes it names: what it is about, the directories it changes, and what it replaces.
    pub(crate) fn nodes(&self) -> [Option<NodeId>; 4] {
        match self {
            Self::Void => [None; 4],
            Self::Make { dir, node, .. }
            | Self::Link { node, dir, .. }
            | Self::Unlink { dir, node, .. }
            | Self::Rmdir { dir, node, .. } => [Some(*node), Some(*dir), None, None],
            Self::SetAttr { node, .. } | Self::Write { node, .. } => [Some(*node), None, None, None],
            Self::Rename { from, to, node, over, .. } => {
                [Some(*node), Some(from.0), (from.0 != to.0).then_some(to.0), *over]
            }
        }
    }

    /// The names that it gives or takes.
    pub(crate) fn names(&self) -> [Option<(NodeId, &Name)>; 2] {
        match self {
            Self::Void | Self::SetAttr { .. } | Self::Write { .. } => [None; 2],
            Self::Make { dir, name, .. }
            | Self::Link { dir, name, .. }
            | Self::Unlink { dir, name, .. }
            | Self::Rmdir { dir, name, .. } => [Some((*dir, name)), None],
            Self::Rename { from, to, .. } => [Some((from.0, &from.1)), Some((to.0, &to.1))],
        }
    }

    /// The node whose attributes it sets.
    pub(crate) const fn sets(&self) -> Option<NodeId> {
        if let Self::SetAttr { node, .. } = self { Some(*node) } else { None }
    }

    /// How many operations of the program it becomes.
    pub(crate) fn parts(&self) -> usize {
        match self {
            Self::Make { load, .. } => operations_to_make(&load.data),
            Self::Write { load, .. } => operations_to_write(&load.data),
            _ => 1,
        }
    }

    /// Bytes it is about, beside a hundred or so for its own.
    pub(crate) fn bytes(&self) -> usize {
        128 + match self {
            Self::Make { load, .. } | Self::Write { load, .. } => {
                load.data.iter().map(|(_, d)| d.len()).sum()
            }
            _ => 0,
        }
    }
}

/// A mutation in its place.
#[derive(Clone, Debug)]
pub(crate) struct Queued {
    pub(crate) serial: u64,
    pub(crate) at: Instant,
    pub(crate) caller: Caller,
    pub(crate) op: Op,
}

/// How far a batch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// To be sent (again).
    Waiting,
    /// On its way.
    Sent,
    /// Its results have come.
    Executed,
}

/// A batch that is not known to be on disk.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) txn: u64,
    pub(crate) caller: Caller,
    pub(crate) ops: Vec<Queued>,
    /// How many operations of the program they are: so many the server remembers until we are done with it.
    pub(crate) parts: usize,
    pub(crate) stage: Stage,
    /// When it is answered, as it was sent last.
    pub(crate) until: Until,
    pub(crate) sent_at: Instant,
    /// When it was last sent, in the order of events.
    pub(crate) asked: Generation,
    /// It came out more than once: what its results show may be of later.
    pub(crate) is_resent: bool,
    /// It was sent, and nothing was heard of its results since: the server may have done any part of it.
    pub(crate) is_unheard: bool,
    /// Its results were taken in before, and its effects then lost.
    pub(crate) is_repeated: bool,
    /// What of it could not be put on disk was heard, and is no news when it is told again.
    pub(crate) is_loss_told: bool,
    /// The first transaction by which something is named in it as it was sent. Until it is on disk that one is kept,
    /// though it be on disk itself: the server must know it, and the batch must come out again as it was.
    pub(crate) names_since: Option<u64>,
    /// How it names things, since it was sent first: some may be named otherwise by now, or be forgotten here.
    pub(crate) was: FxHashMap<NodeId, Target>,
    /// The handles of what it has made, by the places of its operations.
    pub(crate) born: Vec<(u32, Handle)>,
    /// What was known of its objects before its results were taken in; only where there is a journal.
    pub(crate) before: Vec<(NodeId, crate::persist::Before)>,
    /// Of the names that it gives and takes.
    pub(crate) names: names::Numbers,
    /// What times the server has given files of its own accord in the course of it.
    pub(crate) left: Vec<(NodeId, crate::persist::Left)>,
}

impl Kept {
    /// What the last of its operations about a file has left of its times.
    pub(crate) fn left_of(&self, id: NodeId) -> Option<crate::persist::Left> {
        self.left.iter().rev().find(|(of, _)| *of == id).map(|(_, left)| *left)
    }
}

/// Serials from one on, up to but without another, and what each has got more.
pub(crate) type Moved = (u64, u64, u64);

/// The serial that this one has become.
pub(crate) fn placed(serial: u64, moved: &[Moved]) -> u64 {
    moved.iter().fold(serial, |at, (from, to, by)| if (*from..*to).contains(&at) { at + by } else { at })
}

/// The stream.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    last: u64,
    pub(crate) unsent: VecDeque<Queued>,
    pub(crate) kept: VecDeque<Kept>,
    /// Of all that is kept: it is asked for with each operation of an application's.
    parts_kept: usize,
    /// Some of it may have to come out again.
    pub(crate) may_wait: bool,
    pub(crate) last_txn: u64,
    /// Everything up to here is to be sent at once.
    pub(crate) hurried: u64,
    /// All transactions up to this one are executed and on disk. Some may be kept all the same.
    pub(crate) stable_txn: u64,
    /// Everything up to here is to be put on disk.
    pub(crate) wanted_stable: u64,
    pub(crate) is_asking_stable: bool,
    /// Of everything up to here somebody waits for the results, and not for the disk.
    pub(crate) needed: u64,
    /// That has risen: something forced may be among it. It is asked for with each operation of an application's.
    pub(crate) may_need: bool,
    /// The last transaction of which the server knew, when it began anew, that it was executed; and when it told.
    pub(crate) executed_there: Option<(u64, Generation)>,
    /// Nothing goes out: the server is away, or is being compared with.
    pub(crate) is_held: bool,
    /// Serials of what was, or may have been, changed while it was not sent; only where there is a journal.
    pub(crate) touched: Vec<u64>,
    pub(crate) is_followed: bool,
    /// Serials that were given anew, as others came before.
    moved: Vec<Moved>,
    /// What was sent and failed, from and up to, and the last mutation of those that are to do in its place.
    instead: Vec<(u64, u64, u64)>,
    /// What is to be done in the place of what has failed just now.
    pub(crate) asides: Vec<(u64, Op, Caller)>,
    /// The last mutation that was put before others.
    pub(crate) ahead: u64,
    /// How many batches may be on their way.
    pub(crate) window: crate::pace::Window,
}

impl Stream {
    pub(crate) fn last_serial(&self) -> u64 {
        self.last
    }

    pub(crate) fn push(&mut self, op: Op, caller: Caller, at: Instant) -> u64 {
        self.last += 1;
        self.unsent.push_back(Queued { serial: self.last, at, caller, op });
        self.last
    }

    /// Keeps a batch until it is on disk.
    pub(crate) fn keep(&mut self, mut kept: Kept) {
        kept.names = names::Numbers::of(&kept.ops);
        self.parts_kept += kept.parts;
        self.may_wait |= kept.stage == Stage::Waiting;
        self.kept.push_back(kept);
    }

    /// Keeps none any more.
    pub(crate) fn keep_none(&mut self) {
        self.kept.clear();
        (self.parts_kept, self.may_wait) = (0, false);
    }

    /// A batch that is to come out again.
    pub(crate) fn waiting(&mut self) -> Option<usize> {
        if !self.may_wait {
            return None;
        }
        let place = self.kept.iter().position(|k| k.stage == Stage::Waiting);
        self.may_wait = place.is_some();
        place
    }

    /// What was put before others that are not sent.
    pub(crate) fn put_ahead(&self) -> impl Iterator<Item = &Queued> {
        self.unsent.iter().take_while(|q| q.serial <= self.ahead)
    }

    /// Puts mutations before all that are not sent; unless `is_first`, behind those that were put there so before. The serials
    /// of what is not sent change; none is used twice, so that whoever waits for one finds out which it is now. Gives how.
    pub(crate) fn put_before(&mut self, ops: Vec<(Op, Caller)>, is_first: bool, at: Instant) -> [Moved; 2] {
        let (first, last, count) = (self.first_unsent(), self.last, ops.len() as u64);
        let ahead = self.put_ahead().count();
        let before = if is_first { 0 } else { ahead };
        let behind = self.unsent.split_off(before);
        let (middle, by) = (first + before as u64, last + 1 - first);
        self.unsent.iter_mut().for_each(|q| q.serial += by);
        self.last += before as u64;
        for (op, caller) in ops {
            self.push(op, caller, at);
        }
        self.ahead = self.last + (ahead - before) as u64;
        self.unsent.extend(behind.into_iter().map(|q| Queued { serial: q.serial + by + count, ..q }));
        self.last = last + by + count;
        let moved = [(first, middle, by), (middle, last + 1, by + count)];
        for through in [&mut self.hurried, &mut self.wanted_stable, &mut self.needed] {
            *through = placed(*through, &moved);
        }
        self.moved.extend(moved);
        moved
    }

    /// Who waits for this mutation, which was sent, or for a later one that was, waits for those put before others last.
    pub(crate) fn stands_for(&mut self, serial: u64) {
        let last = self.kept.iter().flat_map(|k| &k.ops).map(|q| q.serial).max().unwrap_or(0).max(serial);
        self.instead.push((serial, last, self.ahead));
    }

    /// The serial that is to be waited for by who waits for this one.
    pub(crate) fn placed(&self, serial: u64) -> u64 {
        let instead = self.instead.iter().rev().find(|(from, to, _)| (*from..=*to).contains(&serial));
        placed(instead.map_or(serial, |(.., now)| *now), &self.moved)
    }

    /// Goes on after this serial.
    pub(crate) fn set_last_serial(&mut self, last: u64) {
        self.last = last;
    }

    /// These may be other than they were, while they are not sent.
    pub(crate) fn touch(&mut self, serials: impl IntoIterator<Item = u64>) {
        if self.is_followed {
            self.touched.extend(serials);
        }
    }

    /// A mutation that is not sent yet.
    pub(crate) fn unsent_mut(&mut self, serial: u64) -> Option<&mut Queued> {
        self.touch([serial]);
        let index = self.place_of(serial)?;
        self.unsent.get_mut(index)
    }

    /// The same, to look at.
    pub(crate) fn unsent(&self, serial: u64) -> Option<&Queued> {
        self.unsent.get(self.place_of(serial)?)
    }

    fn place_of(&self, serial: u64) -> Option<usize> {
        let first = self.unsent.front()?.serial;
        usize::try_from(serial.checked_sub(first)?).ok()
    }

    /// Drops a mutation that is not sent yet.
    pub(crate) fn void(&mut self, serial: u64) -> Option<Op> {
        let op = std::mem::replace(&mut self.unsent_mut(serial)?.op, Op::Void);
        self.trim();
        Some(op)
    }

    /// Drops what was dropped at the front, so that `executed` moves on.
    pub(crate) fn trim(&mut self) {
        while matches!(self.unsent.front(), Some(Queued { op: Op::Void, .. })) {
            self.unsent.pop_front();
        }
    }

    pub(crate) fn hurry(&mut self, serial: u64) {
        self.hurried = self.hurried.max(serial);
    }

    /// Somebody waits for what comes of everything up to this serial.
    pub(crate) fn need(&mut self, serial: u64) {
        self.hurry(serial);
        self.may_need |= serial > self.needed;
        self.needed = self.needed.max(serial);
    }

    fn first_unsent(&self) -> u64 {
        self.unsent.front().map_or(self.last + 1, |q| q.serial)
    }

    /// Every mutation up to this serial was sent, or is not to be.
    pub(crate) fn sent(&self) -> u64 {
        self.first_unsent() - 1
    }

    /// Every mutation up to this serial was executed, and its result taken in.
    pub(crate) fn executed(&self) -> u64 {
        let kept = self.kept.iter().find(|k| k.stage != Stage::Executed);
        kept.and_then(|k| k.ops.first()).map_or_else(|| self.first_unsent(), |q| q.serial) - 1
    }

    /// Every mutation up to this serial, and every transaction up to this one, was executed, though a result may not have
    /// come: what came of a later batch tells it of all before, for they are executed in order.
    pub(crate) fn surely_executed(&self) -> (u64, u64) {
        let last = self.kept.iter().rev().find(|k| k.stage == Stage::Executed);
        let (serial, txn) = last.map_or((0, 0), |k| (k.ops.last().map_or(0, |q| q.serial), k.txn));
        (serial.max(self.executed()), txn.max(self.executed_txn()))
    }

    /// Every mutation up to this serial is on disk.
    pub(crate) fn stable(&self) -> u64 {
        let kept = self.first_unstable().and_then(|k| k.ops.first());
        kept.map_or_else(|| self.first_unsent(), |q| q.serial) - 1
    }

    /// The first batch that is not known to be on disk.
    pub(crate) fn first_unstable(&self) -> Option<&Kept> {
        self.kept.iter().find(|k| k.txn > self.stable_txn)
    }

    /// Everything executed up to this transaction is on disk. What no batch names that is not is kept no longer.
    pub(crate) fn settle(&mut self, through: u64) {
        self.stable_txn = self.stable_txn.max(through.min(self.executed_txn()));
        // Executed or not: what is lost with the server comes again.
        let unstable = self.kept.iter().filter(|k| k.txn > self.stable_txn);
        let named = unstable.filter_map(|k| k.names_since).min().unwrap_or(u64::MAX);
        let last = self.stable_txn.min(named - 1);
        while self.kept.front().is_some_and(|k| k.txn <= last && k.stage == Stage::Executed) {
            self.parts_kept -= self.kept.pop_front().map_or(0, |k| k.parts);
        }
        self.forget_moves();
    }

    /// The server knows nothing of what was sent: another one, or it has given that up. What is on the disk is not sent to it, and is
    /// named by its handle; what was never made, by nothing. Gives the transactions that name something otherwise now.
    pub(crate) fn forgotten(&mut self) -> Vec<u64> {
        let stable = self.stable_txn;
        let born: FxHashMap<(u64, u32), Handle> = self
            .kept
            .iter()
            .take_while(|k| k.txn <= stable)
            .flat_map(|k| k.born.iter().map(|(op, handle)| ((k.txn, *op), handle.clone())))
            .collect();
        let mut renamed = Vec::new();
        for kept in self.kept.iter_mut().filter(|k| k.txn > stable) {
            let txn = kept.txn;
            for target in kept.was.values_mut() {
                if let Target::Made { txn: by @ 1.., op } = *target
                    && by <= stable
                {
                    let handle = born.get(&(by, op)).cloned();
                    *target = handle.map_or(Target::Made { txn: 0, op: 0 }, Target::Handle);
                    renamed.push(txn);
                }
            }
            let named = kept.was.values().filter_map(Target::made_by);
            kept.names_since = named.filter(|by| (1..txn).contains(by)).min();
        }
        self.settle(0);
        renamed
    }

    /// Where a serial has gone is remembered for who waits for it. Who waits for one that came to lie within what is on disk
    /// is content by the one he has, which is lower.
    fn forget_moves(&mut self) {
        if self.moved.is_empty() && self.instead.is_empty() {
            return;
        }
        let stable = self.stable();
        let through: Vec<u64> = self.instead.iter().map(|(.., now)| placed(*now, &self.moved)).collect();
        let mut through = through.into_iter();
        self.instead.retain(|_| through.next().is_some_and(|now| now > stable));
        let lasts: Vec<u64> =
            self.moved.iter().map(|(_, to, _)| placed(to.saturating_sub(1), &self.moved)).collect();
        let mut lasts = lasts.into_iter();
        self.moved.retain(|_| lasts.next().is_some_and(|last| last > stable));
    }

    /// Nothing up to this transaction will be sent again or named.
    pub(crate) fn done_through(&self) -> u64 {
        self.kept.front().map_or(self.last_txn, |k| k.txn - 1)
    }

    /// The last of the batches under way that make objects.
    pub(crate) fn making_through(&self) -> Option<u64> {
        let makes = |k: &&Kept| k.ops.iter().any(|q| matches!(q.op, Op::Make { .. }));
        self.kept.iter().filter(|k| k.stage != Stage::Executed).filter(makes).map(|k| k.txn).max()
    }

    /// Whether the server has made this, and not on its disk, as far as it has told.
    pub(crate) fn has_made(&self, id: NodeId) -> bool {
        let makes = |k: &Kept| k.ops.iter().any(|q| matches!(q.op, Op::Make { node, .. } if node == id));
        self.kept.iter().any(|k| k.stage == Stage::Executed && makes(k))
    }

    /// Whether objects are being made by batches under way up to this one.
    pub(crate) fn is_making(&self, through: u64) -> bool {
        let makes = |k: &Kept| k.ops.iter().any(|q| matches!(q.op, Op::Make { .. }));
        self.kept.iter().any(|k| k.txn <= through && k.stage != Stage::Executed && makes(k))
    }

    /// How many operations the server has to remember, or will have to.
    pub(crate) fn parts_kept(&self) -> usize {
        self.parts_kept
    }

    /// Whether any batch is on its way; mostly it is among the last.
    pub(crate) fn is_any_sent(&self) -> bool {
        self.kept.iter().rev().any(|k| k.stage == Stage::Sent)
    }

    /// Those that wait for the server's disk are not among them: they keep nothing busy, and others need the room.
    pub(crate) fn in_flight(&self) -> usize {
        self.kept.iter().filter(|k| k.stage == Stage::Sent && k.until == Until::Executed).count()
    }

    /// The last transaction of which, and of all before it, the results were taken in.
    pub(crate) fn executed_txn(&self) -> u64 {
        let first = self.kept.iter().find(|k| k.stage != Stage::Executed);
        first.map_or(self.last_txn, |k| k.txn - 1)
    }

    /// Whether the transaction is still kept: its effects may be lost and come again under another handle.
    pub(crate) fn keeps(&self, txn: u64) -> bool {
        self.kept.front().is_some_and(|k| k.txn <= txn)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let serials: Vec<u64> =
            self.kept.iter().flat_map(|k| &k.ops).chain(&self.unsent).map(|q| q.serial).collect();
        if !serials.is_sorted_by(|a, b| a < b) {
            return Err("serials are out of order".into());
        }
        let unsent = self.unsent.iter().zip(self.unsent.iter().skip(1));
        if unsent.clone().any(|(a, b)| a.serial + 1 != b.serial) {
            return Err("a gap among what is not sent".into());
        }
        if !self.kept.iter().zip(self.kept.iter().skip(1)).all(|(a, b)| a.txn + 1 == b.txn) {
            return Err("transactions have gaps".into());
        }
        if self.parts_kept != self.kept.iter().map(|k| k.parts).sum::<usize>() {
            return Err("operations that are kept were miscounted".into());
        }
        if !self.may_wait && self.kept.iter().any(|k| k.stage == Stage::Waiting) {
            return Err("a batch waits, and would not come out".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_serials_went_is_remembered_until_what_they_became_is_on_disk() {
        let mut stream = Stream::default();
        let (caller, at) = (Caller::new(0, 0), Instant(0));
        for _ in 0..1000 {
            let waited_for = stream.push(Op::Void, caller.clone(), at);
            stream.put_before(vec![(Op::Void, caller.clone())], true, at);
            let now = stream.placed(waited_for);
            assert!(now > waited_for && now == stream.last_serial());
            stream.settle(0);
            assert_eq!(stream.placed(waited_for), now, "nothing of it is on disk");
            stream.unsent.clear();
            stream.settle(0);
            assert!(stream.stable() >= stream.placed(waited_for), "who waits for it is content");
        }
        assert!(stream.moved.is_empty() && stream.instead.is_empty());
    }
}
