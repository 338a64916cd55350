//! Records as bytes: one byte of format version, then XDR. A record of an unknown version is refused, never
//! guessed at; a new field means a new version, and the old one stays readable.

use std::ops::RangeInclusive;

use holdfast_xdr::{Error, Reader, Writer};

use crate::RecoveryError;

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The version is not known.
    #[error("format version {0} is not known")]
    Version(u8),
    /// The bytes are damaged.
    #[error(transparent)]
    Xdr(#[from] Error),
}

/// Encodes a record of `version`.
pub(crate) fn encode(version: u8, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::new();
    w.put(&[version]);
    body(&mut w);
    w.into_vec()
}

/// Decodes a record of exactly `version`, all of it.
pub(crate) fn decode<'a, T>(
    bytes: &'a [u8],
    version: u8,
    body: impl FnOnce(&mut Reader<'a>) -> holdfast_xdr::Result<T>,
) -> Result<T, DecodeError> {
    decode_any(bytes, version..=version, |_, r| body(r))
}

/// Decodes a record of one of these versions, all of it; `body` is told which it is.
pub(crate) fn decode_any<'a, T>(
    bytes: &'a [u8],
    versions: RangeInclusive<u8>,
    body: impl FnOnce(u8, &mut Reader<'a>) -> holdfast_xdr::Result<T>,
) -> Result<T, DecodeError> {
    let mut r = Reader::new(bytes);
    let version = match r.take(1)? {
        [v] if versions.contains(v) => *v,
        [v, ..] => return Err(DecodeError::Version(*v)),
        [] => return Err(DecodeError::Xdr(Error::Truncated)),
    };
    let value = body(version, &mut r)?;
    r.finish()?;
    Ok(value)
}

/// Names the record that could not be read.
pub(crate) fn unreadable(what: &'static str, key: &[u8], error: DecodeError) -> RecoveryError {
    RecoveryError::Record { what, key: key.escape_ascii().to_string(), reason: error.to_string() }
}
