//! The thread that writes records for those who must not wait for a disk that hangs: they hold the state engine, or one of the
//! threads that serve everybody. What is written, and what an answer that does not come in time means, its callers decide;
//! here is the order, and that nobody waits for long.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Durable;

/// A piece of work on records, as it waits for its turn.
type Job = Box<dyn FnOnce(&Durable) + Send>;

/// How far a job has come.
enum Stage<R> {
    Queued,
    Begun,
    /// Done; without an answer when it panicked.
    Here(Option<R>),
    /// Who asked has left: what was not begun is not done.
    Left,
}

/// What becomes of who waits in vain for a job that has begun, of which nobody knows what it will have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// It leaves: it holds what others need, or can ask again.
    Leaves,
    /// It stays to the end. There is one at most, as one job is done at a time.
    Stays,
}

struct Answer<R> {
    stage: Mutex<Stage<R>>,
    is_here: Condvar,
}

impl<R> Answer<R> {
    fn run(&self, counts: &Counts, durable: &Durable, job: impl FnOnce(&Durable) -> R) {
        if self.begin() {
            // Of a panic the hook has told.
            let result = catch_unwind(AssertUnwindSafe(|| job(durable))).ok();
            let mut stage = self.stage.lock();
            if matches!(*stage, Stage::Begun) {
                *stage = Stage::Here(result);
                self.is_here.notify_one();
                return;
            }
        }
        counts.late.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether somebody waits for it still.
    fn begin(&self) -> bool {
        let mut stage = self.stage.lock();
        let is_awaited = matches!(*stage, Stage::Queued);
        if is_awaited {
            *stage = Stage::Begun;
        }
        is_awaited
    }
}

/// What jobs are under way.
#[derive(Default)]
struct Counts {
    /// Whose answers were not waited for to their end, and are still to come.
    late: AtomicUsize,
    /// All.
    open: AtomicUsize,
}

/// The way to the thread, which ends when this is dropped.
pub(super) struct Scribe {
    // Bounded by who sends: what is waited for is not sent any more once somebody's answer is late, and what is not comes
    // once for each client that has reclaimed and for each session on record that goes.
    jobs: Sender<Job>,
    counts: Arc<Counts>,
}

impl Scribe {
    /// # Errors
    /// When the thread cannot be made.
    pub(super) fn start(durable: Weak<Durable>) -> io::Result<Self> {
        let (jobs, queue) = channel();
        thread::Builder::new().name("records".into()).spawn(move || work(&queue, &durable))?;
        Ok(Self { jobs, counts: Arc::default() })
    }

    /// Whether somebody's answer is late: whoever asks now would wait as long for nothing.
    pub(super) fn is_late(&self) -> bool {
        self.counts.late.load(Ordering::SeqCst) > 0
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.counts.open.load(Ordering::SeqCst) == 0
    }

    /// Has something done after all that was asked for before, and waits for its answer, at first for `wait_ms`. `None` when it
    /// was not begun by then, and is not done; or it was, and `patience` does not stay to see what comes of it.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        (wait_ms, patience): (u64, Patience),
        job: impl FnOnce(&Durable) -> R + Send + 'static,
    ) -> Option<R> {
        let until = Instant::now() + Duration::from_millis(wait_ms);
        let answer = Arc::new(Answer { stage: Mutex::new(Stage::Queued), is_here: Condvar::new() });
        let (counts, told) = (Arc::clone(&self.counts), Arc::clone(&answer));
        self.send(Box::new(move |durable: &Durable| told.run(&counts, durable, job)));
        let mut stage = answer.stage.lock();
        while !matches!(*stage, Stage::Here(_)) {
            if answer.is_here.wait_until(&mut stage, until).timed_out() {
                break;
            }
        }
        if !matches!(*stage, Stage::Here(_)) {
            // Under the lock, so that it is counted before the job counts it down.
            self.counts.late.fetch_add(1, Ordering::SeqCst);
        } else if let Stage::Here(result) = std::mem::replace(&mut *stage, Stage::Left) {
            return result;
        }
        if matches!(*stage, Stage::Queued) || patience == Patience::Leaves {
            *stage = Stage::Left;
            return None;
        }
        loop {
            match std::mem::replace(&mut *stage, Stage::Begun) {
                Stage::Here(result) => {
                    self.counts.late.fetch_sub(1, Ordering::SeqCst);
                    return result;
                }
                _ => answer.is_here.wait(&mut stage),
            }
        }
    }

    /// Has something done that nobody waits for.
    pub(super) fn tell(&self, job: impl FnOnce(&Durable) + Send + 'static) {
        self.send(Box::new(move |durable: &Durable| {
            let _ = catch_unwind(AssertUnwindSafe(|| job(durable)));
        }));
    }

    fn send(&self, job: Job) {
        self.counts.open.fetch_add(1, Ordering::SeqCst);
        let counts = Arc::clone(&self.counts);
        let counted = move |durable: &Durable| {
            job(durable);
            counts.open.fetch_sub(1, Ordering::SeqCst);
        };
        // The thread is there for as long as this is.
        let _ = self.jobs.send(Box::new(counted));
    }
}

fn work(queue: &Receiver<Job>, durable: &Weak<Durable>) {
    while let Ok(job) = queue.recv() {
        // Whoever asks has it; of what nobody waits for, the next start takes care as after a crash.
        let Some(durable) = durable.upgrade() else { return };
        job(&durable);
    }
}
