//! Promises against processes on the server's own host: what a backend can hold for its callers, and how it tells
//! them what such processes do. `docs/design/local-processes.md` says which mechanism stands behind which promise.

use holdfast_base::{ByteRange, FileKey};

/// What is to be held against processes on the server's own host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pledge {
    /// Nobody changes the file's data, attributes or names unnoticed: what a read delegation needs.
    ReadFile,
    /// The same of a file that is open for writing, where processes that have it open as well, and write through a mapping, may
    /// go unnoticed: for what is not relied on for long.
    ReadWritten,
    /// Nobody changes it unnoticed as by `ReadFile`, nor does anybody look at its data: what a write delegation needs.
    WriteFile,
    /// Nobody changes a directory's entries, attributes or names unnoticed: what a directory delegation needs.
    Directory,
}

/// What a process on the server's host is about to do (where the kernel makes it wait) or has just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalDeed {
    /// Opens the file to read it.
    OpenToRead,
    /// Opens the file to write it, or cuts it.
    OpenToWrite,
    /// Has written to the file, or cut it.
    Wrote,
    /// Has changed attributes of the object: mode, owner, times, extended attributes, the number of its links.
    ChangedAttrs,
    /// Has renamed or removed the object itself.
    ChangedName,
    /// Has made, removed or renamed an entry of the directory.
    ChangedEntries,
    /// Something that was missed: the kernel's queue overflowed, or a guard could not be kept.
    Unknown,
}

impl LocalDeed {
    /// Whether a promise cannot stand beside this deed.
    #[must_use]
    pub const fn breaks(self, pledge: Pledge) -> bool {
        match (self, pledge) {
            (Self::Unknown | Self::ChangedAttrs | Self::ChangedName, _)
            | (Self::OpenToWrite | Self::Wrote, Pledge::ReadFile | Pledge::ReadWritten)
            | (Self::OpenToRead | Self::OpenToWrite | Self::Wrote, Pledge::WriteFile)
            | (Self::ChangedEntries, Pledge::Directory) => true,
            (Self::OpenToRead, Pledge::ReadFile | Pledge::ReadWritten)
            | (Self::OpenToRead | Self::OpenToWrite | Self::Wrote, Pledge::Directory)
            | (Self::ChangedEntries, Pledge::ReadFile | Pledge::ReadWritten | Pledge::WriteFile) => false,
        }
    }
}

/// A promise that is held. Dropping it lets go: a local process that was made to wait goes on then.
pub trait PledgeGuard: Send + Sync {
    /// Whether a local process has done, or is waiting to do, what the promise cannot stand beside. Never turns
    /// back. Ask it once after the promise has been entered where deeds are judged: a deed between the making of
    /// the guard and that moment was told to nobody who could have known what to do about it.
    fn is_broken(&self) -> bool;
}

/// A guard as [`crate::Backend::pledge`] gives it.
pub type HeldPledge = Box<dyn PledgeGuard + Send + Sync>;

/// Guards nothing, where there is nobody to guard against.
#[derive(Clone, Copy, Debug)]
pub struct NobodyThere;

impl PledgeGuard for NobodyThere {
    fn is_broken(&self) -> bool {
        false
    }
}

/// Whoever is told of local processes. Called from a thread of the backend that has no other work than this:
/// implementations may take locks and call the backend, but must not wait for a client.
pub trait LocalListener: Send + Sync {
    /// A local process does this to a file that something was pledged of. Where it waits for us, it does until the
    /// guards are dropped, at most for [`crate::Backend::pledge_seconds`]; then the kernel lets it go on. Deeds
    /// that break no pledge may be told as well, and one deed may be told more than once.
    fn local_deed(&self, file: FileKey, deed: LocalDeed);

    /// A lock of a local process that was waited for ([`crate::Backend::await_unlock`]) is gone from this range, or
    /// was a moment ago. Told once for each time that it was asked for.
    fn local_unlock(&self, file: FileKey, range: ByteRange) {
        let _ = (file, range);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deed_breaks_what_relies_on_its_not_happening() {
        use LocalDeed as D;
        let broken_by = |pledge| {
            [
                D::OpenToRead,
                D::OpenToWrite,
                D::Wrote,
                D::ChangedAttrs,
                D::ChangedName,
                D::ChangedEntries,
                D::Unknown,
            ]
            .map(|deed: D| u8::from(deed.breaks(pledge)))
        };
        assert_eq!(broken_by(Pledge::ReadFile), [0, 1, 1, 1, 1, 0, 1]);
        assert_eq!(broken_by(Pledge::WriteFile), [1, 1, 1, 1, 1, 0, 1]);
        assert_eq!(broken_by(Pledge::Directory), [0, 0, 0, 1, 1, 1, 1]);
    }
}
