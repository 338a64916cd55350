//! A client's transactions: in order, each once, remembered until the client says that it will not send them again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use holdfast_base::limits::{
    CAPS_BATCHES_MAX, CAPS_LANE_IDLE_MS, CAPS_OPS_KEPT_MAX, CAPS_OPS_LEFT_MAX, CAPS_TICKETS_PER_CLIENT_MAX,
    CAPS_TXNS_KEPT_MAX,
};
use holdfast_base::{ClientId, Instant};
use holdfast_export::{Export, WireHandle};
use holdfast_ledger::{BatchRecord, Remembered, Undertaking};
use holdfast_rpc::PendingReply;
use holdfast_vfs::{Handle, Touched};
use holdfast_wire::caps::{CapsStat, TxnId, Until};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::Caps;
use crate::failures::Failures;
use crate::outcome::Outcome;
use crate::site::Actor;

/// What was made by an operation that is not finished.
#[derive(Clone, Debug)]
pub(crate) struct Partial {
    pub(crate) op: u32,
    pub(crate) handle: Option<Handle>,
    pub(crate) name: Vec<u8>,
}

/// One transaction.
#[derive(Default)]
pub(crate) struct Txn {
    /// Tells its arguments from others under its number; `None` of one of a former life.
    pub(crate) fingerprint: Option<u64>,
    pub(crate) ops: usize,
    pub(crate) outcomes: Vec<Outcome>,
    /// Of the operation after those.
    pub(crate) partial: Option<Partial>,
    /// To be sealed once it is durable.
    pub(crate) records: Vec<Undertaking>,
    /// What is to be made durable, and for which operation.
    pub(crate) touched: Vec<(Arc<Export>, Touched, u32)>,
    pub(crate) is_stable: bool,
}

impl Txn {
    /// What came of it, where all of it is executed, to be told again. It stays in its place meanwhile: a force that ends then notes
    /// there what has failed.
    pub(crate) fn executed(&self) -> Option<Self> {
        let outcomes = (self.outcomes.len() == self.ops).then(|| self.outcomes.clone())?;
        Some(Self { fingerprint: self.fingerprint, ops: self.ops, outcomes, ..Self::default() })
    }
}

/// A batch that waits for its turn.
pub(crate) struct Waiting {
    pub(crate) actor: Actor,
    pub(crate) args: Bytes,
    pub(crate) until: Until,
    pub(crate) pending: PendingReply,
}

/// Who waits for transactions to be durable.
pub(crate) struct Awaiting {
    pub(crate) through: TxnId,
    pub(crate) pending: PendingReply,
    pub(crate) call: AwaitingCall,
}

/// By which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AwaitingCall {
    Stable,
    /// What came of it is in its reply already.
    Batch,
}

/// What a former life recorded of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Former {
    /// None when it was cut short.
    pub(crate) outcome: Option<Vec<u8>>,
    /// What was said of it, though it has not outlived the machine, or perhaps not.
    pub(crate) doubtful: Option<Vec<u8>>,
    pub(crate) record: BatchRecord,
}

/// What a former life left of a transaction's operations.
#[derive(Default)]
struct Restored {
    outcomes: BTreeMap<(u64, u32), Former>,
    /// The last one that tells that everything before it was done and is there still.
    survived: Option<(u64, u32)>,
}

/// What changes.
pub(crate) struct State {
    pub(crate) client: ClientId,
    /// Some thread executes.
    pub(crate) is_running: bool,
    pub(crate) waiting: BTreeMap<TxnId, Waiting>,
    /// Those above `done_through` that have been begun, but for the one that is being executed.
    pub(crate) txns: BTreeMap<TxnId, Txn>,
    pub(crate) done_through: TxnId,
    pub(crate) executed_through: TxnId,
    /// Durable, or failed: what is forced is tried once.
    pub(crate) stable_through: TxnId,
    pub(crate) failed: Failures,
    /// Who waits for what to be durable.
    pub(crate) awaiting: Vec<Awaiting>,
    pub(crate) is_committing: bool,
    /// Through which the client has heard, by STABLE or a hint, that all is durable.
    pub(crate) told_through: TxnId,
    /// A hint is under way.
    pub(crate) is_hinting: bool,
    restored: Restored,
    pub(crate) used_at: Instant,
}

/// The transactions of one incarnation.
pub(crate) struct Lane {
    pub(crate) incarnation: [u8; 16],
    pub(crate) state: Mutex<State>,
    /// What it was about to change is served elsewhere.
    pub(crate) is_elsewhere: AtomicBool,
}

/// As HELLO tells it.
pub(crate) struct LaneView {
    pub(crate) is_known: bool,
    pub(crate) executed_through: TxnId,
    pub(crate) stable_through: TxnId,
}

/// All lanes.
pub(crate) type Lanes = Mutex<FxHashMap<[u8; 16], Arc<Lane>>>;

impl Lane {
    pub(crate) fn new(incarnation: [u8; 16], client: ClientId, now: Instant) -> Self {
        let state = State {
            client,
            is_running: false,
            waiting: BTreeMap::new(),
            txns: BTreeMap::new(),
            done_through: TxnId(0),
            executed_through: TxnId(0),
            stable_through: TxnId(0),
            failed: Failures::default(),
            awaiting: Vec::new(),
            is_committing: false,
            told_through: TxnId(0),
            is_hinting: false,
            restored: Restored::default(),
            used_at: now,
        };
        Self { incarnation, state: Mutex::new(state), is_elsewhere: AtomicBool::new(false) }
    }

    /// What an operation of an earlier transaction made; DEPENDS when it failed, BADREF when there is none.
    pub(crate) fn made(&self, txn: TxnId, op: u32) -> Result<WireHandle, CapsStat> {
        let state = self.state.lock();
        let outcome = state.txns.get(&txn).and_then(|txn| txn.outcomes.get(op as usize));
        made_of(outcome)
    }

    /// What a former life recorded of an operation.
    pub(crate) fn restored(&self, txn: TxnId, op: u32) -> Option<Former> {
        self.state.lock().restored.outcomes.get(&(txn.0, op)).cloned()
    }

    /// The next operation of the transaction of which a former life recorded something.
    pub(crate) fn next_restored(&self, txn: TxnId, op: u32) -> Option<u32> {
        let state = self.state.lock();
        let of = state.restored.outcomes.range((txn.0, op.saturating_add(1))..=(txn.0, u32::MAX)).next();
        of.map(|((_, op), _)| *op)
    }

    /// Whether something after this operation was executed in a former life: then it was too.
    pub(crate) fn was_passed(&self, txn: TxnId, op: u32) -> bool {
        let state = self.state.lock();
        state.restored.outcomes.last_key_value().is_some_and(|(last, _)| *last > (txn.0, op))
    }

    /// Whether this operation was executed in a former life, as something after it was, and its effect was not lost with the
    /// machine.
    pub(crate) fn has_survived(&self, txn: TxnId, op: u32) -> bool {
        self.state.lock().restored.survived.is_some_and(|last| last > (txn.0, op))
    }
}

/// What an operation made.
pub(crate) fn made_of(outcome: Option<&Outcome>) -> Result<WireHandle, CapsStat> {
    match outcome {
        Some(Outcome::Failed(_)) => Err(CapsStat::Depends),
        Some(outcome) => outcome.made().copied().ok_or(CapsStat::BadRef),
        None => Err(CapsStat::BadRef),
    }
}

impl State {
    /// The one that comes next.
    pub(crate) const fn next(&self) -> TxnId {
        self.executed_through.next()
    }

    /// Whether a batch may be begun, or wait.
    pub(crate) fn admit(&self, txn: TxnId, ops: usize) -> Result<(), CapsStat> {
        if txn <= self.done_through {
            return Err(CapsStat::Forgotten);
        }
        if txn <= self.executed_through {
            return Ok(());
        }
        if txn.0 - self.executed_through.0 > CAPS_BATCHES_MAX as u64 {
            return Err(CapsStat::Misordered);
        }
        let others = self.txns.iter().filter(|(of, _)| **of != txn).map(|(_, of)| of.ops);
        let (count, kept) = others.fold((0, 0), |(count, kept), ops| (count + 1, kept + ops));
        if count >= CAPS_TXNS_KEPT_MAX
            || kept + ops > CAPS_OPS_KEPT_MAX + holdfast_base::limits::CAPS_BATCH_OPS_MAX
        {
            return Err(CapsStat::Window);
        }
        Ok(())
    }

    /// How many operations are remembered.
    fn ops_kept(&self) -> usize {
        self.txns.values().map(|txn| txn.ops).sum::<usize>() + self.restored.outcomes.len()
    }

    /// All that is durable without a gap. A record that is sealed tells that all before it is there, too; so none is before
    /// that is so, and none behind what failed, which is not to be believed once the machine dies.
    pub(crate) fn advance_stable(&mut self) {
        let surely = self.failed.before();
        while let Some(txn) = self.txns.get_mut(&self.stable_through.next())
            && txn.is_stable
            && self.stable_through < self.executed_through
        {
            self.stable_through = self.stable_through.next();
            let records = std::mem::take(&mut txn.records);
            if surely.is_none_or(|through| self.stable_through <= through) {
                records.iter().for_each(Undertaking::seal);
            }
        }
    }

    /// All that is durable without a gap, nothing that failed among it: what may be said where failures are not told.
    pub(crate) fn surely_stable_through(&self) -> TxnId {
        self.failed.before().map_or(self.stable_through, |before| before.min(self.stable_through))
    }
}

impl Caps {
    /// A client's lane, made when it has none. What it will not send again is forgotten.
    pub(crate) fn open_lane(&self, incarnation: [u8; 16], client: ClientId, done: TxnId) -> LaneView {
        let now = self.parts.manager.clock().now();
        self.make_room(&incarnation, client);
        let mut is_known = true;
        let lane = {
            let mut lanes = self.lanes.lock();
            let make = || {
                is_known = false;
                Arc::new(Lane::new(incarnation, client, now))
            };
            Arc::clone(lanes.entry(incarnation).or_insert_with(make))
        };
        self.forget_through(&lane, done);
        let mut state = lane.state.lock();
        state.client = client;
        state.used_at = now;
        let (executed_through, stable_through) = (state.executed_through, state.surely_stable_through());
        LaneView { is_known, executed_through, stable_through }
    }

    /// Gives up the lane that a client has not said HELLO for the longest, when it has as many as it may have mounts: those
    /// of former epochs have no ticket any more, so tickets alone do not bound them.
    fn make_room(&self, incarnation: &[u8; 16], client: ClientId) {
        let lanes = self.lanes.lock();
        if lanes.contains_key(incarnation) {
            return;
        }
        let used = |lane: &Arc<Lane>| {
            let state = lane.state.lock();
            (state.client == client).then_some((state.used_at, lane.incarnation))
        };
        let its: Vec<_> = lanes.values().filter_map(used).collect();
        drop(lanes);
        if its.len() >= CAPS_TICKETS_PER_CLIENT_MAX
            && let Some((_, oldest)) = its.into_iter().min()
        {
            self.forget_lane(&oldest);
        }
    }

    pub(crate) fn lane(&self, incarnation: &[u8; 16]) -> Option<Arc<Lane>> {
        self.lanes.lock().get(incarnation).cloned()
    }

    /// The client will not send these again.
    pub(crate) fn forget_through(&self, lane: &Lane, done: TxnId) {
        let mut state = lane.state.lock();
        // What was not executed cannot be done with, unless by a former life.
        let is_fresh = state.txns.is_empty() && !state.is_running;
        let done = if is_fresh { done } else { done.min(state.stable_through) };
        if done <= state.done_through {
            return;
        }
        state.done_through = done;
        // A lane that begins, or was brought back by a restart, goes on after what its client is done with.
        state.executed_through = state.executed_through.max(done);
        state.stable_through = state.stable_through.max(done);
        let kept = state.txns.split_off(&done.next());
        let forgotten = std::mem::replace(&mut state.txns, kept);
        let restored = state.restored.outcomes.split_off(&(done.0 + 1, 0));
        let of_former = std::mem::replace(&mut state.restored.outcomes, restored);
        state.failed.forget_through(done);
        drop(state);
        let Some(ledger) = &self.parts.ledger else { return };
        for (txn, of) in forgotten {
            ledger.forget_batch(&lane.incarnation, txn.0, u32::try_from(of.ops).unwrap_or(u32::MAX));
        }
        for ((txn, op), _) in of_former {
            ledger.forget_batch_op(&lane.incarnation, txn, op);
        }
    }

    /// Takes in what a former life recorded.
    pub fn restore(&self, remembered: Vec<Remembered>) {
        let now = self.parts.manager.clock().now();
        let mut lanes = self.lanes.lock();
        for one in remembered {
            let Remembered::Batch { incarnation, txn, op, outcome, doubtful, record } = one else { continue };
            let make = || Arc::new(Lane::new(incarnation, ClientId(0), now));
            let lane = lanes.entry(incarnation).or_insert_with(make);
            let restored = &mut lane.state.lock().restored;
            restored.outcomes.insert((txn, op), Former { outcome, doubtful, record });
            if record.survived() {
                restored.survived = restored.survived.max(Some((txn, op)));
            }
        }
    }

    /// An incarnation is gone for good.
    pub(crate) fn forget_lane(&self, incarnation: &[u8; 16]) {
        let Some(lane) = self.lanes.lock().remove(incarnation) else { return };
        let (txns, restored, waiting) = {
            let mut state = lane.state.lock();
            let waiting = std::mem::take(&mut state.waiting).into_values().map(|of| of.pending);
            let waiting: Vec<_> =
                waiting.chain(std::mem::take(&mut state.awaiting).into_iter().map(|of| of.pending)).collect();
            (std::mem::take(&mut state.txns), std::mem::take(&mut state.restored.outcomes), waiting)
        };
        for pending in waiting {
            crate::program::refuse(pending, CapsStat::BadTicket);
        }
        let Some(ledger) = &self.parts.ledger else { return };
        for (txn, of) in txns {
            ledger.forget_batch(&lane.incarnation, txn.0, u32::try_from(of.ops).unwrap_or(u32::MAX));
        }
        for ((txn, op), _) in restored {
            ledger.forget_batch_op(&lane.incarnation, txn, op);
        }
    }

    /// A client is gone. Its mounts may only have been cut off, and come back as another client: what they may send again
    /// is remembered as that of a former life is, the last to go the longest.
    pub(crate) fn leave_lanes_of(&self, client: ClientId) {
        let now = self.parts.manager.clock().now();
        let mut left = Vec::new();
        let mut waiting = Vec::new();
        let mut settled = Vec::new();
        for lane in self.lanes.lock().values() {
            let mut state = lane.state.lock();
            if state.client == client {
                (state.client, state.used_at) = (ClientId(0), now);
                waiting.extend(std::mem::take(&mut state.waiting).into_values());
            }
            let ops = state.ops_kept();
            if state.client != ClientId(0) {
                continue;
            }
            if ops == 0 && !state.is_running {
                settled.push(lane.incarnation);
            } else {
                left.push((state.used_at, lane.incarnation, ops));
            }
        }
        for Waiting { pending, .. } in waiting {
            crate::program::refuse(pending, CapsStat::BadTicket);
        }
        left.sort_unstable_by(|one, other| other.cmp(one));
        let mut room = CAPS_OPS_LEFT_MAX;
        let surplus = left.into_iter().filter_map(|(_, incarnation, ops)| match room.checked_sub(ops) {
            Some(rest) => {
                room = rest;
                None
            }
            None => Some(incarnation),
        });
        settled.extend(surplus);
        settled.iter().for_each(|incarnation| self.forget_lane(incarnation));
    }

    /// Forgets what clients of a former life, and those given up, did not come back for.
    pub(crate) fn forget_lost_lanes(&self) {
        let now = self.parts.manager.clock().now();
        let is_lost = |lane: &Arc<Lane>| {
            let state = lane.state.lock();
            state.client == ClientId(0) && now.ms_since(state.used_at) > CAPS_LANE_IDLE_MS
        };
        let lost: Vec<_> =
            self.lanes.lock().values().filter(|lane| is_lost(lane)).map(|lane| lane.incarnation).collect();
        lost.iter().for_each(|incarnation| self.forget_lane(incarnation));
    }
}
