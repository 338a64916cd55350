//! How current the data is that a client keeps of a file it has open: what can be known of it here.

use holdfast_base::{ChangeId, ClientId, FileKey};
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Kind, StateKey};
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
}
