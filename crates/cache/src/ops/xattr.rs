//! Extended attributes, and the room on the file system.

use bytes::Bytes;

use super::let_in::Judged;
use crate::ask::{Generation, Question, Room, XattrMode};
use crate::attrs::Changes;
use crate::errno::Errno;
use crate::fresh::Fresh;
use crate::ids::{Name, NodeId, Now};
use crate::machine::Machine;
use crate::node::Node;
use crate::step::{Outcome, Step, Turn};
use crate::tell::Forget;
use holdfast_base::CapSet;

/// Extended attributes remembered of one object, with those it is known not to have.
const REMEMBERED_MAX: usize = 16;

/// The access list of an object.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The one that a directory hands on to what is made in it.
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// The names of both, as extended attributes: the server has another way for those, and does not tell them with the others'.
pub const ACCESS_LISTS: [&[u8]; 2] = [ACCESS_LIST, DEFAULT_LIST];

/// Whether an extended attribute is an access list.
#[must_use]
pub fn is_access_list(name: &[u8]) -> bool {
    ACCESS_LISTS.contains(&name)
}

/// The bits of a mode that an access list consists of, as `system.posix_acl_access` has it (Linux's `posix_acl_xattr.h`); `None` where
/// it names users or groups, has a mask, or is none.
fn bits_of_list(value: &[u8]) -> Option<u32> {
    const VERSION: [u8; 4] = 2_u32.to_le_bytes();
    const OWNER: (u16, u32) = (0x01, 6);
    const GROUP: (u16, u32) = (0x04, 3);
    const OTHERS: (u16, u32) = (0x20, 0);
    let entries: &[u8; 24] = value.strip_prefix(&VERSION)?.try_into().ok()?;
    // A tag, bits, and whose they are: of these nobody's.
    let of_each = || entries.chunks_exact(8).map(|entry| (u16_at(entry, 0), u32::from(u16_at(entry, 2))));
    let part = |(tag, shift): (u16, u32)| {
        let (_, bits) = of_each().find(|(of, bits)| *of == tag && *bits <= 7)?;
        Some(bits << shift)
    };
    [OWNER, GROUP, OTHERS].into_iter().map(part).sum()
}

fn u16_at(entry: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([entry[at], entry[at + 1]])
}

impl Node {
    /// A list was, or is being, changed here. Whatever comes of that: a later grant tells.
    pub(crate) fn list_may_have_changed(&mut self, name: &Name, at: Generation) {
        match name.as_bytes() {
            ACCESS_LIST => self.listed = true,
            DEFAULT_LIST => (self.plain, self.hands_on_none) = (false, false),
            _ => return,
        }
        self.lists_changed = at;
    }

    /// Whether it is known of a directory, and promised, that it hands on no list.
    pub(crate) const fn surely_hands_on_none(&self) -> bool {
        let is_promised = self.sure.contains(CapSet::AUTH_S) && self.held.contains(CapSet::XATTR_S);
        self.hands_on_none && is_promised
    }

    /// An extended attribute's value, or that there is none, as far as nobody has to be asked.
    fn known_xattr(&self, name: &[u8]) -> Option<Result<Bytes, Errno>> {
        let is_list = is_access_list(name);
        if is_list {
            if !self.sure.contains(CapSet::AUTH_S) {
                return None;
            }
            let has_none = match name {
                ACCESS_LIST => !self.listed,
                _ => {
                    let is_plain = self.plain && self.held.contains(CapSet::FILE_X);
                    self.dir.is_none() || self.surely_hands_on_none() || is_plain
                }
            };
            if has_none {
                return Some(Err(Errno::ENODATA));
            }
        }
        if !self.held.contains(CapSet::XATTR_S) {
            return None;
        }
        // Lists are inherited, and not among those.
        if self.no_xattrs && !is_list {
            return Some(Err(Errno::ENODATA));
        }
        self.xattrs.get(name).cloned()
    }
}

impl Machine {
    /// One extended attribute's value. ENODATA when there is none of that name.
    pub fn getxattr(&mut self, turn: &mut Turn, id: NodeId, name: &[u8], now: Now) -> Step<Bytes> {
        let done = self.try_getxattr(turn, id, name, now);
        self.counted(turn, done)
    }

    fn try_getxattr(&mut self, turn: &mut Turn, id: NodeId, name: &[u8], now: Now) -> Outcome<Bytes> {
        if let Some(known) = self.living(id, now)?.known_xattr(name) {
            return known.map_err(Into::into);
        }
        let fresh = turn.fresh.take();
        if fresh.is_some() && is_access_list(name) && !self.node(id)?.sure.contains(CapSet::AUTH_S) {
            // The kernel would keep it for as long as attributes, which may be told as good for ever at any time: it drops it, though
            // its answer be still on the way.
            self.invalidate(Forget::Attrs(id));
        }
        match fresh {
            Some(Ok(Fresh::Value(value))) => return Ok(value),
            Some(Err(errno)) => return Err(errno.into()),
            _ => {}
        }
        let object = self.handle(turn, id)?;
        self.ask(turn, Question::GetXattr { object, name: Name::new(name) })
    }

    /// Keeps an extended attribute, or that there is none, while a capability covers it.
    pub(crate) fn keep_xattr(&mut self, id: NodeId, name: Name, value: Result<Bytes, Errno>, at: Generation) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let known = matches!(value, Ok(_) | Err(Errno::ENODATA));
        let covered = node.held.contains(CapSet::XATTR_S) && node.is_covered(at, None);
        let covered = covered && node.disturbed <= at && node.changing == 0;
        if known && covered && node.xattrs.len() < REMEMBERED_MAX {
            node.xattrs.insert(name, value);
        }
    }

    /// The names of all extended attributes.
    pub fn listxattr(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Step<Vec<Name>> {
        let done = self.try_listxattr(turn, id, now);
        self.counted(turn, done)
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
        let (name, value) = (Name::new(name), value.clone());
        let done = match self.is_mode_alone(id, &name, &value) {
            Some(mode) => {
                let changes = Changes { mode: Some(mode), ..Changes::default() };
                self.try_setattr(turn, id, &changes, now).map(drop)
            }
            None => {
                let at = name.clone();
                let question = |object| Question::SetXattr { object, name, value, mode };
                self.change_xattr(turn, id, &at, question, now)
            }
        };
        self.counted(turn, done)
    }

    /// The mode that an access list is, which says no more than that of an object that has none: `cp -a` and `install` set such
    /// lists, and a file system keeps none of them. Not where a set-group-id bit may have to go with it, which the server judges.
    fn is_mode_alone(&self, id: NodeId, name: &Name, value: &[u8]) -> Option<u32> {
        let node = self.nodes.get(&id).filter(|_| name.as_bytes() == ACCESS_LIST)?;
        let has_none = node.sure.contains(CapSet::AUTH_S) && !node.listed;
        let bits = bits_of_list(value).filter(|_| has_none && node.attrs.mode & 0o2000 == 0)?;
        Some(node.attrs.mode & 0o7000 | bits)
    }

    /// Removes an extended attribute, at the server; but for an access list where there surely is none, which Linux's file systems take for
    /// done (`cp -a` asks for it of each directory). ENODATA of any other.
    pub fn removexattr(&mut self, turn: &mut Turn, id: NodeId, name: &[u8], now: Now) -> Step<()> {
        let is_none = |node: &Node| matches!(node.known_xattr(name), Some(Err(Errno::ENODATA)));
        if is_access_list(name) && self.living(id, now).is_ok_and(|node| is_none(node)) {
            return Step::Done(());
        }
        let name = Name::new(name);
        let at = name.clone();
        let done = self.change_xattr(turn, id, &at, |object| Question::RemoveXattr { object, name }, now);
        self.counted(turn, done)
    }

    fn change_xattr(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        name: &Name,
        question: impl FnOnce(crate::ids::Handle) -> Question,
        now: Now,
    ) -> Outcome<()> {
        self.living(id, now)?;
        if let Some(Fresh::Done) = turn.take()? {
            return Ok(());
        }
        if name.as_bytes() == ACCESS_LIST {
            self.let_in_before(turn, id, &Judged::ByList, now)?;
        }
        self.overtake_none(turn)?;
        if is_access_list(name.as_bytes()) {
            self.settings_are_stable(turn, id)?;
        }
        let object = self.handle(turn, id)?;
        let tick = self.tick();
        let node = self.node_mut(id)?;
        node.no_xattrs &= is_access_list(name.as_bytes());
        node.list_may_have_changed(name, tick);
        self.ask(turn, question(object))
    }

    /// Room on the file system.
    pub fn statfs(&mut self, turn: &mut Turn, now: Now) -> Step<Room> {
        let done = self.try_statfs(turn, now);
        self.counted(turn, done)
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
