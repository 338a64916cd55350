//! Files made for creates to come: placed, each is what the create would have made.

use std::sync::Arc;

use super::TestBackend;
use super::world::*;
use crate::attrs::{AttrMask, Attrs, SetAttrs, SetTime};
use crate::caller::Caller;
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::lists::{ACCESS_LIST, DEFAULT_LIST};
use crate::open::{CreateMode, File, Spare, XattrMode};

/// An access list as Linux keeps it: with a named user, a mask and these permissions for all others.
fn list(mask: u16, others: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries =
        [(1, 7, NOBODY), (2, 6, 4002), (4, 5, NOBODY), (0x10, mask, NOBODY), (0x20, others, NOBODY)];
    let one = |(tag, perm, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let head = 2_u32.to_le_bytes().to_vec();
    entries.into_iter().map(one).fold(head, |all, entry| [all, entry].concat())
}

/// `None` where there are none: the file system has none, or its handles go by names.
fn spare(w: &World, caller: &Caller, dir: &Handle) -> Option<Spare> {
    match w.b().make_spare(&cx(caller), dir) {
        Err(FsError::NotSupported) => None,
        made => Some(made.unwrap()),
    }
}

/// What may differ between the two are their names for the backend and when they were born.
pub(super) fn told(w: &World, file: &Handle) -> (u32, u32, u32, u32, u64, FsResult<Vec<u8>>) {
    let Attrs { mode, nlink, uid, gid, size, .. } = w.attrs(file);
    (mode, nlink, uid, gid, size, w.b().getxattr(&w.cx(), file, ACCESS_LIST))
}

/// Directories that differ in what they hand on. Those with access lists only where the file system has any.
pub(super) fn directories(w: &World) -> Vec<(String, Handle)> {
    let mut dirs = Vec::new();
    for (bits, gid) in [(0o777, 0), (0o2777, 0), (0o2777, 4242), (0o2777, 4000)] {
        for (n, default) in [None, Some(list(7, 5)), Some(list(4, 0)), Some(list(7, 7))].iter().enumerate() {
            let called = format!("{bits:o}-{gid}-{n}");
            let dir = w.mkdir(&w.root, &called, bits);
            if w.t.abilities.acts_as_callers {
                w.set(&dir, &SetAttrs { gid: Some(gid), ..SetAttrs::default() }).unwrap();
                w.set(&dir, &mode(bits)).unwrap();
            }
            if let Some(default) = default {
                match w.b().setxattr(&w.cx(), &dir, DEFAULT_LIST, default, XattrMode::Either) {
                    Err(FsError::NotSupported) => continue,
                    set => drop(set.unwrap()),
                }
            }
            dirs.push((called, dir));
        }
    }
    dirs
}

pub(super) fn a_spare_file_becomes_what_a_create_makes(t: TestBackend) {
    let w = World::new(t);
    let acts = w.t.abilities.acts_as_callers;
    let member = Caller { groups: Arc::new([4242]), ..user(4000) };
    let callers = if acts { vec![user(4000), member, w.me.clone()] } else { vec![w.me.clone()] };
    let mut n = 0;
    for (called, dir) in directories(&w) {
        for caller in &callers {
            for bits in [None, Some(0), Some(0o444), Some(0o604), Some(0o640), Some(0o666), Some(0o777)] {
                for umask in [None, Some(0o022), Some(0o077), Some(0o777)] {
                    let Some(spare) = spare(&w, caller, &dir) else { return };
                    let set = SetAttrs { mode: bits, umask, ..SetAttrs::default() };
                    n += 1;
                    let (made, placed) = (format!("made{n}"), format!("placed{n}"));
                    let how = how(CreateMode::Guarded, &set);
                    let made = w.b().create(&cx(caller), &dir, name(&made), &how).unwrap().node.handle;
                    w.b().place(&cx(caller), &spare, &dir, name(&placed), &set).unwrap();
                    let what = format!("{called}, {bits:?} cut by {umask:?}, of {}", caller.uid);
                    assert_eq!(told(&w, &spare.handle), told(&w, &made), "{what}");
                }
            }
        }
    }
}

pub(super) fn a_spare_file_keeps_its_number_and_what_was_written_to_it(t: TestBackend) {
    let w = World::new(t);
    let Some(spare) = spare(&w, &w.me, &w.root) else { return };
    assert_eq!((w.attrs(&spare.handle).nlink, w.list(&w.root, holdfast_base::Cookie(0), 9).0.len()), (0, 0));
    let open = File::Open(&spare.handle, &spare.file);
    w.b().write(&w.cx(), open, at(0), b"content").unwrap();
    let at = |seconds| Some(SetTime::At(holdfast_base::Timestamp { seconds, nanos: 5 }));
    let set = SetAttrs { size: Some(9), atime: at(1000), mtime: at(2000), ..mode(0o640) };
    let change = w.b().place(&w.cx(), &spare, &w.root, name("file"), &set).unwrap();
    assert_ne!(change.before.change, change.after.change);
    let found = w.find(&w.root, "file").unwrap();
    assert_eq!((found.handle, found.attrs.fileid, found.attrs.nlink), (spare.handle, spare.fileid, 1));
    assert_eq!(
        (found.attrs.atime.seconds, found.attrs.mtime.seconds, found.attrs.mtime.nanos),
        (1000, 2000, 5)
    );
    assert_eq!(w.commit(&spare.handle), Ok(()));
    drop(spare);
    w.b().shed(0);
    assert_eq!(w.read(&found.handle), b"content\0\0");
    // Without times of their own it was made now, not when it was made to be kept.
    let Some(old) = self::spare(&w, &w.me, &w.root) else { return };
    let before = w.attrs(&w.root).mtime;
    w.b().place(&w.cx(), &old, &w.root, name("now"), &mode(0o600)).unwrap();
    let now = w.attrs(&old.handle);
    assert!(now.mtime >= before && now.atime >= before, "{now:?}");
}

pub(super) fn a_spare_file_is_placed_where_its_maker_may_and_nothing_is(t: TestBackend) {
    let w = World::new(t);
    w.set(&w.root, &mode(0o777)).unwrap();
    let acts = w.t.abilities.acts_as_callers;
    let maker = if acts { user(4000) } else { w.me.clone() };
    let Some(spare) = spare(&w, &maker, &w.root) else { return };
    let place = |n: &str, set: &SetAttrs| w.b().place(&cx(&maker), &spare, &w.root, name(n), set).map(drop);
    w.file(&w.root, "theirs", b"theirs");
    for unfit in [
        mode(0o4755),
        mode(0o2755),
        mode(0o1755),
        SetAttrs { uid: Some(0), ..mode(0o600) },
        SetAttrs { gid: Some(4242), ..mode(0o600) },
    ] {
        assert_eq!(place("free", &unfit), Err(FsError::NotSupported), "{unfit:?}");
    }
    assert_eq!(place("theirs", &mode(0o604)), Err(FsError::Exists));
    if acts {
        w.set(&w.root, &mode(0o755)).unwrap();
        assert_eq!(place("free", &mode(0o604)), Err(FsError::Access));
        w.set(&w.root, &mode(0o777)).unwrap();
    }
    assert_eq!(place("free", &mode(0o604)), Ok(()));
    assert_eq!(w.read(&w.find(&w.root, "theirs").unwrap().handle), b"theirs");
    assert_eq!(w.attrs(&spare.handle).mode, 0o604);
    assert_eq!(place("theirs", &mode(0o604)), Err(FsError::Exists), "nothing is replaced");
    // Who does not come to be used leaves nothing.
    let Some(unused) = self::spare(&w, &maker, &w.root) else { return };
    let handle = unused.handle;
    drop(unused);
    assert_eq!(w.b().getattr(&w.cx(), &handle, AttrMask::NONE).map(drop), Err(FsError::Stale));
}

pub(super) fn heritage_differs_when_what_is_made_would(t: TestBackend) {
    let w = World::new(t);
    let dir = w.mkdir(&w.root, "dir", 0o755);
    let heritage = || w.b().heritage(&w.cx(), &dir);
    let mut seen = match heritage() {
        Err(FsError::NotSupported) => return,
        first => vec![first.unwrap()],
    };
    w.touch(&dir, "entry");
    assert_eq!(heritage().unwrap(), seen[0], "entries are no part of it");
    w.set(&dir, &mode(0o2775)).unwrap();
    seen.push(heritage().unwrap());
    if w.t.abilities.acts_as_callers {
        for set in [
            SetAttrs { uid: Some(4000), ..SetAttrs::default() },
            SetAttrs { gid: Some(4242), ..SetAttrs::default() },
        ] {
            w.set(&dir, &set).unwrap();
            seen.push(heritage().unwrap());
        }
    }

    for default in [list(7, 5), list(4, 0)] {
        if w.b().setxattr(&w.cx(), &dir, DEFAULT_LIST, &default, XattrMode::Either).is_ok() {
            seen.push(heritage().unwrap());
        }
    }
    let all: std::collections::BTreeSet<_> = seen.iter().collect();
    assert_eq!(all.len(), seen.len(), "{seen:?}");
}
