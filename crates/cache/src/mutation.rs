//! Mutations on their way to the server: batches, what names their objects, and what came of them.

use bytes::Bytes;

use crate::ask::{Generation, RenameMode};
use crate::attrs::{Attrs, Changes, Device, Kind, NewAttrs};
use crate::caps::Grant;
use crate::errno::Errno;
use crate::ids::{Caller, Handle, Name, OpenToken};
use holdfast_base::CapSet;

/// What an operation of a batch is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A known object.
    Handle(Handle),
    /// The object that operation `op` (from 0) of transaction `txn` makes, counted as the caps program does: a mutation is as
    /// many operations as [`Mutation::operations`] says.
    Made {
        /// Which batch.
        txn: u64,
        /// Which operation of it.
        op: u32,
    },
}

impl Target {
    /// The transaction by which it is named.
    pub(crate) fn made_by(&self) -> Option<u64> {
        match self {
            Self::Made { txn, .. } => Some(*txn),
            Self::Handle(_) => None,
        }
    }
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
        /// The file that the server has made to be it, if that is still there.
        pooled: Option<Handle>,
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
    /// which name it kept ours. `want` is wished for on it. `joins`, of directories: if a directory has the name, that is
    /// taken for ours.
    Make { dir: Target, name: Name, object: NewObject, attrs: NewAttrs, want: CapSet, joins: bool },
    /// Gives an object one more name, which must not exist.
    Link { object: Target, dir: Target, name: Name },
    /// Changes attributes.
    SetAttr { object: Target, changes: Changes },
    /// Writes a small file's data; the modification time is set to `mtime`.
    Write { object: Target, data: Vec<(u64, Bytes)>, mtime: holdfast_base::Timestamp },
    /// Changes a name, which stands for `victim`. Never `Exchange`. What is replaced is `over`; another that has the name
    /// is not: `EEXIST`.
    #[rustfmt::skip]
    Rename { from_dir: Target, from: Name, to_dir: Target, to: Name, mode: RenameMode, victim: Target, over: Option<Target> },
    /// Removes the name of something that is no directory, and stands for `victim`.
    Unlink { dir: Target, name: Name, victim: Target },
    /// Removes an empty directory.
    Rmdir { dir: Target, name: Name, victim: Target },
}

impl Mutation {
    /// How many operations of the caps program it becomes: pieces of data, and the time after them, are some of their own.
    #[must_use]
    pub fn operations(&self) -> usize {
        match self {
            Self::Make { object: NewObject::File { data, .. }, .. } => operations_to_make(data),
            Self::Write { data, .. } => operations_to_write(data),
            _ => 1,
        }
    }

    /// The transactions by which it names things.
    pub(crate) fn made_by(&self) -> impl Iterator<Item = u64> {
        let named: [Option<&Target>; 4] = match self {
            Self::Make { dir, .. } => [Some(dir), None, None, None],
            Self::SetAttr { object, .. } | Self::Write { object, .. } => [Some(object), None, None, None],
            Self::Link { object, dir, .. } => [Some(object), Some(dir), None, None],
            Self::Unlink { dir, victim, .. } | Self::Rmdir { dir, victim, .. } => {
                [Some(dir), Some(victim), None, None]
            }
            Self::Rename { from_dir, to_dir, victim, over, .. } => {
                [Some(from_dir), Some(to_dir), Some(victim), over.as_ref()]
            }
        };
        named.into_iter().flatten().filter_map(Target::made_by)
    }
}

/// Bytes at the beginning come with the making itself; others are followed by the time.
pub(crate) fn operations_to_make(data: &[(u64, Bytes)]) -> usize {
    let rest = data.iter().filter(|(at, _)| *at > 0).count();
    if rest > 0 { rest + 2 } else { 1 }
}

/// Each piece, and the time.
pub(crate) const fn operations_to_write(data: &[(u64, Bytes)]) -> usize {
    data.len() + 1
}

/// When a batch is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// When all of it is executed.
    #[default]
    Executed,
    /// When that, and all that was executed before it, is on the server's disk, so that nobody has to ask for that. A server may
    /// answer before, and says how far it is.
    Stable,
}

/// Consecutive mutations of one caller, executed in order and exactly once.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Transaction number; 1 is the first, none is left out.
    pub txn: u64,
    /// The server may forget all up to this one: neither this batch nor any other that is on its way or will come
    /// names anything by them.
    pub done_through: u64,
    /// Whose credential it carries.
    pub caller: Caller,
    /// In order.
    pub ops: Vec<Mutation>,
    /// When it came out, in the order of events: it may come out again while somebody still waits for what became of it.
    pub asked: Generation,
    /// When it is to be answered.
    pub until: Until,
}

/// What an operation of a batch made. How it looks is known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Born {
    /// Its handle.
    pub handle: Handle,
    /// What is held on it.
    pub grant: Option<Grant>,
}

/// What came of one operation of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum MutationResult {
    /// Done; `Make` brings the object, and all may bring its attributes.
    Done {
        /// What was made.
        made: Option<Born>,
        /// The name it has got, when its own was taken.
        other_name: Option<Name>,
        /// The attributes of what was made or changed, as the server has them behind all of the batch.
        attrs: Option<Attrs>,
    },
    /// Not done.
    Failed(Errno),
    /// Not done, as an operation that it builds upon failed.
    Depends,
}

impl MutationResult {
    /// The same, as if nothing had been granted.
    pub(crate) fn without_grant(mut self) -> Self {
        if let Self::Done { made: Some(born), .. } = &mut self {
            born.grant = None;
        }
        self
    }
}

/// Names one piece of data on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// It may have been written under a lock: where one of the file's was lost, it is not to be done.
    pub is_bound: bool,
    /// Its data is to be on disk before the answer.
    pub to_disk: bool,
    /// And not kept in the server's memory (`O_DIRECT`, end to end).
    pub past_memory: bool,
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
