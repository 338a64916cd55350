//! What the kernel keeps of files' data. It shows that again without asking, so it must keep nothing that no capability
//! covers.
//!
//! Every READ and WRITE leaves its pages with the kernel. So `FILE_S` is asked for before data is; who wants it back has the
//! kernel drop all pages of the file first. The kernel waits then for pages that are being read, so that nobody who reads may
//! wait for the end of that; and what is read behind its back it would keep. Hence, while the capability is being given back:
//!
//! * before the kernel has begun to drop, data is given out as ever: it waits for it, and drops it;
//! * once it has begun, data is given out, and dropped again by a word of its own, which the release waits for too;
//! * when it has dropped everything nobody waits for other readers any more: they wait for the release, and ask then.

use crate::ask::{Generation, Question};
use crate::ids::{Fh, NodeId, Now};
use crate::machine::Machine;
use crate::node::Recalling;
use crate::step::{Outcome, ReadInto, Turn, Wait};
use crate::tell::Forget;
use holdfast_base::limits::{
    COVERS_ASKED_MAX, DROPPED_PARTS_MAX, KEPT_BUFFERED_MS, KEPT_MAPPED_MS, LENT_MS, PARKED_MS_MAX,
    REACQUIRE_PAUSE_MS,
};
use holdfast_base::{CapSet, Instant};

/// What the kernel drops at least.
const PAGE_BYTES: u64 = 4096;

impl Machine {
    /// Sees to it, before data in `from..to` is read or written at the server, that what the kernel keeps of it is covered or
    /// dropped in time.
    pub(crate) fn cover(
        &mut self,
        turn: &mut Turn,
        (fh, id): (Fh, NodeId),
        (from, to): (u64, u64),
        now: Now,
    ) -> Outcome<()> {
        let caps = self.settings.caps;
        let is_past_pages = self.is_past_pages(turn, fh);
        let node = self.node_mut(id)?;
        if node.held.contains(CapSet::FILE_S) {
            node.told_data = true;
            return Ok(());
        }
        if !caps || turn.is_dropped || is_past_pages {
            return Ok(());
        }
        if node.recall.is_some() {
            return self.beside_recall(turn, id, (from, to), now);
        }
        if node.is_releasing && !turn.has_parked(now) {
            return self.park(turn, now);
        }
        self.ask_for_cover(turn, id, now)
    }

    /// Whether the kernel keeps nothing of what it reads now.
    pub(crate) fn is_past_pages(&self, turn: &Turn, fh: Fh) -> bool {
        let is_direct = || self.opens.get(&fh).is_some_and(|open| open.is_direct);
        turn.reads_into.map_or_else(is_direct, |into| into == ReadInto::Memory)
    }

    /// Whether a write leaves anything with the kernel: a page of which it writes a part is only kept where all of it was there
    /// before.
    pub(crate) const fn leaves_pages((from, to): (u64, u64)) -> bool {
        from.next_multiple_of(PAGE_BYTES) + PAGE_BYTES <= to
    }

    /// What is given out while the file is being given back: see above.
    fn beside_recall(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        (from, to): (u64, u64),
        now: Now,
    ) -> Outcome<()> {
        let (forgetting, invalidated) = (self.forgetting, self.invalidated);
        let (from, to) =
            (from - from % PAGE_BYTES, to.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX));
        let node = self.node_mut(id)?;
        node.dropping.retain(|(number, ..)| *number > invalidated);
        let is_waited_for = node.data_forget > invalidated
            || node.dropping.iter().any(|(_, begin, end)| *begin < to && from < *end);
        if !is_waited_for && !turn.has_parked(now) {
            return self.park(turn, now);
        }
        // Once is enough: the page is locked until what is given out is there.
        turn.is_dropped = true;
        let last = if node.data_forget > forgetting {
            node.data_forget
        } else if node.dropping.len() < DROPPED_PARTS_MAX {
            self.invalidate(Forget::Pages(id, from, to));
            let last = self.last_invalidation;
            self.node_mut(id)?.dropping.push((last, from, to));
            last
        } else {
            // Somebody holds it up: the file goes once more as a whole, with all that is given out until that begins.
            self.invalidate(Forget::Data(id));
            self.last_invalidation
        };
        if let Some(recall) = &mut self.node_mut(id)?.recall {
            recall.invalidation = recall.invalidation.max(last);
        }
        Ok(())
    }

    /// Waits until what is given back is with the server; not for ever, should somebody wait for the page after all.
    fn park<T>(&mut self, turn: &mut Turn, now: Now) -> Outcome<T> {
        let until = turn.parked_at.get_or_insert(now.mono).after_ms(PARKED_MS_MAX);
        self.parked = Some(self.parked.map_or(until, |first| first.min(until)));
        turn.covers_asked = 0;
        self.wait(Wait::Released)
    }

    /// Those who wait for a release look again when it takes long; and pages go whose time has come.
    pub(crate) fn look_after_pages(&mut self, now: Now) {
        if self.parked.is_some_and(|at| at <= now.mono) {
            self.parked = None;
            self.progress += 1;
        }
        while let Some((_, id)) = self.drops.first().copied().filter(|(due, _)| *due <= now.mono) {
            self.drops.pop_first();
            self.drop_uncovered(id, now);
        }
        while let Some((due, id)) = self.lent.first().copied().filter(|(due, _)| *due <= now.mono) {
            self.lent.pop_first();
            self.give_back_lent(id, due);
        }
    }

    /// When that is, at the earliest.
    pub(crate) fn pages_due(&self) -> Option<Instant> {
        let first = [self.drops.first(), self.lent.first()].into_iter().flatten().map(|(due, _)| *due);
        first.chain(self.parked).min()
    }

    /// Asks for what covers a file's data. Where others have it open for writing, which is known for a moment, it is asked for
    /// until they write. Where a recall had overtaken the grant it is asked for again.
    fn ask_for_cover(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Outcome<()> {
        let is_recent = |at: Option<Instant>| at.is_some_and(|at| now.mono.ms_since(at) < REACQUIRE_PAUSE_MS);
        let node = self.node_mut(id)?;
        let late = node.late_grants;
        if turn.covers_asked > 0 && (late == turn.late_before || turn.covers_asked >= COVERS_ASKED_MAX) {
            if turn.is_beside_writers {
                node.denied_at = Some(now.mono);
                return Ok(());
            }
            node.refused_at = Some(now.mono);
            turn.covers_asked = 0;
        }
        let is_written = is_recent(node.refused_at);
        if is_written && (turn.leaves_nothing || is_recent(node.denied_at)) {
            return Ok(());
        }
        turn.is_beside_writers = is_written;
        turn.covers_asked += 1;
        turn.late_before = late;
        let mut want = self.want(Some(id), CapSet::ALL_S, now);
        if is_written {
            want |= CapSet::BESIDE_WRITERS;
        }
        let object = self.handle(turn, id)?;
        self.ask(turn, Question::Acquire { items: vec![(object, want)] })
    }

    /// What was given beside writers is not kept for long: each change of theirs has to wait for it, and not every change
    /// of a process on the server's host is told.
    pub(crate) fn note_lent(&mut self, turn: &Turn, id: NodeId, now: Now) {
        let Some(node) = self.nodes.get_mut(&id).filter(|_| turn.is_beside_writers) else { return };
        let is_shared = node.held.contains(CapSet::FILE_S) && !node.held.contains(CapSet::FILE_X);
        if is_shared && node.lent_until.is_none() {
            let until = now.mono.after_ms(LENT_MS);
            node.lent_until = Some(until);
            self.lent.insert((until, id));
        }
    }

    /// Gives back what covers a file beside its writers.
    fn give_back_lent(&mut self, id: NodeId, due: Instant) {
        let Some(node) = self.nodes.get_mut(&id).filter(|node| node.lent_until == Some(due)) else { return };
        node.lent_until = None;
        let is_shared = node.held.contains(CapSet::FILE_S) && !node.held.contains(CapSet::FILE_X);
        if !is_shared || node.recall.is_some() {
            return;
        }
        let keep = node.held.without(CapSet::FILE_S);
        node.held = keep;
        node.recall = Some(Recalling::new(keep, self.generation));
        self.lose(id, CapSet::FILE_S);
        self.recalling.push(id);
        let last = self.last_invalidation;
        if let Some(recall) = self.nodes.get_mut(&id).and_then(|node| node.recall.as_mut()) {
            recall.invalidation = last;
        }
    }

    /// Whether what the kernel is given of a file's data, asked for at this moment, is covered, or dropped anyway. Of an open
    /// past its pages it keeps what is mapped. From a server that promises nothing at all it keeps data from open to open, as
    /// every NFS client does.
    pub(crate) fn is_seen_to(&self, id: NodeId, asked_at: Generation) -> bool {
        let Some(node) = self.nodes.get(&id) else { return true };
        let is_covered = node.held.contains(CapSet::FILE_S) && node.data.readable_since <= asked_at;
        is_covered || (self.settings.caps && node.recall.is_some()) || !self.is_strict()
    }

    /// The kernel has what nothing covered, and is to drop it again: now, but not all the time, or a program could not go on
    /// that needs two pages of a mapping at once. That the kernel shows it meanwhile cannot be helped, but by opens past its
    /// pages, of which it keeps only what is mapped; nor sooner, for what it takes while it drops may not change the size
    /// that it knows.
    pub fn taken_uncovered(&mut self, id: NodeId, now: Now) {
        let Some(node) = self.nodes.get(&id) else { return };
        if node.drop_due.is_some() || node.data_forget > self.forgetting {
            return;
        }
        let is_buffered = node.opens.iter().any(|fh| self.opens.get(fh).is_some_and(|open| !open.is_direct));
        let pause = if is_buffered && self.settings.direct { KEPT_BUFFERED_MS } else { KEPT_MAPPED_MS };
        let due = match node.dropped_at {
            _ if !is_buffered => now.mono.after_ms(pause),
            Some(at) => at.after_ms(pause),
            None => now.mono,
        };
        if due <= now.mono {
            return self.drop_uncovered(id, now);
        }
        self.drops.insert((due, id));
        if let Some(node) = self.nodes.get_mut(&id) {
            node.drop_due = Some(due);
        }
    }

    fn drop_uncovered(&mut self, id: NodeId, now: Now) {
        if let Some(node) = self.nodes.get_mut(&id) {
            (node.drop_due, node.dropped_at) = (None, Some(now.mono));
            self.invalidate(Forget::Data(id));
        }
    }

    /// Whether it matters to others' changes what the kernel keeps.
    const fn is_strict(&self) -> bool {
        self.settings.caps || self.has_been_promised || !self.settings.write_back
    }

    /// Whether an open file's data is to go past the kernel's pages.
    pub(crate) const fn is_direct(&self, is_covered: bool) -> bool {
        self.settings.direct && !is_covered && self.is_strict()
    }

    /// The kernel begins to forget this, and all before it.
    pub fn forgetting(&mut self, number: u64) {
        self.forgetting = self.forgetting.max(number);
    }
}
