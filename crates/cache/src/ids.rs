//! What the machine calls things by: nodes towards the kernel, handles towards the server, callers, moments.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use holdfast_base::{Instant, Timestamp};

/// An object as the kernel knows it (FUSE's nodeid). 1 is the root; no number is used twice in a mount's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The mount's root.
    pub const ROOT: Self = Self(1);
}

/// An object as the server knows it: an NFSv4 file handle. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(pub Arc<[u8]>);

impl Handle {
    /// A handle of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(Arc::from(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("handle:")?;
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// One component of a path. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Arc<[u8]>);

impl Name {
    /// A name of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(Arc::from(bytes))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Name {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), f)
    }
}

/// One open of a file or directory by an application (FUSE's `fh`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fh(pub u64);

/// The driver's name for an open that the server knows of (a stateid behind it). The machine only hands it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenToken(pub u64);

/// Who asks: the credential that calls to the server carry. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups.
    pub groups: Arc<[u32]>,
}

impl Caller {
    /// A caller without further groups.
    #[must_use]
    pub fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: Arc::from([]) }
    }

    /// Whether it is of this group.
    #[must_use]
    pub fn is_of(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The moment of a call: the machine has no clock of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Now {
    /// For ages and delays.
    pub mono: Instant,
    /// For the times that files show.
    pub wall: Timestamp,
}
