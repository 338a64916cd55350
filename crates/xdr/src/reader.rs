//! The decoding half: a cursor over one message.

use crate::{Error, Result};

/// A type that can be read from XDR, borrowing from the message where it can.
pub trait Decode<'a>: Sized {
    /// Reads one value.
    ///
    /// # Errors
    /// When the bytes are not such a value.
    fn decode(r: &mut Reader<'a>) -> Result<Self>;
}

/// A cursor over a message; every read is checked against what is left.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    /// A cursor at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    /// The bytes not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many bytes have been read.
    #[must_use]
    pub const fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// The next `n` bytes as they stand, without padding.
    ///
    /// # Errors
    /// [`Error::Truncated`] when fewer are left.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(n).ok_or(Error::Truncated)?;
        self.rest = tail;
        Ok(head)
    }

    /// Fixed-length opaque data of `N` bytes, with its padding.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        self.take(padding(N))?;
        Ok(out)
    }

    /// A 32-bit number.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// A 64-bit number.
    ///
    /// # Errors
    /// [`Error::Truncated`].
    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A count or length, at most `max`.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Truncated`].
    #[inline]
    pub fn length(&mut self, max: usize) -> Result<usize> {
        let length = self.u32()?;
        if length as usize > max {
            return Err(Error::TooLong { length, max: u32::try_from(max).unwrap_or(u32::MAX) });
        }
        Ok(length as usize)
    }

    /// Variable-length opaque data of at most `max` bytes, borrowed, with its padding. The padding's value is
    /// not looked at: some clients do not clear it.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Truncated`].
    #[inline]
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8]> {
        let n = self.length(max)?;
        let data = self.take(n)?;
        self.take(padding(n))?;
        Ok(data)
    }

    /// A counted list of at most `max` items. Room is reserved for no more items than the bytes left could
    /// hold at 4 bytes each.
    ///
    /// # Errors
    /// [`Error::TooLong`], or an item's error.
    pub fn list<T: Decode<'a>>(&mut self, max: usize) -> Result<Vec<T>> {
        let n = self.length(max)?;
        if n > self.rest.len() / 4 {
            return Err(Error::Truncated);
        }
        (0..n).map(|_| T::decode(self)).collect()
    }

    /// A chain of optional items (RFC 4506 section 4.19), at most `max` of them: read in a loop, not by
    /// recursion, so that its length costs no stack.
    ///
    /// # Errors
    /// [`Error::TooLong`], or an item's error.
    pub fn chain<T: Decode<'a>>(&mut self, max: usize) -> Result<Vec<T>> {
        let mut items = Vec::new();
        while bool::decode(self)? {
            if items.len() == max {
                let length = u32::try_from(max).unwrap_or(u32::MAX).saturating_add(1);
                return Err(Error::TooLong { length, max: length - 1 });
            }
            items.push(T::decode(self)?);
        }
        Ok(items)
    }

    /// Checks that everything was read.
    ///
    /// # Errors
    /// [`Error::Trailing`].
    pub const fn finish(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(Error::Trailing(self.rest.len())) }
    }
}

/// Bytes of padding after `n` bytes of opaque data.
pub(crate) const fn padding(n: usize) -> usize {
    n.wrapping_neg() & 3
}

impl Decode<'_> for u32 {
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u32()
    }
}

impl Decode<'_> for i32 {
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.array().map(Self::from_be_bytes)
    }
}

impl Decode<'_> for u64 {
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u64()
    }
}

impl Decode<'_> for i64 {
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.array().map(Self::from_be_bytes)
    }
}

impl Decode<'_> for bool {
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            n => Err(Error::BadBool(n)),
        }
    }
}

impl Decode<'_> for () {
    fn decode(_: &mut Reader<'_>) -> Result<Self> {
        Ok(())
    }
}

impl<const N: usize> Decode<'_> for [u8; N] {
    #[inline]
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.array()
    }
}

/// Optional data (`*` in the XDR language): a boolean, then perhaps the value.
impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    #[inline]
    fn decode(r: &mut Reader<'a>) -> Result<Self> {
        if bool::decode(r)? { T::decode(r).map(Some) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_beyond_the_message_allocates_nothing() {
        let bytes = [0, 0, 0xff, 0xff, 0, 0, 0, 1];
        assert_eq!(Reader::new(&bytes).list::<u32>(1 << 20), Err(Error::Truncated));
        assert_eq!(Reader::new(&bytes).opaque(1 << 20), Err(Error::Truncated));
        assert_eq!(Reader::new(&bytes).opaque(16), Err(Error::TooLong { length: 0xffff, max: 16 }));
    }

    #[test]
    fn opaque_takes_its_padding() {
        let bytes = [0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0, 9];
        let mut r = Reader::new(&bytes);
        assert_eq!(r.opaque(8), Ok(&[1, 2, 3, 4, 5][..]));
        assert_eq!(r.rest(), [9]);
        assert_eq!(r.position(), 12);
    }
}
