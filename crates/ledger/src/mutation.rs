//! Changes of a file system, each recorded before it is made, and made only when it was not made before a crash.
//! A method stands for the backend's of the same name and promises the same; what only an intent needs to know is
//! looked up only where there is a record to keep.

use holdfast_base::ExportId;
use holdfast_recovery::Intent;
use holdfast_recovery::intent::{NodeKind, Place};
use holdfast_vfs::{
    AttrMask, Attrs, Backend, Change, CreateHow, CreateMode, Created, CtimeGuard, Cx, File, FsError,
    FsResult, Handle, Name, NewFile, NewNode, Node, OpenMode, RemoveKind, Removed, RenameFlags, SetAttrs,
    Spare, WriteAt, Written, XattrMode,
};

use crate::failpoint::{self, Point};
use crate::look::value_hash;
use crate::undertaking::{Standing, Undertaking};

/// One mutation of a request.
pub struct Mutation<'a> {
    /// What is to be changed.
    pub backend: &'a dyn Backend,
    /// For whom, and with how much patience.
    pub cx: Cx<'a>,
    /// The export it lies in.
    pub export: ExportId,
    /// The request's record; `None` where nothing is kept.
    pub record: Option<&'a mut Undertaking>,
}

/// What a name stands for, before a change.
#[derive(PartialEq, Eq)]
enum Named {
    Free,
    Taken(Handle),
    /// The caller may not look, or it cannot be a name: the change will be refused as well, and says why itself.
    Refused,
}

/// Whether a look may bring something another time: without it nothing is to be changed.
const fn is_passing(error: FsError) -> bool {
    matches!(error, FsError::WouldBlock | FsError::Delay | FsError::Io)
}

const BOTH: AttrMask = AttrMask::STAT.union(AttrMask::CHANGE);

impl Mutation<'_> {
    /// As [`Backend::create`].
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn create(mut self, dir: &Handle, name: Name<'_>, how: &CreateHow<'_>) -> FsResult<Created> {
        let make = |m: &Self| m.change(|m| m.backend.create(&m.cx, dir, name, how));
        if how.mode == CreateMode::MustExist {
            return make(&self);
        }
        // What was made in exclusive mode is known by its verifier.
        let is_known_again = matches!(how.mode, CreateMode::Exclusive(_));
        if !is_known_again && self.standing()? == Standing::Done {
            return self.created_before(dir, name, how);
        }
        let made = self.alone(((dir, name), None), |m| {
            if !is_known_again && m.record.is_some() {
                if m.named(dir, name)? == Named::Free {
                    m.about_to_make(dir, name, NodeKind::Regular)?;
                } else if how.mode == CreateMode::Unchecked {
                    return Ok(None);
                }
            }
            make(m).map(Some)
        })?;
        // What is there is opened, which changes no name, and may have to wait for whoever writes to it.
        made.map_or_else(|| make(&self), Ok)
    }

    /// As [`Backend::make_file`]. Where the name `is_free`, as the caller knows that no client can have made anything under it, it is
    /// not looked at before. Should a local process have made something, the request fails as it would; only after a
    /// crash in that very moment would it be taken for the request's own, if it is as young.
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn make_file(
        mut self,
        (dir, name): (&Handle, Name<'_>),
        (set, open): (&SetAttrs, Option<OpenMode>),
        is_free: bool,
    ) -> FsResult<NewFile> {
        if self.standing()? == Standing::Done {
            let how = CreateHow { mode: CreateMode::Guarded, set, open, want: AttrMask::NONE };
            let Created { node, file, .. } = self.created_before(dir, name, &how)?;
            return Ok(NewFile { handle: node.handle, file });
        }
        self.alone(((dir, name), None), |m| {
            if m.record.is_some() && (is_free || m.named(dir, name)? == Named::Free) {
                m.about_to_make(dir, name, NodeKind::Regular)?;
            }
            m.change(|m| m.backend.make_file(&m.cx, dir, name, (set, open)))
        })
    }

    /// As [`Backend::place`]: the file stands for the create from now on, in what is recorded too. `is_free` as in
    /// [`Mutation::make_file`]. To be used only where nothing was done before a crash; what was is told by
    /// [`Mutation::create`].
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn place(
        mut self,
        spare: &Spare,
        (dir, name): (&Handle, Name<'_>),
        set: &SetAttrs,
        is_free: bool,
    ) -> FsResult<Change> {
        self.alone(((dir, name), None), |m| {
            // It is older than the request: only that the name stands for it tells that it was placed.
            if m.record.is_some() && (is_free || m.named(dir, name)? == Named::Free) {
                let at = place(dir, name);
                m.about_to(Intent::Link { object: spare.handle.as_bytes(), at, before: None })?;
            }
            m.change(|m| m.backend.place(&m.cx, spare, dir, name, set))
        })
    }

    /// Records that an object which is there is what a request was to make under a name: a former life has made it, and has lost its record
    /// of that with its power. Where the name stands for it, that is on record as if it had got it now; others may have moved it
    /// since, and then it gives the same when done again.
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn stands_for_make(mut self, object: &Handle, (dir, name): (&Handle, Name<'_>)) -> FsResult<()> {
        self.alone(((dir, name), None), |m| {
            if m.named(dir, name)? == Named::Taken(*object) {
                let at = place(dir, name);
                return m.about_to(Intent::Link { object: object.as_bytes(), at, before: None });
            }
            m.about_to(Intent::Repeatable)
        })
    }

    /// The file of a create that a crash cut short, with the attributes it was to have.
    fn created_before(&self, dir: &Handle, name: Name<'_>, how: &CreateHow<'_>) -> FsResult<Created> {
        let node = self.made_before(dir, name, how.set, how.want)?;
        // Its maker could open it whatever its mode, and still can.
        let open = |mode: OpenMode| {
            let opened = self.backend.open(&self.cx, &node.handle, OpenMode { nfs_exceptions: true, ..mode });
            // Its name may stand for another's by now, which is not the one to be opened.
            opened.map_err(|error| if error == FsError::Stale { FsError::NotFound } else { error })
        };
        let file = how.open.map(open).transpose()?;
        Ok(Created { node, dir: self.unchanged(dir)?, is_new: true, file })
    }

    /// As [`Backend::make`].
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn make(
        mut self,
        dir: &Handle,
        name: Name<'_>,
        what: NewNode<'_>,
        set: &SetAttrs,
    ) -> FsResult<(Node, Change)> {
        if self.standing()? == Standing::Done {
            let is_link = matches!(what, NewNode::Symlink(_));
            let set = if is_link { &SetAttrs::default() } else { set };
            return Ok((self.made_before(dir, name, set, AttrMask::ALL)?, self.unchanged(dir)?));
        }
        self.alone(((dir, name), None), |m| {
            if m.record.is_some() && m.named(dir, name)? == Named::Free {
                m.about_to_make(dir, name, kind_of(&what))?;
            }
            m.change(|m| m.backend.make(&m.cx, dir, name, what, set))
        })
    }

    /// As [`Backend::remove`].
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn remove(mut self, dir: &Handle, name: Name<'_>, kind: RemoveKind) -> FsResult<Change> {
        if self.standing()? == Standing::Done {
            return self.unchanged(dir);
        }
        self.alone(((dir, name), None), |m| {
            if m.record.is_some()
                && let Named::Taken(victim) = m.named(dir, name)?
            {
                let at = place(dir, name);
                m.about_to(Intent::Remove { at, victim: victim.as_bytes() })?;
            }
            m.change(|m| m.backend.remove(&m.cx, dir, name, kind))
        })
    }

    /// As [`Backend::remove_seen`]. Of what was removed before a crash nothing more is known.
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn remove_seen(
        mut self,
        dir: &Handle,
        name: Name<'_>,
        kind: RemoveKind,
        victim: &Handle,
    ) -> FsResult<Option<Removed>> {
        if self.standing()? == Standing::Done {
            return Ok(Some(Removed { is_gone: false }));
        }
        self.alone(((dir, name), None), |m| {
            if m.record.is_some() {
                match m.named(dir, name)? {
                    Named::Taken(there) if there == *victim => {
                        m.about_to(Intent::Remove { at: place(dir, name), victim: victim.as_bytes() })?;
                    }
                    Named::Taken(_) => return Ok(None),
                    Named::Free | Named::Refused => {}
                }
            }
            m.change(|m| m.backend.remove_seen(&m.cx, dir, name, kind, victim))
        })
    }

    /// As [`Backend::rename`].
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn rename(
        mut self,
        from: (&Handle, Name<'_>),
        to: (&Handle, Name<'_>),
        flags: RenameFlags,
    ) -> FsResult<(Change, Change)> {
        if self.standing()? == Standing::Done {
            return Ok((self.unchanged(from.0)?, self.unchanged(to.0)?));
        }
        self.alone((from, Some(to)), |m| {
            if m.record.is_some()
                && let Named::Taken(source) = m.named(from.0, from.1)?
            {
                let target = match m.named(to.0, to.1)? {
                    Named::Taken(target) => Some(target),
                    Named::Free | Named::Refused => None,
                };
                m.about_to(Intent::Rename {
                    from: place(from.0, from.1),
                    to: place(to.0, to.1),
                    source: source.as_bytes(),
                    target: target.as_ref().map(Handle::as_bytes),
                    is_exchange: flags == RenameFlags::Exchange,
                })?;
            }
            m.change(|m| m.backend.rename(&m.cx, from, to, flags))
        })
    }

    /// As [`Backend::link`].
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn link(mut self, object: &Handle, dir: &Handle, name: Name<'_>) -> FsResult<(Change, Attrs)> {
        if self.standing()? == Standing::Done {
            return Ok((self.unchanged(dir)?, self.backend.getattr(&self.cx, object, BOTH)?));
        }
        self.alone(((dir, name), None), |m| {
            if m.record.is_some() && m.named(dir, name)? == Named::Free {
                let at = place(dir, name);
                m.about_to(Intent::Link { object: object.as_bytes(), at, before: None })?;
            }
            m.change(|m| m.backend.link(&m.cx, object, dir, name))
        })
    }

    /// As [`Backend::setattr`].
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn setattr(mut self, file: File<'_>, set: &SetAttrs, guard: CtimeGuard) -> FsResult<Change> {
        let standing = self.standing()?;
        if self.record.is_some() && standing == Standing::New {
            let (object, now) =
                (file.handle(), self.backend.getattr(&self.cx, file.handle(), AttrMask::STAT)?);
            self.about_to(Intent::SetAttr { object: object.as_bytes(), ctime_before: now.ctime })?;
        }
        // Done before or done in part, it is done again; our own change would fail the guard.
        let guard = if standing == Standing::New { guard } else { None };
        self.change(|m| m.backend.setattr(&m.cx, file, set, guard))
    }

    /// As [`Backend::setxattr`].
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn setxattr(
        mut self,
        object: &Handle,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<Change> {
        // Without a condition it gives the same when done again.
        let mut mode = mode;
        if mode == XattrMode::Create {
            match self.standing()? {
                Standing::Done => return self.unchanged(object),
                // Its own work may be there.
                Standing::Repeat => mode = XattrMode::Either,
                Standing::New if self.record.is_some() && self.has_xattr(object, name)? == Some(false) => {
                    let (object, value_hash) = (object.as_bytes(), value_hash(value));
                    self.about_to(Intent::MakeXattr { object, name, existed: false, value_hash })?;
                }
                Standing::New => {}
            }
        }
        self.change(|m| m.backend.setxattr(&m.cx, object, name, value, mode))
    }

    /// As [`Backend::removexattr`].
    ///
    /// # Errors
    /// The backend's, and those of [`Undertaking`].
    pub fn removexattr(mut self, object: &Handle, name: &[u8]) -> FsResult<Change> {
        let standing = self.standing()?;
        if standing == Standing::Done {
            return self.unchanged(object);
        }
        if standing == Standing::New && self.record.is_some() && self.has_xattr(object, name)? == Some(true) {
            self.about_to(Intent::RemoveXattr { object: object.as_bytes(), name, existed: true })?;
        }
        let (backend, cx) = (self.backend, self.cx);
        match self.change(|m| m.backend.removexattr(&m.cx, object, name)) {
            Err(FsError::NoXattr) if standing == Standing::Repeat => unchanged(backend, &cx, object),
            other => other,
        }
    }

    /// As [`Backend::write`]. Not recorded: it gives the same when done again.
    ///
    /// # Errors
    /// The backend's.
    pub fn write(self, file: File<'_>, at: WriteAt, data: &[u8]) -> FsResult<Written> {
        self.change(|m| m.backend.write(&m.cx, file, at, data))
    }

    fn change<R>(&self, change: impl FnOnce(&Self) -> FsResult<R>) -> FsResult<R> {
        failpoint::pass(Point::BeforeMutation);
        let result = change(self);
        failpoint::pass(Point::AfterMutation);
        result
    }

    fn standing(&mut self) -> FsResult<Standing> {
        match &mut self.record {
            Some(record) => record.standing(self.backend),
            None => Ok(Standing::New),
        }
    }

    fn about_to(&mut self, intent: Intent<'_>) -> FsResult<()> {
        match &mut self.record {
            Some(record) => record.about_to(self.export, intent),
            None => Ok(()),
        }
    }

    /// What was recorded last is not going to be done.
    pub(crate) fn will_not(&mut self) {
        if let Some(record) = &mut self.record {
            record.will_not(self.export);
        }
    }

    fn about_to_make(&mut self, dir: &Handle, name: Name<'_>, kind: NodeKind<'_>) -> FsResult<()> {
        let Some(record) = &mut self.record else { return Ok(()) };
        let (at, started_at) = (place(dir, name), record.now());
        record.about_to(self.export, Intent::Make { at, kind, before: None, started_at })
    }

    fn named(&self, dir: &Handle, name: Name<'_>) -> FsResult<Named> {
        match self.backend.named(&self.cx, dir, name) {
            Ok(Some(there)) => Ok(Named::Taken(there)),
            Ok(None) => Ok(Named::Free),
            Err(error) if is_passing(error) => Err(error),
            Err(_) => Ok(Named::Refused),
        }
    }

    /// Whether an attribute is there; `None` where that is refused.
    fn has_xattr(&self, object: &Handle, name: &[u8]) -> FsResult<Option<bool>> {
        match self.backend.getxattr(&self.cx, object, name) {
            Ok(_) => Ok(Some(true)),
            Err(FsError::NoXattr) => Ok(Some(false)),
            Err(error) if is_passing(error) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// What a request of this name made before a crash. The crash may have come between making and setting.
    fn made_before(&self, dir: &Handle, name: Name<'_>, set: &SetAttrs, want: AttrMask) -> FsResult<Node> {
        let there = self.backend.lookup(&self.cx, dir, name, want);
        let made = self.record.as_deref().and_then(Undertaking::made_before);
        let mut node = match (there, made) {
            (Ok(there), Some(made)) if there.handle == made.handle => there,
            // Others have moved it since, or removed it: it was made nevertheless, and what they have put there is theirs.
            (Ok(_) | Err(FsError::NotFound), Some(made)) => {
                match self.backend.getattr(&self.cx, &made.handle, want) {
                    Ok(attrs) => Node { handle: made.handle, attrs },
                    Err(FsError::Stale) => return Ok(Node { handle: made.handle, attrs: made.attrs }),
                    Err(error) => return Err(error),
                }
            }
            (there, _) => there?,
        };
        // A mode that a mask was to cut was given in one with the name; set again it would be uncut.
        let mode = set.mode.filter(|_| set.umask.is_none());
        let set = SetAttrs { mode, umask: None, ..*set };
        if set != SetAttrs::default() {
            let change = self.backend.setattr(&self.cx, File::Stateless(&node.handle), &set, None)?;
            node.attrs = change.after;
        }
        Ok(node)
    }

    /// A change that was made before a crash, as it is to be told: from what is there now.
    fn unchanged(&self, object: &Handle) -> FsResult<Change> {
        unchanged(self.backend, &self.cx, object)
    }
}

fn unchanged(backend: &dyn Backend, cx: &Cx<'_>, object: &Handle) -> FsResult<Change> {
    let attrs = backend.getattr(cx, object, BOTH)?;
    Ok(Change { before: (&attrs).into(), after: attrs, is_atomic: false })
}

fn place<'a>(dir: &'a Handle, name: Name<'a>) -> Place<'a> {
    Place { dir: dir.as_bytes(), name: name.as_bytes() }
}

const fn kind_of<'a>(what: &NewNode<'a>) -> NodeKind<'a> {
    match *what {
        NewNode::Directory => NodeKind::Directory,
        NewNode::Symlink(text) => NodeKind::Symlink(text),
        NewNode::Fifo => NodeKind::Fifo,
        NewNode::Socket => NodeKind::Socket,
        NewNode::Char(d) => NodeKind::Char(d.major, d.minor),
        NewNode::Block(d) => NodeKind::Block(d.major, d.minor),
    }
}
