//! Bringing the journal up to date.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_cache::{Ask, Caller, CapSet, Errno, Generation, NodeId, Question};

use super::owed::Owed;
use super::{KEEP_EVERY, Offline, PROBE_EVERY, Standing};
use crate::volume::Shared;

/// Between two tries to keep what could not be kept, at most.
const KEEP_AGAIN_MAX: Duration = Duration::from_secs(5);

/// Keeps what changes until the volume is closed or given up.
pub(crate) fn run(shared: &Arc<Shared>) {
    // The error was told when it came up.
    let mut pause = KEEP_EVERY;
    while shared.given_up.sleep_until(Instant::now() + pause).is_ok() {
        // All that is owed is tried again each time.
        pause = if shared.keep().is_ok() { KEEP_EVERY } else { (pause * 2).min(KEEP_AGAIN_MAX) };
    }
    let _ = shared.keep();
    shared.stop_sending();
}

/// Asks a server that counts as away, now and then, until the volume is closed: by its answer it is back, and where what
/// it promised is void it says so.
pub(crate) fn probe(shared: &Arc<Shared>) {
    while shared.given_up.sleep_until(Instant::now() + PROBE_EVERY).is_ok() {
        if !shared.is_away() {
            continue;
        }
        let Some(root) = shared.machine.lock().handle_of(NodeId::ROOT) else { continue };
        let question = Question::Acquire { items: vec![(root, CapSet::NONE)] };
        let ask = Ask { at: Generation::default(), caller: own_caller(), question };
        if shared.server.perform(&ask, &shared.given_up).is_ok() && shared.is_away() {
            shared.came_back();
        }
    }
}

/// As whom the mount itself asks.
pub(super) fn own_caller() -> Caller {
    Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

impl Shared {
    /// Everything that was done before this was called is on this host's disk when it returns. Who comes while another
    /// is at it shares the next force with all who wait. Does nothing for a volume without a journal.
    ///
    /// # Errors
    /// `EIO` when the journal cannot be written. While nothing is sent (the server is away, or being compared with) it stays
    /// as it was, a moment of the past with all that was fsynced until then, and is told everything at the next try. So it does when the
    /// server is back and has not yet on its disk what was done without it: nothing is sent then, as if it were away. Else nothing is kept
    /// any more: what is sent from then on would be sent again by a later life.
    pub(crate) fn keep(&self) -> Result<(), Errno> {
        let Some(offline) = &self.offline else { return Ok(()) };
        let mut owed = offline.turn.lock();
        if offline.is_broken.load(Ordering::SeqCst) {
            return Err(Errno::EIO);
        }
        // Looked at before and after: nothing may have been sent in between.
        let was_sending = offline.standing() == Standing::Online;
        let (changes, done_through) = {
            let mut machine = self.machine.lock();
            (machine.take_changes(), machine.done_through())
        };
        if changes.is_empty() && owed.is_empty() {
            offline.kept_done.store(done_through, Ordering::SeqCst);
            return Ok(());
        }
        let was_owed = !owed.is_empty();
        let has = |change: &_| offline.journal.has(change);
        let applied = if was_owed {
            owed.add(changes, has);
            let all = owed.all();
            if all.is_empty() { Ok(()) } else { offline.journal.apply(&all) }
        } else {
            let applied = offline.journal.apply(&changes);
            if applied.is_err() {
                owed.add(changes, has);
            }
            applied
        };
        let Err(error) = applied else {
            if was_owed {
                tracing::info!("what is done without the server is kept on this host's disk again");
            }
            *owed = Owed::default();
            offline.kept_done.store(done_through, Ordering::SeqCst);
            self.machine.lock().changes_count();
            return Ok(());
        };
        let is_sending = was_sending || offline.standing() == Standing::Online;
        if !is_sending || self.machine.lock().is_pledged() {
            if !was_owed {
                tracing::error!(%error, "what is done without the server is not kept on this host's disk for now");
            }
            if is_sending {
                // All that was sent is in the journal, and nothing more is before the rest is.
                self.went_away();
                self.came_back();
            }
        } else {
            offline.is_broken.store(true, Ordering::SeqCst);
            *owed = Owed::default();
            self.machine.lock().unfollow();
            // What is there now will be old, and must not be gone on with.
            let removed = std::fs::remove_file(offline.journal.path());
            tracing::error!(%error, removed = removed.is_ok(), "nothing is kept for working without the server");
        }
        Err(Errno::EIO)
    }

    /// Whether something may go out: a later life would know of it, or there is nothing that one could go on with.
    pub(crate) fn may_send(&self) -> bool {
        let is_broken = |offline: &Offline| offline.is_broken.load(Ordering::SeqCst);
        self.keep().is_ok() || self.offline.as_ref().is_some_and(is_broken)
    }

    /// The transaction up to which the server may forget what it did: no later life sends it again.
    pub(crate) fn done_with(&self) -> u64 {
        let done_through = self.machine.lock().done_through();
        let kept = || self.offline.as_ref().map(|offline| offline.kept_done.load(Ordering::SeqCst));
        if self.may_send() { done_through } else { kept().unwrap_or(done_through).min(done_through) }
    }
}
