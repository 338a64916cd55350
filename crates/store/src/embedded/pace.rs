//! How often something is done again.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Something that is done at most once in a while.
#[derive(Debug)]
pub(crate) struct Pace {
    every: Duration,
    last: Mutex<Option<Instant>>,
}

impl Pace {
    pub(crate) const fn new(every_ms: u64) -> Self {
        Self { every: Duration::from_millis(every_ms), last: Mutex::new(None) }
    }

    /// Whether it was not done for so long.
    pub(crate) fn is_due(&self) -> bool {
        self.last.lock().is_none_or(|last| last.elapsed() >= self.every)
    }

    /// It is done now.
    pub(crate) fn begin(&self) {
        *self.last.lock() = Some(Instant::now());
    }

    /// As `begin`, when it is due; whether it was.
    pub(crate) fn begin_if_due(&self) -> bool {
        let mut last = self.last.lock();
        let is_due = last.is_none_or(|last| last.elapsed() >= self.every);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}
