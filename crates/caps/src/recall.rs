//! Recalls, on their way to clients, and what else the state engine leaves to be done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::limits::{CAPS_ITEMS_MAX, CAPS_RECALL_ANSWER_MS, CAPS_RECALLS_QUEUED_MAX};
use holdfast_base::{CapSet, ClientId, FileKey, Instant};
use holdfast_export::WireHandle;
use holdfast_manager::{Agent, NotKept};
use holdfast_rpc::{Auth, CallError, OutgoingCall};
use holdfast_state::{Effect, RecallAnswer};
use holdfast_wire::caps::{
    self, CAPS_CALLBACK_PROGRAM, CAPS_CALLBACK_V1, CapsCallbackProc, RecallArgs, RecallItem,
};
use holdfast_xdr::to_bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::Caps;

/// One object to be asked for.
struct Due {
    file: FileKey,
    handle: WireHandle,
    keep: CapSet,
    seq: u64,
}

impl Due {
    fn item(&self) -> RecallItem<'_> {
        RecallItem { handle: caps::Handle(self.handle.as_bytes()), keep: self.keep, seq: self.seq }
    }
}

/// What is to be asked of one client. One call is under way at a time; what comes meanwhile goes together in the next.
#[derive(Default)]
struct Queue {
    due: VecDeque<Due>,
    is_calling: bool,
}

/// Recalls that have not left.
#[derive(Default)]
pub(crate) struct Recalls {
    queues: Mutex<FxHashMap<ClientId, Queue>>,
    /// When people were last told of one that was not followed.
    complained: Mutex<Option<Instant>>,
}

/// Milliseconds between two lines about recalls that were not followed: clients that go away are not to fill the log.
const COMPLAINTS_MS: u64 = 1000;

impl Recalls {
    fn may_complain(&self, now: Instant) -> bool {
        let mut last = self.complained.lock();
        let may = last.is_none_or(|at| now.ms_since(at) >= COMPLAINTS_MS);
        if may {
            *last = Some(now);
        }
        may
    }
}

impl Agent for Caps {
    fn run(&self, effect: &Effect) -> Result<(), NotKept> {
        match effect {
            Effect::CapRecall { client, file, keep, seq } => self.recall(*client, (*file, *keep, *seq)),
            Effect::CapsLeft { client, file, held } if held.is_empty() => {
                self.members.forgets(*client, *file, || self.is_held(*client, *file));
            }
            Effect::CapRecallOver { client, file, what, waited_ms, is_heard }
                if self.recalls.may_complain(self.parts.manager.clock().now()) =>
            {
                tracing::warn!(
                    client = client.0,
                    file = format_args!("{:x}", file.0),
                    capabilities = ?what,
                    waited_ms,
                    is_heard,
                    "a recall was not followed in time: the client loses all its capabilities"
                );
            }
            Effect::CapsLeft { client, file, held } if !held.contains(CapSet::FILE_X) => {
                self.members.writes_no_more(*client, *file);
            }
            Effect::CapsLost { client } => {
                self.members.revoke(*client);
                self.forget_neighbour(*client);
            }
            Effect::ForgetClient(client) => {
                self.forget_neighbour(*client);
                self.members.remove(*client);
                self.recalls.queues.lock().remove(client);
                self.leave_lanes_of(*client);
                self.pools.forget(*client);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Caps {
    fn forget_neighbour(&self, client: ClientId) {
        if let Some(neighbours) = self.neighbours.get() {
            neighbours.forget(client);
        }
    }

    fn recall(&self, client: ClientId, (file, keep, seq): (FileKey, CapSet, u64)) {
        self.answer_early_to(client);
        let Some(handle) = self.members.handle(client, file) else {
            // Whoever is granted something is noted first: it was given back this moment.
            return self.answered(client, &[(file, seq)], RecallAnswer::NotSent);
        };
        let mut queues = self.recalls.queues.lock();
        let queue = queues.entry(client).or_default();
        if queue.due.len() >= CAPS_RECALLS_QUEUED_MAX {
            drop(queues);
            return self.answered(client, &[(file, seq)], RecallAnswer::NotSent);
        }
        queue.due.push_back(Due { file, handle, keep, seq });
        let is_first = !std::mem::replace(&mut queue.is_calling, true);
        drop(queues);
        if is_first {
            self.call_next(client);
        }
    }

    /// Sends what is due to a client, if anything is.
    fn call_next(&self, client: ClientId) {
        let due: Vec<Due> = {
            let mut queues = self.recalls.queues.lock();
            let Some(queue) = queues.get_mut(&client) else { return };
            let count = queue.due.len().min(CAPS_ITEMS_MAX);
            if count == 0 {
                queue.is_calling = false;
                return;
            }
            queue.due.drain(..count).collect()
        };
        let numbers: Vec<_> = due.iter().map(|due| (due.file, due.seq)).collect();
        let losses = self.parts.manager.look(|engine| engine.caps_epoch(client)).unwrap_or(0);
        let epoch = self.epoch(client, losses);
        let items = due.iter().map(Due::item).collect();
        let args = to_bytes(&RecallArgs { epoch, items });
        let this = self.this.clone();
        let answered = move |result: Result<&[u8], CallError>| {
            let Some(this) = this.upgrade() else { return };
            let answer = match result {
                Ok(_) => RecallAnswer::Accepted,
                Err(CallError::Busy) => RecallAnswer::NotSent,
                Err(_) => RecallAnswer::Unreachable,
            };
            this.answered(client, &numbers, answer);
            this.call_next(client);
        };
        let Some(connection) = self.members.connection(client) else {
            return answered(Err(CallError::Closed));
        };
        let call = OutgoingCall {
            program: CAPS_CALLBACK_PROGRAM,
            version: CAPS_CALLBACK_V1,
            procedure: CapsCallbackProc::Recall.as_u32(),
            auth: &Auth::None,
            args: &args,
        };
        connection.call_back(&call, Duration::from_millis(CAPS_RECALL_ANSWER_MS), answered);
    }

    fn answered(&self, client: ClientId, numbers: &[(FileKey, u64)], answer: RecallAnswer) {
        self.parts.manager.quiet(|engine, now| {
            for number in numbers {
                engine.caps_recall_answered(client, *number, answer, now);
            }
        });
    }

    /// Connections of clients went: what cannot be called is said to the engine.
    pub(crate) fn lost_connection(&self, connection: &Arc<holdfast_rpc::Connection>) {
        for client in self.members.unbind(connection) {
            self.parts.manager.quiet(|engine, _| engine.caps_path(client, false));
        }
    }
}
