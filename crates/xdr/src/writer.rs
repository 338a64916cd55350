//! The encoding half: one growing buffer, with places to come back to.

use crate::reader::padding;

/// A type that can be written as XDR.
pub trait Encode {
    /// Appends the value.
    fn encode(&self, w: &mut Writer);
}

/// A 4-byte place in the buffer to be filled in later: a status, a count, a length.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Mark(usize);

/// The buffer that replies are built in: one, or several that are sent together. Each begins at 0, and all that is said of a
/// writer is said of the one that is being written.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    buf: Vec<u8>,
    /// Where it begins, behind those that are done.
    base: usize,
}

/// What is longer leaves with its buffer, where nothing stands before it: shorter, it is dearer to let another one grow than to copy.
const COPIED_BYTES_MAX: usize = 4 << 10;

impl Writer {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { buf: Vec::new(), base: 0 }
    }

    /// A buffer that appends to `buf`.
    #[must_use]
    pub const fn from_vec(buf: Vec<u8>) -> Self {
        Self { buf, base: 0 }
    }

    /// What was written, those before it included.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.buf
    }

    /// What was written stands, and another begins behind it.
    #[inline]
    pub fn begin_next(&mut self) {
        self.base = self.buf.len();
    }

    /// What was written before the one that is being written out.
    #[must_use]
    pub fn before(&self) -> &[u8] {
        &self.buf[..self.base]
    }

    /// Forgets what was written before it; places in it stay good.
    pub fn forget_before(&mut self) {
        self.buf.drain(..self.base);
        self.base = 0;
    }

    /// All that was written, one behind the other.
    #[must_use]
    pub fn all(&self) -> &[u8] {
        &self.buf
    }

    /// Forgets everything, and keeps the room.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.base = 0;
    }

    /// Takes the one that is being written out; those before it stay, and so does the room, unless it is most of it.
    #[must_use]
    pub fn take(&mut self) -> Self {
        if self.base == 0 && self.len() > COPIED_BYTES_MAX {
            return Self::from_vec(std::mem::take(&mut self.buf));
        }
        let taken = self.as_slice().to_vec();
        self.truncate(0);
        Self::from_vec(taken)
    }

    /// What was written.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.buf[self.base..]
    }

    /// Bytes written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.buf.len() - self.base
    }

    /// Whether nothing was written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes back everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.buf.truncate(self.base + len);
    }

    /// Makes room for `more` bytes at once.
    pub fn reserve(&mut self, more: usize) {
        self.buf.reserve(more);
    }

    /// Appends bytes as they stand, without padding.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// A 32-bit number.
    #[inline]
    pub fn u32(&mut self, n: u32) {
        self.put(&n.to_be_bytes());
    }

    /// A 64-bit number.
    #[inline]
    pub fn u64(&mut self, n: u64) {
        self.put(&n.to_be_bytes());
    }

    /// A count or length. Lengths here come from bounded buffers; one beyond 32 bits is a defect of ours.
    #[inline]
    pub fn length(&mut self, n: usize) {
        debug_assert!(u32::try_from(n).is_ok());
        self.u32(n as u32);
    }

    /// Variable-length opaque data: its length, the bytes, the padding.
    #[inline]
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.fixed(bytes);
    }

    /// Fixed-length opaque data: the bytes and the padding.
    #[inline]
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.put(bytes);
        self.put(&[0; 3][..padding(bytes.len())]);
    }

    /// Opaque data of at most `max` bytes that `fill` writes in place: returns how many it wrote. The length
    /// and padding are set accordingly, and nothing is copied.
    ///
    /// # Errors
    /// Those of `fill`; nothing is appended then.
    pub fn opaque_with<E>(
        &mut self,
        max: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let start = self.buf.len();
        self.buf.resize(start + 4 + max, 0);
        let n = match fill(&mut self.buf[start + 4..]) {
            Ok(n) => n.min(max),
            Err(e) => {
                self.buf.truncate(start);
                return Err(e);
            }
        };
        self.buf[start..start + 4].copy_from_slice(&(n as u32).to_be_bytes());
        self.buf.truncate(start + 4 + n);
        self.put(&[0; 3][..padding(n)]);
        Ok(n)
    }

    /// A counted list.
    pub fn list<T: Encode>(&mut self, items: &[T]) {
        self.length(items.len());
        items.iter().for_each(|item| item.encode(self));
    }

    /// A chain of optional items (RFC 4506 section 4.19).
    pub fn chain<T: Encode>(&mut self, items: &[T]) {
        for item in items {
            true.encode(self);
            item.encode(self);
        }
        false.encode(self);
    }

    /// Leaves 4 bytes to be filled by [`Writer::fill`].
    pub fn mark(&mut self) -> Mark {
        let at = Mark(self.len());
        self.u32(0);
        at
    }

    /// Fills a place left by [`Writer::mark`]. Does nothing when the place was truncated away.
    pub fn fill(&mut self, mark: Mark, n: u32) {
        let at = self.base + mark.0;
        if let Some(place) = self.buf.get_mut(at..at + 4) {
            place.copy_from_slice(&n.to_be_bytes());
        }
    }

    /// Writes an item over what stands from the `at`-th byte on, which is at least as long.
    ///
    /// # Panics
    /// When it is not, which is a defect of ours.
    pub fn overwrite<T: Encode>(&mut self, at: usize, item: &T) {
        let (at, end) = (self.base + at, self.buf.len());
        item.encode(self);
        assert!(at + (self.buf.len() - end) <= end, "an item larger than its place");
        self.buf.copy_within(end.., at);
        self.buf.truncate(end);
    }

    /// Bytes written since just after `mark`'s place.
    #[must_use]
    pub const fn since(&self, mark: Mark) -> usize {
        self.len().saturating_sub(mark.0 + 4)
    }
}

macro_rules! encode_number {
    ($($t:ty),*) => {$(
        impl Encode for $t {
            #[inline]
            fn encode(&self, w: &mut Writer) {
                w.put(&self.to_be_bytes());
            }
        }
    )*};
}
encode_number!(u32, i32, u64, i64);

impl Encode for bool {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.u32(u32::from(*self));
    }
}

impl Encode for () {
    fn encode(&self, _: &mut Writer) {}
}

impl<const N: usize> Encode for [u8; N] {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        w.fixed(self);
    }
}

impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        self.is_some().encode(w);
        if let Some(value) = self {
            value.encode(w);
        }
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    #[inline]
    fn encode(&self, w: &mut Writer) {
        (**self).encode(w);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opaque_in_place_is_cut_to_what_was_filled() {
        let mut w = Writer::new();
        let r: Result<usize, ()> = w.opaque_with(100, |b| {
            b[..5].copy_from_slice(b"hello");
            Ok(5)
        });
        assert_eq!(r, Ok(5));
        assert_eq!(w.as_slice(), b"\0\0\0\x05hello\0\0\0");
        assert_eq!(w.opaque_with(10, |_| Err::<usize, _>(())), Err(()));
        assert_eq!(w.len(), 12);
    }

    #[test]
    fn an_item_takes_the_place_that_was_left_for_it_and_nothing_else() {
        let mut w = Writer::new();
        w.u32(1);
        w.put(&[0; 8]);
        w.u32(3);
        w.overwrite(4, &2_u64);
        assert_eq!(w.as_slice(), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3]);
    }

    #[test]
    #[should_panic(expected = "larger than its place")]
    fn an_item_that_is_larger_than_its_place_is_a_defect() {
        let mut w = Writer::new();
        w.u32(1);
        w.overwrite(0, &2_u64);
    }

    #[test]
    fn messages_behind_each_other_each_begin_at_0() {
        let mut w = Writer::new();
        w.put(b"first");
        w.begin_next();
        assert!(w.is_empty());
        let mark = w.mark();
        w.put(b"four");
        w.fill(mark, 7);
        w.overwrite(4, &u32::from_be_bytes(*b"FOUR"));
        assert_eq!((w.len(), w.since(mark), w.as_slice()), (8, 4, &b"\0\0\0\x07FOUR"[..]));
        w.begin_next();
        w.put(b"half");
        w.truncate(0);
        assert_eq!(w.all(), b"first\0\0\0\x07FOUR");
        w.put(b"last");
        assert_eq!((w.take().as_slice(), w.all().len()), (&b"last"[..], 13));
        let mark = w.mark();
        assert_eq!(w.before(), b"first\0\0\0\x07FOUR");
        w.forget_before();
        w.fill(mark, 8);
        assert_eq!((w.before(), w.as_slice()), (&b""[..], &b"\0\0\0\x08"[..]));
        w.clear();
        assert!(w.all().is_empty() && w.is_empty());
    }
}
