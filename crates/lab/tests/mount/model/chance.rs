//! Chances from a seed that is told, so that a failure can be had again.

use holdfast_lab::Scale;
use std::time::{SystemTime, UNIX_EPOCH};

/// Any will do.
const OF_TESTS: u64 = 1;

/// A source of chances (SplitMix64): the same seed gives the same ones.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    /// From this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed of a run: `HOLDFAST_SEED`, else of a test run always the same, which judges a change and not its luck, and of a
    /// soak run one that no run had before.
    pub(crate) fn seed() -> u64 {
        let given = std::env::var("HOLDFAST_SEED").ok().and_then(|text| text.parse().ok());
        given.unwrap_or_else(|| {
            if Scale::from_env() == Scale::Test {
                return OF_TESTS;
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            // Few digits are easily typed again.
            u64::from(now.subsec_nanos()) ^ (now.as_secs() << 20 & 0xFFFF_FFFF)
        })
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// One of these.
    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}
