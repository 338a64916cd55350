//! Data of files: read and written.

use bytes::Bytes;
use holdfast_base::limits::{
    DIRTY_BYTES_MAX, EXTENTS_MAX, MEM_FILE_BYTES_MAX, SMALL_FILE_BYTES, UNSTABLE_BYTES_MAX,
};

use crate::ask::{Generation, Question};
use crate::errno::Errno;
use crate::extent::Piece;
use crate::fresh::Fresh;
use crate::ids::{Fh, NodeId, Now};
use crate::machine::Machine;
use crate::node::Node;
use crate::step::{Outcome, ReadInto, Step, Turn, Wait, WriteTo};
use crate::tell::Forget;
use holdfast_base::CapSet;

impl Machine {
    /// Reads; the parts follow each other, and are short in sum only where the file ends.
    pub fn read(&mut self, turn: &mut Turn, fh: Fh, offset: u64, length: u32, now: Now) -> Step<Vec<Bytes>> {
        if let Some(id) = self.opens.get(&fh).map(|open| open.node) {
            self.accessed(id);
        }
        let done = self.try_read(turn, fh, (offset, length), now);
        if done.is_ok() {
            self.stats.reads.count(turn.counted.has_asked);
        }
        self.counted(turn, done)
    }

    fn try_read(
        &mut self,
        turn: &mut Turn,
        fh: Fh,
        (offset, length): (u64, u32),
        now: Now,
    ) -> Outcome<Vec<Bytes>> {
        let id = self.opens.get(&fh).ok_or(Errno::EBADF)?.node;
        self.living(id, now)?;
        if let Some(Fresh::Read(at, data, eof)) = turn.take()? {
            if eof || data.is_empty() {
                turn.end_seen = Some(at + data.len() as u64);
            }
            turn.pieces.push(Piece { offset: at, data });
        }
        if turn.passes_cache {
            // The kernel keeps nothing of it, and what was written here before is to be read there.
            self.settled(turn, id, now)?;
            let parts = self.read_unsure(turn, (fh, id), (offset, length), now)?;
            turn.is_uncovered = false;
            return Ok(parts);
        }
        self.note_lent(turn, id, now);
        let (executed, executed_txn) = self.stream.surely_executed();
        let node = self.node_mut(id)?;
        if !node.sure.contains(CapSet::FILE_S) {
            node.pages_covered = false;
            self.cover(turn, (fh, id), (offset, offset.saturating_add(u64::from(length))), now)?;
            return self.read_unsure(turn, (fh, id), (offset, length), now);
        }
        let was_told = std::mem::replace(&mut node.told_data, true);
        // As it was when this began: it may have waited since.
        turn.was_told.get_or_insert(was_told);
        if node.data.moved > turn.read_at {
            // The server's file may have grown since it was seen to end, by what was kept here.
            turn.end_seen = None;
        }
        if std::mem::take(&mut turn.reads_unsure) {
            // What was read before the capability came may be older than the size that is known now.
            turn.pieces.clear();
            turn.end_seen = None;
        }
        let end = offset.saturating_add(u64::from(length)).min(node.attrs.size).max(offset);
        if let Some(whole) = self.clean(id).or_else(|| self.grown(id)) {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(whole.len());
            let to = usize::try_from(end).unwrap_or(usize::MAX).min(whole.len());
            let part = whole.slice(from..to.max(from));
            if !self.is_past_pages(turn, fh) {
                self.clean.was_read(id);
            }
            self.came_for(fh, id, now);
            return Ok(vec![part]);
        }
        self.read_kept(turn, (fh, id), (offset, end), (executed, executed_txn), now)
    }

    /// Reads what a promise covers: what is kept here, and in its holes what the server has.
    fn read_kept(
        &mut self,
        turn: &mut Turn,
        (fh, id): (Fh, NodeId),
        (offset, end): (u64, u64),
        (executed, executed_txn): (u64, u64),
        now: Now,
    ) -> Outcome<Vec<Bytes>> {
        let node = self.node_mut(id)?;
        let mut known = node.data.extents.read(offset, end, node.data.readable_since);
        // Where nothing is kept here, the server's data counts: but not what is cut off by a mutation on its way.
        // What was made, and is not known by its handle yet for want of the result, may have data there all the same.
        let is_there = node.handle.is_some() || node.made.is_some_and(|(txn, _)| txn <= executed_txn);
        let void_from = if is_there { void_from(node, executed) } else { 0 };
        // A small file of which nothing is here is asked for whole, and kept so.
        let is_whole = offset == 0 && known.is_empty() && void_from == u64::MAX;
        let least = if is_whole && node.attrs.size <= SMALL_FILE_BYTES { node.attrs.size } else { 0 };
        let mut parts = Vec::with_capacity(known.len() + 1);
        let mut at = offset;
        known.push(Piece { offset: end, data: Bytes::new() });
        for piece in known {
            while at < piece.offset {
                let part = match part_of_hole(turn, (at, piece.offset), void_from) {
                    None => self.kept_part(turn, id, (at, piece.offset.min(void_from)))?,
                    part => part,
                };
                let Some(part) = part else {
                    if self.is_about_to_come(id, now) {
                        return self.wait(Wait::Ahead);
                    }
                    let (from, mut length) = self.to_be_read(id, (at, piece.offset.min(void_from)));
                    if at == 0 {
                        self.read_missed(fh, id, turn.was_told == Some(true), now);
                        length = length.max(least);
                    }
                    let length = length.min(u64::from(self.settings.io_bytes)) as u32;
                    let (object, open) = (self.handle(turn, id)?, self.token_of(fh, id, false));
                    turn.read_at = self.generation;
                    return self
                        .ask(turn, Question::Read { object, open, offset: from, length, from_disk: false });
                };
                at += part.len() as u64;
                parts.push(part);
            }
            at = at.max(piece.end());
            parts.push(piece.data);
        }
        Ok(parts)
    }

    /// Reads what nothing guarantees: all of it is asked for, and counts once.
    fn read_unsure(
        &mut self,
        turn: &mut Turn,
        (fh, id): (Fh, NodeId),
        (offset, length): (u64, u32),
        now: Now,
    ) -> Outcome<Vec<Bytes>> {
        if !std::mem::replace(&mut turn.reads_unsure, true) {
            // Parts read under a capability that is gone, and parts to come, may not be of one moment.
            let whole = turn.pieces.len() == 1 && turn.pieces[0].data.len() as u64 >= u64::from(length);
            if !whole {
                turn.pieces.clear();
                turn.end_seen = None;
            }
        }
        let done: u64 = turn.pieces.iter().map(|p| p.data.len() as u64).sum();
        let follows = turn.pieces.first().is_none_or(|p| p.offset == offset)
            && turn.pieces.windows(2).all(|w| w[0].end() == w[1].offset);
        if !follows {
            turn.pieces.clear();
            turn.end_seen = None;
        } else if !turn.pieces.is_empty()
            && (done >= u64::from(length) || turn.end_seen == Some(offset + done))
        {
            turn.is_uncovered =
                turn.reads_into != Some(ReadInto::Memory) && !self.is_seen_to(id, turn.unsure_at);
            return Ok(first_of(turn.pieces.drain(..).map(|p| p.data), u64::from(length)));
        }
        let done = if follows { done } else { 0 };
        if done == 0 {
            turn.unsure_at = self.generation;
        }
        self.told_server(turn, id, CapSet::FILE_S, now)?;
        let (object, open) = (self.handle(turn, id)?, self.token_of(fh, id, false));
        let rest = (u64::from(length) - done).min(u64::from(self.settings.io_bytes)) as u32;
        let (offset, from_disk) = (offset + done, turn.goes_to_disk);
        self.ask(turn, Question::Read { object, open, offset, length: rest, from_disk })
    }

    /// Writes; returns how many bytes were taken, all of them unless the server took less. With an open to append, at
    /// the end.
    pub fn write(&mut self, turn: &mut Turn, fh: Fh, offset: u64, data: &Bytes, now: Now) -> Step<u32> {
        let done = self.try_write(turn, fh, offset, data, now);
        if let Ok(count) = done {
            self.stats.bytes_written += u64::from(count);
        }
        self.counted(turn, done)
    }

    fn try_write(&mut self, turn: &mut Turn, fh: Fh, offset: u64, data: &Bytes, now: Now) -> Outcome<u32> {
        let open = self.opens.get(&fh).filter(|o| o.access.write).ok_or(Errno::EBADF)?;
        let (id, is_direct) = (open.node, open.is_direct);
        let append = turn.writes_to.map_or(open.append, |to| to == WriteTo::End);
        self.living(id, now)?;
        if data.is_empty() {
            return Ok(0);
        }
        let fresh = turn.take()?;
        let done = match fresh {
            Some(Fresh::Written(count)) => Some((offset, count)),
            Some(Fresh::Appended(at, count)) => Some((at, count)),
            _ => None,
        };
        if let Some((at, count)) = done {
            if at != offset {
                // The kernel has put the data, if anywhere, where it thought the end was.
                self.invalidate(Forget::Data(id));
            } else if !turn.leaves_nothing && !self.is_seen_to(id, turn.asked_at) {
                // Where the kernel keeps nothing of it there is nothing to drop; and a drop makes it disbelieve the size in an
                // answer to GETATTR that is on its way.
                self.taken_uncovered(id, now);
            }
            return Ok(count);
        }
        self.note_lent(turn, id, now);
        if turn.goes_to_disk {
            // What others write here meanwhile is not waited for.
            let last = self.stream.last_serial();
            turn.through.get_or_insert(last);
            self.file_is_stable(turn, id)?;
        }
        let node = self.node(id)?;
        if self.settings.write_back && node.may_change(CapSet::FILE_X) && node.hidden.is_none() {
            let at = if append { node.attrs.size } else { offset };
            let whole = if append && is_direct { self.known_whole(id) } else { None };
            let written = self.write_here(turn, id, (offset, at), data, now)?;
            if let Some(whole) = whole {
                self.keep_appended(id, whole, data);
            }
            return Ok(written);
        }
        if let Some(want) = self.want_alone(turn, id, now)? {
            let object = self.handle(turn, id)?;
            return self.ask(turn, Question::Acquire { items: vec![(object, want)] });
        }
        self.write_there(turn, (fh, id, append), fresh.as_ref(), (offset, data), now)
    }

    /// Has the server write.
    fn write_there(
        &mut self,
        turn: &mut Turn,
        (fh, id, append): (Fh, NodeId, bool),
        fresh: Option<&Fresh>,
        (offset, data): (u64, &Bytes),
        now: Now,
    ) -> Outcome<u32> {
        let range = (offset, offset.saturating_add(data.len() as u64));
        turn.leaves_nothing = !Self::leaves_pages(range);
        self.cover(turn, (fh, id), range, now)?;
        self.overtake_none(turn)?;
        self.data_sent(turn, id, now)?;
        let most = data.len().min(self.settings.io_bytes as usize);
        let mut at = offset;
        if append && self.settings.caps {
            self.room_for_unstable(id)?;
            let (object, open) = (self.handle(turn, id)?, self.token_of(fh, id, true));
            return self.ask(turn, Question::Append { object, open, data: data.slice(..most) });
        }
        if append {
            if self.node(id)?.changing > 0 {
                return self.wait(Wait::Written);
            }
            at = self.fresh_attrs(turn, id, fresh, now)?.size;
        }
        self.room_for_unstable(id)?;
        if at != offset {
            self.invalidate(Forget::Data(id));
        }
        let (object, open) = (self.handle(turn, id)?, self.token_of(fh, id, true));
        let (data, stable) = (data.slice(..most), turn.goes_to_disk && self.may_be_stable(id));
        self.ask(turn, Question::Write { object, open, offset: at, data, stable })
    }

    /// Waits until there is not too much that the server may lose.
    fn room_for_unstable(&mut self, id: NodeId) -> Outcome<()> {
        if self.flush.unstable > UNSTABLE_BYTES_MAX {
            self.commit_now(id);
            return self.wait(Wait::Room);
        }
        Ok(())
    }

    /// Takes data to be sent later.
    fn write_here(
        &mut self,
        turn: &Turn,
        id: NodeId,
        (offset, at): (u64, u64),
        data: &Bytes,
        now: Now,
    ) -> Outcome<u32> {
        let len = data.len() as u64;
        let end = at.checked_add(len).filter(|e| *e <= MEM_FILE_BYTES_MAX).ok_or(Errno::EFBIG)?;
        let is_scattered = self.node(id)?.data.extents.len() > EXTENTS_MAX;
        if is_scattered {
            self.commit_now(id);
        }
        if is_scattered || self.flush.unsent + len > DIRTY_BYTES_MAX {
            self.settle(id, true, now);
            return self.wait(Wait::Room);
        }
        self.keep_whole(id);
        if turn.goes_to_disk {
            self.keep_for_disk(id, (at, end));
        }
        let allocated = allocated_after(self.node(id)?, at, end);
        self.keep_dirty(id, at, data, &turn.caller, now);
        let node = self.node_mut(id)?;
        node.told_data = true;
        node.attrs.size = node.attrs.size.max(end);
        node.attrs.allocated = allocated;
        node.attrs.mtime = now.wall;
        node.attrs.ctime = now.wall;
        if at != offset {
            // The kernel has put the data where it thought the end was.
            self.invalidate(Forget::Data(id));
        }
        Ok(data.len() as u32)
    }

    /// Waits until the server has what was done to the node before this operation began.
    pub(crate) fn settled(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Outcome<()> {
        self.data_sent(turn, id, now)?;
        let last = self.node(id)?.last_serial;
        let through = *turn.through.get_or_insert(last);
        self.executed(through)
    }

    /// Waits until the server has all data written before: before a lock is given back.
    pub fn written(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Step<()> {
        self.settled(turn, id, now).into()
    }

    /// The same for a write that is to have been done by the server when it returns (`O_DIRECT`), with what it says to it.
    pub fn written_by(&mut self, turn: &mut Turn, fh: Fh, now: Now) -> Step<()> {
        self.try_written_by(turn, fh, now).into()
    }

    fn try_written_by(&mut self, turn: &mut Turn, fh: Fh, now: Now) -> Outcome<()> {
        let id = self.opens.get(&fh).ok_or(Errno::EBADF)?.node;
        self.settled(turn, id, now)?;
        if turn.goes_to_disk {
            // What was appended where the server knew, or kept here before, may be in its memory alone.
            let begun = *turn.begun.get_or_insert(self.generation);
            self.on_disk(&[id], begun)?;
            self.file_is_stable(turn, id)?;
        }
        self.tell_losses(id, Some(fh))
    }
}

/// From where on the server's data of a file is void, though it may still be there.
fn void_from(node: &mut Node, executed: u64) -> u64 {
    let truncations = &mut node.data.truncations;
    truncations.retain(|(_, serial)| *serial > executed);
    truncations.iter().map(|(from, _)| *from).min().unwrap_or(u64::MAX)
}

/// What file systems mostly give their files at once.
pub(super) const BLOCK: u64 = 4096;

/// What a file takes on a disk once this range of it is written, as far as can be told from here: what is sure to be taken,
/// and never more than without holes. `cp` and `tar` look for holes in a file that takes less than its size, and in no other.
fn allocated_after(node: &Node, at: u64, end: u64) -> u64 {
    let (first, last) = (at - at % BLOCK, end.next_multiple_of(BLOCK));
    let (had, old_end) = (node.attrs.allocated, node.attrs.size.next_multiple_of(BLOCK));
    let beyond = last.saturating_sub(first.max(old_end));
    let inner_end = last.min(old_end);
    if had >= old_end || first >= inner_end {
        return had + beyond;
    }
    // It has holes: what is written is taken to fill one, but where something was written before.
    let pieces = node.data.extents.read(first, inner_end, Generation::default());
    let known: u64 = pieces.iter().map(|p| p.end().next_multiple_of(BLOCK) - p.offset / BLOCK * BLOCK).sum();
    let filled = (inner_end - first).saturating_sub(known);
    (had + filled).min(old_end) + beyond
}

/// So many bytes of them: a small file is asked for whole.
fn first_of(parts: impl Iterator<Item = Bytes>, mut length: u64) -> Vec<Bytes> {
    let cut = |mut part: Bytes| {
        part.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        length -= part.len() as u64;
        part
    };
    parts.map(cut).filter(|part| !part.is_empty()).collect()
}

/// A part of a hole, from its beginning: out of what answers brought, or zeros where the server's file does not reach
/// or is void.
fn part_of_hole(turn: &Turn, (start, end): (u64, u64), void_from: u64) -> Option<Bytes> {
    let zero = start >= void_from || turn.end_seen.is_some_and(|seen| seen <= start);
    let here = turn.pieces.iter().find(|p| p.offset <= start && start < p.end());
    if let (Some(piece), false) = (here, start >= void_from) {
        let from = (start - piece.offset) as usize;
        let to = (piece.end().min(end).min(void_from) - piece.offset) as usize;
        return Some(piece.data.slice(from..to));
    }
    if zero {
        let zeros = (end - start).min(ZEROS.len() as u64) as usize;
        return Some(Bytes::from_static(&ZEROS[..zeros]));
    }
    None
}

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
