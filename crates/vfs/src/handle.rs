//! Backend handles: opaque, persistent, small enough to lie inline.

use std::fmt;
use std::hash::{Hash, Hasher};

use holdfast_base::FileKey;
use holdfast_base::limits::BACKEND_HANDLE_BYTES_MAX;
use siphasher::sip128::{Hasher128, SipHasher13};

/// A backend's name for an object: the same bytes for as long as the object lives, across rename and restart,
/// and never given to another object. It names the file system as well, so that two backends never give the
/// same handle.
#[derive(Clone, Copy)]
pub struct Handle {
    len: u8,
    bytes: [u8; BACKEND_HANDLE_BYTES_MAX],
}

impl Handle {
    /// A handle of these bytes; `None` when they are more than [`BACKEND_HANDLE_BYTES_MAX`].
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut inline = [0; BACKEND_HANDLE_BYTES_MAX];
        inline.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { len: u8::try_from(bytes.len()).ok()?, bytes: inline })
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The object's identity for the state engine. Equal handles have equal keys; that two different ones
    /// collide is as likely as any two 128-bit hashes. The same in every run, so it may be stored.
    #[must_use]
    pub fn key(&self) -> FileKey {
        let mut hasher = SipHasher13::new();
        hasher.write(self.as_bytes());
        FileKey(hasher.finish128().as_u128())
    }

    /// The identity, likewise, of a name in this directory, whatever it leads to. Clients choose names: only who knows the
    /// secret can choose some that lie in one place of a table.
    #[must_use]
    pub fn key_of_name(&self, name: &[u8], secret: [u64; 2]) -> FileKey {
        let mut hasher = SipHasher13::new_with_keys(secret[0], secret[1]);
        // The handle's length: another handle with another name is never the same bytes.
        hasher.write(&[self.len]);
        hasher.write(self.as_bytes());
        hasher.write(name);
        FileKey(hasher.finish128().as_u128())
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Handle {}

impl Hash for Handle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(")?;
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))?;
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_keeps_its_bytes_and_its_bound() {
        let h = Handle::new(b"abc").unwrap();
        assert_eq!(h.as_bytes(), b"abc");
        assert_eq!(Handle::new(&[0; BACKEND_HANDLE_BYTES_MAX + 1]).map(|h| h.key()), None);
        assert_ne!(h.key(), Handle::new(b"abd").unwrap().key());
    }

    #[test]
    fn keys_are_the_same_in_every_run() {
        assert_eq!(Handle::new(b"abc").unwrap().key(), Handle::new(b"abc").unwrap().key());
        assert_ne!(Handle::new(b"").unwrap().key(), Handle::new(b"\0").unwrap().key());
    }
}
