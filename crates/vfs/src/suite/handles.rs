//! Handles: what they name, and for how long.

use super::TestBackend;
use super::world::{READ, World, at, cx, mode, name};
use crate::attrs::{AttrMask, SetAttrs};
use crate::caller::Caller;
use crate::error::FsError;
use crate::handle::Handle;
use crate::open::{CreateMode, Exclusive, File, RenameFlags};

pub(super) fn a_removed_object_is_stale(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", b"content");
    w.remove(&w.root, "file").unwrap();
    assert_eq!(w.b().getattr(&w.cx(), &file, AttrMask::STAT), Err(FsError::Stale));
    assert_eq!(w.b().open(&w.cx(), &file, READ).map(drop), Err(FsError::Stale));
    assert_eq!(w.b().read(&w.cx(), File::Stateless(&file), 0, &mut [0; 9]), Err(FsError::Stale));
    assert_eq!(w.b().write(&w.cx(), File::Stateless(&file), at(0), b"x"), Err(FsError::Stale));
    assert_eq!(w.set(&file, &mode(0o600)), Err(FsError::Stale));
    assert_eq!(w.b().link(&w.cx(), &file, &w.root, name("again")).map(drop), Err(FsError::Stale));
}

pub(super) fn a_removed_directory_is_stale_for_every_use(t: TestBackend) {
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o755);
    let file = w.touch(&w.root, "file");
    w.remove(&w.root, "dir").unwrap();
    assert_eq!(w.b().getattr(&w.cx(), &dir, AttrMask::STAT), Err(FsError::Stale));
    assert_eq!(w.find(&dir, "x").unwrap_err(), FsError::Stale);
    let made = w.create(&dir, "x", &mode(0o600), CreateMode::Guarded);
    assert_eq!(made.map(drop).unwrap_err(), FsError::Stale);
    assert_eq!(w.b().link(&w.cx(), &file, &dir, name("x")).map(drop), Err(FsError::Stale));
    let to = (&dir, name("x"));
    let renamed = w.b().rename(&w.cx(), (&w.root, name("file")), to, RenameFlags::Replace);
    assert_eq!(renamed.map(drop), Err(FsError::Stale));
}

/// A backend does not know who made a handle up: signatures, which are checked before it is asked, keep clients from that
/// (`no_changed_byte_goes_unnoticed` in the crate `export`). What a backend owes is that wrong bytes lead nowhere, unless
/// they are the very handle of another object: so this case has a file system, or an export of rows, on which nothing lives
/// but its file and its root.
pub(super) fn nonsense_is_never_taken_for_a_handle(t: TestBackend) {
    let w = World::new(t);
    let file = w.touch(&w.root, "file");
    let mut tries: Vec<Vec<u8>> = vec![vec![], vec![0], vec![0xff; 52], b"/etc/passwd".to_vec()];
    let good = file.as_bytes();
    tries.push([good, b"x"].concat());
    tries.extend((0..good.len()).map(|len| good[..len].to_vec()));
    for i in 0..good.len() {
        for change in (0..8).map(|bit| 1 << bit).chain([0x5a]) {
            let mut bytes = good.to_vec();
            bytes[i] ^= change;
            tries.push(bytes);
        }
    }
    let fileid = w.attrs(&file).fileid;
    for bytes in tries {
        let Some(handle) = Handle::new(&bytes).filter(|handle| *handle != w.root) else { continue };
        match w.b().getattr(&w.cx(), &handle, AttrMask::STAT) {
            // Some bytes of a handle may not matter; none may lead to another object.
            Ok(attrs) => assert_eq!(attrs.fileid, fileid, "{handle:?}"),
            Err(e) => assert!(matches!(e, FsError::BadHandle | FsError::Stale), "{handle:?}: {e}"),
        }
    }
}

pub(super) fn handles_of_new_objects_are_never_those_of_removed_ones(t: TestBackend) {
    let w = World::new(t);
    let mut seen = Vec::new();
    for i in 0..100 {
        let file = w.file(&w.root, "file", format!("{i}").as_bytes());
        assert!(!seen.contains(&file), "handle used again in round {i}");
        seen.push(file);
        w.remove(&w.root, "file").unwrap();
    }
    w.touch(&w.root, "file");
    for old in &seen {
        assert_eq!(w.b().getattr(&w.cx(), old, AttrMask::STAT), Err(FsError::Stale));
    }
}

pub(super) fn handles_outlive_the_backend(mut t: TestBackend) {
    let Some(reopen) = t.reopen.take() else { return };
    let w = World::new(t);
    let (one, two) = (w.mkdir(&w.root, "one", 0o755), w.mkdir(&w.root, "two", 0o755));
    let dir = w.mkdir(&one, "dir", 0o755);
    let file = w.file(&dir, "file", b"content");
    let gone = w.touch(&dir, "gone");
    w.remove(&dir, "gone").unwrap();
    let to = (&two, name("moved"));
    w.b().rename(&w.cx(), (&one, name("dir")), to, RenameFlags::Replace).unwrap();
    let before = (w.attrs(&file), w.attrs(&dir), w.root);
    let World { t, .. } = w;
    let TestBackend { backend, abilities, keep, .. } = t;
    drop(backend);
    let w = World::new(TestBackend { backend: reopen(), abilities, reopen: None, neighbour: None, keep });
    assert_eq!(w.root, before.2);
    let (file_after, dir_after) = (w.attrs(&file), w.attrs(&dir));
    assert_eq!((file_after.fileid, file_after.fsid), (before.0.fileid, before.0.fsid));
    assert!(file_after.change >= before.0.change && dir_after.change >= before.1.change);
    assert_eq!(w.read(&file), b"content");
    assert_eq!(w.find(&two, "moved").unwrap().handle, dir);
    assert_eq!(w.b().getattr(&w.cx(), &gone, AttrMask::STAT), Err(FsError::Stale));
}

pub(super) fn exclusive_create_is_found_again_after_a_restart(mut t: TestBackend) {
    let Some(reopen) = t.reopen.take() else { return };
    let w = World::new(t);
    let m = CreateMode::Exclusive(Exclusive([0xff; 8]));
    let made = w.create(&w.root, "file", &SetAttrs::default(), m).unwrap();
    let World { t, .. } = w;
    let TestBackend { backend, abilities, keep, .. } = t;
    drop(backend);
    let w = World::new(TestBackend { backend: reopen(), abilities, reopen: None, neighbour: None, keep });
    let again = w.create(&w.root, "file", &SetAttrs::default(), m).unwrap();
    assert_eq!((again.node.handle, again.is_new), (made.node.handle, false));
    let root = Caller::root();
    assert!(w.b().getattr(&cx(&root), &again.node.handle, AttrMask::STAT).is_ok());
}
