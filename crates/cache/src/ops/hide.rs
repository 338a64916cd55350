//! Names of files that are open, where the server forgets what has no name: they are hidden until the last close, and go with
//! that. Decides whether an open at the server does as well.

use crate::ask::{Access, Question, RenameMode};
use crate::ids::{Name, NodeId, Now};
use crate::machine::Machine;
use crate::step::{Outcome, Turn};
use holdfast_base::CapSet;

impl Machine {
    /// Makes sure that who has the file open can go on using it after its last name has gone: the server has to know of
    /// an open. True where that does not help, and the name has to be hidden instead.
    pub(crate) fn must_hide(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Outcome<bool> {
        let _ = now;
        let node = self.node(id)?;
        let last = node.attrs.nlink <= 1 || !node.sure.contains(CapSet::LINK_S);
        if node.opens.is_empty() || node.dir.is_some() || !last || node.hidden.is_some() {
            return Ok(false);
        }
        if !self.settings.preserves_unlinked {
            return Ok(true);
        }
        let opens = || node.opens.iter().filter_map(|fh| self.opens.get(fh));
        let needed = opens().fold(Access::default(), |all, open| Access {
            read: all.read | open.access.read,
            write: all.write | open.access.write,
        });
        // One that is good for all: whoever closes it leaves it to another.
        if opens().any(|open| open.at_server && open.covers.has(needed)) || turn.opened == Some(id) {
            return Ok(false);
        }
        let object = self.handle(turn, id)?;
        (turn.opening, turn.asks_of) = (Some((id, needed)), Some(id));
        self.ask(turn, Question::Open { object, access: needed, truncate: false, want: CapSet::NONE })
    }

    /// The open that was asked for belongs to the file's opens from now on.
    pub(crate) fn attach(&mut self, turn: &mut Turn, token: Option<crate::ids::OpenToken>) {
        let Some((id, access)) = turn.opening.take() else { return };
        turn.opened = Some(id);
        let Some(token) = token else { return };
        let fhs = self.nodes.get(&id).map(|n| n.opens.clone()).unwrap_or_default();
        for fh in fhs {
            if let Some(open) = self.opens.get_mut(&fh).filter(|o| o.token.is_none() && access.has(o.access))
            {
                (open.token, open.covers, open.at_server) = (Some(token), access, true);
                return;
            }
        }
        self.closes.push((token, turn.caller.clone(), id));
    }

    /// Gives the name that is to go another, hidden one, until the last close.
    pub(crate) fn hide(
        &mut self,
        turn: &mut Turn,
        (parent, name): (NodeId, &[u8]),
        id: NodeId,
        now: Now,
    ) -> Outcome<()> {
        let hidden = Name::new(format!(".holdfast-{:x}-{}", self.node(id)?.attrs.fileid, id.0).as_bytes());
        turn.hiding = Some(hidden.clone());
        turn.looked = Some((id, self.node(id)?.attrs));
        let dir = self.handle(turn, parent)?;
        let question = Question::Rename {
            from_dir: dir.clone(),
            from: Name::new(name),
            to_dir: dir,
            to: hidden,
            mode: RenameMode::Replace,
            object: self.node(id)?.handle.clone(),
            victim: None,
            want_dir: self.want(Some(parent), CapSet::ALL_S, now),
        };
        self.ask(turn, question)
    }

    /// The name that was to go is hidden.
    pub(crate) fn hidden(&mut self, turn: &mut Turn, dir: NodeId) {
        if let (Some((id, _)), Some(name)) = (turn.looked.take(), turn.hiding.take())
            && let Some(node) = self.nodes.get_mut(&id)
        {
            node.hidden = Some((dir, name, turn.caller.clone()));
        }
    }
}
