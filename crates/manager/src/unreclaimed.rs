//! After a restart in which promises were lost: until their holders have reclaimed them, nothing in the index says
//! what was promised. What would have been a deed against them waits (RFC 8881 section 8.4.2.1), and no more than that.

use std::sync::atomic::{AtomicU8, Ordering};

use holdfast_base::{CapSet, ClientId, FileKey};
use holdfast_state::{Deed, EntryKinds};
use holdfast_vfs::{FsError, FsResult};

use crate::manager::Manager;

/// What clients may have held before a restart, and may still reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unreclaimed {
    /// Nothing.
    Nothing,
    /// Delegations of files. Of directories they are not reclaimed (RFC 8881 section 10.9.6), and nobody has a directory to
    /// himself by one.
    Delegations,
    /// These, and capabilities, with which a mount may have had a directory to itself.
    Capabilities,
}

/// What it is just now.
#[derive(Debug)]
pub(crate) struct Awaited(AtomicU8);

impl Default for Awaited {
    fn default() -> Self {
        Self(AtomicU8::new(Unreclaimed::Nothing as u8))
    }
}

impl Manager {
    /// Says what clients may reclaim. Before the first request.
    pub fn await_reclaims(&self, what: Unreclaimed) {
        let before = self.awaited.0.fetch_max(what as u8, Ordering::SeqCst);
        if what > Unreclaimed::Nothing && before == Unreclaimed::Nothing as u8 {
            // What lies behind a name that is changed must be known meanwhile.
            self.names.reason().keep();
        }
    }

    /// Says what is left of that: what is not waited for any more never is again.
    pub fn await_no_more_than(&self, what: Unreclaimed) {
        let before = self.awaited.0.fetch_min(what as u8, Ordering::SeqCst);
        if what == Unreclaimed::Nothing && before > Unreclaimed::Nothing as u8 {
            self.names.release();
        }
    }

    /// Whether anything is waited for.
    #[must_use]
    pub fn is_awaiting_reclaims(&self) -> bool {
        self.awaited.0.load(Ordering::Relaxed) > Unreclaimed::Nothing as u8
    }

    /// Whether a mount may have had a directory to itself, changed it, and have still to tell.
    pub(crate) fn awaits_capabilities(&self) -> bool {
        self.awaited.0.load(Ordering::Relaxed) == Unreclaimed::Capabilities as u8
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
            // A name by itself, of which no kind is known, changes with its directory, which is asked about before it.
            Deed::ChangeEntries(kinds) if kinds != EntryKinds::UNKNOWN && self.awaits_capabilities() => {
                let held = |by| self.look(|engine| engine.caps_in_force(by, file));
                by.is_some_and(|by| held(by).contains(CapSet::FILE_X))
            }
            _ => true,
        };
        if is_its_own { Ok(()) } else { Err(FsError::Delay) }
    }
}
