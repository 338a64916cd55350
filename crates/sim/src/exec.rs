//! Virtual time: tasks that sleep and wait, and events that are due, all on one thread. What is due at one moment
//! happens in the order in which it was ordered, so a run is the same each time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

/// Names a task.
type TaskId = usize;

type Task = Pin<Box<dyn Future<Output = ()>>>;
type Event = Box<dyn FnOnce()>;

/// The clock, what is due, and the tasks.
#[derive(Default)]
pub struct Exec {
    this: Weak<Self>,
    now_ms: Cell<u64>,
    order: Cell<u64>,
    events: RefCell<BTreeMap<(u64, u64), Event>>,
    tasks: RefCell<Vec<Option<Task>>>,
    ready: RefCell<VecDeque<TaskId>>,
    current: Cell<Option<TaskId>>,
}

impl Exec {
    /// A world without tasks, at time 0.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::new_cyclic(|this| Self { this: Weak::clone(this), ..Self::default() })
    }

    /// Milliseconds since the world began.
    pub const fn now(&self) -> u64 {
        self.now_ms.get()
    }

    /// Has something happen in so many milliseconds.
    pub fn after(&self, ms: u64, event: impl FnOnce() + 'static) {
        self.order.set(self.order.get() + 1);
        let at = (self.now().saturating_add(ms), self.order.get());
        self.events.borrow_mut().insert(at, Box::new(event));
    }

    /// Begins a task. It first runs when what runs now waits.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.tasks.borrow_mut();
        tasks.push(Some(Box::pin(task)));
        self.ready.borrow_mut().push_back(tasks.len() - 1);
    }

    /// Waits so many milliseconds.
    pub async fn sleep(&self, ms: u64) {
        let until = self.now().saturating_add(ms);
        self.wake_after(ms);
        poll_fn(|_| if self.now() >= until { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Wakes the task that runs now in so many milliseconds.
    fn wake_after(&self, ms: u64) {
        let (this, task) = (Weak::clone(&self.this), self.current.get());
        self.after(ms, move || {
            if let Some((exec, task)) = this.upgrade().zip(task) {
                exec.ready.borrow_mut().push_back(task);
            }
        });
    }

    /// Runs until nothing is due any more before `end_ms`, or `is_over` says so.
    pub fn run(&self, end_ms: u64, is_over: impl Fn() -> bool) {
        loop {
            self.run_ready();
            if is_over() {
                return;
            }
            let next = {
                let mut events = self.events.borrow_mut();
                let Some(first) = events.first_entry().filter(|first| first.key().0 <= end_ms) else {
                    return;
                };
                self.now_ms.set(first.key().0);
                first.remove()
            };
            next();
        }
    }

    fn run_ready(&self) {
        loop {
            let Some(id) = self.ready.borrow_mut().pop_front() else { return };
            let Some(mut task) = self.tasks.borrow_mut()[id].take() else { continue };
            self.current.set(Some(id));
            let poll = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            self.current.set(None);
            if poll.is_pending() {
                self.tasks.borrow_mut()[id] = Some(task);
            }
        }
    }

    /// Drops all tasks and events: they hold what they work on.
    pub fn clear(&self) {
        let events = std::mem::take(&mut *self.events.borrow_mut());
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop((events, tasks));
    }
}

/// A value that comes later, to one who waits for it.
pub struct Promise<T> {
    exec: Rc<Exec>,
    state: Rc<RefCell<(Option<T>, Option<TaskId>)>>,
}

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        Self { exec: Rc::clone(&self.exec), state: Rc::clone(&self.state) }
    }
}

impl<T> Promise<T> {
    /// One that nobody kept yet.
    #[must_use]
    pub fn new(exec: &Rc<Exec>) -> Self {
        Self { exec: Rc::clone(exec), state: Rc::default() }
    }

    /// Keeps it; the first value counts.
    pub fn keep(&self, value: T) {
        let mut state = self.state.borrow_mut();
        if state.0.is_none() {
            state.0 = Some(value);
        }
        if let Some(task) = state.1.take() {
            self.exec.ready.borrow_mut().push_back(task);
        }
    }

    /// Waits for it, at most so many milliseconds.
    pub async fn within(&self, ms: u64) -> Option<T> {
        let until = self.exec.now().saturating_add(ms);
        self.exec.wake_after(ms);
        poll_fn(|_| {
            let mut state = self.state.borrow_mut();
            if let Some(value) = state.0.take() {
                return Poll::Ready(Some(value));
            }
            if self.exec.now() >= until {
                return Poll::Ready(None);
            }
            state.1 = self.exec.current.get();
            Poll::Pending
        })
        .await
    }
}

/// Lets one task at a time into something.
pub struct Turn {
    exec: Rc<Exec>,
    is_taken: Cell<bool>,
}

impl Turn {
    /// A turn that nobody has.
    #[must_use]
    pub fn new(exec: &Rc<Exec>) -> Self {
        Self { exec: Rc::clone(exec), is_taken: Cell::new(false) }
    }

    /// Waits for the turn. Let go of it with [`Turn::pass`].
    pub async fn take(&self) {
        while self.is_taken.replace(true) {
            self.exec.sleep(1).await;
        }
    }

    /// Whether somebody has it.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.is_taken.get()
    }

    /// Lets the next one in.
    pub fn pass(&self) {
        self.is_taken.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_sleep_in_virtual_time_and_run_in_order() {
        let exec = Exec::new();
        let seen = Rc::new(RefCell::new(Vec::new()));
        for (name, ms) in [("late", 500), ("early", 20), ("also early", 20)] {
            let (exec2, seen) = (Rc::clone(&exec), Rc::clone(&seen));
            exec.spawn(async move {
                exec2.sleep(ms).await;
                seen.borrow_mut().push((exec2.now(), name));
            });
        }
        exec.run(1_000, || false);
        assert_eq!(*seen.borrow(), [(20, "early"), (20, "also early"), (500, "late")]);
    }

    #[test]
    fn a_promise_is_waited_for_until_it_is_kept_or_time_is_up() {
        let exec = Exec::new();
        let seen = Rc::new(RefCell::new(Vec::new()));
        for patience in [10, 100] {
            let (promise, seen) = (Promise::new(&exec), Rc::clone(&seen));
            let kept = promise.clone();
            exec.after(50, move || kept.keep(7));
            exec.spawn(async move {
                let value = promise.within(patience).await;
                seen.borrow_mut().push(value);
            });
        }
        exec.run(1_000, || false);
        assert_eq!(*seen.borrow(), [None, Some(7)]);
    }
}
