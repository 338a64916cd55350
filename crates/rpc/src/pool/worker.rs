//! Turns that a connection's worker has himself: a call that is soon done with, in a directory that nobody else is at work in, is
//! done where it was read. No thread of the pool is woken for it, which would cost more than many a call does.
//!
//! Who changes names may hang all the same, in a journal that is full, and whoever looks at the sockets hangs with him: then
//! the overseer calls another worker to them, and gives his turn to the next.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use holdfast_base::limits::TURN_WORKERS_PART;

use super::Pool;
use super::turns::Claim;
use crate::crew::Crew;
use crate::service::Turn;

/// The workers of connections.
pub(super) struct Workers {
    crew: Arc<Crew>,
    /// As many may have turns at once: those who hang leave the others.
    busy_max: usize,
    busy: AtomicUsize,
}

impl Workers {
    pub(super) fn of(crew: &Arc<Crew>) -> Self {
        let busy_max = crew.runtime().metrics().num_workers() / TURN_WORKERS_PART;
        Self { crew: Arc::clone(crew), busy_max, busy: AtomicUsize::new(0) }
    }

    /// Has another worker look at the sockets.
    pub(super) fn call_another(&self) {
        self.crew.lend_one();
    }

    fn begin(&self) -> Option<Busy<'_>> {
        let before = self.busy.fetch_add(1, Ordering::Relaxed);
        let busy = Busy(&self.busy);
        (before < self.busy_max).then_some(busy)
    }
}

/// A worker that has a turn, and may hang.
struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A turn that a worker has.
#[must_use]
pub(crate) struct OnWorker<'a> {
    pool: &'a Pool,
    claim: Claim,
    began: Instant,
    _busy: Busy<'a>,
}

impl Pool {
    pub(super) fn has_one_worker(&self) -> bool {
        self.workers.as_ref().is_some_and(|workers| workers.crew.is_one())
    }

    /// The turn for the worker of this connection, where nobody else wants it and those who have it are soon done.
    pub(crate) fn take_turn(&self, turn: Turn, connection: u64) -> Option<OnWorker<'_>> {
        let busy = self.workers.as_ref()?.begin()?;
        let began = Instant::now();
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        let claim = state.turns.take(turn, connection, (began, self.has_one_worker()))?;
        self.oversee_turns(&mut state);
        Some(OnWorker { pool: self, claim, began, _busy: busy })
    }
}

impl OnWorker<'_> {
    /// The call is done; or it has to go to the pool after all, as those of its turn will have to.
    pub(crate) fn end(self, is_done: bool) {
        let Self { pool, claim, began, .. } = self;
        let now = Instant::now();
        let mut state = pool.state.lock();
        let took = is_done.then(|| now.saturating_duration_since(began));
        state.turns.note(claim, took, (now, pool.has_one_worker()));
        state.finish(None, Some(claim));
        pool.wake(&mut state);
    }
}
