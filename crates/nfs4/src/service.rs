//! What all compounds share: the way to the state engine, open files, retries that wait; and NFSv4's part of what the
//! engine leaves to be done.

use std::sync::{Arc, Weak};

use holdfast_base::{ByteRange, ClientId, FileKey, Instant, SessionId};
use holdfast_manager::{Agent, AttributeHolder, EntryChange, NotKept};
use holdfast_rpc::Auth;
use holdfast_state::{
    Admission, Completed, ConnId, Effect, Engine, KeptReply, OwnerName, Principal, SlotRequest, StateError,
    Verifier,
};
use holdfast_wire::nfs4::{CbArgOp, CbNotifyLock4Args, NfsStat4, StateOwner4};
use holdfast_xdr::Writer;

use crate::aside::Errands;
use crate::attribution::Attribution;
use crate::callback::Callbacks;
use crate::config::{Config, Options};
use crate::delegation::{Delegations, Recall};
use crate::desc::Minor;
use crate::error::OpResult;
use crate::files::OpenFiles;
use crate::memory::Memory;
use crate::moved::Untold;
use crate::offload::Offloads;
use crate::report::LastCensus;
use crate::slot::{Retries, SlotUse};

/// The shared half of the service.
pub(crate) struct Service {
    pub(crate) config: Config,
    pub(crate) options: Options,
    pub(crate) files: OpenFiles,
    pub(crate) retries: Retries,
    pub(crate) callbacks: Callbacks,
    pub(crate) delegations: Delegations,
    pub(crate) attribution: Attribution,
    pub(crate) offloads: Offloads,
    pub(crate) census: LastCensus,
    pub(crate) untold: Untold,
    pub(crate) errands: Errands,
    pub(crate) memory: Memory,
    /// Itself, for what outlives the call that begins it.
    this: Weak<Self>,
}

impl Service {
    pub(crate) fn new(config: Config, options: Options) -> Arc<Self> {
        let service = Arc::new_cyclic(|this| Self {
            config,
            options,
            files: OpenFiles::default(),
            retries: Retries::default(),
            callbacks: Callbacks::default(),
            delegations: Delegations::default(),
            attribution: Attribution::default(),
            offloads: Offloads::default(),
            census: LastCensus::default(),
            untold: Untold::default(),
            errands: Errands::default(),
            memory: Memory::default(),
            this: Weak::clone(this),
        });
        let agent: Weak<dyn Agent> = service.this.clone();
        service.config.manager.register(agent);
        let holder: Weak<dyn AttributeHolder> = service.this.clone();
        service.config.manager.set_attribute_holder(holder);
        service
    }

    /// For what outlives a call.
    pub(crate) fn itself(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// A step of the engine that cannot fail, for callers who have nobody to tell.
    pub(crate) fn tell(&self, step: impl FnOnce(&mut Engine, Instant)) {
        // Only a client record can fail to be kept, and none of these steps makes one.
        let _ = self.config.manager.step(step);
    }

    /// The lease as the `lease_time` attribute tells it.
    pub(crate) fn lease_seconds(&self) -> u32 {
        u32::try_from(self.config.manager.lease_ms().div_ceil(1000)).unwrap_or(u32::MAX)
    }

    pub(crate) fn serves(&self, minor: Minor) -> bool {
        minor as u32 <= self.config.minor_max
    }

    /// Runs a step of the engine, then what it left to do.
    pub(crate) fn state<R>(&self, step: impl FnOnce(&mut Engine, Instant) -> OpResult<R>) -> OpResult<R> {
        self.config.manager.step(step).map_err(|NotKept| NfsStat4::Delay)?
    }

    /// Only looks at the engine.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Engine) -> R) -> R {
        self.config.manager.look(look)
    }

    /// Asks once more about a request that was being executed. Nothing of that has effects to run, and the caller
    /// may hold the table of retries, which some effects need.
    pub(crate) fn ask_again(
        &self,
        session: SessionId,
        request: SlotRequest,
        conn: ConnId,
    ) -> Result<Admission, StateError> {
        self.config.manager.quiet(|engine, now| {
            engine.sessions_mut().sequence(session, request, conn, now).map(|sequenced| sequenced.admission)
        })
    }

    /// A connection ended: nothing counts on it any more.
    pub(crate) fn forget_connection(&self, conn: ConnId) {
        self.callbacks.connection_gone(conn);
        self.attribution.forget(conn);
        // Forgetting has no effects, so it cannot fail.
        let _ = self.state(|engine, _| {
            engine.sessions_mut().forget_connection(conn);
            Ok(())
        });
    }

    /// Tells a client that a lock it waits for can be had. Should it not hear, it asks again by itself in time.
    fn notify_lock(&self, client: ClientId, file: FileKey, owner: &OwnerName) {
        let Some((this, fh)) = self.itself().zip(self.files.waited_for(file)) else { return };
        let lock_owner = StateOwner4 { clientid: client, owner: owner.as_bytes() };
        let call = CbArgOp::NotifyLock(CbNotifyLock4Args { fh: fh.as_bytes(), lock_owner });
        this.call_back(client, call, Box::new(|_| ()));
    }

    /// Ends the request on a slot. `kept` is what a retry from now on gets; empty when nothing can be kept. Returns
    /// whether retries may wait for [`Service::answer_retries`].
    #[must_use]
    pub(crate) fn complete(&self, slot: &SlotUse, kept: &[u8]) -> bool {
        let kept = if kept.is_empty() { KeptReply::Nothing } else { KeptReply::Bytes(kept) };
        let complete =
            |engine: &mut Engine, now| engine.sessions_mut().complete(slot.session, slot.slot, kept, now);
        self.config.manager.quiet(complete) != Completed::Done { retries_wait: false }
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
}

impl Service {
    /// Calls clients about what the engine has decided.
    fn call_about(self: &Arc<Self>, effect: &Effect) {
        match *effect {
            Effect::Recall { client, token, stateid, file, truncates } => {
                self.recall(Recall { client, token, stateid, file, truncates });
            }
            Effect::RecallAny { client, keep, files, directories } => {
                self.recall_any(client, keep, (files, directories));
            }
            Effect::RecallSlots { session, target } => self.recall_slots(session, target),
            Effect::ObjectAvailable { client } => self.object_available(client),
            Effect::PushDelegation { client, file, kind } => self.push(client, file, kind),
            Effect::WantsCancelled { client, pushes, signals } => {
                self.delegations.client_gone(client);
                self.wants_cancelled(client, (pushes, signals));
            }
            // Another agent's.
            _ => {}
        }
    }
}

impl Agent for Service {
    fn forget(&self, clients: &[ClientId]) -> bool {
        self.config.records.forget(clients)
    }

    fn note_losses(&self, client: ClientId, has_lost: bool) -> bool {
        self.config.records.note_losses(client, has_lost)
    }

    fn may_have_met(&self, name: &[u8], verifier: Verifier) -> bool {
        self.config.records.may_have_met(name, verifier)
    }

    /// Takes the records of many clients away at once: who comes in conflict with a thousand courteous ones would else wait
    /// for two thousand writes.
    fn begin(&self, effects: &[Effect]) {
        // The record of who returned lies under the name of its former incarnation: there the order counts.
        if effects.iter().any(|effect| matches!(effect, Effect::PersistClient(_))) {
            return;
        }
        let session = |effect: &Effect| if let Effect::SessionGone(id) = effect { Some(*id) } else { None };
        let sessions: Vec<_> = effects.iter().filter_map(session).collect();
        if let (Some(records), [_, _, ..]) = (&self.config.sessions, &sessions[..]) {
            records.sessions_gone(&sessions);
        }
        let client = |effect: &Effect| if let Effect::ForgetClient(id) = effect { Some(*id) } else { None };
        let clients: Vec<_> = effects.iter().filter_map(client).collect();
        if let [_, _, ..] = clients[..] {
            self.config.records.forget(&clients);
        }
    }

    fn run(&self, effect: &Effect) -> Result<(), NotKept> {
        let Config { records, sessions, .. } = &self.config;
        match effect {
            Effect::CloseFile(open) => drop(self.files.close(*open)),
            Effect::ReleaseLocks(token) => drop(self.files.close_locks(*token)),
            Effect::LocksAside { client } => self.set_locks_aside(*client),
            Effect::LocksWanted { client } => {
                // Should it fail, the client's next request has it tried again.
                self.take_locks_back(*client);
            }
            Effect::PersistClient(image) | Effect::ClientReturned(image) => {
                return records.persist(image).map_err(|_| NotKept);
            }
            Effect::ForgetClient(client) => {
                self.callbacks.client_gone(*client);
                self.delegations.client_gone(*client);
                self.attribution.client_gone(*client);
                self.untold.client_gone(*client);
                self.offloads.cancel_clients(|of| of == *client);
                // Of who held something it is gone already; a failure is tried again by who keeps the records.
                records.forget(&[*client]);
                records.forgotten();
            }
            Effect::ClientLeft(client) => records.left(*client),
            Effect::ReclaimDone(client) => records.reclaim_done(*client),
            // Within a step, for meanwhile it may have lost something more.
            Effect::RevocationsAcknowledged { client } => {
                self.config.manager.quiet(|engine, _| engine.record_losses(*client));
            }
            Effect::NotifyLock { client, file, owner } => self.notify_lock(*client, *file, owner),
            Effect::SessionGone(session) => {
                self.callbacks.session_gone(*session);
                if let Some(records) = sessions {
                    records.sessions_gone(&[*session]);
                }
                // Their slot is gone, and with it the reply they wait for: the client finds its session dead at its
                // next request.
                drop(self.retries.take_session(*session));
            }
            Effect::DelegationEnded { token, .. } => drop(self.delegations.ended(*token)),
            effect => {
                if let Some(service) = self.itself() {
                    service.call_about(effect);
                }
            }
        }
        Ok(())
    }

    fn entries_changed(&self, change: &EntryChange<'_>) {
        if let Some(service) = self.itself() {
            service.note_entries(change);
        }
    }

    fn local_unlock(&self, file: FileKey, range: ByteRange) {
        self.tell(|engine, now| engine.freed_outside(file, range, now));
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
