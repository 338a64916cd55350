//! OPEN_DOWNGRADE and CLOSE.

use holdfast_base::{FileKey, Instant};

use crate::check::Caller;
use crate::engine::{Engine, Kind};
use crate::error::StateError;
use crate::share::{Access, Share};
use crate::stateid::StateId;

impl Engine {
    /// OPEN_DOWNGRADE: gives up part of a reservation.
    ///
    /// # Errors
    /// Those of a stateid; `Delay` while an OPEN of the owner is under way; `Inval` unless `share` is the union of some of the OPENs in effect (RFC 8881 section
    /// 18.18.3).
    pub fn open_downgrade(
        &mut self,
        caller: Caller,
        stateid: StateId,
        file: FileKey,
        share: Share,
        now: Instant,
    ) -> Result<StateId, StateError> {
        let key = self.resolve(caller, stateid, file, now)?;
        let open = self.open_mut(key)?;
        if !open.pending.is_empty() {
            return Err(StateError::Delay);
        }
        let kept = open.obtained.downgraded(share).ok_or(StateError::Inval)?;
        let before = std::mem::replace(&mut open.share, share);
        open.obtained = kept;
        let loses_write = before.access.contains(Access::WRITE) && !share.access.contains(Access::WRITE);
        self.change_shares(file, |of| {
            of.change_share(before, share);
            of.locks_outlast_opens |= loses_write && of.lock_ranges > 0;
        });
        self.bump(key)
    }

    /// CLOSE. Locks made from the open end with it: RFC 8881 section 18.2.3 leaves the choice, and Linux clients
    /// that lose a race between CLOSE and LOCKU count on it. Returns the stateid to answer with.
    ///
    /// # Errors
    /// Those of a stateid; `Delay` while an OPEN of the owner is under way, whose state it would take away.
    pub fn close(
        &mut self,
        caller: Caller,
        stateid: StateId,
        file: FileKey,
        now: Instant,
    ) -> Result<StateId, StateError> {
        let key = self.resolve(caller, stateid, file, now)?;
        self.check_locks_are_back(caller, self.state(key)?.client)?;
        let Kind::Open(open) = &self.state(key)?.kind else { return Err(StateError::BadStateid) };
        if !open.pending.is_empty() {
            return Err(StateError::Delay);
        }
        match caller {
            Caller::V41(_) => {
                self.drop_state(key, now);
                Ok(StateId::INVALID)
            }
            Caller::V40 => {
                let answer = self.bump(key)?;
                self.remember_closed(key, now)?;
                Ok(answer)
            }
        }
    }
}
