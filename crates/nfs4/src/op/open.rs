//! OPEN (RFC 8881 section 18.16, RFC 7530 section 16.16): finds or makes a regular file, reserves a share of it,
//! and opens it in the backend. What is found and how it is made is in `open/find.rs`; the descriptor behind the
//! open in `open/back.rs`.

use holdfast_base::ClientId;
use holdfast_rpc::Mode;
use holdfast_state::{Access, Claim, Deed, OpenRequest, OwnerOf, OwnerOp, Recorded, Share, StateId};
use holdfast_wire::nfs4::{
    CreateHow4, NfsStat4, OPEN4_RESULT_CONFIRM, OPEN4_RESULT_LOCKTYPE_POSIX, OPEN4_RESULT_MAY_NOTIFY_LOCK,
    OPEN4_RESULT_NO_OPEN_STATEID, OPEN4_SHARE_ACCESS_WANT_CANCEL, OPEN4_SHARE_ACCESS_WANT_DELEG_MASK,
    OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS, OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION,
    OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED,
    OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL, OpNum4, Open4Args, Open4Ok, OpenClaim4,
    OpenDelegation4, OpenFlag4, Stateid4,
};
use holdfast_xdr::Encode;

use self::back::Backed;
use self::delegated::Opened;
use self::find::Found;
use self::granting::Granting;
use super::{Encoded, Op};
use crate::cx::{At, Cx};
use crate::delegation::{self, wish};
use crate::desc::{BITMAP_BYTES, CHANGE_INFO_BYTES, Flags, Minor, OpDesc, STATEID_BYTES};
use crate::error::{Failure, OpResult};
use crate::owner::{Turn, in_turn};

mod back;
mod delegated;
mod find;
mod granting;

/// Bits that may stand beside the access itself, from 4.1 on.
const WANTS: u32 = OPEN4_SHARE_ACCESS_WANT_DELEG_MASK
    | OPEN4_SHARE_ACCESS_WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL
    | OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED
    | OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS
    | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;

const REPLY_BYTES: usize = STATEID_BYTES + CHANGE_INFO_BYTES + 4 + BITMAP_BYTES + delegation::REPLY_BYTES;

impl Op for Open4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::Open, Flags::NEEDS_FH.with(Flags::MODIFIES)).reply(REPLY_BYTES);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        check_minor(&self, cx.minor())?;
        // Making a file waits for the disk where the export is synchronous; to be known before the owner's turn.
        let creates = matches!(self.openhow, OpenFlag4::Create(_));
        if creates && cx.mode == Mode::Inline && is_sync(cx)? {
            return Err(Failure::Wait);
        }
        let client = if cx.minor().has_sessions() { cx.client()? } else { self.owner.clientid };
        cx.compound.tells_of_restart &= !matches!(self.claim, OpenClaim4::Previous(_));
        if creates && !cx.minor().has_sessions() && cx.is_resumed()? {
            note_holder(cx, &self, client)?;
            of_former_run(cx, &self)?.encode(cx.reply);
            return Ok(Encoded);
        }
        if !cx.minor().has_sessions() && matches!(self.claim, OpenClaim4::Previous(_)) {
            // Also by one that is sent again, and is not run: to ask is to have noted that it reclaims.
            let _ = cx.recorded(client);
        }
        let of = OwnerOf::Open { client, name: self.owner.owner };
        in_turn(cx, Turn { of, seqid: self.seqid, op: OwnerOp::Open }, |cx| {
            // Within the turn: a record that cannot be stored is a failure that steps the owner's number.
            note_holder(cx, &self, client)?;
            open(cx, &self, client)
        })
    }
}

/// Sees to it that the client is on record as one that may hold state.
fn note_holder(cx: &mut Cx<'_>, args: &Open4Args<'_>, client: ClientId) -> OpResult<()> {
    if may_be_admitted(cx, args, client)? { cx.will_hold_state(client) } else { Ok(()) }
}

/// Whether the OPEN is one that may be granted at all: who merely tries is not to be taken for a holder after a restart.
/// What is wrong with the others the engine says.
fn may_be_admitted(cx: &mut Cx<'_>, args: &Open4Args<'_>, client: ClientId) -> OpResult<bool> {
    match args.claim {
        OpenClaim4::Previous(_) => Ok(cx.recorded(client) == Recorded::Yes),
        // Who has a delegation holds state already.
        OpenClaim4::DelegateCur(_) | OpenClaim4::DelegCurFh(_) => Ok(true),
        _ if cx.state(|engine, now| Ok(engine.admits_new(client, now)))? => Ok(true),
        _ => Ok(matches!(args.openhow, OpenFlag4::Create(_)) && cx.is_resumed()?),
    }
}

/// What a minor version does not have cannot be decoded in it.
const fn check_minor(args: &Open4Args<'_>, minor: Minor) -> Result<(), NfsStat4> {
    let is_of_v1 = matches!(args.claim, OpenClaim4::Fh | OpenClaim4::DelegCurFh(_) | OpenClaim4::DelegPrevFh)
        || matches!(args.openhow, OpenFlag4::Create(CreateHow4::Exclusive41(_)));
    if is_of_v1 && !minor.has_sessions() { Err(NfsStat4::BadXdr) } else { Ok(()) }
}

/// Whether a reclaim asks for what was reclaimed already.
fn has_reclaimed(cx: &mut Cx<'_>, args: &Open4Args<'_>, client: ClientId, share: Share) -> bool {
    let Ok(at) = cx.at(NfsStat4::Inval) else { return false };
    let file = at.handle.key();
    cx.service().look(|engine| engine.has_reclaimed(client, args.owner.owner, file, share))
}

fn is_sync(cx: &Cx<'_>) -> OpResult<bool> {
    Ok(match cx.current()? {
        holdfast_export::Object::Export(export, _) => export.options.is_sync,
        holdfast_export::Object::Pseudo(_) => false,
    })
}

fn open(cx: &mut Cx<'_>, args: &Open4Args<'_>, client: ClientId) -> OpResult<Open4Ok<'static>> {
    let share = share_of(args, cx.minor())?;
    let claim = claim_of(cx, args, client)?;
    let is_resumed = matches!(args.openhow, OpenFlag4::Create(_)) && cx.is_resumed()?;
    // A file must not be made for an open that is refused (RFC 8881 section 8.4.2.1), and a reclaim that is too late must not
    // be put off until the server's next restart, in which it might be taken for one in time.
    let is_again = matches!(claim, Claim::Reclaim(_)) && has_reclaimed(cx, args, client, share);
    cx.state(|engine, now| match claim {
        Claim::Reclaim(_) if is_again => Ok(()),
        Claim::Reclaim(recorded) => Ok(engine.admits_reclaim(client, recorded, now)?),
        Claim::New if !is_resumed && !engine.admits_new(client, now) => Err(NfsStat4::Grace.into()),
        _ => Ok(()),
    })?;
    let mut found = find::find(cx, args, share.access, client)?;
    let file = found.at.handle.key();
    let claim = if is_resumed { Claim::Resumed { made: file } } else { claim };
    let request = OpenRequest { client, owner: args.owner.owner, file, share, claim };
    // Permission for what was held before, or is held under a delegation, was given then.
    let is_reclaim = matches!(claim, Claim::Reclaim(_) | Claim::Delegated(_));
    let wanted = Backed { access: share.access, is_reclaim };
    back::ask(cx, &mut found, &request, wanted)?;
    if !is_reclaim {
        wait_for_recall(cx, &found.at, share)?;
    }
    let granting = Granting::begin(cx, &request)?;
    back::back(cx, &mut found, &granting, wanted)?;
    resize(cx, &found, share.access)?;
    cx.set_current(found.at.object())?;
    // Not without the delegation that it was held with.
    let reclaimed = delegated::reclaim(cx, args, (client, &found, share))?;
    let is_confirm_needed = granting.is_confirm_needed;
    let opened = Opened { args, client, found: &found, share, open: granting.grant()?, is_confirm_needed };
    cx.names_client(client);
    let (delegation, instead) = match reclaimed {
        Some(delegation) => (delegation, None),
        None => delegated::delegate(cx, &opened),
    };
    let confirm = if is_confirm_needed { OPEN4_RESULT_CONFIRM } else { 0 };
    let notify = if cx.minor().has_sessions() { OPEN4_RESULT_MAY_NOTIFY_LOCK } else { 0 };
    let no_open = if instead.is_some() { OPEN4_RESULT_NO_OPEN_STATEID } else { 0 };
    let current = cx.set_current_stateid(instead.unwrap_or(opened.open));
    let ok = Open4Ok {
        // RFC 9754 section 4: all zero where the delegation is all that there is.
        stateid: if instead.is_some() { Stateid4::ANONYMOUS } else { current },
        cinfo: found.cinfo,
        rflags: OPEN4_RESULT_LOCKTYPE_POSIX | confirm | notify | no_open,
        attrset: found.attrset,
        delegation,
    };
    if !matches!(ok.delegation, OpenDelegation4::None | OpenDelegation4::NoneExt(_)) {
        cx.record_instead(&ok, &without_delegation(&opened, &ok));
    }
    Ok(ok)
}

/// What the journal is told of an OPEN that brought a delegation: the open alone, of which its client learns that it is gone once
/// it uses it. A delegation is not used by asking the server: Linux 7.3, where this answer meets it on its way to recovery, went
/// on with one that nobody knew any more.
fn without_delegation(opened: &Opened<'_>, ok: &Open4Ok<'_>) -> Open4Ok<'static> {
    let StateId { seqid, other } = opened.open;
    Open4Ok {
        stateid: Stateid4 { seqid, other },
        cinfo: ok.cinfo,
        rflags: ok.rflags & !OPEN4_RESULT_NO_OPEN_STATEID,
        attrset: ok.attrset,
        delegation: OpenDelegation4::None,
    }
}

/// Has what others are promised against this OPEN recalled, and waits for it a moment: the engine itself only refuses.
fn wait_for_recall(cx: &Cx<'_>, at: &At, share: Share) -> OpResult<()> {
    let writes = share.access.contains(Access::WRITE) || !share.deny.is_none();
    let deed = if writes { Deed::OpenWrite } else { Deed::OpenRead };
    Ok(cx.config().manager.contend_if_promised(&at.handle, deed, &at.cx())?)
}

/// The answer to an OPEN of 4.0 that a crash cut short when its file was made: no client of the former run is known
/// any more, so it is told what it would have been told just before the crash. With the next request it learns of the
/// restart, and reclaims.
fn of_former_run(cx: &mut Cx<'_>, args: &Open4Args<'_>) -> OpResult<Open4Ok<'static>> {
    let access = share_of(args, cx.minor())?.access;
    let found = find::find(cx, args, access, args.owner.clientid)?;
    resize(cx, &found, access)?;
    cx.set_current(found.at.object())?;
    Ok(Open4Ok {
        stateid: cx.set_current_stateid(StateId::of_former_run(cx.config().manager.boot())),
        cinfo: found.cinfo,
        rflags: OPEN4_RESULT_LOCKTYPE_POSIX,
        attrset: found.attrset,
        delegation: wish(args.share_access, cx.minor()).declined(None, false),
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

/// On what grounds the open is asked for.
fn claim_of(cx: &Cx<'_>, args: &Open4Args<'_>, client: ClientId) -> OpResult<Claim> {
    let creates = matches!(args.openhow, OpenFlag4::Create(_));
    match args.claim {
        OpenClaim4::Null(_) => Ok(Claim::New),
        // Claims from a client's earlier life need DELEGPURGE, which is not served.
        OpenClaim4::DelegatePrev(_) | OpenClaim4::DelegPrevFh => Err(NfsStat4::NotSupp.into()),
        _ if creates => Err(NfsStat4::Inval.into()),
        OpenClaim4::Fh => Ok(Claim::New),
        OpenClaim4::Previous(_) => Ok(Claim::Reclaim(cx.recorded(client))),
        OpenClaim4::DelegateCur(held) => Ok(Claim::Delegated(cx.stateid(held.delegate_stateid)?)),
        OpenClaim4::DelegCurFh(held) => Ok(Claim::Delegated(cx.stateid(held)?)),
    }
}
