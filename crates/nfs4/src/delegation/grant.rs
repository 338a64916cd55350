//! Giving a delegation, and what is said with it.

use std::time::SystemTime;

use holdfast_base::{ClientId, Timestamp};
use holdfast_export::{ExportOptions, Squash};
use holdfast_manager::{Granted as Decided, Manager, PledgeOn};
use holdfast_state::{DelegationKind, DelegationRequest, Grounds, Seen, StateError, WhyNone};
use holdfast_vfs::{AttrMask, Attrs, FsResult};
use holdfast_wire::nfs4::{
    ACE4_ACCESS_ALLOWED_ACE_TYPE, ACE4_APPEND_DATA, ACE4_EXECUTE, ACE4_READ_DATA, ACE4_WRITE_DATA, NfsAce4,
    OpenDelegation4, OpenReadDelegation4, OpenWriteDelegation4, SpaceLimit4, Stateid4,
};

use super::{DelegatedFile, Expecting, Given, Notifying};
use crate::callback::Referred;
use crate::cx::{At, Cx};
use crate::desc::STATEID_BYTES;
use crate::error::Failure;
use crate::service::Service;

/// Bytes of the longest `open_delegation4`: of a write delegation, with the file's owner as its entry.
pub(crate) const REPLY_BYTES: usize = 4 + STATEID_BYTES + 4 + 12 + 16 + 8;

/// A holder of a write delegation need not send what it wrote when it closes, as long as the file has not grown by
/// more than this part of the free space: what several holders keep back must find room in the end.
const SPACE_PART: u64 = 16;

/// A delegation asked for.
pub(crate) struct Asked<'a> {
    pub(crate) client: ClientId,
    pub(crate) at: &'a At,
    pub(crate) kind: DelegationKind,
    pub(crate) grounds: Grounds,
    pub(crate) has_times: bool,
    /// The open file of the open that it comes with.
    pub(crate) open: Option<DelegatedFile>,
    /// The request that it comes with.
    pub(crate) refers: Option<Referred>,
    /// What it is to tell of a directory's entries.
    pub(crate) notifying: Option<Notifying>,
}

/// A delegation given.
pub(crate) struct Answered {
    pub(crate) given: Given,
    /// To be returned at once.
    is_recalled: bool,
    attrs: Attrs,
}

/// Why a client is given no delegation.
pub(crate) enum NotGiven {
    /// It is not to be had.
    Declined(WhyNone),
    /// It is asked back, and not given for a reason that the client must hear: it may still believe in it.
    Refused(Failure),
}

impl From<WhyNone> for NotGiven {
    fn from(why: WhyNone) -> Self {
        Self::Declined(why)
    }
}

impl NotGiven {
    /// What failed on the way: a reason for giving no delegation, and none for failing the operation that it would have come
    /// with; but for an operation that reclaims it.
    fn failed(grounds: Grounds, error: impl Into<Failure>, why: WhyNone) -> Self {
        match grounds {
            Grounds::Reclaim(_) => Self::Refused(error.into()),
            Grounds::Open(_) | Grounds::Want => Self::Declined(why),
        }
    }

    /// The reason as it is told beside what was asked for.
    pub(crate) const fn why(&self) -> WhyNone {
        match self {
            Self::Declined(why) => *why,
            Self::Refused(_) => WhyNone::Resource,
        }
    }
}

/// Gives a client a delegation, or says why not.
pub(crate) fn delegate(service: &Service, asked: Asked<'_>) -> Result<Answered, NotGiven> {
    let Asked { client, at, kind, grounds, refers, .. } = asked;
    let file = at.handle.key();
    // Cheap to ask ahead: most opens come no further.
    let held = service.look(|engine| engine.holds_delegation(client, file));
    if held.is_some_and(|held| held == kind || held.is_directory()) {
        return match grounds {
            Grounds::Reclaim(_) => given_again(service, asked),
            _ => Err(WhyNone::Held.into()),
        };
    }
    if !matches!(grounds, Grounds::Reclaim(_))
        && !service.can_call_back(client, refers.map(|refers| refers.session))
    {
        return Err(WhyNone::NoCallback.into());
    }
    let Asked { has_times, open, notifying, .. } = asked;
    let attrs = look(at).map_err(|error| NotGiven::failed(grounds, error, WhyNone::Resource))?;
    let fh = service.config.namespace.seal_in(&at.export, &at.handle);
    let expecting = service.delegations.expect((client, file), fh, refers, notifying.is_some());
    let seen = Seen { change: attrs.change, size: attrs.size };
    let unchanged_ms = if kind.is_directory() { age_ms(&service.config.manager, attrs.ctime) } else { 0 };
    let delegates_timestamps = has_times;
    let request = DelegationRequest {
        client,
        file,
        kind,
        grounds,
        delegates_timestamps,
        seen: Some(seen),
        unchanged_ms,
    };
    let change = || Ok(at.backend().getattr(&at.cx(), &at.handle, AttrMask::CHANGE)?.change);
    let open_file = open.as_ref().map(|open| &open.file);
    let on = PledgeOn { backend: at.backend(), handle: &at.handle, open: open_file, change: Some(&change) };
    let delegated = match service.config.manager.delegate(&request, &on) {
        Ok(Decided::Delegated(delegated)) => delegated,
        Ok(Decided::Declined(why)) => return Err(why.into()),
        Err(error) => return Err(NotGiven::failed(grounds, error, why_none(error))),
    };
    let (token, stateid) = (delegated.token, delegated.stateid);
    let given = Given { token, stateid, kind, has_times, notifying, file: open };
    note(service, &expecting, &given);
    Ok(Answered { given, is_recalled: delegated.is_recalled, attrs })
}

/// Notes what a client has been given. What is wanted back by then is recalled.
fn note(service: &Service, expecting: &Expecting<'_>, given: &Given) {
    let token = given.token;
    if !expecting.given(given.clone()) {
        service.tell(|engine, now| engine.recall(token, now));
    }
    if service.look(|engine| engine.delegation_of(token)).is_none() {
        // Revoked as soon as it was given, and its end was told before it was noted.
        drop(service.delegations.ended(token));
    }
}

/// What a client has been given back is its again when it reclaims once more in the same life of the server, as one does whose
/// session broke before it was through (RFC 8881 section 10.2.1: what an earlier instance gave must be granted).
fn given_again(service: &Service, asked: Asked<'_>) -> Result<Answered, NotGiven> {
    let Asked { client, at, grounds, open, refers, .. } = asked;
    let file = at.handle.key();
    let fh = service.config.namespace.seal_in(&at.export, &at.handle);
    let expecting = service.delegations.expect((client, file), fh, refers, false);
    let attrs = look(at).map_err(|error| NotGiven::failed(grounds, error, WhyNone::Resource))?;
    let given = service.delegations.of((client, file));
    let held = service.look(|engine| engine.held_delegation(client, file));
    let (Some(given), Some(held)) = (given, held.filter(|held| held.kind == asked.kind)) else {
        // It has just ended.
        return Err(NotGiven::failed(grounds, StateError::Delay, WhyNone::Held));
    };
    let given = Given { token: held.token, stateid: held.stateid, file: given.file.or(open), ..given };
    note(service, &expecting, &given);
    Ok(Answered { given, is_recalled: held.is_recalled, attrs })
}

/// What is told of a file with a delegation of it.
fn look(at: &At) -> FsResult<Attrs> {
    at.backend().getattr(&at.cx(), &at.handle, AttrMask::STAT.union(AttrMask::CHANGE))
}

/// How long ago that was, in milliseconds, by the time of day, of which the engine takes note; 0 for what is yet to come.
fn age_ms(manager: &Manager, of: Timestamp) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    manager.note_calendar(now);
    let then = u64::try_from(of.seconds).unwrap_or(0).saturating_mul(1000) + u64::from(of.nanos / 1_000_000);
    now.saturating_sub(then)
}

/// What an error of the engine's means for who asked for a delegation.
const fn why_none(error: StateError) -> WhyNone {
    match error {
        // Somebody did meanwhile what it would have excluded.
        StateError::Delay => WhyNone::Contention,
        _ => WhyNone::Resource,
    }
}

impl Answered {
    /// As OPEN and WANT_DELEGATION tell it.
    pub(crate) fn to_wire(&self, at: &At) -> OpenDelegation4<'static> {
        let Given { stateid, kind, has_times, .. } = self.given;
        let stateid = Stateid4 { seqid: stateid.seqid, other: stateid.other };
        let recall = self.is_recalled;
        let permissions = permissions(&self.attrs, kind, &at.export.options);
        if kind == DelegationKind::Write {
            let space_limit = space_limit(at, &self.attrs);
            let write = OpenWriteDelegation4 { stateid, recall, space_limit, permissions };
            if has_times { OpenDelegation4::WriteAttrsDeleg(write) } else { OpenDelegation4::Write(write) }
        } else {
            let read = OpenReadDelegation4 { stateid, recall, permissions };
            if has_times { OpenDelegation4::ReadAttrsDeleg(read) } else { OpenDelegation4::Read(read) }
        }
    }
}

/// Who needs no ACCESS to open the file at the client: its owner, as far as the mode lets him. Nobody else: groups and
/// access lists are judged here. Nor an owner whom the export takes for somebody else.
fn permissions(attrs: &Attrs, kind: DelegationKind, options: &ExportOptions) -> NfsAce4<'static> {
    let is_himself = match options.squash {
        Squash::None => true,
        Squash::Root => attrs.uid != 0,
        Squash::All => false,
    };
    let allows = |bit: u32, mask: u32| if is_himself && attrs.mode & bit != 0 { mask } else { 0 };
    let writes = kind == DelegationKind::Write && !options.is_read_only;
    let write = if writes { allows(0o200, ACE4_WRITE_DATA | ACE4_APPEND_DATA) } else { 0 };
    NfsAce4 {
        ace_type: ACE4_ACCESS_ALLOWED_ACE_TYPE,
        flag: 0,
        access_mask: allows(0o400, ACE4_READ_DATA) | allows(0o100, ACE4_EXECUTE) | write,
        who: b"OWNER@",
    }
}

fn space_limit(at: &At, attrs: &Attrs) -> SpaceLimit4 {
    let free = at.backend().usage(&at.cx(), &at.handle).map_or(0, |usage| usage.bytes_available);
    SpaceLimit4::Size(attrs.size.saturating_add(free / SPACE_PART))
}

impl Cx<'_> {
    /// This request, to be named in calls about what it led to; 4.0 has no way to.
    pub(crate) fn referred(&self) -> Option<Referred> {
        let slot = self.compound.slot.as_ref()?;
        Some(Referred { session: slot.session, slot: slot.slot, seqid: slot.seqid })
    }
}
