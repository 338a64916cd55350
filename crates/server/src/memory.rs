//! How much memory there is for the server, and what is given back when it runs short: budgets of state by the engine's
//! policy (clients are asked by CB_RECALL_ANY and CB_RECALL_SLOT), and what backends keep open only to be faster.
//! `docs/design/state.md`, "Budgets and memory".

mod figures;

use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_allocator::Surplus;
use holdfast_base::limits::MEMORY_SHED_PAUSE_MS;
use holdfast_export::Export;
use holdfast_manager::Manager;
use holdfast_state::Memory;
use parking_lot::Mutex;

pub(crate) use figures::Bound;
use figures::Figures;

/// What the administrator is told.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) memory: Memory,
    /// Who bounds it.
    pub(crate) bound: Bound,
    /// How often it ran short since the start.
    pub(crate) shortages: u64,
}

#[derive(Default)]
struct Last {
    watched: Option<Watched>,
    is_short: bool,
    shed_at: Option<Instant>,
}

/// Looks after memory.
pub(crate) struct MemoryWatch {
    figures: Figures,
    last: Mutex<Last>,
    surplus: Mutex<Surplus>,
}

impl MemoryWatch {
    /// Of the host whose files are below `root`.
    pub(crate) fn of(root: &Path) -> Self {
        Self { figures: Figures::below(root), last: Mutex::default(), surplus: Mutex::default() }
    }

    /// As of the last look; `None` where nothing tells how much memory there is: then the bounds alone count.
    pub(crate) fn watched(&self) -> Option<Watched> {
        self.last.lock().watched.clone()
    }

    /// Looks, and keeps budgets within what is there. About once a second, and before anything is granted. `exports` are
    /// those whose caches shrink when memory is short.
    pub(crate) fn tick(&self, manager: &Manager, exports: impl FnOnce() -> Vec<std::sync::Arc<Export>>) {
        self.surplus.lock().tick(Instant::now());
        let Some((memory, bound)) = self.figures.read() else { return };
        manager.heed(memory);
        if self.note(memory, bound) {
            for export in exports() {
                export.backend.shed(memory.keep_percent());
            }
            holdfast_allocator::give_back();
        }
    }

    /// Notes what was seen; whether caches are to shrink now.
    fn note(&self, memory: Memory, bound: Bound) -> bool {
        let mut last = self.last.lock();
        let before = last.watched.as_ref().map_or(0, |watched| watched.shortages);
        let begins = memory.is_short() && !last.is_short;
        let shortages = before + u64::from(begins);
        if begins {
            tracing::warn!(
                total = memory.total,
                available = memory.available,
                %bound,
                "memory is short: clients are asked to give back delegations and slots, caches shrink"
            );
        } else if last.is_short && !memory.is_short() {
            tracing::info!(available = memory.available, "memory is not short any more");
        }
        last.is_short = memory.is_short();
        last.watched = Some(Watched { memory, bound, shortages });
        let pause = Duration::from_millis(MEMORY_SHED_PAUSE_MS);
        let is_due = memory.is_short() && last.shed_at.is_none_or(|at| at.elapsed() >= pause);
        if is_due {
            last.shed_at = Some(Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_shrink_at_once_when_memory_runs_short_and_not_again_at_once() {
        let watch = MemoryWatch::of(Path::new("/nowhere"));
        let note = |available| watch.note(Memory { total: 8000, available }, Bound::Machine);
        assert!(!note(4000), "nothing is short");
        assert!(note(999), "an eighth is to be available");
        assert!(!note(10), "a moment later");
        assert!(!note(4000));
        assert!(!note(10), "short again at once: what was shed has hardly come back");
        assert_eq!(watch.watched().unwrap().shortages, 2);
        watch.last.lock().shed_at = Instant::now().checked_sub(Duration::from_millis(MEMORY_SHED_PAUSE_MS));
        assert!(note(10));
    }
}
