//! Batches on their way: sent until they have an answer, for as long as that is waited for.

use std::cell::Cell;
use std::time::Duration;

use holdfast_cache::{self as cache, Batch};
use holdfast_client::Cancel;
use holdfast_wire::caps::{BatchArgs, BatchHow, CapsProc, ForcedOk, TxnId, Until};
use parking_lot::Mutex;

use super::calling::{decode, put};
use super::sheets::{Ledger, Sheet, results, unpooled};
use super::{CapsServer, Failure, Inner, Promises};
use crate::server::{BatchDone, Undone};

/// How often who waits for the end of a greeting looks whether he has been given up.
pub(super) const GREETING_LOOK: Duration = Duration::from_millis(50);

impl Ledger {
    /// The same, as the machine says now.
    pub(super) fn refresh(ledger: &Mutex<Self>, promises: Option<&dyn Promises>) {
        if let Some(promises) = promises {
            // Asked for before the ledger is locked.
            let done = promises.done_through();
            ledger.lock().done(done);
        }
    }
}

impl CapsServer {
    /// Whether batches can be answered when they are on the server's disk, beside the others that are under way.
    #[must_use]
    pub fn forces(&self) -> bool {
        self.0.forces()
    }
}

const fn until_of(until: cache::Until) -> Until {
    match until {
        cache::Until::Executed => Until::Executed,
        cache::Until::Stable => Until::Stable,
    }
}

impl Inner {
    fn forces(&self) -> bool {
        self.greeting.read().is_some_and(|greeting| greeting.forces())
    }

    pub(super) fn send_batch(&self, batch: &Batch, cancel: &Cancel) -> Result<BatchDone, Undone> {
        let cred = self.nfs.cred(&batch.caller);
        let sheet = Sheet::of(batch);
        let is_resent = self.ledger.lock().sends(batch, &sheet.starts);
        let asked = Cell::new(Until::Executed);
        // It may have to come out again, for another server perhaps: otherwise than it is here. Whose ticket is that server's waits
        // until the machine was told of it; but a greeting may hang with its server.
        let is_awaited = || {
            while !cancel.is_cancelled() {
                if let Some(_turn) = self.renewing.try_lock_for(GREETING_LOOK) {
                    return self.promises().is_none_or(|promises| promises.awaits(batch));
                }
            }
            false
        };
        let reply = self.call_while(&is_awaited, CapsProc::Batch, &cred, cancel, |ticket, w| {
            let done_through = self.ledger.lock().done_through();
            let txn = TxnId(batch.txn);
            let ops = if self.pools() { sheet.ops.clone() } else { sheet.ops.iter().map(unpooled).collect() };
            // Another server may have come in the place of the one that can.
            asked.set(if self.forces() { until_of(batch.until) } else { Until::Executed });
            let how = BatchHow { is_resent, until: asked.get() };
            put(&BatchArgs { ticket, txn, how, done_through, ops }, w);
        });
        let reply = reply.map_err(Failure::undone)?;
        let told = match asked.get() {
            Until::Executed => decode(&reply).map(|batch| ForcedOk { batch, failed: Vec::new() }),
            Until::Stable => decode::<ForcedOk<'_>>(&reply),
        };
        let ForcedOk { batch: told, failed } = told.map_err(Failure::undone)?;
        let done = BatchDone {
            results: results(&sheet.starts, &told),
            executed_through: told.executed_through.0,
            stable_through: told.stable_through.0,
            failed: self.ledger.lock().failed(&failed),
        };
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_cache::{CapSet, Handle};

    use super::*;

    /// A machine that is done with everything through a transaction.
    struct Done(u64);

    impl Promises for Done {
        fn recalled(&self, _: &Handle, _: CapSet, _: u64) {}
        fn stable(&self, _: u64) {}
        fn crossed(&self, _: &Handle) {}
        fn to_reclaim(&self) -> Vec<holdfast_cache::Reclaim> {
            Vec::new()
        }
        fn in_question(&self) -> Vec<holdfast_cache::Reclaim> {
            Vec::new()
        }
        fn renewed(&self, _: Vec<holdfast_cache::Reclaimed>) {}
        fn given_up(&self) {}
        fn lapsed(&self) {}
        fn regained(&self) {}
        fn done_through(&self) -> u64 {
            self.0
        }
        fn must_renew(&self) -> bool {
            false
        }
        fn awaits(&self, _: &Batch) -> bool {
            true
        }
        fn is_due(&self, _: &holdfast_cache::Release) -> bool {
            true
        }
        fn can_force(&self, _: bool) {}
        fn resume(&self, _: Option<u64>, _: u64, _: bool) {}
    }

    #[test]
    fn a_batch_that_finds_no_room_says_what_the_machine_is_done_with_by_now() {
        let ledger = Mutex::new(Ledger::default());
        ledger.lock().done(1);
        Ledger::refresh(&ledger, None);
        assert_eq!(ledger.lock().done_through(), TxnId(1));
        Ledger::refresh(&ledger, Some(&Done(7)));
        assert_eq!(ledger.lock().done_through(), TxnId(7));
        Ledger::refresh(&ledger, Some(&Done(3)));
        assert_eq!(ledger.lock().done_through(), TxnId(7), "what was said stays said");
    }
}
