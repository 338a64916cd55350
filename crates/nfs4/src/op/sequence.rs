//! SEQUENCE (RFC 8881 section 18.46): which session a compound comes in, and whether it was executed already.

use std::cell::Cell;

use holdfast_state::{Admission, ChannelAttrs, Sequenced, SlotRequest, StateError, StatusFlags};
use holdfast_wire::caps::SEQ4_STATUS_CAPS_IN_DOUBT;
use holdfast_wire::nfs4::{
    NfsStat4, OpNum4, SEQ4_STATUS_ADMIN_STATE_REVOKED, SEQ4_STATUS_BACKCHANNEL_FAULT,
    SEQ4_STATUS_CB_PATH_DOWN, SEQ4_STATUS_CB_PATH_DOWN_SESSION, SEQ4_STATUS_LEASE_MOVED,
    SEQ4_STATUS_RECALLABLE_STATE_REVOKED, SEQ4_STATUS_RESTART_RECLAIM_NEEDED, Sequence4Args, Sequence4Ok,
};

use super::Op;
use crate::compound::{Compound, RPC_REPLY_HEADER_BYTES};
use crate::cx::Cx;
use crate::desc::{Flags, OpDesc};
use crate::error::{Failure, OpResult};
use crate::slot::{SlotUse, Turn, TurnKind};

/// Bytes of the results up to and including SEQUENCE's, with an empty tag.
const SEQUENCE_REPLY_BYTES: usize = 12 + 8 + 36;

impl Op for Sequence4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::Sequence, Flags::OUTSIDE_SESSION).reply(36);
    type Ok = Sequence4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Sequence4Ok> {
        let request = SlotRequest {
            slot: self.slotid,
            seqid: self.sequenceid,
            highest_slot: self.highest_slotid,
            digest: Some(cx.compound.digest),
        };
        let conn = cx.conn_id();
        let is_held_up = Cell::new(false);
        let admit = |cx: &mut Cx<'_>| {
            cx.state(|engine, now| {
                let session = engine.sessions().get(self.sessionid).ok_or(StateError::BadSession)?;
                is_held_up.set(session.is_held_up());
                let (limits, is_persistent) = (*session.fore(), session.is_persistent());
                check_request(cx.compound, &limits)?;
                let mut sequenced = engine.sessions_mut().sequence(self.sessionid, request, conn, now)?;
                sequenced.status.is_in_doubt = engine.are_caps_in_doubt(sequenced.client, now);
                Ok((sequenced, limits, is_persistent))
            })
        };
        let admitted = match admit(cx) {
            Err(_) if is_held_up.get() && cx.service().takes_up(self.sessionid) => admit(cx),
            admitted => admitted,
        };
        let (sequenced, limits, is_persistent) = admitted?;
        match sequenced.admission {
            Admission::New => {}
            Admission::Replay(ref results) => {
                return Err(Failure::Turn(Turn(TurnKind::Replay(results.clone()))));
            }
            Admission::RetryInProgress if cx.connection().may_park() => {
                return Err(Failure::Turn(Turn(TurnKind::InProgress(self.sessionid, request))));
            }
            Admission::RetryInProgress => return Err(NfsStat4::Delay.into()),
        }
        cx.compound.slot = Some(SlotUse {
            session: self.sessionid,
            slot: self.slotid,
            seqid: self.sequenceid,
            client: sequenced.client,
            is_kept: self.cachethis,
            is_persistent,
        });
        cx.compound.tells_of_restart = sequenced.status.is_reclaim_needed;
        cx.compound.limit_reply(&limits, self.cachethis)?;
        let mut ok = answer(&self, &sequenced);
        if cx.service().untold.has(sequenced.client) {
            ok.status_flags |= SEQ4_STATUS_LEASE_MOVED;
        }
        Ok(ok)
    }
}

/// A request that the session's limits forbid is refused before it takes a slot.
fn check_request(compound: &Compound, limits: &ChannelAttrs) -> OpResult<()> {
    if compound.request_bytes > limits.request_bytes_max as usize {
        return Err(NfsStat4::ReqTooBig.into());
    }
    if compound.ops > limits.ops_max {
        return Err(NfsStat4::TooManyOps.into());
    }
    Ok(())
}

impl Compound {
    /// From here on the session limits the reply. What is to be kept must fit what is kept.
    fn limit_reply(&mut self, limits: &ChannelAttrs, is_kept: bool) -> OpResult<()> {
        let mut bytes_max = limits.reply_bytes_max;
        if is_kept {
            bytes_max = bytes_max.min(limits.reply_kept_bytes_max);
        }
        self.reply_bytes_max = (bytes_max as usize).saturating_sub(RPC_REPLY_HEADER_BYTES);
        if self.reply_bytes_max < SEQUENCE_REPLY_BYTES { Err(self.too_big().into()) } else { Ok(()) }
    }
}

fn answer(args: &Sequence4Args, sequenced: &Sequenced) -> Sequence4Ok {
    Sequence4Ok {
        sessionid: args.sessionid,
        sequenceid: args.sequenceid,
        slotid: args.slotid,
        highest_slotid: sequenced.highest_slot,
        target_highest_slotid: sequenced.target_highest_slot,
        status_flags: status_flags(sequenced.status),
    }
}

fn status_flags(status: StatusFlags) -> u32 {
    let flag = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
    flag(status.is_back_channel_down, SEQ4_STATUS_CB_PATH_DOWN_SESSION)
        | flag(status.is_callback_down, SEQ4_STATUS_CB_PATH_DOWN)
        | flag(status.is_back_channel_faulty, SEQ4_STATUS_BACKCHANNEL_FAULT)
        | flag(status.is_state_revoked, SEQ4_STATUS_ADMIN_STATE_REVOKED)
        | flag(status.is_delegation_revoked, SEQ4_STATUS_RECALLABLE_STATE_REVOKED)
        | flag(status.is_reclaim_needed, SEQ4_STATUS_RESTART_RECLAIM_NEEDED)
        | flag(status.is_in_doubt, SEQ4_STATUS_CAPS_IN_DOUBT)
}
