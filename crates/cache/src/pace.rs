//! How many batches are on their way at once: as many as keep the server busy, found by watching what one more does to
//! the time a batch takes.

use holdfast_base::Instant;

/// A window that grows while batches come back as fast as ever, and shrinks when they begin to queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    size: usize,
    /// The least time a batch took lately, in milliseconds.
    best_ms: u64,
    best_at: Instant,
    good: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { size: 2, best_ms: u64::MAX, best_at: Instant(0), good: 0 }
    }
}

/// Milliseconds after which the least time is found anew: the path or the server may have changed.
const BEST_FOR_MS: u64 = 10_000;

impl Window {
    pub(crate) fn size(&self, max: usize) -> usize {
        self.size.clamp(1, max.max(1))
    }

    /// A batch took so long. One batch is always allowed; queueing of three times the least time (and 4 ms, below which
    /// differences are the scheduler's) is taken for a server that is busy enough.
    pub(crate) fn took(&mut self, ms: u64, now: Instant, max: usize) {
        if ms <= self.best_ms || now.ms_since(self.best_at) > BEST_FOR_MS {
            self.best_ms = ms;
            self.best_at = now;
        }
        if ms > self.best_ms.saturating_mul(3).saturating_add(4) {
            self.size = (self.size * 3 / 4).max(1);
            self.good = 0;
        } else {
            self.good += 1;
            if self.good >= self.size {
                self.size = (self.size + 1).min(max);
                self.good = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_grows_while_batches_are_fast_and_shrinks_when_they_queue() {
        let mut window = Window::default();
        for i in 0..100 {
            window.took(5, Instant(i), 8);
        }
        assert_eq!(window.size(8), 8);
        for i in 0..20 {
            window.took(60, Instant(100 + i), 8);
        }
        assert_eq!(window.size(8), 1);
    }
}
