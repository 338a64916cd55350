//! REMOVE, RMDIR, RENAME, LINK.

use holdfast_wire::nfs3::*;

use crate::world::*;

fn at<'a>(dir: &'a [u8], name: &'a str) -> DirOpArgs3<'a> {
    DirOpArgs3 { dir: Fh3(dir), name: name.as_bytes() }
}

#[test]
fn remove_takes_the_name_and_tells_the_directorys_change() {
    let mut w = World::new();
    let root = w.root();
    w.create("a");
    let before = w.getattr(&root);
    let reply: Remove3Res = decode(&w.call(Proc3::Remove, &at(&root, "a")));
    w.assert_durable();
    let after = w.getattr(&root);
    let wcc_attr = WccAttr { size: before.size, mtime: before.mtime, ctime: before.ctime };
    assert_eq!(reply, Res3::Ok(WccData { before: Some(wcc_attr), after: Some(after) }));
    assert_eq!(w.lookup(&root, b"a"), Err(NfsStat3::NoEnt));
}

#[test]
fn each_kind_has_its_own_removal() {
    let mut w = World::new();
    let (root, d) = (w.root(), w.mkdir("d"));
    w.create("f");
    w.create_in(&d, "inside", 0o644);
    let mut try_it = |p, name| status(&w.call(p, &at(&root, name)));
    assert_eq!(try_it(Proc3::Remove, "d"), NfsStat3::IsDir);
    assert_eq!(try_it(Proc3::Rmdir, "f"), NfsStat3::NotDir);
    assert_eq!(try_it(Proc3::Rmdir, "d"), NfsStat3::NotEmpty);
    assert_eq!(try_it(Proc3::Remove, "absent"), NfsStat3::NoEnt);
    assert_eq!(try_it(Proc3::Rmdir, "."), NfsStat3::Inval);
    assert_eq!(try_it(Proc3::Rmdir, ".."), NfsStat3::Exist);
    assert_eq!(try_it(Proc3::Remove, "."), NfsStat3::IsDir);
    assert_eq!(status(&w.call(Proc3::Remove, &at(&d, "inside"))), NfsStat3::Ok);
    assert_eq!(status(&w.call(Proc3::Rmdir, &at(&root, "d"))), NfsStat3::Ok);
    w.assert_durable();
}

#[test]
fn rename_moves_between_directories_and_tells_both_changes() {
    let mut w = World::new();
    let (root, d) = (w.root(), w.mkdir("d"));
    let f = w.create("f");
    let before = (w.getattr(&root), w.getattr(&d));
    let reply: Rename3Res =
        decode(&w.call(Proc3::Rename, &Rename3Args { from: at(&root, "f"), to: at(&d, "g") }));
    w.assert_durable();
    let after = (w.getattr(&root), w.getattr(&d));
    let wcc = |before: Fattr3, after| WccData {
        before: Some(WccAttr { size: before.size, mtime: before.mtime, ctime: before.ctime }),
        after: Some(after),
    };
    let expected = RenameWcc3 { fromdir_wcc: wcc(before.0, after.0), todir_wcc: wcc(before.1, after.1) };
    assert_eq!(reply, Res3::Ok(expected));
    assert_eq!(w.lookup(&d, b"g").unwrap().0, f);
    assert_eq!(w.lookup(&root, b"f"), Err(NfsStat3::NoEnt));
}

#[test]
fn rename_refuses_what_cannot_be() {
    let mut w = World::new();
    let (root, d, other) = (w.root(), w.mkdir("d"), w.handle_at(b"/more/other"));
    w.create("f");
    w.create_in(&d, "x", 0o644);
    let mut rename = |from: DirOpArgs3<'_>, to: DirOpArgs3<'_>| {
        let reply = w.call(Proc3::Rename, &Rename3Args { from, to });
        status(&reply)
    };
    assert_eq!(rename(at(&root, "f"), at(&other, "f")), NfsStat3::Xdev);
    assert_eq!(rename(at(&root, "absent"), at(&root, "g")), NfsStat3::NoEnt);
    assert_eq!(rename(at(&root, "d"), at(&d, "below")), NfsStat3::Inval);
    assert_eq!(rename(at(&root, "f"), at(&root, "d")), NfsStat3::IsDir);
    assert_eq!(rename(at(&root, "d"), at(&root, "f")), NfsStat3::NotDir);
    assert_eq!(rename(at(&root, "f"), at(&root, ".")), NfsStat3::Inval);
    assert_eq!(rename(at(&root, ".."), at(&root, "g")), NfsStat3::Inval);
    let top = w.handle_at(b"/");
    let reply = w.call(Proc3::Rename, &Rename3Args { from: at(&top, "data"), to: at(&top, "x") });
    assert_eq!(status(&reply), NfsStat3::Rofs);
}

#[test]
fn link_adds_a_name_and_tells_file_and_directory() {
    let mut w = World::new();
    let (root, f) = (w.root(), w.create("f"));
    let reply: Link3Res = decode(&w.call(Proc3::Link, &Link3Args { file: Fh3(&f), link: at(&root, "g") }));
    w.assert_durable();
    let (attrs, dir) = (w.getattr(&f), w.getattr(&root));
    match reply {
        Res3::Ok(ok) => {
            assert_eq!((ok.file_attributes, ok.linkdir_wcc.after), (Some(attrs), Some(dir)));
            assert!(ok.linkdir_wcc.before.is_some());
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(attrs.nlink, 2);
    let again: Link3Res = decode(&w.call(Proc3::Link, &Link3Args { file: Fh3(&f), link: at(&root, "g") }));
    let after = WccData { before: None, after: Some(dir) };
    assert_eq!(
        again,
        Res3::Fail(NfsStat3::Exist, LinkWcc3 { file_attributes: Some(attrs), linkdir_wcc: after })
    );
    let (d, other) = (w.mkdir("d"), w.handle_at(b"/more/other"));
    let mut link = |file: &[u8], dir: &[u8]| {
        status(&w.call(Proc3::Link, &Link3Args { file: Fh3(file), link: at(dir, "h") }))
    };
    assert_eq!(link(&d, &root), NfsStat3::IsDir);
    assert_eq!(link(&f, &other), NfsStat3::Xdev);
}
