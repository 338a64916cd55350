//! Names changed: `rename`, with its flags.

use super::lookup::check_name;
use crate::ask::{Question, RenameMode};
use crate::dir::Known;
use crate::errno::Errno;
use crate::fresh::Fresh;
use crate::ids::{Handle, Name, NodeId, Now};
use crate::machine::Machine;
use crate::queue::Op;
use crate::step::{Outcome, Step, Turn};
use holdfast_base::CapSet;

/// A name in a directory.
type Place<'a> = (NodeId, &'a [u8]);

impl Machine {
    /// Changes a name. ENOENT, EEXIST with `NoReplace`, ENOTEMPTY, EISDIR, ENOTDIR, and what the server answers.
    pub fn rename(
        &mut self,
        turn: &mut Turn,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        mode: RenameMode,
        now: Now,
    ) -> Step<()> {
        let done = self.try_rename(turn, from, to, mode, now);
        self.counted(turn, done)
    }

    fn try_rename(
        &mut self,
        turn: &mut Turn,
        from: Place<'_>,
        to: Place<'_>,
        mode: RenameMode,
        now: Now,
    ) -> Outcome<()> {
        for (dir, name) in [from, to] {
            self.directory(dir, now)?;
            check_name(name)?;
        }
        match turn.take_of_names()? {
            Some(Fresh::Gone) if turn.hiding.is_some() => {
                self.hidden(turn);
                // Its name is free.
                turn.target = Some(None);
            }
            Some(Fresh::Gone) => {
                if mode == RenameMode::Replace {
                    self.renamed_at_server(turn);
                }
                return Ok(());
            }
            Some(Fresh::Looked(found)) => self.found(turn, found),
            Some(Fresh::Opened(token)) => self.attach(turn, token),
            _ => {}
        }
        let (source, target) = (self.known(from.0, from.1), self.known(to.0, to.1));
        match (source, target, mode) {
            (Known::Absent, _, _) | (_, Known::Absent, RenameMode::Exchange) => {
                return Err(Errno::ENOENT.into());
            }
            (_, Known::Present(_), RenameMode::NoReplace) => return Err(Errno::EEXIST.into()),
            (Known::Present(a), Known::Present(b), RenameMode::Replace) if a == b => return Ok(()),
            (Known::Present(id), target, mode)
                if mode != RenameMode::Exchange
                    && self.rename_here(turn, (from, to), (id, target), mode, now)? =>
            {
                return Ok(());
            }
            _ => {}
        }
        self.overtake_none(turn)?;
        self.names_are_stable(turn, &[from, to])?;
        self.rename_at_server(turn, from, to, mode, now)
    }

    /// What the server says the two names are: asked for the source, then for the target.
    fn found(&mut self, turn: &mut Turn, found: Option<(NodeId, crate::attrs::Attrs)>) {
        if turn.source.is_none() {
            turn.source = Some(found.map(|(id, _)| id));
        } else {
            turn.target = Some(found.map(|(id, _)| id));
        }
    }

    fn rename_at_server(
        &mut self,
        turn: &mut Turn,
        from: Place<'_>,
        to: Place<'_>,
        mode: RenameMode,
        now: Now,
    ) -> Outcome<()> {
        let ask_first = self.must_know_names();
        let known =
            |m: &Self, place: Place<'_>, asked: Option<Option<NodeId>>| match m.known(place.0, place.1) {
                Known::Present(id) => Some(Some(id)),
                Known::Absent => Some(None),
                Known::Unknown => asked,
            };
        let source = known(self, from, turn.source);
        if source.is_none() && ask_first {
            return self.ask_name(turn, from.0, from.1, now);
        }
        if turn.source.is_none() {
            turn.source = source;
        }
        let target = known(self, to, turn.target);
        if target.is_none() && ask_first {
            return self.ask_name(turn, to.0, to.1, now);
        }
        turn.target = target;
        let victim = target.flatten();
        let replaced = victim.filter(|v| mode == RenameMode::Replace && Some(*v) != source.flatten());
        if let Some(id) = replaced
            && self.must_hide(turn, id)?
        {
            return self.hide(turn, to, id, now);
        }
        if let Some(id) = replaced {
            self.prepare_removal(turn, id, now)?;
        }
        let of = |m: &Self, id: Option<NodeId>| -> Option<Handle> { m.nodes.get(&id?)?.handle.clone() };
        if let Some(id) = source.flatten() {
            // What replaces another file is to be there whole.
            self.data_sent(turn, id, now)?;
        }
        let question = Question::Rename {
            from_dir: self.handle(turn, from.0)?,
            from: Name::new(from.1),
            to_dir: self.handle(turn, to.0)?,
            to: Name::new(to.1),
            mode,
            object: of(self, source.flatten()),
            victim: of(self, victim),
            want_dir: self.want(Some(to.0), CapSet::ALL_X, now),
        };
        self.ask(turn, question)
    }

    fn renamed_at_server(&mut self, turn: &mut Turn) {
        if let Some(id) = turn.target.flatten().filter(|t| turn.source.flatten() != Some(*t)) {
            self.drop_data_after_removal(turn, id);
            self.lost_name(id);
        }
    }

    /// Changes a name here, to be told later, if that is allowed.
    fn rename_here(
        &mut self,
        turn: &mut Turn,
        (from, to): (Place<'_>, Place<'_>),
        (id, target): (NodeId, Known),
        mode: RenameMode,
        now: Now,
    ) -> Outcome<bool> {
        let victim = match target {
            Known::Unknown => return Ok(false),
            Known::Absent => None,
            Known::Present(id) => Some(id),
        };
        if !self.may_move(turn, (from, to), (id, victim), now)? {
            return Ok(false);
        }
        self.room_in_stream()?;
        if let Some(victim) = victim {
            self.settle(id, false, now);
            let node = self.node_mut(victim)?;
            let kind = node.attrs.kind;
            node.attrs.nlink = if node.dir.is_some() { 0 } else { node.attrs.nlink.saturating_sub(1) };
            node.attrs.ctime = now.wall;
            node.has_lost_name = true;
            self.count_subdirectory(to.0, kind, -1);
            self.drop_data_of_nameless(victim);
        }
        let kind = self.node(id)?.attrs.kind;
        if from.0 != to.0 {
            self.count_subdirectory(from.0, kind, -1);
            self.count_subdirectory(to.0, kind, 1);
        }
        self.node_mut(id)?.attrs.ctime = now.wall;
        let (from, to) = ((from.0, Name::new(from.1)), (to.0, Name::new(to.1)));
        self.put_name(from.0, &from.1, None, now);
        self.put_name(to.0, &to.1, Some(id), now);
        // The kernel moves its entry, with what it believes of it.
        if let Some(dir) = self.nodes.get_mut(&to.0).and_then(|n| n.dir.as_mut()) {
            dir.tell(to.1.as_bytes());
        }
        let after = victim.map(|_| self.generation);
        // What it finds there by then, if the server goes meanwhile, may be of ours: named so by what was queued before and has
        // failed.
        let must_be_free = victim.is_none() && mode == RenameMode::Replace && self.journal.is_some();
        let mode = if must_be_free { RenameMode::NoReplace } else { mode };
        self.queue(Op::Rename { from, to, node: id, mode, after, over: victim }, &turn.caller, now);
        Ok(true)
    }

    /// Whether the object may be moved, and what is in its place replaced, here.
    fn may_move(
        &mut self,
        turn: &mut Turn,
        (from, to): (Place<'_>, Place<'_>),
        (id, victim): (NodeId, Option<NodeId>),
        now: Now,
    ) -> Outcome<bool> {
        let node = self.node(id)?;
        let is_dir = node.dir.is_some();
        // Whether a directory would come to lie within itself only the server can tell, where it can be asked.
        let is_safe = !is_dir || from.0 == to.0 || self.may_move_alone(id, to.0)?;
        let node = self.node(id)?;
        if !is_safe || !node.may_change(CapSet::LINK_X) || node.hidden.is_some() {
            return Ok(false);
        }
        if (is_dir && from.0 != to.0 && !self.may_write_into(turn, id)?)
            || !self.may_change_names(turn, from.0, &[id], now)?
            || !self.may_change_names(turn, to.0, victim.as_slice(), now)?
        {
            return Ok(false);
        }
        let Some(victim) = victim else { return Ok(true) };
        let node = self.node(victim)?;
        match (is_dir, &node.dir) {
            (true, None) => return Err(Errno::ENOTDIR.into()),
            (false, Some(_)) => return Err(Errno::EISDIR.into()),
            (true, Some(dir)) if dir.is_occupied() && node.held.contains(CapSet::FILE_S) => {
                return Err(Errno::ENOTEMPTY.into());
            }
            (true, Some(dir)) if !dir.is_empty() || !node.held.contains(CapSet::FILE_X) => return Ok(false),
            _ => {}
        }
        if !node.may_change(CapSet::LINK_X) || node.hidden.is_some() || (!is_dir && node.attrs.nlink > 1) {
            return Ok(false);
        }
        Ok(!self.must_hide(turn, victim)?)
    }
}
