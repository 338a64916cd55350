//! One life of the server: the real programs, records, grace and journal, put together as `server` does, over a
//! machine of the simulation.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use holdfast_base::{ClientId, Clock, ExportId, Instant, SeededEntropy};
use holdfast_export::{
    ClientRule, Committer, Export, ExportOptions, Force, LocalUse, Namespace, NoGroups, Sealer, Squash,
};
use holdfast_ledger::{Ledger, Now, Remembered};
use holdfast_manager::{Guarded, Manager, Parts};
use holdfast_nfs3::{Mount3, Nfs3, Nfs3Parts};
use holdfast_nfs4::{ClientRecords, Config, Nfs4, NumericIds};
use holdfast_nlm::{Lockd, Nlm4, Nsm, Parts as LockParts, Start};
use holdfast_recovery::{Boot, Identity};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_rpc::{Limits, Program};
use holdfast_server::durable::Durable;
use holdfast_state::{BootInstance, ClientImage, Grace, Recorded};
use holdfast_store::{MemoryStore, Store};
use holdfast_vfs::Backend;

use crate::machine::Machine;
use crate::peers::{Outbox, ToCarry};
use crate::store::SimStore;

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
    /// Recalls of delegations are not sent to clients of 4.1 and later.
    DropRecalls,
    /// They are not sent to those of 4.0.
    DropRecallsOf40,
    /// Hosts with locks of NFSv3 are not on record.
    ForgetHosts,
    /// Nobody asks whether what is done stands against what was promised, but the state engine.
    Unguarded,
}

impl Plant {
    /// All of them, by the names of the command line.
    pub const ALL: [(&'static str, Self); 11] = [
        ("answer-before-commit", Self::AnswerBeforeCommit),
        ("forget-records", Self::ForgetRecords),
        ("anyone-reclaims", Self::AnyoneReclaims),
        ("no-journal", Self::NoJournal),
        ("short-lease", Self::ShortLease),
        ("stale-reads", Self::StaleReads),
        ("swallow-replies", Self::SwallowReplies),
        ("drop-recalls", Self::DropRecalls),
        ("drop-recalls-of-4.0", Self::DropRecallsOf40),
        ("forget-hosts", Self::ForgetHosts),
        ("unguarded", Self::Unguarded),
    ];
}

/// A running server.
pub struct Life {
    /// Its number, from 1.
    pub number: u64,
    /// The service.
    pub nfs4: Arc<Nfs4>,
    durable: Arc<Durable>,
    lockd: Arc<Lockd>,
    outbox: Arc<Outbox>,
    committer: Arc<Committer>,
    /// Where connections come from.
    pub(crate) base: Detached,
    forces: Arc<Forces>,
    store: SimStore,
    is_power_cut_to_come: bool,
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

    fn forget(&self, client: ClientId) {
        self.inner.forget(client);
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

    fn note_losses(&self, client: ClientId, has_lost: &dyn Fn() -> bool) {
        self.inner.note_losses(client, has_lost);
    }

    fn recorded(&self, client: &ClientImage) -> Recorded {
        if self.plant == Plant::AnyoneReclaims { Recorded::Yes } else { self.inner.recorded(client) }
    }
}

fn export(machine: &Machine, number: u64, manager: &Arc<Manager>, plant: Option<Plant>) -> Arc<Export> {
    let backend: Arc<dyn Backend> = Arc::new(machine.disk.backend(number));
    let is_guarded = plant != Some(Plant::Unguarded);
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

/// The journal, and what a former life left in it.
fn ledger(
    machine: &Machine,
    plant: Option<Plant>,
    exports: &[Arc<Export>],
) -> Result<(Arc<Ledger>, Vec<Remembered>)> {
    if plant == Some(Plant::NoJournal) {
        // A server that records nothing finds nothing.
        let _ = std::fs::remove_file(machine.journal());
    }
    let wall = machine.wall.clone();
    let size = holdfast_journal::Config { bytes: 1 << 20, entries_max: 4096 };
    let on: (_, Now) = (machine.boot(), Arc::new(move || wall.now()));
    Ledger::open_on_machine(&machine.journal(), &size, exports, on).context("journal")
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

    fn nfs4(&self, identity: &Identity, plant: Option<Plant>) -> Arc<Nfs4> {
        let records: Arc<dyn ClientRecords> = match plant {
            Some(plant) => Arc::new(Defective { inner: Arc::clone(&self.durable), plant }),
            None => self.durable.clone(),
        };
        Nfs4::new(Config {
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
        })
    }

    fn lockd(&self, store: Arc<dyn Store>, outbox: &Arc<Outbox>, epoch: u64) -> Result<Arc<Lockd>> {
        let is_over = self.durable.is_grace_over();
        let lockd = Lockd::new(LockParts {
            namespace: Arc::clone(&self.namespace),
            manager: Arc::clone(&self.manager),
            groups: Arc::new(NoGroups),
            replies: Arc::clone(&self.replies),
            store,
            peers: outbox.clone(),
            name: b"server".to_vec(),
            epoch,
            start: if is_over { Start::Fresh } else { Start::InGrace },
        })
        .context("records of hosts with locks")?;
        self.durable.serves_locks(&lockd);
        Ok(lockd)
    }
}

impl Life {
    /// Starts a server. `is_power_cut_to_come` has it keep what a power cut would leave of the journal.
    ///
    /// # Errors
    /// What a real server would not start with either.
    pub fn start(
        machine: &Rc<Machine>,
        number: u64,
        seed: u64,
        plant: Option<Plant>,
        is_power_cut_to_come: bool,
    ) -> Result<Self> {
        let own_store = machine.store.handle();
        let store: Arc<dyn Store> = Arc::new(own_store.clone());
        let mut entropy = SeededEntropy(seed ^ number.rotate_left(32));
        let identity = Identity::load_or_make(store.as_ref(), &mut entropy)?;
        let lease_ms = if plant == Some(Plant::ShortLease) { LEASE_MS / 4 } else { LEASE_MS };
        let boot = Boot::begin(store.as_ref(), lease_ms)?;
        let clock: Arc<dyn Clock> = machine.clock.clone();
        let boot_instance = BootInstance::from_counter(boot.epoch);
        let manager = Manager::new(Parts {
            engine: holdfast_state::Config { boot: boot_instance, lease_ms, grace: Grace::Over },
            entropy: Box::new(entropy),
            clock: Arc::clone(&clock),
            // There is one thread: nothing may wait on it.
            pool_threads: 0,
        });
        let exports = vec![export(machine, number, &manager, plant)];
        let opened = ledger(machine, plant, &exports)?;
        let (durable, former) = Durable::with(Arc::clone(&store), opened, (&boot, lease_ms), clock.as_ref())?;
        manager.quiet(|engine, _| engine.set_grace(durable.grace()));
        let forces = Forces::of(durable.ledger());
        let namespace =
            Arc::new(Namespace::new(Sealer::new(identity.handle_key), exports, machine.wall.now())?);
        let committer = Committer::pumped(Some(forces.clone()));
        let replies = ReplyCache::new(ReplyCacheLimits::default(), clock);
        let ground = Ground { namespace, manager, committer, replies, durable };
        let outbox = Arc::new(Outbox::default());
        let hosts = if plant == Some(Plant::ForgetHosts) { Arc::new(MemoryStore::default()) } else { store };
        let lockd = ground.lockd(hosts, &outbox, boot.epoch)?;
        let (nfs3, nfs4) = (ground.nfs3(), ground.nfs4(&identity, plant));
        nfs4.call_by(outbox.clone());
        nfs4.restore(&former.snapshot);
        ground.replies.restore(former.replies);
        ground.durable.serves(&nfs4);
        let Ground { namespace, committer, durable, .. } = ground;
        let mut programs: Vec<Arc<dyn Program>> = vec![Arc::new(nfs3), Arc::new(Mount3::new(namespace))];
        programs.push(nfs4.clone());
        programs.push(Arc::new(Nlm4(Arc::clone(&lockd))));
        programs.push(Arc::new(Nsm(Arc::clone(&lockd))));
        let base = Detached::new(programs, Limits::default())?;
        let store = own_store;
        if is_power_cut_to_come {
            machine.journal_forced();
        }
        Ok(Self {
            number,
            nfs4,
            durable,
            lockd,
            outbox,
            committer,
            base,
            forces,
            store,
            is_power_cut_to_come,
        })
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

    /// What is due about once a second.
    pub fn tick(&self, machine: &Machine, now: Instant) {
        self.nfs4.tick();
        self.durable.tick(now);
        if self.is_power_cut_to_come {
            machine.journal_forced();
        }
    }

    fn keep_forced(&self, machine: &Machine) {
        let count = self.forces.count.load(Ordering::Relaxed);
        if self.is_power_cut_to_come && self.forces.seen.swap(count, Ordering::Relaxed) != count {
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
