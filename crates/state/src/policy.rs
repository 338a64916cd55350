//! What the engine may be told at any time: how patient it is, and what it may use.

use holdfast_base::limits::{
    CAPS_OBJECTS_MAX, COURTESY_CLIENTS_MAX, COURTESY_MS, DELEGATIONS_MAX, SESSIONS_SLOTS_MAX, STATEIDS_MAX,
};
use serde::{Deserialize, Serialize};

use crate::engine::Engine;

/// Which directories are delegated, with notifications or without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Directories {
    /// Those that have not changed since before the client knew anything of this server: names that it may have kept are
    /// current. Linux 6.19 to 7.3 take all names that they have ever seen for current once they have the delegation.
    #[default]
    Unchanged,
    /// All: for clients that drop what they know of a directory that differs from what came with the delegation.
    Always,
    /// None.
    Never,
}

/// How long others are waited for, and budgets. May change while the engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Whether anything is delegated at all.
    pub is_delegating: bool,
    /// Of which directories there are delegations.
    pub directories: Directories,
    /// Milliseconds in which a delegation is to be returned once recalled; a lease when `None`. While its holder
    /// flushes, up to [`holdfast_base::limits::RECALL_STRETCH_MAX`] times this, and longer as long as that gets on.
    pub recall_ms: Option<u64>,
    /// Milliseconds for which a client whose lease ran out keeps its state while nobody wants it.
    pub courtesy_ms: u64,
    /// How many such clients there may be; those away longest go first. 0 for none.
    pub courtesy_clients_max: usize,
    /// How many delegations there may be. Clients are asked for some back when nine tenths of them are out.
    pub delegations_max: usize,
    /// How many slots of sessions there may be in use. Beyond it clients are asked to use fewer.
    pub slots_max: usize,
    /// How many stateids there may be. At the bound courteous clients go, then opens and locks are refused.
    pub stateids_max: usize,
    /// Of how many objects there may be capabilities. Some are recalled when nine tenths of them are out; at the bound no
    /// more are granted.
    pub capabilities_max: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            is_delegating: true,
            directories: Directories::default(),
            recall_ms: None,
            courtesy_ms: COURTESY_MS,
            courtesy_clients_max: COURTESY_CLIENTS_MAX,
            delegations_max: DELEGATIONS_MAX,
            slots_max: SESSIONS_SLOTS_MAX,
            stateids_max: STATEIDS_MAX,
            capabilities_max: CAPS_OBJECTS_MAX,
        }
    }
}

impl Engine {
    /// The policy obeyed now.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Changes the policy. What is above a budget now is asked back by and by, from the next `tick` on.
    pub const fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Milliseconds in which a delegation is to be returned.
    pub(crate) fn recall_ms(&self) -> u64 {
        self.policy.recall_ms.unwrap_or(self.config.lease_ms)
    }
}
