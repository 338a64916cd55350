//! Changes of names. What they do to the objects behind the names must be asked too, and those are only known by
//! looking them up: which costs, and holds only while nobody else changes the same directory. So nobody looks while
//! nothing is promised; and once something is, whoever looks first waits for those who did not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_base::FileKey;
use holdfast_base::limits::{NAME_DRAIN_MS, NAME_TURNS, PROMISE_DRAIN_MS};
use holdfast_vfs::{FsError, FsResult, Wait};
use parking_lot::{Mutex, MutexGuard};

/// The gate's word: changes in flight that do not look below, reasons for looking above.
const REASON: u64 = 1 << 32;

/// The gate before every change of names.
#[derive(Debug)]
pub(crate) struct NameGate {
    word: AtomicU64,
    /// Ticks for which a promise that could not wait for those in flight is still wished for.
    wish: Mutex<u32>,
    turns: Box<[Mutex<()>]>,
}

/// A change of names in flight.
#[derive(Debug)]
pub(crate) enum Passage<'g> {
    /// Nothing is promised, and nothing will be until this ends.
    Blind(#[expect(dead_code, reason = "held for its drop")] Held<'g>),
    /// Promises are to be looked for. In the directories named no name changes meanwhile.
    Careful(#[expect(dead_code, reason = "held for their drop")] ([Option<MutexGuard<'g, ()>>; 2], Held<'g>)),
}

/// What was added to the gate's word.
#[derive(Debug)]
pub(crate) struct Held<'g> {
    gate: &'g NameGate,
    what: u64,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.gate.word.fetch_sub(self.what, Ordering::SeqCst);
    }
}

impl Default for NameGate {
    fn default() -> Self {
        let turns = (0..NAME_TURNS).map(|_| Mutex::new(())).collect();
        Self { word: AtomicU64::new(0), wish: Mutex::new(0), turns }
    }
}

impl NameGate {
    /// Begins a change of names in these directories.
    ///
    /// # Errors
    /// [`FsError::WouldBlock`], where waiting is not allowed; [`FsError::Delay`] when it took too long.
    pub(crate) fn enter(&self, dirs: [FileKey; 2], wait: Wait) -> FsResult<Passage<'_>> {
        if self.word.fetch_add(1, Ordering::SeqCst) < REASON {
            return Ok(Passage::Blind(Held { gate: self, what: 1 }));
        }
        // Being under way is a reason for others to look: what was looked up stays true.
        self.word.fetch_add(REASON - 1, Ordering::SeqCst);
        let held = Held { gate: self, what: REASON };
        match wait {
            _ if self.is_drained() => {}
            Wait::No | Wait::Journal => return Err(FsError::WouldBlock),
            Wait::Yes | Wait::Disk if self.drain(NAME_DRAIN_MS) => {}
            Wait::Yes | Wait::Disk => return Err(FsError::Delay),
        }
        Ok(Passage::Careful((self.take_turns(dirs, wait)?, held)))
    }

    /// A reason for all to look: a promise about to be given. Waits a moment for those in flight that do not; `None`
    /// when they take longer. Then nobody begins any more who does not look, for a while, so that another try will do.
    pub(crate) fn promise(&self) -> Option<Held<'_>> {
        let held = self.reason();
        if self.drain(PROMISE_DRAIN_MS) {
            return Some(held);
        }
        let mut wish = self.wish.lock();
        if *wish == 0 {
            self.word.fetch_add(REASON, Ordering::SeqCst);
        }
        *wish = 2;
        None
    }

    /// A reason for all to look from now on.
    pub(crate) fn reason(&self) -> Held<'_> {
        self.word.fetch_add(REASON, Ordering::SeqCst);
        Held { gate: self, what: REASON }
    }

    /// Forgets wishes that came to nothing. About once a second.
    pub(crate) fn tick(&self) {
        let mut wish = self.wish.lock();
        if *wish > 0 {
            *wish -= 1;
            if *wish == 0 {
                self.word.fetch_sub(REASON, Ordering::SeqCst);
            }
        }
    }

    /// Ends a promise's reason, which was kept with [`Held::keep`].
    pub(crate) fn release(&self) {
        self.word.fetch_sub(REASON, Ordering::SeqCst);
    }

    /// Whether anybody has to look.
    pub(crate) fn has_reasons(&self) -> bool {
        self.word.load(Ordering::SeqCst) >= REASON
    }

    fn is_drained(&self) -> bool {
        self.word.load(Ordering::SeqCst).is_multiple_of(REASON)
    }

    /// Waits until all in flight look; false when that takes too long.
    fn drain(&self, ms: u64) -> bool {
        let started = Instant::now();
        let mut rounds = 0u32;
        while !self.is_drained() {
            rounds += 1;
            if rounds < 100 {
                std::hint::spin_loop();
                continue;
            }
            if started.elapsed() >= Duration::from_millis(ms) {
                return false;
            }
            std::thread::sleep(Duration::from_micros(20));
        }
        true
    }

    fn take_turns(&self, dirs: [FileKey; 2], wait: Wait) -> FsResult<[Option<MutexGuard<'_, ()>>; 2]> {
        let mut places = dirs.map(|dir| (dir.0 >> 32) as usize % NAME_TURNS);
        // In one order for all.
        places.sort_unstable();
        let first = self.take(places[0], wait)?;
        let second = if places[1] == places[0] { None } else { Some(self.take(places[1], wait)?) };
        Ok([Some(first), second])
    }

    fn take(&self, place: usize, wait: Wait) -> FsResult<MutexGuard<'_, ()>> {
        match wait {
            Wait::Yes | Wait::Disk => Ok(self.turns[place].lock()),
            Wait::No | Wait::Journal => self.turns[place].try_lock().ok_or(FsError::WouldBlock),
        }
    }
}

impl Held<'_> {
    /// Leaves it in place, until [`NameGate::release`].
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [FileKey; 2] = [FileKey(0); 2];
    const B: [FileKey; 2] = [FileKey(1 << 32); 2];

    fn is_careful(passage: &Passage<'_>) -> bool {
        matches!(passage, Passage::Careful(_))
    }

    #[test]
    fn whoever_looks_waits_for_those_who_do_not() {
        let gate = NameGate::default();
        let blind = gate.enter(A, Wait::Yes).unwrap();
        assert!(!is_careful(&blind));
        assert!(gate.promise().is_none(), "what is in flight without having looked may be about anything");
        assert_eq!(gate.enter(B, Wait::No).err(), Some(FsError::WouldBlock));
        std::thread::scope(|scope| {
            let careful = scope.spawn(|| is_careful(&gate.enter(B, Wait::Yes).unwrap()));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!careful.is_finished());
            drop(blind);
            assert!(careful.join().unwrap());
        });
        assert!(gate.promise().is_some());
    }

    #[test]
    fn while_somebody_who_has_looked_is_under_way_all_look() {
        let gate = NameGate::default();
        let reason = gate.promise().unwrap();
        let first = gate.enter(A, Wait::Yes).unwrap();
        drop(reason);
        let second = gate.enter(B, Wait::Yes).unwrap();
        assert!(is_careful(&first) && is_careful(&second));
        drop((first, second));
        assert!(!is_careful(&gate.enter(B, Wait::Yes).unwrap()));
    }

    #[test]
    fn those_who_look_take_turns_in_a_directory_and_not_in_two() {
        let gate = NameGate::default();
        let _reason = gate.promise().unwrap();
        let _first = gate.enter(A, Wait::Yes).unwrap();
        assert_eq!(gate.enter([A[0], B[0]], Wait::No).err(), Some(FsError::WouldBlock));
        assert!(gate.enter(B, Wait::No).is_ok());
    }

    #[test]
    fn a_promise_that_could_not_wait_keeps_all_looking_for_a_while() {
        let gate = NameGate::default();
        let blind = gate.enter(A, Wait::Yes).unwrap();
        assert!(gate.promise().is_none() && gate.promise().is_none());
        drop(blind);
        assert!(gate.has_reasons());
        gate.tick();
        assert!(gate.has_reasons());
        gate.tick();
        assert!(!gate.has_reasons());
        gate.tick();
        assert!(!gate.has_reasons());
    }
}
