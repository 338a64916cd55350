//! The delegation that an OPEN brings, or why it brings none.

use std::panic::{AssertUnwindSafe, catch_unwind};

use holdfast_base::ClientId;
use holdfast_state::{Access, Caller, DelegationKind, Grounds, Share, StateId, WhyNone};
use holdfast_vfs::AttrMask;
use holdfast_wire::nfs4::{Open4Args, OpenClaim4, OpenDelegation4};

use super::find::Found;
use crate::cx::Cx;
use crate::delegation::{Asked, DelegatedFile, NotGiven, delegate as give, reclaimed, wish};
use crate::error::OpResult;
use crate::op::delegation::note;

/// An OPEN that has been granted.
pub(super) struct Opened<'o> {
    pub(super) args: &'o Open4Args<'o>,
    pub(super) client: ClientId,
    pub(super) found: &'o Found,
    pub(super) share: Share,
    pub(super) open: StateId,
    pub(super) is_confirm_needed: bool,
}

/// What is delegated with it; and the delegation's name where the delegation stands in the open's place. The open is
/// granted by now: a backend that panics here must not leave it to a client that was never told of it.
pub(super) fn delegate(cx: &Cx<'_>, opened: &Opened<'_>) -> (OpenDelegation4<'static>, Option<StateId>) {
    catch_unwind(AssertUnwindSafe(|| try_delegate(cx, opened))).unwrap_or_else(|_| {
        (wish(opened.args.share_access, cx.minor()).declined(Some(WhyNone::Resource), false), None)
    })
}

fn try_delegate(cx: &Cx<'_>, opened: &Opened<'_>) -> (OpenDelegation4<'static>, Option<StateId>) {
    let Opened { args, client, found, share, .. } = *opened;
    let wish = wish(args.share_access, cx.minor());
    let kind = match args.claim {
        OpenClaim4::Null(_) | OpenClaim4::Fh => wish.kind(share.access),
        OpenClaim4::Previous(_) => None,
        // It is about to be returned.
        _ => return (wish.declined(Some(WhyNone::Held), false), None),
    };
    if wish.is_cancel() {
        cx.service().cancel_want((client, found.at.handle.key()));
    }
    if opened.is_confirm_needed {
        // RFC 7530 section 16.18.5: an owner that is still to be confirmed may be a made-up one. Its next OPEN may bring
        // one, if the file is by then as it is now.
        look(cx, opened);
        return (wish.declined(None, false), None);
    }
    let Some(kind) = kind else {
        return (wish.declined(None, false), None);
    };
    let grounds = Grounds::Open(opened.open);
    match give(cx.service(), asked(cx, (client, found, share), (kind, wish.has_times), grounds)) {
        Ok(answered) => {
            let serves = kind == DelegationKind::Write || share.access == Access::READ;
            let instead = wish.is_instead && serves && replaces_open(cx, opened);
            if !instead {
                // The open has the descriptor.
                cx.service().delegations.let_go(answered.given.token);
            }
            (answered.to_wire(&found.at), instead.then_some(answered.given.stateid))
        }
        Err(not_given) => {
            let why = not_given.why();
            let is_noted = note(cx, (client, &found.at, kind), &wish, why);
            (wish.declined(Some(why), is_noted), None)
        }
    }
}

/// The delegation that a client says it held with the open that it reclaims. Beside the open, and never in its place, whatever
/// the wish: Linux 7.3 forgets for as long as it recovers that a file is delegated to it, so a lock that its programs ask for
/// in that time goes out to the server afterwards, by the open; refused, it gives up all locks of the file.
///
/// `None` where none is asked back. The open alone is given where others have back what shows that it was returned, or its client has a
/// better one already. Where it is kept back for another reason the open is refused as well: Linux, given that alone, goes on
/// locking by itself as under the delegation.
///
/// # Errors
/// Those of [`NotGiven::Refused`].
pub(super) fn reclaim(
    cx: &Cx<'_>,
    args: &Open4Args<'_>,
    of: (ClientId, &Found, Share),
) -> OpResult<Option<OpenDelegation4<'static>>> {
    let OpenClaim4::Previous(held) = args.claim else { return Ok(None) };
    let Some(which) = reclaimed(held) else { return Ok(None) };
    let (client, found, _) = of;
    let grounds = Grounds::Reclaim(cx.recorded(client));
    let answered = match give(cx.service(), asked(cx, of, which, grounds)) {
        Ok(answered) => answered,
        Err(NotGiven::Declined(why)) => {
            return Ok(Some(wish(args.share_access, cx.minor()).declined(Some(why), false)));
        }
        Err(NotGiven::Refused(failure)) => return Err(failure),
    };
    // The open has the descriptor.
    cx.service().delegations.let_go(answered.given.token);
    Ok(Some(answered.to_wire(&found.at)))
}

fn asked<'f>(
    cx: &Cx<'_>,
    (client, found, share): (ClientId, &'f Found, Share),
    (kind, has_times): (DelegationKind, bool),
    grounds: Grounds,
) -> Asked<'f> {
    let uid = found.at.cx().caller.uid;
    let open = found.file.clone().map(|file| DelegatedFile { file, access: share.access, uid });
    let refers = cx.referred();
    Asked { client, at: &found.at, kind, grounds, has_times, open, refers, notifying: None }
}

/// Notes the file as it is after an OPEN that brings no delegation, before its reply leaves.
fn look(cx: &Cx<'_>, opened: &Opened<'_>) {
    let at = &opened.found.at;
    // A file that cannot be looked at is delegated once its owner has closed it.
    if let Ok(attrs) = at.backend().getattr(&at.cx(), &at.handle, AttrMask::CHANGE) {
        let file = at.handle.key();
        cx.service().tell(|engine, _| engine.note_look(opened.open, file, attrs.change));
    }
}

/// Takes the open back, now that a delegation stands for it (RFC 9754 section 4): unless its owner had the file open
/// before, or denies others something, which a delegation does not.
fn replaces_open(cx: &Cx<'_>, opened: &Opened<'_>) -> bool {
    let is_new = opened.open.seqid.0 == 1 && opened.share.deny == Access::NONE;
    let file = opened.found.at.handle.key();
    is_new
        && cx
            .state(|engine, now| Ok(engine.close(Caller::V41(opened.client), opened.open, file, now)?))
            .is_ok()
}
