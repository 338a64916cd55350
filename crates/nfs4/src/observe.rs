//! The seam for metrics: one call an operation.

use std::time::Duration;

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
    /// How long it took on the thread that ran it; without the wait for the disk that several share.
    pub took: Duration,
}

/// Told of every operation; on the thread that ran it, so it must be quick.
pub trait Observer: Send + Sync {
    /// An operation was executed.
    fn operation(&self, observed: &Observed);
}
