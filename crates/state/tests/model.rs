//! The engine against the reference model, over random histories: the same grants and refusals, the same descriptors
//! open in the end, and every invariant after every step. A seed is a history.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "model/history.rs"]
mod history;

use history::{LEASES_MS, history};
use holdfast_base::SeededEntropy;

/// Choices of one history; about half of them are steps, which ask the engine something.
const CHOICES: u64 = 500;

/// Seeds that once failed, with their lease, run before all others: each with what it found. What a seed means moves with the
/// steps that there are to choose from; a mistake of the engine's has a test of its own beside it.
const FAILED_ONCE: [(u64, u64); 4] = [
    // Somebody in line was given a read lock in place of his write lock when a dead client went, and with that the asker
    // was let in: the reference judged him by the write lock.
    (200_163, LEASES_MS[0]),
    // Shown by a long run, and good since.
    (77_698, LEASES_MS[0]),
    // One in line who asked again by polling: those behind it were not told that they may pass.
    (369, LEASES_MS[0]),
    // An exclusive lock made through an open to write, of an owner whose locks end with its open to read: the one to write was
    // closed, and the engine offered a read delegation beside the lock.
    (3_894_892_366_446_547, LEASES_MS[1]),
];

/// 100,000 steps. For longer runs `HOLDFAST_MODEL_SECONDS` says how long, and `HOLDFAST_MODEL_SEED` where to begin.
#[test]
fn the_engine_grants_and_refuses_what_the_reference_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let first = number("HOLDFAST_MODEL_SEED").unwrap_or(0);
    let began = std::time::Instant::now();
    let is_over = |done: u64| match number("HOLDFAST_MODEL_SECONDS") {
        Some(seconds) => began.elapsed().as_secs() >= seconds,
        None => done >= 100_000,
    };
    let run = |seed, lease_ms| {
        let random = Box::new(SeededEntropy(seed));
        let outcome = std::panic::catch_unwind(|| history(random, CHOICES, lease_ms));
        let steps = outcome.ok().filter(|ended| ended.is_clean).map(|ended| ended.steps);
        steps.unwrap_or_else(|| panic!("seed {seed}"))
    };
    FAILED_ONCE.into_iter().for_each(|(seed, lease_ms)| assert!(run(seed, lease_ms) > 0));
    let (mut seed, mut steps) = (first, 0);
    while !is_over(steps) {
        steps += run(seed, LEASES_MS[(seed % 2) as usize]);
        seed += 1;
    }
    println!("{steps} steps agree, in {} histories", seed - first);
    assert!(steps > 0);
}
