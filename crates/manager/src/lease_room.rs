//! A file that nobody else may open unseen keeps the server a descriptor. Where these are running out the oldest such promises are asked
//! back, before there is nothing left for who comes next.

use std::sync::Arc;

use holdfast_base::CapSet;
use holdfast_base::limits::{LEASED_ASKED_MAX, LEASED_ASKED_PART, LEASED_ASKED_PAUSE_MS};
use holdfast_vfs::{Backend, FileKind, LeaseRoom};

use crate::caps::CapsOn;
use crate::manager::Manager;

impl Manager {
    /// After somebody has asked for such a promise: asks back a part of what stands on leases, where these are running out and that was
    /// not done a moment ago. Nobody waits for what comes: who finds none left is given less.
    pub(crate) fn heed_lease_room(&self, on: &CapsOn<'_>) {
        // Directories are guarded without.
        if on.kind != FileKind::Regular || on.backend.lease_room() == LeaseRoom::Enough {
            return;
        }
        let now = self.clock().now();
        {
            let mut asked_at = self.caps.asked_at.lock();
            if asked_at.is_some_and(|at| now.ms_since(at) < LEASED_ASKED_PAUSE_MS) {
                return;
            }
            *asked_at = Some(now);
        }
        self.ask_oldest_back(on.backend);
    }

    fn ask_oldest_back(&self, backend: &Arc<dyn Backend>) {
        let among = self.caps.leased(backend);
        let most = among.len().div_ceil(LEASED_ASKED_PART).min(LEASED_ASKED_MAX);
        // No record is written for recalls.
        let _ = self.step(|engine, now| {
            engine.caps_ask_oldest_back(among, most, CapSet::FILE_X_ALONE, now);
        });
    }
}
