//! How much is done a second.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Totals;

/// Notes that are kept: one a second for a little longer than the longest time asked about.
const NOTES: usize = 64;

/// What was done a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Over so many seconds; fewer than asked for shortly after the start.
    pub seconds: f64,
    /// Operations a second.
    pub operations: f64,
    /// Bytes of arguments a second.
    pub received: f64,
    /// Bytes of results a second.
    pub sent: f64,
}

/// Totals as they were, newest last.
#[derive(Default)]
pub(crate) struct Rates {
    notes: VecDeque<(Instant, Totals)>,
}

impl Rates {
    pub(crate) fn note(&mut self, now: Instant, totals: Totals) {
        if self.notes.len() == NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back((now, totals));
    }

    pub(crate) fn over<const N: usize>(&self, spans: [Duration; N]) -> [Rate; N] {
        spans.map(|span| self.rate(span).unwrap_or_default())
    }

    fn rate(&self, span: Duration) -> Option<Rate> {
        let (now, last) = self.notes.back()?;
        let is_within = |at: &Instant| now.duration_since(*at) <= span;
        let (then, first) = self.notes.iter().find(|(at, _)| is_within(at))?;
        let seconds = now.duration_since(*then).as_secs_f64();
        if seconds == 0.0 {
            return None;
        }
        let a_second = |last: u64, first: u64| last.saturating_sub(first) as f64 / seconds;
        Some(Rate {
            seconds,
            operations: a_second(last.operations, first.operations),
            received: a_second(last.received, first.received),
            sent: a_second(last.sent, first.sent),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_over_the_time_asked_for_and_over_less_at_the_start() {
        let mut rates = Rates::default();
        let start = Instant::now();
        assert_eq!(rates.over([Duration::from_secs(10)]), [Rate::default()]);
        for second in 0..100u64 {
            // Ten a second at first, a hundred a second in the last ten.
            let operations = if second < 90 { second * 10 } else { 890 + (second - 89) * 100 };
            rates.note(start + Duration::from_secs(second), Totals { operations, ..Totals::default() });
            if second == 4 {
                let [rate] = rates.over([Duration::from_secs(60)]);
                assert_eq!((rate.seconds, rate.operations), (4.0, 10.0));
            }
        }
        let [ten, sixty] = rates.over([10, 60].map(Duration::from_secs));
        assert_eq!((ten.seconds, ten.operations), (10.0, 100.0));
        assert_eq!((sixty.seconds, sixty.operations), (60.0, 25.0));
    }
}
