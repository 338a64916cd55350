//! Capabilities: what may be promised of one object.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// A set of capabilities on one object; the number is that of the caps program. Each kind (AUTH: mode, owner, access list;
/// LINK: number of links, existence; XATTR; FILE: data, size, times, or a directory's entries) is shared or exclusive. What
/// is held is *sound*: with each exclusive bit goes the shared one of its kind. What is lost, or forbidden, need not be.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CapSet(pub u32);

/// The shared bits; each exclusive one is the next higher.
const SHARED: u32 = 0x55;

impl CapSet {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Mode, owner, group and access list are current.
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
    /// What is between the two: not sound.
    pub const FILE_X_ALONE: Self = Self(128);
    /// All that is shared.
    pub const ALL_S: Self = Self(SHARED);
    /// Everything.
    pub const ALL_X: Self = Self(0xff);
    /// In a wish, and never held: `FILE_S` though others have the file open for writing, until one of them writes.
    pub const BESIDE_WRITERS: Self = Self(256);

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is in it.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether anything in it is exclusive.
    #[must_use]
    pub const fn is_exclusive(self) -> bool {
        self.0 & !SHARED != 0
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

    /// What is in it and not in `other`, bit by bit.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What is left when nothing exclusive is.
    #[must_use]
    pub const fn shared(self) -> Self {
        Self(self.0 & SHARED)
    }

    /// Unknown bits dropped, and exclusive ones without their shared one.
    #[must_use]
    pub const fn sound(self) -> Self {
        let shared = self.0 & SHARED;
        Self(shared | (self.0 & (shared << 1)))
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
}

impl BitOr for CapSet {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for CapSet {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

impl BitAnd for CapSet {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        self.and(other)
    }
}

impl Not for CapSet {
    type Output = Self;
    fn not(self) -> Self {
        Self::ALL_X.without(self)
    }
}

impl fmt::Debug for CapSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 8] = ["As", "Ax", "Ls", "Lx", "Xs", "Xx", "Fs", "Fx"];
        let held = NAMES.iter().enumerate().filter(|(i, _)| self.0 & (1 << i) != 0);
        write!(f, "{{{}}}", held.map(|(_, n)| *n).collect::<Vec<_>>().join(" "))
    }
}

/// Milliseconds for which a client relies on what it holds, counted from when it sent the last SEQUENCE whose answer did not put
/// that in doubt, where it has so many to answer a recall in.
#[must_use]
pub const fn relied_on_ms(recall_ms: u64) -> u64 {
    recall_ms / 4 * 3
}

/// Milliseconds before the end of a recall's time from which on all that its holder has is in doubt: more than it goes on
/// relying on it, so that it has stopped before anything is given to others.
#[must_use]
pub const fn in_doubt_ms(recall_ms: u64) -> u64 {
    relied_on_ms(recall_ms) + recall_ms / 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets() -> impl Iterator<Item = CapSet> {
        (0..=255).map(|bits| CapSet(bits).sound())
    }

    #[test]
    fn a_sound_set_has_no_exclusive_one_without_its_shared_one() {
        for bits in 0..=0x1ff_u32 {
            let set = CapSet(bits).sound();
            for (shared, exclusive) in [(1, 2), (4, 8), (16, 32), (64, 128)] {
                assert!(set.0 & exclusive == 0 || set.0 & shared != 0, "{bits:x}");
                assert_eq!(set.0 & shared, bits & shared);
            }
            assert!(CapSet::ALL_X.contains(set));
        }
    }

    #[test]
    fn what_stands_beside_a_set_fits_it_and_nothing_more_would() {
        for (a, b) in sets().flat_map(|a| sets().map(move |b| (a, b))) {
            let beside = a.beside(b);
            assert!(a.contains(beside) && beside.fits(b) && b.fits(beside), "{a:?} {b:?}");
            assert_eq!(beside.sound(), beside);
            for bit in (0..8).map(|n| 1 << n).filter(|bit| a.0 & bit != 0 && beside.0 & bit == 0) {
                let more = CapSet(beside.0 | bit | bit >> 1 & SHARED).sound();
                assert!(!more.fits(b) || bit & SHARED != 0);
            }
        }
    }

    #[test]
    fn exclusive_implies_shared_of_its_kind_only() {
        assert!(CapSet::FILE_X.contains(CapSet::FILE_S) && !CapSet::FILE_X.intersects(CapSet::LINK_X));
        assert_eq!(CapSet::FILE_X.without(CapSet::FILE_S), CapSet::FILE_X_ALONE);
        assert_eq!(!CapSet::ALL_S, CapSet::ALL_X.without(CapSet::ALL_S));
        assert_eq!(format!("{:?}", CapSet::FILE_X | CapSet::AUTH_S), "{As Fs Fx}");
    }
}
