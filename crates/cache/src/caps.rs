//! Capabilities: what a client may rely on, and change unseen, about one object.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// A set of capabilities on one object. Exclusive ones contain the shared ones of their kind. Bits as in
/// the caps program.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CapSet(pub u32);

impl CapSet {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Mode, owner, group and ACL stay as they are.
    pub const AUTH_S: Self = Self(1);
    /// They may be changed here.
    pub const AUTH_X: Self = Self(3);
    /// Link count, names and existence stay as they are.
    pub const LINK_S: Self = Self(4);
    /// The object may be linked and unlinked here.
    pub const LINK_X: Self = Self(12);
    /// Extended attributes stay as they are.
    pub const XATTR_S: Self = Self(16);
    /// They may be changed here.
    pub const XATTR_X: Self = Self(48);
    /// Data, size and times of a file, entries and times of a directory, stay as they are.
    pub const FILE_S: Self = Self(64);
    /// They may be changed here.
    pub const FILE_X: Self = Self(192);
    /// Every shared capability.
    pub const SHARED: Self = Self(1 | 4 | 16 | 64);
    /// Every capability.
    pub const ALL: Self = Self(255);
    /// What `stat` needs to be answered without a question: `ctime` moves with each kind.
    pub const STAT: Self = Self::SHARED;

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is in it.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// With the shared capability of each exclusive one.
    #[must_use]
    pub const fn closed(self) -> Self {
        Self(self.0 | (self.0 & 0xaa) >> 1)
    }

    /// Whether anything is exclusive.
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        self.0 & 0xaa != 0
    }

    /// The shared capabilities of it alone.
    #[must_use]
    pub const fn shared(self) -> Self {
        Self(self.closed().0 & 0x55)
    }

    /// What is in it and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for CapSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for CapSet {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for CapSet {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for CapSet {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0 & Self::ALL.0)
    }
}

impl fmt::Debug for CapSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["As", "Ax", "Ls", "Lx", "Xs", "Xx", "Fs", "Fx"];
        let held = NAMES.iter().enumerate().filter(|(i, _)| self.0 & (1 << i) != 0);
        write!(f, "{{{}}}", held.map(|(_, n)| *n).collect::<Vec<_>>().join(" "))
    }
}

/// Capabilities that came with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Everything held on the object from now on, not only what is new.
    pub caps: CapSet,
    /// Order of grants and recalls of this object for this client: the higher is the later.
    pub seq: u64,
    /// On a directory: what is made in it needs no look at a default ACL or at anything else the client cannot see,
    /// except the set-group-id bit, which it sees.
    pub plain: bool,
    /// On a directory: what is made in it gets its group, whatever its set-group-id bit says.
    pub group_of_directory: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exclusive_implies_shared_of_its_kind_only() {
        assert!(CapSet::FILE_X.has(CapSet::FILE_S));
        assert_eq!(CapSet(128).closed(), CapSet::FILE_X);
        assert_eq!(CapSet::ALL.shared(), CapSet::SHARED);
        assert!(!CapSet::FILE_X.closed().has(CapSet::LINK_S));
    }
}
