//! DELEGRETURN (RFC 8881 section 18.6), WANT_DELEGATION (18.49) and GET_DIR_DELEGATION (18.39): delegations without an
//! OPEN, and their end.

use holdfast_base::ClientId;
use holdfast_export::Object;
use holdfast_state::{Access, DelegationKind, Grounds, WantHow, WhyNone};
use holdfast_vfs::FileKind;
use holdfast_wire::nfs4::{
    Bitmap4, DelegClaim4, DelegReturn4Args, GetDirDelegation4Args, GetDirDelegation4Granted,
    GetDirDelegation4Ok, NfsStat4, OpNum4, OpenDelegation4, OpenNoneDelegation4, WantDelegation4Args,
};

use super::{Op, readdir};
use crate::attr::KIND;
use crate::cx::{At, Cx};
use crate::delegation::{Asked, NotGiven, Notifying, REPLY_BYTES, Wish, delegate, reclaimed, wish};
use crate::desc::{BITMAP_BYTES, Flags, OpDesc, STATEID_BYTES};
use crate::error::OpResult;
use crate::io::{must_be_regular, permit};

impl Op for DelegReturn4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::DelegReturn, Flags::NEEDS_FH.with(Flags::MODIFIES));
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let stateid = cx.stateid(self.deleg_stateid)?;
        let caller = cx.state_caller()?;
        let file = cx.at(NfsStat4::BadStateid)?.handle.key();
        cx.state(|engine, now| Ok(engine.delegation_return(caller, stateid, file, now)?))
    }
}

impl Op for WantDelegation4Args {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::WantDelegation, Flags::NEEDS_FH.with(Flags::MODIFIES)).reply(REPLY_BYTES);
    type Ok = OpenDelegation4<'static>;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<OpenDelegation4<'static>> {
        let client = cx.client()?;
        cx.compound.tells_of_restart &= !matches!(self.claim, DelegClaim4::Previous(_));
        let wish = wish(self.want, cx.minor());
        let at = match cx.current()? {
            Object::Pseudo(_) => return Ok(OpenDelegation4::NoneExt(OpenNoneDelegation4::IsDir)),
            Object::Export(..) => cx.at(NfsStat4::IsDir)?,
        };
        match at.backend().getattr(&at.cx(), &at.handle, KIND)?.kind {
            FileKind::Directory => return Ok(OpenDelegation4::NoneExt(OpenNoneDelegation4::IsDir)),
            kind => must_be_regular(kind)?,
        }
        let (grounds, kind, has_times) = match self.claim {
            DelegClaim4::DelegPrevFh => return Err(NfsStat4::NotSupp.into()),
            DelegClaim4::Fh => (Grounds::Want, wish.kind_alone(), wish.has_times),
            DelegClaim4::Previous(held) => {
                let (kind, has_times) = reclaimed(held).ok_or(NfsStat4::Inval)?;
                (Grounds::Reclaim(cx.recorded(client)), Some(kind), has_times)
            }
        };
        let Some(kind) = kind else {
            if wish.is_cancel() {
                cx.service().cancel_want((client, at.handle.key()));
            }
            return Ok(wish.declined(None, false));
        };
        if grounds == Grounds::Want {
            // No OPEN has asked. Who may write may also say what the file's attributes are.
            permit(&at, access_for(kind))?;
            if kind == DelegationKind::Write && at.export.options.is_read_only {
                return Ok(wish.declined(Some(WhyNone::Resource), false));
            }
        }
        if let Grounds::Reclaim(recorded) = grounds {
            cx.state(|engine, now| match engine.has_reclaimed_delegation(client, at.handle.key(), kind) {
                true => Ok(()),
                false => Ok(engine.admits_reclaim(client, recorded, now)?),
            })?;
        }
        if !cx.will_hold_if_admitted(client, grounds)? {
            return Ok(wish.declined(Some(WhyNone::Grace), false));
        }
        let refers = cx.referred();
        let asked = Asked { client, at: &at, kind, grounds, has_times, open: None, refers, notifying: None };
        match delegate(cx.service(), asked) {
            Ok(answered) => {
                cx.set_current_stateid(answered.given.stateid);
                let given = answered.to_wire(&at);
                cx.record_instead(&given, &OpenDelegation4::None);
                Ok(given)
            }
            Err(NotGiven::Refused(failure)) => Err(failure),
            // Without an open there is nothing else to give.
            Err(NotGiven::Declined(WhyNone::Contention)) if grounds != Grounds::Want => {
                Err(NfsStat4::ReclaimConflict.into())
            }
            Err(NotGiven::Declined(why)) => {
                let is_noted = note(cx, (client, &at, kind), &wish, why);
                Ok(wish.declined(Some(why), is_noted))
            }
        }
    }
}

/// What a holder may do with the file by itself.
const fn access_for(kind: DelegationKind) -> Access {
    match kind {
        DelegationKind::Write => Access::BOTH,
        DelegationKind::Read | DelegationKind::Directory | DelegationKind::NotifiedDirectory(_) => {
            Access::READ
        }
    }
}

/// Notes a wish that cannot be fulfilled now, where the client asked for that and there is room.
pub(super) fn note(
    cx: &Cx<'_>,
    (client, at, kind): (ClientId, &At, DelegationKind),
    wish: &Wish,
    why: WhyNone,
) -> bool {
    let Some(how) = wish.later.filter(|_| matches!(why, WhyNone::Contention | WhyNone::Resource)) else {
        return false;
    };
    let file = at.handle.key();
    let is_noted = cx.state(|engine, _| Ok(engine.delegation_want(client, file, kind, how)?)).is_ok();
    if is_noted && how == WantHow::Push {
        let fh = cx.config().namespace.seal_in(&at.export, &at.handle);
        cx.service().delegations.want((client, file), fh);
    } else if is_noted {
        cx.service().delegations.forget_want((client, file));
    }
    is_noted
}

/// Bytes of the largest answer: tag, verifier, state id, three sets.
const GRANTED_BYTES: usize = 4 + 8 + STATEID_BYTES + 3 * BITMAP_BYTES;

impl Op for GetDirDelegation4Args {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::GetDirDelegation, Flags::NEEDS_FH.with(Flags::MODIFIES)).reply(GRANTED_BYTES);
    type Ok = GetDirDelegation4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<GetDirDelegation4Ok> {
        let client = cx.client()?;
        if matches!(cx.current()?, Object::Pseudo(_)) {
            return Ok(GetDirDelegation4Ok::Unavail(false));
        }
        let at = cx.at(NfsStat4::NotDir)?;
        if at.backend().getattr(&at.cx(), &at.handle, KIND)?.kind != FileKind::Directory {
            return Err(NfsStat4::NotDir.into());
        }
        permit(&at, Access::READ)?;
        if !cx.will_hold_if_admitted(client, Grounds::Want)? {
            return Ok(GetDirDelegation4Ok::Unavail(false));
        }
        let notifying = Notifying::wanted(&self).filter(|_| cx.service().options.notifies);
        let kind = notifying.map_or(DelegationKind::Directory, |told| told.delegation());
        let (grounds, refers) = (Grounds::Want, cx.referred());
        let asked = Asked { client, at: &at, kind, grounds, has_times: false, open: None, refers, notifying };
        let Ok(answered) = delegate(cx.service(), asked) else {
            return Ok(GetDirDelegation4Ok::Unavail(false));
        };
        let granted = GetDirDelegation4Ok::Granted(GetDirDelegation4Granted {
            cookieverf: readdir::VERIFIER,
            stateid: cx.set_current_stateid(answered.given.stateid),
            notification: notifying.map_or(Bitmap4::EMPTY, |told| told.kinds),
            child_attributes: notifying.map_or(Bitmap4::EMPTY, |told| told.of_entries),
            dir_attributes: notifying.map_or(Bitmap4::EMPTY, |told| told.of_directory),
        });
        cx.record_instead(&granted, &GetDirDelegation4Ok::Unavail(false));
        Ok(granted)
    }
}
