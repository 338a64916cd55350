//! Between the kernel's words and the machine's.

use std::time::Duration;

use holdfast_fuse as fuse;
use holdfast_volume::cache;
use holdfast_volume::cache::{Access, Attrs, Changes, Errno, Kind};
use rustix::fs::FileType;

/// Bytes good for one transfer, as `stat` tells programs that ask: what one request holds at most.
const BLOCK_BYTES: u32 = 128 << 10;

pub(super) fn node(node: fuse::NodeId) -> cache::NodeId {
    cache::NodeId(node.0)
}

pub(super) fn fh(file: fuse::FileHandle) -> cache::Fh {
    cache::Fh(file.0)
}

/// What is told is believed until the kernel is told otherwise, or not at all.
pub(super) fn validity(is_valid: bool) -> Duration {
    if is_valid { fuse::FOREVER } else { Duration::ZERO }
}

pub(super) fn errno(errno: Errno) -> rustix::io::Errno {
    rustix::io::Errno::from_raw_os_error(errno.0)
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Block => FileType::BlockDevice,
        Kind::Char => FileType::CharacterDevice,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
    }
}

pub(super) fn type_bits(kind: Kind) -> u32 {
    file_type(kind).as_raw_mode()
}

pub(super) fn kind_of(mode: u32) -> Option<Kind> {
    Some(match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        FileType::BlockDevice => Kind::Block,
        FileType::CharacterDevice => Kind::Char,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::Unknown => return None,
    })
}

pub(super) fn attr(attrs: &Attrs) -> fuse::Attr {
    fuse::Attr {
        ino: attrs.fileid,
        size: attrs.size,
        blocks: attrs.allocated.div_ceil(512),
        atime: attrs.atime,
        mtime: attrs.mtime,
        ctime: attrs.ctime,
        mode: type_bits(attrs.kind) | attrs.mode & 0o7777,
        nlink: attrs.nlink,
        uid: attrs.uid,
        gid: attrs.gid,
        rdev: fuse::Device { major: attrs.device.major, minor: attrs.device.minor },
        blksize: BLOCK_BYTES,
    }
}

pub(super) fn entry(entry: &cache::Entry) -> fuse::Entry {
    fuse::Entry {
        node: fuse::NodeId(entry.node.0),
        generation: 0,
        attr: attr(&entry.attrs),
        entry_valid: validity(entry.entry_valid),
        attr_valid: validity(entry.attr_valid),
    }
}

pub(super) fn attributes(told: &cache::Attributes) -> fuse::AttrReply {
    fuse::AttrReply { attr: attr(&told.attrs), valid: validity(told.valid) }
}

pub(super) fn changes(set: &fuse::SetAttr) -> Changes {
    let time = |time: fuse::SetTime| match time {
        fuse::SetTime::Now => cache::SetTime::Now,
        fuse::SetTime::At(time) => cache::SetTime::At(time),
    };
    Changes {
        mode: set.mode.map(|mode| mode & 0o7777),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set.atime.map(time),
        mtime: set.mtime.map(time),
    }
}

pub(super) fn open_flags(flags: fuse::OpenFlags) -> cache::OpenFlags {
    cache::OpenFlags {
        access: Access { read: flags.may_read(), write: flags.may_write() },
        append: flags.contains(fuse::OpenFlags::APPEND),
        truncate: flags.contains(fuse::OpenFlags::TRUNCATE),
        exclusive: flags.contains(fuse::OpenFlags::EXCLUSIVE),
        execute: flags.contains(fuse::OpenFlags::EXECUTE),
    }
}

/// `is_quiet`: nothing but what the cache wants to hear has its closes told.
pub(super) fn opened(
    opened: &cache::Opened,
    backing: Option<fuse::BackingId>,
    is_quiet: bool,
) -> fuse::Opened {
    let pages = match opened {
        // Both together the kernel takes for the first.
        cache::Opened { is_direct: true, .. } if backing.is_none() => fuse::OpenedFlags::DIRECT_IO,
        cache::Opened { keep_cache: true, .. } => fuse::OpenedFlags::KEEP_CACHE,
        _ => fuse::OpenedFlags::NONE,
    };
    let is_told = opened.is_flushed || !is_quiet;
    let flags = if is_told { pages } else { pages | fuse::OpenedFlags::NOFLUSH };
    fuse::Opened { file: fuse::FileHandle(opened.fh.0), flags, backing }
}

pub(super) fn opened_dir(opened: &cache::OpenedDir) -> fuse::Opened {
    let keeps = if opened.keeps { fuse::OpenedFlags::CACHE_DIR } else { fuse::OpenedFlags::NONE };
    let kept = if opened.keep_cache { fuse::OpenedFlags::KEEP_CACHE } else { fuse::OpenedFlags::NONE };
    fuse::Opened { file: fuse::FileHandle(opened.fh.0), flags: keeps | kept, backing: None }
}
