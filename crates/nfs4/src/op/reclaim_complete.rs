//! RECLAIM_COMPLETE (RFC 8881 section 18.51): the client has reclaimed all it wants to.

use holdfast_wire::nfs4::{OpNum4, ReclaimComplete4Args};

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
        cx.state(|engine, _| Ok(engine.reclaim_complete(client)?))
    }
}
