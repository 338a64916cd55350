//! Who is asked before what a client held may be another's: what says that the client may reclaim it must be off the record
//! first (RFC 8881 section 8.4.3), or a crash in between leaves two who do.

use std::fmt;

use holdfast_base::ClientId;

use crate::names::Verifier;

/// Has it on stable storage that a client may not reclaim. Asked in the middle of a step, as nobody may see what is let go
/// before: the engine waits, and everybody behind it. Nothing is asked of it where nothing that may be reclaimed changes
/// hands. Must not ask anything of the engine; where a disk takes long, the answer is no for the time being.
pub trait Witness: Send + Sync {
    /// Takes these clients off the record, all at once; those not on it are no failure. Whether they are off it. If not,
    /// nothing of theirs is given to anybody, and they are asked about again.
    fn forget(&self, clients: &[ClientId]) -> bool;

    /// Records whether a client has lost something in this life that it may not know of. Whether that is recorded. If not,
    /// nothing is taken from it yet.
    fn note_losses(&self, client: ClientId, has_lost: bool) -> bool;

    /// Whether an incarnation of a client of 4.1 that the engine does not know may have been here before: in an earlier life of
    /// the server, or before it was lost without a word. Must not wait.
    fn may_have_met(&self, name: &[u8], verifier: Verifier) -> bool {
        let _ = (name, verifier);
        false
    }
}

/// For an engine whose clients nobody records.
pub(crate) struct NoRecords;

impl Witness for NoRecords {
    fn forget(&self, _: &[ClientId]) -> bool {
        true
    }

    fn note_losses(&self, _: ClientId, _: bool) -> bool {
        true
    }
}

impl fmt::Debug for dyn Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Witness")
    }
}
