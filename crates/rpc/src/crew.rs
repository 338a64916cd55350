//! Who serves the connections: *hands*, each a task of the runtime's, of which as few are at work as can do what there is to do.
//!
//! One hand does most of what comes thriftier than several: those wake each other in vain, fetch each other's data and fight for
//! the same directories. So the tasks of connections stand in one queue, and hands take them out of it one after the other. A second hand comes
//! when the first has no moment to spare, or hangs; how many there are to be, [`overseer`] says.

mod overseer;
mod task;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use tokio::runtime::Handle;

use self::task::Task;
pub(crate) use self::task::pass;

/// Tasks that a hand runs before its worker looks at the sockets,
const RUNS_MAX: usize = 32;

/// and for how long it does.
const RUNS_TIME: Duration = Duration::from_micros(500);

/// The hands of a server, and what there is to do.
pub(crate) struct Crew {
    runtime: Handle,
    state: Mutex<State>,
    /// As many hands are to be at work at most.
    wanted: AtomicUsize,
}

struct State {
    ready: VecDeque<Arc<Task>>,
    hands: Vec<Hand>,
    /// Those that rest.
    resting: Vec<usize>,
    /// As many are at work in place of one that hung.
    lent: usize,
    /// Times that a task was taken out of the queue.
    runs: u64,
    /// Tasks that have not ended, by their numbers.
    live: FxHashMap<u64, Arc<Task>>,
    next_number: u64,
    /// No more tasks come.
    is_finishing: bool,
}

#[derive(Default)]
struct Hand {
    /// Wakes it, once it has rested.
    waker: Option<Waker>,
    is_resting: bool,
    /// How often it began to rest, or was roused.
    moves: u64,
}

impl State {
    fn awake(&self) -> usize {
        self.hands.len() - self.resting.len()
    }

    fn is_over(&self) -> bool {
        self.is_finishing && self.live.is_empty()
    }

    /// One that rests is at work from now on; it is to be woken once the lock is gone.
    fn rouse(&mut self) -> Option<Waker> {
        let hand = &mut self.hands[self.resting.pop()?];
        (hand.is_resting, hand.moves) = (false, hand.moves + 1);
        hand.waker.clone()
    }
}

impl Crew {
    /// So many hands of `runtime`, of which one is to be at work.
    pub(crate) fn new(runtime: &Handle, hands: usize) -> Arc<Self> {
        let state = State {
            ready: VecDeque::new(),
            hands: (0..hands).map(|_| Hand::default()).collect(),
            resting: Vec::with_capacity(hands),
            lent: 0,
            runs: 0,
            live: FxHashMap::default(),
            next_number: 0,
            is_finishing: false,
        };
        Arc::new(Self { runtime: runtime.clone(), state: Mutex::new(state), wanted: AtomicUsize::new(1) })
    }

    /// A hand for each worker of `runtime`, and who looks after them.
    ///
    /// # Errors
    /// When a thread cannot be made.
    pub(crate) fn start(runtime: &Handle) -> io::Result<Arc<Self>> {
        let hands = runtime.metrics().num_workers();
        let crew = Self::new(runtime, hands);
        for hand in 0..hands {
            // It counts its own calls, so that a task is let go of between two wake-ups and nowhere else.
            runtime.spawn(tokio::task::unconstrained(Member(Arc::clone(&crew)).work(hand)));
        }
        overseer::start(&crew).inspect_err(|_| crew.finish())?;
        Ok(crew)
    }

    /// The runtime that it is of.
    pub(crate) const fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Whether one hand does all there is to do, so that none is in another's way.
    pub(crate) fn is_one(&self) -> bool {
        self.wanted() == 1
    }

    fn wanted(&self) -> usize {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Has hands run a future to its end. That it panics is its own affair.
    pub(crate) fn spawn(self: &Arc<Self>, future: impl Future<Output = ()> + Send + 'static) {
        let mut state = self.state.lock();
        state.next_number += 1;
        let number = state.next_number;
        let task = Task::new(self, number, Box::pin(future));
        state.live.insert(number, Arc::clone(&task));
        drop(state);
        self.push(task);
    }

    /// There is this to do.
    fn push(&self, task: Arc<Task>) {
        let mut state = self.state.lock();
        state.ready.push_back(task);
        if state.awake() < self.wanted() {
            rouse(state);
        }
    }

    /// This is to be done once more, by the hand that asks for it or one that is at work before: nobody is roused for it.
    fn push_again(&self, task: Arc<Task>) {
        self.state.lock().ready.push_back(task);
    }

    /// The future of a task has ended.
    fn end_one(&self, number: u64) {
        let mut state = self.state.lock();
        let ended = state.live.remove(&number);
        self.end_all(state);
        drop(ended);
    }

    /// No more is spawned: the hands go when all tasks have ended.
    pub(crate) fn finish(&self) {
        let mut state = self.state.lock();
        state.is_finishing = true;
        self.end_all(state);
    }

    fn end_all(&self, mut state: MutexGuard<'_, State>) {
        let mut roused = Vec::new();
        if state.is_over() {
            roused.extend(std::iter::from_fn(|| state.rouse()));
        }
        drop(state);
        roused.into_iter().for_each(Waker::wake);
    }

    /// Runs what is ready, or rests until something is. Ready with whether there is to be more, after so much that the sockets should be looked at.
    fn run_some(&self, hand: usize, cx: &mut Context<'_>) -> Poll<bool> {
        let began = Instant::now();
        for _ in 0..RUNS_MAX {
            let Some(task) = ready!(self.next(hand, cx)) else { return Poll::Ready(false) };
            task.run();
            if began.elapsed() > RUNS_TIME {
                break;
            }
        }
        Poll::Ready(true)
    }

    /// What is to be done next by this hand; when nothing is, it rests, unless all is over.
    fn next(&self, hand: usize, cx: &Context<'_>) -> Poll<Option<Arc<Task>>> {
        let mut state = self.state.lock();
        if state.is_over() {
            return Poll::Ready(None);
        }
        let is_needed = state.awake() <= self.wanted();
        if is_needed && let Some(task) = state.ready.pop_front() {
            state.runs += 1;
            return Poll::Ready(Some(task));
        }
        let Hand { waker, is_resting, moves } = &mut state.hands[hand];
        if !*is_resting {
            (*is_resting, *moves) = (true, *moves + 1);
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            state.resting.push(hand);
        }
        Poll::Pending
    }

    /// One more hand is to be at work, if there is one.
    fn call_one(&self) {
        let mut state = self.state.lock();
        self.call(&mut state);
        rouse(state);
    }

    /// One hand hangs: another looks at the sockets, and does what there is to do until that is over.
    pub(crate) fn lend_one(&self) {
        let mut state = self.state.lock();
        state.lent += usize::from(self.call(&mut state));
        rouse(state);
    }

    /// One hand that rests looks at the sockets, where nobody may be.
    fn rouse_one(&self) {
        rouse(self.state.lock());
    }

    fn call(&self, state: &mut State) -> bool {
        let is_any = self.wanted() < state.hands.len();
        if is_any {
            self.wanted.store(self.wanted() + 1, Ordering::Relaxed);
        }
        is_any
    }

    /// One hand less is to be at work.
    fn rest_one(&self) {
        let mut state = self.state.lock();
        state.lent = state.lent.saturating_sub(1);
        self.wanted.store(self.wanted().saturating_sub(1).max(1), Ordering::Relaxed);
    }
}

/// One that rests, if any does, is at work until it finds that it need not be; then its worker looks at the sockets.
fn rouse(mut state: MutexGuard<'_, State>) {
    let roused = state.rouse();
    drop(state);
    if let Some(waker) = roused {
        waker.wake();
    }
}

/// One hand's place in the crew.
struct Member(Arc<Crew>);

impl Member {
    /// Its work, until all is over.
    async fn work(self, hand: usize) {
        while poll_fn(|cx| self.0.run_some(hand, cx)).await {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Member {
    /// The runtime goes, or all is over: nobody runs what is left, which wakers in it would keep for ever.
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_finishing = true;
        let left = std::mem::take(&mut state.live);
        drop(state);
        left.values().for_each(|task| task.abandon());
    }
}
