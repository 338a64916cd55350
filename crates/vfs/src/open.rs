//! Open files, and the small vocabulary of the backend's methods.

use std::any::Any;
use std::sync::Arc;

use holdfast_base::{ByteRange, Timestamp};

use crate::attrs::{Attrs, Change};
use crate::handle::Handle;
use crate::handover::HandedFile;

/// An object with what was asked of its attributes.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Its name for the backend.
    pub handle: Handle,
    /// Its attributes.
    pub attrs: Attrs,
}

/// A backend's open file: whatever it needs to read and write without asking for permission again. Dropping
/// the last reference closes it and lets go of the locks taken through it.
pub trait FileObject: Any + Send + Sync {
    /// For the backend to find its own type again.
    fn as_any(&self) -> &dyn Any;

    /// What another process needs to go on with it; `None` when none can ([`crate::handover`]).
    fn hand_over(&self) -> Option<HandedFile<'_>> {
        None
    }
}

/// How a file is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Whether NFS's exceptions from POSIX hold: the owner may always read and write, and who may execute may
    /// read (RFC 1813 section 4.4). For stateless protocols; the NFSv4 client checks at its own open.
    pub nfs_exceptions: bool,
}

/// A file to do I/O on.
#[derive(Clone, Copy)]
pub enum File<'a> {
    /// Through an earlier open: permissions were checked then.
    Open(&'a Handle, &'a Arc<dyn FileObject>),
    /// By handle alone, as NFSv3 and NFSv4's special stateids do: permissions are checked now, with NFS's
    /// exceptions (see [`OpenMode::nfs_exceptions`]).
    Stateless(&'a Handle),
}

impl File<'_> {
    /// The file's handle.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        match self {
            File::Open(handle, _) | File::Stateless(handle) => handle,
        }
    }
}

/// The verifier of an exclusive create: kept with the file until its first setattr, so that a retry finds its
/// own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exclusive(pub [u8; 8]);

/// What to do about a name that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// Do not create; open what is there.
    MustExist,
    /// Create, or open what is there; of the attributes only a size of 0 is then applied.
    Unchecked,
    /// Create, or fail with [`crate::FsError::Exists`].
    Guarded,
    /// Create, or succeed when the file there was made with this verifier, else fail with
    /// [`crate::FsError::Exists`].
    Exclusive(Exclusive),
}

/// A file opened or made by name.
pub struct Created {
    /// The file.
    pub node: Node,
    /// The directory's change; before and after are equal when nothing was made.
    pub dir: Change,
    /// Whether the file is new.
    pub is_new: bool,
    /// The open file, when an open was asked for.
    pub file: Option<Arc<dyn FileObject>>,
}

/// A file that was made under a name of its own ([`crate::Backend::make_file`]).
#[derive(Clone)]
pub struct NewFile {
    /// The file.
    pub handle: Handle,
    /// The open file, when an open was asked for.
    pub file: Option<Arc<dyn FileObject>>,
}

/// A file that was made for a create to come ([`crate::Backend::make_spare`]). It lives as long as this.
#[derive(Clone)]
pub struct Spare {
    /// The file.
    pub handle: Handle,
    /// The same, open to be read and written.
    pub file: Arc<dyn FileObject>,
    /// What came of the mode that it was made with, which had all bits of permission.
    pub mode: u32,
    /// Its number.
    pub fileid: u64,
}

/// What a name to be removed must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveKind {
    /// Anything but a directory.
    NonDirectory,
    /// An empty directory.
    Directory,
    /// Either (NFSv4's REMOVE).
    Any,
}

/// A name that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Nothing leads to the object any more: this was its last name, or it was a directory.
    pub is_gone: bool,
}

/// How a rename treats the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameFlags {
    /// Replace it, as POSIX does.
    #[default]
    Replace,
    /// Fail with [`crate::FsError::Exists`] when it exists.
    NoReplace,
    /// Swap the two.
    Exchange,
}

/// How durable a write is to be when the call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stability {
    /// Not yet: a later commit forces it.
    Unstable,
    /// The data and what is needed to read it.
    DataSync,
    /// Data and all attributes.
    FileSync,
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Bytes read.
    pub bytes: usize,
    /// Whether the read reached the end of the file.
    pub is_eof: bool,
}

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes written; below what was given only when space ran out.
    pub bytes: usize,
    /// The file before and after. Present when the caller asked for it.
    pub change: Option<Change>,
}

/// The outcome of a write at a file's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Where the data begins.
    pub offset: u64,
    /// Bytes written; below what was given only when space ran out.
    pub bytes: usize,
}

/// What to look for with [`crate::Backend::seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that lies in data.
    Data,
    /// The next byte that lies in a hole; the end of the file is one.
    Hole,
}

/// What to do with a region of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// Reserve space, extending the file where it is shorter (ALLOCATE, RFC 7862 section 15.1).
    Allocate,
    /// Reserve space without extending the file.
    AllocateKeepSize,
    /// Free the space; it reads as zeros (DEALLOCATE, RFC 7862 section 15.4). Never changes the size.
    Punch,
    /// Make it read as zeros, keeping the space.
    Zero,
}

/// What somebody is about to do with a range of a file, for [`crate::Backend::advise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// To read it soon: it is to be brought into memory (IO_ADVISE4_WILLNEED, RFC 7862 section 15.5).
    WillNeed,
    /// Nothing more: memory is not to be spent on it (IO_ADVISE4_DONTNEED).
    DontNeed,
}

/// What becomes of an [`Advice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advised {
    /// It is not followed.
    NotFollowed,
    /// It is.
    Followed,
    /// It is to be given again, and is followed then, once the file's data was committed: some of it is in memory alone.
    OnceCommitted,
}

/// From where to where, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySpan {
    /// First byte in the source.
    pub from: u64,
    /// First byte in the target.
    pub to: u64,
    /// Bytes; 0 means to the end of the source.
    pub bytes: u64,
}

/// Kind of a byte-range lock; the stronger is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockKind {
    /// Shared: others may read-lock.
    Read,
    /// Exclusive.
    Write,
}

/// A lock of somebody outside the server that is in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockedBy {
    /// Where.
    pub range: ByteRange,
    /// Which kind.
    pub kind: LockKind,
}

/// What to do about an extended attribute that exists or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Either,
    /// Fail with [`crate::FsError::Exists`] when it exists.
    Create,
    /// Fail with [`crate::FsError::NoXattr`] when it does not.
    Replace,
}

/// A guard on [`crate::Backend::setattr`]: proceed only when the object's ctime is this
/// (RFC 1813 section 3.3.2), else [`crate::FsError::NotSync`].
pub type CtimeGuard = Option<Timestamp>;
