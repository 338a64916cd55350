//! From system call errors to the neutral ones, and the errors of opening a backend.

use std::path::PathBuf;

use holdfast_vfs::FsError;
use rustix::io::Errno;

/// The neutral error of a failed system call.
pub(crate) fn fs_error(e: Errno) -> FsError {
    FsError::from_errno(e.raw_os_error())
}

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The exported directory cannot be opened.
    #[error("cannot serve {path:?}: {source}; name a directory that exists and that the server may read")]
    Root {
        /// The directory as given.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The exported path is no directory.
    #[error("cannot serve {path:?}: it is not a directory; export the directory that holds it")]
    NotADirectory {
        /// The path as given.
        path: PathBuf,
    },
    /// The state directory cannot be used.
    #[error(
        "cannot use the state directory {path:?}: {source}; make it writable for the server, or name another"
    )]
    State {
        /// The file or directory at fault.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file in the state directory is damaged.
    #[error(
        "{path:?} is damaged ({reason}); move it away to start afresh: clients then see stale handles and must mount again"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The proc file system is needed to name open files.
    #[error("/proc/self/fd cannot be opened: {source}; mount the proc file system in the server's root")]
    Proc {
        /// What the system said.
        source: std::io::Error,
    },
}

impl OpenError {
    pub(crate) fn state(path: impl Into<PathBuf>, source: impl Into<std::io::Error>) -> Self {
        Self::State { path: path.into(), source: source.into() }
    }
}
