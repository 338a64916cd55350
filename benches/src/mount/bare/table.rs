//! Files and directories in memory, each operation a step in a table.

use holdfast_base::Timestamp;
use holdfast_fuse::{Attr, Device, Errno, NameIn, NodeId, Result, SetAttr, SetTime};
use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

/// All of it. The root is there.
pub(super) struct Table {
    nodes: HashMap<u64, Object>,
    last: u64,
}

/// A file or a directory.
pub(super) struct Object {
    pub(super) attr: Attr,
    pub(super) data: Vec<u8>,
    /// Names by where they stand in a listing, and the other way round.
    pub(super) names: BTreeMap<u64, (Vec<u8>, NodeId)>,
    places: HashMap<Vec<u8>, u64>,
}

impl Table {
    pub(super) fn new() -> Self {
        let root = Object::new(NodeId::ROOT, libc::S_IFDIR | 0o755, (0, 0));
        Self { nodes: HashMap::from([(NodeId::ROOT.0, root)]), last: NodeId::ROOT.0 }
    }

    pub(super) fn object(&mut self, node: NodeId) -> Result<&mut Object> {
        self.nodes.get_mut(&node.0).ok_or(Errno::STALE)
    }

    /// What a name stands for.
    pub(super) fn find(&mut self, at: NameIn<'_>) -> Result<Option<NodeId>> {
        Ok(self.object(at.dir)?.node(at.name))
    }

    /// A new file or directory, by its mode. Its attributes.
    pub(super) fn make(&mut self, at: NameIn<'_>, mode: u32, owner: (u32, u32)) -> Result<Attr> {
        if self.find(at)?.is_some() {
            return Err(Errno::EXIST);
        }
        self.last += 1;
        let (node, last) = (NodeId(self.last), self.last);
        let made = Object::new(node, mode, owner);
        let attr = made.attr;
        self.nodes.insert(node.0, made);
        let dir = self.object(at.dir)?;
        dir.add(at.name, node, last);
        dir.attr.nlink += u32::from(is_dir(&attr));
        Ok(attr)
    }

    /// A name gone. What it stood for stays until the kernel forgets it.
    pub(super) fn remove(&mut self, at: NameIn<'_>, is_directory: bool) -> Result<()> {
        let node = self.find(at)?.ok_or(Errno::NOENT)?;
        let object = self.object(node)?;
        match (is_directory, is_dir(&object.attr)) {
            (true, false) => return Err(Errno::NOTDIR),
            (false, true) => return Err(Errno::ISDIR),
            _ if !object.names.is_empty() => return Err(Errno::NOTEMPTY),
            _ => object.attr.nlink = 0,
        }
        let dir = self.object(at.dir)?;
        dir.drop_name(at.name);
        dir.attr.nlink -= u32::from(is_directory);
        Ok(())
    }

    /// A name in place of another, which goes.
    pub(super) fn rename(&mut self, from: NameIn<'_>, to: NameIn<'_>) -> Result<()> {
        let node = self.find(from)?.ok_or(Errno::NOENT)?;
        let moved = is_dir(&self.object(node)?.attr);
        if let Some(there) = self.find(to)?.filter(|there| *there != node) {
            let is_directory = is_dir(&self.object(there)?.attr);
            self.remove(to, is_directory)?;
        }
        self.last += 1;
        let place = self.last;
        let old = self.object(from.dir)?;
        old.drop_name(from.name);
        old.attr.nlink -= u32::from(moved);
        let new = self.object(to.dir)?;
        new.add(to.name, node, place);
        new.attr.nlink += u32::from(moved);
        Ok(())
    }

    /// The kernel knows it no more.
    pub(super) fn forget(&mut self, node: NodeId) {
        if self.nodes.get(&node.0).is_some_and(|object| object.attr.nlink == 0) {
            self.nodes.remove(&node.0);
        }
    }
}

impl Object {
    fn new(node: NodeId, mode: u32, (uid, gid): (u32, u32)) -> Self {
        let now = now();
        let is_dir = mode & libc::S_IFMT == libc::S_IFDIR;
        let attr = Attr {
            ino: node.0,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            mode,
            nlink: 1 + u32::from(is_dir),
            uid,
            gid,
            rdev: Device::default(),
            blksize: 4096,
        };
        Self { attr, data: Vec::new(), names: BTreeMap::new(), places: HashMap::new() }
    }

    fn node(&self, name: &[u8]) -> Option<NodeId> {
        self.names.get(self.places.get(name)?).map(|(_, node)| *node)
    }

    fn add(&mut self, name: &[u8], node: NodeId, place: u64) {
        self.names.insert(place, (name.to_vec(), node));
        self.places.insert(name.to_vec(), place);
        self.changed();
    }

    fn drop_name(&mut self, name: &[u8]) {
        if let Some(place) = self.places.remove(name) {
            self.names.remove(&place);
        }
        self.changed();
    }

    fn changed(&mut self) {
        (self.attr.mtime, self.attr.ctime) = (now(), now());
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<u32> {
        let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
        let end = start + data.len();
        self.resize(self.data.len().max(end));
        self.data[start..end].copy_from_slice(data);
        u32::try_from(data.len()).map_err(|_| Errno::INVAL)
    }

    pub(super) fn resize(&mut self, bytes: usize) {
        self.data.resize(bytes, 0);
        (self.attr.size, self.attr.blocks) = (bytes as u64, bytes.div_ceil(512) as u64);
        self.changed();
    }

    pub(super) fn set(&mut self, set: &SetAttr) -> Result<()> {
        if let Some(size) = set.size {
            self.resize(usize::try_from(size).map_err(|_| Errno::FBIG)?);
        }
        let attr = &mut self.attr;
        attr.mode = set.mode.map_or(attr.mode, |mode| attr.mode & libc::S_IFMT | mode & 0o7777);
        (attr.uid, attr.gid) = (set.uid.unwrap_or(attr.uid), set.gid.unwrap_or(attr.gid));
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        attr.ctime = now();
        Ok(())
    }
}

pub(super) const fn is_dir(attr: &Attr) -> bool {
    attr.mode & libc::S_IFMT == libc::S_IFDIR
}

fn time(set: SetTime) -> Timestamp {
    match set {
        SetTime::Now => now(),
        SetTime::At(time) => time,
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: since.as_secs().cast_signed(), nanos: since.subsec_nanos() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(dir: NodeId, name: &[u8]) -> NameIn<'_> {
        NameIn { dir, name }
    }

    #[test]
    fn names_come_and_go() {
        let mut table = Table::new();
        let root = NodeId::ROOT;
        let dir = NodeId(table.make(at(root, b"d"), libc::S_IFDIR | 0o755, (0, 0)).unwrap().ino);
        let file = NodeId(table.make(at(dir, b"f"), libc::S_IFREG | 0o644, (1, 2)).unwrap().ino);
        assert_eq!(table.make(at(dir, b"f"), libc::S_IFREG, (0, 0)), Err(Errno::EXIST));
        assert_eq!(table.remove(at(root, b"d"), true), Err(Errno::NOTEMPTY));
        table.object(file).unwrap().write(2, b"ab").unwrap();
        assert_eq!(table.object(file).unwrap().data, b"\0\0ab");
        let other = NodeId(table.make(at(root, b"g"), libc::S_IFREG | 0o644, (0, 0)).unwrap().ino);
        table.rename(at(dir, b"f"), at(root, b"g")).unwrap();
        assert_eq!(table.find(at(root, b"g")), Ok(Some(file)));
        assert_eq!(table.find(at(dir, b"f")), Ok(None));
        // Still there for those who have it open.
        assert!(table.object(other).is_ok());
        table.forget(other);
        table.forget(file);
        assert!(table.object(other).is_err() && table.object(file).is_ok());
        table.remove(at(root, b"d"), true).unwrap();
        assert_eq!(table.object(root).unwrap().attr.nlink, 2);
    }
}
