//! Who says how many hands are to be at work, by looking at them time and again.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use holdfast_base::limits::{
    CREW_BUSY_RUNS, CREW_CALM_LOOKS, CREW_FULL_LOOKS, CREW_IDLE_MS, CREW_LENT_LOOKS, CREW_LOOK_MS,
};

use super::{Crew, Hand};

/// Looks after the hands on a thread of its own, which ends with them.
///
/// # Errors
/// When the thread cannot be made.
pub(super) fn start(crew: &Arc<Crew>) -> io::Result<()> {
    let crew = Arc::downgrade(crew);
    let run = move || oversee(&crew);
    thread::Builder::new().name("crew-oversee".to_owned()).spawn(run).map(drop)
}

fn oversee(crew: &Weak<Crew>) {
    let (mut judge, mut moves) = (Judge::default(), Vec::new());
    loop {
        thread::sleep(judge.pause());
        let Some(crew) = crew.upgrade() else { return };
        let Some(seen) = see(&crew, &mut moves) else { return };
        match judge.look(seen) {
            Verdict::Keep => {}
            Verdict::Call => crew.call_one(),
            Verdict::Lend => crew.lend_one(),
            Verdict::Rouse => crew.rouse_one(),
            Verdict::Rest => crew.rest_one(),
        }
    }
}

/// Looks at the hands, unless all is over; `moves` is how often each of them had begun to rest or been roused at the last look.
fn see(crew: &Crew, moves: &mut Vec<u64>) -> Option<Seen> {
    let state = crew.state.lock();
    let is_still = |(hand, before): &(&Hand, &u64)| hand.moves == **before && !hand.is_resting;
    let seen = Seen {
        runs: state.runs,
        awake: state.awake(),
        still: state.hands.iter().zip(&*moves).filter(is_still).count(),
        wanted: crew.wanted(),
        lent: state.lent,
    };
    moves.clear();
    moves.extend(state.hands.iter().map(|hand| hand.moves));
    (!state.is_over()).then_some(seen)
}

/// What is seen at one look.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// A count of tasks that were run.
    runs: u64,
    /// Hands that are at something just now,
    awake: usize,
    /// and those of them that have been since the last look, without a moment in which they had nothing to do.
    still: usize,
    /// Hands that are to be at work,
    wanted: usize,
    /// and those of them that are in place of one that hung.
    lent: usize,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    /// One more is needed.
    Call,
    /// One more is needed in place of one that hangs.
    Lend,
    /// One that rests is to look at the sockets.
    Rouse,
    /// One less is needed.
    Rest,
}

/// Judges by what it sees, look after look.
#[derive(Default)]
struct Judge {
    /// Tasks that had been run at the last look.
    before: u64,
    /// It looks often, as there is much to do.
    is_busy: bool,
    /// Looks in a row at which nobody had had nothing to do, and at which everybody had.
    full: u32,
    free: u32,
    /// Looks since the last verdict, hands that were at work at these, and tasks that had been run before them.
    looks: u32,
    awake: usize,
    runs: u64,
}

impl Judge {
    /// How long until the next look.
    fn pause(&self) -> Duration {
        Duration::from_millis(if self.is_busy { CREW_LOOK_MS } else { CREW_IDLE_MS })
    }

    fn look(&mut self, seen: Seen) -> Verdict {
        let came = seen.runs.wrapping_sub(std::mem::replace(&mut self.before, seen.runs));
        self.full = if seen.still >= seen.wanted { self.full + 1 } else { 0 };
        self.free = if seen.still == 0 { self.free + 1 } else { 0 };
        if came == 0 && seen.still > 0 && seen.still == seen.awake {
            // All at work hang, and nobody may be at the sockets.
            self.is_busy = true;
            return self.begin(if seen.lent < seen.still { Verdict::Lend } else { Verdict::Rouse });
        }
        if seen.lent > 0 && self.free >= CREW_LENT_LOOKS {
            return self.begin(Verdict::Rest);
        }
        if !self.is_busy {
            self.is_busy = came >= CREW_BUSY_RUNS || seen.awake > 0 || seen.lent > 0;
            return self.begin(if seen.wanted > 1 && !self.is_busy { Verdict::Rest } else { Verdict::Keep });
        }
        if self.full >= CREW_FULL_LOOKS {
            return self.begin(Verdict::Call);
        }
        self.looks += 1;
        self.awake += seen.awake;
        if self.looks < CREW_CALM_LOOKS { Verdict::Keep } else { self.conclude(seen) }
    }

    /// Whether one less could do what was done since this was asked last, with a fifth of its time to spare. Those who are at
    /// something that takes long, and those who stand in for others, are not counted on.
    fn conclude(&mut self, seen: Seen) -> Verdict {
        let came = seen.runs.wrapping_sub(self.runs);
        self.is_busy = came >= CREW_BUSY_RUNS || self.awake > 0 || seen.lent > 0;
        let is_enough = 5 * self.awake < 4 * self.looks as usize * seen.wanted.saturating_sub(1);
        let is_free = seen.lent == 0 && seen.wanted > seen.still + 1;
        self.begin(if is_enough && is_free { Verdict::Rest } else { Verdict::Keep })
    }

    /// Looks anew after this verdict.
    fn begin(&mut self, verdict: Verdict) -> Verdict {
        (self.full, self.free, self.looks, self.awake, self.runs) = (0, 0, 0, 0, self.before);
        verdict
    }
}
