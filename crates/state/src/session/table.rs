//! The table of all sessions.

use holdfast_base::limits::{
    PRESSED_SLOTS_MIN, SESSIONS_SLOTS_MAX, SESSIONS_SLOTS_ROOM_SHARE, SESSIONS_SLOTS_SHARE,
};
use holdfast_base::{Instant, Seqid, SessionId, SlotId};
use rustc_hash::FxHashMap;

use super::{Completed, Direction, Fault, Sequenced, Session, SessionImage};
use crate::error::StateError;
use crate::names::ConnId;
use crate::slots::{KeptReply, SlotRequest};

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
