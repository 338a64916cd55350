//! What is held of one file: share reservations, locks, and those who wait for locks.

use serde::{Deserialize, Serialize};

use crate::engine::StateKey;
use crate::foreign::ForeignOwner;
use crate::lock_set::{LockKind, LockSet};
use crate::range_map::RangeMap;
use crate::share::{Share, ShareSums};
use crate::waiters::Waiter;

/// Who holds a byte-range lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Holder {
    /// An NFSv4 lock-owner, by its state on this file.
    State(StateKey),
    /// Somebody who came through another door.
    Foreign(ForeignOwner),
}

/// A file of which somebody holds something.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) sums: ShareSums,
    pub(crate) opens: Vec<StateKey>,
    pub(crate) locks: LockSet<Holder>,
    /// Ranges in these, of all holders.
    pub(crate) lock_ranges: usize,
    /// The open that a holder's locks end with may have less access than they needed, as it was downgraded or as they were made
    /// through another: what is exclusively locked is not told by the opens then.
    pub(crate) locks_outlast_opens: bool,
    pub(crate) waiters: Vec<Waiter>,
    /// Locks of those outside, as far as somebody who waits for their end has met them, up to as many as may wait. What nobody
    /// tells of any more is found out when somebody asks.
    pub(crate) outside: RangeMap<LockKind>,
    /// Offered and granted ones.
    pub(crate) delegations: Vec<StateKey>,
    /// Share reservations of those who came through other doors; in the sums too.
    pub(crate) foreign_shares: Vec<(ForeignOwner, Share)>,
}

impl File {
    /// The reservations of all but one opener and those away.
    pub(crate) fn held_by_others(&self, own: Share, away: &ShareSums) -> Share {
        let mut others = self.sums.without(away);
        others.subtract(own);
        others.held()
    }

    /// The reservations that opens make together, but for those away.
    pub(crate) fn held_by_opens(&self, away: &ShareSums) -> Share {
        let mut opens = self.sums.without(away);
        self.foreign_shares.iter().for_each(|(_, share)| opens.subtract(*share));
        opens.held()
    }

    pub(crate) fn change_share(&mut self, from: Share, to: Share) {
        self.sums.subtract(from);
        self.sums.add(to);
    }

    pub(crate) fn remove_open(&mut self, key: StateKey, share: Share) {
        self.sums.subtract(share);
        if let Some(at) = self.opens.iter().position(|other| *other == key) {
            self.opens.swap_remove(at);
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.opens.is_empty()
            && self.locks.is_empty()
            && self.waiters.is_empty()
            && self.delegations.is_empty()
            && self.foreign_shares.is_empty()
    }
}
