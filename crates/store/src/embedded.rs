//! A store in one file of the state directory (redb). Waiting batches share one force to disk: the thread that
//! comes first commits for all that came meanwhile.

use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, Table, TableDefinition};

use crate::watch::Watchers;
use crate::{Batch, Change, Fence, Flow, Result, Store, StoreError, Watch};

const PAIRS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("pairs");

/// Bytes of pages redb may keep in memory: all records of ten thousand clients, several times over.
const CACHE_BYTES: usize = 8 << 20;

/// What a waiting caller asks for, and its answer once somebody has committed it.
struct Waiting {
    work: Work,
    answer: Mutex<Option<Result<u64>>>,
}

enum Work {
    Batch(Batch),
    /// Take the office stored under this fence's key; the answer is the turn.
    Fence(Fence),
}

/// The embedded store.
pub struct EmbeddedStore {
    db: Database,
    /// Batches that wait for a committer.
    queue: Mutex<Vec<Arc<Waiting>>>,
    /// Held by the one thread that commits.
    committing: Mutex<()>,
    watchers: Watchers,
}

impl EmbeddedStore {
    /// Opens the store at `path`, making it (mode 0600) when it is not there. The file stays locked until the
    /// store is dropped, so that two servers cannot use one state directory.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process, or another handle of this one, has it open;
    /// [`StoreError::Open`] when it cannot be opened or is damaged.
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |reason: String| StoreError::Open { path: path.to_path_buf(), reason };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(|e| fail(e.to_string()))?;
        keep_private(&file).map_err(|e| fail(format!("cannot set its mode to 0600: {e}")))?;
        let db = Database::builder().set_cache_size(CACHE_BYTES).create_file(file).map_err(|e| match e {
            DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.to_path_buf() },
            e => fail(format!(
                "{e}. The file is damaged or no store of this program; moved away, the server starts afresh, \
                 and clients lose the right to reclaim their locks"
            )),
        })?;
        let store =
            Self { db, queue: Mutex::default(), committing: Mutex::new(()), watchers: Watchers::default() };
        // The table must exist before the first read.
        store.transaction(&Batch::new()).map_err(|e| fail(e.to_string()))?;
        Ok(store)
    }

    /// Hands the work in and waits until this thread or another has committed it.
    fn commit(&self, work: Work) -> Result<u64> {
        let waiting = Arc::new(Waiting { work, answer: Mutex::new(None) });
        self.queue.lock().push(Arc::clone(&waiting));
        let _turn = self.committing.lock();
        if let Some(answer) = waiting.answer.lock().take() {
            return answer;
        }
        let group = std::mem::take(&mut *self.queue.lock());
        let answers = self.commit_group(&group);
        for (waiting, answer) in group.iter().zip(answers) {
            *waiting.answer.lock() = Some(answer);
        }
        // This thread's work was in the group: it was queued, and nobody had answered it.
        waiting.answer.lock().take().unwrap_or_else(|| Err(StoreError::Io("lost in a group commit".into())))
    }

    /// Commits the group in one transaction. Work whose conditions fail changes nothing and harms no other.
    fn commit_group(&self, group: &[Arc<Waiting>]) -> Vec<Result<u64>> {
        let run = || -> Result<Vec<Result<u64>>> {
            let mut txn = self.db.begin_write().map_err(io)?;
            txn.set_durability(Durability::Immediate).map_err(io)?;
            let mut answers = Vec::with_capacity(group.len());
            {
                let mut table = txn.open_table(PAIRS).map_err(io)?;
                for waiting in group {
                    match apply(&waiting.work, &mut table) {
                        // The table itself failed: the whole transaction is in doubt and is dropped.
                        Err(e @ StoreError::Io(_)) => return Err(e),
                        answer => answers.push(answer),
                    }
                }
            }
            txn.commit().map_err(io)?;
            Ok(answers)
        };
        run().unwrap_or_else(|e| vec![Err(e); group.len()])
    }
}

/// Applies one piece of work; checks come before the first change, so that a refusal changes nothing.
fn apply(work: &Work, table: &mut Table<'_, &'static [u8], &'static [u8]>) -> Result<u64> {
    match work {
        Work::Batch(batch) => {
            batch.check_conditions(|key| read(table, key))?;
            for change in batch.changes() {
                match change {
                    Change::Put(key, value) => {
                        table.insert(key.as_slice(), value.as_slice()).map_err(io)?;
                    }
                    Change::Delete(key) => {
                        table.remove(key.as_slice()).map_err(io)?;
                    }
                }
            }
            Ok(0)
        }
        Work::Fence(place) => {
            let turn = Fence::stored_turn(read(table, place.key())?.as_deref()) + 1;
            table.insert(place.key(), turn.to_be_bytes().as_slice()).map_err(io)?;
            Ok(turn)
        }
    }
}

fn read(table: &impl ReadableTable<&'static [u8], &'static [u8]>, key: &[u8]) -> Result<Option<Vec<u8>>> {
    Ok(table.get(key).map_err(io)?.map(|v| v.value().to_vec()))
}

/// Takes group's and others' rights away from a file that somebody made with a laxer mode.
fn keep_private(file: &File) -> std::io::Result<()> {
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn io(e: impl std::fmt::Display) -> StoreError {
    StoreError::Io(e.to_string())
}

impl Store for EmbeddedStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        read(&self.db.begin_read().map_err(io)?.open_table(PAIRS).map_err(io)?, key)
    }

    fn scan(&self, prefix: &[u8], take: &mut dyn FnMut(&[u8], &[u8]) -> Flow) -> Result<()> {
        let table = self.db.begin_read().map_err(io)?.open_table(PAIRS).map_err(io)?;
        for pair in table.range(prefix..).map_err(io)? {
            let (key, value) = pair.map_err(io)?;
            if !key.value().starts_with(prefix) || take(key.value(), value.value()) == Flow::Stop {
                break;
            }
        }
        Ok(())
    }

    fn transaction(&self, batch: &Batch) -> Result<()> {
        batch.check_bounds()?;
        self.commit(Work::Batch(batch.clone()))?;
        batch.changes().iter().for_each(|change| self.watchers.tell(change.key()));
        Ok(())
    }

    fn watch(&self, prefix: &[u8]) -> Result<Watch> {
        self.watchers.add(prefix)
    }

    fn fence(&self, name: &[u8]) -> Result<Fence> {
        let turn = self.commit(Work::Fence(Fence::of(name, 0)?))?;
        Fence::of(name, turn)
    }
}
