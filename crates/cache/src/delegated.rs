//! What plain NFSv4 delegations need beyond capabilities: whom the server has let into a file (RFC 8881 section 10.4 has
//! every user judged by it once), what is shown of a file whose holder is asked, and which ones are held for nothing.

use crate::ask::{Access, Generation};
use crate::attrs::Attrs;
use crate::caps::Grant;
use crate::ids::{Caller, Handle, Now};
use crate::machine::Machine;
use crate::node::Node;
use holdfast_base::CapSet;

/// Callers remembered of one file; more are asked for anew.
const ADMITTED_MAX: usize = 8;

/// A file as it is here, where that is known better than at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its attributes.
    pub attrs: Attrs,
    /// Data of it is not with the server yet.
    pub is_modified: bool,
    /// Data, size and times are what they are here, and nowhere else.
    pub is_ours: bool,
}

impl Node {
    /// Whether the server would let the caller in: it has done so while nothing that it judges by has changed. An owner
    /// is judged by the bits of the mode alone, whatever lists of rights there are.
    pub(crate) fn admits(&self, caller: &Caller, access: Access) -> bool {
        let bits = if access.read { 0o400 } else { 0 } | if access.write { 0o200 } else { 0 };
        let is_owner = self.sure.contains(CapSet::AUTH_S) && self.attrs.uid == caller.uid;
        if is_owner && self.attrs.mode & bits == bits {
            return true;
        }
        let mut had = Access::default();
        for (_, access) in self.admitted.iter().filter(|(known, _)| known == caller) {
            had = Access { read: had.read | access.read, write: had.write | access.write };
        }
        had.has(access)
    }
}

impl Machine {
    /// The server has let the caller in, as it answered a question asked at this moment, with this grant.
    pub(crate) fn admit(
        &mut self,
        handle: &Handle,
        (caller, access): (&Caller, Access),
        (at, grant): (Generation, Option<Grant>),
    ) {
        let is_needed = !self.settings.caps;
        let Some(node) = self.by_handle(handle).filter(|_| is_needed) else { return };
        let is_current = node.is_covered(at, grant) && (node.disturbed <= at || node.clean_for == Some(at));
        if !is_current || !node.held.contains(CapSet::AUTH_S) || node.admits(caller, access) {
            return;
        }
        if node.admitted.len() >= ADMITTED_MAX {
            node.admitted.remove(0);
        }
        node.admitted.push((caller.clone(), access));
    }

    /// What a file that is held is here: for the server's question to its holder. Nothing of what is not known here.
    #[must_use]
    pub fn shown(&self, handle: &Handle) -> Option<Shown> {
        let node = self.nodes.get(self.handles.get(handle)?)?;
        let is_modified = node.has_unsent(Generation(u64::MAX));
        Some(Shown { attrs: node.attrs, is_modified, is_ours: node.may_change(CapSet::FILE_X) })
    }

    /// Objects of which something is held, that are not open, and that nothing was done with for so long; the one
    /// untouched for longest first.
    #[must_use]
    pub fn unused(&self, now: Now, idle_ms: u64) -> Vec<Handle> {
        let is_unused = |node: &&Node| {
            !node.held.is_empty()
                && node.recall.is_none()
                && node.opens.is_empty()
                && now.mono.ms_since(node.touched) >= idle_ms
        };
        let mut unused: Vec<_> = self.nodes.values().map(|node| &**node).filter(is_unused).collect();
        unused.sort_unstable_by_key(|node| (node.touched, node.id));
        unused.into_iter().filter_map(|node| node.handle.clone()).collect()
    }
}
