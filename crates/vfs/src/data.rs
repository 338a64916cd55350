//! What is said of data on its way: where it goes, in whose descriptor it lies, and what is to be durable.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::handle::Handle;
use crate::open::Stability;

/// Where to write, and what the caller wants to know.
#[derive(Clone, Copy, Debug)]
pub struct WriteAt {
    /// First byte.
    pub offset: u64,
    /// How durable the caller will make it: a backend may start write-back early for what will be forced.
    pub stability: Stability,
    /// Whether [`Written::change`] is wanted.
    pub want_change: bool,
}

/// A stretch of a file that can be sent without copying it through memory.
pub struct FileSpan {
    /// A descriptor open for reading, kept for as long as the span lives.
    pub fd: Arc<OwnedFd>,
    /// First byte.
    pub offset: u64,
    /// Bytes, cut to what the file held when asked.
    pub bytes: usize,
    /// Whether it reaches the end of the file.
    pub is_eof: bool,
}

/// What a descriptor that is lent can do ([`Backend::lend`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lend {
    /// Read.
    Read,
    /// Read and write.
    Write,
    /// Nothing but be opened anew, for reading and writing: an `O_PATH` descriptor.
    Path,
    /// The same for reading alone.
    PathToRead,
}

/// Something whose changes are to be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Touched {
    /// The object that was changed: for a name's creation, removal or rename its directory (both of them), for
    /// attributes and data the object itself.
    pub handle: Handle,
    /// Whether its data is meant too, not its attributes and entries alone.
    pub data: bool,
}
