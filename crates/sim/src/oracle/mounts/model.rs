//! A file system in memory, as applications of several mounts see it: each mount has numbers of its own for what it knows.

pub(super) mod power;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use holdfast_cache::{Errno, NodeId};

/// Bytes of a block: all is written in whole ones.
pub const BLOCK: u64 = 8;

/// What an application does.
#[expect(missing_docs, reason = "fields are named for what they are; each variant says the rest")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Looks a name up.
    Lookup { dir: NodeId, name: String },
    /// Looks at attributes.
    Stat { node: NodeId },
    /// Reads all names.
    List { dir: NodeId },
    /// Makes a file and opens it, or opens one that is there.
    Create { dir: NodeId, name: String, exclusive: bool },
    /// Opens a file.
    Open { node: NodeId, truncate: bool },
    /// Makes a directory.
    Mkdir { dir: NodeId, name: String },
    /// Removes a file's name.
    Unlink { dir: NodeId, name: String },
    /// Removes a directory.
    Rmdir { dir: NodeId, name: String },
    /// Changes a name.
    Rename { from: (NodeId, String), to: (NodeId, String) },
    /// Gives a file one more name.
    Link { node: NodeId, dir: NodeId, name: String },
    /// Changes the mode.
    Chmod { node: NodeId, mode: u32 },
    /// Changes the size, to so many blocks.
    Resize { node: NodeId, blocks: u64 },
    /// Writes a block through an open.
    Write { node: NodeId, block: u64, mark: u64 },
    /// Reads a block through an open.
    Read { node: NodeId, block: u64 },
    /// Has it put on the disk.
    Fsync { node: NodeId },
    /// Has everything put on the disk.
    Sync,
    /// Closes an open.
    Close { node: NodeId },
    /// Nothing at all.
    Nothing,
}

impl Deed {
    /// Whether it tells of an object, and how that looks.
    #[must_use]
    pub const fn finds(&self) -> bool {
        matches!(self, Self::Lookup { .. } | Self::Create { .. } | Self::Mkdir { .. } | Self::Link { .. })
    }

    /// Whether it changes what is there and makes nothing.
    pub(super) const fn changes(&self) -> bool {
        matches!(
            self,
            Self::Open { truncate: true, .. }
                | Self::Unlink { .. }
                | Self::Rmdir { .. }
                | Self::Rename { .. }
                | Self::Chmod { .. }
                | Self::Resize { .. }
                | Self::Write { .. }
        )
    }

    /// Whether it leaves all as it is, also what a mount knows.
    pub(super) const fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::Stat { .. } | Self::List { .. } | Self::Read { .. } | Self::Close { .. } | Self::Nothing
        )
    }
}

/// Attributes that others can change. Size and links are those of files; of directories they are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Look {
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Its mode.
    pub mode: u32,
    /// Its names.
    pub nlink: u32,
    /// Its bytes.
    pub size: u64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An object.
    Found(NodeId, Look),
    /// There is no such name.
    Absent,
    /// Attributes.
    Looks(Look),
    /// Names.
    Names(BTreeSet<String>),
    /// Bytes.
    Data(Vec<u8>),
    /// It was done.
    Done,
    /// It failed.
    Failed(Errno),
}

/// Names an object of the model: the operation that made it.
type Ino = usize;

/// What is made by one operation a second time, after the first was lost or not answered, is so far from it.
const ANEW: Ino = 1 << 40;

/// The directory that all use, which no operation has made.
const BASE: Ino = usize::MAX;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Object {
    is_dir: bool,
    mode: u32,
    nlink: u32,
    size: u64,
    blocks: BTreeMap<u64, u64>,
    entries: BTreeMap<String, Ino>,
    /// Mounts that have changed it or a name of it since they last had it put on the disk.
    dirty: BTreeSet<usize>,
}

impl Object {
    fn look(&self) -> Look {
        let (nlink, size) = if self.is_dir { (0, 0) } else { (self.nlink, self.size) };
        Look { is_dir: self.is_dir, mode: self.mode, nlink, size }
    }

    fn is_gone(&self) -> bool {
        self.nlink == 0
    }

    fn read(&self, block: u64) -> Vec<u8> {
        let bytes = self.blocks.get(&block).copied().unwrap_or(0).to_be_bytes();
        let length = self.size.saturating_sub(block * BLOCK).min(BLOCK);
        bytes[..usize::try_from(length).unwrap_or(0)].to_vec()
    }

    fn resize(&mut self, size: u64) {
        self.size = size;
        self.blocks.retain(|block, _| block * BLOCK < size);
    }
}

/// The file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tree {
    objects: BTreeMap<Ino, Rc<Object>>,
    nodes: BTreeMap<(usize, NodeId), Ino>,
}

impl Default for Tree {
    fn default() -> Self {
        let base = Object { is_dir: true, mode: 0o777, nlink: 1, ..Object::default() };
        Self { objects: BTreeMap::from([(BASE, Rc::new(base))]), nodes: BTreeMap::new() }
    }
}

/// What is found on a disk: by path, attributes and blocks.
pub type OnDisk = BTreeMap<String, (Look, BTreeMap<u64, u64>)>;

/// What stands against an operation on what is gone.
const GONE: [Errno; 2] = [Errno::ESTALE, Errno::ENOENT];

impl Tree {
    pub(super) fn begins(&mut self, host: usize, base: NodeId) {
        self.nodes.insert((host, base), BASE);
    }

    fn of(&self, host: usize, node: NodeId) -> Option<Ino> {
        self.nodes.get(&(host, node)).copied()
    }

    fn object(&self, ino: Ino) -> &Object {
        &self.objects[&ino]
    }

    fn change(&mut self, host: usize, ino: Ino) -> &mut Object {
        let object = Rc::make_mut(self.objects.entry(ino).or_default());
        object.dirty.insert(host);
        object
    }

    /// The names in a directory; that they change says nothing of itself.
    fn entries(&mut self, dir: Ino) -> &mut BTreeMap<String, Ino> {
        &mut Rc::make_mut(self.objects.entry(dir).or_default()).entries
    }

    /// An object as a mount is told of it: under one number there is one object.
    fn is_told(&mut self, host: usize, ino: Ino, outcome: Option<&Outcome>) -> bool {
        match outcome {
            None => true,
            Some(Outcome::Found(node, _)) => *self.nodes.entry((host, *node)).or_insert(ino) == ino,
            Some(_) => false,
        }
    }

    /// Does something, if it can have ended so; without an outcome, however it would end.
    pub(super) fn takes(&mut self, (id, host): (Ino, usize), deed: &Deed, outcome: Option<&Outcome>) -> bool {
        let fails = |with: &[Errno]| {
            outcome.is_none_or(|outcome| matches!(outcome, Outcome::Failed(e) if with.contains(e)))
        };
        match self.apply((id, host), deed, outcome) {
            Ok(is_so) => is_so,
            Err(errnos) => fails(&errnos),
        }
    }

    /// Errors where it cannot be done.
    fn apply(
        &mut self,
        (id, host): (Ino, usize),
        deed: &Deed,
        outcome: Option<&Outcome>,
    ) -> Result<bool, Vec<Errno>> {
        let is = |expected: &Outcome| outcome.is_none_or(|outcome| outcome == expected);
        match deed {
            Deed::Lookup { dir, name } => {
                let dir = self.dir_looked_at(host, *dir, outcome)?;
                match self.object(dir).entries.get(name).copied() {
                    Some(ino) => Ok(self.is_told(host, ino, outcome)),
                    None => Ok(is(&Outcome::Absent)),
                }
            }
            Deed::Stat { node } => {
                let ino = self.living(host, *node, outcome)?;
                Ok(is(&Outcome::Looks(self.object(ino).look())))
            }
            Deed::List { dir } => {
                let ino = self.dir_looked_at(host, *dir, outcome)?;
                let names = self.object(ino).entries.keys().cloned().collect();
                Ok(is(&Outcome::Names(names)))
            }
            Deed::Open { node, truncate } => {
                let ino = self.living(host, *node, outcome)?;
                if *truncate {
                    self.change(host, ino).resize(0);
                }
                Ok(is(&Outcome::Done))
            }
            Deed::Chmod { node, mode } => {
                let ino = self.living(host, *node, outcome)?;
                self.change(host, ino).mode = *mode;
                Ok(matches!(outcome, None | Some(Outcome::Looks(_))))
            }
            Deed::Resize { node, blocks } => {
                let ino = self.living(host, *node, outcome)?;
                self.change(host, ino).resize(blocks * BLOCK);
                Ok(matches!(outcome, None | Some(Outcome::Looks(_))))
            }
            Deed::Write { node, block, mark } => {
                let ino = self.living(host, *node, outcome)?;
                let object = self.change(host, ino);
                object.blocks.insert(*block, *mark);
                object.size = object.size.max((block + 1) * BLOCK);
                Ok(is(&Outcome::Done))
            }
            Deed::Read { node, block } => {
                let ino = self.living(host, *node, outcome)?;
                Ok(is(&Outcome::Data(self.object(ino).read(*block))))
            }
            Deed::Fsync { node } => {
                let ino = self.living(host, *node, outcome)?;
                self.change(host, ino).dirty.remove(&host);
                Ok(is(&Outcome::Done))
            }
            Deed::Sync => {
                for ino in self.objects.keys().copied().collect::<Vec<_>>() {
                    self.change(host, ino).dirty.remove(&host);
                }
                Ok(is(&Outcome::Done))
            }
            Deed::Close { .. } | Deed::Nothing => Ok(is(&Outcome::Done)),
            _ => self.apply_to_names((id, host), deed, outcome),
        }
    }

    fn apply_to_names(
        &mut self,
        (id, host): (Ino, usize),
        deed: &Deed,
        outcome: Option<&Outcome>,
    ) -> Result<bool, Vec<Errno>> {
        let is_done = matches!(outcome, None | Some(Outcome::Done));
        match deed {
            Deed::Create { dir, name, exclusive } => {
                let dir = self.living_dir(host, *dir)?;
                let ino = match self.object(dir).entries.get(name).copied() {
                    Some(_) if *exclusive => return Err(vec![Errno::EEXIST]),
                    Some(ino) if self.object(ino).is_dir => return Err(vec![Errno::EISDIR]),
                    Some(ino) => ino,
                    None => self.make((id, host), (dir, name), (false, 0o644)),
                };
                Ok(self.is_told(host, ino, outcome))
            }
            Deed::Mkdir { dir, name } => {
                let dir = self.living_dir(host, *dir)?;
                if self.object(dir).entries.contains_key(name) {
                    return Err(vec![Errno::EEXIST]);
                }
                let ino = self.make((id, host), (dir, name), (true, 0o755));
                Ok(self.is_told(host, ino, outcome))
            }
            Deed::Unlink { dir, name } | Deed::Rmdir { dir, name } => {
                let is_rmdir = matches!(deed, Deed::Rmdir { .. });
                let dir = self.living_dir(host, *dir)?;
                let ino = self.named(dir, name)?;
                // NFS has one word for both: what has taken the name while the server was being asked goes, whatever it is.
                let is_asked = matches!(outcome, Some(Outcome::Done));
                match (self.object(ino).is_dir, is_rmdir) {
                    (true, false) if !is_asked => return Err(vec![Errno::EISDIR, Errno::EPERM]),
                    (false, true) if !is_asked => return Err(vec![Errno::ENOTDIR]),
                    _ if !self.object(ino).entries.is_empty() => return Err(vec![Errno::ENOTEMPTY]),
                    _ => self.unname(host, dir, name),
                }
                Ok(is_done)
            }
            Deed::Rename { from, to } => self.rename(host, from, to).map(|()| is_done),
            Deed::Link { node, dir, name } => {
                let ino = self.of(host, *node).ok_or_else(Vec::new)?;
                let dir = self.living_dir(host, *dir)?;
                if self.object(dir).entries.contains_key(name) {
                    let gone = if self.object(ino).is_gone() { &GONE[..] } else { &[] };
                    return Err([&[Errno::EEXIST][..], gone].concat());
                }
                if self.object(ino).is_dir {
                    return Err(vec![Errno::EPERM]);
                }
                if self.object(ino).is_gone() {
                    return Err(GONE.to_vec());
                }
                self.entries(dir).insert(name.clone(), ino);
                self.change(host, ino).nlink += 1;
                Ok(self.is_told(host, ino, outcome))
            }
            _ => Ok(false),
        }
    }

    fn make(
        &mut self,
        (id, host): (Ino, usize),
        (dir, name): (Ino, &str),
        (is_dir, mode): (bool, u32),
    ) -> Ino {
        let object = Object { is_dir, mode, nlink: 1, dirty: BTreeSet::from([host]), ..Object::default() };
        let is_free = |ino: &Ino| !self.objects.contains_key(ino);
        let ino = (0..).map(|times| id + times * ANEW).find(is_free).unwrap_or(id);
        self.objects.insert(ino, Rc::new(object));
        self.entries(dir).insert(name.into(), ino);
        ino
    }

    fn unname(&mut self, host: usize, dir: Ino, name: &str) {
        if let Some(ino) = self.entries(dir).remove(name) {
            self.change(host, ino).nlink -= 1;
        }
    }

    fn named(&self, dir: Ino, name: &str) -> Result<Ino, Vec<Errno>> {
        self.object(dir).entries.get(name).copied().ok_or_else(|| vec![Errno::ENOENT])
    }

    /// A directory that a mount knows, and that is there.
    fn living_dir(&self, host: usize, node: NodeId) -> Result<Ino, Vec<Errno>> {
        let ino = self.of(host, node).ok_or_else(Vec::new)?;
        match self.object(ino) {
            of if !of.is_dir => Err(vec![Errno::ENOTDIR]),
            of if of.is_gone() => Err(GONE.to_vec()),
            _ => Ok(ino),
        }
    }

    /// The same for who looks: what is gone was empty, and may be found so.
    fn dir_looked_at(&self, host: usize, node: NodeId, outcome: Option<&Outcome>) -> Result<Ino, Vec<Errno>> {
        let ino = self.living(host, node, outcome)?;
        if self.object(ino).is_dir { Ok(ino) } else { Err(vec![Errno::ENOTDIR]) }
    }

    /// An object that a mount knows. Of what is gone it may hear that, or go on with it.
    fn living(&self, host: usize, node: NodeId, outcome: Option<&Outcome>) -> Result<Ino, Vec<Errno>> {
        let ino = self.of(host, node).ok_or_else(Vec::new)?;
        let has_failed = matches!(outcome, Some(Outcome::Failed(_)));
        if has_failed && self.object(ino).is_gone() { Err(GONE.to_vec()) } else { Ok(ino) }
    }

    fn rename(
        &mut self,
        host: usize,
        (from, name): &(NodeId, String),
        (to, new_name): &(NodeId, String),
    ) -> Result<(), Vec<Errno>> {
        let (from, to) = (self.living_dir(host, *from)?, self.living_dir(host, *to)?);
        let ino = self.named(from, name)?;
        let over = self.object(to).entries.get(new_name).copied();
        if over == Some(ino) {
            return Ok(());
        }
        let mut errnos = Vec::new();
        if self.is_below(to, ino) {
            errnos.push(Errno::EINVAL);
        }
        if let Some(over) = over {
            match (self.object(ino).is_dir, self.object(over).is_dir) {
                (true, false) => errnos.push(Errno::ENOTDIR),
                (false, true) => errnos.push(Errno::EISDIR),
                _ => {}
            }
            if !self.object(over).entries.is_empty() {
                errnos.extend([Errno::ENOTEMPTY, Errno::EEXIST]);
            }
        }
        if !errnos.is_empty() {
            return Err(errnos);
        }
        if over.is_some() {
            self.unname(host, to, new_name);
        }
        self.entries(from).remove(name);
        self.entries(to).insert(new_name.clone(), ino);
        self.change(host, ino);
        Ok(())
    }

    /// Whether a directory is another, or lies within it.
    fn is_below(&self, dir: Ino, above: Ino) -> bool {
        dir == above || self.object(above).entries.values().any(|ino| self.is_below(dir, *ino))
    }

    /// What it is on a disk; of what was not put there only what is above what was.
    #[must_use]
    pub fn on_disk(&self, is_all: bool) -> OnDisk {
        let mut found = OnDisk::new();
        self.walk(BASE, "", is_all, &mut found);
        found
    }

    fn walk(&self, dir: Ino, above: &str, is_all: bool, found: &mut OnDisk) {
        for (name, ino) in &self.object(dir).entries {
            let object = self.object(*ino);
            if !is_all && !object.dirty.is_empty() {
                continue;
            }
            let path = format!("{above}/{name}");
            found.insert(path.clone(), (object.look(), object.blocks.clone()));
            self.walk(*ino, &path, is_all, found);
        }
    }

    /// All of it, for people.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let word = |(path, (look, blocks)): (&String, &(Look, BTreeMap<u64, u64>))| {
            let Look { is_dir, mode, nlink, size } = look;
            let kind = if *is_dir { "directory" } else { "file" };
            format!("{path}: {kind} {mode:o}, {nlink} names, {size} bytes {blocks:?}")
        };
        self.on_disk(true).iter().map(word).collect()
    }
}
