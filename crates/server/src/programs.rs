//! The programs that are served, wired to what they stand on.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use holdfast_base::{Clock, SystemClock, SystemEntropy};
use holdfast_caps::{Caps, CapsProgram};
use holdfast_export::{Committer, Export, GroupSource, Namespace, Sealer};
use holdfast_manager::{Manager, Parts as ManagerParts};
use holdfast_nfs3::{Mount3, Nfs3, Nfs3Parts};
use holdfast_nfs4::{Config as Nfs4Config, IdNames, Nfs4, NumericIds, Options, Thawed};
use holdfast_nlm::{Lockd, Start as LocksStart};
use holdfast_recovery::{Boot, Identity};
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_rpc::{Limits, Program};
use holdfast_state::{BootInstance, Engine, Grace, Policy};
use holdfast_store::{EmbeddedStore, Store};
use parking_lot::Mutex;

use crate::admin::Tally;
use crate::caps;
use crate::config::{Config, read_handle_key};
use crate::durable::{Durable, Former};
use crate::exports::{self, Opened, Start};
use crate::handover::Inheritance;
use crate::life::wall_clock;
use crate::lockd;
use crate::memory::MemoryWatch;
use crate::nss::{NssGroups, NssNames};
use crate::standstill::Standstill;

#[path = "admin/programs.rs"]
mod admin;
#[path = "handover/programs.rs"]
mod handover;
#[path = "moved.rs"]
mod moved;

/// The highest minor version of NFSv4 that is served.
const NFS4_MINOR_MAX: u32 = 2;

/// What is said when an inheritance cannot be gone on with.
const GIVEN_UP: &str = "what the server before this one left is given up, clients reclaim";

/// The lease when nobody says, in seconds.
const LEASE_SECONDS_DEFAULT: u32 = 60;

/// Everything that is served, and what must be ended with it.
pub(crate) struct Programs {
    namespace: Arc<Namespace>,
    exports: Mutex<Vec<Opened>>,
    nfs3: Arc<Nfs3>,
    mount: Arc<Mount3>,
    nfs4: Arc<Nfs4>,
    lockd: Arc<Lockd>,
    /// For Holdfast mounts, unless it is switched off.
    caps: Option<Arc<Caps>>,
    durable: Arc<Durable>,
    manager: Arc<Manager>,
    replies: Arc<ReplyCache>,
    clock: Arc<dyn Clock>,
    epoch: u64,
    tally: Arc<Tally>,
    memory: MemoryWatch,
    /// Of ticks and the administrator: everything is being handed over.
    standstill: Standstill,
    /// Held by the tick of records, which waits for disks.
    recording: Mutex<()>,
    /// After a handover: what had to wait for connections.
    thawed: Mutex<Thawed>,
    thawed_caps: Mutex<holdfast_caps::Thawed>,
}

/// What all programs stand on.
struct Base {
    store: Arc<dyn Store>,
    identity: Identity,
    boot: Boot,
    /// The state of another process, to be gone on with.
    engine: Option<Engine>,
    clock: Arc<dyn Clock>,
    manager: Arc<Manager>,
    opened: Vec<Opened>,
    durable: Arc<Durable>,
    /// What a former life left to be taken in.
    former: Former,
}

impl Base {
    /// Goes on with an inheritance; it is taken away when that cannot be.
    fn open(config: &Config, state_dir: &Path, inheritance: &mut Option<Inheritance>) -> Result<Self> {
        if let Some(base) = Self::try_open(config, state_dir, inheritance.as_mut())? {
            return Ok(base);
        }
        *inheritance = None;
        Self::try_open(config, state_dir, None)?.context("a start that goes on with nothing is a new one")
    }

    /// `None` when what another process left is of no use. Nothing has been changed then.
    fn try_open(
        config: &Config,
        state_dir: &Path,
        mut inheritance: Option<&mut Inheritance>,
    ) -> Result<Option<Self>> {
        let lease_ms = u64::from(config.lease.unwrap_or(LEASE_SECONDS_DEFAULT)) * 1000;
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&state_dir.join("records.redb"))?);
        let mut entropy = SystemEntropy::new().context("/dev/urandom")?;
        let identity = Identity::load_or_make(store.as_ref(), &mut entropy)?;
        let Some(boot) = boot_of(store.as_ref(), lease_ms, inheritance.as_deref())? else { return Ok(None) };
        // Clients go by the lease that they were told; another one counts from the next ordinary start on.
        let lease_ms = inheritance.as_ref().map_or(lease_ms, |i| i.image.lease_ms);
        let verifiers = inheritance.as_ref().map_or(&[][..], |i| &i.image.verifiers);
        let clock =
            inheritance.as_ref().map_or_else(SystemClock::new, |i| SystemClock::showing(i.clock_ms()));
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let boot_instance = BootInstance::from_counter(boot.epoch);
        let manager = Manager::new(ManagerParts {
            engine: holdfast_state::Config { boot: boot_instance, lease_ms, grace: Grace::Over },
            entropy: Box::new(entropy),
            clock: Arc::clone(&clock),
            pool_threads: Limits::default().pool_threads,
        });
        let start = Start { epoch: boot.epoch, verifiers, manager: Some(&manager) };
        let opened = exports::open_all(config, state_dir, (&[], start))?;
        let mut engine = match inheritance.as_deref_mut().map(|inherited| engine_of(inherited, &opened)) {
            Some(None) => return Ok(None),
            gone_on_with => gone_on_with.flatten(),
        };
        let (records, base) = (Arc::clone(&store), (&boot, lease_ms));
        let (durable, former) = match inheritance {
            Some(inherited) => {
                let image = &mut inherited.image.records;
                Durable::go_on(records, state_dir, base, (clock.as_ref(), image))?
            }
            // What a crash cut short is settled before the first request can change what is looked at.
            None => Durable::open(records, state_dir, &exports_of(&opened), base, clock.as_ref())?,
        };
        let obey = |engine: &mut Engine| {
            engine.set_policy(Policy { directories: config.directory_delegations, ..*engine.policy() });
        };
        manager.quiet(|engine, _| {
            engine.set_grace(durable.grace());
            obey(engine);
        });
        // What is configured may have been changed for this very start.
        engine.iter_mut().for_each(obey);
        manager.await_reclaims(durable.unreclaimed());
        Ok(Some(Self { store, identity, boot, engine, clock, manager, opened, durable, former }))
    }
}

/// Who clients of 4.1 are told that this server is.
fn identity_of(identity: &Identity) -> holdfast_nfs4::Identity {
    let (major_id, scope) = (identity.owner.to_vec(), identity.scope.to_vec());
    holdfast_nfs4::Identity { major_id, minor_id: 0, scope }
}

fn options_of(config: &Config) -> Options {
    Options { notifies: config.directory_notifications, ..Options::default() }
}

/// What the lock manager of NFSv3 is to make of the server before this one.
fn locks_start(durable: &Durable, is_handed_over: bool) -> LocksStart {
    match durable.is_grace_over() {
        _ if is_handed_over => LocksStart::HandedOver,
        true => LocksStart::Fresh,
        false => LocksStart::InGrace,
    }
}

/// What each program is made of.
struct Ground {
    namespace: Arc<Namespace>,
    manager: Arc<Manager>,
    groups: Arc<dyn GroupSource>,
    committer: Arc<Committer>,
    replies: Arc<ReplyCache>,
    durable: Arc<Durable>,
    tally: Arc<Tally>,
}

impl Ground {
    fn caps(&self, config: &Config, state_dir: &Path) -> Result<Option<Arc<Caps>>> {
        caps::start(
            config,
            state_dir,
            &caps::Foundation {
                namespace: &self.namespace,
                manager: &self.manager,
                groups: &self.groups,
                committer: &self.committer,
                durable: &self.durable,
            },
        )
    }

    fn nfs3(&self) -> Nfs3 {
        Nfs3::new(Nfs3Parts {
            namespace: Arc::clone(&self.namespace),
            manager: Arc::clone(&self.manager),
            committer: Arc::clone(&self.committer),
            replies: Arc::clone(&self.replies),
            ledger: Some(self.durable.ledger().clone()),
            groups: Arc::clone(&self.groups),
            observer: Some(self.tally.clone()),
        })
    }

    fn lockd(&self, store: &Arc<dyn Store>, epoch: u64, is_handed_over: bool) -> Result<Arc<Lockd>> {
        lockd::start(&lockd::Foundation {
            namespace: &self.namespace,
            manager: &self.manager,
            groups: &self.groups,
            replies: &self.replies,
            store,
            epoch,
            start: locks_start(&self.durable, is_handed_over),
        })
    }

    fn nfs4(&self, config: &Config, identity: &Identity) -> Result<Arc<Nfs4>> {
        let parts = Nfs4Config {
            namespace: Arc::clone(&self.namespace),
            groups: Arc::clone(&self.groups),
            ids: ids_of(config)?,
            committer: Arc::clone(&self.committer),
            replies: Arc::clone(&self.replies),
            manager: Arc::clone(&self.manager),
            records: self.durable.clone(),
            sessions: Some(self.durable.clone()),
            ledger: Some(self.durable.ledger().clone()),
            identity: identity_of(identity),
            minor_max: NFS4_MINOR_MAX,
            observer: Some(self.tally.clone()),
        };
        Ok(Nfs4::with(parts, options_of(config)))
    }
}

impl Programs {
    /// Opens exports and records, and makes the programs.
    ///
    /// # Errors
    /// What cannot be opened, by its name and with the way out.
    ///
    /// With an `inheritance` they go on where another process stopped; it is taken away when that cannot be, and they
    /// start as after a crash.
    pub(crate) fn start(
        config: &Config,
        state_dir: &Path,
        inheritance: &mut Option<Inheritance>,
    ) -> Result<Self> {
        let base = Base::open(config, state_dir, inheritance)?;
        let Base { store: records, identity, boot, engine, clock, manager, opened, durable, former } = base;
        let exports = exports_of(&opened);
        let key = config.handle_key.as_deref().map(read_handle_key).transpose()?;
        let sealer = Sealer::new(key.unwrap_or(identity.handle_key));
        let namespace = Namespace::new(sealer, exports, wall_clock());
        let namespace = Arc::new(exports::together(namespace, &opened)?);
        let groups: Arc<dyn GroupSource> = Arc::new(NssGroups::start()?);
        let committer = Committer::answering(Some(durable.ledger().clone()), holdfast_rpc::together);
        let replies = ReplyCache::new(ReplyCacheLimits::default(), Arc::clone(&clock));
        let tally = Tally::new();
        let ground = Ground { namespace, manager, groups, committer, replies, durable, tally };
        let caps = ground.caps(config, state_dir)?;
        let nfs3 = ground.nfs3();
        let lockd = ground.lockd(&records, boot.epoch, inheritance.is_some())?;
        let nfs4 = ground.nfs4(config, &identity)?;
        let Ground { namespace, manager, replies, durable, tally, .. } = ground;
        let mut former = former;
        if let Some(caps) = &caps {
            caps.restore(std::mem::take(&mut former.batches));
        }
        if inheritance.is_none() {
            take_in(former, &nfs4, &replies);
        }
        durable.serves(&nfs4);
        durable.serves_locks(&lockd);
        let mount = Mount3::new(Arc::clone(&namespace));
        let programs = Self {
            namespace,
            exports: Mutex::new(opened),
            nfs3: Arc::new(nfs3),
            mount: Arc::new(mount),
            nfs4,
            lockd,
            caps,
            durable,
            manager,
            replies,
            clock,
            epoch: boot.epoch,
            tally,
            memory: MemoryWatch::of(config.memory_told_below.as_deref().unwrap_or(Path::new("/"))),
            standstill: Standstill::default(),
            recording: Mutex::new(()),
            thawed: Mutex::default(),
            thawed_caps: Mutex::default(),
        };
        if let (Some(inheritance), Some(engine)) = (inheritance, engine) {
            programs.thaw(inheritance, engine);
        }
        programs.look_after_memory();
        Ok(programs)
    }

    /// All of them, to be served.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Program>> {
        let mut all: Vec<Arc<dyn Program>> = vec![self.nfs3.clone(), self.mount.clone(), self.nfs4.clone()];
        all.extend(lockd::programs(&self.lockd));
        all.extend(self.caps.iter().map(|caps| Arc::new(CapsProgram(Arc::clone(caps))) as Arc<dyn Program>));
        all
    }

    pub(crate) const fn standstill(&self) -> &Standstill {
        &self.standstill
    }

    /// The lock manager of NFSv3.
    pub(crate) const fn lockd(&self) -> &Arc<Lockd> {
        &self.lockd
    }

    /// What is exported.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// What is due about once a second.
    pub(crate) fn tick(&self) {
        let Some(_doing) = self.standstill.doing() else { return };
        self.look_after_memory();
        self.manager.note_calendar(crate::admin::unix_ms());
        self.nfs4.tick();
        if let Some(caps) = &self.caps {
            caps.tick();
        }
        self.tally.stats.tick(std::time::Instant::now());
    }

    /// What is due to records about as often. Waits for the disk of the state directory, which nothing else must.
    pub(crate) fn tick_records(&self) {
        let _turn = self.recording.lock();
        if self.standstill.is_on() {
            return;
        }
        self.lockd.forget_idle_hosts();
        self.durable.tick(self.clock.now());
        // Some of them are done, or all; hosts with locks may keep grace going.
        self.manager.await_no_more_than(self.durable.unreclaimed());
    }

    /// What is due to the caches of backends as often. Waits for the disks that are served.
    pub(crate) fn tick_caches(&self) {
        for export in self.namespace.exports() {
            export.backend.sweep();
        }
    }

    fn look_after_memory(&self) {
        self.memory.tick(&self.manager, || self.namespace.exports());
    }

    /// Replaces the exports. Sources that stay keep their backend, and with it what clients have open there.
    pub(crate) fn reload_exports(&self, config: &Config, state_dir: &Path) -> Result<()> {
        let mut opened = self.exports.lock();
        let start = Start { epoch: self.epoch, verifiers: &[], manager: Some(&self.manager) };
        let fresh = exports::open_all(config, state_dir, (&opened, start))?;
        exports::together(self.namespace.replace(exports_of(&fresh), wall_clock()), &fresh)?;
        let before = std::mem::replace(&mut *opened, fresh);
        let (before, now) = (exports_of(&before), self.namespace.exports());
        let leaving = moved::leaving(&before, &now);
        drop(opened);
        if moved::acts_otherwise(&before, &now) {
            self.mounts_ask_anew();
        }
        if !leaving.is_empty() {
            moved::leave(self, &leaving);
        }
        Ok(())
    }
}

/// The start that is gone on with, or a new one; `None` when what another process left is not of the last start.
fn boot_of(store: &dyn Store, lease_ms: u64, inheritance: Option<&Inheritance>) -> Result<Option<Boot>> {
    let Some(inherited) = inheritance else { return Ok(Some(Boot::begin(store, lease_ms)?)) };
    let boot = Boot::go_on(store, inherited.image.epoch)?;
    if boot.is_none() {
        tracing::error!("{GIVEN_UP}: it is not of the last start");
    }
    Ok(boot)
}

/// The state that is gone on with, if any is; what open files it needs is opened while it is still being read. `None` when
/// it makes no sense.
fn engine_of(inherited: &mut Inheritance, opened: &[Opened]) -> Option<Engine> {
    let backends: Vec<_> = exports_of(opened).iter().map(|export| Arc::clone(&export.backend)).collect();
    inherited.incoming.open_files(&inherited.image.files, &backends);
    let engine = inherited.engine.take()?.end(inherited.image.epoch);
    engine.inspect_err(|error| tracing::error!("{GIVEN_UP}: {error:#}")).ok()
}

/// How owners are written: by number, unless a domain is configured.
fn ids_of(config: &Config) -> Result<Arc<dyn IdNames>> {
    Ok(match &config.domain {
        Some(domain) => Arc::new(NssNames::start(domain)?),
        None => Arc::new(NumericIds),
    })
}

/// Gives the programs back what the server knew in its former life.
fn take_in(former: Former, nfs4: &Nfs4, replies: &ReplyCache) {
    let (sessions, calls) = (former.snapshot.sessions.len(), former.replies.len());
    let left_out = nfs4.restore(&former.snapshot);
    replies.restore(former.replies);
    if sessions + calls > 0 {
        tracing::info!(
            sessions,
            calls,
            left_out,
            "went on with sessions and answered calls of the former run"
        );
    }
}

fn exports_of(opened: &[Opened]) -> Vec<Arc<Export>> {
    opened.iter().map(|o| Arc::clone(&o.export)).collect()
}
