//! A journal of intents and replies in a memory-mapped file. What was written to it outlives the process, killed
//! as it may be, at the price of a memory write; what was forced outlives the machine. It knows nothing of what
//! keys, intents and replies mean.
//!
//! `docs/design/exactly-once.md` says how it is used and enumerates its crash cases. In short: records are
//! appended to a ring of segments; what is still alive in the oldest segment is copied forward before the
//! segment is used again, and a segment is used again only once those copies are forced.

mod crc;
mod file;
mod index;
mod layout;
#[allow(unsafe_code)]
mod map;
mod record;
mod ring;
mod scan;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_base::limits::{JOURNAL_BYTES_DEFAULT, JOURNAL_ENTRIES_MAX};
use parking_lot::Mutex;

pub use file::BootId;
use ring::Ring;

/// Size of a journal.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of the file, all reserved on disk at once; at least 1 MiB. Half of it can be alive.
    pub bytes: u64,
    /// Live entries at most.
    pub entries_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { bytes: JOURNAL_BYTES_DEFAULT, entries_max: JOURNAL_ENTRIES_MAX }
    }
}

/// How long an entry that has its reply is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Until a newer entry of its key takes its place, or it is forgotten: a slot's last reply.
    Latest,
    /// Until room is short; the oldest go first: duplicate-request entries.
    Aged,
}

/// Names one entry until it is replaced or forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryId {
    /// Its place in the index of this run.
    entry: u32,
    order: u64,
}

impl EntryId {
    /// The entry's number in order of beginning, over all runs.
    #[must_use]
    pub const fn order(self) -> u64 {
        self.order
    }
}

/// How far what an entry says can be believed after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Its effects were on stable storage ([`Journal::seal`]).
    Sealed,
    /// The process died and the machine went on: a recorded reply means that the file system holds the effects,
    /// which may still have to be forced.
    ProcessDied,
    /// The machine died, or may have: even with a recorded reply the effects may be lost. Look.
    MachineDied,
}

/// An entry found when the journal was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Its name in this run: to be finished, sealed or forgotten once it is settled.
    pub id: EntryId,
    /// Its key.
    pub key: Vec<u8>,
    /// How long it is kept.
    pub keep: Keep,
    /// The intent; empty for a note.
    pub intent: Vec<u8>,
    /// The reply, where one was recorded.
    pub reply: Option<Vec<u8>>,
    /// Rises in the order in which entries began, over all runs.
    pub order: u64,
    /// How far it can be believed.
    pub certainty: Certainty,
}

/// Why a journal could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error("{}: another server is using this journal. Stop it, or use another state directory", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is no journal, or its first page is damaged.
    #[error(
        "{}: {reason}. Moved away, the server starts with an empty journal; requests that were under way when \
         it stopped are then not recognized when clients send them again", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// The configured size is below 1 MiB, above 16 GiB, or does not hold what is alive in the file.
    #[error("{}: a journal of {bytes} bytes is too small or too large for what it must hold", path.display())]
    Size {
        /// The file.
        path: PathBuf,
        /// The size asked for.
        bytes: u64,
    },
    /// The file system refused; "no space" comes here and nowhere later, for all room is reserved at once.
    #[error("{}: cannot {doing}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// The cause.
        error: io::Error,
    },
}

/// Why something was not recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// Half of the file is taken by entries that must not be dropped. A new request is to be put off
    /// (NFS4ERR_DELAY, NFS3ERR_JUKEBOX); a reply is sent all the same, and a crash would settle its intent by
    /// looking.
    #[error("the journal is full of entries that cannot be dropped")]
    Full,
    /// A key, intent or reply above its bound, or an empty key.
    #[error("{0} is empty or above the journal's bound")]
    Bounds(&'static str),
    /// The entry was replaced or forgotten.
    #[error("the entry is gone")]
    Gone,
    /// An earlier force failed; nothing is recorded that would need another.
    #[error("the journal's file failed: {0}")]
    Failed(String),
}

/// What a journal holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Live entries.
    pub entries: usize,
    /// Bytes of live entries that must not be dropped.
    pub pinned_bytes: u64,
    /// Bytes of live entries that may be dropped.
    pub aged_bytes: u64,
    /// Bytes that may be alive at most.
    pub live_bytes_max: u64,
    /// Forces that a writer had to wait for because the ring had run ahead of them.
    pub waits: u64,
    /// Segments whose end was lost when the journal was opened.
    pub damaged_segments: usize,
}

/// A journal. All methods may be called from any thread; none but [`Journal::force`] waits for a disk, except
/// that a writer who has run a whole ring ahead of the last force waits for one.
pub struct Journal {
    ring: Mutex<Ring>,
    /// Held by the one thread that forces, so that those who wait share its force.
    forcing: Mutex<()>,
    file: Arc<File>,
}

impl Journal {
    /// Opens the journal at `path`, or makes it (mode 0600), and gives what it holds, oldest first. The file is
    /// locked until the journal is dropped. It is rewritten beside itself and renamed, so a change of size takes
    /// effect, and a crash here loses nothing.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path, config: &Config) -> Result<(Self, Vec<Recovered>), OpenError> {
        Self::open_on_boot(path, config, BootId::current())
    }

    /// As [`Journal::open`], saying which boot of the machine this is: for simulation and tests.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_on_boot(
        path: &Path,
        config: &Config,
        boot: BootId,
    ) -> Result<(Self, Vec<Recovered>), OpenError> {
        let (ring, recovered) = file::open(path, config, boot)?;
        let file = ring.file();
        Ok((Self { ring: Mutex::new(ring), forcing: Mutex::new(()), file }, recovered))
    }

    /// Records what is about to be done, taking the place of the key's earlier entry.
    ///
    /// # Errors
    /// [`JournalError::Full`], [`JournalError::Bounds`], [`JournalError::Failed`]: nothing was recorded.
    pub fn begin(&self, key: &[u8], keep: Keep, intent: &[u8]) -> Result<EntryId, JournalError> {
        self.ring.lock().begin(key, keep, intent, ring::Part::Intent)
    }

    /// Records a value without an intent, taking the place of the key's earlier entry.
    ///
    /// # Errors
    /// Those of [`Journal::begin`].
    pub fn note(&self, key: &[u8], keep: Keep, value: &[u8]) -> Result<EntryId, JournalError> {
        self.ring.lock().begin(key, keep, value, ring::Part::Reply)
    }

    /// Records the reply of an entry; a later one takes the place of an earlier.
    ///
    /// # Errors
    /// [`JournalError::Gone`], and those of [`Journal::begin`]; the entry then stands as it was.
    pub fn finish(&self, id: EntryId, reply: &[u8]) -> Result<(), JournalError> {
        self.ring.lock().finish(id, reply)
    }

    /// Records that the effects of an entry are on stable storage, so that its reply is believed even after a
    /// power cut.
    ///
    /// # Errors
    /// Those of [`Journal::finish`].
    pub fn seal(&self, id: EntryId) -> Result<(), JournalError> {
        self.ring.lock().seal(id)
    }

    /// Forgets an entry; one that is gone is no error.
    pub fn forget(&self, id: EntryId) {
        self.ring.lock().forget(id);
    }

    /// Forgets the entry of a key; tells whether there was one.
    pub fn forget_key(&self, key: &[u8]) -> bool {
        self.ring.lock().forget_key(key)
    }

    /// Makes everything recorded before this call survive a power cut. Waits for the disk; callers that come
    /// meanwhile share the next force.
    ///
    /// # Errors
    /// What the disk said. It stays so: pages whose write-back failed once are lost (the kernel calls them clean),
    /// so a later success would prove nothing.
    pub fn force(&self) -> io::Result<()> {
        let target = self.ring.lock().last_seq();
        let _turn = self.forcing.lock();
        let covered = {
            let mut ring = self.ring.lock();
            ring.check_failed().map_err(io::Error::other)?;
            if ring.forced_seq() >= target {
                return Ok(());
            }
            ring.let_go_of_written();
            ring.last_seq()
        };
        let result = self.file.sync_data();
        self.ring.lock().forced(covered, &result);
        result
    }

    /// As [`Journal::force`], by who forces the file along with something else: he is given it, writes back what is
    /// dirty of it, and returns when that is on the medium. `None` when he did nothing, or the journal failed before: then
    /// [`Journal::force`] tells. Several may be at it at once.
    pub fn force_by(
        &self,
        by: &mut dyn FnMut(BorrowedFd<'_>) -> Option<io::Result<()>>,
    ) -> Option<io::Result<()>> {
        let covered = {
            let mut ring = self.ring.lock();
            ring.check_failed().ok()?;
            ring.let_go_of_written();
            ring.last_seq()
        };
        let result = by(self.file.as_fd())?;
        self.ring.lock().forced(covered, &result);
        Some(result)
    }

    /// What the journal holds.
    pub fn usage(&self) -> Usage {
        self.ring.lock().usage()
    }
}
