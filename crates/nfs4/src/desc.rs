//! The row of the table that every operation has: what the engine must know of it before it runs.

use std::ops::BitOr;

use holdfast_wire::nfs4::OpNum4;

/// A minor version that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Minor {
    /// NFSv4.0 (RFC 7530).
    V0,
    /// NFSv4.1 (RFC 8881).
    V1,
    /// NFSv4.2 (RFC 7862).
    V2,
}

impl Minor {
    /// The minor version of that number, if it is served.
    #[must_use]
    pub const fn from_u32(n: u32) -> Option<Self> {
        match n {
            0 => Some(Self::V0),
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    /// Whether requests come in sessions.
    #[must_use]
    pub const fn has_sessions(self) -> bool {
        !matches!(self, Self::V0)
    }
}

/// What the engine does around an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u16);

impl Flags {
    /// Nothing.
    pub(crate) const NONE: Self = Self(0);
    /// Needs a current filehandle.
    pub(crate) const NEEDS_FH: Self = Self(1);
    /// Needs a saved filehandle.
    pub(crate) const NEEDS_SAVED_FH: Self = Self(1 << 1);
    /// May begin a compound without SEQUENCE, and is then its only operation (RFC 8881 section 2.10.6.1.1).
    pub(crate) const OUTSIDE_SESSION: Self = Self(1 << 2);
    /// Cannot be repeated without harm: it does not start unless its reply is sure to fit, and its reply is kept.
    pub(crate) const MODIFIES: Self = Self(1 << 3);
    /// Changes the file system whatever its arguments: refused with NFS4ERR_ROFS on a read-only export.
    pub(crate) const WRITES: Self = Self(1 << 4);
    /// May wait for the disk where the export is synchronous: runs on the pool there.
    pub(crate) const WAITS_IN_SYNC: Self = Self(1 << 5);
    /// May wait in any case: always runs on the pool.
    pub(crate) const WAITS: Self = Self(1 << 6);
    /// Makes another object current, so that the current state id no longer fits (RFC 8881 section 16.2.3.1.2).
    pub(crate) const CLEARS_STATEID: Self = Self(1 << 7);
    /// Its result carries an attribute bitmap even when it fails: an empty one, unless the operation wrote more
    /// (SETATTR, RFC 8881 section 18.30.2).
    pub(crate) const BITMAP_ON_ERROR: Self = Self(1 << 8);
    /// Looks at what is left of a file system that lies elsewhere; every other is refused with NFS4ERR_MOVED there
    /// (RFC 8881 section 11.2).
    pub(crate) const OF_ABSENT: Self = Self(1 << 9);

    /// What every change of names, attributes or space has in common.
    pub(crate) const MUTATION: Self =
        Self(Self::NEEDS_FH.0 | Self::MODIFIES.0 | Self::WRITES.0 | Self::WAITS_IN_SYNC.0);

    /// Whether all of `other` is set.
    #[must_use]
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// All of both.
    #[must_use]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

/// An operation's row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpDesc {
    /// Its number; tells its name and its first minor version too.
    pub(crate) num: OpNum4,
    /// The last minor version that has it; in later ones it answers NFS4ERR_NOTSUPP.
    pub(crate) until: Minor,
    /// What the engine does around it.
    pub(crate) flags: Flags,
    /// Bytes of the result after its status, at most; where arguments decide, see [`crate::op::Op::reply_bytes_max`].
    pub(crate) reply_bytes_max: usize,
}

impl OpDesc {
    /// The row of an operation whose result is its status alone.
    #[must_use]
    pub(crate) const fn new(num: OpNum4, flags: Flags) -> Self {
        Self { num, until: Minor::V2, flags, reply_bytes_max: 0 }
    }

    /// With a result of at most so many bytes after the status.
    #[must_use]
    pub(crate) const fn reply(self, bytes_max: usize) -> Self {
        Self { reply_bytes_max: bytes_max, ..self }
    }

    /// An operation of 4.0 that later minor versions must not implement.
    #[must_use]
    pub(crate) const fn only_in_v0(self) -> Self {
        Self { until: Minor::V0, ..self }
    }
}

/// Bytes of a `stateid4`.
pub(crate) const STATEID_BYTES: usize = 16;

/// Bytes of a `change_info4`.
pub(crate) const CHANGE_INFO_BYTES: usize = 20;

/// Bytes of a `bitmap4` of attributes: its count and the words known today.
pub(crate) const BITMAP_BYTES: usize = 20;
