//! Whether waiting for a lock would close a circle of those who wait for each other (POSIX `EDEADLK`). Parties of all
//! doors count. What a client does not tell cannot be known: one whose wait a signal ended counts as waiting until it
//! has not asked for a while.

use std::collections::BTreeSet;

use holdfast_base::limits::{DEADLOCK_STEPS_MAX, LOCK_WAIT_FRESH_MS};
use holdfast_base::{ByteRange, FileKey, Instant};

use crate::engine::Engine;
use crate::file::Holder;
use crate::lock_set::LockKind;
use crate::waiters::{Manner, Party, Waiter};

impl Waiter {
    fn waits_still(&self, now: Instant) -> bool {
        self.manner == Manner::Given || now.ms_since(self.asked_at) <= LOCK_WAIT_FRESH_MS
    }
}

impl Engine {
    /// Whether somebody who holds what `party` wants waits, perhaps through others, for what `party` holds.
    pub(crate) fn would_deadlock(
        &self,
        party: &Party,
        file: FileKey,
        range: ByteRange,
        kind: LockKind,
        now: Instant,
    ) -> bool {
        let mut seen: BTreeSet<Party> = BTreeSet::new();
        let mut ahead = self.blockers(party, file, range, kind);
        let mut steps = 0;
        while let Some(next) = ahead.pop() {
            if next == *party {
                return true;
            }
            steps += 1;
            if steps > DEADLOCK_STEPS_MAX {
                return false;
            }
            if !seen.insert(next.clone()) {
                continue;
            }
            for file in self.waits.0.get(&next).map(Vec::as_slice).unwrap_or_default() {
                let waiters = self.files.get(file).map(|of| of.waiters.as_slice()).unwrap_or_default();
                let its = waiters.iter().filter(|waiter| waiter.party == next && waiter.waits_still(now));
                for waiter in its {
                    ahead.extend(self.blockers(&next, *file, waiter.range, waiter.kind));
                }
            }
        }
        false
    }

    /// Who holds locks in the way of one.
    fn blockers(&self, party: &Party, file: FileKey, range: ByteRange, kind: LockKind) -> Vec<Party> {
        let own = self.holder_of(party, file);
        let Some(of) = self.files.get(&file) else { return Vec::new() };
        let in_way = of.locks.conflicts(own, range, kind).take(DEADLOCK_STEPS_MAX);
        // One with several locks in the way counts once.
        let holders: BTreeSet<Holder> = in_way.map(|(holder, _, _)| holder).collect();
        holders.into_iter().filter_map(|holder| self.party_of(holder)).collect()
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
