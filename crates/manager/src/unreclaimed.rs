//! After a restart in which promises were lost: until their holders have reclaimed them, nothing in the index says
//! what was promised. What would have been a deed against them waits (RFC 8881 section 8.4.2.1).

use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::{CapSet, ClientId, FileKey};
use holdfast_state::{Deed, EntryKinds};
use holdfast_vfs::{FsError, FsResult};

use crate::manager::Manager;

/// Whether clients may have delegations or capabilities that they have not reclaimed.
#[derive(Debug, Default)]
pub(crate) struct Unreclaimed(AtomicBool);

impl Manager {
    /// Says whether clients that may have held delegations or capabilities before a restart are still to reclaim. Before the
    /// first request, and when that ends.
    pub fn await_reclaims(&self, is_awaiting: bool) {
        if self.unreclaimed.0.swap(is_awaiting, Ordering::SeqCst) == is_awaiting {
            return;
        }
        // What lies behind a name that is changed must be known meanwhile.
        if is_awaiting { self.names.reason().keep() } else { self.names.release() }
    }

    /// Whether they are.
    #[must_use]
    pub fn is_awaiting_reclaims(&self) -> bool {
        self.unreclaimed.0.load(Ordering::Relaxed)
    }

    /// That a change cannot be one that somebody's unreclaimed promise forbids. Changes of data, of names and of what is in a
    /// directory alone: who reads meanwhile sees what has been written back, and a holder sees changed attributes at its next look.
    /// (What a request made that a crash cut short is given its attributes when the request comes again.)
    ///
    /// # Errors
    /// [`FsError::Delay`].
    #[inline]
    pub(crate) fn check_reclaimed(&self, file: FileKey, deed: Deed, by: Option<ClientId>) -> FsResult<()> {
        if !self.is_awaiting_reclaims() {
            return Ok(());
        }
        self.check_excluded(file, deed, by)
    }

    #[cold]
    fn check_excluded(&self, file: FileKey, deed: Deed, by: Option<ClientId>) -> FsResult<()> {
        // What the client itself has reclaimed nobody else had a promise beside.
        let is_its_own = match deed {
            Deed::WriteData | Deed::Truncate | Deed::ChangeName => {
                by.is_some_and(|by| self.look(|engine| engine.excludes_delegations(by, file)))
            }
            // A mount that had the entries to itself may have changed them, and have still to tell. A name by itself, of which no kind
            // is known, changes with its directory, which is asked about before it.
            Deed::ChangeEntries(kinds) if kinds != EntryKinds::UNKNOWN => {
                let held = |by| self.look(|engine| engine.caps_in_force(by, file));
                by.is_some_and(|by| held(by).contains(CapSet::FILE_X))
            }
            _ => true,
        };
        if is_its_own { Ok(()) } else { Err(FsError::Delay) }
    }
}
