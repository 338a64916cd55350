//! Many clients at once, over real connections: whoever has the lock is alone, everybody gets it, nothing is left.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_base::{Length, Offset};
use holdfast_nlm::{Nlm4, Nsm};
use holdfast_rpc::client::Caller;
use holdfast_rpc::server::{Server, listen};
use holdfast_rpc::{Auth, Limits, OutgoingCall, Program};
use holdfast_wire::nlm4::*;
use holdfast_xdr::{Encode, from_bytes, to_bytes};

use crate::world::{Wire, World};

const CLIENTS: i32 = 6;
const ROUNDS: usize = 60;
const PATIENCE: Duration = Duration::from_secs(60);

/// A client's side of one connection.
struct Client {
    caller: Caller,
    runtime: tokio::runtime::Runtime,
    name: Vec<u8>,
    svid: i32,
    granted: Receiver<()>,
}

impl Client {
    fn connect(address: SocketAddr, svid: i32, granted: Receiver<()>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let caller = runtime.block_on(Caller::connect(address, PATIENCE)).unwrap();
        Self { caller, runtime, name: format!("client{svid}").into_bytes(), svid, granted }
    }

    fn call(&mut self, procedure: NlmProc4, args: &impl Encode) -> NlmStat4 {
        let args = to_bytes(args);
        let (program, version, procedure) = (NLM_PROGRAM, NLM_V4, procedure.as_u32());
        let call = OutgoingCall { program, version, procedure, auth: &Auth::None, args: &args };
        let results = self.runtime.block_on(self.caller.call(&call, PATIENCE)).unwrap();
        from_bytes::<NlmRes4<'_>>(&results).unwrap().stat
    }

    /// Waits for the lock, uses it, and gives it back.
    fn round(&mut self, fh: &[u8], inside: &AtomicUsize) {
        let name = self.name.clone();
        let lock = NlmLock4 {
            caller_name: &name,
            fh,
            oh: b"o",
            svid: self.svid,
            offset: Offset(0),
            length: Length(0),
        };
        let args = LockArgs4 { cookie: b"c", block: true, exclusive: true, lock, reclaim: false, state: 0 };
        match self.call(NlmProc4::Lock, &args) {
            NlmStat4::Granted => {}
            NlmStat4::Blocked => self.granted.recv_timeout(PATIENCE).expect("granted in the end"),
            other => panic!("{other}"),
        }
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "somebody else has the lock");
        std::thread::yield_now();
        inside.fetch_sub(1, Ordering::SeqCst);
        assert_eq!(self.call(NlmProc4::Unlock, &UnlockArgs4 { cookie: b"u", lock }), NlmStat4::Granted);
    }
}

/// Hands every GRANTED to its client, which accepts it.
fn hand_on(wire: &Wire, clients: &[Sender<()>], is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let Some((call, answered)) = wire.pop() else {
            std::thread::sleep(Duration::from_micros(200));
            continue;
        };
        let args: TestArgs4<'_> = from_bytes(&call.args).unwrap();
        clients[args.lock.svid as usize].send(()).unwrap();
        answered(Ok(to_bytes(&NlmRes4 { cookie: args.cookie, stat: NlmStat4::Granted })));
    }
}

#[test]
fn who_has_the_lock_is_alone_and_everybody_gets_it() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    world.lockd.start_worker().unwrap();
    let runtime = holdfast_rpc::runtime::runtime(std::num::NonZero::new(2)).unwrap();
    let entered = runtime.enter();
    let programs: Vec<Arc<dyn Program>> =
        vec![Arc::new(Nlm4(Arc::clone(&world.lockd))), Arc::new(Nsm(Arc::clone(&world.lockd)))];
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let limits = Limits { pool_threads: 4, ..Limits::default() };
    let server = Server::start(vec![listener], programs, limits).unwrap();
    drop(entered);
    let address = server.addresses()[0];
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..CLIENTS).map(|_| channel()).unzip();
    let (inside, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let wire = Arc::clone(&world.wire);
    let done = Mutex::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| hand_on(&wire, &senders, &is_over));
        let clients: Vec<_> = receivers
            .into_iter()
            .zip(0..)
            .map(|(granted, svid)| {
                let (fh, inside, done) = (&fh, &inside, &done);
                scope.spawn(move || {
                    let mut client = Client::connect(address, svid, granted);
                    (0..ROUNDS).for_each(|_| client.round(fh, inside));
                    *done.lock().unwrap() += 1;
                })
            })
            .collect();
        let ended: Vec<_> = clients.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|end| end.expect("a client's assertion"));
    });
    assert_eq!(*done.lock().unwrap(), CLIENTS);
    world.work();
    assert_eq!((world.lockd.counts(), world.machine.fs.open_files()), ((0, 0), 0));
    runtime.block_on(server.shutdown(Duration::ZERO));
}
