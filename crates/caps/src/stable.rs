//! Durability: what was executed is committed in groups, by STABLE or by itself within a second.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::limits::{CAPS_RECALL_ANSWER_MS, CAPS_STABLE_WAITERS_MAX};
use holdfast_export::Export;
use holdfast_ledger::failpoint::{self, Point};
use holdfast_rpc::{Auth, CallError, OutgoingCall, PendingReply};
use holdfast_vfs::{FsError, FsResult, Touched};
use holdfast_wire::caps::{
    CAPS_CALLBACK_PROGRAM, CAPS_CALLBACK_V1, CapsCallbackProc, CapsStat, FailedOp, StableArgs, StableHint,
    StableOk, TxnId,
};
use holdfast_xdr::to_bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::Caps;
use crate::lane::{Awaiting, AwaitingCall, Lane, State};
use crate::program::refuse;
use crate::status;

/// Transactions being committed together.
struct Group {
    txns: Vec<TxnId>,
    /// Exports not heard of yet.
    left: usize,
    failed: Vec<(Arc<Export>, FsError)>,
}

/// What is to be committed of one export.
type OfExport = FxHashMap<u16, (Arc<Export>, Vec<Touched>)>;

impl Caps {
    /// A transaction was executed. Where nothing has to be durable before anybody relies on it, it is as good as that.
    pub(crate) fn after_batch(&self, lane: &Arc<Lane>, txn: TxnId) {
        let mut state = lane.state.lock();
        let is_nothing_due = state.txns.get(&txn).is_some_and(|of| of.touched.is_empty());
        if is_nothing_due {
            finish(&mut state, &[txn]);
        }
    }

    /// Answers when all up to this is durable.
    pub(crate) fn stable(&self, lane: &Arc<Lane>, args: &StableArgs, mut pending: PendingReply) {
        self.forget_through(lane, args.done_through);
        pending.waits_for_no_peer();
        let refused = {
            let mut state = lane.state.lock();
            if args.through > state.executed_through {
                Some((pending, CapsStat::Misordered))
            } else if state.awaiting.len() >= CAPS_STABLE_WAITERS_MAX {
                Some((pending, CapsStat::Delay))
            } else {
                state.awaiting.push(Awaiting { through: args.through, pending, call: AwaitingCall::Stable });
                None
            }
        };
        if let Some((pending, stat)) = refused {
            return refuse(pending, stat);
        }
        self.note_flush(lane);
        self.commit(lane);
        self.tell_stable(lane);
    }

    /// What is asked back from this client is given back when all that it did is durable: so long it is busy with that.
    pub(crate) fn note_flush(&self, lane: &Lane) {
        let client = lane.state.lock().client;
        self.parts.manager.quiet(|engine, now| engine.caps_flushed(client, 0, now));
    }

    /// Commits what was executed, unless that is under way.
    pub(crate) fn commit(&self, lane: &Arc<Lane>) {
        let (group, exports) = {
            let mut state = lane.state.lock();
            if state.is_committing {
                return;
            }
            let executed = state.executed_through;
            let due = state.txns.iter().filter(|(txn, of)| !of.is_stable && **txn <= executed);
            let mut exports = OfExport::default();
            let mut txns = Vec::new();
            for (txn, of) in due {
                txns.push(*txn);
                for (export, touched, _) in &of.touched {
                    let entry =
                        exports.entry(export.id.0).or_insert_with(|| (Arc::clone(export), Vec::new()));
                    entry.1.push(*touched);
                }
            }
            if txns.is_empty() {
                return;
            }
            state.is_committing = true;
            (Group { txns, left: exports.len(), failed: Vec::new() }, exports)
        };
        if exports.is_empty() {
            return self.committed(lane, &group);
        }
        let group = Arc::new(Mutex::new(Some(group)));
        for (export, mut touched) in exports.into_values() {
            touched.sort_by_cached_key(|of| (of.handle.key(), of.data));
            touched.dedup();
            let (this, lane, group, of) =
                (self.this.clone(), Arc::clone(lane), Arc::clone(&group), Arc::clone(&export));
            let done = move |result: FsResult<()>| {
                let whole = note(&group, of, result);
                if let (Some(this), Some(whole)) = (this.upgrade(), whole) {
                    this.committed(&lane, &whole);
                }
            };
            if export.options.is_sync {
                self.parts.committer.submit(&export.backend, touched, Box::new(done));
            } else {
                // Whoever exports asynchronously has said that nobody waits for it; it is forced all the same.
                self.parts.committer.submit(&export.backend, touched, Box::new(|_| ()));
                done(Ok(()));
            }
        }
    }

    fn committed(&self, lane: &Arc<Lane>, group: &Group) {
        failpoint::pass(Point::AfterCommit);
        // What may be tried again is, by the tick: at once it would hardly go better.
        let is_passing = group.failed.iter().any(|(_, error)| status::is_passing(*error));
        {
            let mut state = lane.state.lock();
            state.is_committing = false;
            for txn in &group.txns {
                note_failures(&mut state, *txn, &group.failed);
            }
            if !is_passing {
                finish(&mut state, &group.txns);
            }
        }
        self.note_flush(lane);
        self.tell_stable(lane);
        self.hint(lane);
        // Somebody waits for what was executed meanwhile.
        let is_awaited = {
            let state = lane.state.lock();
            state.awaiting.iter().any(|of| of.through > state.stable_through)
        };
        if is_awaited && !is_passing {
            self.commit(lane);
        }
    }

    /// Answers those who wait for what is durable by now.
    pub(crate) fn tell_stable(&self, lane: &Arc<Lane>) {
        let (due, executed_through, told) = {
            let mut state = lane.state.lock();
            let stable_through = state.stable_through;
            let all = std::mem::take(&mut state.awaiting);
            let (due, waiting): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|of| of.through <= stable_through);
            state.awaiting = waiting;
            if due.is_empty() {
                return;
            }
            state.told_through = state.told_through.max(stable_through);
            let failed = state.failed.through(stable_through);
            (due, state.executed_through, StableOk { stable_through, failed })
        };
        for awaiting in due {
            awaiting.answer(executed_through, &told);
        }
    }

    /// Tells a client what is durable without its having asked, so that it need not ask. One call at a time; what comes
    /// meanwhile goes with the next. That it is not heard is no harm.
    fn hint(&self, lane: &Arc<Lane>) {
        let (client, through) = {
            let mut state = lane.state.lock();
            // What could not be written back is told by STABLE alone: its client must ask.
            let through = state.surely_stable_through();
            if state.is_hinting || through <= state.told_through {
                return;
            }
            (state.is_hinting, state.told_through) = (true, through);
            (state.client, through)
        };
        let epoch = self.parts.manager.look(|engine| engine.caps_epoch(client));
        let connection = self.members.connection(client);
        let (Some(epoch), Some(connection)) = (epoch, connection) else {
            lane.state.lock().is_hinting = false;
            return;
        };
        let args = to_bytes(&StableHint { epoch: self.epoch(client, epoch), through });
        let call = OutgoingCall {
            program: CAPS_CALLBACK_PROGRAM,
            version: CAPS_CALLBACK_V1,
            procedure: CapsCallbackProc::Stable.as_u32(),
            auth: &Auth::None,
            args: &args,
        };
        let (this, lane) = (self.this.clone(), Arc::clone(lane));
        let answered = move |heard: Result<&[u8], CallError>| {
            lane.state.lock().is_hinting = false;
            // Who does not answer is not told more until the next group.
            if let (Ok(_), Some(this)) = (heard, this.upgrade()) {
                this.hint(&lane);
            }
        };
        connection.call_back(&call, Duration::from_millis(CAPS_RECALL_ANSWER_MS), answered);
    }

    /// Commits what nobody asked for, and forgets whom nobody heard of. About once a second.
    pub fn tick(&self) {
        let lanes: Vec<_> = self.lanes.lock().values().cloned().collect();
        lanes.iter().for_each(|lane| self.commit(lane));
        self.forget_lost_lanes();
        self.nameless.tidy(self.parts.manager.clock().now());
        self.pools.tidy(self.parts.manager.clock().now());
        if let Some(neighbours) = self.neighbours.get() {
            neighbours.tidy();
        }
    }
}

/// Hears of one export; the group once all were heard of.
fn note(group: &Mutex<Option<Group>>, export: Arc<Export>, result: FsResult<()>) -> Option<Group> {
    let mut place = group.lock();
    let group = place.as_mut()?;
    if let Err(error) = result {
        group.failed.push((export, error));
    }
    group.left -= 1;
    if group.left == 0 { place.take() } else { None }
}

fn note_failures(state: &mut State, txn: TxnId, failed: &[(Arc<Export>, FsError)]) {
    let mut ops: Vec<(u32, FsError)> = Vec::new();
    if let Some(of) = state.txns.get(&txn) {
        for (export, _, op) in &of.touched {
            let error = failed.iter().find(|(of, error)| of.id == export.id && !status::is_passing(*error));
            if let Some((_, error)) = error
                && ops.last().is_none_or(|(last, _)| last != op)
            {
                ops.push((*op, *error));
            }
        }
    }
    let failed = |(op, error)| FailedOp { txn, op, status: status::of_fs(error).as_u32() };
    state.failed.note(ops.into_iter().map(failed));
}

/// These are durable, or will not be: a force that failed is not tried again.
fn finish(state: &mut State, txns: &[TxnId]) {
    for txn in txns {
        let Some(of) = state.txns.get_mut(txn) else { continue };
        of.is_stable = true;
        of.touched = Vec::new();
    }
    state.advance_stable();
}
