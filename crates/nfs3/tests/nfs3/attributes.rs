//! GETATTR, SETATTR, LOOKUP, ACCESS, READLINK.

use holdfast_wire::nfs3::*;

use crate::world::*;

#[test]
fn getattr_tells_what_was_made() {
    let mut w = World::new();
    let f = w.create("a");
    let attrs = w.getattr(&f);
    let expected =
        Fattr3 { ftype: Ftype3::Reg, mode: 0o644, nlink: 1, uid: 1, gid: 1, size: 0, used: 0, ..attrs };
    assert_eq!(attrs, expected);
    assert_eq!(w.getattr(&w.root()).ftype, Ftype3::Dir);
}

#[test]
fn a_forged_handle_is_bad_and_a_removed_object_stale() {
    let mut w = World::new();
    let f = w.create("a");
    for i in 0..f.len() {
        let mut forged = f.clone();
        forged[i] ^= 1;
        let told = w.call(Proc3::GetAttr, &Fh3(&forged));
        assert_eq!(told, NfsStat3::BadHandle.as_u32().to_be_bytes(), "byte {i}: the backend is not asked");
    }
    let root = w.root();
    w.call(Proc3::Remove, &DirOpArgs3 { dir: Fh3(&root), name: b"a" });
    assert_eq!(w.call(Proc3::GetAttr, &Fh3(&f)), NfsStat3::Stale.as_u32().to_be_bytes());
}

#[test]
fn setattr_tells_before_and_after_and_is_durable() {
    let mut w = World::new();
    let f = w.create("a");
    let before = w.getattr(&f);
    let new_attributes = Sattr3 { size: Some(7), ..mode(0o600) };
    let args = SetAttr3Args { object: Fh3(&f), new_attributes, guard: None };
    let wcc = match decode(&w.call(Proc3::SetAttr, &args)) {
        SetAttr3Res::Ok(wcc) => wcc,
        other => panic!("{other:?}"),
    };
    w.assert_durable();
    assert_eq!(wcc.before, Some(WccAttr { size: 0, mtime: before.mtime, ctime: before.ctime }));
    let after = w.getattr(&f);
    assert_eq!(wcc.after, Some(after));
    assert_eq!((after.size, after.mode), (7, 0o600));
    assert!(after.ctime.seconds > before.ctime.seconds);
}

#[test]
fn setattr_under_a_guard_that_differs_changes_nothing() {
    let mut w = World::new();
    let f = w.create("a");
    let attrs = w.getattr(&f);
    let wrong = NfsTime3 { seconds: 1, nseconds: 2 };
    let args = |guard| SetAttr3Args { object: Fh3(&f), new_attributes: mode(0o600), guard: Some(guard) };
    let reply: SetAttr3Res = decode(&w.call(Proc3::SetAttr, &args(wrong)));
    assert_eq!(reply, Res3::Fail(NfsStat3::NotSync, WccData { before: None, after: Some(attrs) }));
    assert_eq!(status(&w.call(Proc3::SetAttr, &args(attrs.ctime))), NfsStat3::Ok);
    let bad = NfsTime3 { seconds: 1, nseconds: 1_000_000_000 };
    assert_eq!(status(&w.call(Proc3::SetAttr, &args(bad))), NfsStat3::Inval);
}

#[test]
fn only_the_owner_sets_attributes() {
    let mut w = World::new();
    let f = w.create("a");
    w.auth = user(2);
    let args = SetAttr3Args { object: Fh3(&f), new_attributes: mode(0o666), guard: None };
    assert_eq!(status(&w.call(Proc3::SetAttr, &args)), NfsStat3::Perm);
}

#[test]
fn lookup_finds_names_dots_and_nothing_else() {
    let mut w = World::new();
    let (root, d) = (w.root(), w.mkdir("d"));
    let f = w.create_in(&d, "f", 0o644);
    let attrs = w.getattr(&f);
    assert_eq!(w.lookup(&d, b"f"), Ok((f.clone(), Some(attrs))));
    assert_eq!(w.lookup(&d, b".").unwrap().0, d);
    assert_eq!(w.lookup(&d, b"..").unwrap().0, root);
    assert_eq!(w.lookup(&d, b"g"), Err(NfsStat3::NoEnt));
    assert_eq!(w.lookup(&f, b"g"), Err(NfsStat3::NotDir));
    assert_eq!(w.lookup(&d, &[b'x'; 256]), Err(NfsStat3::NameTooLong));
    assert_eq!(w.lookup(&d, b"a/b"), Err(NfsStat3::Acces));
    assert_eq!(w.lookup(&d, b""), Err(NfsStat3::Acces));
}

#[test]
fn lookup_goes_from_the_pseudo_root_into_exports_and_back() {
    let mut w = World::new();
    let (top, more, data) = (w.handle_at(b"/"), w.handle_at(b"/more"), w.root());
    assert_eq!(w.lookup(&top, b"data").unwrap().0, data);
    assert_eq!(w.lookup(&top, b"more").unwrap().0, more);
    assert_eq!(w.lookup(&more, b"other").unwrap().0, w.handle_at(b"/more/other"));
    assert_eq!(w.lookup(&data, b"..").unwrap().0, top);
    assert_eq!(w.lookup(&more, b"..").unwrap().0, top);
    assert_eq!(w.lookup(&top, b"..").unwrap().0, top);
    assert_eq!(w.lookup(&top, b"absent"), Err(NfsStat3::NoEnt));
    let (root, below) = (w.getattr(&top), w.getattr(&data));
    assert_eq!((root.ftype, root.mode), (Ftype3::Dir, 0o555));
    assert_ne!(root.fsid, below.fsid);
}

fn access(w: &mut World, object: &[u8]) -> u32 {
    let reply = w.call(Proc3::Access, &Access3Args { object: Fh3(object), access: u32::MAX });
    match decode::<Access3Res>(&reply) {
        Res3::Ok(ok) => {
            assert!(ok.obj_attributes.is_some());
            ok.access
        }
        Res3::Fail(status, _) => panic!("{status}"),
    }
}

#[test]
fn access_tells_the_rights_of_each_caller() {
    let mut w = World::new();
    let f = w.create("a");
    assert_eq!(access(&mut w, &f), ACCESS3_READ | ACCESS3_MODIFY | ACCESS3_EXTEND);
    w.auth = user(2);
    assert_eq!(access(&mut w, &f), ACCESS3_READ);
    let all = ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_DELETE;
    let root = w.root();
    assert_eq!(access(&mut w, &root), all);
    let top = w.handle_at(b"/");
    assert_eq!(access(&mut w, &top), ACCESS3_READ | ACCESS3_LOOKUP);
}

#[test]
fn a_read_only_export_grants_no_change_and_does_none() {
    let mut w = World::with(|o| o.is_read_only = true);
    let root = w.root();
    assert_eq!(access(&mut w, &root), ACCESS3_READ | ACCESS3_LOOKUP);
    let place = DirOpArgs3 { dir: Fh3(&root), name: b"a" };
    let reply = w.call(Proc3::Create, &Create3Args { place, how: CreateHow3::Guarded(NOTHING) });
    assert_eq!(decode::<Create3Res<'_>>(&reply), Res3::Fail(NfsStat3::Rofs, WccData::NONE));
    assert_eq!(w.lookup(&root, b"a"), Err(NfsStat3::NoEnt));
}

#[test]
fn an_export_refuses_hosts_and_ports_that_its_rules_leave_out() {
    let mut w = World::with(|o| o.clients.clear());
    let root = w.namespace.exports()[0].clone();
    let fh = w.namespace.seal_in(&root, &w.root_inner());
    assert_eq!(w.call(Proc3::GetAttr, &Fh3(fh.as_bytes())), NfsStat3::Acces.as_u32().to_be_bytes());
}

#[test]
fn an_export_may_ask_for_privileged_ports() {
    let mut w = World::with(|o| o.accepts_high_ports = false);
    let root = w.root();
    assert_eq!(status(&w.call(Proc3::GetAttr, &Fh3(&root))), NfsStat3::Ok);
    w.client = w.client.another("127.0.0.1:1024".parse().unwrap());
    assert_eq!(status(&w.call(Proc3::GetAttr, &Fh3(&root))), NfsStat3::Acces);
}

#[test]
fn one_caller_is_not_taken_for_another() {
    let mut w = World::new();
    let root = w.root();
    let f = w.create_in(&root, "secret", 0o600);
    let read = Read3Args { file: Fh3(&f), offset: holdfast_base::Offset(0), count: 1 };
    for (uid, expected) in [(1, NfsStat3::Ok), (2, NfsStat3::Acces), (1, NfsStat3::Ok), (0, NfsStat3::Ok)] {
        w.auth = user(uid);
        assert_eq!(status(&w.call(Proc3::Read, &read)), expected, "user {uid}");
    }
    // Nobody in particular is the anonymous user.
    w.auth = holdfast_rpc::Auth::None;
    assert_eq!(status(&w.call(Proc3::Read, &read)), NfsStat3::Acces);
}

#[test]
fn root_is_squashed_where_the_export_says_so() {
    let mut w = World::with(|o| o.squash = holdfast_export::Squash::Root);
    w.auth = user(0);
    let f = w.create("a");
    let attrs = w.getattr(&f);
    assert_eq!((attrs.uid, attrs.gid), (65534, 65534));
    w.auth = user(9);
    let f = w.create("b");
    assert_eq!(w.getattr(&f).uid, 9);
}

#[test]
fn readlink_gives_the_text_and_refuses_files() {
    let mut w = World::new();
    let root = w.root();
    let place = DirOpArgs3 { dir: Fh3(&root), name: b"l" };
    let args = Symlink3Args { place, attributes: NOTHING, data: b"some/where" };
    let l = new_handle(&w.call(Proc3::Symlink, &args));
    let reply = w.call(Proc3::ReadLink, &Fh3(&l));
    match decode::<ReadLink3Res<'_>>(&reply) {
        Res3::Ok(ok) => assert_eq!(
            (ok.data, ok.symlink_attributes.map(|a| a.ftype)),
            (&b"some/where"[..], Some(Ftype3::Lnk))
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(status(&w.call(Proc3::ReadLink, &Fh3(&root))), NfsStat3::Inval);
}
