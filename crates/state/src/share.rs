//! Share reservations: what an open may do, what it denies to others, and sums of these over a file.

use std::ops::{BitAnd, BitOr};

use serde::{Deserialize, Serialize};

/// Reading, writing, both or neither; used for what an open may do and for what it denies to others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Access(u8);

impl Access {
    /// Neither.
    pub const NONE: Self = Self(0);
    /// Reading.
    pub const READ: Self = Self(1);
    /// Writing.
    pub const WRITE: Self = Self(2);
    /// Both.
    pub const BOTH: Self = Self(3);

    /// From `share_access` or `share_deny` on the wire, of which the low two bits count; `None` when others are
    /// set.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        if bits <= 3 { Some(Self(bits as u8)) } else { None }
    }

    /// As on the wire.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// Whether everything in `other` is in `self`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether neither is in it.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Access {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Access {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// A share reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Share {
    /// What the opener may do.
    pub access: Access,
    /// What others may not do meanwhile.
    pub deny: Access,
}

impl Share {
    /// Whether two different owners cannot hold both.
    #[must_use]
    pub fn conflicts(self, other: Self) -> bool {
        !(self.access & other.deny).is_none() || !(self.deny & other.access).is_none()
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self { access: self.access | other.access, deny: self.deny | other.deny }
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.access.contains(other.access) && self.deny.contains(other.deny)
    }
}

/// The different reservations one owner asked for on one file: what it may downgrade to follows from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Obtained(u16);

impl Obtained {
    pub(crate) fn add(&mut self, share: Share) {
        self.0 |= 1 << (share.access.0 << 2 | share.deny.0);
    }

    /// Whether an OPEN asked for just this.
    pub(crate) fn has(self, share: Share) -> bool {
        self.0 & 1 << (share.access.0 << 2 | share.deny.0) != 0
    }

    fn each(self) -> impl Iterator<Item = Share> {
        (0..16u8)
            .filter(move |bit| self.0 & 1 << bit != 0)
            .map(|bit| Share { access: Access(bit >> 2), deny: Access(bit & 3) })
    }

    /// Everything together.
    pub(crate) fn union(self) -> Share {
        self.each().fold(Share::default(), Share::union)
    }

    /// What remains after a downgrade to `target`; `None` unless that is the union of some of the reservations
    /// obtained (RFC 8881 section 18.18.3).
    pub(crate) fn downgraded(self, target: Share) -> Option<Self> {
        let mut kept = Self::default();
        // If any subset has the target as its union, the subset of all that lie within the target has.
        self.each().filter(|share| target.contains(*share)).for_each(|share| kept.add(share));
        (kept.0 != 0 && kept.union() == target).then_some(kept)
    }
}

/// How many owners read, write, deny reading and deny writing, over one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShareSums {
    access: [u32; 2],
    deny: [u32; 2],
}

impl ShareSums {
    pub(crate) fn add(&mut self, share: Share) {
        self.each(share, |n| *n += 1);
    }

    pub(crate) fn subtract(&mut self, share: Share) {
        self.each(share, |n| *n -= 1);
    }

    fn each(&mut self, share: Share, change: impl Fn(&mut u32)) {
        for bit in 0..2 {
            if share.access.0 & 1 << bit != 0 {
                change(&mut self.access[bit]);
            }
            if share.deny.0 & 1 << bit != 0 {
                change(&mut self.deny[bit]);
            }
        }
    }

    /// What is left without some of them.
    pub(crate) fn without(self, some: &Self) -> Self {
        let left = |all: [u32; 2], some: [u32; 2]| [all[0] - some[0], all[1] - some[1]];
        Self { access: left(self.access, some.access), deny: left(self.deny, some.deny) }
    }

    /// The union of all.
    pub(crate) fn held(self) -> Share {
        let bits = |n: [u32; 2]| Access(u8::from(n[0] > 0) | u8::from(n[1] > 0) << 1);
        Share { access: bits(self.access), deny: bits(self.deny) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(access: u32, deny: u32) -> Share {
        Share { access: Access::from_bits(access).unwrap(), deny: Access::from_bits(deny).unwrap() }
    }

    #[test]
    fn downgrade_reaches_exactly_the_unions_of_opens_obtained() {
        let mut obtained = Obtained::default();
        obtained.add(share(3, 2));
        assert_eq!(obtained.downgraded(share(1, 0)), None);
        obtained.add(share(1, 0));
        obtained.add(share(2, 0));
        let kept = obtained.downgraded(share(3, 0)).unwrap();
        assert_eq!(kept.union(), share(3, 0));
        assert_eq!(kept.downgraded(share(3, 2)), None, "what was given up is not got back by a downgrade");
        assert!(kept.downgraded(share(1, 0)).is_some());
    }

    #[test]
    fn sums_forget_what_is_subtracted() {
        let mut sums = ShareSums::default();
        sums.add(share(1, 2));
        sums.add(share(3, 0));
        sums.subtract(share(1, 2));
        assert_eq!(sums.held(), share(3, 0));
        sums.subtract(share(3, 0));
        assert_eq!(sums, ShareSums::default());
    }
}
