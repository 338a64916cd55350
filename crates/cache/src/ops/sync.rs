//! Waiting until things are on disk; and being told what failed after it had returned.

use holdfast_base::limits::SMALL_FILE_BYTES;
use rustc_hash::FxHashSet;

use crate::ask::Generation;
use crate::errno::Errno;
use crate::extent::Progress;
use crate::ids::{Fh, NodeId, Now};
use crate::machine::Machine;
use crate::node::FileData;
use crate::step::{Outcome, Step, Stop, Turn, Wait};
use crate::writes::is_small;

/// Whether data that was written up to `born` is with the server and not committed.
fn is_unstable(data: &FileData, born: Generation) -> bool {
    let is_unstable = |p, b| b <= born && matches!(p, Progress::Unstable { .. });
    data.extents.weights().unstable > 0 && data.extents.any(is_unstable)
}

impl Machine {
    /// Puts a file, its name included, on the server's disk, or a directory's names. The first failure that this open was
    /// not told of, once; of what was before it, that nobody was told of. Without an open, that nobody was told of.
    pub fn fsync(&mut self, turn: &mut Turn, id: NodeId, fh: Option<Fh>, now: Now) -> Step<()> {
        let done = self.try_fsync(turn, id, (fh, true), now);
        self.counted(turn, done)
    }

    /// The same without the modification time (`fdatasync`): who writes little and often waits half as long.
    pub fn fdatasync(&mut self, turn: &mut Turn, id: NodeId, fh: Option<Fh>, now: Now) -> Step<()> {
        let done = self.try_fsync(turn, id, (fh, false), now);
        self.counted(turn, done)
    }

    fn try_fsync(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        (fh, with_times): (Option<Fh>, bool),
        now: Now,
    ) -> Outcome<()> {
        let generation = self.generation;
        if turn.begun.is_none() {
            self.go_to_disk_at_once(id)?;
        }
        let begun = *turn.begun.get_or_insert(generation);
        if self.node(id)?.dead.is_some() {
            self.tell_losses(id, fh)?;
        }
        self.data_sent_to_disk((id, begun), with_times, now)?;
        if with_times && self.node(id)?.data.mtime_owed {
            self.pay_mtime(id, now);
        }
        let through = match turn.through {
            Some(through) => through,
            None => *turn.through.insert(self.last_needed(id, with_times)?),
        };
        // Both are under way at once.
        self.want_stable(through);
        self.on_disk(&[id], begun)?;
        self.stable(through)?;
        self.tell_losses(id, fh)
    }

    /// Waits until what was written before was sent. What goes with the stream is to be on disk when that is answered.
    fn data_sent_to_disk(
        &mut self,
        (id, begun): (NodeId, Generation),
        with_times: bool,
        now: Now,
    ) -> Outcome<()> {
        if !self.node(id)?.has_unsent(begun) {
            return Ok(());
        }
        self.settle(id, true, now);
        if self.node(id)?.data.carrier.is_some() {
            let through = self.last_needed(id, with_times)?;
            self.want_stable(through);
        }
        self.wait(Wait::Written)
    }

    /// One short run of bytes goes by a WRITE that is answered when it is on the disk, in place of one and a COMMIT. Not without batches,
    /// which bring the times there.
    fn go_to_disk_at_once(&mut self, id: NodeId) -> Outcome<()> {
        let node = self.node(id)?;
        let goes_with_the_stream =
            self.settings.batches && is_small(&node.data) && node.attrs.size <= SMALL_FILE_BYTES;
        // Where there is a journal all that is written is compared first.
        let may_go = self.settings.batches && self.journal.is_none() && !goes_with_the_stream;
        let most = u64::from(self.settings.io_bytes);
        let run = node.data.one_run().filter(|(from, to)| may_go && to - from <= most);
        self.node_mut(id)?.data.forced = run;
        Ok(())
    }

    /// The last mutation about an object; without those that do nothing but set the modification time behind what was written.
    fn last_needed(&self, id: NodeId, with_times: bool) -> Outcome<u64> {
        let node = self.node(id)?;
        let paid = node.data.mtime_paid.filter(|(_, last)| !with_times && *last == node.last_serial);
        Ok(paid.map_or(node.last_serial, |(before, _)| before))
    }

    /// The same of what is known by now, whatever is still to be put on disk.
    ///
    /// # Errors
    /// That.
    pub fn losses(&mut self, id: NodeId, fh: Fh) -> Result<(), Errno> {
        match self.tell_losses(id, Some(fh)) {
            Err(Stop::Failed(errno)) => Err(errno),
            _ => Ok(()),
        }
    }

    /// Fails with what was lost of an object and this open has not heard of.
    pub(super) fn tell_losses(&mut self, id: NodeId, fh: Option<Fh>) -> Outcome<()> {
        if self.node(id)?.losses.is_empty() {
            return Ok(());
        }
        let node = self.nodes.get_mut(&id).ok_or(Errno::ESTALE)?;
        let open = fh.and_then(|fh| self.opens.get_mut(&fh)).filter(|open| open.node == id);
        let told = match open {
            Some(open) => node.losses.tell(&mut open.heard),
            None => node.losses.tell_nobody(),
        };
        told.map_or(Ok(()), |errno| Err(errno.into()))
    }

    /// Waits until WRITEs that were done before are committed; of all these files together.
    pub(super) fn on_disk(&mut self, ids: &[NodeId], begun: Generation) -> Outcome<()> {
        let (mut waits, mut due) = (false, FxHashSet::default());
        for id in ids {
            let data = &self.node(*id)?.data;
            if !is_unstable(data, begun) {
                continue;
            }
            waits = true;
            if data.committing.is_none_or(|(_, at)| at <= begun) {
                due.insert(*id);
            }
        }
        if !waits {
            return Ok(());
        }
        self.commit_all_now(&due);
        self.wait(Wait::Stable)
    }

    /// Waits until what was sent that fills or cuts a file is on the server's disk, before the server changes its data by itself:
    /// that is durable and kept nowhere here, and a batch that came again after a loss of power would undo it. What is sent while the
    /// operation waits is as good as behind it, and is not waited for, be there ever so much of it.
    pub(super) fn fill_is_stable(&mut self, turn: &Turn, id: NodeId) -> Outcome<()> {
        let begun = self.begun_behind(turn);
        let filled = self.node(id)?.data.filled_by;
        self.stable(filled.min(begun))
    }

    /// The same, and of what has made it.
    pub(super) fn file_is_stable(&mut self, turn: &Turn, id: NodeId) -> Outcome<()> {
        self.handle(turn, id)?;
        if self.stream.has_made(id) {
            let executed = self.stream.executed();
            self.stable(executed)?;
        }
        self.fill_is_stable(turn, id)
    }

    /// The same of names, before the server changes them by itself: a batch that came again would find free what it had made and
    /// has been moved on, and make it twice, or miss what it had moved.
    pub(super) fn names_are_stable(&mut self, turn: &Turn, names: &[(NodeId, &[u8])]) -> Outcome<()> {
        let stable = self.stream.stable();
        let is_due = |(dir, _): &(NodeId, &[u8])| self.nodes.get(dir).is_some_and(|n| n.last_serial > stable);
        if !names.iter().any(is_due) {
            return Ok(());
        }
        let begun = self.begun_behind(turn);
        self.stable(self.stream.last_change_of(names, begun))
    }

    /// The same of attributes that were set, before the server sets them by itself: a batch that came again would set them back.
    pub(super) fn settings_are_stable(&mut self, turn: &Turn, id: NodeId) -> Outcome<()> {
        if self.node(id)?.last_serial <= self.stream.stable() {
            return Ok(());
        }
        let begun = self.begun_behind(turn);
        self.stable(self.stream.last_setting_of(id, begun))
    }

    /// The last mutation that an operation comes behind.
    fn begun_behind(&self, turn: &Turn) -> u64 {
        turn.through.map_or(u64::MAX, |through| self.stream.placed(through))
    }

    fn stable(&mut self, through: u64) -> Outcome<()> {
        if self.want_stable(through) {
            return Ok(());
        }
        self.wait(Wait::Stable)
    }

    /// Has it asked for. Says whether it is so.
    fn want_stable(&mut self, through: u64) -> bool {
        let through = self.stream.placed(through);
        let is_stable = self.stream.stable() >= through;
        if !is_stable {
            self.stream.hurry(through);
            self.stream.wanted_stable = self.stream.wanted_stable.max(through);
        }
        is_stable
    }

    /// Puts everything on the server's disk. The first failure since the last time.
    pub fn sync(&mut self, turn: &mut Turn, now: Now) -> Step<()> {
        let done = self.try_sync(turn, now);
        self.counted_here(turn, done)
    }

    fn try_sync(&mut self, turn: &mut Turn, now: Now) -> Outcome<()> {
        let generation = self.generation;
        let begun = *turn.begun.get_or_insert(generation);
        // Who waits is called at each answer, and there may be a hundred thousand files: until one of them is done, the others are
        // not looked at again.
        if let Some(id) = turn.awaited.filter(|id| self.nodes.contains_key(id)) {
            if self.node(id)?.has_unsent(begun) {
                self.settle(id, true, now);
                return self.wait(Wait::Written);
            }
            if turn.through.is_some() {
                self.on_disk(&[id], begun)?;
            }
        }
        turn.awaited = None;
        if let Some(through) = turn.through {
            self.stable(through)?;
        }
        let with_data: Vec<NodeId> = self
            .nodes
            .values()
            .filter(|n| !n.data.extents.is_empty() || n.data.mtime_owed)
            .map(|n| n.id)
            .collect();
        let mut waits_for = None;
        for id in &with_data {
            let node = self.node(*id)?;
            if node.has_unsent(begun) {
                waits_for = waits_for.max(Some((node.last_serial, *id)));
                self.settle(*id, true, now);
            } else if node.data.mtime_owed {
                self.pay_mtime(*id, now);
            }
        }
        let last = self.stream.last_serial();
        self.stream.hurry(last);
        if let Some((_, id)) = waits_for {
            turn.awaited = Some(id);
            return self.wait(Wait::Written);
        }
        let through = *turn.through.get_or_insert(last);
        turn.awaited = with_data
            .iter()
            .copied()
            .find(|id| self.nodes.get(id).is_some_and(|n| is_unstable(&n.data, begun)));
        self.on_disk(&with_data, begun)?;
        self.stable(through)?;
        Ok(self.losses_at_sync()?)
    }

    /// What a `sync` tells, whatever is still to be put on disk.
    ///
    /// # Errors
    /// The first failure since the last time.
    pub fn losses_at_sync(&mut self) -> Result<(), Errno> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// `close` by one descriptor. Who may write is told what was lost since the open, as long as no `fsync` has told it.
    /// Data that a capability covers goes on its way; other data is waited for, so that who opens the file next sees it.
    pub fn flush(&mut self, turn: &mut Turn, fh: Fh, now: Now) -> Step<()> {
        let done = self.try_flush(turn, fh, now);
        self.counted_here(turn, done)
    }

    fn try_flush(&mut self, turn: &mut Turn, fh: Fh, now: Now) -> Outcome<()> {
        let open = self.opens.get(&fh).ok_or(Errno::EBADF)?;
        let id = open.node;
        if !open.access.write {
            return Ok(());
        }
        if self.node(id)?.held.contains(holdfast_base::CapSet::FILE_X) {
            self.settle(id, false, now);
        } else {
            self.data_sent(turn, id, now)?;
        }
        Ok(self.losses_at_close(fh)?)
    }

    /// What a `close` tells, whatever has still to be sent.
    ///
    /// # Errors
    /// The first failure since the open, for who may write.
    pub fn losses_at_close(&self, fh: Fh) -> Result<(), Errno> {
        let Some(open) = self.opens.get(&fh).filter(|open| open.access.write) else { return Ok(()) };
        let lost = self.nodes.get(&open.node).and_then(|node| node.losses.at_close(open.heard));
        lost.map_or(Ok(()), Err)
    }
}
