//! Replies and notifications as bytes.

use std::time::Duration;

use holdfast_base::Timestamp;

use crate::abi::OUT_HEADER_BYTES;
use crate::abi::fields::Put;
use crate::flags::OpenedFlags;
use crate::types::{Attr, AttrReply, Entry, EntryKind, LockMode, LockSpan, Opened, Statfs, StatxReply};

/// Bytes of an [`Entry`].
pub const ENTRY_BYTES: usize = 128;

/// Bytes of an entry of a listing before its name.
pub const DIRENT_BYTES: usize = 24;

/// Appends a header with a length to be filled in by [`finish`].
pub fn header(out: &mut Vec<u8>, unique: u64, error: i32) {
    out.put_u32(0);
    out.put_u32(error.cast_unsigned());
    out.put_u64(unique);
}

/// Fills in the length of the message that begins `out`, `more` bytes of which are sent from elsewhere.
pub fn finish(out: &mut [u8], more: usize) {
    // Messages are bounded by the largest READ: 32 bits hold their length.
    let bytes = u32::try_from(out.len() + more).unwrap_or(u32::MAX);
    if let Some(length) = out.first_chunk_mut::<4>() {
        *length = bytes.to_ne_bytes();
    }
}

/// A reply that is an error number alone (0 for success).
#[must_use]
pub fn status(unique: u64, errno: i32) -> [u8; OUT_HEADER_BYTES] {
    let mut reply = [0; OUT_HEADER_BYTES];
    reply[..4].copy_from_slice(&16u32.to_ne_bytes());
    reply[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    reply[8..].copy_from_slice(&unique.to_ne_bytes());
    reply
}

fn time(out: &mut Vec<u8>, at: Timestamp) {
    out.put_u64(at.seconds.cast_unsigned());
}

fn validity(valid: Duration) -> (u64, u32) {
    // The kernel's arithmetic has signed seconds; a hundred years are for ever.
    (valid.as_secs().min(u64::from(u32::MAX)), valid.subsec_nanos())
}

/// Appends attributes.
pub fn attr(out: &mut Vec<u8>, a: &Attr) {
    out.put_u64(a.ino);
    out.put_u64(a.size);
    out.put_u64(a.blocks);
    time(out, a.atime);
    time(out, a.mtime);
    time(out, a.ctime);
    out.put_u32(a.atime.nanos);
    out.put_u32(a.mtime.nanos);
    out.put_u32(a.ctime.nanos);
    out.put_u32(a.mode);
    out.put_u32(a.nlink);
    out.put_u32(a.uid);
    out.put_u32(a.gid);
    out.put_u32(a.rdev.encode());
    out.put_u32(a.blksize);
    out.put_u32(0);
}

/// Appends the reply to GETATTR and SETATTR.
pub fn attr_reply(out: &mut Vec<u8>, reply: &AttrReply) {
    let (seconds, nanos) = validity(reply.valid);
    out.put_u64(seconds);
    out.put_u32(nanos);
    out.put_u32(0);
    attr(out, &reply.attr);
}

/// Appends an object found or made.
pub fn entry(out: &mut Vec<u8>, entry: &Entry) {
    let (name_seconds, name_nanos) = validity(entry.entry_valid);
    let (attr_seconds, attr_nanos) = validity(entry.attr_valid);
    out.put_u64(entry.node.0);
    out.put_u64(entry.generation);
    out.put_u64(name_seconds);
    out.put_u64(attr_seconds);
    out.put_u32(name_nanos);
    out.put_u32(attr_nanos);
    attr(out, &entry.attr);
}

/// Appends an opened file. Passthrough is asked for where a backing file is named, without the flags that the kernel
/// refuses beside it.
pub fn opened(out: &mut Vec<u8>, opened: &Opened) {
    let mut flags = opened.flags.without(OpenedFlags::PASSTHROUGH);
    if opened.backing.is_some() {
        let beside = OpenedFlags::DIRECT_IO | OpenedFlags::PARALLEL_DIRECT_WRITES | OpenedFlags::NOFLUSH;
        flags = flags.intersection(beside) | OpenedFlags::PASSTHROUGH;
    }
    out.put_u64(opened.file.0);
    out.put_u32(flags.bits());
    out.put_u32(opened.backing.map_or(0, |id| id.0.cast_unsigned()));
}

/// Appends the reply to STATX.
pub fn statx(out: &mut Vec<u8>, reply: &StatxReply) {
    const BASIC: u32 = 0x7ff;
    const BTIME: u32 = 0x800;
    let a = &reply.attr;
    let (seconds, nanos) = validity(reply.valid);
    out.put_u64(seconds);
    out.put_u32(nanos);
    out.put_zeros(4 + 16);
    out.put_u32(BASIC | if reply.btime.is_some() { BTIME } else { 0 });
    out.put_u32(a.blksize);
    out.put_u64(reply.attributes);
    out.put_u32(a.nlink);
    out.put_u32(a.uid);
    out.put_u32(a.gid);
    // A mode has 16 bits.
    out.put_u16(u16::try_from(a.mode & 0xffff).unwrap_or(0));
    out.put_u16(0);
    out.put_u64(a.ino);
    out.put_u64(a.size);
    out.put_u64(a.blocks);
    out.put_u64(reply.attributes_mask);
    let born = reply.btime.unwrap_or(Timestamp { seconds: 0, nanos: 0 });
    for at in [a.atime, born, a.ctime, a.mtime] {
        time(out, at);
        out.put_u32(at.nanos);
        out.put_u32(0);
    }
    out.put_u32(a.rdev.major);
    out.put_u32(a.rdev.minor);
    out.put_zeros(8 + 14 * 8);
}

/// Appends the reply to STATFS.
pub fn statfs(out: &mut Vec<u8>, s: &Statfs) {
    out.put_u64(s.blocks);
    out.put_u64(s.blocks_free);
    out.put_u64(s.blocks_available);
    out.put_u64(s.files);
    out.put_u64(s.files_free);
    out.put_u32(s.block_bytes);
    out.put_u32(s.name_bytes_max);
    out.put_u32(s.fragment_bytes);
    out.put_zeros(4 + 24);
}

/// Appends the reply to GETLK: the lock in the way, or that there is none.
pub fn lock(out: &mut Vec<u8>, found: Option<&LockSpan>) {
    let none = LockSpan { start: 0, end: 0, mode: LockMode::Unlock, pid: 0 };
    let span = found.unwrap_or(&none);
    let kind = match span.mode {
        LockMode::Read => libc::F_RDLCK,
        LockMode::Write => libc::F_WRLCK,
        LockMode::Unlock => libc::F_UNLCK,
    };
    out.put_u64(span.start);
    // Beyond the kernel's largest offset it answers EIO.
    out.put_u64(span.end.min(i64::MAX.cast_unsigned()));
    out.put_u32(kind.cast_unsigned());
    out.put_u32(span.pid);
}

/// Appends an entry of a listing. The caller has seen to the room ([`dirent_bytes`]).
pub fn dirent(out: &mut Vec<u8>, ino: u64, next: u64, kind: EntryKind, name: &[u8]) {
    out.put_u64(ino);
    out.put_u64(next);
    out.put_u32(u32::try_from(name.len()).unwrap_or(u32::MAX));
    out.put_u32(kind.0);
    out.extend_from_slice(name);
    out.put_zeros(name.len().next_multiple_of(8) - name.len());
}

/// Bytes that an entry with this name takes.
#[must_use]
pub const fn dirent_bytes(name: &[u8]) -> usize {
    DIRENT_BYTES + name.len().next_multiple_of(8)
}

#[cfg(test)]
mod tests;
