//! Memory that was needed for a while and is free again, which the C library keeps for later: glibc gives back only what lies at the
//! end of an arena, and a daemon of many threads has many arenas. So after a burst of work it would stay as large as it ever was.
//! Decides when it is worth looking through all of them; never touches what is in use.
#![allow(unsafe_code)]

use std::time::{Duration, Instant};

/// How often to look: looking costs a read of `/proc`, giving back some milliseconds a GiB.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// What may be kept beyond what was needed least: less is not worth the page faults when it is needed again.
const KEPT_BYTES: u64 = 32 << 20;

/// The same as a part of that: a process that needs much may keep more.
const KEPT_PART: u64 = 4;

/// Gives free memory back to the kernel. Milliseconds for each GiB; who allocates meanwhile waits.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it has no preconditions, and takes the allocator's own locks.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Watches how large the process is, and gives back what it grew by and does not need any more.
#[derive(Debug, Default)]
pub struct Surplus {
    /// Bytes in memory when it was smallest since it last gave back.
    least: Option<u64>,
    looked_at: Option<Instant>,
}

impl Surplus {
    /// Looks, now and then. To be called about once a second; may take milliseconds.
    pub fn tick(&mut self, now: Instant) {
        if self.looked_at.is_some_and(|at| now.saturating_duration_since(at) < LOOK_EVERY) {
            return;
        }
        self.looked_at = Some(now);
        let Some(resident) = resident_bytes() else { return };
        if self.is_due(resident) {
            give_back();
            // What is left is needed, or was needed a moment ago.
            self.least = resident_bytes();
        }
    }

    fn is_due(&mut self, resident: u64) -> bool {
        let least = self.least.map_or(resident, |least| least.min(resident));
        self.least = Some(least);
        resident > least + KEPT_BYTES.max(least / KEPT_PART)
    }
}

/// How much of the process is in memory; `None` where nothing tells.
fn resident_bytes() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_when_much_was_added_to_the_least_that_was_needed() {
        const MIB: u64 = 1 << 20;
        let mut surplus = Surplus::default();
        let due = [100, 130, 60, 90, 93].map(|mib| surplus.is_due(mib * MIB));
        assert_eq!(due, [false, false, false, false, true]);
        let mut large = Surplus::default();
        assert_eq!([1000, 1200, 1251].map(|mib| large.is_due(mib * MIB)), [false, false, true]);
    }
}
