//! Waiting until things are on disk; and being told what failed after it had returned.

use crate::ask::Generation;
use crate::errno::Errno;
use crate::extent::Progress;
use crate::ids::{Fh, NodeId, Now};
use crate::machine::Machine;
use crate::step::{Outcome, Step, Turn, Wait};

impl Machine {
    /// Puts a file, its name included, on the server's disk. The first failure that nobody was told of, once.
    pub fn fsync(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Step<()> {
        self.stats.operations += 1;
        self.try_fsync(turn, id, now).into()
    }

    /// Puts a directory's names on the server's disk. The first failure in it that nobody was told of, once.
    pub fn fsyncdir(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Step<()> {
        self.stats.operations += 1;
        self.try_fsync(turn, id, now).into()
    }

    fn try_fsync(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Outcome<()> {
        let generation = self.generation;
        let begun = *turn.begun.get_or_insert(generation);
        let node = self.node_mut(id)?;
        if let (Some(errno), true) = (node.error, node.dead.is_some()) {
            node.error = None;
            return Err(errno.into());
        }
        self.data_sent(turn, id, now)?;
        if self.node(id)?.data.mtime_owed {
            self.pay_mtime(id, now);
        }
        let through = match turn.through {
            Some(through) => through,
            None => *turn.through.insert(self.node(id)?.last_serial),
        };
        self.on_disk(id, begun)?;
        self.stable(through)?;
        match self.node_mut(id)?.error.take() {
            Some(errno) => Err(errno.into()),
            None => Ok(()),
        }
    }

    /// Waits until WRITEs that were done before are committed.
    fn on_disk(&mut self, id: NodeId, begun: Generation) -> Outcome<()> {
        let node = self.node(id)?;
        let unstable = |p, born: Generation| born <= begun && matches!(p, Progress::Unstable { .. });
        if !node.data.extents.any(unstable) {
            return Ok(());
        }
        if node.data.committing.is_none_or(|(_, at)| at <= begun) {
            self.commit_now(id);
        }
        self.wait(Wait::Stable)
    }

    fn stable(&mut self, through: u64) -> Outcome<()> {
        let through = self.stream.placed(through);
        if self.stream.stable() >= through {
            return Ok(());
        }
        self.stream.hurry(through);
        self.stream.wanted_stable = self.stream.wanted_stable.max(through);
        self.wait(Wait::Stable)
    }

    /// Puts everything on the server's disk. The first failure since the last time.
    pub fn sync(&mut self, turn: &mut Turn, now: Now) -> Step<()> {
        self.stats.operations += 1;
        self.try_sync(turn, now).into()
    }

    fn try_sync(&mut self, turn: &mut Turn, now: Now) -> Outcome<()> {
        let generation = self.generation;
        let begun = *turn.begun.get_or_insert(generation);
        let with_data: Vec<NodeId> = self
            .nodes
            .values()
            .filter(|n| !n.data.extents.is_empty() || n.data.mtime_owed)
            .map(|n| n.id)
            .collect();
        let mut waits = false;
        for id in &with_data {
            if self.node(*id)?.has_unsent(begun) {
                self.settle(*id, true, now);
                waits = true;
            } else if self.node(*id)?.data.mtime_owed {
                self.pay_mtime(*id, now);
            }
        }
        let last = self.stream.last_serial();
        self.stream.hurry(last);
        if waits {
            return self.wait(Wait::Written);
        }
        let through = *turn.through.get_or_insert(last);
        for id in with_data {
            self.on_disk(id, begun)?;
        }
        self.stable(through)?;
        match self.error.take() {
            Some(errno) => Err(errno.into()),
            None => Ok(()),
        }
    }

    /// `close` by one descriptor: a failure that nobody was told of, once. Data that a capability covers goes on its
    /// way; other data is waited for, so that who opens the file next sees it.
    pub fn flush(&mut self, turn: &mut Turn, fh: Fh, now: Now) -> Step<()> {
        self.stats.operations += 1;
        self.try_flush(turn, fh, now).into()
    }

    fn try_flush(&mut self, turn: &mut Turn, fh: Fh, now: Now) -> Outcome<()> {
        let open = self.opens.get(&fh).ok_or(Errno::EBADF)?;
        let (id, writes) = (open.node, open.access.write);
        if writes {
            if self.node(id)?.held.contains(holdfast_base::CapSet::FILE_X) {
                self.settle(id, false, now);
            } else {
                self.data_sent(turn, id, now)?;
            }
        }
        match self.node_mut(id)?.error.take() {
            Some(errno) => Err(errno.into()),
            None => Ok(()),
        }
    }
}
