//! When the server last showed that it lives, beside its journal: by that its next life knows a file that somebody else has changed
//! while it was dead from one that it was itself in the middle of.
//!
//! What is noted need not survive the machine: of another boot nothing is known. So it costs one small write to the page cache, and
//! that seldom.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};

use holdfast_base::Timestamp;
use holdfast_journal::BootId;
use parking_lot::Mutex;

/// It is noted once in so many milliseconds of changes.
const NOTED_EACH_MS: i64 = 10;

/// So long after what was noted a change may still have been the server's own: the next note was not due, and a change that was
/// begun takes a moment until the file has its time. Longer only where the disk stands still, or the processor is taken away.
const LASTS_MS: i64 = 100;

/// A clock that is so much behind what was noted was put back; less is another thread's moment.
const PUT_BACK_MS: i64 = 1000;

const MAGIC: [u8; 8] = *b"HFALIVE\x01";
const BYTES: usize = 8 + 16 + 8 + 4;

/// The file, and what a former life left in it.
pub(crate) struct Alive {
    file: Option<File>,
    boot: BootId,
    /// One thread at a time, and nobody waits for it: the disk may hang.
    writing: Mutex<()>,
    /// When it was noted last, in milliseconds.
    noted_ms: AtomicI64,
    former: Option<Timestamp>,
}

impl Alive {
    /// Opens what stands beside this journal, or makes it (mode 0600). Without it nothing is known of a former life, and the next one
    /// knows nothing of this.
    pub(crate) fn open(journal: &Path, boot: BootId) -> Self {
        let path = beside(journal);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let opened =
            options.open(&path).and_then(|file| noted(&file, boot).map(|former| (Some(file), former)));
        let (file, former) = opened.unwrap_or_else(|error| {
            let path = path.display();
            tracing::warn!(%error, "{path} cannot be used: whether files were changed while no server lived is not known");
            (None, None)
        });
        Self { file, boot, writing: Mutex::new(()), noted_ms: AtomicI64::new(i64::MIN), former }
    }

    /// It lives now, and may change something in the next moment.
    pub(crate) fn note(&self, now: Timestamp) {
        let ms = ms_of(now);
        let is_due = || {
            let before = self.noted_ms.load(Ordering::Relaxed);
            ms >= before.saturating_add(NOTED_EACH_MS) || ms < before.saturating_sub(PUT_BACK_MS)
        };
        let Some(file) = self.file.as_ref().filter(|_| is_due()) else { return };
        let Some(_one) = self.writing.try_lock().filter(|_| is_due()) else { return };
        self.noted_ms.store(ms, Ordering::Relaxed);
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.boot.0);
        bytes[24..32].copy_from_slice(&now.seconds.to_le_bytes());
        bytes[32..].copy_from_slice(&now.nanos.to_le_bytes());
        if let Err(error) = file.write_all_at(&bytes, 0) {
            // Then its next life takes a change of its own for somebody else's, and keeps both.
            tracing::debug!(%error, "that the server lives is not noted");
        }
    }

    /// Whether what was changed then was changed when the former life was over. False where it is not known when that was.
    pub(crate) fn was_dead_at(&self, changed: Timestamp) -> bool {
        self.former.is_some_and(|noted| ms_of(changed) > ms_of(noted).saturating_add(LASTS_MS))
    }
}

fn beside(journal: &Path) -> PathBuf {
    journal.with_extension("alive")
}

fn noted(file: &File, boot: BootId) -> io::Result<Option<Timestamp>> {
    let mut bytes = [0; BYTES];
    match file.read_exact_at(&mut bytes, 0) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        done => done?,
    }
    let is_known = boot != BootId([0; 16]);
    let is_of_it = bytes[..8] == MAGIC && bytes[8..24] == boot.0;
    let seconds = bytes[24..32].first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
    let nanos = bytes[32..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    Ok((is_known && is_of_it).then_some(Timestamp { seconds, nanos }))
}

fn ms_of(at: Timestamp) -> i64 {
    at.seconds.saturating_mul(1000).saturating_add(i64::from(at.nanos / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp { seconds: ms / 1000, nanos: (ms % 1000) as u32 * 1_000_000 }
    }

    #[test]
    fn a_life_knows_what_was_changed_when_the_one_before_was_over() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("replies.journal");
        let open = |boot| Alive::open(&journal, BootId([boot; 16]));
        let first = open(1);
        assert!(!first.was_dead_at(at(i64::from(i32::MAX))), "there was none before");
        first.note(at(5000));
        first.note(at(5000 + NOTED_EACH_MS - 1));
        assert!(!open(1).was_dead_at(at(5000 + LASTS_MS)), "it may have been at that");
        assert!(open(1).was_dead_at(at(5000 + LASTS_MS + 1)));
        first.note(at(5000 + NOTED_EACH_MS));
        assert!(!open(1).was_dead_at(at(5000 + LASTS_MS + 1)), "and lived on");
        drop(first);
        // One that did nothing leaves what there was.
        drop(open(1));
        assert!(open(1).was_dead_at(at(5000 + LASTS_MS + NOTED_EACH_MS + 1)));
        let second = open(1);
        second.note(at(4000));
        assert!(open(1).was_dead_at(at(5000)), "the clock was put back");
        assert!(!open(2).was_dead_at(at(i64::from(i32::MAX))), "nothing is known of another boot's");
    }

    #[test]
    fn what_is_none_of_its_files_tells_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("replies.journal");
        for bytes in [&b"HFALIVE\x01"[..], &[0; BYTES], &[7; 100]] {
            std::fs::write(beside(&journal), bytes).unwrap();
            for boot in [0, 7] {
                assert!(!Alive::open(&journal, BootId([boot; 16])).was_dead_at(at(i64::MAX / 2000)));
            }
        }
        std::fs::remove_file(beside(&journal)).unwrap();
        std::fs::create_dir(beside(&journal)).unwrap();
        let none = Alive::open(&journal, BootId([7; 16]));
        none.note(at(5000));
        assert!(!none.was_dead_at(at(6000)), "a server lives without it");
    }
}
