//! FUSE for Holdfast's mounts: the kernel's ABI over `/dev/fuse`, thin and whole.
//!
//! * [`Filesystem`]: what a file system does, one synchronous method an operation;
//! * [`Session`]: mounts, agrees with the kernel ([`Config`]), serves, unmounts;
//! * [`Request`] and [`Interrupt`]: who asks, and how a signalled caller gets away at once;
//! * [`Notifier`]: what the kernel must not believe any longer;
//! * [`Passthrough`]: reads and writes that never come here;
//! * [`abi`]: requests and replies as bytes.
//!
//! What was measured, and the rules that follow, stand in `docs/design/fuse.md`.
#![deny(unsafe_code)]

pub mod abi;
mod filesystem;
mod flags;
mod groups;
mod interrupt;
mod mount;
mod notifier;
mod ops;
mod passthrough;
mod reply;
mod request;
mod serve;
mod session;
mod sys;
mod types;

pub use filesystem::{Filesystem, Result};
pub use flags::{FallocateFlags, InitFlags, OpenFlags, OpenedFlags, RenameFlags};
pub use interrupt::{Interrupt, Watch};
pub use mount::{MountError, MountHow, MountOptions, Unmount, abort_at as abort, remount, unmount};
pub use notifier::{Notifier, Told};
pub use ops::{
    CopyRange, Create, Fallocate, Flush, Ioctl, LockAsk, Make, NameIn, Open, Read, Release, Rename, SeekFor,
    SetAttr, SetXattr, SyncWhat, Write, XattrMode,
};
pub use passthrough::{BackingId, Passthrough, PassthroughError};
pub use reply::{DataSink, DirItem, DirSink};
pub use request::{Detached, Request};
pub use rustix::io::Errno;
pub use session::{Config, Connection, End, Session};
pub use types::{
    Attr, AttrReply, Device, Entry, EntryKind, FOREVER, FileHandle, Forget, LockClass, LockMode, LockOwner,
    LockSpan, NodeId, Opened, SetTime, Statfs, StatxReply, Validity,
};
