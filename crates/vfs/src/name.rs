//! Names checked once, at the edge.

use std::fmt;

use holdfast_base::limits::NAME_BYTES_MAX;

use crate::error::{FsError, FsResult};

/// One component of a path: 1 to 255 bytes of any value but `/` and NUL, and neither `.` nor `..`. Need not be
/// UTF-8: Linux does not ask it of names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks a name that came from outside.
    ///
    /// # Errors
    /// [`FsError::Invalid`] when empty, [`FsError::NameTooLong`], [`FsError::BadName`] for `.`, `..`, and names
    /// with `/` or NUL.
    pub fn new(bytes: &'a [u8]) -> FsResult<Self> {
        match bytes {
            [] => Err(FsError::Invalid),
            b"." | b".." => Err(FsError::BadName),
            _ if bytes.len() > NAME_BYTES_MAX => Err(FsError::NameTooLong),
            _ if bytes.iter().any(|b| matches!(b, b'/' | 0)) => Err(FsError::BadName),
            _ => Ok(Self(bytes)),
        }
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.escape_ascii().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_the_directory_are_refused() {
        for (bytes, error) in [
            (&b""[..], FsError::Invalid),
            (b".", FsError::BadName),
            (b"..", FsError::BadName),
            (b"a/b", FsError::BadName),
            (b"a\0b", FsError::BadName),
            (&[b'x'; 256], FsError::NameTooLong),
        ] {
            assert_eq!(Name::new(bytes), Err(error));
        }
        assert!(Name::new(&[0xff; 255]).is_ok());
    }
}
