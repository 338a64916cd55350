//! Latencies in buckets whose width is 1/32 of their value: quantiles within 3 %, at a few instructions a sample.

use std::time::Duration;

/// Buckets in each doubling.
const SUBBUCKETS: usize = 32;
const SUBBUCKET_BITS: u32 = SUBBUCKETS.trailing_zeros();
/// Up to 2^40 ns, eighteen minutes; what is longer counts there.
const BUCKETS: usize = (40 - SUBBUCKET_BITS as usize) * SUBBUCKETS;

/// Counts of latencies.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// Without samples.
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }

    /// Counts one sample.
    pub(crate) fn record(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.counts[index(ns)] += 1;
        self.total += 1;
    }

    /// Counts what another has counted.
    pub(crate) fn add(&mut self, other: &Self) {
        for (own, others) in self.counts.iter_mut().zip(&other.counts) {
            *own += others;
        }
        self.total += other.total;
    }

    /// Counts so many samples of a bucket, as another program has put them there.
    ///
    /// `None` when there is no such bucket.
    pub(crate) fn add_to_bucket(&mut self, bucket: usize, count: u64) -> Option<()> {
        *self.counts.get_mut(bucket)? += count;
        self.total += count;
        Some(())
    }

    /// The latency that `fraction` (0 to 1) of the samples do not exceed, in µs; 0 without samples.
    pub(crate) fn quantile_us(&self, fraction: f64) -> f64 {
        let wanted = ((self.total as f64 * fraction).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return middle_ns(bucket) / 1e3;
            }
        }
        0.0
    }
}

/// Below 32 ns one bucket a nanosecond; above, the leading bit and the five bits after it.
fn index(ns: u64) -> usize {
    let exponent = ns.max(1).ilog2();
    if exponent < SUBBUCKET_BITS {
        return ns as usize;
    }
    let shift = exponent - SUBBUCKET_BITS;
    let within = (ns >> shift) as usize - SUBBUCKETS;
    ((shift as usize + 1) * SUBBUCKETS + within).min(BUCKETS - 1)
}

fn middle_ns(bucket: usize) -> f64 {
    if bucket < SUBBUCKETS {
        return bucket as f64;
    }
    let (shift, within) = (bucket / SUBBUCKETS - 1, bucket % SUBBUCKETS);
    ((SUBBUCKETS + within) as f64 + 0.5) * (1u64 << shift) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_three_percent() {
        let mut histogram = Histogram::new();
        for us in 1..=1000 {
            histogram.record(Duration::from_micros(us));
        }
        for (fraction, expected) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = histogram.quantile_us(fraction);
            assert!((found / expected - 1.0).abs() < 0.03, "{fraction}: {found}");
        }
    }

    #[test]
    fn every_value_falls_into_a_bucket_and_buckets_rise() {
        assert!(Histogram::new().quantile_us(0.5).abs() < f64::EPSILON);
        let steps = (0..64).map(|bit| index(1u64 << bit)).collect::<Vec<_>>();
        assert!(steps.is_sorted());
        assert_eq!(index(u64::MAX), BUCKETS - 1);
        let mut two = Histogram::new();
        two.record(Duration::from_nanos(40));
        let mut other = Histogram::new();
        other.add_to_bucket(index(4000), 3).unwrap();
        two.add(&other);
        assert!(two.total == 4 && (two.quantile_us(0.5) - 4.0).abs() < 0.1);
        assert_eq!(two.add_to_bucket(BUCKETS, 1), None);
        assert_eq!((index(31), index(32), index(63), index(64)), (31, 32, 63, 64));
    }
}
