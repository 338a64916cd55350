//! The one error type of backends, in words of no protocol.

/// What a backend's method may fail with. Each protocol converts it totally; the table is tested there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FsError {
    /// The name does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDir,
    /// A directory stands where another kind was needed.
    #[error("is a directory")]
    IsDir,
    /// A symbolic link stands where another kind was needed.
    #[error("is a symbolic link")]
    IsSymlink,
    /// The object's kind does not fit the operation (for instance reading the link text of a file).
    #[error("wrong kind of object")]
    WrongKind,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The caller lacks a permission bit (`EACCES`).
    #[error("permission denied")]
    Access,
    /// Only the owner or a privileged user may do this (`EPERM`).
    #[error("operation not permitted")]
    Perm,
    /// An argument makes no sense.
    #[error("invalid argument")]
    Invalid,
    /// A name that this file system cannot hold.
    #[error("bad name")]
    BadName,
    /// A name longer than the file system allows.
    #[error("name too long")]
    NameTooLong,
    /// No space is left.
    #[error("no space left on device")]
    NoSpace,
    /// The owner's quota is used up.
    #[error("quota exceeded")]
    Quota,
    /// The file would grow beyond what the file system allows.
    #[error("file too large")]
    TooBig,
    /// The file system or the export is read-only.
    #[error("read-only file system")]
    ReadOnly,
    /// The object has too many links.
    #[error("too many links")]
    TooManyLinks,
    /// The two objects lie on different file systems.
    #[error("cross-device link")]
    CrossDevice,
    /// The device behind a special file does not exist (`ENXIO`).
    #[error("no such device or address")]
    NoDevice,
    /// The medium failed.
    #[error("input/output error")]
    Io,
    /// The handle's object is gone.
    #[error("stale file handle")]
    Stale,
    /// The handle was never one of this backend's.
    #[error("bad file handle")]
    BadHandle,
    /// A directory cookie that names no position any more.
    #[error("bad directory cookie")]
    BadCookie,
    /// The file system cannot do this.
    #[error("operation not supported")]
    NotSupported,
    /// The extended attribute does not exist.
    #[error("no such extended attribute")]
    NoXattr,
    /// An extended attribute's value or list is larger than allowed.
    #[error("extended attribute too big")]
    XattrTooBig,
    /// The object is in use in a way that forbids this (a mount point, a running program, a swap file).
    #[error("resource busy")]
    Busy,
    /// A lock held by somebody else, on this host or another, is in the way.
    #[error("locked")]
    Locked,
    /// A guard given by the caller did not match (`sattrguard3`, removal of a changed directory).
    #[error("the object changed meanwhile")]
    NotSync,
    /// It would wait, and the caller said that it may not, or not for this ([`crate::Wait`]). Nothing was changed; ask again with
    /// [`crate::Wait::Yes`].
    #[error("would wait")]
    WouldBlock,
    /// Ask again later: memory, descriptors or another resource is short, or a holder is being recalled.
    #[error("try again later")]
    Delay,
}

/// The result of a backend's method.
pub type FsResult<T> = Result<T, FsError>;
