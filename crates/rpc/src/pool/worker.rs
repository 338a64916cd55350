//! Turns that a connection's worker has himself: a call that is soon done with, in a directory that nobody else is at work in, is
//! done where it was read. No thread of the pool is woken for it, which would cost more than many a call does.
//!
//! Who changes names may hang all the same, in a journal that is full, and whoever looks at the sockets hangs with him: then
//! the overseer calls another worker to them, and gives his turn to the next.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use holdfast_base::limits::TURN_WORKERS_PART;
use tokio::runtime::Handle;

use super::Pool;
use super::turns::Claim;
use crate::service::Turn;

/// The workers of connections.
pub(super) struct Workers {
    runtime: Handle,
    /// As many may have turns at once: those who hang leave the others.
    busy_max: usize,
    busy: AtomicUsize,
}

impl Workers {
    pub(super) fn of(runtime: &Handle) -> Self {
        let busy_max = runtime.metrics().num_workers() / TURN_WORKERS_PART;
        Self { runtime: runtime.clone(), busy_max, busy: AtomicUsize::new(0) }
    }

    /// Has another worker look at the sockets.
    pub(super) fn call_another(&self) {
        drop(self.runtime.spawn(std::future::ready(())));
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
    /// The turn for the worker of this connection, where nobody else wants it and those who have it are soon done.
    pub(crate) fn take_turn(&self, turn: Turn, connection: u64) -> Option<OnWorker<'_>> {
        let busy = self.workers.as_ref()?.begin()?;
        let began = Instant::now();
        let mut state = self.state.lock();
        if state.is_closed {
            return None;
        }
        let claim = state.turns.take(turn, connection, began)?;
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
        state.turns.note(claim, is_done.then(|| now.saturating_duration_since(began)), now);
        state.finish(None, Some(claim));
        pool.wake(&mut state);
    }
}
