//! Opens and closes.

use super::{OpenFlags, Opened};
use crate::ask::{Access, Question};
use crate::attrs::{Changes, Kind};
use crate::errno::Errno;
use crate::fresh::Fresh;
use crate::ids::{Caller, Fh, Handle, NodeId, Now, OpenToken};
use crate::machine::Machine;
use crate::node::Open;
use crate::step::{Found, Outcome, Step, Turn};
use holdfast_base::CapSet;
use holdfast_base::limits::OPENS_TOLD_MAX;

impl Machine {
    /// Opens a file. EISDIR, ETXTBSY, and what the server answers.
    pub fn open(&mut self, turn: &mut Turn, id: NodeId, flags: OpenFlags, now: Now) -> Step<Opened> {
        let done = self.try_open(turn, id, flags, now);
        if done.is_ok() {
            self.stats.opens.count(turn.counted.has_asked);
        }
        self.counted(turn, done)
    }

    fn try_open(&mut self, turn: &mut Turn, id: NodeId, flags: OpenFlags, now: Now) -> Outcome<Opened> {
        if let Some(found) = turn.found {
            return self.hand_out(turn, found);
        }
        let node = self.living(id, now)?;
        // What has a name after all, as what was changed on both sides, has what the server has of it.
        if node.data.is_let_go && node.attrs.nlink == 0 {
            return self.refuse_let_go(turn, id);
        }
        match node.attrs.kind {
            Kind::File => {}
            Kind::Dir => return Err(Errno::EISDIR.into()),
            Kind::Symlink => return Err(Errno::ELOOP.into()),
            _ => return Err(Errno::ENXIO.into()),
        }
        // Linux turns away who would write to a running program before we are asked, but who only empties it
        // (`O_RDONLY | O_TRUNC`) afterwards, when the program has lost its pages.
        if flags.truncate && !flags.access.write && self.is_running(id) {
            return Err(Errno::ETXTBSY.into());
        }
        if let Some(Fresh::Opened(token)) = turn.take()? {
            let attrs = self.node(id)?.attrs;
            let opened = self.add_open(id, flags, Some(token), &turn.caller);
            return self.hand_out(turn, Found { node: id, opened, attrs, is_to_empty: false });
        }
        self.foresee_absence(turn)?;
        self.not_being_stored(id)?;
        if self.may_open_here(turn, id, flags, now)? {
            if flags.truncate && !turn.emptied {
                turn.emptied = true;
                let changes = Changes { size: Some(0), ..Changes::default() };
                if let Step::Failed(errno) = self.empty_here(turn, id, &changes, now)? {
                    return Err(errno.into());
                }
            }
            return Ok(self.add_open(id, flags, None, &turn.caller));
        }
        self.open_at_server(turn, id, flags, now)
    }

    /// Hands out what the server has opened. While that was asked for the kernel may have begun to be given its data.
    fn hand_out(&mut self, turn: &mut Turn, found: Found) -> Outcome<Opened> {
        turn.found = Some(found);
        self.not_being_stored(found.node)?;
        turn.found = None;
        Ok(found.opened)
    }

    /// Who had found it by its name opens it when that has gone, and what was written last with it. The kernel looks the name up
    /// once more.
    fn refuse_let_go(&mut self, turn: &mut Turn, id: NodeId) -> Outcome<Opened> {
        if let Some(Fresh::Opened(Some(token))) = turn.take()? {
            self.closes.push((token, turn.caller.clone(), id));
        }
        Err(Errno::ESTALE.into())
    }

    /// Whether the server need not be told of the open: nobody can remove the file unseen, and what is read or written
    /// is covered.
    fn may_open_here(&mut self, turn: &Turn, id: NodeId, flags: OpenFlags, now: Now) -> Outcome<bool> {
        let node = self.node(id)?;
        // What has no name is there as long as the server has it open: nobody asks before it goes.
        if node.attrs.nlink == 0 {
            return Ok(false);
        }
        let (writes, shared) = (flags.access.write || flags.truncate, CapSet::LINK_S | CapSet::AUTH_S);
        let needs = shared | if writes { CapSet::FILE_X } else { CapSet::FILE_S };
        if writes && !self.settings.write_back {
            return Ok(false);
        }
        // Nobody changes who is let in while it is opened; nor do we.
        let is_sure = node.has_sure_name() && node.sure.contains(CapSet::AUTH_S);
        if node.held.contains(needs) && is_sure && (!writes || node.may_change(CapSet::FILE_X)) {
            if !self.settings.caps {
                return Ok(node.admits(&turn.caller, flags.access));
            }
            return self.may_open_as(turn, id, (flags.access.read, writes));
        }
        if !self.settings.caps || turn.acquired {
            return Ok(false);
        }
        let wish = if writes { CapSet::ALL_X } else { CapSet::ALL_S };
        let want = self.want(Some(id), wish, now);
        if !want.contains(needs) {
            return Ok(false);
        }
        let object = self.handle(turn, id)?;
        self.ask(turn, Question::Acquire { items: vec![(object, want)] })
    }

    /// Empties a file that is being opened; where that cannot be done here, by a question of its own.
    fn empty_here(&mut self, turn: &mut Turn, id: NodeId, changes: &Changes, now: Now) -> Outcome<Step<()>> {
        match self.setattr(turn, id, changes, now) {
            Step::Done(_) => Ok(Step::Done(())),
            Step::Failed(errno) => Ok(Step::Failed(errno)),
            Step::Ask(ask) => {
                // Not emptied yet: the answer comes as attributes where it was the emptying itself.
                turn.emptied = matches!(ask.question, Question::SetAttr { .. });
                Err(crate::step::Stop::Ask(ask))
            }
            Step::Wait(wait) => {
                turn.emptied = false;
                Err(crate::step::Stop::Wait(wait))
            }
        }
    }

    fn open_at_server(&mut self, turn: &mut Turn, id: NodeId, flags: OpenFlags, now: Now) -> Outcome<Opened> {
        // What was emptied before it turned out that the server has to know is not emptied again: others may have written since.
        let truncate = flags.truncate && !turn.emptied;
        if truncate {
            self.overtake_none(turn)?;
            self.data_sent(turn, id, now)?;
            self.fill_is_stable(turn, id)?;
            self.settings_are_stable(turn, id)?;
        } else {
            self.told_server(turn, id, CapSet::ALL_S, now)?;
        }
        let object = self.handle(turn, id)?;
        let wish = if flags.access.write { CapSet::ALL_X } else { CapSet::ALL_S };
        let want = self.want(Some(id), wish, now);
        let access = flags.access;
        self.ask(turn, Question::Open { object, access, truncate, want })
    }

    /// Whether the file is a program that runs on this host.
    fn is_running(&self, id: NodeId) -> bool {
        let opens = self.nodes.get(&id).map(|n| n.opens.as_slice()).unwrap_or_default();
        opens.iter().any(|fh| self.opens.get(fh).is_some_and(|open| open.executes))
    }

    pub(crate) fn add_open(
        &mut self,
        id: NodeId,
        flags: OpenFlags,
        at_server: Option<Option<OpenToken>>,
        caller: &Caller,
    ) -> Opened {
        let (token, at_server) = (at_server.flatten(), at_server.is_some());
        self.last_fh += 1;
        let fh = Fh(self.last_fh);
        let (access, append, executes) = (flags.access, flags.append, flags.execute);
        let (covers, caller) = (access, caller.clone());
        // What is kept beside writers is soon given back.
        let covers_all = |n: &crate::node::Node| n.held.contains(CapSet::FILE_S) && n.lent_until.is_none();
        let is_covered = self.nodes.get(&id).is_some_and(|n| covers_all(n));
        // What the kernel takes into its pages it sends page by page, and where it believes the end to be: an append would neither
        // come whole nor as one.
        let is_direct = self.is_direct(is_covered) || (append && access.write && self.settings.direct);
        let heard = self.nodes.get(&id).map(|n| n.losses.opened()).unwrap_or_default();
        let open = Open {
            node: id,
            access,
            append,
            token,
            covers,
            at_server,
            is_being_told: false,
            caller,
            stream: None,
            is_direct,
            executes,
            heard,
        };
        self.opens.insert(fh, open);
        let mut opened = Opened { fh, keep_cache: false, is_direct, is_flushed: true };
        let Some(node) = self.nodes.get_mut(&id) else { return opened };
        node.opens.push(fh);
        // What the kernel read before the capability came may be old: one open drops it, the next ones need not.
        opened.keep_cache = is_covered && node.pages_covered;
        opened.is_flushed = access.write;
        node.pages_covered = is_covered;
        node.told_data |= is_covered;
        opened
    }

    /// The server's name for what is open.
    #[must_use]
    pub fn handle_opened(&self, fh: Fh) -> Option<Handle> {
        self.handle_of(self.opens.get(&fh)?.node)
    }

    /// Who opened it, with all groups that he had.
    #[must_use]
    pub fn opener(&self, fh: Fh) -> Option<&Caller> {
        self.opens.get(&fh).map(|open| &open.caller)
    }

    /// Whether something can be written through an open.
    #[must_use]
    pub fn may_write(&self, fh: Fh) -> bool {
        self.opens.get(&fh).is_some_and(|open| open.access.write)
    }

    /// The end of an open. What the server has to be told comes out of `take_closes`, `take_removals`.
    pub fn release(&mut self, fh: Fh, now: Now) {
        self.progress += 1;
        let Some(open) = self.opens.remove(&fh) else { return };
        let id = open.node;
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.opens.retain(|o| *o != fh);
        let rest = node.opens.clone();
        if let Some(token) = open.token {
            // An open that the server does not know may depend on this one: it takes it over, if it is good for all
            // that it may do. By another user's it does nothing but be there, so it is left where that is needed.
            let (covers, user, is_named) = (open.covers, open.caller.uid, node.has_sure_name());
            let is_heir = |o: &Open| o.token.is_none() && covers.has(o.access);
            let is_his = |fh: &&Fh| self.opens.get(fh).is_some_and(|o| is_heir(o) && o.caller.uid == user);
            let is_any = |fh: &&Fh| !is_named && self.opens.get(fh).is_some_and(is_heir);
            let heir = rest.iter().find(is_his).or_else(|| rest.iter().find(is_any));
            match heir.copied().and_then(|o| self.opens.get_mut(&o)) {
                Some(heir) => (heir.token, heir.covers, heir.at_server) = (Some(token), covers, true),
                None => self.closes.push((token, open.caller, id)),
            }
        }
        if rest.is_empty() {
            // Locks have ended with the opens, but not for what was written under them and has still to go out.
            if let Some(node) = self.nodes.get_mut(&id) {
                let is_left = node.data.extents.any(|p, _| p.is_by_write());
                node.data.is_locked &= is_left;
                // The time of what was written may be on its way, or have still to be sent.
                node.data.needs_open &= is_left || node.data.mtime_owed || node.pending > 0;
            }
            let hidden = self.nodes.get_mut(&id).and_then(|n| n.hidden.take());
            if let Some(hidden) = hidden {
                self.end_hidden(id, hidden);
            } else if self.nodes.get(&id).is_some_and(|n| n.has_surely_no_name()) {
                self.drop_data_of_nameless(id);
            }
        }
        if open.access.write {
            self.settle(id, false, now);
        }
        self.trim();
    }

    /// What a change names it is refused by, once that is closed, however long others hold it up at the server: so the close waits
    /// for it, though it be another's, who has ended. A change alone, whose answer is heard in any case.
    pub(crate) fn begin_naming(&mut self, question: &Question) {
        for open in question.opens_named() {
            *self.opens_named.entry(open).or_default() += 1;
        }
    }

    /// The answer to a change has come.
    pub(crate) fn end_naming(&mut self, question: &Question) {
        for open in question.opens_named() {
            if let Some(named) = self.opens_named.get_mut(&open) {
                *named -= 1;
                if *named == 0 {
                    self.opens_named.remove(&open);
                }
            }
        }
    }

    /// Opens of which the server may be told that they have ended: all their data is with it, and nothing under way names them.
    pub fn take_closes(&mut self) -> Vec<(OpenToken, Caller)> {
        let (mut ready, mut later) = (Vec::new(), Vec::new());
        for (token, caller, id) in std::mem::take(&mut self.closes) {
            let later_needed = |n: &crate::node::Node| n.data.extents.weights().unsent > 0 || n.pending > 0;
            let is_named = self.opens_named.contains_key(&token);
            if is_named || self.nodes.get(&id).is_some_and(|n| later_needed(n)) {
                later.push((token, caller, id));
            } else {
                ready.push((token, caller));
            }
        }
        self.closes = later;
        ready
    }

    /// Hidden names of files that nobody has open any more, to be removed.
    pub fn take_removals(&mut self) -> Vec<(Handle, crate::ids::Name, Caller)> {
        std::mem::take(&mut self.removals)
    }

    /// A server's open to lock with: the file's handle, and the open, where the server keeps state of it.
    pub fn server_open(&mut self, turn: &mut Turn, fh: Fh, now: Now) -> Step<(Handle, Option<OpenToken>)> {
        self.try_server_open(turn, fh, now).into()
    }

    fn try_server_open(&mut self, turn: &mut Turn, fh: Fh, now: Now) -> Outcome<(Handle, Option<OpenToken>)> {
        let open = self.opens.get(&fh).ok_or(Errno::EBADF)?;
        let (id, access, token) = (open.node, open.access, open.token);
        self.living(id, now)?;
        let object = self.handle(turn, id)?;
        if token.is_some() {
            return Ok((object, token));
        }
        if let Some(Fresh::Opened(token)) = turn.take()? {
            match self.opens.get_mut(&fh) {
                Some(open) => (open.token, open.at_server) = (token, true),
                None => self.closes.extend(token.map(|t| (t, turn.caller.clone(), id))),
            }
            return Ok((object, token));
        }
        self.ask(turn, Question::Open { object, access, truncate: false, want: CapSet::NONE })
    }

    /// Files that are open without the server's knowing, and whose names, or who may do what with them, somebody is about to change:
    /// the server has to be told of the opens, so that they outlive that. Each is given out once; then [`opened`](Self::opened). No
    /// more of them at a time than leaves room for what else is sent.
    pub fn take_opens(&mut self) -> Vec<(Fh, Handle, Access, Caller)> {
        let mut wanted = Vec::new();
        while self.opens_under_way < OPENS_TOLD_MAX
            && let Some(fh) = self.wanted_opens.pop_front()
        {
            let Some(open) = self.opens.get_mut(&fh).filter(|o| !o.at_server) else { continue };
            match self.nodes.get(&open.node).and_then(|n| n.handle.clone()) {
                Some(handle) => {
                    self.opens_under_way += 1;
                    wanted.push((fh, handle, open.access, open.caller.clone()));
                }
                None => open.is_being_told = false,
            }
        }
        wanted
    }

    /// The server was not heard of: the open comes out again, and what waits for it goes on waiting.
    pub fn open_lost(&mut self, fh: Fh) {
        self.progress += 1;
        self.opens_under_way = self.opens_under_way.saturating_sub(1);
        self.wanted_opens.push_back(fh);
    }

    /// The server was told of an open, of what had this handle then; or it would not hear of it (`None`), and the open may cease to
    /// work. Of a file that was lost since it says nothing: that is told again when it has been made again.
    pub fn opened(&mut self, fh: Fh, object: &Handle, token: Option<OpenToken>) {
        self.progress += 1;
        self.opens_under_way = self.opens_under_way.saturating_sub(1);
        let open = self.opens.get_mut(&fh);
        let (id, caller) =
            open.as_ref().map_or((NodeId::ROOT, Caller::new(0, 0)), |o| (o.node, o.caller.clone()));
        let is_it = self.nodes.get(&id).is_some_and(|node| node.handle.as_ref() == Some(object));
        match open {
            Some(open) if is_it && !open.at_server => (open.token, open.at_server) = (token, true),
            // Another question brought one meanwhile, or nobody has it open any more.
            _ => self.closes.extend(token.map(|t| (t, caller, id))),
        }
    }

    /// Opens of a file that the server does not know of.
    pub(crate) fn opens_unknown(&self, id: NodeId) -> Vec<Fh> {
        let opens = self.nodes.get(&id).map(|n| n.opens.as_slice()).unwrap_or_default();
        let unknown = |fh: &&Fh| self.opens.get(fh).is_some_and(|o| !o.at_server);
        opens.iter().filter(unknown).copied().collect()
    }

    /// Every open that the server knew of is void (its client's lease was lost).
    pub fn opens_lost(&mut self) {
        for open in self.opens.values_mut() {
            open.token = None;
        }
        self.closes.clear();
    }

    /// All opens of files.
    #[must_use]
    pub fn opens(&self) -> Vec<(Fh, Handle, Access)> {
        let known = |(fh, o): (&Fh, &Open)| {
            let handle = self.nodes.get(&o.node)?.handle.clone()?;
            o.stream.is_none().then_some((*fh, handle, o.access))
        };
        self.opens.iter().filter_map(known).collect()
    }

    /// The server knows of this open again.
    pub fn reopened(&mut self, fh: Fh, token: Option<OpenToken>) {
        if let Some(open) = self.opens.get_mut(&fh) {
            (open.token, open.at_server) = (token, true);
        }
    }
}
