//! A file that nobody else may open unseen keeps the server a descriptor. Where these are running out the oldest such promises are asked
//! back, before there is nothing left for who comes next.

use std::sync::Arc;

use holdfast_base::limits::{LEASED_ASKED_PART, LEASED_ASKED_PAUSE_MS};
use holdfast_base::{CapSet, Instant};
use holdfast_state::{CapGrant, CapRequest, StateError};
use holdfast_vfs::{Backend, FileKind, LeaseRoom};

use crate::caps::{CapsOn, End};
use crate::manager::Manager;

impl Manager {
    /// After somebody has asked for such a promise. Who could have none for want of leases, and whose thread may wait, waits until one
    /// is free.
    pub(crate) fn heed_lease_room(
        &self,
        request: &CapRequest,
        on: &CapsOn<'_>,
        until: Option<Instant>,
        mut last: (CapGrant, End),
    ) -> Result<(CapGrant, End), StateError> {
        // Directories are guarded without.
        if on.kind != FileKind::Regular {
            return Ok(last);
        }
        loop {
            let (seen, room) = (self.recalls.count(), on.backend.lease_room());
            if room == LeaseRoom::Enough {
                return Ok(last);
            }
            self.ask_oldest_back(on.backend, room);
            let is_why = last.1 == End::Unguarded && room == LeaseRoom::UsedUp;
            let left = until.map_or(0, |until| until.ms_since(self.clock().now()));
            if !is_why || left == 0 || !self.recalls.wait(seen, left) {
                return Ok(last);
            }
            last = self.acquire_guarded(request, on)?;
        }
    }

    /// Asks back a part of what stands on leases; where there are some left, not if that was done a moment ago.
    fn ask_oldest_back(&self, backend: &Arc<dyn Backend>, room: LeaseRoom) {
        let now = self.clock().now();
        {
            let mut asked_at = self.caps.asked_at.lock();
            let is_recent = asked_at.is_some_and(|at| now.ms_since(at) < LEASED_ASKED_PAUSE_MS);
            if is_recent && room != LeaseRoom::UsedUp {
                return;
            }
            *asked_at = Some(now);
        }
        let among = self.caps.leased(backend);
        let most = among.len().div_ceil(LEASED_ASKED_PART);
        // No record is written for recalls.
        let _ = self.step(|engine, now| {
            engine.caps_ask_oldest_back(among, most, CapSet::FILE_X_ALONE, now);
        });
    }
}
