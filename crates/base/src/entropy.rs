//! Random bytes as something handed in, so that a seed decides a whole run.

use std::fs::File;
use std::io::{self, Read};

/// A source of random bytes.
pub trait Entropy: Send {
    /// Fills `out`.
    fn fill(&mut self, out: &mut [u8]);

    /// A random 64-bit number.
    fn u64(&mut self) -> u64 {
        let mut b = [0; 8];
        self.fill(&mut b);
        u64::from_le_bytes(b)
    }
}

/// The kernel's random bytes.
#[derive(Debug)]
pub struct SystemEntropy {
    source: File,
}

impl SystemEntropy {
    /// Opens `/dev/urandom`.
    ///
    /// # Errors
    /// When the device cannot be opened or read.
    pub fn new() -> io::Result<Self> {
        let mut source = File::open("/dev/urandom")?;
        source.read_exact(&mut [0; 1])?;
        Ok(Self { source })
    }
}

impl Entropy for SystemEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        // Reads of /dev/urandom do not fail once the device has given its first byte; were it to happen
        // all the same, predictable identifiers would be worse than a stop.
        if let Err(e) = self.source.read_exact(out) {
            panic!("/dev/urandom: {e}");
        }
    }
}

/// Repeatable bytes from a seed (splitmix64): for tests and simulation, never for secrets.
#[derive(Clone, Debug)]
pub struct SeededEntropy(pub u64);

impl Entropy for SeededEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
            chunk.copy_from_slice(&z.to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_bytes() {
        let (mut a, mut b, mut c) = (SeededEntropy(1), SeededEntropy(1), SeededEntropy(2));
        let first = a.u64();
        assert_eq!(first, b.u64());
        assert_ne!(first, c.u64());
        assert_ne!(first, a.u64());
    }
}
