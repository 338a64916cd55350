//! What the process asks of the system at its start.
#![allow(unsafe_code)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes the process fit for serving: all descriptors it may have, since caches and connections are bounded by them,
/// and an error instead of a signal where a file would grow beyond a limit set for the process.
pub(crate) fn prepare() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        tracing::debug!(%error, "the limit of descriptors stays as it was");
    }
    // SAFETY: ignoring a signal installs no handler, so no code of ours runs in signal context.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
