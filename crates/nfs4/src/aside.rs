//! What locks of a client hold against local processes, let go when its lease has run out and taken again when it is back
//! (`holdfast_state`'s `aside.rs` says why).
//!
//! Where the file lies on other hosts as well, one of them answers in its own time, or never: there it is done by threads of
//! its own (`errands.rs`), so that neither the tick, nor a request of somebody else's, waits for it.

use std::sync::Arc;

use holdfast_base::{ByteRange, ClientId, SessionId};
use holdfast_state::LocksHeld;
use holdfast_vfs::{Backend, FileObject, FsError, FsResult};

use crate::op::lock::backend_kind;
use crate::service::Service;

mod errands;

use errands::Errand;
pub(crate) use errands::Errands;

/// The file that carries locks outside.
struct Carrier {
    backend: Arc<dyn Backend>,
    file: Arc<dyn FileObject>,
    /// Another host may have to be asked.
    is_elsewhere: bool,
}

impl Service {
    /// Lets go of them, unless the client has come back since that was decided.
    pub(crate) fn set_locks_aside(&self, client: ClientId) {
        let is_done = self.errands.try_turn(client).is_some_and(|_turn| self.let_go(client, false));
        if !is_done {
            self.go_on_errand(Errand::LetGo(client));
        }
    }

    /// The same of what another process may have begun.
    pub(crate) fn let_go_again(&self, client: ClientId) {
        if self.look(|engine| engine.are_locks_aside(client)) {
            self.set_locks_aside(client);
        }
    }

    /// Lets go of what can be let go of at once, or of all. Whether that was all.
    fn let_go(&self, client: ClientId, may_wait: bool) -> bool {
        if !self.look(|engine| engine.are_locks_aside(client)) {
            return true;
        }
        let held = self.look(|engine| engine.locks_of(client));
        tracing::debug!(%client, files = held.len(), "its lease has run out: its locks do not hold against local processes");
        let mut is_all = true;
        for Carrier { backend, file, is_elsewhere } in held.iter().filter_map(|locks| self.carrier(locks)) {
            if is_elsewhere && !may_wait {
                is_all = false;
            } else if let Err(error) = backend.unlock(&file, ByteRange::ALL) {
                tracing::warn!(%client, %error, "a lock of a client that is away stays in the way of local processes");
            }
        }
        is_all
    }

    /// Takes them again, and revokes those that a local process is in the way of. Whether the client is to be served; if not, its
    /// next request asks again.
    pub(crate) fn take_locks_back(&self, client: ClientId) -> bool {
        let Some(_turn) = self.errands.try_turn(client) else { return false };
        let held = self.look(|engine| engine.locks_of(client));
        let is_elsewhere = |locks| self.carrier(locks).is_some_and(|carrier| carrier.is_elsewhere);
        if self.look(|engine| engine.are_locks_aside(client)) && held.iter().any(is_elsewhere) {
            self.go_on_errand(Errand::TakeBack(client));
            return false;
        }
        self.take_back(client)
    }

    fn take_back(&self, client: ClientId) -> bool {
        if !self.look(|engine| engine.are_locks_aside(client)) {
            return true;
        }
        for locks in self.look(|engine| engine.locks_of(client)) {
            match self.hold_again(&locks) {
                Ok(()) => continue,
                Err(error @ (FsError::Delay | FsError::WouldBlock)) => {
                    tracing::debug!(%client, %error, "a lock cannot be taken again just now");
                    return false;
                }
                // A local process has taken it; or the file is gone, or what kept the lock below has lost it. Who has that one
                // lock less is to be served all the same.
                Err(error) => tracing::debug!(%client, %error, "a lock of the client's is lost"),
            }
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
        let Some(Carrier { backend, file, .. }) = self.carrier(locks) else { return Ok(()) };
        locks.ranges.iter().try_for_each(|(range, kind)| backend.lock(&file, *range, backend_kind(*kind)))
    }

    /// None where no local process can meet them.
    fn carrier(&self, locks: &LocksHeld) -> Option<Carrier> {
        let file = self.files.locks(locks.token)?;
        let (root, handle) = file.hand_over().map(|handed| (handed.root, handed.handle))?;
        let exports = self.config.namespace.exports();
        let export = exports.iter().find(|export| export.backend.root().is_ok_and(|of| of == root))?;
        let backend = Arc::clone(&export.backend);
        let is_elsewhere = backend.may_be_on_other_hosts(&handle);
        Some(Carrier { backend, file, is_elsewhere })
    }

    fn go_on_errand(&self, errand: Errand) {
        let Some(service) = self.itself() else { return };
        if !self.errands.put(errand) {
            return;
        }
        let run = move || {
            let _leaving = service.errands.leaves_if_it_panics();
            while let Some(errand) = service.errands.next() {
                service.do_errand(errand);
            }
        };
        if std::thread::Builder::new().name("locks".into()).spawn(run).is_err() {
            self.errands.does_not_come();
        }
    }

    fn do_errand(&self, errand: Errand) {
        let (Errand::LetGo(client) | Errand::TakeBack(client)) = errand;
        let _turn = self.errands.turn(client);
        match errand {
            Errand::LetGo(_) => self.let_go(client, true),
            Errand::TakeBack(_) => self.take_back(client),
        };
    }
}
