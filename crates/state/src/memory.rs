//! Budgets by the memory there is: small servers promise less, and when memory runs short what was promised is asked back.

use holdfast_base::limits::{
    BUDGET_PART_MIN, CAPS_OBJECTS_MAX, COURTESY_CLIENTS_MAX, DELEGATIONS_MAX, MEMORY_OF_WHOLE_BUDGETS,
    MEMORY_SPARE_BYTES_MAX, MEMORY_SPARE_PART, SESSIONS_SLOTS_MAX, STATEIDS_MAX,
};

use crate::engine::Engine;
use crate::policy::Policy;

/// Memory that this process may count on, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All that there could ever be: the machine's, or what a control group allows.
    pub total: u64,
    /// What can still be had of it.
    pub available: u64,
}

impl Memory {
    /// With fewer bytes available memory is short.
    #[must_use]
    pub fn short_below(self) -> u64 {
        (self.total / MEMORY_SPARE_PART).min(MEMORY_SPARE_BYTES_MAX)
    }

    /// Whether something must be given back.
    #[must_use]
    pub fn is_short(self) -> bool {
        self.available < self.short_below()
    }

    /// How many hundredths of what is held or cached may stay: 100 unless memory is short, 0 with none available.
    #[must_use]
    pub fn keep_percent(self) -> u8 {
        u8::try_from(self.kept(100)).unwrap_or(100)
    }

    /// What may stay of so many.
    fn kept(self, count: usize) -> usize {
        if !self.is_short() {
            return count;
        }
        // Short means that `short_below` is more than what is available, so it is not 0.
        let kept = count as u128 * u128::from(self.available) / u128::from(self.short_below());
        usize::try_from(kept).unwrap_or(count)
    }

    /// The part of a bound that this memory has room for.
    fn budget(self, bound: usize) -> usize {
        let total = u128::from(self.total.min(MEMORY_OF_WHOLE_BUDGETS));
        let part = bound as u128 * total / u128::from(MEMORY_OF_WHOLE_BUDGETS);
        usize::try_from(part).unwrap_or(bound).max(bound / BUDGET_PART_MIN)
    }
}

/// How much there is of what has a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InUse {
    /// Delegations granted, those being recalled included.
    pub delegations: usize,
    /// Slots of sessions, as they were made.
    pub slots: usize,
    /// Clients that keep their state by courtesy.
    pub courteous: usize,
    /// Objects with capabilities.
    pub capabilities: usize,
}

impl Policy {
    /// The same with budgets for this memory.
    ///
    /// While memory is short there may be less than there is now, the less the less memory is available: promises and
    /// slots are asked back, courteous clients go, and nothing more is promised. Opens and locks are never asked back, nor
    /// refused before the bound for the memory in all: that would be an error to an application.
    #[must_use]
    pub fn within(self, memory: Memory, in_use: InUse) -> Self {
        let most = |bound: usize, in_use: usize| {
            let budget = memory.budget(bound);
            if memory.is_short() { budget.min(memory.kept(in_use)) } else { budget }
        };
        Self {
            courtesy_clients_max: most(COURTESY_CLIENTS_MAX, in_use.courteous),
            delegations_max: most(DELEGATIONS_MAX, in_use.delegations),
            slots_max: most(SESSIONS_SLOTS_MAX, in_use.slots),
            capabilities_max: most(CAPS_OBJECTS_MAX, in_use.capabilities),
            stateids_max: memory.budget(STATEIDS_MAX),
            ..self
        }
    }
}

impl Engine {
    /// Keeps budgets within the memory there is; what is above one then is asked back from the next `tick` on. About once
    /// a second, and before anything is granted.
    pub fn heed(&mut self, memory: Memory) {
        let in_use = self.in_use();
        self.set_policy(self.policy.within(memory, in_use));
    }

    /// How much there is of what has a budget.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        let is_courteous = |client: &&crate::client::ClientIncarnation| client.courteous_since.is_some();
        InUse {
            delegations: self.delegations,
            slots: self.sessions.slots(),
            courteous: self.clients.by_id.values().filter(is_courteous).count(),
            capabilities: self.caps.objects,
        }
    }
}
