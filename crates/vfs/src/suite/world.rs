//! What the cases say often: a caller, a directory, a file with bytes in it.

use std::sync::Arc;

use holdfast_base::Cookie;

use super::TestBackend;
use crate::attrs::{AttrMask, Attrs, SetAttrs};
use crate::backend::Backend;
use crate::caller::{Caller, Cx, Wait};
use crate::data::{Touched, WriteAt};
use crate::error::FsResult;
use crate::handle::Handle;
use crate::listing::{DirListing, Flow, ListEnd};
use crate::making::{CreateHow, NewNode};
use crate::name::Name;
use crate::open::{CreateMode, Created, File, FileObject, Node, OpenMode, RemoveKind, Stability};

/// For the superuser, waiting allowed.
pub(super) struct World {
    pub(super) t: TestBackend,
    pub(super) me: Caller,
    pub(super) root: Handle,
}

pub(super) const READ: OpenMode = OpenMode { read: true, write: false, nfs_exceptions: false };
pub(super) const WRITE: OpenMode = OpenMode { read: false, write: true, nfs_exceptions: false };
pub(super) const BOTH: OpenMode = OpenMode { read: true, write: true, nfs_exceptions: false };

pub(super) fn name(n: &str) -> Name<'_> {
    Name::new(n.as_bytes()).unwrap()
}

pub(super) fn cx(caller: &Caller) -> Cx<'_> {
    Cx::new(caller, Wait::Yes)
}

pub(super) fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Arc::new([]) }
}

pub(super) fn mode(mode: u32) -> SetAttrs {
    SetAttrs { mode: Some(mode), ..SetAttrs::default() }
}

pub(super) const fn at(offset: u64) -> WriteAt {
    WriteAt { offset, stability: Stability::Unstable, want_change: false }
}

pub(super) fn how(mode: CreateMode, set: &SetAttrs) -> CreateHow<'_> {
    CreateHow { mode, set, open: None, want: AttrMask::ALL }
}

impl World {
    pub(super) fn new(t: TestBackend) -> Self {
        let root = t.backend.root().unwrap();
        Self { t, me: Caller::root(), root }
    }

    pub(super) fn b(&self) -> &dyn Backend {
        &*self.t.backend
    }

    pub(super) fn cx(&self) -> Cx<'_> {
        cx(&self.me)
    }

    pub(super) fn mkdir(&self, dir: &Handle, n: &str, bits: u32) -> Handle {
        self.b().make(&self.cx(), dir, name(n), NewNode::Directory, &mode(bits)).unwrap().0.handle
    }

    pub(super) fn create(&self, dir: &Handle, n: &str, set: &SetAttrs, m: CreateMode) -> FsResult<Created> {
        self.b().create(&self.cx(), dir, name(n), &how(m, set))
    }

    /// A new file of mode 0644.
    pub(super) fn touch(&self, dir: &Handle, n: &str) -> Handle {
        self.create(dir, n, &mode(0o644), CreateMode::Guarded).unwrap().node.handle
    }

    pub(super) fn file(&self, dir: &Handle, n: &str, data: &[u8]) -> Handle {
        let file = self.touch(dir, n);
        self.write(&file, 0, data);
        file
    }

    pub(super) fn write(&self, file: &Handle, offset: u64, data: &[u8]) {
        let written = self.b().write(&self.cx(), File::Stateless(file), at(offset), data).unwrap();
        assert_eq!(written.bytes, data.len());
    }

    pub(super) fn read(&self, file: &Handle) -> Vec<u8> {
        self.read_as(&self.me, File::Stateless(file)).unwrap()
    }

    pub(super) fn read_as(&self, caller: &Caller, file: File<'_>) -> FsResult<Vec<u8>> {
        let mut data = vec![0; 1 << 20];
        let read = self.b().read(&cx(caller), file, 0, &mut data)?;
        assert!(read.is_eof, "the cases use files below a mebibyte");
        data.truncate(read.bytes);
        Ok(data)
    }

    /// Commits a file with its data.
    pub(super) fn commit(&self, file: &Handle) -> FsResult<()> {
        let mut results = [Ok(())];
        self.b().commit(&[Touched { handle: *file, data: true }], &mut results);
        results[0]
    }

    pub(super) fn open(&self, file: &Handle, m: OpenMode) -> Arc<dyn FileObject> {
        self.b().open(&self.cx(), file, m).unwrap()
    }

    pub(super) fn attrs(&self, object: &Handle) -> Attrs {
        self.b().getattr(&self.cx(), object, AttrMask::ALL).unwrap()
    }

    pub(super) fn set(&self, object: &Handle, set: &SetAttrs) -> FsResult<()> {
        self.b().setattr(&self.cx(), File::Stateless(object), set, None).map(drop)
    }

    pub(super) fn find(&self, dir: &Handle, n: &str) -> FsResult<Node> {
        self.b().lookup(&self.cx(), dir, name(n), AttrMask::ALL)
    }

    pub(super) fn remove(&self, dir: &Handle, n: &str) -> FsResult<()> {
        self.b().remove(&self.cx(), dir, name(n), RemoveKind::Any).map(drop)
    }

    /// Names and cookies from a position on, at most so many.
    pub(super) fn list(&self, dir: &Handle, from: Cookie, max: usize) -> (Vec<(Vec<u8>, Cookie)>, ListEnd) {
        let mut seen = Vec::new();
        let listing = DirListing { dir, from, want: None };
        let end = self.b().readdir(&self.cx(), listing, &mut |entry| {
            if seen.len() == max {
                return Flow::Stop;
            }
            seen.push((entry.name.to_vec(), entry.next));
            Flow::Continue
        });
        (seen, end.unwrap())
    }
}
