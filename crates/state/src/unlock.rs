//! LOCKU and RELEASE_LOCKOWNER.

use holdfast_base::{ByteRange, ClientId, FileKey, Instant};

use crate::check::Caller;
use crate::engine::{Engine, Kind, StateKey};
use crate::error::StateError;
use crate::file::Holder;
use crate::lock::LockTicket;
use crate::names::Dialect;
use crate::owner::OwnerKind;
use crate::stateid::StateId;

impl Engine {
    /// Begins LOCKU. The range stays locked here until the backend has unlocked it and `lock_commit` is called:
    /// otherwise the next owner would be let in here and turned away there.
    ///
    /// # Errors
    /// Those of a stateid; `Resource`; `Delay` while another change of these locks is under way.
    pub fn unlock_prepare(
        &mut self,
        caller: Caller,
        stateid: StateId,
        file: FileKey,
        range: ByteRange,
        now: Instant,
    ) -> Result<LockTicket, StateError> {
        let key = self.resolve(caller, stateid, file, now)?;
        self.check_locks_are_back(caller, self.state(key)?.client)?;
        let Kind::Lock(lock) = &self.state(key)?.kind else { return Err(StateError::BadStateid) };
        let access = self.open_of(lock.open)?.obtained.union().access;
        self.check_not_busy(key)?;
        self.check_room_for_unlock(file, Holder::State(key), range)?;
        self.lock_mut(key)?.is_busy = true;
        let locks = self.files.get(&file).map(|file| &file.locks);
        let before = locks.map(|locks| locks.within(Holder::State(key), range)).unwrap_or_default();
        Ok(LockTicket {
            state: key,
            file,
            range,
            becomes: None,
            before,
            is_new: false,
            first_seqid: None,
            access,
        })
    }

    /// RELEASE_LOCKOWNER (RFC 7530 section 16.37): forgets a lock-owner that holds no lock.
    ///
    /// # Errors
    /// Those of an unknown client; `LocksHeld`.
    pub fn release_lock_owner(
        &mut self,
        client: ClientId,
        name: &[u8],
        now: Instant,
    ) -> Result<(), StateError> {
        self.live_client(client, Dialect::V40, now)?;
        let Some(owner) = self.find_owner(client, OwnerKind::Lock, name) else { return Ok(()) };
        let states = &self.clients.confirmed(client, Dialect::V40)?.states;
        let is_its = |key: &&StateKey| self.states.get(key.0).is_some_and(|state| state.owner == Some(owner));
        let states: Vec<_> = states.iter().filter(is_its).copied().collect();
        let is_held = |key: &StateKey| self.state(*key).is_ok_and(|state| self.holds_locks(state.file, *key));
        if states.iter().any(is_held) {
            return Err(StateError::LocksHeld);
        }
        for state in states {
            self.drop_state(state, now);
        }
        self.drop_owner(owner);
        Ok(())
    }

    /// Takes all locks of a holder on a file, and lets waiters in.
    pub(crate) fn release_holder(&mut self, file: FileKey, holder: Holder, now: Instant) {
        if self.change_locks(file, holder, |locks| locks.remove(holder)) {
            self.wake_waiters(file, None, now);
        }
    }
}
