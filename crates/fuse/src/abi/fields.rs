//! Taking a request's bytes apart, field by field.

/// The request is shorter than its operation says, or says what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a malformed request")]
pub struct Malformed;

type Result<T> = std::result::Result<T, Malformed>;

/// What is left of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(crate) fn skip(&mut self, count: usize) -> Result<()> {
        self.bytes(count).map(drop)
    }

    /// A string up to its NUL, which is taken as well.
    pub(crate) fn text(&mut self) -> Result<&'a [u8]> {
        let end = self.rest.iter().position(|b| *b == 0).ok_or(Malformed)?;
        let text = self.bytes(end)?;
        self.skip(1)?;
        Ok(text)
    }

    /// The same, for what must name something.
    pub(crate) fn name(&mut self) -> Result<&'a [u8]> {
        let name = self.text()?;
        // The kernel never sends these; a file system must not have to ask.
        if name.is_empty() || name.contains(&b'/') { Err(Malformed) } else { Ok(name) }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Appends fields to a reply.
pub(crate) trait Put {
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_zeros(&mut self, count: usize);
}

impl Put for Vec<u8> {
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_ne_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_ne_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_ne_bytes());
    }

    fn put_zeros(&mut self, count: usize) {
        self.resize(self.len() + count, 0);
    }
}
