//! New names: files, directories, symbolic links, special files, hard links.

use bytes::Bytes;

use super::lookup::check_name;
use super::{Entry, OpenFlags, Opened};
use crate::ask::{Making, Question};
use crate::attrs::{Attrs, Changes, Device, Kind, NewAttrs, SetTime};
use crate::dir::Known;
use crate::errno::Errno;
use crate::fresh::Fresh;
use crate::ids::{Caller, Name, NodeId, Now};
use crate::machine::Machine;
use crate::queue::{Load, Op, Thing};
use crate::step::{Found, Outcome, Step, Stop, Turn};
use holdfast_base::CapSet;
use holdfast_base::limits::PUT_OFF_LINK_BYTES_MAX;

impl Machine {
    /// Makes a file and opens it; without `exclusive` one that is there is opened. EEXIST, and what the server answers.
    #[expect(clippy::too_many_arguments, reason = "what FUSE's CREATE has")]
    pub fn create(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        flags: OpenFlags,
        now: Now,
    ) -> Step<(Entry, Opened)> {
        let done = self.try_create(turn, parent, name, (mode, flags), now);
        if matches!(done, Err(Stop::Failed(_))) {
            self.abandoned(turn, now);
        }
        self.counted(turn, done)
    }

    /// An operation was given up: what it has opened is closed.
    pub fn abandoned(&mut self, turn: &mut Turn, now: Now) {
        if let Some(found) = turn.found.take() {
            self.release(found.opened.fh, now);
        }
    }

    fn try_create(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        name: &[u8],
        (mode, flags): (u32, OpenFlags),
        now: Now,
    ) -> Outcome<(Entry, Opened)> {
        let fresh = self.note_found(turn, flags);
        if let Some(found) = turn.found {
            // Only of what was just found, and no answer is lost: what is open is not begun to be stored.
            self.not_being_stored(found.node)?;
            let attrs = match fresh {
                Ok(Some(Fresh::Attrs(attrs))) if found.is_to_empty => attrs,
                Ok(_) if found.is_to_empty => return self.empty_found(turn, found, now),
                Err(errno) if found.is_to_empty => return Err(errno.into()),
                fresh => self.attrs_of_done(turn, fresh, (found.node, found.attrs), now)?,
            };
            turn.found = None;
            return Ok((self.entry(parent, name, found.node, attrs), found.opened));
        }
        fresh?;
        self.directory(parent, now)?;
        check_name(name)?;
        if self.known(parent, name) == Known::Absent
            && self.may_make(turn, parent, (&Thing::File, mode), now)?
        {
            self.room_in_stream()?;
            let id = self.make_here(turn, (parent, name), Thing::File, mode, now);
            let attrs = self.node(id)?.attrs;
            let entry = self.entry(parent, name, id, attrs);
            return Ok((entry, self.add_open(id, flags, None, &turn.caller)));
        }
        self.dir_for_itself(turn, parent, name, now)?;
        self.overtake_none(turn)?;
        if flags.exclusive && matches!(self.known(parent, name), Known::Present(_)) {
            return Err(Errno::EEXIST.into());
        }
        self.names_are_stable(turn, &[(parent, name)])?;
        let dir = self.handle(turn, parent)?;
        let question = Question::Create {
            dir,
            name: Name::new(name),
            attrs: NewAttrs { mode, umask: turn.umask, ..NewAttrs::default() },
            access: flags.access,
            exclusive: flags.exclusive,
            want: self.want(None, CapSet::ALL_X, now),
            want_dir: self.want(Some(parent), CapSet::ALL_X, now),
        };
        self.ask(turn, question)
    }

    /// Takes note of what the server has made, or found, and opened. The answer, if it was another.
    fn note_found(&mut self, turn: &mut Turn, flags: OpenFlags) -> Result<Option<Fresh>, Errno> {
        let (id, attrs, token, is_to_empty) = match turn.fresh.take().transpose()? {
            Some(Fresh::Created(id, attrs, token)) => (id, attrs, token, false),
            Some(Fresh::Found(id, attrs, token)) => (id, attrs, token, flags.truncate),
            fresh => return Ok(fresh),
        };
        let opened = self.add_open(id, flags, Some(token), &turn.caller);
        turn.found = Some(Found { node: id, opened, attrs, is_to_empty });
        if is_to_empty {
            // What was done since this was asked for comes before the emptying.
            (turn.through, turn.begun) = (None, None);
        }
        Ok(None)
    }

    /// Empties what was found where a file was to be made. The server has opened it as it was: only now it is known which file it
    /// is, and whether something is on its way to it, or may come again, that would undo the emptying.
    fn empty_found<T>(&mut self, turn: &mut Turn, found: Found, now: Now) -> Outcome<T> {
        // POSIX: `O_TRUNC` marks the times even where the file was empty; a size that stays marks none in SETATTR.
        let mtime = (found.attrs.size == 0).then_some(SetTime::Now);
        let changes = Changes { size: Some(0), mtime, ..Changes::default() };
        let open = self.opens.get(&found.opened.fh).filter(|open| open.access.write);
        // By no open but its own: whether who opens it to be read may empty it the server has to say.
        let open = open.and_then(|open| open.token);
        self.set_there(turn, found.node, &changes, open, now)
    }

    /// Asks for a directory of which only the reading is promised, before a file is made in it: a file that the server makes
    /// and opens is open for writing there, which keeps its data from being promised to anybody while it stays open.
    fn dir_for_itself(&mut self, turn: &mut Turn, dir: NodeId, name: &[u8], now: Now) -> Outcome<()> {
        let node = self.node(dir)?;
        let is_read = node.held.contains(CapSet::FILE_S) && !node.held.contains(CapSet::FILE_X);
        if !self.settings.batches || !is_read || self.known(dir, name) != Known::Absent {
            return Ok(());
        }
        let Some(want) = self.want_alone(turn, dir, now)? else { return Ok(()) };
        let object = self.handle(turn, dir)?;
        self.ask(turn, Question::Acquire { items: vec![(object, want)] })
    }

    /// Makes a special file, or a regular one without opening it. EEXIST, and what the server answers.
    #[expect(clippy::too_many_arguments, reason = "what mknod has")]
    pub fn mknod(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        name: &[u8],
        (kind, device): (Kind, Device),
        mode: u32,
        now: Now,
    ) -> Step<Entry> {
        if kind == Kind::File {
            return self.make_file(turn, parent, name, mode, now).into();
        }
        let making = Making::Node(kind, device);
        self.make(turn, parent, name, (making, mode), now)
    }

    /// Makes a directory. EEXIST, and what the server answers.
    pub fn mkdir(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        now: Now,
    ) -> Step<Entry> {
        self.make(turn, parent, name, (Making::Dir, mode), now)
    }

    /// Makes a symbolic link. EEXIST, and what the server answers.
    pub fn symlink(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        name: &[u8],
        text: &Bytes,
        now: Now,
    ) -> Step<Entry> {
        self.make(turn, parent, name, (Making::Symlink(text.clone()), 0o777), now)
    }

    /// A regular file by mknod: made as by an exclusive open, which is closed at once.
    fn make_file(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        now: Now,
    ) -> Outcome<Entry> {
        let flags = OpenFlags { exclusive: true, ..OpenFlags::default() };
        let (entry, opened) = self.try_create(turn, parent, name, (mode, flags), now)?;
        self.release(opened.fh, now);
        Ok(entry)
    }

    fn make(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        name: &[u8],
        (making, mode): (Making, u32),
        now: Now,
    ) -> Step<Entry> {
        let done = self.try_make(turn, parent, name, (making, mode), now);
        self.counted(turn, done)
    }

    fn try_make(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        name: &[u8],
        (making, mode): (Making, u32),
        now: Now,
    ) -> Outcome<Entry> {
        self.directory(parent, now)?;
        check_name(name)?;
        if let Some(Fresh::Created(id, attrs, _)) = turn.take()? {
            return Ok(self.entry(parent, name, id, attrs));
        }
        match self.known(parent, name) {
            Known::Absent
                if !is_long(&making) && self.may_make(turn, parent, (&thing_of(&making), mode), now)? =>
            {
                self.room_in_stream()?;
                let thing = thing_of(&making);
                let id = self.make_here(turn, (parent, name), thing, mode, now);
                let attrs = self.node(id)?.attrs;
                return Ok(self.entry(parent, name, id, attrs));
            }
            Known::Present(_) => return Err(Errno::EEXIST.into()),
            _ => {}
        }
        self.overtake_none(turn)?;
        self.names_are_stable(turn, &[(parent, name)])?;
        let dir = self.handle(turn, parent)?;
        let question = Question::Make {
            dir,
            name: Name::new(name),
            making,
            attrs: NewAttrs { mode, umask: turn.umask, ..NewAttrs::default() },
            want: self.want(None, CapSet::ALL_X, now),
            want_dir: self.want(Some(parent), CapSet::ALL_X, now),
        };
        self.ask(turn, question)
    }

    /// Whether this may be made in a directory here and told later.
    fn may_make(
        &mut self,
        turn: &mut Turn,
        parent: NodeId,
        (thing, mode): (&Thing, u32),
        now: Now,
    ) -> Outcome<bool> {
        Ok(self.node(parent)?.plain
            && self.may_change_names(turn, parent, &[], now)?
            && self.may_make_thing(turn, thing, mode)?)
    }

    /// Whether names of a directory may be changed here and told later: of these objects, those that are there.
    pub(crate) fn may_change_names(
        &mut self,
        turn: &mut Turn,
        dir: NodeId,
        of: &[NodeId],
        now: Now,
    ) -> Outcome<bool> {
        if !self.settings.batches {
            return Ok(false);
        }
        let node = self.node(dir)?;
        if !node.held.contains(CapSet::FILE_X) || node.changing > 0 {
            return Ok(false);
        }
        let needs = CapSet::FILE_S | CapSet::AUTH_S;
        if !node.sure.contains(needs) {
            if turn.acquired || !node.held.contains(needs) {
                return Ok(false);
            }
            // All that is missing are attributes: one question, and everything after it needs none.
            turn.acquired = true;
            self.told_server(turn, dir, needs, now)?;
            let object = self.handle(turn, dir)?;
            let want = self.want(Some(dir), CapSet::ALL_S, now);
            return self.ask(turn, Question::GetAttr { object, open: None, want });
        }
        self.may_name(turn, dir, of)
    }

    /// Makes an object that the server will be told of.
    fn make_here(
        &mut self,
        turn: &Turn,
        (parent, name): (NodeId, &[u8]),
        thing: Thing,
        mode: u32,
        now: Now,
    ) -> NodeId {
        // Plain, as it is: no access list is handed on in the place of the umask.
        let mut attrs = new_attrs(&self.maker(turn), &thing, mode & !turn.umask, now);
        let (mut plain, mut group) = (false, false);
        if let Some(dir) = self.nodes.get(&parent) {
            (plain, group) = (dir.plain, dir.group_of_directory);
            let set_gid = dir.attrs.mode & 0o2000 != 0;
            if set_gid || group {
                attrs.gid = dir.attrs.gid;
            }
            if set_gid && attrs.kind == Kind::Dir {
                attrs.mode |= 0o2000;
            }
        }
        let is_file = matches!(thing, Thing::File);
        let spare = is_file.then(|| self.take_spare(parent, &turn.caller, attrs.mode, now)).flatten();
        attrs.fileid = spare.as_ref().map_or_else(|| self.next_shown(), |lent| lent.spare.fileid);
        let id = self.add_node(None, attrs, now.mono);
        if let Some(node) = self.nodes.get_mut(&id) {
            node.held = CapSet::ALL_X;
            node.sure = CapSet::ALL_S;
            (node.plain, node.group_of_directory, node.no_xattrs) = (plain, group, true);
            node.pages_covered = true;
            if let Thing::Symlink(text) = &thing {
                node.text = Some(text.clone());
            }
            if let Some(dir) = node.dir.as_mut() {
                dir.set_complete();
                // Nobody says it of a file: the grant that comes would be taken for news, and told to the kernel.
                node.hands_on_none = plain;
            }
        }
        let name = Name::new(name);
        self.put_name(parent, &name, Some(id), now);
        self.count_subdirectory(parent, attrs.kind, 1);
        let (mode, time) = (attrs.mode, Some(now.wall));
        let attrs = NewAttrs { mode, atime: time, mtime: time, ..NewAttrs::default() };
        let (load, want) = (Load { spare, ..Load::default() }, CapSet::ALL_X);
        let op = Op::Make { dir: parent, name, node: id, thing, attrs, load, want, joins: false };
        let serial = self.queue(op, &turn.caller, now);
        if let Some(node) = self.nodes.get_mut(&id).filter(|_| is_file) {
            node.data.carrier = Some(serial);
        }
        id
    }

    /// What was asked for was done, and another has removed it since: who asked is told so, as if the other had come a moment later.
    pub(crate) fn made_and_gone(
        &mut self,
        turn: &Turn,
        question: &Question,
        now: Now,
    ) -> Result<Fresh, Errno> {
        let (id, attrs) = match question {
            Question::Make { making, attrs, .. } => {
                let mode = attrs.mode & !attrs.umask;
                let mut attrs = new_attrs(&self.maker(turn), &thing_of(making), mode, now);
                (attrs.nlink, attrs.fileid) = (0, self.next_shown());
                let id = self.add_node(None, attrs, now.mono);
                self.node_mut(id)?.dead = Some(Errno::ESTALE);
                (id, attrs)
            }
            Question::Link { object, .. } => {
                let id = self.handles.get(object).copied().ok_or(Errno::ESTALE)?;
                (id, Attrs { nlink: 0, ..self.node(id)?.attrs })
            }
            _ => return Err(Errno::EIO),
        };
        Ok(Fresh::Created(id, attrs, None))
    }

    /// A number for what the server has not numbered.
    fn next_shown(&mut self) -> u64 {
        self.last_shown += 1;
        self.last_shown
    }

    /// Changes a name here: what is known of it, and the directory's times.
    pub(crate) fn put_name(&mut self, dir: NodeId, name: &Name, node: Option<NodeId>, now: Now) -> bool {
        let Some(holder) = self.nodes.get_mut(&dir) else { return false };
        holder.attrs.mtime = now.wall;
        holder.attrs.ctime = now.wall;
        let told = holder.dir.as_mut().is_some_and(|d| d.put(name, node));
        self.forget_listing(dir);
        // From here on it may be otherwise here than at the server.
        told | self.leases.forget(dir, name.as_bytes())
    }

    /// A directory has got one more, or one less, in it; file systems that do not count links of directories show 1.
    pub(crate) fn count_subdirectory(&mut self, dir: NodeId, kind: Kind, by: i32) {
        if let Some(node) = self.nodes.get_mut(&dir).filter(|n| kind == Kind::Dir && n.attrs.nlink > 1) {
            node.attrs.nlink = node.attrs.nlink.saturating_add_signed(by);
        }
    }

    /// Gives an object one more name. EPERM for directories, EEXIST, and what the server answers.
    pub fn link(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        parent: NodeId,
        name: &[u8],
        now: Now,
    ) -> Step<Entry> {
        let done = self.try_link(turn, id, (parent, name), now);
        self.counted(turn, done)
    }

    fn try_link(
        &mut self,
        turn: &mut Turn,
        id: NodeId,
        (parent, name): (NodeId, &[u8]),
        now: Now,
    ) -> Outcome<Entry> {
        let fresh = turn.fresh.take().transpose();
        let linked = match &fresh {
            Ok(Some(Fresh::Created(id, attrs, _))) => Some((*id, *attrs)),
            _ => turn.looked,
        };
        if let Some(linked) = linked {
            let attrs = self.attrs_of_done(turn, fresh, linked, now)?;
            return Ok(self.entry(parent, name, linked.0, attrs));
        }
        fresh?;
        self.directory(parent, now)?;
        check_name(name)?;
        if self.living(id, now)?.dir.is_some() {
            return Err(Errno::EPERM.into());
        }
        match self.known(parent, name) {
            Known::Present(_) => return Err(Errno::EEXIST.into()),
            Known::Absent
                if self.node(id)?.may_change(CapSet::LINK_X)
                    && self.node(id)?.has_sure_name()
                    && !self.node(id)?.is_nameless
                    && self.may_change_names(turn, parent, &[], now)?
                    && self.may_name_again(turn, id)? =>
            {
                self.room_in_stream()?;
                let name_owned = Name::new(name);
                self.put_name(parent, &name_owned, Some(id), now);
                let node = self.node_mut(id)?;
                node.attrs.nlink += 1;
                node.attrs.ctime = now.wall;
                let attrs = node.attrs;
                self.queue(Op::Link { node: id, dir: parent, name: name_owned }, &turn.caller, now);
                if self.node(id)?.is_sure() || self.is_alone() {
                    return Ok(self.entry(parent, name, id, attrs));
                }
                // Size and times may be others'.
                turn.looked = Some((id, attrs));
                let attrs = self.attrs_of_done(turn, Ok(None), (id, attrs), now)?;
                return Ok(self.entry(parent, name, id, attrs));
            }
            _ => {}
        }
        self.overtake_none(turn)?;
        self.names_are_stable(turn, &[(parent, name)])?;
        let (object, dir) = (self.handle(turn, id)?, self.handle(turn, parent)?);
        self.may_get_name(id);
        let want_dir = self.want(Some(parent), CapSet::ALL_X, now);
        self.ask(turn, Question::Link { object, dir, name: Name::new(name), want_dir })
    }
}

fn thing_of(making: &Making) -> Thing {
    match making {
        Making::Dir => Thing::Dir,
        Making::Symlink(text) => Thing::Symlink(text.clone()),
        Making::Node(kind, device) => Thing::Node(*kind, *device),
    }
}

/// Whether it is for the server's file system to say that it takes so long a link.
fn is_long(making: &Making) -> bool {
    matches!(making, Making::Symlink(text) if text.len() > PUT_OFF_LINK_BYTES_MAX)
}

fn new_attrs(caller: &Caller, thing: &Thing, mode: u32, now: Now) -> Attrs {
    let (kind, size, device) = match thing {
        Thing::File => (Kind::File, 0, Device::default()),
        Thing::Dir => (Kind::Dir, 0, Device::default()),
        Thing::Symlink(text) => (Kind::Symlink, text.len() as u64, Device::default()),
        Thing::Node(kind, device) => (*kind, 0, *device),
    };
    Attrs {
        kind,
        mode: mode & 0o7777,
        nlink: if kind == Kind::Dir { 2 } else { 1 },
        uid: caller.uid,
        gid: caller.gid,
        size,
        allocated: 0,
        device,
        atime: now.wall,
        mtime: now.wall,
        ctime: now.wall,
        btime: Some(now.wall),
        change: 0,
        fileid: 0,
    }
}
