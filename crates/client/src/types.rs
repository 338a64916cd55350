//! What callers give and get: handles, credentials, the results of operations.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use holdfast_base::ByteRange;
use holdfast_rpc::link::{Cancel, EncodedAuth};
use holdfast_rpc::{Auth, AuthSys};
use holdfast_wire::nfs4::{StableHow4, Verifier4};

use crate::Attributes;

/// A file's handle: the server's name for it, of at most 128 bytes. Cloning costs a reference count.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle(Arc<[u8]>);

impl Handle {
    /// From the server's bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Who asks: an AUTH_SYS credential, encoded once. Cloning costs a reference count.
#[derive(Clone, Debug)]
pub struct Cred(Arc<Identity>);

#[derive(Debug)]
struct Identity {
    uid: u32,
    gid: u32,
    encoded: EncodedAuth,
}

impl Cred {
    /// A user with his groups; of more than 16 groups the protocol carries the first 16.
    #[must_use]
    pub fn sys(uid: u32, gid: u32, groups: &[u32]) -> Self {
        let machine = rustix::system::uname().nodename().to_bytes().to_vec();
        let auth = Auth::Sys(AuthSys { uid, gid, groups: groups.to_vec(), machine });
        Self(Arc::new(Identity { uid, gid, encoded: EncodedAuth::new(&auth) }))
    }

    /// Whoever this process runs as, with no further groups.
    #[must_use]
    pub fn own() -> Self {
        Self::sys(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw(), &[])
    }

    /// The user.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// The group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    pub(crate) fn encoded(&self) -> &EncodedAuth {
        &self.0.encoded
    }
}

impl PartialEq for Cred {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.encoded == other.0.encoded
    }
}

impl Eq for Cred {}

/// As whom, and until when, an operation is done.
#[derive(Clone, Copy, Debug)]
pub struct Cx<'a> {
    /// As whom.
    pub cred: &'a Cred,
    /// Given to end the waiting; the operation then answers [`crate::Error::Cancelled`].
    pub cancel: &'a Cancel,
}

impl<'a> Cx<'a> {
    /// Both.
    #[must_use]
    pub const fn new(cred: &'a Cred, cancel: &'a Cancel) -> Self {
        Self { cred, cancel }
    }
}

/// An object that was found.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its handle.
    pub handle: Handle,
    /// Its attributes, those asked for that it has.
    pub attributes: Attributes,
}

/// One entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where to go on after it.
    pub cookie: u64,
    /// Its name; a part of the reply, which it keeps in memory.
    pub name: Bytes,
    /// Its attributes; with [`holdfast_wire::nfs4::Attr::FileHandle`] asked for, the handle among them.
    pub attributes: Attributes,
}

/// A part of a directory's entries.
#[derive(Clone, Debug)]
pub struct Listing {
    /// To be given with the next cookie.
    pub verifier: Verifier4,
    /// In the server's order.
    pub entries: Vec<Entry>,
    /// There are no more.
    pub eof: bool,
}

/// What is made by [`crate::Client::create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateKind<'a> {
    /// A directory.
    Directory,
    /// A symbolic link with this text.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block device, major and minor.
    Block(u32, u32),
    /// A character device, major and minor.
    Character(u32, u32),
}

/// Bytes read.
#[derive(Clone, Debug)]
pub struct ReadData {
    /// The bytes; a part of the reply's record, not a copy.
    pub data: Bytes,
    /// The end of the file was reached.
    pub eof: bool,
}

/// A stretch of a file, from READ_PLUS.
#[derive(Clone, Debug)]
pub enum Segment {
    /// Data at an offset.
    Data(u64, Bytes),
    /// A hole: its offset and length.
    Hole(u64, u64),
}

/// What WRITE did.
#[derive(Clone, Debug)]
pub struct Written {
    /// Bytes written, maybe fewer than given.
    pub count: u32,
    /// How durable they are.
    pub committed: StableHow4,
    /// Changes when what was not stable may have been lost.
    pub verifier: Verifier4,
    /// Size, times and change of the file afterwards.
    pub attributes: Attributes,
}

/// Where a SEEK ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sought {
    /// There is none before the end of the file.
    pub eof: bool,
    /// Where it is.
    pub offset: u64,
}

/// What a COPY did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Bytes copied, maybe fewer than asked.
    pub count: u64,
    /// How durable they are.
    pub committed: StableHow4,
    /// Changes when what was not stable may have been lost.
    pub verifier: Verifier4,
}

/// A lock asked for or given back.
#[derive(Clone, Copy, Debug)]
pub struct LockArgs<'a> {
    /// Whose: any bytes of at most 512 that name the owner within this client (process, open file description).
    pub owner: &'a [u8],
    /// Of what.
    pub range: ByteRange,
    /// Exclusive, not shared.
    pub exclusive: bool,
}

/// A lock in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Of what.
    pub range: ByteRange,
    /// Exclusive, not shared.
    pub exclusive: bool,
    /// Its owner's name; of this client's when `is_own`.
    pub owner: Bytes,
    /// The holder is an owner of this client.
    pub is_own: bool,
}

/// What a server lets a client ask for at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLimits {
    /// Bytes of one READ.
    pub max_read: u32,
    /// Bytes of one WRITE.
    pub max_write: u32,
    /// Bytes of a request.
    pub max_request: u32,
    /// Bytes of a reply.
    pub max_response: u32,
    /// Calls at once.
    pub slots: u32,
    /// How long the server keeps state unheard of.
    pub lease: Duration,
    /// The minor version in use.
    pub minor: u32,
}

/// What a delegation allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DelegationKind {
    /// Nobody else writes.
    Read,
    /// Nobody else reads or writes.
    Write,
    /// Of a directory: nobody else changes names in it, or its attributes.
    Directory,
}

/// A delegation that the server wants back, or that it has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    /// What it allows.
    pub kind: DelegationKind,
    /// The file is about to be cut off at 0: its data needs no flushing.
    pub truncate: bool,
    /// Its place in the order of grants and recalls of this client: higher than that of every grant it is about.
    pub number: u64,
}
