//! `/proc/self/fd`: the way from an `O_PATH` descriptor to what needs a path or a real descriptor.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use holdfast_vfs::{FsError, FsResult};
use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;

use crate::errors::{OpenError, fs_error};
use crate::mounts::relative;
use crate::sys;

/// The directory of our own descriptors, kept open so that a changed root or a late unmount of proc does not
/// matter.
pub(crate) struct ProcFd(OwnedFd);

/// A descriptor's name in it.
pub(crate) struct FdName([u8; 11]);

impl FdName {
    pub(crate) fn new(fd: impl AsFd) -> Self {
        let mut digits = [0; 11];
        let mut n = fd.as_fd().as_raw_fd().unsigned_abs();
        let len = n.checked_ilog10().unwrap_or(0) as usize + 1;
        for slot in digits[..len].iter_mut().rev() {
            *slot = b'0' + (n % 10) as u8;
            n /= 10;
        }
        Self(digits)
    }

    /// The name with the NUL behind it.
    pub(crate) fn as_c_str(&self) -> &CStr {
        // A descriptor has at most ten digits, so the eleventh byte is always 0.
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        let len = self.0.iter().position(|b| *b == 0).unwrap_or(self.0.len());
        &self.0[..len]
    }
}

impl ProcFd {
    pub(crate) fn open() -> Result<Self, OpenError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, "/proc/self/fd", flags, Mode::empty())
            .map(Self)
            .map_err(|e| OpenError::Proc { source: e.into() })
    }

    /// Opens the same object anew, judged by the thread's present rights. Never waits for the other side of a
    /// pipe or device: the caller has made sure that it is neither.
    pub(crate) fn reopen(&self, object: impl AsFd, flags: OFlags) -> FsResult<OwnedFd> {
        let name = FdName::new(object);
        match openat(&self.0, name.as_bytes(), flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty()) {
            // A local process holds a lease, which this open has begun to break.
            Err(Errno::AGAIN) => Err(FsError::Delay),
            other => other.map_err(fs_error),
        }
    }

    /// A descriptor of the same object that is for nothing but finding it (`O_PATH`).
    pub(crate) fn path_only(&self, object: impl AsFd) -> FsResult<OwnedFd> {
        // Not there before Linux 5.2, nor where it passes for one of those that mount, and is forbidden with them.
        sys::open_same_path(&object).or_else(|_| self.reopen(object, OFlags::PATH))
    }

    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Where an object is at the moment.
    pub(crate) fn path_of(&self, object: impl AsFd) -> FsResult<PathBuf> {
        use std::os::unix::ffi::OsStringExt as _;
        let name = FdName::new(object);
        let text = readlinkat(&self.0, name.as_bytes(), Vec::new()).map_err(fs_error)?;
        Ok(PathBuf::from(std::ffi::OsString::from_vec(text.into_bytes())))
    }

    /// Where an object is below `root`.
    pub(crate) fn path_below(&self, object: impl AsFd, root: impl AsFd) -> FsResult<Vec<u8>> {
        let (object, root) = (self.path_of(object)?, self.path_of(root)?);
        relative(&object, &root).ok_or(FsError::Stale)
    }

    /// A path that names the object for calls that take nothing else.
    pub(crate) fn name_of(object: impl AsFd) -> Vec<u8> {
        let mut path = b"/proc/self/fd/".to_vec();
        path.extend_from_slice(FdName::new(object).as_bytes());
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_named_in_decimal() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(FdName::new(&file).as_bytes(), file.as_raw_fd().to_string().as_bytes());
    }
}
