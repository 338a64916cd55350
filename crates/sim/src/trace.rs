//! What happened: a digest of all of it, and the last of it for people to read.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

/// Lines kept for people.
const LINES_MAX: usize = 4_000;

/// The record of one world.
#[derive(Default)]
pub struct Trace {
    hasher: RefCell<DefaultHasher>,
    lines: RefCell<VecDeque<String>>,
    is_told: Cell<bool>,
    events: Cell<u64>,
}

impl Trace {
    /// A record; `is_told` keeps lines for people, which costs time.
    #[must_use]
    pub fn new(is_told: bool) -> Self {
        Self { is_told: Cell::new(is_told), ..Self::default() }
    }

    /// Something happened.
    pub fn note(&self, now_ms: u64, kind: u8, bytes: &[u8]) {
        let mut hasher = self.hasher.borrow_mut();
        hasher.write_u64(now_ms);
        hasher.write_u8(kind);
        hasher.write(bytes);
        self.events.set(self.events.get() + 1);
    }

    /// The same in words; they are made only when somebody reads them.
    pub fn tell(&self, now_ms: u64, words: impl FnOnce() -> String) {
        if self.is_told.get() {
            let mut lines = self.lines.borrow_mut();
            if lines.len() == LINES_MAX {
                lines.pop_front();
            }
            lines.push_back(format!("{:>7}.{:03} {}", now_ms / 1000, now_ms % 1000, words()));
        }
    }

    /// Over everything noted so far.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.hasher.borrow().finish()
    }

    /// How much was noted.
    #[must_use]
    pub const fn events(&self) -> u64 {
        self.events.get()
    }

    /// The last lines, at most so many.
    #[must_use]
    pub fn lines(&self, max: usize) -> Vec<String> {
        let lines = self.lines.borrow();
        lines.iter().skip(lines.len().saturating_sub(max)).cloned().collect()
    }
}
