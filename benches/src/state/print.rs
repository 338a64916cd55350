//! How figures are told.

use std::time::Duration;

/// Of many operations, in microseconds.
pub(super) fn latencies(what: &str, took: Vec<Duration>) {
    let us = |time: Duration| format!("{:.0} us", time.as_secs_f64() * 1e6);
    let took = Sorted::new(took);
    println!(
        "{what}: median {}, 99th percentile {}, of {}",
        us(took.at(0.5)),
        us(took.at(0.99)),
        took.0.len()
    );
}

/// Of few restarts, in milliseconds.
pub(super) fn restarts(what: &str, took: Vec<Duration>) {
    let ms = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
    let took = Sorted::new(took);
    println!("{what}: median {}, longest {}, of {}", ms(took.at(0.5)), ms(took.at(1.0)), took.0.len());
}

struct Sorted(Vec<Duration>);

impl Sorted {
    fn new(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        Self(took)
    }

    /// Of an even number the upper one is the median: no figure is better than it was.
    fn at(&self, part: f64) -> Duration {
        let place = (self.0.len() as f64 * part) as usize;
        self.0[place.min(self.0.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle_and_the_longest_at_the_end() {
        let of = |all: &[u64]| Sorted::new(all.iter().copied().map(Duration::from_millis).collect());
        let at = |all: &[u64], part: f64| of(all).at(part).as_millis();
        assert_eq!((at(&[7], 0.5), at(&[7], 1.0)), (7, 7));
        assert_eq!((at(&[3, 1, 2], 0.5), at(&[3, 1, 2], 1.0)), (2, 3));
        assert_eq!((at(&[4, 3, 1, 2], 0.5), at(&[4, 3, 1, 2], 1.0)), (3, 4));
        let many: Vec<u64> = (0..256).collect();
        assert_eq!(at(&many, 0.99), 253);
    }
}
