//! Arbitrary histories of the state engine beside its reference model, which is that of the engine's own test; here
//! every choice is a byte of the input.

use holdfast_base::Entropy;

#[path = "../../crates/state/tests/model/history.rs"]
mod history;

/// Bytes for one step, about.
const STEP_BYTES: usize = 4;

/// Steps in one input at most.
const STEPS_MAX: usize = 2000;

/// Choices from bytes, last first, and the same one for ever when they are used up.
struct Choices(Vec<u8>);

impl Entropy for Choices {
    fn fill(&mut self, out: &mut [u8]) {
        out.fill_with(|| self.0.pop().unwrap_or(0));
    }

    fn u64(&mut self) -> u64 {
        u64::from(self.0.pop().unwrap_or(0))
    }
}

/// See the module.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let steps = (data.len() / STEP_BYTES).min(STEPS_MAX) as u64;
    let choices = Choices(data.iter().rev().copied().collect());
    let ended = history::history(Box::new(choices), steps, history::LEASES_MS[data.len() % 2]);
    assert!(ended.is_clean && ended.steps <= steps, "something is left in the end");
}
