//! OPEN (RFC 8881 section 18.16, RFC 7530 section 16.16): finds or makes a regular file, reserves a share of it,
//! and opens it in the backend. What is found and how it is made is in `open/find.rs`; the descriptor behind the
//! open in `open/back.rs`.

use holdfast_base::ClientId;
use holdfast_state::{Access, Claim, OpenRequest, OwnerOf, OwnerOp, Share, StateId};
use holdfast_wire::nfs4::{
    CreateHow4, NfsStat4, OPEN4_RESULT_CONFIRM, OPEN4_RESULT_LOCKTYPE_POSIX, OPEN4_RESULT_MAY_NOTIFY_LOCK,
    OPEN4_SHARE_ACCESS_WANT_CANCEL, OPEN4_SHARE_ACCESS_WANT_DELEG_MASK,
    OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS, OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
    OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE, OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION,
    OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED,
    OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL, OpNum4, Open4Args, Open4Ok, OpenClaim4,
    OpenDelegation4, OpenFlag4, OpenNoneDelegation4,
};
use holdfast_xdr::Encode;

use self::back::Backed;
use self::find::Found;
use self::granting::Granting;
use super::{Encoded, Op};
use crate::cx::{At, Cx};
use crate::desc::{BITMAP_BYTES, CHANGE_INFO_BYTES, Flags, Minor, OpDesc, STATEID_BYTES};
use crate::error::OpResult;
use crate::owner::{Turn, in_turn};

mod back;
mod find;
mod granting;

/// Bits that may stand beside the access itself, from 4.1 on.
const WANTS: u32 = OPEN4_SHARE_ACCESS_WANT_DELEG_MASK
    | OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL
    | OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED
    | OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS
    | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;

/// Without delegations, what follows their type is two words at most.
const REPLY_BYTES: usize = STATEID_BYTES + CHANGE_INFO_BYTES + 4 + BITMAP_BYTES + 12;

impl Op for Open4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::Open, Flags::NEEDS_FH.with(Flags::MODIFIES)).reply(REPLY_BYTES);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        check_minor(&self, cx.minor())?;
        // Making a file waits for the disk where the export is synchronous; to be known before the owner's turn.
        let creates = matches!(self.openhow, OpenFlag4::Create(_));
        if creates && is_sync(cx)? {
            cx.must_wait()?;
        }
        let client = if cx.minor().has_sessions() { cx.client()? } else { self.owner.clientid };
        cx.will_hold_state(client)?;
        if creates && !cx.minor().has_sessions() && cx.is_resumed()? {
            of_former_run(cx, &self)?.encode(cx.reply);
            return Ok(Encoded);
        }
        let of = OwnerOf::Open { client, name: self.owner.owner };
        in_turn(cx, Turn { of, seqid: self.seqid, op: OwnerOp::Open }, |cx| open(cx, &self, client))
    }
}

/// What a minor version does not have cannot be decoded in it.
const fn check_minor(args: &Open4Args<'_>, minor: Minor) -> Result<(), NfsStat4> {
    let is_of_v1 = matches!(args.claim, OpenClaim4::Fh | OpenClaim4::DelegCurFh(_) | OpenClaim4::DelegPrevFh)
        || matches!(args.openhow, OpenFlag4::Create(CreateHow4::Exclusive41(_)));
    if is_of_v1 && !minor.has_sessions() { Err(NfsStat4::BadXdr) } else { Ok(()) }
}

fn is_sync(cx: &Cx<'_>) -> OpResult<bool> {
    Ok(match cx.current()? {
        holdfast_export::Object::Export(export, _) => export.options.is_sync,
        holdfast_export::Object::Pseudo(_) => false,
    })
}

fn open(cx: &mut Cx<'_>, args: &Open4Args<'_>, client: ClientId) -> OpResult<Open4Ok<'static>> {
    let share = share_of(args, cx.minor())?;
    let claim = match claim_of(cx, args, client)? {
        Claim::New if matches!(args.openhow, OpenFlag4::Create(_)) && cx.is_resumed()? => Claim::Resumed,
        claim => claim,
    };
    // A file must not be made for an open that is refused (RFC 8881 section 8.4.2.1).
    cx.state(|engine, now| match claim {
        Claim::New if engine.grace().is_on(now) => Err(NfsStat4::Grace.into()),
        _ => Ok(()),
    })?;
    let mut found = find::find(cx, args, share.access)?;
    let request = OpenRequest { client, owner: args.owner.owner, file: found.at.handle.key(), share, claim };
    let wanted = Backed { access: share.access, is_reclaim: matches!(claim, Claim::Reclaim(_)) };
    back::ask(cx, &mut found, &request, wanted)?;
    let granting = Granting::begin(cx, &request)?;
    back::back(cx, &mut found, &granting, wanted)?;
    resize(cx, &found, share.access)?;
    cx.set_current(found.at.object())?;
    let confirm = if granting.is_confirm_needed { OPEN4_RESULT_CONFIRM } else { 0 };
    let notify = if cx.minor().has_sessions() { OPEN4_RESULT_MAY_NOTIFY_LOCK } else { 0 };
    Ok(Open4Ok {
        stateid: cx.set_current_stateid(granting.grant()?),
        cinfo: found.cinfo,
        rflags: OPEN4_RESULT_LOCKTYPE_POSIX | confirm | notify,
        attrset: found.attrset,
        delegation: no_delegation(args.share_access, cx.minor()),
    })
}

/// The answer to an OPEN of 4.0 that a crash cut short when its file was made: no client of the former run is known
/// any more, so it is told what it would have been told just before the crash. With the next request it learns of the
/// restart, and reclaims.
fn of_former_run(cx: &mut Cx<'_>, args: &Open4Args<'_>) -> OpResult<Open4Ok<'static>> {
    let access = share_of(args, cx.minor())?.access;
    let found = find::find(cx, args, access)?;
    resize(cx, &found, access)?;
    cx.set_current(found.at.object())?;
    Ok(Open4Ok {
        stateid: cx.set_current_stateid(StateId::of_former_run(cx.config().boot)),
        cinfo: found.cinfo,
        rflags: OPEN4_RESULT_LOCKTYPE_POSIX,
        attrset: found.attrset,
        delegation: no_delegation(args.share_access, cx.minor()),
    })
}

/// Cuts or extends the file, now that its share is reserved. An open for reading cannot do it: the caller's own right
/// counts then.
fn resize(cx: &mut Cx<'_>, found: &Found, access: Access) -> OpResult<()> {
    let Some(size) = found.resize else { return Ok(()) };
    let at: &At = &found.at;
    let file = match &found.file {
        Some(open) if access.contains(Access::WRITE) => holdfast_vfs::File::Open(&at.handle, open),
        _ => holdfast_vfs::File::Stateless(&at.handle),
    };
    let set = holdfast_vfs::SetAttrs { size: Some(size), ..Default::default() };
    at.backend().setattr(&at.cx(), file, &set, None)?;
    cx.touched(at, at.handle);
    Ok(())
}

fn share_of(args: &Open4Args<'_>, minor: Minor) -> Result<Share, NfsStat4> {
    let wants = if minor.has_sessions() { args.share_access & WANTS } else { 0 };
    if wants & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK > OPEN4_SHARE_ACCESS_WANT_CANCEL {
        return Err(NfsStat4::Inval);
    }
    let access = Access::from_bits(args.share_access & !wants).filter(|access| !access.is_none());
    match (access, Access::from_bits(args.share_deny)) {
        (Some(access), Some(deny)) => Ok(Share { access, deny }),
        _ => Err(NfsStat4::Inval),
    }
}

/// On what grounds the open is asked for. No delegation was ever given out, so none can be claimed under.
fn claim_of(cx: &Cx<'_>, args: &Open4Args<'_>, client: ClientId) -> OpResult<Claim> {
    let creates = matches!(args.openhow, OpenFlag4::Create(_));
    match args.claim {
        OpenClaim4::Null(_) => Ok(Claim::New),
        OpenClaim4::Fh | OpenClaim4::Previous(_) if creates => Err(NfsStat4::Inval.into()),
        OpenClaim4::Fh => Ok(Claim::New),
        OpenClaim4::Previous(_) => Ok(Claim::Reclaim(cx.recorded(client))),
        OpenClaim4::DelegateCur(_) | OpenClaim4::DelegCurFh(_) => Err(NfsStat4::BadStateid.into()),
        // Claims from a client's earlier life need DELEGPURGE, which is not served.
        OpenClaim4::DelegatePrev(_) | OpenClaim4::DelegPrevFh => Err(NfsStat4::NotSupp.into()),
    }
}

/// That there is no delegation, and why, where the client said that it cares.
const fn no_delegation(share_access: u32, minor: Minor) -> OpenDelegation4<'static> {
    let want = share_access & OPEN4_SHARE_ACCESS_WANT_DELEG_MASK;
    if !minor.has_sessions() {
        return OpenDelegation4::None;
    }
    match want {
        OPEN4_SHARE_ACCESS_WANT_NO_PREFERENCE => OpenDelegation4::None,
        OPEN4_SHARE_ACCESS_WANT_NO_DELEG => OpenDelegation4::NoneExt(OpenNoneDelegation4::NotWanted),
        OPEN4_SHARE_ACCESS_WANT_CANCEL => OpenDelegation4::NoneExt(OpenNoneDelegation4::Cancelled),
        _ => OpenDelegation4::NoneExt(OpenNoneDelegation4::Resource(false)),
    }
}
