//! What could not be made durable, until the client is done with it: STABLE tells it (or a batch that waited as STABLE does), each
//! time it is asked, for an answer may be lost. So nothing else may say that more is durable than what comes before it: its client
//! would keep the transaction no longer, and have nothing to tell it of.

use holdfast_base::limits::{CAPS_FAILED_MAX, CAPS_TXNS_KEPT_MAX};
use holdfast_wire::caps::{FailedOp, TxnId};

/// Those of one incarnation; so many that STABLE has room for all.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<FailedOp>);

// One for each transaction that is remembered always fits.
const _: () = assert!(CAPS_TXNS_KEPT_MAX <= CAPS_FAILED_MAX);

impl Failures {
    /// As they were told by a server that has handed over.
    pub(crate) const fn of(failed: Vec<FailedOp>) -> Self {
        Self(failed)
    }

    /// Notes operations of one transaction. Where there are more than can be told one by one, whole transactions are told
    /// instead: of those that are forced together all have failed, but for other exports'.
    pub(crate) fn note(&mut self, failed: impl IntoIterator<Item = FailedOp>) {
        let before = self.0.len();
        for one in failed {
            let is_it = |of: &FailedOp| of.txn == one.txn && (of.op == one.op || of.op == FailedOp::ALL);
            // What is tried again, as another export asked for it, may fail again.
            if !self.0[..before].iter().any(is_it) {
                self.0.push(one);
            }
        }
        if self.0.len() > CAPS_FAILED_MAX {
            self.0.sort_by_key(|of| of.txn);
            self.0.dedup_by_key(|of| of.txn);
            self.0.iter_mut().for_each(|of| of.op = FailedOp::ALL);
        }
    }

    /// The client has heard of all up to this, and is done with it.
    pub(crate) fn forget_through(&mut self, done: TxnId) {
        self.0.retain(|failed| failed.txn > done);
    }

    /// What STABLE tells with this.
    pub(crate) fn through(&self, stable: TxnId) -> Vec<FailedOp> {
        self.0.iter().filter(|failed| failed.txn <= stable).copied().collect()
    }

    /// The last transaction before all of them.
    pub(crate) fn before(&self) -> Option<TxnId> {
        self.0.iter().map(|failed| failed.txn).min().map(|first| TxnId(first.0.saturating_sub(1)))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &FailedOp> {
        self.0.iter()
    }
}
