//! What may be relied on: grants come, losses take away, changes being asked for hold in suspense. Recalls are in `recall`, the end of
//! a server in `reclaim`.

use crate::ask::{Generation, Question, RenameMode};
use crate::attrs::Attrs;
use crate::caps::Grant;
use crate::dir::{Known, Source};
use crate::ids::{Name, NodeId};
use crate::machine::Machine;
use crate::node::Node;
use crate::tell::Forget;
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
        let (had, held) = (node.held, grant.caps.sound() & limit);
        let lost = had.without(held);
        if !had.contains(held.shared()) {
            node.given_at = tick;
        }
        node.held = held;
        node.giving_back = (node.giving_back | lost).without(node.held);
        if is_news {
            self.invalidate(Forget::Attrs(id));
        }
        if !lost.is_empty() {
            self.lose(id, lost);
        }
    }

    /// Takes over attributes from a reply to a question asked at `at`, as far as they are covered by what is held, of which the
    /// reply came with this grant; returns them as they are to be shown.
    pub(crate) fn learn(
        &mut self,
        id: NodeId,
        theirs: &Attrs,
        (at, grant): (Generation, Option<Grant>),
    ) -> Attrs {
        // It may be what has taken a name meanwhile that is being removed: the server asks nobody back for what he does himself.
        let (may_lose_name, epoch) = (self.may_lose_name(at), self.epoch);
        let Some(node) = self.nodes.get_mut(&id) else { return *theirs };
        let held = node.held.shared();
        let known = if may_lose_name && node.dir.is_none() { held.without(CapSet::LINK_S) } else { held };
        let merged = node.merged(theirs);
        let undisturbed = node.is_covered(at, grant) && (node.disturbed <= at || node.clean_for == Some(at));
        let is_all_sent = node.pending == 0 && node.data.extents.weights().unsent == 0;
        let ours_is_there = is_all_sent && !node.data.may_be_lost(epoch);
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
            let is_news = node.dir.is_none() && (known & !node.sure).contains(CapSet::LINK_S);
            node.sure |= known;
            if is_news {
                self.note_links_sure(id);
            }
        }
        merged
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
                node.had_one_name = node.sure.contains(CapSet::LINK_S) && node.attrs.nlink <= 1;
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
        self.end_taking(question, at);
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
        let guaranteed =
            node.held.contains(CapSet::FILE_S) && node.names_lost <= at && node.is_covered(at, None);
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
            let by_dir = dir.slot(name.as_bytes()).and_then(|s| s.node.map(|n| (n, s.told)));
            let by_itself = m.leases.slot(id, name.as_bytes());
            // Where both have it, the kernel may have been told as either was had.
            let told = [by_dir, by_itself].into_iter().flatten().any(|(_, told)| told);
            by_dir.or(by_itself).map(|(node, _)| (node, told))
        };
        let (source, target) = (known(self, from), known(self, to));
        let told = source.is_some_and(|(_, t)| t) || target.is_some_and(|(_, t)| t);
        let (moved, left) = match mode {
            RenameMode::Exchange => (source.map(|(n, _)| Some(n)), target.map(|(n, _)| Some(n))),
            // Of two names of one file both stay (rename(2)): the other may have become one since it was looked at.
            RenameMode::Replace if !source.is_some_and(|(n, _)| self.has_one_name(n, at)) => (None, None),
            _ => (source.map(|(n, _)| Some(n)), Some(None)),
        };
        self.end_name(to.0, to.1, moved, at);
        self.end_name(from.0, from.1, left, at);
        for (dir, name) in [from, to] {
            self.forget_entry(told, dir, name);
        }
    }

    /// Whether it had surely one name when the change was asked for that has been answered now, and got no other beside it.
    fn has_one_name(&self, id: NodeId, asked: Generation) -> bool {
        let is_promised = |n: &Node| n.held.contains(CapSet::LINK_S) && n.clean_for == Some(asked);
        self.nodes.get(&id).is_some_and(|n| n.dir.is_some() || (n.had_one_name && is_promised(n)))
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

    /// These are held, and were not for a moment of which nothing was heard: what was known before is not guaranteed by what is held
    /// now.
    pub(crate) fn lose_between(&mut self, id: NodeId, lost: CapSet) {
        self.lose(id, lost);
        let tick = self.tick();
        if let Some(node) = self.nodes.get_mut(&id).filter(|_| lost.contains(CapSet::FILE_S)) {
            node.data.readable_since = tick;
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
