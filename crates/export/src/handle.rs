//! File handles as they travel: version, export and signature around the backend's own handle, so that a client
//! can use only handles that it was given (`docs/design/handles-and-change.md`).

use std::fmt;

use holdfast_base::ExportId;
use holdfast_base::limits::{BACKEND_HANDLE_BYTES_MAX, WIRE_HANDLE_BYTES_MAX};
use holdfast_vfs::Handle;
use siphasher::sip::SipHasher24;

const VERSION: u8 = 1;
const KIND_PSEUDO: u8 = 0;
const KIND_OBJECT: u8 = 1;
const SIGNATURE: std::ops::Range<usize> = 4..12;
const HEADER_BYTES: usize = 12;
/// What of the head is signed.
const SIGNED_HEAD_BYTES: usize = 4;

const _: () = assert!(HEADER_BYTES + BACKEND_HANDLE_BYTES_MAX <= WIRE_HANDLE_BYTES_MAX);

/// Why a handle was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// It was not made by this server: wrong length, version, kind or signature.
    #[error("not a handle of this server")]
    Bad,
}

/// A handle as protocols send it: 12 to 64 bytes, inline.
#[derive(Clone, Copy)]
pub struct WireHandle {
    len: u8,
    bytes: [u8; WIRE_HANDLE_BYTES_MAX],
}

impl WireHandle {
    /// A handle that was made before, by its bytes; `None` when they are too many. Not looked into.
    #[must_use]
    pub fn new(wire: &[u8]) -> Option<Self> {
        let mut bytes = [0; WIRE_HANDLE_BYTES_MAX];
        bytes.get_mut(..wire.len())?.copy_from_slice(wire);
        Some(Self { len: u8::try_from(wire.len()).ok()?, bytes })
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The backend's handle in it, unchecked: of what this server has kept itself, never of what came from outside
    /// ([`Sealer::open`]).
    #[must_use]
    pub fn object(&self) -> Option<Handle> {
        match self.as_bytes().split_at_checked(HEADER_BYTES)? {
            ([VERSION, KIND_OBJECT, ..], payload) => Handle::new(payload),
            _ => None,
        }
    }
}

impl fmt::Debug for WireHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A directory of the pseudo file system, by its number.
    Pseudo(u64),
    /// An object of an export.
    Object(ExportId, Handle),
}

/// Makes and checks signatures. The key is the server's (a cluster's) for good: with another key every handle
/// that clients hold is refused.
#[derive(Clone)]
pub struct Sealer {
    key: [u8; 16],
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(..)")
    }
}

impl Sealer {
    /// A sealer with this secret key.
    #[must_use]
    pub const fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The handle for a place.
    #[must_use]
    pub fn seal(&self, place: &Place) -> WireHandle {
        match place {
            Place::Pseudo(node) => self.assemble(KIND_PSEUDO, ExportId(0), &node.to_be_bytes()),
            Place::Object(export, handle) => self.assemble(KIND_OBJECT, *export, handle.as_bytes()),
        }
    }

    /// The place that a handle from outside names.
    ///
    /// # Errors
    /// [`HandleError::Bad`].
    pub fn open(&self, wire: &[u8]) -> Result<Place, HandleError> {
        let (header, payload) = wire.split_at_checked(HEADER_BYTES).ok_or(HandleError::Bad)?;
        let &[VERSION, kind, hi, lo, ref signature @ ..] = header else { return Err(HandleError::Bad) };
        let export = ExportId(u16::from_be_bytes([hi, lo]));
        if *signature != self.sign(kind, export, payload) {
            return Err(HandleError::Bad);
        }
        match kind {
            KIND_PSEUDO => payload.try_into().map(|b| Place::Pseudo(u64::from_be_bytes(b))).ok(),
            KIND_OBJECT => Handle::new(payload).map(|handle| Place::Object(export, handle)),
            _ => None,
        }
        .ok_or(HandleError::Bad)
    }

    fn assemble(&self, kind: u8, export: ExportId, payload: &[u8]) -> WireHandle {
        let mut bytes = [0; WIRE_HANDLE_BYTES_MAX];
        let len = HEADER_BYTES + payload.len();
        bytes[0] = VERSION;
        bytes[1] = kind;
        bytes[2..4].copy_from_slice(&export.0.to_be_bytes());
        bytes[SIGNATURE].copy_from_slice(&self.sign(kind, export, payload));
        bytes[HEADER_BYTES..len].copy_from_slice(payload);
        WireHandle { len: len as u8, bytes }
    }

    fn sign(&self, kind: u8, export: ExportId, payload: &[u8]) -> [u8; 8] {
        // In one piece: a hasher that is fed piece by piece costs twice as much.
        let mut bytes = [0; SIGNED_HEAD_BYTES + BACKEND_HANDLE_BYTES_MAX];
        let [high, low] = export.0.to_be_bytes();
        bytes[..SIGNED_HEAD_BYTES].copy_from_slice(&[VERSION, kind, high, low]);
        let len = SIGNED_HEAD_BYTES + payload.len();
        let hasher = SipHasher24::new_with_key(&self.key);
        match bytes.get_mut(SIGNED_HEAD_BYTES..len) {
            Some(place) => {
                place.copy_from_slice(payload);
                hasher.hash(&bytes[..len]).to_be_bytes()
            }
            // Longer than any handle of ours.
            None => hasher.hash(&[&bytes[..SIGNED_HEAD_BYTES], payload].concat()).to_be_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Place {
        Place::Object(ExportId(7), Handle::new(b"inode 12 of generation 3").unwrap())
    }

    #[test]
    fn what_was_sealed_opens_to_the_same_place() {
        let sealer = Sealer::new([9; 16]);
        for place in [object(), Place::Pseudo(0), Place::Pseudo(u64::MAX)] {
            assert_eq!(sealer.open(sealer.seal(&place).as_bytes()), Ok(place));
            let object = if let Place::Object(_, handle) = place { Some(handle) } else { None };
            assert_eq!(sealer.seal(&place).object(), object);
        }
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() {
        let sealer = Sealer::new([9; 16]);
        let good = sealer.seal(&object());
        for bit in 0..8 * good.as_bytes().len() {
            let mut forged = good.as_bytes().to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(sealer.open(&forged), Err(HandleError::Bad), "bit {bit}");
        }
        assert_eq!(sealer.open(&[good.as_bytes(), b"x"].concat()), Err(HandleError::Bad), "one byte more");
        for cut in 0..good.as_bytes().len() {
            assert_eq!(sealer.open(&good.as_bytes()[..cut]), Err(HandleError::Bad), "cut at {cut}");
        }
    }

    #[test]
    fn another_servers_handles_are_refused() {
        let theirs = Sealer::new([1; 16]).seal(&object());
        assert_eq!(Sealer::new([2; 16]).open(theirs.as_bytes()), Err(HandleError::Bad));
    }

    #[test]
    fn the_format_is_what_clients_hold_already() {
        let sealed = Sealer::new(*b"0123456789abcdef")
            .seal(&Place::Object(ExportId(258), Handle::new(b"xyz").unwrap()));
        let mut expected = vec![1, 1, 1, 2];
        expected.extend(GOLDEN_SIGNATURE);
        expected.extend(b"xyz");
        assert_eq!(sealed.as_bytes(), expected);
    }

    const GOLDEN_SIGNATURE: [u8; 8] = [74, 181, 33, 224, 43, 78, 189, 42];
}
