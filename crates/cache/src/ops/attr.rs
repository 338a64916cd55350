//! Attributes: looked at and changed.

use super::Attributes;
use super::data::BLOCK;
use super::let_in::Judged;
use crate::ask::Question;
use crate::attrs::{Attrs, Changes, Kind, SetTime};
use crate::errno::Errno;
use crate::fresh::Fresh;
use crate::ids::{Fh, NodeId, Now, OpenToken};
use crate::machine::Machine;
use crate::node::Node;
use crate::queue::Op;
use crate::step::{Outcome, Step, Turn, Wait};
use holdfast_base::CapSet;

impl Machine {
    /// Attributes of an object.
    pub fn getattr(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Step<Attributes> {
        let done = self.try_getattr(turn, id, now);
        if done.is_ok() {
            self.stats.attributes.count(turn.counted.has_asked);
        }
        self.counted(turn, done)
    }

    fn try_getattr(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Outcome<Attributes> {
        self.living(id, now)?;
        let fresh = turn.take()?;
        let attrs = self.fresh_attrs(turn, id, fresh.as_ref(), now)?;
        Ok(self.attributes(id, attrs))
    }

    /// What the kernel is told of attributes.
    pub(crate) fn attributes(&mut self, id: NodeId, attrs: Attrs) -> Attributes {
        let Some(node) = self.nodes.get_mut(&id) else { return Attributes { attrs, valid: false } };
        let valid = node.is_sure();
        node.told_attrs |= valid;
        Attributes { attrs: if valid { node.attrs } else { attrs }, valid }
    }

    /// Attributes as they are known, or as a fresh answer told them; else they are asked for.
    pub(crate) fn fresh_attrs(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        fresh: Option<&Fresh>,
        now: Now,
    ) -> Outcome<Attrs> {
        let node = self.node(id)?;
        if node.is_sure() {
            return Ok(node.attrs);
        }
        let fileid = node.attrs.fileid;
        // Where two nodes bear one handle (`bind`) an answer is told under the number of the one that it leads to.
        let borne = node.handle.as_ref().and_then(|handle| self.nodes.get(self.handles.get(handle)?));
        let is_its =
            |attrs: &Attrs| [Some(fileid), borne.map(|n| n.attrs.fileid)].contains(&Some(attrs.fileid));
        match fresh {
            // What it was to be shown with may have been sent meanwhile, as the promise went that covered it.
            Some(Fresh::Attrs(attrs))
                if is_its(attrs) && (!turn.adds_ours || node.sure.contains(CapSet::FILE_S)) =>
            {
                return Ok(Attrs { fileid, ..*attrs });
            }
            // What is on its way of ours the server may not have known when it answered.
            Some(Fresh::Looked(Some((found, attrs))))
                if *found == id
                    && node.data.moved <= turn.asked_at
                    && node.pending == 0
                    && node.data.extents.weights().unsent == 0 =>
            {
                return Ok(*attrs);
            }
            _ => {}
        }
        self.told_server(turn, id, CapSet::ALL_S, now)?;
        let begun = turn.begun.unwrap_or_default();
        turn.adds_ours = self.node(id)?.has_unsent(begun);
        let object = self.handle(turn, id)?;
        let (open, want) = (self.token(id, false), self.want(Some(id), CapSet::ALL_S, now));
        turn.asks_of = Some(id);
        self.ask(turn, Question::GetAttr { object, open, want })
    }

    /// A file's attributes, if owner and mode among them are known without asking.
    pub fn known_rights(&self, id: NodeId) -> Option<Attrs> {
        let node = self.nodes.get(&id)?;
        (node.attrs.kind == Kind::File && node.sure.contains(CapSet::AUTH_S)).then_some(node.attrs)
    }

    /// Changes attributes. EISDIR for the size of a directory, and what the server answers.
    pub fn setattr(&mut self, turn: &mut Turn, id: NodeId, changes: &Changes, now: Now) -> Step<Attributes> {
        let done = self.try_setattr(turn, id, changes, now);
        self.counted(turn, done)
    }

    pub(super) fn try_setattr(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        changes: &Changes,
        now: Now,
    ) -> Outcome<Attributes> {
        let node = self.living(id, now)?;
        if changes.size.is_some() && node.dir.is_some() {
            return Err(Errno::EISDIR.into());
        }
        if let Some(Fresh::Attrs(attrs)) = turn.take()? {
            return Ok(self.attributes(id, attrs));
        }
        if changes.size.is_some() {
            self.not_being_stored(id)?;
        }
        self.let_in_before(turn, id, &Judged::by_attributes(changes), now)?;
        if self.may_set(turn, id, changes)? {
            self.room_in_stream()?;
            self.set_here(turn, id, changes, now);
            let attrs = self.node(id)?.attrs;
            return Ok(self.attributes(id, attrs));
        }
        self.rights_for_itself(turn, id, changes, now)?;
        self.set_there(turn, id, changes, self.token_by(id, &turn.caller), now)
    }

    /// Asks for an object of which others may know what is to be changed, to change it here: that takes as long as having it changed,
    /// but for the server's disk, and what comes next takes nothing. A size is left to the server, which has to give back what is cut
    /// off; and the file's data is asked for with its times alone, for a server has fewer of that to promise.
    fn rights_for_itself(&mut self, turn: &mut Turn, id: NodeId, changes: &Changes, now: Now) -> Outcome<()> {
        let is_timed = changes.atime.is_some() || changes.mtime.is_some();
        let node = self.node(id)?;
        let is_for_server =
            node.listed && changes.mode.is_some() || node.hidden.is_some() || !self.will_be_there(node);
        // While a change of it is being asked for nothing can be changed here, whatever is held.
        let may_help =
            self.settings.batches && changes.size.is_none() && !is_for_server && node.changing == 0;
        if !may_help || (turn.acquired && !is_timed) || self.may_change_by(id, changes)? {
            return Ok(());
        }
        // Where the data was just refused, that is noted.
        let Some(want) = self.want_alone(turn, id, now)? else { return Ok(()) };
        let want = if is_timed { want } else { want.without(CapSet::FILE_X) | CapSet::FILE_S };
        let object = self.handle(turn, id)?;
        self.ask(turn, Question::Acquire { items: vec![(object, want)] })
    }

    /// Whether what is held is enough to make these changes here.
    fn may_change_by(&self, id: NodeId, changes: &Changes) -> Outcome<bool> {
        let auth = changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some();
        let file = changes.size.is_some() || changes.mtime.is_some() || changes.atime.is_some();
        let node = self.node(id)?;
        Ok((!auth || node.may_change(CapSet::AUTH_X)) && (!file || node.may_change(CapSet::FILE_X)))
    }

    /// Has the server change attributes, behind all that was done before.
    pub(super) fn set_there<T>(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        changes: &Changes,
        open: Option<OpenToken>,
        now: Now,
    ) -> Outcome<T> {
        self.overtake_none(turn)?;
        self.data_sent(turn, id, now)?;
        if changes.size.is_some() {
            self.fill_is_stable(turn, id)?;
        }
        self.settings_are_stable(turn, id)?;
        let object = self.handle(turn, id)?;
        let (changes, want) = (*changes, self.want(Some(id), CapSet::ALL_X, now));
        self.ask(turn, Question::SetAttr { object, open, changes, want })
    }

    /// Waits until the data written before this operation began is with the server.
    pub(crate) fn data_sent(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Outcome<()> {
        let generation = self.generation;
        let begun = *turn.begun.get_or_insert(generation);
        if self.node(id)?.has_unsent(begun) {
            self.settle(id, true, now);
            self.need_data(id);
            return self.wait(Wait::Written);
        }
        Ok(())
    }

    /// Whether attributes may be changed here and told later.
    fn may_set(&mut self, turn: &Turn, id: NodeId, changes: &Changes) -> Outcome<bool> {
        if !self.settings.batches {
            return Ok(false);
        }
        let (held, node) = (self.may_change_by(id, changes)?, self.node(id)?);
        // Cutting off what is being written beside the stream could overtake it. What is cut off under a lock is cut off while
        // that is held; and who may do so by his open alone names that.
        let data = &node.data;
        let clear =
            changes.size.is_none() || (data.in_flight.is_empty() && !data.is_locked && !data.needs_open);
        // Of what has an access list the mode is a part of that, which the server knows.
        let is_of_list = changes.mode.is_some() && node.listed;
        if !held || !clear || is_of_list || node.hidden.is_some() || !self.will_be_there(node) {
            return Ok(false);
        }
        self.may_set_as(turn, id, changes)
    }

    /// Whether what is put off about an object will find it: nobody takes its last name before that has arrived, or the server
    /// has it open for somebody here, or it has still to be made.
    fn will_be_there(&self, node: &Node) -> bool {
        let is_open_there = |fh: &Fh| self.opens.get(fh).is_some_and(|open| open.at_server);
        node.has_sure_name() || node.handle.is_none() || node.opens.iter().any(is_open_there)
    }

    fn set_here(&mut self, turn: &Turn, id: NodeId, changes: &Changes, now: Now) {
        let at = |t: SetTime| match t {
            SetTime::Now => now.wall,
            SetTime::At(t) => t,
        };
        let Some(node) = self.nodes.get_mut(&id) else { return };
        // What is shown here is what the server is to have, not its own moment.
        let mut changes = *changes;
        changes.atime = changes.atime.map(|t| SetTime::At(at(t)));
        changes.mtime = changes.mtime.map(|t| SetTime::At(at(t)));
        let owned_anew = (changes.uid.is_some() || changes.gid.is_some()) && node.dir.is_none();
        let attrs = &mut node.attrs;
        if owned_anew && changes.mode.is_none() && attrs.mode_without_set_ids() != attrs.mode {
            changes.mode = Some(attrs.mode_without_set_ids());
        }
        attrs.mode = changes.mode.map_or(attrs.mode, |m| m & 0o7777);
        attrs.uid = changes.uid.unwrap_or(attrs.uid);
        attrs.gid = changes.gid.unwrap_or(attrs.gid);
        attrs.atime = changes.atime.map_or(attrs.atime, at);
        attrs.ctime = now.wall;
        // Though it be what it was: `: >file` is how times are brought up to date, and the server's moves as well (RFC 8881
        // section 18.30.4).
        if let Some(size) = changes.size {
            attrs.mtime = now.wall;
            attrs.size = size;
            changes.mtime = changes.mtime.or(Some(SetTime::At(now.wall)));
        }
        attrs.mtime = changes.mtime.map_or(attrs.mtime, at);
        if changes.mtime.is_some() && changes.size.is_none() {
            node.data.mtime_set = Some(attrs.mtime);
        }
        if changes.size.is_some() {
            self.size_set_here(turn, id, &mut changes, now);
        }
        self.queue_changes(turn, id, &changes, now);
    }

    /// Truncates, or extends, what is kept of a file's data. What is not sent and goes with the file's making needs no
    /// mutation of its own.
    fn size_set_here(&mut self, turn: &Turn, id: NodeId, changes: &mut Changes, now: Now) {
        let Some(size) = changes.size else { return };
        let at = self.tick();
        self.cut_blocks(id, size);
        self.pledged_gives_way(id, (size, u64::MAX));
        self.with_data(id, |data| {
            data.differs(at);
            data.extents.cut(size, u64::MAX);
        });
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let carrier = node.data.carrier;
        let making = node.handle.is_none() && node.made.is_none();
        node.attrs.allocated = node.attrs.allocated.min(size.next_multiple_of(BLOCK));
        if making {
            changes.size = None;
            return;
        }
        // Data queued before would be put into its place with what is written after: it is queued anew, behind.
        if let Some(serial) = carrier {
            self.elide(serial);
        }
        let op = Op::SetAttr { node: id, changes: Changes { size: Some(size), ..Changes::default() } };
        let serial = self.queue(op, &turn.caller, now);
        changes.size = None;
        let dirty = self.with_data(id, |data| {
            data.barrier = serial;
            data.truncations.push((size, serial));
            data.extents.has_dirty()
        });
        if dirty == Some(true) && carrier.is_some() {
            self.settle(id, false, now);
        }
    }

    /// Queues changes, or merges them into what is queued about the node by the same caller.
    fn queue_changes(&mut self, turn: &Turn, id: NodeId, changes: &Changes, now: Now) {
        if changes.is_empty() {
            return;
        }
        if changes.mode.is_some() || changes.uid.is_some() || changes.gid.is_some() {
            // What was made for a directory is as that was.
            self.drop_pools(id);
        }
        let Some(node) = self.nodes.get(&id) else { return };
        let unsent = node.unsent.clone();
        // A change of owner, and of data by who is not root, takes set-id bits: none may come to be behind their setting.
        let sets_ids = changes.mode.is_some_and(|mode| mode & 0o6000 != 0);
        let first = if sets_ids { unsent.len().saturating_sub(1) } else { 0 };
        // Cutting a file off gives it the time of that: what was set after it must not come to be before it.
        let cuts = |serial: &u64| {
            let op = self.stream.unsent(*serial).map(|queued| &queued.op);
            matches!(op, Some(Op::SetAttr { changes, .. }) if changes.size.is_some())
        };
        let first = unsent.iter().rposition(cuts).map_or(first, |at| first.max(at + 1));
        for serial in unsent.into_iter().skip(first) {
            let Some(queued) = self.stream.unsent_mut(serial) else { continue };
            if queued.caller != turn.caller {
                continue;
            }
            match &mut queued.op {
                // Times go with the file as they are when it is sent. An owner set by another operation later is
                // another matter: the server judges it by itself.
                Op::Make { attrs, .. } if changes.uid.is_none() && changes.gid.is_none() => {
                    attrs.mode = changes.mode.unwrap_or(attrs.mode);
                    let time = |t: Option<SetTime>| {
                        t.and_then(|t| if let SetTime::At(t) = t { Some(t) } else { None })
                    };
                    attrs.atime = time(changes.atime).or(attrs.atime);
                    attrs.mtime = time(changes.mtime).or(attrs.mtime);
                    self.stats.mutations_merged += 1;
                    return;
                }
                Op::SetAttr { changes: earlier, .. } if earlier.size.is_none() => {
                    earlier.merge(changes);
                    self.stats.mutations_merged += 1;
                    // It may have been there to pay for a time alone.
                    self.with_data(id, |data| data.mtime_paid = None);
                    return;
                }
                _ => {}
            }
        }
        self.queue(Op::SetAttr { node: id, changes: *changes }, &turn.caller, now);
    }
}
