//! A small transactional key-value store: where client records, sessions, keys and epochs are kept. It decides
//! what "stored" means (durable before the call returns) and nothing about what is stored.
//!
//! Everything that changes goes through one shape, the [`Batch`]: conditions, then changes, applied as one or
//! not at all. That shape exists on every engine meant here (an embedded B-tree, RADOS omap, etcd), which an
//! interactive transaction does not.
#![forbid(unsafe_code)]

mod batch;
mod embedded;
mod memory;
#[cfg(any(test, feature = "suite"))]
pub mod suite;
mod watch;

use std::path::PathBuf;

pub use batch::{Batch, Change, Condition, Fence};
pub use embedded::EmbeddedStore;
pub use memory::MemoryStore;
pub use watch::{Seen, Watch, Watchers};

/// Why a store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A condition of the batch did not hold; nothing was changed.
    #[error("another writer changed what the transaction depends on")]
    Conflict,
    /// The batch's fence was taken by another; nothing was changed. Whoever sees this has lost its office and
    /// must stop writing.
    #[error("fenced: another holder has taken over")]
    Fenced,
    /// A key, value or batch above its bound, or an empty key; nothing was changed.
    #[error("{0} is above the store's bound, or empty")]
    Bounds(&'static str),
    /// There is no room for anything new; nothing was changed. Removals, and marks on what is there, go on.
    #[error("{}: the file system has no room for new records", directory.display())]
    Full {
        /// Where the store's file lies.
        directory: PathBuf,
    },
    /// Another server holds the store's file.
    #[error(
        "{}: another server is using this state directory (the file is locked). Stop that server, or give this \
         one a directory of its own with --state-dir", path.display()
    )]
    InUse {
        /// The locked file.
        path: PathBuf,
    },
    /// The file cannot be opened or is no store.
    #[error("{}: {reason}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and the way out.
        reason: String,
    },
    /// The medium failed. Whether the change happened is not known: read before trying again.
    #[error("the store failed: {0}")]
    Io(String),
}

/// The result of a store's methods.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Whether a scan goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Give the next pair.
    Continue,
    /// That was enough.
    Stop,
}

/// A transactional, ordered key-value store.
///
/// Concurrency: every method may be called from any thread. All of them may wait for a disk or a peer: never
/// call one on a thread that serves requests inline.
///
/// Visibility: what a call changed is seen by every later call on any handle of the same store.
/// Durability: a change that returned `Ok` survives a power cut, where the store is not a memory store.
pub trait Store: Send + Sync {
    /// The value of `key`.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Gives every pair whose key starts with `prefix` to `take`, in the order of the keys' bytes, as they
    /// stood at one moment. `take` must not call the store.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    fn scan(&self, prefix: &[u8], take: &mut dyn FnMut(&[u8], &[u8]) -> Flow) -> Result<()>;

    /// Checks the batch's fence and conditions and applies its changes: all or nothing, durable when this
    /// returns. Calls of several threads may share one force to disk.
    ///
    /// # Errors
    /// [`StoreError::Fenced`], [`StoreError::Conflict`], [`StoreError::Bounds`], [`StoreError::Full`]: nothing was
    /// changed.
    /// [`StoreError::Io`]: not known.
    fn transaction(&self, batch: &Batch) -> Result<()>;

    /// Tells of later changes to keys that start with `prefix`.
    ///
    /// # Errors
    /// [`StoreError::Bounds`] when there are too many watches, [`StoreError::Io`].
    fn watch(&self, prefix: &[u8]) -> Result<Watch>;

    /// Takes the office `name` from whoever holds it: every batch under an earlier fence of that name fails
    /// with [`StoreError::Fenced`] from now on, whichever process sends it.
    ///
    /// # Errors
    /// [`StoreError::Bounds`], [`StoreError::Io`].
    fn fence(&self, name: &[u8]) -> Result<Fence>;

    /// Sets one key.
    ///
    /// # Errors
    /// Those of [`Store::transaction`].
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.transaction(&Batch::new().put(key, value))
    }

    /// Deletes one key; one that is not there is no error.
    ///
    /// # Errors
    /// Those of [`Store::transaction`].
    fn delete(&self, key: &[u8]) -> Result<()> {
        self.transaction(&Batch::new().delete(key))
    }
}
