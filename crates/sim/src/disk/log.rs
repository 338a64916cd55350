//! What was done to a file system, in a form that can be done again.

use std::collections::BTreeMap;

use holdfast_base::Timestamp;
use holdfast_vfs::{
    AttrMask, Backend, Caller, CopySpan, CreateHow, CreateMode, Cx, Device, File, FsResult, Handle,
    MemBackend, Name, NewNode, Region, RemoveKind, RenameFlags, SetAttrs, Stability, Touched, Wait, WriteAt,
    XattrMode,
};

use super::{Wall, options};

/// [`NewNode`], owned.
#[derive(Clone, Debug)]
pub(super) enum Made {
    Directory,
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    Char(Device),
    Block(Device),
}

impl From<NewNode<'_>> for Made {
    fn from(node: NewNode<'_>) -> Self {
        match node {
            NewNode::Directory => Self::Directory,
            NewNode::Symlink(text) => Self::Symlink(text.to_vec()),
            NewNode::Fifo => Self::Fifo,
            NewNode::Socket => Self::Socket,
            NewNode::Char(device) => Self::Char(device),
            NewNode::Block(device) => Self::Block(device),
        }
    }
}

impl Made {
    const fn node(&self) -> NewNode<'_> {
        match self {
            Self::Directory => NewNode::Directory,
            Self::Symlink(text) => NewNode::Symlink(text.as_slice()),
            Self::Fifo => NewNode::Fifo,
            Self::Socket => NewNode::Socket,
            Self::Char(device) => NewNode::Char(*device),
            Self::Block(device) => NewNode::Block(*device),
        }
    }
}

/// One mutation.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    SetAttr(Handle, SetAttrs),
    Create { dir: Handle, name: Vec<u8>, mode: CreateMode, set: SetAttrs },
    Make { dir: Handle, name: Vec<u8>, what: Made, set: SetAttrs },
    Link { object: Handle, dir: Handle, name: Vec<u8> },
    Rename { from: (Handle, Vec<u8>), to: (Handle, Vec<u8>), flags: RenameFlags },
    Remove { dir: Handle, name: Vec<u8>, kind: RemoveKind },
    Write { file: Handle, offset: u64, data: Vec<u8> },
    Region { file: Handle, offset: u64, bytes: u64, what: Region },
    Copy { from: Handle, to: Handle, span: CopySpan },
    SetXattr { object: Handle, name: Vec<u8>, value: Vec<u8> },
    RemoveXattr { object: Handle, name: Vec<u8> },
}

/// One mutation that succeeded, and what makes it durable.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) deed: Deed,
    pub(super) caller: Caller,
    pub(super) at: Timestamp,
    /// Durable once all of these were committed after it.
    pub(super) needs: Vec<Touched>,
    /// The number of the object that it made.
    pub(super) made: Option<u64>,
    /// It survived a power cut.
    pub(super) is_durable: bool,
    /// Its write-back failed.
    pub(super) is_doomed: bool,
}

impl Entry {
    pub(super) fn new(deed: Deed, caller: &Caller, needs: Vec<Touched>, made: Option<u64>) -> Self {
        let at = Timestamp::default();
        Self { deed, caller: caller.clone(), at, needs, made, is_durable: false, is_doomed: false }
    }

    pub(super) fn is_committed(&self, place: usize, committed: &BTreeMap<Vec<u8>, (usize, usize)>) -> bool {
        !self.is_doomed
            && self.needs.iter().all(|need| {
                let upto = committed.get(need.handle.as_bytes()).copied().unwrap_or_default();
                place < if need.data { upto.1 } else { upto.0 }
            })
    }
}

/// A file system in which nothing was done.
pub(super) fn empty(wall: &Wall) -> MemBackend {
    let now = wall.now();
    // The root is as old in every life.
    wall.set(Timestamp { seconds: 1, nanos: 0 });
    let fs = MemBackend::new(&options(wall));
    wall.set(now);
    fs
}

/// A file system in which this was done, and of whose numbers for objects those before `numbers` are used up.
pub(super) fn replay(log: &[Entry], numbers: Option<u64>, wall: &Wall) -> MemBackend {
    let fs = empty(wall);
    let mut next = None;
    for entry in log {
        wall.set(entry.at);
        if let Some(made) = entry.made {
            skip_to(&fs, &mut next, made);
        }
        // What it built upon may be lost, and it with it.
        let made = again(&fs, entry).ok().flatten();
        if let Some(made) = made {
            next = Some(made + 1);
        }
    }
    if let Some(numbers) = numbers {
        skip_to(&fs, &mut next, numbers);
    }
    fs
}

/// The number that the next object would have had, which is used up.
pub(super) fn next_number(fs: &MemBackend) -> Option<u64> {
    let caller = Caller::root();
    // Without a name: no directory is changed by it.
    let spare = fs.make_spare(&Cx::new(&caller, Wait::Yes), &fs.root().ok()?).ok()?;
    Some(spare.fileid)
}

/// Uses up numbers of objects until `made` is next.
fn skip_to(fs: &MemBackend, next: &mut Option<u64>, made: u64) {
    while next.unwrap_or(2) < made {
        let Some(number) = next_number(fs) else { return };
        *next = Some(number + 1);
    }
}

/// Does it again; the number of what it made.
fn again(fs: &MemBackend, entry: &Entry) -> FsResult<Option<u64>> {
    let cx = Cx::new(&entry.caller, Wait::Yes);
    match &entry.deed {
        Deed::SetAttr(object, set) => fs.setattr(&cx, File::Stateless(object), set, None).map(|_| None),
        Deed::Create { dir, name, mode, set } => {
            let how = CreateHow { mode: *mode, set, open: None, want: AttrMask::NONE };
            let made = fs.create(&cx, dir, Name::new(name)?, &how)?;
            Ok(made.is_new.then_some(made.node.attrs.fileid))
        }
        Deed::Make { dir, name, what, set } => {
            let (node, _) = fs.make(&cx, dir, Name::new(name)?, what.node(), set)?;
            Ok(Some(node.attrs.fileid))
        }
        Deed::Link { object, dir, name } => fs.link(&cx, object, dir, Name::new(name)?).map(|_| None),
        Deed::Rename { from, to, flags } => {
            let from = (&from.0, Name::new(&from.1)?);
            fs.rename(&cx, from, (&to.0, Name::new(&to.1)?), *flags).map(|_| None)
        }
        Deed::Remove { dir, name, kind } => fs.remove(&cx, dir, Name::new(name)?, *kind).map(|_| None),
        Deed::Write { file, offset, data } => {
            let at = WriteAt { offset: *offset, stability: Stability::Unstable, want_change: false };
            fs.write(&cx, File::Stateless(file), at, data).map(|_| None)
        }
        Deed::Region { file, offset, bytes, what } => {
            fs.region(&cx, File::Stateless(file), *offset, *bytes, *what).map(|()| None)
        }
        Deed::Copy { from, to, span } => {
            fs.copy(&cx, File::Stateless(from), File::Stateless(to), *span).map(|_| None)
        }
        Deed::SetXattr { object, name, value } => {
            fs.setxattr(&cx, object, name, value, XattrMode::Either).map(|_| None)
        }
        Deed::RemoveXattr { object, name } => fs.removexattr(&cx, object, name).map(|_| None),
    }
}
