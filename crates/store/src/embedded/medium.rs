//! The file below the store: what is its own of the file system's room, and what became of its writes.
//!
//! A copy-on-write tree needs room even to remove something, and a full file system must not keep the dead on record: as
//! many blocks as the file has are reserved behind its end, which is what the tree asks for when it grows. While that
//! reserve is not whole, nothing new is taken in (`has_room`), and what removes something finds what it needs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;
use rustix::fs::{FallocateFlags, IFlags, fallocate, ioctl_getflags, ioctl_setflags};
use rustix::io::Errno;

use crate::embedded::pace::Pace;

/// Where no room can be reserved (ZFS, NFS), nothing new is tried for so long after the file system was full.
const FULL_MS: u64 = 1000;

/// How often the log tells that the file system is full: who fills it may free it and fill it again.
const TOLD_EVERY_MS: u64 = 60_000;

/// What is copied at once when a file is written anew.
const REWRITTEN_BYTES: usize = 1 << 20;

/// The file, for as long as the store lives; the tree on it may be closed and opened again meanwhile.
#[derive(Debug)]
pub(crate) struct Medium {
    file: File,
    path: PathBuf,
    /// Whether the blocks behind the file's end are there.
    is_reserved: AtomicBool,
    /// Whether this file system cannot reserve.
    cannot_reserve: AtomicBool,
    /// What was written and forced is perhaps not on the disk, and what the kernel keeps of it is marked clean.
    is_in_doubt: AtomicBool,
    /// When it last was full.
    full: Pace,
    /// When the log last told so, and whether it has still to tell of the end.
    told: Pace,
    has_told: AtomicBool,
    #[cfg(test)]
    pub(crate) faults: super::tests::Faults,
}

impl Medium {
    pub(crate) fn new(file: File, path: PathBuf) -> Self {
        // On btrfs rewriting a block would need a new one each time; a file marked so while it is empty is rewritten in
        // place. Elsewhere the flag is unknown, and nothing is lost.
        if file.metadata().is_ok_and(|m| m.len() == 0)
            && let Ok(flags) = ioctl_getflags(&file)
        {
            let _ = ioctl_setflags(&file, flags | IFlags::NOCOW);
        }
        Self {
            file,
            path,
            is_reserved: AtomicBool::new(false),
            cannot_reserve: AtomicBool::new(false),
            is_in_doubt: AtomicBool::new(false),
            full: Pace::new(FULL_MS),
            told: Pace::new(TOLD_EVERY_MS),
            has_told: AtomicBool::new(false),
            #[cfg(test)]
            faults: super::tests::Faults::default(),
        }
    }

    /// Whether something new may be taken in. Asks the file system only after it had no room.
    pub(crate) fn has_room(&self) -> bool {
        if self.is_reserved.load(Ordering::Acquire) {
            return true;
        }
        if self.cannot_reserve.load(Ordering::Acquire) {
            return self.full.is_due();
        }
        self.file.metadata().is_ok_and(|found| self.reserve(found.len()))
    }

    #[cfg(test)]
    pub(crate) fn give_up_reserve(&self) {
        self.is_reserved.store(false, Ordering::Release);
    }

    /// Has as many blocks again behind the end as the file is long.
    fn reserve(&self, bytes: u64) -> bool {
        let outcome = self.allocate(bytes.saturating_mul(2));
        let cannot = matches!(outcome, Err(Errno::OPNOTSUPP | Errno::NOSYS));
        self.cannot_reserve.store(cannot, Ordering::Release);
        self.is_reserved.store(outcome.is_ok(), Ordering::Release);
        match outcome {
            Ok(()) => self.tell_of_room(),
            Err(_) if cannot => return self.full.is_due(),
            Err(errno) => self.tell_that_it_is_full(errno),
        }
        outcome.is_ok()
    }

    fn tell_of_room(&self) {
        if self.has_told.swap(false, Ordering::AcqRel) {
            tracing::info!(directory = %self.directory().display(), "there is room again for new records of clients");
        }
    }

    fn tell_that_it_is_full(&self, errno: Errno) {
        if self.told.begin_if_due() {
            self.has_told.store(true, Ordering::Release);
            tracing::error!(
                directory = %self.directory().display(),
                error = %io::Error::from(errno),
                "no room for new records of clients: they are turned away until there is some, and records are removed \
                 with the room reserved for that"
            );
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }

    fn allocate(&self, bytes: u64) -> Result<(), Errno> {
        #[cfg(test)]
        super::tests::meet(&self.faults, super::tests::Call::Reserve)
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes)
    }

    /// Notes why a write failed, for whoever tries again.
    fn noted<T>(&self, outcome: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &outcome {
            let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            if is_full {
                self.is_reserved.store(false, Ordering::Release);
                self.full.begin();
            } else {
                self.is_in_doubt.store(true, Ordering::Release);
            }
        }
        outcome
    }

    /// After a failed write: has the disk agree with what the kernel shows of the file. A page whose writing failed is
    /// dropped by the kernel as if it were on the disk (Linux, and what PostgreSQL learnt of it): nothing may be built on
    /// it before it has been written again.
    ///
    /// # Errors
    /// The disk's: it is still in doubt.
    pub(crate) fn settle(&self) -> io::Result<()> {
        if !self.is_in_doubt.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut buffer = vec![0; REWRITTEN_BYTES];
        let bytes = self.file.metadata()?.len();
        let mut at = 0;
        while at < bytes {
            let n = usize::try_from(bytes - at).unwrap_or(REWRITTEN_BYTES).min(REWRITTEN_BYTES);
            self.file.read_exact_at(&mut buffer[..n], at)?;
            self.write_all_at(&buffer[..n], at)?;
            at += n as u64;
        }
        self.force()?;
        self.is_in_doubt.store(false, Ordering::Release);
        Ok(())
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        #[cfg(test)]
        super::tests::meet(&self.faults, super::tests::Call::Write)?;
        self.file.write_all_at(data, offset)
    }

    fn force(&self) -> io::Result<()> {
        #[cfg(test)]
        super::tests::meet(&self.faults, super::tests::Call::Force)?;
        self.file.sync_data()
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        let before = self.file.metadata()?.len();
        if bytes > before {
            match self.allocate(bytes) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        // Shrinking gives up the reserve as well.
        self.is_reserved.store(false, Ordering::Release);
        self.file.set_len(bytes)?;
        self.reserve(bytes);
        Ok(())
    }
}

/// The medium as the tree sees it.
#[derive(Debug)]
pub(crate) struct Below(pub(crate) std::sync::Arc<Medium>);

impl StorageBackend for Below {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.noted(self.0.resize(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        // Whatever the reason: it is not known what of it is on the disk.
        let outcome = self.0.force();
        if outcome.is_err() {
            self.0.is_in_doubt.store(true, Ordering::Release);
        }
        self.0.noted(outcome)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.noted(self.0.write_all_at(data, offset))
    }
}
