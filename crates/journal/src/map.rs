//! The mapped file: with the call of an instruction in `crc.rs`, the only unsafe code of the crate. Every access is checked
//! against the length; a place outside is a defect of ours and panics before it touches memory.
//!
//! The file is private (0600), locked, and all its blocks are reserved before it is mapped, so that a store never
//! meets a full disk. Somebody with the server's own rights who truncates it makes the next store fail with
//! SIGBUS, as he could kill the server by other means.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// A multiple of the size of a page wherever it is one.
const PAGE_BYTES_MAX: usize = 64 << 10;

/// A shared, writable mapping of a whole file.
pub(crate) struct Map {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the `Map` alone and is freed by its drop; nothing in it is tied to a thread.
// (`Sync` is not claimed: all writing goes through `&mut`, and the journal keeps the map behind a mutex.)
unsafe impl Send for Map {}

impl Map {
    /// Maps the first `len` bytes of `file`, which is at least that long.
    pub(crate) fn new(file: &File, len: usize) -> io::Result<Self> {
        if len == 0 || file.metadata()?.len() < len as u64 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice aliases nothing that Rust knows of.
        let start = unsafe { mmap(std::ptr::null_mut(), len, flags, MapFlags::SHARED, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    /// Has the kernel bring in a stretch, so that a disk that cannot read it is an error here, and not a signal when it is
    /// looked at. False where it cannot be asked to (before Linux 5.14), or it could not be read.
    pub(crate) fn bring_in(&self, at: usize, len: usize) -> bool {
        let page = rustix::param::page_size();
        let from = at / page * page;
        let end = at.checked_add(len).filter(|end| *end <= self.len);
        let Some(end) = end else { return false };
        // SAFETY: `from..end` lies inside the mapping, which begins at a page, and bringing in changes nothing in it.
        unsafe {
            let start = self.start.as_ptr().add(from);
            madvise(start.cast(), end - from, Advice::LinuxPopulateRead).is_ok()
        }
    }

    /// Takes a stretch out of this process's page tables, all at once; the file's pages keep what was stored. Else the kernel, when it
    /// writes them back, takes each page by itself, and interrupts every processor that runs this process for it.
    pub(crate) fn let_go(&mut self, at: usize, len: usize) {
        let from = at / PAGE_BYTES_MAX * PAGE_BYTES_MAX;
        let end = at.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "letting go outside of the map");
        // SAFETY: `from..at + len` lies inside the mapping (asserted). It is shared and of a file, so whoever looks there again finds
        // the same bytes.
        let done = unsafe {
            let start = self.start.as_ptr().add(from);
            madvise(start.cast(), at + len - from, Advice::LinuxDontNeed)
        };
        // Refused (locked memory, larger pages), it costs what it did.
        let _ = done;
    }

    /// Writes a record so that it is there as a whole or not at all for whoever reads the file after this process
    /// was killed: the first 4 bytes of `head` are stored last, by one store, and are 0 until then.
    ///
    /// A process is killed between two of its instructions, and what the earlier ones stored is in the page
    /// cache; so it is the order of instructions that matters, which the
    /// compiler fence and the releasing store fix. `at` is a multiple of 4.
    #[inline]
    pub(crate) fn publish(&mut self, at: usize, head: &[u8; 32], key: &[u8], payload: &[u8]) {
        let end = at.checked_add(head.len() + key.len() + payload.len());
        assert!(at.is_multiple_of(4) && end.is_some_and(|end| end <= self.len), "record outside of the map");
        let (commit, rest) = head.split_at(4);
        // Holds: split_at(4) of 32 bytes.
        let commit = u32::from_le_bytes([commit[0], commit[1], commit[2], commit[3]]).to_le();
        // SAFETY: `at..end` lies inside the mapping (asserted above), `at` is aligned for a u32 because mappings
        // start at a page, the sources are separate Rust objects, and `&mut self` excludes other accesses.
        unsafe {
            let base = self.start.as_ptr().add(at);
            let word = AtomicU32::from_ptr(base.cast());
            word.store(0, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            base.add(4).copy_from_nonoverlapping(rest.as_ptr(), rest.len());
            base.add(32).copy_from_nonoverlapping(key.as_ptr(), key.len());
            base.add(32 + key.len()).copy_from_nonoverlapping(payload.as_ptr(), payload.len());
            word.store(commit, Ordering::Release);
        }
    }

    /// Writes bytes that need no commit: the header of a file that nobody has opened yet.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = at.checked_add(bytes.len());
        assert!(end.is_some_and(|end| end <= self.len), "write outside of the map");
        // SAFETY: `at..end` lies inside the mapping (asserted), `bytes` is a separate Rust object, and `&mut self`
        // excludes other accesses.
        unsafe { self.start.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }

    /// Writes zeros, where nothing else has been written yet.
    pub(crate) fn clear(&mut self, at: usize, len: usize) {
        let end = at.checked_add(len);
        assert!(end.is_some_and(|end| end <= self.len), "write outside of the map");
        // SAFETY: `at..end` lies inside the mapping (asserted), and `&mut self` excludes other accesses.
        unsafe { self.start.as_ptr().add(at).write_bytes(0, len) }
    }

    /// All of it. No other process writes to the file meanwhile: it is locked.
    pub(crate) const fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this length and lives as long as the borrow, and writers need `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        let end = at.checked_add(into.len());
        assert!(end.is_some_and(|end| end <= self.len), "read outside of the map");
        // SAFETY: `at..end` lies inside the mapping (asserted), `into` is a separate Rust object, and writers need
        // `&mut self`.
        unsafe { self.start.as_ptr().add(at).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this start and length, and nobody holds a pointer into it.
        // An error would mean a bad range, which leaves nothing to undo.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
