//! What a mutation leaves in the journal before it starts: enough to tell, after a crash, whether it happened.
//!
//! Everything is borrowed, so that writing an intent allocates nothing. `docs/design/exactly-once.md` gives the
//! rule for each kind; [`crate::settle()`] carries it out.

use holdfast_base::Timestamp;
use holdfast_base::limits::{
    BACKEND_HANDLE_BYTES_MAX, CAPS_BATCH_OPS_MAX, INTENT_PREFIX_BYTES_MAX, NAME_BYTES_MAX, PATH_BYTES_MAX,
    XATTR_NAME_BYTES_MAX,
};
use holdfast_xdr::{Decode, Encode, Error, Reader, Writer};

use crate::codec::{self, DecodeError};

const VERSION: u8 = 1;

/// Bytes of a [`name_hash`].
pub const NAME_HASH_BYTES: usize = 8;

/// A hash of a name. Goes to disk: it must stay as it is (FNV-1a of 64 bits, big-endian).
#[must_use]
pub fn name_hash(name: &[u8]) -> [u8; NAME_HASH_BYTES] {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, step).to_be_bytes()
}

/// A backend's handle.
pub type HandleBytes<'a> = &'a [u8];

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place<'a> {
    /// The directory.
    pub dir: HandleBytes<'a>,
    /// The name.
    pub name: &'a [u8],
}

/// What kind of object, with what tells two of a kind apart without reading them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind<'a> {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link with this text.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device: major and minor number.
    Char(u32, u32),
    /// A block device: major and minor number.
    Block(u32, u32),
}

/// One mutation, before it is done. "Before" fields hold what was found just before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent<'a> {
    /// Something under a name that must not exist, or, for a regular file, may (UNCHECKED): CREATE, MKDIR, SYMLINK,
    /// MKNOD, an OPEN that creates.
    Make {
        /// Where.
        at: Place<'a>,
        /// What.
        kind: NodeKind<'a>,
        /// What the name stood for.
        before: Option<HandleBytes<'a>>,
        /// When, by the clock that stamps files.
        started_at: Timestamp,
    },
    /// A name's removal: REMOVE, RMDIR.
    Remove {
        /// Where.
        at: Place<'a>,
        /// What the name stood for.
        victim: HandleBytes<'a>,
    },
    /// A rename.
    Rename {
        /// The old name.
        from: Place<'a>,
        /// The new name.
        to: Place<'a>,
        /// What the old name stood for.
        source: HandleBytes<'a>,
        /// What the new name stood for.
        target: Option<HandleBytes<'a>>,
        /// Whether the two are swapped.
        is_exchange: bool,
    },
    /// Another name for an object.
    Link {
        /// The object.
        object: HandleBytes<'a>,
        /// Where.
        at: Place<'a>,
        /// What the name stood for.
        before: Option<HandleBytes<'a>>,
    },
    /// Attributes; the guard, where there is one, has been compared already.
    SetAttr {
        /// The object.
        object: HandleBytes<'a>,
        /// Its ctime.
        ctime_before: Timestamp,
    },
    /// An extended attribute that must not exist yet (SETXATTR4_CREATE).
    MakeXattr {
        /// The object.
        object: HandleBytes<'a>,
        /// The full name.
        name: &'a [u8],
        /// Whether it existed.
        existed: bool,
        /// A 128-bit hash of the value to be set.
        value_hash: [u8; 16],
    },
    /// An extended attribute's removal.
    RemoveXattr {
        /// The object.
        object: HandleBytes<'a>,
        /// The full name.
        name: &'a [u8],
        /// Whether it existed.
        existed: bool,
    },
    /// What gives the same when done again: WRITE, COMMIT, ALLOCATE, DEALLOCATE, COPY, CLONE, exclusive creates,
    /// SETXATTR without a condition.
    Repeatable,
    /// Removals of names of one directory, each by what it stands for: done again, a name that stands for something else
    /// by then, or for nothing, is left alone.
    Removals {
        /// The directory.
        dir: HandleBytes<'a>,
        /// A hash of each name ([`name_hash`]), one after the other: enough to know one again that another operation has
        /// used. Empty in a record of an older server.
        names: &'a [u8],
    },
}

/// One look at the file system that settling needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look<'a> {
    /// What a name stands for.
    Name(Place<'a>),
    /// An object by its handle.
    Object(HandleBytes<'a>),
    /// The hash of an extended attribute's value.
    Xattr {
        /// The object.
        object: HandleBytes<'a>,
        /// The full name.
        name: &'a [u8],
    },
}

impl<'a> Intent<'a> {
    /// Where settling looks, in the order in which [`crate::settle()`] takes the answers.
    #[must_use]
    pub fn looks(&self) -> [Option<Look<'a>>; 2] {
        match *self {
            Self::Make { at, .. } | Self::Remove { at, .. } | Self::Link { at, .. } => {
                [Some(Look::Name(at)), None]
            }
            Self::Rename { from, to, .. } => [Some(Look::Name(from)), Some(Look::Name(to))],
            Self::SetAttr { object, .. } | Self::Removals { dir: object, .. } => {
                [Some(Look::Object(object)), None]
            }
            Self::MakeXattr { object, name, .. } | Self::RemoveXattr { object, name, .. } => {
                [Some(Look::Xattr { object, name }), None]
            }
            Self::Repeatable => [None, None],
        }
    }

    /// Appends the intent, with its version, to a buffer.
    pub fn write(&self, w: &mut Writer) {
        w.put(&[VERSION]);
        self.encode(w);
    }

    /// Reads what [`Intent::write`] wrote, all of it.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        codec::decode(bytes, VERSION, Self::decode)
    }
}

/// A compound stopped in the middle: the entry of a slot is rewritten before each of its mutations, so that the last
/// one stands for all, with the results of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// The slot's sequence number; for 4.0 the call's xid.
    pub seqid: u32,
    /// A hash of the call's arguments, so that another call under the same number is not taken for it.
    pub call_hash: u64,
    /// Which operation of the compound this is, from 0.
    pub operation: u32,
    /// The encoded results of the operations before it.
    pub results: &'a [u8],
    /// What it is about to do.
    pub intent: Intent<'a>,
}

impl<'a> Step<'a> {
    /// Appends the step, with its version, to a buffer.
    pub fn write(&self, w: &mut Writer) {
        w.put(&[VERSION]);
        w.u32(self.seqid);
        w.u64(self.call_hash);
        w.u32(self.operation);
        w.opaque(self.results);
        self.intent.encode(w);
    }

    /// Reads what [`Step::write`] wrote, all of it.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        codec::decode(bytes, VERSION, |r| {
            Ok(Self {
                seqid: r.u32()?,
                call_hash: r.u64()?,
                operation: r.u32()?,
                results: r.opaque(INTENT_PREFIX_BYTES_MAX)?,
                intent: Intent::decode(r)?,
            })
        })
    }
}

impl Encode for Place<'_> {
    fn encode(&self, w: &mut Writer) {
        w.opaque(self.dir);
        w.opaque(self.name);
    }
}

impl<'a> Decode<'a> for Place<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(Self { dir: handle(r)?, name: r.opaque(NAME_BYTES_MAX)? })
    }
}

fn handle<'a>(r: &mut Reader<'a>) -> Result<HandleBytes<'a>, Error> {
    r.opaque(BACKEND_HANDLE_BYTES_MAX)
}

fn encode_maybe(handle: Option<HandleBytes<'_>>, w: &mut Writer) {
    handle.is_some().encode(w);
    if let Some(bytes) = handle {
        w.opaque(bytes);
    }
}

fn maybe<'a>(r: &mut Reader<'a>) -> Result<Option<HandleBytes<'a>>, Error> {
    if bool::decode(r)? { handle(r).map(Some) } else { Ok(None) }
}

fn encode_time(t: Timestamp, w: &mut Writer) {
    t.seconds.encode(w);
    w.u32(t.nanos);
}

fn time(r: &mut Reader<'_>) -> Result<Timestamp, Error> {
    Ok(Timestamp { seconds: i64::decode(r)?, nanos: r.u32()? })
}

impl Encode for NodeKind<'_> {
    fn encode(&self, w: &mut Writer) {
        let mut device = |tag, major, minor| [tag, major, minor].iter().for_each(|n| w.u32(*n));
        match *self {
            Self::Char(major, minor) => device(5, major, minor),
            Self::Block(major, minor) => device(6, major, minor),
            Self::Regular => w.u32(0),
            Self::Directory => w.u32(1),
            Self::Symlink(text) => {
                w.u32(2);
                w.opaque(text);
            }
            Self::Fifo => w.u32(3),
            Self::Socket => w.u32(4),
        }
    }
}

impl<'a> Decode<'a> for NodeKind<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match r.u32()? {
            0 => Self::Regular,
            1 => Self::Directory,
            2 => Self::Symlink(r.opaque(PATH_BYTES_MAX)?),
            3 => Self::Fifo,
            4 => Self::Socket,
            5 => Self::Char(r.u32()?, r.u32()?),
            6 => Self::Block(r.u32()?, r.u32()?),
            value => return Err(Error::BadEnum { name: "NodeKind", value }),
        })
    }
}

impl Encode for Intent<'_> {
    fn encode(&self, w: &mut Writer) {
        match self {
            Self::Make { at, kind, before, started_at } => {
                w.u32(0);
                at.encode(w);
                kind.encode(w);
                encode_maybe(*before, w);
                encode_time(*started_at, w);
            }
            Self::Remove { at, victim } => {
                w.u32(1);
                at.encode(w);
                w.opaque(victim);
            }
            Self::Rename { from, to, source, target, is_exchange } => {
                w.u32(2);
                from.encode(w);
                to.encode(w);
                w.opaque(source);
                encode_maybe(*target, w);
                is_exchange.encode(w);
            }
            Self::Link { object, at, before } => {
                w.u32(3);
                w.opaque(object);
                at.encode(w);
                encode_maybe(*before, w);
            }
            Self::SetAttr { object, ctime_before } => {
                w.u32(4);
                w.opaque(object);
                encode_time(*ctime_before, w);
            }
            Self::MakeXattr { object, name, existed, value_hash } => {
                w.u32(5);
                w.opaque(object);
                w.opaque(name);
                existed.encode(w);
                value_hash.encode(w);
            }
            Self::RemoveXattr { object, name, existed } => {
                w.u32(6);
                w.opaque(object);
                w.opaque(name);
                existed.encode(w);
            }
            Self::Repeatable => w.u32(7),
            Self::Removals { dir, names } => {
                // As it was before there were hashes of the names.
                w.u32(if names.is_empty() { 8 } else { 9 });
                w.opaque(dir);
                if !names.is_empty() {
                    w.opaque(names);
                }
            }
        }
    }
}

impl<'a> Decode<'a> for Intent<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, Error> {
        Ok(match r.u32()? {
            0 => Self::Make {
                at: Place::decode(r)?,
                kind: NodeKind::decode(r)?,
                before: maybe(r)?,
                started_at: time(r)?,
            },
            1 => Self::Remove { at: Place::decode(r)?, victim: handle(r)? },
            2 => Self::Rename {
                from: Place::decode(r)?,
                to: Place::decode(r)?,
                source: handle(r)?,
                target: maybe(r)?,
                is_exchange: bool::decode(r)?,
            },
            3 => Self::Link { object: handle(r)?, at: Place::decode(r)?, before: maybe(r)? },
            4 => Self::SetAttr { object: handle(r)?, ctime_before: time(r)? },
            5 => Self::MakeXattr {
                object: handle(r)?,
                name: r.opaque(XATTR_NAME_BYTES_MAX)?,
                existed: bool::decode(r)?,
                value_hash: r.array()?,
            },
            6 => Self::RemoveXattr {
                object: handle(r)?,
                name: r.opaque(XATTR_NAME_BYTES_MAX)?,
                existed: bool::decode(r)?,
            },
            7 => Self::Repeatable,
            8 => Self::Removals { dir: handle(r)?, names: &[] },
            9 => Self::Removals { dir: handle(r)?, names: r.opaque(NAME_HASH_BYTES * CAPS_BATCH_OPS_MAX)? },
            value => return Err(Error::BadEnum { name: "Intent", value }),
        })
    }
}
