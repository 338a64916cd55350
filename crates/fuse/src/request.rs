//! Who asks, and whether he still waits.

use std::sync::Arc;

use crate::abi::operation::Header;
use crate::groups::{self, GroupCache};
use crate::interrupt::{Board, Interrupt, Slot};
use crate::serve::crew::{Crew, Duty};

/// A request as an operation sees it, beside its arguments.
pub struct Request<'a> {
    header: Header,
    slot: &'a Arc<Slot>,
    /// Absent for a request that no kernel sent.
    at_work: Option<(&'a Crew, &'a Duty)>,
    groups: &'a GroupCache,
}

impl<'a> Request<'a> {
    pub(crate) const fn new(
        header: Header,
        slot: &'a Arc<Slot>,
        at_work: (&'a Crew, &'a Duty),
        groups: &'a GroupCache,
    ) -> Self {
        Self { header, slot, at_work: Some(at_work), groups }
    }

    /// Its number.
    #[must_use]
    pub const fn unique(&self) -> u64 {
        self.header.unique
    }

    /// The caller's user id (`fsuid`).
    #[must_use]
    pub const fn uid(&self) -> u32 {
        self.header.uid
    }

    /// The caller's group id (`fsgid`).
    #[must_use]
    pub const fn gid(&self) -> u32 {
        self.header.gid
    }

    /// The caller's thread, as a process id in the daemon's eyes; 0 for the kernel itself and for callers in a
    /// neighbouring process namespace.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.header.pid
    }

    /// The caller's supplementary groups; none where they cannot be read. Asked from `/proc` (8 us), and remembered
    /// for a second under thread, user and group.
    #[must_use]
    pub fn groups(&self) -> Arc<[u32]> {
        self.groups.of(self.header.pid, self.header.uid, self.header.gid)
    }

    /// Whether the caller was signalled.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupt().is_set()
    }

    /// To be woken when the caller is signalled.
    #[must_use]
    pub fn interrupt(&self) -> Interrupt {
        Interrupt::new(Arc::clone(self.slot), self.header.unique)
    }

    /// Says that the operation is about to wait for a server or another process: another thread takes over reading
    /// requests at once. Without it that happens after some milliseconds. Costs a wake-up the first time in a request,
    /// nothing afterwards.
    pub fn will_wait(&self) {
        if let Some((crew, duty)) = self.at_work {
            crew.will_wait(duty);
        }
    }

    /// Whether the caller is being ended (killed, or in `exit`): it closes its files then, **no INTERRUPT is sent for
    /// it any more**, and nobody sees what FLUSH answers. An operation that is asked for by such a caller must not wait
    /// for a server. Asked from `/proc` (10 us); false where that cannot be read.
    #[must_use]
    pub fn is_caller_exiting(&self) -> bool {
        groups::is_exiting(self.header.pid)
    }
}

/// A request that no kernel sent, for tests of file systems.
pub struct Detached {
    slot: Arc<Slot>,
    groups: GroupCache,
    board: Board,
    header: Header,
}

impl Detached {
    /// One of this caller.
    #[must_use]
    pub fn new(uid: u32, gid: u32, pid: u32) -> Self {
        let board = Board::default();
        let slot = board.join();
        let node = crate::NodeId::ROOT;
        let header = Header { bytes: 0, opcode: 0, unique: 2, node, uid, gid, pid };
        // Nobody can have interrupted it yet.
        let _ = board.begin(&slot, header.unique);
        Self { slot, groups: GroupCache::default(), board, header }
    }

    /// The request.
    #[must_use]
    pub const fn request(&self) -> Request<'_> {
        Request { header: self.header, slot: &self.slot, at_work: None, groups: &self.groups }
    }

    /// Signals its caller.
    pub fn interrupt(&self) {
        let _ = self.board.interrupt(self.header.unique, self.header.unique | 1);
    }
}
