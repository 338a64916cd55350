//! What answers the calls: the programs, wired as the server wires them, over a backend that is given. Its journal lies in
//! memory, and nothing runs on a thread of its own: what waits for its commit goes on when it is told to.

use holdfast_base::{ExportId, ManualClock, SeededEntropy, Timestamp};
use holdfast_export::{ClientRule, Committer, Export, ExportOptions, Namespace, NoGroups, Sealer, Squash};
use holdfast_journal::BootId;
use holdfast_ledger::Ledger;
use holdfast_manager::{Guarded, Manager, Parts};
use holdfast_nfs3::{Nfs3, Nfs3Parts};
use holdfast_nfs4::{Config, Identity, Nfs4, NumericIds, Options};
use holdfast_recovery::Boot;
use holdfast_rpc::Program;
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_server::Tally;
use holdfast_server::durable::Durable;
use holdfast_state::{BootInstance, Grace};
use holdfast_store::MemoryStore;
use holdfast_vfs::{Backend, Handle};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const LEASE_MS: u64 = 60_000;

/// What the calls that are counted do not fill, so that none of them pays for cleaning up behind all: that has a scenario of
/// its own.
const JOURNAL: holdfast_journal::Config = holdfast_journal::Config { bytes: 8 << 20, entries_max: 8192 };

/// Programs, and what they stand on.
pub(crate) struct Server {
    /// For NFSv3 and NFSv4.
    pub(crate) programs: Vec<Arc<dyn Program>>,
    /// What is promised to clients.
    pub(crate) manager: Arc<Manager>,
    /// The one export's file system, behind its guard.
    pub(crate) backend: Arc<dyn Backend>,
    namespace: Arc<Namespace>,
    export: Arc<Export>,
    committer: Arc<Committer>,
    _journal: TempDir,
}

impl Server {
    pub(super) fn over(backend: Arc<dyn Backend>) -> Self {
        let clock = Arc::new(ManualClock::default());
        let engine = holdfast_state::Config {
            boot: BootInstance::from_counter(1),
            lease_ms: LEASE_MS,
            grace: Grace::Over,
        };
        let entropy = Box::new(SeededEntropy(3));
        let manager = Manager::new(Parts { engine, entropy, clock: clock.clone(), pool_threads: 4 });
        let backend: Arc<dyn Backend> = Guarded::new(backend, &manager);
        let export = Arc::new(export_of(&backend));
        let journal = directory_in_memory();
        let durable = durable(journal.path(), &export, &clock);
        let ledger = durable.ledger();
        let exports = vec![Arc::clone(&export)];
        let namespace = Namespace::new(Sealer::new([3; 16]), exports, Timestamp { seconds: 5, nanos: 0 });
        let namespace = Arc::new(namespace.expect("one export"));
        let committer = Committer::pumped(Some(ledger.clone()));
        let replies = ReplyCache::new(ReplyCacheLimits::default(), clock);
        let tally = Tally::new();
        let nfs3 = Nfs3::new(Nfs3Parts {
            namespace: Arc::clone(&namespace),
            manager: Arc::clone(&manager),
            committer: Arc::clone(&committer),
            replies: Arc::clone(&replies),
            ledger: Some(Arc::clone(ledger)),
            groups: Arc::new(NoGroups),
            observer: Some(tally.clone()),
        });
        let config = Config {
            namespace: Arc::clone(&namespace),
            groups: Arc::new(NoGroups),
            ids: Arc::new(NumericIds),
            committer: Arc::clone(&committer),
            replies,
            manager: Arc::clone(&manager),
            records: durable.clone(),
            sessions: Some(durable.clone()),
            ledger: Some(Arc::clone(ledger)),
            identity: Identity { major_id: b"box".to_vec(), minor_id: 3, scope: b"scope".to_vec() },
            minor_max: 2,
            observer: Some(tally),
        };
        let nfs4 = Nfs4::with(config, Options::default());
        durable.serves(&nfs4);
        let programs: Vec<Arc<dyn Program>> = vec![Arc::new(nfs3), nfs4];
        Self { programs, manager, backend, namespace, export, committer, _journal: journal }
    }

    /// What a client calls this object.
    pub(super) fn seal(&self, object: &Handle) -> Vec<u8> {
        self.namespace.seal_in(&self.export, object).as_bytes().to_vec()
    }

    /// Makes durable what calls wait for, and answers them.
    pub(super) fn commit(&self) {
        self.committer.pump();
    }
}

fn export_of(backend: &Arc<dyn Backend>) -> Export {
    let options =
        ExportOptions { squash: Squash::None, clients: vec![ClientRule::All], ..ExportOptions::default() };
    Export { id: ExportId(1), path: vec![b"data".to_vec()], backend: Arc::clone(backend), options }
}

/// Where a force waits for nothing, if the system has such a place.
pub(crate) fn directory_in_memory() -> TempDir {
    let named = |dir: &Path| tempfile::Builder::new().prefix("holdfast-counts-").tempdir_in(dir);
    named(Path::new("/dev/shm")).or_else(|_| named(&std::env::temp_dir())).expect("a directory")
}

/// Ledger and records, as of a first start.
fn durable(dir: &Path, export: &Arc<Export>, clock: &ManualClock) -> Arc<Durable> {
    // When a request began is written into its record: the same on every run.
    let now = Arc::new(|| Timestamp { seconds: 7, nanos: 0 });
    let on = (BootId([1; 16]), now as holdfast_ledger::Now);
    let ledger = Ledger::open_on_machine(&dir.join("journal"), &JOURNAL, &[Arc::clone(export)], on);
    let store = Arc::new(MemoryStore::new());
    let boot = Boot::begin(&*store, LEASE_MS).expect("a first start");
    let made = Durable::with(store, ledger.expect("a new journal"), (&boot, LEASE_MS), clock);
    made.expect("there are no records yet").0
}
