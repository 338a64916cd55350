//! One life of the server: the real programs, records, grace and journal, put together as `server` does, over a
//! machine of the simulation.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use holdfast_base::{ClientId, Clock, ExportId, Instant, SeededEntropy, Seqid};
use holdfast_caps::{Caps, CapsProgram, Parts as CapsParts};
use holdfast_export::{
    ClientRule, Committer, Export, ExportOptions, Force, LocalUse, Namespace, NoGroups, Sealer, Squash,
};
use holdfast_ledger::{Ledger, Now, Remembered};
use holdfast_manager::{Guarded, Manager, Parts};
use holdfast_nfs3::{Mount3, Nfs3, Nfs3Parts};
use holdfast_nfs4::{ClientRecords, Config, Nfs4, NumericIds, Options, Thawed};
use holdfast_nlm::{Lockd, Nlm4, Nsm, Parts as LockParts, Start as LocksStart};
use holdfast_recovery::{Boot, Identity};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_rpc::{Limits, Program};
use holdfast_server::durable::{Durable, Former};
use holdfast_state::{BootInstance, ClientImage, Directories, Grace, Policy, Recorded, Snapshot, Verifier};
use holdfast_store::{MemoryStore, Store};
use holdfast_vfs::Backend;

use self::handover::Inherited;
use crate::disk::Wall;
use crate::machine::Machine;
use crate::peers::{Outbox, ToCarry};
use crate::store::SimStore;

mod handover;

/// The lease, and so the grace period, of every server.
pub const LEASE_MS: u64 = 10_000;

/// A defect planted in the server, so that an oracle is seen to notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// Replies leave before their changes are durable.
    AnswerBeforeCommit,
    /// Records of clients are not stored.
    ForgetRecords,
    /// Whoever asks may reclaim.
    AnyoneReclaims,
    /// Requests are not recorded: a crash makes their retries run again.
    NoJournal,
    /// Leases run out in a quarter of the time that clients are told.
    ShortLease,
    /// Reads give what was there before.
    StaleReads,
    /// From the middle on, replies to one client are lost inside the server.
    SwallowReplies,
    /// Replies are not kept: what is sent twice is done twice.
    ForgetReplies,
    /// Recalls of delegations are not sent to clients of 4.1 and later.
    DropRecalls,
    /// They are not sent to those of 4.0.
    DropRecallsOf40,
    /// Hosts with locks of NFSv3 are not on record.
    ForgetHosts,
    /// Nobody asks whether what is done stands against what was promised, but the state engine.
    Unguarded,
    /// At a planned restart, the state engine is handed over as it was a while ago.
    HandOverOldState,
    /// After a planned restart, nobody asks whether what is done stands against what was promised before.
    HandOverUnguarded,
    /// A planned restart is not one: what was handed over is not gone on with, and clients reclaim.
    GoOnAsAfterCrash,
    /// Holders of directory delegations are not told of changed entries, and the server thinks that they were.
    LoseNotices,
    /// After a crash nobody knows how far clients have counted their sessions.
    ForgetNumbers,
    /// A write leaves the change attribute as it was.
    KeepChange,
}

impl Plant {
    /// All of them, by the names of the command line.
    pub const ALL: [(&'static str, Self); 18] = [
        ("answer-before-commit", Self::AnswerBeforeCommit),
        ("forget-records", Self::ForgetRecords),
        ("anyone-reclaims", Self::AnyoneReclaims),
        ("no-journal", Self::NoJournal),
        ("short-lease", Self::ShortLease),
        ("stale-reads", Self::StaleReads),
        ("swallow-replies", Self::SwallowReplies),
        ("forget-replies", Self::ForgetReplies),
        ("drop-recalls", Self::DropRecalls),
        ("drop-recalls-of-4.0", Self::DropRecallsOf40),
        ("forget-hosts", Self::ForgetHosts),
        ("unguarded", Self::Unguarded),
        ("hand-over-old-state", Self::HandOverOldState),
        ("hand-over-unguarded", Self::HandOverUnguarded),
        ("go-on-as-after-crash", Self::GoOnAsAfterCrash),
        ("lose-notices", Self::LoseNotices),
        ("forget-numbers", Self::ForgetNumbers),
        ("keep-change", Self::KeepChange),
    ];
}

/// How a process of the server is started.
#[derive(Clone)]
pub struct Start {
    /// Where.
    pub machine: Rc<Machine>,
    /// The life's number, from 1.
    pub number: u64,
    /// The world's.
    pub seed: u64,
    /// A defect.
    pub plant: Option<Plant>,
    /// It is to keep what a power cut would leave of the journal.
    pub is_power_cut_to_come: bool,
    /// Holders of directory delegations are told of changed entries, when they ask for it.
    pub notifies: bool,
}

impl Start {
    /// What the caps program makes its tickets of: not what the engine has, so that neither disturbs the other.
    const fn entropy_of_caps(&self, process: u64) -> SeededEntropy {
        SeededEntropy(self.seed ^ self.number.rotate_left(24) ^ process.rotate_left(40) ^ 0x6361_7073)
    }
}

/// A running server.
pub struct Life {
    start: Start,
    /// Which process of this life it is, from 0.
    process: u64,
    epoch: u64,
    /// The service.
    pub nfs4: Arc<Nfs4>,
    namespace: Arc<Namespace>,
    manager: Arc<Manager>,
    replies: Arc<ReplyCache>,
    durable: Arc<Durable>,
    lockd: Arc<Lockd>,
    caps: Arc<Caps>,
    outbox: Arc<Outbox>,
    committer: Arc<Committer>,
    /// Where connections come from.
    pub(crate) base: Detached,
    forces: Arc<Forces>,
    store: SimStore,
    /// The state engine as it was at the last tick, for a defect.
    former: RefCell<Option<holdfast_state::Frozen>>,
    /// What has to wait for connections, after a planned restart.
    thawed: RefCell<Thawed>,
    thawed_caps: RefCell<holdfast_caps::Thawed>,
}

/// Counts forces of the journal, so that what was forced can be kept.
struct Forces {
    ledger: Arc<Ledger>,
    count: AtomicU64,
    seen: AtomicU64,
}

impl Forces {
    fn of(ledger: &Arc<Ledger>) -> Arc<Self> {
        Arc::new(Self { ledger: Arc::clone(ledger), count: AtomicU64::new(0), seen: AtomicU64::new(0) })
    }
}

impl Force for Forces {
    fn force(&self) -> io::Result<()> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.ledger.force()
    }
}

/// Records with a defect.
struct Defective {
    inner: Arc<Durable>,
    plant: Plant,
}

impl ClientRecords for Defective {
    fn persist(&self, client: &ClientImage) -> io::Result<()> {
        if self.plant == Plant::ForgetRecords { Ok(()) } else { self.inner.persist(client) }
    }

    fn forget(&self, clients: &[ClientId]) -> bool {
        self.inner.forget(clients)
    }

    fn left(&self, client: ClientId) {
        self.inner.left(client);
    }

    fn may_have_met(&self, name: &[u8], verifier: Verifier) -> bool {
        self.inner.may_have_met(name, verifier)
    }

    fn forgotten(&self) {
        self.inner.forgotten();
    }

    fn reclaim_done(&self, client: ClientId) {
        self.inner.reclaim_done(client);
    }

    fn may_hold(&self, client: ClientId) -> bool {
        self.plant == Plant::ForgetRecords || self.inner.may_hold(client)
    }

    fn will_hold(&self, client: &ClientImage) -> io::Result<()> {
        self.inner.will_hold(client)
    }

    fn note_losses(&self, client: ClientId, has_lost: bool) -> bool {
        self.inner.note_losses(client, has_lost)
    }

    fn recorded(&self, client: &ClientImage) -> Recorded {
        if self.plant == Plant::AnyoneReclaims { Recorded::Yes } else { self.inner.recorded(client) }
    }
}

fn export(start: &Start, manager: &Arc<Manager>, is_handed_over: bool) -> Arc<Export> {
    let backend: Arc<dyn Backend> = Arc::new(start.machine.disk.backend(start.number));
    let is_guarded = match start.plant {
        Some(Plant::Unguarded) => false,
        Some(Plant::HandOverUnguarded) => !is_handed_over,
        _ => true,
    };
    Arc::new(Export {
        id: ExportId(7),
        path: vec![b"export".to_vec()],
        backend: if is_guarded { Guarded::new(backend, manager) } else { backend },
        options: ExportOptions {
            squash: Squash::None,
            clients: vec![ClientRule::All],
            is_sync: true,
            local: LocalUse::None,
            ..ExportOptions::default()
        },
    })
}

/// Clients and sessions of a former life.
fn as_found(mut snapshot: Snapshot, plant: Option<Plant>) -> Snapshot {
    if plant == Some(Plant::ForgetNumbers) {
        for client in &mut snapshot.clients {
            (client.create_seqid, client.created) = (Seqid(0), None);
        }
    }
    snapshot
}

/// The journal, and what a former life left in it.
fn ledger(
    machine: &Machine,
    plant: Option<Plant>,
    exports: &[Arc<Export>],
    inherited: &mut Option<Inherited>,
) -> Result<(Arc<Ledger>, Vec<Remembered>)> {
    if plant == Some(Plant::NoJournal) {
        // A server that records nothing finds nothing.
        let _ = std::fs::remove_file(machine.journal());
    }
    let wall = machine.wall.clone();
    let size = holdfast_journal::Config { bytes: 1 << 20, entries_max: 4096 };
    let on: (_, Now) = (machine.boot(), Arc::new(move || wall.now()));
    if let Some(inherited) = inherited {
        return Ledger::go_on_with(&machine.journal(), &size, on, inherited.cut_short()).context("journal");
    }
    Ledger::open_on_machine(&machine.journal(), &size, exports, on).context("journal")
}

/// What a process finds, or makes, before its programs.
struct Base {
    own_store: SimStore,
    identity: Identity,
    boot: Boot,
    /// The state of another process, to be gone on with.
    engine: Option<holdfast_state::Engine>,
    manager: Arc<Manager>,
    exports: Vec<Arc<Export>>,
    durable: Arc<Durable>,
    former: Former,
}

impl Base {
    fn open(start: &Start, process: u64, inherited: &mut Option<Inherited>) -> Result<Self> {
        let Start { machine, number, seed, plant, .. } = start;
        let own_store = machine.store.handle();
        let store: Arc<dyn Store> = Arc::new(own_store.clone());
        let chance = seed ^ number.rotate_left(32) ^ process.rotate_left(48);
        let mut entropy = SeededEntropy(chance);
        let identity = Identity::load_or_make(store.as_ref(), &mut entropy)?;
        let lease_ms = if *plant == Some(Plant::ShortLease) { LEASE_MS / 4 } else { LEASE_MS };
        let boot = match inherited {
            Some(inherited) => inherited.boot(store.as_ref())?,
            None => Boot::begin(store.as_ref(), lease_ms)?,
        };
        let clock: Arc<dyn Clock> = machine.clock.clone();
        let boot_instance = BootInstance::from_counter(boot.epoch);
        let config = holdfast_state::Config { boot: boot_instance, lease_ms, grace: Grace::Over };
        let engine =
            inherited.as_mut().map(|i| i.engine(config, Box::new(SeededEntropy(!chance)))).transpose()?;
        let manager = Manager::new(Parts {
            engine: config,
            entropy: Box::new(entropy),
            clock: Arc::clone(&clock),
            // There is one thread: nothing may wait on it.
            pool_threads: 0,
        });
        let is_handed_over = inherited.is_some();
        let unstored = inherited.as_mut().map(Inherited::unstored);
        let exports = vec![export(start, &manager, is_handed_over)];
        let opened = ledger(machine, *plant, &exports, inherited)?;
        let (durable, former) = match unstored {
            Some(unstored) => {
                Durable::go_on_with(store, opened, (&boot, lease_ms), (clock.as_ref(), unstored))?
            }
            None => Durable::with(store, opened, (&boot, lease_ms), clock.as_ref())?,
        };
        manager.quiet(|engine, _| engine.set_grace(durable.grace()));
        manager.await_reclaims(durable.unreclaimed());
        Ok(Self { own_store, identity, boot, engine, manager, exports, durable, former })
    }
}

/// What the programs of a life stand on.
struct Ground {
    namespace: Arc<Namespace>,
    manager: Arc<Manager>,
    committer: Arc<Committer>,
    replies: Arc<ReplyCache>,
    durable: Arc<Durable>,
}

impl Ground {
    fn programs(&self, nfs4: &Arc<Nfs4>, lockd: &Arc<Lockd>, caps: &Arc<Caps>) -> Vec<Arc<dyn Program>> {
        let mount = Mount3::new(Arc::clone(&self.namespace));
        let mut programs: Vec<Arc<dyn Program>> = vec![Arc::new(self.nfs3()), Arc::new(mount), nfs4.clone()];
        programs.push(Arc::new(Nlm4(Arc::clone(lockd))));
        programs.push(Arc::new(Nsm(Arc::clone(lockd))));
        programs.push(Arc::new(CapsProgram(Arc::clone(caps))));
        programs
    }

    fn caps(&self, wall: &Wall, entropy: SeededEntropy) -> Arc<Caps> {
        let wall = wall.clone();
        Caps::new(CapsParts {
            namespace: Arc::clone(&self.namespace),
            manager: Arc::clone(&self.manager),
            committer: Arc::clone(&self.committer),
            ledger: Some(self.durable.ledger().clone()),
            groups: Arc::new(NoGroups),
            holders: self.durable.clone(),
            entropy: Box::new(entropy),
            wall: Arc::new(move || wall.now()),
        })
    }

    fn nfs3(&self) -> Nfs3 {
        Nfs3::new(Nfs3Parts {
            namespace: Arc::clone(&self.namespace),
            manager: Arc::clone(&self.manager),
            committer: Arc::clone(&self.committer),
            replies: Arc::clone(&self.replies),
            ledger: Some(self.durable.ledger().clone()),
            groups: Arc::new(NoGroups),
            observer: None,
        })
    }

    fn nfs4(&self, identity: &Identity, (plant, notifies): (Option<Plant>, bool)) -> Arc<Nfs4> {
        let records: Arc<dyn ClientRecords> = match plant {
            Some(plant) => Arc::new(Defective { inner: Arc::clone(&self.durable), plant }),
            None => self.durable.clone(),
        };
        let config = Config {
            namespace: Arc::clone(&self.namespace),
            groups: Arc::new(NoGroups),
            ids: Arc::new(NumericIds),
            committer: Arc::clone(&self.committer),
            replies: Arc::clone(&self.replies),
            manager: Arc::clone(&self.manager),
            records,
            sessions: Some(self.durable.clone()),
            ledger: Some(self.durable.ledger().clone()),
            identity: holdfast_nfs4::Identity {
                major_id: identity.owner.to_vec(),
                minor_id: 0,
                scope: identity.scope.to_vec(),
            },
            minor_max: 2,
            observer: None,
        };
        Nfs4::with(config, Options { notifies, ..Options::default() })
    }

    fn lockd(
        &self,
        store: Arc<dyn Store>,
        outbox: &Arc<Outbox>,
        (epoch, is_handed_over): (u64, bool),
    ) -> Result<Arc<Lockd>> {
        let start = match self.durable.is_grace_over() {
            _ if is_handed_over => LocksStart::HandedOver,
            true => LocksStart::Fresh,
            false => LocksStart::InGrace,
        };
        let lockd = Lockd::new(LockParts {
            namespace: Arc::clone(&self.namespace),
            manager: Arc::clone(&self.manager),
            groups: Arc::new(NoGroups),
            replies: Arc::clone(&self.replies),
            store,
            peers: outbox.clone(),
            name: b"server".to_vec(),
            epoch,
            start,
        })
        .context("records of hosts with locks")?;
        self.durable.serves_locks(&lockd);
        Ok(lockd)
    }
}

impl Life {
    /// Starts a server.
    ///
    /// # Errors
    /// What a real server would not start with either.
    pub fn start(start: Start) -> Result<Self> {
        Self::begin(start, 0, None)
    }

    /// Starts a process of the server, as the first of its life or in another's place.
    fn begin(start: Start, process: u64, mut inherited: Option<Inherited>) -> Result<Self> {
        let Base { own_store, identity, boot, engine, manager, exports, durable, former } =
            Base::open(&start, process, &mut inherited)?;
        let Start { machine, plant, is_power_cut_to_come, notifies, .. } = start.clone();
        // Its clients drop what they know of a directory that has changed before it was delegated.
        manager.quiet(|engine, _| {
            engine.set_policy(Policy { directories: Directories::Always, ..*engine.policy() });
        });
        let forces = Forces::of(durable.ledger());
        let namespace =
            Arc::new(Namespace::new(Sealer::new(identity.handle_key), exports, machine.wall.now())?);
        let committer = Committer::pumped(Some(forces.clone()));
        let kept = match plant {
            Some(Plant::ForgetReplies) => ReplyCacheLimits { age_ms: 0, ..ReplyCacheLimits::default() },
            _ => ReplyCacheLimits::default(),
        };
        let replies = ReplyCache::new(kept, machine.clock.clone());
        let ground = Ground { namespace, manager, committer, replies, durable };
        let outbox = Arc::new(Outbox::default());
        let hosts: Arc<dyn Store> = match plant {
            Some(Plant::ForgetHosts) => Arc::new(MemoryStore::default()),
            _ => Arc::new(own_store.clone()),
        };
        let lockd = ground.lockd(hosts, &outbox, (boot.epoch, inherited.is_some()))?;
        let caps = ground.caps(&machine.wall, start.entropy_of_caps(process));
        caps.restore(former.batches);
        let nfs4 = ground.nfs4(&identity, (plant, notifies));
        nfs4.call_by(outbox.clone());
        if inherited.is_none() {
            nfs4.restore(&as_found(former.snapshot, plant));
            ground.replies.restore(former.replies);
        }
        ground.durable.serves(&nfs4);
        let base = Detached::new(ground.programs(&nfs4, &lockd, &caps), Limits::default())?;
        if is_power_cut_to_come {
            machine.journal_forced();
        }
        let Ground { namespace, manager, committer, replies, durable } = ground;
        let life = Self {
            start,
            process,
            epoch: boot.epoch,
            nfs4,
            namespace,
            manager,
            replies,
            durable,
            lockd,
            caps,
            outbox,
            committer,
            base,
            forces,
            store: own_store,
            former: RefCell::default(),
            thawed: RefCell::default(),
            thawed_caps: RefCell::default(),
        };
        if let Some((inherited, engine)) = inherited.zip(engine) {
            life.thaw(inherited, engine)?;
        }
        Ok(life)
    }

    /// What the lock manager's worker does.
    pub(crate) fn work(&self) {
        self.lockd.run_due();
    }

    /// Whether anybody has, or waits for, a lock of NFSv3.
    pub(crate) fn has_locks(&self) -> bool {
        self.lockd.counts() != (0, 0)
    }

    /// What the server wants told to clients on ways of its own.
    pub(crate) fn calls(&self) -> Vec<ToCarry> {
        self.outbox.take()
    }

    /// Commits what waits for it.
    pub fn pump(&self, machine: &Machine) -> usize {
        let pumped = self.committer.pump();
        self.keep_forced(machine);
        pumped
    }

    /// The process is dead, with the server's ends of its connections. What waits in here holds what it waits in, so
    /// it is let go on, where nothing that it does is seen by anybody. Returns whether anything is left all the same.
    pub(crate) fn bury(self, machine: &Machine, sides: Vec<Detached>) -> bool {
        machine.disk.cut_off();
        self.store.cut_off();
        for side in &sides {
            side.connection().close();
        }
        while self.committer.pump() > 0 {}
        // Looked at, it runs what was offloaded.
        drop(self.base.sent());
        while self.committer.pump() > 0 {}
        self.base.connection().close();
        drop(sides);
        let left = Arc::downgrade(&self.nfs4);
        drop(self);
        left.strong_count() > 0
    }

    /// Changes what the state engine obeys, as the administrator would.
    pub(crate) fn obey(&self, change: impl FnOnce(Policy) -> Policy) {
        self.manager.quiet(|engine, _| engine.set_policy(change(*engine.policy())));
    }

    /// What is due about once a second.
    pub fn tick(&self, machine: &Machine, now: Instant) {
        self.nfs4.tick();
        self.caps.tick();
        self.durable.tick(now);
        self.manager.await_no_more_than(self.durable.unreclaimed());
        if self.start.is_power_cut_to_come {
            machine.journal_forced();
        }
        if self.start.plant == Some(Plant::HandOverOldState) {
            *self.former.borrow_mut() = self.frozen_engine();
        }
    }

    fn keep_forced(&self, machine: &Machine) {
        let count = self.forces.count.load(Ordering::Relaxed);
        if self.start.is_power_cut_to_come && self.forces.seen.swap(count, Ordering::Relaxed) != count {
            machine.journal_forced();
        }
    }

    /// Whether the state engine and the file system hold together.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self, machine: &Machine) -> Result<(), String> {
        self.nfs4.inspect(holdfast_state::invariant::check).map_err(|broken| format!("{broken:?}"))?;
        machine.disk.files().check()
    }
}

/// The export's root, for those who need a backend and not a server.
///
/// # Errors
/// None: a root in memory is there.
pub fn root(machine: &Machine) -> holdfast_vfs::FsResult<holdfast_vfs::Handle> {
    machine.disk.files().root()
}
