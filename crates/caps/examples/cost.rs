//! What batches cost the server: `cargo run --release -p holdfast-caps --example cost -- DIR [WANT [pooled]]`. Creates with 10 bytes
//! each (with `pooled` of files that POOL made before), in a directory below DIR that the client holds exclusively; what it takes to unlink them is acquired; they are
//! unlinked, and what was held is released. On exports that are synchronous (each tenth batch asks to be stable) and not,
//! with local processes and without. CPU of the whole process, which is nothing but the server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "an example")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::{ClientId, ExportId, SeededEntropy, SessionId, SystemClock, Timestamp};
use holdfast_caps::{Caps, CapsProgram, Holders, Parts};
use holdfast_export::{
    ClientRule, Committer, Export, ExportOptions, LocalUse, Namespace, NoGroups, Sealer, Squash,
};
use holdfast_ledger::Ledger;
use holdfast_manager::{Guarded, Manager, Parts as ManagerParts};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::{Auth, AuthSys, Limits, OutgoingCall, Program};
use holdfast_state::*;
use holdfast_vfs::Backend;
use holdfast_wire::caps::*;
use holdfast_xdr::{Encode, from_bytes, to_bytes};

const FILES: u64 = 125;
const BATCHES: u64 = 80;

struct Anybody;

impl Holders for Anybody {
    fn may_hold(&self, _: ClientId) -> bool {
        true
    }
    fn will_hold(&self, _: &ClientImage) -> std::io::Result<()> {
        Ok(())
    }
    fn recorded(&self, _: &ClientImage) -> Recorded {
        Recorded::No
    }
}

fn cpu() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

fn session(manager: &Manager) -> SessionId {
    let principal = Principal::new(b"root");
    let attrs = ChannelAttrs {
        header_pad_bytes: 0,
        request_bytes_max: 1 << 20,
        reply_bytes_max: 1 << 20,
        reply_kept_bytes_max: 1 << 16,
        ops_max: 16,
        slots_max: 8,
    };
    let step = |engine: &mut Engine, now| {
        let (owner, verifier, intent) = (&b"cost"[..], Verifier([1; 8]), ExchangeIntent::Establish);
        let request =
            ExchangeId { owner, verifier, principal: &principal, site: [127, 0, 0, 1].into(), intent };
        let known = engine.exchange_id(&request, now).unwrap();
        let request = CreateSession {
            client: known.client,
            seqid: known.next_seqid,
            principal: &principal,
            conn: ConnId(1),
            fore: attrs,
            back: Some(attrs),
            conn_direction: Direction::Both,
            callback_program: 1,
            is_persistent: true,
        };
        let session = engine.create_session(&request, now).unwrap().id;
        engine.reclaim_complete(known.client).unwrap();
        session
    };
    manager.step(step).unwrap()
}

struct Wired {
    wire: Detached,
    xid: u32,
    auth: Auth,
}

impl Wired {
    fn call(&mut self, procedure: CapsProc, args: &impl Encode) -> Vec<u8> {
        self.xid += 1;
        let args = to_bytes(args);
        let call = OutgoingCall {
            program: CAPS_PROGRAM,
            version: CAPS_V1,
            procedure: procedure.as_u32(),
            auth: &self.auth,
            args: &args,
        };
        let mut replies = self.wire.call(self.xid, &call);
        loop {
            // Calls of the server's are none of its answers.
            let is_reply = |record: &&Vec<u8>| record.get(4..8) == Some(&[0, 0, 0, 1]);
            if let Some(reply) = replies.iter().find(is_reply) {
                return Detached::results(reply).expect("it was executed").to_vec();
            }
            std::thread::sleep(Duration::from_micros(200));
            replies = self.wire.sent();
        }
    }
}

/// A server of one export, and its root as clients know it.
fn serve((files, state): (&Path, &Path), is_sync: bool, local: LocalUse) -> (Arc<Caps>, SessionId, Vec<u8>) {
    let manager = Manager::new(ManagerParts {
        engine: Config { boot: BootInstance::from_counter(1), lease_ms: 60_000, grace: Grace::Over },
        entropy: Box::new(SeededEntropy(1)),
        clock: Arc::new(SystemClock::new()),
        pool_threads: 0,
    });
    let use_of = match local {
        LocalUse::None => holdfast_backend_local::LocalUse::None,
        _ => holdfast_backend_local::LocalUse::Lazy,
    };
    let options = LocalOptions { local: use_of, ..LocalOptions::new(state.join("ids")) };
    let inner: Arc<dyn Backend> = Arc::new(LocalBackend::open(files, options).unwrap());
    let backend = Guarded::new(inner, &manager);
    let options = ExportOptions {
        squash: Squash::None,
        is_sync,
        clients: vec![ClientRule::All],
        ..ExportOptions::default()
    };
    let root = backend.root().unwrap();
    let export = Arc::new(Export { id: ExportId(1), path: vec![b"e".to_vec()], backend, options });
    let exports = vec![Arc::clone(&export)];
    let (ledger, _) =
        Ledger::open(&state.join("journal"), &holdfast_journal::Config::default(), &exports).unwrap();
    let namespace =
        Arc::new(Namespace::new(Sealer::new([1; 16]), exports, Timestamp { seconds: 0, nanos: 0 }).unwrap());
    let root = namespace.seal_in(&export, &root).as_bytes().to_vec();
    let session = session(&manager);
    let caps = Caps::new(Parts {
        namespace,
        manager,
        committer: Committer::new(Some(ledger.clone())),
        ledger: Some(ledger),
        groups: Arc::new(NoGroups),
        holders: Arc::new(Anybody),
        entropy: Box::new(SeededEntropy(2)),
        wall: Arc::new(holdfast_ledger::system_now),
    });
    (caps, session, root)
}

/// One client with the root held exclusively.
struct Mounted {
    client: Wired,
    ticket: Ticket,
    root: Vec<u8>,
    txn: u64,
    done_through: TxnId,
}

impl Mounted {
    fn new(caps: &Arc<Caps>, session: SessionId, root: Vec<u8>) -> Self {
        let program: Arc<dyn Program> = Arc::new(CapsProgram(Arc::clone(caps)));
        let wire = Detached::new(vec![program], Limits::default()).unwrap();
        let auth = Auth::Sys(AuthSys { uid: 0, gid: 0, groups: Vec::new(), machine: Vec::new() });
        let mut client = Wired { wire, xid: 0, auth };
        let args = HelloArgs {
            session,
            incarnation: [1; 16],
            features: Features::default(),
            done_through: TxnId(0),
        };
        let results = client.call(CapsProc::Hello, &args);
        let ticket = from_bytes::<Res<HelloOk>>(&results).unwrap().into_result().unwrap().ticket;
        let mut this = Self { client, ticket, root, txn: 0, done_through: TxnId(0) };
        let root = this.root.clone();
        assert!(this.acquire(&[root], CapSet::ALL_X)[0].contains(CapSet::FILE_X));
        this
    }

    /// What is held of each now.
    fn acquire(&mut self, handles: &[Vec<u8>], want: CapSet) -> Vec<CapSet> {
        let items = handles.iter().map(|handle| AcquireItem { handle: Handle(handle), want }).collect();
        let args = AcquireArgs { ticket: self.ticket, items };
        let results = self.client.call(CapsProc::Acquire, &args);
        let told = from_bytes::<Res<AcquireOk>>(&results).unwrap().into_result().unwrap();
        told.items.iter().map(|item| item.into_result().unwrap().grant.held).collect()
    }

    fn release(&mut self, handles: &[(Vec<u8>, u64)], keep: CapSet) {
        let items =
            handles.iter().map(|(handle, seq)| ReleaseItem { handle: Handle(handle), keep, seq: *seq });
        let args = ReleaseArgs { ticket: self.ticket, items: items.collect() };
        let results = self.client.call(CapsProc::Release, &args);
        drop(from_bytes::<Res<ReleaseOk>>(&results).unwrap().into_result().unwrap());
    }

    /// What each of its operations made: handle, what is held of it, and the grant's number.
    fn batch(&mut self, ops: &[BatchOp<'_>]) -> Vec<(Vec<u8>, CapSet, u64)> {
        self.txn += 1;
        let (ticket, txn, done_through) = (self.ticket, TxnId(self.txn), self.done_through);
        let args = BatchArgs { ticket, txn, how: BatchHow::FIRST, done_through, ops: ops.to_vec() };
        loop {
            let results = self.client.call(CapsProc::Batch, &args);
            match from_bytes::<Res<BatchOk<'_>>>(&results).unwrap().into_result() {
                Ok(ok) => {
                    let made = |result: &Res<OpResult<'_>>| match result {
                        Res::Ok(OpResult::Made(made)) => {
                            Some((made.handle.0.to_vec(), made.grant.held, made.grant.seq))
                        }
                        Res::Ok(_) => None,
                        Res::Failed(stat) => panic!("{stat}"),
                    };
                    return ok.results.iter().filter_map(made).collect();
                }
                // Descriptors of files not committed yet are short: the same again goes on from there.
                Err(CapsStat::Delay) => std::thread::sleep(Duration::from_millis(1)),
                Err(stat) => panic!("{stat}"),
            }
        }
    }

    /// Handles of files that are made for the next batch.
    fn pool(&mut self) -> Vec<Vec<u8>> {
        let root = self.root.clone();
        let args =
            PoolArgs { ticket: self.ticket, dir: Handle(&root), count: FILES as u32, back: Vec::new() };
        let results = self.client.call(CapsProc::Pool, &args);
        let told = from_bytes::<Res<PoolOk<'_>>>(&results).unwrap().into_result().unwrap();
        assert_eq!(told.files.len() as u64, FILES);
        told.files.iter().map(|file| file.handle.0.to_vec()).collect()
    }

    fn stable(&mut self) {
        let args =
            StableArgs { ticket: self.ticket, through: TxnId(self.txn), done_through: self.done_through };
        let results = self.client.call(CapsProc::Stable, &args);
        self.done_through =
            from_bytes::<Res<StableOk>>(&results).unwrap().into_result().unwrap().stable_through;
    }
}

/// CPU of the process and time for each file, in us.
struct Meter(Duration, Instant);

impl Meter {
    fn start() -> Self {
        Self(cpu(), Instant::now())
    }

    fn per_file(self) -> String {
        let per = |spent: Duration| spent.as_secs_f64() * 1e6 / (FILES * BATCHES) as f64;
        format!("{:6.1} ({:6.1})", per(cpu() - self.0), per(self.1.elapsed()))
    }
}

/// A file of ten bytes, of one that was made for it where there is one.
fn make<'a>(dir: &'a [u8], name: &'a [u8], pooled: Option<&'a Vec<u8>>, want: CapSet) -> BatchOp<'a> {
    let (dir, data, if_taken) = (Ref::Handle(Handle(dir)), &b"ten bytes!"[..], IfTaken::KeepBoth);
    let at = Some(SetTime::At(Time { seconds: 1_000_000_000, nanos: 5 }));
    let set = SetAttrs { mode: Some(0o644), atime: at, mtime: at, ..SetAttrs::default() };
    match pooled {
        None => BatchOp::Create { dir, name, if_taken, set, want, data },
        Some(pooled) => BatchOp::Place { dir, name, if_taken, set, want, data, pooled: Handle(pooled) },
    }
}

fn run(dir: &Path, (is_sync, local): (bool, LocalUse), (label, want): (&str, CapSet)) {
    let (files, state) = (tempfile::tempdir_in(dir).unwrap(), tempfile::tempdir_in(dir).unwrap());
    let (caps, session, root) = serve((files.path(), state.path()), is_sync, local);
    let mut of = Mounted::new(&caps, session, root);
    let names: Vec<String> = (0..FILES * BATCHES).map(|n| format!("file-{n:06}")).collect();
    let root = of.root.clone();
    let dir = || Ref::Handle(Handle(&root));
    let is_pooled = std::env::args().nth(3).is_some();
    let meter = Meter::start();
    let mut made = Vec::new();
    let mut pooling = Duration::ZERO;
    for (n, names) in names.chunks(FILES as usize).enumerate() {
        let began = cpu();
        let pool = if is_pooled { of.pool() } else { Vec::new() };
        pooling += cpu() - began;
        let mut ops = Vec::new();
        for (n, name) in names.iter().enumerate() {
            ops.push(make(&root, name.as_bytes(), pool.get(n), want));
        }
        made.extend(of.batch(&ops));
        if n % 10 == 9 {
            of.stable();
        }
    }
    let created = meter.per_file();
    let held = made.iter().filter(|(_, held, _)| held.contains(CapSet::FILE_S)).count();
    let meter = Meter::start();
    let handles: Vec<Vec<u8>> = made.iter().map(|(handle, ..)| handle.clone()).collect();
    for handles in handles.chunks(FILES as usize) {
        of.acquire(handles, CapSet::LINK_X.union(CapSet::ALL_S));
    }
    let acquired = meter.per_file();
    let meter = Meter::start();
    for (n, (names, handles)) in names.chunks(FILES as usize).zip(handles.chunks(FILES as usize)).enumerate()
    {
        let one = |(name, handle): (&'_ String, &'_ Vec<u8>)| (name.clone(), handle.clone());
        let pairs: Vec<_> = names.iter().zip(handles).map(one).collect();
        let ops: Vec<_> = pairs
            .iter()
            .map(|(name, handle)| BatchOp::Unlink {
                dir: dir(),
                name: name.as_bytes(),
                victim: Some(Ref::Handle(Handle(handle))),
            })
            .collect();
        of.batch(&ops);
        if n % 10 == 9 {
            of.stable();
        }
    }
    let unlinked = meter.per_file();
    let meter = Meter::start();
    let gone: Vec<_> = handles.into_iter().map(|handle| (handle, u64::MAX)).collect();
    for gone in gone.chunks(FILES as usize) {
        of.release(gone, CapSet::NONE);
    }
    let released = meter.per_file();
    println!(
        "sync {is_sync:5} local {local:?} want {label}: create {created}, {:.1} of it POOL; {held} with grants; acquire {acquired}; \
         unlink {unlinked}; release {released}",
        pooling.as_secs_f64() * 1e6 / (FILES * BATCHES) as f64
    );
}

fn main() {
    let dir = std::env::args().nth(1).expect("a directory");
    let only = std::env::args().nth(2);
    println!("us of CPU (and of time) for each file, in batches of {FILES}, each tenth made stable");
    let plain = tempfile::tempdir_in(&dir).unwrap();
    let meter = Meter::start();
    for n in 0..FILES * BATCHES {
        std::fs::write(plain.path().join(format!("file-{n:06}")), b"ten bytes!").unwrap();
    }
    println!("a plain open, write, close: {}", meter.per_file());
    for (is_sync, local) in [(true, LocalUse::Lazy), (false, LocalUse::Lazy), (true, LocalUse::None)] {
        for (label, want) in [("nothing", CapSet::NONE), ("ALL_S", CapSet::ALL_S), ("ALL_X", CapSet::ALL_X)] {
            if only.as_deref().is_none_or(|only| only == label) {
                run(Path::new(&dir), (is_sync, local), (label, want));
            }
        }
    }
}
