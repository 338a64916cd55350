//! What the caps program stands on.

use std::io;
use std::sync::Arc;

use holdfast_base::{ClientId, Entropy};
use holdfast_export::{Committer, GroupSource, Namespace};
use holdfast_ledger::{Ledger, Now};
use holdfast_manager::Manager;
use holdfast_state::{ClientImage, Recorded};

/// Who keeps what clients may reclaim after a restart.
pub trait Holders: Send + Sync {
    /// Whether a client's record says already that it may hold state. Must not wait.
    fn may_hold(&self, client: ClientId) -> bool;

    /// The client is about to be granted its first state: puts that on stable storage. Waits for it.
    ///
    /// # Errors
    /// The medium's: nothing is granted.
    fn will_hold(&self, client: &ClientImage) -> io::Result<()>;

    /// Whether the client held state when the server last stopped, and may reclaim it.
    fn recorded(&self, client: &ClientImage) -> Recorded;
}

/// What [`crate::Caps`] is made with.
pub struct Parts {
    /// The exports.
    pub namespace: Arc<Namespace>,
    /// The state of all protocols.
    pub manager: Arc<Manager>,
    /// Makes batches durable.
    pub committer: Arc<Committer>,
    /// Where operations of batches are recorded; without one they are known as long as the process lives.
    pub ledger: Option<Arc<Ledger>>,
    /// Groups of users.
    pub groups: Arc<dyn GroupSource>,
    /// Client records.
    pub holders: Arc<dyn Holders>,
    /// Makes tickets.
    pub entropy: Box<dyn Entropy>,
    /// The calendar: what is kept beside another is named by it, and times that holders tell are not after it.
    pub wall: Now,
}
