//! Capabilities asked back: what was changed under them is sent, and they are given back.

use crate::ask::Generation;
use crate::extent::Progress;
use crate::ids::{Handle, NodeId, Now};
use crate::machine::{Deferred, Machine};
use crate::node::Recalling;
use crate::tell::Release;
use holdfast_base::CapSet;

impl Machine {
    /// The server asks capabilities back. From now on only what it leaves is used; what was changed under the others is
    /// sent, and the release comes out of [`take_releases`](Self::take_releases) when that was executed and the kernel
    /// has forgotten.
    pub fn recalled(&mut self, handle: &Handle, keep: CapSet, seq: u64, now: Now) {
        self.stats.recalls += 1;
        self.progress += 1;
        if self.recall_name(handle, seq) {
            return;
        }
        if !self.handles.contains_key(handle)
            && let Some(through) = self.stream.making_through()
        {
            // It may be what a batch under way has made: its data and names here would be passed over.
            self.deferred.push(Deferred { handle: handle.clone(), keep, seq, through });
            return;
        }
        self.recalled_now(handle, keep, seq, now);
    }

    fn recalled_now(&mut self, handle: &Handle, keep: CapSet, seq: u64, now: Now) {
        let Some(id) = self.handles.get(handle).copied() else {
            return self.release_unknown(handle, seq);
        };
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let keep = node.held & keep.sound();
        if seq <= node.seq {
            let (held, taken) = (node.held, node.held.without(keep));
            // What is held beside writers may have been taken without this, and been given again since: others have been there between.
            let was_between = seq < node.seq && !taken.is_empty();
            let is_new = node.recall.is_none();
            if is_new {
                node.recall = Some(Recalling::new(held, self.generation));
                self.recalling.push(id);
            }
            if was_between {
                self.lose_between(id, taken);
            }
            // Told again, as the release was lost; or a reply has told of it before, by what it left. One that is being
            // answered already will be.
            if is_new || was_between {
                self.hurry_recall(id, !held, now);
            }
            return;
        }
        let lost = node.held.without(keep);
        node.seq = seq;
        node.held = keep;
        node.giving_back |= lost;
        node.recalled_at = Some(now.mono);
        if let Some(dir) = node.dir.as_mut().filter(|_| lost.contains(CapSet::FILE_S)) {
            dir.note_taken(now.mono);
        }
        if lost.contains(CapSet::FILE_X_ALONE)
            && let Some(dir) = &node.dir
        {
            node.yields.extend(dir.entries(0).map(|(.., id)| id));
        }
        let through = node.last_serial;
        let is_new = node.recall.is_none();
        node.recall = Some(Recalling { through, ..Recalling::new(keep, self.generation) });
        self.lose(id, lost);
        if is_new {
            self.recalling.push(id);
        }
        // Also what was lost before, in whatever way, nothing covers any more.
        self.hurry_recall(id, !keep, now);
    }

    /// Recalls that came before the results they may be about. Not one of them waits for batches that were sent after it came:
    /// there might always be one.
    pub(crate) fn recall_deferred(&mut self, now: Now) {
        for deferred in std::mem::take(&mut self.deferred) {
            let Deferred { handle, keep, seq, through } = &deferred;
            if !self.handles.contains_key(handle) && self.stream.is_making(*through) {
                self.deferred.push(deferred);
            } else {
                self.recalled_now(handle, *keep, *seq, now);
            }
        }
    }

    /// Makes urgent what a recall waits for.
    pub(crate) fn hurry_recall(&mut self, id: NodeId, lost: CapSet, now: Now) {
        if lost.contains(CapSet::FILE_X_ALONE) && self.nodes.get(&id).is_some_and(|n| n.dir.is_none()) {
            self.settle(id, true, now);
        }
        self.tell_of_opens_unguarded(id, lost);
        let invalidation = self.last_invalidation;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let through = node.last_serial;
        if let Some(recall) = node.recall.as_mut() {
            recall.invalidation = invalidation;
            recall.through = through;
        }
        self.stream.hurry(through);
    }

    /// Releases that may go out now, because what they wait for is done. Each is given out once.
    pub fn take_releases(&mut self, now: Now) -> Vec<Release> {
        self.look_after_pages(now);
        let mut waiting = std::mem::take(&mut self.recalling);
        waiting.retain(|id| !self.finish_recall(*id, now));
        self.recalling.append(&mut waiting);
        self.finish_releasing();
        self.stats.releases += self.releases.len() as u64;
        std::mem::take(&mut self.releases)
    }

    /// These have reached the server: what they gave back can be had anew.
    pub fn released(&mut self, releases: &[Release]) {
        self.progress += 1;
        for release in releases {
            if let Some(node) = self.by_handle(&release.handle) {
                node.is_releasing = false;
            }
        }
    }

    /// These did not reach the server: they come out again.
    pub fn releases_lost(&mut self, mut lost: Vec<Release>) {
        lost.retain(|release| self.is_of_this_life(release));
        self.releases.extend(lost);
        self.progress += 1;
    }

    /// Whether what was given back is still to be. A server that began anew, or took all, counts its grants anew: under an old
    /// number it would take back what it has granted since. To be asked before each try, once the ticket for it is known.
    #[must_use]
    pub const fn is_of_this_life(&self, release: &Release) -> bool {
        release.life == self.life
    }

    /// The server did not take the release, as a grant that is on its way had come before it.
    pub fn release_crossed(&mut self, handle: &Handle) {
        let life = self.life;
        let Some(node) = self.by_handle(handle) else { return };
        let release = Release { handle: handle.clone(), keep: node.held, seq: node.seq, life };
        if node.recall.is_none() {
            self.releases.push(release);
        }
    }

    /// Whether a recall needs no more waiting; then its release is among those to go out.
    fn finish_recall(&mut self, id: NodeId, now: Now) -> bool {
        let Some(node) = self.nodes.get(&id) else { return true };
        let Some(recall) = node.recall else { return true };
        let flushed = node.held.contains(CapSet::FILE_X) || !node.has_unsent(Generation(u64::MAX));
        if !flushed {
            self.settle(id, true, now);
            return false;
        }
        let owes_time = node.data.mtime_owed && !node.held.contains(CapSet::FILE_X);
        if owes_time {
            self.pay_mtime(id, now);
        }
        let Some(node) = self.nodes.get_mut(&id) else { return true };
        let through = recall.through.max(if node.pending > 0 { node.last_serial } else { 0 });
        if let Some(recall) = node.recall.as_mut().filter(|_| owes_time) {
            recall.through = through;
        }
        if self.stream.executed() < through {
            self.stream.hurry(through);
            return false;
        }
        // Whoever changes it next is not to have that undone: what a server has lost with its power is done there once more.
        let is_to_be_changed = node.giving_back.intersects(CapSet::ALL_S);
        let is_of_before = |p, born: Generation| born <= recall.at && matches!(p, Progress::Unstable { .. });
        if is_to_be_changed && node.data.extents.any(is_of_before) {
            let is_asked_for = recall.is_committing && node.data.in_commits;
            if node.data.committing.is_none() && !is_asked_for {
                node.recall.iter_mut().for_each(|recall| recall.is_committing = true);
                self.commit_now(id);
            }
            return false;
        }
        let through = self.stream.placed(through);
        if is_to_be_changed && self.stream.stable() < through {
            self.stream.wanted_stable = self.stream.wanted_stable.max(through);
            return false;
        }
        if self.invalidated < recall.invalidation {
            return false;
        }
        if !node.held.contains(CapSet::LINK_S | CapSet::AUTH_S) && !self.opens_unknown(id).is_empty() {
            return false;
        }
        let Some(node) = self.nodes.get_mut(&id) else { return true };
        (node.recall, node.giving_back) = (None, CapSet::NONE);
        node.is_releasing = node.handle.is_some();
        for child in std::mem::take(&mut node.yields) {
            self.yield_exclusive(child);
        }
        let Some(node) = self.nodes.get_mut(&id) else { return true };
        if let Some(handle) = node.handle.clone() {
            let (keep, seq) = (node.held & recall.keep, node.seq);
            self.releases.push(Release { handle, keep, seq, life: self.life });
        }
        true
    }

    /// Gives back what is held exclusively of a file that somebody else is about to look at, unasked: with its
    /// neighbours it takes one message, asked for it would take one each. What is being changed is kept.
    fn yield_exclusive(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(&id) else { return };
        let at_rest = node.pending == 0
            && node.changing == 0
            && node.recall.is_none()
            && node.dir.is_none()
            && !node.data.mtime_owed
            && !node.has_unsent(Generation(u64::MAX))
            && !self.has_writers(node);
        if !at_rest || !node.held.is_exclusive() {
            return;
        }
        let (Some(handle), keep, seq) = (node.handle.clone(), node.held.shared(), node.seq) else { return };
        self.releases.push(Release { handle, keep, seq, life: self.life });
        if let Some(node) = self.nodes.get_mut(&id) {
            node.held = keep;
        }
    }
}
