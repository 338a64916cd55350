//! Locks at the server.

use holdfast_cache::Errno;
use holdfast_client::{Cancel, Cx, LockArgs};

use super::{NfsServer, errno, wire};
use crate::locks::{LockConflict, LockRequest};

impl NfsServer {
    pub(super) fn take_lock(&self, lock: &LockRequest<'_>, wait: bool, cancel: &Cancel) -> Result<(), Errno> {
        let file = self.opens.get(lock.open).ok_or(Errno::ENOLCK)?;
        let (cred, owner) = (self.creds.of(lock.caller), lock.owner.bytes());
        let cx = Cx::new(&cred, cancel);
        let args = LockArgs { owner: &owner, range: lock.range, exclusive: lock.exclusive };
        let taken =
            if wait { self.client.lock_wait(cx, &file, &args) } else { self.client.lock(cx, &file, &args) };
        taken.map_err(|error| errno(&error))
    }

    pub(super) fn test_lock(
        &self,
        lock: &LockRequest<'_>,
        cancel: &Cancel,
    ) -> Result<Option<LockConflict>, Errno> {
        let (cred, owner) = (self.creds.of(lock.caller), lock.owner.bytes());
        let args = LockArgs { owner: &owner, range: lock.range, exclusive: lock.exclusive };
        let conflict = self.client.lock_test(Cx::new(&cred, cancel), &wire(lock.object), &args);
        let told = conflict.map_err(|error| errno(&error))?;
        Ok(told.map(|conflict| LockConflict { range: conflict.range, exclusive: conflict.exclusive }))
    }
}
