//! A compound's use of a session slot: what SEQUENCE found, and how a retry of what still runs gets the one answer.

use holdfast_base::{ClientId, Seqid, SessionId, SlotId};
use holdfast_rpc::{Auth, PendingReply};
use holdfast_state::SlotRequest;
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use std::hash::{Hash, Hasher};

/// Bytes of a request that tell it from another under the same sequence number: the operations and the names in
/// them lie at its beginning. The whole of a large WRITE would cost more than the test is worth.
const DIGEST_BYTES: usize = 512;

/// The slot that a compound occupies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlotUse {
    pub(crate) session: SessionId,
    pub(crate) slot: SlotId,
    pub(crate) seqid: Seqid,
    pub(crate) client: ClientId,
    /// The client asked for the reply to be kept.
    pub(crate) is_kept: bool,
}

/// What SEQUENCE found, when the compound is not to be run.
#[derive(Debug)]
pub(crate) struct Turn(pub(crate) TurnKind);

#[derive(Debug)]
pub(crate) enum TurnKind {
    /// It was run before: these were its results.
    Replay(Vec<u8>),
    /// It is being run.
    InProgress(SessionId, SlotRequest),
}

/// Retries that wait for the original's reply. They are bounded by the connections' own bounds on parked calls.
#[derive(Default)]
pub(crate) struct Retries {
    pub(crate) waiting: Mutex<FxHashMap<(SessionId, SlotId), Vec<PendingReply>>>,
}

impl Retries {
    /// Those that wait for this slot.
    pub(crate) fn take(&self, session: SessionId, slot: SlotId) -> Vec<PendingReply> {
        self.waiting.lock().remove(&(session, slot)).unwrap_or_default()
    }

    /// Those that wait for any slot of a session.
    pub(crate) fn take_session(&self, session: SessionId) -> Vec<PendingReply> {
        let mut waiting = self.waiting.lock();
        let slots: Vec<_> = waiting.keys().filter(|(of, _)| *of == session).copied().collect();
        slots.iter().filter_map(|key| waiting.remove(key)).flatten().collect()
    }
}

/// A hash of a request as sent by this caller: a retry has the same, another request under the same number almost
/// surely not (RFC 8881 section 2.10.6.1.3.1).
pub(crate) fn digest(args: &[u8], auth: &Auth) -> u64 {
    let mut hasher = FxHasher::default();
    args.len().hash(&mut hasher);
    args[..args.len().min(DIGEST_BYTES)].hash(&mut hasher);
    auth.flavor().hash(&mut hasher);
    if let Some(sys) = auth.sys() {
        (sys.uid, sys.gid).hash(&mut hasher);
    }
    hasher.finish()
}
