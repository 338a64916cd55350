//! Latencies in buckets that double: wide enough for a page-cache hit and for a dead disk, few enough to be kept for
//! every operation by every thread.

/// Buckets of a histogram.
pub const BUCKETS: usize = 26;

/// The first bucket ends at 2 to this power nanoseconds (about a microsecond).
const FIRST_BITS: u32 = 10;

/// The bucket that a time belongs to.
#[must_use]
pub(crate) fn bucket(nanos: u64) -> usize {
    let bits = u64::BITS - nanos.leading_zeros();
    (bits.saturating_sub(FIRST_BITS) as usize).min(BUCKETS - 1)
}

/// Where a bucket ends, in nanoseconds; `None` for the last, which takes everything longer.
#[must_use]
pub fn bucket_end(bucket: usize) -> Option<u64> {
    (bucket + 1 < BUCKETS).then(|| 1 << (FIRST_BITS as usize + bucket))
}

/// The time that a share (0 to 1) of all did not exceed, in nanoseconds: exact to its bucket, and interpolated within
/// it. 0 when nothing was counted.
#[must_use]
pub fn quantile(counts: &[u64; BUCKETS], share: f64) -> u64 {
    let all: u64 = counts.iter().sum();
    let wanted = (all as f64 * share).max(1.0);
    let mut below = 0.0;
    for (n, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let count = *count as f64;
        if below + count >= wanted {
            let start = if n == 0 { 0 } else { 1u64 << (FIRST_BITS as usize + n - 1) };
            // What lies in the last bucket is reported as where it begins: at least so long.
            let width = bucket_end(n).map_or(0, |end| end - start);
            return start + (width as f64 * ((wanted - below) / count)) as u64;
        }
        below += count;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_in_the_bucket_whose_end_is_the_first_above_it() {
        for nanos in [0, 1, 1023, 1024, 1025, 5_000, 1 << 20, (1 << 34) - 1, 1 << 34, u64::MAX] {
            let n = bucket(nanos);
            assert!(bucket_end(n).is_none_or(|end| nanos < end), "{nanos} in {n}");
            assert!(n == 0 || bucket_end(n - 1).is_some_and(|end| nanos >= end), "{nanos} in {n}");
        }
    }

    #[test]
    fn quantiles_are_right_to_the_bucket() {
        let mut counts = [0; BUCKETS];
        for nanos in 0..100_000u64 {
            counts[bucket(nanos)] += 1;
        }
        let half = quantile(&counts, 0.5);
        assert!((40_000..60_000).contains(&half), "{half}");
        let most = quantile(&counts, 0.99);
        assert!((90_000..=131_072).contains(&most), "{most}");
        assert_eq!(quantile(&[0; BUCKETS], 0.5), 0);
    }
}
