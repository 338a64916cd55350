//! RECLAIM_COMPLETE (RFC 8881 section 18.51): the client has reclaimed all it wants to.

use holdfast_wire::nfs4::{NfsStat4, OpNum4, ReclaimComplete4Args};

use super::Op;
use crate::cx::Cx;
use crate::desc::{Flags, OpDesc};
use crate::error::OpResult;

impl Op for ReclaimComplete4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::ReclaimComplete, Flags::WAITS);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let client = cx.client()?;
        if self.one_fs {
            // About one file system that moved here. None does, so there is nothing to note.
            cx.current()?;
            return Ok(());
        }
        cx.compound.tells_of_restart = false;
        let session = cx.compound.slot.as_ref().map(|slot| slot.session);
        if cx.state(|engine, _| Ok(session.is_some_and(|session| engine.doubts_reclaims(session))))? {
            // Linux heeds no flags while it reclaims, ends reclaiming whatever this answers but DELAY (after which it
            // would say it again), and is told of the restart by the flags of its next request.
            return Err(NfsStat4::DeadSession.into());
        }
        cx.state(|engine, _| Ok(engine.reclaim_complete(client)?))
    }
}
