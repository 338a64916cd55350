//! OPEN: share reservations. One owner's OPENs of one file are one state; its reservation is their union.

use holdfast_base::limits::{STATEIDS_MAX, STATEIDS_PER_CLIENT_MAX};
use holdfast_base::{ClientId, FileKey, Instant, Seqid};

use crate::effect::Effect;
use crate::engine::{Engine, Kind, OpenOwnerFile, OwnerKey, Standing, State, StateKey};
use crate::error::StateError;
use crate::grace::Claim;
use crate::names::{Dialect, OpenId};
use crate::owner::OwnerKind;
use crate::share::{Access, Obtained, Share};
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
    /// Open the file for this, then call `attach`; when that fails, `open_undo`.
    Needed(Access),
}

/// An open granted.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its stateid.
    pub stateid: StateId,
    /// Whether a 4.0 client must OPEN_CONFIRM.
    pub is_confirm_needed: bool,
    /// What to do for its descriptor.
    pub backing: Backing,
    /// For `attach` and `open_undo`.
    pub ticket: OpenTicket,
}

/// An open whose descriptor is still being seen to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTicket {
    state: StateKey,
    /// As it was before, if it was.
    before: Option<(Share, Obtained, Seqid)>,
    /// As granted.
    seqid: Seqid,
}

impl Engine {
    /// Grants an open, or refuses it. The reservation holds from now on: the edge sees to the descriptor, and to
    /// truncation, after this.
    ///
    /// # Errors
    /// `Inval` without access; those of an unknown client; `Grace`, `NoGrace`, `ReclaimBad`; `ShareDenied` or
    /// `ReclaimConflict`; `Resource`.
    pub fn open(&mut self, request: &OpenRequest<'_>, now: Instant) -> Result<Opened, StateError> {
        if request.share.access.is_none() {
            return Err(StateError::Inval);
        }
        let dialect = self.dialect_of(request.client).unwrap_or(Dialect::V40);
        self.live_client(request.client, dialect, now)?;
        let done = self.clients.confirmed(request.client, dialect)?.is_reclaim_done();
        request.claim.admit(self.grace, now, done)?;
        let owner = self.find_owner(request.client, OwnerKind::Open, request.owner);
        let existing = owner.and_then(|owner| self.by_owner_file.get(&(owner, request.file)).copied());
        // With no exception for what the owner itself holds (RFC 7530 section 9.9, RFC 8881 section 9.7).
        if !self.is_share_free(request.file, Share::default(), request.share, Some(request.client), now) {
            return Err(request.claim.conflict_error(StateError::ShareDenied));
        }
        let opened = match existing {
            Some(key) => self.upgrade(key, request.share)?,
            None => self.open_first(request, now)?,
        };
        match request.claim {
            Claim::Reclaim(_) => self.confirm_reclaimed(opened),
            Claim::New | Claim::Resumed => Ok(opened),
        }
    }

    /// A reclaim is no retry from before the restart, which is what confirmation guards against, and Linux reads no
    /// handle from its reply to confirm with (RFC 7530 section 16.18.5: OPEN_CONFIRM is not asked for then).
    fn confirm_reclaimed(&mut self, opened: Opened) -> Result<Opened, StateError> {
        let owner = self.state(opened.ticket.state)?.owner;
        if let Some(sequence) = self.owners.get_mut(owner.0).and_then(|owner| owner.sequence.as_mut()) {
            sequence.is_confirmed = true;
        }
        Ok(Opened { is_confirm_needed: false, ..opened })
    }

    fn open_first(&mut self, request: &OpenRequest<'_>, now: Instant) -> Result<Opened, StateError> {
        self.check_room(request.client)?;
        let owner = self.owner_for(request.client, OwnerKind::Open, request.owner, now)?;
        let mut open = OpenOwnerFile { share: request.share, ..OpenOwnerFile::default() };
        open.obtained.add(request.share);
        let state = State {
            client: request.client,
            file: request.file,
            owner,
            seqid: Seqid(1),
            standing: Standing::Good,
            kind: Kind::Open(open),
        };
        let key = self.add_state(state);
        let file = self.files.entry(request.file).or_default();
        file.sums.add(request.share);
        file.opens.push(key);
        self.opened(key, owner, None)
    }

    fn upgrade(&mut self, key: StateKey, share: Share) -> Result<Opened, StateError> {
        let (seqid, owner, file) = {
            let state = self.state(key)?;
            (state.seqid, state.owner, state.file)
        };
        let open = self.open_mut(key)?;
        let before = (open.share, open.obtained, seqid);
        open.obtained.add(share);
        open.share = open.share.union(share);
        let after = open.share;
        if let Some(file) = self.files.get_mut(&file) {
            file.change_share(before.0, after);
        }
        self.bump(key)?;
        self.opened(key, owner, Some(before))
    }

    fn opened(
        &self,
        key: StateKey,
        owner: OwnerKey,
        before: Option<(Share, Obtained, Seqid)>,
    ) -> Result<Opened, StateError> {
        let open = self.open_of(key)?;
        let backing = match open.backing {
            Some((id, can)) if can.contains(open.share.access) => Backing::Ready(id),
            _ => Backing::Needed(open.share.access),
        };
        let stateid = self.stateid(key)?;
        let sequence = self.owners.get(owner.0).and_then(|owner| owner.sequence.as_ref());
        Ok(Opened {
            stateid,
            is_confirm_needed: sequence.is_some_and(|sequence| !sequence.is_confirmed),
            backing,
            ticket: OpenTicket { state: key, before, seqid: stateid.seqid },
        })
    }

    /// Gives an open its descriptor, which can do `access`. The one it had before is closed by an effect.
    ///
    /// # Errors
    /// `BadStateid` when the open is gone meanwhile: the caller closes the descriptor it brought.
    pub fn attach(&mut self, ticket: &OpenTicket, id: OpenId, access: Access) -> Result<(), StateError> {
        if self.state(ticket.state)?.standing != Standing::Good {
            return Err(StateError::BadStateid);
        }
        let former = self.open_mut(ticket.state)?.backing.replace((id, access));
        if let Some((former, _)) = former.filter(|(former, _)| *former != id) {
            self.push_effect(Effect::CloseFile(former));
        }
        Ok(())
    }

    /// Takes back an open for which no descriptor could be had. When the owner has changed the open again
    /// meanwhile, that change stays and so does the union: it is a reservation more, never one less.
    pub fn open_undo(&mut self, ticket: OpenTicket, now: Instant) {
        let Ok(state) = self.state(ticket.state) else { return };
        if state.seqid != ticket.seqid || state.standing != Standing::Good {
            return;
        }
        let file = state.file;
        let Some((share, obtained, seqid)) = ticket.before else {
            return self.drop_state(ticket.state, now);
        };
        let Ok(open) = self.open_mut(ticket.state) else { return };
        let undone = std::mem::replace(&mut open.share, share);
        open.obtained = obtained;
        if let Some(file) = self.files.get_mut(&file) {
            file.change_share(undone, share);
        }
        if let Ok(state) = self.state_mut(ticket.state) {
            // The client never saw the higher number: it gets an error.
            state.seqid = seqid;
        }
    }

    /// Whether a share fits beside everybody's but `own`. Clients in the way whose lease ran out are expired.
    pub(crate) fn is_share_free(
        &mut self,
        file: FileKey,
        own: Share,
        wanted: Share,
        requester: Option<ClientId>,
        now: Instant,
    ) -> bool {
        let is_free = |engine: &Self| {
            engine.files.get(&file).is_none_or(|file| !file.held_by_others(own).conflicts(wanted))
        };
        if is_free(self) {
            return true;
        }
        let mut lapsed: Vec<ClientId> = Vec::new();
        for key in self.files.get(&file).map(|file| file.opens.as_slice()).unwrap_or_default() {
            let Ok(state) = self.state(*key) else { continue };
            let is_in_way = matches!(&state.kind, Kind::Open(open) if open.share.conflicts(wanted));
            if is_in_way && Some(state.client) != requester && !lapsed.contains(&state.client) {
                lapsed.push(state.client);
            }
        }
        lapsed.retain(|client| self.is_lapsed(*client, now));
        for client in lapsed {
            self.remove_client(client, now);
        }
        is_free(self)
    }

    /// Whether a client may have one stateid more.
    pub(crate) fn check_room(&self, client: ClientId) -> Result<(), StateError> {
        let own = self.clients.by_id.get(&client).map_or(0, |client| client.states.len());
        if self.states.len() >= STATEIDS_MAX || own >= STATEIDS_PER_CLIENT_MAX {
            return Err(StateError::Resource);
        }
        Ok(())
    }
}
