//! A delegation from the offer to the grant: two steps, as the edge must obtain the backend's word (a kernel lease) and tell those
//! who ask without the engine.

use holdfast_base::{ChangeId, Instant, Seqid};

use crate::deed::DelegationKind;
use crate::delegation::{
    Delegated, Delegation, DelegationRequest, DelegationToken, Grounds, HeldAttributes, Recall, WhyNone,
};
use crate::engine::{Engine, Kind, Standing, State, StateKey};
use crate::error::StateError;
use crate::flushing::Flushing;
use crate::grace::Claim;
use crate::looked::Kept;
use crate::names::Mount;

/// An offer, to be granted by `delegation_commit`.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the offer stands in others' way until commit or abort"]
pub struct DelegationTicket {
    state: StateKey,
    number: u64,
    kind: DelegationKind,
    is_upgrade: bool,
    if_change_is: Option<ChangeId>,
}

impl DelegationTicket {
    /// Under which edges keep what belongs to the delegation. An upgrade keeps the token.
    #[must_use]
    pub const fn token(&self) -> DelegationToken {
        self.state.delegation()
    }

    /// What is offered.
    #[must_use]
    pub const fn kind(&self) -> DelegationKind {
        self.kind
    }

    /// Whether the client holds a read delegation already, which this turns into one for writing.
    #[must_use]
    pub const fn is_upgrade(&self) -> bool {
        self.is_upgrade
    }

    /// What the file's change attribute must be for the delegation to be granted, looked at once nobody else can change
    /// the file without taking the offer back: else the client, which had it open before, may keep data that another
    /// has overwritten, or names of a directory. `None`: whatever it is.
    #[must_use]
    pub const fn if_change_is(&self) -> Option<ChangeId> {
        self.if_change_is
    }
}

/// What came of asking.
#[derive(Debug, PartialEq, Eq)]
pub enum Offer {
    /// It can be had.
    Offered(DelegationTicket),
    /// It cannot.
    Declined(WhyNone),
}

impl Engine {
    /// Offers a delegation, or says why not. From now on deeds of others that conflict with it see it: they do not
    /// wait for an offer, but take it back, and the commit fails. For what is reclaimed they wait, and it is granted and
    /// recalled (RFC 8881 section 10.2.1): its holder has used it all the time. The edge promises the backend's part and
    /// enters it where others look, then calls `delegation_commit` or `delegation_abort`.
    ///
    /// # Errors
    /// Those of an unknown client; for a reclaim `NoGrace`, `ReclaimBad`, `ReclaimConflict`, `Resource`, and `Delay` while
    /// the same is being granted.
    pub fn delegation_prepare(
        &mut self,
        request: &DelegationRequest,
        now: Instant,
    ) -> Result<Offer, StateError> {
        let dialect = self.dialect_of(request.client).ok_or(StateError::StaleClientid)?;
        let done = self.clients.confirmed(request.client, dialect)?.is_reclaim_done();
        if let (Grounds::Open(open), Some(seen)) = (request.grounds, request.seen) {
            self.note_look(open, request.file, seen.change);
        }
        let why = self.why_no_delegation(request, done, now);
        if let Grounds::Reclaim(recorded) = request.grounds {
            if !self.has_reclaimed_delegation(request.client, request.file, request.kind) {
                Claim::Reclaim(recorded).admit(request.file, self.grace, now, done)?;
            }
            match why {
                None
                | Some(
                    WhyNone::Off
                    | WhyNone::NoCallback
                    | WhyNone::Grace
                    | WhyNone::NotOpen
                    | WhyNone::OpenBefore,
                ) => {}
                // What others have back shows that the client had returned it, and did not hear the answer.
                Some(why @ (WhyNone::Held | WhyNone::HeldForWriting | WhyNone::Contention)) => {
                    return Ok(Offer::Declined(why));
                }
                Some(WhyNone::Resource) => return Err(StateError::Resource),
                Some(WhyNone::Passing) => return Err(StateError::Delay),
                Some(WhyNone::Lost) => return Err(StateError::ReclaimConflict),
            }
        } else if let Some(why) = why {
            return Ok(Offer::Declined(why));
        }
        let if_change_is = match (request.grounds, self.kept_data(request.client, request.file)) {
            (Grounds::Open(_), Kept::If(change)) => Some(change),
            _ if request.kind.is_directory() => request.seen.map(|seen| seen.change),
            _ => None,
        };
        self.tickets += 1;
        let number = self.tickets;
        let own = self.delegation_on(request.client, request.file);
        let mount = self.mount_of_opens(request.client, request.file);
        // Without room for it, too: only what is reclaimed has come so far. Asked before it takes the last there is.
        let is_unwelcome = !self.has_room_for_delegation(request.client, request.file)
            || match why {
                Some(WhyNone::Off) => true,
                Some(WhyNone::NoCallback) => !self.may_call_back(request.client),
                _ => false,
            };
        let came_by = self.open_under_way(request);
        let key = own.unwrap_or_else(|| self.add_delegation(request, mount, now));
        let delegation = self.delegation_mut(key)?;
        delegation.offered = Some((request.kind, number));
        delegation.is_unwelcome = is_unwelcome;
        delegation.is_due = matches!(request.grounds, Grounds::Reclaim(_));
        delegation.came_by = came_by;
        delegation.delegates_timestamps |= request.delegates_timestamps;
        if let Some(seen) = request.seen.filter(|_| request.kind == DelegationKind::Write) {
            delegation.attributes =
                HeldAttributes { change: seen.change, shown: seen.change, is_modified: false };
        }
        let is_upgrade = own.is_some();
        let kind = request.kind;
        Ok(Offer::Offered(DelegationTicket { state: key, number, kind, is_upgrade, if_change_is }))
    }

    fn add_delegation(
        &mut self,
        request: &DelegationRequest,
        mount: Option<Mount>,
        now: Instant,
    ) -> StateKey {
        let delegation = Delegation {
            granted: None,
            offered: None,
            delegates_timestamps: false,
            is_due: false,
            is_unwelcome: false,
            granted_at: now,
            recall: None,
            attributes: HeldAttributes::default(),
            came_by: None,
            mount: mount.filter(|_| request.grounds != Grounds::Want),
        };
        let key = self.add_state(State {
            client: request.client,
            file: request.file,
            owner: None,
            since: now,
            // Its first commit makes it 1.
            seqid: Seqid(0),
            standing: Standing::Good,
            kind: Kind::Delegation(delegation),
        });
        self.delegations += 1;
        if let Some(client) = self.clients.by_id.get_mut(&request.client) {
            client.delegations += 1;
        }
        self.files.entry(request.file).or_default().delegations.push(key);
        key
    }

    /// Grants what was offered. Returns the stateid: an upgrade's is that of the read delegation, counted up.
    ///
    /// # Errors
    /// `Delay` when somebody did meanwhile what the offer excludes, or the client is gone: the edge takes back what it
    /// promised for the token ([`Effect::DelegationEnded`] may have run before it did), unless it was an upgrade, of
    /// which the read delegation stands if [`Engine::delegation_of`] knows it.
    #[expect(clippy::needless_pass_by_value, reason = "an offer ends once")]
    pub fn delegation_commit(
        &mut self,
        ticket: DelegationTicket,
        now: Instant,
    ) -> Result<Delegated, StateError> {
        let DelegationTicket { state: key, number, kind, .. } = ticket;
        if !self.is_offered(key, number) {
            return Err(StateError::Delay);
        }
        let until = now.after_ms(self.recall_ms());
        let delegation = self.delegation_mut(key)?;
        delegation.offered = None;
        let before = delegation.granted.replace(kind);
        delegation.granted_at = now;
        let is_recalled = delegation.is_unwelcome;
        if is_recalled {
            // The reply says so, which is as good as a recall heard.
            let recall = Recall {
                since: now,
                until,
                retry_at: None,
                unknown: 0,
                is_accepted: true,
                is_sent: true,
                truncates: false,
                flushing: Flushing::default(),
            };
            delegation.recall = Some(recall);
            self.recalls.insert(key);
        }
        self.tally.granted(before, Some(kind));
        let stateid = self.bump(key)?;
        Ok(Delegated { stateid, token: key.delegation(), kind, is_recalled })
    }

    /// Has a reclaimed delegation returned as soon as it is granted: it cannot be held against all that it excludes.
    pub fn delegation_unwelcome(&mut self, ticket: &DelegationTicket) {
        if self.is_offered(ticket.state, ticket.number)
            && let Ok(delegation) = self.delegation_mut(ticket.state)
        {
            delegation.is_unwelcome = true;
        }
    }

    /// Takes an offer back. The edge takes back what it promised; of an upgrade the read delegation stays.
    #[expect(clippy::needless_pass_by_value, reason = "an offer ends once")]
    pub fn delegation_abort(&mut self, ticket: DelegationTicket, now: Instant) {
        if !self.is_offered(ticket.state, ticket.number) {
            return;
        }
        let Ok(delegation) = self.delegation_mut(ticket.state) else { return };
        // Whoever aborts need not be told.
        delegation.offered = None;
        if delegation.granted.is_none() {
            self.drop_state(ticket.state, now);
        }
    }

    fn is_offered(&self, key: StateKey, number: u64) -> bool {
        let is_its = |state: &State| state.standing == Standing::Good;
        let Some(state) = self.states.get(key.0).filter(|state| is_its(state)) else { return false };
        matches!(&state.kind, Kind::Delegation(d) if d.offered.is_some_and(|(_, n)| n == number))
    }

    /// An offer was overtaken.
    pub(crate) fn withdraw_offer(&mut self, key: StateKey, now: Instant) {
        match self.delegation_mut(key) {
            Ok(delegation) if delegation.granted.is_some() => delegation.offered = None,
            _ => self.drop_state(key, now),
        }
    }
}
