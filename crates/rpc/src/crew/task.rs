//! What one connection has to do, as a future that hands run.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use super::Crew;

/// It waits to be woken.
const IDLE: u8 = 0;
/// It stands in the queue.
const READY: u8 = 1;
/// A hand runs it;
const RUNS: u8 = 2;
/// and it was woken meanwhile.
const RUNS_AGAIN: u8 = 3;
/// It has ended.
const ENDED: u8 = 4;

pub(super) struct Task {
    crew: Weak<Crew>,
    number: u64,
    state: AtomicU8,
    /// Whoever runs it has the lock, and who drops it.
    future: Mutex<Option<Work>>,
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Task {
    /// One that is to be queued by its maker.
    pub(super) fn new(crew: &Arc<Crew>, number: u64, work: Work) -> Arc<Self> {
        let (state, future) = (AtomicU8::new(READY), Mutex::new(Some(work)));
        Arc::new(Self { crew: Arc::downgrade(crew), number, state, future })
    }

    /// Runs what was queued.
    pub(super) fn run(self: Arc<Self>) {
        // Whoever woke it before has written the state, so that what he did before that is seen from here on.
        self.state.swap(RUNS, Ordering::AcqRel);
        let waker = Waker::from(Arc::clone(&self));
        if self.poll(&mut Context::from_waker(&waker)).is_ready() {
            self.state.store(ENDED, Ordering::Release);
            if let Some(crew) = self.crew.upgrade() {
                crew.end_one(self.number);
            }
            return;
        }
        if self.state.compare_exchange(RUNS, IDLE, Ordering::AcqRel, Ordering::Acquire).is_err() {
            self.state.swap(READY, Ordering::AcqRel);
            if let Some(crew) = self.crew.upgrade() {
                crew.push_again(self);
            }
        }
    }

    /// Polls it; what ended is dropped, as is what panicked.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut future = self.future.lock();
        let Some(running) = future.as_mut() else { return Poll::Ready(()) };
        let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(cx)));
        if matches!(polled, Ok(Poll::Pending)) {
            return Poll::Pending;
        }
        if polled.is_err() {
            tracing::error!("the task of a connection panicked");
        }
        // The state is not ended yet, so that whoever wakes it from in there finds it running.
        drop(catch_unwind(AssertUnwindSafe(|| drop(future.take()))));
        Poll::Ready(())
    }

    /// It is never run again.
    pub(super) fn abandon(&self) {
        let future = self.future.lock().take();
        drop(catch_unwind(AssertUnwindSafe(|| drop(future))));
    }

    /// Whether it is to be queued by who wakes it. The state is written even where it stays.
    fn is_woken(&self) -> bool {
        let woken = self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| match state {
            IDLE | READY => Some(READY),
            RUNS | RUNS_AGAIN => Some(RUNS_AGAIN),
            _ => None,
        });
        woken == Ok(IDLE)
    }

    fn queue(self: Arc<Self>) {
        if let Some(crew) = self.crew.upgrade() {
            crew.push(self);
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.is_woken() {
            self.queue();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken() {
            Arc::clone(self).queue();
        }
    }
}

/// Lets the other tasks have their turn.
pub(crate) async fn pass() {
    let mut has_passed = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_passed, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
