//! What locks of a client hold against local processes, let go when its lease has run out and taken again when it is back
//! (`holdfast_state`'s `aside.rs` says why).

use std::sync::Arc;

use holdfast_base::{ByteRange, ClientId, SessionId};
use holdfast_state::LocksHeld;
use holdfast_vfs::{Backend, FileObject, FsError, FsResult};

use crate::op::lock::backend_kind;
use crate::service::Service;

impl Service {
    /// Lets go of them, unless the client has come back since that was decided.
    pub(crate) fn set_locks_aside(&self, client: ClientId) {
        let _turn = self.asides.lock();
        if !self.look(|engine| engine.are_locks_aside(client)) {
            return;
        }
        let held = self.look(|engine| engine.locks_of(client));
        tracing::debug!(%client, files = held.len(), "its lease has run out: its locks do not hold against local processes");
        for locks in held {
            if let Some((backend, file)) = self.outside(&locks)
                && let Err(error) = backend.unlock(&file, ByteRange::ALL)
            {
                tracing::warn!(%client, %error, "a lock of a client that is away stays in the way of local processes");
            }
        }
    }

    /// Takes them again, and revokes those that a local process is in the way of. Whether the client is to be served.
    pub(crate) fn take_locks_back(&self, client: ClientId) -> bool {
        let _turn = self.asides.lock();
        if !self.look(|engine| engine.are_locks_aside(client)) {
            return true;
        }
        for locks in self.look(|engine| engine.locks_of(client)) {
            match self.hold_again(&locks) {
                Ok(()) => continue,
                Err(FsError::Locked) => {}
                Err(error) => {
                    tracing::debug!(%client, %error, "a lock cannot be taken again just now");
                    return false;
                }
            }
            tracing::debug!(%client, "a local process has taken what the client had locked: that lock is lost");
            let revoked = self.state(|engine, now| Ok(engine.revoke_state(locks.stateid, now)?));
            // What it has lost could not be put on record: not yet.
            if revoked.is_err() {
                return false;
            }
        }
        self.tell(|engine, _| engine.locks_are_back(client));
        true
    }

    /// Has the client of a session that was held up served again, unless another request of its has done that by now; whether
    /// it is.
    pub(crate) fn takes_up(&self, session: SessionId) -> bool {
        self.look(|engine| engine.held_up(session)).is_none_or(|client| self.take_locks_back(client))
    }

    fn hold_again(&self, locks: &LocksHeld) -> FsResult<()> {
        let Some((backend, file)) = self.outside(locks) else { return Ok(()) };
        locks.ranges.iter().try_for_each(|(range, kind)| backend.lock(&file, *range, backend_kind(*kind)))
    }

    /// The file that carries them, and its backend; none where no local process can meet them.
    fn outside(&self, locks: &LocksHeld) -> Option<(Arc<dyn Backend>, Arc<dyn FileObject>)> {
        let file = self.files.locks(locks.token)?;
        let root = file.hand_over()?.root;
        let exports = self.config.namespace.exports();
        let export = exports.iter().find(|export| export.backend.root().is_ok_and(|of| of == root))?;
        Some((Arc::clone(&export.backend), file))
    }
}
