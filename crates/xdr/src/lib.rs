//! XDR (RFC 4506): bounded decoding that borrows from the record, and encoding that appends to one buffer.
//! Nothing here allocates more than the bytes at hand can justify, and nothing panics on any input.
//!
//! ```
//! use holdfast_xdr::{Decode, Encode};
//! #[derive(Encode, Decode)]
//! struct Name<'a>(#[xdr(max = 255)] &'a [u8]);
//! assert_eq!(holdfast_xdr::to_bytes(&Name(b"ab")), b"\0\0\0\x02ab\0\0");
//! ```
//! Without a bound it does not compile:
//! ```compile_fail
//! use holdfast_xdr::{Decode, Encode};
//! #[derive(Encode, Decode)]
//! struct Name<'a>(&'a [u8]);
//! ```
#![forbid(unsafe_code)]

mod numbers;
pub mod reader;
pub mod writer;

pub use holdfast_xdr_derive::{Decode, Encode};
pub use reader::{Decode, Reader};
pub use writer::{Encode, Mark, Writer};

/// Why bytes could not be decoded. The peer is at fault; answered with GARBAGE_ARGS or NFS4ERR_BADXDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The record ended in the middle of an item.
    #[error("the message ends in the middle of an item")]
    Truncated,
    /// A length above the item's bound.
    #[error("a length of {length} is above the bound of {max}")]
    TooLong {
        /// The length the peer gave.
        length: u32,
        /// The bound.
        max: u32,
    },
    /// A discriminant that the type does not have.
    #[error("{value} is no value of {name}")]
    BadEnum {
        /// The type's name.
        name: &'static str,
        /// What the peer sent.
        value: u32,
    },
    /// A boolean other than 0 and 1.
    #[error("{0} is no boolean")]
    BadBool(u32),
    /// Bytes are left after the last item.
    #[error("{0} bytes are left over")]
    Trailing(usize),
}

/// The result of decoding.
pub type Result<T> = std::result::Result<T, Error>;

/// Decodes exactly one `T` from all of `bytes`.
///
/// # Errors
/// Any [`Error`], [`Error::Trailing`] among them.
pub fn from_bytes<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T> {
    let mut r = Reader::new(bytes);
    let value = T::decode(&mut r)?;
    r.finish()?;
    Ok(value)
}

/// Encodes one value into a new buffer: for tests and rare messages, not for the hot path.
#[must_use]
pub fn to_bytes<T: Encode + ?Sized>(value: &T) -> Vec<u8> {
    let mut w = Writer::new();
    value.encode(&mut w);
    w.into_vec()
}
