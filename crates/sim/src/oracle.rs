//! Who watches: each oracle knows one thing that must never happen. They are told what clients saw, never what the
//! server thinks.

pub mod data;
pub mod grants;
pub mod listings;
pub mod once;
pub mod progress;
pub mod reclaims;

use std::cell::RefCell;

use data::Data;
use grants::Grants;
use listings::Listings;
use once::Once;
use progress::Progress;
use reclaims::Reclaims;

/// What an oracle says: why something must not have happened.
pub type Verdict = Result<(), String>;

/// All oracles of a world.
#[derive(Default)]
pub struct Oracles {
    grants: RefCell<Grants>,
    listings: RefCell<Listings>,
    data: RefCell<Data>,
    once: RefCell<Once>,
    progress: RefCell<Progress>,
    reclaims: RefCell<Reclaims>,
    violations: RefCell<Vec<String>>,
}

impl Oracles {
    /// Something that must never happen did.
    pub fn violated(&self, what: String) {
        self.violations.borrow_mut().push(what);
    }

    /// What happened that must not, first first.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.violations.borrow().clone()
    }

    /// Whether nothing did yet.
    #[must_use]
    pub fn is_content(&self) -> bool {
        self.violations.borrow().is_empty()
    }

    fn take(&self, oracle: &str, verdict: Verdict) {
        if let Err(why) = verdict {
            self.violated(format!("{oracle}: {why}"));
        }
    }

    /// Conflicting grants.
    pub fn grants(&self, tell: impl FnOnce(&mut Grants) -> Verdict) {
        let verdict = tell(&mut self.grants.borrow_mut());
        self.take("conflicting grants", verdict);
    }

    /// Directories as those keep them who are told of changes.
    pub fn listings(&self, tell: impl FnOnce(&mut Listings) -> Verdict) {
        let verdict = tell(&mut self.listings.borrow_mut());
        self.take("notifications", verdict);
    }

    /// Close-to-open consistency, and lost writes.
    pub fn data(&self, tell: impl FnOnce(&mut Data) -> Verdict) {
        let verdict = tell(&mut self.data.borrow_mut());
        self.take("data", verdict);
    }

    /// One effect of every mutation.
    pub fn once(&self, tell: impl FnOnce(&mut Once) -> Verdict) {
        let verdict = tell(&mut self.once.borrow_mut());
        self.take("exactly once", verdict);
    }

    /// Every request ends.
    pub fn progress<R>(&self, tell: impl FnOnce(&mut Progress) -> R) -> R {
        tell(&mut self.progress.borrow_mut())
    }

    /// Reclaim only by those entitled.
    pub fn reclaims(&self, tell: impl FnOnce(&mut Reclaims) -> Verdict) {
        let verdict = tell(&mut self.reclaims.borrow_mut());
        self.take("reclaim", verdict);
    }

    pub(crate) fn power_cut(&self, _now_ms: u64) {
        self.data.borrow_mut().power_cut();
        self.once.borrow_mut().power_cut();
    }

    pub(crate) fn server_died(&self, now: u64) {
        self.reclaims.borrow_mut().server_died();
        self.data.borrow_mut().server_died();
        self.grants.borrow_mut().server_died(now);
    }
}
