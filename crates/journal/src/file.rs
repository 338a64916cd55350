//! Making, locking and opening the file.
//!
//! A journal is never opened in place: what is alive in the old file is written to a new one, which is forced and
//! renamed over it. So a new size takes effect, damage does not live on, and a crash at any point leaves one
//! whole journal.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_base::{Entropy, SystemEntropy};
use rustix::fs::{FallocateFlags, IFlags, fallocate, ioctl_getflags, ioctl_setflags};

use crate::index::Index;
use crate::layout::{HEADER_BYTES, Layout};
use crate::map::Map;
use crate::record::{self, DOUBTFUL, RECORD_HEADER, SEALED};
use crate::ring::{Part, Ring};
use crate::scan::{Found, Scan, scan};
use crate::{Certainty, Config, OpenError, Recovered};

/// What is read at once where the kernel cannot be asked to bring it in: it stays in the processor's cache.
const PIECE_BYTES: usize = 256 << 10;

/// Which boot of the machine this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BootId(pub [u8; 16]);

impl BootId {
    /// What the kernel says; unknown, and then equal to no other boot, when it does not.
    #[must_use]
    pub fn current() -> Self {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        let id = (hex.len() == 32).then(|| u128::from_str_radix(&hex, 16).ok()).flatten();
        Self(id.unwrap_or(0).to_be_bytes())
    }

    pub(crate) fn is_known(self) -> bool {
        self.0 != [0; 16]
    }
}

struct At<'a>(&'a Path);

impl At<'_> {
    fn failed(&self, doing: &'static str) -> impl FnOnce(io::Error) -> OpenError {
        let path = self.0.to_path_buf();
        move |error| OpenError::Io { path, doing, error }
    }
}

/// Opens or makes the journal at `path`.
pub(crate) fn open(path: &Path, config: &Config, boot: BootId) -> Result<(Ring, Vec<Recovered>), OpenError> {
    let at = At(path);
    let old = open_locked(path)?;
    let map = map_found(&old).map_err(at.failed("read it"))?;
    let scanned = match &map {
        None => Scan { next_order: 1, ..Scan::default() },
        Some(map) => scan(map.bytes(), boot)
            .map_err(|reason| OpenError::Damaged { path: path.to_path_buf(), reason })?,
    };
    let new_path = beside(path);
    let (mut ring, file) = create(&new_path, config, boot, scanned.next_order).map_err(|e| match e {
        OpenError::Size { bytes, .. } => OpenError::Size { path: path.to_path_buf(), bytes },
        e => e,
    })?;
    ring.set_damaged(scanned.damaged_segments);
    let too_small = || OpenError::Size { path: path.to_path_buf(), bytes: config.bytes };
    let mut recovered = Vec::with_capacity(scanned.found.len());
    for found in &scanned.found {
        recovered.push(carry_over(&mut ring, found).map_err(|_| too_small())?);
    }
    let forced = ring.last_seq();
    file.sync_all().map_err(at.failed("force it"))?;
    ring.forced(forced, &Ok(()));
    std::fs::rename(&new_path, path).map_err(at.failed("rename the new journal to it"))?;
    sync_directory(path).map_err(at.failed("force its directory"))?;
    // Only now may another see the name without a lock on what it names.
    drop(old);
    Ok((ring, recovered))
}

/// A file that was found; `None` of an empty one. What [`scan`] looks at is brought in: the header, and each segment that was
/// begun. In a journal that is little used that is little of it.
fn map_found(file: &File) -> io::Result<Option<Map>> {
    let bytes = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    if bytes == 0 {
        return Ok(None);
    }
    let map = Map::new(file, bytes)?;
    bring_in(file, &map, 0, HEADER_BYTES.min(bytes))?;
    // What is wrong with a header is said by the scan.
    if let Ok((layout, _)) = Layout::parse(map.bytes()) {
        for segment in 0..layout.segments {
            let at = layout.segment_at(segment);
            bring_in(file, &map, at, RECORD_HEADER.min(layout.segment_bytes))?;
            if record::is_begun(map.bytes().get(at..).unwrap_or_default()) {
                bring_in(file, &map, at, layout.segment_bytes)?;
            }
        }
    }
    Ok(Some(map))
}

/// Brings in a stretch of a file and its map: what the disk cannot read is an error here, and not a signal later.
fn bring_in(file: &File, map: &Map, at: usize, len: usize) -> io::Result<()> {
    if map.bring_in(at, len) {
        return Ok(());
    }
    let mut piece = vec![0; PIECE_BYTES.min(len)];
    let (mut at, end) = (at, at.saturating_add(len));
    while at < end {
        let room = piece.len().min(end - at);
        let part = piece.get_mut(..room).unwrap_or_default();
        file.read_exact_at(part, at as u64)?;
        at += room;
    }
    Ok(())
}

/// The file, locked; made empty where there is none, so that there is something to lock.
fn open_locked(path: &Path) -> Result<File, OpenError> {
    let at = At(path);
    loop {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = how.open(path).map_err(at.failed("open it"))?;
        lock(&file, path)?;
        // Another server may have renamed its new file here between our open and our lock.
        let ours = file.metadata().map_err(at.failed("look at it"))?.ino();
        match std::fs::metadata(path) {
            Ok(there) if there.ino() == ours => return Ok(file),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(at.failed("look at it")(e)),
        }
    }
}

fn lock(file: &File, path: &Path) -> Result<(), OpenError> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.to_path_buf() }),
        Err(TryLockError::Error(e)) => Err(At(path).failed("lock it")(e)),
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".new");
    path.with_file_name(name)
}

/// A new file with an empty ring.
fn create(
    path: &Path,
    config: &Config,
    boot: BootId,
    next_order: u64,
) -> Result<(Ring, Arc<File>), OpenError> {
    let at = At(path);
    let mut entropy = SystemEntropy::new().map_err(at.failed("get random bytes for"))?;
    let salt = entropy.u64() as u32;
    let size = || OpenError::Size { path: path.to_path_buf(), bytes: config.bytes };
    let layout = Layout::for_bytes(config.bytes, salt).ok_or_else(size)?;
    // What an earlier start left when it was killed before its rename.
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at.failed("remove")(e)),
        _ => {}
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(at.failed("create"))?;
    lock(&file, path)?;
    reserve(&file, layout.file_bytes() as u64).map_err(at.failed("reserve room for"))?;
    let mut map = Map::new(&file, layout.file_bytes()).map_err(at.failed("map"))?;
    map.write(0, &layout.header(boot));
    let index = Index::new(config.entries_max, (entropy.u64(), entropy.u64()));
    let file = Arc::new(file);
    Ok((Ring::new(map, Arc::clone(&file), layout, index, next_order), file))
}

/// Reserves every block, so that no store into the map can meet a full disk.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    // On btrfs rewriting a block would need a new one each time; a file marked so while it is empty is rewritten
    // in place. Elsewhere the flag is unknown, and nothing is lost.
    if let Ok(flags) = ioctl_getflags(file) {
        let _ = ioctl_setflags(file, flags | IFlags::NOCOW);
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(file, bytes),
        Err(e) => Err(e.into()),
    }
}

fn write_zeros(mut file: &File, bytes: u64) -> io::Result<()> {
    let zeros = [0; 64 << 10];
    let mut left = bytes;
    while left > 0 {
        let n = left.min(zeros.len() as u64);
        file.write_all(&zeros[..n as usize])?;
        left -= n;
    }
    Ok(())
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// Writes an entry of the old file into the new ring.
fn carry_over(ring: &mut Ring, found: &Found<'_>) -> Result<Recovered, crate::JournalError> {
    let flags = match found.certainty {
        Certainty::Sealed => SEALED,
        Certainty::ProcessDied => 0,
        Certainty::MachineDied => DOUBTFUL,
    };
    let begin = match (found.is_note, found.reply) {
        (true, Some(reply)) => (reply, Part::Reply),
        _ => (found.intent, Part::Intent),
    };
    let id = ring.insert(found.order, found.key, found.keep, begin, flags)?;
    if let (false, Some(reply)) = (found.is_note, found.reply) {
        ring.finish_with(id, reply, flags)?;
    }
    Ok(Recovered {
        id,
        key: found.key.to_vec(),
        keep: found.keep,
        intent: found.intent.to_vec(),
        reply: found.reply.map(<[u8]>::to_vec),
        order: found.order,
        certainty: found.certainty,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_brought_in_is_read_and_what_cannot_be_read_is_an_error() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes = HEADER_BYTES + PIECE_BYTES + 1;
        file.write_all(&vec![1; bytes]).unwrap();
        let half = Map::new(&file, HEADER_BYTES).unwrap();
        assert!(half.bring_in(10, HEADER_BYTES - 10));
        assert!(!half.bring_in(0, bytes), "it has not got all of it");
        bring_in(&file, &half, 0, bytes).unwrap();
        file.set_len(HEADER_BYTES as u64).unwrap();
        let error = bring_in(&file, &half, 0, bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let all = Map::new(&tempfile::tempfile().unwrap(), HEADER_BYTES);
        assert!(all.is_err(), "longer than the file");
    }

    #[test]
    fn a_file_that_is_found_is_mapped_whole_whatever_it_has() {
        let mut file = tempfile::tempfile().unwrap();
        assert!(map_found(&file).unwrap().is_none());
        file.write_all(b"short").unwrap();
        assert_eq!(map_found(&file).unwrap().unwrap().bytes(), b"short");
        // A header that is whole, of segments that are all there, one of them begun.
        let layout = Layout::for_bytes(1 << 20, 7).unwrap();
        let mut all = vec![0; layout.file_bytes()];
        all[..40].copy_from_slice(&layout.header(BootId([1; 16])));
        all[layout.segment_at(3)] = 1;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&all).unwrap();
        assert!(map_found(&file).unwrap().unwrap().bytes() == all);
    }
}
