//! What all compounds share: the state engine behind its lock, open files, retries that wait. Effects of the engine
//! are run here, after its lock is dropped.

use std::sync::{Arc, Weak};

use holdfast_base::{ClientId, FileKey, Instant, SessionId};
use holdfast_export::{Credential, Export};
use holdfast_rpc::Auth;
use holdfast_state::{
    Admission, Completed, ConnId, Effect, Engine, KeptReply, OwnerName, Principal, SlotRequest, StateError,
};
use holdfast_vfs::{Caller, FsResult};
use holdfast_wire::nfs4::{CbArgOp, CbNotifyLock4Args, NfsStat4, StateOwner4};
use holdfast_xdr::Writer;
use parking_lot::Mutex;

use crate::callback::Callbacks;
use crate::config::{Config, Seeds};
use crate::desc::Minor;
use crate::error::OpResult;
use crate::files::OpenFiles;
use crate::offload::Offloads;
use crate::slot::{Retries, SlotUse};

/// The shared half of the service.
pub(crate) struct Service {
    pub(crate) config: Config,
    engine: Mutex<Engine>,
    pub(crate) files: OpenFiles,
    pub(crate) retries: Retries,
    pub(crate) callbacks: Callbacks,
    pub(crate) offloads: Offloads,
    /// Itself, for what outlives the call that begins it.
    this: Weak<Self>,
}

impl Service {
    pub(crate) fn new(config: Config, seeds: Seeds) -> Arc<Self> {
        let of_state =
            holdfast_state::Config { boot: config.boot, lease_ms: config.lease_ms, grace: config.grace };
        let engine = Mutex::new(Engine::new(of_state, seeds.entropy));
        Arc::new_cyclic(|this| Self {
            config,
            engine,
            files: OpenFiles::default(),
            retries: Retries::default(),
            callbacks: Callbacks::default(),
            offloads: Offloads::default(),
            this: Weak::clone(this),
        })
    }

    /// The lease as the `lease_time` attribute tells it.
    pub(crate) fn lease_seconds(&self) -> u32 {
        u32::try_from(self.config.lease_ms.div_ceil(1000)).unwrap_or(u32::MAX)
    }

    pub(crate) fn serves(&self, minor: Minor) -> bool {
        minor as u32 <= self.config.minor_max
    }

    /// Runs a step of the engine, then what it left to do.
    pub(crate) fn state<R>(&self, step: impl FnOnce(&mut Engine, Instant) -> OpResult<R>) -> OpResult<R> {
        let now = self.config.clock.now();
        let (result, effects) = {
            let mut engine = self.engine.lock();
            let result = step(&mut engine, now);
            (result, engine.take_effects())
        };
        self.run(effects)?;
        result
    }

    /// Only looks at the engine.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Engine) -> R) -> R {
        look(&self.engine.lock())
    }

    /// Asks once more about a request that was being executed. Nothing of that has effects to run, and the caller
    /// may hold the table of retries, which some effects need.
    pub(crate) fn ask_again(
        &self,
        session: SessionId,
        request: SlotRequest,
        conn: ConnId,
    ) -> Result<Admission, StateError> {
        let now = self.config.clock.now();
        let mut engine = self.engine.lock();
        engine.sessions_mut().sequence(session, request, conn, now).map(|sequenced| sequenced.admission)
    }

    fn run(&self, effects: Vec<Effect>) -> OpResult<()> {
        let mut outcome = Ok(());
        for effect in effects {
            match effect {
                Effect::CloseFile(open) => drop(self.files.close(open)),
                Effect::ReleaseLocks(token) => drop(self.files.close_locks(token)),
                Effect::PersistClient(image) => {
                    if self.config.records.persist(&image).is_err() {
                        // A client whose record is not safe must not build on it.
                        let now = self.config.clock.now();
                        let rest = {
                            let mut engine = self.engine.lock();
                            engine.revoke_client(image.id, now);
                            engine.take_effects()
                        };
                        // These never persist anything, so this goes no deeper.
                        self.run(rest)?;
                        outcome = Err(NfsStat4::ServerFault.into());
                    }
                }
                Effect::ForgetClient(client) => {
                    self.offloads.cancel_clients(|of| of == client);
                    self.config.records.forget(client);
                }
                Effect::ReclaimDone(client) => self.config.records.reclaim_done(client),
                Effect::NotifyLock { client, file, owner } => self.notify_lock(client, file, &owner),
                Effect::SessionGone(session) => {
                    self.callbacks.session_gone(session);
                    if let Some(records) = &self.config.sessions {
                        records.session_gone(session);
                    }
                    // Their slot is gone, and with it the reply they wait for: the client finds its session dead
                    // at its next request.
                    drop(self.retries.take_session(session));
                }
            }
        }
        outcome
    }

    /// A connection ended: nothing counts on it any more.
    pub(crate) fn forget_connection(&self, conn: ConnId) {
        self.callbacks.connection_gone(conn);
        // Forgetting has no effects, so it cannot fail.
        let _ = self.state(|engine, _| {
            engine.sessions_mut().forget_connection(conn);
            Ok(())
        });
    }

    /// Tells a client that a lock it waits for can be had. Should it not hear, it asks again by itself in time.
    fn notify_lock(&self, client: ClientId, file: FileKey, owner: &OwnerName) {
        let Some((this, fh)) = self.this.upgrade().zip(self.files.waited_for(file)) else { return };
        let lock_owner = StateOwner4 { clientid: client, owner: owner.as_bytes() };
        let call = CbArgOp::NotifyLock(CbNotifyLock4Args { fh: fh.as_bytes(), lock_owner });
        this.call_back(client, call, Box::new(|_| ()));
    }

    /// Ends the request on a slot. `kept` is what a retry from now on gets; empty when nothing can be kept. Returns
    /// whether retries may wait for [`Service::answer_retries`].
    #[must_use]
    pub(crate) fn complete(&self, slot: &SlotUse, kept: &[u8]) -> bool {
        let now = self.config.clock.now();
        let kept = if kept.is_empty() { KeptReply::Nothing } else { KeptReply::Bytes(kept) };
        let completed = self.engine.lock().sessions_mut().complete(slot.session, slot.slot, kept, now);
        completed != Completed::Done { retries_wait: false }
    }

    /// Sends retries that came while the request ran its results; nothing, when those are empty: the client will
    /// have to ask again.
    pub(crate) fn answer_retries(&self, slot: &SlotUse, results: &[u8]) {
        for mut retry in self.retries.take(slot.session, slot.slot) {
            // Dropped unsent, a retry is answered SYSTEM_ERR.
            if !results.is_empty() {
                retry.reset();
                retry.writer().put(results);
                retry.send();
            }
        }
    }

    pub(crate) fn caller(&self, export: &Export, auth: &Auth) -> FsResult<Caller> {
        let credential = match auth.sys() {
            Some(sys) => Credential::Sys { uid: sys.uid, gid: sys.gid, groups: &sys.groups },
            None => Credential::Anonymous,
        };
        export.caller(&credential, self.config.groups.as_ref())
    }

    /// Expires what has run out. To be called about once a second.
    pub(crate) fn tick(&self) {
        // A failure could only be of a client record, and expiry persists none.
        let _ = self.state(|engine, now| {
            engine.tick(now);
            Ok(())
        });
    }
}

/// Who calls, in the form in which the state engine compares callers: flavor and user. The group is left out, as
/// clients change it (newgrp) without becoming another.
pub(crate) fn principal(auth: &Auth) -> Principal {
    let mut canonical = Writer::new();
    canonical.u32(auth.flavor());
    if let Some(sys) = auth.sys() {
        canonical.u32(sys.uid);
    }
    Principal::new(canonical.as_slice())
}
