//! Judging stateids (RFC 8881 section 8.2.4, RFC 7530 section 9.1.4.4) and I/O by them.

use holdfast_base::limits::DELEGATED_OPENS_MAX;
use holdfast_base::{ClientId, FileKey, Instant, Seqid};

use crate::client::ClientIncarnation;
use crate::deed::DelegationKind;
use crate::delegation::DelegationToken;
use crate::effect::Effect;
use crate::engine::{Engine, Kind, OwnerKey, Standing, StateKey};
use crate::error::StateError;
use crate::grace::Recorded;
use crate::names::{Dialect, OpenId};
use crate::share::{Access, Share};
use crate::stateid::{StateId, StateIdForm, seqid_age};

/// Whose request carries a stateid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A 4.0 client: known by the stateid itself. Its use renews the lease.
    V40,
    /// The client of the session the request came in.
    V41(ClientId),
}

/// I/O that names no open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoBy {
    /// The anonymous stateid: waits out grace, as what it conflicts with may not be reclaimed yet.
    Anonymous,
    /// The READ bypass stateid: reads regardless of share reservations.
    Bypass,
    /// NFSv3, whose clients know no grace for I/O, and hold to NLM's shares among themselves if they want to.
    Nfs3,
}

/// Leave to do I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoGrant {
    /// Through this descriptor.
    Open(OpenId),
    /// Through a descriptor of the edge's own.
    NoOpen,
    /// Under a delegation: through a descriptor that the edge keeps with it, one of its holder's opens
    /// ([`Engine::descriptors_under`]), or as for `NoOpen`.
    Delegation(DelegationToken),
}

impl Engine {
    /// Whether I/O with a stateid is allowed, and through which descriptor. `access` is at most one of reading and writing.
    ///
    /// # Errors
    /// Those of a stateid; `OpenMode`; for special stateids those of [`Engine::check_io`]; `Delay` while the open
    /// has no descriptor fit for this yet.
    pub fn check_stateid(
        &mut self,
        caller: Caller,
        stateid: StateId,
        file: FileKey,
        access: Access,
        now: Instant,
    ) -> Result<IoGrant, StateError> {
        match stateid.form() {
            StateIdForm::Anonymous => return self.check_io(file, access, IoBy::Anonymous, now),
            StateIdForm::ReadBypass => return self.check_io(file, access, IoBy::Bypass, now),
            StateIdForm::Current | StateIdForm::Reserved => return Err(StateError::BadStateid),
            StateIdForm::Ordinary => {}
        }
        let key = self.resolve(caller, stateid, file, now)?;
        self.check_locks_are_back(caller, self.state(key)?.client)?;
        let open = match &self.state(key)?.kind {
            Kind::Open(open) => open,
            Kind::Lock(lock) => self.open_of(lock.open)?,
            Kind::Delegation(_) => return self.check_delegation(key, access),
        };
        let (own, reserved) = (open.obtained.union().access, open.share);
        if access == Access::READ && own == Access::WRITE {
            return self.check_read_for_write(key, reserved, now);
        }
        if !own.contains(access) {
            return Err(StateError::OpenMode);
        }
        open.descriptors.serving(access).map(IoGrant::Open).ok_or(StateError::Delay)
    }

    /// I/O with a delegation's stateid: the edge knows whose each descriptor is, and chooses.
    fn check_delegation(&self, key: StateKey, access: Access) -> Result<IoGrant, StateError> {
        let allowed = match self.delegation(key)?.granted {
            Some(DelegationKind::Read) => Access::READ,
            Some(DelegationKind::Write) => Access::BOTH,
            Some(DelegationKind::Directory | DelegationKind::NotifiedDirectory(_)) | None => {
                return Err(StateError::BadStateid);
            }
        };
        if !allowed.contains(access) {
            return Err(StateError::OpenMode);
        }
        Ok(IoGrant::Delegation(key.delegation()))
    }

    /// The descriptors of its holder's own opens that can do this, some of them: what the backend judged when they were
    /// opened need not be judged again.
    pub fn descriptors_under(
        &self,
        token: DelegationToken,
        access: Access,
    ) -> impl Iterator<Item = OpenId> + '_ {
        let state = self.state(token.key()).ok();
        let opens = state.and_then(|state| self.files.get(&state.file)).map(|file| file.opens.as_slice());
        opens.unwrap_or_default().iter().take(DELEGATED_OPENS_MAX).filter_map(move |open| {
            let is_own = self.state(*open).is_ok_and(|of| Some(of.client) == state.map(|state| state.client));
            self.open_of(*open).ok().filter(|_| is_own)?.descriptors.serving(access)
        })
    }

    /// Reading through an open for writing, as clients must that fill a page before they change a part of it
    /// (RFC 7530 section 16.23.4): the backend judges it, and others' share reservations hold.
    fn check_read_for_write(
        &mut self,
        key: StateKey,
        own: Share,
        now: Instant,
    ) -> Result<IoGrant, StateError> {
        if self.grace.is_on(now) {
            // An open that denies reading may yet be reclaimed (RFC 8881 section 8.4.2.1).
            return Err(StateError::Grace);
        }
        let (file, client) = {
            let state = self.state(key)?;
            (state.file, state.client)
        };
        let wanted = Share { access: Access::READ, deny: Access::NONE };
        let is_free = self.is_share_free(file, own, wanted, Some(client), now);
        if is_free {
            Ok(IoGrant::NoOpen)
        } else {
            Err(self.share_refusal(file, (own, wanted), StateError::Locked, now))
        }
    }

    /// Whether I/O without an open is allowed.
    ///
    /// # Errors
    /// `Locked` by a share reservation; `Grace`.
    pub fn check_io(
        &mut self,
        file: FileKey,
        access: Access,
        by: IoBy,
        now: Instant,
    ) -> Result<IoGrant, StateError> {
        if by == IoBy::Bypass && access == Access::READ {
            return Ok(IoGrant::NoOpen);
        }
        if by != IoBy::Nfs3 && self.grace.is_on(now) {
            return Err(StateError::Grace);
        }
        let wanted = Share { access, deny: Access::NONE };
        let is_free = match by {
            IoBy::Nfs3 => self.is_free_of_opens(file, wanted, now),
            IoBy::Anonymous | IoBy::Bypass => self.is_share_free(file, Share::default(), wanted, None, now),
        };
        if is_free {
            Ok(IoGrant::NoOpen)
        } else {
            Err(self.share_refusal(file, (Share::default(), wanted), StateError::Locked, now))
        }
    }

    /// TEST_STATEID of one stateid.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn test_stateid(&self, client: ClientId, stateid: StateId) -> Result<(), StateError> {
        if stateid.form() != StateIdForm::Ordinary {
            return Err(StateError::BadStateid);
        }
        let key = self.locate(Caller::V41(client), stateid)?;
        self.judge(key, stateid.seqid, Dialect::V41)
    }

    /// FREE_STATEID (RFC 8881 section 18.38): forgets a revoked state, or a lock state without locks.
    ///
    /// # Errors
    /// Those of a stateid; `LocksHeld` when it still stands for something.
    pub fn free_stateid(
        &mut self,
        client: ClientId,
        stateid: StateId,
        now: Instant,
    ) -> Result<(), StateError> {
        if stateid.form() != StateIdForm::Ordinary {
            return Err(StateError::BadStateid);
        }
        let key = self.locate(Caller::V41(client), stateid)?;
        match self.judge(key, stateid.seqid, Dialect::V41) {
            Ok(()) => self.free_good(key, now),
            Err(StateError::AdminRevoked | StateError::DelegRevoked) => {
                self.drop_revoked(key, now);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// The client knows that it lost this.
    pub(crate) fn drop_revoked(&mut self, key: StateKey, now: Instant) {
        self.drop_state(key, now);
    }

    /// Puts on record whether a client knows of everything that was taken from it: to be called when it has acknowledged
    /// all of it ([`Effect::RevocationsAcknowledged`]).
    pub fn record_losses(&mut self, client: ClientId) {
        // Should that fail, the client counts as one who may have missed something.
        self.witness.note_losses(client, self.has_unheard_revocations(client));
    }

    /// Whether something was taken from a client of which it has not acknowledged to know.
    #[must_use]
    pub fn has_unheard_revocations(&self, client: ClientId) -> bool {
        let is_loss_unheard = self.caps.clients.get(&client).is_some_and(|of| of.is_loss_unheard);
        is_loss_unheard
            || self.clients.by_id.get(&client).is_some_and(|of| of.revoked > 0 || of.delegations_revoked > 0)
    }

    fn free_good(&mut self, key: StateKey, now: Instant) -> Result<(), StateError> {
        let state = self.state(key)?;
        match &state.kind {
            Kind::Open(_) | Kind::Delegation(_) => Err(StateError::LocksHeld),
            Kind::Lock(lock) if lock.is_busy => Err(StateError::Delay),
            Kind::Lock(_) if self.holds_locks(state.file, key) => Err(StateError::LocksHeld),
            Kind::Lock(_) => {
                self.drop_state(key, now);
                Ok(())
            }
        }
    }

    /// Takes a state from its client and leaves its name with `standing`, once it is on record that the client has lost
    /// something. Whether it is.
    pub(crate) fn revoke_key(&mut self, key: StateKey, standing: Standing, now: Instant) -> bool {
        let of = self.state(key).map(|state| (state.client, state.owner, state.file));
        let Ok((client, owner, file)) = of else { return true };
        if !self.witness.note_losses(client, true) {
            return false;
        }
        self.effects.push(Effect::StateRevoked { client, file });
        self.detach(key, standing, now);
        self.count_revoked((client, owner, file), standing, true);
        true
    }

    /// Whether what an owner had of a file (without an owner: the client's delegation) was revoked in this life, and its client has
    /// not taken note: somebody may have done by now what it excludes, so it is not to be reclaimed (RFC 8881 section 8.4.3).
    pub(crate) fn has_lost(&self, client: ClientId, owner: Option<OwnerKey>, file: FileKey) -> bool {
        self.clients.by_id.get(&client).is_some_and(|of| of.lost.contains_key(&(owner, file)))
    }

    /// Counts states that were revoked and wait to be freed; others are not counted. Who knows of all of them has
    /// acknowledged them, whichever way: by FREE_STATEID, or with the open that a lock was made from.
    /// `is_new`: it is revoked now, else it is freed.
    pub(crate) fn count_revoked(
        &mut self,
        (id, owner, file): (ClientId, Option<OwnerKey>, FileKey),
        standing: Standing,
        is_new: bool,
    ) {
        let Some(client) = self.clients.by_id.get_mut(&id) else { return };
        let count = match standing {
            Standing::AdminRevoked => &mut client.revoked,
            Standing::DelegationRevoked => &mut client.delegations_revoked,
            Standing::Good | Standing::Closed => return,
        };
        let change = if is_new { 1 } else { -1 };
        let before = std::mem::replace(count, count.saturating_add_signed(change));
        let has_heard = before > 0 && *count == 0;
        if is_new {
            client.loses(owner, file);
        } else {
            client.takes_note(owner, file);
        }
        for session in &client.sessions {
            if let Some(session) = self.sessions.get_mut(*session) {
                session.is_state_revoked = client.revoked > 0;
                session.is_delegation_revoked = client.delegations_revoked > 0;
            }
        }
        if has_heard && !self.has_unheard_revocations(id) {
            self.effects.push(Effect::RevocationsAcknowledged { client: id });
        }
    }

    /// The state an ordinary stateid names for this caller, whatever its age or standing.
    pub(crate) fn locate(&self, caller: Caller, stateid: StateId) -> Result<StateKey, StateError> {
        let (boot, key) = stateid.parts();
        if boot != self.config.boot.get() {
            return Err(match caller {
                Caller::V40 => StateError::StaleStateid,
                Caller::V41(client) if self.has_to_reclaim(client) => StateError::StaleStateid,
                Caller::V41(_) => StateError::BadStateid,
            });
        }
        let Some(state) = self.states.get(key) else { return Err(self.absence(caller, stateid)) };
        let is_its = match caller {
            Caller::V41(client) => client == state.client,
            Caller::V40 => self.dialect_of(state.client) == Some(Dialect::V40),
        };
        if is_its { Ok(StateKey(key)) } else { Err(StateError::BadStateid) }
    }

    /// Whether this client may be granted anything new: not in grace, nor, by RFC 8881 section 18.51.3, before its own
    /// RECLAIM_COMPLETE. To be asked before a file is made for an open that would be refused.
    #[must_use]
    pub fn admits_new(&self, client: ClientId, now: Instant) -> bool {
        !self.grace.is_on(now) && !self.has_to_reclaim(client)
    }

    /// Whether a client may reclaim opens or locks now. To be asked before anything else is: a claim that comes too late must
    /// not wait for what others were granted since, but be told so.
    ///
    /// # Errors
    /// `NoGrace`, `ReclaimBad`.
    pub fn admits_reclaim(
        &self,
        client: ClientId,
        recorded: Recorded,
        now: Instant,
    ) -> Result<(), StateError> {
        let is_done = self.clients.by_id.get(&client).and_then(ClientIncarnation::is_reclaim_done);
        recorded.admit(self.grace, now, is_done)
    }

    /// Whether a 4.1 client came over from an earlier run, with its session, and has not reclaimed yet. Its stateids
    /// of that run are then stale, as in 4.0: RFC 8881 section 15.1.5.6 calls the error moot because sessions end
    /// with the server, which persistent ones do not, and on BAD_STATEID Linux gives its locks up for lost instead
    /// of reclaiming them.
    pub(crate) fn has_to_reclaim(&self, client: ClientId) -> bool {
        self.clients.by_id.get(&client).is_some_and(|c| c.is_reclaim_done() == Some(false))
    }

    /// Why a stateid of this run names nothing: a 4.0 client whose lease ran out must start over, not just lose
    /// this one (4.1 learns that from its session).
    fn absence(&self, caller: Caller, stateid: StateId) -> StateError {
        let last = self.states.memo(stateid.parts().1);
        let is_client_gone = last.is_some_and(|last| !self.clients.by_id.contains_key(&last.0));
        if caller == Caller::V40 && is_client_gone { StateError::Expired } else { StateError::BadStateid }
    }

    fn judge(&self, key: StateKey, seqid: Seqid, dialect: Dialect) -> Result<(), StateError> {
        let state = self.state(key)?;
        match state.standing {
            Standing::Good => {}
            Standing::Closed => return Err(StateError::BadStateid),
            Standing::AdminRevoked => return Err(StateError::AdminRevoked),
            Standing::DelegationRevoked => return Err(Self::revoked_error(dialect)),
        }
        if dialect == Dialect::V41 && seqid == Seqid(0) {
            return Ok(());
        }
        match seqid_age(seqid, state.seqid) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Less => Err(StateError::OldStateid),
            std::cmp::Ordering::Greater => Err(StateError::BadStateid),
        }
    }

    /// The good state that a stateid names for this caller on this file. Renews a 4.0 lease.
    pub(crate) fn resolve(
        &mut self,
        caller: Caller,
        stateid: StateId,
        file: FileKey,
        now: Instant,
    ) -> Result<StateKey, StateError> {
        let key = self.resolve_unconfirmed(caller, stateid, file, now)?;
        let owner = self.state(key)?.owner.and_then(|owner| self.owners.get(owner.0));
        let sequence = owner.and_then(|owner| owner.sequence.as_ref());
        if sequence.is_some_and(|sequence| !sequence.is_confirmed) {
            return Err(StateError::BadStateid);
        }
        Ok(key)
    }

    /// As `resolve`, also of a 4.0 owner that is still to be confirmed.
    pub(crate) fn resolve_unconfirmed(
        &mut self,
        caller: Caller,
        stateid: StateId,
        file: FileKey,
        now: Instant,
    ) -> Result<StateKey, StateError> {
        if stateid.form() != StateIdForm::Ordinary {
            return Err(StateError::BadStateid);
        }
        let key = self.locate(caller, stateid)?;
        let state = self.state(key)?;
        if state.file != file {
            return Err(StateError::BadStateid);
        }
        let (dialect, client) = match caller {
            Caller::V40 => (Dialect::V40, state.client),
            Caller::V41(client) => (Dialect::V41, client),
        };
        self.live_client(client, dialect, now)?;
        match self.judge(key, stateid.seqid, dialect) {
            Ok(()) => Ok(key),
            Err(error) => Err(self.heard_of(key, error, dialect, now)),
        }
    }

    /// A client is told why what it names is not good. Nothing else tells that one of 4.0 knows: it has no FREE_STATEID.
    #[cold]
    fn heard_of(&mut self, key: StateKey, error: StateError, dialect: Dialect, now: Instant) -> StateError {
        if dialect == Dialect::V40 && matches!(error, StateError::AdminRevoked) {
            self.drop_revoked(key, now);
        }
        error
    }

    /// Whose state a stateid of this run names, however it stands: in 4.0 nothing else tells whose a request is.
    #[must_use]
    pub fn client_of_stateid(&self, stateid: StateId) -> Option<ClientId> {
        self.states.get(self.key_of_stateid(stateid)?.0).map(|state| state.client)
    }

    /// What a stateid of this run names, or has named.
    pub(crate) fn key_of_stateid(&self, stateid: StateId) -> Option<StateKey> {
        let (boot, key) = stateid.parts();
        let is_its = stateid.form() == StateIdForm::Ordinary && boot == self.config.boot.get();
        is_its.then_some(StateKey(key))
    }

    pub(crate) fn push_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }
}
