//! What a client has reclaimed in this life of the server it may reclaim once more, after grace too, until it says
//! RECLAIM_COMPLETE: its recovery was cut off, and begins again. It is granted nothing by that, as it has it all the time; refused,
//! it would give up for lost what the server holds for it on and on. (4.0, which has no such word, sends again under the
//! same sequence number and hears the first reply.)

use holdfast_base::{ByteRange, ClientId, FileKey};

use crate::deed::DelegationKind;
use crate::engine::{Engine, StateKey};
use crate::lock_set::LockKind;
use crate::owner::OwnerKind;
use crate::share::Share;

impl Engine {
    /// Whether an open-owner has reclaimed an open of the file, and with it at least this share, and its client may do so again.
    #[must_use]
    pub fn has_reclaimed(&self, client: ClientId, owner: &[u8], file: FileKey, share: Share) -> bool {
        let owner = self.find_owner(client, OwnerKind::Open, owner);
        let open = owner.and_then(|owner| self.by_owner_file.get(&(owner, file)));
        let held = open.and_then(|open| self.open_of(*open).ok()).map(|open| open.share);
        self.has_to_reclaim(client) && held.is_some_and(|held| held.contains(share))
    }

    /// The same of locks: whether all of the range is locked so.
    pub(crate) fn has_reclaimed_lock(
        &self,
        (client, lock): (ClientId, StateKey),
        file: FileKey,
        (range, kind): (ByteRange, LockKind),
    ) -> bool {
        self.has_to_reclaim(client) && self.has_locked(lock, file, (range, kind))
    }

    /// The same of a delegation.
    #[must_use]
    pub fn has_reclaimed_delegation(&self, client: ClientId, file: FileKey, kind: DelegationKind) -> bool {
        self.has_to_reclaim(client) && self.holds_delegation(client, file) == Some(kind)
    }
}
