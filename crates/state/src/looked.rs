//! How current the data is that a client keeps of a file it has open: what can be known of it here.

use holdfast_base::limits::{DIRECTORY_AGE_SLACK_MS, DIRECTORY_AGE_SLACK_PART};
use holdfast_base::{ChangeId, ClientId, FileKey, Instant};
use serde::{Deserialize, Serialize};

use crate::delegation::DelegationRequest;
use crate::engine::{Engine, Kind, StateKey};
use crate::policy::Directories;
use crate::stateid::StateId;

/// How the file was after the OPENs of one owner, each looked at before its reply left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Looked {
    /// OPENs granted.
    pub(crate) granted: u32,
    /// Those of them after which the file's change attribute was `change`.
    pub(crate) alike: u32,
    #[serde(with = "crate::plain")]
    change: Option<ChangeId>,
}

impl Looked {
    /// Of an open that came from a version that did not look: as if one OPEN had not been seen.
    pub(crate) const fn unknown() -> Self {
        Self { granted: 2, alike: 0, change: None }
    }

    pub(crate) const fn granted(&mut self) {
        self.granted = self.granted.saturating_add(1);
    }

    fn look(&mut self, change: ChangeId) {
        // One that differs is never made good: what the client has kept since then may be of before or after.
        self.alike += u32::from(*self.change.get_or_insert(change) == change && self.alike < self.granted);
    }
}

/// How the time of day goes beside the engine's clock.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CalendarSeen {
    /// When it was last looked at, and what it was when the engine's clock stood at 0, in milliseconds.
    #[serde(with = "crate::plain")]
    last: Option<(Instant, u64)>,
    /// When it was last seen to have been set, and not just slewed.
    #[serde(with = "crate::plain")]
    set_at: Option<Instant>,
}

impl CalendarSeen {
    fn note(&mut self, unix_ms: u64, now: Instant) {
        let origin = unix_ms.wrapping_sub(now.0);
        if let Some((at, before)) = self.last {
            let moved = (origin.wrapping_sub(before) as i64).unsigned_abs();
            if moved > DIRECTORY_AGE_SLACK_MS / 2 + now.ms_since(at) / DIRECTORY_AGE_SLACK_PART {
                self.set_at = Some(now);
            }
        }
        self.last = Some((now, origin));
    }
}

/// When data that a client keeps of a file is current, should it be delegated now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Whatever the client does.
    Current,
    /// If the file's change attribute is still this, looked at once nobody else can change it any more.
    If(ChangeId),
    /// Nothing shows that it is.
    Unknown,
}

impl Engine {
    /// Notes the file as it was after an OPEN was granted, before the OPEN's reply leaves. Once an OPEN.
    pub fn note_look(&mut self, open: StateId, file: FileKey, change: ChangeId) {
        let key = StateKey(open.parts().1);
        if self.state(key).is_ok_and(|state| state.file == file)
            && let Ok(open) = self.open_mut(key)
        {
            open.looked.look(change);
        }
    }

    /// Whether what a client keeps of a file is current when an OPEN, one of those granted, brings it a delegation.
    ///
    /// Linux drops what it keeps when the attributes that come with an OPEN show a change, but not while any of its
    /// processes has the file open to write, *or is about to*: then it takes every change for its own, and drops it when
    /// it next opens the file having had it closed, or takes a lock; under a delegation locks drop nothing. An OPEN to
    /// write that is still on its way can be known by nobody here. So it must not matter whether there is one:
    ///
    /// * the OPEN is the client's only one of the file. Other OPENs of its that are under way come after the offer, and
    ///   nobody else changes the file from then on; whichever reply the client sees first finds the file closed;
    /// * the client has a delegation, so nobody else has changed the file since that came;
    /// * the file is as it was after each of the client's OPENs, so nobody has.
    pub(crate) fn kept_data(&self, client: ClientId, file: FileKey) -> Kept {
        if self.holds_delegation(client, file).is_some() {
            return Kept::Current;
        }
        let opens = self.files.get(&file).map(|of| of.opens.as_slice()).unwrap_or_default();
        let (mut granted, mut seen, mut all_alike) = (0, None, true);
        for state in opens.iter().filter_map(|key| self.states.get(key.0)) {
            let Kind::Open(open) = &state.kind else { continue };
            // One under way, and none before it, is no OPEN yet.
            if state.client != client || open.looked.granted == 0 {
                continue;
            }
            let looked = open.looked;
            granted += u64::from(looked.granted);
            all_alike &=
                looked.granted == looked.alike && looked.change == *seen.get_or_insert(looked.change);
        }
        match seen.flatten() {
            _ if granted <= 1 => Kept::Current,
            Some(change) if all_alike => Kept::If(change),
            _ => Kept::Unknown,
        }
    }

    /// Whether every name that a client can know of a directory is current, because the directory is as it was before the
    /// client came. What it has seen of it since then cannot be told: a name that it looked up, that another has replaced since,
    /// and that it has not asked for again is current to Linux (6.19 to 7.3) from the moment that it has the delegation.
    pub(crate) fn knows_no_other_names(&self, request: &DelegationRequest, now: Instant) -> bool {
        let came = self.clients.by_id.get(&request.client).and_then(|client| client.new_at);
        let is_older = |came: Instant| {
            // Its age is told by another clock, which is set now and then, and has been running fast or slow.
            let known = now.ms_since(came);
            request.unchanged_ms
                > known.saturating_add(DIRECTORY_AGE_SLACK_MS + known / DIRECTORY_AGE_SLACK_PART)
        };
        let is_by_this_calendar = |came: &Instant| self.calendar.set_at.is_none_or(|set_at| *came > set_at);
        self.policy.directories == Directories::Always
            || came.filter(is_by_this_calendar).is_some_and(is_older)
    }

    /// Notes what time of day it is, in milliseconds since 1970: a calendar that is set makes directories look older or younger
    /// than they are. To be called before a directory is asked about, and about once a second.
    pub fn note_calendar(&mut self, unix_ms: u64, now: Instant) {
        self.calendar.note(unix_ms, now);
    }
}
