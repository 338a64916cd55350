//! Who has the turn where calls would be in each other's way, and who waits for it.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use holdfast_base::limits::{TURN_REPLIES_MAX, TURN_WIDTH_MAX};
use rustc_hash::FxHashMap;

use super::queue::Task;
use super::swift::Swift;
use crate::service::Turn;

/// Looks in a row at which all was well, after which half as many have a turn at once.
const CALM_LOOKS: u32 = 16;

/// A job's claim to a turn: it has it as long as nobody took it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) turn: Turn,
    number: u64,
}

/// Who runs a job that takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    /// This thread of the pool.
    Thread(usize),
    /// A worker of connections.
    Worker,
}

/// One who has the turn: his job is queued, or runs.
struct Holder {
    number: u64,
    /// Who runs it.
    runner: Option<Runner>,
    /// Whether it ran when [`Turns::look`] was there last.
    was_seen: bool,
}

/// Of what nobody has any more, so much serves again: a turn that one call has, and then nobody, costs no allocation.
const SPARE_MAX: usize = 16;

#[derive(Default)]
struct Waiting {
    holders: Vec<Holder>,
    /// Those who wait for it, oldest first.
    held: VecDeque<Task>,
    /// Whose call had it first.
    of: Option<u64>,
    /// Others have asked for it meanwhile.
    is_shared: bool,
    /// How many have had the turn one after the other. With any before him, a holder may have their replies wait for his.
    in_row: usize,
}

/// All turns that somebody has.
pub(super) struct Turns {
    of: FxHashMap<Turn, Waiting>,
    spare: Vec<Waiting>,
    swift: Swift,
    claims: u64,
    /// Jobs that wait.
    held: usize,
    /// How many have one turn at once: one, and more for a while where nobody gets a processor in time.
    width: usize,
    calm: u32,
    /// Whether a worker has had a turn since the last look.
    has_worked: bool,
    /// Whether the overseer looks time and again.
    pub(super) is_overseen: bool,
}

impl Default for Turns {
    fn default() -> Self {
        let (of, spare, swift) = (FxHashMap::default(), Vec::new(), Swift::default());
        Self {
            of,
            spare,
            swift,
            claims: 0,
            held: 0,
            width: 1,
            calm: 0,
            has_worked: false,
            is_overseen: false,
        }
    }
}

impl Turns {
    /// Jobs that wait for their turn.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Gives a job back that has the turn now, or none: it waits.
    pub(super) fn ask(&mut self, turn: Turn, mut task: Task) -> Option<Task> {
        let waiting = self.of.entry(turn).or_insert_with(|| self.spare.pop().unwrap_or_default());
        waiting.come(task.job.connection().map(|connection| connection.id()));
        if waiting.holders.len() >= self.width {
            waiting.held.push_back(task);
            self.held += 1;
            return None;
        }
        self.claims += 1;
        task.claim = Some(waiting.claim(turn, self.claims));
        Some(task)
    }

    /// The turn for the worker of this connection, where nobody else has it or waits for it, and whoever has it is soon done. Where
    /// there is but one worker, beside a thread of the pool that still works off what came before: all that come after are for
    /// the worker, and the pool is soon done.
    pub(super) fn take(
        &mut self,
        turn: Turn,
        connection: u64,
        (now, is_one): (Instant, bool),
    ) -> Option<Claim> {
        if !self.is_calm() || !self.swift.is(turn, now) {
            return None;
        }
        let waiting = match self.of.entry(turn) {
            Entry::Occupied(entry) if !is_one || entry.get().has_worker() => return None,
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(self.spare.pop().unwrap_or_default()),
        };
        waiting.come(Some(connection));
        self.claims += 1;
        let claim = waiting.claim(turn, self.claims);
        self.begin(claim, Runner::Worker);
        self.has_worked = true;
        Some(claim)
    }

    /// Whoever has this claim is done after so long; `None` where he is not, and others are to go on. Where there is but one worker,
    /// it has the turn to itself whichever connections ask for it.
    pub(super) fn note(&mut self, claim: Claim, took: Option<Duration>, (now, is_one): (Instant, bool)) {
        match (took, self.of.get(&claim.turn)) {
            (Some(took), Some(waiting)) if is_one || !waiting.is_shared => {
                self.swift.note(claim.turn, took, now);
            }
            _ => self.swift.forget(claim.turn),
        }
    }

    /// This turn is one that is soon done with.
    #[cfg(test)]
    pub(super) fn remember(&mut self, turn: Turn) {
        let now = Instant::now();
        while !self.swift.is(turn, now) {
            self.swift.note(turn, Duration::ZERO, now);
        }
    }

    /// A job begins here.
    pub(super) fn begin(&mut self, claim: Claim, runner: Runner) {
        let waiting = self.of.get_mut(&claim.turn);
        let holder = waiting.and_then(|w| w.holders.iter_mut().find(|holder| holder.number == claim.number));
        if let Some(holder) = holder {
            holder.runner = Some(runner);
        }
    }

    /// Takes the turn from a job that has ended, or waits. Gives the one that has it now, and whether others than those who
    /// take turns here are to come before it.
    pub(super) fn pass_on(&mut self, claim: Claim) -> Option<(Task, bool)> {
        let waiting = self.of.get_mut(&claim.turn)?;
        let at = waiting.holders.iter().position(|holder| holder.number == claim.number)?;
        waiting.holders.swap_remove(at);
        self.next(claim.turn)
    }

    /// The next who has the turn, if any may.
    fn next(&mut self, turn: Turn) -> Option<(Task, bool)> {
        let waiting = self.of.get_mut(&turn)?;
        if waiting.holders.len() >= self.width {
            return None;
        }
        let Some(mut task) = waiting.held.pop_front() else {
            if waiting.holders.is_empty()
                && let Some(mut waiting) = self.of.remove(&turn)
                && self.spare.len() < SPARE_MAX
            {
                (waiting.in_row, waiting.of, waiting.is_shared) = (0, None, false);
                self.spare.push(waiting);
            }
            return None;
        };
        self.held -= 1;
        self.claims += 1;
        waiting.in_row += 1;
        task.claim = Some(waiting.claim(turn, self.claims));
        Some((task, waiting.in_row.is_multiple_of(TURN_REPLIES_MAX)))
    }

    /// Whether those who have a turn get on with it: elsewhere no reply is to wait for another's.
    pub(super) const fn is_calm(&self) -> bool {
        self.width == 1
    }

    /// Whether a worker has had a turn since this was asked last, or has one.
    pub(super) fn were_workers(&mut self) -> bool {
        let have = self.has_workers();
        std::mem::replace(&mut self.has_worked, have)
    }

    fn has_workers(&self) -> bool {
        self.of.values().any(Waiting::has_worker)
    }

    /// Whether anybody would be held up by who hangs.
    pub(super) fn may_hold_up(&self) -> bool {
        // Where more have one at once than should, it goes on until they do not.
        self.held > 0
            || self.has_worked
            || !self.is_calm()
            || self.of.values().any(|waiting| waiting.in_row > 0)
    }

    /// Takes the turn from those who had it at the last look as well. Where this look `is_late`, nobody is there in time,
    /// whoever has the turn: then more have one at once. Gives those who have lost it, and the jobs that have it now.
    pub(super) fn look(&mut self, is_late: bool) -> (Vec<Runner>, Vec<Task>) {
        let (mut stuck, mut turns) = (Vec::new(), Vec::new());
        for (turn, waiting) in &mut self.of {
            let before = stuck.len();
            waiting.holders.retain_mut(|holder| {
                let Some(runner) = holder.runner else { return true };
                let is_stuck = std::mem::replace(&mut holder.was_seen, true);
                stuck.extend(is_stuck.then_some(runner));
                !is_stuck
            });
            if stuck.len() > before {
                // What one hangs in the next would, too.
                self.swift.forget(*turn);
            }
            if is_late || stuck.len() > before {
                turns.push(*turn);
            }
        }
        self.adapt(is_late);
        let mut next = Vec::new();
        for turn in turns {
            while let Some((task, _)) = self.next(turn) {
                next.push(task);
            }
        }
        (stuck, next)
    }

    fn adapt(&mut self, is_late: bool) {
        self.calm = if is_late { 0 } else { self.calm + 1 };
        if is_late {
            self.width = (2 * self.width).min(TURN_WIDTH_MAX);
        } else if self.calm >= CALM_LOOKS {
            (self.width, self.calm) = ((self.width / 2).max(1), 0);
        }
    }

    /// All that wait, for the end: nobody waits any more.
    pub(super) fn release(&mut self) -> impl Iterator<Item = Task> {
        self.held = 0;
        std::mem::take(&mut self.of).into_values().flat_map(|waiting| waiting.held)
    }
}

impl Waiting {
    fn has_worker(&self) -> bool {
        self.holders.iter().any(|holder| holder.runner == Some(Runner::Worker))
    }

    /// A call of this connection asks for the turn.
    fn come(&mut self, connection: Option<u64>) {
        self.is_shared |= self.of.is_some() && self.of != connection;
        self.of = self.of.or(connection);
    }

    fn claim(&mut self, turn: Turn, number: u64) -> Claim {
        self.holders.push(Holder { number, runner: None, was_seen: false });
        Claim { turn, number }
    }
}
