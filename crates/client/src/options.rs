//! How a client is set up, and whom it tells what.

use std::time::Duration;

use holdfast_wire::nfs4::{NfsTime4, Verifier4};

use crate::{Cred, Handle, Recall};

/// How a client is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers, tried in turn: `host`, `host:port`, `1.2.3.4:2049`, `[::1]:2049`.
    pub servers: Vec<String>,
    /// Servers that a server tells of (`fs_locations`) are connected to as well; else those that were named alone.
    pub goes_where_told: bool,
    /// The minor version; without it 2, then 1.
    pub minor: Option<u32>,
    /// Connections to the server, at least 1.
    pub connections: usize,
    /// Operations fail with [`crate::Error::TimedOut`] after [`Options::patience`] without an answer; else they wait
    /// for ever, or until cancelled.
    pub soft: bool,
    /// A soft operation's time; also that of connecting at first.
    pub patience: Duration,
    /// The client's name to the server, the same after its restart if state is to be taken over; without it one made
    /// up of the host's name and chance.
    pub owner: Option<Vec<u8>>,
    /// Tells one life of the client from the next; without it chance.
    pub verifier: Option<Verifier4>,
    /// From a port that only the superuser gets.
    pub reserved_port: bool,
    /// As whom sessions and state are managed.
    pub machine: Cred,
    /// Bytes of one READ or WRITE at most.
    pub max_io: u32,
    /// Calls at once at most.
    pub slots: u32,
    /// How long a connection may be silent to the kernel's probes before it counts as broken.
    pub silence: Duration,
}

impl Options {
    /// The defaults, for these servers.
    #[must_use]
    pub fn new(servers: Vec<String>) -> Self {
        Self {
            servers,
            goes_where_told: true,
            minor: None,
            connections: 1,
            soft: false,
            patience: Duration::from_secs(60),
            owner: None,
            verifier: None,
            reserved_port: false,
            machine: Cred::own(),
            max_io: 1 << 20,
            slots: 64,
            silence: Duration::from_secs(30),
        }
    }
}

/// What a holder of a write delegation says of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldAttributes {
    /// Any number that differs from the one that came with the delegation when the file was changed here.
    pub change: u64,
    /// Bytes.
    pub size: u64,
    /// When it was read, for delegations with times (RFC 9754).
    pub accessed: Option<NfsTime4>,
    /// When it was changed, likewise.
    pub modified: Option<NfsTime4>,
}

/// Something worth a line in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Connected to this server, in the words of the options, for the first time or again.
    Connected(String),
    /// No server answers; this is why the last one tried does not.
    Disconnected(String),
    /// The server said that the files are on these others now, and we go there.
    Moved(Vec<String>),
    /// The server restarted; what was held is being reclaimed.
    Restarted,
    /// State was lost to a lease that ran out or an administrator; what can be had again is being asked for.
    StateLost,
    /// Everything that could be recovered was.
    Recovered,
}

/// What a server asks of a client by itself. Called on the client's callback thread, one after the other: locks may be
/// taken shortly, but no operation of the client may be waited for.
pub trait Callbacks: Send + Sync {
    /// A delegation must go back: flush what it covers, then [`crate::Client::return_delegation`], on another thread.
    fn recall(&self, file: &Handle, recall: Recall);

    /// What the holder of a write delegation knows; nothing when it knows nothing.
    fn held_attributes(&self, file: &Handle) -> Option<HeldAttributes>;

    /// So many delegations should be kept, of the kinds named; the others should go back soon.
    fn recall_any(&self, keep: u32, read: bool, write: bool) {
        let _ = (keep, read, write);
    }

    /// A delegation is gone without having been returned: nothing was flushed under it, nobody was asked. `number` is
    /// its place in the order of grants and recalls.
    fn delegation_gone(&self, file: &Handle, number: u64) {
        let _ = (file, number);
    }

    /// Locks of an owner are gone: others may have had them meanwhile. I/O of that owner answers
    /// [`crate::Error::Lost`] until it has unlocked.
    fn locks_lost(&self, file: &Handle, owner: &[u8]) {
        let _ = (file, owner);
    }

    /// Something worth a line in a log.
    fn happened(&self, event: &Event) {
        let _ = event;
    }
}
