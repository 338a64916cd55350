//! The server's half of the caps program: capabilities, and batches of mutations, for Holdfast mounts.
//! `docs/design/caps-protocol.md` is its specification.
#![forbid(unsafe_code)]

mod append;
mod attrs;
mod batch;
mod failures;
mod find;
mod forced;
mod grants;
mod handover;
mod lane;
mod lists;
mod make;
mod members;
mod nameless;
mod names;
mod ops;
mod outcome;
mod parts;
mod place;
mod pool;
mod program;
mod recall;
mod removals;
mod reserve;
mod same_host;
mod site;
mod stable;
mod status;
mod times;

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};

use holdfast_base::{ClientId, ExportId, FileKey};
use holdfast_export::WireHandle;
use holdfast_manager::Agent;
use holdfast_wire::caps::CapsStat;
use parking_lot::Mutex;

pub use handover::{Image, Stuck, Thawed};
pub use parts::{Holders, Parts};
pub use program::CapsProgram;
pub use same_host::Neighbours;

use crate::lane::Lanes;
use crate::members::Members;
use crate::recall::Recalls;

/// The service: who has said HELLO, whose transactions are remembered. What is held lies in the state engine.
pub struct Caps {
    pub(crate) parts: Shared,
    pub(crate) members: Members,
    pub(crate) lanes: Lanes,
    pub(crate) recalls: Recalls,
    pub(crate) nameless: nameless::Nameless,
    pub(crate) pools: pool::Pools,
    /// Where clients of this host come for descriptors, if they may.
    pub(crate) neighbours: OnceLock<Arc<dyn Neighbours>>,
    /// This run's part of epochs.
    pub(crate) run: AtomicU64,
    /// The features that clients were told of, all together: they go by them until they say HELLO again.
    pub(crate) told: AtomicU32,
    /// Connections of a former process that are about to go on, by their numbers, and whom recalls reach over them.
    pub(crate) arriving: Mutex<Vec<(u64, ClientId)>>,
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
    pub(crate) wall: holdfast_ledger::Now,
}

impl Caps {
    /// Starts the service: it hears of the engine's effects from now on.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { namespace, manager, committer, ledger, groups, holders, mut entropy, wall } = parts;
        let run = entropy.u64() >> 32;
        let this = Arc::new_cyclic(|this: &Weak<Self>| Self {
            parts: Shared { namespace, manager, committer, ledger, groups, holders, wall },
            members: Members::new(entropy),
            lanes: Lanes::default(),
            recalls: Recalls::default(),
            nameless: nameless::Nameless::default(),
            pools: pool::Pools::new(),
            neighbours: OnceLock::new(),
            run: AtomicU64::new(run),
            told: AtomicU32::new(0),
            arriving: Mutex::default(),
            this: Weak::clone(this),
        });
        let agent: Arc<dyn Agent> = Arc::clone(&this) as Arc<dyn Agent>;
        this.parts.manager.register(Arc::downgrade(&agent));
        this
    }

    /// From now on clients of this host may come there for descriptors. To be called once, before the first client comes.
    pub fn meet(&self, neighbours: Arc<dyn Neighbours>) {
        // A second place would be one that nobody was told of.
        let _ = self.neighbours.set(neighbours);
    }

    /// Everything that clients hold capabilities of, and under which handle they know it: for reports.
    #[must_use]
    pub fn held(&self) -> Vec<(FileKey, WireHandle)> {
        self.members.handles()
    }

    /// Names that clients are promised by themselves, and the exports that they are in. Those of a former process have been
    /// recalled, and are not among them.
    #[must_use]
    pub fn held_names(&self) -> Vec<(FileKey, ExportId)> {
        self.members.names()
    }

    /// As whom callers act may be another from now on: everybody says HELLO again, and asks. Nothing that is held is lost.
    pub fn greet_anew(&self) {
        self.members.drop_tickets();
    }

    /// Lets go of files that were made for creates to come, for exports are served elsewhere from now on: what was to become of them
    /// is made anew, here or there.
    pub fn leave(&self) {
        self.pools.clear();
    }

    /// Has everybody who waits for another's transaction come again. Who waits for something to be durable is waited for: of a force
    /// that is under way the next process would not hear how it ended.
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
