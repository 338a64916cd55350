//! A compound's use of a session slot: what SEQUENCE found, and how a retry of what still runs gets the one answer.

use holdfast_base::{ClientId, Seqid, SessionId, SlotId};
use holdfast_rpc::reply_cache::Duplicate;
use holdfast_rpc::{Auth, PendingReply};
use holdfast_state::SlotRequest;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

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
    /// The session outlives a restart.
    pub(crate) is_persistent: bool,
}

/// What SEQUENCE, or in 4.0 the cache of replies, found, when the compound is not to be run.
#[derive(Debug)]
pub(crate) struct Turn(pub(crate) TurnKind);

#[derive(Debug)]
pub(crate) enum TurnKind {
    /// It was run before: these were its results.
    Replay(Vec<u8>),
    /// It is being run.
    InProgress(SessionId, SlotRequest),
    /// It is being run, as 4.0's cache of replies knows.
    Duplicate(Duplicate),
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
/// surely not (RFC 8881 section 2.10.6.1.3.1). It goes into the journal, so it is written out here and must stay as
/// it is. A client that made two requests collide would deceive only itself.
pub(crate) fn digest(args: &[u8], auth: &Auth) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
    let mut hash = mix(args.len() as u64, u64::from(auth.flavor()));
    if let Some(sys) = auth.sys() {
        hash = mix(hash, u64::from(sys.uid) << 32 | u64::from(sys.gid));
    }
    let (words, rest) = args[..args.len().min(DIGEST_BYTES)].as_chunks::<8>();
    hash = words.iter().fold(hash, |hash, word| mix(hash, u64::from_be_bytes(*word)));
    let last = rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
    mix(hash, last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_every_earlier_release() {
        let sys = Auth::Sys(holdfast_rpc::AuthSys { uid: 1, gid: 2, ..Default::default() });
        assert_eq!(digest(b"some compound", &sys), GOLDEN);
        assert_ne!(digest(b"some compounf", &sys), GOLDEN);
        assert_ne!(digest(b"some compound", &Auth::None), GOLDEN);
    }

    const GOLDEN: u64 = 1_090_620_420_138_193_292;
}
