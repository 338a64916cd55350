//! Changes of a file that somebody else has been delegated, as compounds: each waits until the delegation is back.

use std::time::{Duration, Instant};

use holdfast_base::{FileKey, Offset};
use holdfast_vfs::{AttrMask, Backend, Caller, Cx, Name, Wait};
use holdfast_wire::nfs4::*;

use crate::callback::{self, Callbacks, anywhere, delegated};
use crate::client::{Peer, Session, at};
use crate::delegation::{BOTH, READ, give_back, is_recall_of, name, open, two};
use crate::scene::{NO_ATTRS, make, on, on_peer};
use crate::world::World;

/// What may be done to `f`: where it begins, and what is done there. `h` is something else, to be put in its place.
struct Changed {
    path: &'static [&'static [u8]],
    ops: Vec<ArgOp<'static>>,
    /// Whether all that the file holds goes with it.
    empties: bool,
}

/// Every change of names and attributes.
fn changes() -> Vec<Changed> {
    let in_root = |ops| Changed { path: &[], ops, empties: false };
    let rename = |oldname, newname| vec![ArgOp::SaveFh, ArgOp::Rename(Rename4Args { oldname, newname })];
    let link = [vec![ArgOp::SaveFh], at(&[]), vec![ArgOp::Link(Link4Args { newname: b"g" })]].concat();
    vec![
        in_root(rename(b"f", b"g")),
        in_root(rename(b"h", b"f")),
        in_root(vec![ArgOp::Remove(Remove4Args { target: b"f" })]),
        Changed { path: &[b"f"], ops: link, empties: false },
        set(Attr::Mode, &[0, 0, 1, 0o240], false),
        set(Attr::Size, &[0, 0, 0, 0, 0, 0, 0, 2], false),
        set(Attr::Size, &[0; 8], true),
    ]
}

fn set(attr: Attr, values: &'static [u8], empties: bool) -> Changed {
    let obj_attributes = Fattr4 { mask: Bitmap4::from(attr), values };
    let args = SetAttr4Args { stateid: Stateid4::ANONYMOUS, obj_attributes };
    Changed { path: &[b"f"], ops: vec![ArgOp::SetAttr(args)], empties }
}

/// Which file each name is of, with its mode, size and links. Looked at below all promises, so that nobody is asked.
fn names(world: &World) -> [Option<(FileKey, u32, u64, u32)>; 3] {
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let root = world.fs.root().unwrap();
    [b"f", b"g", b"h"].map(|name| {
        let found = world.fs.lookup(&cx, &root, Name::new(name).unwrap(), AttrMask::STAT).ok()?;
        Some((found.handle.key(), found.attrs.mode, found.attrs.size, found.attrs.nlink))
    })
}

/// As [`two`], with `h` in it, and the first one's delegation of `f`.
fn held(access: u32) -> (World, Session, Session, Stateid4) {
    let (world, mut a, mut b) = two();
    make(&mut b, b"h", CreateType4::Fifo);
    let held = name(&open(&mut a, access));
    (world, a, b, held)
}

#[test]
fn every_change_of_a_delegated_file_by_another_recalls_and_is_done_after_the_return() {
    for access in [READ, BOTH] {
        for Changed { path, ops, empties } in changes() {
            let (world, mut a, mut b, held) = held(access);
            let before = names(&world);
            assert_eq!(on(&mut b, path, &ops).status, NfsStat4::Delay, "{ops:?}");
            let call = a.peer.call();
            assert!(is_recall_of(&call, held), "{ops:?}");
            let flushes_in_vain = matches!(call.op(), CbArgOp::Recall(recall) if recall.truncate);
            assert_eq!(flushes_in_vain, empties, "{ops:?}");
            a.peer.answer(&call, NfsStat4::Ok, b"");
            assert_eq!(on(&mut b, path, &ops).status, NfsStat4::Delay, "answered is not returned: {ops:?}");
            assert_eq!(names(&world), before, "{ops:?}");
            give_back(&mut a, held);
            assert_eq!(on(&mut b, path, &ops).status, NfsStat4::Ok, "{ops:?}");
            assert_ne!(names(&world), before, "{ops:?}");
            assert!(a.peer.calls().is_empty(), "asked once: {ops:?}");
            world.check();
        }
    }
}

#[test]
fn ones_own_changes_recall_nothing_of_ones_own() {
    for access in [READ, BOTH] {
        for Changed { path, ops, .. } in changes() {
            let (world, mut a, _, _) = held(access);
            let before = names(&world);
            assert_eq!(on(&mut a, path, &ops).status, NfsStat4::Ok, "{ops:?}");
            assert_ne!(names(&world), before, "{ops:?}");
            assert!(a.peer.calls().is_empty(), "{ops:?}");
            world.check();
        }
    }
}

/// The same of clients of 4.0.
fn held_by_40() -> (World, Callbacks, [Peer; 2], Stateid4) {
    let world = anywhere();
    let callbacks = Callbacks::listen();
    let (mut a, of_a) = callback::client(&world, 1, &callbacks.universal());
    let (mut b, _) = callback::client(&world, 2, "192.0.2.2.0.1");
    let other = Create4Args { objtype: CreateType4::Fifo, objname: b"h", createattrs: NO_ATTRS };
    on_peer(&mut b, &[], &[ArgOp::Create(other)]).ok::<Create4Ok>(OpNum4::Create);
    let (_, held) = delegated(&mut a, of_a);
    let (offset, stable) = (Offset(0), StableHow4::Unstable);
    let write = ArgOp::Write(Write4Args { stateid: held, offset, stable, data: b"hello" });
    on_peer(&mut a, &[b"f"], &[write]).ok::<Write4Ok>(OpNum4::Write);
    (world, callbacks, [a, b], held)
}

/// Has it done in vain until the holder is asked to give back what it has. Before, it may be asked how the file is now: what
/// a change of 4.0 begins with is put on record.
fn until_recalled(
    (world, callbacks): (&World, &Callbacks),
    held: Stateid4,
    mut done: impl FnMut() -> NfsStat4,
) {
    let before = names(world);
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut is_recalled = false;
    while !is_recalled {
        assert!(Instant::now() < deadline, "not recalled in time");
        assert_eq!(done(), NfsStat4::Delay);
        assert_eq!(names(world), before);
        callbacks.next_within(Duration::from_millis(5), |op| match op {
            CbArgOp::GetAttr(_) => {}
            CbArgOp::Recall(recall) => is_recalled = recall.stateid == held,
            other => panic!("{other:?}"),
        });
    }
}

#[test]
fn every_change_by_another_recalls_from_a_client_of_40() {
    for Changed { path, ops, .. } in changes() {
        let (world, callbacks, [mut a, mut b], held) = held_by_40();
        let before = names(&world);
        until_recalled((&world, &callbacks), held, || on_peer(&mut b, path, &ops).status);
        let back = ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid: held });
        on_peer(&mut a, &[b"f"], &[back]).ok::<()>(OpNum4::DelegReturn);
        assert_eq!(on_peer(&mut b, path, &ops).status, NfsStat4::Ok, "{ops:?}");
        assert_ne!(names(&world), before, "{ops:?}");
        assert!(callbacks.calls.try_recv().is_err(), "asked once: {ops:?}");
        world.check();
    }
}

/// RFC 7530 section 10.4 leaves open how it is known whose they are: here by the connection.
#[test]
fn a_client_of_40_is_not_asked_because_of_its_own_changes() {
    for Changed { path, ops, .. } in changes() {
        let (world, callbacks, [mut a, _], _) = held_by_40();
        let before = names(&world);
        assert_eq!(on_peer(&mut a, path, &ops).status, NfsStat4::Ok, "{ops:?}");
        assert_ne!(names(&world), before, "{ops:?}");
        assert!(callbacks.calls.try_recv().is_err(), "{ops:?}");
        world.check();
    }
}
