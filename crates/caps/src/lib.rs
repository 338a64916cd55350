//! The server's half of the caps program: capabilities, and batches of mutations, for Holdfast mounts.
//! `docs/design/caps-protocol.md` is its specification.
#![forbid(unsafe_code)]

mod attrs;
mod batch;
mod grants;
mod lane;
mod make;
mod members;
mod names;
mod ops;
mod outcome;
mod parts;
mod program;
mod recall;
mod site;
mod stable;
mod status;
mod tree;

use std::fmt;
use std::sync::{Arc, Weak};

use holdfast_manager::Agent;
use holdfast_wire::caps::CapsStat;

pub use parts::{Holders, Parts};
pub use program::CapsProgram;

use crate::lane::Lanes;
use crate::members::Members;
use crate::recall::Recalls;

/// The service: who has said HELLO, whose transactions are remembered. What is held lies in the state engine.
pub struct Caps {
    pub(crate) parts: Shared,
    pub(crate) members: Members,
    pub(crate) lanes: Lanes,
    pub(crate) recalls: Recalls,
    /// This run's part of epochs.
    pub(crate) run: u64,
    pub(crate) this: Weak<Self>,
}

/// What of the [`Parts`] stays as it is.
pub(crate) struct Shared {
    pub(crate) namespace: Arc<holdfast_export::Namespace>,
    pub(crate) manager: Arc<holdfast_manager::Manager>,
    pub(crate) committer: Arc<holdfast_export::Committer>,
    pub(crate) ledger: Option<Arc<holdfast_ledger::Ledger>>,
    pub(crate) groups: Arc<dyn holdfast_export::GroupSource>,
    pub(crate) holders: Arc<dyn Holders>,
}

impl Caps {
    /// Starts the service: it hears of the engine's effects from now on.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { namespace, manager, committer, ledger, groups, holders, mut entropy } = parts;
        let run = entropy.u64() >> 32;
        let this = Arc::new_cyclic(|this: &Weak<Self>| Self {
            parts: Shared { namespace, manager, committer, ledger, groups, holders },
            members: Members::new(entropy),
            lanes: Lanes::default(),
            recalls: Recalls::default(),
            run,
            this: Weak::clone(this),
        });
        let agent: Arc<dyn Agent> = Arc::clone(&this) as Arc<dyn Agent>;
        this.parts.manager.register(Arc::downgrade(&agent));
        this
    }

    /// Has everybody who waits for another's transaction come again.
    pub(crate) fn put_off_all(&self) {
        let lanes: Vec<_> = self.lanes.lock().values().cloned().collect();
        for lane in lanes {
            let waiting = {
                let mut state = lane.state.lock();
                if state.is_running { Default::default() } else { std::mem::take(&mut state.waiting) }
            };
            for waiting in waiting.into_values() {
                program::refuse(waiting.pending, CapsStat::Delay);
            }
        }
    }
}

impl fmt::Debug for Caps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caps").field("lanes", &self.lanes.lock().len()).finish_non_exhaustive()
    }
}
