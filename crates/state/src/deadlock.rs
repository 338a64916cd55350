//! Whether waiting for a lock would close a circle of those who wait for each other (POSIX `EDEADLK`). Parties of all
//! doors count. What a client does not tell cannot be known: one whose wait a signal ended counts as waiting until it
//! has not asked for a while.
//!
//! Who waits and who holds is the clients' to choose, so every party, file, waiter and lock that is looked at is paid for
//! from a budget. For which of them it suffices depends on nothing but the locks and waits there are.

use std::collections::BTreeSet;

use holdfast_base::limits::{DEADLOCK_STEPS_MAX, LOCK_WAIT_FRESH_MS};
use holdfast_base::{ByteRange, FileKey, Instant};

use crate::engine::Engine;
use crate::file::Holder;
use crate::lock_set::LockKind;
use crate::waiters::{Manner, Party, Waiter};

/// Where a search leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Circle {
    /// Nowhere: the wait can end.
    Open,
    /// Back to who asks.
    Closed,
    /// Beyond what is looked at for one request. Such a wait is not taken on: it might never end.
    Unknown,
}

/// The steps that are left.
struct Steps(usize);

/// None are left.
struct Spent;

impl Steps {
    fn take(&mut self, steps: usize) -> Result<(), Spent> {
        self.0 = self.0.checked_sub(steps).ok_or(Spent)?;
        Ok(())
    }
}

impl Waiter {
    pub(crate) fn waits_still(&self, now: Instant) -> bool {
        self.manner == Manner::Given || now.ms_since(self.asked_at) <= LOCK_WAIT_FRESH_MS
    }
}

impl Engine {
    /// Whether somebody who holds what `party` wants waits, perhaps through others, for what `party` holds.
    pub(crate) fn circle(
        &self,
        party: &Party,
        file: FileKey,
        (range, kind): (ByteRange, LockKind),
        now: Instant,
    ) -> Circle {
        let mut steps = Steps(DEADLOCK_STEPS_MAX);
        match self.is_closed(party, file, (range, kind), (now, &mut steps)) {
            Ok(true) => Circle::Closed,
            Ok(false) => Circle::Open,
            Err(Spent) => Circle::Unknown,
        }
    }

    fn is_closed(
        &self,
        party: &Party,
        file: FileKey,
        lock: (ByteRange, LockKind),
        (now, steps): (Instant, &mut Steps),
    ) -> Result<bool, Spent> {
        let mut seen: BTreeSet<Party> = BTreeSet::new();
        let mut ahead = self.blockers(party, file, lock, steps)?;
        while let Some(next) = ahead.pop() {
            steps.take(1)?;
            if next == *party {
                return Ok(true);
            }
            if !seen.insert(next.clone()) {
                continue;
            }
            let files = self.waits.files_of(&next);
            steps.take(files.len())?;
            // It may wait for several locks of one file.
            for file in files.iter().copied().collect::<BTreeSet<_>>() {
                let waiters = self.files.get(&file).map(|of| of.waiters.as_slice()).unwrap_or_default();
                steps.take(waiters.len())?;
                let its = waiters.iter().filter(|waiter| waiter.party == next && waiter.waits_still(now));
                for waiter in its {
                    ahead.extend(self.blockers(&next, file, (waiter.range, waiter.kind), steps)?);
                }
            }
        }
        Ok(false)
    }

    /// Who holds locks in the way of one.
    fn blockers(
        &self,
        party: &Party,
        file: FileKey,
        (range, kind): (ByteRange, LockKind),
        steps: &mut Steps,
    ) -> Result<Vec<Party>, Spent> {
        steps.take(1)?;
        let own = self.holder_of(party, file);
        let Some(of) = self.files.get(&file) else { return Ok(Vec::new()) };
        // One with several locks in the way counts once.
        let mut holders: BTreeSet<Holder> = BTreeSet::new();
        for (holder, conflicts) in of.locks.looked_at(range, kind) {
            steps.take(1)?;
            if conflicts && Some(holder) != own {
                holders.insert(holder);
            }
        }
        Ok(holders.into_iter().filter_map(|holder| self.party_of(holder)).collect())
    }

    fn party_of(&self, holder: Holder) -> Option<Party> {
        match holder {
            Holder::Foreign(owner) => Some(Party::Foreign(owner)),
            Holder::State(key) => {
                let state = self.states.get(key.0)?;
                let owner = self.owners.get(state.owner?.0)?.name.clone();
                Some(Party::Nfs4 { client: state.client, owner })
            }
        }
    }
}
