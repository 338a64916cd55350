//! Mutations on their way to the server: batches, what names their objects, and what came of them.

use bytes::Bytes;

use crate::ask::{Object, RenameMode};
use crate::attrs::{Attrs, Changes, Device, Kind, NewAttrs};
use crate::errno::Errno;
use crate::ids::{Caller, Handle, Name, OpenToken};

/// What an operation of a batch is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A known object.
    Handle(Handle),
    /// The object that operation `op` (from 0) of transaction `txn` makes.
    Made {
        /// Which batch.
        txn: u64,
        /// Which operation of it.
        op: u32,
    },
}

/// What is made under a new name.
#[derive(Clone, Debug, PartialEq)]
pub enum NewObject {
    /// A file, with what was written to it since.
    File {
        /// Data by offset, ascending, apart from each other.
        data: Vec<(u64, Bytes)>,
        /// Size, when it is not where the data ends.
        size: Option<u64>,
    },
    /// A directory.
    Dir,
    /// A symbolic link with this text.
    Symlink(Bytes),
    /// A device, pipe or socket.
    Node(Kind, Device),
}

/// One operation of a batch.
#[expect(missing_docs, reason = "fields are named for what they are")]
#[derive(Clone, Debug, PartialEq)]
pub enum Mutation {
    /// Makes an object under a name that should be new. If it is taken after all, the server keeps both, and says under
    /// which name it kept ours.
    Make { dir: Target, name: Name, object: NewObject, attrs: NewAttrs },
    /// Gives an object one more name, which must not exist.
    Link { object: Target, dir: Target, name: Name },
    /// Changes attributes.
    SetAttr { object: Target, changes: Changes },
    /// Writes a small file's data; the modification time is set to `mtime`.
    Write { object: Target, data: Vec<(u64, Bytes)>, mtime: holdfast_base::Timestamp },
    /// Changes a name, which stands for `victim`. Never `Exchange`.
    Rename { from_dir: Target, from: Name, to_dir: Target, to: Name, mode: RenameMode, victim: Target },
    /// Removes the name of something that is no directory, and stands for `victim`.
    Unlink { dir: Target, name: Name, victim: Target },
    /// Removes an empty directory.
    Rmdir { dir: Target, name: Name, victim: Target },
    /// Removes a directory with all that is in it, every directory of it named with the change value it was seen with.
    RemoveTree { dir: Target, name: Name, dirs: Vec<(Handle, u64)> },
}

/// Consecutive mutations of one caller, executed in order and exactly once.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Transaction number; 1 is the first, none is left out.
    pub txn: u64,
    /// Whose credential it carries.
    pub caller: Caller,
    /// In order.
    pub ops: Vec<Mutation>,
}

/// What came of one operation of a batch.
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one, and live for a moment")]
#[derive(Clone, Debug, PartialEq)]
pub enum MutationResult {
    /// Done; `Make` brings the object, others may bring its attributes.
    Done {
        /// What was made.
        made: Option<Object>,
        /// The name it has got, when its own was taken.
        other_name: Option<Name>,
        /// The attributes of what was changed.
        attrs: Option<Attrs>,
    },
    /// Not done.
    Failed(Errno),
    /// Not done, as an operation that it builds upon failed.
    Depends,
}

/// Names one piece of data on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// Data to be written by NFS WRITE.
#[derive(Clone, Debug)]
pub struct WriteOut {
    /// For [`write_done`](crate::Machine::write_done).
    pub id: WriteId,
    /// The file.
    pub object: Handle,
    /// An open of it for writing, where there is one.
    pub open: Option<OpenToken>,
    /// Whose credential.
    pub caller: Caller,
    /// Where.
    pub offset: u64,
    /// What; at most `IO_BYTES_MAX`.
    pub data: Bytes,
}

/// A COMMIT to be sent.
#[derive(Clone, Debug)]
pub struct CommitOut {
    /// For [`commit_done`](crate::Machine::commit_done).
    pub id: WriteId,
    /// The file.
    pub object: Handle,
    /// An open of it, where there is one.
    pub open: Option<OpenToken>,
    /// Whose credential.
    pub caller: Caller,
}
