//! What a byte-range lock costs the engine beside others on the same file. Run with `--release`.
#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops")]

use std::time::Instant as Wall;

use holdfast_base::{ByteRange, FileKey, Instant, SeededEntropy};
use holdfast_state::*;

const NOW: Instant = Instant(1000);
const FILE: FileKey = FileKey(1);
const TIMES: u64 = 20_000;

fn owner(id: u64) -> ForeignOwner {
    ForeignOwner { door: Door::Nlm, id }
}

/// Byte ranges that do not touch; in an order that is not theirs.
fn range(n: u64) -> ByteRange {
    let at = (n.wrapping_mul(0x9e37_79b9) % (1 << 32)) * 16;
    ByteRange::from_bounds(at, at + 7).unwrap()
}

fn main() {
    for held in [10u64, 100, 1_000, 10_000, 16_000] {
        let config = Config { boot: BootInstance::from_counter(1), lease_ms: 90_000, grace: Grace::Over };
        let mut engine = Engine::new(config, Box::new(SeededEntropy(1)));
        for n in 0..held {
            engine.foreign_lock(owner(n), FILE, range(n), LockKind::Write, NOW).unwrap();
        }
        let began = Wall::now();
        for n in held..held + TIMES {
            // Owners come and go, one at a time.
            engine.foreign_lock(owner(n), FILE, range(n), LockKind::Write, NOW).unwrap();
            engine.foreign_unlock(owner(n), FILE, range(n), NOW);
        }
        let pair = began.elapsed().as_nanos() / u128::from(TIMES);
        let began = Wall::now();
        let mut denied = 0;
        for n in 0..TIMES {
            let asked = engine.foreign_test(owner(held), FILE, range(n % held), LockKind::Read, NOW);
            denied += u32::from(asked.is_err());
        }
        let test = began.elapsed().as_nanos() / u128::from(TIMES);
        assert_eq!(u64::from(denied), TIMES);
        println!("beside {held} owners' locks: LOCK and LOCKU {pair} ns, a denied LOCKT {test} ns");
    }
}
