//! Room of files: reserved, freed, made zeros, and where data and holes are.

use crate::ask::{AllocateMode, Question, SeekKind};
use crate::errno::Errno;
use crate::fresh::Fresh;
use crate::ids::{Fh, NodeId, Now};
use crate::machine::Machine;
use crate::ops::data::BLOCK;
use crate::step::{Outcome, Step, Stop, Turn, Wait};
use crate::tell::Forget;
use holdfast_base::CapSet;

impl Machine {
    /// Reserves, frees or zeroes space; always at the server.
    pub fn allocate(
        &mut self,
        turn: &mut Turn,
        fh: Fh,
        mode: AllocateMode,
        (offset, length): (u64, u64),
        now: Now,
    ) -> Step<()> {
        let done = self.try_allocate(turn, fh, mode, (offset, length), now);
        self.counted(turn, done)
    }

    fn try_allocate(
        &mut self,
        turn: &mut Turn,
        fh: Fh,
        mode: AllocateMode,
        (offset, length): (u64, u64),
        now: Now,
    ) -> Outcome<()> {
        let id = self.opens.get(&fh).filter(|o| o.access.write).ok_or(Errno::EBADF)?.node;
        self.living(id, now)?;
        match turn.take() {
            Ok(Some(Fresh::Done)) => return Ok(()),
            Err(Stop::Failed(errno)) if mode.is_in_steps() => self.half_done(turn, id, errno),
            other => drop(other?),
        }
        if let Some(errno) = turn.failed {
            let is_forgotten = turn.forgets.is_none_or(|number| number <= self.invalidated);
            return Err(if is_forgotten { errno.into() } else { Stop::Wait(Wait::Forgotten) });
        }
        self.overtake_none(turn)?;
        self.data_sent(turn, id, now)?;
        self.fill_is_stable(turn, id)?;
        let (object, open) = (self.handle(turn, id)?, self.token_of(fh, id, true));
        self.ask(turn, Question::Allocate { object, open, mode, offset, length })
    }

    /// A change in steps has failed, of which the first may be done: nobody is told before the kernel has dropped what it kept of the
    /// file, which it does by itself only after a change that succeeds.
    fn half_done(&mut self, turn: &mut Turn, id: NodeId, errno: Errno) {
        self.invalidate(Forget::Data(id));
        (turn.failed, turn.forgets) = (Some(errno), Some(self.last_invalidation));
    }

    /// Finds the next data or hole; at the server where not all of the file is known here. ENXIO behind the end.
    pub fn seek(&mut self, turn: &mut Turn, fh: Fh, offset: u64, kind: SeekKind, now: Now) -> Step<u64> {
        let done = self.try_seek(turn, fh, offset, kind, now);
        self.counted(turn, done)
    }

    fn try_seek(&mut self, turn: &mut Turn, fh: Fh, offset: u64, kind: SeekKind, now: Now) -> Outcome<u64> {
        let id = self.opens.get(&fh).ok_or(Errno::EBADF)?.node;
        self.living(id, now)?;
        if let Some(Fresh::Sought(offset)) = turn.take()? {
            return Ok(offset);
        }
        if let Some(found) = self.seek_here(id, offset, kind) {
            return found.map_err(Into::into);
        }
        self.settled(turn, id, now)?;
        let (object, open) = (self.handle(turn, id)?, self.token_of(fh, id, false));
        self.ask(turn, Question::Seek { object, open, offset, kind })
    }

    /// Where data or a hole is in a file that the server does not know yet, or of which all is kept here: that is data
    /// throughout, as any file may be said to be.
    fn seek_here(&self, id: NodeId, offset: u64, kind: SeekKind) -> Option<Result<u64, Errno>> {
        let node = self.nodes.get(&id).filter(|n| n.sure.contains(CapSet::FILE_S))?;
        let size = node.attrs.size;
        if offset >= size {
            return Some(Err(Errno::ENXIO));
        }
        let is_unmade = node.handle.is_none() && node.made.is_none();
        if !is_unmade {
            self.clean(id)?;
            return Some(Ok(if kind == SeekKind::Data { offset } else { size }));
        }
        // In whole blocks, as everywhere: there are programs that find out how large one is by this.
        let pieces = node.data.extents.read(offset - offset % BLOCK, size, node.data.readable_since);
        if kind == SeekKind::Data {
            let data = pieces.first().map(|p| offset.max(p.offset - p.offset % BLOCK));
            return Some(data.ok_or(Errno::ENXIO));
        }
        let mut end = offset;
        for piece in &pieces {
            if piece.offset - piece.offset % BLOCK > end {
                break;
            }
            end = piece.end().next_multiple_of(BLOCK).min(size);
        }
        Some(Ok(end))
    }
}
