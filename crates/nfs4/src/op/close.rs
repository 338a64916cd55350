//! CLOSE, OPEN_DOWNGRADE and OPEN_CONFIRM (RFC 8881 sections 18.2 and 18.18, RFC 7530 section 16.18): an open
//! changes and ends.

use holdfast_state::{Access, OwnerOf, OwnerOp, Share, StateId};
use holdfast_wire::nfs4::{
    Close4Args, Close4Ok, NfsStat4, OpNum4, OpenConfirm4Args, OpenConfirm4Ok, OpenDowngrade4Args,
    OpenDowngrade4Ok, Stateid4,
};

use super::lock::ask_others_where_one_may_wait;
use super::{Encoded, Op};
use crate::cx::Cx;
use crate::desc::{Flags, OpDesc, STATEID_BYTES};
use crate::error::OpResult;
use crate::owner::{Turn, in_turn};

/// The turn that an operation on an open needs.
const fn turn_of(open: StateId, seqid: holdfast_base::Seqid, op: OwnerOp) -> Turn<'static> {
    Turn { of: OwnerOf::Stateid(open), seqid, op }
}

const fn to_wire(stateid: StateId) -> Stateid4 {
    Stateid4 { seqid: stateid.seqid, other: stateid.other }
}

impl Op for Close4Args {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::Close, Flags::NEEDS_FH.with(Flags::MODIFIES)).reply(STATEID_BYTES);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let open = cx.stateid(self.open_stateid)?;
        let caller = cx.state_caller()?;
        in_turn(cx, turn_of(open, self.seqid, OwnerOp::Close), |cx| {
            let at = cx.at(NfsStat4::BadStateid)?;
            // With the open its locks go, and what other hosts are to be told by closing the file.
            ask_others_where_one_may_wait(cx, &at)?;
            let file = at.handle.key();
            let closed = cx.state(|engine, now| Ok(engine.close(caller, open, file, now)?))?;
            cx.set_current_stateid(closed);
            Ok(Close4Ok { open_stateid: to_wire(closed) })
        })
    }
}

impl Op for OpenDowngrade4Args {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::OpenDowngrade, Flags::NEEDS_FH.with(Flags::MODIFIES)).reply(STATEID_BYTES);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let open = cx.stateid(self.open_stateid)?;
        let caller = cx.state_caller()?;
        in_turn(cx, turn_of(open, self.seqid, OwnerOp::OpenDowngrade), |cx| {
            let at = cx.at(NfsStat4::BadStateid)?;
            ask_others_where_one_may_wait(cx, &at)?;
            let file = at.handle.key();
            // Wants of 4.1 may stand in the upper bits; they ask for nothing here.
            let access = Access::from_bits(self.share_access & 3).filter(|a| !a.is_none());
            let deny = Access::from_bits(self.share_deny);
            let (Some(access), Some(deny)) = (access, deny) else { return Err(NfsStat4::Inval.into()) };
            let share = Share { access, deny };
            let stateid =
                cx.state(|engine, now| Ok(engine.open_downgrade(caller, open, file, share, now)?))?;
            Ok(OpenDowngrade4Ok { open_stateid: cx.set_current_stateid(stateid) })
        })
    }
}

impl Op for OpenConfirm4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::OpenConfirm, Flags::NEEDS_FH.with(Flags::MODIFIES))
        .only_in_v0()
        .reply(STATEID_BYTES);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let open = cx.stateid(self.open_stateid)?;
        in_turn(cx, turn_of(open, self.seqid, OwnerOp::OpenConfirm), |cx| {
            let file = cx.at(NfsStat4::BadStateid)?.handle.key();
            let stateid = cx.state(|engine, now| Ok(engine.open_confirm(open, file, now)?))?;
            Ok(OpenConfirm4Ok { open_stateid: to_wire(stateid) })
        })
    }
}
