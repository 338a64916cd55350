//! What is to be made under a new name.

use crate::attrs::{AttrMask, Device, SetAttrs};
use crate::open::{CreateMode, OpenMode};

/// What to make under a new name, when it is not a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewNode<'a> {
    /// A directory.
    Directory,
    /// A symbolic link with this text.
    Symlink(&'a [u8]),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    Char(Device),
    /// A block device.
    Block(Device),
}

/// How to open or make a regular file by name.
#[derive(Clone, Copy, Debug)]
pub struct CreateHow<'a> {
    /// What to do about a name that exists.
    pub mode: CreateMode,
    /// Attributes of a new file.
    pub set: &'a SetAttrs,
    /// Open it so, if at all.
    pub open: Option<OpenMode>,
    /// Attributes wanted of the file.
    pub want: AttrMask,
}
