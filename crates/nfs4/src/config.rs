//! What the service is made with: everything that another crate, or a test, decides.

use std::io;
use std::sync::Arc;

use holdfast_base::{ClientId, SessionId};
use holdfast_export::{Committer, GroupSource, Namespace};
use holdfast_ledger::Ledger;
use holdfast_manager::Manager;
use holdfast_rpc::reply_cache::ReplyCache;
use holdfast_state::{ClientImage, CreatedSession, Recorded, SessionImage, Verifier};

use crate::attr::ids::IdNames;
use crate::observe::Observer;

/// Where client records lie, so that clients can reclaim after a restart.
pub trait ClientRecords: Send + Sync {
    /// Puts a record on stable storage. Waits for it.
    ///
    /// # Errors
    /// The medium's: the client is then told nothing that depends on the record.
    fn persist(&self, client: &ClientImage) -> io::Result<()>;

    /// Takes these clients' records away, before anybody else can have what they held. Waits for the medium once for all of
    /// them, perhaps with the state engine held: must not ask anything of it, nor wait for long. False when one may still be
    /// there, which is tried again; clients without a record are no failure.
    fn forget(&self, clients: &[ClientId]) -> bool;

    /// The client has said that it goes: what it may believe goes with it. Its record is taken away next. Must not wait.
    fn left(&self, client: ClientId) {
        let _ = client;
    }

    /// Whether this incarnation of a client of 4.1 may have been here before, though it is no client now: in an earlier life of
    /// the server, or before it was lost. As [`ClientRecords::forget`], but must not wait.
    fn may_have_met(&self, name: &[u8], verifier: Verifier) -> bool {
        let _ = (name, verifier);
        false
    }

    /// Does what follows from records that are gone, now that the engine is let go of.
    fn forgotten(&self) {}

    /// The client has reclaimed all it wants.
    fn reclaim_done(&self, client: ClientId);

    /// Whether a client's record says already that it may hold state. Asked with every OPEN: must not wait.
    fn may_hold(&self, client: ClientId) -> bool;

    /// The client is about to be granted its first state: puts that on stable storage. Waits for it.
    ///
    /// # Errors
    /// The medium's: nothing is granted.
    fn will_hold(&self, client: &ClientImage) -> io::Result<()>;

    /// Something is being revoked from a client that lives on, or it has acknowledged all that was: stores which. Waits for
    /// it with the state engine held, as [`ClientRecords::forget`]: only then is what it loses another's to have. False
    /// when that is not stored.
    fn note_losses(&self, client: ClientId, has_lost: bool) -> bool;

    /// Whether the client of that name held state when the server last stopped, and may reclaim it.
    fn recorded(&self, client: &ClientImage) -> Recorded;
}

/// Keeps nothing: after a restart nobody may reclaim.
#[derive(Debug)]
pub struct NoRecords;

impl ClientRecords for NoRecords {
    fn persist(&self, _: &ClientImage) -> io::Result<()> {
        Ok(())
    }

    fn forget(&self, _: &[ClientId]) -> bool {
        true
    }

    fn reclaim_done(&self, _: ClientId) {}

    fn may_hold(&self, _: ClientId) -> bool {
        true
    }

    fn will_hold(&self, _: &ClientImage) -> io::Result<()> {
        Ok(())
    }

    fn note_losses(&self, _: ClientId, _: bool) -> bool {
        true
    }

    fn recorded(&self, _: &ClientImage) -> Recorded {
        Recorded::No
    }
}

/// Where sessions lie, so that they outlive the server (CSR4_PERSIST). The replies of their slots lie in the ledger.
pub trait SessionRecords: Send + Sync {
    /// A session was made, and CREATE_SESSION is about to be answered so. Of one that does not persist the answer and its
    /// number are kept where the client has others that do: it counts on over a restart.
    ///
    /// # Errors
    /// The medium's: the session is then not persistent.
    fn session_made(&self, session: &SessionImage, answer: &CreatedSession) -> io::Result<()>;

    /// A session is about to be as this says; nothing where it does not persist.
    ///
    /// # Errors
    /// The medium's: nobody knows then which of the two it is after a crash.
    fn session_changed(&self, session: &SessionImage) -> io::Result<()>;

    /// Sessions are gone. Waits for the medium, if at all, once for all of them.
    fn sessions_gone(&self, sessions: &[SessionId]);
}

/// Who the server says it is (RFC 8881 section 2.5).
#[derive(Clone, Debug)]
pub struct Identity {
    /// Equal on all addresses of one server, or of a cluster sharing client ids.
    pub major_id: Vec<u8>,
    /// Together with `major_id`: where sessions can be trunked.
    pub minor_id: u64,
    /// Where handles and ids mean the same.
    pub scope: Vec<u8>,
}

/// What [`crate::Nfs4`] is made with.
pub struct Config {
    /// The exports.
    pub namespace: Arc<Namespace>,
    /// Groups looked up on the server.
    pub groups: Arc<dyn GroupSource>,
    /// How owners and groups are written.
    pub ids: Arc<dyn IdNames>,
    /// Where replies wait for their changes to be durable.
    pub committer: Arc<Committer>,
    /// 4.0: answers what is sent twice. May be shared with NFSv3.
    pub replies: Arc<ReplyCache>,
    /// The state that all protocols share.
    pub manager: Arc<Manager>,
    /// Client records.
    pub records: Arc<dyn ClientRecords>,
    /// Sessions that outlive a restart, when they are to; with a ledger only.
    pub sessions: Option<Arc<dyn SessionRecords>>,
    /// Where requests are recorded, so that a crash does not make them run twice.
    pub ledger: Option<Arc<Ledger>>,
    /// Who the server says it is.
    pub identity: Identity,
    /// The highest minor version served, 0 to 2.
    pub minor_max: u32,
    /// Told of every operation.
    pub observer: Option<Arc<dyn Observer>>,
}

/// Choices that have a sensible default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Clients of 4.0 may have any host called back, not only the one that they call from. A server that does this can
    /// be made to connect to hosts that its clients cannot reach.
    pub calls_anywhere: bool,
    /// Holders of directory delegations are told of changed entries when they ask for it (CB_NOTIFY), instead of having
    /// to give back.
    pub notifies: bool,
}
