//! Sessions and their table: everything a SEQUENCE needs, and nothing of opens and locks, so that it can stand
//! behind a lock of its own.

use holdfast_base::limits::{
    PRESSED_SLOTS_MIN, SESSION_CONNECTIONS_MAX, SESSIONS_SLOTS_MAX, SESSIONS_SLOTS_ROOM_SHARE,
    SESSIONS_SLOTS_SHARE,
};
use holdfast_base::{ClientId, Instant, Seqid, SessionId, SlotId};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::channel::ChannelAttrs;
use crate::error::StateError;
use crate::names::ConnId;
use crate::slots::{Admission, KeptReply, SlotImage, SlotRequest, SlotTable};

/// Which directions a connection serves in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Requests from the client.
    Fore,
    /// Callbacks from the server.
    Back,
    /// Both.
    Both,
}

impl Direction {
    fn has_back(self) -> bool {
        self != Self::Fore
    }

    fn with(self, other: Self) -> Self {
        if self == other { self } else { Self::Both }
    }
}

/// News for the client in every SEQUENCE reply (`sr_status_flags`, RFC 8881 section 18.46.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusFlags {
    /// `SEQ4_STATUS_CB_PATH_DOWN_SESSION`: the session had a connection for its back channel and has none any more.
    pub is_back_channel_down: bool,
    /// `SEQ4_STATUS_ADMIN_STATE_REVOKED`: revoked state waits for FREE_STATEID.
    pub is_state_revoked: bool,
    /// `SEQ4_STATUS_RECALLABLE_STATE_REVOKED`: delegations were not returned in time and wait for FREE_STATEID.
    pub is_delegation_revoked: bool,
    /// `SEQ4_STATUS_CB_PATH_DOWN`: a callback did not get through.
    pub is_callback_down: bool,
    /// `SEQ4_STATUS_BACKCHANNEL_FAULT`: the back channel's slots are out of step.
    pub is_back_channel_faulty: bool,
    /// `SEQ4_STATUS_RESTART_RECLAIM_NEEDED`: the session outlived a restart and its client's state did not.
    pub is_reclaim_needed: bool,
    /// A recall of capabilities is not followed: all that the client holds may soon be taken from it.
    pub is_in_doubt: bool,
}

/// The answer to SEQUENCE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequenced {
    /// What to do with the request.
    pub admission: Admission,
    /// Whose session it is.
    pub client: ClientId,
    /// `sr_highest_slotid`.
    pub highest_slot: SlotId,
    /// `sr_target_highest_slotid`.
    pub target_highest_slot: SlotId,
    /// News for the client.
    pub status: StatusFlags,
}

/// The end of a request's execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// The reply is kept as asked; whether parked retries are to be answered now.
    Done {
        /// Whether at least one retry was told to wait.
        retries_wait: bool,
    },
    /// The session was destroyed meanwhile; parked retries get `BadSession`.
    SessionGone,
}

/// What is wrong with a back channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Fault {
    /// The two sides count its slots differently.
    OutOfStep,
    /// All its slots wait for answers that were given up, on a connection that stands: the calls must not be made once
    /// more on it (RFC 8881 section 2.10.6.2).
    Stuck,
}

/// One session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    #[serde(with = "crate::plain")]
    pub(crate) client: ClientId,
    /// Agreed attributes, requests from the client.
    pub(crate) fore: ChannelAttrs,
    /// Agreed attributes, callbacks; `None` when the client wanted none.
    pub(crate) back: Option<ChannelAttrs>,
    pub(crate) callback_program: u32,
    pub(crate) is_persistent: bool,
    pub(crate) slots: SlotTable,
    connections: Vec<(ConnId, Direction)>,
    /// The client once had a connection for callbacks, or may have had before a restart.
    pub(crate) is_back_wanted: bool,
    #[serde(with = "crate::plain")]
    pub(crate) last_used: Instant,
    pub(crate) is_state_revoked: bool,
    pub(crate) is_delegation_revoked: bool,
    /// A callback did not get through since a connection for them was added.
    pub(crate) is_callback_down: bool,
    #[serde(default)]
    back_channel_fault: Option<Fault>,
    pub(crate) is_reclaim_needed: bool,
    /// The client has asked for nothing in this run but what belongs to reclaiming, which it may have begun in the run
    /// before: it may not know of the latest restart.
    #[serde(default)]
    pub(crate) is_restart_unheard: bool,
    /// Made in an earlier run, and restored.
    #[serde(default)]
    pub(crate) is_of_former_life: bool,
    /// Nothing is served in it until its client's locks hold against local processes again.
    #[serde(default)]
    pub(crate) is_held_up: bool,
}

/// A session as plain data, to be kept or handed to another process (CSR4_PERSIST).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionImage {
    /// Its name.
    pub id: SessionId,
    /// Whose it is.
    pub client: ClientId,
    /// Agreed attributes, requests.
    pub fore: ChannelAttrs,
    /// Agreed attributes, callbacks.
    pub back: Option<ChannelAttrs>,
    /// RPC program of callbacks.
    pub callback_program: u32,
    /// Whether the client was told that it outlives a restart.
    pub is_persistent: bool,
    /// The reply cache.
    pub slots: Vec<SlotImage>,
}

impl Session {
    pub(crate) fn new(image: &SessionImage, now: Instant) -> Self {
        Self {
            client: image.client,
            fore: image.fore,
            back: image.back,
            callback_program: image.callback_program,
            is_persistent: image.is_persistent,
            slots: SlotTable::from_image(&image.slots),
            connections: Vec::new(),
            is_back_wanted: true,
            last_used: now,
            is_state_revoked: false,
            is_delegation_revoked: false,
            is_callback_down: false,
            back_channel_fault: None,
            is_reclaim_needed: false,
            is_restart_unheard: false,
            is_of_former_life: false,
            is_held_up: false,
        }
    }

    /// Whether its client's locks have to be taken again first ([`Engine::held_up`](crate::Engine::held_up)).
    #[must_use]
    pub const fn is_held_up(&self) -> bool {
        self.is_held_up
    }

    /// Whose it is.
    #[must_use]
    pub const fn client(&self) -> ClientId {
        self.client
    }

    /// Agreed attributes of the fore channel.
    #[must_use]
    pub const fn fore(&self) -> &ChannelAttrs {
        &self.fore
    }

    /// Agreed attributes of the back channel, when there is one.
    #[must_use]
    pub const fn back(&self) -> Option<&ChannelAttrs> {
        self.back.as_ref()
    }

    /// The RPC program number of callbacks.
    #[must_use]
    pub const fn callback_program(&self) -> u32 {
        self.callback_program
    }

    /// Connections that may carry callbacks, the last bound one first: a client that was cut off binds another, and what became
    /// of those before shows only after a while.
    pub fn back_connections(&self) -> impl Iterator<Item = ConnId> {
        self.connections.iter().rev().filter(|(_, direction)| direction.has_back()).map(|(conn, _)| *conn)
    }

    /// Connections it knows, for administrators.
    pub fn connection_ids(&self) -> impl Iterator<Item = ConnId> {
        self.connections.iter().map(|(conn, _)| *conn)
    }

    /// How many connections it knows.
    pub(crate) const fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Whether callbacks can be sent in this session, as far as is known.
    #[must_use]
    pub fn can_call_back(&self) -> bool {
        let is_sound = !self.is_callback_down && self.back_channel_fault.is_none();
        self.back.is_some() && is_sound && self.back_connections().next().is_some()
    }

    /// Whether the slots of its back channel are out of step for good, so that no call of it is answered.
    #[must_use]
    pub fn is_out_of_step(&self) -> bool {
        self.back_channel_fault == Some(Fault::OutOfStep)
    }

    /// Whether the session knows this connection.
    #[must_use]
    pub fn has_connection(&self, conn: ConnId) -> bool {
        self.connections.iter().any(|(known, _)| *known == conn)
    }

    /// Whether the client was told that it outlives a restart.
    #[must_use]
    pub const fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// When it was last used, or taken in.
    #[must_use]
    pub const fn last_used(&self) -> Instant {
        self.last_used
    }

    /// News for the client.
    #[must_use]
    pub fn status(&self) -> StatusFlags {
        StatusFlags {
            is_back_channel_down: self.is_back_wanted
                && self.back.is_some()
                && self.back_connections().next().is_none(),
            is_state_revoked: self.is_state_revoked,
            is_delegation_revoked: self.is_delegation_revoked,
            is_callback_down: self.is_callback_down,
            is_back_channel_faulty: self.back_channel_fault.is_some(),
            is_reclaim_needed: self.is_reclaim_needed,
            is_in_doubt: false,
        }
    }

    /// Notes that a connection serves a direction. When the table is full a connection for requests goes
    /// unremembered (nothing depends on it) and one for callbacks takes the place of one for requests.
    pub(crate) fn bind(&mut self, conn: ConnId, direction: Direction) -> Result<(), StateError> {
        self.is_back_wanted |= direction.has_back();
        // A new way is as good as unknown to be bad.
        self.is_callback_down &= !direction.has_back();
        if let Some(at) = self.connections.iter().position(|(known, _)| *known == conn) {
            let known = self.connections[at].1.with(direction);
            self.connections[at].1 = known;
            if direction.has_back() {
                // It was said just now: this one is there, which of the others nobody knows.
                self.connections[at..].rotate_left(1);
            }
            return Ok(());
        }
        if direction.has_back() {
            self.unstick();
        }
        if self.connections.len() < SESSION_CONNECTIONS_MAX {
            self.connections.push((conn, direction));
            return Ok(());
        }
        if direction == Direction::Fore {
            return Ok(());
        }
        let replaceable = self.connections.iter().position(|(_, known)| *known == Direction::Fore);
        self.connections.remove(replaceable.ok_or(StateError::Resource)?);
        self.connections.push((conn, direction));
        Ok(())
    }

    fn unstick(&mut self) {
        self.back_channel_fault.take_if(|fault| *fault == Fault::Stuck);
    }

    fn image(&self, id: SessionId) -> SessionImage {
        SessionImage {
            id,
            client: self.client,
            fore: self.fore,
            back: self.back,
            callback_program: self.callback_program,
            is_persistent: self.is_persistent,
            slots: self.slots.image(),
        }
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    by_id: FxHashMap<SessionId, Session>,
    /// Slots of all of them.
    slots: usize,
}

impl Sessions {
    /// SEQUENCE (RFC 8881 section 18.46): admits a request, renews the lease by it, and notes the connection it
    /// came on (with SP4_NONE a connection joins the fore channel by use, section 2.10.3.1).
    ///
    /// # Errors
    /// `BadSession`, and those of [`SlotTable::admit`]; `Delay` where its client's locks have to be taken again first
    /// ([`Engine::held_up`](crate::Engine::held_up)).
    pub fn sequence(
        &mut self,
        id: SessionId,
        request: SlotRequest,
        conn: ConnId,
        now: Instant,
    ) -> Result<Sequenced, StateError> {
        let session = self.by_id.get_mut(&id).ok_or(StateError::BadSession)?;
        if session.is_held_up {
            return Err(StateError::Delay);
        }
        let admission = session.slots.admit(request)?;
        session.last_used = now;
        if !session.has_connection(conn) {
            session.bind(conn, Direction::Fore)?;
        }
        Ok(Sequenced {
            admission,
            client: session.client,
            highest_slot: session.slots.highest(),
            target_highest_slot: session.slots.target_highest(),
            status: session.status(),
        })
    }

    /// Ends a request that `sequence` admitted as new. A long request renews the lease by its end as well.
    pub fn complete(&mut self, id: SessionId, slot: SlotId, reply: KeptReply<'_>, now: Instant) -> Completed {
        let Some(session) = self.by_id.get_mut(&id) else { return Completed::SessionGone };
        session.last_used = now;
        Completed::Done { retries_wait: session.slots.complete(slot, reply) }
    }

    /// BIND_CONN_TO_SESSION (RFC 8881 section 18.34): adds a direction to a connection and returns what it
    /// serves now.
    ///
    /// # Errors
    /// `BadSession`; `Inval` when callbacks alone are asked for on a session without a back channel; `Resource`.
    pub fn bind_connection(
        &mut self,
        id: SessionId,
        conn: ConnId,
        wanted: Direction,
    ) -> Result<Direction, StateError> {
        let session = self.by_id.get_mut(&id).ok_or(StateError::BadSession)?;
        let direction = match (wanted, session.back) {
            (Direction::Back, None) => return Err(StateError::Inval),
            (Direction::Both, None) => Direction::Fore,
            (wanted, _) => wanted,
        };
        session.bind(conn, direction)?;
        Ok(direction)
    }

    /// BACKCHANNEL_CTL (RFC 8881 section 18.33): callbacks are calls of this program from now on.
    ///
    /// # Errors
    /// `BadSession`.
    pub fn set_callback_program(&mut self, id: SessionId, program: u32) -> Result<(), StateError> {
        self.by_id.get_mut(&id).ok_or(StateError::BadSession)?.callback_program = program;
        Ok(())
    }

    /// The slots of a session's back channel are out of step, for good: the client is told, and makes a new session.
    pub fn back_channel_failed(&mut self, id: SessionId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.back_channel_fault = Some(Fault::OutOfStep);
        }
    }

    /// All slots of a session's back channel wait for answers that do not come, on a connection that stands: the client
    /// is told the same, unless one of them comes after all or it brings another connection.
    pub fn back_channel_stuck(&mut self, id: SessionId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.back_channel_fault.get_or_insert(Fault::Stuck);
        }
    }

    /// One of the answers came.
    pub fn back_channel_unstuck(&mut self, id: SessionId) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.unstick();
        }
    }

    /// A connection ended: no session may count on it any more.
    pub fn forget_connection(&mut self, conn: ConnId) {
        for session in self.by_id.values_mut() {
            session.connections.retain(|(known, _)| *known != conn);
        }
    }

    /// The session of that name.
    #[must_use]
    pub fn get(&self, id: SessionId) -> Option<&Session> {
        self.by_id.get(&id)
    }

    /// Asks the client to use `count` slots from now on (`sr_target_highest_slotid`).
    ///
    /// # Errors
    /// `BadSession`.
    pub fn set_slot_target(&mut self, id: SessionId, count: u32) -> Result<(), StateError> {
        self.by_id.get_mut(&id).ok_or(StateError::BadSession)?.slots.set_target(count);
        Ok(())
    }

    /// Whether the reply to a request is known to have come: its slot was used again since, or is no more.
    #[must_use]
    pub fn is_reply_known(&self, id: SessionId, slot: SlotId, seqid: Seqid) -> bool {
        self.by_id.get(&id).is_none_or(|session| session.slots.has_gone_on_from(slot, seqid))
    }

    /// A session as plain data; `None` when there is none of that name.
    #[must_use]
    pub fn image(&self, id: SessionId) -> Option<SessionImage> {
        self.by_id.get(&id).map(|session| session.image(id))
    }

    /// Whether any session was asked to use fewer slots than it has.
    pub(crate) fn is_pressed(&self) -> bool {
        self.by_id.values().any(|session| (session.slots.target() as usize) < session.slots.len())
    }

    /// Gives sessions back slots that pressure took, `room` in all at most.
    pub(crate) fn relax(&mut self, mut room: usize) {
        let mut ids: Vec<_> = self.by_id.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let Some(session) = self.by_id.get_mut(&id) else { continue };
            let missing = session.slots.len() - session.slots.target() as usize;
            let more = missing.min(room);
            if more > 0 {
                session.slots.set_target(session.slots.target() + more as u32);
                room -= more;
            }
        }
    }

    /// How many of the slots asked for a new session gets: the fewer are left, the fewer, so that one host that makes
    /// sessions without end does not keep others from making one. Beyond the `budget` it gets few: those who have many are
    /// asked for theirs.
    pub(crate) fn grant_slots(&self, asked: u32, budget: usize) -> Result<u32, StateError> {
        let left = SESSIONS_SLOTS_MAX.saturating_sub(self.slots);
        if left == 0 {
            return Err(StateError::Resource);
        }
        let share = u32::try_from(left / SESSIONS_SLOTS_SHARE).unwrap_or(u32::MAX);
        let room = budget.saturating_sub(self.slots) / SESSIONS_SLOTS_ROOM_SHARE;
        let room = u32::try_from(room).unwrap_or(u32::MAX).max(PRESSED_SLOTS_MIN);
        Ok(asked.min(share.max(1)).min(room))
    }

    /// Slots of all sessions.
    pub(crate) const fn slots(&self) -> usize {
        self.slots
    }

    /// Number of sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Session> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn insert(&mut self, id: SessionId, session: Session) {
        self.slots += session.slots.len();
        if let Some(former) = self.by_id.insert(id, session) {
            self.slots -= former.slots.len();
        }
    }

    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Session> {
        let gone = self.by_id.remove(&id)?;
        self.slots -= gone.slots.len();
        Some(gone)
    }

    /// All of them, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.by_id.iter().map(|(id, session)| (*id, session))
    }
}
