//! Names to objects.

use holdfast_base::limits::{CACHED_NAMES_MAX, NAME_BYTES_MAX};

use super::{Entry, Lookup};
use crate::ask::Question;
use crate::attrs::{Attrs, Kind};
use crate::dir::Known;
use crate::errno::Errno;
use crate::fresh::Fresh;
use crate::ids::{Name, NodeId, Now};
use crate::machine::Machine;
use crate::step::{Outcome, Step, Stop, Turn};
use holdfast_base::CapSet;

/// Questions about names of a directory after which it is read as a whole, so that there are no more.
const MISSES_BEFORE_FILLING: u32 = 2;

impl Machine {
    /// Finds a name in a directory. ENOTDIR, ENAMETOOLONG, ESTALE, and what the server answers.
    pub fn lookup(&mut self, turn: &mut Turn, parent: NodeId, name: &[u8], now: Now) -> Step<Lookup> {
        let done = self.try_lookup(turn, parent, name, now);
        if done.is_ok() {
            self.stats.lookups.count(turn.counted.has_asked_name);
        }
        self.counted(turn, done)
    }

    fn try_lookup(&mut self, turn: &mut Turn, parent: NodeId, name: &[u8], now: Now) -> Outcome<Lookup> {
        self.directory(parent, now)?;
        check_name(name)?;
        let fresh = turn.take_of_names()?;
        let found = match self.known(parent, name) {
            Known::Absent => return Ok(Lookup::Absent { valid: self.tell_absent(parent, name) }),
            Known::Present(id) => Some((id, self.fresh_attrs(turn, id, fresh.as_ref(), now)?)),
            Known::Unknown => match fresh {
                Some(Fresh::Looked(Some((id, attrs)))) => Some((id, self.shown_attrs(turn, id, attrs, now)?)),
                Some(Fresh::Looked(None)) => None,
                fresh => {
                    if let (Some(Fresh::Attrs(_)), Some((id, _))) = (&fresh, turn.looked) {
                        let attrs = self.fresh_attrs(turn, id, fresh.as_ref(), now)?;
                        return Ok(Lookup::Found(self.entry(parent, name, id, attrs)));
                    }
                    return self.ask_name(turn, parent, name, now);
                }
            },
        };
        Ok(match found {
            Some((id, attrs)) => Lookup::Found(self.entry(parent, name, id, attrs)),
            None => Lookup::Absent { valid: false },
        })
    }

    /// The directory is one, and lives.
    pub(crate) fn directory(&mut self, id: NodeId, now: Now) -> Outcome<()> {
        let node = self.living(id, now)?;
        if node.dir.is_some() { Ok(()) } else { Err(Errno::ENOTDIR.into()) }
    }

    fn tell_absent(&mut self, parent: NodeId, name: &[u8]) -> bool {
        if !self.settings.names {
            return false;
        }
        let dir = self.nodes.get_mut(&parent).and_then(|n| n.dir.as_mut());
        let dir = dir.filter(|d| d.len() < CACHED_NAMES_MAX);
        let may_tell = dir.map(|d| d.tell(name)).is_some();
        if may_tell {
            self.leases.tell(parent, name);
        }
        may_tell
    }

    /// Attributes of what a lookup found: those that came with it, unless something of ours is on its way that the
    /// server did not know.
    fn shown_attrs(&mut self, turn: &mut Turn, id: NodeId, attrs: Attrs, now: Now) -> Outcome<Attrs> {
        let node = self.node(id)?;
        if node.is_sure() {
            return Ok(node.attrs);
        }
        let is_ours_told = node.data.moved <= turn.asked_at;
        if is_ours_told && node.pending == 0 && node.data.extents.weights().unsent == 0 {
            return Ok(attrs);
        }
        turn.looked = Some((id, attrs));
        self.fresh_attrs(turn, id, None, now)
    }

    /// Attributes of what was made, found or named by a change that is done, and is not to be asked for again: those that came with
    /// it. Where they may not know of data that was here when it was asked for, they are asked for by themselves; and where
    /// that fails, the change is done all the same.
    pub(crate) fn attrs_of_done(
        &mut self,
        turn: &mut Turn,
        fresh: Result<Option<Fresh>, Errno>,
        (id, came): (NodeId, Attrs),
        now: Now,
    ) -> Outcome<Attrs> {
        let Ok(fresh) = fresh else { return Ok(came) };
        let is_first = turn.looked.is_none();
        if is_first && self.node(id).is_ok_and(|node| node.sure.contains(CapSet::FILE_S)) {
            return Ok(self.node(id)?.merged(&came));
        }
        let shown = if is_first {
            self.shown_attrs(turn, id, came, now)
        } else {
            self.fresh_attrs(turn, id, fresh.as_ref(), now)
        };
        match shown {
            Err(Stop::Failed(_)) => Ok(came),
            shown => shown,
        }
    }

    /// Asks for a name; or for the whole directory, when that saves the questions to come.
    pub(crate) fn ask_name<T>(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        name: &[u8],
        now: Now,
    ) -> Outcome<T> {
        self.told_server(turn, parent, CapSet::FILE_S, now)?;
        turn.counted.has_asked_name = true;
        turn.named_at.get_or_insert(self.generation);
        let handle = self.handle(turn, parent)?;
        if let Some((cookie, verifier)) = self.fills(turn, parent, now) {
            let bytes_max = self.settings.io_bytes.min(1 << 18);
            let (want, want_dir) = self.listing_wishes(parent, now);
            return self
                .ask(turn, Question::List { dir: handle, cookie, verifier, bytes_max, want, want_dir });
        }
        let (want, want_dir) = (self.want(None, CapSet::ALL_S, now), self.want_names(parent, now));
        self.ask(turn, Question::Lookup { dir: handle, name: Name::new(name), want, want_dir })
    }

    /// What is wished for on a directory whose names are asked for.
    pub(crate) fn want_names(&self, dir: NodeId, now: Now) -> CapSet {
        self.want(Some(dir), CapSet::ALL_S, now)
    }

    /// Where to go on reading the directory as a whole, if this operation should.
    fn fills(&mut self, turn: &mut Turn, parent: NodeId, now: Now) -> Option<(u64, u64)> {
        let node = self.nodes.get_mut(&parent)?;
        let held = node.held.contains(CapSet::FILE_S);
        let dir = node.dir.as_mut()?;
        if !held || dir.complete || dir.is_large {
            return None;
        }
        match dir.filling {
            Some(f) if turn.is_filling => Some((f.next, f.verifier)),
            // Another operation is at it, or it did not come to an end.
            Some(_) => None,
            None if turn.is_filling => None,
            None if dir.is_asked_by_name(now.mono) => None,
            None => {
                dir.misses += 1;
                turn.is_filling = dir.misses > MISSES_BEFORE_FILLING;
                turn.is_filling.then_some((0, 0))
            }
        }
    }

    /// What the kernel is told of an object under a name.
    pub(crate) fn entry(&mut self, parent: NodeId, name: &[u8], id: NodeId, attrs: Attrs) -> Entry {
        let is_known = self.nodes.contains_key(&id) && self.known(parent, name) == Known::Present(id);
        let entry_valid = is_known && self.settings.names;
        let mut place = 0;
        if entry_valid {
            if let Some(dir) = self.nodes.get_mut(&parent).and_then(|n| n.dir.as_mut()) {
                place = dir.tell(name);
            }
            self.leases.tell(parent, name);
        } else if is_known {
            let dir = self.nodes.get(&parent).and_then(|n| n.dir.as_ref());
            place = dir.and_then(|dir| dir.slot(name)).map_or(0, |slot| slot.cookie);
        }
        if let Some(node) = self.nodes.quietly(id) {
            node.told_in = Some((parent, place));
        }
        Entry { entry_valid, ..self.entry_of(id, attrs) }
    }

    /// The same of an object under no name.
    pub(crate) fn entry_of(&mut self, id: NodeId, attrs: Attrs) -> Entry {
        let entry_valid = false;
        let Some(node) = self.nodes.get_mut(&id) else {
            return Entry { node: id, attrs, entry_valid, attr_valid: false };
        };
        // What it has forgotten it has no pages of.
        node.pages_covered |= node.lookups == 0 && node.opens.is_empty();
        node.lookups += 1;
        let attr_valid = node.is_sure();
        node.told_attrs |= attr_valid;
        let attrs = if attr_valid { node.attrs } else { attrs };
        Entry { node: id, attrs, entry_valid, attr_valid }
    }

    /// The kernel has dropped so many references.
    pub fn forget(&mut self, id: NodeId, count: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lookups = node.lookups.saturating_sub(count);
        }
        self.drop_if_gone(id);
        self.trim();
    }

    /// The text of a symbolic link. EINVAL when it is none.
    pub fn readlink(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Step<bytes::Bytes> {
        let done = self.try_readlink(turn, id, now);
        self.counted(turn, done)
    }

    fn try_readlink(&mut self, turn: &mut Turn, id: NodeId, now: Now) -> Outcome<bytes::Bytes> {
        let node = self.living(id, now)?;
        if node.attrs.kind != Kind::Symlink {
            return Err(Errno::EINVAL.into());
        }
        // A link's text never changes while the object lives.
        if let Some(text) = &node.text {
            return Ok(text.clone());
        }
        if let Some(Fresh::Text(text)) = turn.take()? {
            return Ok(text);
        }
        let object = self.handle(turn, id)?;
        self.ask(turn, Question::ReadLink { object })
    }
}

/// A name that the server need not be asked about.
pub(crate) fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name.len() {
        0 => Err(Errno::ENOENT),
        n if n > NAME_BYTES_MAX => Err(Errno::ENAMETOOLONG),
        _ => Ok(()),
    }
}
