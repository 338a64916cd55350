//! The same calls on a mount.

use super::op::{How, Op, SLOTS, Seen, Told};
use anyhow::Result;
use rustix::fs::{self as sys, AtFlags, CWD, Mode, OFlags, XattrFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// A mount's directory, and what it has open.
#[derive(Debug)]
pub(crate) struct Real {
    place: PathBuf,
    open: [Option<File>; SLOTS],
}

const NAME: &str = "user.model";
const EBADF: i32 = 9;
const EISDIR: i32 = 21;
const ESTALE: i32 = 116;

fn errno(error: &io::Error) -> Told {
    Told::Errno(error.raw_os_error().unwrap_or(-1))
}

impl Real {
    pub(crate) fn new(place: PathBuf) -> Self {
        Self { place, open: [const { None }; SLOTS] }
    }

    /// All that is there.
    pub(crate) fn tree(&self) -> Told {
        tree(&self.place).map_or_else(|error| Told::Text(format!("{error:#}")), Told::Tree)
    }

    /// What a call gives.
    pub(crate) fn apply(&mut self, op: &Op) -> Told {
        self.call(op).unwrap_or_else(|error| errno(&error))
    }

    fn at(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.place.clone() } else { self.place.join(path) }
    }

    fn file(&self, slot: usize) -> io::Result<&File> {
        self.open[slot].as_ref().ok_or_else(|| io::Error::from_raw_os_error(EBADF))
    }

    fn call(&mut self, op: &Op) -> io::Result<Told> {
        match op {
            Op::Open { path, slot, how } => {
                let file = self.opened(path, *how)?;
                self.open[*slot] = Some(file);
            }
            Op::Close { slot } => {
                self.open[*slot].take().ok_or_else(|| io::Error::from_raw_os_error(EBADF))?;
            }
            Op::Write { slot, offset, bytes } => {
                // `pwrite` of a descriptor to append appends, on Linux.
                return self.file(*slot)?.write_at(bytes, *offset).map(Told::Count);
            }
            Op::Read { slot, offset, length } => return read(self.file(*slot)?, *offset, *length),
            Op::Cut { slot, size } => sys::ftruncate(self.file(*slot)?, *size)?,
            Op::StatOpen { slot } => return Ok(Told::Stat(seen(&self.file(*slot)?.metadata()?))),
            Op::Fsync { slot } => self.file(*slot)?.sync_all()?,
            _ => return self.by_path(op),
        }
        Ok(Told::Done)
    }

    fn opened(&self, path: &str, how: How) -> io::Result<File> {
        let mut flags = match (how.reads, how.writes) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        flags |= OFlags::NOFOLLOW | OFlags::CLOEXEC;
        flags.set(OFlags::CREATE, how.creates.is_some());
        flags.set(OFlags::EXCL, how.exclusive);
        flags.set(OFlags::TRUNC, how.truncates);
        flags.set(OFlags::APPEND, how.appends);
        let mode = Mode::from_raw_mode(how.creates.unwrap_or(0));
        let file = File::from(sys::openat(CWD, self.at(path), flags, mode)?);
        // The model opens no directories. Only they are gone at once when they are removed elsewhere, over NFS, though open.
        let is_dir = match file.metadata() {
            Err(error) if error.raw_os_error() == Some(ESTALE) => true,
            seen => seen?.is_dir(),
        };
        if is_dir { Err(io::Error::from_raw_os_error(EISDIR)) } else { Ok(file) }
    }

    /// Linux cannot take a directory from where it knew it to where another client has moved it while a rename is being
    /// prepared, and says ESTALE; having been looked at there, it is known (it is the same over the kernel's NFS).
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let rename = || std::fs::rename(self.at(from), self.at(to));
        match rename() {
            Err(error) if error.raw_os_error() == Some(ESTALE) => {
                for path in [from, to] {
                    let _ = std::fs::symlink_metadata(self.at(path));
                }
                rename()
            }
            done => done,
        }
    }

    fn by_path(&self, op: &Op) -> io::Result<Told> {
        match op {
            Op::Stat { path } => return Ok(Told::Stat(seen(&std::fs::symlink_metadata(self.at(path))?))),
            Op::Truncate { path, size } => {
                let path = std::ffi::CString::new(self.at(path).into_os_string().into_encoded_bytes())?;
                super::by_name::truncate(&path, *size)?;
            }
            Op::Chmod { path, mode } => {
                std::fs::set_permissions(self.at(path), std::fs::Permissions::from_mode(*mode))?;
            }
            Op::Touch { path, seconds } => {
                let time = rustix::fs::Timespec { tv_sec: *seconds, tv_nsec: 0 };
                let times = sys::Timestamps { last_access: time, last_modification: time };
                sys::utimensat(CWD, self.at(path), &times, AtFlags::empty())?;
            }
            Op::Mkdir { path, mode } => sys::mkdirat(CWD, self.at(path), Mode::from_raw_mode(*mode))?,
            Op::Rmdir { path } => std::fs::remove_dir(self.at(path))?,
            Op::Unlink { path } => sys::unlinkat(CWD, self.at(path), AtFlags::empty())?,
            Op::Rename { from, to } => self.rename(from, to)?,
            Op::Link { from, to } => std::fs::hard_link(self.at(from), self.at(to))?,
            Op::Symlink { path, text } => std::os::unix::fs::symlink(text, self.at(path))?,
            Op::Readlink { path } => {
                let text = std::fs::read_link(self.at(path))?;
                return Ok(Told::Text(text.to_string_lossy().into_owned()));
            }
            Op::List { path } => {
                let names = std::fs::read_dir(self.at(path))?
                    .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
                return names.collect::<io::Result<_>>().map(Told::Names);
            }
            Op::SetXattr { path, value } => {
                sys::setxattr(self.at(path), NAME, &[*value], XattrFlags::empty())?;
            }
            Op::GetXattr { path } => {
                let mut value = vec![0; 64];
                let length = sys::getxattr(self.at(path), NAME, &mut value[..])?;
                value.truncate(length);
                return Ok(Told::Bytes(value));
            }
            _ => return Err(io::Error::from_raw_os_error(22)),
        }
        Ok(Told::Done)
    }
}

fn read(file: &File, offset: u64, length: usize) -> io::Result<Told> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    while done < length {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            more => done += more,
        }
    }
    bytes.truncate(done);
    Ok(Told::Bytes(bytes))
}

fn seen(meta: &std::fs::Metadata) -> Seen {
    let kind = match meta.file_type() {
        kind if kind.is_dir() => 'd',
        kind if kind.is_symlink() => 'l',
        _ => 'f',
    };
    Seen {
        kind,
        mode: meta.mode() & 0o7777,
        links: meta.nlink(),
        size: if kind == 'd' { 0 } else { meta.size() },
        modified: Some(meta.mtime()),
    }
}

/// A short word that tells a file's data from another's.
pub(crate) fn digest(data: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(data);
    format!("{} bytes {:016x}", data.len(), hasher.finish())
}

/// Every path below a directory, with what is there.
pub(crate) fn tree(place: &Path) -> Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    walk(place, "", &mut all)?;
    Ok(all)
}

fn walk(dir: &Path, place: &str, all: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let path = format!("{place}{}", entry.file_name().to_string_lossy());
        let meta = std::fs::symlink_metadata(entry.path())?;
        let mode = meta.mode() & 0o7777;
        let shown = if meta.is_dir() {
            walk(&entry.path(), &format!("{path}/"), all)?;
            format!("directory {mode:o}")
        } else if meta.is_symlink() {
            format!("link {}", std::fs::read_link(entry.path())?.display())
        } else {
            format!("file {mode:o} {}", digest(&std::fs::read(entry.path())?))
        };
        all.insert(path, shown);
    }
    Ok(())
}
