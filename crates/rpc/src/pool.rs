//! The offload pool: threads of our own for calls that may wait for a disk. The queue is bounded; a connection
//! whose call finds it full stops reading until there is room.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::connection::{Connection, Ticket};
use crate::dispatch::{self, Work};
use crate::service::Lane;

/// Something for the pool to do.
pub(crate) enum Job {
    /// A call, or the rest of one.
    Call { work: Work, ticket: Ticket },
    /// Anything else.
    Run(Box<dyn FnOnce() + Send>),
}

impl Job {
    fn lane(&self) -> Option<Lane> {
        match self {
            Self::Call { work, .. } => work.lane(),
            Self::Run(_) => None,
        }
    }
}

/// What of a lane is in the pool.
#[derive(Default)]
struct Traffic {
    /// In the queue or held back.
    queued: usize,
    running: usize,
    /// Jobs that came to the head of the queue while the lane had all the threads it may have, oldest first.
    held: VecDeque<Job>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(Option<Lane>, Job)>,
    /// Lanes of which anything is here.
    lanes: FxHashMap<Lane, Traffic>,
    /// Jobs held back in all lanes.
    held: usize,
    /// Connections that found the queue full.
    waiting: VecDeque<Arc<Connection>>,
    idle: usize,
    /// A thread was woken and has not come yet. One at a time: short jobs are done by those who are awake before
    /// more would come, and a thread that comes and finds more than its own job wakes the next. So many run as
    /// there is work that waits, and not one for each call of a burst, all after the same directory's lock.
    is_waking: bool,
    is_closed: bool,
}

impl State {
    /// Whether somebody is to be woken now; whoever asks does it. While jobs are queued and threads idle, one is
    /// always on its way.
    fn must_wake(&mut self) -> bool {
        let must = !self.queue.is_empty() && self.idle > 0 && !self.is_waking;
        self.is_waking |= must;
        must
    }

    /// Jobs that wait.
    fn len(&self) -> usize {
        self.queue.len() + self.held
    }

    /// Jobs of a lane that wait.
    fn len_of(&self, lane: Option<Lane>) -> usize {
        lane.and_then(|lane| self.lanes.get(&lane)).map_or(0, |traffic| traffic.queued)
    }

    fn push(&mut self, job: Job) {
        let lane = job.lane();
        if let Some(lane) = lane {
            self.lanes.entry(lane).or_default().queued += 1;
        }
        self.queue.push_back((lane, job));
    }

    /// Takes out the first job whose lane has fewer than so many threads, and puts those before it aside.
    fn pop(&mut self, lane_threads: usize) -> Option<(Option<Lane>, Job)> {
        loop {
            let (lane, job) = self.queue.pop_front()?;
            let Some(traffic) = lane.and_then(|lane| self.lanes.get_mut(&lane)) else {
                return Some((lane, job));
            };
            if traffic.running < lane_threads {
                traffic.queued -= 1;
                traffic.running += 1;
                return Some((lane, job));
            }
            traffic.held.push_back(job);
            self.held += 1;
        }
    }

    /// A job taken out has run: the oldest that was put aside has its turn.
    fn finish(&mut self, lane: Option<Lane>) {
        let Some(traffic) = lane.and_then(|lane| self.lanes.get_mut(&lane)) else { return };
        traffic.running -= 1;
        let is_last = traffic.running == 0 && traffic.queued == 0;
        if let Some(job) = traffic.held.pop_front() {
            self.held -= 1;
            self.queue.push_front((lane, job));
        } else if let Some(lane) = lane.filter(|_| is_last) {
            self.lanes.remove(&lane);
        }
    }

    /// Lets everything have its turn.
    fn release_held(&mut self) {
        for (lane, traffic) in &mut self.lanes {
            self.queue.extend(traffic.held.drain(..).map(|job| (Some(*lane), job)));
        }
        self.held = 0;
    }
}

/// The pool is full; what was to be run comes back.
pub struct Full(pub Box<dyn FnOnce() + Send>);

/// Threads that may wait.
pub struct Pool {
    state: Mutex<State>,
    work: Condvar,
    queue_max: usize,
    /// Threads that one lane may have.
    lane_threads: usize,
}

impl Pool {
    /// A pool of so many threads; with none, jobs wait for [`Pool::run_queued`].
    ///
    /// # Errors
    /// When the threads cannot be made.
    pub(crate) fn start(threads: usize, queue_max: usize) -> io::Result<Arc<Self>> {
        // A quarter is left to the others.
        let lane_threads = (threads - threads / 4).max(1);
        let pool = Arc::new(Self { state: Mutex::default(), work: Condvar::new(), queue_max, lane_threads });
        for n in 0..threads {
            let worker = Arc::clone(&pool);
            std::thread::Builder::new()
                .name(format!("offload-{n}"))
                .spawn(move || worker.work())
                .inspect_err(|_| pool.close())?;
        }
        Ok(pool)
    }

    /// Runs something on the pool.
    ///
    /// # Errors
    /// [`Full`], when the queue is.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), Full> {
        let job: Box<dyn FnOnce() + Send> = Box::new(job);
        let mut state = self.state.lock();
        if state.len() >= self.queue_max || state.is_closed {
            return Err(Full(job));
        }
        self.enqueue(&mut state, Job::Run(job));
        Ok(())
    }

    /// Queues a job, or gives it back and kicks the connection as soon as there may be room.
    pub(crate) fn try_push(&self, job: Job, connection: &Arc<Connection>) -> Result<(), Job> {
        let mut state = self.state.lock();
        // Nor may one lane have all of the queue.
        let is_full = state.len() >= self.queue_max || state.len_of(job.lane()) >= self.queue_max.div_ceil(2);
        if is_full && !state.is_closed {
            if !connection.waits_for_pool.swap(true, Ordering::AcqRel) {
                state.waiting.push_back(Arc::clone(connection));
            }
            return Err(job);
        }
        let refused = self.enqueue(&mut state, job);
        drop(state);
        drop(refused);
        Ok(())
    }

    /// Queues a job whose number is bounded elsewhere.
    pub(crate) fn push(&self, job: Job) {
        let mut state = self.state.lock();
        let refused = self.enqueue(&mut state, job);
        drop(state);
        drop(refused);
    }

    /// Queues a job; gives it back, to be dropped without the lock, when the pool takes none any more.
    fn enqueue(&self, state: &mut State, job: Job) -> Option<Job> {
        if state.is_closed {
            return Some(job);
        }
        state.push(job);
        if state.must_wake() {
            self.work.notify_one();
        }
        None
    }

    /// Runs what is queued on this thread, until nothing is.
    pub(crate) fn run_queued(&self) {
        loop {
            let job = self.state.lock().pop(usize::MAX);
            let Some((lane, job)) = job else { return };
            run(job);
            self.state.lock().finish(lane);
        }
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            let lane_threads = if state.is_closed { usize::MAX } else { self.lane_threads };
            if let Some((lane, job)) = state.pop(lane_threads) {
                let waiting = state.waiting.pop_front();
                let must_wake = state.must_wake();
                drop(state);
                if must_wake {
                    self.work.notify_one();
                }
                if let Some(connection) = waiting {
                    connection.waits_for_pool.store(false, Ordering::Release);
                    connection.kick.kick();
                }
                run(job);
                state = self.state.lock();
                state.finish(lane);
            } else if state.is_closed {
                return;
            } else {
                state.idle += 1;
                self.work.wait(&mut state);
                state.idle -= 1;
                state.is_waking = false;
            }
        }
    }

    /// Lets the threads end once the queue is empty, and takes nothing more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.release_held();
        drop(state);
        self.work.notify_all();
    }
}

fn run(job: Job) {
    match job {
        Job::Call { work, ticket } => {
            let connection = Arc::clone(ticket.connection());
            if connection.is_closed() {
                // What has begun goes on: its client asks again over another connection, and is to find it done and
                // answered (RFC 8881 section 2.10.6.2). What has not is as if it had never come.
                if matches!(work, Work::Resume { .. }) {
                    dispatch::run_on_pool(work, ticket);
                }
                return;
            }
            if connection.is_output_full() && !connection.core.is_holding() {
                connection.defer(Job::Call { work, ticket });
            } else {
                dispatch::run_on_pool(work, ticket);
            }
        }
        // The thread is needed for others.
        Job::Run(job) => {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("a background job panicked");
            }
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("queued", &self.state.lock().queue.len()).finish_non_exhaustive()
    }
}
