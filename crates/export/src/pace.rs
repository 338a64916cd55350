//! How long a group commit waits for more to join it. Whoever keeps so many calls in flight asks again as soon as he is
//! answered: those of the group before are on their way, while those that came during its force wait already. Were the
//! next force begun at once, the calls would stay in two halves for ever, and the disk be forced twice for each.

use std::time::{Duration, Instant};

use holdfast_base::limits::{COMMIT_GATHER_MICROS_MAX, COMMIT_GATHER_MICROS_MIN};

const GATHER_MIN: Duration = Duration::from_micros(COMMIT_GATHER_MICROS_MIN);
const GATHER_MAX: Duration = Duration::from_micros(COMMIT_GATHER_MICROS_MAX);

/// Groups, as a power of two, for which nothing is waited for at most after waiting was in vain.
const PASSES_BITS_MAX: u32 = 6;

/// What one file system's groups show of those who wait for them.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the last group was answered, and how long its force took.
    last: Option<(Instant, Duration)>,
    /// As many calls as the last group had, and had gathered when it was answered.
    expected: usize,
    /// Groups for which nothing is waited for.
    passes: u32,
    /// How often in a row waiting was in vain.
    vain: u32,
}

impl Pace {
    /// A group of so many was answered, whose force began then; so many wait already.
    pub(crate) fn answered(&mut self, calls: usize, waiting: usize, began: Instant, now: Instant) {
        self.last = Some((now, now.saturating_duration_since(began)));
        self.expected = calls + waiting;
    }

    /// How many to wait for, and until when; `None` when so many are enough.
    ///
    /// For half of what a force takes, about: to wait longer could cost more than the force that it spares, and a quick one
    /// costs the processor something all the same. And from the last group's answer on: what comes long after it is nobody's who was answered then.
    pub(crate) fn worth_waiting(&mut self, waiting: usize, now: Instant) -> Option<(usize, Instant)> {
        let (answered, took) = self.last?;
        let until = answered + (took / 2).clamp(GATHER_MIN, GATHER_MAX);
        if waiting >= self.expected || now >= until {
            return None;
        }
        if self.passes > 0 {
            self.passes -= 1;
            return None;
        }
        Some((self.expected, until))
    }

    /// What waiting came to.
    pub(crate) fn waited(&mut self, have_come: bool) {
        self.vain = if have_come { 0 } else { (self.vain + 1).min(PASSES_BITS_MAX) };
        self.passes = if have_come { 0 } else { 1 << self.vain };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORCE: Duration = Duration::from_millis(4);

    fn pace() -> (Pace, Instant) {
        let began = Instant::now();
        (Pace::default(), began)
    }

    #[test]
    fn who_is_alone_waits_for_nobody() {
        let (mut pace, began) = pace();
        assert_eq!(pace.worth_waiting(1, began), None, "the first group");
        let now = began + FORCE;
        pace.answered(1, 0, began, now);
        assert_eq!(pace.worth_waiting(1, now), None);
    }

    #[test]
    fn those_that_came_meanwhile_wait_for_those_that_were_answered() {
        let (mut pace, began) = pace();
        let now = began + FORCE;
        pace.answered(20, 12, began, now);
        assert_eq!(pace.worth_waiting(12, now), Some((32, now + FORCE / 2)));
        assert_eq!(pace.worth_waiting(32, now), None, "all are there");
        assert_eq!(pace.worth_waiting(12, now + FORCE / 2), None, "too late");
    }

    #[test]
    fn a_slow_force_is_no_reason_to_wait_longer_than_the_bound() {
        let (mut pace, began) = pace();
        let now = began + Duration::from_secs(5);
        pace.answered(1, 1, began, now);
        assert_eq!(pace.worth_waiting(1, now), Some((2, now + GATHER_MAX)));
    }

    #[test]
    fn a_quick_force_is_no_reason_not_to_wait_at_all() {
        let (mut pace, began) = pace();
        pace.answered(1, 1, began, began);
        assert_eq!(pace.worth_waiting(1, began), Some((2, began + GATHER_MIN)));
    }

    #[test]
    fn waiting_in_vain_is_done_ever_more_seldom_until_it_helps_again() {
        let (mut pace, began) = pace();
        let now = began + FORCE;
        let mut passed_each_time = Vec::new();
        for _ in 0..8 {
            let mut passed = 0;
            pace.answered(1, 1, began, now);
            while pace.worth_waiting(1, now).is_none() {
                passed += 1;
            }
            pace.waited(false);
            passed_each_time.push(passed);
        }
        assert_eq!(passed_each_time, [0, 2, 4, 8, 16, 32, 64, 64]);
        pace.waited(true);
        assert!(pace.worth_waiting(1, now).is_some());
    }
}
