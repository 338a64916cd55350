//! What may be promised to a client, and what others do that a promise excludes.

use serde::{Deserialize, Serialize};

/// Kinds of changes of a directory's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryKinds(u8);

impl EntryKinds {
    /// None.
    pub const NONE: Self = Self(0);
    /// One comes, or takes another's place.
    pub const ADD: Self = Self(1);
    /// One goes.
    pub const REMOVE: Self = Self(2);
    /// One has another name, in the same directory.
    pub const RENAME: Self = Self(4);
    /// All that a holder can be told of.
    pub const ALL: Self = Self(7);
    /// Nobody knows which, so no holder can be told.
    pub const UNKNOWN: Self = Self(15);

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// What is in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What a delegation promises its holder (RFC 8881 sections 10.4 and 10.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "FrozenKind", into = "FrozenKind")]
pub enum DelegationKind {
    /// Nobody else changes the file: it may be read, and opened for reading, without asking.
    Read,
    /// Nobody else reads or changes the file: it may be written as well, and locks on it are the holder's affair.
    Write,
    /// Nobody else changes the directory or what it lists.
    Directory,
    /// The same, but for changes of entries of these kinds, of which the holder is told (CB_NOTIFY).
    NotifiedDirectory(EntryKinds),
}

/// A delegation's kind in a frozen engine. Who is told of what is known to one process alone, so a delegation with
/// notifications is one without from then on, also out of an image that tells it apart; whoever thaws it recalls it.
#[derive(Serialize, Deserialize)]
enum FrozenKind {
    Read,
    Write,
    Directory,
    NotifiedDirectory,
}

impl From<FrozenKind> for DelegationKind {
    fn from(kind: FrozenKind) -> Self {
        match kind {
            FrozenKind::Read => Self::Read,
            FrozenKind::Write => Self::Write,
            FrozenKind::Directory | FrozenKind::NotifiedDirectory => Self::Directory,
        }
    }
}

impl From<DelegationKind> for FrozenKind {
    fn from(kind: DelegationKind) -> Self {
        match kind {
            DelegationKind::Read => Self::Read,
            DelegationKind::Write => Self::Write,
            DelegationKind::Directory | DelegationKind::NotifiedDirectory(_) => Self::Directory,
        }
    }
}

impl DelegationKind {
    /// Whether it is one of a directory.
    #[must_use]
    pub const fn is_directory(self) -> bool {
        matches!(self, Self::Directory | Self::NotifiedDirectory(_))
    }
}

/// What somebody is about to do with a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deed {
    /// Read data.
    ReadData,
    /// Look at size, change or times. A holder of a write delegation is asked for them (CB_GETATTR); only where that
    /// fails is it recalled.
    LookAttrs,
    /// Look at a directory's entries: LOOKUP, READDIR, an open by name. No delegation hides them.
    LookEntries,
    /// Look at extended attributes. No delegation hides them.
    LookXattrs,
    /// Judge by mode, owner and access list alone: ACCESS. No delegation hides them.
    LookRights,
    /// Change data: WRITE, truncation, ALLOCATE, the target of COPY and CLONE.
    WriteData,
    /// Cut to nothing: as [`Deed::WriteData`], and holders are told that they need not flush.
    Truncate,
    /// Change attributes or extended attributes.
    ChangeAttrs,
    /// Link, rename or unlink the object itself, as victim too.
    ChangeName,
    /// Change a directory's entries, in these ways.
    ChangeEntries(EntryKinds),
    /// Open for reading, denying nothing; take a shared lock without an open.
    OpenRead,
    /// Open for writing, or denying anything; take an exclusive lock without an open.
    OpenWrite,
}

impl Deed {
    /// Whether somebody else's delegation of this kind stands in the way.
    #[must_use]
    pub const fn conflicts(self, with: DelegationKind) -> bool {
        match self {
            Self::ReadData | Self::LookAttrs | Self::OpenRead => matches!(with, DelegationKind::Write),
            Self::WriteData | Self::Truncate | Self::OpenWrite => {
                matches!(with, DelegationKind::Read | DelegationKind::Write)
            }
            Self::LookEntries | Self::LookXattrs | Self::LookRights => false,
            Self::ChangeAttrs | Self::ChangeName => true,
            Self::ChangeEntries(kinds) => match with {
                DelegationKind::Read | DelegationKind::Write => false,
                DelegationKind::Directory => true,
                DelegationKind::NotifiedDirectory(told) => !told.contains(kinds),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a planned restart finds written, by this version and by earlier ones.
    #[test]
    fn of_a_frozen_delegation_with_notifications_one_of_the_directory_is_left() {
        let told = DelegationKind::NotifiedDirectory(EntryKinds::ALL);
        for (frozen, kind) in [
            (serde_json::to_string(&told).unwrap(), DelegationKind::Directory),
            ("\"NotifiedDirectory\"".into(), DelegationKind::Directory),
            ("\"Directory\"".into(), DelegationKind::Directory),
            ("\"Write\"".into(), DelegationKind::Write),
            ("\"Read\"".into(), DelegationKind::Read),
        ] {
            assert_eq!(serde_json::from_str::<DelegationKind>(&frozen).unwrap(), kind, "{frozen}");
        }
    }
}
