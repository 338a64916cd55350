//! Extended attributes, and the room on the file system.

use bytes::Bytes;

use crate::ask::{Question, Room, XattrMode};
use crate::errno::Errno;
use crate::fresh::Fresh;
use crate::ids::{Name, NodeId, Now};
use crate::machine::Machine;
use crate::step::{Outcome, Step, Turn};
use holdfast_base::CapSet;

/// Extended attributes remembered of one object, with those it is known not to have.
const REMEMBERED_MAX: usize = 16;

impl Machine {
    /// One extended attribute's value. ENODATA when there is none of that name.
    pub fn getxattr(&mut self, turn: &mut Turn, id: NodeId, name: &[u8], now: Now) -> Step<Bytes> {
        self.stats.operations += 1;
        self.try_getxattr(turn, id, name, now).into()
    }

    fn try_getxattr(&mut self, turn: &mut Turn, id: NodeId, name: &[u8], now: Now) -> Outcome<Bytes> {
        let node = self.living(id, now)?;
        if node.held.contains(CapSet::XATTR_S) {
            if node.no_xattrs {
                return Err(Errno::ENODATA.into());
            }
            if let Some(known) = node.xattrs.get(name) {
                return known.clone().map_err(Into::into);
            }
        }
        match turn.fresh.take() {
            Some(Ok(Fresh::Value(value))) => return Ok(value),
            Some(Err(errno)) => return Err(errno.into()),
            _ => {}
        }
        let object = self.handle(turn, id)?;
        self.ask(turn, Question::GetXattr { object, name: Name::new(name) })
    }

    /// Keeps an extended attribute, or that there is none, while a capability covers it.
    pub(crate) fn keep_xattr(
        &mut self,
        id: NodeId,
        name: Name,
        value: Result<Bytes, Errno>,
        at: crate::ask::Generation,
    ) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let known = matches!(value, Ok(_) | Err(Errno::ENODATA));
        let covered = node.held.contains(CapSet::XATTR_S) && node.disturbed <= at && node.changing == 0;
        if known && covered && node.xattrs.len() < REMEMBERED_MAX {
            node.xattrs.insert(name, value);
        }
    }

    /// The names of all extended attributes.
    pub fn listxattr(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Step<Vec<Name>> {
        self.stats.operations += 1;
        self.try_listxattr(turn, id, now).into()
    }

    fn try_listxattr(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Outcome<Vec<Name>> {
        let node = self.living(id, now)?;
        if node.held.contains(CapSet::XATTR_S) && node.no_xattrs {
            return Ok(Vec::new());
        }
        if let Some(Fresh::Names(names)) = turn.take()? {
            return Ok(names);
        }
        let object = self.handle(turn, id)?;
        self.ask(turn, Question::ListXattr { object })
    }

    /// Sets an extended attribute; always at the server. EEXIST, ENODATA by `mode`.
    pub fn setxattr(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        name: &[u8],
        (value, mode): (&Bytes, XattrMode),
        now: Now,
    ) -> Step<()> {
        self.stats.operations += 1;
        let (name, value) = (Name::new(name), value.clone());
        let question = |object| Question::SetXattr { object, name, value, mode };
        self.change_xattr(turn, id, question, now).into()
    }

    /// Removes an extended attribute; always at the server. ENODATA.
    pub fn removexattr(&mut self, turn: &mut Turn, id: NodeId, name: &[u8], now: Now) -> Step<()> {
        self.stats.operations += 1;
        let name = Name::new(name);
        self.change_xattr(turn, id, |object| Question::RemoveXattr { object, name }, now).into()
    }

    fn change_xattr(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        question: impl FnOnce(crate::ids::Handle) -> Question,
        now: Now,
    ) -> Outcome<()> {
        self.living(id, now)?;
        if let Some(Fresh::Done) = turn.take()? {
            return Ok(());
        }
        self.overtake_none(turn)?;
        let object = self.handle(turn, id)?;
        self.node_mut(id)?.no_xattrs = false;
        self.ask(turn, question(object))
    }

    /// Room on the file system.
    pub fn statfs(&mut self, turn: &mut Turn, now: Now) -> Step<Room> {
        self.stats.operations += 1;
        self.try_statfs(turn, now).into()
    }

    fn try_statfs(&mut self, turn: &mut Turn, now: Now) -> Outcome<Room> {
        self.living(NodeId::ROOT, now)?;
        if let Some(Fresh::Room(room)) = turn.take()? {
            return Ok(room);
        }
        let object = self.handle(turn, NodeId::ROOT)?;
        self.ask(turn, Question::StatFs { object })
    }
}
