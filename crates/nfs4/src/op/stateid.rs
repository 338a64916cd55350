//! TEST_STATEID and FREE_STATEID (RFC 8881 sections 18.48 and 18.38).

use holdfast_base::limits::TEST_STATEIDS_MAX;
use holdfast_state::StateId;
use holdfast_wire::nfs4::{FreeStateid4Args, NfsStat4, OpNum4, TestStateid4Args, TestStateid4Ok};

use super::Op;
use crate::cx::Cx;
use crate::desc::{Flags, OpDesc};
use crate::error::{OpResult, from_state};

impl Op for TestStateid4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::TestStateid, Flags::NONE).reply(4 + 4 * TEST_STATEIDS_MAX);
    type Ok = TestStateid4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<TestStateid4Ok> {
        let client = cx.client()?;
        let stateids: Vec<StateId> =
            self.stateids.iter().map(|wire| StateId { seqid: wire.seqid, other: wire.other }).collect();
        cx.state(|engine, _| {
            let test =
                |stateid| engine.test_stateid(client, stateid).map_or_else(from_state, |()| NfsStat4::Ok);
            Ok(TestStateid4Ok { status_codes: stateids.into_iter().map(test).collect() })
        })
    }
}

impl Op for FreeStateid4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::FreeStateid, Flags::NONE);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let client = cx.client()?;
        let stateid = cx.stateid(self.stateid)?;
        cx.state(|engine, now| Ok(engine.free_stateid(client, stateid, now)?))
    }
}
