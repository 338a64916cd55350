//! Names that are being changed: between the look at what a name stands for and the change that is recorded by it, nobody
//! else changes that name. Else two requests could both find a file, and both record that they remove it: after a crash in
//! that moment both would be told that they had. Who takes a file by renaming it away, or a lock by making a
//! directory, must be alone.

use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use holdfast_vfs::{FsError, FsResult, Handle, Name, Wait};
use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHasher;

use crate::ledger::Ledger;
use crate::mutation::Mutation;
use crate::undertaking::Undertaking;

/// How many changes of different names there can be at once, if no two fall together.
const STRIPES: usize = 1024;

/// How long who may not wait looks whether a name becomes free: a change that meets no disk takes less.
const GLANCE: Duration = Duration::from_micros(100);

/// How long who may wait does. Then the request is put off: whoever changes the name is held up himself.
const PATIENCE: Duration = Duration::from_secs(2);

/// The names of all exports, each by where its hash falls.
#[derive(Debug)]
pub(crate) struct Names {
    stripes: Box<[Mutex<()>]>,
}

/// One or two names that nobody else changes meanwhile.
pub(crate) struct Alone<'a> {
    _first: MutexGuard<'a, ()>,
    _second: Option<MutexGuard<'a, ()>>,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self { stripes: (0..STRIPES).map(|_| Mutex::new(())).collect() }
    }

    /// # Errors
    /// [`FsError::WouldBlock`] for who may not wait, [`FsError::Delay`] for who has waited for long.
    pub(crate) fn alone(
        &self,
        wait: Wait,
        one: (&Handle, Name<'_>),
        other: Option<(&Handle, Name<'_>)>,
    ) -> FsResult<Alone<'_>> {
        let (one, other) = (stripe(one), other.map(stripe));
        // In one order, whichever is which, so that no two wait for each other.
        let first = other.map_or(one, |other| one.min(other));
        let second = other.map(|other| one.max(other)).filter(|second| *second != first);
        Ok(Alone {
            _first: self.hold(wait, first)?,
            _second: second.map(|second| self.hold(wait, second)).transpose()?,
        })
    }

    fn hold(&self, wait: Wait, at: usize) -> FsResult<MutexGuard<'_, ()>> {
        let (patience, error) = match wait {
            Wait::No => (GLANCE, FsError::WouldBlock),
            Wait::Yes => (PATIENCE, FsError::Delay),
        };
        self.stripes[at].try_lock_for(patience).ok_or(error)
    }
}

impl Mutation<'_> {
    pub(crate) fn ledger(&self) -> Option<Arc<Ledger>> {
        self.record.as_deref().map(Undertaking::ledger)
    }

    /// Keeps names to this request, where it is recorded, until what comes back is dropped.
    pub(crate) fn alone<'l>(
        &self,
        ledger: Option<&'l Ledger>,
        one: (&Handle, Name<'_>),
        other: Option<(&Handle, Name<'_>)>,
    ) -> FsResult<Option<Alone<'l>>> {
        ledger.map(|ledger| ledger.names().alone(self.cx.wait, one, other)).transpose()
    }
}

fn stripe((dir, name): (&Handle, Name<'_>)) -> usize {
    let mut hasher = FxHasher::default();
    (dir.as_bytes(), name.as_bytes()).hash(&mut hasher);
    // The multiplication leaves the upper bits the better ones.
    (hasher.finish() >> 32) as usize % STRIPES
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
        assert_ne!(stripe(a), stripe(b), "names of this test fall apart");
        let held = names.alone(Wait::No, a, None).unwrap();
        assert!(matches!(names.alone(Wait::No, a, None), Err(FsError::WouldBlock)));
        assert!(matches!(names.alone(Wait::No, b, Some(a)), Err(FsError::WouldBlock)));
        assert!(names.alone(Wait::No, b, None).is_ok());
        drop(held);
        assert!(names.alone(Wait::No, a, Some(a)).is_ok(), "one name twice is one");
        std::thread::scope(|scope| {
            for (from, to) in [(a, b), (b, a)] {
                let names = &names;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        names.alone(Wait::Yes, from, Some(to)).unwrap();
                    }
                });
            }
        });
    }
}
