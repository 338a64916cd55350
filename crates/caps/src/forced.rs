//! Batches that are answered when they are durable, so that who syncs does not ask twice. What waits is the answer alone: that the
//! batch is executed is seen by all, and what comes behind it goes on.
//!
//! It need not wait: where something else waits for the answer, and not for the disk, it goes out as that of any batch, and its
//! client asks STABLE. So none keeps anybody's recall waiting, and what waits is bounded. A planned restart waits for them, as for STABLE.

use std::sync::Arc;

use holdfast_base::ClientId;
use holdfast_base::limits::{CAPS_FORCED_BYTES_MAX, CAPS_STABLE_WAITERS_MAX};
use holdfast_rpc::PendingReply;
use holdfast_wire::caps::{Res, StableOk, TxnId};
use holdfast_xdr::Encode;

use crate::Caps;
use crate::lane::{Awaiting, AwaitingCall, Lane, State};

impl Awaiting {
    /// All that it waits for is durable, or has failed.
    pub(crate) fn answer(self, executed_through: TxnId, told: &StableOk) {
        let Self { mut pending, call, .. } = self;
        match call {
            AwaitingCall::Stable => Res::Ok(told).encode(pending.writer()),
            AwaitingCall::Batch => {
                // How far everything had come when it was executed stands at the end.
                let end = pending.writer().len() - THROUGH_BYTES;
                pending.writer().truncate(end);
                executed_through.encode(pending.writer());
                told.encode(pending.writer());
            }
        }
        pending.send();
    }

    fn bytes(&mut self) -> usize {
        match self.call {
            AwaitingCall::Stable => 0,
            AwaitingCall::Batch => self.pending.writer().len(),
        }
    }
}

/// `executed_through` and `stable_through`, with which an answer to BATCH ends.
const THROUGH_BYTES: usize = 16;

/// Sends the answer of a batch as it was when it was executed. What has failed is not told by it: it vouches for nothing behind that.
fn send_executed(mut pending: PendingReply) {
    pending.writer().length(0);
    pending.send();
}

impl State {
    /// Keeps an answer until all up to this is durable; gives it back where there is no room.
    fn hold_back(&mut self, through: TxnId, pending: PendingReply) -> Option<PendingReply> {
        let mut awaiting = Awaiting { through, pending, call: AwaitingCall::Batch };
        let held: usize = self.awaiting.iter_mut().map(Awaiting::bytes).sum();
        let is_full =
            self.awaiting.len() >= CAPS_STABLE_WAITERS_MAX || held + awaiting.bytes() > CAPS_FORCED_BYTES_MAX;
        if is_full {
            return Some(awaiting.pending);
        }
        self.awaiting.push(awaiting);
        None
    }
}

impl Caps {
    /// Sends the answer of a batch that was executed, which is in its reply, when all up to it is durable.
    pub(crate) fn answer_when_stable(
        &self,
        (client, lane): (ClientId, &Arc<Lane>),
        txn: TxnId,
        mut pending: PendingReply,
    ) {
        pending.waits_for_no_peer();
        let too_much = lane.state.lock().hold_back(txn, pending);
        if let Some(pending) = too_much {
            send_executed(pending);
        }
        self.note_flush(lane);
        self.commit(lane);
        self.tell_stable(lane);
        // Asked when it is among those that a recall finds.
        if self.parts.manager.look(|engine| engine.is_asked_back(client)) {
            Self::answer_early(lane);
        }
    }

    /// Something of a client's is recalled. What it gives back to who only looks need not be durable, but its batches answered.
    pub(crate) fn answer_early_to(&self, client: ClientId) {
        for incarnation in self.members.incarnations(client) {
            if let Some(lane) = self.lane(&incarnation) {
                Self::answer_early(&lane);
            }
        }
    }

    /// Answers batches that are executed and wait to be durable.
    pub(crate) fn answer_early(lane: &Lane) {
        let batches: Vec<_> = {
            let mut state = lane.state.lock();
            state.awaiting.extract_if(.., |of| of.call == AwaitingCall::Batch).collect()
        };
        batches.into_iter().for_each(|of| send_executed(of.pending));
    }
}
