//! Names of files that are open, where the server forgets what has no name: they are hidden until the last close, and go with
//! that. Decides whether an open at the server does as well, and what becomes of the file's data.

use crate::ask::{Access, Question, RenameMode};
use crate::ids::{Name, NodeId, Now};
use crate::machine::Machine;
use crate::node::Hidden;
use crate::step::{Outcome, Turn};
use holdfast_base::CapSet;

impl Machine {
    /// Makes sure that who has the file open can go on using it after its last name has gone: the server has to know of
    /// an open. True where that does not help, and the name has to be hidden instead.
    pub(crate) fn must_hide(&mut self, turn: &mut Turn, id: NodeId) -> Outcome<bool> {
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
        let dir = self.handle(turn, parent)?;
        let node = self.node(id)?;
        let hidden = Name::new(format!(".holdfast-{:x}-{}", node.attrs.fileid, id.0).as_bytes());
        turn.looked = Some((id, node.attrs));
        turn.hiding = Some(Hidden {
            dir: parent,
            name: hidden.clone(),
            caller: turn.caller.clone(),
            is_only_name: node.sure.contains(CapSet::LINK_S) && node.attrs.nlink <= 1,
        });
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
    pub(crate) fn hidden(&mut self, turn: &mut Turn) {
        let (Some((id, _)), Some(hiding)) = (turn.looked.take(), turn.hiding.take()) else { return };
        let Some(node) = self.nodes.get_mut(&id) else { return };
        // What was asked for beside it may have given it another name.
        let was_alone = node.clean_for == Some(turn.asked_at) && node.held.contains(CapSet::LINK_S);
        node.hidden = Some(Hidden { is_only_name: hiding.is_only_name && was_alone, ..hiding });
    }

    /// Nobody has the file open any more. What was not sent of it goes with the name where it has surely no other. Where it may have
    /// one it is sent all the same: what is written to a file that has gone is nobody's loss.
    pub(crate) fn end_hidden(&mut self, id: NodeId, hidden: Hidden) {
        if let Some(dir) = self.nodes.get(&hidden.dir).and_then(|n| n.handle.clone()) {
            self.removals.push((dir, hidden.name, hidden.caller));
        }
        let is_sure = |n: &crate::node::Node| hidden.is_only_name || n.sure.contains(CapSet::LINK_S);
        let is_last = self.nodes.get(&id).is_some_and(|n| n.attrs.nlink <= 1 && is_sure(n));
        self.lost_name(id);
        if is_last {
            self.drop_data_of_nameless(id);
        }
    }
}
