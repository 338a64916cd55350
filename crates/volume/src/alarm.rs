//! What flushers sleep on: things to do now, and the moment at which the machine may have more.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_base::Instant;
use parking_lot::{Condvar, Mutex};

/// Things to do, and an alarm.
#[derive(Debug)]
pub(crate) struct Alarm<T> {
    state: Mutex<State<T>>,
    bell: Condvar,
}

#[derive(Debug)]
struct State<T> {
    jobs: VecDeque<T>,
    /// When the machine is to be looked at.
    due: Option<Instant>,
    is_over: bool,
}

/// What a sleeper is woken for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Woken<T> {
    /// To do this.
    Job(T),
    /// To look at the machine: this sleeper alone.
    Look,
    /// To end.
    Over,
}

impl<T> Default for Alarm<T> {
    fn default() -> Self {
        let state = State { jobs: VecDeque::new(), due: None, is_over: false };
        Self { state: Mutex::new(state), bell: Condvar::new() }
    }
}

impl<T> Alarm<T> {
    /// Hands out things to do, in order, and has a sleeper look at the machine at this moment, if none looks earlier.
    pub(crate) fn add(&self, jobs: Vec<T>, due: Option<Instant>) {
        if jobs.is_empty() && due.is_none() {
            return;
        }
        let mut state = self.state.lock();
        let is_earlier = due.is_some_and(|at| state.due.is_none_or(|due| at < due));
        if is_earlier {
            state.due = due;
        }
        let woken = jobs.len() + usize::from(is_earlier);
        state.jobs.extend(jobs);
        drop(state);
        (0..woken).for_each(|_| {
            self.bell.notify_one();
        });
    }

    /// Ends all sleeping; what was not done is dropped.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.jobs.clear();
        self.bell.notify_all();
    }

    /// Sleeps until there is something to do.
    pub(crate) fn sleep(&self, now: impl Fn() -> Instant) -> Woken<T> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return Woken::Over;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Woken::Job(job);
            }
            match state.due {
                None => self.bell.wait(&mut state),
                Some(due) => {
                    let left = due.ms_since(now());
                    if left == 0 {
                        state.due = None;
                        return Woken::Look;
                    }
                    let _ = self.bell.wait_for(&mut state, Duration::from_millis(left));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn each_job_and_each_alarm_wakes_one_sleeper_and_the_end_all() {
        let alarm = Arc::new(Alarm::default());
        let sleepers: Vec<_> = (0..3)
            .map(|_| {
                let alarm = Arc::clone(&alarm);
                std::thread::spawn(move || {
                    let mut woken = (0, 0);
                    loop {
                        match alarm.sleep(|| Instant(10)) {
                            Woken::Job(n) => woken.0 += n,
                            Woken::Look => woken.1 += 1,
                            Woken::Over => return woken,
                        }
                    }
                })
            })
            .collect();
        alarm.add(vec![], Some(Instant(1_000_000)));
        alarm.add(vec![1, 2, 3], Some(Instant(5)));
        while alarm.state.lock().due.is_some() || !alarm.state.lock().jobs.is_empty() {
            std::thread::yield_now();
        }
        alarm.end();
        let all = sleepers.into_iter().map(|s| s.join().unwrap());
        assert_eq!(all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)), (6, 1));
    }
}
