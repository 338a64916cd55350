//! How much room there is for byte ranges and for those who wait: by file, by client or door, and in all. Without it a client
//! could have the server remember as many as it likes, one byte at a time, and everybody's locks take as long as that.

use holdfast_base::limits::{
    LOCK_RANGES_MAX, LOCK_RANGES_PER_CLIENT_MAX, LOCK_RANGES_PER_DOOR_MAX, LOCK_RANGES_PER_FILE_MAX,
    LOCK_RANGES_PER_OWNER_FILE_MAX, LOCK_WAITERS_MAX, LOCK_WAITERS_PER_CLIENT_MAX, LOCK_WAITERS_PER_DOOR_MAX,
};
use holdfast_base::{ByteRange, ClientId, FileKey};
use rustc_hash::FxHashMap;

use crate::engine::Engine;
use crate::error::StateError;
use crate::file::Holder;
use crate::foreign::{Door, ForeignOwner};
use crate::lock_set::LockSet;
use crate::range_map::RangeMap;
use crate::waiters::Party;

/// Ranges that a lock adds at most where its holder has none to be kept beneath it: itself, and what it cuts in two.
const RANGES_OF_A_LOCK: usize = 3;

/// Whose account something is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Payer {
    /// A client of NFSv4.
    Client(ClientId),
    /// All owners of a door: its service knows whose they are, and has bounds of its own for each.
    Door(Door),
}

impl Payer {
    pub(crate) fn of(party: &Party) -> Self {
        match party {
            Party::Nfs4 { client, .. } => Self::Client(*client),
            Party::Foreign(owner) => Self::Door(owner.door),
        }
    }
}

/// So many in all, and on each account.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    total: usize,
    by_payer: FxHashMap<Payer, usize>,
}

impl Account {
    pub(crate) fn change(&mut self, payer: Payer, from: usize, to: usize) {
        if from == to {
            return;
        }
        self.total = (self.total + to).saturating_sub(from);
        let its = self.by_payer.entry(payer).or_default();
        *its = (*its + to).saturating_sub(from);
        if *its == 0 {
            self.by_payer.remove(&payer);
        }
    }

    fn of(&self, payer: Payer) -> usize {
        self.by_payer.get(&payer).copied().unwrap_or(0)
    }

    /// Whether so many more byte ranges may be held.
    pub(crate) fn has_room_for_ranges(&self, payer: Payer, more: usize) -> bool {
        let most = match payer {
            Payer::Client(_) => LOCK_RANGES_PER_CLIENT_MAX,
            Payer::Door(_) => LOCK_RANGES_PER_DOOR_MAX,
        };
        self.of(payer) + more <= most && self.total + more <= LOCK_RANGES_MAX
    }

    /// Whether one more may wait.
    pub(crate) fn has_room_for_waiter(&self, payer: Payer) -> bool {
        let most = match payer {
            Payer::Client(_) => LOCK_WAITERS_PER_CLIENT_MAX,
            Payer::Door(_) => LOCK_WAITERS_PER_DOOR_MAX,
        };
        self.of(payer) < most && self.total < LOCK_WAITERS_MAX
    }
}

impl Engine {
    /// On whose account a holder's locks are.
    pub(crate) fn payer(&self, holder: Holder) -> Option<Payer> {
        match holder {
            Holder::State(key) => Some(Payer::Client(self.states.get(key.0)?.client)),
            Holder::Foreign(owner) => Some(Payer::Door(owner.door)),
        }
    }

    /// Changes what a holder has of a file, and forgets the file when nothing is left. The only way to.
    pub(crate) fn change_locks<R>(
        &mut self,
        key: FileKey,
        holder: Holder,
        change: impl FnOnce(&mut LockSet<Holder>) -> R,
    ) -> R {
        let payer = self.payer(holder);
        let file = self.files.entry(key).or_default();
        let before = file.locks.of(holder).map_or(0, RangeMap::len);
        let result = change(&mut file.locks);
        let after = file.locks.of(holder).map_or(0, RangeMap::len);
        file.lock_ranges = (file.lock_ranges + after).saturating_sub(before);
        if file.is_idle() {
            self.files.remove(&key);
        }
        if let Some(payer) = payer {
            self.lock_ranges.change(payer, before, after);
        }
        result
    }

    /// Whether there is room for a lock. One over much that its holder has stronger locks of may hold twice as many ranges
    /// while it is under way.
    ///
    /// # Errors
    /// `Resource`.
    pub(crate) fn check_room_for_lock(
        &self,
        file: FileKey,
        holder: Option<Holder>,
        payer: Payer,
    ) -> Result<(), StateError> {
        self.check_room_for_ranges(file, holder, payer, RANGES_OF_A_LOCK)
    }

    /// Whether there is room for what unlocking leaves: more than before only where it cuts a lock in two. What only makes
    /// less is never refused, or who has come to a bound could not get away from it.
    ///
    /// # Errors
    /// `Resource`.
    pub(crate) fn check_room_for_unlock(
        &self,
        file: FileKey,
        holder: Holder,
        range: ByteRange,
    ) -> Result<(), StateError> {
        let held = self.files.get(&file).and_then(|of| of.locks.of(holder));
        let is_cut = |(had, _): (ByteRange, _)| had.first() < range.first() && range.last() < had.last();
        match self.payer(holder) {
            Some(payer) if held.is_some_and(|held| held.overlapping(range).any(is_cut)) => {
                self.check_room_for_ranges(file, Some(holder), payer, 1)
            }
            _ => Ok(()),
        }
    }

    /// The same of a foreign owner, whose service is to ask before it unlocks anything.
    ///
    /// # Errors
    /// `Resource`.
    pub fn foreign_can_unlock(
        &self,
        owner: ForeignOwner,
        file: FileKey,
        range: ByteRange,
    ) -> Result<(), StateError> {
        self.check_room_for_unlock(file, Holder::Foreign(owner), range)
    }

    fn check_room_for_ranges(
        &self,
        file: FileKey,
        holder: Option<Holder>,
        payer: Payer,
        more: usize,
    ) -> Result<(), StateError> {
        let of = self.files.get(&file);
        let in_file = of.map_or(0, |of| of.lock_ranges);
        let own = of.zip(holder).and_then(|(of, holder)| of.locks.of(holder)).map_or(0, RangeMap::len);
        let has_room = own + more <= LOCK_RANGES_PER_OWNER_FILE_MAX
            && in_file + more <= LOCK_RANGES_PER_FILE_MAX
            && self.lock_ranges.has_room_for_ranges(payer, more);
        if has_room { Ok(()) } else { Err(StateError::Resource) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_one_client_nor_a_door_uses_up_all_the_room() {
        let (client, other, door) =
            (Payer::Client(ClientId(1)), Payer::Client(ClientId(2)), Payer::Door(Door::Nlm));
        let mut account = Account::default();
        account.change(client, 0, LOCK_RANGES_PER_CLIENT_MAX);
        assert!(!account.has_room_for_ranges(client, 1));
        assert!(account.has_room_for_ranges(other, 1));
        account.change(door, 0, LOCK_RANGES_PER_DOOR_MAX);
        assert!(!account.has_room_for_ranges(door, 1));
        assert!(account.has_room_for_ranges(other, 1), "not even together");
        account.change(other, 0, LOCK_RANGES_MAX - LOCK_RANGES_PER_CLIENT_MAX - LOCK_RANGES_PER_DOOR_MAX);
        assert!(!account.has_room_for_ranges(Payer::Client(ClientId(3)), 1));
        account.change(client, LOCK_RANGES_PER_CLIENT_MAX, 0);
        account.change(door, LOCK_RANGES_PER_DOOR_MAX, 0);
        account.change(other, LOCK_RANGES_MAX - LOCK_RANGES_PER_CLIENT_MAX - LOCK_RANGES_PER_DOOR_MAX, 0);
        assert_eq!(account, Account::default());
        account.change(client, 0, LOCK_WAITERS_PER_CLIENT_MAX);
        assert!(!account.has_room_for_waiter(client) && account.has_room_for_waiter(other));
        account.change(door, 0, LOCK_WAITERS_PER_DOOR_MAX);
        assert!(!account.has_room_for_waiter(door) && account.has_room_for_waiter(other));
        account.change(other, 0, LOCK_WAITERS_MAX - LOCK_WAITERS_PER_CLIENT_MAX - LOCK_WAITERS_PER_DOOR_MAX);
        assert!(!account.has_room_for_waiter(Payer::Client(ClientId(3))));
    }
}
