//! What becomes of advice about a range of a file: it is brought into memory, or memory is freed of it. Only what concerns the range
//! itself is followed; how a file is read is a property of an open file (`posix_fadvise(2)`), and those are shared.

use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::ByteRange;
use holdfast_base::limits::WILL_NEED_BYTES_MAX;
use holdfast_vfs::{Advice, Advised, Cx, File, FsError, FsResult};
use rustix::fs::fadvise;

use crate::errors::fs_error;
use crate::local::LocalBackend;
use crate::looks;
use crate::object::{For, Object};
use crate::opening::local_file;
use crate::sys::{self, CachedPages};

impl LocalBackend {
    /// See [`holdfast_vfs::Backend::advise`].
    ///
    /// What is not on disk is not waited for here: the descriptor that hears of an error of write-back is that of the commit to
    /// come (`dirty.rs`), and an error that was heard of here it would not be told.
    pub(crate) fn do_advise(
        &self,
        cx: &Cx<'_>,
        file: File<'_>,
        range: ByteRange,
        what: Advice,
    ) -> FsResult<Advised> {
        let (object, fd) = self.advisable(cx, file)?;
        if object.fs.nature.kind.is_in_memory() {
            return Ok(Advised::NotFollowed);
        }
        // Requests to the disk are queued, and pages that another processor has just put in are waited for.
        if !cx.wait.may_last() {
            return Err(FsError::WouldBlock);
        }
        let (first, size) = (range.first(), looks::size_of(&fd)?);
        if first >= size {
            return Ok(Advised::Followed);
        }
        // Of a page that a range covers in part nothing is dropped, so the file's last one goes with its last byte.
        let within = range.last().min(size - 1) - first + 1;
        let bytes = if range.last() >= size - 1 { 0 } else { within };
        let (bytes, how) = match what {
            Advice::WillNeed => (within.min(WILL_NEED_BYTES_MAX), rustix::fs::Advice::WillNeed),
            Advice::DontNeed if is_unwritten(&object, sys::cached(&fd, first, bytes)) => {
                return Ok(Advised::OnceCommitted);
            }
            Advice::DontNeed => (bytes, rustix::fs::Advice::DontNeed),
        };
        fadvise(&*fd, first, NonZero::new(bytes), how).map_err(fs_error)?;
        Ok(Advised::Followed)
    }

    /// A descriptor of a file that the caller may read, or else write.
    fn advisable(&self, cx: &Cx<'_>, file: File<'_>) -> FsResult<(Arc<Object>, Arc<OwnedFd>)> {
        match file {
            File::Open(_, open) => {
                let open = local_file(open)?;
                Ok((Arc::clone(&open.object), Arc::clone(&open.fd)))
            }
            File::Stateless(handle) => {
                let object = self.resolve(cx.wait, handle)?;
                let st = object.look_shared()?;
                let fd = match self.stateless(cx, &object, For::Reading, &st) {
                    Err(FsError::Access) => self.stateless(cx, &object, For::Writing, &st),
                    other => other,
                };
                Ok((object, fd?))
            }
        }
    }
}

/// Where the kernel does not tell, what was written here counts.
fn is_unwritten(object: &Object, cached: Option<CachedPages>) -> bool {
    cached.map_or_else(|| object.is_dirty.load(Ordering::SeqCst), CachedPages::is_unwritten)
}
