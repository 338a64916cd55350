//! A program that hangs on demand, in turns or in lanes.

use std::net::SocketAddr;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use holdfast_rpc::server::{Limits, Server, listen};
use holdfast_rpc::{Call, Lane, Mode, Outcome, Program, Turn};
use holdfast_xdr::{Reader, Writer};
use tokio::runtime::Runtime;

use crate::client::PATIENCE;
use crate::program::PROGRAM;

/// Is answered.
pub(crate) const PASSES: u32 = 1;

/// Hangs until told.
pub(crate) const HANGS: u32 = 2;

/// Is answered, and only from the pool.
pub(crate) const WAITS: u32 = 3;

/// Hangs until told, whoever runs it.
pub(crate) const STICKS: u32 = 4;

/// Every call but those that stick goes to the pool, in the lane that its first word names, if any.
struct Hanging {
    /// What all calls take.
    turn: Option<Turn>,
    goes_on: Mutex<bool>,
    told: Condvar,
    /// Calls that were run by who had the turn.
    in_turn: AtomicUsize,
}

impl Hanging {
    fn go_on(&self) {
        *self.goes_on.lock().unwrap() = true;
        self.told.notify_all();
    }

    fn hang(&self) {
        let goes_on = self.goes_on.lock().unwrap();
        drop(self.told.wait_while(goes_on, |goes_on| !*goes_on).unwrap());
    }
}

impl Program for Hanging {
    fn number(&self) -> u32 {
        PROGRAM
    }
    fn versions(&self) -> (u32, u32) {
        (1, 1)
    }
    fn turn(&self, _: u32, _: Reader<'_>) -> Option<Turn> {
        self.turn
    }
    fn lane(&self, _: u32, mut args: Reader<'_>) -> Option<Lane> {
        args.u32().ok().map(|lane| Lane(u64::from(lane)))
    }
    fn call(&self, call: &mut Call<'_>, _: &mut Writer) -> Outcome {
        if call.procedure == STICKS {
            self.hang();
            return Outcome::Reply;
        }
        if call.mode == Mode::Inline || (call.procedure == WAITS && call.mode == Mode::Turn) {
            return Outcome::Offload;
        }
        if call.mode == Mode::Turn {
            self.in_turn.fetch_add(1, Ordering::SeqCst);
        }
        if call.procedure == HANGS {
            self.hang();
        }
        Outcome::Reply
    }
}

/// When it goes nothing hangs any more: a runtime waits for its threads when it goes, of a test that failed as well.
struct Untied(Arc<Hanging>);

impl Drop for Untied {
    fn drop(&mut self) {
        self.0.go_on();
    }
}

/// A server of it.
pub(crate) struct Host {
    program: Untied,
    server: Server,
    runtime: Runtime,
}

impl Host {
    pub(crate) fn new(turn: Option<Turn>, limits: Limits) -> Self {
        // So few that none has a turn itself.
        Self::with_workers(2, turn, limits)
    }

    pub(crate) fn with_workers(workers: usize, turn: Option<Turn>, limits: Limits) -> Self {
        let program = Arc::new(Hanging {
            turn,
            goes_on: Mutex::default(),
            told: Condvar::new(),
            in_turn: AtomicUsize::new(0),
        });
        let runtime = holdfast_rpc::runtime::runtime(NonZero::new(workers)).unwrap();
        let inside = runtime.enter();
        let any = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let server = Server::start(vec![any], vec![program.clone()], limits).unwrap();
        drop(inside);
        Self { program: Untied(program), server, runtime }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    /// How many calls were run by who had the turn.
    pub(crate) fn in_turn(&self) -> usize {
        self.program.0.in_turn.load(Ordering::SeqCst)
    }

    /// What hangs goes on, and nothing hangs any more.
    pub(crate) fn go_on(&self) {
        self.program.0.go_on();
    }

    pub(crate) fn shutdown(self) {
        self.runtime.block_on(self.server.shutdown(PATIENCE));
    }
}
