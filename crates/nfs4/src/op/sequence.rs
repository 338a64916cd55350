//! SEQUENCE (RFC 8881 section 18.46): which session a compound comes in, and whether it was executed already.

use std::cell::Cell;

use holdfast_state::{Admission, ChannelAttrs, Sequenced, SlotRequest, StateError, StatusFlags};
use holdfast_wire::caps::SEQ4_STATUS_CAPS_IN_DOUBT;
use holdfast_wire::nfs4::{
    NfsStat4, OpNum4, SEQ4_STATUS_ADMIN_STATE_REVOKED, SEQ4_STATUS_BACKCHANNEL_FAULT,
    SEQ4_STATUS_CB_PATH_DOWN, SEQ4_STATUS_CB_PATH_DOWN_SESSION, SEQ4_STATUS_LEASE_MOVED,
    SEQ4_STATUS_RECALLABLE_STATE_REVOKED, SEQ4_STATUS_RESTART_RECLAIM_NEEDED, Sequence4Args, Sequence4Ok,
};
use holdfast_xdr::Reader;

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
                let mut results = results.clone();
                if sequenced.status.is_reclaim_needed {
                    tell_of_restart(&mut results);
                }
                return Err(Failure::Turn(Turn(TurnKind::Replay(results))));
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

/// Results that are told again renew the client's lease (RFC 8881 section 8.3), and it may take that for a sign that it holds what it
/// held. Those of the server's former life knew of no restart. So their status flags, which say how things stand (section
/// 18.46.3), do now.
fn tell_of_restart(results: &mut [u8]) {
    let Some(flags) = status_flags_of(results).and_then(|at| results.get_mut(at..)?.first_chunk_mut()) else {
        return;
    };
    *flags = (u32::from_be_bytes(*flags) | SEQ4_STATUS_RESTART_RECLAIM_NEEDED).to_be_bytes();
}

/// Where the results of a compound have SEQUENCE's status flags, if it succeeded.
fn status_flags_of(results: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(results);
    let (_status, _tag, _count) =
        (reader.u32().ok()?, reader.opaque(results.len()).ok()?, reader.u32().ok()?);
    let (op, status) = (reader.u32().ok()?, reader.u32().ok()?);
    if op != OpNum4::Sequence.as_u32() || status != NfsStat4::Ok.as_u32() {
        return None;
    }
    // The session and four numbers before them.
    reader.take(16 + 4 * 4).ok()?;
    Some(results.len() - reader.rest().len())
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

#[cfg(test)]
mod tests {
    use holdfast_base::{Seqid, SessionId, SlotId};
    use holdfast_xdr::{Encode, Writer};

    use super::*;

    fn results(status: NfsStat4, tag: &[u8]) -> Vec<u8> {
        let mut to = Writer::new();
        status.as_u32().encode(&mut to);
        to.opaque(tag);
        to.u32(2);
        to.u32(OpNum4::Sequence.as_u32());
        to.u32(status.as_u32());
        if status == NfsStat4::Ok {
            Sequence4Ok {
                sessionid: SessionId([7; 16]),
                sequenceid: Seqid(1),
                slotid: SlotId(0),
                highest_slotid: SlotId(3),
                target_highest_slotid: SlotId(3),
                status_flags: SEQ4_STATUS_CB_PATH_DOWN,
            }
            .encode(&mut to);
        }
        to.u32(OpNum4::PutRootFh.as_u32());
        to.u32(NfsStat4::Ok.as_u32());
        to.into_vec()
    }

    #[test]
    fn the_flags_alone_are_changed_and_only_where_there_are_any() {
        for tag in [&b""[..], b"t", b"tag of nine"] {
            let before = results(NfsStat4::Ok, tag);
            let mut told = before.clone();
            tell_of_restart(&mut told);
            let at = status_flags_of(&before).unwrap();
            let flags = SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_RESTART_RECLAIM_NEEDED;
            assert_eq!(told[at..at + 4], flags.to_be_bytes());
            assert_eq!((&told[..at], &told[at + 4..]), (&before[..at], &before[at + 4..]));
        }
        let before = results(NfsStat4::Delay, b"t");
        let mut told = before.clone();
        tell_of_restart(&mut told);
        assert_eq!(told, before);
        tell_of_restart(&mut []);
    }
}
