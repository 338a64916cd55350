//! Which turns one connection has to itself and is done with quickly: what it works on is in memory, and nobody is held up by
//! whoever does it. A guess, from those who had the turn last, and it costs no more than a moment where it is wrong.

use std::time::{Duration, Instant};

use holdfast_base::limits::{TURN_SWIFT_SECONDS, TURN_SWIFT_TIMES, TURN_SWIFT_US};

use crate::service::Turn;

/// Turns that are remembered; one that falls into another's place puts it out.
const PLACES: usize = 1024;

/// What is known of a turn.
#[derive(Clone, Copy)]
struct Known {
    turn: Turn,
    /// As often in a row somebody was quick.
    times: u32,
    /// When the last one was.
    at: Instant,
}

/// The turns that are done with quickly.
pub(super) struct Swift {
    places: Vec<Option<Known>>,
}

impl Default for Swift {
    fn default() -> Self {
        Self { places: vec![None; PLACES] }
    }
}

impl Swift {
    fn place(turn: Turn) -> usize {
        // Programs choose their numbers by hashes.
        turn.0 as usize % PLACES
    }

    fn known(&self, turn: Turn, now: Instant) -> u32 {
        let known = self.places[Self::place(turn)].filter(|known| {
            let age = now.saturating_duration_since(known.at);
            known.turn == turn && age <= Duration::from_secs(TURN_SWIFT_SECONDS)
        });
        known.map_or(0, |known| known.times)
    }

    /// Somebody had it for so long, until now, and nobody else asked for it.
    pub(super) fn note(&mut self, turn: Turn, took: Duration, now: Instant) {
        if took > Duration::from_micros(TURN_SWIFT_US) {
            return self.forget(turn);
        }
        let times = self.known(turn, now).saturating_add(1);
        self.places[Self::place(turn)] = Some(Known { turn, times, at: now });
    }

    /// Others ask for it too, or somebody has it for long.
    pub(super) fn forget(&mut self, turn: Turn) {
        self.places[Self::place(turn)] = None;
    }

    /// Whether the next is likely to be done quickly.
    pub(super) fn is(&self, turn: Turn, now: Instant) -> bool {
        self.known(turn, now) >= TURN_SWIFT_TIMES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_quick_several_times_is_held_to_be_so_for_a_while_and_until_somebody_is_slow() {
        let (mut swift, now) = (Swift::default(), Instant::now());
        let (quick, slow) = (Duration::from_micros(TURN_SWIFT_US), Duration::from_micros(TURN_SWIFT_US + 1));
        for _ in 0..TURN_SWIFT_TIMES {
            assert!(!swift.is(Turn(7), now), "of whom little is known");
            swift.note(Turn(7), quick, now);
        }
        assert!(swift.is(Turn(7), now) && !swift.is(Turn(7 + PLACES as u64), now));
        assert!(swift.is(Turn(7), now + Duration::from_secs(TURN_SWIFT_SECONDS)));
        assert!(!swift.is(Turn(7), now + Duration::from_secs(TURN_SWIFT_SECONDS + 1)));
        swift.note(Turn(7), slow, now);
        assert!(!swift.is(Turn(7), now));
    }
}
