//! Who waits for which answer.

use std::sync::Arc;
use std::thread::Thread;
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use holdfast_base::limits::LINK_CALLS_MAX;

use super::{Cancel, Inner, Stopped};
use crate::callback::CallError;

/// An answer: the whole record, and where its results begin.
#[derive(Clone, Debug)]
pub struct Reply {
    record: Bytes,
    at: usize,
}

impl Reply {
    pub(super) fn new(record: Bytes, at: usize) -> Self {
        Self { record, at }
    }

    /// The encoded results.
    #[must_use]
    pub fn results(&self) -> &[u8] {
        &self.record[self.at..]
    }

    /// A part of the results, to keep: the record is shared, not copied.
    ///
    /// # Panics
    /// When `part` is no part of [`Reply::results`].
    #[must_use]
    pub fn keep(&self, part: &[u8]) -> Bytes {
        self.record.slice_ref(part)
    }
}

type Outcome = Result<Reply, CallError>;

/// What becomes of an answer that nobody waits for any more. Runs on the reading thread: it must not block.
pub(super) type Late = Box<dyn FnOnce(Outcome) + Send>;

enum State {
    Awaited(Thread),
    Abandoned(Late),
    Here(Outcome),
    Over,
}

struct Cell(Mutex<State>);

impl Cell {
    fn finish(&self, outcome: Outcome) {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Over) {
            State::Awaited(thread) => {
                *state = State::Here(outcome);
                drop(state);
                thread.unpark();
            }
            State::Abandoned(late) => {
                drop(state);
                late(outcome);
            }
            other => *state = other,
        }
    }
}

/// The unanswered calls of a link.
pub(super) struct Calls(Mutex<Table>);

struct Table {
    xid: u32,
    waiting: FxHashMap<u32, Arc<Cell>>,
    is_closed: bool,
}

impl Calls {
    pub(super) fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        // A server that remembers calls by number shall not take ours for those of an earlier life.
        let xid = RandomState::new().hash_one(0) as u32;
        Self(Mutex::new(Table { xid, waiting: FxHashMap::default(), is_closed: false }))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.lock().is_closed
    }

    /// Notes that this thread is about to call.
    pub(super) fn begin(&self, link: &Arc<Inner>) -> Result<Pending, CallError> {
        let cell = Arc::new(Cell(Mutex::new(State::Awaited(std::thread::current()))));
        let mut table = self.0.lock();
        if table.is_closed {
            return Err(CallError::Closed);
        }
        if table.waiting.len() >= LINK_CALLS_MAX {
            return Err(CallError::Busy);
        }
        let mut xid = table.xid.wrapping_add(1);
        while table.waiting.contains_key(&xid) {
            xid = xid.wrapping_add(1);
        }
        table.xid = xid;
        table.waiting.insert(xid, Arc::clone(&cell));
        drop(table);
        Ok(Pending { link: Arc::clone(link), xid, cell })
    }

    /// Hands over an answer. False when nobody asked.
    pub(super) fn finish(&self, xid: u32, outcome: Outcome) -> bool {
        let cell = self.0.lock().waiting.remove(&xid);
        cell.map(|cell| cell.finish(outcome)).is_some()
    }

    /// Tells all that nothing will come.
    pub(super) fn close(&self) {
        let mut table = self.0.lock();
        table.is_closed = true;
        let waiting = std::mem::take(&mut table.waiting);
        drop(table);
        waiting.into_values().for_each(|cell| cell.finish(Err(CallError::Closed)));
    }

    fn forget(&self, xid: u32) {
        self.0.lock().waiting.remove(&xid);
    }
}

/// A call under way. Dropped, its answer is passed over.
pub struct Pending {
    link: Arc<Inner>,
    xid: u32,
    cell: Arc<Cell>,
}

impl Pending {
    pub(super) const fn xid(&self) -> u32 {
        self.xid
    }

    /// Sleeps until the answer is here. Only for the thread that began the call.
    ///
    /// # Errors
    /// [`Stopped`] when it was given up: it is still under way, may be waited for again, or abandoned.
    pub fn wait(&self, cancel: &Cancel, deadline: Option<Instant>) -> Result<Outcome, Stopped> {
        cancel.wait(deadline, || {
            let mut state = self.cell.0.lock();
            if !matches!(*state, State::Here(_)) {
                return None;
            }
            match std::mem::replace(&mut *state, State::Over) {
                State::Here(outcome) => Some(outcome),
                _ => None,
            }
        })
    }

    /// Gives up waiting: `late` is told when the answer comes after all, or will not come. It runs on the reading
    /// thread, or at once here, and must not block.
    pub fn abandon(self, late: impl FnOnce(Result<Reply, CallError>) + Send + 'static) {
        let mut state = self.cell.0.lock();
        match std::mem::replace(&mut *state, State::Over) {
            State::Awaited(_) => *state = State::Abandoned(Box::new(late)),
            State::Here(outcome) => {
                drop(state);
                late(outcome);
            }
            other => *state = other,
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let state = self.cell.0.lock();
        let is_awaited = matches!(*state, State::Awaited(_));
        drop(state);
        if is_awaited {
            self.link.calls.forget(self.xid);
        }
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("xid", &self.xid).finish_non_exhaustive()
    }
}
