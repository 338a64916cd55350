//! CREATE_SESSION with its reply cache of one slot (RFC 8881 section 18.36.4), DESTROY_SESSION, DESTROY_CLIENTID
//! and RECLAIM_COMPLETE.

use holdfast_base::limits::{FORMER_AT_WORK_MS, SESSIONS_PER_CLIENT_MAX};
use holdfast_base::{ClientId, Instant, Seqid, SessionId};

use super::{ClientIncarnation, FIRST_CREATE_SESSION, Side};
use serde::{Deserialize, Serialize};

use crate::channel::ChannelAttrs;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::StateError;
use crate::names::{ConnId, Dialect, Principal};
use crate::session::{Direction, Session, SessionImage};
use crate::slots::SlotTable;

/// What only a record of 4.1 and later has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Side41 {
    #[serde(with = "crate::plain")]
    /// Of the last CREATE_SESSION.
    pub(crate) seqid: Seqid,
    /// Its result; before the first one, a contrived `SeqMisordered`.
    pub(crate) reply: Result<CreatedSession, StateError>,
    pub(crate) is_reclaim_done: bool,
}

impl Side41 {
    pub(crate) const fn new() -> Self {
        let seqid = Seqid(FIRST_CREATE_SESSION.0.wrapping_sub(1));
        Self { seqid, reply: Err(StateError::SeqMisordered), is_reclaim_done: false }
    }
}

/// The arguments of CREATE_SESSION.
#[derive(Clone, Copy, Debug)]
pub struct CreateSession<'a> {
    /// Whose session.
    pub client: ClientId,
    /// `csa_sequence`.
    pub seqid: Seqid,
    /// As whom the request came.
    pub principal: &'a Principal,
    /// The connection it came on.
    pub conn: ConnId,
    /// Asked for the fore channel.
    pub fore: ChannelAttrs,
    /// Asked for the back channel; `None` when the connection is not to carry callbacks and none are wanted.
    pub back: Option<ChannelAttrs>,
    /// The connection shall carry callbacks too (`CREATE_SESSION4_FLAG_CONN_BACK_CHAN`).
    pub conn_direction: Direction,
    /// RPC program of callbacks.
    pub callback_program: u32,
    /// The session shall outlive a restart, and the edge will keep it (`CREATE_SESSION4_FLAG_PERSIST`).
    pub is_persistent: bool,
}

/// The answer to CREATE_SESSION.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreatedSession {
    #[serde(with = "crate::plain")]
    /// Its name.
    pub id: SessionId,
    #[serde(with = "crate::plain")]
    /// `csr_sequence`.
    pub seqid: Seqid,
    /// Agreed for the fore channel.
    pub fore: ChannelAttrs,
    /// Agreed for the back channel.
    pub back: Option<ChannelAttrs>,
    /// Whether the connection carries callbacks.
    pub conn_direction: Direction,
    /// Whether the session outlives a restart.
    pub is_persistent: bool,
    /// It was made before, and this answers a retry.
    #[serde(skip)]
    pub is_again: bool,
}

impl Engine {
    /// CREATE_SESSION. A retry gets the result of the original. With a new client's first session its record is
    /// confirmed, its former incarnation is released, and [`Effect::PersistClient`] is due before the reply.
    ///
    /// # Errors
    /// `StaleClientid`, `SeqMisordered`, `ClidInuse`, `TooSmall`, `Resource`; `Delay` while something of the former incarnation is
    /// being executed, for [`FORMER_AT_WORK_MS`] at most.
    pub fn create_session(
        &mut self,
        request: &CreateSession<'_>,
        now: Instant,
    ) -> Result<CreatedSession, StateError> {
        // Phase 1: look up.
        let client = self.clients.by_id.get(&request.client).filter(|client| !client.is_leaving);
        let client = client.ok_or(StateError::StaleClientid)?;
        let Side::V41(side) = &client.side else { return Err(StateError::StaleClientid) };
        // Phase 2: sequence.
        if request.seqid == side.seqid {
            return self.create_session_again(request, side.reply);
        }
        if request.seqid != side.seqid.next() {
            return Err(StateError::SeqMisordered);
        }
        // Phase 3: only the creator may confirm or use the record; nothing changes otherwise.
        if client.identity.principal != *request.principal {
            return Err(StateError::ClidInuse);
        }
        if now.ms_since(client.renewed_at) < FORMER_AT_WORK_MS && self.is_former_at_work(client) {
            return Err(StateError::Delay);
        }
        let given_up = match client.sessions.len() >= SESSIONS_PER_CLIENT_MAX {
            true => Some(self.unused_session(&client.sessions).ok_or(StateError::Resource)?),
            false => None,
        };
        // Phase 4. Deviation: as with Linux's server, only a session made uses the sequence number up. RFC 8881 section
        // 18.36.4 takes it in phase 2, for a refusal as well; pynfs (CSESS29) asks anew with the same one. A retry of
        // what is refused is refused again.
        let created = self.agree(request)?;
        if let Some(session) = given_up {
            self.destroy_session(session, 0)?;
        }
        if let Side::V41(side) = &mut self.clients.get_mut(request.client)?.side {
            side.seqid = request.seqid;
            side.reply = Ok(created);
        }
        self.install_session(request, &created, now)?;
        Ok(created)
    }

    /// Whether something is being executed of the incarnation that a client's first session replaces. It has what it holds until that
    /// is done, as it has while its lease runs out: what it writes must not come behind the back of who gets its lock next. But who
    /// has begun anew does not wait without end for a disk that hangs, for replies that nobody takes, or for a namesake that lives.
    fn is_former_at_work(&self, client: &ClientIncarnation) -> bool {
        if client.is_confirmed {
            return false;
        }
        let records = self.clients.records(client.dialect(), client.identity.name.as_bytes());
        let Some(former) = records.confirmed else { return false };
        let sessions = self.clients.by_id.get(&former).map_or(&[][..], |former| &former.sessions);
        let is_busy = |id: &SessionId| self.sessions.get(*id).is_some_and(|of| of.slots.running() > 0);
        sessions.iter().any(is_busy) || self.caps_is_executing(former)
    }

    /// Takes back a session that could not be kept where it outlives the server, and with it the reply that tells of it:
    /// its number is not used up, and whoever sends it again asks anew (RFC 8881 section 18.36.4, phase 4).
    ///
    /// # Errors
    /// `BadSession`: it is gone.
    pub fn withdraw_session(&mut self, created: &CreatedSession) -> Result<(), StateError> {
        let client = self.sessions.get(created.id).ok_or(StateError::BadSession)?.client;
        if let Side::V41(side) = &mut self.clients.get_mut(client)?.side
            && side.reply.is_ok_and(|reply| reply.id == created.id)
        {
            side.seqid = Seqid(created.seqid.0.wrapping_sub(1));
            side.reply = Err(StateError::SeqMisordered);
        }
        self.destroy_session(created.id, 0)
    }

    /// The session that its client has not used for the longest time, of those that no connection belongs to. Linux makes
    /// a new one after each restart of the server, and destroys none, for those of a server's former life it takes for
    /// gone: persistent ones pile up.
    fn unused_session(&self, sessions: &[SessionId]) -> Option<SessionId> {
        let named = sessions.iter().filter_map(|id| Some((*id, self.sessions.get(*id)?)));
        let is_unused = |session: &Session| session.connections() == 0 && session.slots.running() == 0;
        let unused = named.filter(|(_, session)| is_unused(session));
        unused.min_by_key(|(_, session)| session.last_used()).map(|(id, _)| id)
    }

    /// The answer to a retry speaks of the connection that the retry came on.
    fn create_session_again(
        &mut self,
        request: &CreateSession<'_>,
        reply: Result<CreatedSession, StateError>,
    ) -> Result<CreatedSession, StateError> {
        let created = CreatedSession { is_again: true, ..reply? };
        if let Some(session) = self.sessions.get_mut(created.id) {
            session.bind(request.conn, created.conn_direction)?;
        }
        Ok(created)
    }

    fn agree(&mut self, request: &CreateSession<'_>) -> Result<CreatedSession, StateError> {
        let mut fore = request.fore.agree_fore()?;
        fore.slots_max = self.sessions.grant_slots(fore.slots_max, self.policy.slots_max)?;
        let back = match request.back.map(ChannelAttrs::agree_back) {
            // Who wants no callbacks need not say how they should be; what is said is judged all the same.
            Some(Err(_))
                if request.conn_direction == Direction::Fore
                    && request.back.is_some_and(|b| b.is_nothing()) =>
            {
                None
            }
            back => back.transpose()?,
        };
        let conn_direction = if back.is_some() { request.conn_direction } else { Direction::Fore };
        let id = self.new_session_id(request.client);
        Ok(CreatedSession {
            is_again: false,
            id,
            seqid: request.seqid,
            fore,
            back,
            conn_direction,
            is_persistent: request.is_persistent,
        })
    }

    /// Half of it random, so that a session cannot be guessed by another client.
    fn new_session_id(&mut self, client: ClientId) -> SessionId {
        loop {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&client.0.to_be_bytes());
            self.entropy.fill(&mut id[8..]);
            if self.sessions.get(SessionId(id)).is_none() {
                return SessionId(id);
            }
        }
    }

    fn install_session(
        &mut self,
        request: &CreateSession<'_>,
        created: &CreatedSession,
        now: Instant,
    ) -> Result<(), StateError> {
        self.confirm_client(request.client, now)?;
        let image = SessionImage {
            id: created.id,
            client: request.client,
            fore: created.fore,
            back: created.back,
            callback_program: request.callback_program,
            is_persistent: created.is_persistent,
            slots: SlotTable::new(created.fore.slots_max).image(),
        };
        let mut session = Session::new(&image, now);
        session.is_back_wanted = false;
        session.bind(request.conn, created.conn_direction)?;
        let is_of_former_life = self.clients.is_of_former_life(request.client);
        let client = self.clients.get_mut(request.client)?;
        session.is_state_revoked = client.revoked > 0;
        session.is_delegation_revoked = client.delegations_revoked > 0;
        // RFC 8881 section 18.46.3: every SEQUENCE says so until it has reclaimed, in a session made since the restart too,
        // though all others be gone.
        session.is_reclaim_needed = is_of_former_life && client.is_reclaim_done() == Some(false);
        // Linux makes a session whenever it hears so, and reclaims in that: in another it has heard.
        let mut others = client.sessions.iter().filter_map(|id| self.sessions.get(*id));
        let may_not_know = !client.has_begun_anew && others.all(|of| of.is_restart_unheard);
        session.is_restart_unheard = session.is_reclaim_needed && may_not_know;
        session.is_held_up = client.has_locks_aside;
        client.renewed_at = now;
        client.sessions.push(created.id);
        self.sessions.insert(created.id, session);
        self.want_locks_back(request.client);
        Ok(())
    }

    /// Confirms a record and releases the incarnation it replaces. Does nothing to a confirmed one.
    pub(crate) fn confirm_client(&mut self, id: ClientId, now: Instant) -> Result<(), StateError> {
        let client = self.clients.get_mut(id)?;
        if client.is_confirmed {
            return Ok(());
        }
        let (dialect, name) = (client.dialect(), client.identity.name.clone());
        let former = self.clients.records(dialect, name.as_bytes()).confirmed;
        self.clients.confirm(id);
        if let Some(image) = self.client_image(id) {
            // Before the former one is forgotten: a crash between the two must leave one of them.
            self.effects.push(Effect::PersistClient(image));
        }
        if let Some(former) = former {
            self.remove_client(former, now);
        }
        Ok(())
    }

    /// DESTROY_SESSION (RFC 8881 section 18.37). `running_own`: how many of the session's running requests are
    /// this one (1 when the operation came within the session, else 0).
    ///
    /// # Errors
    /// `BadSession`; `Delay` while other requests run in it.
    pub fn destroy_session(&mut self, id: SessionId, running_own: u32) -> Result<(), StateError> {
        let session = self.sessions.get(id).ok_or(StateError::BadSession)?;
        if session.slots.running() > running_own {
            return Err(StateError::Delay);
        }
        let (client, last_used) = (session.client, session.last_used);
        self.drop_session(id);
        if let Ok(client) = self.clients.get_mut(client) {
            // The lease that was renewed in it is the client's.
            client.renewed_at = client.renewed_at.max(last_used);
            client.sessions.retain(|other| *other != id);
        }
        Ok(())
    }

    pub(crate) fn drop_session(&mut self, id: SessionId) {
        if self.sessions.remove(id).is_some() {
            self.effects.push(Effect::SessionGone(id));
        }
    }

    /// DESTROY_CLIENTID (RFC 8881 section 18.50). An unconfirmed record may be destroyed too.
    ///
    /// # Errors
    /// `StaleClientid`; `ClientidBusy` while it has sessions that it knows of or state, or wants delegations; `Delay` while a batch of
    /// it is being executed. Capabilities go with it.
    pub fn destroy_clientid(&mut self, id: ClientId, now: Instant) -> Result<(), StateError> {
        let client = self.clients.by_id.get(&id).ok_or(StateError::StaleClientid)?;
        if client.dialect() != Dialect::V41 || client.is_leaving {
            return Err(StateError::StaleClientid);
        }
        let is_left = client.sessions.iter().all(|session| self.is_given_up(client, *session));
        if !is_left || !client.states.is_empty() || self.wants.is_wishing(id) {
            return Err(StateError::ClientidBusy);
        }
        if self.caps_is_executing(id) {
            return Err(StateError::Delay);
        }
        self.effects.push(Effect::ClientLeft(id));
        self.remove_client(id, now);
        Ok(())
    }

    /// Whether a client takes a session for gone: it is of a former life, since which the client has introduced itself again,
    /// as Linux does after a restart, to go on in a session of this life. Nobody destroys the other, and whoever unmounts would
    /// ask ten times, a second each, to be let go. Not before it has reclaimed all: until it has a session of this life its right
    /// to do so would be anybody's to destroy, who need not prove that a client id is his.
    fn is_given_up(&self, client: &ClientIncarnation, session: SessionId) -> bool {
        let session = self.sessions.get(session);
        let is_idle = |session: &Session| session.is_of_former_life && session.slots.running() == 0;
        client.has_begun_anew && client.is_reclaim_done() == Some(true) && session.is_none_or(is_idle)
    }

    /// A reply that tells of the restart answers something else than reclaims.
    pub fn restart_heard(&mut self, session: SessionId) {
        if let Some(session) = self.sessions.get_mut(session) {
            session.is_restart_unheard = false;
        }
    }

    /// Whether RECLAIM_COMPLETE in this session may be about an earlier run, when it is not to be believed: a session
    /// that outlives restarts hides one in the middle of reclaiming, what was reclaimed before which is lost. Asked
    /// once: whoever says it again means it.
    pub fn doubts_reclaims(&mut self, session: SessionId) -> bool {
        let session = self.sessions.get_mut(session).filter(|session| session.is_reclaim_needed);
        session.is_some_and(|session| std::mem::take(&mut session.is_restart_unheard))
    }

    /// RECLAIM_COMPLETE for everything (`rca_one_fs` false; with true there is nothing to note, as no file system
    /// moves here) (RFC 8881 section 18.51).
    ///
    /// # Errors
    /// `StaleClientid`, `CompleteAlready`.
    pub fn reclaim_complete(&mut self, id: ClientId) -> Result<(), StateError> {
        self.clients.confirmed(id, Dialect::V41)?;
        let client = self.clients.get_mut(id)?;
        let Side::V41(side) = &mut client.side else { return Err(StateError::StaleClientid) };
        if std::mem::replace(&mut side.is_reclaim_done, true) {
            return Err(StateError::CompleteAlready);
        }
        for session in &client.sessions {
            if let Some(session) = self.sessions.get_mut(*session) {
                session.is_reclaim_needed = false;
            }
        }
        self.effects.push(Effect::ReclaimDone(id));
        Ok(())
    }
}
