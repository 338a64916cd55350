//! A server in a box.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::limits::COURTESY_MS;
use holdfast_base::{ClientId, ExportId, ManualClock, SeededEntropy, SessionId, Timestamp};
use holdfast_export::{
    ClientRule, Committer, Export, ExportOptions, Force, Location, Namespace, NoGroups, Object, Sealer,
    Squash,
};
use holdfast_ledger::Ledger;
use holdfast_manager::{Guarded, Manager, Parts};
use holdfast_nfs4::{ClientRecords, Config, Identity, Nfs4, NumericIds, Options};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_rpc::{Limits, Program};
use holdfast_state::{BootInstance, ClientImage, Grace, Recorded};
use holdfast_vfs::mem::{MemBackend, MemOptions};
use parking_lot::{Condvar, Mutex};

/// The lease of every world, in milliseconds.
pub(crate) const LEASE_MS: u64 = 60_000;

/// Records kept in memory; names listed in `may_reclaim` were there before.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) kept: Mutex<Vec<Vec<u8>>>,
    pub(crate) may_reclaim: Mutex<Vec<Vec<u8>>>,
    /// Who has asked for something back, once for each time.
    pub(crate) reclaims: Mutex<Vec<ClientId>>,
    pub(crate) is_broken: Mutex<bool>,
    pub(crate) holders: Mutex<Vec<ClientId>>,
    /// Who has lost what.
    pub(crate) losers: Mutex<Vec<ClientId>>,
    /// Whose records were taken away, those of one call together.
    pub(crate) forgotten: Mutex<Vec<Vec<ClientId>>>,
}

impl ClientRecords for Records {
    fn persist(&self, client: &ClientImage) -> io::Result<()> {
        if *self.is_broken.lock() {
            return Err(io::Error::other("disk on fire"));
        }
        self.kept.lock().push(client.name.as_bytes().to_vec());
        Ok(())
    }

    fn forget(&self, clients: &[ClientId]) -> bool {
        if *self.is_broken.lock() {
            return false;
        }
        let mut forgotten = self.forgotten.lock();
        let is_new = |client: &ClientId| !forgotten.iter().flatten().any(|gone| gone == client);
        let gone: Vec<_> = clients.iter().copied().filter(is_new).collect();
        if !gone.is_empty() {
            forgotten.push(gone);
        }
        true
    }

    fn reclaim_done(&self, _: ClientId) {}

    fn may_hold(&self, client: ClientId) -> bool {
        self.holders.lock().contains(&client)
    }

    fn will_hold(&self, client: &ClientImage) -> io::Result<()> {
        if *self.is_broken.lock() {
            return Err(io::Error::other("disk on fire"));
        }
        self.holders.lock().push(client.id);
        Ok(())
    }

    fn note_losses(&self, client: ClientId, has_lost: bool) -> bool {
        if *self.is_broken.lock() {
            return false;
        }
        let mut losers = self.losers.lock();
        losers.retain(|loser| *loser != client);
        losers.extend(has_lost.then_some(client));
        true
    }

    fn recorded(&self, client: &ClientImage) -> Recorded {
        self.reclaims.lock().push(client.id);
        let may = self.may_reclaim.lock().iter().any(|name| name == client.name.as_bytes());
        if may { Recorded::Yes } else { Recorded::No }
    }
}

/// Holds every force of the disk back while it is closed.
#[derive(Default)]
pub(crate) struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn close(&self) {
        *self.is_closed.lock() = true;
    }

    pub(crate) fn open(&self) {
        *self.is_closed.lock() = false;
        self.opened.notify_all();
    }
}

impl Force for Gate {
    fn force(&self) -> io::Result<()> {
        let mut is_closed = self.is_closed.lock();
        while *is_closed {
            self.opened.wait(&mut is_closed);
        }
        Ok(())
    }
}

/// What is done with a session.
type Act = Box<dyn FnOnce(SessionId) + Send>;

/// What session records were told.
#[derive(Default)]
pub(crate) struct Sessions {
    pub(crate) made: Mutex<Vec<SessionId>>,
    pub(crate) is_broken: Mutex<bool>,
    /// The program that a session is called under now, of those that were changed.
    pub(crate) programs: Mutex<Vec<(SessionId, u32)>>,
    /// Done once the next one is stored.
    pub(crate) once_stored: Mutex<Option<Act>>,
}

impl holdfast_nfs4::SessionRecords for Sessions {
    fn session_made(
        &self,
        session: &holdfast_state::SessionImage,
        answer: &holdfast_state::CreatedSession,
    ) -> io::Result<()> {
        if *self.is_broken.lock() {
            return Err(io::Error::other("disk on fire"));
        }
        assert_eq!((session.id, session.is_persistent), (answer.id, answer.is_persistent));
        if !session.is_persistent {
            return Ok(());
        }
        self.made.lock().push(session.id);
        let act = self.once_stored.lock().take();
        act.into_iter().for_each(|act| act(session.id));
        Ok(())
    }

    fn session_changed(&self, session: &holdfast_state::SessionImage) -> io::Result<()> {
        if *self.is_broken.lock() {
            return Err(io::Error::other("disk on fire"));
        }
        self.programs.lock().push((session.id, session.callback_program));
        Ok(())
    }

    fn sessions_gone(&self, sessions: &[SessionId]) {
        self.made.lock().retain(|id| !sessions.contains(id));
    }
}

/// A ledger of its own, whose file is gone as soon as it is open.
fn ledger() -> Arc<Ledger> {
    let dir = tempfile::tempdir().unwrap();
    let size = holdfast_journal::Config { bytes: 1 << 20, entries_max: 1024 };
    Ledger::open(&dir.path().join("journal"), &size, &[]).unwrap().0
}

pub(crate) struct World {
    pub(crate) nfs: Arc<Nfs4>,
    pub(crate) fs: MemBackend,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) records: Arc<Records>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) manager: Arc<Manager>,
    namespace: Arc<Namespace>,
    first: Detached,
}

/// How a world is made.
pub(crate) struct Making {
    pub(crate) options: ExportOptions,
    pub(crate) grace: Grace,
    /// Which life of the server it is.
    pub(crate) boot: u64,
    pub(crate) fs: MemOptions,
    pub(crate) ledger: Option<Arc<Ledger>>,
    pub(crate) choices: Options,
    /// With none, nobody waits for another: the test's one thread runs all.
    pub(crate) pool_threads: usize,
    /// Exports beside the one at `/export`.
    pub(crate) others: Vec<Export>,
}

impl Default for Making {
    fn default() -> Self {
        let options = ExportOptions {
            squash: Squash::None,
            clients: vec![ClientRule::All],
            is_sync: false,
            ..ExportOptions::default()
        };
        Self {
            options,
            grace: Grace::Over,
            boot: 1,
            fs: MemOptions { root_mode: 0o777, ..MemOptions::deterministic() },
            ledger: None,
            choices: Options::default(),
            pool_threads: 0,
            others: Vec::new(),
        }
    }
}

impl World {
    /// With an asynchronous export of an empty file system, open to all, at `/export`.
    pub(crate) fn new() -> Self {
        Self::made(Making::default())
    }

    /// With a synchronous export.
    pub(crate) fn sync() -> Self {
        let mut making = Making::default();
        making.options.is_sync = true;
        Self::made(making)
    }

    pub(crate) fn made(making: Making) -> Self {
        let fs = MemBackend::new(&making.fs);
        let clock = Arc::new(ManualClock::default());
        let records = Arc::new(Records::default());
        let sessions = Arc::new(Sessions::default());
        let gate = Arc::new(Gate::default());
        let engine = holdfast_state::Config {
            boot: BootInstance::from_counter(making.boot),
            lease_ms: LEASE_MS,
            grace: making.grace,
        };
        let entropy = Box::new(SeededEntropy(7));
        let pool_threads = making.pool_threads;
        let manager = Manager::new(Parts { engine, entropy, clock: clock.clone(), pool_threads });
        let export = Export {
            id: ExportId(7),
            path: vec![b"export".to_vec()],
            backend: Arc::new(fs.clone()),
            options: making.options,
        };
        let now = Timestamp { seconds: 1_000, nanos: 0 };
        let guard = |mut export: Export| {
            export.backend = Guarded::new(export.backend, &manager);
            Arc::new(export)
        };
        let exports = std::iter::once(export).chain(making.others).map(guard).collect();
        let namespace = Arc::new(Namespace::new(Sealer::new([1; 16]), exports, now).unwrap());
        let config = Config {
            namespace: Arc::clone(&namespace),
            groups: Arc::new(NoGroups),
            ids: Arc::new(NumericIds),
            committer: Committer::new(Some(gate.clone())),
            replies: ReplyCache::new(ReplyCacheLimits::default(), clock.clone()),
            manager: manager.clone(),
            records: records.clone(),
            sessions: Some(sessions.clone()),
            ledger: Some(making.ledger.unwrap_or_else(ledger)),
            identity: Identity { major_id: b"box".to_vec(), minor_id: 3, scope: b"scope".to_vec() },
            minor_max: 2,
            observer: None,
        };
        let nfs = Nfs4::with(config, making.choices);
        let program: Arc<dyn Program> = nfs.clone();
        let first = Detached::new(vec![program], Limits::default()).unwrap();
        Self { nfs, fs, clock, records, sessions, gate, manager, namespace, first }
    }

    /// The export at `/export` is served elsewhere from now on; of these objects clients hold something.
    pub(crate) fn move_away(&self, moved_to: &[Location], held: &[&[u8]]) {
        let key = |fh: &&[u8]| match self.namespace.open(fh) {
            Ok(Object::Export(export, handle)) => (handle.key(), export.id),
            other => panic!("{other:?}"),
        };
        let held: Vec<_> = held.iter().map(key).collect();
        let here = self.namespace.exports();
        let gone = |export: Arc<Export>| Export {
            id: export.id,
            path: export.path.clone(),
            backend: Arc::new(MemBackend::new(&MemOptions::deterministic())),
            options: ExportOptions { moved_to: moved_to.to_vec(), ..export.options.clone() },
        };
        let now = Timestamp { seconds: 2_000, nanos: 0 };
        self.namespace.replace(here.into_iter().map(|export| Arc::new(gone(export))).collect(), now).unwrap();
        self.nfs.moved_away(&held);
    }

    /// A connection from a host of its own.
    pub(crate) fn connect(&self, host: u8) -> Detached {
        self.first.another(([192, 0, 2, host], 700).into())
    }

    /// Lets time pass, as the server's own ticking would notice it.
    pub(crate) fn pass(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
        self.nfs.tick();
    }

    /// Lets clients that say nothing lose what they kept beyond their lease.
    pub(crate) fn pass_courtesy(&self) {
        self.pass(LEASE_MS + 1);
        self.pass(COURTESY_MS + 1);
        // They go in two steps.
        self.pass(1);
    }

    /// That the state engine holds together.
    pub(crate) fn check(&self) {
        self.nfs.inspect(holdfast_state::invariant::check).unwrap();
        assert_eq!(self.nfs.stray_channels(), 0, "what is kept of a session goes with it");
    }
}
