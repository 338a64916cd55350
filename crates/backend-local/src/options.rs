//! How a directory is to be served.

use std::path::PathBuf;

use holdfast_base::limits::{BACKEND_DESCRIPTORS_DEFAULT, LOCAL_LEASES_MAX, LOCAL_PLEDGES_MAX};

/// How processes on this host use the directory beside the server, and so what is promised against them
/// (`docs/design/local-processes.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalUse {
    /// Not at all: everything may be promised.
    None,
    /// They may; what they do to what was promised is waited for where the kernel has a lease, and noticed soon
    /// elsewhere.
    #[default]
    Lazy,
    /// They may, and only what a lease of the kernel guards is promised: data of files, nothing of directories.
    Strict,
}

/// Options of [`crate::LocalBackend::open`].
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// Where ids of file systems and the handle table are kept. One directory an export; made when missing.
    pub state_dir: PathBuf,
    /// Descriptors kept of idle objects; cut to a quarter of `RLIMIT_NOFILE`.
    pub descriptors_max: usize,
    /// Whether file systems mounted below the exported directory are served as well. If not, a mount point there
    /// answers [`holdfast_vfs::FsError::Access`].
    pub cross_mounts: bool,
    /// Whether threads keep the identity of their last caller between calls, which saves 1.5 us a call for
    /// callers other than root. The server then calls [`crate::release_thread`] before it touches files of its
    /// own on such a thread.
    pub keep_credentials: bool,
    /// Whether nobody but this backend changes anything below the directory. Changes of directories are then
    /// told as atomic, at the price of a lock each.
    pub is_sole_writer: bool,
    /// How local processes use it. [`LocalOptions::is_sole_writer`] implies [`LocalUse::None`].
    pub local: LocalUse,
    /// Objects guarded against local processes at once; of directories there may be an eighth more.
    pub pledges_max: usize,
    /// Of those, how many may keep a file open for a lease; no more than a quarter of what the process may open.
    pub leases_max: usize,
    /// What the write verifier is made from: another number at every start of the server.
    pub verifier_seed: u64,
}

impl LocalOptions {
    /// The defaults: mounts are crossed, threads get their identity back, others may write, and the verifier is
    /// made from the time of day.
    #[must_use]
    pub fn new(state_dir: PathBuf) -> Self {
        Self {
            state_dir,
            descriptors_max: BACKEND_DESCRIPTORS_DEFAULT,
            cross_mounts: true,
            keep_credentials: false,
            is_sole_writer: false,
            local: LocalUse::default(),
            pledges_max: LOCAL_PLEDGES_MAX,
            leases_max: LOCAL_LEASES_MAX,
            verifier_seed: crate::change::wall_nanos(),
        }
    }
}
