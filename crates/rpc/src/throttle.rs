//! A bound on what remote peers can make us log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Between two lines of one kind.
const INTERVAL: Duration = Duration::from_secs(10);

/// Lets a line through every ten seconds.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    last: Mutex<Option<Instant>>,
}

impl Throttle {
    /// Whether to log now.
    pub(crate) fn may_log(&self) -> bool {
        let now = Instant::now();
        let mut last = self.last.lock();
        let may = last.is_none_or(|at| now.duration_since(at) >= INTERVAL);
        if may {
            *last = Some(now);
        }
        may
    }
}
