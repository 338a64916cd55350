//! What others' deeds leave of capabilities on an object.

use holdfast_base::CapSet;

use crate::deed::{Deed, DelegationKind};

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
            Self::WriteData | Self::Truncate | Self::OpenWrite | Self::ChangeEntries(_) => {
                all_of(FILE) | AUTH
            }
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
        let shared = wanted.shared().0;
        Self((wanted.0 >> 1) & CapSet::ALL_S.0 | shared << 1)
    }

    /// What is left of a set when none of this may be held: without its shared one no exclusive one stays.
    #[must_use]
    pub const fn leaves(self, of: CapSet) -> CapSet {
        CapSet(of.0 & !self.0).sound()
    }
}

impl DelegationKind {
    /// The capabilities that a delegation stands for towards other clients.
    #[must_use]
    pub const fn stands_for(self) -> CapSet {
        match self {
            Self::Read => CapSet(CapSet::FILE_S.0 | CapSet::AUTH_S.0 | CapSet::LINK_S.0),
            Self::Write => CapSet(CapSet::FILE_X.0 | CapSet::AUTH_S.0 | CapSet::LINK_S.0),
            Self::Directory | Self::NotifiedDirectory(_) => CapSet::ALL_S,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deed::EntryKinds;

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
        Deed::ChangeEntries(EntryKinds::UNKNOWN),
        Deed::OpenRead,
        Deed::OpenWrite,
    ];

    fn sets() -> impl Iterator<Item = CapSet> {
        (0..=255).map(|bits| CapSet(bits).sound())
    }

    #[test]
    fn what_a_deed_leaves_it_does_not_conflict_with() {
        for (deed, set) in DEEDS.into_iter().flat_map(|deed| sets().map(move |set| (deed, set))) {
            let left = deed.forbids().leaves(set);
            assert!(set.contains(left) && !deed.conflicts_with_caps(left), "{deed:?} {set:?}");
            assert_eq!(left == set, !deed.conflicts_with_caps(set));
        }
    }

    #[test]
    fn nothing_exclusive_survives_a_look_and_nothing_shared_is_taken_by_one() {
        for set in sets() {
            assert_eq!(Deed::LookAttrs.forbids().leaves(set), set.shared());
        }
        for deed in [Deed::ReadData, Deed::LookEntries, Deed::LookXattrs, Deed::LookRights, Deed::OpenRead] {
            assert!(!deed.conflicts_with_caps(CapSet::ALL_S));
        }
    }

    #[test]
    fn what_is_wanted_forbids_others_exactly_what_does_not_fit() {
        for (wanted, held) in sets().flat_map(|a| sets().map(move |b| (a, b))) {
            let left = Forbidden::beside(wanted).leaves(held);
            assert!(left.fits(wanted), "{wanted:?} {held:?}");
            assert_eq!(left == held, held.fits(wanted));
        }
    }
}
