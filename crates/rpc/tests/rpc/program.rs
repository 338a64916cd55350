//! A program that does whatever a test of the transport needs.

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_rpc::server::{Limits, Server, listen};
use holdfast_rpc::{Auth, Call, Connection, FileBody, Mode, Outcome, OutgoingCall, PendingReply, Program};
use holdfast_xdr::Writer;
use tokio::runtime::Runtime;

pub(crate) const PROGRAM: u32 = 0x2000_0001;

pub(crate) const NULL: u32 = 0;
/// Answers its arguments.
pub(crate) const ECHO: u32 = 1;
/// Sleeps so many milliseconds on the pool, then answers its arguments.
pub(crate) const SLEEP: u32 = 2;
/// Answers a stretch of the file: offset, bytes.
pub(crate) const FILE: u32 = 3;
pub(crate) const PANIC: u32 = 4;
/// Answers so many bytes.
pub(crate) const BIG: u32 = 5;
/// Writes a word, then goes on on the pool with another.
pub(crate) const RESUME: u32 = 6;
/// Waits until somebody calls RELEASE.
pub(crate) const PARK: u32 = 7;
pub(crate) const RELEASE: u32 = 8;
pub(crate) const PANIC_ON_POOL: u32 = 9;
/// Calls the client back with the arguments and answers what it answered.
pub(crate) const CALL_BACK: u32 = 10;
/// Answers the caller's uid and whether he came over IPv6.
pub(crate) const WHO: u32 = 11;
/// Parks and drops the reply.
pub(crate) const DROP: u32 = 12;
/// Waits until somebody calls RELEASE, and for no peer.
pub(crate) const PARK_SURELY: u32 = 14;
/// The same as BIG, from the pool.
pub(crate) const BIG_ON_POOL: u32 = 13;

pub(crate) const CALLBACK_PROGRAM: u32 = 0x4000_0000;

#[derive(Default)]
pub(crate) struct Everything {
    pub(crate) file: Option<Arc<OwnedFd>>,
    pub(crate) calls: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    /// SLEEP calls taken and not answered yet, now and at most.
    pub(crate) sleeping: AtomicUsize,
    pub(crate) sleeping_max: AtomicUsize,
    pub(crate) parked: Arc<Mutex<Vec<PendingReply>>>,
}

impl Everything {
    /// One that serves this file.
    pub(crate) fn with_file(bytes: &[u8]) -> Self {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Self { file: Some(Arc::new(file.into())), ..Self::default() }
    }
}

impl Program for Everything {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> (u32, u32) {
        (1, 3)
    }

    fn has_version(&self, version: u32) -> bool {
        version == 1 || version == 3
    }

    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match (call.procedure, call.mode) {
            (NULL, _) => Outcome::Reply,
            (ECHO, _) => {
                reply.put(call.args.rest());
                Outcome::Reply
            }
            (SLEEP, Mode::Inline) => {
                let now = self.sleeping.fetch_add(1, Ordering::SeqCst) + 1;
                self.sleeping_max.fetch_max(now, Ordering::SeqCst);
                Outcome::Offload
            }
            (PANIC_ON_POOL | BIG_ON_POOL, Mode::Inline) => Outcome::Offload,
            (SLEEP, Mode::Pool) => {
                reply.put(call.args.rest());
                let ms = call.args.u32();
                std::thread::sleep(Duration::from_millis(ms.unwrap_or(0).into()));
                self.sleeping.fetch_sub(1, Ordering::SeqCst);
                if ms.is_ok() { Outcome::Reply } else { Outcome::Garbage }
            }
            (FILE, _) => self.file(call, reply),
            (PANIC | PANIC_ON_POOL, _) => panic!("as asked"),
            (BIG | BIG_ON_POOL, _) => {
                let Ok(n) = call.args.u32() else { return Outcome::Garbage };
                reply.put(&vec![call.xid as u8; n as usize]);
                Outcome::Reply
            }
            (RESUME, _) => resume(reply),
            (PARK, _) => {
                reply.u32(7);
                let parked = Arc::clone(&self.parked);
                Outcome::Park(Box::new(move |pending| parked.lock().unwrap().push(pending)))
            }
            (PARK_SURELY, _) => {
                reply.u32(7);
                let parked = Arc::clone(&self.parked);
                Outcome::Park(Box::new(move |mut pending| {
                    pending.waits_for_no_peer();
                    parked.lock().unwrap().push(pending);
                }))
            }
            (RELEASE, _) => {
                let parked = std::mem::take(&mut *self.parked.lock().unwrap());
                reply.u32(parked.len() as u32);
                for mut pending in parked {
                    pending.writer().u32(8);
                    pending.send();
                }
                Outcome::Reply
            }
            (CALL_BACK, _) => call_back(call),
            (WHO, _) => {
                reply.u32(call.auth.sys().map_or(u32::MAX, |s| s.uid));
                reply.u32(u32::from(call.connection.peer().is_ipv6()));
                Outcome::Reply
            }
            (DROP, _) => Outcome::Park(Box::new(drop)),
            _ => Outcome::NoProcedure,
        }
    }

    fn connection_closed(&self, _: &Arc<Connection>) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Everything {
    fn file(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        let (Ok(offset), Ok(bytes)) = (call.args.u32(), call.args.u32()) else { return Outcome::Garbage };
        reply.u32(bytes);
        let padding = bytes.next_multiple_of(4) - bytes;
        let mut trailer = vec![0; padding as usize];
        trailer.extend(b"end.");
        Outcome::ReplyFile(FileBody {
            fd: Arc::clone(self.file.as_ref().unwrap()),
            offset: offset.into(),
            bytes: bytes as usize,
            trailer,
        })
    }
}

fn resume(reply: &mut Writer) -> Outcome {
    let mark = reply.mark();
    Outcome::Resume(Box::new(move |reply: &mut Writer| {
        reply.u32(2);
        // A place marked before the change of threads is still the same place.
        reply.fill(mark, 1);
        Outcome::Reply
    }))
}

fn call_back(call: &Call<'_>) -> Outcome {
    let args = call.keep_args();
    let connection = Arc::clone(call.connection);
    Outcome::Park(Box::new(move |mut pending| {
        let back = OutgoingCall {
            program: CALLBACK_PROGRAM,
            version: 1,
            procedure: 1,
            auth: &Auth::None,
            args: &args,
        };
        connection.call_back(&back, Duration::from_secs(2), move |answer| {
            match answer {
                Ok(results) => pending.writer().put(results),
                Err(error) => pending.writer().put(format!("{error:?}").as_bytes()),
            }
            pending.send();
        });
    }))
}

/// A server of one [`Everything`].
pub(crate) struct Host {
    pub(crate) runtime: Runtime,
    pub(crate) server: Server,
    pub(crate) program: Arc<Everything>,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self::with(Everything::default(), Limits::default())
    }

    pub(crate) fn with(program: Everything, limits: Limits) -> Self {
        Self::on(&["127.0.0.1:0".parse().unwrap()], program, limits)
    }

    pub(crate) fn on(addresses: &[SocketAddr], program: Everything, limits: Limits) -> Self {
        let listeners = addresses.iter().map(|a| listen(*a).unwrap()).collect();
        let runtime = holdfast_rpc::runtime::runtime(std::num::NonZero::new(4)).unwrap();
        let program = Arc::new(program);
        let _inside = runtime.enter();
        let server = Server::start(listeners, vec![program.clone()], limits).unwrap();
        drop(_inside);
        Self { runtime, server, program }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    pub(crate) fn calls(&self) -> usize {
        self.program.calls.load(Ordering::SeqCst)
    }

    /// Ends the server and says how many connections it had to drop.
    pub(crate) fn shutdown(self, patience: Duration) -> usize {
        let dropped = self.runtime.block_on(self.server.shutdown(patience));
        self.runtime.shutdown_timeout(Duration::from_secs(1));
        dropped
    }
}

/// Waits until something holds, and fails when it never does.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + crate::client::PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
