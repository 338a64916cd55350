//! Numbers that must not be taken for one another.

use std::fmt;
use std::ops::RangeInclusive;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// Identity of a file system object for the state engine: equal exactly when two handles name the same
    /// object, whichever export or protocol they came through. A 128-bit hash of the backend's handle.
    FileKey(u128)
}
number! {
    /// The server's short name for one client incarnation (`clientid4`).
    ClientId(u64)
}
number! {
    /// Index of a slot in a session's slot table, from 0.
    SlotId(u32)
}
number! {
    /// A sequence number: of a slot, of a 4.0 owner, or of a stateid.
    Seqid(u32)
}
number! {
    /// The NFSv4 `change` attribute: differs whenever data or metadata changed since somebody looked.
    ChangeId(u64)
}
number! {
    /// A position in a directory, as given out by the backend. 0 starts; 1 and 2 never name an entry.
    Cookie(u64)
}
number! {
    /// A byte position in a file.
    Offset(u64)
}
number! {
    /// A count of bytes.
    Length(u64)
}
number! {
    /// Stable number of an export; part of every file handle.
    ExportId(u16)
}

impl Seqid {
    /// The number after this one: wraps from the maximum to 0 (slots, RFC 8881 section 2.10.6.1).
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// The number after this one, skipping 0 (stateids and owners, RFC 8881 section 8.2.2).
    #[must_use]
    pub const fn next_nonzero(self) -> Self {
        match self.0.wrapping_add(1) {
            0 => Self(1),
            n => Self(n),
        }
    }
}

/// A session's name on the wire (`sessionid4`). It begins with the id of its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; 16]);

impl SessionId {
    /// The names that a client's sessions have.
    #[must_use]
    pub const fn all_of(client: ClientId) -> RangeInclusive<Self> {
        let (mut first, mut last) = ([0; 16], [u8::MAX; 16]);
        let id = client.0.to_be_bytes();
        let mut at = 0;
        while at < id.len() {
            (first[at], last[at]) = (id[at], id[at]);
            at += 1;
        }
        Self(first)..=Self(last)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}
