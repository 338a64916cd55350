use holdfast_base::{Offset, Seqid};
use holdfast_wire::nfs4::*;
use holdfast_xdr::Decode;

use crate::client::{Reply, Session, at};
use crate::scene::{NO_ATTRS, file, make, on, on_nothing, on_v40, three_exports, to_export};
use crate::world::World;

fn create<'a>(objname: &'a [u8], objtype: CreateType4<'a>) -> ArgOp<'a> {
    ArgOp::Create(Create4Args { objtype, objname, createattrs: NO_ATTRS })
}

fn remove(target: &[u8]) -> ArgOp<'_> {
    ArgOp::Remove(Remove4Args { target })
}

fn rename<'a>(oldname: &'a [u8], newname: &'a [u8]) -> ArgOp<'a> {
    ArgOp::Rename(Rename4Args { oldname, newname })
}

fn link(newname: &[u8]) -> ArgOp<'_> {
    ArgOp::Link(Link4Args { newname })
}

/// Operations with one place saved and another current; the reply stands before the last one's result.
fn two_places(client: &mut Session, saved: &[ArgOp<'_>], current: &[ArgOp<'_>], op: ArgOp<'_>) -> Reply {
    let ops = [saved, &[ArgOp::SaveFh], current, &[op]].concat();
    let mut reply = client.run(&ops);
    for place in [saved, &[ArgOp::SaveFh], current].concat() {
        match place {
            ArgOp::PutRootFh => reply.ok::<()>(OpNum4::PutRootFh),
            ArgOp::SaveFh => reply.ok::<()>(OpNum4::SaveFh),
            _ => reply.ok::<()>(OpNum4::Lookup),
        }
    }
    reply
}

fn kind() -> ArgOp<'static> {
    ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(&[Attr::Type]) })
}

fn kind_of(client: &mut Session, path: &[&[u8]]) -> u32 {
    let mut reply = on(client, path, &[kind()]);
    let values = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes.values;
    u32::decode(&mut holdfast_xdr::Reader::new(values)).unwrap()
}

#[test]
fn create_makes_every_kind_but_files_and_makes_it_current() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    client.peer.auth = crate::client::user(0);
    let device = SpecData4 { major: 1, minor: 3 };
    for (name, what, kind) in [
        (&b"d"[..], CreateType4::Dir, NfsFtype4::Dir),
        (b"l", CreateType4::Lnk(b"x"), NfsFtype4::Lnk),
        (b"s", CreateType4::Sock, NfsFtype4::Sock),
        (b"p", CreateType4::Fifo, NfsFtype4::Fifo),
        (b"b", CreateType4::Blk(device), NfsFtype4::Blk),
        (b"c", CreateType4::Chr(device), NfsFtype4::Chr),
    ] {
        let mut reply = on(&mut client, &[], &[create(name, what), ArgOp::GetFh]);
        let made: Create4Ok = reply.ok(OpNum4::Create);
        assert_ne!(made.cinfo.before, made.cinfo.after);
        let handle = reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object.to_vec();
        assert_eq!(client.handle(&[name]), handle);
        assert_eq!(kind_of(&mut client, &[name]), kind as u32);
        on(&mut client, &[], &[create(name, what)]).fails::<()>(OpNum4::Create, NfsStat4::Exist);
    }
}

#[test]
fn create_refuses_files_unknown_kinds_empty_links_and_sizes() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let mut refused = |op, status| on(&mut client, &[], &[op]).fails::<()>(OpNum4::Create, status);
    refused(create(b"f", CreateType4::Other(NfsFtype4::Reg as u32)), NfsStat4::BadType);
    refused(create(b"f", CreateType4::Other(77)), NfsStat4::BadType);
    refused(create(b"l", CreateType4::Lnk(b"")), NfsStat4::Inval);
    let createattrs = Fattr4 { mask: Bitmap4::of(&[Attr::Size]), values: &[0; 8] };
    let sized = Create4Args { objtype: CreateType4::Dir, objname: b"d", createattrs };
    refused(ArgOp::Create(sized), NfsStat4::Inval);
    let createattrs = Fattr4 { mask: Bitmap4::of(&[Attr::Acl]), values: &[0; 4] };
    let with_acl = Create4Args { objtype: CreateType4::Dir, objname: b"d", createattrs };
    refused(ArgOp::Create(with_acl), NfsStat4::AttrNotSupp);
    assert_eq!(client.run(&at(&[b"d"])).status, NfsStat4::NoEnt);
}

#[test]
fn names_that_cannot_be_are_refused_everywhere() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"");
    let long = [b'x'; 256];
    for (name, status) in [
        (&b""[..], NfsStat4::Inval),
        (b".", NfsStat4::BadName),
        (b"a/b", NfsStat4::BadName),
        (&long, NfsStat4::NameTooLong),
    ] {
        on(&mut client, &[], &[create(name, CreateType4::Dir)]).fails::<()>(OpNum4::Create, status);
        on(&mut client, &[], &[remove(name)]).fails::<()>(OpNum4::Remove, status);
        let root = at(&[]);
        two_places(&mut client, &root, &root, rename(b"f", name)).fails::<()>(OpNum4::Rename, status);
        two_places(&mut client, &root, &root, rename(name, b"g")).fails::<()>(OpNum4::Rename, status);
        two_places(&mut client, &at(&[b"f"]), &root, link(name)).fails::<()>(OpNum4::Link, status);
    }
}

#[test]
fn what_is_removed_renamed_and_linked_moves_as_told() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"data");
    make(&mut client, b"d", CreateType4::Dir);
    let handle = client.handle(&[b"f"]);
    two_places(&mut client, &at(&[b"f"]), &at(&[b"d"]), link(b"second")).ok::<Link4Ok>(OpNum4::Link);
    assert_eq!(client.handle(&[b"d", b"second"]), handle);
    two_places(&mut client, &at(&[]), &at(&[b"d"]), rename(b"f", b"third")).ok::<Rename4Ok>(OpNum4::Rename);
    assert_eq!(client.handle(&[b"d", b"third"]), handle);
    on(&mut client, &[], &[remove(b"f")]).fails::<()>(OpNum4::Remove, NfsStat4::NoEnt);
    on(&mut client, &[], &[remove(b"d")]).fails::<()>(OpNum4::Remove, NfsStat4::NotEmpty);
    for name in [&b"second"[..], b"third"] {
        on(&mut client, &[b"d"], &[remove(name)]).ok::<Remove4Ok>(OpNum4::Remove);
    }
    on(&mut client, &[], &[remove(b"d")]).ok::<Remove4Ok>(OpNum4::Remove);
}

#[test]
fn a_file_that_is_renamed_over_while_open_is_read_and_closed_by_its_handle() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"new", 0, b"new");
    let open_stateid = file(&mut client, b"old", 0, b"old");
    let handle = client.handle(&[b"old"]);
    let root = at(&[]);
    two_places(&mut client, &root, &root, rename(b"new", b"old")).ok::<Rename4Ok>(OpNum4::Rename);
    assert_ne!(client.handle(&[b"old"]), handle);
    let put = || ArgOp::PutFh(PutFh4Args { object: &handle });
    let read = ArgOp::Read(Read4Args { stateid: open_stateid, offset: Offset(0), count: 9 });
    let close = ArgOp::Close(Close4Args { seqid: Seqid(0), open_stateid });
    let mut reply = client.run(&[put(), read, close]);
    reply.ok::<()>(OpNum4::PutFh);
    assert_eq!(reply.ok::<Read4Ok<'_>>(OpNum4::Read).data, b"old");
    reply.ok::<Close4Ok>(OpNum4::Close);
    let mut reply = client.run(&[put(), kind()]);
    reply.ok::<()>(OpNum4::PutFh);
    reply.fails::<()>(OpNum4::GetAttr, NfsStat4::Stale);
    world.check();
}

#[test]
fn what_is_renamed_to_itself_or_to_another_name_of_it_stays_as_it_is() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"");
    make(&mut client, b"d", CreateType4::Dir);
    let root = at(&[]);
    two_places(&mut client, &at(&[b"f"]), &root, link(b"g")).ok::<Link4Ok>(OpNum4::Link);
    for (old, new) in [(b"f", b"f"), (b"d", b"d"), (b"f", b"g")] {
        let handles = [old, new].map(|name| client.handle(&[name]));
        let done: Rename4Ok = two_places(&mut client, &root, &root, rename(old, new)).ok(OpNum4::Rename);
        for info in [done.source_cinfo, done.target_cinfo] {
            assert_eq!(info.before, info.after, "nothing has changed");
        }
        assert_eq!([old, new].map(|name| client.handle(&[name])), handles);
    }
}

#[test]
fn in_what_is_no_directory_there_are_no_names_to_change() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"");
    make(&mut client, b"l", CreateType4::Lnk(b"f"));
    for name in [&b"f"[..], b"l"] {
        let create = create(b"x", CreateType4::Dir);
        on(&mut client, &[name], std::slice::from_ref(&create)).fails::<()>(OpNum4::Create, NfsStat4::NotDir);
        on_v40(&world, &[name], &[create]).fails::<()>(OpNum4::Create, NfsStat4::NotDir);
        on(&mut client, &[name], &[remove(b"x")]).fails::<()>(OpNum4::Remove, NfsStat4::NotDir);
        two_places(&mut client, &at(&[]), &at(&[name]), rename(b"f", b"x"))
            .fails::<()>(OpNum4::Rename, NfsStat4::NotDir);
        two_places(&mut client, &at(&[b"f"]), &at(&[name]), link(b"x"))
            .fails::<()>(OpNum4::Link, NfsStat4::NotDir);
    }
}

#[test]
fn nothing_is_moved_or_linked_from_one_export_to_another() {
    let world = three_exports();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"");
    let other = to_export(b"other");
    two_places(&mut client, &at(&[]), &other, rename(b"f", b"g")).fails::<()>(OpNum4::Rename, NfsStat4::Xdev);
    two_places(&mut client, &at(&[b"f"]), &other, link(b"g")).fails::<()>(OpNum4::Link, NfsStat4::Xdev);
    two_places(&mut client, &[ArgOp::PutRootFh], &at(&[]), rename(b"export", b"g"))
        .fails::<()>(OpNum4::Rename, NfsStat4::Xdev);
}

#[test]
fn nothing_is_changed_on_read_only_exports_and_above_exports() {
    let world = three_exports();
    let mut client = Session::open(&world, 1, 1);
    for place in [&[ArgOp::PutRootFh][..], &to_export(b"frozen")] {
        for (op, num) in
            [(create(b"d", CreateType4::Dir), OpNum4::Create), (remove(b"export"), OpNum4::Remove)]
        {
            let status = client.run(&[place, &[op]].concat()).status;
            assert_eq!(status, NfsStat4::Rofs, "{num}");
        }
        two_places(&mut client, place, place, rename(b"a", b"b")).fails::<()>(OpNum4::Rename, NfsStat4::Rofs);
    }
}

#[test]
fn without_filehandles_there_is_nothing_to_do() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let none = NfsStat4::NoFileHandle;
    on_nothing(&mut client, create(b"d", CreateType4::Dir)).fails::<()>(OpNum4::Create, none);
    on_nothing(&mut client, remove(b"d")).fails::<()>(OpNum4::Remove, none);
    on(&mut client, &[], &[rename(b"a", b"b")]).fails::<()>(OpNum4::Rename, none);
    on(&mut client, &[], &[link(b"b")]).fails::<()>(OpNum4::Link, none);
}
