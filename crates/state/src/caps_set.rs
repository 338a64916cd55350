//! Capabilities: what may be promised of one object, what others' deeds leave of it, and what goes together.

use serde::{Deserialize, Serialize};

use crate::deed::{Deed, DelegationKind};

/// A set of capabilities on one object. Each kind (AUTH: mode, owner, access list; LINK: number of links, existence;
/// XATTR; FILE: data, size, times, or a directory's entries) is shared or exclusive, and the exclusive one contains the
/// shared one. The bits are those of the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CapSet(u32);

/// The shared bits; each exclusive one is the next higher.
const SHARED: u32 = 0x55;

impl CapSet {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Mode, owner, group, access list are current.
    pub const AUTH_S: Self = Self(1);
    /// They may be changed unseen.
    pub const AUTH_X: Self = Self(3);
    /// The number of links is current, and the object stays.
    pub const LINK_S: Self = Self(4);
    /// It may be linked, renamed and unlinked unseen.
    pub const LINK_X: Self = Self(12);
    /// Extended attributes are current.
    pub const XATTR_S: Self = Self(16);
    /// They may be changed unseen.
    pub const XATTR_X: Self = Self(48);
    /// Data or entries, size and times are current.
    pub const FILE_S: Self = Self(64);
    /// They may be changed unseen.
    pub const FILE_X: Self = Self(192);
    /// All that is shared.
    pub const ALL_S: Self = Self(SHARED);
    /// Everything.
    pub const ALL_X: Self = Self(0xff);

    /// The set with these bits of the wire; unknown ones, and exclusive ones without their shared one, are dropped.
    #[must_use]
    pub const fn from_wire(bits: u32) -> Self {
        let shared = bits & SHARED;
        Self(shared | (bits & (shared << 1)))
    }

    /// The bits of the wire.
    #[must_use]
    pub const fn to_wire(self) -> u32 {
        self.0
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

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

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is left when nothing exclusive is.
    #[must_use]
    pub const fn shared(self) -> Self {
        Self(self.0 & SHARED)
    }

    /// What is left when data or entries may not be changed unseen.
    #[must_use]
    pub const fn less_file_x(self) -> Self {
        Self(self.0 & !FILE)
    }

    /// Whether anything in it is exclusive.
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        self.0 & !SHARED != 0
    }

    /// What of it can stand beside what another holds: of a kind that the other has exclusively nothing, of one that it
    /// shares at most the shared one.
    #[must_use]
    pub const fn beside(self, other: Self) -> Self {
        let exclusive = (other.0 >> 1) & SHARED;
        let shared = other.0 & SHARED;
        Self(self.0 & !(exclusive | exclusive << 1) & !(shared << 1))
    }

    /// Whether both can be held by two clients at the same time.
    #[must_use]
    pub const fn fits(self, other: Self) -> bool {
        self.beside(other).0 == self.0
    }

    /// What is left of it when `gone`, which names bits and not kinds, may not be held: without its shared one no
    /// exclusive one stays.
    #[must_use]
    pub const fn less(self, gone: Forbidden) -> Self {
        Self::from_wire(self.0 & !gone.0)
    }
}

/// Bits that nobody else may hold while something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forbidden(u32);

const AUTH: u32 = 2;
const LINK: u32 = 8;
const XATTR: u32 = 32;
const FILE: u32 = 128;

/// The exclusive bits of these kinds, and their shared ones.
const fn all_of(exclusive: u32) -> u32 {
    exclusive | exclusive >> 1
}

impl Deed {
    /// What of others' capabilities is in the way of it (`docs/design/caps-protocol.md`, section 3).
    #[must_use]
    pub const fn forbids(self) -> Forbidden {
        Forbidden(match self {
            Self::ReadData | Self::OpenRead | Self::LookEntries => FILE | AUTH,
            Self::LookAttrs => FILE | AUTH | LINK | XATTR,
            Self::LookXattrs => XATTR | AUTH,
            Self::LookRights => AUTH,
            Self::WriteData | Self::Truncate | Self::OpenWrite | Self::ChangeEntries => all_of(FILE) | AUTH,
            Self::ChangeAttrs => all_of(AUTH | XATTR | FILE) | LINK,
            Self::ChangeName => all_of(LINK) | FILE,
        })
    }

    /// Whether somebody else's capabilities stand in the way.
    #[must_use]
    pub const fn conflicts_with_caps(self, held: CapSet) -> bool {
        self.forbids().0 & held.0 != 0
    }
}

impl Forbidden {
    /// Everything.
    pub(crate) const ALL: Self = Self(all_of(AUTH | LINK | XATTR | FILE));

    /// Whether any of it is in a set.
    #[must_use]
    pub const fn touches(self, held: CapSet) -> bool {
        self.0 & held.0 != 0
    }

    /// What of others' capabilities cannot stand beside a set.
    #[must_use]
    pub const fn beside(wanted: CapSet) -> Self {
        let exclusive = (wanted.0 >> 1) & SHARED;
        Self(exclusive | (wanted.0 & SHARED) << 1)
    }
}

impl DelegationKind {
    /// The capabilities that a delegation stands for towards other clients.
    #[must_use]
    pub const fn stands_for(self) -> CapSet {
        match self {
            Self::Read => CapSet(CapSet::FILE_S.0 | CapSet::AUTH_S.0 | CapSet::LINK_S.0),
            Self::Write => CapSet(CapSet::FILE_X.0 | CapSet::AUTH_S.0 | CapSet::LINK_S.0),
            Self::Directory | Self::NotifiedDirectory => CapSet::ALL_S,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEEDS: [Deed; 12] = [
        Deed::ReadData,
        Deed::LookAttrs,
        Deed::LookEntries,
        Deed::LookXattrs,
        Deed::LookRights,
        Deed::WriteData,
        Deed::Truncate,
        Deed::ChangeAttrs,
        Deed::ChangeName,
        Deed::ChangeEntries,
        Deed::OpenRead,
        Deed::OpenWrite,
    ];

    fn sets() -> impl Iterator<Item = CapSet> {
        (0..=255).map(CapSet::from_wire)
    }

    #[test]
    fn what_stands_beside_a_set_fits_it_and_nothing_more_would() {
        for (a, b) in sets().flat_map(|a| sets().map(move |b| (a, b))) {
            let beside = a.beside(b);
            assert!(a.contains(beside) && beside.fits(b) && b.fits(beside), "{a:?} {b:?}");
            assert_eq!(CapSet::from_wire(beside.0), beside);
            for bit in (0..8).map(|n| 1 << n).filter(|bit| a.0 & bit != 0 && beside.0 & bit == 0) {
                assert!(!CapSet::from_wire(beside.0 | bit | bit >> 1 & SHARED).fits(b) || bit & SHARED != 0);
            }
        }
    }

    #[test]
    fn what_a_deed_leaves_it_does_not_conflict_with() {
        for (deed, set) in DEEDS.into_iter().flat_map(|deed| sets().map(move |set| (deed, set))) {
            let left = set.less(deed.forbids());
            assert!(set.contains(left) && !deed.conflicts_with_caps(left), "{deed:?} {set:?}");
            assert_eq!(left == set, !deed.conflicts_with_caps(set));
        }
    }

    #[test]
    fn nothing_exclusive_survives_a_look_and_nothing_shared_is_taken_by_one() {
        for set in sets() {
            assert_eq!(set.less(Deed::LookAttrs.forbids()), set.shared());
        }
        for deed in [Deed::ReadData, Deed::LookEntries, Deed::LookXattrs, Deed::LookRights, Deed::OpenRead] {
            assert!(!deed.conflicts_with_caps(CapSet::ALL_S));
        }
    }

    #[test]
    fn what_is_wanted_forbids_others_exactly_what_does_not_fit() {
        for (wanted, held) in sets().flat_map(|a| sets().map(move |b| (a, b))) {
            let left = held.less(Forbidden::beside(wanted));
            assert!(left.fits(wanted), "{wanted:?} {held:?}");
            assert_eq!(left == held, held.fits(wanted));
        }
    }
}
