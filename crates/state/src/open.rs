//! OPEN: share reservations. One owner's OPENs of one file are one state; its reservation is their union.

use holdfast_base::limits::STATEIDS_PER_CLIENT_MAX;
use holdfast_base::{ClientId, FileKey, Instant, Seqid};

use crate::check::Caller;
use crate::contention::Contention;
use crate::deed::{Deed, DelegationKind};
use crate::effect::Effect;
use crate::engine::{Engine, Kind, OpenOwnerFile, Standing, State, StateKey};
use crate::error::StateError;
use crate::file::File;
use crate::grace::Claim;
use crate::names::{Dialect, OpenId};
use crate::owner::OwnerKind;
use crate::share::{Access, Share, ShareSums};
use crate::stateid::StateId;

/// The arguments of OPEN that concern state; the edge has found or made the file.
#[derive(Clone, Copy, Debug)]
pub struct OpenRequest<'a> {
    /// Whose open: for 4.1 the session's client.
    pub client: ClientId,
    /// The open-owner.
    pub owner: &'a [u8],
    /// The file.
    pub file: FileKey,
    /// What is asked for. Access may not be none.
    pub share: Share,
    /// On what grounds.
    pub claim: Claim,
}

/// What the edge must do for the open's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Nothing: this one serves.
    Ready(OpenId),
    /// Give it one for this with `attach`.
    Needed(Access),
}

/// An open reserved, to be granted by `open_commit`.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the reservation stays until commit or undo"]
pub struct Opened {
    /// Whether a 4.0 client must OPEN_CONFIRM.
    pub is_confirm_needed: bool,
    /// What to do for its descriptor.
    pub backing: Backing,
    /// For `attach`, `open_commit` and `open_undo`.
    pub ticket: OpenTicket,
}

/// An open under way. Others of the same owner may be under way beside it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the reservation stays until commit or undo"]
pub struct OpenTicket {
    state: StateKey,
    share: Share,
    /// It is granted already, by an OPEN that was sent before recovery began again.
    is_again: bool,
}

impl Engine {
    /// Reserves an open, or refuses it. The reservation holds from now on: the edge, which has asked for permission
    /// before, sees to the descriptor and to truncation after this, then calls `open_commit` or `open_undo`.
    ///
    /// # Errors
    /// `Inval` without access; those of an unknown client; `Grace`, `NoGrace`, `ReclaimBad`; those of a delegation's
    /// stateid; `ShareDenied` or `ReclaimConflict`; `Delay` while a delegation of another is being recalled, which this
    /// begins; `Resource`.
    pub fn open(&mut self, request: &OpenRequest<'_>, now: Instant) -> Result<Opened, StateError> {
        if request.share.access.is_none() {
            return Err(StateError::Inval);
        }
        let dialect = self.dialect_of(request.client).unwrap_or(Dialect::V40);
        self.live_client(request.client, dialect, now)?;
        let done = self.clients.confirmed(request.client, dialect)?.is_reclaim_done();
        match request.claim {
            Claim::Delegated(stateid) if self.is_delegated(request, dialect, stateid, now)? => {}
            Claim::Reclaim(_)
                if self.has_reclaimed(request.client, request.owner, request.file, request.share) => {}
            claim => claim.admit(request.file, self.grace, now, done)?,
        }
        let owner = self.find_owner(request.client, OwnerKind::Open, request.owner);
        let existing = owner.and_then(|owner| self.by_owner_file.get(&(owner, request.file)).copied());
        let is_reclaim = matches!(request.claim, Claim::Reclaim(_));
        let has_lost = |owner| self.has_lost(request.client, Some(owner), request.file);
        if is_reclaim && owner.is_some_and(has_lost) {
            return Err(StateError::ReclaimConflict);
        }
        // With no exception for what the owner itself holds (RFC 7530 section 9.9, RFC 8881 section 9.7); but what it
        // has reclaimed it may reclaim once more, when its recovery was interrupted and begins again.
        let own = match (request.claim, existing) {
            (Claim::Reclaim(_), Some(key)) => self.open_of(key)?.share,
            _ => Share::default(),
        };
        let by_others = (Some(request.client), own);
        if !self.is_free_of_the_living(request.file, request.share, by_others, now) {
            return Err(request.claim.conflict_error(StateError::ShareDenied));
        }
        // Who has a delegation opens by itself; an OPEN of an owner that has not opened the file yet may come from
        // another mount of the client's, which does not know of the delegation.
        let is_known = request.claim != Claim::New
            || existing.is_some()
            || self.is_of_holders_mount(request.client, request.file, request.owner);
        let by = is_known.then_some(request.client);
        let by = (by, Some(request.client));
        let deed = request.share.deed();
        // Nothing that a client away is kept for courtesy ends before all else is known to be granted.
        if self.contend_with_the_living(request.file, deed, by, now).is_some() {
            return Err(StateError::Delay);
        }
        if existing.is_none() {
            self.check_room(request.client, now)?;
        }
        if self.contend_as(request.file, deed, by, now) != Contention::Clear {
            return Err(StateError::Delay);
        }
        if !self.is_share_free(request.file, own, request.share, Some(request.client), now) {
            let refusal =
                self.share_refusal(request.file, (own, request.share), StateError::ShareDenied, now);
            return Err(request.claim.conflict_error(refusal));
        }
        let mut opened = match existing {
            Some(key) => self.open_again(key, request.share)?,
            None => self.open_first(request, now)?,
        };
        opened.ticket.is_again = is_reclaim
            && dialect == Dialect::V41
            && self.open_of(opened.ticket.state)?.obtained.has(request.share);
        match request.claim {
            Claim::Reclaim(_) | Claim::Delegated(_) => self.confirm_held(opened, request.claim),
            Claim::New | Claim::Resumed { .. } => Ok(opened),
        }
    }

    /// Whether a delegation allows what its holder says it opened under it (RFC 8881 section 10.4). What it does not
    /// allow is judged as any other OPEN.
    fn is_delegated(
        &mut self,
        request: &OpenRequest<'_>,
        dialect: Dialect,
        stateid: StateId,
        now: Instant,
    ) -> Result<bool, StateError> {
        let caller = match dialect {
            Dialect::V40 => Caller::V40,
            Dialect::V41 => Caller::V41(request.client),
        };
        let key = self.resolve(caller, stateid, request.file, now)?;
        if self.state(key)?.client != request.client {
            return Err(StateError::BadStateid);
        }
        match self.delegation(key)?.granted {
            Some(DelegationKind::Write) => Ok(true),
            Some(DelegationKind::Read) => Ok(request.share.deed() == Deed::OpenRead),
            Some(DelegationKind::Directory | DelegationKind::NotifiedDirectory(_)) | None => {
                Err(StateError::BadStateid)
            }
        }
    }

    /// A reclaim is no retry from before the restart, which is what confirmation guards against, nor is what names a
    /// delegation that stands; and Linux reads no handle from either's reply to confirm with (RFC 7530 section 16.18.5:
    /// OPEN_CONFIRM is not asked for then).
    fn confirm_held(&mut self, mut opened: Opened, claim: Claim) -> Result<Opened, StateError> {
        let owner = self.state(opened.ticket.state)?.owner;
        let owner = owner.and_then(|owner| self.owners.get_mut(owner.0));
        if let Some(sequence) = owner.and_then(|owner| owner.sequence.as_mut()) {
            sequence.is_confirmed = true;
            sequence.has_reclaimed |= matches!(claim, Claim::Reclaim(_));
        }
        opened.is_confirm_needed = false;
        Ok(opened)
    }

    fn open_first(&mut self, request: &OpenRequest<'_>, now: Instant) -> Result<Opened, StateError> {
        self.check_room(request.client, now)?;
        let owner = self.owner_for(request.client, OwnerKind::Open, request.owner, now)?;
        let state = State {
            client: request.client,
            file: request.file,
            owner: Some(owner),
            since: now,
            // Its first commit makes it 1.
            seqid: Seqid(0),
            standing: Standing::Good,
            kind: Kind::Open(OpenOwnerFile::default()),
        };
        let key = self.add_state(state);
        self.files.entry(request.file).or_default().opens.push(key);
        self.open_again(key, request.share)
    }

    fn open_again(&mut self, key: StateKey, share: Share) -> Result<Opened, StateError> {
        self.open_mut(key)?.pending.push(share);
        self.reserve_union(key)?;
        let owner = self.state(key)?.owner;
        let descriptor = self.open_of(key)?.descriptors.serving(share.access);
        let owner = owner.and_then(|owner| self.owners.get(owner.0));
        let sequence = owner.and_then(|owner| owner.sequence.as_ref());
        Ok(Opened {
            is_confirm_needed: sequence.is_some_and(|sequence| !sequence.is_confirmed),
            backing: descriptor.map_or(Backing::Needed(share.access), Backing::Ready),
            ticket: OpenTicket { state: key, share, is_again: false },
        })
    }

    /// Reserves what an open's OPENs are together now.
    fn reserve_union(&mut self, key: StateKey) -> Result<(), StateError> {
        let file = self.state(key)?.file;
        let open = self.open_mut(key)?;
        let after = open.union();
        let before = std::mem::replace(&mut open.share, after);
        self.change_shares(file, |of| of.change_share(before, after));
        Ok(())
    }

    /// The descriptor that an OPEN of this owner would be served by, if it came now.
    #[must_use]
    pub fn open_descriptor(&self, request: &OpenRequest<'_>) -> Option<OpenId> {
        let owner = self.find_owner(request.client, OwnerKind::Open, request.owner)?;
        let key = self.by_owner_file.get(&(owner, request.file))?;
        self.open_of(*key).ok()?.descriptors.serving(request.share.access)
    }

    /// Gives an open its descriptor, which can do `access`. Those that are not needed any more are closed by effects:
    /// this one too, when another OPEN of the owner brought one as good meanwhile.
    ///
    /// # Errors
    /// `BadStateid` when the open is gone meanwhile: the caller closes the descriptor it brought.
    pub fn attach(&mut self, ticket: &OpenTicket, id: OpenId, access: Access) -> Result<(), StateError> {
        if self.state(ticket.state)?.standing != Standing::Good {
            return Err(StateError::BadStateid);
        }
        let spare = self.open_mut(ticket.state)?.descriptors.add(id, access);
        spare.into_iter().for_each(|id| self.push_effect(Effect::CloseFile(id)));
        Ok(())
    }

    /// Grants what was reserved. Returns the stateid: as it was, when the same was reclaimed before in this life. That changes
    /// nothing (RFC 8881 section 8.2.2), and Linux, which has forgotten the first answer, waits five seconds for those that
    /// must have come before a number other than 1 (`nfs_set_open_stateid_locked`).
    ///
    /// # Errors
    /// `BadStateid` when the open is gone meanwhile (expiry, revocation).
    #[expect(clippy::needless_pass_by_value, reason = "an open ends once")]
    pub fn open_commit(&mut self, ticket: OpenTicket) -> Result<StateId, StateError> {
        let OpenTicket { state, share, is_again } = ticket;
        self.end_open(state, share)?;
        let open = self.open_mut(state)?;
        open.obtained.add(share);
        open.looked.granted();
        if is_again { self.stateid(state) } else { self.bump(state) }
    }

    /// Takes back an open that came to nothing. What the owner's other OPENs reserved stays, and so does the
    /// stateid: an OPEN that fails leaves no trace.
    #[expect(clippy::needless_pass_by_value, reason = "an open ends once")]
    pub fn open_undo(&mut self, ticket: OpenTicket, now: Instant) {
        let OpenTicket { state, share, .. } = ticket;
        if self.end_open(state, share).is_err() {
            return;
        }
        match self.open_of(state) {
            Ok(open) if open.union().access.is_none() => self.drop_state(state, now),
            // Only a state that is gone cannot be changed.
            _ => drop(self.reserve_union(state)),
        }
    }

    fn end_open(&mut self, key: StateKey, share: Share) -> Result<(), StateError> {
        if self.state(key)?.standing != Standing::Good {
            return Err(StateError::BadStateid);
        }
        let pending = &mut self.open_mut(key)?.pending;
        let at = pending.iter().position(|other| *other == share).ok_or(StateError::BadStateid)?;
        pending.swap_remove(at);
        Ok(())
    }

    /// Whether a share fits beside everybody's but `own`. Clients in the way whose lease ran out are expired, if nobody else
    /// is in the way.
    pub(crate) fn is_share_free(
        &mut self,
        file: FileKey,
        own: Share,
        wanted: Share,
        requester: Option<ClientId>,
        now: Instant,
    ) -> bool {
        let is_free = |of: &File, away: &ShareSums| !of.held_by_others(own, away).conflicts(wanted);
        self.expire_for_share(file, (wanted, requester), is_free, now)
    }

    /// Whether I/O fits beside what opens reserve, whatever NLM's shares say: those are of NFSv3 clients, whose I/O does
    /// not tell that it comes from who holds one.
    pub(crate) fn is_free_of_opens(&mut self, file: FileKey, wanted: Share, now: Instant) -> bool {
        let is_free = |of: &File, away: &ShareSums| !of.held_by_opens(away).conflicts(wanted);
        self.expire_for_share(file, (wanted, None), is_free, now)
    }

    /// Whether a share fits beside everybody's but `own` and those whose lease ran out.
    fn is_free_of_the_living(
        &self,
        file: FileKey,
        wanted: Share,
        (requester, own): (Option<ClientId>, Share),
        now: Instant,
    ) -> bool {
        let Some(of) = self.files.get(&file) else { return true };
        if !of.held_by_others(own, &ShareSums::default()).conflicts(wanted) {
            return true;
        }
        let (_, away) = self.in_way_and_away(of, (wanted, requester), now);
        !of.held_by_others(own, &away).conflicts(wanted)
    }

    fn expire_for_share(
        &mut self,
        file: FileKey,
        wanted: (Share, Option<ClientId>),
        is_free: impl Fn(&File, &ShareSums) -> bool,
        now: Instant,
    ) -> bool {
        let nobody = ShareSums::default();
        let Some(of) = self.files.get(&file).filter(|of| !is_free(of, &nobody)) else { return true };
        let (lapsed, away) = self.in_way_and_away(of, wanted, now);
        if !is_free(of, &away) {
            return false;
        }
        self.expire(&lapsed, now);
        self.files.get(&file).is_none_or(|of| is_free(of, &nobody))
    }

    /// Clients whose opens are in the way of a share and whose lease ran out, and what these reserve.
    fn in_way_and_away(
        &self,
        of: &File,
        (wanted, requester): (Share, Option<ClientId>),
        now: Instant,
    ) -> (Vec<ClientId>, ShareSums) {
        let opens = || {
            of.opens.iter().filter_map(|key| {
                let state = self.states.get(key.0)?;
                let Kind::Open(open) = &state.kind else { return None };
                Some((state.client, open.share))
            })
        };
        let in_way = opens().filter(|(client, share)| share.conflicts(wanted) && Some(*client) != requester);
        let mut lapsed: Vec<ClientId> = in_way.map(|(client, _)| client).collect();
        lapsed.sort_unstable();
        lapsed.dedup();
        lapsed.retain(|client| self.is_lapsed(*client, now));
        let mut away = ShareSums::default();
        for (_, share) in opens().filter(|(client, _)| lapsed.binary_search(client).is_ok()) {
            away.add(share);
        }
        (lapsed, away)
    }

    /// Why a share is refused: for good, or till a client has gone whose record is still there.
    #[cold]
    pub(crate) fn share_refusal(
        &self,
        file: FileKey,
        (own, wanted): (Share, Share),
        error: StateError,
        now: Instant,
    ) -> StateError {
        let opens = self.files.get(&file).map(|file| file.opens.as_slice()).unwrap_or_default();
        let is_leaving = |key: &StateKey| self.state(*key).is_ok_and(|state| self.is_leaving(state.client));
        let awaits =
            opens.iter().any(is_leaving) && self.is_free_of_the_living(file, wanted, (None, own), now);
        if awaits { StateError::Delay } else { error }
    }

    /// Whether a client may have one stateid more.
    pub(crate) fn check_room(&mut self, client: ClientId, now: Instant) -> Result<(), StateError> {
        while self.states.len() >= self.policy.stateids_max && self.make_room(now) {}
        let own = self.clients.by_id.get(&client).map_or(0, |client| client.states.len());
        if self.states.len() >= self.policy.stateids_max || own >= STATEIDS_PER_CLIENT_MAX {
            return Err(StateError::Resource);
        }
        Ok(())
    }
}
