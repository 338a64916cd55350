//! Looking for an object that is not where it was seen: a local process has renamed it, or a directory above it. Found
//! when each of them is still in the directory that it was in; what was moved to another one gets stale, until a
//! lookup meets it there.

use std::os::fd::OwnedFd;

use holdfast_base::limits::{BACKEND_LISTING_BUFFER_BYTES, HANDLE_SEARCH_ENTRIES_MAX};
use holdfast_vfs::{FsError, FsResult};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, openat, statx};

use super::rows::{Key, Place, Row, Rows};
use super::{FIND, has_several_names, is_there, open_name, way_to};
use crate::errors::fs_error;
use crate::filesystem::{FileSystem, LOOK};

/// What may still be read of directories for one handle.
struct Search<'a> {
    fs: &'a FileSystem,
    rows: &'a Rows,
    entries_left: usize,
}

/// Opens an object, and corrects the rows of what was renamed. [`FsError::Stale`] when it is not found.
pub(super) fn find(fs: &FileSystem, rows: &Rows, (ino, row): (u64, &Row)) -> FsResult<OwnedFd> {
    let mut search = Search { fs, rows, entries_left: HANDLE_SEARCH_ENTRIES_MAX };
    for place in &row.places {
        match search.at(place, (ino, row)) {
            Err(FsError::Stale) => {}
            other => return other,
        }
    }
    Err(FsError::Stale)
}

impl Search<'_> {
    fn at(&mut self, place: &Place, (ino, row): (u64, &Row)) -> FsResult<OwnedFd> {
        let mut here = openat(&self.fs.top, ".", FIND, Mode::empty()).map_err(fs_error)?;
        let mut above = self.fs.top_ino;
        for (dir, name) in way_to(self.fs, self.rows, place)?.into_iter().rev() {
            let dir_row = self.rows.find(Key { fs: self.fs.key, ino: dir })?.ok_or(FsError::Stale)?;
            here = self.step(&here, &Place { parent: above, name }, (dir, &dir_row))?;
            above = dir;
        }
        self.step(&here, place, (ino, row))
    }

    /// Opens an object in the directory that it was in, under whatever name it has there now.
    fn step(&mut self, dir: &OwnedFd, was: &Place, (ino, row): (u64, &Row)) -> FsResult<OwnedFd> {
        match self.open_if_there(dir, &was.name, (ino, row)) {
            Err(FsError::Stale) => {}
            other => return other.map(|(fd, _)| fd),
        }
        for name in self.names_of(dir, ino)? {
            let Ok((fd, is_one_of_several)) = self.open_if_there(dir, &name, (ino, row)) else { continue };
            let mut row = row.clone();
            row.places.retain(|place| place != was);
            row.seen_at(Place { parent: was.parent, name }, is_one_of_several);
            self.rows.put(Key { fs: self.fs.key, ino }, Some(row))?;
            return Ok(fd);
        }
        Err(FsError::Stale)
    }

    fn open_if_there(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        (ino, row): (u64, &Row),
    ) -> FsResult<(OwnedFd, bool)> {
        let fd = open_name(dir, name)?;
        let st = statx(&fd, "", AtFlags::EMPTY_PATH, LOOK).map_err(fs_error)?;
        if is_there(self.fs, row, ino, &st) { Ok((fd, has_several_names(&st))) } else { Err(FsError::Stale) }
    }

    /// Names in a directory that are said to be of this number.
    fn names_of(&mut self, dir: &OwnedFd, ino: u64) -> FsResult<Vec<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // What we may not read cannot be searched.
        let listing = openat(dir, ".", flags, Mode::empty()).map_err(|_| FsError::Stale)?;
        let mut buffer = Vec::with_capacity(BACKEND_LISTING_BUFFER_BYTES);
        let mut entries = RawDir::new(&listing, buffer.spare_capacity_mut());
        let mut names = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(fs_error)?;
            self.entries_left = self.entries_left.checked_sub(1).ok_or(FsError::Stale)?;
            let name = entry.file_name().to_bytes();
            if entry.ino() == ino && name != b"." && name != b".." {
                names.push(name.to_vec());
            }
        }
        Ok(names)
    }
}
