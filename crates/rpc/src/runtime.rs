//! The threads of a server.

use std::io;
use std::num::NonZero;

use tokio::runtime::{Builder, Runtime};

/// The runtime that the network part runs on: more workers than cores, because calls run inline on them and some
/// wait after all, and others serve the connections meanwhile ([`crate::Server`]: as few at a time as can).
///
/// # Errors
/// When the threads cannot be made.
pub fn runtime(workers: Option<NonZero<usize>>) -> io::Result<Runtime> {
    let workers = workers.map_or_else(|| (4 * cores()).max(8), NonZero::get);
    Builder::new_multi_thread().worker_threads(workers).thread_name("worker").enable_all().build()
}

/// Cores this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}
