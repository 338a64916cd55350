//! The change attribute: ctime where the kernel makes it differ after every look (multigrain), else ctime and a
//! count of the changes within one tick. `docs/design/handles-and-change.md` says why a value never repeats.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_base::limits::BACKEND_CHANGE_COUNTS_MAX;
use holdfast_base::{ChangeId, Timestamp};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Added to the ctime of an object whose count is not known any more. Less than any tick (1 ms at the least),
/// more than any count: 900,000 changes of one object do not fit into a tick.
const MARGIN: u64 = 900_000;

/// An object, by device and number.
pub type ObjectId = (u64, u64);

struct Count {
    ctime: u64,
    changes: u64,
}

#[derive(Default)]
struct Counts {
    /// Counts with older ctimes may have been forgotten.
    forgotten: u64,
    by_object: FxHashMap<ObjectId, Count>,
}

/// Changes within a tick, of objects on file systems with coarse times: those of one run of the server.
#[derive(Default)]
pub struct Changes {
    counts: Mutex<Counts>,
}

/// A ctime as a number: nanoseconds since 1970, modulo 2^64.
#[must_use]
pub const fn nanos(at: Timestamp) -> u64 {
    at.seconds.wrapping_mul(1_000_000_000).wrapping_add(at.nanos as i64) as u64
}

/// The kernel's time at the granularity that files get.
fn coarse_now() -> u64 {
    let now = crate::sys::coarse_time();
    nanos(Timestamp { seconds: now.tv_sec, nanos: u32::try_from(now.tv_nsec).unwrap_or(0) })
}

impl Changes {
    /// Waits for a tick beyond the margin, so that no change of this run shares one with the run before, and each
    /// gets a ctime above what was given for the last one.
    pub(crate) fn start() -> Self {
        let earliest = wall_nanos().saturating_add(MARGIN);
        // Bounded for a clock that is set back meanwhile.
        for _ in 0..50 {
            if coarse_now() > earliest {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Self::default()
    }

    /// The value of an object with coarse times. Whose change we do not know of is given the margin, whatever its ctime: a run
    /// before may have counted it, and the clock been set back since.
    pub fn value(&self, object: ObjectId, ctime: u64) -> ChangeId {
        let counts = self.counts.lock();
        let added = match counts.by_object.get(&object) {
            Some(count) if count.ctime == ctime => count.changes,
            _ => MARGIN,
        };
        ChangeId(ctime.wrapping_add(added))
    }

    /// Notes that we changed an object, which has this ctime now.
    pub fn note(&self, object: ObjectId, ctime: u64) {
        let mut counts = self.counts.lock();
        if counts.by_object.len() >= BACKEND_CHANGE_COUNTS_MAX {
            counts.forget_half();
        }
        let forgotten = counts.forgotten;
        let count = counts.by_object.entry(object).or_insert(Count { ctime: 0, changes: 0 });
        if count.ctime == ctime {
            count.changes += 1;
        } else {
            // Where a count was forgotten, the margin may have been given for this very ctime.
            *count = Count { ctime, changes: if ctime < forgotten { MARGIN + 1 } else { 0 } };
        }
    }
}

impl Counts {
    /// Forgets the objects with the older ctimes; what they were given lies below their ctime and the margin.
    fn forget_half(&mut self) {
        let mut ctimes: Vec<u64> = self.by_object.values().map(|c| c.ctime).collect();
        let middle = ctimes.len() / 2;
        let (_, median, _) = ctimes.select_nth_unstable(middle);
        let forgotten = median.saturating_add(1);
        self.forgotten = self.forgotten.max(forgotten);
        self.by_object.retain(|_, c| c.ctime >= forgotten);
    }
}

/// Nanoseconds since 1970 by the wall clock: for verifiers.
pub(crate) fn wall_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = (1, 2);
    const TICK: u64 = 1_000_000;

    #[test]
    fn changes_within_one_tick_have_values_of_their_own() {
        let changes = Changes::default();
        let mut seen = changes.value(OBJECT, 9 * TICK);
        for ctime in [20 * TICK, 20 * TICK, 20 * TICK, 21 * TICK, 21 * TICK] {
            changes.note(OBJECT, ctime);
            let now = changes.value(OBJECT, ctime);
            assert!(now > seen, "{now:?} after {seen:?}");
            assert_eq!(changes.value(OBJECT, ctime), now, "a look changes nothing");
            seen = now;
        }
    }

    #[test]
    fn a_value_never_falls_back_after_a_restart() {
        let before = Changes::default();
        before.note(OBJECT, 20 * TICK);
        before.note(OBJECT, 20 * TICK);
        let seen = before.value(OBJECT, 20 * TICK);
        let after = Changes::default();
        let restarted = after.value(OBJECT, 20 * TICK);
        assert!(restarted > seen);
        after.note(OBJECT, 30 * TICK);
        assert!(after.value(OBJECT, 30 * TICK) > restarted);
        // Further restarts change nothing for an object that nobody changes.
        assert_eq!(Changes::default().value(OBJECT, 20 * TICK), restarted);
    }

    #[test]
    fn no_value_is_given_again_where_the_clock_is_set_back() {
        // Before the server starts anew, and while it runs.
        for ctimes in [[20, 20, 20], [20, 5, 5]] {
            let before = Changes::default();
            let mut seen = Vec::new();
            for ctime in ctimes {
                before.note(OBJECT, ctime * TICK);
                seen.push(before.value(OBJECT, ctime * TICK));
            }
            let last = ctimes[2] * TICK;
            let after = Changes::default();
            assert!(!seen.contains(&after.value(OBJECT, last)));
            after.note(OBJECT, 3 * TICK);
            assert!(!seen.contains(&after.value(OBJECT, 3 * TICK)));
        }
    }

    #[test]
    fn forgetting_repeats_no_value() {
        let changes = Changes::default();
        changes.note(OBJECT, TICK);
        changes.note(OBJECT, TICK);
        let seen = changes.value(OBJECT, TICK);
        for i in 0..BACKEND_CHANGE_COUNTS_MAX as u64 {
            changes.note((7, i), 2 * TICK + i);
        }
        assert!(changes.counts.lock().by_object.len() <= BACKEND_CHANGE_COUNTS_MAX);
        let forgotten = changes.value(OBJECT, TICK);
        assert!(forgotten > seen);
        changes.note(OBJECT, TICK);
        assert!(changes.value(OBJECT, TICK) > forgotten);
    }
}
