//! What was written and may be lost with the server: when it is committed, and what of it is kept until then.

use holdfast_base::Instant;
use holdfast_base::limits::{UNSTABLE_BYTES_MAX, UNSYNCED_AGE_MS};
use rustc_hash::FxHashSet;

use crate::ask::Generation;
use crate::errno::Errno;
use crate::extent::Progress;
use crate::ids::{Caller, NodeId, Now};
use crate::machine::Machine;
use crate::mutation::{CommitOut, WriteId};

impl Machine {
    /// From then on it is committed, if it is not before.
    pub(crate) fn commit_later(&mut self, id: NodeId, due: Instant) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if !std::mem::replace(&mut node.data.in_commits, true) {
            self.flush.commits.push_back((due, id));
        }
    }

    /// Somebody waits for the data to be on disk.
    pub(crate) fn commit_now(&mut self, id: NodeId) {
        self.commit_all_now(&FxHashSet::from_iter([id]));
    }

    /// The same of many.
    pub(crate) fn commit_all_now(&mut self, ids: &FxHashSet<NodeId>) {
        if ids.is_empty() {
            return;
        }
        self.flush.commits.retain(|(_, n)| !ids.contains(n));
        for id in ids {
            let Some(node) = self.nodes.get_mut(id) else { continue };
            node.data.in_commits = true;
            self.flush.commits.push_front((Instant(0), *id));
        }
    }

    /// A COMMIT to be sent now: because somebody waits, because data grew old, or because there is much of it.
    pub fn take_commit(&mut self, now: Now) -> Option<CommitOut> {
        if self.stream.is_held {
            return None;
        }
        let pressed = self.flush.unstable > UNSTABLE_BYTES_MAX / 2;
        let stable = self.stream.stable();
        // What the server has lost is written once more before it is committed.
        let is_ready = |n: &crate::node::Node| n.data.committing.is_none() && n.handle.is_some();
        let ready = |m: &Self, id: NodeId| {
            let is_written_first = |n: &crate::node::Node| {
                n.data.is_doubted && m.stream.has_made(id) || m.flush.rewrites.contains_key(&id)
            };
            let is_settled = |n: &crate::node::Node| n.data.written_over <= stable;
            m.nodes.get(&id).is_none_or(|n| is_ready(n) && is_settled(n) && !is_written_first(n))
        };
        loop {
            // They are in the order in which they are due: what is not yet is not looked at, however much it is.
            let due = self.flush.commits.iter().take_while(|(due, _)| pressed || *due <= now.mono);
            let Some(place) = due.map(|(_, id)| *id).position(|id| ready(self, id)) else {
                self.settle_before_commits(pressed, now);
                return None;
            };
            let (_, id) = self.flush.commits.remove(place)?;
            let at = self.tick();
            let open = self.token(id, true);
            let Some(node) = self.nodes.get_mut(&id) else { continue };
            (node.data.in_commits, node.data.is_doubted) = (false, false);
            let unstable = node.data.extents.weights().unstable > 0;
            let Some(object) = node.handle.clone().filter(|_| unstable) else { continue };
            self.flush.last_id += 1;
            let commit = WriteId(self.flush.last_id);
            node.data.committing = Some((commit, at));
            let caller = node.data.writer.clone().unwrap_or_else(|| Caller::new(0, 0));
            self.flush.on_the_way.insert(commit, id);
            return Some(CommitOut { id: commit, object, open, caller });
        }
    }

    /// A server that loses its power may have a file on its disk as a COMMIT left it, and not the record of a batch that had filled
    /// it before: the batch comes again, and what was committed over its data is kept nowhere. So batches are put on disk first.
    fn settle_before_commits(&mut self, pressed: bool, now: Now) {
        let due = self.flush.commits.iter().take_while(|(due, _)| pressed || *due <= now.mono);
        let data = due.filter_map(|(_, id)| Some(&self.nodes.get(id)?.data));
        let unstable = data.filter(|data| data.extents.weights().unstable > 0);
        if let Some(last) =
            unstable.map(|data| data.written_over).max().filter(|last| *last > self.stream.stable())
        {
            self.stream.wanted_stable = self.stream.wanted_stable.max(last);
        }
    }

    /// A COMMIT was answered, with the server's verifier.
    pub fn commit_done(&mut self, commit: WriteId, result: Result<u64, Errno>, now: Now) {
        self.progress += 1;
        let Some(id) = self.flush.on_the_way.remove(&commit) else { return };
        let Some((_, at)) = self.nodes.get_mut(&id).and_then(|n| n.data.committing.take()) else { return };
        let covered = |since: Generation| since <= at;
        match result {
            Ok(now_is) => {
                let moved = self.tick();
                self.with_data(id, |data| {
                    data.moved = moved;
                    data.extents.turn(|p, _| match p {
                        Progress::Unstable { verifier, since } if covered(since) && verifier == now_is => {
                            None
                        }
                        p => Some(p),
                    });
                });
                self.compare_verifiers(id, now_is, now);
            }
            Err(Errno::ESTALE) if self.is_of_lost(id, commit) => {
                self.with_data(id, |data| data.is_doubted = true);
                self.stream.wanted_stable = self.stream.wanted_stable.max(self.stream.executed());
            }
            Err(errno) => {
                let lost = |p| matches!(p, Progress::Unstable { since, .. } if covered(since));
                self.with_data(id, |data| data.extents.turn(|p, _| (!lost(p)).then_some(p)));
                // Removed since it was written, here or by somebody else: of what is gone nothing can be lost.
                if errno != Errno::ESTALE {
                    self.data_refused(id, errno);
                }
            }
        }
        if self.nodes.get(&id).is_some_and(|n| n.data.extents.weights().unstable > 0) {
            self.commit_later(id, now.mono.after_ms(UNSYNCED_AGE_MS));
        }
        self.written_on(id, now);
    }

    /// A COMMIT was lost: it comes out again.
    pub fn commit_lost(&mut self, commit: WriteId) {
        self.progress += 1;
        if let Some(id) = self.flush.on_the_way.remove(&commit) {
            if let Some(node) = self.nodes.get_mut(&id) {
                node.data.committing = None;
            }
            self.commit_now(id);
        }
    }
}
