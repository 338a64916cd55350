//! The seam for metrics: one call an operation.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use holdfast_base::{ClientId, ExportId};
use holdfast_wire::nfs4::{NfsStat4, OpNum4};

use crate::desc::Minor;

/// One operation that was executed.
#[derive(Clone, Copy, Debug)]
pub struct Observed {
    /// Which.
    pub op: OpNum4,
    /// In which minor version.
    pub minor: Minor,
    /// With what outcome.
    pub status: NfsStat4,
    /// For whom, where a session tells.
    pub client: Option<ClientId>,
    /// On which export, when the current object lies in one.
    pub export: Option<ExportId>,
    /// Where the call came from.
    pub peer: IpAddr,
    /// Bytes of its arguments.
    pub received: u64,
    /// Bytes of its results.
    pub sent: u64,
    /// How long it took on the thread that ran it, when it was timed; without the wait for the disk that several share.
    pub took: Option<Duration>,
    /// For how many like it the time stands: what [`Observer::begins`] said.
    pub weight: u32,
}

/// Told of every operation; on the thread that ran it, so it must be quick.
pub trait Observer: Send + Sync {
    /// An operation begins; `may_wait` when it runs where it may wait. Tells when that was, and for how many the time
    /// it takes is to stand; `None` when it need not be timed, as reading the clock costs more than some operations.
    fn begins(&self, may_wait: bool) -> Option<(Instant, u32)> {
        let _ = may_wait;
        Some((Instant::now(), 1))
    }

    /// An operation was executed.
    fn operation(&self, observed: &Observed);
}
