//! Extended attributes.

use super::TestBackend;
use super::world::World;
use crate::error::FsError;
use crate::open::XattrMode;

/// `None` where there are none to test.
fn world(t: TestBackend) -> Option<World> {
    let w = World::new(t);
    let has = w.b().limits(&w.root).unwrap().has_xattrs;
    let file = w.touch(&w.root, "probe");
    let set = w.b().setxattr(&w.cx(), &file, b"user.probe", b"x", XattrMode::Either);
    match set {
        Err(FsError::NotSupported) => None,
        other => {
            assert!(has, "limits deny what works");
            other.unwrap();
            Some(w)
        }
    }
}

pub(super) fn extended_attributes_come_back(t: TestBackend) {
    let Some(w) = world(t) else { return };
    let (file, dir) = (w.touch(&w.root, "file"), w.mkdir(&w.root, "dir", 0o755));
    for object in [&file, &dir] {
        let set = |n, v: &[u8]| w.b().setxattr(&w.cx(), object, n, v, XattrMode::Either).map(drop);
        set(b"user.one", b"1").unwrap();
        set(b"user.empty", b"").unwrap();
        set(b"user.long", &[9; 1500]).unwrap();
        let get = |n| w.b().getxattr(&w.cx(), object, n);
        assert_eq!(get(b"user.one").unwrap(), b"1");
        assert_eq!(get(b"user.empty").unwrap(), b"");
        assert_eq!(get(b"user.long").unwrap(), [9; 1500]);
        assert_eq!(get(b"user.none"), Err(FsError::NoXattr));
        let mut names = w.b().listxattr(&w.cx(), object).unwrap();
        names.retain(|n| n.starts_with(b"user."));
        names.sort();
        assert_eq!(names, [&b"user.empty"[..], b"user.long", b"user.one"]);
        w.b().removexattr(&w.cx(), object, b"user.one").unwrap();
        assert_eq!(get(b"user.one"), Err(FsError::NoXattr));
        assert_eq!(w.b().removexattr(&w.cx(), object, b"user.one").map(drop), Err(FsError::NoXattr));
    }
}

pub(super) fn extended_attribute_modes_are_obeyed(t: TestBackend) {
    let Some(w) = world(t) else { return };
    let file = w.touch(&w.root, "file");
    let set = |v: &[u8], m| w.b().setxattr(&w.cx(), &file, b"user.a", v, m).map(drop);
    assert_eq!(set(b"1", XattrMode::Replace), Err(FsError::NoXattr));
    assert_eq!(set(b"2", XattrMode::Create), Ok(()));
    assert_eq!(set(b"3", XattrMode::Create), Err(FsError::Exists));
    assert_eq!(set(b"4", XattrMode::Replace), Ok(()));
    assert_eq!(w.b().getxattr(&w.cx(), &file, b"user.a").unwrap(), b"4");
    assert_eq!(set(&[0; 65537], XattrMode::Either), Err(FsError::XattrTooBig));
}

pub(super) fn extended_attributes_change_the_change(t: TestBackend) {
    let Some(w) = world(t) else { return };
    let file = w.touch(&w.root, "file");
    let before = w.attrs(&file).change;
    let set = w.b().setxattr(&w.cx(), &file, b"user.a", b"1", XattrMode::Either).unwrap();
    assert_eq!(set.before.change, before);
    assert_ne!(set.after.change, before);
    let removed = w.b().removexattr(&w.cx(), &file, b"user.a").unwrap();
    assert_ne!(removed.after.change, set.after.change);
}
