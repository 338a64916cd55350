//! What is asked and told of a directory's entries.

use holdfast_base::Cookie;

use crate::attrs::AttrMask;
use crate::error::FsResult;
use crate::handle::Handle;
use crate::open::Node;

/// One entry of a listing. `.` and `..` are never among them.
pub struct DirEntry<'a> {
    /// Its name, as the file system holds it.
    pub name: &'a [u8],
    /// The position after it: above 2 and at most `i64::MAX`. Stays valid while other entries come and go, and
    /// across restarts.
    pub next: Cookie,
    /// Its number. Of a covered mount point this is the covered directory's.
    pub fileid: u64,
    /// Handle and attributes, when they were asked for: `None` when not.
    pub node: Option<FsResult<Node>>,
}

/// Whether a listing goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The entry was taken; go on.
    Continue,
    /// The entry was not taken: stop before it.
    Stop,
}

/// How a listing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEnd {
    /// After the last entry.
    Eof,
    /// The taker had enough.
    Stopped,
}

/// Where to list from and what to bring along.
#[derive(Clone, Copy, Debug)]
pub struct DirListing<'a> {
    /// The directory.
    pub dir: &'a Handle,
    /// Start after this position; `Cookie(0)` starts at the beginning.
    pub from: Cookie,
    /// Attributes wanted for each entry; `None` for names and numbers alone.
    pub want: Option<AttrMask>,
}
