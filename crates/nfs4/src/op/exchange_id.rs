//! EXCHANGE_ID and DESTROY_CLIENTID (RFC 8881 sections 18.35 and 18.50): clients of 4.1 and later come and go.

use holdfast_base::limits::OWNER_BYTES_MAX;
use holdfast_state::{ExchangeId, ExchangeIntent, Verifier};
use holdfast_wire::nfs4::{
    DestroyClientId4Args, EXCHGID4_FLAG_BIND_PRINC_STATEID, EXCHGID4_FLAG_CONFIRMED_R,
    EXCHGID4_FLAG_MASK_PNFS, EXCHGID4_FLAG_SUPP_FENCE_OPS, EXCHGID4_FLAG_SUPP_MOVED_MIGR,
    EXCHGID4_FLAG_SUPP_MOVED_REFER, EXCHGID4_FLAG_UPD_CONFIRMED_REC_A, EXCHGID4_FLAG_USE_NON_PNFS,
    ExchangeId4Args, ExchangeId4Ok, NfsImplId4, NfsStat4, NfsTime4, OpNum4, ServerOwner4, StateProtect4A,
    StateProtect4R,
};
use holdfast_xdr::Encode;

use super::{Encoded, Op};
use crate::cx::Cx;
use crate::desc::{Flags, Minor, OpDesc};
use crate::error::OpResult;

/// Flags that a client may set.
const ARGUMENT_FLAGS: u32 = EXCHGID4_FLAG_SUPP_MOVED_REFER
    | EXCHGID4_FLAG_SUPP_MOVED_MIGR
    | EXCHGID4_FLAG_BIND_PRINC_STATEID
    | EXCHGID4_FLAG_MASK_PNFS
    | EXCHGID4_FLAG_UPD_CONFIRMED_REC_A;

/// Who made this, for people who look at packets.
const IMPLEMENTATION: NfsImplId4<'static> = NfsImplId4 {
    domain: b"holdfast.invalid",
    name: concat!("Holdfast ", env!("CARGO_PKG_VERSION")).as_bytes(),
    date: NfsTime4 { seconds: 0, nseconds: 0 },
};

impl Op for ExchangeId4Args<'_> {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::ExchangeId, Flags::OUTSIDE_SESSION).reply(64 + 2 * (OWNER_BYTES_MAX + 4) + 128);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        check_flags(self.flags, cx.minor())?;
        check_protection(&self.state_protect)?;
        cx.refuse_strangers()?;
        let principal = cx.principal();
        let is_update = self.flags & EXCHGID4_FLAG_UPD_CONFIRMED_REC_A != 0;
        let request = ExchangeId {
            owner: self.clientowner.ownerid,
            verifier: Verifier(self.clientowner.verifier),
            principal: &principal,
            site: cx.site(),
            intent: if is_update { ExchangeIntent::Update } else { ExchangeIntent::Establish },
        };
        let known = cx.state(|engine, now| Ok(engine.exchange_id(&request, now)?))?;
        let confirmed = if known.is_confirmed { EXCHGID4_FLAG_CONFIRMED_R } else { 0 };
        let service = cx.service().clone();
        let identity = &service.config.identity;
        let ok = ExchangeId4Ok {
            clientid: known.client,
            sequenceid: known.next_seqid,
            flags: EXCHGID4_FLAG_USE_NON_PNFS | confirmed,
            state_protect: StateProtect4R::None,
            server_owner: ServerOwner4 { minor_id: identity.minor_id, major_id: &identity.major_id },
            server_scope: &identity.scope,
            server_impl_id: Some(IMPLEMENTATION),
        };
        ok.encode(cx.reply);
        Ok(Encoded)
    }
}

fn check_flags(flags: u32, minor: Minor) -> OpResult<()> {
    let of_minor = if minor >= Minor::V2 { EXCHGID4_FLAG_SUPP_FENCE_OPS } else { 0 };
    if flags & !(ARGUMENT_FLAGS | of_minor) == 0 { Ok(()) } else { Err(NfsStat4::Inval.into()) }
}

/// SP4_MACH_CRED must be asked for under RPCSEC_GSS with integrity (section 18.35.3), which is not served yet; for
/// SP4_SSV there is no cipher in common.
const fn check_protection(wanted: &StateProtect4A<'_>) -> Result<(), NfsStat4> {
    match wanted {
        StateProtect4A::None => Ok(()),
        StateProtect4A::MachCred(_) => Err(NfsStat4::Inval),
        StateProtect4A::Ssv(_) => Err(NfsStat4::EncrAlgUnsupp),
    }
}

/// Waits: its record goes with it.
impl Op for DestroyClientId4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::DestroyClientId, Flags::OUTSIDE_SESSION.with(Flags::WAITS));
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        cx.state(|engine, now| Ok(engine.destroy_clientid(self.clientid, now)?))
    }
}
