//! A plain file system in memory: what the server stores, and what the reference model is.

use std::collections::BTreeMap;

use holdfast_cache::{Errno, Kind, RenameMode};

pub const ROOT: u64 = 1;

#[derive(Clone, Debug, PartialEq)]
pub struct Inode {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub nlink: u32,
    /// It was made without a name and has had none yet.
    pub is_nameless: bool,
    pub data: Vec<u8>,
    pub entries: BTreeMap<Vec<u8>, u64>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub change: u64,
    pub mtime: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Fs {
    pub inodes: BTreeMap<u64, Inode>,
    pub next: u64,
    pub changes: u64,
    /// No more data can be written.
    pub is_full: bool,
    /// Nothing more can be made.
    pub has_no_inodes: bool,
}

pub type Res<T> = Result<T, Errno>;

impl Default for Fs {
    fn default() -> Self {
        let mut fs =
            Self { inodes: BTreeMap::new(), next: ROOT, changes: 0, is_full: false, has_no_inodes: false };
        fs.add(Kind::Dir, 0o755, 0);
        fs
    }
}

impl Fs {
    fn add(&mut self, kind: Kind, mode: u32, uid: u32) -> u64 {
        let ino = self.next;
        self.next += 1;
        let nlink = if kind == Kind::Dir { 2 } else { 1 };
        let (data, entries, xattrs) = Default::default();
        let is_nameless = false;
        let inode = Inode { kind, mode, uid, nlink, is_nameless, data, entries, xattrs, change: 1, mtime: 0 };
        self.inodes.insert(ino, inode);
        ino
    }

    pub fn make_nameless(&mut self, dir: u64, mode: u32, uid: u32) -> Res<u64> {
        if self.get(dir)?.kind != Kind::Dir {
            return Err(Errno::ENOTDIR);
        }
        let ino = self.add(Kind::File, mode, uid);
        let inode = self.get_mut(ino)?;
        (inode.nlink, inode.is_nameless) = (0, true);
        Ok(ino)
    }

    /// A file that was made without a name becomes one that is made now.
    pub fn place(&mut self, ino: u64, dir: u64, name: &[u8], mode: u32) -> Res<()> {
        self.link(ino, dir, name)?;
        let inode = self.get_mut(ino)?;
        (inode.mode, inode.data) = (mode, Vec::new());
        Ok(())
    }

    pub fn touch(&mut self, ino: u64) {
        self.changes += 1;
        let change = self.changes;
        if let Some(i) = self.inodes.get_mut(&ino) {
            i.change = change;
        }
    }

    pub fn get(&self, ino: u64) -> Res<&Inode> {
        self.inodes.get(&ino).ok_or(Errno::ESTALE)
    }

    pub fn get_mut(&mut self, ino: u64) -> Res<&mut Inode> {
        self.touch(ino);
        self.inodes.get_mut(&ino).ok_or(Errno::ESTALE)
    }

    pub fn look(&self, dir: u64, name: &[u8]) -> Res<Option<u64>> {
        let dir = self.get(dir)?;
        if dir.kind != Kind::Dir {
            return Err(Errno::ENOTDIR);
        }
        Ok(dir.entries.get(name).copied())
    }

    pub fn make(&mut self, dir: u64, name: &[u8], kind: Kind, mode: u32, uid: u32) -> Res<u64> {
        if self.look(dir, name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        if self.has_no_inodes {
            return Err(Errno::ENOSPC);
        }
        let ino = self.add(kind, mode, uid);
        self.put(dir, name, ino);
        Ok(ino)
    }

    fn put(&mut self, dir: u64, name: &[u8], ino: u64) {
        let is_dir = self.inodes[&ino].kind == Kind::Dir;
        let dir = self.get_mut(dir).unwrap();
        dir.entries.insert(name.to_vec(), ino);
        dir.nlink += u32::from(is_dir);
    }

    fn take(&mut self, dir: u64, name: &[u8]) -> u64 {
        let ino = self.inodes[&dir].entries[name];
        let is_dir = self.inodes[&ino].kind == Kind::Dir;
        let dir = self.get_mut(dir).unwrap();
        dir.entries.remove(name);
        dir.nlink -= u32::from(is_dir);
        ino
    }

    pub fn link(&mut self, ino: u64, dir: u64, name: &[u8]) -> Res<()> {
        if self.get(ino)?.kind == Kind::Dir {
            return Err(Errno::EPERM);
        }
        if self.look(dir, name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        let inode = self.get(ino)?;
        if inode.nlink == 0 && !inode.is_nameless {
            return Err(Errno::ENOENT);
        }
        self.put(dir, name, ino);
        let inode = self.get_mut(ino)?;
        inode.nlink += 1;
        inode.is_nameless = false;
        Ok(())
    }

    pub fn remove(&mut self, dir: u64, name: &[u8], is_dir: bool) -> Res<u64> {
        let ino = self.look(dir, name)?.ok_or(Errno::ENOENT)?;
        let node = self.get(ino)?;
        match (node.kind == Kind::Dir, is_dir) {
            (false, true) => return Err(Errno::ENOTDIR),
            (true, false) => return Err(Errno::EISDIR),
            (true, true) if !node.entries.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        self.take(dir, name);
        self.unlinked(ino);
        Ok(ino)
    }

    fn unlinked(&mut self, ino: u64) {
        let node = self.get_mut(ino).unwrap();
        node.nlink = if node.kind == Kind::Dir { 0 } else { node.nlink - 1 };
    }

    fn is_within(&self, ino: u64, top: u64) -> bool {
        ino == top || self.inodes[&top].entries.values().any(|i| self.is_within(ino, *i))
    }

    pub fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), mode: RenameMode) -> Res<()> {
        let ino = self.look(from.0, from.1)?.ok_or(Errno::ENOENT)?;
        let target = self.look(to.0, to.1)?;
        let is_dir = |fs: &Self, ino: u64| fs.inodes[&ino].kind == Kind::Dir;
        if mode == RenameMode::NoReplace && target.is_some() {
            return Err(Errno::EEXIST);
        }
        if mode == RenameMode::Exchange && target.is_none() {
            return Err(Errno::ENOENT);
        }
        if is_dir(self, ino) && self.is_within(to.0, ino) {
            return Err(Errno::EINVAL);
        }
        match (target, mode) {
            (None, RenameMode::Exchange) => Err(Errno::ENOENT),
            (Some(other), RenameMode::Exchange) => {
                if is_dir(self, other) && self.is_within(from.0, other) {
                    return Err(Errno::EINVAL);
                }
                self.take(from.0, from.1);
                if from != to {
                    self.take(to.0, to.1);
                    self.put(from.0, from.1, other);
                }
                self.put(to.0, to.1, ino);
                Ok(())
            }
            (target, _) => {
                if target == Some(ino) {
                    return Ok(());
                }
                if let Some(other) = target {
                    match (is_dir(self, ino), is_dir(self, other)) {
                        (true, false) => return Err(Errno::ENOTDIR),
                        (false, true) => return Err(Errno::EISDIR),
                        (true, true) if !self.inodes[&other].entries.is_empty() => {
                            return Err(Errno::ENOTEMPTY);
                        }
                        _ => {}
                    }
                    self.take(to.0, to.1);
                    self.unlinked(other);
                }
                self.take(from.0, from.1);
                self.put(to.0, to.1, ino);
                Ok(())
            }
        }
    }

    pub fn write(&mut self, ino: u64, offset: u64, data: &[u8]) -> Res<()> {
        if data.is_empty() {
            return Ok(());
        }
        if self.is_full {
            return Err(Errno::ENOSPC);
        }
        let node = self.get_mut(ino)?;
        let (start, end) = (usize::try_from(offset).unwrap(), usize::try_from(offset).unwrap() + data.len());
        if node.data.len() < end {
            node.data.resize(end, 0);
        }
        node.data[start..end].copy_from_slice(data);
        Ok(())
    }

    pub fn read(&self, ino: u64, offset: u64, length: u32) -> Res<Vec<u8>> {
        let data = &self.get(ino)?.data;
        let start = data.len().min(usize::try_from(offset).unwrap());
        let end = data.len().min(start + length as usize);
        Ok(data[start..end].to_vec())
    }

    /// Names alone, and which are one object.
    pub fn names(&self) -> String {
        let mut seen = BTreeMap::new();
        let mut out = String::new();
        self.print_names(ROOT, "/", &mut seen, &mut out);
        out
    }

    fn print_names(&self, ino: u64, path: &str, seen: &mut BTreeMap<u64, String>, out: &mut String) {
        let first = seen.entry(ino).or_insert_with(|| path.to_string());
        out.push_str(&format!("{path} is {first} {:?}\n", self.inodes[&ino].kind));
        for (name, child) in &self.inodes[&ino].entries {
            self.print_names(*child, &format!("{path}{}/", String::from_utf8_lossy(name)), seen, out);
        }
    }

    /// The tree as text: names, attributes and contents, and which names are one object; not the numbers.
    pub fn canonical(&self) -> String {
        let mut seen = BTreeMap::new();
        let mut out = String::new();
        self.print(ROOT, "/", &mut seen, &mut out);
        out
    }

    fn print(&self, ino: u64, path: &str, seen: &mut BTreeMap<u64, String>, out: &mut String) {
        use std::fmt::Write;
        let i = &self.inodes[&ino];
        if let Some(first) = seen.get(&ino) {
            writeln!(out, "{path} is {first}").unwrap();
            return;
        }
        seen.insert(ino, path.to_string());
        let Inode { kind, mode, uid, nlink, data, xattrs, .. } = i;
        writeln!(out, "{path} {kind:?} {mode:o} {uid} {nlink} {xattrs:?} {data:?}").unwrap();
        for (name, child) in &i.entries {
            self.print(*child, &format!("{path}{}/", String::from_utf8_lossy(name)), seen, out);
        }
    }
}
