//! Passthrough: reads and writes of an open file go to another file, and never enter the daemon.
//!
//! What holds (docs/design/fuse.md): it needs CAP_SYS_ADMIN in the initial user namespace at the time of registering;
//! the kernel reopens the file's path with the flags of the FUSE open and the daemon's credentials; while one open of a
//! file passes through, every further open must name the same backing file; there is no way out before the last close.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;

use crate::sys;

/// A file registered for passthrough.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BackingId(pub(crate) i32);

/// Why a file could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PassthroughError {
    /// The kernel is older than 6.9, or was built without it, or the session did not ask for it.
    #[error("passthrough was not agreed on with the kernel")]
    NotOffered,
    /// The daemon lacks CAP_SYS_ADMIN.
    #[error("passthrough is not permitted: it needs CAP_SYS_ADMIN")]
    NotPermitted,
    /// The file lies on a file system that is stacked too deep (overlay, another passthrough), or is no regular file.
    #[error("the file cannot be a backing file: {0}")]
    Unsuitable(Errno),
}

/// Registers files. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Passthrough {
    device: Arc<OwnedFd>,
    is_offered: bool,
}

impl Passthrough {
    pub(crate) const fn new(device: Arc<OwnedFd>, is_offered: bool) -> Self {
        Self { device, is_offered }
    }

    /// Whether it was agreed on. Registering may still not be permitted.
    #[must_use]
    pub const fn is_offered(&self) -> bool {
        self.is_offered
    }

    /// Registers a file; to be named in [`crate::Opened::backing`]. The registration is kept until [`Self::close`], by
    /// reference of the kernel's own: the descriptor may be closed at once, and the registration as soon as OPEN was
    /// answered.
    ///
    /// # Errors
    /// [`PassthroughError`].
    pub fn open(&self, file: BorrowedFd<'_>) -> Result<BackingId, PassthroughError> {
        if !self.is_offered {
            return Err(PassthroughError::NotOffered);
        }
        sys::open_backing(&*self.device, file).map(BackingId).map_err(|errno| match errno {
            Errno::PERM | Errno::ACCESS => PassthroughError::NotPermitted,
            Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS => PassthroughError::NotOffered,
            other => PassthroughError::Unsuitable(other),
        })
    }

    /// Gives a registration up; open files keep it.
    pub fn close(&self, id: BackingId) {
        // It can fail only for a number that is not registered, which is what was wanted.
        let _ = sys::close_backing(&*self.device, id.0);
    }
}
