//! Which threads read requests, which serve, and which sleep.
//!
//! A reply comes back fastest when the thread that read a request serves it and reads the next one: a second thread
//! that waits in the kernel beside it takes every other request, and each then runs on a cold cache (a third more time
//! per operation; docs/design/fuse.md). So one thread is *on duty*: it reads and serves, alone, as long as operations
//! are quick. When one says that it waits ([`Crew::will_wait`]), or the watcher sees one that took longer than a
//! tick, its thread goes *off duty* and another takes over: so requests, and INTERRUPTs above all, are always read.
//! When requests are found waiting time and again, more threads are put on duty, up to a bound.
//!
//! At every moment one thread more reads, or can be put on duty: the last one serves nothing that could wait. Where the
//! bound of threads is reached and all the others wait, it reads, queues what it read, and handles INTERRUPTs, until a
//! thread comes free.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_base::limits::{
    FUSE_IDLE_TICKS, FUSE_QUEUE_BYTES_MAX, FUSE_QUEUE_MAX, FUSE_THREAD_IDLE_MS, FUSE_TICK_MS,
};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// Requests found waiting in one tick that call for another reader.
const BACKLOG: u32 = 8;

/// Ticks without any after which one reader less will do.
const QUIET_TICKS: u32 = 25;

/// What one thread is at, for the watcher and for itself.
#[derive(Default)]
pub(crate) struct Duty {
    /// The request it serves; 0 for none.
    serving: AtomicU64,
    /// Whether somebody else reads in its place. Changes under the crew's lock.
    is_off: AtomicBool,
}

/// What a thread is to do next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Read a request.
    Read,
    /// Serve this one.
    Serve(Vec<u8>),
    /// Nothing: end.
    End,
}

struct State {
    threads: usize,
    /// Threads that read, or serve what they read and will read again.
    on_duty: usize,
    /// How many of those there should be.
    wanted: usize,
    parked: usize,
    /// Parked threads that were called, and counted as on duty, and have not woken yet.
    called: usize,
    queue: VecDeque<Vec<u8>>,
    queue_bytes: usize,
    is_closed: bool,
    members: Vec<Arc<Duty>>,
}

/// Starts a thread that will [`Crew::join`]; answers whether it could.
type Start = Box<dyn Fn() -> bool + Send + Sync>;

/// The threads of one session.
pub(crate) struct Crew {
    state: Mutex<State>,
    park: Condvar,
    watch: Condvar,
    ended: Condvar,
    is_watcher_asleep: AtomicBool,
    /// Requests found waiting since the last tick.
    backlog: AtomicU32,
    /// Copy of `on_duty > wanted`.
    is_crowded: AtomicBool,
    /// Whether there are fewer threads to call or start than are on duty: then who serves needs leave.
    is_tight: AtomicBool,
    threads_max: AtomicUsize,
    readers_max: usize,
    readers_min: usize,
    start: Start,
}

impl Crew {
    pub(crate) fn new(threads_max: usize, readers: (usize, usize), start: Start) -> Self {
        let (readers_min, readers_max) = (readers.0.max(1), readers.1.max(readers.0).max(1));
        let state = State {
            threads: 0,
            on_duty: 0,
            wanted: readers_min,
            parked: 0,
            called: 0,
            queue: VecDeque::new(),
            queue_bytes: 0,
            is_closed: false,
            members: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
            park: Condvar::new(),
            watch: Condvar::new(),
            ended: Condvar::new(),
            is_watcher_asleep: AtomicBool::new(false),
            backlog: AtomicU32::new(0),
            is_crowded: AtomicBool::new(false),
            is_tight: AtomicBool::new(false),
            threads_max: AtomicUsize::new(threads_max.max(readers_min + 1)),
            readers_max,
            readers_min,
            start,
        }
    }

    /// Puts the first threads on duty. Answers whether there is any.
    pub(crate) fn open(&self) -> bool {
        let state = self.state.lock();
        self.fill(state);
        self.state.lock().threads > 0
    }

    /// A started thread makes itself known. It was counted as on duty when it was started.
    pub(crate) fn join(&self) -> Arc<Duty> {
        let duty = Arc::new(Duty::default());
        self.state.lock().members.push(Arc::clone(&duty));
        duty
    }

    /// The thread begins to serve a request. With `request` it was read just now, and is queued instead (answering
    /// `false`) where nobody else could read while it is served.
    pub(crate) fn begin(&self, duty: &Duty, unique: u64, request: Option<&[u8]>) -> bool {
        // Both sides write before they read: the watcher sees the request, or this sees that it sleeps; and whoever
        // counts who is free under the lock sees the request, or this sees that it needs leave.
        duty.serving.store(unique, Ordering::SeqCst);
        if self.is_watcher_asleep.load(Ordering::SeqCst) {
            let _state = self.state.lock();
            self.is_watcher_asleep.store(false, Ordering::SeqCst);
            self.watch.notify_one();
        }
        match request {
            Some(request) if self.is_tight.load(Ordering::SeqCst) => self.begin_with_leave(duty, request),
            _ => true,
        }
    }

    fn begin_with_leave(&self, duty: &Duty, request: &[u8]) -> bool {
        let mut state = self.state.lock();
        let is_free = |duty: &&Arc<Duty>| {
            !duty.is_off.load(Ordering::Relaxed) && duty.serving.load(Ordering::SeqCst) == 0
        };
        // This one is not among the free: it has its request already. One that was called has still to wake up.
        let others = state.members.iter().filter(is_free).count() + self.spare(&state) + state.called;
        let has_room =
            state.queue.len() < FUSE_QUEUE_MAX && state.queue_bytes + request.len() <= FUSE_QUEUE_BYTES_MAX;
        if others > 0 || !has_room {
            return true;
        }
        duty.serving.store(0, Ordering::SeqCst);
        state.queue_bytes += request.len();
        state.queue.push_back(request.to_vec());
        false
    }

    /// Threads that could be put on duty at once.
    fn spare(&self, state: &State) -> usize {
        let to_start = self.threads_max.load(Ordering::Relaxed).saturating_sub(state.threads);
        to_start + state.parked - state.called
    }

    /// A request was waiting already when it was read.
    pub(crate) fn note_backlog(&self) {
        self.backlog.fetch_add(1, Ordering::Relaxed);
    }

    /// The thread's request may take long: somebody else reads.
    pub(crate) fn will_wait(&self, duty: &Duty) {
        if !duty.is_off.load(Ordering::Relaxed) {
            let mut state = self.state.lock();
            Self::go_off(&mut state, duty);
            self.fill(state);
        }
    }

    fn go_off(state: &mut State, duty: &Duty) {
        if !duty.is_off.swap(true, Ordering::Relaxed) {
            state.on_duty -= 1;
        }
    }

    /// Puts threads on duty until there are enough, or no more can be had.
    fn fill<'a>(&'a self, mut state: MutexGuard<'a, State>) {
        while !state.is_closed && state.on_duty < state.wanted {
            if state.parked > state.called {
                state.called += 1;
                state.on_duty += 1;
                self.park.notify_one();
            } else if state.threads < self.threads_max.load(Ordering::Relaxed) {
                state.threads += 1;
                state.on_duty += 1;
                // The new thread may read a request before this one has the lock again.
                self.update(&state);
                drop(state);
                let is_started = (self.start)();
                state = self.state.lock();
                if !is_started {
                    state.threads -= 1;
                    state.on_duty -= 1;
                    // What there is must do: the system gives no more.
                    self.threads_max.store(state.threads.max(1), Ordering::Relaxed);
                }
            } else {
                break;
            }
        }
        self.update(&state);
    }

    fn update(&self, state: &State) {
        self.is_crowded.store(state.on_duty > state.wanted, Ordering::Relaxed);
        self.is_tight.store(self.spare(state) < state.on_duty.max(1), Ordering::SeqCst);
    }

    /// Runs `f` over the queued requests.
    pub(crate) fn queued<R>(&self, f: impl FnOnce(&mut VecDeque<Vec<u8>>) -> R) -> R {
        let mut state = self.state.lock();
        let result = f(&mut state.queue);
        state.queue_bytes = state.queue.iter().map(Vec::len).sum();
        result
    }

    /// The thread has answered its request.
    pub(crate) fn end(&self, duty: &Duty) -> Next {
        duty.serving.store(0, Ordering::Relaxed);
        if !duty.is_off.load(Ordering::Relaxed) && !self.is_crowded.load(Ordering::Relaxed) {
            return Next::Read;
        }
        let mut state = self.state.lock();
        if state.is_closed {
            return Next::End;
        }
        let is_off = duty.is_off.load(Ordering::Relaxed);
        if is_off && let Some(request) = state.queue.pop_front() {
            state.queue_bytes -= request.len();
            return Next::Serve(request);
        }
        if is_off && state.on_duty < state.wanted {
            duty.is_off.store(false, Ordering::Relaxed);
            state.on_duty += 1;
            self.update(&state);
            return Next::Read;
        }
        if !is_off && state.on_duty <= state.wanted {
            return Next::Read;
        }
        Self::go_off(&mut state, duty);
        self.park(state, duty)
    }

    fn park(&self, mut state: MutexGuard<'_, State>, duty: &Duty) -> Next {
        state.parked += 1;
        self.update(&state);
        let patience = Duration::from_millis(FUSE_THREAD_IDLE_MS);
        while !state.is_closed && state.called == 0 {
            let is_over = self.park.wait_for(&mut state, patience).timed_out();
            if is_over && state.called == 0 {
                break;
            }
        }
        state.parked -= 1;
        if state.called > 0 && !state.is_closed {
            state.called -= 1;
            duty.is_off.store(false, Ordering::Relaxed);
            self.update(&state);
            return Next::Read;
        }
        self.update(&state);
        Next::End
    }

    /// The thread ends. Answers whether it was the last one of a closed crew.
    pub(crate) fn leave(&self, duty: &Arc<Duty>) -> bool {
        let mut state = self.state.lock();
        Self::go_off(&mut state, duty);
        state.threads -= 1;
        state.members.retain(|one| !Arc::ptr_eq(one, duty));
        let is_last = state.is_closed && state.threads == 0;
        self.update(&state);
        is_last
    }

    /// The connection is gone: threads end as they come free.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.park.notify_all();
        self.watch.notify_all();
    }

    /// Threads, and how many of them are on duty.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.threads, state.on_duty)
    }

    /// The watcher's whole life: looks every tick for requests that take long, and for requests that had to wait.
    pub(crate) fn watch(&self) {
        let mut seen: Vec<(Arc<Duty>, u64)> = Vec::new();
        let (mut idle, mut quiet) = (0, 0);
        let mut state = self.state.lock();
        while !state.is_closed {
            let is_busy = state.members.iter().any(|duty| duty.serving.load(Ordering::SeqCst) != 0);
            idle = if is_busy { 0 } else { idle + 1 };
            if idle > FUSE_IDLE_TICKS {
                idle = 0;
                state.wanted = self.readers_min;
                self.update(&state);
                self.sleep(&mut state);
                continue;
            }
            self.watch.wait_for(&mut state, Duration::from_millis(FUSE_TICK_MS));
            self.relieve(&mut state, &mut seen);
            quiet = self.adapt(&mut state, quiet);
            self.fill(state);
            state = self.state.lock();
        }
    }

    /// Sleeps until a request begins, unless one has meanwhile.
    fn sleep(&self, state: &mut MutexGuard<'_, State>) {
        self.is_watcher_asleep.store(true, Ordering::SeqCst);
        let is_busy =
            |state: &State| state.members.iter().any(|duty| duty.serving.load(Ordering::SeqCst) != 0);
        while !state.is_closed && !is_busy(state) && self.is_watcher_asleep.load(Ordering::SeqCst) {
            self.watch.wait(state);
        }
        self.is_watcher_asleep.store(false, Ordering::SeqCst);
    }

    /// Takes those off duty that serve the same request as a tick ago.
    #[expect(clippy::unused_self, reason = "one of the watcher's steps")]
    fn relieve(&self, state: &mut State, seen: &mut Vec<(Arc<Duty>, u64)>) {
        for (duty, before) in seen.iter() {
            if *before != 0 && duty.serving.load(Ordering::SeqCst) == *before {
                Self::go_off(state, duty);
            }
        }
        seen.clear();
        seen.extend(state.members.iter().map(|duty| (Arc::clone(duty), duty.serving.load(Ordering::SeqCst))));
    }

    /// More readers while requests are found waiting, fewer when none were for a while.
    fn adapt(&self, state: &mut State, quiet: u32) -> u32 {
        let backlog = self.backlog.swap(0, Ordering::Relaxed);
        if backlog >= BACKLOG && state.wanted < self.readers_max {
            state.wanted += 1;
            return 0;
        }
        if backlog > 0 {
            return 0;
        }
        if quiet >= QUIET_TICKS && state.wanted > self.readers_min {
            state.wanted -= 1;
            return 0;
        }
        quiet.saturating_add(1)
    }

    /// Waits until `is_done`; whoever makes it true calls [`Crew::tell_end`].
    pub(crate) fn wait_end(&self, is_done: impl Fn() -> bool, until: Option<std::time::Instant>) -> bool {
        let mut state = self.state.lock();
        while !is_done() {
            match until {
                None => self.ended.wait(&mut state),
                Some(until) => {
                    if self.ended.wait_until(&mut state, until).timed_out() {
                        return is_done();
                    }
                }
            }
        }
        true
    }

    pub(crate) fn tell_end(&self) {
        let _state = self.state.lock();
        self.ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
