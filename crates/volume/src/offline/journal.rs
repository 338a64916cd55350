//! The records on this host's disk: one table in one file (redb), changed by whole deltas, each forced to the disk before
//! it counts.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_cache::Change;
use parking_lot::Mutex;
use redb::{Database, DatabaseError, Durability, ReadableDatabase as _, ReadableTable as _, TableDefinition};

const RECORDS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("records");
/// What is not the machine's: who this mount is to the server, and what is mounted.
const FACTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("facts");

/// Bytes of pages kept in memory: everything is read once, at the beginning.
const CACHE_BYTES: usize = 16 << 20;

/// For so long a daemon that was killed may still hold its files: whoever starts it again at once is not turned away.
const DYING: Duration = Duration::from_secs(3);

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another mount uses it.
    #[error("{}: in use: the same is mounted there already, or its daemon still sends what is left", .0.display())]
    InUse(PathBuf),
    /// It cannot be read or written.
    #[error("{}: {reason}", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    /// None after an error of the disk: redb wants to be opened anew then.
    db: Mutex<Option<Database>>,
}

impl Journal {
    /// Opens the journal in this file, making it (and its directory, for its user alone) where there is none. It stays
    /// locked until it is dropped.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let fail = |reason: String| JournalError::Failed { path: path.to_path_buf(), reason };
        if let Some(dir) = path.parent() {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
            made.map_err(|e| fail(e.to_string()))?;
        }
        let patience = Instant::now() + DYING;
        loop {
            let file =
                OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
            let file = file.map_err(|e| fail(e.to_string()))?;
            match Database::builder().set_cache_size(CACHE_BYTES).create_file(file) {
                Ok(db) => return Ok(Self { path: path.to_path_buf(), db: Mutex::new(Some(db)) }),
                Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < patience => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(DatabaseError::DatabaseAlreadyOpen) => {
                    return Err(JournalError::InUse(path.to_path_buf()));
                }
                Err(error) => return Err(fail(error.to_string())),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn fail(&self, error: &dyn std::fmt::Display) -> JournalError {
        JournalError::Failed { path: self.path.clone(), reason: error.to_string() }
    }

    /// Works on the database, opened anew where an error had closed it. Never makes a file: one that was taken away is not to
    /// be begun anew with half of what it had.
    fn with<T>(&self, work: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, JournalError> {
        let mut db = self.db.lock();
        let opened = match db.take() {
            Some(opened) => opened,
            None => {
                let file = OpenOptions::new().read(true).write(true).open(&self.path);
                let file = file.map_err(|e| self.fail(&e))?;
                let opened = Database::builder().set_cache_size(CACHE_BYTES).create_file(file);
                opened.map_err(|e| self.fail(&e))?
            }
        };
        let done = work(&opened).map_err(|error| self.fail(&error))?;
        *db = Some(opened);
        Ok(done)
    }

    /// A fact noted before.
    ///
    /// # Errors
    /// [`JournalError::Failed`].
    pub fn fact(&self, name: &str) -> Result<Option<Vec<u8>>, JournalError> {
        let read = |db: &Database| -> Result<Option<Vec<u8>>, redb::Error> {
            match db.begin_read()?.open_table(FACTS) {
                Ok(table) => Ok(table.get(name)?.map(|value| value.value().to_vec())),
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        };
        self.with(read)
    }

    /// Whether there is a record that this removes; when that cannot be read, there may be.
    pub fn has(&self, change: &Change) -> bool {
        let (Change::Put(from, _) | Change::Remove(from) | Change::RemoveAll(from)) = change;
        let read = |db: &Database| -> Result<bool, redb::Error> {
            let table = match db.begin_read()?.open_table(RECORDS) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            Ok(match change {
                Change::RemoveAll(prefix) => {
                    table.range(from.as_slice()..successor(prefix).as_slice())?.next().is_some()
                }
                _ => table.get(from.as_slice())?.is_some(),
            })
        };
        self.with(read).unwrap_or(true)
    }

    /// All records.
    ///
    /// # Errors
    /// [`JournalError::Failed`].
    pub fn records(&self) -> Result<BTreeMap<Vec<u8>, Bytes>, JournalError> {
        let read = |db: &Database| -> Result<BTreeMap<Vec<u8>, Bytes>, redb::Error> {
            let table = match db.begin_read()?.open_table(RECORDS) {
                Ok(table) => table,
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(BTreeMap::new()),
                Err(error) => return Err(error.into()),
            };
            let mut all = BTreeMap::new();
            for entry in table.iter()? {
                let (key, value) = entry?;
                all.insert(key.value().to_vec(), Bytes::copy_from_slice(value.value()));
            }
            Ok(all)
        };
        self.with(read)
    }

    /// Begins anew with these facts and records, in place of all that is there.
    ///
    /// # Errors
    /// [`JournalError::Failed`]: nothing was changed.
    pub fn begin(&self, facts: &[(&str, &[u8])], records: &[Change]) -> Result<(), JournalError> {
        self.change(true, facts, records)
    }

    /// Notes a fact, forced to the disk.
    ///
    /// # Errors
    /// [`JournalError::Failed`]: nothing was changed.
    pub fn note(&self, name: &str, value: &[u8]) -> Result<(), JournalError> {
        self.change(false, &[(name, value)], &[])
    }

    /// Applies a delta, whole, and forces it to the disk.
    ///
    /// # Errors
    /// [`JournalError::Failed`]: nothing was changed.
    pub fn apply(&self, changes: &[Change]) -> Result<(), JournalError> {
        self.change(false, &[], changes)
    }

    fn change(&self, anew: bool, facts: &[(&str, &[u8])], changes: &[Change]) -> Result<(), JournalError> {
        let write = |db: &Database| -> Result<(), redb::Error> {
            let mut txn = db.begin_write()?;
            txn.set_durability(Durability::Immediate)?;
            if anew {
                txn.delete_table(RECORDS)?;
                txn.delete_table(FACTS)?;
            }
            {
                let mut table = txn.open_table(FACTS)?;
                for (name, value) in facts {
                    table.insert(*name, *value)?;
                }
                let mut table = txn.open_table(RECORDS)?;
                for change in changes {
                    match change {
                        Change::Put(key, value) => drop(table.insert(key.as_slice(), value.as_ref())?),
                        Change::Remove(key) => drop(table.remove(key.as_slice())?),
                        Change::RemoveAll(prefix) => {
                            let behind = successor(prefix);
                            let range = prefix.as_slice()..behind.as_slice();
                            table.retain_in(range, |_, _| false)?;
                        }
                    }
                }
            }
            txn.commit()?;
            Ok(())
        };
        self.with(write)
    }
}

/// The first key behind all that begin with a prefix. Prefixes of ours begin with a letter, so that there is one.
fn successor(prefix: &[u8]) -> Vec<u8> {
    let mut behind = prefix.to_vec();
    while let Some(last) = behind.pop() {
        if last < u8::MAX {
            behind.push(last + 1);
            break;
        }
    }
    behind
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn put(key: &str, value: &'static str) -> Change {
        Change::Put(key.into(), Bytes::from_static(value.as_bytes()))
    }

    #[test]
    fn what_was_applied_is_there_after_it_was_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/journal");
        let journal = Journal::open(&path).unwrap();
        assert!(journal.records().unwrap().is_empty());
        assert_eq!(journal.fact("who").unwrap(), None);
        journal.begin(&[("who", b"me")], &[put("Na", "1"), put("Nab", "2"), put("O", "3")]).unwrap();
        journal
            .apply(&[put("Nb", "4"), Change::Remove(b"O".to_vec()), Change::RemoveAll(b"Na".to_vec())])
            .unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::InUse(_))), "one mount at a time");
        drop(journal);
        let journal = Journal::open(&path).unwrap();
        let all: Vec<_> = journal.records().unwrap().into_keys().collect();
        assert_eq!(all, [b"Nb".to_vec()]);
        let [has, has_not] = [b"Nb", b"Na"].map(|key| journal.has(&Change::Remove(key.to_vec())));
        assert!(has && !has_not && journal.has(&Change::RemoveAll(b"N".to_vec())));
        assert!(!journal.has(&Change::RemoveAll(b"Na".to_vec())));
        assert_eq!(journal.fact("who").unwrap(), Some(b"me".to_vec()));
        journal.begin(&[("who", b"you")], &[]).unwrap();
        assert!(journal.records().unwrap().is_empty());
    }

    /// A disk of 32 MiB, for root alone.
    pub(in crate::offline) struct SmallDisk(tempfile::TempDir);

    impl SmallDisk {
        pub(in crate::offline) fn path(&self) -> &Path {
            self.0.path()
        }

        /// Takes all the room that there is.
        pub(in crate::offline) fn fill(&self) -> PathBuf {
            let filler = self.0.path().join("filler");
            // Whoever keeps something there meanwhile takes some of it.
            let mut all = std::fs::File::create(&filler).unwrap();
            while std::io::Write::write(&mut all, &[0; 4096]).is_ok() {}
            filler
        }

        pub(in crate::offline) fn new() -> Option<Self> {
            if !rustix::process::geteuid().is_root() {
                return None;
            }
            let dir = tempfile::tempdir().unwrap();
            let flags = rustix::mount::MountFlags::empty();
            rustix::mount::mount("tmpfs", dir.path(), "tmpfs", flags, c"size=32m").unwrap();
            Some(Self(dir))
        }
    }

    impl Drop for SmallDisk {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
        }
    }

    #[test]
    fn a_full_disk_takes_nothing_away_and_there_is_more_once_it_has_room() {
        let Some(disk) = SmallDisk::new() else { return };
        let path = disk.0.path().join("journal");
        let journal = Journal::open(&path).unwrap();
        journal.begin(&[("who", b"me")], &[put("Na", "1")]).unwrap();
        let filler = disk.fill();
        let much = Change::Put(b"Nb".to_vec(), Bytes::from(vec![7; 3 << 20]));
        for _ in 0..3 {
            assert!(journal.apply(std::slice::from_ref(&much)).is_err());
        }
        std::fs::remove_file(&filler).unwrap();
        assert_eq!(journal.records().unwrap().len(), 1, "as it was");
        journal.apply(&[put("Nc", "3")]).unwrap();
        drop(journal);
        let journal = Journal::open(&path).unwrap();
        let all: Vec<_> = journal.records().unwrap().into_keys().collect();
        assert_eq!(all, [b"Na".to_vec(), b"Nc".to_vec()]);
        assert_eq!(journal.fact("who").unwrap(), Some(b"me".to_vec()));
    }

    #[test]
    fn behind_a_prefix_comes_what_does_not_begin_with_it() {
        assert_eq!(successor(b"Na"), b"Nb");
        assert_eq!(successor(&[b'N', 0xff, 0xff]), b"O");
    }
}
