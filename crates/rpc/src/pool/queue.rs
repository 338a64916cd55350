//! What waits for a thread of the pool, and who has to wait longer: the jobs of a lane that has its share of threads, and
//! those whose turn it is not.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::Job;
use super::turns::{Claim, Runner, Turns};
use crate::connection::Connection;
use crate::service::Lane;

/// A job and what it takes part in.
pub(super) struct Task {
    pub(super) lane: Option<Lane>,
    /// Its claim, where it takes turns and has had the turn.
    pub(super) claim: Option<Claim>,
    pub(super) job: Job,
}

/// What of a lane is in the pool.
#[derive(Default)]
struct Traffic {
    /// In the queue, held back, or waiting for their turn.
    queued: usize,
    running: usize,
    /// Jobs that came to the head of the queue while the lane had all the threads it may have, oldest first.
    held: VecDeque<Task>,
}

#[derive(Default)]
pub(super) struct State {
    queue: VecDeque<Task>,
    /// Lanes of which anything is here.
    lanes: FxHashMap<Lane, Traffic>,
    /// Jobs held back in all lanes.
    held: usize,
    pub(super) turns: Turns,
    /// Connections that found the queue full.
    pub(super) waiting: VecDeque<Arc<Connection>>,
    /// Threads that sleep. The first to fall asleep is the first to be woken: on a busy machine who has slept long has the
    /// processor at once, and who has just run waits.
    pub(super) idle: VecDeque<usize>,
    /// A thread was woken and has not come yet. One at a time: short jobs are done by those who are awake before
    /// more would come, and a thread that comes and finds more than its own job wakes the next. So many run as
    /// there is work that waits, and not one for each call of a burst, all after the same directory's lock.
    pub(super) is_waking: bool,
    pub(super) is_closed: bool,
}

impl State {
    /// Who is to be woken now; whoever asks does it. While jobs are queued and threads idle, one is always on its way.
    pub(super) fn next_to_wake(&mut self) -> Option<usize> {
        if self.queue.is_empty() || self.is_waking {
            return None;
        }
        let thread = self.idle.pop_front();
        self.is_waking = thread.is_some();
        thread
    }

    /// Jobs that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.held + self.turns.held()
    }

    /// Jobs of a lane that wait.
    pub(super) fn len_of(&self, lane: Option<Lane>) -> usize {
        lane.and_then(|lane| self.lanes.get(&lane)).map_or(0, |traffic| traffic.queued)
    }

    pub(super) fn push(&mut self, job: Job) {
        let lane = job.lane();
        if let Some(lane) = lane {
            self.lanes.entry(lane).or_default().queued += 1;
        }
        let turn = job.turn();
        let task = Task { lane, claim: None, job };
        let ready = match turn {
            Some(turn) => self.turns.ask(turn, task),
            None => Some(task),
        };
        self.queue.extend(ready);
    }

    /// Takes out the first job whose lane has fewer than so many threads, and puts those before it aside. This thread is
    /// going to run it.
    pub(super) fn pop(&mut self, lane_threads: usize, thread: usize) -> Option<Task> {
        loop {
            let task = self.queue.pop_front()?;
            if let Some(traffic) = task.lane.and_then(|lane| self.lanes.get_mut(&lane)) {
                if traffic.running >= lane_threads {
                    traffic.held.push_back(task);
                    self.held += 1;
                    continue;
                }
                traffic.queued -= 1;
                traffic.running += 1;
            }
            if let Some(claim) = task.claim {
                self.turns.begin(claim, Runner::Thread(thread));
            }
            return Some(task);
        }
    }

    /// A job taken out has run: the oldest that was put aside has its turn, before it who waited for this one's.
    pub(super) fn finish(&mut self, lane: Option<Lane>, claim: Option<Claim>) {
        if let Some(lane) = lane {
            self.finish_in(lane);
        }
        match claim.and_then(|claim| self.turns.pass_on(claim)) {
            // As many as there always are of one turn must not keep all others waiting.
            Some((next, true)) => self.queue.push_back(next),
            Some((next, false)) => self.queue.push_front(next),
            None => {}
        }
    }

    fn finish_in(&mut self, lane: Lane) {
        let Some(traffic) = self.lanes.get_mut(&lane) else { return };
        traffic.running -= 1;
        let is_last = traffic.running == 0 && traffic.queued == 0;
        if let Some(task) = traffic.held.pop_front() {
            self.held -= 1;
            self.queue.push_front(task);
        } else if is_last {
            self.lanes.remove(&lane);
        }
    }

    /// Whether the next job is one of the same turn, for this connection, and is likely to be done soon.
    pub(super) fn goes_on(&self, claim: Claim, connection: &Arc<Connection>) -> bool {
        self.turns.is_calm()
            && self.queue.front().is_some_and(|next| {
                next.claim.is_some_and(|its| its.turn == claim.turn)
                    && next.job.connection().is_some_and(|of| Arc::ptr_eq(of, connection))
            })
    }

    /// Takes a job's turn away, if it has it, for the next.
    pub(super) fn pass_on(&mut self, claim: Claim) {
        let next = self.turns.pass_on(claim);
        self.queue.extend(next.map(|(task, _)| task));
    }

    /// Takes the turn from those who keep it too long; says who they are.
    pub(super) fn relieve(&mut self, is_late: bool) -> Vec<Runner> {
        let (stuck, next) = self.turns.look(is_late);
        self.queue.extend(next);
        stuck
    }

    /// Lets everything have its turn.
    pub(super) fn release_held(&mut self) {
        for traffic in self.lanes.values_mut() {
            self.queue.extend(traffic.held.drain(..));
        }
        self.held = 0;
        self.queue.extend(self.turns.release());
    }
}
