//! `bitmap4`: a set of small numbers, held in one word of 128 bits.

use holdfast_base::limits::BITMAP_WORDS_MAX;
use holdfast_xdr::{Decode, Encode, Error, Reader, Result, Writer};

use super::Attr;

/// A set of the numbers 0 to 127: attributes, operations, notifications, hints. Numbers above are read and
/// dropped, but not forgotten: see [`Bitmap4::has_beyond`]. Written with no more words than needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bitmap4 {
    bits: u128,
    beyond: bool,
}

impl Bitmap4 {
    /// The empty set.
    pub const EMPTY: Self = Self::from_bits(0);

    /// The set whose members are the one bits of `bits`.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self { bits, beyond: false }
    }

    /// The members as bits.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.bits
    }

    /// A set of attributes.
    #[must_use]
    pub const fn of(attrs: &[Attr]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < attrs.len() {
            bits |= 1 << attrs[i] as u32;
            i += 1;
        }
        Self::from_bits(bits)
    }

    /// A set of operations (`state_protect_ops4`); ILLEGAL is none.
    #[must_use]
    pub const fn of_ops(ops: &[super::OpNum4]) -> Self {
        let (mut bits, mut i) = (0, 0);
        while i < ops.len() {
            if (ops[i] as u32) < 128 {
                bits |= 1 << ops[i] as u32;
            }
            i += 1;
        }
        Self::from_bits(bits)
    }

    /// Whether the attribute is a member.
    #[inline]
    #[must_use]
    pub const fn has(self, attr: Attr) -> bool {
        self.contains(attr as u32)
    }

    /// Whether the number is a member; false from 128 on.
    #[inline]
    #[must_use]
    pub const fn contains(self, number: u32) -> bool {
        number < 128 && self.bits >> number & 1 == 1
    }

    /// The set with this number in it; without change from 128 on.
    #[must_use]
    pub const fn with(self, number: u32) -> Self {
        if number < 128 { Self { bits: self.bits | 1 << number, ..self } } else { self }
    }

    /// The set with this attribute in it.
    #[must_use]
    pub const fn with_attr(self, attr: Attr) -> Self {
        self.with(attr as u32)
    }

    /// The set without this number.
    #[must_use]
    pub const fn without(self, number: u32) -> Self {
        if number < 128 { Self { bits: self.bits & !(1 << number), ..self } } else { self }
    }

    /// What is in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { bits: self.bits & other.bits, beyond: self.beyond && other.beyond }
    }

    /// What is in either.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self { bits: self.bits | other.bits, beyond: self.beyond || other.beyond }
    }

    /// What is here and not in `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self { bits: self.bits & !other.bits, beyond: self.beyond && !other.beyond }
    }

    /// Whether nothing is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bits == 0 && !self.beyond
    }

    /// Whether the peer named numbers from 128 on: in SETATTR and the like such attributes are not supported.
    #[must_use]
    pub const fn has_beyond(self) -> bool {
        self.beyond
    }

    /// The members, rising.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        let mut rest = self.bits;
        std::iter::from_fn(move || {
            let number = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(number)
        })
    }

    /// Words on the wire.
    #[must_use]
    pub const fn words(self) -> usize {
        (128 - self.bits.leading_zeros()).div_ceil(32) as usize
    }

    /// Bytes on the wire, the count included.
    #[must_use]
    pub const fn encoded_len(self) -> usize {
        4 + 4 * self.words()
    }
}

impl Encode for Bitmap4 {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        let words = self.words();
        w.length(words);
        for i in 0..words {
            // Each word is 32 bits of the 128, so nothing is lost.
            w.u32((self.bits >> (32 * i)) as u32);
        }
    }
}

impl Decode<'_> for Bitmap4 {
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let words = r.length(BITMAP_WORDS_MAX)?;
        let (head, tail) = r.take(words * 4)?.as_chunks::<4>().0.split_at(words.min(4));
        let mut bits = 0;
        for (i, word) in head.iter().enumerate() {
            bits |= u128::from(u32::from_be_bytes(*word)) << (32 * i);
        }
        Ok(Self { bits, beyond: tail.iter().any(|word| *word != [0; 4]) })
    }
}

impl From<Attr> for Bitmap4 {
    fn from(attr: Attr) -> Self {
        Self::EMPTY.with_attr(attr)
    }
}

impl FromIterator<Attr> for Bitmap4 {
    fn from_iter<I: IntoIterator<Item = Attr>>(attrs: I) -> Self {
        attrs.into_iter().fold(Self::EMPTY, Self::with_attr)
    }
}

/// Reads the number of an attribute that the set names.
impl TryFrom<u32> for Attr {
    type Error = Error;

    fn try_from(value: u32) -> Result<Self> {
        Self::from_u32(value).ok_or(Error::BadEnum { name: "Attr", value })
    }
}

#[cfg(test)]
mod tests {
    use holdfast_xdr::{from_bytes, to_bytes};

    use super::*;

    #[test]
    fn a_bitmap_is_written_with_no_more_words_than_needed() {
        assert_eq!(to_bytes(&Bitmap4::EMPTY), [0, 0, 0, 0]);
        let size_and_mode = Bitmap4::of(&[Attr::Size, Attr::Mode]);
        assert_eq!(to_bytes(&size_and_mode), [0, 0, 0, 2, 0, 0, 0, 0x10, 0, 0, 0, 2]);
        assert_eq!(size_and_mode.encoded_len(), 12);
        assert_eq!(size_and_mode.iter().collect::<Vec<_>>(), [4, 33]);
    }

    #[test]
    fn words_beyond_the_fourth_are_skipped_and_remembered() {
        let mut long = [0; 4 + 6 * 4];
        (long[3], long[4 + 3]) = (6, 1);
        let clear: Bitmap4 = from_bytes(&long).unwrap();
        assert!(clear.has(Attr::SupportedAttrs) && !clear.has_beyond());
        long[4 + 5 * 4] = 1;
        assert!(from_bytes::<Bitmap4>(&long).unwrap().has_beyond());
    }

    #[test]
    fn more_words_than_the_bound_are_refused() {
        let mut w = Writer::new();
        w.list(&[0u32; BITMAP_WORDS_MAX + 1]);
        let max = u32::try_from(BITMAP_WORDS_MAX).unwrap();
        let refused = Err(Error::TooLong { length: max + 1, max });
        assert_eq!(from_bytes::<Bitmap4>(w.as_slice()), refused);
    }
}
