//! The offload pool: threads of our own for calls that may wait for a disk. The queue is bounded; a connection
//! whose call finds it full stops reading until there is room.

mod queue;
mod swift;
#[cfg(test)]
mod tests;
mod turns;
mod worker;

use std::cell::{Cell, RefCell};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_base::limits::{TURN_LATE_MS, TURN_MS, TURN_WORKER_US};
use holdfast_base::waiting;
use parking_lot::{Condvar, Mutex, MutexGuard};

use self::queue::{State, Task};
use self::turns::{Claim, Runner};
use self::worker::Workers;
use crate::connection::{Connection, Ticket};
use crate::crew::Crew;
use crate::dispatch::{self, Work};
use crate::service::{Lane, Turn};
use crate::together::{self, Shelf};

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

    fn turn(&self) -> Option<Turn> {
        match self {
            Self::Call { work, .. } => work.turn(),
            Self::Run(_) => None,
        }
    }

    /// The connection that it is a call of.
    fn connection(&self) -> Option<&Arc<Connection>> {
        match self {
            Self::Call { ticket, .. } => Some(ticket.connection()),
            Self::Run(_) => None,
        }
    }
}

/// The pool is full; what was to be run comes back.
pub struct Full(pub Box<dyn FnOnce() + Send>);

/// What a thread of the pool has for itself.
#[derive(Default)]
struct Seat {
    /// Wakes it.
    bell: Condvar,
    /// Replies of its that wait for the next.
    shelf: Arc<Shelf>,
}

thread_local! {
    /// The pool that this thread is of, and which it is of its threads.
    static POOL: RefCell<Option<(Arc<Pool>, usize)>> = const { RefCell::new(None) };
    /// What the job at hand has the turn for.
    static CLAIM: Cell<Option<Claim>> = const { Cell::new(None) };
}

/// Threads that may wait.
pub struct Pool {
    state: Mutex<State>,
    seats: Vec<Seat>,
    /// Wakes the overseer.
    overseer: Condvar,
    queue_max: usize,
    /// Threads that one lane may have.
    lane_threads: usize,
    /// Those of connections, which may have turns themselves; none without a network.
    workers: Option<Workers>,
}

impl Pool {
    /// A pool of so many threads; with none, jobs wait for [`Pool::run_queued`]. `crew` serves the connections.
    ///
    /// # Errors
    /// When the threads cannot be made.
    pub(crate) fn start(threads: usize, queue_max: usize, crew: Option<&Arc<Crew>>) -> io::Result<Arc<Self>> {
        // A quarter is left to the others.
        let lane_threads = (threads - threads / 4).max(1);
        let seats = (0..threads).map(|_| Seat::default()).collect();
        let (state, overseer) = (Mutex::default(), Condvar::new());
        let workers = crew.map(Workers::of);
        let pool = Arc::new(Self { state, seats, overseer, queue_max, lane_threads, workers });
        let spawn = |name: String, run: Box<dyn FnOnce(Arc<Self>) + Send>| {
            let this = Arc::clone(&pool);
            let spawned = std::thread::Builder::new().name(name).spawn(move || run(this));
            spawned.map(drop).inspect_err(|_| pool.close())
        };
        for n in 0..threads {
            spawn(format!("offload-{n}"), Box::new(move |pool| pool.work(n)))?;
        }
        if threads > 0 {
            spawn("offload-oversee".to_owned(), Box::new(|pool| pool.oversee()))?;
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
        self.wake(state);
        if state.turns.held() > 0 {
            self.oversee_turns(state);
        }
        None
    }

    /// Has the overseer look, time and again while there is anything to see.
    fn oversee_turns(&self, state: &mut State) {
        if !std::mem::replace(&mut state.turns.is_overseen, true) {
            self.overseer.notify_one();
        }
    }

    /// Wakes a thread where one is to be.
    fn wake(&self, state: &mut State) {
        if let Some(thread) = state.next_to_wake() {
            self.seats[thread].bell.notify_one();
        }
    }

    /// Runs what is queued on this thread, until nothing is.
    pub(crate) fn run_queued(&self) {
        loop {
            let task = self.state.lock().pop(usize::MAX, 0);
            let Some(Task { lane, claim, job }) = task else { return };
            run(job);
            self.state.lock().finish(lane, claim);
        }
    }

    fn work(self: Arc<Self>, thread: usize) {
        POOL.set(Some((Arc::clone(&self), thread)));
        waiting::tell(step_aside);
        let Seat { bell, shelf } = &self.seats[thread];
        together::has_shelf(shelf);
        let mut state = self.state.lock();
        loop {
            let lane_threads = if state.is_closed { usize::MAX } else { self.lane_threads };
            if let Some(task) = state.pop(lane_threads, thread) {
                state = self.run_task(state, task, shelf);
            } else if state.is_closed {
                return;
            } else {
                state.idle.push_back(thread);
                bell.wait(&mut state);
                state.is_waking = false;
            }
        }
    }

    /// Runs a job that was taken out, and sends its reply, unless the next is of the same turn and for the same client:
    /// then both leave together.
    fn run_task<'p>(
        &'p self,
        mut state: MutexGuard<'p, State>,
        Task { lane, claim, job }: Task,
        shelf: &Shelf,
    ) -> MutexGuard<'p, State> {
        let waiting = state.waiting.pop_front();
        self.wake(&mut state);
        drop(state);
        if let Some(connection) = waiting {
            connection.waits_for_pool.store(false, Ordering::Release);
            connection.kick.kick();
        }
        CLAIM.set(claim);
        together::use_shelf(claim.is_some());
        let began = claim.map(|claim| (claim, Instant::now()));
        run(job);
        let ended = began.map(|(claim, began)| (claim, began.elapsed(), Instant::now()));
        let mut state = self.state.lock();
        if let Some((claim, took, now)) = ended {
            state.turns.note(claim, Some(took), (now, self.has_one_worker()));
        }
        state.finish(lane, claim);
        let Some(claim) = claim else { return state };
        let next = |connection: &Arc<Connection>| state.goes_on(claim, connection);
        if !shelf.must_go(next) {
            return state;
        }
        drop(state);
        shelf.send();
        self.state.lock()
    }

    /// Takes the turn from who keeps it too long, time and again while anybody waits for one.
    fn oversee(self: Arc<Self>) {
        let mut state = self.state.lock();
        while !state.is_closed {
            if !state.turns.may_hold_up() {
                state.turns.is_overseen = false;
                self.overseer.wait(&mut state);
                continue;
            }
            let before = Instant::now();
            let often = state.turns.were_workers();
            let pause =
                if often { Duration::from_micros(TURN_WORKER_US) } else { Duration::from_millis(TURN_MS) };
            self.overseer.wait_for(&mut state, pause);
            let is_late = before.elapsed() >= Duration::from_millis(TURN_LATE_MS);
            let stuck = state.relieve(is_late);
            self.wake(&mut state);
            MutexGuard::unlocked(&mut state, || stuck.iter().for_each(|runner| self.stand_in(*runner)));
        }
    }

    /// Does for who hangs what others wait for.
    fn stand_in(&self, runner: Runner) {
        match (runner, &self.workers) {
            (Runner::Thread(thread), _) => self.seats[thread].shelf.send(),
            (Runner::Worker, Some(workers)) => workers.call_another(),
            (Runner::Worker, None) => {}
        }
    }

    /// Lets the threads end once the queue is empty, and takes nothing more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.release_held();
        state.idle.clear();
        drop(state);
        for seat in &self.seats {
            seat.bell.notify_one();
        }
        self.overseer.notify_one();
    }
}

/// The job at hand is about to wait for a peer: others have its turn meanwhile, and replies do not wait for its own.
fn step_aside() {
    let Some(claim) = CLAIM.take() else { return };
    POOL.with_borrow(|seat| {
        let Some((pool, thread)) = seat else { return };
        let mut state = pool.state.lock();
        state.pass_on(claim);
        pool.wake(&mut state);
        drop(state);
        pool.seats[*thread].shelf.send();
    });
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
        f.debug_struct("Pool").field("queued", &self.state.lock().len()).finish_non_exhaustive()
    }
}
