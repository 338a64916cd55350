//! Bringing the journal up to date.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use holdfast_cache::{Ask, Caller, CapSet, Errno, Generation, NodeId, Question};

use super::{KEEP_EVERY, PROBE_EVERY};
use crate::volume::Shared;

/// Keeps what changes until the volume is closed or given up.
pub(crate) fn run(shared: &Arc<Shared>) {
    // The error was told when it came up.
    while shared.given_up.sleep_until(Instant::now() + KEEP_EVERY).is_ok() {
        let _ = shared.keep();
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
    /// `EIO` when the journal cannot be written: then nothing is kept any more.
    pub(crate) fn keep(&self) -> Result<(), Errno> {
        let Some(offline) = &self.offline else { return Ok(()) };
        let _turn = offline.turn.lock();
        if offline.is_broken.load(Ordering::SeqCst) {
            return Err(Errno::EIO);
        }
        let changes = self.machine.lock().take_changes();
        if changes.is_empty() {
            return Ok(());
        }
        offline.journal.apply(&changes).map_err(|error| {
            offline.is_broken.store(true, Ordering::SeqCst);
            // What is there now will be old, and must not be gone on with.
            let removed = std::fs::remove_file(offline.journal.path());
            tracing::error!(%error, removed = removed.is_ok(), "nothing is kept for working without the server");
            Errno::EIO
        })
    }
}
