//! The volume: one blocking method for each thing applications do with a file system, over the cache machine.
//!
//! The machine ([`holdfast_cache`]) decides; this crate asks the server for it ([`Server`]), waits for it, sends what
//! it has to send (flushers), and has others forget what it says is to be forgotten ([`Invalidate`]). Every waiting
//! ends when its token is given.
#![forbid(unsafe_code)]

mod ahead;
mod alarm;
mod caps;
mod crowd;
mod doubts;
mod flusher;
mod invalidator;
mod lease;
mod locks;
mod nfs;
mod offline;
mod operations;
mod patience;
mod promises;
mod room;
mod running;
mod same_host;
mod server;
mod stats;
#[cfg(test)]
mod stub;
mod volume;

pub use caps::{CapsServer, convert, sheets};
pub use invalidator::Invalidate;
pub use locks::{LockClass, LockConflict, LockOwner, LockRequest, LockWanted, LossSignal};
pub use nfs::{Delegations, NfsServer};
pub use offline::{AwaySignal, Journal, JournalError, Kept, Standing};
pub use operations::{At, Data, There};
pub use running::Waiting;
pub use same_host::{SameHost, SameHostStats};
pub use server::{BatchDone, FailedLater, Server, Settled, Undone, WriteDone};
pub use stats::{Changed, Contents, Held, Hits, Queue, ReadAhead, Stats, Timing};
pub use volume::{Volume, VolumeOptions};

pub use holdfast_cache as cache;
pub use holdfast_client::Cancel;
