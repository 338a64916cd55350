//! Exclusive creates make what others make; the verifier is all that is theirs.

use std::sync::Arc;

use holdfast_base::Cookie;

use super::TestBackend;
use super::spares::{directories, told};
use super::world::*;
use crate::attrs::{AttrMask, SetAttrs};
use crate::caller::Caller;
use crate::error::FsError;
use crate::making::CreateHow;
use crate::open::{CreateMode, Exclusive, File};

const MINE: CreateMode = CreateMode::Exclusive(Exclusive(*b"verifier"));

pub(super) fn an_exclusive_create_makes_what_a_guarded_one_does(t: TestBackend) {
    let w = World::new(t);
    let member = Caller { groups: Arc::new([4242]), ..user(4000) };
    let acts = w.t.abilities.acts_as_callers;
    let callers = if acts { vec![user(4000), member, w.me.clone()] } else { vec![w.me.clone()] };
    let sets = |umask| {
        let of = |mode| SetAttrs { mode, umask, ..SetAttrs::default() };
        let bits = [None, Some(0), Some(0o604), Some(0o666), Some(0o2755), Some(0o6777), Some(0o1777)];
        bits.map(of).into_iter().chain([SetAttrs { size: Some(5), ..of(Some(0o440)) }])
    };
    let mut n = 0;
    for (called, dir) in directories(&w) {
        for caller in &callers {
            let given = SetAttrs { uid: Some(4002), gid: Some(4003), ..mode(0o6755) };
            let given = (acts && caller.uid == 0).then_some(given);
            for set in [None, Some(0o022), Some(0o777)].into_iter().flat_map(sets).chain(given) {
                n += 1;
                let make =
                    |n: &str, m| w.b().create(&cx(caller), &dir, name(n), &how(m, &set)).map(|c| c.node);
                let guarded = make(&format!("guarded{n}"), CreateMode::Guarded).unwrap();
                let exclusive = make(&format!("exclusive{n}"), MINE).unwrap();
                let what = format!("{called}, {set:?} of {}", caller.uid);
                assert_eq!(told(&w, &exclusive.handle), told(&w, &guarded.handle), "{what}");
            }
        }
    }
}

pub(super) fn an_exclusive_create_is_refused_as_a_guarded_one_and_leaves_nothing(t: TestBackend) {
    let w = World::new(t);
    let acts = w.t.abilities.acts_as_callers;
    let caller = if acts { user(4000) } else { w.me.clone() };
    let modes: &[u32] = if acts { &[0o777, 0o755, 0o766, 0o733] } else { &[0o777] };
    for bits in modes {
        let dir = w.mkdir(&w.root, &format!("{bits:o}"), *bits);
        w.touch(&dir, "taken");
        w.mkdir(&dir, "dir", 0o755);
        // Only the superuser gives files away.
        let set = if acts { SetAttrs { uid: Some(4001), ..mode(0o600) } } else { mode(0o600) };
        for n in if acts { &["taken", "dir", "free"][..] } else { &["taken", "dir"] } {
            let make = |m| w.b().create(&cx(&caller), &dir, name(n), &how(m, &set)).map(drop);
            assert_eq!(make(MINE), make(CreateMode::Guarded), "{n} in {bits:o}");
            assert!(make(MINE).is_err());
            assert_eq!(w.list(&dir, Cookie(0), 9).0.len(), 2, "{n} in {bits:o}");
        }
    }
}

pub(super) fn an_exclusive_create_tells_attributes_that_stay(t: TestBackend) {
    let w = World::new(t);
    let set = SetAttrs { size: Some(0), ..mode(0o640) };
    let made = w.create(&w.root, "file", &set, MINE).unwrap();
    let (told, now) = (made.node.attrs, w.attrs(&made.node.handle));
    assert_eq!((told.change, told.ctime, told.nlink), (now.change, now.ctime, 1));
    assert_eq!((told.atime, told.mtime, told.mode), (now.atime, now.mtime, 0o640));
    assert_ne!(made.dir.before.change, made.dir.after.change);
    assert_eq!(made.dir.after.change, w.attrs(&w.root).change);
    assert_eq!(w.find(&w.root, "file").unwrap().handle, made.node.handle);
    assert_eq!(w.commit(&made.node.handle), Ok(()));
}

pub(super) fn an_exclusive_create_gives_the_open_file_that_was_asked_for(t: TestBackend) {
    let w = World::new(t);
    w.set(&w.root, &mode(0o777)).unwrap();
    let caller = if w.t.abilities.acts_as_callers { user(4000) } else { w.me.clone() };
    let mut data = [0; 9];
    for (n, open, bits) in [("r", READ, 0o600), ("r0", READ, 0), ("w", WRITE, 0o400), ("b", BOTH, 0)] {
        let set = mode(bits);
        let how = CreateHow { open: Some(open), want: AttrMask::ALL, ..how(MINE, &set) };
        let made = w.b().create(&cx(&caller), &w.root, name(n), &how).unwrap();
        let file = made.file.unwrap();
        let file = File::Open(&made.node.handle, &file);
        let written = w.b().write(&cx(&caller), file, at(0), b"content").map(|written| written.bytes);
        assert_eq!(written, if open.write { Ok(7) } else { Err(FsError::Access) }, "{n}");
        if open.read {
            let read = w.b().read(&cx(&caller), file, 0, &mut data).unwrap();
            assert_eq!(read.bytes, if open.write { 7 } else { 0 }, "{n}");
        }
    }
}
