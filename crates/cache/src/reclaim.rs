//! Capabilities where the server begins anew, or is not heard of: what is claimed of it, and what is lost.

use crate::attrs::Attrs;
use crate::caps::Grant;
use crate::ids::{NodeId, Now};
use crate::machine::Machine;
use crate::node::{Node, Recalling};
use crate::tell::{Forget, Reclaim, Reclaimed};
use holdfast_base::CapSet;

impl Machine {
    /// Everything held is lost: the server restarted, or took it all back. What is queued is sent all the same.
    pub fn caps_lost(&mut self, now: Now) {
        self.reclaimed(Vec::new(), now);
    }

    /// The server was not heard of for so long that it may have given up on this client, or is about to: nothing held is relied
    /// on, and nothing that is granted before [`regained`](Self::regained). It may also be waiting still for what was asked
    /// back, which goes to it.
    pub fn lapsed(&mut self, now: Now) {
        let asked_back = (std::mem::take(&mut self.releases), std::mem::take(&mut self.deferred));
        let (waiting, life) = (std::mem::take(&mut self.releasing), self.life);
        self.caps_lost(now);
        (self.releases, self.deferred) = asked_back;
        (self.releasing, self.life) = (waiting, life);
        self.has_lapsed = true;
    }

    /// The server has said that what it promises goes on. Answers to what was asked before may still be older than that.
    pub fn regained(&mut self) {
        if std::mem::take(&mut self.has_lapsed) {
            self.epoch = self.tick();
        }
    }

    /// What is held, to be claimed from a server that restarted; and what is still to be given back.
    #[must_use]
    pub fn reclaim_list(&self) -> Vec<Reclaim> {
        let held = self.nodes.values().filter(|n| !n.to_claim().is_empty() && !n.is_over);
        let claim = |n: &Node| Some(Reclaim { handle: n.handle.clone()?, caps: n.to_claim() });
        held.filter_map(|n| claim(n)).collect()
    }

    /// What came of claiming: what was not given back is lost, and so is everything not claimed with success. What is
    /// known of an object goes on being known if its change attribute is what it was when the server last told it and
    /// nothing was changed here since; else somebody may have been there while nobody watched.
    pub fn reclaimed(&mut self, results: Vec<Reclaimed>, now: Now) {
        self.progress += 1;
        self.epoch = self.tick();
        self.drop_unsettled();
        self.forget_pools();
        let found = self.found_by(&results);
        let mut given = rustc_hash::FxHashMap::default();
        for Reclaimed { handle, result } in results {
            if let (Some(id), Ok(got)) = (self.handles.get(&handle), result) {
                given.insert(*id, got);
            }
        }
        // Who works without the server compares when the greeting is over.
        if self.journal.is_none() {
            self.found = found;
        }
        self.early.clear();
        self.deferred.clear();
        // Of what was held before nothing is to be given back, nor of what is on its way; what is asked back now still is.
        self.life += 1;
        self.releases.clear();
        self.releasing.clear();
        self.lose_leases();
        for id in self.ids() {
            self.renew(id, given.get(&id), now);
        }
    }

    /// What is held of one object from now on.
    fn renew(&mut self, id: NodeId, given: Option<&(Attrs, Grant)>, now: Now) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        (node.is_releasing, node.refused_at, node.denied_at) = (false, None, None);
        node.shared_at = None;
        node.is_changed_since = given.is_some_and(|(_, grant)| grant.changed_since);
        let before = node.held;
        let all = given.map_or(CapSet::NONE, |(_, grant)| grant.caps.sound());
        let mut after = all & before;
        let is_same = given.is_some_and(|(attrs, _)| node.is_theirs && attrs.change == node.attrs.change);
        let seq = given.map_or(0, |(_, grant)| grant.seq);
        match node.recall {
            // It may have been asked back again already, and is released as that says.
            Some(recall) => {
                node.seq = node.seq.max(seq);
                node.recalled_at = Some(now.mono);
                after = after & recall.keep;
            }
            None => node.seq = seq,
        }
        let is_news = given.is_some_and(|(_, grant)| node.take_traits(grant, false));
        node.yields.clear();
        if is_news {
            self.invalidate(Forget::Attrs(id));
        }
        self.lose(id, if is_same { before.without(after) } else { before });
        if let Some(node) = self.nodes.get_mut(&id) {
            (node.held, node.giving_back) = (after, all.without(after));
            let at = self.generation;
            node.doubt(!after.shared(), at);
        }
        // Nobody can ask for it any more: others look at what the server has.
        if before.without(after).contains(CapSet::FILE_X_ALONE)
            && self.nodes.get(&id).is_some_and(|n| n.dir.is_none())
        {
            self.settle(id, true, now);
        }
        if before != after
            && let Some(node) = self.nodes.get(&id)
        {
            self.stream.hurry(node.last_serial);
        }
        self.give_back_claimed(id, now);
        // Nobody asks any more before that goes.
        self.tell_of_opens_unguarded(id, !after);
    }

    /// What was claimed only to be given back, as a reply had told of a recall that went with the former server, is asked back
    /// by nobody.
    fn give_back_claimed(&mut self, id: NodeId, now: Now) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let (keep, rest) = (node.held, node.giving_back);
        if rest.is_empty() || node.recall.is_some() {
            return;
        }
        node.recall = Some(Recalling::new(keep, self.generation));
        self.recalling.push(id);
        self.hurry_recall(id, rest, now);
    }
}
