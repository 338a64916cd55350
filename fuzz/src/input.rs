//! Decisions drawn from the fuzzer's bytes. When they run out every answer is 0, so that a short input ends soon.

/// What is left of the input.
pub(crate) struct Input<'a> {
    data: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) const fn new(data: &'a [u8]) -> Self {
        Self { data }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    pub(crate) fn u8(&mut self) -> u8 {
        let Some((first, rest)) = self.data.split_first() else { return 0 };
        self.data = rest;
        *first
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n.max(1)
    }

    /// True for one in `n` values of a byte, and never once the input has run out.
    pub(crate) fn one_in(&mut self, n: u8) -> bool {
        !self.is_empty() && self.u8() % n == n - 1
    }

    /// One of these, every other time the last.
    pub(crate) fn pick_late<'t, T>(&mut self, from: &'t [T]) -> Option<&'t T> {
        if self.u8() < 128 { from.last() } else { self.pick(from) }
    }

    /// One of these.
    pub(crate) fn pick<'t, T>(&mut self, from: &'t [T]) -> Option<&'t T> {
        if from.is_empty() { None } else { Some(&from[self.below(from.len())]) }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.u8())
    }

    /// The next bytes, at most so many.
    pub(crate) fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.data.split_at(n.min(self.data.len()));
        self.data = rest;
        taken
    }

    /// Mostly small, sometimes at an edge, sometimes anything.
    pub(crate) fn u64(&mut self) -> u64 {
        match self.u8() {
            n @ 0..=127 => u64::from(n) % 20,
            n @ 128..=191 => 1 << (n % 64),
            n @ 192..=223 => (1_u64 << (n % 32 * 2)).wrapping_sub(1),
            224..=239 => u64::MAX - u64::from(self.u8() % 8),
            _ => u64::from_be_bytes(self.array()),
        }
    }

    pub(crate) fn u32(&mut self) -> u32 {
        match self.u8() {
            n @ 0..=159 => u32::from(n) % 20,
            n @ 160..=223 => 1 << (n % 32),
            224..=239 => u32::MAX - u32::from(self.u8() % 8),
            _ => u32::from_be_bytes(self.array()),
        }
    }
}
