//! What all compounds share: the state engine behind its lock, open files, retries that wait. Effects of the engine
//! are run here, after its lock is dropped.

use std::sync::Arc;

use holdfast_base::Instant;
use holdfast_export::{Credential, Export};
use holdfast_rpc::Auth;
use holdfast_state::{Completed, Effect, Engine, KeptReply, Principal};
use holdfast_vfs::Caller;
use holdfast_wire::nfs4::NfsStat4;
use holdfast_xdr::Writer;
use parking_lot::Mutex;

use crate::callback::Callbacks;
use crate::config::{Config, Seeds};
use crate::desc::Minor;
use crate::error::OpResult;
use crate::files::OpenFiles;
use crate::slot::{Retries, SlotUse};

/// The shared half of the service.
pub(crate) struct Service {
    pub(crate) config: Config,
    engine: Mutex<Engine>,
    pub(crate) files: OpenFiles,
    pub(crate) retries: Retries,
    pub(crate) callbacks: Callbacks,
}

impl Service {
    pub(crate) fn new(config: Config, seeds: Seeds) -> Arc<Self> {
        let of_state =
            holdfast_state::Config { boot: config.boot, lease_ms: config.lease_ms, grace: config.grace };
        let engine = Mutex::new(Engine::new(of_state, seeds.entropy));
        Arc::new(Self { config, engine, files: OpenFiles::default(), retries: Retries::default(), callbacks: Callbacks::default() })
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
                Effect::ForgetClient(client) => self.config.records.forget(client),
                Effect::ReclaimDone(client) => self.config.records.reclaim_done(client),
                Effect::NotifyLock { .. } => {}
                Effect::SessionGone(session) => {
                    self.callbacks.session_gone(session);
                    if let Some(journal) = &self.config.journal {
                        journal.session_gone(session);
                    }
                    // Their slot is gone, and with it the reply they wait for: the client finds its session dead
                    // at its next request.
                    drop(self.retries.take_session(session));
                }
            }
        }
        outcome
    }

    /// Ends the request on a slot: `reply` is what a retry gets, if it is to be kept.
    pub(crate) fn complete(&self, slot: &SlotUse, reply: &[u8], is_kept: bool) {
        if is_kept && let Some(journal) = &self.config.journal {
            journal.replied(slot.session, slot.slot, slot.seqid, reply);
        }
        let now = self.config.clock.now();
        let kept = if is_kept { KeptReply::Bytes(reply) } else { KeptReply::Nothing };
        let completed = self.engine.lock().sessions_mut().complete(slot.session, slot.slot, kept, now);
        let waiting = match completed {
            Completed::Done { retries_wait: false } => return,
            Completed::Done { retries_wait: true } | Completed::SessionGone => {
                self.retries.take(slot.session, slot.slot)
            }
        };
        for mut retry in waiting {
            // An empty reply is that of a compound that never ended: dropping the retry says so.
            if !reply.is_empty() {
                retry.reset();
                retry.writer().put(reply);
                retry.send();
            }
        }
    }

    pub(crate) fn caller(&self, export: &Export, auth: &Auth) -> Caller {
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
