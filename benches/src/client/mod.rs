//! The load's clients: two of our own over the wire's types, and one that nobody here wrote.

pub(crate) mod call;
pub(crate) mod echo;
pub(crate) mod libnfs;
pub(crate) mod nfs3;
pub(crate) mod nfs41;
pub(crate) mod pump;
pub(crate) mod record;
pub(crate) mod target;

use crate::histogram::Histogram;
use std::time::Duration;

/// How much is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// As much as fits into the time.
    For(Duration),
    /// So many calls.
    Calls(u64),
}

/// What a burst of one operation came to.
#[derive(Debug)]
pub(crate) struct Burst {
    /// Operations done (entries, for listings).
    pub(crate) units: u64,
    /// From the first call to the last reply.
    pub(crate) elapsed: Duration,
    /// CPU time of the client.
    pub(crate) client_cpu: Duration,
    /// From sending to the reply, of half the calls, at most; µs.
    pub(crate) p50_us: f64,
    /// The same of 99 in 100 calls; µs.
    pub(crate) p99_us: f64,
    latency: Histogram,
}

impl Burst {
    fn new(units: u64, elapsed: Duration, client_cpu: Duration, latency: Histogram) -> Self {
        Self {
            units,
            elapsed,
            client_cpu,
            p50_us: latency.quantile_us(0.5),
            p99_us: latency.quantile_us(0.99),
            latency,
        }
    }

    /// What several that ran at a time came to together.
    fn together(bursts: &[Self]) -> Self {
        let mut latency = Histogram::new();
        bursts.iter().for_each(|burst| latency.add(&burst.latency));
        let units = bursts.iter().map(|burst| burst.units).sum();
        let elapsed = bursts.iter().map(|burst| burst.elapsed).max().unwrap_or_default();
        let client_cpu = bursts.iter().map(|burst| burst.client_cpu).sum();
        Self::new(units, elapsed, client_cpu, latency)
    }
}

/// A small generator of random numbers (xorshift), the same in each run.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Always the same sequence.
    pub(crate) fn new() -> Self {
        Self::of(0)
    }

    /// A sequence for each number, always the same one.
    pub(crate) fn of(number: u64) -> Self {
        Self(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * number + 1))
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
