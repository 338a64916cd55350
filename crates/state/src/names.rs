//! Names of the parties, as values the engine compares and never looks into.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Who a request was authenticated as, in a canonical form chosen by the edge. Compared, never interpreted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Principal(#[serde(with = "crate::plain")] Arc<[u8]>);

impl Principal {
    /// The principal whose canonical bytes these are.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(Arc::from(bytes))
    }

    /// The canonical bytes, for storing.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes by which a client names itself, an open-owner or a lock-owner. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnerName(#[serde(with = "crate::plain")] Arc<[u8]>);

impl OwnerName {
    /// The name with these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(Arc::from(bytes))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::borrow::Borrow<[u8]> for OwnerName {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for OwnerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Eight opaque bytes (`verifier4`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Verifier(pub [u8; 8]);

/// The edge's number for a connection; never reused while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConnId(pub u64);

/// The edge's number for the backend descriptor of an open. Given by the edge, handed back in
/// [`crate::Effect::CloseFile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OpenId(pub u64);

/// The engine's number for one lock-owner's locks on one file: the key under which the edge keeps the descriptor
/// carrying the backend's locks. Never reused within one server instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockToken(pub u64);

/// One of a client's mounts, which know nothing of each other's delegations, as far as the names of its open-owners tell.
/// Linux begins them with "open id:" and the device number of the mount's super block (`encode_openhdr` in its
/// nfs4xdr.c), and has one cache, and one set of delegations, for each super block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mount([u8; 4]);

impl Mount {
    /// That of an open-owner; `None` where its name does not tell.
    pub(crate) fn of(owner: &[u8]) -> Option<Self> {
        owner.strip_prefix(b"open id:")?.first_chunk().copied().map(Self)
    }
}

/// The rules a client plays by: those of 4.0 (owner sequence ids, lease by RENEW and by use) or of 4.1 and
/// later (sessions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Dialect {
    /// NFSv4.0, RFC 7530.
    V40,
    /// NFSv4.1 and 4.2, RFC 8881.
    V41,
}
