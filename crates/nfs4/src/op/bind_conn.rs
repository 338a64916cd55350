//! BIND_CONN_TO_SESSION and BACKCHANNEL_CTL (RFC 8881 sections 18.34 and 18.33): what carries callbacks.

use holdfast_base::SessionId;
use holdfast_rpc::{Auth, AuthSys};
use holdfast_state::{Direction, Session, StateError};
use holdfast_wire::nfs4::{
    BackchannelCtl4Args, BindConnToSession4Args, BindConnToSession4Ok, ChannelDirFromClient4,
    ChannelDirFromServer4, NfsStat4, OpNum4,
};

use super::Op;
use crate::callback::credential;
use crate::cx::Cx;
use crate::desc::{Flags, OpDesc};
use crate::error::OpResult;

impl Op for BindConnToSession4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::BindConnToSession, Flags::OUTSIDE_SESSION).reply(24);
    type Ok = BindConnToSession4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<BindConnToSession4Ok> {
        let conn = cx.conn_id();
        let wanted = match self.dir {
            ChannelDirFromClient4::Fore => Direction::Fore,
            ChannelDirFromClient4::Back => Direction::Back,
            ChannelDirFromClient4::ForeOrBoth | ChannelDirFromClient4::BackOrBoth => Direction::Both,
        };
        let (bound, session) = cx.state(|engine, _| {
            let sessions = engine.sessions_mut();
            let bound = sessions.bind_connection(self.sessionid, conn, wanted)?;
            let of = |session: &Session| (session.client(), session.back().map_or(0, |back| back.slots_max));
            Ok((bound, sessions.get(self.sessionid).map(of)))
        })?;
        if let Some((client, slots)) = session {
            // What credentials a session of a former life offered is not kept; AUTH_SYS is what clients without a security
            // service offer.
            let channel = (self.sessionid, client, cx.minor());
            let auth = Auth::Sys(AuthSys::default());
            let is_there = cx.service().session_made(channel, (auth, slots), cx.connection());
            if is_there && bound != Direction::Fore {
                cx.service().back_channel_bound(self.sessionid);
            }
        }
        Ok(BindConnToSession4Ok {
            sessionid: self.sessionid,
            dir: match bound {
                Direction::Fore => ChannelDirFromServer4::Fore,
                Direction::Back => ChannelDirFromServer4::Back,
                Direction::Both => ChannelDirFromServer4::Both,
            },
            // RDMA is not spoken here.
            use_conn_in_rdma_mode: false,
        })
    }
}

impl Op for BackchannelCtl4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::BackchannelCtl, Flags::WAITS);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let auth = credential(&self.sec_parms).ok_or(NfsStat4::Inval)?;
        let slot = cx.compound.slot.as_ref().ok_or(NfsStat4::OpNotInSession)?;
        let session = slot.session;
        // One after the other: the record and the session name the same program in the end. Who holds the turn may wait for
        // a disk that hangs.
        let _turn = cx.service().callbacks.turn_to_change().ok_or(NfsStat4::Delay)?;
        record_program(cx, session, self.cb_program)?;
        cx.state(|engine, _| Ok(engine.sessions_mut().set_callback_program(session, self.cb_program)?))?;
        cx.service().callbacks.session_changed(session, auth);
        cx.service().back_channel_bound(session);
        Ok(())
    }
}

/// Has a session that outlives the server be called under another program in its next life, too.
fn record_program(cx: &Cx<'_>, session: SessionId, program: u32) -> OpResult<()> {
    let Some(records) = &cx.config().sessions else { return Ok(()) };
    let mut image =
        cx.service().look(|engine| engine.sessions().image(session)).ok_or(StateError::BadSession)?;
    image.callback_program = program;
    Ok(records.session_changed(&image).map_err(|_| NfsStat4::Delay)?)
}
