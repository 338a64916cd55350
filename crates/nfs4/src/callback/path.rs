//! Callbacks to clients of 4.0: over a connection of our own to the address that the client gave (RFC 7530 section
//! 16.33). One task a client, on a thread that all of them share and nobody else uses, so that a client that does not
//! answer holds up only itself. The thread begins with the first such client.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use holdfast_base::ClientId;
use holdfast_base::limits::{CALLBACK_PATHS_MAX, CALLS_BACK_MAX};
use holdfast_rpc::client::Caller;
use holdfast_rpc::{Auth, AuthSys, CallError, OutgoingCall};
use holdfast_state::Callback;
use holdfast_wire::nfs4::{CB_COMPOUND, CB_NULL, CbArgOp, NFS_CB_V4_0, encode_cb_compound};
use holdfast_xdr::Writer;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};

use super::{ANSWER_TIMEOUT, Answered, CallbackError, address, answer};

/// How long a client's host may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// After a connection could not be made, none is tried for so long.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// A connection that nothing goes over for so long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// The ways to all clients of 4.0 that gave an address that may be called.
#[derive(Default)]
pub(super) struct Paths {
    inner: Mutex<Inner>,
    /// Makes the calls instead of the thread.
    elsewhere: OnceLock<Arc<dyn CallsOut>>,
}

/// A call to a client of 4.0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallOut {
    /// The address that the client gave.
    pub to: SocketAddr,
    /// The program that it gave.
    pub program: u32,
    /// CB_NULL or CB_COMPOUND.
    pub procedure: u32,
    /// The encoded arguments.
    pub args: Vec<u8>,
}

/// Told the encoded results of a call, or why there are none.
pub type CalledOut = Box<dyn FnOnce(Result<&[u8], CallError>) + Send>;

/// Makes the calls to clients of 4.0 where there are no sockets to make them over.
pub trait CallsOut: Send + Sync {
    /// Calls, without waiting for it; `done` is told what came of it: once, on any thread, and not before this returns.
    fn call(&self, call: CallOut, done: CalledOut);
}

#[derive(Default)]
struct Inner {
    thread: Option<Thread>,
    paths: FxHashMap<ClientId, Path>,
}

/// The thread behind them. It ends with this.
struct Thread {
    runtime: Handle,
    _alive: oneshot::Sender<()>,
}

/// Whether the last call was answered; nothing before the first one has come to an end.
type LastCall = Arc<Mutex<Option<bool>>>;

struct Path {
    ident: u32,
    is_up: LastCall,
    calls: Calls,
}

/// Who makes the calls.
enum Calls {
    /// A task on the thread, which gives up what it is about when this is gone.
    Task {
        calls: mpsc::Sender<Job>,
        _alive: oneshot::Sender<()>,
    },
    Elsewhere {
        calls: Arc<dyn CallsOut>,
        to: SocketAddr,
        program: u32,
    },
}

/// A call to be made.
struct Job {
    procedure: u32,
    args: Vec<u8>,
    done: CalledOut,
}

impl Path {
    fn send(&self, job: Job) -> Result<(), Box<(Job, CallError)>> {
        match &self.calls {
            Calls::Task { calls, .. } => calls.try_send(job).map_err(|failed| match failed {
                mpsc::error::TrySendError::Full(job) => Box::new((job, CallError::Busy)),
                mpsc::error::TrySendError::Closed(job) => Box::new((job, CallError::Closed)),
            }),
            Calls::Elsewhere { calls, to, program } => {
                let Job { procedure, args, done } = job;
                let is_up = Arc::clone(&self.is_up);
                let call = CallOut { to: *to, program: *program, procedure, args };
                let noted = move |answer: Result<&[u8], CallError>| {
                    *is_up.lock() = Some(answer.is_ok());
                    done(answer);
                };
                calls.call(call, Box::new(noted));
                Ok(())
            }
        }
    }
}

impl Paths {
    /// Has calls made elsewhere, from the next way that is opened.
    pub(super) fn call_by(&self, calls: Arc<dyn CallsOut>) {
        // Once; a second time would be for other clients.
        let _ = self.elsewhere.set(calls);
    }

    /// Opens a way, in place of the client's last one, and tries it. `tried` is told at once where there is none.
    pub(super) fn open(&self, client: ClientId, callback: &Callback, tried: Box<dyn FnOnce(bool) + Send>) {
        let mut inner = self.inner.lock();
        inner.paths.remove(&client);
        let Some(task) = address::kept(&callback.address)
            .filter(|_| inner.paths.len() < CALLBACK_PATHS_MAX)
            .map(|to| Task::new(to, callback.program))
        else {
            drop(inner);
            return tried(false);
        };
        let (ident, is_up) = (callback.ident, Arc::clone(&task.is_up));
        let probe =
            Job { procedure: CB_NULL, args: Vec::new(), done: Box::new(move |answer| tried(answer.is_ok())) };
        if let Some(calls) = self.elsewhere.get() {
            let calls = Calls::Elsewhere { calls: Arc::clone(calls), to: task.to, program: task.program };
            let path = Path { ident, is_up, calls };
            // Nobody refuses it there.
            let _ = path.send(probe);
            inner.paths.insert(client, path);
            return;
        }
        let Some(runtime) = inner.runtime() else {
            drop(inner);
            return (probe.done)(Err(CallError::Closed));
        };
        let (calls, waiting) = mpsc::channel(CALLS_BACK_MAX);
        let (alive, ended) = oneshot::channel();
        let path = Path { ident, is_up, calls: Calls::Task { calls, _alive: alive } };
        // There is room: the queue is new.
        let _ = path.send(probe);
        inner.paths.insert(client, path);
        drop(inner);
        runtime.spawn(task.serve(waiting, ended));
    }

    pub(super) fn is_up(&self, client: ClientId) -> bool {
        self.inner.lock().paths.get(&client).is_some_and(|path| *path.is_up.lock() == Some(true))
    }

    /// Whether the last call was not answered: a way that is being tried is not down. `None` without a way.
    pub(super) fn is_down(&self, client: ClientId) -> Option<bool> {
        self.inner.lock().paths.get(&client).map(|path| *path.is_up.lock() == Some(false))
    }

    pub(super) fn close(&self, client: ClientId) {
        self.inner.lock().paths.remove(&client);
    }

    /// Calls a client, when it is one with a way; else gives `done` back.
    pub(super) fn call(&self, client: ClientId, op: &CbArgOp<'_>, done: Answered) -> Result<(), Answered> {
        let inner = self.inner.lock();
        let Some(path) = inner.paths.get(&client) else { return Err(done) };
        let mut args = Writer::new();
        encode_cb_compound(&mut args, 0, path.ident, std::slice::from_ref(op));
        let done: CalledOut = Box::new(move |result| {
            done(result.map_err(CallbackError::Lost).and_then(|results| answer::read(results, false)));
        });
        let sent = path.send(Job { procedure: CB_COMPOUND, args: args.into_vec(), done });
        drop(inner);
        if let Err(failed) = sent {
            let (job, why) = *failed;
            (job.done)(Err(why));
        }
        Ok(())
    }
}

impl Inner {
    /// The thread's runtime; none where no thread can be had.
    fn runtime(&mut self) -> Option<Handle> {
        if let Some(thread) = &self.thread {
            return Some(thread.runtime.clone());
        }
        let runtime = Builder::new_current_thread().enable_all().build().ok()?;
        let (alive, ended) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        let run = move || {
            // Ends with an error when the other half is dropped, which is what it waits for.
            let _ = runtime.block_on(ended);
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name("callbacks".into()).spawn(run).ok()?;
        self.thread = Some(Thread { runtime: handle.clone(), _alive: alive });
        Some(handle)
    }
}

/// The way to one client.
struct Task {
    to: SocketAddr,
    program: u32,
    caller: Option<Caller>,
    failed_at: Option<Instant>,
    is_up: LastCall,
}

impl Task {
    fn new(to: SocketAddr, program: u32) -> Self {
        Self { to, program, caller: None, failed_at: None, is_up: LastCall::default() }
    }

    /// Makes one call after the other, until nobody can ask for more. What is under way then is given up at once: a
    /// client may open ways as fast as it can ask, to addresses where nobody answers.
    async fn serve(mut self, mut calls: mpsc::Receiver<Job>, mut ended: oneshot::Receiver<()>) {
        let mut is_over = false;
        loop {
            let job = match tokio::time::timeout(IDLE_TIMEOUT, calls.recv()).await {
                Ok(job) => job,
                Err(_) => {
                    self.caller = None;
                    calls.recv().await
                }
            };
            let Some(Job { procedure, args, done }) = job else { return };
            let answer = if is_over {
                Err(CallError::Closed)
            } else {
                tokio::select! {
                    // Ends with an error when the other half is dropped; nobody ever sends.
                    _ = &mut ended => {
                        is_over = true;
                        Err(CallError::Closed)
                    }
                    answer = self.call(procedure, &args) => answer,
                }
            };
            *self.is_up.lock() = Some(answer.is_ok());
            done(answer.as_deref().map_err(|error| *error));
        }
    }

    async fn call(&mut self, procedure: u32, args: &[u8]) -> Result<Vec<u8>, CallError> {
        // As the superuser: who calls is known by the connection and by the ident (RFC 7530 section 3.4).
        let auth = Auth::Sys(AuthSys::default());
        let call = OutgoingCall { program: self.program, version: NFS_CB_V4_0, procedure, auth: &auth, args };
        if let Some(caller) = &mut self.caller {
            match caller.call(&call, ANSWER_TIMEOUT).await {
                // Closed meanwhile, as clients do with idle connections.
                Err(CallError::Closed) => {}
                answer => return self.keep_if_usable(answer),
            }
        }
        self.caller = None;
        if self.failed_at.is_some_and(|at| at.elapsed() < RECONNECT_PAUSE) {
            return Err(CallError::Closed);
        }
        match Caller::connect(self.to, CONNECT_TIMEOUT).await {
            Ok(mut caller) => {
                self.failed_at = None;
                let answer = caller.call(&call, ANSWER_TIMEOUT).await;
                self.caller = Some(caller);
                self.keep_if_usable(answer)
            }
            Err(_) => {
                self.failed_at = Some(Instant::now());
                Err(CallError::Closed)
            }
        }
    }

    /// Lets go of a connection after an answer that leaves it useless.
    fn keep_if_usable(&mut self, answer: Result<Vec<u8>, CallError>) -> Result<Vec<u8>, CallError> {
        if matches!(answer, Err(CallError::Closed | CallError::TimedOut | CallError::Garbled)) {
            self.caller = None;
        }
        answer
    }
}
