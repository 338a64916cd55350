//! The number of this start of the server, and what the next start must know of it.

use holdfast_store::{Batch, Store, StoreError};

use crate::Result;
use crate::codec::{self, unreadable};

const KEY: &[u8] = b"boot";
const VERSION: u8 = 1;

/// How often a start tries again when another writer came between: only a peer starting at the same moment under
/// the same name does, and then once.
const TRIES: usize = 8;

/// One start of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Rises by one with every start, from 1. Part of client ids, stateids and the write verifier, so that those of
    /// an earlier start are recognized.
    pub epoch: u64,
    /// The lease of the start before, in milliseconds; 0 when this is the first. Grace is at least as long (RFC 8881
    /// section 8.4.2.1), for clients renew by the lease they knew.
    pub previous_lease_ms: u64,
}

impl Boot {
    /// Counts a start. Durable when this returns; no client id may be given out before. Waits for the disk.
    ///
    /// # Errors
    /// [`crate::RecoveryError`].
    pub fn begin(store: &dyn Store, lease_ms: u64) -> Result<Self> {
        let mut tried = 0;
        loop {
            let stored = store.get(KEY)?;
            let (epoch, previous_lease_ms) = match &stored {
                Some(bytes) => codec::decode(bytes, VERSION, |r| Ok((r.u64()?, r.u64()?)))
                    .map_err(|e| unreadable("boot", KEY, e))?,
                None => (0, 0),
            };
            let boot = Self { epoch: epoch + 1, previous_lease_ms };
            let record = encode(boot.epoch, lease_ms);
            tried += 1;
            match store.transaction(&Batch::new().when_still(KEY, stored.as_deref()).put(KEY, &record)) {
                Err(StoreError::Conflict) if tried < TRIES => {}
                other => return Ok(other.map(|()| boot)?),
            }
        }
    }

    /// Goes on with a start that another process made, under its number and lease. `None` when there was another start
    /// since: what that process left is not the newest.
    ///
    /// # Errors
    /// [`crate::RecoveryError`].
    pub fn go_on(store: &dyn Store, epoch: u64) -> Result<Option<Self>> {
        let Some(stored) = store.get(KEY)? else { return Ok(None) };
        let (last, lease_ms) = codec::decode(&stored, VERSION, |r| Ok((r.u64()?, r.u64()?)))
            .map_err(|e| unreadable("boot", KEY, e))?;
        Ok((last == epoch).then_some(Self { epoch, previous_lease_ms: lease_ms }))
    }
}

fn encode(epoch: u64, lease_ms: u64) -> Vec<u8> {
    codec::encode(VERSION, |w| {
        w.u64(epoch);
        w.u64(lease_ms);
    })
}

#[cfg(test)]
mod tests {
    use holdfast_store::MemoryStore;
    use holdfast_store::suite::{Fault, Faulty};

    use super::*;

    #[test]
    fn each_start_has_a_higher_number_and_knows_the_lease_before() {
        let store = MemoryStore::new();
        assert_eq!(Boot::begin(&store, 60_000), Ok(Boot { epoch: 1, previous_lease_ms: 0 }));
        assert_eq!(Boot::begin(&store, 90_000), Ok(Boot { epoch: 2, previous_lease_ms: 60_000 }));
        assert_eq!(Boot::begin(&store, 90_000), Ok(Boot { epoch: 3, previous_lease_ms: 90_000 }));
    }

    #[test]
    fn a_number_is_never_used_twice_even_when_the_store_lies_about_success() {
        let store = Faulty::new(MemoryStore::new());
        store.fail_nth(2, Fault::ApplyThenFail);
        assert!(Boot::begin(&store, 1).is_err());
        assert_eq!(Boot::begin(&store, 1).map(|b| b.epoch), Ok(2));
    }

    #[test]
    fn only_the_last_start_is_gone_on_with() {
        let store = MemoryStore::new();
        assert_eq!(Boot::go_on(&store, 1), Ok(None));
        Boot::begin(&store, 60_000).unwrap();
        Boot::begin(&store, 90_000).unwrap();
        assert_eq!(Boot::go_on(&store, 1), Ok(None));
        assert_eq!(Boot::go_on(&store, 2), Ok(Some(Boot { epoch: 2, previous_lease_ms: 90_000 })));
        assert_eq!(Boot::begin(&store, 1).map(|b| b.epoch), Ok(3), "going on counts no start");
    }

    #[test]
    fn the_record_has_the_bytes_of_version_1() {
        assert_eq!(encode(3, 60_000), [1, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0xea, 0x60]);
    }

    #[test]
    fn a_record_of_a_later_program_is_refused() {
        let store = MemoryStore::new();
        assert_eq!(store.put(KEY, &[9, 0]), Ok(()));
        let e = Boot::begin(&store, 1).unwrap_err().to_string();
        assert!(e.contains("version 9"), "{e}");
    }
}
