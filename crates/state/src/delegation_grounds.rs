//! Whether a delegation may be granted, and would be worth it.

use holdfast_base::limits::{DELEGATIONS_PER_CLIENT_MAX, DELEGATIONS_PER_FILE_MAX, STATEIDS_PER_CLIENT_MAX};
use holdfast_base::{ClientId, FileKey, Instant};

use crate::deed::DelegationKind;
use crate::delegation::{DelegationRequest, Grounds, WhyNone};
use crate::engine::{Engine, Kind, OwnerKey, StateKey};
use crate::file::{File, Holder};
use crate::looked::Kept;
use crate::policy::Directories;
use crate::share::{Access, Share};

impl Engine {
    /// 4.0: the operation of an open-owner that a delegation would come with. A reclaim does not say which OPEN it is of:
    /// one of the client's that is under way.
    pub(crate) fn open_under_way(&self, request: &DelegationRequest) -> Option<(OwnerKey, u64)> {
        let opens = &self.files.get(&request.file)?.opens;
        let is_its = |key: &&StateKey| match request.grounds {
            Grounds::Open(open) => **key == StateKey(open.parts().1),
            Grounds::Want => false,
            Grounds::Reclaim(_) => self.states.get(key.0).is_some_and(|state| state.client == request.client),
        };
        opens.iter().filter(is_its).find_map(|key| {
            let owner = self.states.get(key.0)?.owner?;
            let turn = self.owners.get(owner.0)?.sequence.as_ref()?.turn()?;
            Some((owner, turn))
        })
    }

    /// Whether the holder of a delegation has the reply that it came with, as far as 4.0's owners tell.
    pub(crate) fn is_told_of(&self, key: StateKey) -> bool {
        let Some((owner, turn)) = self.delegation(key).ok().and_then(|delegation| delegation.came_by) else {
            return true;
        };
        let sequence = self.owners.get(owner.0).and_then(|owner| owner.sequence.as_ref());
        sequence.is_none_or(|sequence| sequence.has_gone_on_from(turn))
    }

    /// Why a delegation is not to be granted; `done`: whether the client said RECLAIM_COMPLETE. The reasons that a
    /// reclaim does not heed come last.
    pub(crate) fn why_no_delegation(
        &self,
        request: &DelegationRequest,
        done: Option<bool>,
        now: Instant,
    ) -> Option<WhyNone> {
        let DelegationRequest { client, file, kind, grounds, .. } = *request;
        let is_reclaim = matches!(grounds, Grounds::Reclaim(_));
        if is_reclaim && self.has_lost(client, None, file) {
            return Some(WhyNone::Lost);
        }
        if let Some(own) = self.delegation_on(client, file)
            && let Some(why) = self.why_not_beside(own, kind)
        {
            // Its own offer, or recall, comes to an end.
            let passes = is_reclaim && why == WhyNone::Contention;
            return Some(if passes { WhyNone::Passing } else { why });
        }
        let has_room = match grounds {
            Grounds::Reclaim(_) => self.has_room_for_state(client),
            _ => self.has_room_for_delegation(client, file),
        };
        if !has_room {
            return Some(WhyNone::Resource);
        }
        let is_used = |of| self.is_used_by_others((file, of), (client, is_reclaim), kind);
        if self.files.get(&file).is_some_and(is_used) {
            return Some(WhyNone::Contention);
        }
        if self.caps_exclude(file, client, kind) {
            return Some(WhyNone::Contention);
        }
        if !is_reclaim && self.recent_recalls.is_recent(file, now) {
            return Some(WhyNone::Contention);
        }
        if !is_reclaim && self.clients.by_id.get(&client).is_some_and(|of| of.delegations_revoked > 0) {
            // It did not give one back, and has not even taken note.
            return Some(WhyNone::Resource);
        }
        let is_never = kind.is_directory() && self.policy.directories == Directories::Never;
        if !self.policy.is_delegating || is_never {
            return Some(WhyNone::Off);
        }
        if !self.can_call_back(client) {
            return Some(WhyNone::NoCallback);
        }
        if self.grace.is_on(now) || done == Some(false) {
            return Some(WhyNone::Grace);
        }
        if kind.is_directory() && !self.knows_no_other_names(request, now) {
            return Some(WhyNone::OpenBefore);
        }
        if !matches!(grounds, Grounds::Open(_)) {
            return None;
        }
        if !self.has_open_for(client, file, kind) {
            return Some(WhyNone::NotOpen);
        }
        (self.kept_data(client, file) == Kept::Unknown).then_some(WhyNone::OpenBefore)
    }

    /// Why a client that has a delegation gets no other: only a read delegation that nobody wants back becomes one
    /// for writing.
    fn why_not_beside(&self, own: StateKey, kind: DelegationKind) -> Option<WhyNone> {
        let own = self.delegation(own).ok()?;
        if own.recall.is_some() || own.offered.is_some() {
            return Some(WhyNone::Contention);
        }
        match (own.granted, kind) {
            (Some(DelegationKind::Read), DelegationKind::Write) => None,
            (Some(DelegationKind::Write), DelegationKind::Read) => Some(WhyNone::HeldForWriting),
            _ => Some(WhyNone::Held),
        }
    }

    /// Whether others do what the delegation would exclude, or hold what it could not be held beside.
    fn is_used_by_others(
        &self,
        (file_key, file): (FileKey, &File),
        (client, is_reclaim): (ClientId, bool),
        kind: DelegationKind,
    ) -> bool {
        let is_other = |key: &&StateKey| self.states.get(key.0).is_some_and(|state| state.client != client);
        let excludes = |other: DelegationKind| match kind {
            DelegationKind::Read => other == DelegationKind::Write,
            DelegationKind::Write => !other.is_directory(),
            DelegationKind::Directory | DelegationKind::NotifiedDirectory(_) => false,
        };
        let mut delegations = file.delegations.iter().filter(is_other);
        if delegations.any(|key| self.delegation(*key).is_ok_and(|d| d.kinds().any(excludes))) {
            return true;
        }
        !file.waiters.is_empty()
            || self.is_open_in_way((file_key, file), (client, is_reclaim), kind)
            || is_locked_by_foreigners(file, kind)
            || (file.locks_outlast_opens && self.is_locked_in_way(file, client, kind))
    }

    /// Whether another client's locks would have been deeds against a delegation, whatever its open is for by now.
    fn is_locked_in_way(&self, file: &File, client: ClientId, kind: DelegationKind) -> bool {
        let is_other = |holder| match holder {
            Holder::State(key) => self.states.get(key.0).is_some_and(|state| state.client != client),
            Holder::Foreign(_) => false,
        };
        let mut locks = file.locks.iter().filter(|(holder, _)| is_other(*holder));
        locks.any(|(_, ranges)| ranges.iter().any(|(_, held)| crate::foreign::deed(held).conflicts(kind)))
    }

    fn is_open_in_way(
        &self,
        (file_key, file): (FileKey, &File),
        (client, is_reclaim): (ClientId, bool),
        kind: DelegationKind,
    ) -> bool {
        let is_in_way = |share: Share| share.deed().conflicts(kind);
        // Most files are only read, however many do.
        if !is_in_way(file.sums.held()) {
            return false;
        }
        let opens = || file.opens.iter().filter_map(|key| self.states.get(key.0));
        // Open-owners of one client may be mounts of its that know nothing of each other: Linux has an owner for each
        // mount and user, and keeps a delegation, with the locks made under it, to the mount that it came to.
        // What its mounts had beside the delegation before the restart they may have again, in whatever order they reclaim.
        let is_one = is_reclaim
            || opens().filter(|state| state.client == client).count() <= 1
            || self.mount_of_opens(client, file_key).is_some();
        let mut others = opens().filter(|state| state.client != client || !is_one);
        others.any(|state| matches!(&state.kind, Kind::Open(open) if is_in_way(open.share)))
            || file.foreign_shares.iter().any(|(_, share)| is_in_way(*share))
    }

    /// Whether limits leave room for one delegation more.
    pub(crate) fn has_room_for_delegation(&self, client: ClientId, file: FileKey) -> bool {
        let of_client = self.clients.by_id.get(&client).map_or(0, |client| client.delegations as usize);
        let of_file = self.files.get(&file).map_or(0, |of| of.delegations.len());
        self.has_room_for_state(client)
            && self.delegations < self.policy.delegations_max
            && of_client < DELEGATIONS_PER_CLIENT_MAX
            && of_file < DELEGATIONS_PER_FILE_MAX
    }

    /// Whether there is room for one more of anything.
    fn has_room_for_state(&self, client: ClientId) -> bool {
        // With those that were revoked and not freed.
        let names = self.clients.by_id.get(&client).map_or(0, |client| client.states.len());
        self.states.len() < self.policy.stateids_max && names < STATEIDS_PER_CLIENT_MAX
    }

    /// Whether what a client has of a file shows that no other client has a delegation of it: an open to write, if only
    /// one that is being granted, or a write delegation.
    #[must_use]
    pub fn excludes_delegations(&self, client: ClientId, file: FileKey) -> bool {
        let opens = self.files.get(&file).map(|of| of.opens.as_slice()).unwrap_or_default();
        let is_its = |key: &StateKey| self.states.get(key.0).is_some_and(|state| state.client == client);
        let mut its = opens.iter().filter(|key| is_its(key));
        its.any(|key| self.open_of(*key).is_ok_and(|open| open.share.access.contains(Access::WRITE)))
            || self.holds_delegation(client, file) == Some(DelegationKind::Write)
    }

    fn has_open_for(&self, client: ClientId, file: FileKey, kind: DelegationKind) -> bool {
        let needed = match kind {
            DelegationKind::Read => Access::READ,
            DelegationKind::Write => Access::WRITE,
            DelegationKind::Directory | DelegationKind::NotifiedDirectory(_) => return false,
        };
        let Some(of) = self.files.get(&file) else { return false };
        of.opens.iter().filter_map(|key| self.states.get(key.0)).any(|state| {
            let Kind::Open(open) = &state.kind else { return false };
            state.client == client && open.obtained.union().access.contains(needed)
        })
    }
}

/// Whether locks held without an open would have been deeds against a delegation. Foreign holders come last in order.
fn is_locked_by_foreigners(file: &File, kind: DelegationKind) -> bool {
    let foreign = file.locks.iter().rev().take_while(|(holder, _)| matches!(holder, Holder::Foreign(_)));
    let mut locks = foreign.flat_map(|(_, ranges)| ranges.iter());
    locks.any(|(_, held)| crate::foreign::deed(held).conflicts(kind))
}
