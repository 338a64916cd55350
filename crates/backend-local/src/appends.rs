//! Writing at the end of a file: the kernel finds out where that is, under the file's own lock, so that neither a local process nor
//! another client writes there meanwhile.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use holdfast_vfs::{Appended, Cx, File, FsError, FsResult};
use rustix::io::{Errno, ReadWriteFlags};

use crate::errors::fs_error;
use crate::local::LocalBackend;
use crate::looks::{self, Begun};
use crate::object::For;

impl LocalBackend {
    /// To be called for one append of a file at a time: where it was is read off the descriptor.
    pub(crate) fn do_append(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        data: &[u8],
        about_to: &mut dyn FnMut(u64) -> FsResult<()>,
    ) -> FsResult<Appended> {
        let object = self.object_of(cx, file)?;
        let (writes, before) = self.before_write(&object)?;
        let fd = match file {
            File::Stateless(_) => self.stateless(cx, &object, For::Writing, &before.st)?,
            File::Open(..) => self.writable(cx, &object, file)?,
        };
        about_to(looks::size_of(&fd)?)?;
        let appended = {
            let _acting = self.identity.act_as(cx.caller)?;
            append(&fd, data)
        };
        // As for a write.
        self.mark_dirty(&object, &fd)?;
        let appended = appended?;
        self.note_change(&object);
        writes.go_on(Begun::from(before));
        Ok(appended)
    }
}

/// Where no position is given the descriptor's own is moved, which nothing else here uses.
const AT_ITS_OWN: u64 = u64::MAX;

/// In one call, so that it lies together. Less is written where space runs out.
fn append(fd: &OwnedFd, data: &[u8]) -> FsResult<Appended> {
    loop {
        match rustix::io::pwritev2(fd, &[IoSlice::new(data)], AT_ITS_OWN, ReadWriteFlags::APPEND) {
            Ok(0) if !data.is_empty() => return Err(FsError::Io),
            Ok(bytes) => {
                let end = rustix::fs::tell(fd).map_err(fs_error)?;
                return Ok(Appended { offset: end.saturating_sub(bytes as u64), bytes });
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(fs_error(error)),
        }
    }
}
