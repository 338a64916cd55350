//! The client: what all its threads share, and how it begins and ends.

use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast_base::SessionId;
use holdfast_rpc::link::{Cancel, Wakers};
use holdfast_wire::nfs4::{Bitmap4, Verifier4};
use parking_lot::{Condvar, Mutex, RwLock};
use rustc_hash::FxHashMap;

use crate::back::Back;
use crate::chores::Chores;
use crate::gate::Gate;
use crate::links::Links;
use crate::moved::Places;
use crate::offload::Offloads;
use crate::program::{CallbackProgram, Hook};
use crate::run::Manner;
use crate::servers::Servers;
use crate::state::{Files, Open};
use crate::todo::Todo;
use crate::{Callbacks, Cx, Delegated, DelegationKind, Error, Event, Handle, IoLimits, Options, Result};

/// How long a shutdown waits for a server that is being connected to.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(3);

/// A client of one server, or of several that serve the same. Clones are the same client; the last one dropped shuts it
/// down.
#[derive(Clone)]
pub struct Client(Arc<Running>);

struct Running {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the threads share.
pub(crate) struct Inner {
    pub(crate) this: Weak<Self>,
    pub(crate) options: Options,
    pub(crate) owner: Vec<u8>,
    pub(crate) verifier: Verifier4,
    pub(crate) servers: Mutex<Servers>,
    /// Of the mount, for what a server tells of its file system.
    pub(crate) root: Mutex<Option<Handle>>,
    /// Where the last move went.
    pub(crate) went: Mutex<Option<Places>>,
    /// That nobody says where it has gone was told.
    pub(crate) is_lost: AtomicBool,
    /// Calls of other programs under way.
    pub(crate) program_calls: AtomicUsize,
    pub(crate) callbacks: Arc<dyn Callbacks>,
    pub(crate) files: Files,
    pub(crate) links: Links,
    pub(crate) gate: Gate,
    pub(crate) todo: Todo,
    pub(crate) chores: Chores,
    pub(crate) back: Back,
    pub(crate) hooks: Mutex<Vec<Hook>>,
    pub(crate) is_in_hook: AtomicBool,
    pub(crate) programs: Mutex<FxHashMap<u32, Arc<dyn CallbackProgram>>>,
    pub(crate) offloads: Offloads,
    /// Locks that somebody waits for may be had: rises with every CB_NOTIFY_LOCK.
    pub(crate) notices: Mutex<u64>,
    pub(crate) noticed: Wakers,
    /// The server ties an owner of locks to the first open owner that he is named with, over all files, as NFS-Ganesha does.
    pub(crate) ties_lockers: AtomicBool,
    /// An owner of locks may be asked for, or an open closed, for which somebody may wait.
    pub(crate) lockers: Wakers,
    pub(crate) facts: RwLock<Facts>,
    /// Given when the client is shut down.
    pub(crate) quit: Cancel,
    pub(crate) is_over: (Mutex<bool>, Condvar),
}

/// What the server said of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) lease: Duration,
    pub(crate) max_read: u32,
    pub(crate) max_write: u32,
    pub(crate) supported: Bitmap4,
    /// Attributes that may go with an exclusive create.
    pub(crate) exclusive: Bitmap4,
    /// Delegations may come with times (RFC 9754).
    pub(crate) has_delegated_times: bool,
    /// An open may come as a delegation alone (RFC 9754).
    pub(crate) has_open_xor: bool,
    /// It does not know IO_ADVISE, as it said when it was asked for it.
    pub(crate) takes_no_advice: bool,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            max_read: u32::MAX,
            max_write: u32::MAX,
            supported: Bitmap4::EMPTY,
            exclusive: Bitmap4::EMPTY,
            has_delegated_times: false,
            has_open_xor: false,
            takes_no_advice: false,
        }
    }
}

impl Client {
    /// Connects to the first server that answers, and makes a session with it.
    ///
    /// # Errors
    /// [`Error::Unreachable`] with the last server's reason when [`Options::patience`] is over, [`Error::Cancelled`].
    pub fn connect(options: Options, callbacks: Arc<dyn Callbacks>, cancel: &Cancel) -> Result<Self> {
        let patience = options.patience;
        let client = Self::begin(options, callbacks)?;
        client.ready(patience, cancel)?;
        Ok(client)
    }

    /// Begins to connect, and does not wait for it: operations do.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when there is no thread to be had.
    pub fn begin(options: Options, callbacks: Arc<dyn Callbacks>) -> Result<Self> {
        let inner = Inner::new(options, callbacks);
        let spawn = |name: &str, run: fn(&Inner)| {
            let inner = Arc::clone(&inner);
            std::thread::Builder::new()
                .name(name.into())
                .spawn(move || run(&inner))
                .map_err(|e| Error::Unreachable(format!("no thread to be had: {e}")))
        };
        let threads = vec![
            spawn("nfs-recover", Inner::run_recovery)?,
            spawn("nfs-callback", Inner::run_callbacks)?,
            spawn("nfs-chores", Inner::run_chores)?,
        ];
        let client = Self(Arc::new(Running { inner: Arc::clone(&inner), threads: Mutex::new(threads) }));
        inner.todo.wake();
        Ok(client)
    }

    /// Waits until there is a session, and learns what the server can do.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn ready(&self, patience: Duration, cancel: &Cancel) -> Result<()> {
        let inner = self.inner();
        inner.gate.ready(cancel, Some(Instant::now() + patience)).map_err(|e| match e {
            Error::TimedOut => inner.gate.why_not(),
            other => other,
        })?;
        inner.learn_facts(cancel)
    }

    /// Closes what is open, ends the session, and waits for the threads. Operations under way answer
    /// [`Error::Closed`] or [`Error::Cancelled`].
    pub fn shutdown(&self) {
        self.0.shutdown();
    }

    /// What the server lets a client ask for at once.
    #[must_use]
    pub fn limits(&self) -> IoLimits {
        self.inner().limits()
    }

    /// The session in use; nothing while there is none.
    #[must_use]
    pub fn session_id(&self) -> Option<SessionId> {
        self.inner().gate.session().map(|session| session.id)
    }

    /// Waits until there is a session that the server knows: for other programs, which name it, when the server says
    /// that it does not. Costs a round trip.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn check_session(&self, cx: Cx<'_>) -> Result<()> {
        self.inner().run(cx, &Manner::IDLE, |_| Ok(()), |_| Ok(()))
    }

    /// The servers that are tried in turn, and the one in use.
    #[must_use]
    pub fn servers(&self) -> (Vec<String>, Option<String>) {
        let servers = self.inner().servers.lock();
        (servers.names(), servers.current_name().map(str::to_owned))
    }

    /// Changes which servers are tried. The connection is kept when its server is still among them.
    pub fn set_servers(&self, named: Vec<String>) {
        let is_kept = self.inner().servers.lock().set(named);
        if !is_kept {
            self.inner().links.close();
            self.inner().todo.wake();
        }
    }

    /// What a held delegation allows.
    #[must_use]
    pub fn delegation(&self, file: &Handle) -> Option<DelegationKind> {
        self.inner().files.use_delegation(file)
    }

    /// A held delegation that may be relied on: nobody wants it back, and it is not being returned.
    #[must_use]
    pub fn delegated(&self, file: &Handle) -> Option<Delegated> {
        let delegated = |held: &crate::state::Held| {
            let known = held.delegation.as_ref().filter(|known| !known.is_recalled && !known.is_returning)?;
            Some(Delegated { kind: known.kind, number: known.number })
        };
        self.inner().files.look(file, delegated).flatten()
    }

    /// Whether the return of a held delegation can tell times (RFC 9754).
    #[must_use]
    pub fn has_delegated_times(&self, file: &Handle) -> bool {
        let look = |held: &crate::state::Held| held.delegation.as_ref().is_some_and(|known| known.has_times);
        self.inner().files.look(file, look).unwrap_or(false)
    }

    /// The place of a held delegation in the order of grants and recalls.
    #[must_use]
    pub fn delegation_number(&self, file: &Handle) -> Option<u64> {
        let held = self.inner().files.look(file, |held| held.delegation.as_ref().map(|known| known.number));
        held.flatten()
    }

    /// Whether the server wants a held delegation back: an open that lives on it is claimed with its return.
    #[must_use]
    pub fn is_recalled(&self, file: &Handle) -> bool {
        let look =
            |held: &crate::state::Held| held.delegation.as_ref().is_some_and(|known| known.is_recalled);
        self.inner().files.look(file, look).unwrap_or(false)
    }

    /// How long what the server has promised may still be relied on without another word with it; zero when others may have
    /// got it: the lease may have run out, or the server was about to take it ([`Client::rely_for`]).
    #[must_use]
    pub fn promises_left(&self) -> Duration {
        let inner = self.inner();
        let lease = inner.facts.read().lease;
        inner.todo.promises_left(lease)
    }

    /// Has promises relied on for so long at most without another word with the server, and that word asked for in time. Less than
    /// a lease, for who has promised them may take them from a client that lives
    /// ([`holdfast_wire::caps::SEQ4_STATUS_CAPS_IN_DOUBT`]).
    pub fn rely_for(&self, at_most: Duration) {
        self.inner().todo.rely_for(at_most);
    }

    /// A number higher than those of all grants and recalls so far: for what the user gives back by itself.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.inner().files.next_number()
    }

    /// All delegations held, the one unused for longest first.
    #[must_use]
    pub fn delegations(&self) -> Vec<(Handle, DelegationKind)> {
        self.inner().files.delegations()
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.0.inner
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Running {
    fn shutdown(&self) {
        self.inner.todo.quit();
        if !self.inner.is_over_within(SHUTDOWN_PATIENCE) {
            // It is in the middle of connecting: the threads end when that does.
            self.inner.end_now();
            self.threads.lock().clear();
        }
        let threads = std::mem::take(&mut *self.threads.lock());
        let own = std::thread::current().id();
        // A callback may hold the last clone: it cannot wait for itself.
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != own) {
            let _ = thread.join();
        }
    }
}

impl Inner {
    pub(crate) fn new(options: Options, callbacks: Arc<dyn Callbacks>) -> Arc<Self> {
        use std::hash::{BuildHasher, RandomState};
        let chance = || RandomState::new().hash_one(std::process::id());
        let owner = options.owner.clone().unwrap_or_else(|| {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            format!("holdfast {host} {:016x}", chance()).into_bytes()
        });
        let verifier = options.verifier.unwrap_or_else(|| chance().to_be_bytes());
        let servers = Servers::new(options.servers.clone());
        let servers = if options.goes_where_told { servers } else { servers.only_named() };
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            owner,
            verifier,
            servers: Mutex::new(servers),
            root: Mutex::default(),
            went: Mutex::default(),
            is_lost: AtomicBool::new(false),
            program_calls: AtomicUsize::new(0),
            callbacks,
            files: Files::default(),
            links: Links::new(options.connections),
            gate: Gate::default(),
            todo: Todo::default(),
            chores: Chores::default(),
            back: Back::default(),
            hooks: Mutex::default(),
            is_in_hook: AtomicBool::new(false),
            programs: Mutex::default(),
            offloads: Offloads::default(),
            notices: Mutex::new(0),
            noticed: Wakers::default(),
            ties_lockers: AtomicBool::new(false),
            lockers: Wakers::default(),
            facts: RwLock::default(),
            quit: Cancel::new(),
            is_over: (Mutex::new(false), Condvar::new()),
            options,
        })
    }

    /// Waits for the recovery thread to have ended everything.
    fn is_over_within(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        let mut is_over = self.is_over.0.lock();
        while !*is_over && !self.is_over.1.wait_until(&mut is_over, until).timed_out() {}
        *is_over
    }

    pub(crate) fn tell(&self, event: &Event) {
        tracing::debug!(?event, "nfs client");
        self.callbacks.happened(event);
    }

    /// When an operation that begins now is late.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.options.soft.then(|| Instant::now() + self.options.patience)
    }

    /// Closes an open in the background.
    pub(crate) fn close_later(&self, open: Arc<Open>) {
        self.chores.add(Box::new(move |inner| inner.close_quietly(&open)));
    }

    /// Operations of one compound.
    pub(crate) fn ops_max(&self) -> u32 {
        self.gate.session().map_or(0, |session| session.fore.maxoperations)
    }

    pub(crate) fn limits(&self) -> IoLimits {
        let facts = *self.facts.read();
        let session = self.gate.session();
        let fore = session.as_ref().map(|session| session.fore);
        let (max_request, max_response) =
            fore.map_or((0, 0), |fore| (fore.maxrequestsize, fore.maxresponsesize));
        // Room for the headers around the data.
        let (request, response) = (max_request.saturating_sub(1024), max_response.saturating_sub(512));
        IoLimits {
            max_read: facts.max_read.min(response).min(self.options.max_io),
            max_write: facts.max_write.min(request).min(self.options.max_io),
            max_request,
            max_response,
            slots: session.as_ref().map_or(0, |session| session.limit()),
            lease: facts.lease,
            minor: session.as_ref().map_or(0, |session| session.minor),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("servers", &self.servers().0).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}
