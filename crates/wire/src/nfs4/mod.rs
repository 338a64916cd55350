//! NFS version 4, every minor version: RFC 7530 (4.0), RFC 8881 (4.1), RFC 7862 (4.2), RFC 8275 (umask),
//! RFC 8276 (extended attributes), RFC 9754 (delegated timestamps).
//!
//! An operation's arguments are `XxxArgs`, what follows `NFS4_OK` in its result is `XxxOk`, and the status is
//! written by who runs the operation. An operation without arguments or without results has no such type.
//! What follows another status is named where it occurs: [`Lock4Denied`], [`SetAttr4Res`] (on every status),
//! [`GetDeviceInfo4TooSmall`], [`LayoutGet4TryLater`], [`CopyRequirements4`], [`NetAddr4`] (SETCLIENTID).

mod attr;
mod attrval;
mod bitmap;
mod callback;
mod client;
mod compound;
mod file;
mod layout;
mod lock;
mod open;
mod opnum;
mod session;
mod status;
mod types;
mod v42;

pub use attr::*;
pub use attrval::*;
pub use bitmap::*;
pub use callback::*;
pub use client::*;
pub use compound::*;
pub use file::*;
pub use layout::*;
pub use lock::*;
pub use open::*;
pub use opnum::*;
pub use session::*;
pub use status::*;
pub use types::*;
pub use v42::*;
