//! A disk that forgets: a file system in memory with a log of what was done to it. A power cut leaves what was
//! committed, and of the rest what chance left.
//!
//! The file system itself is `vfs::MemBackend`. After a power cut it is made anew by doing again what survives, with
//! the same times; numbers of objects that did not survive are skipped, so that handles stay what they were, and
//! none comes to be another object's: for that a kernel's handle has a generation.

mod backend;
mod changes;
mod faults;
mod log;
mod opened;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_base::Timestamp;
use holdfast_vfs::{Backend, FsError, Handle, MemBackend, MemOptions, Touched};

pub(crate) use backend::START;
pub use backend::SimBackend;
use changes::{Shown, coarse};
pub use faults::Fault;
use faults::Faults;
use log::Entry;
use opened::Descriptions;

use crate::rng::Rng;

/// What a power cut does to what was not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of it is lost.
    All,
    /// What was done last is lost, from a random moment on.
    Tail,
    /// Nothing is lost: it happened to be written in time.
    Nothing,
}

/// The calendar, which files are stamped with.
#[derive(Clone, Default)]
pub struct Wall(Arc<Mutex<Timestamp>>);

impl Wall {
    /// Sets it.
    pub fn set(&self, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// What it says.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct State {
    fs: MemBackend,
    log: Vec<Entry>,
    /// Up to which place of the log an object's attributes or entries, and its data, are committed.
    committed: BTreeMap<Vec<u8>, (usize, usize)>,
    /// Commits of data that are to fail.
    failures: u32,
    /// What else fails.
    faults: Faults,
    /// The process that may use the disk: what a dead one still does changes nothing.
    process: u64,
    /// How many there have been.
    processes: u64,
    /// With so manieth question it says that leases are running out; 0: never.
    leases_scarce_every: u32,
    leases_asked_of: u32,
    /// A defect: commits do nothing and say that they did.
    lies: bool,
    /// A defect: reads give what was there before the last write.
    is_stale: bool,
    /// A defect: writes leave the change attribute as it was.
    is_change_stuck: bool,
    /// The last power cut took data whose write-back had failed.
    has_lost_failed: bool,
}

/// A disk. It outlives the servers that use it.
#[derive(Clone)]
pub struct Disk {
    wall: Wall,
    state: Arc<Mutex<State>>,
    opened: Descriptions,
}

/// A place in the disk's log: what a process killed now leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment(usize);

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new(wall: &Wall) -> Self {
        let state = State {
            fs: log::empty(wall),
            log: Vec::new(),
            committed: BTreeMap::new(),
            failures: 0,
            faults: Faults::default(),
            process: 0,
            processes: 0,
            leases_scarce_every: 0,
            leases_asked_of: 0,
            lies: false,
            is_stale: false,
            is_change_stuck: false,
            has_lost_failed: false,
        };
        Self { wall: wall.clone(), state: Arc::new(Mutex::new(state)), opened: Descriptions::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file system, to be served by another process, in a server's life of this number.
    #[must_use]
    pub fn backend(&self, life: u64) -> SimBackend {
        let mut state = self.state();
        state.processes += 1;
        state.process = state.processes;
        // The local backend waits until no change shares its tick with the process before; here that is away for longer.
        let shown = Shown::new(state.is_change_stuck);
        SimBackend::new(self.clone(), state.fs.clone(), (life, state.process), shown)
    }

    /// From now on leases seem to be running out with so manieth promise of a file to be written.
    pub fn be_short_of_leases(&self, every: u32) {
        self.state().leases_scarce_every = every;
    }

    fn leases_are_scarce(&self) -> bool {
        let mut state = self.state();
        state.leases_asked_of = state.leases_asked_of.wrapping_add(1);
        state.leases_scarce_every > 0 && state.leases_asked_of.is_multiple_of(state.leases_scarce_every)
    }

    /// The file system itself, to be looked at.
    #[must_use]
    pub fn files(&self) -> MemBackend {
        self.state().fs.clone()
    }

    /// Now.
    #[must_use]
    pub fn moment(&self) -> Moment {
        Moment(self.state().log.len())
    }

    /// The process using it is dead: what is still done in its name changes nothing.
    pub fn cut_off(&self) {
        self.state().process = u64::MAX;
    }

    /// The process using it was killed; what it did after `moment` was never done.
    pub fn kill_at(&self, moment: Moment) {
        let mut state = self.state();
        state.log.truncate(moment.0);
        for upto in state.committed.values_mut() {
            *upto = (upto.0.min(moment.0), upto.1.min(moment.0));
        }
        state.remake(&self.wall);
    }

    /// Power fails. Returns how much was lost.
    pub fn power_cut(&self, loss: Loss, rng: &mut Rng) -> usize {
        let mut state = self.state();
        let from = match loss {
            Loss::All => 0,
            Loss::Tail => rng.below(state.log.len() as u64 + 1) as usize,
            Loss::Nothing => usize::MAX,
        };
        let before = state.log.len();
        let State { log, committed, has_lost_failed, .. } = &mut *state;
        let (mut place, mut is_failed) = (0, false);
        log.retain_mut(|entry| {
            entry.is_durable |= entry.is_committed(place, committed);
            let survives = entry.is_durable || (place < from && !entry.is_doomed);
            place += 1;
            entry.is_durable = survives;
            is_failed |= !survives && entry.is_doomed;
            survives
        });
        *has_lost_failed = is_failed;
        let lost = before - log.len();
        committed.clear();
        state.remake(&self.wall);
        lost
    }

    /// Whether the last power cut took data whose write-back had failed: what was written after it may have stayed.
    #[must_use]
    pub fn has_lost_failed(&self) -> bool {
        self.state().has_lost_failed
    }

    /// The next commit of a file's data fails, and what it was to write is lost unless it is written again.
    pub fn fail_next_commit(&self) {
        self.state().failures += 1;
    }

    /// From now on commits do nothing: a defect, for tests of what notices it.
    pub fn lie_about_commits(&self) {
        self.state().lies = true;
    }

    /// From now on reads are out of date: a defect, for tests of what notices it.
    pub fn read_stale(&self) {
        self.state().is_stale = true;
    }

    /// From now on writes leave the change attribute as it was: a defect, for tests of what notices it.
    pub fn keep_change(&self) {
        self.state().is_change_stuck = true;
    }

    fn record(&self, process: u64, mut entry: Entry) {
        entry.at = self.wall.now();
        let mut state = self.state();
        if state.process == process {
            state.log.push(entry);
        }
    }

    fn commit(&self, (process, fs): (u64, &MemBackend), touched: Touched) -> Result<(), FsError> {
        let mut state = self.state();
        if state.lies || state.process != process {
            return Ok(());
        }
        if touched.data && state.failures > 0 {
            state.failures -= 1;
            state.doom(&touched.handle);
            drop(state);
            // The file system's own switch: the write verifier becomes another.
            fs.fail_next_commit(FsError::Io);
            let mut results = [Ok(())];
            fs.commit(&[touched], &mut results);
            return results[0];
        }
        let upto = state.log.len();
        let known = state.committed.entry(touched.handle.as_bytes().to_vec()).or_default();
        known.0 = upto;
        if touched.data {
            known.1 = upto;
        }
        Ok(())
    }
}

impl State {
    fn remake(&mut self, wall: &Wall) {
        let now = wall.now();
        let numbers = log::next_number(&self.fs);
        self.fs = log::replay(&self.log, numbers, wall);
        wall.set(now);
    }

    /// A write-back failed: the kernel calls the pages clean, and a later commit says nothing about them.
    fn doom(&mut self, handle: &Handle) {
        let Self { log, committed, .. } = self;
        for (place, entry) in log.iter_mut().enumerate() {
            let is_meant = entry.needs.iter().any(|need| need.data && need.handle == *handle);
            if is_meant && !entry.is_durable && !entry.is_committed(place, committed) {
                entry.is_doomed = true;
            }
        }
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("log", &self.state().log.len()).finish_non_exhaustive()
    }
}

/// How the file system in memory is made.
fn options(wall: &Wall) -> MemOptions {
    let wall = wall.clone();
    let mut options = MemOptions::deterministic();
    options.now = Arc::new(move || coarse(wall.now()));
    options.has_plain_times = true;
    options.root_mode = 0o777;
    options
}
