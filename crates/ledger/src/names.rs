//! Names that are being changed: between the look at what a name stands for and the change that is recorded by it, nobody
//! else changes that name. Else two requests could both find a file, and both record that they remove it: after a crash in
//! that moment both would be told that they had. Who takes a file by renaming it away, or a lock by making a
//! directory, must be alone.
//!
//! Nobody waits for a client while he has a name to himself: that client may need the name, to give back what is waited for.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use holdfast_base::limits::RECALL_WAIT_MS;
use holdfast_vfs::{FsError, FsResult, Handle, Name, Wait};
use parking_lot::{Condvar, Mutex};

use crate::mutation::Mutation;

/// Among so many tables the names are spread, so that few meet at one.
const TABLES: usize = 64;

/// How long a name is waited for. Then the request is put off: whoever changes the name is held up himself.
const PATIENCE: Duration = Duration::from_secs(1);

/// A name, as a number that nobody outside can foresee.
type Key = u64;

/// A directory and a name in it.
pub(crate) type At<'a> = (&'a Handle, Name<'a>);

/// The names, of all exports, that somebody has to himself.
#[derive(Debug)]
pub(crate) struct Names {
    tables: Box<[Table]>,
    hasher: RandomState,
}

/// Apart from the others in memory, as processors share no less than this.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Table {
    taken: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    keys: Vec<Key>,
    waiting: usize,
}

/// A name that nobody else changes until this is dropped.
struct Held<'a> {
    table: &'a Table,
    key: Key,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut taken = self.table.taken.lock();
        if let Some(at) = taken.keys.iter().position(|key| *key == self.key) {
            taken.keys.swap_remove(at);
        }
        if taken.waiting > 0 {
            self.table.freed.notify_all();
        }
    }
}

/// One or two names that nobody else changes meanwhile.
pub(crate) struct Alone<'a> {
    _first: Held<'a>,
    _second: Option<Held<'a>>,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self { tables: (0..TABLES).map(|_| Table::default()).collect(), hasher: RandomState::new() }
    }

    /// # Errors
    /// [`FsError::WouldBlock`] for who may not wait, [`FsError::Delay`] for who has waited for long.
    pub(crate) fn alone(&self, wait: Wait, one: At<'_>, other: Option<At<'_>>) -> FsResult<Alone<'_>> {
        let (one, other) = (self.key(one), other.map(|other| self.key(other)));
        // In one order, whichever is which, so that no two wait for each other.
        let first = other.map_or(one, |other| one.min(other));
        let second = other.map(|other| one.max(other)).filter(|second| *second != first);
        Ok(Alone {
            _first: self.hold(wait, first)?,
            _second: second.map(|second| self.hold(wait, second)).transpose()?,
        })
    }

    fn key(&self, (dir, name): At<'_>) -> Key {
        self.hasher.hash_one((dir.as_bytes(), name.as_bytes()))
    }

    fn hold(&self, wait: Wait, key: Key) -> FsResult<Held<'_>> {
        let table = &self.tables[key as usize % TABLES];
        let mut taken = table.taken.lock();
        if taken.keys.contains(&key) {
            if !wait.may_last() {
                return Err(FsError::WouldBlock);
            }
            taken.waiting += 1;
            let timed_out =
                table.freed.wait_while_for(&mut taken, |taken| taken.keys.contains(&key), PATIENCE);
            taken.waiting -= 1;
            if timed_out.timed_out() {
                return Err(FsError::Delay);
            }
        }
        taken.keys.push(key);
        Ok(Held { table, key })
    }
}

impl Mutation<'_> {
    /// Does something with names that nobody else changes meanwhile, where the request is recorded. It is tried again as often
    /// as it meets what was promised to a client, which is waited for in between.
    ///
    /// # Errors
    /// Its own; [`FsError::Delay`] where the names, or what clients have to give back, were waited for in vain.
    pub(crate) fn alone<R>(
        &mut self,
        (one, other): (At<'_>, Option<At<'_>>),
        mut act: impl FnMut(&mut Self) -> FsResult<R>,
    ) -> FsResult<R> {
        let Some(record) = self.record.as_deref() else { return act(self) };
        let ledger = record.ledger();
        let (wait, mut since) = (self.cx.wait, None);
        loop {
            let ended = self.backend.recalls_ended();
            let held = ledger.names().alone(wait, one, other)?;
            self.cx.wait = if wait == Wait::Yes { Wait::Disk } else { wait };
            let done = act(self);
            self.cx.wait = wait;
            if done.is_err() {
                // What others do to the name from now on is not this request's work.
                self.will_not();
            }
            drop(held);
            if !matches!(done, Err(FsError::WouldBlock)) || wait != Wait::Yes {
                return done;
            }
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            let left = RECALL_WAIT_MS.saturating_sub(waited.as_millis() as u64);
            if left == 0 || !self.backend.await_recall(ended, left) {
                return Err(FsError::Delay);
            }
        }
    }
}

#[cfg(test)]
mod of_names {
    use super::*;

    fn name(of: &str) -> Name<'_> {
        Name::new(of.as_bytes()).unwrap()
    }

    #[test]
    fn one_name_is_one_ones_and_two_names_meet_in_either_order() {
        let (names, dir) = (Names::new(), Handle::new(b"dir").unwrap());
        let (a, b) = ((&dir, name("a")), (&dir, name("b")));
        let held = names.alone(Wait::No, a, None).unwrap();
        assert!(matches!(names.alone(Wait::No, a, None), Err(FsError::WouldBlock)));
        assert!(matches!(names.alone(Wait::No, b, Some(a)), Err(FsError::WouldBlock)));
        assert!(names.alone(Wait::No, b, None).is_ok());
        drop(held);
        assert!(names.alone(Wait::No, a, Some(a)).is_ok(), "one name twice is one");
        assert!(names.tables.iter().all(|table| table.taken.lock().keys.is_empty()));
        std::thread::scope(|scope| {
            for (from, to) in [(a, b), (b, a)] {
                let names = &names;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        drop(names.alone(Wait::Yes, from, Some(to)).unwrap());
                    }
                });
            }
        });
    }
}
