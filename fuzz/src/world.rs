//! A whole server without a network: every program, over two file systems in memory, one exported `sync` and one
//! `async`. The file systems outlive an input; they are emptied after each, and that nothing is left then is checked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_base::{Cookie, ExportId, ManualClock, SeededEntropy, Timestamp};
use holdfast_export::{
    ClientRule, Committer, Export, ExportOptions, GroupSource, Namespace, NoGroups, Object, Sealer, Squash,
};
use holdfast_manager::{Guarded, Manager, Parts};
use holdfast_nfs3::{Mount3, Nfs3, Nfs3Parts};
use holdfast_nfs4::{Config, Identity, Nfs4, NoRecords, NumericIds};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_rpc::{Auth, AuthSys, Limits, OutgoingCall, Program};
use holdfast_state::{BootInstance, Grace};
use holdfast_vfs::{
    AttrMask, Backend, Caller, Cx, DirListing, Flow, FsError, FsId, Handle, MemBackend, MemOptions, Name,
    RemoveKind, Touched, Wait,
};

/// How long an answer may take: no call waits for anything but this process.
const PATIENCE: Duration = Duration::from_secs(20);

/// The server's run, as client ids and stateids carry it.
pub(crate) const BOOT: u32 = 0x626f_6f74;

pub(crate) const LEASE_MS: u64 = 10_000;

/// An accepted reply of SYSTEM_ERR after its transaction id.
pub(crate) const SYSTEM_ERR: [u8; 20] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5];

/// What is handed from one input to the next.
struct Shelf {
    committer: Arc<Committer>,
    files: [MemBackend; 2],
    backends: [Arc<dyn Backend>; 2],
}

static SHELF: LazyLock<Mutex<Shelf>> = LazyLock::new(|| {
    let files = [1, 2].map(|n| {
        let mut options = MemOptions::deterministic();
        options.fsid = FsId { major: 7, minor: n };
        // Small, so that inputs meet a full file system too.
        options.bytes_max = 1 << 20;
        options.objects_max = 48;
        options.root_mode = 0o1777;
        MemBackend::new(&options)
    });
    let backends = files.clone().map(|files| Arc::new(files) as Arc<dyn Backend>);
    // Pumped: a thread would keep the server of its input for as long as it waits for more.
    Mutex::new(Shelf { committer: Committer::pumped(None), files, backends })
});

/// The server.
pub(crate) struct World {
    shelf: MutexGuard<'static, Shelf>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) nfs4: Arc<Nfs4>,
    pub(crate) connection: Detached,
    sealer: Sealer,
    namespace: Arc<Namespace>,
    xid: u32,
    peers: u16,
}

impl World {
    pub(crate) fn new() -> Self {
        let shelf = SHELF.lock().unwrap_or_else(PoisonError::into_inner);
        let sealer = Sealer::new(*b"sealed for fuzz.");
        let clock = Arc::new(ManualClock::default());
        let engine = holdfast_state::Config {
            boot: BootInstance::from_counter(u64::from(BOOT) - 1),
            lease_ms: LEASE_MS,
            grace: Grace::Over,
        };
        let entropy = Box::new(SeededEntropy(1));
        // Whoever meets a promise comes again: nothing here waits.
        let manager = Manager::new(Parts { engine, entropy, clock: clock.clone(), pool_threads: 0 });
        let exports = [("s", true), ("a", false)].iter().zip(&shelf.backends).enumerate();
        let exports = exports.map(|(i, ((name, is_sync), backend))| {
            let options = ExportOptions {
                clients: vec![ClientRule::All],
                squash: Squash::None,
                is_sync: *is_sync,
                ..ExportOptions::default()
            };
            let path = vec![name.as_bytes().to_vec()];
            let backend = Guarded::new(Arc::clone(backend), &manager);
            Arc::new(Export { id: ExportId(i as u16 + 1), path, backend, options })
        });
        let namespace = Namespace::new(sealer.clone(), exports.collect(), Timestamp::default());
        let namespace = Arc::new(namespace.expect("two exports of different names"));
        let groups: Arc<dyn GroupSource> = Arc::new(NoGroups);
        let replies = ReplyCache::new(ReplyCacheLimits::default(), clock.clone());
        let nfs3 = Nfs3::new(Nfs3Parts {
            namespace: Arc::clone(&namespace),
            manager: Arc::clone(&manager),
            committer: Arc::clone(&shelf.committer),
            replies: Arc::clone(&replies),
            ledger: None,
            groups: Arc::clone(&groups),
            observer: None,
        });
        let nfs4 = nfs4(&namespace, groups, &shelf.committer, manager, replies);
        let mount = Mount3::new(Arc::clone(&namespace));
        let programs: Vec<Arc<dyn Program>> = vec![Arc::new(nfs3), Arc::new(mount), nfs4.clone()];
        let connection = Detached::new(programs, Limits::default()).expect("no thread is made");
        Self { shelf, clock, nfs4, connection, sealer, namespace, xid: 0, peers: 0 }
    }

    pub(crate) fn files(&self) -> &[MemBackend; 2] {
        &self.shelf.files
    }

    /// Handles of the pseudo-root and of both exports' roots.
    pub(crate) fn roots(&self) -> Vec<Vec<u8>> {
        let mut roots = vec![self.namespace.root().expect("a pseudo-root")];
        for export in self.namespace.exports() {
            let root = export.backend.root().expect("a root in memory");
            roots.push(Object::Export(export, root));
        }
        roots.iter().map(|object| self.namespace.seal(object).as_bytes().to_vec()).collect()
    }

    /// Every handle of this server that lies in a reply.
    pub(crate) fn handles_in<'r>(&self, reply: &'r [u8]) -> Vec<&'r [u8]> {
        let mut found = Vec::new();
        for at in (0..reply.len().saturating_sub(4)).step_by(4) {
            let n = u32::from_be_bytes([reply[at], reply[at + 1], reply[at + 2], reply[at + 3]]) as usize;
            if (12..=64).contains(&n)
                && let Some(handle) = reply.get(at + 4..at + 4 + n)
                && self.sealer.open(handle).is_ok()
            {
                found.push(handle);
            }
        }
        found
    }

    /// Another connection, from another port; the old one ends.
    pub(crate) fn reconnect(&mut self) {
        self.peers = (self.peers + 1) % 1000;
        let peer: SocketAddr = (Ipv4Addr::LOCALHOST, 800 + self.peers).into();
        let fresh = self.connection.another(peer);
        std::mem::replace(&mut self.connection, fresh).close();
    }

    /// Calls and waits for the results; `None` when the call was refused as a whole.
    ///
    /// # Panics
    /// When there is no answer.
    pub(crate) fn call(
        &mut self,
        program: u32,
        version: u32,
        procedure: u32,
        uid: u32,
        args: &[u8],
    ) -> Option<Vec<u8>> {
        self.xid = self.xid.wrapping_add(1);
        let auth = Auth::Sys(AuthSys { uid, gid: uid, groups: vec![], machine: b"fuzz".to_vec() });
        let call = OutgoingCall { program, version, procedure, auth: &auth, args };
        let mut replies = self.connection.call(self.xid, &call);
        let since = Instant::now();
        loop {
            let own = replies.iter().find(|r| r.get(..4) == Some(&self.xid.to_be_bytes()));
            if let Some(reply) = own {
                // What a panic in a program becomes when the process is not ended by it.
                assert!(reply[4..24] != SYSTEM_ERR, "procedure {procedure} of {program} v{version} panicked");
                return Detached::results(reply).map(<[u8]>::to_vec);
            }
            assert!(!self.connection.connection().is_closed(), "the connection was dropped over a call");
            assert!(since.elapsed() < PATIENCE, "no answer to procedure {procedure} of {program} v{version}");
            if self.shelf.committer.pump() == 0 {
                std::thread::yield_now();
            }
            replies = self.connection.sent();
        }
    }

    /// Checks what must hold between calls.
    pub(crate) fn check(&self) {
        for files in self.files() {
            files.check().expect("the file system holds together");
        }
        self.nfs4.inspect(holdfast_state::invariant::check).expect("the state engine holds together");
    }

    /// Ends the server and empties its file systems.
    ///
    /// # Panics
    /// When something is left, or was left open.
    pub(crate) fn end(self) {
        self.check();
        for files in self.files() {
            files.block_every(0);
            files.set_read_only(false);
        }
        while self.shelf.committer.pump() > 0 {}
        let Self { shelf, nfs4, connection, .. } = self;
        connection.close();
        drop(nfs4);
        for files in &shelf.files {
            settle(files);
            assert_eq!(files.open_files(), 0, "files are open that nobody has open");
            empty(files, &files.root().expect("a root in memory"));
            files.check().expect("the emptied file system holds together");
            let caller = Caller::root();
            let cx = Cx::new(&caller, Wait::Yes);
            let usage = files.usage(&cx, &files.root().expect("a root in memory")).expect("usage of a root");
            assert_eq!(usage.files_total - usage.files_free, 1, "objects are left without a name");
        }
    }
}

fn nfs4(
    namespace: &Arc<Namespace>,
    groups: Arc<dyn GroupSource>,
    committer: &Arc<Committer>,
    manager: Arc<Manager>,
    replies: Arc<ReplyCache>,
) -> Arc<Nfs4> {
    let config = Config {
        namespace: Arc::clone(namespace),
        groups,
        ids: Arc::new(NumericIds),
        committer: Arc::clone(committer),
        manager,
        records: Arc::new(NoRecords),
        sessions: None,
        ledger: None,
        replies,
        identity: Identity { major_id: b"fuzz".to_vec(), minor_id: 0, scope: b"fuzz".to_vec() },
        minor_max: 2,
        observer: None,
    };
    Nfs4::new(config)
}

/// Uses up the failures that an input ordered and never met.
fn settle(files: &MemBackend) {
    let root = files.root().expect("a root in memory");
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    while files.getattr(&cx, &root, AttrMask::STAT).is_err() {}
    let touched = [Touched { handle: root, data: false }];
    let mut results = [Err(FsError::Io)];
    while results[0].is_err() {
        results = [Ok(())];
        files.commit(&touched, &mut results);
    }
}

/// Removes everything below a directory.
fn empty(files: &MemBackend, dir: &Handle) {
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let mut names = Vec::new();
    let listing = DirListing { dir, from: Cookie(0), want: None };
    let listed = files.readdir(&cx, listing, &mut |entry| {
        names.push(entry.name.to_vec());
        Flow::Continue
    });
    listed.expect("the superuser lists any directory");
    for name in &names {
        let name = Name::new(name).expect("a name that a listing gave");
        let node = files.lookup(&cx, dir, name, AttrMask::STAT).expect("a name that a listing gave");
        if files.remove(&cx, dir, name, RemoveKind::Any) == Err(FsError::NotEmpty) {
            empty(files, &node.handle);
            files.remove(&cx, dir, name, RemoveKind::Any).expect("an emptied directory");
        }
    }
}
