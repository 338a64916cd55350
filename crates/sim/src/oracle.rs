//! Who watches: each oracle knows one thing that must never happen. They are told what clients saw, never what the
//! server thinks.

pub mod data;
pub mod grants;
pub mod listings;
pub mod looks;
pub mod mounts;
pub mod once;
pub mod progress;
pub mod reclaims;

use std::cell::{Cell, RefCell};

use holdfast_cache::{CapSet, Handle};

use data::{Data, Mark};
use grants::Grants;
use listings::Listings;
use looks::{Look, Looks};
use mounts::Mounts;
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
    looks: RefCell<Looks>,
    /// What was asked before this counts for nothing in them.
    looks_since: Cell<u64>,
    mounts: RefCell<Mounts>,
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

    /// Reads out of date, and lost writes.
    pub fn data(&self, tell: impl FnOnce(&mut Data) -> Verdict) {
        let verdict = tell(&mut self.data.borrow_mut());
        self.take("data", verdict);
    }

    /// One content under one `change`, by what was asked at `sent`.
    fn looks(&self, sent: u64, tell: impl FnOnce(&mut Looks) -> Verdict) {
        // It may have been answered before those were forgotten, and heard after it.
        if sent >= self.looks_since.get() {
            let verdict = tell(&mut self.looks.borrow_mut());
            self.take("change attribute", verdict);
        }
    }

    /// A file's attributes, asked for and answered then, by who has it open or by somebody else: what was read under this
    /// `change` must not have been out of date when they were asked for, for a cache would be found good by it.
    pub fn looked(&self, file: usize, (look, is_open): (Look, bool), asked: (u64, u64)) {
        self.looks(asked.0, |looks| if is_open { looks.opened(file, look) } else { looks.shown(file, look) });
        for (block, mark) in self.looks.borrow().read_under(file, look.change) {
            self.data(|data| data.stands_for(look.change, ((file, block), mark), asked));
        }
    }

    /// Power failed after a write-back had: a file may have lost data and kept the time of a later change.
    pub(crate) fn forget_looks(&self, now: u64) {
        *self.looks.borrow_mut() = Looks::default();
        self.looks_since.set(now);
    }

    /// A block that was read between two looks that are the same, by who has its file open and asked for it at `sent`.
    pub fn read_within(&self, file: usize, look: Look, block: (u64, Mark), sent: u64) {
        self.looks(sent, |looks| looks.read(file, look, block));
    }

    /// What mounts do, and hold.
    pub fn mounts<R>(&self, tell: impl FnOnce(&mut Mounts) -> R) -> R {
        tell(&mut self.mounts.borrow_mut())
    }

    /// Nobody relies exclusively on what another relies on.
    pub fn relied_on(&self, held: &[(usize, Vec<(Handle, CapSet)>)]) {
        let verdict = self.mounts.borrow_mut().compare(held);
        self.take("capabilities", verdict);
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
        self.mounts.borrow_mut().power_fails();
    }

    pub(crate) fn server_died(&self, now: u64) {
        self.reclaims.borrow_mut().server_died();
        self.data.borrow_mut().server_died();
        self.grants.borrow_mut().server_died(now);
    }
}
