//! Who was let in when he opened a file goes on when he would not be let in any more, as on a local file system: the server knows of
//! his open by then. Here it is decided when that is told to it, and what becomes of what is written by such an open alone. It
//! does not decide who is let in when he opens.

use crate::acting::Acting;
use crate::ask::Access;
use crate::attrs::{Attrs, Changes, SetTime};
use crate::errno::Errno;
use crate::ids::{Caller, Fh, NodeId, Now};
use crate::machine::Machine;
use crate::node::{FileData, Node, Open};
use crate::queue::{Op, Queued};
use crate::step::{Outcome, Turn, Wait};
use holdfast_base::CapSet;

/// By what a file is to be judged from now on.
#[derive(Debug)]
pub(super) enum Judged {
    /// By what it was judged before.
    AsEver,
    /// By these of its attributes, and the rest of them as they are.
    By { mode: Option<u32>, uid: Option<u32>, gid: Option<u32> },
    /// By a list that nobody here reads.
    ByList,
}

impl Judged {
    /// What a change of attributes makes of it.
    pub(super) fn by_attributes(changes: &Changes) -> Self {
        let Changes { mode, uid, gid, .. } = *changes;
        if mode.is_some() || uid.is_some() || gid.is_some() {
            Self::By { mode, uid, gid }
        } else {
            Self::AsEver
        }
    }

    /// The attributes by which somebody is judged then, and whether there is a list besides.
    fn of(&self, node: &Node) -> Option<(Attrs, bool)> {
        let attrs = node.attrs;
        match *self {
            Self::AsEver => None,
            Self::By { mode, uid, gid } => {
                let (mode, uid) = (mode.unwrap_or(attrs.mode), uid.unwrap_or(attrs.uid));
                Some((Attrs { mode, uid, gid: gid.unwrap_or(attrs.gid), ..attrs }, node.listed))
            }
            Self::ByList => Some((attrs, true)),
        }
    }
}

impl Machine {
    /// Who was let in when he opened the file, and would not be by what it is to become, may go on as on a local file system: what he
    /// has written is with the server first, and that knows of his open.
    pub(super) fn let_in_before(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        judged: &Judged,
        now: Now,
    ) -> Outcome<()> {
        let node = self.node(id)?;
        let Some((coming, is_listed)) = judged.of(node).filter(|_| node.dir.is_none() && !self.is_alone())
        else {
            return Ok(());
        };
        let is_put_out =
            |caller: &Caller, access: Access| !self.stays_admitted(caller, (&coming, is_listed), access);
        let writes = Access { write: true, ..Access::default() };
        let is_writer_out = node.data.writer.as_ref().is_some_and(|writer| is_put_out(writer, writes));
        let opens = node.opens.iter().filter_map(|fh| Some((*fh, self.opens.get(fh)?)));
        let out: Vec<_> = opens.filter(|(_, open)| is_put_out(&open.caller, open.access)).collect();
        let is_to_write = out.iter().any(|(_, open)| open.access.write);
        let unknown: Vec<Fh> = out.iter().filter(|(_, open)| !open.at_server).map(|(fh, _)| *fh).collect();
        if is_writer_out {
            self.data_sent(turn, id, now)?;
        }
        if is_to_write {
            self.node_mut(id)?.data.needs_open = true;
        }
        if unknown.is_empty() {
            return Ok(());
        }
        self.handle(turn, id)?;
        self.tell_of_opens(unknown);
        self.wait(Wait::Executed)
    }

    /// The server is to know of these opens, where it does not.
    pub(crate) fn tell_of_opens(&mut self, opens: impl IntoIterator<Item = Fh>) {
        for fh in opens {
            let Some(open) = self.opens.get_mut(&fh).filter(|open| !open.at_server) else { continue };
            if !std::mem::replace(&mut open.is_being_told, true) {
                self.wanted_opens.push_back(fh);
            }
        }
    }

    /// What kept others from changing a file's name, or who may do what with it, is gone, or is to go: the server has to know of what is
    /// open, by which that goes on to be there, and whoever was let in to be so.
    pub(crate) fn tell_of_opens_unguarded(&mut self, id: NodeId, lost: CapSet) {
        if !lost.intersects(CapSet::LINK_S | CapSet::AUTH_S) {
            return;
        }
        let unknown = self.opens_unknown(id);
        self.tell_of_opens(unknown);
        if lost.contains(CapSet::AUTH_S)
            && let Some(node) = self.nodes.get(&id)
            && self.has_writers(node)
            && let Some(node) = self.nodes.get_mut(&id)
        {
            node.data.needs_open = true;
        }
    }

    /// Whoever has it open to be written may do so by what the file is now, and nobody changes that unseen: once what was written by
    /// opens alone is on the disk, what comes behind it goes as ever.
    pub(crate) fn need_open_no_more(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get(&id).filter(|node| node.data.needs_open) else { return };
        let is_at_rest = node.pending == 0 && node.changing == 0 && !node.data.mtime_owed;
        let is_sure = node.held.contains(CapSet::AUTH_S) && node.sure.contains(CapSet::AUTH_S);
        let is_left = node.data.extents.any(|p, _| p.is_by_write());
        let opens = || node.opens.iter().filter_map(|fh| self.opens.get(fh)).filter(|open| open.access.write);
        // As whom he acts has to be known.
        let stays = |open: &Open| {
            self.known_acting(&open.caller).is_some_and(|acting| *acting != Acting::Unknown)
                && self.stays_admitted(&open.caller, (&node.attrs, node.listed), open.access)
        };
        let is_needed = !is_at_rest || !is_sure || is_left || !opens().all(stays);
        if !is_needed && let Some(node) = self.nodes.get_mut(&id) {
            node.data.needs_open = false;
        }
    }

    /// Whether what was refused is no more than the time of what was written by an open alone: a time is set without it. The file
    /// has the server's own then, which is asked for. A time that somebody has set himself is lost to him.
    pub(crate) fn keeps_servers_time(&mut self, queued: &Queued, errno: Errno) -> bool {
        let Op::SetAttr { node, changes } = &queued.op else { return false };
        let Some(SetTime::At(at)) = changes.mtime else { return false };
        let is_time_alone = *changes == Changes { mtime: changes.mtime, ..Changes::default() };
        let is_refused = matches!(errno, Errno::EACCES | Errno::EPERM);
        let is_of_writing = |data: &FileData| data.needs_open && data.mtime_set != Some(at);
        let is_by_open = self.nodes.get(node).is_some_and(|node| is_of_writing(&node.data));
        if !is_time_alone || !is_refused || !is_by_open {
            return false;
        }
        self.distrust(*node);
        true
    }
}
