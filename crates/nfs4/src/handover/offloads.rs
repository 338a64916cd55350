//! Copies whose end their clients have not heard of, as plain data. None runs when they are frozen.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_base::{ClientId, FileKey, Seqid};
use holdfast_wire::nfs4::{NfsStat4, Stateid4};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{Offload, Offloads};

/// All of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct OffloadsImage {
    ended: Vec<OffloadImage>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct OffloadImage {
    seqid: u32,
    other: [u8; 12],
    client: u64,
    file: u128,
    copied: u64,
    status: u32,
}

impl Offloads {
    /// Whether none runs.
    pub(crate) fn are_quiet(&self) -> bool {
        self.all.lock().iter().all(|offload| offload.has_ended())
    }

    pub(crate) fn freeze(&self) -> OffloadsImage {
        let image = |offload: &Arc<Offload>| {
            let (copied, outcome) = offload.status();
            Some(OffloadImage {
                seqid: offload.stateid.seqid.0,
                other: offload.stateid.other,
                client: offload.client.0,
                file: offload.file.0,
                copied,
                status: outcome?.as_u32(),
            })
        };
        OffloadsImage { ended: self.all.lock().iter().filter_map(image).collect() }
    }

    /// New copies have names of another run, so none of these is named twice.
    pub(crate) fn thaw(&self, image: OffloadsImage) {
        let offload = |image: OffloadImage| {
            let outcome = NfsStat4::from_u32(image.status)?;
            Some(Arc::new(Offload {
                stateid: Stateid4 { seqid: Seqid(image.seqid), other: image.other },
                client: ClientId(image.client),
                file: FileKey(image.file),
                copied: AtomicU64::new(image.copied),
                is_cancelled: AtomicBool::new(false),
                outcome: Mutex::new(Some(outcome)),
            }))
        };
        let ended: Vec<_> = image.ended.into_iter().filter_map(offload).collect();
        debug_assert!(ended.iter().all(|offload| !offload.is_cancelled.load(Ordering::Relaxed)));
        self.all.lock().extend(ended);
    }
}
