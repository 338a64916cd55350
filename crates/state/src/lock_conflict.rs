//! Who is in a lock's way: what LOCK is denied by, and what LOCKT asks (RFC 8881 section 18.11).

use holdfast_base::{ByteRange, ClientId, FileKey, Instant};

use crate::engine::{Engine, StateKey};
use crate::error::StateError;
use crate::file::Holder;
use crate::foreign::ForeignOwner;
use crate::lock::LockRefusal;
use crate::lock_set::LockKind;
use crate::names::{Dialect, OwnerName};
use crate::owner::OwnerKind;

/// The arguments of LOCKT.
#[derive(Clone, Copy, Debug)]
pub struct LockTest<'a> {
    /// Whose request: for 4.1 the session's client.
    pub client: ClientId,
    /// The lock-owner, known or not.
    pub owner: &'a [u8],
    /// The file.
    pub file: FileKey,
    /// Which bytes.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub kind: LockKind,
}

/// Who is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictHolder {
    /// An NFSv4 lock-owner.
    Nfs4 {
        /// Its client.
        client: ClientId,
        /// Its name.
        owner: OwnerName,
    },
    /// Somebody who came through another door.
    Foreign(ForeignOwner),
}

/// A lock in the way (`LOCK4denied`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who has it, or is next to have it.
    pub holder: ConflictHolder,
    /// Of which bytes.
    pub range: ByteRange,
    /// Shared or exclusive.
    pub kind: LockKind,
}

/// A lock to be looked for conflicts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WantedLock<'a> {
    pub(crate) file: FileKey,
    /// Who wants it, if it holds anything on the file.
    pub(crate) holder: Option<Holder>,
    /// Who wants it, by name, if it can have been waiting.
    pub(crate) asking: Option<(ClientId, &'a [u8])>,
    pub(crate) range: ByteRange,
    pub(crate) kind: LockKind,
}

impl Engine {
    /// LOCKT.
    ///
    /// # Errors
    /// `Denied`; those of an unknown client; `Grace`.
    pub fn lock_test(&mut self, test: &LockTest<'_>, now: Instant) -> Result<(), LockRefusal> {
        let dialect = self.dialect_of(test.client).unwrap_or(Dialect::V40);
        self.live_client(test.client, dialect, now)?;
        if self.grace.is_on(now) {
            return Err(StateError::Grace.into());
        }
        let owner = self.find_owner(test.client, OwnerKind::Lock, test.owner);
        let state = owner.and_then(|owner| self.by_owner_file.get(&(owner, test.file)).copied());
        let wanted = WantedLock {
            file: test.file,
            holder: state.map(Holder::State),
            asking: Some((test.client, test.owner)),
            range: test.range,
            kind: test.kind,
        };
        match self.find_conflict(&wanted, now) {
            None => Ok(()),
            Some(conflict) => Err(LockRefusal::Denied(conflict)),
        }
    }

    /// The first lock in the way. Clients in the way whose lease ran out are expired.
    pub(crate) fn find_conflict(&mut self, wanted: &WantedLock<'_>, now: Instant) -> Option<Conflict> {
        let file = self.files.get(&wanted.file)?;
        let in_way = file.locks.conflicts(wanted.holder, wanted.range, wanted.kind);
        let mut clients: Vec<ClientId> = in_way.filter_map(|(holder, _, _)| self.client_of(holder)).collect();
        clients.sort_unstable();
        clients.dedup();
        clients.retain(|client| self.is_lapsed(*client, now));
        self.expire(&clients, now);
        let file = self.files.get(&wanted.file)?;
        match file.locks.conflict(wanted.holder, wanted.range, wanted.kind) {
            None => file.reserved_for_waiter(wanted, now),
            Some((holder, range, kind)) => {
                Some(Conflict { holder: self.conflict_holder(holder)?, range, kind })
            }
        }
    }

    /// Whether a lock in the way is that of a client that goes once its record is gone.
    pub(crate) fn is_of_one_leaving(&self, conflict: &Conflict) -> bool {
        matches!(&conflict.holder, ConflictHolder::Nfs4 { client, .. } if self.is_leaving(*client))
    }

    pub(crate) fn client_of(&self, holder: Holder) -> Option<ClientId> {
        match holder {
            Holder::Foreign(_) => None,
            Holder::State(key) => self.states.get(key.0).map(|state| state.client),
        }
    }

    fn conflict_holder(&self, holder: Holder) -> Option<ConflictHolder> {
        match holder {
            Holder::Foreign(owner) => Some(ConflictHolder::Foreign(owner)),
            Holder::State(key) => {
                let state = self.states.get(key.0)?;
                let owner = self.owners.get(state.owner?.0)?.name.clone();
                Some(ConflictHolder::Nfs4 { client: state.client, owner })
            }
        }
    }

    /// Whether all of a range is locked so, or exclusively.
    pub(crate) fn has_locked(
        &self,
        lock: StateKey,
        file: FileKey,
        (range, kind): (ByteRange, LockKind),
    ) -> bool {
        let Some(file) = self.files.get(&file) else { return false };
        let mut next = Some(range.first());
        for (part, held) in file.locks.within(Holder::State(lock), range) {
            if next != Some(part.first()) || (kind == LockKind::Write && held == LockKind::Read) {
                return false;
            }
            next = part.last().checked_add(1);
        }
        next == range.last().checked_add(1)
    }

    pub(crate) fn holds_locks(&self, file: FileKey, key: StateKey) -> bool {
        self.files.get(&file).is_some_and(|file| file.locks.of(Holder::State(key)).is_some())
    }
}
