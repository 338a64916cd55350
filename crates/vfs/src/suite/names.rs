//! Finding, making, linking, renaming and removing.

use super::TestBackend;
use super::world::{World, mode, name};
use crate::attrs::{AttrMask, Device, FileKind, SetAttrs};
use crate::error::FsError;
use crate::making::NewNode;
use crate::name::Name;
use crate::open::{RemoveKind, RenameFlags};

pub(super) fn lookup_finds_what_was_made_and_nothing_else(t: TestBackend) {
    let w = World::new(t);
    let file = w.touch(&w.root, "file");
    let found = w.find(&w.root, "file").unwrap();
    assert_eq!(found.handle, file);
    assert_eq!(found.attrs.kind, FileKind::Regular);
    assert_eq!(found.attrs.fileid, w.attrs(&file).fileid);
    assert_eq!(w.find(&w.root, "nothing").unwrap_err(), FsError::NotFound);
}

pub(super) fn lookup_in_what_is_no_directory_says_so(t: TestBackend) {
    let w = World::new(t);
    let file = w.touch(&w.root, "file");
    let (link, _) =
        w.b().make(&w.cx(), &w.root, name("link"), NewNode::Symlink(b"."), &SetAttrs::default()).unwrap();
    assert_eq!(w.find(&file, "x").unwrap_err(), FsError::NotDir);
    assert_eq!(w.find(&link.handle, "file").unwrap_err(), FsError::IsSymlink);
    assert_eq!(w.b().parent(&w.cx(), &file, AttrMask::STAT).unwrap_err(), FsError::NotDir);
}

pub(super) fn names_of_255_bytes_and_of_any_bytes_are_kept(t: TestBackend) {
    let w = World::new(t);
    for bytes in [&[b'x'; 255][..], b"\xff\xfe not utf-8", b"new\nline", b"...", b"-rf *"] {
        let name = Name::new(bytes).unwrap();
        let (node, _) = w.b().make(&w.cx(), &w.root, name, NewNode::Directory, &mode(0o755)).unwrap();
        assert_eq!(w.b().lookup(&w.cx(), &w.root, name, AttrMask::STAT).unwrap().handle, node.handle);
        w.b().remove(&w.cx(), &w.root, name, RemoveKind::Directory).unwrap();
    }
}

pub(super) fn the_root_has_no_parent_and_other_directories_have(t: TestBackend) {
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o755);
    let below = w.mkdir(&dir, "below", 0o755);
    let parent = |d| w.b().parent(&w.cx(), d, AttrMask::ALL).map(|n| n.handle);
    assert_eq!(parent(&below), Ok(dir));
    assert_eq!(parent(&dir), Ok(w.root));
    assert_eq!(parent(&w.root), Err(FsError::NotFound));
}

pub(super) fn make_tells_the_directorys_change(t: TestBackend) {
    let w = World::new(t);
    let before = w.attrs(&w.root);
    let (node, change) = w.b().make(&w.cx(), &w.root, name("dir"), NewNode::Directory, &mode(0o711)).unwrap();
    assert_eq!((node.attrs.kind, node.attrs.mode), (FileKind::Directory, 0o711));
    assert_eq!(change.before.change, before.change);
    assert_ne!(change.after.change, before.change);
    assert_eq!(change.after.fileid, before.fileid);
    assert_eq!(w.attrs(&w.root).change, change.after.change);
}

pub(super) fn make_of_an_existing_name_is_refused(t: TestBackend) {
    let w = World::new(t);
    w.touch(&w.root, "taken");
    for what in [NewNode::Directory, NewNode::Symlink(b"x"), NewNode::Fifo, NewNode::Socket] {
        let made = w.b().make(&w.cx(), &w.root, name("taken"), what, &mode(0o700));
        assert_eq!(made.map(drop).unwrap_err(), FsError::Exists, "{what:?}");
    }
    assert_eq!(w.find(&w.root, "taken").unwrap().attrs.kind, FileKind::Regular);
}

pub(super) fn symbolic_links_keep_their_text(t: TestBackend) {
    let w = World::new(t);
    let long = [b'y'; 1000];
    for (n, text) in [("a", &b"../somewhere else"[..]), ("b", b"\xff\x01"), ("c", &long)] {
        let (link, _) =
            w.b().make(&w.cx(), &w.root, name(n), NewNode::Symlink(text), &SetAttrs::default()).unwrap();
        assert_eq!(link.attrs.kind, FileKind::Symlink);
        assert_eq!(w.b().readlink(&w.cx(), &link.handle).unwrap(), text);
    }
    let file = w.touch(&w.root, "file");
    assert_eq!(w.b().readlink(&w.cx(), &file), Err(FsError::WrongKind));
}

pub(super) fn special_files_have_their_kind_and_device(t: TestBackend) {
    let devices = t.abilities.makes_devices;
    let w = World::new(t);
    let device = Device { major: 1, minor: 3 };
    let mut kinds =
        vec![("fifo", NewNode::Fifo, FileKind::Fifo), ("socket", NewNode::Socket, FileKind::Socket)];
    if devices {
        kinds.push(("char", NewNode::Char(device), FileKind::Char));
        kinds.push(("block", NewNode::Block(device), FileKind::Block));
    }
    for (n, what, kind) in kinds {
        let (node, _) = w.b().make(&w.cx(), &w.root, name(n), what, &mode(0o640)).unwrap();
        assert_eq!((node.attrs.kind, node.attrs.mode), (kind, 0o640), "{n}");
        if matches!(kind, FileKind::Char | FileKind::Block) {
            assert_eq!(node.attrs.rdev, device);
        }
        let open = w.b().open(&w.cx(), &node.handle, super::world::READ);
        assert_eq!(open.map(drop).unwrap_err(), FsError::WrongKind, "{n}");
    }
}

pub(super) fn link_adds_a_name_and_counts_it(t: TestBackend) {
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o755);
    let file = w.file(&w.root, "file", b"content");
    let (change, attrs) = w.b().link(&w.cx(), &file, &dir, name("other")).unwrap();
    assert_eq!(attrs.nlink, 2);
    assert_ne!(change.before.change, change.after.change);
    let other = w.find(&dir, "other").unwrap();
    assert_eq!(other.attrs.fileid, attrs.fileid);
    assert_eq!(w.read(&other.handle), b"content");
    w.remove(&w.root, "file").unwrap();
    let last = w.find(&dir, "other").unwrap();
    assert_eq!(last.attrs.nlink, 1);
    assert_eq!(w.read(&last.handle), b"content");
}

pub(super) fn link_refuses_directories_and_existing_names(t: TestBackend) {
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o755);
    let file = w.touch(&w.root, "file");
    let link = |o, d, n| w.b().link(&w.cx(), o, d, name(n)).map(drop);
    assert_eq!(link(&dir, &w.root, "again"), Err(FsError::IsDir));
    assert_eq!(link(&file, &w.root, "dir"), Err(FsError::Exists));
    assert_eq!(link(&file, &file, "x"), Err(FsError::NotDir));
}

pub(super) fn remove_obeys_the_kind_asked_for(t: TestBackend) {
    let w = World::new(t);
    w.mkdir(&w.root, "dir", 0o755);
    w.touch(&w.root, "file");
    let remove = |n, kind| w.b().remove(&w.cx(), &w.root, name(n), kind).map(drop);
    assert_eq!(remove("dir", RemoveKind::NonDirectory), Err(FsError::IsDir));
    assert_eq!(remove("file", RemoveKind::Directory), Err(FsError::NotDir));
    assert_eq!(remove("none", RemoveKind::Any), Err(FsError::NotFound));
    assert_eq!(remove("dir", RemoveKind::Directory), Ok(()));
    assert_eq!(remove("file", RemoveKind::NonDirectory), Ok(()));
    w.mkdir(&w.root, "dir", 0o755);
    w.touch(&w.root, "file");
    let change = w.b().remove(&w.cx(), &w.root, name("dir"), RemoveKind::Any).unwrap();
    assert_ne!(change.before.change, change.after.change);
    assert_eq!(remove("file", RemoveKind::Any), Ok(()));
    assert_eq!(w.find(&w.root, "dir").unwrap_err(), FsError::NotFound);
}

pub(super) fn remove_of_a_directory_with_entries_is_refused(t: TestBackend) {
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o755);
    w.touch(&dir, "file");
    assert_eq!(w.remove(&w.root, "dir"), Err(FsError::NotEmpty));
    w.remove(&dir, "file").unwrap();
    w.remove(&w.root, "dir").unwrap();
}

pub(super) fn remove_by_what_was_seen_takes_nothing_else_and_tells_the_last_name(t: TestBackend) {
    let w = World::new(t);
    let (file, dir) = (w.touch(&w.root, "file"), w.mkdir(&w.root, "dir", 0o755));
    w.b().link(&w.cx(), &file, &w.root, name("link")).unwrap();
    let remove = |n, kind, victim| {
        let removed = w.b().remove_seen(&w.cx(), &w.root, name(n), kind, victim);
        removed.map(|removed| removed.map(|removed| removed.is_gone))
    };
    let (plain, dirs) = (RemoveKind::NonDirectory, RemoveKind::Directory);
    assert_eq!(remove("file", plain, &dir), Ok(None));
    assert_eq!(remove("dir", dirs, &file), Ok(None));
    assert_eq!(remove("none", plain, &file), Err(FsError::NotFound));
    assert_eq!(w.find(&w.root, "file").unwrap().handle, file, "nothing went");
    let before = w.attrs(&w.root).change;
    assert_eq!(remove("file", plain, &file), Ok(Some(false)), "it has another name");
    assert_ne!(w.attrs(&w.root).change, before);
    assert_eq!(remove("link", plain, &file), Ok(Some(true)));
    assert_eq!(remove("dir", dirs, &dir), Ok(Some(true)));
    assert_eq!(w.find(&w.root, "dir").unwrap_err(), FsError::NotFound);
    let again = w.touch(&w.root, "file");
    assert_ne!(again, file);
    assert_eq!(remove("file", plain, &file), Ok(None), "a new file of the old name is another");
    assert_eq!(w.find(&w.root, "file").unwrap().handle, again);
}

pub(super) fn rename_replaces_and_moves(t: TestBackend) {
    let w = World::new(t);
    let (one, two) = (w.mkdir(&w.root, "one", 0o755), w.mkdir(&w.root, "two", 0o755));
    w.file(&one, "a", b"from");
    let old = w.file(&two, "b", b"old");
    let rename = |from, to| w.b().rename(&w.cx(), from, to, RenameFlags::Replace);
    let (from, to) = rename((&one, name("a")), (&two, name("b"))).unwrap();
    assert_ne!(from.before.change, from.after.change);
    assert_ne!(to.before.change, to.after.change);
    assert_eq!(w.find(&one, "a").unwrap_err(), FsError::NotFound);
    assert_eq!(w.read(&w.find(&two, "b").unwrap().handle), b"from");
    assert_eq!(w.b().getattr(&w.cx(), &old, AttrMask::STAT), Err(FsError::Stale));
    let missing = rename((&one, name("a")), (&two, name("b"))).map(drop);
    assert_eq!(missing, Err(FsError::NotFound));
    let (from, to) = rename((&two, name("b")), (&two, name("c"))).unwrap();
    assert_eq!(from.after.fileid, to.after.fileid);
    assert_ne!(from.before.change, to.after.change);
}

pub(super) fn rename_keeps_the_handle(t: TestBackend) {
    let w = World::new(t);
    let (one, two) = (w.mkdir(&w.root, "one", 0o755), w.mkdir(&w.root, "two", 0o755));
    let dir = w.mkdir(&one, "dir", 0o755);
    let file = w.file(&dir, "file", b"content");
    let to = (&two, name("moved"));
    w.b().rename(&w.cx(), (&one, name("dir")), to, RenameFlags::Replace).unwrap();
    w.b().shed(0);
    assert_eq!(w.read(&file), b"content");
    assert_eq!(w.find(&two, "moved").unwrap().handle, dir);
    assert_eq!(w.find(&dir, "file").unwrap().handle, file);
    assert_eq!(w.b().parent(&w.cx(), &dir, AttrMask::STAT).unwrap().handle, two);
}

pub(super) fn rename_onto_another_kind_or_below_itself_is_refused(t: TestBackend) {
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o755);
    w.touch(&w.root, "file");
    let full = w.mkdir(&w.root, "full", 0o755);
    w.touch(&full, "x");
    let rename = |from, to: (_, &'static str)| {
        w.b().rename(&w.cx(), (&w.root, name(from)), (to.0, name(to.1)), RenameFlags::Replace).map(drop)
    };
    assert_eq!(rename("dir", (&w.root, "file")), Err(FsError::NotDir));
    assert_eq!(rename("file", (&w.root, "dir")), Err(FsError::IsDir));
    assert_eq!(rename("dir", (&w.root, "full")), Err(FsError::NotEmpty));
    assert_eq!(rename("dir", (&dir, "inside")), Err(FsError::Invalid));
}

pub(super) fn rename_without_replacing_and_exchange(t: TestBackend) {
    let w = World::new(t);
    let (a, b) = (w.file(&w.root, "a", b"A"), w.file(&w.root, "b", b"B"));
    let rename = |flags| w.b().rename(&w.cx(), (&w.root, name("a")), (&w.root, name("b")), flags).map(drop);
    assert_eq!(rename(RenameFlags::NoReplace), Err(FsError::Exists));
    assert_eq!(w.find(&w.root, "b").unwrap().handle, b);
    match rename(RenameFlags::Exchange) {
        Err(e) => assert!(matches!(e, FsError::NotSupported | FsError::Invalid), "{e}"),
        Ok(()) => {
            assert_eq!(w.find(&w.root, "b").unwrap().handle, a);
            assert_eq!(w.find(&w.root, "a").unwrap().handle, b);
        }
    }
}

pub(super) fn rename_of_one_object_onto_its_own_other_name_changes_nothing(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "a", b"content");
    w.b().link(&w.cx(), &file, &w.root, name("b")).unwrap();
    w.b().rename(&w.cx(), (&w.root, name("a")), (&w.root, name("b")), RenameFlags::Replace).unwrap();
    assert_eq!(w.find(&w.root, "a").unwrap().attrs.nlink, 2);
    assert_eq!(w.read(&w.find(&w.root, "b").unwrap().handle), b"content");
}
