//! What could not be made durable, until the client is done with it: STABLE alone tells it, each time it is asked, for an
//! answer may be lost. So nothing else may say that more is durable than what comes before it: its client would keep the
//! transaction no longer, and have nothing to tell it of.

use holdfast_base::limits::CAPS_FAILED_MAX;
use holdfast_wire::caps::{FailedOp, TxnId};

/// Those of one incarnation, as many as STABLE has room for.
#[derive(Debug, Default)]
pub(crate) struct Failures(Vec<FailedOp>);

impl Failures {
    /// As they were told by a server that has handed over.
    pub(crate) const fn of(failed: Vec<FailedOp>) -> Self {
        Self(failed)
    }

    /// Notes operations of one transaction.
    pub(crate) fn note(&mut self, failed: impl IntoIterator<Item = FailedOp>) {
        let before = self.0.len();
        for one in failed {
            let is_it = |of: &FailedOp| (of.txn, of.op) == (one.txn, one.op);
            // What is tried again, as another export asked for it, may fail again.
            if !self.0[..before].iter().any(is_it) {
                self.0.push(one);
            }
        }
        self.0.truncate(CAPS_FAILED_MAX);
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
