//! How long a group commit waits for more to join it. Whoever keeps so many calls in flight asks again as soon as he is
//! answered: those of the group before are on their way, while those that came during its force wait already. Were the
//! next force begun at once, the calls would stay in two halves for ever, and the disk be forced twice for each.
//!
//! A connection's calls are done one after the other, so those who are waited for come one by one, and for longer than
//! a quick force takes: as long as they come, the next is waited for.

use std::time::{Duration, Instant};

use holdfast_base::limits::{COMMIT_GATHER_MICROS_MAX, COMMIT_GATHER_MICROS_MIN};

const GATHER_MIN: Duration = Duration::from_micros(COMMIT_GATHER_MICROS_MIN);
const GATHER_MAX: Duration = Duration::from_micros(COMMIT_GATHER_MICROS_MAX);

/// How long a file system's thread waits for work before it ends. Long enough that steady work never pays for
/// starting one, short enough that a thousand exports used once do not keep a thousand threads.
const IDLE: Duration = Duration::from_secs(10);

/// Groups, as a power of two, for which nothing is waited for at most after waiting was in vain.
const PASSES_BITS_MAX: u32 = 6;

/// What one file system's groups show of those who wait for them.
#[derive(Debug)]
pub(crate) struct Pace {
    next: Next,
    /// Groups for which nothing is waited for.
    passes: u32,
    /// How often in a row waiting was in vain.
    vain: u32,
    /// How long it took the last time from the answers until those who were waited for were there.
    took_to_gather: Duration,
}

/// What the next group waits for.
#[derive(Debug)]
enum Next {
    /// The first call, until then.
    Any(Instant),
    /// Those who were just answered.
    Answered(Gathering),
}

#[derive(Clone, Copy, Debug)]
struct Gathering {
    answered: Instant,
    /// As many calls as the last group had, and had gathered when it was answered.
    expected: usize,
    /// As many as were there when somebody last looked.
    seen: usize,
    /// When to look whether more have come, and how much later to look again if so.
    look: Instant,
    gap: Duration,
    /// When the group begins in any case.
    last: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self { next: Next::Any(now + IDLE), passes: 0, vain: 0, took_to_gather: Duration::ZERO }
    }

    /// A group of so many was answered, whose force began then; so many wait already.
    ///
    /// The next waits for half of what a force takes, about: to wait longer could cost more than the force that it spares, and
    /// a quick one costs the processor something all the same. From the last group's answer on, for what comes long after it is
    /// nobody's who was answered then; and again as long whenever somebody has come meanwhile.
    pub(crate) fn answered(&mut self, calls: usize, waiting: usize, began: Instant, now: Instant) {
        let expected = calls + waiting;
        if expected == 1 || self.passes > 0 {
            // Who is alone is not looked for, either.
            self.passes = self.passes.saturating_sub(1);
            self.next = Next::Any(now + IDLE);
            return;
        }
        let took = now.saturating_duration_since(began);
        let gap = (took / 2).clamp(GATHER_MIN, GATHER_MAX);
        let last = now + took.max(GATHER_MAX);
        // Looked at once, where they take as long as the last time.
        let look = (now + gap.max(self.took_to_gather * 3 / 2)).min(last);
        self.next = Next::Answered(Gathering { answered: now, expected, seen: waiting, look, gap, last });
    }

    /// How many to wait for, and until when, where so many are there; `None` when those are the group.
    pub(crate) fn worth_waiting(&mut self, waiting: usize, now: Instant) -> Option<(usize, Instant)> {
        let Next::Answered(gathering) = &mut self.next else { return self.for_any(waiting, now) };
        if waiting >= gathering.expected {
            self.took_to_gather = now.saturating_duration_since(gathering.answered);
            self.vain = 0;
            return None;
        }
        let has_progress = waiting > gathering.seen && now < gathering.last;
        if now >= gathering.look && has_progress {
            gathering.seen = waiting;
            gathering.look = (now + gathering.gap).min(gathering.last);
        }
        if now < gathering.look {
            return Some((gathering.expected, gathering.look));
        }
        self.took_to_gather = Duration::ZERO;
        if waiting == 0 {
            // Who asks later is nobody who was answered.
            self.next = Next::Any(now + IDLE);
            return self.for_any(waiting, now);
        }
        self.vain = (self.vain + 1).min(PASSES_BITS_MAX);
        self.passes = 1 << self.vain;
        None
    }

    fn for_any(&self, waiting: usize, now: Instant) -> Option<(usize, Instant)> {
        let Next::Any(until) = self.next else { return None };
        (waiting == 0 && now < until).then_some((1, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORCE: Duration = Duration::from_millis(4);

    /// One whose group of so many has just been answered, and when.
    fn answered(calls: usize, waiting: usize, force: Duration) -> (Pace, Instant) {
        let began = Instant::now();
        let mut pace = Pace::new(began);
        pace.answered(calls, waiting, began, began + force);
        (pace, began + force)
    }

    #[test]
    fn the_first_call_is_waited_for_and_nobody_else() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        assert_eq!(pace.worth_waiting(0, now), Some((1, now + IDLE)));
        assert_eq!(pace.worth_waiting(1, now), None);
        assert_eq!(pace.worth_waiting(0, now + IDLE), None, "the end of the thread");
    }

    #[test]
    fn who_is_alone_waits_for_nobody() {
        let (mut pace, now) = answered(1, 0, FORCE);
        assert_eq!(pace.worth_waiting(0, now), Some((1, now + IDLE)));
        assert_eq!(pace.worth_waiting(1, now), None);
    }

    #[test]
    fn those_that_came_meanwhile_wait_for_those_that_were_answered() {
        let (mut pace, now) = answered(20, 12, FORCE);
        assert_eq!(pace.worth_waiting(12, now), Some((32, now + FORCE / 2)));
        assert_eq!(pace.worth_waiting(32, now), None, "all are there");
        assert_eq!(pace.worth_waiting(12, now + FORCE / 2), None, "too late");
    }

    #[test]
    fn as_long_as_they_come_the_next_is_waited_for() {
        let (mut pace, mut now) = answered(32, 0, FORCE / 2);
        for waiting in 0..3 {
            assert_eq!(pace.worth_waiting(waiting, now), Some((32, now + FORCE / 4)), "{waiting}");
            now += FORCE / 4;
        }
        assert_eq!(pace.worth_waiting(2, now), None, "nobody came");
    }

    #[test]
    fn nobody_is_waited_for_beyond_the_bound() {
        let (mut pace, answered) = answered(1000, 0, FORCE);
        let mut now = answered;
        let mut waiting = 0;
        while let Some((_, until)) = pace.worth_waiting(waiting, now) {
            assert!(until > now);
            (now, waiting) = (until, waiting + 1);
        }
        assert_eq!(now, answered + GATHER_MAX);
    }

    #[test]
    fn a_group_that_took_its_time_to_gather_is_not_looked_at_before() {
        let (mut pace, now) = answered(2, 0, Duration::ZERO);
        let gathered = now + GATHER_MIN * 2;
        assert_eq!(pace.worth_waiting(1, now + GATHER_MIN), Some((2, now + GATHER_MIN * 2)));
        assert_eq!(pace.worth_waiting(2, gathered), None);
        pace.answered(2, 0, gathered, gathered);
        assert_eq!(pace.worth_waiting(0, gathered), Some((2, gathered + GATHER_MIN * 3)));
    }

    #[test]
    fn who_asks_long_after_he_was_answered_waits_for_nobody() {
        let (mut pace, now) = answered(2, 0, FORCE);
        let later = now + FORCE;
        assert_eq!(pace.worth_waiting(0, later), Some((1, later + IDLE)));
        assert_eq!(pace.worth_waiting(1, later), None);
    }

    #[test]
    fn a_slow_force_is_no_reason_to_wait_longer_than_the_bound() {
        let (mut pace, now) = answered(1, 1, Duration::from_secs(5));
        assert_eq!(pace.worth_waiting(1, now), Some((2, now + GATHER_MAX)));
    }

    #[test]
    fn a_quick_force_is_no_reason_not_to_wait_at_all() {
        let (mut pace, now) = answered(1, 1, Duration::ZERO);
        assert_eq!(pace.worth_waiting(1, now), Some((2, now + GATHER_MIN)));
    }

    #[test]
    fn waiting_in_vain_is_done_ever_more_seldom_until_it_helps_again() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        let mut passed_each_time = Vec::new();
        for _ in 0..8 {
            let mut passed = 0;
            pace.answered(1, 1, now, now);
            while pace.worth_waiting(1, now).is_none() {
                passed += 1;
                pace.answered(1, 1, now, now);
            }
            assert_eq!(pace.worth_waiting(1, now + GATHER_MIN), None);
            passed_each_time.push(passed);
        }
        assert_eq!(passed_each_time, [0, 2, 4, 8, 16, 32, 64, 64]);
        while {
            pace.answered(1, 1, now, now);
            pace.worth_waiting(1, now).is_none()
        } {}
        assert_eq!(pace.worth_waiting(2, now), None, "all are there");
        pace.answered(1, 1, now, now);
        assert!(pace.worth_waiting(1, now).is_some());
    }
}
