//! The rows: a log that takes them one by one, a database that takes them in batches.

use std::fs::{File, OpenOptions};
use std::hash::Hasher as _;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use holdfast_base::limits::{HANDLE_NAMES_MAX, HANDLE_ROWS_PENDING_MAX};
use holdfast_vfs::{FsError, FsResult};
use parking_lot::Mutex;
use redb::{Database, ReadableDatabase as _, TableDefinition};
use rustc_hash::FxHashMap;
use siphasher::sip::SipHasher13;

use crate::errors::OpenError;

const ROWS: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("rows-1");
const HEAD: usize = 2 + 4;

/// Which row: file system and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) fs: u64,
    pub(super) ino: u64,
}

/// A directory's number, and a name in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) parent: u64,
    pub(super) name: Vec<u8>,
}

/// Where an object was last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) generation: u64,
    pub(super) birth: u64,
    /// One, or several of a file with several names: the one seen last comes first.
    pub(super) places: Vec<Place>,
}

impl Key {
    fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.fs.to_be_bytes());
        bytes[8..].copy_from_slice(&self.ino.to_be_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (fs, rest) = bytes.split_first_chunk::<8>()?;
        let (ino, _) = rest.split_first_chunk::<8>()?;
        Some(Self { fs: u64::from_be_bytes(*fs), ino: u64::from_be_bytes(*ino) })
    }
}

impl Row {
    pub(super) fn is_at(&self, place: &Place) -> bool {
        self.places.contains(place)
    }

    /// Notes that the object was seen at a place. Unless it has several names that is the only one.
    pub(super) fn seen_at(&mut self, place: Place, has_several_names: bool) {
        if !has_several_names {
            self.places = vec![place];
        } else if !self.is_at(&place) {
            self.places.insert(0, place);
            self.places.truncate(HANDLE_NAMES_MAX);
        }
    }

    /// Generation, birth time, then each place: directory, name, and a NUL where another place follows.
    fn encode(&self) -> Vec<u8> {
        let names: usize = self.places.iter().map(|place| 9 + place.name.len()).sum();
        let mut bytes = Vec::with_capacity(16 + names);
        for number in [self.generation, self.birth] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        for (n, place) in self.places.iter().enumerate() {
            if n > 0 {
                bytes.push(0);
            }
            bytes.extend_from_slice(&place.parent.to_be_bytes());
            bytes.extend_from_slice(&place.name);
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (generation, rest) = bytes.split_first_chunk::<8>()?;
        let (birth, rest) = rest.split_first_chunk::<8>()?;
        let [generation, birth] = [generation, birth].map(|n| u64::from_be_bytes(*n));
        let mut places = Vec::new();
        let mut left = Some(rest);
        while let Some(bytes) = left {
            let (parent, names) = bytes.split_first_chunk::<8>()?;
            let end = names.iter().position(|byte| *byte == 0);
            let name = end.map_or(names, |end| &names[..end]).to_vec();
            places.push(Place { parent: u64::from_be_bytes(*parent), name });
            left = end.map(|end| &names[end + 1..]);
        }
        Some(Self { generation, birth, places })
    }
}

/// What the log holds and the database does not yet; `None` for a row that was removed.
struct Pending {
    rows: FxHashMap<Key, Option<Row>>,
    log: File,
    is_forced: bool,
}

/// All rows.
pub(super) struct Rows {
    database: Database,
    pending: Mutex<Pending>,
}

fn log_path(dir: &Path) -> PathBuf {
    dir.join("handles.log")
}

fn database_path(dir: &Path) -> PathBuf {
    dir.join("handles.redb")
}

impl Rows {
    pub(super) fn exist(dir: &Path) -> bool {
        database_path(dir).exists() || log_path(dir).exists()
    }

    pub(super) fn open(dir: &Path) -> Result<Self, OpenError> {
        let path = database_path(dir);
        let damaged =
            |e: &dyn std::fmt::Display| OpenError::Damaged { path: path.clone(), reason: e.to_string() };
        let database = Database::create(&path).map_err(|e| damaged(&e))?;
        let log_path = log_path(dir);
        let mut log = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(&log_path)
            .map_err(|e| OpenError::state(&log_path, e))?;
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes).map_err(|e| OpenError::state(&log_path, e))?;
        let mut pending = Pending { rows: replay(&bytes), log, is_forced: false };
        pending.settle(&database).map_err(|e| damaged(&e))?;
        Ok(Self { database, pending: Mutex::new(pending) })
    }

    pub(super) fn find(&self, key: Key) -> FsResult<Option<Row>> {
        if let Some(row) = self.pending.lock().rows.get(&key) {
            return Ok(row.clone());
        }
        self.find_settled(key).map_err(|error| {
            tracing::error!(%error, "the handle table cannot be read");
            FsError::Io
        })
    }

    fn find_settled(&self, key: Key) -> Result<Option<Row>, redb::Error> {
        let read = self.database.begin_read()?;
        let table = match read.open_table(ROWS) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            other => other?,
        };
        Ok(table.get(&key.encode()[..])?.and_then(|row| Row::decode(row.value())))
    }

    pub(super) fn put(&self, key: Key, row: Option<Row>) -> FsResult<()> {
        let mut pending = self.pending.lock();
        let record = encode_record(key, row.as_ref());
        let io = |e: std::io::Error| FsError::from_errno(e.raw_os_error().unwrap_or(0));
        let before = pending.log.metadata().map_err(io)?.len();
        if let Err(e) = pending.log.write_all(&record) {
            // The start of a record would hide from a replay all that is written behind it.
            pending.log.set_len(before).map_err(io)?;
            return Err(io(e));
        }
        pending.is_forced = false;
        pending.rows.insert(key, row);
        if pending.rows.len() >= HANDLE_ROWS_PENDING_MAX {
            pending.settle(&self.database).map_err(|error| {
                tracing::error!(%error, "the handle table cannot be written");
                FsError::Io
            })?;
        }
        Ok(())
    }

    pub(super) fn force(&self) -> FsResult<()> {
        let mut pending = self.pending.lock();
        if !pending.is_forced {
            pending.log.sync_data().map_err(|e| FsError::from_errno(e.raw_os_error().unwrap_or(0)))?;
            pending.is_forced = true;
        }
        Ok(())
    }
}

impl Pending {
    /// Moves everything to the database, durably, and empties the log.
    fn settle(&mut self, database: &Database) -> Result<(), redb::Error> {
        if !self.rows.is_empty() {
            let write = database.begin_write()?;
            {
                let mut table = write.open_table(ROWS)?;
                for (key, row) in &self.rows {
                    match row {
                        Some(row) => table.insert(&key.encode()[..], &row.encode()[..])?,
                        None => table.remove(&key.encode()[..])?,
                    };
                }
            }
            write.commit()?;
        }
        self.log.set_len(0).map_err(redb::StorageError::Io)?;
        self.rows.clear();
        self.is_forced = true;
        Ok(())
    }
}

/// Length and checksum of the body, then the body: key, whether the row is there, the row.
fn encode_record(key: Key, row: Option<&Row>) -> Vec<u8> {
    let mut body = key.encode().to_vec();
    body.push(u8::from(row.is_some()));
    if let Some(row) = row {
        body.extend_from_slice(&row.encode());
    }
    let mut record = Vec::with_capacity(HEAD + body.len());
    // A name has at most 255 bytes, and there are few, so a body fits.
    record.extend_from_slice(&(body.len() as u16).to_be_bytes());
    record.extend_from_slice(&checksum(&body));
    record.extend_from_slice(&body);
    record
}

fn checksum(body: &[u8]) -> [u8; 4] {
    let mut hasher = SipHasher13::new();
    hasher.write(body);
    let [a, b, c, d, ..] = hasher.finish().to_be_bytes();
    [a, b, c, d]
}

/// The rows of a log, up to a record that a crash cut short.
fn replay(mut log: &[u8]) -> FxHashMap<Key, Option<Row>> {
    let mut rows = FxHashMap::default();
    while let Some((key, row, rest)) = decode_record(log) {
        rows.insert(key, row);
        log = rest;
    }
    rows
}

fn decode_record(log: &[u8]) -> Option<(Key, Option<Row>, &[u8])> {
    let (len, rest) = log.split_first_chunk::<2>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let (body, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    if checksum(body) != *sum {
        return None;
    }
    let key = Key::decode(body)?;
    let row = match body.get(16)? {
        0 => None,
        _ => Some(Row::decode(&body[17..])?),
    };
    Some((key, row, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u64) -> Row {
        let place = |m: u64| Place { parent: m << 56 | m, name: format!("name-{m}").into_bytes() };
        Row { generation: n, birth: n + 1, places: (n..=n + n % 3).map(place).collect() }
    }

    #[test]
    fn a_row_with_several_places_is_read_back_and_one_with_one_as_it_always_was() {
        for n in 0..200 {
            assert_eq!(Row::decode(&row(n).encode()), Some(row(n)));
        }
        let one = Row { generation: 1, birth: 2, places: vec![Place { parent: 3, name: b"n".to_vec() }] };
        assert_eq!(one.encode(), [[1u64, 2, 3].map(u64::to_be_bytes).concat(), b"n".to_vec()].concat());
        let mut several = one.clone();
        for n in 0..10 {
            several.seen_at(Place { parent: n, name: b"m".to_vec() }, true);
        }
        assert_eq!((several.places.len(), several.places[0].parent), (HANDLE_NAMES_MAX, 9));
        several.seen_at(Place { parent: 7, name: b"m".to_vec() }, false);
        assert_eq!(several.places.len(), 1);
    }

    #[test]
    fn rows_outlive_a_kill_and_a_torn_record_costs_only_itself() {
        let dir = tempfile::tempdir().unwrap();
        let key = |ino| Key { fs: 1, ino };
        {
            let rows = Rows::open(dir.path()).unwrap();
            for n in 0..10 {
                rows.put(key(n), Some(row(n))).unwrap();
            }
            rows.put(key(3), None).unwrap();
            // No orderly close: the process might have been killed here.
        }
        let log = log_path(dir.path());
        let mut bytes = std::fs::read(&log).unwrap();
        bytes.extend_from_slice(&encode_record(key(99), Some(&row(99)))[..20]);
        std::fs::write(&log, bytes).unwrap();
        let rows = Rows::open(dir.path()).unwrap();
        assert_eq!(rows.find(key(7)).unwrap(), Some(row(7)));
        assert_eq!(rows.find(key(3)).unwrap(), None);
        assert_eq!(rows.find(key(99)).unwrap(), None);
        assert_eq!(std::fs::metadata(&log).unwrap().len(), 0, "the log was taken into the database");
    }

    #[test]
    fn rows_in_memory_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Rows::open(dir.path()).unwrap();
        for ino in 0..HANDLE_ROWS_PENDING_MAX as u64 + 5 {
            rows.put(Key { fs: 1, ino }, Some(row(ino))).unwrap();
        }
        assert!(rows.pending.lock().rows.len() <= 5);
        assert_eq!(rows.find(Key { fs: 1, ino: 0 }).unwrap(), Some(row(0)));
    }
}
