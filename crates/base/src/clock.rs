//! Time as something handed in, so that state machines can be run on a virtual clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Monotonic milliseconds since the clock's own origin. Comparable only within one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Instant {
    /// This moment plus a duration, saturating.
    #[must_use]
    pub const fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment; 0 when `earlier` is later.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A point of calendar time, as files carry it. `nanos` is below 1,000,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

/// A source of monotonic time. Implementations are cheap: callers ask once an operation.
pub trait Clock: Send + Sync {
    /// The current moment.
    fn now(&self) -> Instant;
}

/// The machine's monotonic clock, which stands still while the machine sleeps. For a server that is right: nobody could renew
/// a lease meanwhile, and who is asked to give something back could not; with a clock that goes on all leases would be over
/// when it wakes, while to stand still lets them last longer than their holders count on. Holders must not count by this one
/// (`holdfast_client::BootTime`).
#[derive(Debug)]
pub struct SystemClock {
    origin: std::time::Instant,
}

impl SystemClock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    /// A clock that shows so many milliseconds now: that of another process, gone on with. On a machine that has not
    /// run for so long the origin is its start, and the clock shows less; nothing then lasts shorter than it should.
    #[must_use]
    pub fn showing(ms: u64) -> Self {
        let now = std::time::Instant::now();
        let origin = now.checked_sub(Duration::from_millis(ms));
        Self { origin: origin.unwrap_or(now) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        let ms = self.origin.elapsed().as_millis();
        Instant(u64::try_from(ms).unwrap_or(u64::MAX))
    }
}

/// A clock that moves only when told to: for tests and simulation.
#[derive(Debug, Default)]
pub struct ManualClock {
    ms: AtomicU64,
}

impl ManualClock {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let ms = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
        self.ms.fetch_add(ms, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        Instant(self.ms.load(Ordering::Relaxed))
    }
}
