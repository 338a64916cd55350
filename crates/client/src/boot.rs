//! Time that goes on while the machine sleeps. `unsafe` is here for the one call of the C library.
#![allow(unsafe_code)]

use std::time::Duration;

/// Time since the machine started, the time it slept included (`CLOCK_BOOTTIME`). A server counts a lease while this
/// machine sleeps: who wakes must see at once that it is over. [`std::time::Instant`] stands still meanwhile, and is right for
/// what is waited for here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(Duration);

impl BootTime {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes a timespec, which this is. It cannot fail: every Linux has this clock. Not by rustix, which ends the
        // program on a kernel whose vDSO has no `getcpu` (User Mode Linux 7.3).
        unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
        let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
        Self(Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), nanos))
    }

    /// From this moment to now.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }

    /// This moment, so much earlier.
    #[cfg(test)]
    pub(crate) const fn before(self, earlier: Duration) -> Self {
        Self(self.0.saturating_sub(earlier))
    }

    /// This moment and so much later, counted from the machine's start.
    #[must_use]
    pub const fn since_start_and(self, later: Duration) -> Duration {
        self.0.saturating_add(later)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc/uptime` counts the time that the machine slept as well; where it never has, this shows the unit alone.
    #[test]
    fn it_is_the_time_since_the_machine_started() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        let now = BootTime::now();
        assert!((now.0.as_secs_f64() - uptime).abs() < 5.0, "{now:?}, {uptime}");
        assert!(now.elapsed() < Duration::from_secs(5));
    }
}
