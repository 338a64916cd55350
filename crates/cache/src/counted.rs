//! What is counted of operations: each once, however often it is called until it is done.

use crate::machine::Machine;
use crate::step::{Outcome, Step, Stop, Turn};
use crate::tell::Hits;

/// What an operation was counted as so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    is_begun: bool,
    is_due: bool,
    has_waited: bool,
    /// It has asked the server for anything.
    pub(crate) has_asked: bool,
    /// And for a name.
    pub(crate) has_asked_name: bool,
}

impl Hits {
    pub(crate) const fn count(&mut self, was_asked: bool) {
        if was_asked {
            self.misses += 1;
        } else {
            self.hits += 1;
        }
    }
}

/// Counts what has not been counted.
const fn once(is_counted: &mut bool, count: &mut u64) {
    if !*is_counted {
        *is_counted = true;
        *count += 1;
    }
}

impl Machine {
    /// An operation that costs a call where nothing is known of it, nor put off.
    pub(crate) fn counted<T>(&mut self, turn: &mut Turn, outcome: Outcome<T>) -> Step<T> {
        once(&mut turn.counted.is_due, &mut self.stats.due);
        self.counted_here(turn, outcome)
    }

    /// One that costs none by itself.
    pub(crate) fn counted_here<T>(&mut self, turn: &mut Turn, outcome: Outcome<T>) -> Step<T> {
        let (counted, stats) = (&mut turn.counted, &mut self.stats);
        once(&mut counted.is_begun, &mut stats.operations);
        match &outcome {
            Err(Stop::Ask(ask)) if !ask.question.is_of_disk() => {
                once(&mut counted.has_asked, &mut stats.asks);
            }
            Err(Stop::Wait(_)) => once(&mut counted.has_waited, &mut stats.waits),
            _ => {}
        }
        outcome.into()
    }
}
