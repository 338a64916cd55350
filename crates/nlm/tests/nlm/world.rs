//! A server of one export in this process, clients of it, and what it calls them for.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_base::{ByteRange, ExportId, Length, ManualClock, Offset, SeededEntropy, Timestamp};
use holdfast_export::{
    ClientRule, Export, ExportOptions, LocalUse, Namespace, NoGroups, Object, Sealer, Squash,
};
use holdfast_manager::{Manager, Parts as ManagerParts};
use holdfast_nlm::{Answered, Lockd, Nlm4, NoAnswer, Nsm, Parts, PeerCall, Peers, Start};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_rpc::{Auth, AuthSys, CallError, Limits, OutgoingCall};
use holdfast_state::{BootInstance, Config, Engine, Grace};
use holdfast_store::{Batch, Fence, Flow, MemoryStore, Store, StoreError, Watch};
use holdfast_vfs::{
    Backend, Caller, CreateHow, CreateMode, Cx, Handle, MemBackend, MemOptions, Name, SetAttrs, Wait,
};
use holdfast_wire::nlm4::*;
use holdfast_wire::nsm::{NSM_PROGRAM, SM_NOTIFY, StatChange};
use holdfast_xdr::{Encode, from_bytes, to_bytes};

/// Calls of the server's that wait for the test to answer them.
#[derive(Default)]
pub(crate) struct Wire {
    calls: Mutex<VecDeque<(PeerCall, Answered)>>,
    callers: AtomicUsize,
}

impl Wire {
    /// Until it is dropped, nobody gets a call away.
    pub(crate) fn jam(&self) -> impl Sized {
        self.calls.lock().unwrap()
    }

    /// Whether somebody tries to.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.callers.load(Ordering::SeqCst) > 0
    }

    /// The next call, taken out.
    pub(crate) fn pop(&self) -> Option<(PeerCall, Answered)> {
        self.calls.lock().unwrap().pop_front()
    }
}

impl Peers for Wire {
    fn call(&self, call: PeerCall, answered: Answered) {
        self.callers.fetch_add(1, Ordering::SeqCst);
        self.calls.lock().unwrap().push_back((call, answered));
        self.callers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A store that may be told to fail.
#[derive(Default)]
pub(crate) struct Disk {
    inner: MemoryStore,
    pub(crate) is_broken: AtomicBool,
}

impl Store for Disk {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.get(key)
    }
    fn scan(&self, prefix: &[u8], take: &mut dyn FnMut(&[u8], &[u8]) -> Flow) -> Result<(), StoreError> {
        self.inner.scan(prefix, take)
    }
    fn transaction(&self, batch: &Batch) -> Result<(), StoreError> {
        match self.is_broken.load(Ordering::SeqCst) {
            true => Err(StoreError::Conflict),
            false => self.inner.transaction(batch),
        }
    }
    fn watch(&self, prefix: &[u8]) -> Result<Watch, StoreError> {
        self.inner.watch(prefix)
    }
    fn fence(&self, name: &[u8]) -> Result<Fence, StoreError> {
        self.inner.fence(name)
    }
}

/// What outlives the server.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) local: LocalUse,
    pub(crate) fs: MemBackend,
    pub(crate) store: Arc<Disk>,
    pub(crate) clock: Arc<ManualClock>,
}

pub(crate) struct World {
    pub(crate) machine: Machine,
    pub(crate) manager: Arc<Manager>,
    pub(crate) lockd: Arc<Lockd>,
    pub(crate) wire: Arc<Wire>,
    namespace: Arc<Namespace>,
    connection: Detached,
}

/// A process of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(pub(crate) i32);

/// A lock as tests name it: first byte, length, exclusive.
pub(crate) type Wanted = (u64, u64, bool);

impl World {
    pub(crate) fn new() -> Self {
        Self::of(LocalUse::Lazy)
    }

    /// Nobody local looks at the export.
    pub(crate) fn without_outsiders() -> Self {
        Self::of(LocalUse::None)
    }

    fn of(local: LocalUse) -> Self {
        let options = MemOptions { root_mode: 0o777, ..MemOptions::deterministic() };
        let machine = Machine {
            local,
            fs: MemBackend::new(&options),
            store: Arc::default(),
            clock: Arc::new(ManualClock::default()),
        };
        machine.clock.advance(Duration::from_secs(1));
        Self::start(machine, 1, false)
    }

    /// A start of the server on this machine.
    pub(crate) fn start(machine: Machine, epoch: u64, is_in_grace: bool) -> Self {
        Self::begin(machine, epoch, if is_in_grace { Start::InGrace } else { Start::Fresh })
    }

    fn begin(machine: Machine, epoch: u64, start: Start) -> Self {
        let options = ExportOptions {
            squash: Squash::None,
            clients: vec![
                ClientRule::Network("192.0.2.0/24".parse().unwrap()),
                ClientRule::Network("127.0.0.0/8".parse().unwrap()),
            ],
            local: machine.local,
            ..ExportOptions::default()
        };
        let backend: Arc<dyn Backend> = Arc::new(machine.fs.clone());
        let export = Export { id: ExportId(1), path: vec![b"data".to_vec()], backend, options };
        let since = Timestamp { seconds: 5, nanos: 0 };
        let namespace =
            Arc::new(Namespace::new(Sealer::new([3; 16]), vec![Arc::new(export)], since).unwrap());
        let grace = if start == Start::InGrace {
            Grace::Until(holdfast_base::Instant(u64::MAX))
        } else {
            Grace::Over
        };
        let manager = Manager::new(ManagerParts {
            engine: Config { boot: BootInstance::from_counter(epoch), lease_ms: 60_000, grace },
            entropy: Box::new(SeededEntropy(epoch)),
            clock: machine.clock.clone(),
            pool_threads: 0,
        });
        let wire = Arc::new(Wire::default());
        let lockd = Lockd::new(Parts {
            namespace: Arc::clone(&namespace),
            manager: Arc::clone(&manager),
            groups: Arc::new(NoGroups),
            replies: ReplyCache::new(ReplyCacheLimits::default(), machine.clock.clone()),
            store: Arc::clone(&machine.store) as Arc<dyn Store>,
            peers: Arc::clone(&wire) as Arc<dyn Peers>,
            name: b"server".to_vec(),
            epoch,
            start,
        })
        .unwrap();
        let programs: Vec<Arc<dyn holdfast_rpc::Program>> =
            vec![Arc::new(Nlm4(Arc::clone(&lockd))), Arc::new(Nsm(Arc::clone(&lockd)))];
        let connection = Detached::new(programs, Limits::default()).unwrap();
        Self { machine, manager, lockd, wire, namespace, connection }
    }

    /// The same machine after the server was killed: what the dead process had locked is free.
    pub(crate) fn restart(self, epoch: u64, is_in_grace: bool) -> Self {
        let machine = self.machine.clone();
        drop(self);
        Self::start(machine, epoch, is_in_grace)
    }

    /// Another process of the same start, with this engine.
    pub(crate) fn hand_over(self, engine: &[u8]) -> Self {
        let machine = self.machine.clone();
        drop(self);
        let world = Self::begin(machine, 1, Start::HandedOver);
        let config = Config { boot: BootInstance::from_counter(1), lease_ms: 60_000, grace: Grace::Over };
        let frozen = serde_json::from_slice(engine).unwrap();
        world.manager.resume(Engine::thaw(frozen, config, Box::new(SeededEntropy(9))).unwrap());
        world
    }

    /// A file of this name, made when it is not there.
    pub(crate) fn file(&self, name: &str) -> Handle {
        let root = Caller::root();
        let cx = Cx::new(&root, Wait::Yes);
        let set = SetAttrs { mode: Some(0o666), ..SetAttrs::default() };
        let how = CreateHow {
            mode: CreateMode::Unchecked,
            set: &set,
            open: None,
            want: holdfast_vfs::AttrMask::STAT,
        };
        let fs = &self.machine.fs;
        fs.create(&cx, &fs.root().unwrap(), Name::new(name.as_bytes()).unwrap(), &how).unwrap().node.handle
    }

    pub(crate) fn fh(&self, handle: &Handle) -> Vec<u8> {
        let export = self.namespace.exports().remove(0);
        self.namespace.seal(&Object::Export(export, *handle)).as_bytes().to_vec()
    }

    /// A client at 192.0.2.`n`.
    pub(crate) fn client(&self, n: u8) -> Client {
        let ip: IpAddr = [192, 0, 2, n].into();
        Client {
            ip,
            name: format!("client{n}").into_bytes(),
            connection: self.connection.another(SocketAddr::new(ip, 700)),
            xid: 0,
            state: 0,
            is_monitored: true,
        }
    }

    /// The worker's turn.
    pub(crate) fn work(&self) {
        self.lockd.run_due();
    }

    pub(crate) fn wait_ms(&self, ms: u64) {
        self.machine.clock.advance(Duration::from_millis(ms));
        self.work();
    }

    /// The next call of the server's, taken out of the wire.
    pub(crate) fn next_call(&self) -> Option<(PeerCall, Answered)> {
        self.wire.pop()
    }

    /// The GRANTED that is on its way, and to whom.
    pub(crate) fn next_granted(&self) -> Option<Told> {
        self.work();
        let (call, answered) = self.next_call()?;
        assert_eq!((call.program, call.version, call.procedure), (NLM_PROGRAM, NLM_V4, 5));
        Some(Told { call, answered })
    }

    /// Grace is over.
    pub(crate) fn end_grace(&self) {
        self.lockd.end_grace().unwrap();
        self.manager.step(|engine, _| engine.set_grace(Grace::Over)).unwrap();
    }
}

/// A GRANTED on its way.
pub(crate) struct Told {
    pub(crate) call: PeerCall,
    answered: Answered,
}

impl Told {
    pub(crate) fn args(&self) -> TestArgs4<'_> {
        from_bytes(&self.call.args).unwrap()
    }

    pub(crate) fn answer(self, stat: NlmStat4) {
        let cookie = self.args().cookie.to_vec();
        (self.answered)(Ok(to_bytes(&NlmRes4 { cookie: &cookie, stat })));
    }

    /// The client is out of reach.
    pub(crate) fn lose(self) {
        (self.answered)(Err(NoAnswer { why: CallError::TimedOut, may_have_run: false }));
    }

    /// The client may have taken it; its answer does not come.
    pub(crate) fn lose_answer(self) {
        (self.answered)(Err(NoAnswer { why: CallError::TimedOut, may_have_run: true }));
    }
}

/// A host with NFSv3 mounts.
pub(crate) struct Client {
    pub(crate) ip: IpAddr,
    pub(crate) name: Vec<u8>,
    pub(crate) connection: Detached,
    pub(crate) xid: u32,
    pub(crate) state: i32,
    pub(crate) is_monitored: bool,
}

impl Client {
    /// The results of a call under a new xid.
    pub(crate) fn call(&mut self, program: u32, procedure: u32, args: &impl Encode) -> Vec<u8> {
        self.xid += 1;
        self.call_again(program, procedure, args)
    }

    /// The same under the xid of the call before.
    pub(crate) fn call_again(&mut self, program: u32, procedure: u32, args: &impl Encode) -> Vec<u8> {
        let version = if program == NSM_PROGRAM { 1 } else { NLM_V4 };
        let auth = Auth::Sys(AuthSys { uid: 1, gid: 1, ..AuthSys::default() });
        let args = to_bytes(args);
        let call = OutgoingCall { program, version, procedure, auth: &auth, args: &args };
        let replies = self.connection.call(self.xid, &call);
        assert_eq!(replies.len(), 1, "a reply");
        Detached::results(&replies[0]).expect("the call succeeds").to_vec()
    }

    pub(crate) fn lock_of<'a>(
        &'a self,
        fh: &'a [u8],
        by: Process,
        (offset, length, _): Wanted,
    ) -> NlmLock4<'a> {
        let (offset, length) = (Offset(offset), Length(length));
        NlmLock4 { caller_name: &self.name, fh, oh: b"owner", svid: by.0, offset, length }
    }

    fn stat(results: &[u8], cookie: &[u8]) -> NlmStat4 {
        let res: NlmRes4<'_> = from_bytes(results).unwrap();
        assert_eq!(res.cookie, cookie, "the call's cookie comes back");
        res.stat
    }

    pub(crate) fn lock_how(
        &mut self,
        (fh, by): (&[u8], Process),
        wanted: Wanted,
        (block, reclaim): (bool, bool),
    ) -> NlmStat4 {
        let name = self.name.clone();
        let (offset, length) = (Offset(wanted.0), Length(wanted.1));
        let lock = NlmLock4 { caller_name: &name, fh, oh: b"owner", svid: by.0, offset, length };
        let args =
            LockArgs4 { cookie: b"lock", block, exclusive: wanted.2, lock, reclaim, state: self.state };
        let procedure = if self.is_monitored { NlmProc4::Lock } else { NlmProc4::NmLock };
        Self::stat(&self.call(NLM_PROGRAM, procedure.as_u32(), &args), b"lock")
    }

    pub(crate) fn lock(&mut self, fh: &[u8], by: Process, wanted: Wanted) -> NlmStat4 {
        self.lock_how((fh, by), wanted, (false, false))
    }

    pub(crate) fn wait(&mut self, fh: &[u8], by: Process, wanted: Wanted) -> NlmStat4 {
        self.lock_how((fh, by), wanted, (true, false))
    }

    pub(crate) fn reclaim(&mut self, fh: &[u8], by: Process, wanted: Wanted) -> NlmStat4 {
        self.lock_how((fh, by), wanted, (false, true))
    }

    pub(crate) fn unlock(&mut self, fh: &[u8], by: Process, wanted: Wanted) -> NlmStat4 {
        let name = self.name.clone();
        let (offset, length) = (Offset(wanted.0), Length(wanted.1));
        let lock = NlmLock4 { caller_name: &name, fh, oh: b"owner", svid: by.0, offset, length };
        let args = UnlockArgs4 { cookie: b"unlock", lock };
        Self::stat(&self.call(NLM_PROGRAM, NlmProc4::Unlock.as_u32(), &args), b"unlock")
    }

    pub(crate) fn cancel(&mut self, fh: &[u8], by: Process, wanted: Wanted) -> NlmStat4 {
        let name = self.name.clone();
        let (offset, length) = (Offset(wanted.0), Length(wanted.1));
        let lock = NlmLock4 { caller_name: &name, fh, oh: b"owner", svid: by.0, offset, length };
        let args = CancelArgs4 { cookie: b"cancel", block: true, exclusive: wanted.2, lock };
        Self::stat(&self.call(NLM_PROGRAM, NlmProc4::Cancel.as_u32(), &args), b"cancel")
    }

    /// Who is in the way: process, first byte, length, exclusive.
    pub(crate) fn test(
        &mut self,
        fh: &[u8],
        by: Process,
        wanted: Wanted,
    ) -> Result<(), (i32, u64, u64, bool)> {
        let name = self.name.clone();
        let (offset, length) = (Offset(wanted.0), Length(wanted.1));
        let lock = NlmLock4 { caller_name: &name, fh, oh: b"owner", svid: by.0, offset, length };
        let args = TestArgs4 { cookie: b"test", exclusive: wanted.2, lock };
        let results = self.call(NLM_PROGRAM, NlmProc4::Test.as_u32(), &args);
        let res: TestRes4<'_> = from_bytes(&results).unwrap();
        match res.reply {
            TestReply4::Denied(h) => Err((h.svid, h.offset.0, h.length.0, h.exclusive)),
            TestReply4::Other(stat) => {
                assert_eq!(stat, NlmStat4::Granted.as_u32());
                Ok(())
            }
        }
    }

    /// Tells the server that this host restarted.
    pub(crate) fn notify(&mut self, name: &[u8], state: i32) {
        self.call(NSM_PROGRAM, SM_NOTIFY, &StatChange { mon_name: name, state });
    }
}

/// The range of a wanted lock.
pub(crate) fn range(first: u64, last: u64) -> ByteRange {
    ByteRange::from_bounds(first, last).unwrap()
}
