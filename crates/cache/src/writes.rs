//! Data on its way: what is kept back, when it has to go, by batch or by WRITE.

use std::collections::VecDeque;

use bytes::Bytes;
use holdfast_base::Instant;
use holdfast_base::limits::{SMALL_FILE_BYTES, SMALL_FILE_PIECES_MAX, UNSYNCED_AGE_MS};
use rustc_hash::FxHashMap;

use crate::ask::Generation;
use crate::attrs::{Changes, SetTime};
use crate::errno::Errno;
use crate::extent::Progress;
use crate::ids::{Caller, Handle, NodeId, Now};
use crate::machine::Machine;
use crate::mutation::{WriteId, WriteOut};
use crate::node::FileData;
use crate::queue::Op;
use crate::tell::{Forget, Report};
use holdfast_base::CapSet;

/// Files that have data to be sent or committed.
#[derive(Debug, Default)]
pub(crate) struct Flush {
    pub(crate) bulk: VecDeque<NodeId>,
    pub(crate) commits: VecDeque<(Instant, NodeId)>,
    pub(crate) aging: VecDeque<(Instant, NodeId)>,
    pub(crate) on_the_way: FxHashMap<WriteId, NodeId>,
    pub(crate) last_id: u64,
    pub(crate) unsent: u64,
    pub(crate) unstable: u64,
    /// Files with data that the server has lost, and its verifier since; see `rewrites.rs`.
    pub(crate) rewrites: FxHashMap<NodeId, u64>,
}

/// What came of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Bytes taken.
    pub count: u32,
    /// They are on disk.
    pub stable: bool,
    /// The server's write verifier.
    pub verifier: u64,
}

impl Machine {
    /// Works on a file's data and keeps the sums right.
    pub(crate) fn with_data<R>(&mut self, id: NodeId, work: impl FnOnce(&mut FileData) -> R) -> Option<R> {
        let data = &mut self.nodes.get_mut(&id)?.data;
        let before = data.extents.weights();
        let result = work(data);
        let after = data.extents.weights();
        self.flush.unsent = self.flush.unsent + after.unsent - before.unsent;
        self.flush.unstable = self.flush.unstable + after.unstable - before.unstable;
        Some(result)
    }

    /// Takes over what an application wrote under `FILE_X`.
    pub(crate) fn keep_dirty(&mut self, id: NodeId, offset: u64, bytes: &[u8], caller: &Caller, now: Now) {
        self.need_open_no_more(id);
        let born = self.tick();
        self.pledged_gives_way(id, (offset, offset + bytes.len() as u64));
        if let Some(node) = self.nodes.get_mut(&id) {
            node.is_theirs = false;
            node.data.differs(born);
        }
        let aging = self.with_data(id, |data| {
            data.extents.write(offset, bytes, born);
            if data.writer.as_ref() != Some(caller) {
                data.writer = Some(caller.clone());
            }
            !std::mem::replace(&mut data.is_aging, true)
        });
        if aging == Some(true) {
            self.flush.aging.push_back((now.mono.after_ms(UNSYNCED_AGE_MS), id));
        }
        let large =
            self.nodes.get(&id).is_some_and(|n| n.data.extents.weights().unsent > 4 * SMALL_FILE_BYTES);
        if large {
            self.send_early(id, now);
        }
    }

    /// Much of a file is dirty, and nobody wants it to go. What is large is sent at once, so that the line is not idle until somebody does:
    /// a small write costs as much to send, and may be one of many that fill a stretch in whatever order.
    fn send_early(&mut self, id: NodeId, now: Now) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        // Of what is in the queue already, and kept nothing back, all goes on going.
        node.data.keeps_back |= !node.data.in_bulk;
        if !node.data.keeps_back {
            self.settle(id, false, now);
        } else if node.data.is_to_go() && !node.data.in_bulk {
            self.settle(id, false, now);
            if let Some(node) = self.nodes.get_mut(&id) {
                node.data.keeps_back = node.data.in_bulk;
            }
        }
    }

    /// What is about to be taken over in `start..end` is not to be kept back, nor by the server.
    pub(crate) fn keep_for_disk(&mut self, id: NodeId, (start, end): (u64, u64)) {
        if let Some(node) = self.nodes.get_mut(&id) {
            let (from, to) = node.data.to_disk.unwrap_or((start, end));
            node.data.to_disk = Some((from.min(start), to.max(end)));
        }
    }

    /// Keeps what was written unstably, until it is committed.
    pub(crate) fn keep_unstable(
        &mut self,
        handle: &Handle,
        (offset, bytes): (u64, Bytes),
        verifier: u64,
        (caller, asked): (Caller, Generation),
        now: Now,
    ) {
        let Some(id) = self.handles.get(handle).copied() else { return };
        let since = self.tick();
        self.pledged_gives_way(id, (offset, offset + bytes.len() as u64));
        self.with_data(id, |data| {
            data.written_over = data.filled_by;
            data.extents.cut(offset, offset + bytes.len() as u64);
            data.extents.put_below(offset, &bytes, Progress::Unstable { verifier, since }, asked);
            data.writer = Some(caller);
        });
        self.compare_verifiers(id, verifier, now);
        self.commit_later(id, now.mono.after_ms(UNSYNCED_AGE_MS));
    }

    /// Forgets data behind the end of a file that was truncated at the server.
    pub(crate) fn cut_kept(&mut self, id: NodeId, size: u64) {
        self.cut_blocks(id, size);
        self.with_data(id, |data| data.extents.cut(size, u64::MAX));
    }

    /// A file's data is to be sent: with the stream when it is small, else beside it. `urgent`: somebody waits.
    pub(crate) fn settle(&mut self, id: NodeId, urgent: bool, now: Now) {
        let batches = self.settings.batches;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.dead.is_some() {
            self.with_data(id, |d| d.extents.turn(|_, _| None));
            return;
        }
        let data = &mut node.data;
        data.keeps_back = false;
        let making = if node.handle.is_none() { node.last_serial } else { 0 };
        // What makes or truncates the file goes before its data.
        let before = data.barrier.max(making);
        if !data.extents.has_dirty() {
            if urgent {
                self.stream.hurry(before);
            }
            return;
        }
        let small = batches && is_small(data) && node.attrs.size <= SMALL_FILE_BYTES;
        let made_later = node.unsent.iter().any(|s| data.carrier == Some(*s));
        let carried = made_later && small;
        if !small {
            if !std::mem::replace(&mut data.in_bulk, true) {
                self.flush.bulk.push_back(id);
            }
            // Batches are looked for before data: heard of by the look for this data, they would wait for the next one.
            self.stream.need(before);
            return;
        }
        let carrier = data.carrier.filter(|_| carried);
        let caller = data.writer.clone().unwrap_or_else(|| Caller::new(0, 0));
        let mtime = node.attrs.mtime;
        let serial = match carrier {
            Some(serial) => serial,
            None => {
                let op = Op::Write { node: id, load: crate::queue::Load::default(), mtime };
                let serial = self.queue(op, &caller, now);
                self.with_data(id, |data| data.carrier = Some(serial));
                serial
            }
        };
        if urgent {
            self.stream.hurry(serial);
        }
    }

    /// Sends the modification time that was shown, after WRITEs have set another.
    pub(crate) fn pay_mtime(&mut self, id: NodeId, now: Now) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let gone = node.dead.is_some() || (node.attrs.nlink == 0 && !node.is_nameless);
        if !std::mem::take(&mut node.data.mtime_owed) || !self.settings.batches || gone {
            return;
        }
        let caller = node.data.writer.clone().unwrap_or_else(|| Caller::new(0, 0));
        let changes = Changes { mtime: Some(SetTime::At(node.attrs.mtime)), ..Changes::default() };
        let before = node.last_serial;
        let last = node.unsent.last().and_then(|serial| self.stream.unsent_mut(*serial));
        // Who writes and syncs a thousand times a second owes one time in the end.
        if let Some(queued) = last.filter(|queued| queued.caller == caller)
            && let Op::SetAttr { changes: earlier, .. } = &mut queued.op
            && earlier.size.is_none()
        {
            earlier.merge(&changes);
            self.stats.mutations_merged += 1;
            return;
        }
        let paid = self.queue(Op::SetAttr { node: id, changes }, &caller, now);
        self.with_data(id, |data| {
            let first =
                data.mtime_paid.filter(|(_, last)| *last == before).map_or(before, |(first, _)| first);
            data.mtime_paid = Some((first, paid));
        });
    }

    /// Data to be written now, if there is any and not too much is under way.
    pub fn take_write(&mut self, now: Now) -> Option<WriteOut> {
        if self.stream.is_held {
            return None;
        }
        self.settle_aged(now);
        if self.flush.on_the_way.len() >= self.settings.writes_in_flight_max {
            return None;
        }
        for _ in 0..self.flush.bulk.len() {
            let id = self.flush.bulk.pop_front()?;
            let (out, stays) = self.take_write_of(id);
            if stays {
                self.flush.bulk.push_back(id);
            } else if let Some(node) = self.nodes.get_mut(&id) {
                node.data.in_bulk = false;
            }
            if out.is_some() {
                return out;
            }
        }
        None
    }

    fn settle_aged(&mut self, now: Now) {
        while let Some((due, id)) = self.flush.aging.front().copied() {
            let pressed = self.flush.unsent > holdfast_base::limits::DIRTY_BYTES_MAX / 2;
            if due > now.mono && !pressed {
                return;
            }
            self.flush.aging.pop_front();
            if let Some(node) = self.nodes.get_mut(&id) {
                node.data.is_aging = false;
            }
            self.settle(id, true, now);
        }
    }

    /// The next data of one file, and whether there may be more later.
    fn take_write_of(&mut self, id: NodeId) -> (Option<WriteOut>, bool) {
        let executed = self.stream.executed();
        let is_unsettled = self.nodes.get(&id).is_some_and(|n| n.data.is_doubted) && self.stream.has_made(id);
        if is_unsettled {
            self.stream.wanted_stable = self.stream.wanted_stable.max(executed);
            return (None, true);
        }
        let Some(node) = self.nodes.get_mut(&id) else { return (None, false) };
        node.data.is_doubted = false;
        let Some(handle) = node.handle.clone().filter(|_| node.data.barrier <= executed) else {
            let through = node.data.barrier.max(node.last_serial);
            let alive = node.dead.is_none();
            self.stream.need(through);
            return (None, alive);
        };
        let caller = node.data.writer.clone().unwrap_or_else(|| Caller::new(0, 0));
        let busy: Vec<_> = node.data.in_flight.iter().map(|(_, s, e)| (*s, *e)).collect();
        self.flush.last_id += 1;
        let write = WriteId(self.flush.last_id);
        let max = self.settings.io_bytes as usize;
        let take = |data: &mut FileData| data.extents.take_for_write(write, (&busy, data.keeps_back), max);
        let piece = self.with_data(id, take).flatten();
        let more = self.nodes.get(&id).is_some_and(|n| n.data.is_to_go());
        let Some(piece) = piece else { return (None, more) };
        if let Some(node) = self.nodes.get_mut(&id) {
            node.data.in_flight.push((write, piece.offset, piece.end()));
            node.data.written_over = node.data.filled_by;
            node.data.mtime_owed |= node.held.contains(CapSet::FILE_X) || node.recall.is_some();
        }
        self.clocked(id);
        self.flush.on_the_way.insert(write, id);
        let open = self.token_by(id, &caller);
        // What was written while the server was away is compared before it goes out.
        let is_bound = self.journal.is_none();
        let place = (piece.offset, piece.end());
        let past_memory = self.goes_past_memory(id, place);
        let forced = self.nodes.get_mut(&id).and_then(|node| node.data.forced.take());
        let to_disk = past_memory || (forced == Some(place) && self.may_be_stable(id));
        let (offset, data) = (piece.offset, piece.data);
        let out = WriteOut {
            id: write,
            object: handle,
            open,
            caller,
            offset,
            data,
            is_bound,
            to_disk,
            past_memory,
        };
        (Some(out), more)
    }

    /// Whether data goes past memory, and so is to be on disk before its WRITE is answered.
    fn goes_past_memory(&self, id: NodeId, (start, end): (u64, u64)) -> bool {
        let wanted = self.nodes.get(&id).and_then(|node| node.data.to_disk);
        wanted.is_some_and(|(from, to)| start < to && from < end) && self.may_be_stable(id)
    }

    /// Whether what is written now may be on disk at once. Not before what has made and filled the file is there: that could come
    /// again, and nobody keeps what is on disk. It is committed then, which waits for that.
    pub(crate) fn may_be_stable(&self, id: NodeId) -> bool {
        let is_filled = self.nodes.get(&id).is_none_or(|node| node.data.filled_by <= self.stream.stable());
        is_filled && !self.stream.has_made(id)
    }

    /// A WRITE gives a file the time of the server's clock: behind whatever was sent by now, for all anybody knows.
    fn clocked(&mut self, id: NodeId) {
        let sent = self.stream.sent();
        if let Some(node) = self.nodes.get_mut(&id) {
            (node.data.clocked_since, node.data.was_clocked) = (Some(sent), true);
        }
    }

    /// A WRITE was answered.
    pub fn write_done(&mut self, write: WriteId, result: Result<Written, Errno>, now: Now) {
        self.progress += 1;
        let Some(id) = self.flush.on_the_way.remove(&write) else { return };
        self.clocked(id);
        let since = self.tick();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let place = node.data.in_flight.iter().position(|(w, ..)| *w == write);
        let Some((_, start, end)) = place.map(|p| node.data.in_flight.remove(p)) else { return };
        match result {
            Ok(Written { count, stable, verifier }) => {
                let taken = start + u64::from(count);
                let sent = Progress::Sent(write);
                let there = self.with_data(id, |data| {
                    data.moved = since;
                    data.extents.split_at(taken);
                    let again = |p, _| Some(if p == sent { Progress::Dirty } else { p });
                    data.extents.turn_within((taken, end), again);
                    data.extents.all_that((start, end), |p| p == sent)
                });
                self.patch_blocks(id, &there.unwrap_or_default());
                self.with_data(id, |data| {
                    let new = (!stable).then_some(Progress::Unstable { verifier, since });
                    data.extents.turn_within((start, end), |p, _| if p == sent { new } else { Some(p) });
                });
                // What paid for the time meanwhile did so before it.
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.data.mtime_owed |= node.held.contains(CapSet::FILE_X) || node.recall.is_some();
                }
                if !stable {
                    self.compare_verifiers(id, verifier, now);
                    self.commit_later(id, now.mono.after_ms(UNSYNCED_AGE_MS));
                }
            }
            Err(Errno::ESTALE) if self.is_of_lost(id, write) => {
                let sent = Progress::Sent(write);
                self.with_data(id, |data| {
                    let again = |p, _| Some(if p == sent { Progress::Dirty } else { p });
                    data.extents.turn_within((start, end), again);
                    data.is_doubted = true;
                });
            }
            Err(errno) => {
                let sent = Progress::Sent(write);
                let is_wanted = self.with_data(id, |data| {
                    let is_wanted = !data.extents.all_that((start, end), |p| p == sent).is_empty();
                    data.extents.turn_within((start, end), |p, _| (p != sent).then_some(p));
                    is_wanted
                });
                // What was given up with a lock was told then.
                if is_wanted == Some(true) || !self.nodes.get(&id).is_some_and(|n| n.data.is_locked) {
                    self.data_refused(id, errno);
                }
            }
        }
        self.written_on(id, now);
    }

    /// After a WRITE: goes on with what is left, or with what was kept back until all is written.
    pub(crate) fn written_on(&mut self, id: NodeId, now: Now) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.data.is_to_go() {
            if !std::mem::replace(&mut node.data.in_bulk, true) {
                self.flush.bulk.push_back(id);
            }
        } else if node.data.in_flight.is_empty() && !node.data.extents.has_dirty() {
            node.data.to_disk = None;
            if node.data.mtime_owed {
                self.pay_mtime(id, now);
            }
        }
    }

    /// A WRITE may or may not have reached the server: its data comes out again.
    pub fn write_lost(&mut self, write: WriteId, now: Now) {
        if let Some(id) = self.flush.on_the_way.get(&write).copied() {
            self.clocked(id);
        }
        self.write_withheld(write, now);
    }

    /// A WRITE has surely not reached the server, which has the file as it was: its data comes out again.
    pub fn write_withheld(&mut self, write: WriteId, now: Now) {
        self.progress += 1;
        let Some(id) = self.flush.on_the_way.remove(&write) else { return };
        self.with_data(id, |data| {
            // Of a file that was removed meanwhile there is nothing to send.
            let place = data.in_flight.iter().position(|(w, ..)| *w == write);
            let Some((_, start, end)) = place.map(|p| data.in_flight.remove(p)) else { return };
            let sent = Progress::Sent(write);
            let again = |p, _| Some(if p == sent { Progress::Dirty } else { p });
            data.extents.turn_within((start, end), again);
        });
        self.written_on(id, now);
    }

    /// The server refused data. It is nobody's loss when the file is gone, nobody has it open, and its name was removed
    /// here, or that is being asked for: not all that was written before is on disk before, and may have to go again.
    pub(crate) fn data_refused(&mut self, id: NodeId, errno: Errno) {
        if errno != Errno::ESTALE || !self.is_removed_here(id) {
            self.data_failed(id, errno);
        }
    }

    fn is_removed_here(&self, id: NodeId) -> bool {
        let is_going = |n: &crate::node::Node| n.opens.is_empty() && n.changing > 0;
        self.nodes.get(&id).is_some_and(|n| n.has_ended_here() || is_going(n))
    }

    /// Data of a file could not be written: what was kept of it is void.
    pub(crate) fn data_failed(&mut self, id: NodeId, errno: Errno) {
        // Of a large file each piece may be refused.
        if self.nodes.get_mut(&id).is_some_and(|node| node.losses.list()) {
            self.conflict_refused(id, "written", errno);
        }
        self.data_given_up(id, ("write", errno));
    }

    /// The same, in these words.
    pub(crate) fn data_given_up(&mut self, id: NodeId, (what, errno): (&str, Errno)) {
        self.disturb(id, CapSet::FILE_S);
        self.void_blocks(id);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.losses.note(errno);
        }
        self.stats.mutations_failed += 1;
        self.report(Report::new(what, id, errno));
        self.invalidate(Forget::Data(id));
        self.replaces_nothing(id, errno);
    }

    /// Whether a WRITE or COMMIT was of a file that the server has made and not on its disk: what it does not find it may have lost,
    /// and is about to say so.
    pub(crate) fn is_of_lost(&self, id: NodeId, asked: WriteId) -> bool {
        let is_told = self.nodes.get(&id).is_some_and(|n| asked <= n.data.lost_through);
        !self.is_removed_here(id) && (is_told || self.stream.has_made(id))
    }
}

/// Whether all of a file's data that is not on disk may go with the stream: nothing of it goes by WRITE.
pub(crate) fn is_small(data: &FileData) -> bool {
    !data.is_locked
        && !data.needs_open
        && data.to_disk.is_none()
        && data.in_flight.is_empty()
        && data.extents.weights().unsent <= SMALL_FILE_BYTES
        && data.extents.len() <= SMALL_FILE_PIECES_MAX
        && !data.extents.any(|p, _| matches!(p, Progress::Unstable { .. } | Progress::Sent(_)))
}
