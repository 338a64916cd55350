//! Copies that the server goes on with after its answer, until CB_OFFLOAD says how they ended.

use std::time::{Duration, Instant};

use holdfast_base::limits::CLIENT_COPIES_ENDED_MAX;
use holdfast_rpc::link::{Cancel, Stopped, Wakers};
use holdfast_wire::nfs4::{OffloadInfo4, Stateid4};
use parking_lot::Mutex;

/// Ends that came.
#[derive(Debug, Default)]
pub(crate) struct Offloads {
    ended: Mutex<Vec<(Stateid4, OffloadInfo4)>>,
    changed: Wakers,
}

impl Offloads {
    /// A copy ended so.
    pub(crate) fn ended(&self, stateid: Stateid4, info: OffloadInfo4) {
        let mut ended = self.ended.lock();
        if ended.len() == CLIENT_COPIES_ENDED_MAX {
            ended.remove(0);
        }
        ended.push((stateid, info));
        drop(ended);
        self.changed.wake_all();
    }

    /// Waits for the end of a copy for a while; nothing when it did not end yet.
    pub(crate) fn wait(
        &self,
        stateid: Stateid4,
        cancel: &Cancel,
        patience: Duration,
    ) -> Result<Option<OffloadInfo4>, Stopped> {
        let waited = self.changed.wait(cancel, Some(Instant::now() + patience), || {
            let mut ended = self.ended.lock();
            let at = ended.iter().position(|(other, _)| other.other == stateid.other)?;
            Some(ended.swap_remove(at).1)
        });
        match waited {
            Ok(info) => Ok(Some(info)),
            Err(Stopped::TimedOut) => Ok(None),
            Err(Stopped::Cancelled) => Err(Stopped::Cancelled),
        }
    }
}
