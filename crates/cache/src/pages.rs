//! What the kernel keeps of files' data. It shows that again without asking, so it must keep nothing that no capability
//! covers.
//!
//! Every READ and WRITE leaves its pages with the kernel. So `FILE_S` is asked for before data is; who wants it back has the
//! kernel drop all pages of the file first. The kernel waits then for pages that are being read, so that nobody who reads may
//! wait for the end of that; and what is read behind its back it would keep. Hence, while the capability is being given back:
//!
//! * before the kernel has begun to drop, data is given out as ever: it waits for it, and drops it;
//! * once it has begun, data is given out, and dropped again by a word of its own, which the release waits for too;
//! * when it has dropped everything nobody waits for readers any more: they wait for the release, and ask then.

use crate::ask::Question;
use crate::ids::{Fh, NodeId, Now};
use crate::machine::Machine;
use crate::step::{Outcome, Turn, Wait};
use crate::tell::Forget;
use holdfast_base::CapSet;
use holdfast_base::limits::{COVERS_ASKED_MAX, REACQUIRE_PAUSE_MS};

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
        let (forgetting, invalidated, caps) = (self.forgetting, self.invalidated, self.settings.caps);
        let is_direct = self.opens.get(&fh).is_some_and(|open| open.is_direct);
        let node = self.node_mut(id)?;
        if node.held.contains(CapSet::FILE_S) {
            node.told_data = true;
            return Ok(());
        }
        if !caps || turn.is_covered || is_direct {
            return Ok(());
        }
        if let Some(recall) = node.recall {
            if node.data_forget <= forgetting && recall.invalidation <= invalidated {
                return self.wait(Wait::Released);
            }
            // Once is enough for what is given out: the page is locked until then.
            turn.is_covered = true;
            if node.data_forget <= forgetting {
                self.drop_pages(id, (from, to));
            }
            return Ok(());
        }
        if node.is_releasing {
            return self.wait(Wait::Released);
        }
        self.ask_for_cover(turn, id, now)
    }

    /// Asks for what covers a file's data, unless that was refused a moment ago. Where a recall had overtaken the grant it is
    /// asked for again.
    fn ask_for_cover(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Outcome<()> {
        let node = self.node_mut(id)?;
        let late = node.late_grants;
        if turn.covers_asked > 0 && (late == turn.late_before || turn.covers_asked >= COVERS_ASKED_MAX) {
            node.refused_at = Some(now.mono);
            return Ok(());
        }
        if node.refused_at.is_some_and(|at| now.mono.ms_since(at) < REACQUIRE_PAUSE_MS) {
            return Ok(());
        }
        turn.covers_asked += 1;
        turn.late_before = late;
        let want = self.want(Some(id), CapSet::ALL_S, now);
        let object = self.handle(turn, id)?;
        self.ask(turn, Question::Acquire { items: vec![(object, want)] })
    }

    /// The kernel drops what it is about to be given, and the recall under way is answered after that.
    fn drop_pages(&mut self, id: NodeId, (from, to): (u64, u64)) {
        self.invalidate(Forget::Pages(id, from, to));
        let last = self.last_invalidation;
        if let Some(recall) = self.nodes.get_mut(&id).and_then(|n| n.recall.as_mut()) {
            recall.invalidation = last;
        }
    }

    /// Whether what the kernel is given of a file's data is covered, or dropped anyway. Of an open past its pages it keeps what
    /// is mapped. From a server that promises nothing at all it keeps data from open to open, as every NFS client does.
    pub(crate) fn is_seen_to(&self, id: NodeId) -> bool {
        let Some(node) = self.nodes.get(&id) else { return true };
        node.held.contains(CapSet::FILE_S)
            || (self.settings.caps && node.recall.is_some())
            || !self.is_strict()
    }

    /// The kernel has what nothing covered, and is to drop it again. That it may show it meanwhile cannot be helped, but by
    /// opens past its pages; nor sooner, for what it takes while it drops may not change the size that it knows.
    pub fn taken_uncovered(&mut self, id: NodeId) {
        self.invalidate(Forget::Data(id));
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
