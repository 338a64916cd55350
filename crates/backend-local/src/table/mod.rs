//! Handles for file systems that have none, or that we may not open by handle: rows that say under which directory
//! and name an object was last seen. A row is checked against what stands there whenever it is used.
//!
//! A new row costs one write to a log, which outlives the process; rows go to the database in batches. The log is
//! forced with the commit of what it names.

mod rows;
mod search;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_base::limits::HANDLE_DEPTH_MAX;
use holdfast_vfs::{FsError, FsResult, Handle, RenameFlags};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, openat, statx};

use crate::errors::{OpenError, fs_error};
use crate::filesystem::{FileSystem, FsKind, HandleKind, LOOK, hash_id};
use crate::handles::{self, RowId};
use crate::object::Object;
use rows::{Key, Place, Row, Rows};

/// The table of one state directory. Its files are made when the first file system needs it.
pub(crate) struct Table {
    dir: PathBuf,
    rows: OnceLock<Rows>,
    made: AtomicU64,
}

const FIND: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Birth time as a number; 0 where there is none.
fn birth(st: &Statx) -> u64 {
    let has = st.stx_mask & StatxFlags::BTIME.bits() != 0;
    if has {
        (st.stx_btime.tv_sec as u64).wrapping_mul(1_000_000_000) + u64::from(st.stx_btime.tv_nsec)
    } else {
        0
    }
}

/// Whether what stands at the row's place is the row's object. An overlay's birth time is the upper file's, which
/// is made by the first write to a file of the lower layer; its numbers stay. What another mount covers is not there:
/// its objects have numbers of their own.
fn is_there(fs: &FileSystem, row: &Row, ino: u64, st: &Statx) -> bool {
    st.stx_ino == ino
        && st.stx_mnt_id == fs.top_mount
        && (row.birth == birth(st) || fs.nature.kind == FsKind::Overlay)
}

/// Whether an object may have names beside the one it was found by.
fn has_several_names(st: &Statx) -> bool {
    u32::from(st.stx_mode) & libc::S_IFMT != libc::S_IFDIR && st.stx_nlink > 1
}

/// The directories above a place with the names they were last seen under, the lowest first.
fn way_to(fs: &FileSystem, rows: &Rows, place: &Place) -> FsResult<Vec<(u64, Vec<u8>)>> {
    let mut way = Vec::new();
    let mut above = place.parent;
    while above != fs.top_ino {
        if way.len() >= HANDLE_DEPTH_MAX {
            return Err(FsError::Stale);
        }
        let dir = rows.find(Key { fs: fs.key, ino: above })?.ok_or(FsError::Stale)?;
        let Place { parent, name } = dir.places.into_iter().next().ok_or(FsError::Stale)?;
        way.push((above, name));
        above = parent;
    }
    Ok(way)
}

/// Opens a name on the way to an object; what is not there any more makes its handle stale.
fn open_name(dir: &OwnedFd, name: &[u8]) -> FsResult<OwnedFd> {
    openat(dir, name, FIND, Mode::empty()).map_err(|e| match fs_error(e) {
        FsError::NotFound | FsError::NotDir | FsError::IsSymlink => FsError::Stale,
        e => e,
    })
}

impl Table {
    pub(crate) fn open(dir: &Path) -> Result<Self, OpenError> {
        let table = Self { dir: dir.to_owned(), rows: OnceLock::new(), made: AtomicU64::new(0) };
        if Rows::exist(dir) {
            table.ready()?;
        }
        Ok(table)
    }

    /// Makes the files, so that what is wrong with them is said at the start.
    pub(crate) fn ready(&self) -> Result<(), OpenError> {
        if self.rows.get().is_none() {
            // Only the start and, under the lock of the mounts, a newly met file system come here.
            let _ = self.rows.set(Rows::open(&self.dir)?);
        }
        Ok(())
    }

    fn rows(&self) -> FsResult<&Rows> {
        if self.rows.get().is_none()
            && let Err(error) = self.ready()
        {
            tracing::error!(%error, "no handle table");
        }
        self.rows.get().ok_or(FsError::Io)
    }

    fn top(fs: &FileSystem) -> RowId {
        let generation = hash_id(&[b"top", &fs.key.to_le_bytes(), &fs.top_ino.to_le_bytes()]).minor;
        RowId { ino: fs.top_ino, generation }
    }

    /// The handle of the directory a file system was met at.
    pub(crate) fn enter_top(&self, fs: &FileSystem) -> FsResult<Handle> {
        self.rows()?;
        handles::of_row(fs, Self::top(fs))
    }

    /// The handle of an object just found under a name; makes or corrects its row.
    pub(crate) fn enter(
        &self,
        fs: &FileSystem,
        parent: &Object,
        name: &[u8],
        st: &Statx,
    ) -> FsResult<Handle> {
        if st.stx_ino == fs.top_ino {
            return self.enter_top(fs);
        }
        let rows = self.rows()?;
        let key = Key { fs: fs.key, ino: st.stx_ino };
        let (birth, place) = (birth(st), Place { parent: parent.ino, name: name.to_vec() });
        let known = rows.find(key)?;
        let is_known = |row: &&Row| {
            row.birth == birth && birth != 0
                || row.is_at(&place) && (birth == 0 || fs.nature.kind == FsKind::Overlay)
        };
        let mut row = match known.as_ref().filter(is_known) {
            Some(row) => Row { birth, ..row.clone() },
            None => Row { generation: self.new_generation(key), birth, places: Vec::new() },
        };
        row.seen_at(place, has_several_names(st));
        let id = RowId { ino: st.stx_ino, generation: row.generation };
        if known.as_ref() != Some(&row) {
            rows.put(key, Some(row))?;
        }
        handles::of_row(fs, id)
    }

    fn new_generation(&self, key: Key) -> u64 {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let now = crate::change::wall_nanos();
        hash_id(&[&key.ino.to_le_bytes(), &made.to_le_bytes(), &now.to_le_bytes()]).major
    }

    /// The handle of an object that was entered before.
    pub(crate) fn find(&self, fs: &FileSystem, st: &Statx) -> Option<Handle> {
        if st.stx_ino == fs.top_ino {
            return self.enter_top(fs).ok();
        }
        let row = self.rows().ok()?.find(Key { fs: fs.key, ino: st.stx_ino }).ok()??;
        let id = RowId { ino: st.stx_ino, generation: row.generation };
        is_there(fs, &row, st.stx_ino, st).then(|| handles::of_row(fs, id).ok())?
    }

    /// The same by name.
    pub(crate) fn find_name(&self, dir: &Object, name: &[u8]) -> Option<Handle> {
        let st = statx(dir.fd(), name, AtFlags::SYMLINK_NOFOLLOW, LOOK).ok()?;
        self.find(&dir.fs, &st)
    }

    /// Opens a row's object.
    pub(crate) fn resolve(&self, fs: &FileSystem, id: RowId) -> FsResult<OwnedFd> {
        if id == Self::top(fs) {
            return openat(&fs.top, ".", FIND, Mode::empty()).map_err(fs_error);
        }
        let rows = self.rows()?;
        let row = rows.find(Key { fs: fs.key, ino: id.ino })?.ok_or(FsError::Stale)?;
        if row.generation != id.generation {
            return Err(FsError::Stale);
        }
        for place in &row.places {
            match Self::open_place(fs, rows, place) {
                Ok((here, st)) if is_there(fs, &row, id.ino, &st) => return Ok(here),
                Ok(_) | Err(FsError::Stale) => {}
                Err(e) => return Err(e),
            }
        }
        search::find(fs, rows, (id.ino, &row))
    }

    /// What stands at a place, by the names that its directories were last seen under.
    fn open_place(fs: &FileSystem, rows: &Rows, place: &Place) -> FsResult<(OwnedFd, Statx)> {
        let mut here = openat(&fs.top, ".", FIND, Mode::empty()).map_err(fs_error)?;
        for (_, name) in way_to(fs, rows, place)?.iter().rev() {
            here = open_name(&here, name)?;
        }
        here = open_name(&here, &place.name)?;
        let st = statx(&here, "", AtFlags::EMPTY_PATH, LOOK).map_err(fs_error)?;
        Ok((here, st))
    }

    /// Corrects the rows of what we have renamed.
    pub(crate) fn renamed(
        &self,
        from: (&Object, &[u8]),
        to: (&Object, &[u8]),
        flags: RenameFlags,
    ) -> FsResult<()> {
        self.moved(to.0, to.1)?;
        if flags == RenameFlags::Exchange { self.moved(from.0, from.1) } else { Ok(()) }
    }

    /// Corrects the row of what now stands under a name.
    pub(crate) fn moved(&self, dir: &Object, name: &[u8]) -> FsResult<()> {
        if dir.fs.handles != HandleKind::Table {
            return Ok(());
        }
        let Ok(st) = statx(dir.fd(), name, AtFlags::SYMLINK_NOFOLLOW, LOOK) else { return Ok(()) };
        let rows = self.rows()?;
        let key = Key { fs: dir.fs.key, ino: st.stx_ino };
        match rows.find(key)? {
            Some(mut row) if is_there(&dir.fs, &row, st.stx_ino, &st) => {
                row.seen_at(Place { parent: dir.ino, name: name.to_vec() }, has_several_names(&st));
                rows.put(key, Some(row))
            }
            _ => Ok(()),
        }
    }

    /// Forgets a removed object, so that another with its number gets another handle.
    pub(crate) fn removed(&self, object: &Object) {
        if object.fs.handles == HandleKind::Table
            && let Ok(rows) = self.rows()
            && let Err(error) = rows.put(Key { fs: object.fs.key, ino: object.ino }, None)
        {
            tracing::error!(%error, "a removed object's row stays");
        }
    }

    /// Makes all rows durable.
    pub(crate) fn force(&self) -> FsResult<()> {
        self.rows.get().map_or(Ok(()), Rows::force)
    }
}
