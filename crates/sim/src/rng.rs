//! Chance, decided by the seed alone.

use holdfast_base::{Entropy, SeededEntropy};

/// Numbers that follow from a seed.
#[derive(Clone, Debug)]
pub struct Rng(SeededEntropy);

impl Rng {
    /// The numbers of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(SeededEntropy(seed))
    }

    /// Another source that follows from this one: what it is asked does not disturb this one.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.number())
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.u64()
    }

    /// A number below `n`; 0 when that is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.number().checked_rem(n).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    /// One of several; the slice is not empty.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}
