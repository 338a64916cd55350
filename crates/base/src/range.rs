//! Byte ranges as locks use them: never empty, possibly to the end of any file.

use crate::ids::{Length, Offset};

/// A non-empty range of bytes, both ends included. `last == u64::MAX` means "to the end of the file, however
/// far it grows".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    first: u64,
    last: u64,
}

impl ByteRange {
    /// The whole file.
    pub const ALL: Self = Self { first: 0, last: u64::MAX };

    /// A range from NFSv4's offset and length, where a length of all ones means "to the end".
    ///
    /// `None` when the length is 0, or the range would pass 2^64 (RFC 8881 section 18.10.3: `NFS4ERR_INVAL`).
    #[must_use]
    pub const fn from_nfs4(offset: Offset, length: Length) -> Option<Self> {
        match length.0 {
            0 => None,
            u64::MAX => Some(Self { first: offset.0, last: u64::MAX }),
            n => match offset.0.checked_add(n - 1) {
                Some(last) => Some(Self { first: offset.0, last }),
                None => None,
            },
        }
    }

    /// A range by its first and last byte; `None` when `last` lies before `first`.
    #[must_use]
    pub const fn from_bounds(first: u64, last: u64) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// The first byte.
    #[must_use]
    pub const fn first(self) -> u64 {
        self.first
    }

    /// The last byte, included; `u64::MAX` for "to the end".
    #[must_use]
    pub const fn last(self) -> u64 {
        self.last
    }

    /// The length as NFSv4 writes it: all ones for "to the end".
    #[must_use]
    pub const fn nfs4_length(self) -> Length {
        if self.last == u64::MAX { Length(u64::MAX) } else { Length(self.last - self.first + 1) }
    }

    /// Whether the two share a byte.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether every byte of `other` is in `self`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Whether the two overlap or touch, so that their union is one range.
    #[must_use]
    pub const fn adjoins(self, other: Self) -> bool {
        self.overlaps(other)
            || (self.last != u64::MAX && self.last + 1 == other.first)
            || (other.last != u64::MAX && other.last + 1 == self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn r(first: u64, last: u64) -> ByteRange {
        ByteRange::from_bounds(first, last).unwrap()
    }

    #[test]
    fn nfs4_lengths_of_zero_and_past_the_end_are_refused() {
        assert_eq!(ByteRange::from_nfs4(Offset(5), Length(0)), None);
        assert_eq!(ByteRange::from_nfs4(Offset(u64::MAX - 1), Length(3)), None);
        assert_eq!(ByteRange::from_nfs4(Offset(7), Length(u64::MAX)), Some(r(7, u64::MAX)));
        assert_eq!(ByteRange::from_nfs4(Offset(7), Length(1)), Some(r(7, 7)));
    }

    #[test]
    fn neighbours_adjoin_but_do_not_overlap() {
        assert!(r(0, 4).adjoins(r(5, 9)));
        assert!(!r(0, 4).overlaps(r(5, 9)));
        assert!(!r(0, 4).adjoins(r(6, 9)));
        assert!(r(5, u64::MAX).adjoins(r(0, 4)));
    }
}
