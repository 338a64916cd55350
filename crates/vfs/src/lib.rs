//! What a file system must do to be served: the [`Backend`] trait, its attributes, and its one error type. No
//! protocol is known here; each protocol owns its total conversions.
#![forbid(unsafe_code)]

pub mod attrs;
pub mod backend;
pub mod caller;
pub mod data;
pub mod errno;
pub mod error;
pub mod handle;
pub mod handover;
pub mod listing;
pub mod lists;
pub mod making;
pub mod mem;
pub mod name;
pub mod open;
pub mod page;
pub mod pledge;
#[cfg(feature = "suite")]
pub mod suite;

pub use attrs::{
    AccessMask, AttrMask, Attrs, Change, Device, FileKind, FsId, FsLimits, FsUsage, PreAttrs, Rights,
    SetAttrs, SetTime,
};
pub use backend::{Backend, attrs_if_any, is_gone, stands_for};
pub use caller::{Caller, Cx, Wait};
pub use data::{FileSpan, Lend, Touched, WriteAt};
pub use error::{FsError, FsResult};
pub use handle::Handle;
pub use listing::{DirEntry, DirListing, Flow, ListEnd};
pub use lists::{ACCESS_LIST, AccessLists, DEFAULT_LIST};
pub use making::{CreateHow, NewNode};
pub use mem::{MemBackend, MemOptions, Picture};
pub use name::Name;
pub use open::{
    Advice, Advised, Appended, CopySpan, CreateMode, Created, CtimeGuard, Exclusive, File, FileObject,
    LockKind, LockedBy, NewFile, Node, OpenMode, Read, Region, RemoveKind, Removed, RenameFlags, Seek, Spare,
    Stability, Written, XattrMode,
};
pub use page::{Grounds, Mark, Page, PageKey};
pub use pledge::{HeldPledge, LocalDeed, LocalListener, NobodyThere, Pledge, PledgeGuard};
