//! What makes a server the same server after a restart: owner, scope, and the key that seals file handles.

use std::fmt;

use holdfast_base::Entropy;
use holdfast_store::{Batch, Store, StoreError};

use crate::Result;
use crate::codec::{self, unreadable};

const KEY: &[u8] = b"identity";
const VERSION: u8 = 1;

/// The server's lasting identity. Lost, every file handle goes stale and no client reclaims; it is as secret as the
/// store's file (mode 0600).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// `so_major_id` of `eir_server_owner`: the same for every address of this server (RFC 8881 section 2.10.5).
    pub owner: [u8; 16],
    /// `eir_server_scope`: the same for servers that know each other's file handles and client state; a cluster
    /// shares it.
    pub scope: [u8; 16],
    /// The key of the signature in file handles.
    pub handle_key: [u8; 16],
}

/// Does not show the key.
impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("owner", &self.owner)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

impl Identity {
    /// The stored identity; at the first start a random one is made and stored. Waits for the disk then.
    ///
    /// # Errors
    /// [`crate::RecoveryError`].
    pub fn load_or_make(store: &dyn Store, entropy: &mut dyn Entropy) -> Result<Self> {
        if let Some(bytes) = store.get(KEY)? {
            return Self::from_bytes(&bytes).map_err(|e| unreadable("identity", KEY, e));
        }
        let mut made = Self { owner: [0; 16], scope: [0; 16], handle_key: [0; 16] };
        for part in [&mut made.owner, &mut made.scope, &mut made.handle_key] {
            entropy.fill(part);
        }
        match store.transaction(&Batch::new().when_absent(KEY).put(KEY, &made.to_bytes())) {
            // A peer of the cluster was first: its identity is ours.
            Err(StoreError::Conflict) => {
                let bytes = store.get(KEY)?.unwrap_or_default();
                Self::from_bytes(&bytes).map_err(|e| unreadable("identity", KEY, e))
            }
            other => Ok(other.map(|()| made)?),
        }
    }

    fn to_bytes(self) -> Vec<u8> {
        codec::encode(VERSION, |w| {
            [self.owner, self.scope, self.handle_key].iter().for_each(|part| w.fixed(part));
        })
    }

    fn from_bytes(bytes: &[u8]) -> std::result::Result<Self, codec::DecodeError> {
        codec::decode(bytes, VERSION, |r| {
            Ok(Self { owner: r.array()?, scope: r.array()?, handle_key: r.array()? })
        })
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::SeededEntropy;
    use holdfast_store::MemoryStore;

    use super::*;

    #[test]
    fn it_is_made_once_and_stays() {
        let store = MemoryStore::new();
        let first = Identity::load_or_make(&store, &mut SeededEntropy(1)).unwrap();
        let again = Identity::load_or_make(&store, &mut SeededEntropy(2)).unwrap();
        assert_eq!(first, again);
        assert_ne!(first.owner, first.handle_key);
        let other = Identity::load_or_make(&MemoryStore::new(), &mut SeededEntropy(2)).unwrap();
        assert_ne!(first, other);
    }

    #[test]
    fn the_key_is_not_printed() {
        let secret = Identity { owner: [0; 16], scope: [0; 16], handle_key: [0xa7; 16] };
        assert!(!format!("{secret:?}").contains("167"));
    }

    #[test]
    fn the_record_has_the_bytes_of_version_1() {
        let identity = Identity { owner: [1; 16], scope: [2; 16], handle_key: [3; 16] };
        let golden = [&[1][..], &[1; 16], &[2; 16], &[3; 16]].concat();
        assert_eq!(identity.to_bytes(), golden);
        assert_eq!(Identity::from_bytes(&golden), Ok(identity));
    }
}
