//! The tree of pairs on the medium, and whether a commit that failed is in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{Database, Durability, ReadableDatabase, Table, TableDefinition, TableError};

use crate::embedded::medium::{Below, Medium};
use crate::{Result, StoreError};

const PAIRS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("pairs");

/// How many commits there were: what a commit counted up is there when the commit is.
const COMMITS: TableDefinition<'_, (), u64> = TableDefinition::new("commits");

/// Bytes of pages redb may keep in memory: all records of ten thousand clients, several times over.
const CACHE_BYTES: usize = 8 << 20;

/// The pairs, within a transaction.
pub(crate) type Pairs<'txn> = Table<'txn, &'static [u8], &'static [u8]>;

/// A tree that is open.
pub(crate) struct Tree {
    db: Database,
    /// The number of the last commit.
    commits: AtomicU64,
}

/// A commit that failed.
pub(crate) struct Failed<A> {
    pub(crate) error: StoreError,
    /// Its number, and what it would have answered; `None` when it did not come that far, and changed nothing.
    pending: Option<(u64, A)>,
}

impl<A> From<StoreError> for Failed<A> {
    fn from(error: StoreError) -> Self {
        Self { error, pending: None }
    }
}

impl<A> Failed<A> {
    /// What it would have answered, when the tree opened since shows that it is stored: it is the last that was tried.
    pub(crate) fn if_stored(self, in_tree: &Tree) -> Option<A> {
        self.pending.filter(|(number, _)| *number == in_tree.commits.load(Ordering::Acquire)).map(|(_, a)| a)
    }
}

impl Tree {
    /// Opens the tree, which settles what a failure or a crash cut short, and makes an empty one on an empty file.
    pub(crate) fn open(medium: &Arc<Medium>) -> Result<Self> {
        let fail = |e: String| StoreError::Open {
            path: medium.path().to_path_buf(),
            reason: format!(
                "{e}. The file is damaged or no store of this program; moved away, the server starts afresh, \
                 and clients lose the right to reclaim their locks"
            ),
        };
        let below = Below(Arc::clone(medium));
        let db = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(below);
        let db = db.map_err(|e| fail(e.to_string()))?;
        let tree = Self { db, commits: AtomicU64::new(0) };
        tree.commits.store(tree.stored_commits().map_err(|e| fail(e.to_string()))?, Ordering::Release);
        if !tree.has_pairs().map_err(|e| fail(e.to_string()))? {
            // The table must exist before the first read.
            tree.commit(|_| Ok(())).map_err(|failed| fail(failed.error.to_string()))?;
        }
        Ok(tree)
    }

    fn stored_commits(&self) -> Result<u64> {
        match self.db.begin_read().map_err(io)?.open_table(COMMITS) {
            Ok(table) => Ok(table.get(()).map_err(io)?.map_or(0, |n| n.value())),
            // The file is new, or of a version that did not count.
            Err(TableError::TableDoesNotExist(_)) => Ok(0),
            Err(e) => Err(io(e)),
        }
    }

    fn has_pairs(&self) -> Result<bool> {
        match self.db.begin_read().map_err(io)?.open_table(PAIRS) {
            Ok(_) => Ok(true),
            Err(TableError::TableDoesNotExist(_)) => Ok(false),
            Err(e) => Err(io(e)),
        }
    }

    /// Looks at the pairs as they stand at one moment.
    pub(crate) fn look<R>(
        &self,
        look: impl FnOnce(&redb::ReadOnlyTable<&'static [u8], &'static [u8]>) -> Result<R>,
    ) -> Result<R> {
        look(&self.db.begin_read().map_err(io)?.open_table(PAIRS).map_err(io)?)
    }

    /// Changes pairs in one transaction, durable when this returns. The caller is the only one who commits.
    ///
    /// # Errors
    /// What `change` failed with, when nothing is changed; and [`StoreError::Io`].
    pub(crate) fn commit<A>(
        &self,
        change: impl FnOnce(&mut Pairs<'_>) -> Result<A>,
    ) -> std::result::Result<A, Failed<A>> {
        let number = self.commits.load(Ordering::Acquire) + 1;
        let mut txn = self.db.begin_write().map_err(io)?;
        txn.set_durability(Durability::Immediate).map_err(io)?;
        let answer = change(&mut txn.open_table(PAIRS).map_err(io)?)?;
        txn.open_table(COMMITS).map_err(io)?.insert((), number).map_err(io)?;
        match txn.commit() {
            Ok(()) => {
                self.commits.store(number, Ordering::Release);
                Ok(answer)
            }
            Err(e) => Err(Failed { error: io(e), pending: Some((number, answer)) }),
        }
    }
}

pub(crate) fn io(e: impl std::fmt::Display) -> StoreError {
    StoreError::Io(e.to_string())
}
