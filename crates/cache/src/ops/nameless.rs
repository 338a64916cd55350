//! Files without a name (`O_TMPFILE`). The server is asked for each, and again when it is to have a name: it says whether it
//! has such files, and they live by its having them open, so that nothing about their names may be put off.

use super::{Entry, OpenFlags, Opened};
use crate::ask::{Object, Question};
use crate::attrs::{Attrs, NewAttrs};
use crate::errno::Errno;
use crate::fresh::Fresh;
use crate::ids::{NodeId, Now};
use crate::machine::Machine;
use crate::step::{Outcome, Step, Turn};
use holdfast_base::CapSet;

impl Machine {
    /// Makes a file without a name, as if in a directory, and opens it. EOPNOTSUPP, and what the server answers.
    pub fn make_nameless(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        mode: u32,
        flags: OpenFlags,
        now: Now,
    ) -> Step<(Entry, Opened)> {
        let done = self.try_make_nameless(turn, parent, (mode, flags), now);
        self.counted(turn, done)
    }

    fn try_make_nameless(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        (mode, flags): (u32, OpenFlags),
        now: Now,
    ) -> Outcome<(Entry, Opened)> {
        self.directory(parent, now)?;
        // NFS has no words for it.
        if !self.settings.caps {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if let Some(Fresh::Created(id, attrs, token)) = turn.take()? {
            let opened = self.add_open(id, flags, Some(token), &turn.caller);
            return Ok((self.entry_of(id, attrs), opened));
        }
        // What is on its way may decide what it inherits.
        self.overtake_none(turn)?;
        let dir = self.handle(turn, parent)?;
        let attrs = NewAttrs { mode, umask: turn.umask, ..NewAttrs::default() };
        let want = self.want(None, CapSet::ALL_X, now);
        self.ask(turn, Question::Nameless { dir, attrs, access: flags.access, want })
    }

    /// A file without a name that the server has made.
    pub(crate) fn absorb_nameless(
        &mut self,
        object: &Object,
        at: crate::ask::Generation,
        now: Now,
    ) -> (NodeId, Attrs) {
        let made = self.absorb_object(object, at, now.mono);
        if let Some(node) = self.nodes.get_mut(&made.0) {
            node.is_nameless = true;
            // As of what has lost its last name: with the last open it ends.
            node.has_lost_name = true;
        }
        made
    }

    /// A name is about to be asked for: from now on it may have one, and what is written to it is to stay.
    pub(crate) fn may_get_name(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.is_nameless) {
            node.is_nameless = false;
            node.attrs.nlink = node.attrs.nlink.max(1);
        }
    }
}
