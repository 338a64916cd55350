//! The file system in memory that says what every call should give.

use super::op::{How, Op, Seen, Told};
use std::collections::BTreeMap;

type Res<T> = Result<T, i32>;

const ENOENT: i32 = 2;
const EBADF: i32 = 9;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const EPERM: i32 = 1;
const ENOTEMPTY: i32 = 39;
const ELOOP: i32 = 40;
const ENODATA: i32 = 61;

#[derive(Debug, Clone)]
enum What {
    File(Vec<u8>),
    Dir(BTreeMap<String, u64>),
    Link(String),
}

#[derive(Debug, Clone)]
struct Node {
    what: What,
    mode: u32,
    links: u64,
    modified: Option<i64>,
    xattr: Option<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    node: u64,
    how: How,
}

/// The file system, and the descriptors of all mounts.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    nodes: BTreeMap<u64, Node>,
    last: u64,
    opens: BTreeMap<(usize, usize), Open>,
}

const ROOT: u64 = 0;

impl Memory {
    pub(crate) fn new() -> Self {
        let root =
            Node { what: What::Dir(BTreeMap::new()), mode: 0o755, links: 2, modified: None, xattr: None };
        Self { nodes: BTreeMap::from([(ROOT, root)]), last: ROOT, opens: BTreeMap::new() }
    }

    /// What a call of a mount gives.
    pub(crate) fn apply(&mut self, mount: usize, op: &Op) -> Told {
        self.call(mount, op).unwrap_or_else(Told::Errno)
    }

    /// Whether a descriptor is in use.
    pub(crate) fn is_open(&self, mount: usize, slot: usize) -> bool {
        self.opens.contains_key(&(mount, slot))
    }

    /// Whether a call takes a name from a file that this mount has open.
    pub(crate) fn hides(&self, mount: usize, op: &Op) -> bool {
        let (Op::Unlink { path } | Op::Rename { to: path, .. }) = op else { return false };
        let is_open = |node: u64| self.opens.iter().any(|((of, _), open)| *of == mount && open.node == node);
        self.find(path).is_ok_and(is_open)
    }

    /// The file that a call reads or changes the data of, and whether it appends to it.
    pub(crate) fn file_of(&self, mount: usize, op: &Op) -> Option<(u64, bool)> {
        match op {
            Op::Write { slot, .. } => {
                self.opens.get(&(mount, *slot)).map(|open| (open.node, open.how.appends))
            }
            Op::Read { slot, .. } | Op::Cut { slot, .. } | Op::StatOpen { slot } => {
                self.opens.get(&(mount, *slot)).map(|open| (open.node, false))
            }
            Op::Truncate { path, .. } | Op::Open { path, .. } | Op::Stat { path } => {
                self.find(path).ok().map(|node| (node, false))
            }
            _ => None,
        }
    }

    /// What who has found a path here sees of it afterwards, where that path does not lead there any more.
    pub(crate) fn found_here(&self, path: &str, after: &Self) -> Option<Told> {
        let node = self.find(path).ok().filter(|node| after.find(path) != Ok(*node))?;
        let is_there = after.nodes.contains_key(&node);
        let seen = if is_there { after.seen(node) } else { Seen { links: 0, ..self.seen(node) } };
        Some(Told::Stat(seen))
    }

    /// Whether a file has no name any more.
    pub(crate) fn is_nameless(&self, node: u64) -> bool {
        self.nodes.get(&node).is_none_or(|node| node.links == 0)
    }

    /// Every path, with what is there: as [`super::real::tree`] shows it.
    pub(crate) fn tree(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        self.walk(ROOT, "", &mut all);
        all
    }

    fn walk(&self, dir: u64, place: &str, all: &mut BTreeMap<String, String>) {
        let What::Dir(names) = &self.nodes[&dir].what else { return };
        for (name, node) in names {
            let path = format!("{place}{name}");
            let Node { what, mode, .. } = &self.nodes[node];
            let shown = match what {
                What::File(data) => format!("file {mode:o} {}", super::real::digest(data)),
                What::Dir(_) => format!("directory {mode:o}"),
                What::Link(text) => format!("link {text}"),
            };
            if matches!(what, What::Dir(_)) {
                self.walk(*node, &format!("{path}/"), all);
            }
            all.insert(path, shown);
        }
    }

    fn call(&mut self, mount: usize, op: &Op) -> Res<Told> {
        match op {
            Op::Open { path, slot, how } => self.open((mount, *slot), path, *how),
            Op::Close { slot } => {
                let open = self.opens.remove(&(mount, *slot)).ok_or(EBADF)?;
                self.collect(open.node);
                Ok(Told::Done)
            }
            Op::Write { slot, offset, bytes } => {
                let open = self.opened((mount, *slot)).filter(|open| open.how.writes).ok_or(EBADF)?;
                let data = self.data(open.node)?;
                let at = if open.how.appends { data.len() } else { *offset as usize };
                if data.len() < at + bytes.len() {
                    data.resize(at + bytes.len(), 0);
                }
                data[at..at + bytes.len()].copy_from_slice(bytes);
                Ok(Told::Count(bytes.len()))
            }
            Op::Read { slot, offset, length } => {
                let open = self.opened((mount, *slot)).filter(|open| open.how.reads).ok_or(EBADF)?;
                let What::File(data) = &self.nodes[&open.node].what else { return Err(EISDIR) };
                let from = (*offset as usize).min(data.len());
                Ok(Told::Bytes(data[from..(from + length).min(data.len())].to_vec()))
            }
            Op::Cut { slot, size } => {
                let open = self.opened((mount, *slot)).ok_or(EBADF)?;
                let node = if open.how.writes { open.node } else { return Err(EINVAL) };
                self.data(node)?.resize(*size as usize, 0);
                Ok(Told::Done)
            }
            Op::StatOpen { slot } => {
                let open = self.opened((mount, *slot)).ok_or(EBADF)?;
                Ok(Told::Stat(self.seen(open.node)))
            }
            Op::Fsync { slot } => self.opened((mount, *slot)).map(|_| Told::Done).ok_or(EBADF),
            _ => self.by_path(op),
        }
    }

    fn by_path(&mut self, op: &Op) -> Res<Told> {
        match op {
            Op::Stat { path } => Ok(Told::Stat(self.seen(self.find(path)?))),
            Op::Truncate { path, size } => {
                let node = self.followed(path)?;
                self.data(node)?.resize(*size as usize, 0);
                Ok(Told::Done)
            }
            Op::Chmod { path, mode } => {
                self.node(self.followed(path)?).mode = *mode;
                Ok(Told::Done)
            }
            Op::Touch { path, seconds } => {
                let node = self.node(self.followed(path)?);
                node.modified = matches!(node.what, What::File(_)).then_some(*seconds);
                Ok(Told::Done)
            }
            Op::Mkdir { path, mode } => self.make(path, What::Dir(BTreeMap::new()), (*mode, 2)),
            Op::Symlink { path, text } => self.make(path, What::Link(text.clone()), (0o777, 1)),
            Op::Rmdir { path } => self.rmdir(path),
            Op::Unlink { path } => self.unlink(path),
            Op::Rename { from, to } => self.rename(from, to),
            Op::Link { from, to } => self.link(from, to),
            Op::Readlink { path } => match &self.nodes[&self.find(path)?].what {
                What::Link(text) => Ok(Told::Text(text.clone())),
                _ => Err(EINVAL),
            },
            Op::List { path } => match &self.nodes[&self.followed(path)?].what {
                What::Dir(names) => Ok(Told::Names(names.keys().cloned().collect())),
                _ => Err(ENOTDIR),
            },
            Op::SetXattr { path, value } => {
                self.node(self.followed(path)?).xattr = Some(*value);
                Ok(Told::Done)
            }
            Op::GetXattr { path } => {
                let value = self.nodes[&self.followed(path)?].xattr;
                value.map(|value| Told::Bytes(vec![value])).ok_or(ENODATA)
            }
            _ => Err(EINVAL),
        }
    }

    fn open(&mut self, at: (usize, usize), path: &str, how: How) -> Res<Told> {
        let (dir, name) = self.parent(path)?;
        let there = self.names(dir).get(&name).copied();
        let node = match (there, how.creates) {
            (Some(_), _) if how.exclusive => return Err(EEXIST),
            (Some(node), _) => match &self.nodes[&node].what {
                What::Link(_) => return Err(ELOOP),
                What::Dir(_) => return Err(EISDIR),
                What::File(_) => node,
            },
            (None, Some(mode)) => self.add(dir, &name, What::File(Vec::new()), (mode, 1)),
            (None, None) => return Err(ENOENT),
        };
        if how.truncates {
            self.data(node)?.clear();
        }
        self.opens.insert(at, Open { node, how });
        Ok(Told::Done)
    }

    fn make(&mut self, path: &str, what: What, (mode, links): (u32, u64)) -> Res<Told> {
        let (dir, name) = self.parent(path)?;
        if self.names(dir).contains_key(&name) {
            return Err(EEXIST);
        }
        if links == 2 {
            self.node(dir).links += 1;
        }
        self.add(dir, &name, what, (mode, links));
        Ok(Told::Done)
    }

    fn rmdir(&mut self, path: &str) -> Res<Told> {
        let (dir, name) = self.parent(path)?;
        let node = *self.names(dir).get(&name).ok_or(ENOENT)?;
        match &self.nodes[&node].what {
            What::Dir(names) if names.is_empty() => {}
            What::Dir(_) => return Err(ENOTEMPTY),
            _ => return Err(ENOTDIR),
        }
        self.names_mut(dir).remove(&name);
        self.node(dir).links -= 1;
        self.nodes.remove(&node);
        Ok(Told::Done)
    }

    fn unlink(&mut self, path: &str) -> Res<Told> {
        let (dir, name) = self.parent(path)?;
        let node = *self.names(dir).get(&name).ok_or(ENOENT)?;
        if self.is_dir(node) {
            return Err(EISDIR);
        }
        self.names_mut(dir).remove(&name);
        self.node(node).links -= 1;
        self.collect(node);
        Ok(Told::Done)
    }

    /// As `renameat2` of Linux judges, in its order.
    fn rename(&mut self, from: &str, to: &str) -> Res<Told> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        let node = *self.names(from_dir).get(&from_name).ok_or(ENOENT)?;
        let victim = self.names(to_dir).get(&to_name).copied();
        if self.is_within(to_dir, node) {
            return Err(EINVAL);
        }
        if victim.is_some_and(|victim| self.is_within(from_dir, victim)) {
            return Err(ENOTEMPTY);
        }
        if victim == Some(node) {
            return Ok(Told::Done);
        }
        if let Some(victim) = victim {
            match (self.is_dir(node), &self.nodes[&victim].what) {
                (true, What::Dir(names)) if names.is_empty() => {}
                (true, What::Dir(_)) => return Err(ENOTEMPTY),
                (true, _) => return Err(ENOTDIR),
                (false, What::Dir(_)) => return Err(EISDIR),
                (false, _) => {}
            }
        }
        self.names_mut(from_dir).remove(&from_name);
        self.names_mut(to_dir).insert(to_name, node);
        if self.is_dir(node) {
            self.node(from_dir).links -= 1;
            self.node(to_dir).links += 1;
        }
        match victim {
            Some(victim) if self.is_dir(victim) => {
                self.node(to_dir).links -= 1;
                self.nodes.remove(&victim);
            }
            Some(victim) => {
                self.node(victim).links -= 1;
                self.collect(victim);
            }
            None => {}
        }
        Ok(Told::Done)
    }

    fn link(&mut self, from: &str, to: &str) -> Res<Told> {
        let node = self.find(from)?;
        let (dir, name) = self.parent(to)?;
        if self.names(dir).contains_key(&name) {
            return Err(EEXIST);
        }
        if self.is_dir(node) {
            return Err(EPERM);
        }
        self.names_mut(dir).insert(name, node);
        self.node(node).links += 1;
        Ok(Told::Done)
    }

    fn add(&mut self, dir: u64, name: &str, what: What, (mode, links): (u32, u64)) -> u64 {
        self.last += 1;
        let node = self.last;
        self.nodes.insert(node, Node { what, mode, links, modified: None, xattr: None });
        self.names_mut(dir).insert(name.to_owned(), node);
        node
    }

    fn seen(&self, node: u64) -> Seen {
        let Node { what, mode, links, modified, .. } = &self.nodes[&node];
        let (kind, size) = match what {
            What::File(data) => ('f', data.len() as u64),
            What::Dir(_) => ('d', 0),
            What::Link(text) => ('l', text.len() as u64),
        };
        Seen { kind, mode: *mode, links: *links, size, modified: *modified }
    }

    /// The directory that a path's last name is in, and that name.
    fn parent(&self, path: &str) -> Res<(u64, String)> {
        let (place, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut dir = ROOT;
        for step in place.split('/').filter(|step| !step.is_empty()) {
            dir = *self.names(dir).get(step).ok_or(ENOENT)?;
            match &self.nodes[&dir].what {
                What::Dir(_) => {}
                What::File(_) => return Err(ENOTDIR),
                // All links lead nowhere.
                What::Link(_) => return Err(ENOENT),
            }
        }
        Ok((dir, name.to_owned()))
    }

    fn find(&self, path: &str) -> Res<u64> {
        if path.is_empty() {
            return Ok(ROOT);
        }
        let (dir, name) = self.parent(path)?;
        self.names(dir).get(&name).copied().ok_or(ENOENT)
    }

    /// What a path leads to, which of a link is nothing.
    fn followed(&self, path: &str) -> Res<u64> {
        let node = self.find(path)?;
        if matches!(self.nodes[&node].what, What::Link(_)) { Err(ENOENT) } else { Ok(node) }
    }

    /// Whether a directory is another or lies in it.
    fn is_within(&self, dir: u64, other: u64) -> bool {
        let below = || match &self.nodes[&other].what {
            What::Dir(names) => {
                names.values().any(|below| self.is_dir(*below) && self.is_within(dir, *below))
            }
            _ => false,
        };
        dir == other || below()
    }

    fn opened(&self, at: (usize, usize)) -> Option<Open> {
        self.opens.get(&at).copied()
    }

    /// A file's data, about to be changed.
    fn data(&mut self, node: u64) -> Res<&mut Vec<u8>> {
        let node = self.node(node);
        node.modified = None;
        match &mut node.what {
            What::File(data) => Ok(data),
            _ => Err(EISDIR),
        }
    }

    /// Forgets a file without names that nobody has open.
    fn collect(&mut self, node: u64) {
        let is_open = self.opens.values().any(|open| open.node == node);
        if !is_open && self.nodes[&node].links == 0 {
            self.nodes.remove(&node);
        }
    }

    fn is_dir(&self, node: u64) -> bool {
        matches!(self.nodes[&node].what, What::Dir(_))
    }

    fn node(&mut self, node: u64) -> &mut Node {
        // A name, a descriptor or the caller has just had it from here.
        #[expect(clippy::expect_used, reason = "nodes are removed when nothing names them any more")]
        self.nodes.get_mut(&node).expect("every number that is held somewhere is a node's")
    }

    fn names(&self, dir: u64) -> &BTreeMap<String, u64> {
        static NONE: BTreeMap<String, u64> = BTreeMap::new();
        match &self.nodes[&dir].what {
            What::Dir(names) => names,
            _ => &NONE,
        }
    }

    fn names_mut(&mut self, dir: u64) -> &mut BTreeMap<String, u64> {
        match &mut self.node(dir).what {
            What::Dir(names) => names,
            other => panic!("{other:?} is no directory"),
        }
    }
}
