//! What may be relied on: grants come, recalls and losses take away, changes being asked for hold in suspense.

use crate::ask::{Generation, Question, RenameMode};
use crate::attrs::Attrs;
use crate::caps::Grant;
use crate::dir::{Known, Source};
use crate::ids::{Handle, Name, NodeId, Now};
use crate::machine::{Deferred, Machine};
use crate::node::{Node, Recalling};
use crate::tell::{Forget, Reclaim, Reclaimed, Release};
use holdfast_base::CapSet;

impl Machine {
    /// Takes over what a reply says is held. One that is older than what was seen is passed over, and so is one to a
    /// question asked before everything was lost.
    pub(crate) fn take_grant(&mut self, id: NodeId, grant: Grant, at: Generation) {
        if at < self.epoch || self.has_lapsed {
            return;
        }
        let tick = self.tick();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let is_doubtful = node.lists_changed > at;
        if grant.seq <= node.seq {
            node.late_grants += u64::from(grant.seq < node.seq);
            // With the same number nothing new was given; but a change of our own takes nothing, and so has the old number.
            if grant.seq == node.seq && !is_doubtful && node.take_traits(&grant, false) {
                self.invalidate(Forget::Attrs(id));
            }
            return;
        }
        if !node.held.contains(CapSet::FILE_S) && grant.caps.sound().contains(CapSet::FILE_S) {
            node.data.readable_since = tick;
            node.denied_at = None;
        }
        self.has_been_promised |= grant.caps.contains(CapSet::FILE_S) && node.dir.is_none();
        node.seq = grant.seq;
        let is_news = node.take_traits(&grant, is_doubtful);
        // While a recall is being answered nothing that it takes may be used, whatever is granted beside it.
        let limit = node.recall.map_or(CapSet::ALL_X, |r| r.keep);
        let lost = node.held.without(grant.caps.sound() & limit);
        node.held = grant.caps.sound() & limit;
        node.giving_back = (node.giving_back | lost).without(node.held);
        if is_news {
            self.invalidate(Forget::Attrs(id));
        }
        if !lost.is_empty() {
            self.lose(id, lost);
        }
    }

    /// Takes over attributes from a reply, as far as they are covered; returns them as they are to be shown.
    pub(crate) fn learn(&mut self, id: NodeId, theirs: &Attrs, at: Generation) -> Attrs {
        let Some(node) = self.nodes.get_mut(&id) else { return *theirs };
        let merged = node.merged(theirs);
        let undisturbed = node.disturbed <= at || node.clean_for == Some(at);
        let ours_is_there = node.pending == 0 && node.data.extents.weights().unsent == 0;
        // What of ours was done since then the answer may not know: where all is sure that makes no difference to what is
        // shown, but it is not what the server has now.
        let knows_ours = node.data.moved <= at;
        if undisturbed && ours_is_there && (knows_ours || node.is_sure()) && node.changing == 0 {
            node.attrs = merged;
            if knows_ours {
                node.is_theirs = true;
                node.data.clocked_since = None;
                node.attrs.change = theirs.change;
                if self.journal.is_some() {
                    node.base = Some(Box::new(crate::persist::Base::of(theirs)));
                }
            }
            if node.held.contains(CapSet::FILE_S) && !node.sure.contains(CapSet::FILE_S) {
                node.data.kept.learn(theirs.change);
            }
            node.sure |= node.held.shared();
        }
        merged
    }

    /// The same from the reply to a change, after the change has come to its end.
    pub(crate) fn learn_after(&mut self, id: NodeId, theirs: &Attrs, at: Generation) -> Attrs {
        self.learn(id, theirs, at)
    }

    /// Something happened to the object that earlier answers about these kinds do not know.
    pub(crate) fn disturb(&mut self, id: NodeId, kinds: CapSet) {
        let at = self.tick();
        if let Some(node) = self.nodes.get_mut(&id) {
            node.disturbed = at;
            node.doubt(kinds, at);
        }
    }

    /// A change is being asked for: until its reply has come, what it changes is uncertain.
    pub(crate) fn begin_change(&mut self, question: &Question) {
        let (touched, at) = (question.touched(), self.generation);
        for (handle, kinds) in &touched.objects {
            if let Some(node) = self.by_handle(handle) {
                node.changing += 1;
                node.is_theirs = false;
                node.doubt(*kinds, at);
            }
        }
        for (handle, name) in &touched.names {
            if let Some(dir) = self.by_handle(handle).and_then(|n| n.dir.as_mut()) {
                dir.set_busy(name);
            }
        }
    }

    /// The reply to a change has come. `outcome` is `None` where it failed or concerns no names, `Some(made)` where it
    /// succeeded.
    pub(crate) fn end_change(
        &mut self,
        question: &Question,
        at: Generation,
        outcome: Option<Option<NodeId>>,
    ) {
        let touched = question.touched();
        for (handle, kinds) in &touched.objects {
            let tick = self.tick();
            if let Some(node) = self.by_handle(handle) {
                let alone = node.disturbed <= at && node.changing <= 1;
                node.changing = node.changing.saturating_sub(1);
                node.disturbed = tick;
                node.doubt(*kinds, tick);
                node.clean_for = alone.then_some(at);
                // An access list is among them, and goes by the mode as well.
                if kinds.contains(CapSet::XATTR_S) || kinds.contains(CapSet::AUTH_S) {
                    node.xattrs.clear();
                }
                if let Question::SetXattr { name, .. } | Question::RemoveXattr { name, .. } = question {
                    node.list_may_have_changed(name, tick);
                }
            }
        }
        let dirs: Vec<_> = touched.names.iter().map(|(h, _)| self.handles.get(h).copied()).collect();
        match (question, outcome) {
            (Question::Rename { mode, from, to, .. }, Some(_)) => {
                if let [Some(from_dir), Some(to_dir)] = dirs[..] {
                    self.renamed((from_dir, from), (to_dir, to), *mode, at);
                }
            }
            (_, outcome) => {
                for ((_, name), dir) in touched.names.iter().zip(dirs) {
                    let Some(dir) = dir else { continue };
                    let now_is = outcome.filter(|_| touched.names.len() == 1);
                    self.end_name(dir, name, now_is, at);
                }
            }
        }
    }

    /// What is known of a name is `now_is` after a change, or nothing.
    fn end_name(&mut self, id: NodeId, name: &Name, now_is: Option<Option<NodeId>>, at: Generation) {
        let tick = self.tick();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let guaranteed = node.held.contains(CapSet::FILE_S) && node.names_lost <= at;
        let Some(dir) = node.dir.as_mut() else { return };
        dir.end_busy(name);
        let told = match now_is {
            Some(object) if guaranteed && !dir.is_busy(name.as_bytes()) => {
                dir.put(name, object);
                false
            }
            _ => {
                // Whatever is held now: an answer on its way may not know of the change, and bring what covers it.
                node.names_lost = tick;
                dir.drop_name(name.as_bytes())
            }
        };
        let is_busy =
            self.nodes.get(&id).and_then(|n| n.dir.as_ref()).is_some_and(|d| d.is_busy(name.as_bytes()));
        let told = told | self.leases.end_change(id, name.as_bytes(), now_is.filter(|_| !is_busy), at);
        self.forget_entry(told, id, name);
        self.forget_listing(id);
    }

    /// Names have changed places at the server. The kernel moves its entries with what it believes of them.
    fn renamed(&mut self, from: (NodeId, &Name), to: (NodeId, &Name), mode: RenameMode, at: Generation) {
        let known = |m: &Self, (id, name): (NodeId, &Name)| {
            let dir = m.nodes.get(&id).and_then(|n| n.dir.as_ref())?;
            let slot = dir.slot(name.as_bytes());
            let slot = slot.and_then(|s| s.node.map(|n| (n, s.told)));
            slot.or_else(|| m.leases.slot(id, name.as_bytes()))
        };
        let (source, target) = (known(self, from), known(self, to));
        let told = source.is_some_and(|(_, t)| t) || target.is_some_and(|(_, t)| t);
        let moved = source.map(|(n, _)| Some(n));
        let left = match mode {
            RenameMode::Exchange => target.map(|(n, _)| Some(n)),
            _ => Some(None),
        };
        self.end_name(to.0, to.1, moved, at);
        self.end_name(from.0, from.1, left, at);
        for (dir, name) in [from, to] {
            self.forget_entry(told, dir, name);
        }
    }

    /// Capabilities are gone: what they guaranteed is forgotten, here and in the kernel.
    pub(crate) fn lose(&mut self, id: NodeId, lost: CapSet) {
        let tick = self.tick();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        if node.dir.is_some() {
            self.drop_pools(id);
        }
        let kinds = lost & CapSet::ALL_S;
        let Some(node) = self.nodes.get_mut(&id).filter(|_| !kinds.is_empty()) else { return };
        node.disturbed = tick;
        node.doubt(kinds, tick);
        let tell_data =
            kinds.contains(CapSet::FILE_S) && node.dir.is_none() && std::mem::take(&mut node.told_data);
        let tell_attrs = std::mem::take(&mut node.told_attrs);
        if kinds.contains(CapSet::AUTH_S) {
            node.admitted.clear();
        }
        if kinds.contains(CapSet::XATTR_S) || kinds.contains(CapSet::AUTH_S) {
            node.xattrs.clear();
            node.no_xattrs = false;
        }
        if kinds.contains(CapSet::FILE_S) {
            if node.data.extents.weights().unstable > 0 {
                self.commit_now(id);
            }
            let Some(node) = self.nodes.get_mut(&id) else { return };
            (node.pages_covered, node.lent_until) = (false, None);
            if node.dir.is_some() {
                self.lose_names(id);
            }
        }
        if tell_data {
            self.invalidate(Forget::Data(id));
        } else if tell_attrs {
            self.invalidate(Forget::Attrs(id));
        }
    }

    /// Forgets the names of a directory. Those who read it go on with a copy, for their positions mean nothing to the
    /// server.
    fn lose_names(&mut self, id: NodeId) {
        let tick = self.tick();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.names_lost = tick;
        let Some(dir) = node.dir.as_mut() else { return };
        let lost = self.journal.is_some().then(|| dir.entries(0).map(|(_, name, id)| (id, name.clone())));
        let lost: Vec<_> = lost.into_iter().flatten().collect();
        for fh in &node.opens {
            let stream = self.opens.get_mut(fh).and_then(|o| o.stream.as_mut());
            if let Some((stream, last)) = stream.and_then(|s| s.source.last_known().map(|last| (s, last))) {
                let rest = dir.entries(0).take_while(|(cookie, ..)| *cookie <= last);
                let rest = rest.map(|(cookie, name, node)| (cookie, (name.clone(), node)));
                stream.source = Source::Copy(rest.collect());
            }
        }
        for name in dir.clear() {
            // What is promised by itself stays so.
            if !self.leases.tell(id, name.as_bytes()) {
                self.invalidate(Forget::Entry(id, name));
            }
        }
        self.forget_listing(id);
        self.remember_places(id, lost);
    }

    /// Names are forgotten of what something of ours may be in, or about: where it is stays known.
    pub(crate) fn remember_places(&mut self, dir: NodeId, names: Vec<(NodeId, Name)>) {
        for (child, name) in names {
            let place = Some((dir, name));
            let is_news = |n: &Node| {
                (n.dir.is_some() || n.pending > 0 || !n.data.extents.is_empty()) && n.place != place
            };
            // Looked at first: what may be changed is journalled.
            if self.nodes.get(&child).is_some_and(|node| is_news(node))
                && let Some(node) = self.nodes.get_mut(&child)
            {
                node.place = place;
            }
        }
    }

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
            // Told again, as the release was lost; or a reply has told of it before, by what it left. One that is being
            // answered already will be.
            if node.recall.is_none() {
                let keep = node.held;
                node.recall = Some(Recalling { keep, invalidation: 0, through: 0 });
                self.recalling.push(id);
                self.hurry_recall(id, !keep, now);
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
        node.recall = Some(Recalling { keep, invalidation: 0, through });
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
    fn hurry_recall(&mut self, id: NodeId, lost: CapSet, now: Now) {
        if lost.contains(CapSet::FILE_X_ALONE) && self.nodes.get(&id).is_some_and(|n| n.dir.is_none()) {
            self.settle(id, true, now);
        }
        if lost.contains(CapSet::LINK_S) {
            let unknown = self.opens_unknown(id);
            self.wanted_opens.extend(unknown);
        }
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
    pub fn releases_lost(&mut self, lost: Vec<Release>) {
        self.releases.extend(lost);
        self.progress += 1;
    }

    /// The server did not take the release, as a grant that is on its way had come before it.
    pub fn release_crossed(&mut self, handle: &Handle) {
        let Some(node) = self.by_handle(handle) else { return };
        let release = Release { handle: handle.clone(), keep: node.held, seq: node.seq };
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
        if node.data.mtime_owed && !node.held.contains(CapSet::FILE_X) {
            self.pay_mtime(id, now);
        }
        let Some(node) = self.nodes.get_mut(&id) else { return true };
        let through = recall.through.max(if node.pending > 0 { node.last_serial } else { 0 });
        if self.stream.executed() < through {
            self.stream.hurry(through);
            return false;
        }
        if self.invalidated < recall.invalidation {
            return false;
        }
        if !node.held.contains(CapSet::LINK_S) && !self.opens_unknown(id).is_empty() {
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
            self.releases.push(Release { handle, keep, seq });
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
        self.releases.push(Release { handle, keep, seq });
        if let Some(node) = self.nodes.get_mut(&id) {
            node.held = keep;
        }
    }

    /// Everything held is lost: the server restarted, or took it all back. What is queued is sent all the same.
    pub fn caps_lost(&mut self, now: Now) {
        self.reclaimed(Vec::new(), now);
    }

    /// The server was not heard of for so long that it may have given up on this client, or is about to: nothing held is relied
    /// on, and nothing that is granted before [`regained`](Self::regained). It may also be waiting still for what was asked
    /// back, which goes to it.
    pub fn lapsed(&mut self, now: Now) {
        let asked_back = (std::mem::take(&mut self.releases), std::mem::take(&mut self.deferred));
        let waiting = std::mem::take(&mut self.releasing);
        self.caps_lost(now);
        (self.releases, self.deferred) = asked_back;
        self.releasing = waiting;
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
        let mut given = rustc_hash::FxHashMap::default();
        for Reclaimed { handle, result } in results {
            if let (Some(id), Ok(got)) = (self.handles.get(&handle), result) {
                given.insert(*id, got);
            }
        }
        self.early.clear();
        self.deferred.clear();
        // Of what was held before nothing is to be given back; what is asked back now still is.
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
        if !after.contains(CapSet::LINK_S) {
            // Nobody asks any more before the name goes: the server has to know of what is open.
            let unknown = self.opens_unknown(id);
            self.wanted_opens.extend(unknown);
        }
    }

    /// What was claimed only to be given back, as a reply had told of a recall that went with the former server, is asked back
    /// by nobody.
    fn give_back_claimed(&mut self, id: NodeId, now: Now) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let (keep, rest) = (node.held, node.giving_back);
        if rest.is_empty() || node.recall.is_some() {
            return;
        }
        node.recall = Some(Recalling { keep, invalidation: 0, through: 0 });
        self.recalling.push(id);
        self.hurry_recall(id, rest, now);
    }

    /// Whether it matters what a name stands for before the server takes it away: an object that is open has to be hidden, and
    /// of one that is promised the number of names is believed.
    pub(crate) fn must_know_names(&self) -> bool {
        self.settings.caps || self.has_been_promised || !self.opens.is_empty()
    }

    /// What the names say about a name, if they may be relied on.
    pub(crate) fn known(&self, dir: NodeId, name: &[u8]) -> Known {
        let Some(node) = self.nodes.get(&dir) else { return Known::Unknown };
        let Some(entries) = &node.dir else { return Known::Unknown };
        let by_dir = if node.held.contains(CapSet::FILE_S) { entries.look(name) } else { Known::Unknown };
        if by_dir != Known::Unknown || entries.is_busy(name) {
            return by_dir;
        }
        match self.leases.look(dir, name) {
            // Forgotten to make room.
            Known::Present(id) if !self.nodes.contains_key(&id) => Known::Unknown,
            known => known,
        }
    }
}
