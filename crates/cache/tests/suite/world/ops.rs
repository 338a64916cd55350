//! What applications do, to a mount and to the model.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_cache::*;

use super::World;
use super::client::PAGE_BYTES;
use super::fs::{Fs, ROOT, Res};
use super::server::bytes;

pub const PATHS: [&str; 10] = ["a", "b", "d", "e", "d/a", "d/b", "e/a", "d/s", "d/s/a", "e/b"];

/// One call of an application. Paths are indices into `PATHS`.
#[derive(Clone, Debug)]
pub enum Op {
    Create {
        path: u8,
        exclusive: bool,
        truncate: bool,
        append: bool,
        slot: u8,
    },
    Open {
        path: u8,
        truncate: bool,
        write: bool,
        slot: u8,
    },
    /// A file without a name, in the directory of the path.
    Nameless {
        path: u8,
        slot: u8,
    },
    /// A name for it.
    Name {
        slot: u8,
        to: u8,
    },
    Write {
        slot: u8,
        offset: u8,
        len: u8,
        byte: u8,
    },
    Read {
        slot: u8,
        offset: u8,
        len: u8,
    },
    Close {
        slot: u8,
    },
    Stat {
        path: u8,
    },
    Truncate {
        path: u8,
        size: u8,
    },
    Chmod {
        path: u8,
        mode: u8,
    },
    Mkdir {
        path: u8,
    },
    Rmdir {
        path: u8,
    },
    Unlink {
        path: u8,
    },
    Rename {
        from: u8,
        to: u8,
        mode: RenameMode,
    },
    Link {
        from: u8,
        to: u8,
    },
    Symlink {
        path: u8,
    },
    Readlink {
        path: u8,
    },
    Readdir {
        path: u8,
        plus: bool,
    },
    SetXattr {
        path: u8,
        value: u8,
    },
    GetXattr {
        path: u8,
    },
    Fsync {
        slot: u8,
    },
    Sync,
    Pause {
        ms: u16,
    },
}

/// What a call returned.
#[derive(Clone, Debug, PartialEq)]
pub enum Out {
    Done,
    Failed(Errno),
    Data(Vec<u8>),
    Stat(Kind, u32, u32, u32, u64),
    Names(BTreeSet<Vec<u8>>),
}

impl<T: Into<Self>> From<Res<T>> for Out {
    fn from(result: Res<T>) -> Self {
        match result {
            Ok(v) => v.into(),
            Err(errno) => Self::Failed(errno),
        }
    }
}

impl From<()> for Out {
    fn from((): ()) -> Self {
        Self::Done
    }
}

fn path(i: u8) -> &'static str {
    PATHS[usize::from(i) % PATHS.len()]
}

fn parts(i: u8) -> (Vec<&'static str>, &'static str) {
    let mut parts: Vec<_> = path(i).split('/').collect();
    let last = parts.pop().unwrap();
    (parts, last)
}

/// What the file system and the descriptors of all clients are.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub fs: Fs,
    pub fds: BTreeMap<(usize, u8), (u64, bool, bool)>,
}

impl Model {
    fn parent(&self, i: u8) -> Res<(u64, &'static [u8])> {
        let (dirs, last) = parts(i);
        let mut at = ROOT;
        for dir in dirs {
            at = self.fs.look(at, dir.as_bytes())?.ok_or(Errno::ENOENT)?;
        }
        if self.fs.get(at)?.kind != Kind::Dir {
            return Err(Errno::ENOTDIR);
        }
        Ok((at, last.as_bytes()))
    }

    fn find(&self, i: u8) -> Res<u64> {
        let (dir, name) = self.parent(i)?;
        self.fs.look(dir, name)?.ok_or(Errno::ENOENT)
    }

    fn open(
        &mut self,
        c: usize,
        slot: u8,
        ino: u64,
        (truncate, write, append): (bool, bool, bool),
    ) -> Res<()> {
        match self.fs.get(ino)?.kind {
            Kind::File => {}
            Kind::Dir => return Err(Errno::EISDIR),
            _ => return Err(Errno::ELOOP),
        }
        if truncate {
            self.fs.get_mut(ino)?.data.clear();
        }
        self.fds.insert((c, slot), (ino, write, append));
        Ok(())
    }

    fn fd(&self, c: usize, slot: u8) -> Res<(u64, bool, bool)> {
        self.fds.get(&(c, slot)).copied().ok_or(Errno::EBADF)
    }

    pub fn apply(&mut self, c: usize, op: &Op) -> Out {
        match *op {
            Op::Stat { path } => match self.find(path) {
                Ok(ino) => {
                    let i = self.fs.get(ino).unwrap();
                    let size = if i.kind == Kind::Dir { 0 } else { i.data.len() as u64 };
                    Out::Stat(i.kind, i.mode, i.uid, i.nlink, size)
                }
                Err(errno) => Out::Failed(errno),
            },
            Op::Read { slot, offset, len } => {
                let read = self.fd(c, slot).and_then(|(i, ..)| self.fs.read(i, offset.into(), len.into()));
                read.map(Out::Data).unwrap_or_else(Out::Failed)
            }
            Op::Readlink { path } => {
                let text = self.find(path).and_then(|i| {
                    let node = self.fs.get(i)?;
                    if node.kind == Kind::Symlink { Ok(node.data.clone()) } else { Err(Errno::EINVAL) }
                });
                text.map(Out::Data).unwrap_or_else(Out::Failed)
            }
            Op::Readdir { path, .. } => {
                let names = self.find(path).and_then(|i| {
                    let node = self.fs.get(i)?;
                    if node.kind == Kind::Dir {
                        Ok(node.entries.keys().cloned().collect())
                    } else {
                        Err(Errno::ENOTDIR)
                    }
                });
                names.map(Out::Names).unwrap_or_else(Out::Failed)
            }
            Op::GetXattr { path } => {
                let value = self.find(path).and_then(|i| {
                    self.fs.get(i)?.xattrs.get(b"user.x".as_slice()).cloned().ok_or(Errno::ENODATA)
                });
                value.map(Out::Data).unwrap_or_else(Out::Failed)
            }
            _ => self.change(c, op).into(),
        }
    }

    fn change(&mut self, c: usize, op: &Op) -> Res<()> {
        match *op {
            Op::Create { path, exclusive, truncate, append, slot } => {
                if self.fds.contains_key(&(c, slot)) {
                    return Err(Errno::EBUSY);
                }
                let (dir, name) = self.parent(path)?;
                match self.fs.look(dir, name)? {
                    Some(_) if exclusive => Err(Errno::EEXIST),
                    Some(ino) => self.open(c, slot, ino, (truncate, true, append)),
                    None => {
                        let ino = self.fs.make(dir, name, Kind::File, 0o644, 7)?;
                        self.open(c, slot, ino, (false, true, append))
                    }
                }
            }
            Op::Open { path, truncate, write, slot } => {
                if self.fds.contains_key(&(c, slot)) {
                    return Err(Errno::EBUSY);
                }
                let ino = self.find(path)?;
                self.open(c, slot, ino, (truncate && write, write, false))
            }
            Op::Nameless { path, slot } => {
                if self.fds.contains_key(&(c, slot)) {
                    return Err(Errno::EBUSY);
                }
                let (dir, _) = self.parent(path)?;
                let ino = self.fs.make_nameless(dir, 0o640, 7)?;
                self.open(c, slot, ino, (false, true, false))
            }
            Op::Name { slot, to } => {
                let (ino, ..) = self.fd(c, slot)?;
                if !self.fs.get(ino)?.is_nameless {
                    return Err(Errno::EINVAL);
                }
                let (dir, name) = self.parent(to)?;
                self.fs.link(ino, dir, name)
            }
            Op::Write { slot, offset, len, byte } => {
                let (ino, write, append) = self.fd(c, slot)?;
                if !write {
                    return Err(Errno::EBADF);
                }
                let at = if append { self.fs.get(ino)?.data.len() as u64 } else { offset.into() };
                self.fs.write(ino, at, &vec![byte; len.into()])
            }
            Op::Close { slot } => self.fds.remove(&(c, slot)).map(|_| ()).ok_or(Errno::EBADF),
            Op::Truncate { path, size } => {
                let ino = self.find(path)?;
                match self.fs.get(ino)?.kind {
                    Kind::File => self.fs.get_mut(ino)?.data.resize(size.into(), 0),
                    Kind::Dir => return Err(Errno::EISDIR),
                    _ => return Err(Errno::EINVAL),
                }
                Ok(())
            }
            Op::Chmod { path, mode } => {
                let ino = self.find(path)?;
                self.fs.get_mut(ino)?.mode = 0o600 | u32::from(mode & 7);
                Ok(())
            }
            Op::Mkdir { path } => {
                let (dir, name) = self.parent(path)?;
                self.fs.make(dir, name, Kind::Dir, 0o755, 7).map(|_| ())
            }
            Op::Symlink { path } => {
                let (dir, name) = self.parent(path)?;
                let ino = self.fs.make(dir, name, Kind::Symlink, 0o777, 7)?;
                self.fs.get_mut(ino)?.data = b"target".to_vec();
                Ok(())
            }
            Op::Rmdir { path } => self.remove(path, true),
            Op::Unlink { path } => self.remove(path, false),
            Op::Rename { from, to, mode } => {
                let (from, to) = (self.parent(from)?, self.parent(to)?);
                self.fs.rename(from, to, mode)
            }
            Op::Link { from, to } => {
                let ino = self.find(from)?;
                let (dir, name) = self.parent(to)?;
                self.fs.link(ino, dir, name)
            }
            Op::SetXattr { path, value } => {
                let ino = self.find(path)?;
                self.fs.get_mut(ino)?.xattrs.insert(b"user.x".to_vec(), vec![value]);
                Ok(())
            }
            Op::Fsync { slot } => self.fd(c, slot).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, path: u8, is_dir: bool) -> Res<()> {
        let (dir, name) = self.parent(path)?;
        self.fs.remove(dir, name, is_dir).map(|_| ())
    }

    pub fn canonical(&self) -> String {
        let mut text = self.fs.canonical();
        for (key, (ino, ..)) in &self.fds {
            text.push_str(&format!("{key:?} {:?}\n", self.fs.inodes.get(ino).map(|i| (&i.data, i.nlink))));
        }
        text
    }
}

impl World {
    /// Does what the kernel does for a call, and the machine for the kernel. A handle that has gone stale on the way
    /// makes the kernel begin anew.
    pub fn apply(&mut self, c: usize, op: &Op) -> Out {
        for _ in 0..50 {
            let out = self.attempt(c, op);
            if out != Out::Failed(Errno::ESTALE) {
                return out;
            }
            self.clients[c].kernel.entries.clear();
            self.clients[c].kernel.attrs.clear();
            self.clients[c].kernel.listings.clear();
        }
        panic!("{op:?} is stale for ever");
    }

    fn attempt(&mut self, c: usize, op: &Op) -> Out {
        match *op {
            Op::Stat { path } => self.stat(c, path).unwrap_or_else(Out::Failed),
            Op::Read { slot, offset, len } => match self.clients[c].fds.get(&slot).copied() {
                None => Out::Failed(Errno::EBADF),
                Some(file) => {
                    self.read(c, file, offset.into(), len.into()).map_or_else(Out::Failed, Out::Data)
                }
            },
            Op::Readlink { path } => {
                let text = self.find(c, path).and_then(|n| self.run(c, |m, t, now| m.readlink(t, n, now)));
                text.map(|t| Out::Data(t.to_vec())).unwrap_or_else(Out::Failed)
            }
            Op::GetXattr { path } => {
                let value = self
                    .find(c, path)
                    .and_then(|n| self.run(c, |m, t, now| m.getxattr(t, n, b"user.x", now)));
                value.map(|t| Out::Data(t.to_vec())).unwrap_or_else(Out::Failed)
            }
            Op::Readdir { path, plus } => self
                .find(c, path)
                .and_then(|n| {
                    // So often that the kernel may keep it; the next one then goes by what it has.
                    while self.dice.roll(3) == 0 {
                        self.list(c, n, plus)?;
                    }
                    self.list(c, n, plus)
                })
                .map(Out::Names)
                .unwrap_or_else(Out::Failed),
            _ => self.change(c, op).into(),
        }
    }

    /// As Linux reads: attributes are asked for only where the end is in sight, and what is there is not read again.
    fn read(&mut self, c: usize, (fh, node): (Fh, NodeId), offset: usize, len: usize) -> Res<Vec<u8>> {
        self.invalidate_sometimes(c);
        let end = |w: &Self| usize::try_from(w.clients[c].kernel.sizes[&node]).unwrap();
        if self.clients[c].direct.contains(&fh) {
            let parts = self.run(c, |m, t, now| m.read(t, fh, offset as u64, len as u32, now))?;
            return Ok(parts.concat());
        }
        if offset + len > end(self) {
            self.attrs(c, node)?;
        }
        if offset >= end(self) {
            return Ok(Vec::new());
        }
        let page = match self.clients[c].kernel.pages.get(&node) {
            Some(page) => page.clone(),
            None => {
                self.clients[c].kernel.reading = Some((node, false));
                let whole = u32::try_from(PAGE_BYTES).unwrap();
                let parts = self.run(c, |m, t, now| m.read(t, fh, 0, whole, now))?;
                let page = self.clients[c].kernel.read(node, parts.concat());
                if self.clients[c].was_uncovered {
                    // That it could be shown until it is dropped cannot be helped.
                    let now = self.now();
                    self.clients[c].machine.taken_uncovered(node, now);
                    self.let_pages_go(c);
                }
                page
            }
        };
        let to = end(self).min(offset + len);
        Ok(page[offset.min(to)..to].to_vec())
    }

    /// What nothing covers is dropped.
    fn let_pages_go(&mut self, c: usize) {
        if !invariant::drops_pages(&self.clients[c].machine) {
            return self.invalidate(c);
        }
        self.ms += 30;
        self.pump(c);
        self.invalidate(c);
    }

    fn walk(&mut self, c: usize, dir: NodeId, name: &[u8]) -> Res<Option<NodeId>> {
        self.invalidate_sometimes(c);
        if let Some(known) = self.clients[c].kernel.entries.get(&(dir, name.to_vec())) {
            return Ok(*known);
        }
        let found = self.run(c, |m, t, now| m.lookup(t, dir, name, now))?;
        let kernel = &mut self.clients[c].kernel;
        match found {
            Lookup::Found(entry) => {
                kernel.entry(dir, name, &entry);
                Ok(Some(entry.node))
            }
            Lookup::Absent { valid } => {
                if valid {
                    kernel.entries.insert((dir, name.to_vec()), None);
                }
                Ok(None)
            }
        }
    }

    fn invalidate_sometimes(&mut self, c: usize) {
        if self.dice.roll(3) == 0 {
            self.invalidate(c);
        }
    }

    fn parent(&mut self, c: usize, i: u8) -> Res<(NodeId, &'static [u8])> {
        let (dirs, last) = parts(i);
        let mut at = NodeId::ROOT;
        for dir in dirs {
            at = self.walk(c, at, dir.as_bytes())?.ok_or(Errno::ENOENT)?;
            if self.clients[c].kernel.kinds[&at] != Kind::Dir {
                return Err(Errno::ENOTDIR);
            }
        }
        Ok((at, last.as_bytes()))
    }

    fn find(&mut self, c: usize, i: u8) -> Res<NodeId> {
        let (dir, name) = self.parent(c, i)?;
        self.walk(c, dir, name)?.ok_or(Errno::ENOENT)
    }

    fn attrs(&mut self, c: usize, node: NodeId) -> Res<Attrs> {
        if let Some(attrs) = self.clients[c].kernel.attrs.get(&node) {
            return Ok(*attrs);
        }
        let attributes = self.run(c, |m, t, now| m.getattr(t, node, now))?;
        self.clients[c].kernel.attributes(node, &attributes);
        Ok(attributes.attrs)
    }

    fn stat(&mut self, c: usize, i: u8) -> Res<Out> {
        let node = self.find(c, i)?;
        let a = self.attrs(c, node)?;
        if a.nlink == 0 {
            // Its name went between the walk and the look: Linux shows that, a model of single moments does not.
            return Err(Errno::ESTALE);
        }
        let size = if a.kind == Kind::Dir { 0 } else { a.size };
        Ok(Out::Stat(a.kind, a.mode, a.uid, a.nlink, size))
    }

    pub fn list(&mut self, c: usize, node: NodeId, plus: bool) -> Res<BTreeSet<Vec<u8>>> {
        let OpenedDir { fh, keeps, keep_cache } = self.run(c, |m, t, now| m.opendir(t, node, now))?;
        let kernel = &mut self.clients[c].kernel;
        let kept = kernel.listings.remove(&node).filter(|_| keep_cache);
        if let Some(names) = kept.filter(|_| keeps) {
            kernel.listings.insert(node, names.clone());
            self.clients[c].machine.releasedir(fh);
            return Ok(names);
        }
        kernel.listing = Some((node, !keeps));
        let mut names = BTreeSet::new();
        let mut offset = 0;
        loop {
            let mut got = Vec::new();
            let room = 1 + usize::try_from(self.dice.roll(4)).unwrap();
            let result = self.run(c, |m, t, now| {
                got.clear();
                let mut take = |e: &DirEntry| {
                    let fits = got.len() < room;
                    if fits {
                        got.push(e.clone());
                    }
                    fits
                };
                m.readdir(t, fh, offset, plus, &mut take, now)
            });
            if let Err(errno) = result {
                self.clients[c].machine.releasedir(fh);
                return Err(errno);
            }
            if got.is_empty() {
                break;
            }
            for entry in got {
                offset = entry.offset;
                assert!(names.insert(entry.name.as_bytes().to_vec()), "{:?} is listed twice", entry.name);
                if let (Some(kind), Ok(object)) = (entry.kind, self.server.fs.get(entry.fileid)) {
                    assert_eq!(kind, object.kind, "{entry:?}");
                }
                if let Some(e) = &entry.entry {
                    self.clients[c].kernel.entry(node, entry.name.as_bytes(), e);
                }
            }
        }
        self.clients[c].machine.releasedir(fh);
        let kernel = &mut self.clients[c].kernel;
        if kernel.listing.take() == Some((node, false)) {
            kernel.listings.insert(node, names.clone());
        }
        Ok(names)
    }

    fn open(&mut self, c: usize, slot: u8, node: NodeId, flags: OpenFlags) -> Res<()> {
        let mut given = None;
        let opened = self.run(c, |m, t, now| {
            let step = m.open(t, node, flags, now);
            if let Step::Done(opened) = &step {
                given = m.store_at_open(opened, now);
            }
            step
        })?;
        if let Some((node, whole)) = given {
            self.give(c, node, whole);
        }
        if opened.is_direct {
            self.clients[c].direct.insert(opened.fh);
        }
        let kernel = &mut self.clients[c].kernel;
        if flags.truncate {
            kernel.attrs.remove(&node);
            kernel.sized(node, 0);
        }
        if !opened.keep_cache {
            kernel.pages.remove(&node);
        }
        self.opened(c, slot, (opened.fh, node), flags);
        Ok(())
    }

    /// The kernel is given what a file holds before it is told that it is open, while others ask for it back.
    fn give(&mut self, c: usize, node: NodeId, whole: Whole) {
        assert!(self.clients[c].fds.values().all(|(_, open)| *open != node), "nobody else has {node:?} open");
        if self.is_late() {
            self.deliver();
            self.invalidate(c);
        }
        let client = &mut self.clients[c];
        client.kernel.apply(&Invalidation { number: 0, what: Forget::Store(node, whole) });
        client.machine.stored(node, true);
    }

    fn opened(&mut self, c: usize, slot: u8, file: (Fh, NodeId), flags: OpenFlags) {
        self.clients[c].fds.insert(slot, file);
        if flags.append {
            self.clients[c].appending.insert(slot);
        } else {
            self.clients[c].appending.remove(&slot);
        }
    }

    fn change(&mut self, c: usize, op: &Op) -> Res<()> {
        match *op {
            Op::Create { path, exclusive, truncate, append, slot } => {
                self.create(c, path, slot, (exclusive, truncate, append))
            }
            Op::Open { path, truncate, write, slot } => {
                if self.clients[c].fds.contains_key(&slot) {
                    return Err(Errno::EBUSY);
                }
                let node = self.find(c, path)?;
                let access = Access { read: true, write };
                self.open(
                    c,
                    slot,
                    node,
                    OpenFlags { access, truncate: truncate && write, ..OpenFlags::default() },
                )
            }
            Op::Nameless { path, slot } => {
                if self.clients[c].fds.contains_key(&slot) {
                    return Err(Errno::EBUSY);
                }
                let (dir, _) = self.parent(c, path)?;
                let access = Access { read: true, write: true };
                let flags = OpenFlags { access, ..OpenFlags::default() };
                let (entry, opened) = self.run(c, |m, t, now| m.make_nameless(t, dir, 0o640, flags, now))?;
                assert!(!entry.entry_valid && entry.attrs.nlink == 0, "{entry:?}");
                self.clients[c].nameless.insert(entry.node);
                let kernel = &mut self.clients[c].kernel;
                kernel.kinds.insert(entry.node, Kind::File);
                kernel.attributes(entry.node, &Attributes { attrs: entry.attrs, valid: entry.attr_valid });
                self.opened(c, slot, (opened.fh, entry.node), flags);
                Ok(())
            }
            Op::Name { slot, to } => {
                let (_, node) = self.clients[c].fds.get(&slot).copied().ok_or(Errno::EBADF)?;
                if !self.clients[c].nameless.contains(&node) {
                    return Err(Errno::EINVAL);
                }
                let (dir, name) = self.parent(c, to)?;
                if self.walk(c, dir, name)?.is_some() {
                    return Err(Errno::EEXIST);
                }
                let entry = self.run(c, |m, t, now| m.link(t, node, dir, name, now))?;
                self.clients[c].nameless.remove(&node);
                self.made(c, dir, name, &entry);
                Ok(())
            }
            Op::Write { slot, offset, len, byte } => {
                let (fh, node) = self.clients[c].fds.get(&slot).copied().ok_or(Errno::EBADF)?;
                let (data, mut done) = (vec![byte; len.into()], 0);
                let appends = self.clients[c].appending.contains(&slot);
                let offset = if appends { self.clients[c].kernel.sizes[&node] } else { offset.into() };
                while done < data.len() {
                    let rest = bytes(&data[done..]);
                    let at = offset + done as u64;
                    done += self.run(c, |m, t, now| m.write(t, fh, at, &rest, now))? as usize;
                }
                if data.is_empty() {
                    self.run(c, |m, t, now| m.write(t, fh, offset, &bytes(b""), now))?;
                }
                self.clients[c].kernel.written(node, usize::try_from(offset).unwrap(), &data);
                self.let_pages_go(c);
                if appends {
                    // Where it has put the data into its page it learns a moment too late.
                    self.invalidate(c);
                }
                Ok(())
            }
            Op::Close { slot } => {
                let (fh, _) = self.clients[c].fds.remove(&slot).ok_or(Errno::EBADF)?;
                let closed = self.run(c, |m, t, now| m.flush(t, fh, now));
                let now = self.now();
                self.clients[c].machine.release(fh, now);
                closed
            }
            Op::Truncate { path, size } => {
                let node = self.find(c, path)?;
                match self.attrs(c, node)?.kind {
                    Kind::File => {}
                    Kind::Dir => return Err(Errno::EISDIR),
                    _ => return Err(Errno::EINVAL),
                }
                self.set(c, node, Changes { size: Some(size.into()), ..Changes::default() })
            }
            Op::Chmod { path, mode } => {
                let node = self.find(c, path)?;
                self.set(c, node, Changes { mode: Some(0o600 | u32::from(mode & 7)), ..Changes::default() })
            }
            Op::SetXattr { path, value } => {
                let node = self.find(c, path)?;
                let value = bytes(&[value]);
                self.run(c, |m, t, now| m.setxattr(t, node, b"user.x", (&value, XattrMode::Either), now))?;
                self.clients[c].kernel.attrs.remove(&node);
                Ok(())
            }
            Op::Fsync { slot } => {
                let (fh, node) = self.clients[c].fds.get(&slot).copied().ok_or(Errno::EBADF)?;
                self.run(c, |m, t, now| m.fsync(t, node, Some(fh), now))?;
                // What is in the journal still is brought up to date before it returns.
                self.keep(c);
                Ok(())
            }
            Op::Sync => {
                self.run(c, |m, t, now| m.sync(t, now))?;
                self.keep(c);
                Ok(())
            }
            Op::Pause { ms } => {
                self.ms += u64::from(ms);
                self.pump(c);
                Ok(())
            }
            _ => self.change_name(c, op),
        }
    }

    fn set(&mut self, c: usize, node: NodeId, changes: Changes) -> Res<()> {
        let attributes = self.run(c, |m, t, now| m.setattr(t, node, &changes, now))?;
        self.clients[c].kernel.attributes(node, &attributes);
        Ok(())
    }

    fn create(&mut self, c: usize, path: u8, slot: u8, flags: (bool, bool, bool)) -> Res<()> {
        if self.clients[c].fds.contains_key(&slot) {
            return Err(Errno::EBUSY);
        }
        let (exclusive, truncate, append) = flags;
        let (dir, name) = self.parent(c, path)?;
        let access = Access { read: true, write: true };
        let flags = OpenFlags { access, append, truncate, exclusive, execute: false };
        match self.walk(c, dir, name)? {
            Some(_) if exclusive => Err(Errno::EEXIST),
            Some(node) => self.open(c, slot, node, flags),
            None => {
                let (entry, opened) = self.run(c, |m, t, now| m.create(t, dir, name, 0o644, flags, now))?;
                self.made(c, dir, name, &entry);
                self.opened(c, slot, (opened.fh, entry.node), flags);
                Ok(())
            }
        }
    }

    fn made(&mut self, c: usize, dir: NodeId, name: &[u8], entry: &Entry) {
        let kernel = &mut self.clients[c].kernel;
        kernel.attrs.remove(&dir);
        kernel.listings.remove(&dir);
        kernel.entry(dir, name, entry);
    }

    fn change_name(&mut self, c: usize, op: &Op) -> Res<()> {
        match *op {
            Op::Mkdir { path } => {
                let (dir, name) = self.parent(c, path)?;
                if self.walk(c, dir, name)?.is_some() {
                    return Err(Errno::EEXIST);
                }
                let entry = self.run(c, |m, t, now| m.mkdir(t, dir, name, 0o755, now))?;
                self.made(c, dir, name, &entry);
            }
            Op::Symlink { path } => {
                let (dir, name) = self.parent(c, path)?;
                if self.walk(c, dir, name)?.is_some() {
                    return Err(Errno::EEXIST);
                }
                let text = bytes(b"target");
                let entry = self.run(c, |m, t, now| m.symlink(t, dir, name, &text, now))?;
                self.made(c, dir, name, &entry);
            }
            Op::Link { from, to } => {
                let node = self.find(c, from)?;
                let (dir, name) = self.parent(c, to)?;
                if self.attrs(c, node)?.kind == Kind::Dir {
                    return Err(Errno::EPERM);
                }
                if self.walk(c, dir, name)?.is_some() {
                    return Err(Errno::EEXIST);
                }
                let entry = self.run(c, |m, t, now| m.link(t, node, dir, name, now))?;
                self.made(c, dir, name, &entry);
            }
            Op::Unlink { path } => self.remove(c, path, false)?,
            Op::Rmdir { path } => self.remove(c, path, true)?,
            Op::Rename { from, to, mode } => self.rename(c, from, to, mode)?,
            _ => {}
        }
        Ok(())
    }

    fn remove(&mut self, c: usize, path: u8, is_dir: bool) -> Res<()> {
        let (dir, name) = self.parent(c, path)?;
        let node = self.walk(c, dir, name)?.ok_or(Errno::ENOENT)?;
        self.run(
            c,
            |m, t, now| {
                if is_dir { m.rmdir(t, dir, name, now) } else { m.unlink(t, dir, name, now) }
            },
        )?;
        let kernel = &mut self.clients[c].kernel;
        kernel.entries.remove(&(dir, name.to_vec()));
        kernel.attrs.remove(&dir);
        kernel.listings.remove(&dir);
        kernel.attrs.remove(&node);
        Ok(())
    }

    fn rename(&mut self, c: usize, from: u8, to: u8, mode: RenameMode) -> Res<()> {
        let (from, to) = (self.parent(c, from)?, self.parent(c, to)?);
        let source = self.walk(c, from.0, from.1)?.ok_or(Errno::ENOENT)?;
        let target = self.walk(c, to.0, to.1)?;
        match (target, mode) {
            (Some(_), RenameMode::NoReplace) => return Err(Errno::EEXIST),
            (None, RenameMode::Exchange) => return Err(Errno::ENOENT),
            _ => {}
        }
        let above = |w: &Self, dir: NodeId, node: NodeId| w.is_above(c, node, dir);
        if above(self, to.0, source)
            || (mode == RenameMode::Exchange && target.is_some_and(|t| above(self, from.0, t)))
        {
            return Err(Errno::EINVAL);
        }
        if target == Some(source) {
            return Ok(());
        }
        self.run(c, |m, t, now| m.rename(t, from, to, mode, now))?;
        let kernel = &mut self.clients[c].kernel;
        let keys = [(from.0, from.1.to_vec()), (to.0, to.1.to_vec())];
        let moved = kernel.entries.remove(&keys[0]);
        let other = kernel.entries.remove(&keys[1]);
        if let Some(moved) = moved {
            kernel.entries.insert(keys[1].clone(), moved);
        }
        if let (Some(other), RenameMode::Exchange) = (other, mode) {
            kernel.entries.insert(keys[0].clone(), other);
        }
        for node in [Some(from.0), Some(to.0), Some(source), target].into_iter().flatten() {
            kernel.attrs.remove(&node);
            kernel.listings.remove(&node);
        }
        Ok(())
    }

    /// Whether `node` lies on the way from `dir` to the root. The kernel knows from its tree; here the server does,
    /// for nothing else in these tests moves directories meanwhile.
    fn is_above(&self, c: usize, node: NodeId, dir: NodeId) -> bool {
        if node == dir {
            return true;
        }
        let known = &self.clients[c].kernel.entries;
        let parents = known.iter().filter(|(_, n)| **n == Some(dir)).map(|((d, _), _)| *d);
        parents.into_iter().any(|d| self.is_above(c, node, d))
    }
}
