//! Transactions as plain data.

use std::sync::Arc;

use holdfast_base::{ClientId, Instant};
use holdfast_export::Object;
use holdfast_vfs::{Handle, Touched};
use holdfast_wire::caps::{FailedOp, TxnId};
use serde::{Deserialize, Serialize};

use crate::Caps;
use crate::failures::Failures;
use crate::lane::{Lane, Partial, State, Txn};
use crate::outcome::Outcome;

/// The transactions of one incarnation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LaneImage {
    incarnation: [u8; 16],
    client: u64,
    done_through: u64,
    executed_through: u64,
    stable_through: u64,
    /// Transaction, operation, status.
    failed: Vec<(u64, u32, u32)>,
    used_at: u64,
    txns: Vec<TxnImage>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct TxnImage {
    txn: u64,
    ops: usize,
    outcomes: Vec<Vec<u8>>,
    partial: Option<PartialImage>,
    touched: Vec<TouchedImage>,
    is_stable: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct PartialImage {
    op: u32,
    handle: Option<Vec<u8>>,
    name: Vec<u8>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct TouchedImage {
    /// As clients know it, export and all.
    handle: Vec<u8>,
    data: bool,
    op: u32,
}

impl Caps {
    pub(super) fn freeze_lanes(&self) -> Vec<LaneImage> {
        let lanes: Vec<_> = self.lanes.lock().values().cloned().collect();
        lanes.iter().map(|lane| self.freeze_lane(lane)).collect()
    }

    fn freeze_lane(&self, lane: &Lane) -> LaneImage {
        let state = lane.state.lock();
        let failed = |failed: &FailedOp| (failed.txn.0, failed.op, failed.status);
        LaneImage {
            incarnation: lane.incarnation,
            client: state.client.0,
            done_through: state.done_through.0,
            executed_through: state.executed_through.0,
            stable_through: state.stable_through.0,
            failed: state.failed.iter().map(failed).collect(),
            used_at: state.used_at.0,
            txns: state.txns.iter().map(|(txn, of)| self.freeze_txn(*txn, of)).collect(),
        }
    }

    fn freeze_txn(&self, txn: TxnId, of: &Txn) -> TxnImage {
        let partial = of.partial.as_ref().map(|Partial { op, handle, name }| PartialImage {
            op: *op,
            handle: handle.map(|handle| handle.as_bytes().to_vec()),
            name: name.clone(),
        });
        let touched = of.touched.iter().map(|(export, touched, op)| TouchedImage {
            handle: self.parts.namespace.seal_in(export, &touched.handle).as_bytes().to_vec(),
            data: touched.data,
            op: *op,
        });
        TxnImage {
            txn: txn.0,
            ops: of.ops,
            outcomes: of.outcomes.iter().map(Outcome::to_bytes).collect(),
            partial,
            touched: touched.collect(),
            is_stable: of.is_stable,
        }
    }

    pub(super) fn thaw_lanes(&self, images: Vec<LaneImage>) {
        let mut lanes = self.lanes.lock();
        for image in images {
            let make =
                || Arc::new(Lane::new(image.incarnation, ClientId(image.client), Instant(image.used_at)));
            let lane = Arc::clone(lanes.entry(image.incarnation).or_insert_with(make));
            self.thaw_lane(&mut lane.state.lock(), image);
        }
    }

    fn thaw_lane(&self, state: &mut State, image: LaneImage) {
        let failed = |(txn, op, status): (u64, u32, u32)| FailedOp { txn: TxnId(txn), op, status };
        state.client = ClientId(image.client);
        state.used_at = Instant(image.used_at);
        state.done_through = TxnId(image.done_through);
        state.executed_through = TxnId(image.executed_through);
        state.stable_through = TxnId(image.stable_through);
        state.failed = Failures::of(image.failed.into_iter().map(failed).collect());
        let txns = image.txns.into_iter();
        state.txns = txns.map(|image| (TxnId(image.txn), self.thaw_txn(image))).collect();
    }

    /// What cannot be read is executed again, by what the journal says of it, when its client sends it again. Records need
    /// not be sealed any more: should the machine stop, they are settled by looking.
    fn thaw_txn(&self, image: TxnImage) -> Txn {
        let outcomes = image.outcomes.iter().map_while(|bytes| Outcome::from_bytes(bytes));
        let partial = image.partial.map(|PartialImage { op, handle, name }| Partial {
            op,
            handle: handle.and_then(|bytes| Handle::new(&bytes)),
            name,
        });
        let touched =
            |TouchedImage { handle, data, op }: TouchedImage| match self.parts.namespace.open(&handle) {
                Ok(Object::Export(export, handle)) => Some((export, Touched { handle, data }, op)),
                // Of an export that is not served any more.
                _ => None,
            };
        Txn {
            // Another program may reckon it otherwise.
            fingerprint: None,
            ops: image.ops,
            outcomes: outcomes.collect(),
            partial,
            records: Vec::new(),
            touched: image.touched.into_iter().filter_map(touched).collect(),
            is_stable: image.is_stable,
        }
    }
}
