//! Locks are the server's to grant; what is kept here of a file that is locked has to keep up with them.

use crate::errno::Errno;
use crate::ids::{Handle, NodeId, Now};
use crate::machine::Machine;
use crate::step::{Outcome, Step, Turn, Wait};
use crate::tell::{Forget, Report};
use holdfast_base::CapSet;

impl Machine {
    /// A lock is about to be asked for: what was written before goes out, and what is written from now on goes in a way that
    /// ends with the lock.
    pub fn lock_wanted(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Step<()> {
        self.try_lock_wanted(turn, id, now).into()
    }

    fn try_lock_wanted(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Outcome<()> {
        if self.journal.is_some() {
            return Ok(());
        }
        self.living(id, now)?;
        self.node_mut(id)?.data.is_locked = true;
        self.settled(turn, id, now)
    }

    /// A lock was granted: what the kernel keeps of the file's data is dropped unless a capability has covered all of it
    /// since it was read, for the lock's holder before may have changed it. Done once the kernel has dropped it: it asks
    /// nobody for what it has.
    pub fn lock_taken(&mut self, turn: &mut Turn, id: NodeId) -> Step<()> {
        if turn.forgets.is_none() {
            let Some(node) = self.nodes.get(&id) else { return Step::Done(()) };
            if node.held.contains(CapSet::FILE_S) && node.pages_covered {
                return Step::Done(());
            }
            self.invalidate(Forget::Data(id));
            turn.forgets = Some(self.last_invalidation);
        }
        match turn.forgets {
            Some(number) if number > self.invalidated => Step::Wait(Wait::Forgotten),
            _ => Step::Done(()),
        }
    }

    /// Locks of a file were lost: others may have had them, and may have changed it. What waits here may have been written under
    /// them, and does not go out any more, nor again where the server has it and may lose it; who wrote it is told by `fsync` and
    /// `close`. The kernel drops what it has, so that who reads asks, and can be told.
    ///
    /// Where there is a journal what waits stays: it is compared with what others have done before it goes out, and set apart.
    pub fn locks_lost(&mut self, object: &Handle) {
        self.progress += 1;
        let Some(id) = self.handles.get(object).copied() else { return };
        self.invalidate(Forget::Data(id));
        self.tell(Report::new("lock, which others may have had meanwhile", id, Errno::EIO));
        if self.journal.is_none() {
            let was_waiting = self.with_data(id, |data| {
                let was_waiting = data.extents.any(|p, _| p.is_by_write());
                data.extents.turn(|p, _| (!p.is_by_write()).then_some(p));
                data.mtime_owed = false;
                was_waiting
            });
            if was_waiting == Some(true) {
                self.data_given_up(id, ("write under a lock that was lost", Errno::EIO));
            }
        }
    }
}
