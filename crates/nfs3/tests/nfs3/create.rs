//! CREATE, MKDIR, SYMLINK, MKNOD.

use holdfast_wire::nfs3::*;

use crate::world::*;

fn create(w: &mut World, name: &str, how: CreateHow3) -> Result<Vec<u8>, NfsStat3> {
    let root = w.root();
    let place = DirOpArgs3 { dir: Fh3(&root), name: name.as_bytes() };
    let reply = w.call(Proc3::Create, &Create3Args { place, how });
    w.assert_durable();
    match decode::<Create3Res<'_>>(&reply) {
        Res3::Ok(ok) => Ok(ok.obj.unwrap().0.to_vec()),
        Res3::Fail(status, wcc) => {
            assert!(wcc.after.is_some());
            Err(status)
        }
    }
}

#[test]
fn create_tells_the_file_and_the_directorys_change() {
    let mut w = World::new();
    let root = w.root();
    let before = w.getattr(&root);
    let place = DirOpArgs3 { dir: Fh3(&root), name: b"a" };
    let reply = w.call(Proc3::Create, &Create3Args { place, how: CreateHow3::Guarded(mode(0o640)) });
    w.assert_durable();
    let f = new_handle(&reply);
    let (attrs, after) = (w.getattr(&f), w.getattr(&root));
    let wcc_attr = WccAttr { size: before.size, mtime: before.mtime, ctime: before.ctime };
    let expected = Create3Ok {
        obj: Some(Fh3(&f)),
        obj_attributes: Some(attrs),
        dir_wcc: WccData { before: Some(wcc_attr), after: Some(after) },
    };
    assert_eq!(decode::<Create3Res<'_>>(&reply), Res3::Ok(expected));
    assert_eq!(attrs.mode, 0o640);
    assert!(after.mtime.seconds > before.mtime.seconds);
}

#[test]
fn guarded_create_fails_on_a_name_that_is_there_and_unchecked_takes_it() {
    let mut w = World::new();
    let f = w.create("a");
    w.write(&f, 0, b"data", StableHow::FileSync);
    assert_eq!(create(&mut w, "a", CreateHow3::Guarded(NOTHING)), Err(NfsStat3::Exist));
    assert_eq!(create(&mut w, "a", CreateHow3::Unchecked(mode(0))), Ok(f.clone()));
    let attrs = w.getattr(&f);
    assert_eq!((attrs.size, attrs.mode), (4, 0o644));
    let cut = Sattr3 { size: Some(0), ..NOTHING };
    assert_eq!(create(&mut w, "a", CreateHow3::Unchecked(cut)), Ok(f.clone()));
    assert_eq!(w.getattr(&f).size, 0);
}

#[test]
fn an_exclusive_create_sent_again_under_another_xid_finds_its_own_work() {
    let mut w = World::new();
    let f = create(&mut w, "a", CreateHow3::Exclusive([1; 8])).unwrap();
    assert_eq!(create(&mut w, "a", CreateHow3::Exclusive([1; 8])), Ok(f));
    assert_eq!(create(&mut w, "a", CreateHow3::Exclusive([2; 8])), Err(NfsStat3::Exist));
}

#[test]
fn what_is_no_file_exists_already() {
    let mut w = World::new();
    w.mkdir("d");
    for how in [CreateHow3::Unchecked(NOTHING), CreateHow3::Guarded(NOTHING), CreateHow3::Exclusive([1; 8])] {
        assert_eq!(create(&mut w, "d", how), Err(NfsStat3::Exist));
        assert_eq!(create(&mut w, ".", how), Err(NfsStat3::Exist));
        assert_eq!(create(&mut w, "..", how), Err(NfsStat3::Exist));
    }
    let long = "x".repeat(256);
    assert_eq!(create(&mut w, &long, CreateHow3::Guarded(NOTHING)), Err(NfsStat3::NameTooLong));
    assert_eq!(create(&mut w, "a/b", CreateHow3::Guarded(NOTHING)), Err(NfsStat3::Acces));
    assert_eq!(create(&mut w, "", CreateHow3::Guarded(NOTHING)), Err(NfsStat3::Acces));
}

#[test]
fn nothing_is_made_in_pseudo_directories() {
    let mut w = World::new();
    let top = w.handle_at(b"/");
    let place = DirOpArgs3 { dir: Fh3(&top), name: b"x" };
    assert_eq!(status(&w.call(Proc3::Mkdir, &Mkdir3Args { place, attributes: NOTHING })), NfsStat3::Rofs);
}

#[test]
fn mkdir_makes_a_directory_and_a_link_to_the_one_above() {
    let mut w = World::new();
    let root = w.root();
    let d = w.mkdir("d");
    w.assert_durable();
    assert_eq!((w.getattr(&d).ftype, w.getattr(&d).mode), (Ftype3::Dir, 0o755));
    assert_eq!(w.getattr(&root).nlink, 3);
    let place = DirOpArgs3 { dir: Fh3(&root), name: b"d" };
    let reply = w.call(Proc3::Mkdir, &Mkdir3Args { place, attributes: NOTHING });
    assert_eq!(status(&reply), NfsStat3::Exist);
}

#[test]
fn symlink_refuses_texts_that_are_no_paths() {
    let mut w = World::new();
    let root = w.root();
    let place = DirOpArgs3 { dir: Fh3(&root), name: b"l" };
    let mut try_text =
        |data: &[u8]| status(&w.call(Proc3::Symlink, &Symlink3Args { place, attributes: NOTHING, data }));
    assert_eq!(try_text(b""), NfsStat3::Inval);
    assert_eq!(try_text(b"a\0b"), NfsStat3::Inval);
    assert_eq!(try_text(&[b'x'; 4096]), NfsStat3::NameTooLong);
    assert_eq!(try_text(&[b'x'; 4095]), NfsStat3::Ok);
    w.assert_durable();
}

#[test]
fn mknod_makes_what_the_caller_may_and_nothing_unknown() {
    let mut w = World::new();
    let root = w.root();
    let device = DeviceData3 { attributes: mode(0o600), spec: SpecData3 { major: 8, minor: 1 } };
    let make = |w: &mut World, name: &str, what| {
        let place = DirOpArgs3 { dir: Fh3(&root), name: name.as_bytes() };
        let reply = w.call(Proc3::Mknod, &Mknod3Args { place, what });
        if status(&reply) == NfsStat3::Ok { Ok(new_handle(&reply)) } else { Err(status(&reply)) }
    };
    assert_eq!(make(&mut w, "c", MknodData3::Chr(device)), Err(NfsStat3::Perm));
    for (name, what, ftype) in [
        ("fifo", MknodData3::Fifo(mode(0o600)), Ftype3::Fifo),
        ("sock", MknodData3::Sock(mode(0o600)), Ftype3::Sock),
    ] {
        let fh = make(&mut w, name, what).unwrap();
        assert_eq!(w.getattr(&fh).ftype, ftype);
    }
    w.auth = user(0);
    let fh = make(&mut w, "blk", MknodData3::Blk(device)).unwrap();
    assert_eq!((w.getattr(&fh).ftype, w.getattr(&fh).rdev), (Ftype3::Blk, device.spec));
    for other in [1, 2, 5, 77] {
        assert_eq!(make(&mut w, "x", MknodData3::Other(other)), Err(NfsStat3::BadType));
    }
    w.assert_durable();
}
