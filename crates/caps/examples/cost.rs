//! What a batch costs the server: `cargo run --release -p holdfast-caps --example cost -- DIR`. Creates in batches of 100 with
//! 10 bytes each, in a directory below DIR that the client holds exclusively, on an export that is synchronous (each
//! tenth batch asks to be stable) and on one that is not. CPU of the whole process, which is nothing but the server.
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
use holdfast_wire::caps::{CapSet as Wire, *};
use holdfast_xdr::{Encode, from_bytes, to_bytes};

const FILES: u64 = 100;
const BATCHES: u64 = 100;

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
        let request = ExchangeId { owner, verifier, principal: &principal, intent };
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
    });
    (caps, session, root)
}

fn run(dir: &Path, is_sync: bool, local: LocalUse) -> (f64, f64, f64) {
    let (files, state) = (tempfile::tempdir_in(dir).unwrap(), tempfile::tempdir_in(dir).unwrap());
    let (caps, session, root) = serve((files.path(), state.path()), is_sync, local);
    let program: Arc<dyn Program> = Arc::new(CapsProgram(Arc::clone(&caps)));
    let wire = Detached::new(vec![program], Limits::default()).unwrap();
    let auth = Auth::Sys(AuthSys { uid: 0, gid: 0, groups: Vec::new(), machine: Vec::new() });
    let mut client = Wired { wire, xid: 0, auth };
    let args =
        HelloArgs { session, incarnation: [1; 16], features: Features::default(), done_through: TxnId(0) };
    let results = client.call(CapsProc::Hello, &args);
    let ticket = from_bytes::<Res<HelloOk>>(&results).unwrap().into_result().unwrap().ticket;
    let handle = Handle(&root);
    let items = vec![AcquireItem { handle, want: Wire::ALL_X }];
    let results = client.call(CapsProc::Acquire, &AcquireArgs { ticket, items });
    let held = from_bytes::<Res<AcquireOk>>(&results).unwrap().into_result().unwrap().items[0];
    assert!(held.into_result().unwrap().grant.held.contains(Wire::FILE_X));
    let (began, cpu_began) = (Instant::now(), cpu());
    let mut done_through = TxnId(0);
    let names: Vec<String> = (0..FILES * BATCHES).map(|n| format!("file-{n:06}")).collect();
    for txn in 1..=BATCHES {
        let at = ((txn - 1) * FILES) as usize;
        let dir = || Ref::Handle(Handle(&root));
        let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
        let (if_taken, want) = (IfTaken::Fail, Wire::NONE);
        let ops = names[at..at + FILES as usize].iter();
        let ops = ops.map(|name| {
            let name = name.as_bytes();
            BatchOp::Create { dir: dir(), name, if_taken, set, want, data: b"ten bytes!" }
        });
        let ops = ops.collect();
        let args = BatchArgs { ticket, txn: TxnId(txn), is_resent: false, done_through, ops };
        loop {
            let results = client.call(CapsProc::Batch, &args);
            match from_bytes::<Res<BatchOk<'_>>>(&results).unwrap().into_result() {
                Ok(ok) => break assert!(ok.results.iter().all(|result| matches!(result, Res::Ok(_)))),
                // Descriptors of files not committed yet are short: the same again goes on from there.
                Err(CapsStat::Delay) => std::thread::sleep(Duration::from_millis(1)),
                Err(stat) => panic!("{stat}"),
            }
        }
        if txn % 10 == 0 {
            let args = StableArgs { ticket, through: TxnId(txn), done_through };
            let results = client.call(CapsProc::Stable, &args);
            done_through =
                from_bytes::<Res<StableOk>>(&results).unwrap().into_result().unwrap().stable_through;
        }
    }
    let count = (FILES * BATCHES) as f64;
    let per = |spent: Duration| spent.as_secs_f64() * 1e6 / count;
    let created = (per(cpu() - cpu_began), per(began.elapsed()));
    // The same files made straight through the system, for comparison: nothing of ours.
    let plain = tempfile::tempdir_in(dir).unwrap();
    let cpu_began = cpu();
    for name in &names {
        std::fs::write(plain.path().join(name), b"ten bytes!").unwrap();
    }
    (created.0, created.1, per(cpu() - cpu_began))
}

fn main() {
    let dir = std::env::args().nth(1).expect("a directory");
    println!("per create, us: CPU, time, CPU of a plain open, write and close");
    for (is_sync, local) in [(true, LocalUse::Lazy), (false, LocalUse::Lazy), (true, LocalUse::None)] {
        let (cpu, time, plain) = run(Path::new(&dir), is_sync, local);
        println!("sync {is_sync}, local {local:?}: {cpu:.1} {time:.1} {plain:.1}");
    }
}
