//! CREATE_SESSION and DESTROY_SESSION (RFC 8881 sections 18.36 and 18.37).

use holdfast_base::SessionId;
use holdfast_rpc::Auth;
use holdfast_state::{ChannelAttrs, CreateSession, CreatedSession, Direction, StateError};
use holdfast_wire::nfs4::{
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN, CREATE_SESSION4_FLAG_CONN_RDMA, CREATE_SESSION4_FLAG_PERSIST,
    ChannelAttrs4, CreateSession4Args, CreateSession4Ok, DestroySession4Args, NfsStat4, OpNum4,
};

use super::Op;
use crate::callback::credential;
use crate::cx::Cx;
use crate::desc::{Flags, OpDesc};
use crate::error::OpResult;

/// Waits: the first session of a client confirms its record, which must be on stable storage before the reply.
impl Op for CreateSession4Args<'_> {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::CreateSession, Flags::OUTSIDE_SESSION.with(Flags::WAITS)).reply(88);
    type Ok = CreateSession4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<CreateSession4Ok> {
        const KNOWN: u32 = CREATE_SESSION4_FLAG_PERSIST
            | CREATE_SESSION4_FLAG_CONN_BACK_CHAN
            | CREATE_SESSION4_FLAG_CONN_RDMA;
        if self.flags & !KNOWN != 0 {
            return Err(NfsStat4::Inval.into());
        }
        let wants_back = self.flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN != 0;
        let auth = credential(&self.sec_parms);
        if wants_back && auth.is_none() {
            // Only credentials that we cannot make were offered.
            return Err(NfsStat4::EncrAlgUnsupp.into());
        }
        let principal = cx.principal();
        let back = from_wire(&self.back_chan_attrs);
        let request = CreateSession {
            client: self.clientid,
            seqid: self.sequence,
            principal: &principal,
            conn: cx.conn_id(),
            fore: from_wire(&self.fore_chan_attrs),
            // Without a back channel on this connection one may be bound later, if its limits allow it.
            back: Some(back),
            conn_direction: if wants_back { Direction::Both } else { Direction::Fore },
            callback_program: self.cb_program,
            is_persistent: self.flags & CREATE_SESSION4_FLAG_PERSIST != 0 && cx.config().sessions.is_some(),
        };
        let (created, is_there) = cx.state(|engine, now| {
            let created = engine.create_session(&request, now)?;
            Ok((created, engine.sessions().get(created.id).is_some()))
        })?;
        if !is_there {
            // What this repeats made it, and it is gone, by the client's wish or with a former life: the answer is the same.
            return Ok(answer(&created, back));
        }
        keep(cx, &created)?;
        let channel = (created.id, self.clientid, cx.minor());
        // What this repeats may have made it in a former life.
        let unsure = created.back.filter(|_| created.is_again).map_or(0, |back| back.slots_max);
        let auth = auth.unwrap_or(Auth::None);
        let is_there = cx.service().session_made(channel, (auth, unsure), cx.connection());
        if cx.connection().is_closed() {
            // It may have ended, and been forgotten, before it was noted: this runs on the pool.
            cx.service().forget_connection(cx.conn_id());
        }
        if !is_there {
            // Whoever this repeats could not have it stored, and took it back while it was stored here.
            forget(cx, created.id);
            return Err(NfsStat4::Delay.into());
        }
        if created.conn_direction != Direction::Fore {
            cx.service().back_channel_bound(created.id);
        }
        Ok(answer(&created, back))
    }
}

/// Puts a session, if it is persistent, and the answer where they outlive the server.
fn keep(cx: &Cx<'_>, created: &CreatedSession) -> OpResult<()> {
    let Some(records) = &cx.config().sessions else { return Ok(()) };
    let image =
        cx.service().look(|engine| engine.sessions().image(created.id)).ok_or(StateError::BadSession)?;
    if records.session_made(&image, created).is_ok() {
        return Ok(());
    }
    if created.is_again {
        // Whoever made it may be having it stored still.
        return Err(NfsStat4::Delay.into());
    }
    // It was promised to the client by nobody yet: take it back.
    cx.state(|engine, _| Ok(engine.withdraw_session(created)?))?;
    Err(NfsStat4::Delay.into())
}

/// It may have been stored after its end was told.
fn forget(cx: &Cx<'_>, session: SessionId) {
    if let Some(records) = &cx.config().sessions {
        records.sessions_gone(&[session]);
    }
}

const fn from_wire(attrs: &ChannelAttrs4) -> ChannelAttrs {
    ChannelAttrs {
        header_pad_bytes: attrs.headerpadsize,
        request_bytes_max: attrs.maxrequestsize,
        reply_bytes_max: attrs.maxresponsesize,
        reply_kept_bytes_max: attrs.maxresponsesize_cached,
        ops_max: attrs.maxoperations,
        slots_max: attrs.maxrequests,
    }
}

const fn to_wire(attrs: &ChannelAttrs) -> ChannelAttrs4 {
    ChannelAttrs4 {
        headerpadsize: attrs.header_pad_bytes,
        maxrequestsize: attrs.request_bytes_max,
        maxresponsesize: attrs.reply_bytes_max,
        maxresponsesize_cached: attrs.reply_kept_bytes_max,
        maxoperations: attrs.ops_max,
        maxrequests: attrs.slots_max,
        rdma_ird: None,
    }
}

fn answer(created: &CreatedSession, asked_back: ChannelAttrs) -> CreateSession4Ok {
    let persists = if created.is_persistent { CREATE_SESSION4_FLAG_PERSIST } else { 0 };
    let has_back = created.conn_direction != Direction::Fore;
    CreateSession4Ok {
        sessionid: created.id,
        sequence: created.seqid,
        flags: persists | if has_back { CREATE_SESSION4_FLAG_CONN_BACK_CHAN } else { 0 },
        fore_chan_attrs: to_wire(&created.fore),
        // Without a back channel there is nothing to agree on: the wish is repeated.
        back_chan_attrs: to_wire(&created.back.unwrap_or(asked_back)),
    }
}

/// Waits: its record goes with it.
impl Op for DestroySession4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::DestroySession, Flags::OUTSIDE_SESSION.with(Flags::WAITS));
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let own = cx.compound.slot.as_ref().is_some_and(|slot| slot.session == self.sessionid);
        if own && cx.compound.index + 1 != cx.compound.ops {
            // What followed would have no session (section 18.37.3).
            return Err(NfsStat4::NotOnlyOp.into());
        }
        cx.state(|engine, _| Ok(engine.destroy_session(self.sessionid, u32::from(own))?))
    }
}
