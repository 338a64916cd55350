//! SETCLIENTID, SETCLIENTID_CONFIRM and RENEW (RFC 7530 sections 16.33, 16.34, 16.28): clients of 4.0.

use holdfast_state::{Callback, Engine, SetClientId, StateError, Verifier};
use holdfast_wire::nfs4::{
    NetAddr4, NfsStat4, OpNum4, Renew4Args, SetClientId4Args, SetClientId4Ok, SetClientIdConfirm4Args,
};
use holdfast_xdr::Encode;

use super::Op;
use crate::callback::address;
use crate::cx::Cx;
use crate::desc::{Flags, OpDesc};
use crate::error::{Failure, OpResult};

impl Op for SetClientId4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::SetClientId, Flags::NONE).only_in_v0().reply(16);
    type Ok = SetClientId4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<SetClientId4Ok> {
        cx.refuse_strangers()?;
        let principal = cx.principal();
        let peer = cx.connection().peer().ip();
        let address = address::keep(&self.callback.cb_location, peer, cx.service().options.calls_anywhere);
        let request = SetClientId {
            name: self.client.id,
            verifier: Verifier(self.client.verifier),
            principal: &principal,
            site: cx.site(),
            callback: Callback {
                program: self.callback.cb_program,
                ident: self.callback_ident,
                address: address.into(),
            },
        };
        match cx.state(|engine, now| Ok(engine.setclientid(&request, now)?)) {
            Ok((client, confirm)) => Ok(SetClientId4Ok { clientid: client, setclientid_confirm: confirm.0 }),
            Err(Failure::State(StateError::ClidInuse)) => {
                // Who uses it is told as an address; ours to tell is none, as the name's owner may be anywhere.
                NetAddr4 { netid: b"", addr: b"" }.encode(cx.reply);
                Err(Failure::WithBody(NfsStat4::ClidInUse))
            }
            Err(other) => Err(other),
        }
    }
}

/// Waits: the record must be on stable storage before the reply.
impl Op for SetClientIdConfirm4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::SetClientIdConfirm, Flags::WAITS).only_in_v0();
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let principal = cx.principal();
        let confirm = Verifier(self.setclientid_confirm);
        cx.state(|engine, now| Ok(engine.setclientid_confirm(self.clientid, confirm, &principal, now)?))?;
        cx.names_client(self.clientid);
        cx.service().callback_confirmed(self.clientid);
        Ok(())
    }
}

impl Op for Renew4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::Renew, Flags::NONE).only_in_v0();
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        cx.state(|engine, now| Ok(engine.renew(self.clientid, now)?))?;
        cx.names_client(self.clientid);
        // RFC 7530 section 16.28.4: the lease is renewed all the same.
        let service = cx.service();
        // Not while it is being found out, as it is after each planned restart: Linux makes itself known anew when told so.
        let is_down = service.callbacks.is_client_down(self.clientid);
        let is_down_for = |engine: &Engine| {
            engine.has_delegations(self.clientid)
                && is_down.unwrap_or_else(|| engine.is_callback_path_down(self.clientid))
        };
        if is_down != Some(false) && service.look(is_down_for) {
            return Err(NfsStat4::CbPathDown.into());
        }
        Ok(())
    }
}
