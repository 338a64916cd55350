//! The engine against the reference model, over random histories: the same grants and refusals, the same descriptors
//! open in the end, and every invariant after every step. A seed is a history.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "model/history.rs"]
mod history;

use history::history;
use holdfast_base::SeededEntropy;

const STEPS: u64 = 500;

/// 100,000 steps: 200 histories of 500. For longer runs `HOLDFAST_MODEL_SECONDS` says how long, and
/// `HOLDFAST_MODEL_SEED` where to begin.
#[test]
fn the_engine_grants_and_refuses_what_the_reference_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let first = number("HOLDFAST_MODEL_SEED").unwrap_or(0);
    let began = std::time::Instant::now();
    let is_over = |done: u64| match number("HOLDFAST_MODEL_SECONDS") {
        Some(seconds) => began.elapsed().as_secs() >= seconds,
        None => done >= 200,
    };
    let mut done = 0;
    while !is_over(done) {
        let seed = first + done;
        let outcome = std::panic::catch_unwind(|| history(Box::new(SeededEntropy(seed)), STEPS));
        assert!(matches!(outcome, Ok(true)), "seed {seed}");
        done += 1;
    }
    println!("{} steps agree", done * STEPS);
    assert!(done > 0);
}
