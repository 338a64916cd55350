//! What may be promised to a client, and what others do that a promise excludes.

use serde::{Deserialize, Serialize};

/// What a delegation promises its holder (RFC 8881 sections 10.4 and 10.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DelegationKind {
    /// Nobody else changes the file: it may be read, and opened for reading, without asking.
    Read,
    /// Nobody else reads or changes the file: it may be written as well, and locks on it are the holder's affair.
    Write,
    /// Nobody else changes the directory or what it lists.
    Directory,
    /// Nobody else changes the directory but by what it lists, and the holder is told of that (CB_NOTIFY).
    NotifiedDirectory,
}

impl DelegationKind {
    /// Whether it is one of a directory.
    #[must_use]
    pub const fn is_directory(self) -> bool {
        matches!(self, Self::Directory | Self::NotifiedDirectory)
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
    /// Change a directory's entries.
    ChangeEntries,
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
            Self::ChangeEntries => matches!(with, DelegationKind::Directory),
        }
    }
}
