//! A lock manager, status monitor and port mapper without a network: three files on each of two exports, one where
//! processes outside may lock, and one where there are none.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use holdfast_base::{ExportId, ManualClock, SeededEntropy, Timestamp};
use holdfast_export::{
    ClientRule, Export, ExportOptions, LocalUse, Namespace, NoGroups, Object, Sealer, Squash,
};
use holdfast_manager::{Manager, Parts as ManagerParts};
use holdfast_nlm::{Answered, Lockd, Nlm4, NoAnswer, Nsm, Parts, PeerCall, Peers, Start};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::portmap::{Entry, Portmap, Transport};
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_rpc::{Auth, AuthSys, CallError, Limits, OutgoingCall, Program};
use holdfast_state::{BootInstance, Census, Grace};
use holdfast_store::MemoryStore;
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, FsId, Handle, MemBackend, MemOptions, Name,
    SetAttrs, Wait,
};
use holdfast_wire::nlm4::{NLM_PROGRAM, NLM_V4};
use holdfast_wire::portmap::{IPPROTO_TCP, Mapping, PMAP_PROGRAM, PMAP_V2, PMAPPROC_GETPORT};
use holdfast_xdr::to_bytes;

use crate::world::SYSTEM_ERR;

/// Files of each export.
pub(crate) const FILES: usize = 3;

/// Where our lock manager says it is.
const PORT: u16 = 2049;

/// The server's calls, which wait to be delivered.
#[derive(Default)]
pub(crate) struct Wire(Mutex<VecDeque<(PeerCall, Answered)>>);

impl Peers for Wire {
    fn call(&self, call: PeerCall, answered: Answered) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back((call, answered));
    }
}

/// A file, and its handle as clients have it.
pub(crate) struct File {
    pub(crate) backend: MemBackend,
    pub(crate) handle: Handle,
    pub(crate) fh: Vec<u8>,
    pub(crate) has_outsiders: bool,
}

/// The server.
pub(crate) struct NlmWorld {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) lockd: Arc<Lockd>,
    pub(crate) files: Vec<File>,
    manager: Arc<Manager>,
    wire: Arc<Wire>,
    connection: Detached,
    backends: [MemBackend; 2],
}

fn file(backend: &MemBackend, name: &[u8]) -> Handle {
    let root = Caller::root();
    let cx = Cx::new(&root, Wait::Yes);
    let set = SetAttrs { mode: Some(0o666), ..SetAttrs::default() };
    let how = CreateHow { mode: CreateMode::Unchecked, set: &set, open: None, want: AttrMask::STAT };
    let dir = backend.root().expect("a root in memory");
    let name = Name::new(name).expect("a good name");
    backend.create(&cx, &dir, name, &how).expect("a file in an empty directory").node.handle
}

impl NlmWorld {
    pub(crate) fn new() -> Self {
        let backends = [1, 2].map(|n| {
            let mut options = MemOptions::deterministic();
            options.fsid = FsId { major: 7, minor: n };
            options.root_mode = 0o777;
            MemBackend::new(&options)
        });
        let uses = [LocalUse::Lazy, LocalUse::None];
        let exports: Vec<_> = (backends.iter().zip(uses).zip(1..))
            .map(|((backend, local), id)| {
                let clients = vec![ClientRule::All];
                let options =
                    ExportOptions { clients, squash: Squash::None, local, ..ExportOptions::default() };
                let backend: Arc<dyn Backend> = Arc::new(backend.clone());
                Arc::new(Export { id: ExportId(id), path: vec![vec![b'a' + id as u8]], backend, options })
            })
            .collect();
        let sealer = Sealer::new(*b"sealed for fuzz.");
        let namespace = Namespace::new(sealer, exports.clone(), Timestamp::default());
        let namespace = Arc::new(namespace.expect("two exports of different names"));
        let mut files = Vec::new();
        for ((backend, export), local) in backends.iter().zip(&exports).zip(uses) {
            for name in [b"a", b"b", b"c"].iter().take(FILES) {
                let handle = file(backend, *name);
                let fh = namespace.seal(&Object::Export(Arc::clone(export), handle)).as_bytes().to_vec();
                let has_outsiders = local != LocalUse::None;
                files.push(File { backend: backend.clone(), handle, fh, has_outsiders });
            }
        }
        let clock = Arc::new(ManualClock::default());
        clock.advance(Duration::from_secs(1));
        let engine = holdfast_state::Config {
            boot: BootInstance::from_counter(1),
            lease_ms: 60_000,
            grace: Grace::Over,
        };
        let entropy = Box::new(SeededEntropy(1));
        let manager = Manager::new(ManagerParts { engine, entropy, clock: clock.clone(), pool_threads: 0 });
        let wire = Arc::new(Wire::default());
        let lockd = Lockd::new(Parts {
            namespace,
            manager: Arc::clone(&manager),
            groups: Arc::new(NoGroups),
            replies: ReplyCache::new(ReplyCacheLimits::default(), clock.clone()),
            store: Arc::new(MemoryStore::new()),
            peers: Arc::clone(&wire) as Arc<dyn Peers>,
            name: b"server".to_vec(),
            epoch: 1,
            start: Start::Fresh,
        })
        .expect("an empty store is read");
        let address: SocketAddr = ([0, 0, 0, 0], PORT).into();
        let own = Entry { program: NLM_PROGRAM, version: NLM_V4, transport: Transport::Tcp, address };
        let programs: Vec<Arc<dyn Program>> = vec![
            Arc::new(Nlm4(Arc::clone(&lockd))),
            Arc::new(Nsm(Arc::clone(&lockd))),
            Portmap::new(vec![own]),
        ];
        let connection = Detached::new(programs, Limits::default()).expect("no thread is made");
        Self { clock, lockd, files, manager, wire, connection, backends }
    }

    pub(crate) fn connect(&self, ip: IpAddr, port: u16) -> Detached {
        self.connection.another((ip, port).into())
    }

    /// The oldest call of the server's that nobody has delivered.
    pub(crate) fn next_call(&self) -> Option<(PeerCall, Answered)> {
        self.wire.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// The oldest of some of them.
    pub(crate) fn next_call_that(&self, is: impl Fn(&PeerCall) -> bool) -> Option<(PeerCall, Answered)> {
        let mut calls = self.wire.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = calls.iter().position(|(call, _)| is(call))?;
        calls.remove(at)
    }

    /// Checks what must hold between calls.
    ///
    /// # Panics
    /// When something does not.
    pub(crate) fn check(&mut self) {
        for backend in &self.backends {
            backend.check().expect("the file system holds together");
        }
        self.manager.look(holdfast_state::invariant::check).expect("the state engine holds together");
    }

    /// Checks that nobody has taken the place of our own programs.
    ///
    /// # Panics
    /// When somebody has.
    pub(crate) fn check_ports(&mut self) {
        let asked = Mapping { prog: NLM_PROGRAM, vers: NLM_V4, prot: IPPROTO_TCP, port: 0 };
        let found =
            call(&mut self.connection, 1, (PMAP_PROGRAM, PMAP_V2, PMAPPROC_GETPORT), &to_bytes(&asked));
        assert_eq!(found, Some(u32::from(PORT).to_be_bytes().to_vec()), "GETPORT of our lock manager");
    }

    /// Everybody is gone: nothing must be left.
    ///
    /// # Panics
    /// When something is.
    pub(crate) fn end(mut self) {
        for of in self.lockd.report() {
            assert!(self.lockd.take_away(of.owner, of.file), "what is reported is there");
        }
        self.lockd.run_due();
        while let Some((_, answered)) = self.next_call() {
            answered(Err(NoAnswer { why: CallError::Closed, may_have_run: false }));
        }
        self.lockd.run_due();
        assert_eq!(self.lockd.counts(), (0, 0), "owners or waiting requests");
        for backend in &self.backends {
            assert_eq!(backend.open_files(), 0, "open files");
        }
        assert_eq!(self.manager.look(holdfast_state::Engine::census), Census::default());
        self.check();
    }
}

/// Calls; `None` when the call was refused as a whole.
///
/// # Panics
/// When the program did.
pub(crate) fn call(
    connection: &mut Detached,
    xid: u32,
    (program, version, procedure): (u32, u32, u32),
    args: &[u8],
) -> Option<Vec<u8>> {
    let auth = Auth::Sys(AuthSys { uid: 1, gid: 1, groups: vec![], machine: b"fuzz".to_vec() });
    let replies = connection.call(xid, &OutgoingCall { program, version, procedure, auth: &auth, args });
    assert!(replies.len() <= 1, "{} replies to a call", replies.len());
    let reply = replies.first()?;
    assert_eq!(reply[..4], xid.to_be_bytes(), "a reply to another call");
    assert!(
        reply.get(4..24) != Some(&SYSTEM_ERR[..]),
        "procedure {procedure} of {program} v{version} panicked"
    );
    Detached::results(reply).map(<[u8]>::to_vec)
}
