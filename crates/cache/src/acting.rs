//! As whom callers act on the server. Where that is another (root, where root is squashed; everybody, where all are), this host's
//! kernel has judged for the wrong one, and what is to be done before the server has judged is judged here, by the bits of the
//! mode. Where these say no, the server is asked: it may know better, and says so in time. So it is of what has an access list:
//! by that only the kernel judges here, for the one who calls.

use crate::ask::{Access, Generation};
use crate::attrs::{Attrs, Changes, SetTime};
use crate::errno::Errno;
use crate::ids::{Caller, NodeId};
use crate::machine::Machine;
use crate::node::Node;
use crate::queue::Thing;
use crate::step::{Outcome, Turn};
use crate::{Kind, ask::Question};
use holdfast_base::limits::CALLERS_KNOWN_MAX;
use rustc_hash::FxHashMap;

/// As whom a caller acts on the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acting {
    /// As itself: what this host's kernel has judged holds.
    AsItself,
    /// As another.
    As(Caller),
    /// That is not known, or nothing can be changed there: everything is asked for.
    Unknown,
}

/// As whom callers act.
#[derive(Debug, Default)]
pub(crate) struct Acts {
    /// As the server said since it was greeted last.
    known: FxHashMap<Caller, Acting>,
    /// As it said before, of those who have not been asked about since.
    former: FxHashMap<Caller, Acting>,
    /// When it was greeted.
    since: Generation,
}

impl Acts {
    /// What is known of a caller is not known to be so any more.
    fn doubt(&mut self, caller: &Caller) {
        let Some(acting) = self.known.remove(caller) else { return };
        if self.former.len() >= CALLERS_KNOWN_MAX {
            self.former.clear();
        }
        self.former.insert(caller.clone(), acting);
    }

    /// All that was said, for a later life.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Caller, &Acting)> {
        self.known.iter().chain(&self.former)
    }

    /// What was said in a former life.
    pub(crate) fn restored(former: FxHashMap<Caller, Acting>) -> Self {
        Self { former, ..Self::default() }
    }
}

/// Permission bits, as one class of a mode has them.
const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const ENTER_AND_WRITE: u32 = 0o3;
const SET_IDS: u32 = 0o6000;
const STICKY: u32 = 0o1000;

/// Whether somebody is surely let in, as Linux judges: root has every right to files and directories, and of its owner an access
/// list says what the mode does.
fn permits(caller: &Caller, node: &Node, bits: u32) -> bool {
    let attrs = &node.attrs;
    if node.listed && !is_owner(caller, attrs) {
        return false;
    }
    permits_by_mode(caller, attrs, bits)
}

fn permits_by_mode(caller: &Caller, attrs: &Attrs, bits: u32) -> bool {
    let is_in_group = || caller.gid == attrs.gid || caller.groups.contains(&attrs.gid);
    let of_class = match () {
        () if caller.uid == 0 => return true,
        () if caller.uid == attrs.uid => attrs.mode >> 6,
        () if is_in_group() => attrs.mode >> 3,
        () => attrs.mode,
    };
    of_class & bits == bits
}

const fn is_owner(caller: &Caller, attrs: &Attrs) -> bool {
    caller.uid == 0 || caller.uid == attrs.uid
}

/// Whether attributes may be set as asked, so that the server leaves them as they are shown here.
fn may_set(caller: &Caller, node: &Node, changes: &Changes) -> bool {
    let attrs = &node.attrs;
    // Who owns a file the server has to say, and with it which bits are left; also of what is written by who is not root.
    let is_plain = changes.uid.is_none() && changes.gid.is_none() && attrs.mode & SET_IDS == 0;
    let owner = is_owner(caller, attrs);
    let writes = permits(caller, node, WRITE);
    // Also what is to be now goes as a time, which is the owner's to set.
    let may_time = |time: Option<SetTime>| time.is_none() || owner;
    is_plain
        && changes.mode.is_none_or(|mode| owner && mode & SET_IDS == 0)
        && changes.size.is_none_or(|_| writes)
        && may_time(changes.atime)
        && may_time(changes.mtime)
}

impl Machine {
    /// The server has said as whom a caller acts, or has not. One that was asked before the last greeting may have been another.
    pub(crate) fn learn_acting(&mut self, caller: &Caller, acting: Acting, at: Generation) {
        let acts = &mut self.acts;
        let is_late = at < acts.since;
        if is_late && (acting == Acting::Unknown || acts.known.contains_key(caller)) {
            return;
        }
        if !is_late && acting != Acting::Unknown {
            acts.former.remove(caller);
        }
        let known = if is_late { &mut acts.former } else { &mut acts.known };
        if known.len() >= CALLERS_KNOWN_MAX {
            known.clear();
        }
        known.insert(caller.clone(), acting);
    }

    /// A server was greeted: a new connection, another server, or one whose exports are others now. As whom callers act there is asked
    /// anew; what was said before is good for as long as there is nobody to ask.
    pub fn greeted(&mut self) {
        self.acts.since = self.tick();
        for caller in self.acts.known.keys().cloned().collect::<Vec<_>>() {
            self.acts.doubt(&caller);
        }
    }

    /// What was put off for a caller was refused, as it was not thought to be.
    pub(crate) fn refused(&mut self, caller: &Caller, errno: Errno) {
        if matches!(errno, Errno::EACCES | Errno::EPERM | Errno::EROFS) {
            self.acts.doubt(caller);
        }
    }

    /// As whom a caller acts, as far as it is known. Who had no answer, as the server was about to go, is who he was before.
    pub(crate) fn known_acting(&self, caller: &Caller) -> Option<&Acting> {
        let known = self.acts.known.get(caller);
        if !self.is_alone() || known.is_some_and(|acting| *acting != Acting::Unknown) {
            return known;
        }
        self.acts.former.get(caller).or(known)
    }

    /// Where the mount goes on without the server: as whom the caller acts is asked before anybody needs it, for when it is needed
    /// there may be nobody to ask.
    pub(crate) fn foresee_absence(&mut self, turn: &Turn) -> Outcome<()> {
        if self.journal.is_some() && !self.is_alone() {
            self.acting(turn)?;
        }
        Ok(())
    }

    /// As whom the caller acts; asks where that is not known.
    pub(crate) fn acting(&mut self, turn: &Turn) -> Outcome<Acting> {
        match self.known_acting(&turn.caller) {
            Some(acting) => Ok(acting.clone()),
            None => self.ask(turn, Question::WhoAmI),
        }
    }

    /// Whose is what the caller makes.
    pub(crate) fn maker(&self, turn: &Turn) -> Caller {
        match self.known_acting(&turn.caller) {
            Some(Acting::As(other)) => other.clone(),
            _ => turn.caller.clone(),
        }
    }

    /// Whether the caller surely may change names of a directory; and those of these objects in it, where it is sticky.
    pub(crate) fn may_name(&mut self, turn: &Turn, dir: NodeId, of: &[NodeId]) -> Outcome<bool> {
        let caller = match self.acting(turn)? {
            Acting::AsItself => return Ok(true),
            Acting::Unknown => return Ok(false),
            Acting::As(other) => other,
        };
        let node = self.node(dir)?;
        let attrs = node.attrs;
        if !permits(&caller, node, ENTER_AND_WRITE) {
            return Ok(false);
        }
        if attrs.mode & STICKY == 0 || is_owner(&caller, &attrs) {
            return Ok(true);
        }
        let is_its = |id: &NodeId| self.nodes.get(id).is_some_and(|node| is_owner(&caller, &node.attrs));
        Ok(of.iter().all(is_its))
    }

    /// Whether the caller surely may do what the other who is judged may.
    fn surely(
        &mut self,
        turn: &Turn,
        id: NodeId,
        judge: impl FnOnce(&Caller, &Node) -> bool,
    ) -> Outcome<bool> {
        Ok(match self.acting(turn)? {
            Acting::AsItself => true,
            Acting::Unknown => false,
            Acting::As(other) => judge(&other, self.node(id)?),
        })
    }

    /// Whether the caller surely may write a directory, as Linux asks of one that gets another parent.
    pub(crate) fn may_write_into(&mut self, turn: &Turn, dir: NodeId) -> Outcome<bool> {
        self.surely(turn, dir, |other, node| permits(other, node, WRITE))
    }

    /// Whether the caller surely may make this, and gets it as it is asked for, where it may change names.
    pub(crate) fn may_make_thing(&mut self, turn: &Turn, thing: &Thing, mode: u32) -> Outcome<bool> {
        let is_device = matches!(thing, Thing::Node(Kind::Block | Kind::Char, _));
        self.surely(turn, NodeId::ROOT, |other, _| !is_device && mode & SET_IDS == 0 || other.uid == 0)
    }

    /// Whether the caller surely may give a file one more name, where it may make names (`fs.protected_hardlinks`).
    pub(crate) fn may_name_again(&mut self, turn: &Turn, id: NodeId) -> Outcome<bool> {
        self.surely(turn, id, |other, node| is_owner(other, &node.attrs))
    }

    /// Whether the caller surely may set these attributes.
    pub(crate) fn may_set_as(&mut self, turn: &Turn, id: NodeId, changes: &Changes) -> Outcome<bool> {
        self.surely(turn, id, |other, node| may_set(other, node, changes))
    }

    /// Whether who has a file open so, or has written it, may go on when it has these attributes, and perhaps a list beside them, judged anew with each call as who
    /// names no open is: RFC 1813 section 4.4 has an owner write his file whatever its mode.
    pub(crate) fn stays_admitted(
        &self,
        caller: &Caller,
        (coming, is_listed): (&Attrs, bool),
        access: Access,
    ) -> bool {
        let acts = match self.known_acting(caller) {
            Some(Acting::As(other)) => other,
            _ => caller,
        };
        let bits = if access.read { READ } else { 0 } | if access.write { WRITE } else { 0 };
        is_owner(acts, coming) || !is_listed && permits_by_mode(acts, coming, bits)
    }

    /// Whether the caller surely may open a file so. For reading nobody is asked as whom it acts: the kernel has judged, and there
    /// may be nobody to ask.
    pub(crate) fn may_open_as(
        &mut self,
        turn: &Turn,
        id: NodeId,
        (reads, writes): (bool, bool),
    ) -> Outcome<bool> {
        let is_known =
            self.known_acting(&turn.caller).is_some() || self.acts.former.contains_key(&turn.caller);
        let acting = if is_known || writes { self.acting(turn)? } else { Acting::AsItself };
        let bits = if reads { READ } else { 0 } | if writes { WRITE } else { 0 };
        let node = self.node(id)?;
        Ok(match acting {
            // What it cannot have changed it is told by the server when it opens it.
            Acting::AsItself | Acting::Unknown => true,
            Acting::As(other) => permits(&other, node, bits),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attrs::Device;

    fn node(mode: u32, uid: u32, gid: u32) -> Node {
        let time = holdfast_base::Timestamp::default();
        let attrs = Attrs {
            kind: Kind::File,
            mode,
            nlink: 1,
            uid,
            gid,
            size: 0,
            allocated: 0,
            device: Device::default(),
            atime: time,
            mtime: time,
            ctime: time,
            btime: None,
            change: 0,
            fileid: 1,
        };
        Node::new(NodeId(2), None, attrs, holdfast_base::Instant::default())
    }

    #[test]
    fn the_first_class_that_somebody_is_in_judges_alone() {
        let nobody = Caller::new(65534, 65534);
        for (mode, uid, gid, is_let_in) in [
            (0o200, 65534, 0, true),
            (0o022, 65534, 65534, false),
            (0o020, 1, 65534, true),
            (0o202, 1, 65534, false),
            (0o002, 1, 1, true),
            (0o770, 1, 1, false),
        ] {
            assert_eq!(permits(&nobody, &node(mode, uid, gid), WRITE), is_let_in, "{mode:o} {uid} {gid}");
        }
        let grouped = Caller { groups: [5, 7].into(), ..nobody };
        assert!(
            permits(&grouped, &node(0o020, 1, 7), WRITE) && !permits(&grouped, &node(0o020, 1, 6), WRITE)
        );
        assert!(permits(&Caller::new(0, 0), &node(0, 1, 1), WRITE));
    }

    #[test]
    fn what_has_an_access_list_is_judged_here_for_its_owner_and_for_root_alone() {
        let mut listed = node(0o666, 7, 7);
        listed.listed = true;
        for (uid, gid, is_let_in) in [(7, 1, true), (0, 0, true), (1, 7, false), (1, 1, false)] {
            assert_eq!(permits(&Caller::new(uid, gid), &listed, WRITE), is_let_in, "{uid} {gid}");
        }
        let size = Changes { size: Some(0), ..Changes::default() };
        assert!(may_set(&Caller::new(1, 1), &node(0o666, 7, 7), &size));
        assert!(!may_set(&Caller::new(1, 1), &listed, &size));
    }

    #[test]
    fn what_the_server_would_refuse_or_change_is_not_set_here() {
        let nobody = Caller::new(65534, 65534);
        let (own, others) = (node(0o644, 65534, 65534), node(0o646, 1, 1));
        let mode = |mode| Changes { mode: Some(mode), ..Changes::default() };
        let time = |mtime| Changes { mtime: Some(mtime), ..Changes::default() };
        let at = SetTime::At(holdfast_base::Timestamp::default());
        let size = Changes { size: Some(0), ..Changes::default() };
        let owner = Changes { uid: Some(65534), ..Changes::default() };
        let group = Changes { gid: Some(65534), ..Changes::default() };
        for (node, changes, may) in [
            (&own, mode(0o600), true),
            (&own, mode(0o4700), false),
            (&others, mode(0o600), false),
            (&own, time(at), true),
            (&others, time(at), false),
            (&others, time(SetTime::Now), false),
            (&node(0o640, 1, 1), time(SetTime::Now), false),
            (&others, size, true),
            (&node(0o644, 1, 1), size, false),
            (&node(0o4777, 65534, 65534), size, false),
            (&own, owner, false),
            (&own, group, false),
        ] {
            assert_eq!(may_set(&nobody, node, &changes), may, "{:?} {changes:?}", node.attrs);
        }
    }
}
