//! A file that nobody else may open unseen keeps the server a descriptor. Where these are running out the oldest such promises are asked
//! back, before there is nothing left for who comes next.

use std::sync::Arc;

use holdfast_base::CapSet;
use holdfast_base::limits::{LEASED_ASKED_MAX, LEASED_ASKED_PART, LEASED_ASKED_PAUSE_MS, LEASED_ASKED_SHARE};
use holdfast_vfs::{Backend, FileKind};

use crate::caps::CapsOn;
use crate::manager::Manager;

impl Manager {
    /// After somebody has asked for such a promise: asks back a part of what stands on leases, where these are running out and that was
    /// not done a moment ago. Nobody waits for what comes: who finds none left is given less.
    pub(crate) fn heed_scarce_leases(&self, on: &CapsOn<'_>) {
        // Directories are guarded without.
        if on.kind != FileKind::Regular || !on.backend.leases_are_scarce() {
            return;
        }
        // Whoever is at it does it for all.
        let Some(mut asked_next) = self.caps.leased_asked_next.try_lock() else { return };
        let begun = self.clock().now();
        if asked_next.is_some_and(|at| begun < at) {
            return;
        }
        self.ask_oldest_back(on.backend);
        // All that stands on leases was looked at, which takes the longer the more it is.
        let ended = self.clock().now();
        let pause = LEASED_ASKED_PAUSE_MS.max(ended.ms_since(begun) * LEASED_ASKED_SHARE);
        *asked_next = Some(ended.after_ms(pause));
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
