//! A store in one file of the state directory (redb). Waiting batches share one force to disk: the thread that
//! comes first commits for all that came meanwhile.
//!
//! A tree of redb is of no use any more after the first failure below it. It is then closed and opened again, which tells
//! of a commit that failed whether it is there wholly or not at all (`tree.rs`); what is not there is tried once more. On
//! a file system that is full only what is new is refused (`medium.rs`).

mod medium;
mod pace;
#[cfg(test)]
mod tests;
mod tree;

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use redb::ReadableTable;

use crate::embedded::medium::Medium;
use crate::embedded::pace::Pace;
use crate::embedded::tree::{Failed, Pairs, Tree, io};
use crate::watch::Watchers;
use crate::{Batch, Change, Fence, Flow, Result, Store, StoreError, Watch};

/// A tree that failed is opened again so often: on a disk that fails for good that reads the file each time.
const REOPENED_EVERY_MS: u64 = 900;

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

type Answers = Vec<Result<u64>>;

/// The embedded store.
pub struct EmbeddedStore {
    medium: Arc<Medium>,
    /// `None` while it cannot be opened again. Changed by who has the turn to commit alone.
    tree: RwLock<Option<Tree>>,
    reopened: Pace,
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
        Self::on(Medium::new(private_file(path)?, path.to_path_buf()))
    }

    fn on(medium: Medium) -> Result<Self> {
        let medium = Arc::new(medium);
        let tree = Tree::open(&medium)?;
        // While there is room. Without any the store is good for what is in it already.
        medium.has_room();
        Ok(Self {
            medium,
            tree: RwLock::new(Some(tree)),
            reopened: Pace::new(REOPENED_EVERY_MS),
            queue: Mutex::default(),
            committing: Mutex::new(()),
            watchers: Watchers::default(),
        })
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

    /// Commits the group in one transaction, in a tree opened again if need be. The caller has the turn.
    fn commit_group(&self, group: &[Arc<Waiting>]) -> Answers {
        let done = match self.try_commit(group) {
            Ok(answers) => Ok(answers),
            Err(failed) => match self.reopen(failed) {
                // It may have been this moment's failure; and of a full file system less is asked now.
                Ok(None) => self.try_commit(group).map_err(|failed| failed.error),
                Ok(Some(stored)) => Ok(stored),
                Err(e) => Err(e),
            },
        };
        done.unwrap_or_else(|e| vec![Err(e); group.len()])
    }

    /// Work whose conditions fail changes nothing and harms no other.
    fn try_commit(&self, group: &[Arc<Waiting>]) -> std::result::Result<Answers, Failed<Answers>> {
        let tree = self.tree.read();
        let tree = tree.as_ref().ok_or_else(|| io("it is closed"))?;
        let takes_new = self.medium.has_room();
        let apply_all = |pairs: &mut Pairs<'_>| {
            let mut answers = Vec::with_capacity(group.len());
            for waiting in group {
                if !takes_new && is_new(&waiting.work, pairs)? {
                    answers.push(Err(StoreError::Full { directory: self.medium.directory().to_path_buf() }));
                    continue;
                }
                match apply(&waiting.work, pairs) {
                    // The table itself failed: the whole transaction is in doubt and is dropped.
                    Err(e @ StoreError::Io(_)) => return Err(e),
                    answer => answers.push(answer),
                }
            }
            Ok(answers)
        };
        tree.commit(apply_all)
    }

    /// Opens the tree again, at most so often. What a commit that failed would have answered, if it proves to be stored. The
    /// caller has the turn.
    fn reopen<A>(&self, failed: Failed<A>) -> Result<Option<A>> {
        if !self.reopened.begin_if_due() {
            return Err(failed.error);
        }
        let directory = self.medium.directory().display();
        let mut place = self.tree.write();
        // Closed first: two trees on one file would not know of each other.
        *place = None;
        match self.medium.settle().map_err(io).and_then(|()| Tree::open(&self.medium)) {
            Ok(tree) => {
                tracing::warn!(%directory, error = %failed.error, "the store of records failed, and is opened again");
                let stored = failed.if_stored(&tree);
                *place = Some(tree);
                Ok(stored)
            }
            Err(error) => {
                tracing::error!(%directory, %error, "the store of records failed, and cannot be opened again yet");
                Err(failed.error)
            }
        }
    }

    /// Looks at the pairs. What fails has the tree opened again for whoever comes next.
    fn look<R>(
        &self,
        look: impl FnOnce(&redb::ReadOnlyTable<&'static [u8], &'static [u8]>) -> Result<R>,
    ) -> Result<R> {
        let seen = match self.tree.read().as_ref() {
            Some(tree) => tree.look(look),
            None => Err(io("it is closed")),
        };
        if let Err(error) = &seen {
            let _turn = self.committing.lock();
            let _: Result<Option<()>> = self.reopen(error.clone().into());
        }
        seen
    }
}

/// Opens the file, which nobody else may have open as a store.
fn private_file(path: &Path) -> Result<File> {
    let fail = |reason: String| StoreError::Open { path: path.to_path_buf(), reason };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path).map_err(|e| fail(e.to_string()))?;
    keep_private(&file).map_err(|e| fail(format!("cannot set its mode to 0600: {e}")))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse { path: path.to_path_buf() }),
        // Some file systems have no locks.
        Err(TryLockError::Error(e)) if e.kind() == std::io::ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(e)) => Err(fail(format!("cannot be locked: {e}"))),
    }
}

/// Takes group's and others' rights away from a file that somebody made with a laxer mode.
fn keep_private(file: &File) -> std::io::Result<()> {
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Whether work leaves more in the store than there was: a mark on a record does not.
fn is_new(work: &Work, pairs: &Pairs<'_>) -> Result<bool> {
    let grows = |key: &[u8], bytes: usize| Ok(read(pairs, key)?.is_none_or(|there| there.len() < bytes));
    match work {
        Work::Fence(place) => grows(place.key(), size_of::<u64>()),
        Work::Batch(batch) => {
            for change in batch.changes() {
                if let Change::Put(key, value) = change
                    && grows(key, value.len())?
                {
                    return Ok(true);
                }
            }
            Ok(false)
        }
    }
}

/// Applies one piece of work; checks come before the first change, so that a refusal changes nothing.
fn apply(work: &Work, pairs: &mut Pairs<'_>) -> Result<u64> {
    match work {
        Work::Batch(batch) => {
            batch.check_conditions(|key| read(pairs, key))?;
            for change in batch.changes() {
                match change {
                    Change::Put(key, value) => {
                        pairs.insert(key.as_slice(), value.as_slice()).map_err(io)?;
                    }
                    Change::Delete(key) => {
                        pairs.remove(key.as_slice()).map_err(io)?;
                    }
                }
            }
            Ok(0)
        }
        Work::Fence(place) => {
            let turn = Fence::stored_turn(read(pairs, place.key())?.as_deref()) + 1;
            pairs.insert(place.key(), turn.to_be_bytes().as_slice()).map_err(io)?;
            Ok(turn)
        }
    }
}

fn read(table: &impl ReadableTable<&'static [u8], &'static [u8]>, key: &[u8]) -> Result<Option<Vec<u8>>> {
    Ok(table.get(key).map_err(io)?.map(|v| v.value().to_vec()))
}

impl Store for EmbeddedStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.look(|pairs| read(pairs, key)).or_else(|_| self.look(|pairs| read(pairs, key)))
    }

    fn scan(&self, prefix: &[u8], take: &mut dyn FnMut(&[u8], &[u8]) -> Flow) -> Result<()> {
        self.look(|pairs| {
            for pair in pairs.range(prefix..).map_err(io)? {
                let (key, value) = pair.map_err(io)?;
                if !key.value().starts_with(prefix) || take(key.value(), value.value()) == Flow::Stop {
                    break;
                }
            }
            Ok(())
        })
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
