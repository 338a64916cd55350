//! Names removed.

use holdfast_base::limits::{ACQUIRE_ITEMS_MAX, CLEARING_MS};

use super::lookup::check_name;
use crate::ask::Question;
use crate::dir::Known;
use crate::errno::Errno;
use crate::extent::Progress;
use crate::fresh::Fresh;
use crate::ids::{Name, NodeId, Now};
use crate::machine::Machine;
use crate::queue::Op;
use crate::step::{Outcome, Step, Stop, Turn};
use crate::tell::Forget;
use holdfast_base::CapSet;

impl Machine {
    /// Removes a name of something that is no directory. EISDIR, ENOENT, and what the server answers.
    pub fn unlink(&mut self, turn: &mut Turn, parent: NodeId, name: &[u8], now: Now) -> Step<()> {
        let done = match self.try_remove(turn, parent, name, false, now) {
            // NFS has one word for both removals (RFC 8881 section 18.25): a directory with something in it has taken the name.
            Err(Stop::Failed(Errno::ENOTEMPTY)) => Err(Errno::EISDIR.into()),
            done => done,
        };
        self.counted(turn, done)
    }

    /// Removes an empty directory. ENOTDIR, ENOTEMPTY, ENOENT, and what the server answers.
    pub fn rmdir(&mut self, turn: &mut Turn, parent: NodeId, name: &[u8], now: Now) -> Step<()> {
        let done = self.try_remove(turn, parent, name, true, now);
        self.counted(turn, done)
    }

    fn try_remove(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        name: &[u8],
        is_dir: bool,
        now: Now,
    ) -> Outcome<()> {
        self.directory(parent, now)?;
        check_name(name)?;
        let fresh = turn.take_of_names()?;
        match fresh {
            Some(Fresh::Gone) => {
                self.removed(turn, parent, now);
                return Ok(());
            }
            Some(Fresh::Looked(found)) => {
                turn.looked = found;
                if found.is_none() {
                    return Err(Errno::ENOENT.into());
                }
            }
            Some(Fresh::Opened(token)) => self.attach(turn, token),
            _ => {}
        }
        let child = match self.known(parent, name) {
            Known::Absent => return Err(Errno::ENOENT.into()),
            Known::Present(id) => Some(id),
            Known::Unknown => turn.looked.map(|(id, _)| id),
        };
        if let Some(id) = child {
            self.may_remove_kind(id, is_dir)?;
            if self.known(parent, name) == Known::Present(id)
                && self.remove_here(turn, (parent, name), id, now)?
            {
                return Ok(());
            }
        }
        self.overtake_none(turn)?;
        self.names_are_stable(turn, &[(parent, name)])?;
        if child.is_none() && self.must_know_names() {
            return self.ask_name(turn, parent, name, now);
        }
        if let Some(id) = child {
            if self.must_hide(turn, id)? {
                return self.hide(turn, (parent, name), id, now);
            }
            self.prepare_removal(turn, id, now)?;
            turn.looked = Some((id, self.node(id)?.attrs));
        }
        let dir = self.handle(turn, parent)?;
        let victim = child.and_then(|id| self.nodes.get(&id)?.handle.clone());
        let want_dir = self.want(Some(parent), CapSet::ALL_X, now);
        self.ask(turn, Question::Remove { dir, name: Name::new(name), is_dir, victim, want_dir })
    }

    fn may_remove_kind(&self, id: NodeId, is_dir: bool) -> Outcome<()> {
        let node = self.node(id)?;
        match (&node.dir, is_dir) {
            (None, true) => Err(Errno::ENOTDIR.into()),
            (Some(_), false) => Err(Errno::EISDIR.into()),
            (Some(dir), true) if dir.is_occupied() && node.held.contains(CapSet::FILE_S) => {
                Err(Errno::ENOTEMPTY.into())
            }
            _ => Ok(()),
        }
    }

    /// After the server has removed a name, or hidden it.
    fn removed(&mut self, turn: &mut Turn, parent: NodeId, now: Now) {
        if turn.hiding.is_some() {
            return self.hidden(turn);
        }
        let Some((id, _)) = turn.looked.take() else { return };
        self.note_clearing(parent, id, now);
        self.drop_data_after_removal(turn, id);
        self.lost_name(id);
    }

    /// The server has taken a name, or given it to another. What that stood for is a guess until somebody looks: somebody else
    /// may have changed it a moment before. So does the kernel guess; what of an object will be seen again is asked for anew.
    pub(crate) fn lost_name(&mut self, id: NodeId) {
        let at = self.tick();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.has_lost_name = true;
        node.attrs.nlink = node.attrs.nlink.saturating_sub(1);
        if node.dir.is_some() {
            // Of a directory that goes with the names in it.
            node.doubt(CapSet::FILE_S, at);
        }
        if node.dir.is_some() || node.attrs.nlink > 0 || !node.opens.is_empty() {
            self.invalidate(Forget::Attrs(id));
        }
    }

    /// Before the server removes a name: data of a file that may have other names, or is open, goes first, as it could not
    /// go later.
    pub(crate) fn prepare_removal(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Outcome<()> {
        let node = self.node(id)?;
        turn.removes_last =
            node.sure.contains(CapSet::LINK_S) && node.attrs.nlink <= 1 && node.opens.is_empty();
        if !turn.removes_last {
            self.data_sent(turn, id, now)?;
        }
        // What was queued since this operation began must not come after the name has gone, either.
        let node = self.node(id)?;
        let through = if node.pending > 0 { node.last_serial } else { 0 };
        self.executed(through)
    }

    pub(crate) fn drop_data_after_removal(&mut self, turn: &Turn, id: NodeId) {
        // What was asked for beside it may have given it another name.
        let was_alone = |n: &crate::node::Node| n.clean_for == Some(turn.asked_at);
        if turn.removes_last && self.nodes.get(&id).is_some_and(|n| was_alone(n)) {
            self.drop_data_of_nameless(id);
        }
    }

    /// Data of a file that nobody can open any more needs not be sent, if nobody has it open. Who else has opened it has asked
    /// FILE_X back (`caps-protocol.md` 3.2), and is to see what was written before.
    pub(crate) fn drop_data_of_nameless(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(&id) else { return };
        if !node.opens.is_empty() || node.attrs.nlink > 1 || node.dir.is_some() {
            return;
        }
        let drops_all = node.held.contains(CapSet::FILE_X) || node.handle.is_none();
        self.pledged_gives_way(id, (0, u64::MAX));
        if drops_all {
            self.drop_data(id);
        } else {
            // A server that loses its power loses the file with it.
            self.with_data(id, |data| {
                data.extents.turn(|p, _| (!matches!(p, Progress::Unstable { .. })).then_some(p));
            });
        }
    }

    /// Forgets data that nobody will see, but for what is in a batch.
    pub(crate) fn drop_data(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(&id) else { return };
        let dropped = node.data.extents.weights().unsent;
        let is_let_go = dropped > 0;
        let is_under_way = !node.data.in_flight.is_empty() || node.data.committing.is_some();
        self.stats.bytes_elided += dropped;
        self.with_data(id, |data| {
            data.extents.turn(|p, _| matches!(p, Progress::Stream(_)).then_some(p));
            data.mtime_owed = false;
            data.is_let_go |= is_let_go;
            // What is on its way may find the file gone, and is not to come out again when it is lost.
            data.in_flight.clear();
            data.committing = None;
        });
        if is_under_way {
            self.flush.on_the_way.retain(|_, of| *of != id);
        }
    }

    /// Removes a name here, to be told later, if that is allowed.
    fn remove_here(
        &mut self,
        turn: &mut Turn,
        (parent, name): (NodeId, &[u8]),
        id: NodeId,
        now: Now,
    ) -> Outcome<bool> {
        if !self.may_change_names(turn, parent, &[id], now)?
            || !self.may_unlink(turn, (parent, name), id, now)?
        {
            return Ok(false);
        }
        self.room_in_stream()?;
        let name = Name::new(name);
        self.put_name(parent, &name, None, now);
        let node = self.node_mut(id)?;
        let kind = node.attrs.kind;
        let is_dir = node.dir.is_some();
        node.attrs.nlink = if is_dir { 0 } else { node.attrs.nlink.saturating_sub(1) };
        node.attrs.ctime = now.wall;
        node.has_lost_name = true;
        let is_nameless = node.attrs.nlink == 0;
        self.count_subdirectory(parent, kind, -1);
        self.note_clearing(parent, id, now);
        if is_nameless {
            self.drop_data_of_nameless(id);
        }
        if self.vanish(id) {
            return Ok(true);
        }
        let op = if is_dir {
            Op::Rmdir { dir: parent, name, node: id }
        } else {
            Op::Unlink { dir: parent, name, node: id }
        };
        self.queue(op, &turn.caller, now);
        Ok(true)
    }

    /// Who removes a directory may be about to remove those beside it.
    fn note_clearing(&mut self, parent: NodeId, removed: NodeId, now: Now) {
        if self.nodes.get(&removed).is_none_or(|node| node.dir.is_none()) {
            return;
        }
        if let Some(dir) = self.nodes.get_mut(&parent).and_then(|node| node.dir.as_mut()) {
            dir.cleared_at = Some(now.mono);
        }
    }

    /// What is wished for on the entries of a directory that is about to be listed, and on itself. Where a tree seems to be
    /// removed it is all that removing takes, so that no other question is needed for it.
    pub(crate) fn listing_wishes(&mut self, id: NodeId, now: Now) -> (CapSet, CapSet) {
        let is_cleared = |above: NodeId| {
            let above = self.nodes.get(&above).and_then(|node| node.dir.as_ref());
            above.and_then(|dir| dir.cleared_at).is_some_and(|at| now.mono.ms_since(at) < CLEARING_MS)
        };
        let is_next =
            self.settings.batches && self.nodes.get(&id).and_then(|node| node.above).is_some_and(is_cleared);
        if !is_next {
            return (self.want(None, CapSet::ALL_S, now), self.want_names(id, now));
        }
        if let Some(dir) = self.nodes.get_mut(&id).and_then(|node| node.dir.as_mut()) {
            dir.cleared_at = Some(now.mono);
        }
        (self.want(None, CapSet::ALL_S | CapSet::LINK_X, now), self.want(Some(id), CapSet::ALL_X, now))
    }

    /// Whether the object may lose a name here: its last, unseen by anybody else, and nobody's open depends on it.
    fn may_unlink(
        &mut self,
        turn: &mut Turn,
        (parent, name): (NodeId, &[u8]),
        id: NodeId,
        now: Now,
    ) -> Outcome<bool> {
        let node = self.node(id)?;
        if !node.may_change(CapSet::LINK_X) {
            if !self.settings.caps || turn.acquired || node.changing > 0 {
                return Ok(false);
            }
            return self.acquire_for_removal(turn, parent, name, id, now);
        }
        if let Some(dir) = &node.dir {
            return Ok(node.held.contains(CapSet::FILE_X) && dir.is_empty() && node.opens.is_empty());
        }
        // Of several names one is removed by asking, but where there is nobody to ask.
        if (node.attrs.nlink > 1 && !self.is_alone()) || node.hidden.is_some() {
            return Ok(false);
        }
        Ok(!self.must_hide(turn, id)?)
    }

    /// Asks for what removing needs, of this object and of its neighbours: who removes one often removes all.
    fn acquire_for_removal(
        &mut self,
        turn: &Turn,
        parent: NodeId,
        name: &[u8],
        id: NodeId,
        now: Now,
    ) -> Outcome<bool> {
        let handle = self.handle(turn, id)?;
        // Of files no more than that: their data matters to nobody who removes them.
        let wish = |n: &crate::node::Node| match n.dir {
            Some(_) => CapSet::ALL_X,
            None => CapSet::ALL_S | CapSet::LINK_X,
        };
        let first = self.want(Some(id), wish(self.node(id)?), now);
        // Just recalled, it is not to be had again yet.
        if !first.contains(CapSet::LINK_X) {
            return Ok(false);
        }
        let mut items = vec![(handle, first)];
        let behind = self.nodes.get(&parent).and_then(|n| n.dir.as_ref()).map(|dir| {
            let from = dir.slot(name).map_or(0, |s| s.cookie);
            dir.entries(from).take(4 * ACQUIRE_ITEMS_MAX).map(|(_, _, id)| id).collect::<Vec<_>>()
        });
        for id in behind.unwrap_or_default() {
            let lacking =
                self.nodes.get(&id).filter(|n| !n.held.contains(CapSet::LINK_X) && n.recall.is_none());
            if let Some(handle) = lacking.and_then(|n| n.handle.clone()) {
                let want = self.nodes.get(&id).map_or(CapSet::NONE, |n| wish(n));
                let want = self.want(Some(id), want, now);
                if want.contains(CapSet::LINK_X) {
                    items.push((handle, want));
                }
            }
            if items.len() >= ACQUIRE_ITEMS_MAX {
                break;
            }
        }
        self.ask(turn, Question::Acquire { items })
    }

    /// Drops everything queued about an object that was made here, not sent yet, and has lost its last name.
    fn vanish(&mut self, id: NodeId) -> bool {
        let Some(node) = self.nodes.get(&id) else { return false };
        let all_unsent = node.pending as usize == node.unsent.len();
        if node.handle.is_some() || node.made.is_some() || !all_unsent || !node.opens.is_empty() {
            return false;
        }
        let unsent = node.unsent.clone();
        let plain = unsent.iter().all(|serial| {
            let op = self.stream.unsent_mut(*serial).map(|q| &q.op);
            matches!(op, Some(Op::Make { .. } | Op::SetAttr { .. } | Op::Write { .. }))
        });
        if !plain {
            return false;
        }
        for serial in unsent {
            self.elide(serial);
        }
        self.with_data(id, |data| data.extents.turn(|_, _| None));
        if let Some(node) = self.nodes.get_mut(&id) {
            node.dead = Some(Errno::ESTALE);
        }
        true
    }
}
