//! What the server calls: recalls, and hints that transactions are on its disk.

use std::sync::{Arc, Weak};

use holdfast_cache::Handle;
use holdfast_client::CallbackProgram;
use holdfast_wire::caps::{
    CAPS_CALLBACK_PROGRAM, CAPS_CALLBACK_V1, CapsCallbackProc, RecallArgs, StableHint,
};
use holdfast_wire::rpc::{AcceptStat, VersionRange};
use holdfast_xdr::{Decode, Reader, Writer};

use super::Inner;

struct Listener(Weak<Inner>);

/// Has the server's calls answered.
pub(super) fn listen(inner: &Arc<Inner>) {
    let listener = Arc::new(Listener(Arc::downgrade(inner)));
    inner.nfs.client().register_program(CAPS_CALLBACK_PROGRAM, listener);
}

fn decoded<'a, T: Decode<'a>>(args: &'a [u8]) -> Result<T, AcceptStat> {
    let mut r = Reader::new(args);
    let value = T::decode(&mut r).map_err(|_| AcceptStat::GarbageArgs)?;
    r.finish().map_err(|_| AcceptStat::GarbageArgs)?;
    Ok(value)
}

impl CallbackProgram for Listener {
    fn call(&self, version: u32, procedure: u32, args: &[u8], _: &mut Writer) -> Result<(), AcceptStat> {
        if version != CAPS_CALLBACK_V1 {
            return Err(AcceptStat::ProgMismatch(VersionRange {
                low: CAPS_CALLBACK_V1,
                high: CAPS_CALLBACK_V1,
            }));
        }
        let procedure = CapsCallbackProc::from_u32(procedure).ok_or(AcceptStat::ProcUnavail)?;
        let Some(inner) = self.0.upgrade() else { return Ok(()) };
        let is_current = |epoch: u64| inner.greeting.read().is_some_and(|greeting| greeting.epoch == epoch);
        match procedure {
            CapsCallbackProc::Null => {}
            CapsCallbackProc::Recall => {
                let recall: RecallArgs<'_> = decoded(args)?;
                tracing::trace!(?recall, "recalled");
                if let Some(promises) = inner.promises().filter(|_| is_current(recall.epoch)) {
                    for item in &recall.items {
                        promises.recalled(&Handle::new(item.handle.0), item.keep, item.seq);
                    }
                }
            }
            CapsCallbackProc::Stable => {
                let hint: StableHint = decoded(args)?;
                if let Some(promises) = inner.promises().filter(|_| is_current(hint.epoch)) {
                    promises.stable(hint.through.0);
                }
            }
        }
        Ok(())
    }
}
