//! Operations of applications, one file a family. Each is called again after each answer it asked for, decides anew
//! from what is known then, and uses a fresh answer once even where nothing of it could be kept.

mod attr;
mod copy;
mod data;
pub(crate) mod dirs;
mod hide;
mod let_in;
mod lock;
mod lookup;
mod make;
mod move_name;
mod nameless;
mod open;
mod remove;
mod space;
mod sync;
mod xattr;

pub use dirs::Taker;
pub use xattr::{ACCESS_LISTS, is_access_list};

use crate::ask::Access;
use crate::attrs::{Attrs, Kind};
use crate::ids::{Fh, Name, NodeId};

/// An object under a name, as the kernel is told of it. It counts as one lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Which object.
    pub node: NodeId,
    /// Its attributes; `fileid` is the number shown.
    pub attrs: Attrs,
    /// The name stays what it is until the kernel is told.
    pub entry_valid: bool,
    /// So do the attributes.
    pub attr_valid: bool,
}

/// What a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// This.
    Found(Entry),
    /// Nothing.
    Absent {
        /// It stays so until the kernel is told.
        valid: bool,
    },
}

/// Attributes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// They; `fileid` is the number shown.
    pub attrs: Attrs,
    /// They stay so until the kernel is told.
    pub valid: bool,
}

/// How an application opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    /// For what.
    pub access: Access,
    /// Writes go to the end (`O_APPEND`).
    pub append: bool,
    /// Emptied first (`O_TRUNC`).
    pub truncate: bool,
    /// The name must be new (`O_EXCL`); of `create` only.
    pub exclusive: bool,
    /// It is a program, to be run; the open lives as long as it runs.
    pub execute: bool,
}

/// An open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its number.
    pub fh: Fh,
    /// The kernel may keep what data it has of the file.
    pub keep_cache: bool,
    /// It is to keep none, and to ask for all.
    pub is_direct: bool,
    /// Its closes are to be told by [`flush`](crate::Machine::flush): there may be data to be sent, or a failure that nobody
    /// was told of.
    pub is_flushed: bool,
}

/// An open directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedDir {
    /// Its number.
    pub fh: Fh,
    /// The kernel may keep what it reads through it, until it is told to forget that.
    pub keeps: bool,
    /// It may go by what it keeps already.
    pub keep_cache: bool,
}

/// One entry of a directory, as `readdir` gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct DirEntry {
    /// Its name.
    pub name: Name,
    /// Where to go on behind it.
    pub offset: u64,
    /// What it is; nothing where that is not known without asking.
    pub kind: Option<Kind>,
    /// Its number, as shown.
    pub fileid: u64,
    /// With `plus`, what a lookup would tell, where it is known.
    pub entry: Option<Entry>,
}
