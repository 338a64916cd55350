//! A Holdfast server: NFSv4.1 for what that says well, and the caps program beside it (`docs/design/caps-protocol.md`).

mod appends;
mod aside;
mod batches;
mod calling;
mod claims;
pub mod convert;
mod hello;
mod lending;
mod lists;
mod nameless;
mod pool;
mod questions;
mod recalls;
mod reserving;
pub mod sheets;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use holdfast_base::ByteRange;
use holdfast_cache::{
    AheadOut, Answer, Ask, Batch, Caller, CapSet, CommitOut, Errno, Handle, PoolOut, Reclaim, Reclaimed,
    Release, Spare, WriteOut,
};
use holdfast_client::{Cancel, Cred};
use holdfast_wire::caps::{self as wire, CapsStat, Limits};
use parking_lot::{Mutex, RwLock};

use crate::lease::Trust;
use crate::locks::{LockConflict, LockOwner, LockRequest};
use crate::nfs::NfsServer;
use crate::same_host::{Neighbour, SameHost, SameHostStats};
use crate::server::{BatchDone, Server, Settled, Undone, WriteDone};

use aside::Aside;
use calling::Failure;
use hello::Greeting;
use lending::Verifier;
use sheets::Ledger;

/// Who is told what the server asks for by itself: the volume.
pub(crate) trait Promises: Send + Sync {
    /// The server wants capabilities back.
    fn recalled(&self, object: &Handle, keep: CapSet, seq: u64);
    /// What was made by then is on disk.
    fn stable(&self, through: u64);
    /// A release came too early: there is a newer grant.
    fn crossed(&self, object: &Handle);
    /// What is held, to be claimed again.
    fn to_reclaim(&self) -> Vec<Reclaim>;
    /// What is to be asked for, and not claimed: what was done to it last may be lost, and comes again.
    fn in_question(&self) -> Vec<Reclaim>;
    /// Everything held is lost, but for what was claimed again.
    fn renewed(&self, reclaimed: Vec<Reclaimed>);
    /// Everything held is lost, and the server could not be asked for it.
    fn given_up(&self);
    /// Nothing held is to be relied on, nor what is promised until further notice: the lease may be over.
    fn lapsed(&self);
    /// What is promised from now on may be relied on again.
    fn regained(&self);
    /// Through which transaction nothing will be sent again, nor named.
    fn done_through(&self) -> u64;
    /// What is held is of a former life, and void, whatever the server says of the epoch.
    fn must_renew(&self) -> bool;
    /// Whether the result of this batch, as it came out, is waited for: it may be to come out again.
    fn awaits(&self, batch: &Batch) -> bool;
    /// Whether this is still to be given back: it may be of a former life of the server.
    fn is_due(&self, release: &Release) -> bool;
    /// Whether batches can be answered when they are on the disk of the server that was greeted: it may be another than before.
    fn can_force(&self, can: bool);
    /// The server knows of these transactions, and of all that it was heard to have executed where it tells no number; or,
    /// not `is_known`, may have forgotten what it executed.
    fn resume(&self, executed_through: Option<u64>, stable_through: u64, is_known: bool);
}

/// A server with the caps program.
pub struct CapsServer(Arc<Inner>);

pub(crate) struct Inner {
    nfs: Arc<NfsServer>,
    /// The mount's root: whose export callers are asked about.
    root: Handle,
    incarnation: [u8; 16],
    greeting: RwLock<Option<Greeting>>,
    /// Held by whoever says HELLO.
    renewing: Mutex<()>,
    ledger: Mutex<Ledger>,
    aside: Aside,
    promises: RwLock<Option<Weak<dyn Promises>>>,
    /// Where the server is on this host, and may be used so.
    neighbour: OnceLock<Arc<Neighbour>>,
    verifier: Mutex<Verifier>,
}

impl CapsServer {
    /// Says HELLO; `None` where the server does not have the program, or promises nothing of the mount's root: that is a directory
    /// above the exports.
    ///
    /// # Errors
    /// What kept it from answering.
    pub fn greet(
        nfs: &Arc<NfsServer>,
        root: &Handle,
        incarnation: [u8; 16],
        cancel: &Cancel,
    ) -> Result<Option<Self>, Errno> {
        let Self(inner) = Self::unmet(nfs, root, incarnation);
        match inner.renewed(None, cancel) {
            Ok(_) => {}
            Err(Failure::Absent) => return Ok(None),
            Err(failure) => return Err(failure.errno()),
        }
        let caps = Self(inner);
        if let Err(Failure::Refused(CapsStat::NotSupp)) = caps.0.who_am_i(&Cred::own(), cancel) {
            caps.bye(cancel);
            return Ok(None);
        }
        Ok(Some(caps))
    }

    /// A server that is not there yet: HELLO is said over the first session.
    #[must_use]
    pub fn unmet(nfs: &Arc<NfsServer>, root: &Handle, incarnation: [u8; 16]) -> Self {
        let inner = Arc::new(Inner {
            nfs: Arc::clone(nfs),
            root: root.clone(),
            incarnation,
            greeting: RwLock::default(),
            renewing: Mutex::default(),
            ledger: Mutex::default(),
            aside: Aside::default(),
            promises: RwLock::default(),
            neighbour: OnceLock::new(),
            verifier: Mutex::default(),
        });
        recalls::listen(&inner);
        hello::follow_sessions(&inner);
        Self(inner)
    }

    /// Says HELLO once more, now that somebody keeps the promises.
    ///
    /// # Errors
    /// What kept it from answering.
    pub fn introduce(&self, cancel: &Cancel) -> Result<(), Errno> {
        let ticket = self.0.greeting.read().map(|greeting| greeting.ticket);
        self.0.renewed(ticket, cancel).map(drop).map_err(Failure::errno)
    }

    /// How much the server takes at once.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.greeting.read().map(|greeting| greeting.limits).unwrap_or_default()
    }

    /// The server's promises are kept by this volume. To be called once, before anything is asked.
    ///
    /// # Errors
    /// When the thread that watches the lease cannot be started.
    pub fn serve(&self, volume: &crate::Volume) -> std::io::Result<()> {
        let shared: Arc<dyn Promises> = Arc::clone(&volume.0) as _;
        *self.0.promises.write() = Some(Arc::downgrade(&shared));
        crate::lease::watch(&self.0.nfs, &self.0, Inner::trust)
    }

    /// From now on files are read and written by the server's own descriptors, where it is on this host. To be called
    /// once, before anything is asked.
    pub fn use_same_host(&self, how: SameHost) {
        // A second word comes too late.
        let _ = self.0.neighbour.set(Neighbour::new(how));
    }

    /// What did not go over the network.
    #[must_use]
    pub fn same_host_stats(&self) -> SameHostStats {
        self.0.neighbour.get().map(|neighbour| neighbour.stats()).unwrap_or_default()
    }

    /// Gives everything back. Nothing is to be asked afterwards.
    pub fn bye(&self, cancel: &Cancel) {
        if let Err(failure) = self.0.say_bye(cancel) {
            tracing::debug!(?failure, "not said goodbye");
        }
    }
}

impl Inner {
    fn promises(&self) -> Option<Arc<dyn Promises>> {
        self.promises.read().as_ref()?.upgrade()
    }

    fn trust(&self, trust: Trust) {
        if let (Trust::Over, Some(neighbour)) = (trust, self.neighbour.get()) {
            neighbour.lose_all();
        }
        match (trust, self.promises()) {
            (Trust::Over, Some(promises)) => promises.lapsed(),
            (Trust::Back, Some(promises)) => promises.regained(),
            (_, None) => {}
        }
    }
}

impl Server for CapsServer {
    fn perform(&self, ask: &Ask, cancel: &Cancel) -> Result<Answer, Errno> {
        self.0.answer(ask, cancel)
    }

    fn may_yet_be_done(&self, ask: &Ask) -> bool {
        self.0.may_yet_be_done(ask)
    }

    fn settle_given_up(&self, cancel: &Cancel) -> Result<(), Errno> {
        self.0.settle_given_up(cancel).map_err(Failure::errno)
    }

    fn batch(&self, batch: &Batch, cancel: &Cancel) -> Result<BatchDone, Undone> {
        self.0.send_batch(batch, cancel)
    }

    fn stable(&self, through: u64, cancel: &Cancel) -> Result<Settled, Undone> {
        let args = |ticket| wire::StableArgs {
            ticket,
            through: wire::TxnId(through),
            done_through: self.0.ledger.lock().done_through(),
        };
        let cred = Cred::own();
        let reply =
            self.0.call(wire::CapsProc::Stable, &cred, cancel, |ticket, w| calling::put(&args(ticket), w));
        let reply = reply.map_err(|failure| failure.undone())?;
        let told: wire::StableOk = calling::decode(&reply).map_err(|failure| failure.undone())?;
        let failed = self.0.ledger.lock().failed(&told.failed);
        Ok(Settled { through: told.stable_through.0, failed })
    }

    fn write(&self, write: &WriteOut, cancel: &Cancel) -> Result<WriteDone, Undone> {
        self.0.write_here(write, cancel)
    }

    fn commit(&self, commit: &CommitOut, cancel: &Cancel) -> Result<u64, Undone> {
        self.0.commit_here(commit, cancel)
    }

    fn release(&self, releases: &[Release], cancel: &Cancel) -> Result<(), Undone> {
        self.0.give_back(releases, cancel)
    }

    fn pool(&self, out: &PoolOut, cancel: &Cancel) -> Result<Vec<Spare>, Undone> {
        self.0.pool(out, cancel)
    }

    fn read_ahead(&self, out: &AheadOut, cancel: &Cancel) -> Option<Vec<Option<Bytes>>> {
        // Of a server on this host each file is read in a moment.
        self.0.neighbour().is_none().then(|| self.0.nfs.read_ahead(out, cancel)).flatten()
    }

    fn lock(&self, lock: &LockRequest<'_>, wait: bool, cancel: &Cancel) -> Result<(), Errno> {
        self.0.nfs.lock(lock, wait, cancel)
    }

    fn unlock(
        &self,
        object: &Handle,
        owner: LockOwner,
        range: ByteRange,
        cancel: &Cancel,
    ) -> Result<(), Errno> {
        self.0.nfs.unlock(object, owner, range, cancel)
    }

    fn lock_test(&self, lock: &LockRequest<'_>, cancel: &Cancel) -> Result<Option<LockConflict>, Errno> {
        self.0.nfs.lock_test(lock, cancel)
    }

    fn path_behind(&self, object: &Handle, caller: &Caller, cancel: &Cancel) -> Option<OwnedFd> {
        self.0.path_here(object, caller, cancel)
    }

    fn holds_locks(&self, object: &Handle, owner: &[u8]) -> bool {
        self.0.nfs.holds_locks(object, owner)
    }

    fn has_lost_locks(&self, object: &Handle) -> bool {
        self.0.nfs.has_lost_locks(object)
    }
}

impl fmt::Debug for CapsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CapsServer {:?}", self.0.greeting.read())
    }
}
