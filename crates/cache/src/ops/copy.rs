//! Copies between files: on the server, or here where that is as well.

use holdfast_base::CapSet;
use holdfast_base::limits::SMALL_FILE_BYTES;

use crate::ask::Question;
use crate::errno::Errno;
use crate::fresh::Fresh;
use crate::ids::{Fh, Now};
use crate::machine::Machine;
use crate::step::{Outcome, Step, Turn};

impl Machine {
    /// How much a copy is of, if it is as well made here, by a read and a write: of a small file, which is kept whole when it was read,
    /// into one that may be changed here, and of what is behind a file's end. `None`: the server is to copy, which needs both files, and
    /// what they were made by on its disk.
    #[must_use]
    pub fn copied_here(&self, from: (Fh, u64), to: Fh, length: u64) -> Option<u32> {
        let (source, target) = (self.opens.get(&from.0)?, self.opens.get(&to)?);
        let node =
            self.nodes.get(&source.node).filter(|n| n.dead.is_none() && n.sure.contains(CapSet::FILE_S))?;
        let count = u32::try_from(node.attrs.size.saturating_sub(from.1).min(length)).ok()?;
        let may_write = target.access.write && !target.is_direct && self.settings.write_back;
        let may_change = || self.nodes.get(&target.node).is_some_and(|n| n.may_change(CapSet::FILE_X));
        let is_here = source.access.read && node.attrs.size <= SMALL_FILE_BYTES && may_write && may_change();
        (count == 0 || is_here).then_some(count)
    }

    /// Copies between two files on the server. Returns how much was copied.
    pub fn copy(
        &mut self,
        turn: &mut Turn,
        from: (Fh, u64),
        to: (Fh, u64),
        length: u64,
        now: Now,
    ) -> Step<u64> {
        let done = self.try_copy(turn, from, to, length, now);
        self.counted(turn, done)
    }

    fn try_copy(
        &mut self,
        turn: &mut Turn,
        (from, from_offset): (Fh, u64),
        (to, to_offset): (Fh, u64),
        length: u64,
        now: Now,
    ) -> Outcome<u64> {
        let source = self.opens.get(&from).ok_or(Errno::EBADF)?.node;
        let target = self.opens.get(&to).filter(|o| o.access.write).ok_or(Errno::EBADF)?.node;
        self.living(source, now)?;
        self.living(target, now)?;
        if let Some(Fresh::Copied(count)) = turn.take()? {
            return Ok(count);
        }
        self.overtake_none(turn)?;
        self.data_sent(turn, source, now)?;
        self.data_sent(turn, target, now)?;
        self.fill_is_stable(turn, target)?;
        let question = Question::Copy {
            from: self.handle(turn, source)?,
            from_open: self.token_of(from, source, false),
            from_offset,
            to: self.handle(turn, target)?,
            to_open: self.token_of(to, target, true),
            to_offset,
            length,
        };
        self.ask(turn, question)
    }
}
