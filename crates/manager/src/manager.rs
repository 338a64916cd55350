//! The one state engine behind its lock, and the running of what its steps leave to be done.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use holdfast_base::limits::{RECALL_STRETCH_MAX, RECALL_WAITERS_SHARE};
use holdfast_base::{ClientId, Clock, Entropy, Instant};
use holdfast_state::{
    BootInstance, Config, DelegationToken, Effect, Engine, Memory, Policy, Verifier, Witness,
};
use holdfast_vfs::HeldPledge;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::agent::{Agent, NotKept};
use crate::caps::CapsInForce;
use crate::changers::Changers;
use crate::held::Questions;
use crate::index::PromiseIndex;
use crate::names::NameGate;
use crate::recalls::Recalls;
use crate::unreclaimed::Awaited;

/// What a [`Manager`] is made with.
pub struct Parts {
    /// What the engine is told.
    pub engine: Config,
    /// Makes session ids and verifiers.
    pub entropy: Box<dyn Entropy>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Threads that may wait, of which a quarter may wait for recalls at a time. With 0 nobody waits: whoever meets
    /// a promise is told at once to come again.
    pub pool_threads: usize,
}

/// The state of all protocols.
pub struct Manager {
    // Constant.
    clock: Arc<dyn Clock>,
    lease_ms: u64,
    boot: BootInstance,
    pub(crate) this: Weak<Self>,
    // Changing.
    engine: Mutex<Engine>,
    /// Files that somebody denies others, as of the last step.
    denials: AtomicUsize,
    /// The longest time to return a delegation that every backend can bear, in milliseconds.
    recall_ms_max: AtomicU64,
    agents: RwLock<Vec<Weak<dyn Agent>>>,
    pub(crate) index: PromiseIndex,
    pub(crate) names: NameGate,
    pub(crate) recalls: Recalls,
    pub(crate) changers: Changers,
    pub(crate) awaited: Awaited,
    /// Promises in force whose holders are told of changed entries.
    pub(crate) told: AtomicUsize,
    pub(crate) questions: Questions,
    pub(crate) caps: CapsInForce,
    /// What holds promises against local processes.
    pub(crate) pledges: Mutex<FxHashMap<DelegationToken, HeldPledge>>,
    /// The engine's, which stays the same while anything is asked.
    pub(crate) names_secret: [AtomicU64; 2],
}

impl Manager {
    /// A manager of a new engine.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { engine: config, entropy, clock, pool_threads } = parts;
        let mut engine = Engine::new(config, entropy);
        let seats = if pool_threads == 0 { 0 } else { (pool_threads / RECALL_WAITERS_SHARE).max(1) };
        Arc::new_cyclic(|this| {
            engine.set_witness(Arc::new(Agents(Weak::clone(this))));
            Self {
                clock,
                lease_ms: config.lease_ms,
                boot: config.boot,
                this: Weak::clone(this),
                denials: AtomicUsize::new(engine.denials()),
                names_secret: engine.caps_names_secret().map(AtomicU64::new),
                recall_ms_max: AtomicU64::new(u64::MAX),
                engine: Mutex::new(engine),
                agents: RwLock::default(),
                index: PromiseIndex::default(),
                names: NameGate::default(),
                recalls: Recalls::new(seats),
                changers: Changers::default(),
                awaited: Awaited::default(),
                told: AtomicUsize::new(0),
                questions: Questions::default(),
                caps: CapsInForce::default(),
                pledges: Mutex::default(),
            }
        })
    }

    /// Goes on with the engine of a former process, of the same run and lease, in place of the one made here. Before
    /// anything is asked of it. Nothing that it has granted is in force before [`Manager::adopt`].
    pub fn resume(&self, mut engine: Engine) {
        engine.set_witness(Arc::new(Agents(Weak::clone(&self.this))));
        self.denials.store(engine.denials(), Ordering::Relaxed);
        for (place, half) in self.names_secret.iter().zip(engine.caps_names_secret()) {
            place.store(half, Ordering::Relaxed);
        }
        *self.engine.lock() = engine;
        self.obey_bound();
    }

    /// Has delegations recalled so fast that a local process that waits in the kernel for one is never let go before:
    /// the kernel makes it wait so long at most, in milliseconds, whatever a client still has to flush.
    pub(crate) fn bound_recalls(&self, wait_ms: u64) {
        // A second is for what comes before and after, and none is too short for an answer.
        let recall_ms = (wait_ms.saturating_sub(1000) / RECALL_STRETCH_MAX).max(1000);
        self.recall_ms_max.fetch_min(recall_ms, Ordering::Relaxed);
        self.obey_bound();
    }

    fn obey_bound(&self) {
        let most = self.recall_ms_max.load(Ordering::Relaxed);
        self.quiet(|engine, _| {
            let policy = *engine.policy();
            if policy.recall_ms.unwrap_or(self.lease_ms) > most {
                engine.set_policy(Policy { recall_ms: Some(most), ..policy });
            }
        });
    }

    /// Has an agent hear of effects from now on, after those who were there before, for as long as it lives.
    pub fn register(&self, agent: Weak<dyn Agent>) {
        let mut agents = self.agents.write();
        agents.retain(|agent| agent.strong_count() > 0);
        agents.push(agent);
    }

    /// Runs a step of the engine, then what it left to do.
    ///
    /// # Errors
    /// [`NotKept`]; the step was made nevertheless.
    pub fn step<R>(&self, step: impl FnOnce(&mut Engine, Instant) -> R) -> Result<R, NotKept> {
        let now = self.clock.now();
        let (result, effects) = {
            let mut engine = self.engine.lock();
            let result = step(&mut engine, now);
            self.denials.store(engine.denials(), Ordering::Relaxed);
            (result, engine.take_effects())
        };
        if !effects.is_empty() {
            self.run(effects)?;
        }
        Ok(result)
    }

    /// A step that leaves nothing to do. Holds the engine and nothing else, so the caller may hold locks that agents
    /// need.
    pub fn quiet<R>(&self, step: impl FnOnce(&mut Engine, Instant) -> R) -> R {
        let now = self.clock.now();
        step(&mut self.engine.lock(), now)
    }

    /// Only looks at the engine.
    pub fn look<R>(&self, look: impl FnOnce(&Engine) -> R) -> R {
        look(&self.engine.lock())
    }

    /// Keeps budgets within the memory there is: what is above one is asked back from the next [`Manager::tick`] on. About
    /// once a second, and before anything is granted.
    pub fn heed(&self, memory: Memory) {
        self.quiet(|engine, _| engine.heed(memory));
    }

    /// Expires what has run out. To be called about once a second.
    pub fn tick(&self) {
        // A failure could only be of a client record, and expiry persists none.
        let _ = self.step(Engine::tick);
        self.names.tick();
        self.questions.tick(self.clock.now());
    }

    /// Notes the time of day ([`Engine::note_calendar`]), in milliseconds since 1970.
    pub fn note_calendar(&self, unix_ms: u64) {
        self.quiet(|engine, now| engine.note_calendar(unix_ms, now));
    }

    /// The time by which the engine judges.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// The lease, in milliseconds.
    #[must_use]
    pub const fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// The number of this run.
    #[must_use]
    pub const fn boot(&self) -> BootInstance {
        self.boot
    }

    /// What is promised, for reading.
    #[must_use]
    pub const fn promises(&self) -> &PromiseIndex {
        &self.index
    }

    /// Has changes of names look for promises as if something were promised, for as long as what this gives lives: to
    /// measure what that costs.
    #[must_use]
    pub fn oblige_to_look(&self) -> impl Drop + '_ {
        self.names.reason()
    }

    /// Has all who wait for recalls give up, and nobody begin to wait: their clients are told to come again.
    pub fn hold(&self) {
        self.recalls.hold(true);
    }

    /// Ends [`Manager::hold`].
    pub fn go_on(&self) {
        self.recalls.hold(false);
    }

    /// Whether anything is promised to anybody, or about to be.
    pub(crate) fn has_promises(&self) -> bool {
        self.names.has_reasons()
    }

    /// Whether anybody who has opened a file denies something to others.
    #[must_use]
    pub fn has_denials(&self) -> bool {
        self.denials.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn agents(&self) -> Vec<Arc<dyn Agent>> {
        self.agents.read().iter().filter_map(Weak::upgrade).collect()
    }

    fn run(&self, effects: Vec<Effect>) -> Result<(), NotKept> {
        let agents = self.agents();
        if effects.len() > 1 {
            agents.iter().for_each(|agent| agent.begin(&effects));
        }
        let mut outcome = Ok(());
        for effect in effects {
            let mut is_done = Ok(());
            for agent in &agents {
                is_done = is_done.and(agent.run(&effect));
            }
            if let Effect::DelegationEnded { token, file, .. } = effect {
                self.end_promise(file, token);
            } else if let Effect::CapsLeft { client, file, .. } = effect {
                self.settle_caps((client, file));
            } else if let (Err(NotKept), Effect::ClientReturned(_)) = (is_done, &effect) {
                outcome = Err(NotKept);
            } else if let (Err(NotKept), Effect::PersistClient(image)) = (is_done, effect) {
                // A client whose record is not safe must not build on it. Revoking persists nothing, so this goes
                // no deeper.
                self.step(|engine, now| engine.revoke_client(image.id, now))?;
                outcome = Err(NotKept);
            }
        }
        outcome
    }
}

/// Those who keep records, as the engine asks them in the middle of a step.
struct Agents(Weak<Manager>);

impl Agents {
    /// Asks all of them, whatever one says.
    fn ask(&self, ask: impl Fn(&dyn Agent) -> bool) -> bool {
        let agents = self.0.upgrade().map(|manager| manager.agents()).unwrap_or_default();
        agents.iter().filter(|agent| !ask(&***agent)).count() == 0
    }
}

impl Witness for Agents {
    fn forget(&self, clients: &[ClientId]) -> bool {
        self.ask(|agent| agent.forget(clients))
    }

    fn note_losses(&self, client: ClientId, has_lost: bool) -> bool {
        self.ask(|agent| agent.note_losses(client, has_lost))
    }

    fn may_have_met(&self, name: &[u8], verifier: Verifier) -> bool {
        !self.ask(|agent| !agent.may_have_met(name, verifier))
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("engine", &*self.engine.lock()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recalls_are_over_before_the_kernel_lets_local_processes_go() {
        let manager = crate::guarded::tests::manager(0);
        let recall_ms = || manager.look(|engine| engine.policy().recall_ms);
        assert_eq!(recall_ms(), None);
        manager.bound_recalls(45_000);
        let bound = recall_ms().unwrap();
        assert!(bound * RECALL_STRETCH_MAX < 45_000);
        manager.bound_recalls(1_000_000);
        assert_eq!(recall_ms(), Some(bound), "the most impatient backend counts");
        manager.resume(Engine::new(
            Config { boot: manager.boot(), lease_ms: 60_000, grace: holdfast_state::Grace::Over },
            Box::new(holdfast_base::SeededEntropy(1)),
        ));
        assert_eq!(recall_ms(), Some(bound));
    }
}
