//! Making and opening regular files, by name and without.

use holdfast_base::Cookie;

use super::TestBackend;
use super::world::{BOTH, READ, World, at, cx, how, mode, name, user};
use crate::attrs::{AttrMask, FileKind, SetAttrs, SetTime};
use crate::error::FsError;
use crate::making::{CreateHow, NewNode};
use crate::open::{CreateMode, Exclusive, File};

pub(super) fn a_created_file_has_the_attributes_asked_for(t: TestBackend) {
    let w = World::new(t);
    let when = holdfast_base::Timestamp { seconds: 1_000_000_000, nanos: 0 };
    let set = SetAttrs { size: Some(5000), mtime: Some(SetTime::At(when)), ..mode(0o4751) };
    let made = w.create(&w.root, "file", &set, CreateMode::Guarded).unwrap();
    assert!(made.is_new);
    assert_ne!(made.dir.before.change, made.dir.after.change);
    let attrs = made.node.attrs;
    assert_eq!((attrs.kind, attrs.mode, attrs.size, attrs.mtime), (FileKind::Regular, 0o4751, 5000, when));
    assert_eq!(attrs.nlink, 1);
    let again = w.attrs(&made.node.handle);
    assert_eq!((again.mode, again.size, again.change), (attrs.mode, attrs.size, attrs.change));
}

pub(super) fn guarded_create_refuses_an_existing_name(t: TestBackend) {
    let w = World::new(t);
    w.touch(&w.root, "file");
    w.mkdir(&w.root, "dir", 0o755);
    for n in ["file", "dir"] {
        let made = w.create(&w.root, n, &mode(0o600), CreateMode::Guarded);
        assert_eq!(made.map(drop).unwrap_err(), FsError::Exists);
    }
}

pub(super) fn unchecked_create_opens_what_is_there_and_cuts_only_when_asked(t: TestBackend) {
    let w = World::new(t);
    let file = w.file(&w.root, "file", b"content");
    let kept = w.create(&w.root, "file", &mode(0o600), CreateMode::Unchecked).unwrap();
    assert!(!kept.is_new);
    assert_eq!(kept.node.handle, file);
    assert_eq!((kept.node.attrs.mode, kept.node.attrs.size), (0o644, 7));
    assert_eq!(kept.dir.before.change, kept.dir.after.change);
    let set = SetAttrs { size: Some(0), ..mode(0o600) };
    let cut = w.create(&w.root, "file", &set, CreateMode::Unchecked).unwrap();
    assert_eq!((cut.node.attrs.mode, cut.node.attrs.size), (0o644, 0));
}

pub(super) fn exclusive_create_is_found_again_by_its_verifier(t: TestBackend) {
    let w = World::new(t);
    let mine = CreateMode::Exclusive(Exclusive(*b"\xf1\xe2\xd3\xc4\xb5\xa6\x97\x88"));
    let other = CreateMode::Exclusive(Exclusive(*b"\xf1\xe2\xd3\xc4\xb5\xa6\x97\x08"));
    let made = w.create(&w.root, "file", &SetAttrs::default(), mine).unwrap();
    assert!(made.is_new);
    w.b().shed(0);
    let again = w.create(&w.root, "file", &SetAttrs::default(), mine).unwrap();
    assert!(!again.is_new);
    assert_eq!(again.node.handle, made.node.handle);
    let theirs = w.create(&w.root, "file", &SetAttrs::default(), other);
    assert_eq!(theirs.map(drop).unwrap_err(), FsError::Exists);
    // The client's first setattr ends it.
    let now = SetAttrs { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..mode(0o644) };
    w.set(&made.node.handle, &now).unwrap();
    let late = w.create(&w.root, "file", &SetAttrs::default(), mine);
    assert_eq!(late.map(drop).unwrap_err(), FsError::Exists);
}

pub(super) fn must_exist_never_creates(t: TestBackend) {
    let w = World::new(t);
    let missing = w.create(&w.root, "file", &mode(0o600), CreateMode::MustExist);
    assert_eq!(missing.map(drop).unwrap_err(), FsError::NotFound);
    let file = w.touch(&w.root, "file");
    let found = w.create(&w.root, "file", &mode(0o600), CreateMode::MustExist).unwrap();
    assert_eq!((found.node.handle, found.is_new), (file, false));
}

pub(super) fn create_refuses_what_is_no_regular_file(t: TestBackend) {
    let w = World::new(t);
    w.mkdir(&w.root, "dir", 0o755);
    for (n, what) in [("link", NewNode::Symlink(b"nowhere")), ("fifo", NewNode::Fifo)] {
        w.b().make(&w.cx(), &w.root, name(n), what, &SetAttrs::default()).unwrap();
    }
    for m in [CreateMode::MustExist, CreateMode::Unchecked] {
        for (n, error) in
            [("dir", FsError::IsDir), ("link", FsError::IsSymlink), ("fifo", FsError::WrongKind)]
        {
            let opened = w.create(&w.root, n, &mode(0o600), m);
            assert_eq!(opened.map(drop).unwrap_err(), error, "{n} {m:?}");
        }
    }
    assert_eq!(w.find(&w.root, "nowhere").unwrap_err(), FsError::NotFound);
}

pub(super) fn create_with_open_gives_an_open_file(t: TestBackend) {
    let w = World::new(t);
    // Even with a mode that would not let it be opened again.
    let set = mode(0o000);
    let opening = CreateHow { open: Some(BOTH), ..how(CreateMode::Guarded, &set) };
    let made = w.b().create(&w.cx(), &w.root, name("file"), &opening).unwrap();
    let file = made.file.unwrap();
    let open = File::Open(&made.node.handle, &file);
    w.b().write(&w.cx(), open, at(0), b"content").unwrap();
    assert_eq!(w.read_as(&w.me, open).unwrap(), b"content");
    let reading = CreateHow { open: Some(READ), ..how(CreateMode::MustExist, &set) };
    if w.t.abilities.acts_as_callers {
        let refused = w.b().create(&cx(&user(4000)), &w.root, name("file"), &reading);
        assert_eq!(refused.map(drop).unwrap_err(), FsError::Access);
    }
}

pub(super) fn a_file_that_is_made_and_written_first_is_as_one_created(t: TestBackend) {
    let w = World::new(t);
    let when = Some(SetTime::At(holdfast_base::Timestamp { seconds: 1_000_000_000, nanos: 0 }));
    let times = SetAttrs { atime: when, mtime: when, ..SetAttrs::default() };
    let dir = w.mkdir(&w.root, "dir", 0o755);
    let before = w.attrs(&dir).change;
    let set = mode(0o640);
    let make = |dir| w.b().make_file(&w.cx(), dir, name("file"), (&set, Some(BOTH)));
    let made = make(&dir).unwrap();
    assert_ne!(w.attrs(&dir).change, before);
    let empty = w.attrs(&made.handle);
    assert_eq!((empty.kind, empty.mode, empty.size), (FileKind::Regular, 0o640, 0));
    let file = made.file.unwrap();
    let open = File::Open(&made.handle, &file);
    w.b().write_first(&w.cx(), open, b"content", &times).unwrap();
    let full = w.attrs(&made.handle);
    assert_eq!((full.mode, full.size, Some(SetTime::At(full.mtime))), (0o640, 7, when));
    assert_ne!(full.change, empty.change);
    assert_eq!(w.read(&made.handle), b"content");
    assert_eq!(w.find(&dir, "file").unwrap().handle, made.handle);
    assert_eq!(w.commit(&made.handle), Ok(()));
    // By the handle alone, as who goes on after a wait does it.
    w.b().write_first(&w.cx(), File::Stateless(&made.handle), b"anew", &SetAttrs::default()).unwrap();
    assert_eq!(w.read(&made.handle), b"anewent");
    assert_ne!(w.attrs(&made.handle).mtime, full.mtime);
    assert_eq!(make(&dir).map(drop).unwrap_err(), FsError::Exists);
    drop(file);
    w.remove(&dir, "file").unwrap();
    w.remove(&w.root, "dir").unwrap();
    assert!(matches!(make(&dir).map(drop).unwrap_err(), FsError::Stale | FsError::NotFound));
}

pub(super) fn the_umask_is_applied_at_creation(t: TestBackend) {
    let w = World::new(t);
    let set = SetAttrs { umask: Some(0o027), ..mode(0o666) };
    let made = w.create(&w.root, "file", &set, CreateMode::Guarded).unwrap();
    assert_eq!(made.node.attrs.mode, 0o640);
    let set = SetAttrs { umask: Some(0o027), ..mode(0o777) };
    let (dir, _) = w.b().make(&w.cx(), &w.root, name("dir"), NewNode::Directory, &set).unwrap();
    assert_eq!(dir.attrs.mode, 0o750);
    assert_eq!(w.b().getattr(&w.cx(), &dir.handle, AttrMask::STAT).unwrap().mode, 0o750);
}

pub(super) fn a_file_without_a_name_lives_by_its_opens_and_may_get_a_name(t: TestBackend) {
    let w = World::new(t);
    w.set(&w.root, &mode(0o777)).unwrap();
    let acts = w.t.abilities.acts_as_callers;
    let maker = if acts { user(4000) } else { w.me.clone() };
    let make = || w.b().make_nameless(&cx(&maker), &w.root, &mode(0o040));
    let (node, file) = match make() {
        Ok(made) => made,
        // The file system has none, or its handles go by names.
        Err(error) => return assert_eq!(error, FsError::NotSupported),
    };
    let attrs = node.attrs;
    assert_eq!((attrs.kind, attrs.nlink, attrs.mode, attrs.size), (FileKind::Regular, 0, 0o040, 0));
    w.b().write(&cx(&maker), File::Open(&node.handle, &file), at(0), b"content").unwrap();
    assert_eq!(w.list(&w.root, Cookie(0), 9).0.len(), 0);
    // Who made it opens it, whatever its mode, and nobody else.
    let again = w.b().open(&cx(&maker), &node.handle, BOTH).unwrap();
    if acts {
        let other = w.b().open(&cx(&user(4001)), &node.handle, READ);
        assert_eq!(other.map(drop).unwrap_err(), FsError::Access);
    }
    drop(file);
    w.b().shed(0);
    let link = || w.b().link(&cx(&maker), &node.handle, &w.root, name("named")).map(|(_, attrs)| attrs.nlink);
    assert_eq!((link(), link()), (Ok(1), Err(FsError::Exists)));
    drop(again);
    w.b().shed(0);
    assert_eq!(w.find(&w.root, "named").unwrap().handle, node.handle);
    assert_eq!(w.read(&node.handle), b"content");
    // Its last name goes while it is open: it is not to have another.
    let open = w.open(&node.handle, BOTH);
    w.remove(&w.root, "named").unwrap();
    assert_eq!(link(), Err(FsError::Stale));
    drop(open);
    let (gone, file) = make().unwrap();
    drop(file);
    assert_eq!(w.b().getattr(&w.cx(), &gone.handle, AttrMask::STAT).map(drop), Err(FsError::Stale));
}
