//! What a file system must be able to do: one synchronous method an operation.
//!
//! Every method may be called from many threads at once. A method that waits does so cancellably: it looks at
//! [`Request::interrupt`] and returns EINTR when the caller was signalled, for a killed process is freed only by the
//! reply. Before it waits for long it may say so with [`Request::will_wait`].

use rustix::io::Errno;

use crate::ops::{
    CopyRange, Create, Fallocate, Flush, Ioctl, LockAsk, Make, NameIn, Open, Read, Release, Rename, SeekFor,
    SetAttr, SetXattr, SyncWhat, Write,
};
use crate::reply::{DataSink, DirSink};
use crate::request::Request;
use crate::session::Connection;
use crate::types::{AttrReply, Entry, FileHandle, Forget, LockSpan, NodeId, Opened, Statfs, StatxReply};

/// The result of an operation: what to answer, or the error number the application sees.
pub type Result<T> = std::result::Result<T, Errno>;

/// A file system behind a mount.
///
/// Methods with a default answer what the kernel takes for "not served". Beware of ENOSYS: to most operations the
/// kernel takes it for the answer to every later request of the kind, and does not ask again (said with each).
#[expect(unused_variables, reason = "the defaults answer without looking")]
pub trait Filesystem: Send + Sync + 'static {
    /// Called once, before the first request, with what was agreed on.
    fn init(&self, connection: &Connection) {}

    /// Called once, when the kernel has ended the connection and every request has been answered. (An ordinary
    /// unmount of a type other than `fuseblk` sends no DESTROY: this is called by the session.)
    fn destroy(&self) {}

    /// Finds a name. Answer [`Entry::absent`] for a name known not to exist for some time; ENOENT is the same, but is
    /// not remembered.
    ///
    /// # Errors
    /// ENOENT and the file system's own.
    fn lookup(&self, request: &Request<'_>, at: NameIn<'_>) -> Result<Entry>;

    /// Takes lookups back. No reply is sent, and none waited for. Called by a serving thread: must be quick.
    fn forget(&self, forgets: &[Forget]) {}

    /// Attributes. `file` is given for `fstat`.
    ///
    /// # Errors
    /// The file system's own.
    fn getattr(&self, request: &Request<'_>, node: NodeId, file: Option<FileHandle>) -> Result<AttrReply>;

    /// Attributes with birth time. Asked when birth time, or bits that GETATTR does not have, are wanted. With ENOSYS
    /// the kernel asks by GETATTR for ever after.
    ///
    /// # Errors
    /// The file system's own.
    fn statx(&self, request: &Request<'_>, node: NodeId, file: Option<FileHandle>) -> Result<StatxReply> {
        Err(Errno::NOSYS)
    }

    /// Changes attributes and answers the new ones.
    ///
    /// # Errors
    /// The file system's own.
    fn setattr(&self, request: &Request<'_>, node: NodeId, set: &SetAttr) -> Result<AttrReply> {
        Err(Errno::NOSYS)
    }

    /// A symbolic link's text, without NUL.
    ///
    /// # Errors
    /// EINVAL for what is none.
    fn readlink(&self, request: &Request<'_>, node: NodeId) -> Result<Vec<u8>> {
        Err(Errno::INVAL)
    }

    /// Makes a device, pipe, socket, or a regular file that is not opened.
    ///
    /// # Errors
    /// EEXIST and the file system's own.
    fn mknod(&self, request: &Request<'_>, at: NameIn<'_>, make: &Make) -> Result<Entry> {
        Err(Errno::PERM)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// EEXIST and the file system's own.
    fn mkdir(&self, request: &Request<'_>, at: NameIn<'_>, make: &Make) -> Result<Entry> {
        Err(Errno::PERM)
    }

    /// Makes a symbolic link with this text.
    ///
    /// # Errors
    /// EEXIST and the file system's own.
    fn symlink(&self, request: &Request<'_>, at: NameIn<'_>, text: &[u8]) -> Result<Entry> {
        Err(Errno::PERM)
    }

    /// Gives a node another name. Answers the node again (one more lookup).
    ///
    /// # Errors
    /// EEXIST and the file system's own.
    fn link(&self, request: &Request<'_>, node: NodeId, to: NameIn<'_>) -> Result<Entry> {
        Err(Errno::PERM)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// ENOENT and the file system's own.
    fn unlink(&self, request: &Request<'_>, at: NameIn<'_>) -> Result<()> {
        Err(Errno::PERM)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOENT, ENOTEMPTY and the file system's own.
    fn rmdir(&self, request: &Request<'_>, at: NameIn<'_>) -> Result<()> {
        Err(Errno::PERM)
    }

    /// Renames. Flags that are not served are EINVAL.
    ///
    /// # Errors
    /// ENOENT, EEXIST and the file system's own.
    fn rename(&self, request: &Request<'_>, rename: &Rename<'_>) -> Result<()> {
        Err(Errno::PERM)
    }

    /// Opens a regular file. The kernel has checked permissions where `default_permissions` holds. With ENOSYS (and
    /// `NO_OPEN_SUPPORT`) no OPEN and no RELEASE is sent any more.
    ///
    /// # Errors
    /// The file system's own.
    fn open(&self, request: &Request<'_>, node: NodeId, open: &Open) -> Result<Opened> {
        Ok(Opened::default())
    }

    /// Makes a regular file, or opens the one that is there, and opens it. With ENOSYS the kernel sends MKNOD and
    /// OPEN for ever after.
    ///
    /// # Errors
    /// EEXIST with `EXCLUSIVE`, and the file system's own.
    fn create(&self, request: &Request<'_>, at: NameIn<'_>, create: &Create) -> Result<(Entry, Opened)> {
        Err(Errno::NOSYS)
    }

    /// Makes and opens a regular file without a name (`O_TMPFILE`), on the file system of `dir`. With ENOSYS it is
    /// EOPNOTSUPP for ever after.
    ///
    /// # Errors
    /// The file system's own.
    fn tmpfile(&self, request: &Request<'_>, dir: NodeId, create: &Create) -> Result<(Entry, Opened)> {
        Err(Errno::NOSYS)
    }

    /// Reads: fills `out` with up to `read.bytes` bytes. Fewer mean the end of the file, and the rest of the pages
    /// that were asked for is taken for zeros.
    ///
    /// # Errors
    /// The file system's own.
    fn read(&self, request: &Request<'_>, node: NodeId, read: &Read, out: &mut DataSink) -> Result<()> {
        Err(Errno::IO)
    }

    /// The kernel has taken what a READ of this node was answered, which had asked to be told
    /// ([`DataSink::tell_when_taken`]): what was read ahead fills its pages, and its size is what a short answer said. (Who
    /// waits for one page alone, or reads past the pages, may be about to see to that himself.)
    fn taken(&self, node: NodeId) {}

    /// Writes and answers how many bytes were written, at least one.
    ///
    /// # Errors
    /// The file system's own.
    fn write(&self, request: &Request<'_>, node: NodeId, write: &Write<'_>) -> Result<u32> {
        Err(Errno::ROFS)
    }

    /// One close of an open file: its error is what `close` says. With ENOSYS it is never sent again, and close says
    /// nothing.
    ///
    /// A process that is being ended closes its files as well, and then **no signal reaches it any more**: see
    /// [`Request::is_caller_exiting`]. Its POSIX locks end all the same.
    ///
    /// # Errors
    /// The file system's own, those noted earlier on the file among them.
    fn flush(&self, request: &Request<'_>, node: NodeId, flush: &Flush) -> Result<()> {
        Ok(())
    }

    /// The last close. Comes in the background; nobody waits for it.
    fn release(&self, request: &Request<'_>, node: NodeId, release: &Release) {}

    /// Makes a file durable. With ENOSYS it succeeds without being sent for ever after.
    ///
    /// # Errors
    /// The file system's own, those noted earlier on the file among them.
    fn fsync(&self, request: &Request<'_>, node: NodeId, file: FileHandle, what: SyncWhat) -> Result<()> {
        Err(Errno::IO)
    }

    /// Opens a directory. With ENOSYS (and `NO_OPENDIR_SUPPORT`) no OPENDIR is sent any more.
    ///
    /// # Errors
    /// The file system's own.
    fn opendir(&self, request: &Request<'_>, node: NodeId, open: &Open) -> Result<Opened> {
        Ok(Opened::default())
    }

    /// Lists names from `read.offset` on, `.` and `..` where they are to be seen among them, until `out` is full or
    /// the directory ends.
    ///
    /// # Errors
    /// The file system's own.
    fn readdir(&self, request: &Request<'_>, node: NodeId, read: &Read, out: &mut DirSink<'_>) -> Result<()>;

    /// The same with what LOOKUP would answer to each name; every entry that `out` took with a node counts as a
    /// lookup. With ENOSYS the kernel asks by READDIR for ever after.
    ///
    /// # Errors
    /// The file system's own.
    fn readdirplus(
        &self,
        request: &Request<'_>,
        node: NodeId,
        read: &Read,
        out: &mut DirSink<'_>,
    ) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// The last close of a directory.
    fn releasedir(&self, request: &Request<'_>, node: NodeId, release: &Release) {}

    /// Makes the names of a directory durable. With ENOSYS it succeeds without being sent for ever after.
    ///
    /// # Errors
    /// The file system's own.
    fn fsyncdir(&self, request: &Request<'_>, node: NodeId, file: FileHandle, what: SyncWhat) -> Result<()> {
        Err(Errno::IO)
    }

    /// Space and objects.
    ///
    /// # Errors
    /// The file system's own.
    fn statfs(&self, request: &Request<'_>, node: NodeId) -> Result<Statfs> {
        Ok(Statfs { block_bytes: 4096, fragment_bytes: 4096, name_bytes_max: 255, ..Statfs::default() })
    }

    /// Makes the whole file system durable. Does not come on mounts of an ordinary `fuse` type.
    ///
    /// # Errors
    /// The file system's own.
    fn syncfs(&self, request: &Request<'_>, node: NodeId) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// The value of an extended attribute. The session cuts nothing: it answers ERANGE where the caller's buffer is
    /// too small. With ENOSYS it is EOPNOTSUPP for ever after (and LSMs and the writes' question for
    /// `security.capability` cost nothing).
    ///
    /// # Errors
    /// ENODATA and the file system's own.
    fn getxattr(&self, request: &Request<'_>, node: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::NOSYS)
    }

    /// Sets an extended attribute. ENOSYS as in [`Filesystem::getxattr`].
    ///
    /// # Errors
    /// EEXIST, ENODATA, ENOSPC and the file system's own.
    fn setxattr(&self, request: &Request<'_>, node: NodeId, set: &SetXattr<'_>) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Names of all extended attributes, each ended by NUL. The session answers ERANGE as above.
    ///
    /// # Errors
    /// The file system's own.
    fn listxattr(&self, request: &Request<'_>, node: NodeId) -> Result<Vec<u8>> {
        Err(Errno::NOSYS)
    }

    /// Removes an extended attribute. ENOSYS as in [`Filesystem::getxattr`].
    ///
    /// # Errors
    /// ENODATA and the file system's own.
    fn removexattr(&self, request: &Request<'_>, node: NodeId, name: &[u8]) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// The first lock of somebody else that is in the way of this one; `None` when there is none. With ENOSYS the
    /// kernel keeps locks by itself, per mount.
    ///
    /// # Errors
    /// The file system's own.
    fn getlk(&self, request: &Request<'_>, node: NodeId, ask: &LockAsk) -> Result<Option<LockSpan>> {
        Err(Errno::NOSYS)
    }

    /// Takes a lock or lets go of one, without waiting for a holder.
    ///
    /// # Errors
    /// EAGAIN when somebody is in the way; the file system's own.
    fn setlk(&self, request: &Request<'_>, node: NodeId, ask: &LockAsk) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Takes a lock, waiting for its holders. The wait must end with EINTR when interrupted, and then the lock must
    /// not be held.
    ///
    /// # Errors
    /// EDEADLK, EINTR; the file system's own.
    fn setlkw(&self, request: &Request<'_>, node: NodeId, ask: &LockAsk) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// Reserves, frees or zeroes a region. EOPNOTSUPP for modes that are not served. With ENOSYS it is EOPNOTSUPP for
    /// ever after.
    ///
    /// # Errors
    /// The file system's own.
    fn fallocate(&self, request: &Request<'_>, node: NodeId, what: &Fallocate) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// The next data or hole at or after `offset`. With ENOSYS the kernel takes every file for one stretch of data.
    ///
    /// # Errors
    /// ENXIO at or beyond the end of the file.
    fn lseek(
        &self,
        request: &Request<'_>,
        node: NodeId,
        file: FileHandle,
        offset: u64,
        what: SeekFor,
    ) -> Result<u64> {
        Err(Errno::NOSYS)
    }

    /// Copies within the file system; answers bytes copied. EOPNOTSUPP, or ENOSYS for ever after, makes the caller
    /// copy by reading and writing.
    ///
    /// # Errors
    /// EXDEV and the file system's own.
    fn copy_file_range(&self, request: &Request<'_>, copy: &CopyRange) -> Result<u64> {
        Err(Errno::NOSYS)
    }

    /// Whether the caller may do this (`access(2)`). Comes only without `default_permissions`. With ENOSYS everything
    /// is allowed for ever after.
    ///
    /// # Errors
    /// EACCES.
    fn access(&self, request: &Request<'_>, node: NodeId, mask: u32) -> Result<()> {
        Err(Errno::NOSYS)
    }

    /// An `ioctl` with a well-formed number. Answers its result and what it gives back.
    ///
    /// # Errors
    /// ENOTTY for a number that is not known.
    fn ioctl(&self, request: &Request<'_>, node: NodeId, ioctl: &Ioctl<'_>) -> Result<(i32, Vec<u8>)> {
        Err(Errno::NOTTY)
    }
}
