//! A server in a box.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{ClientId, ExportId, ManualClock, SeededEntropy, SessionId, Timestamp};
use holdfast_export::{ClientRule, Committer, Export, ExportOptions, Namespace, NoGroups, Sealer, Squash};
use holdfast_nfs4::{ClientRecords, Config, Identity, Nfs4, NumericIds, Seeds};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::{Limits, Program};
use holdfast_state::{BootInstance, ClientImage, Grace, Recorded};
use holdfast_vfs::mem::{MemBackend, MemOptions};
use parking_lot::Mutex;

/// The lease of every world, in milliseconds.
pub const LEASE_MS: u64 = 60_000;

/// Records kept in memory; names listed in `may_reclaim` were there before.
#[derive(Default)]
pub struct Records {
    pub kept: Mutex<Vec<Vec<u8>>>,
    pub may_reclaim: Mutex<Vec<Vec<u8>>>,
    pub is_broken: Mutex<bool>,
}

impl ClientRecords for Records {
    fn persist(&self, client: &ClientImage) -> io::Result<()> {
        if *self.is_broken.lock() {
            return Err(io::Error::other("disk on fire"));
        }
        self.kept.lock().push(client.name.as_bytes().to_vec());
        Ok(())
    }

    fn forget(&self, _: ClientId) {}

    fn reclaim_done(&self, _: ClientId) {}

    fn recorded(&self, client: &ClientImage) -> Recorded {
        let may = self.may_reclaim.lock().iter().any(|name| name == client.name.as_bytes());
        if may { Recorded::Yes } else { Recorded::No }
    }
}

/// What the journal was told.
#[derive(Default)]
pub struct Journal {
    pub made: Mutex<Vec<SessionId>>,
    pub replies: Mutex<Vec<Vec<u8>>>,
}

impl holdfast_nfs4::ReplyJournal for Journal {
    fn session_made(&self, session: &holdfast_state::SessionImage) -> io::Result<()> {
        self.made.lock().push(session.id);
        Ok(())
    }

    fn session_gone(&self, session: SessionId) {
        self.made.lock().retain(|id| *id != session);
    }

    fn replied(
        &self,
        _: SessionId,
        _: holdfast_base::SlotId,
        _: holdfast_base::Seqid,
        reply: &[u8],
    ) {
        self.replies.lock().push(reply.to_vec());
    }
}

pub struct World {
    pub nfs: Arc<Nfs4>,
    pub fs: MemBackend,
    pub clock: Arc<ManualClock>,
    pub records: Arc<Records>,
    pub journal: Arc<Journal>,
    first: Detached,
}

/// How a world is made.
pub struct Making {
    pub options: ExportOptions,
    pub grace: Grace,
    pub fs: MemOptions,
}

impl Default for Making {
    fn default() -> Self {
        let options = ExportOptions {
            squash: Squash::None,
            clients: vec![ClientRule::All],
            is_sync: false,
            ..ExportOptions::default()
        };
        Self { options, grace: Grace::Over, fs: MemOptions { root_mode: 0o777, ..MemOptions::deterministic() } }
    }
}

impl World {
    /// With an asynchronous export of an empty file system, open to all, at `/export`.
    pub fn new() -> Self {
        Self::made(Making::default())
    }

    /// With a synchronous export.
    pub fn sync() -> Self {
        let mut making = Making::default();
        making.options.is_sync = true;
        Self::made(making)
    }

    pub fn made(making: Making) -> Self {
        let fs = MemBackend::new(&making.fs);
        let export = Export {
            id: ExportId(7),
            path: vec![b"export".to_vec()],
            backend: Arc::new(fs.clone()),
            options: making.options,
        };
        let now = Timestamp { seconds: 1_000, nanos: 0 };
        let namespace = Namespace::new(Sealer::new([1; 16]), vec![Arc::new(export)], now).unwrap();
        let clock = Arc::new(ManualClock::default());
        let records = Arc::new(Records::default());
        let journal = Arc::new(Journal::default());
        let config = Config {
            namespace: Arc::new(namespace),
            groups: Arc::new(NoGroups),
            ids: Arc::new(NumericIds),
            committer: Committer::new(None),
            clock: clock.clone(),
            lease_ms: LEASE_MS,
            boot: BootInstance::from_counter(1),
            grace: making.grace,
            records: records.clone(),
            journal: Some(journal.clone()),
            identity: Identity { major_id: b"box".to_vec(), minor_id: 3, scope: b"scope".to_vec() },
            minor_max: 2,
            observer: None,
        };
        let nfs = Nfs4::new(config, Seeds { entropy: Box::new(SeededEntropy(7)) });
        let program: Arc<dyn Program> = nfs.clone();
        let first = Detached::new(vec![program], Limits::default()).unwrap();
        Self { nfs, fs, clock, records, journal, first }
    }

    /// A connection from a host of its own.
    pub fn connect(&self, host: u8) -> Detached {
        self.first.another(([192, 0, 2, host], 700).into())
    }

    /// Lets time pass, as the server's own ticking would notice it.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
        self.nfs.tick();
    }

    /// That the state engine holds together.
    pub fn check(&self) {
        self.nfs.inspect(holdfast_state::invariant::check).unwrap();
    }
}
